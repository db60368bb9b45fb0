//! Two tenants with as many records each, at the agents' door: one changes its records as fast as the door lets it, and
//! does not wait when it is told to. How soon a change of the other one's is answered by DNS meanwhile.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agent::{Link, LinkError, LinkMetrics, LinkOptions};
use anyhow::{Context as _, ensure};
use bench::server::Server;
use bench::{Bar, Report, Row, Summary, Unit, cores};
use clap::Parser;
use manifest::agents::{ClaimChanges, Claims};
use manifest::dns_endpoint::EndpointSpec;
use model::DnsName;
use prometheus_client::registry::Registry;
use tokio::runtime::{Builder, Runtime};

const BAR_MS: f64 = 1_000.0;
/// Records changed a second: the door lets 2,500 of one cluster through.
const ENOUGH_NOISE: f64 = 2_000.0;
/// Of the quiet tenant's objects: as people write them.
const SMALL: usize = 10;
/// Of the noisy tenant's: as large as they may be, so that one request changes as much as one can. Also of one request
/// when everything is loaded.
const LARGE: usize = 1000;
/// As many connections as a cluster may have, but for one.
const NOISY_LINKS: usize = 7;
/// Whoever makes the authority does so just after the start.
const ISSUE_PATIENCE: Duration = Duration::from_secs(30);

const FLEET: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [127.0.0.1]}]
  gateway: {addresses: [192.0.2.10]}
";

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    program: bench::Program,
    /// Records of each tenant
    #[arg(long, default_value_t = 10_000)]
    records: usize,
    /// Changes of the quiet tenant, alone and as many again beside the noisy one
    #[arg(long, default_value_t = 200)]
    changes: usize,
    /// Between two of them, in milliseconds
    #[arg(long, default_value_t = 200)]
    pause: u64,
    /// How many objects of a thousand records the noisy tenant changes in one request
    #[arg(long, default_value_t = 1)]
    at_once: usize,
}

/// What the noisy tenant came to.
#[derive(Default)]
struct Noise {
    taken: AtomicU64,
    /// Told to wait.
    refused: AtomicU64,
    failed: AtomicU64,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let program = options.program.find()?;
    let root = tempfile::tempdir().context("making a folder")?;
    let place = Place::new(&program, root.path())?;
    let mut server = place.start()?;
    let [door, admin] = server.doors(["agents", "admin"])?;
    let quiet = Tenant { cluster: "quiet", per_object: SMALL, records: options.records };
    let noisy = Tenant { cluster: "noisy", per_object: LARGE, records: options.records };

    let runtime = Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    let [quiet_file, noisy_file] = [place.issue(admin, &quiet)?, place.issue(admin, &noisy)?];
    let link = Arc::new(open(door, &quiet_file)?);
    let loaded = Instant::now();
    runtime.block_on(quiet.load(&link))?;
    runtime.block_on(noisy.load(&open(door, &noisy_file)?))?;
    for tenant in [&quiet, &noisy] {
        server.until_answered(1, &tenant.name(options.records - 1)?, &[address(0)])?;
    }
    println!("{} records of each tenant are loaded after {:.1?}", options.records, loaded.elapsed());

    let mut changes = Changes { options: &options, tenant: &quiet, link, made: 0 };
    // Those that find everything cold are nobody's measure.
    changes.make(&mut server, &runtime, 10)?;
    let alone = changes.make(&mut server, &runtime, options.changes)?;
    let (storm, begun) = (Arc::new(Noise::default()), Instant::now());
    let stop = Arc::new(AtomicBool::new(false));
    let noisy = Arc::new(noisy);
    let clients = start_noise((door, &noisy_file), &noisy, options.at_once, &storm, &stop)?;
    let beside = changes.make(&mut server, &runtime, options.changes);
    let seconds = begun.elapsed().as_secs_f64();
    stop.store(true, Ordering::Release);
    clients.shutdown_timeout(Duration::from_secs(10));
    report(&options, [&alone, &beside?], &storm, seconds)?;
    server.stop()
}

/// The changes of the quiet tenant.
struct Changes<'a> {
    options: &'a Options,
    tenant: &'a Tenant,
    link: Arc<Link>,
    /// So that each is another one.
    made: usize,
}

impl Changes<'_> {
    /// One after the other, in milliseconds from the request to the answer.
    fn make(&mut self, server: &mut Server, runtime: &Runtime, count: usize) -> anyhow::Result<Vec<f64>> {
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            self.made += 1;
            // Objects in turn, so that each change is of another one, and the first record of each.
            let object = self.made % self.tenant.objects();
            let target = self.made;
            let changes = ClaimChanges { set: vec![self.tenant.claims(object, target)], delete: Vec::new() };
            let name = self.tenant.name(object * self.tenant.per_object)?;
            let link = Arc::clone(&self.link);
            let begun = Instant::now();
            let change = runtime.spawn(async move { link.change(&changes).await });
            let id = u16::try_from(self.made % 65_536).context("an id has 16 bits")?;
            // The request is under way in the meantime.
            std::thread::scope(|scope| {
                let answered = scope.spawn(|| {
                    server.until_answered(id, &name, &[address(target)])?;
                    anyhow::Ok(begun.elapsed())
                });
                runtime.block_on(change)?.context("a change of the quiet tenant's")?;
                let answered = answered.join().map_err(|_| anyhow::anyhow!("whoever asked DNS panicked"))??;
                taken.push(answered.as_secs_f64() * 1e3);
                anyhow::Ok(())
            })?;
            std::thread::sleep(Duration::from_millis(self.options.pause).saturating_sub(begun.elapsed()));
        }
        Ok(taken)
    }
}

/// Changes everything again and again, in as many connections as there may be, whatever the door says.
fn start_noise(
    (door, bootstrap): (SocketAddr, &Path),
    tenant: &Arc<Tenant>,
    at_once: usize,
    noise: &Arc<Noise>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Runtime> {
    // Its clients are elsewhere: what they do is no reason for the quiet one's to wait.
    let give_way = || cores::give_way().unwrap_or_else(|error| eprintln!("{error:#}"));
    let runtime = Builder::new_multi_thread().worker_threads(2).on_thread_start(give_way).enable_all().build()?;
    for number in 0..NOISY_LINKS {
        let link = open(door, bootstrap)?;
        let (tenant, noise, stop) = (Arc::clone(tenant), Arc::clone(noise), Arc::clone(stop));
        runtime.spawn(async move {
            let mut target = number;
            while !stop.load(Ordering::Acquire) {
                target += NOISY_LINKS;
                let objects = (target..target + at_once.min(tenant.objects())).map(|number| number % tenant.objects());
                let set = objects.map(|object| tenant.claims(object, target)).collect();
                let counter = match link.change(&ClaimChanges { set, delete: Vec::new() }).await {
                    Ok(_) => &noise.taken,
                    Err(LinkError::Busy { .. }) => &noise.refused,
                    Err(_) => &noise.failed,
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    Ok(runtime)
}

fn report(options: &Options, [alone, beside]: [&[f64]; 2], noise: &Noise, seconds: f64) -> anyhow::Result<()> {
    let mut report = Report::new("tenants");
    for (what, sample, bar) in [
        ("a change to its answer, alone", alone, None),
        ("a change to its answer, beside the noisy tenant", beside, Some(Bar::AtMost(BAR_MS))),
    ] {
        let figures = Summary::of(sample).context("nothing was measured")?;
        report.add(Row { what: what.into(), unit: Unit::Milliseconds, figures, bar });
    }
    let slowest = beside.iter().copied().fold(0.0, f64::max);
    let (what, figures) = ("the slowest of these".into(), Summary::single(slowest));
    report.add(Row { what, unit: Unit::Milliseconds, figures, bar: Some(Bar::AtMost(BAR_MS)) });
    #[allow(clippy::cast_precision_loss)]
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64 / seconds;
    #[allow(clippy::cast_precision_loss)]
    let records = (LARGE * options.at_once).min(options.records) as f64;
    // Less is not the noise that was asked for: others kept its clients from the machine.
    let enough = Some(Bar::AtLeast(ENOUGH_NOISE));
    for (what, figure, bar) in [
        ("the noisy tenant's requests that were taken", count(&noise.taken), None),
        ("records changed by these", count(&noise.taken) * records, enough),
        ("its requests that were told to wait", count(&noise.refused), None),
        ("its requests that were too late for it, or failed", count(&noise.failed), None),
    ] {
        let figures = Summary::single(figure);
        report.add(Row { what: what.into(), unit: Unit::PerSecond, figures, bar });
    }
    report.finish()
}

/// One tenant with one cluster of the same name.
struct Tenant {
    cluster: &'static str,
    per_object: usize,
    records: usize,
}

impl Tenant {
    fn manifest(&self) -> String {
        let name = self.cluster;
        format!(
            "\
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {{name: {name}}}
spec: {{targets: {{allow: [203.0.113.0/24]}}}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec:
  tenant: {name}
  zone: main
  controlPlane: {{kubeApiserver: {{addresses: [\"127.0.0.1:9\"]}}}}
"
        )
    }

    fn objects(&self) -> usize {
        self.records.div_ceil(self.per_object)
    }

    fn text(&self, record: usize) -> String {
        format!("r{record}.{}.fleet.example", self.cluster)
    }

    fn name(&self, record: usize) -> anyhow::Result<DnsName> {
        DnsName::parse(&self.text(record)).context("a record's name")
    }

    /// One object, whose records all lead to one target.
    fn claims(&self, object: usize, target: usize) -> Claims {
        let from = object * self.per_object;
        let endpoint = |record| EndpointSpec {
            dns_name: self.text(record),
            record_type: "A".into(),
            targets: vec![address(target).to_string()],
            record_ttl: 60,
            ..EndpointSpec::default()
        };
        let endpoints = (from..self.records.min(from + self.per_object)).map(endpoint).collect();
        Claims { key: format!("sync/default/o{object}"), endpoints }
    }

    async fn load(&self, link: &Link) -> anyhow::Result<()> {
        let objects: Vec<usize> = (0..self.objects()).collect();
        for objects in objects.chunks(LARGE / self.per_object) {
            let set = objects.iter().map(|object| self.claims(*object, 0)).collect();
            let answer = link.change(&ClaimChanges { set, delete: Vec::new() }).await?;
            let refused = answer.verdicts.iter().flat_map(|claims| &claims.verdicts).find(|part| !part.published);
            ensure!(refused.is_none(), "a record is refused: {refused:?}");
        }
        Ok(())
    }
}

/// Each of 254 in turn.
fn address(target: usize) -> Ipv4Addr {
    let last = u8::try_from(target % 254 + 1).unwrap_or(u8::MAX);
    Ipv4Addr::new(203, 0, 113, last)
}

fn open(door: SocketAddr, bootstrap: &Path) -> anyhow::Result<Link> {
    let options = LinkOptions { hubs: vec![door.to_string().parse()?], bootstrap: bootstrap.into(), state: None };
    Ok(Link::open(options, LinkMetrics::register(&mut Registry::default()))?)
}

/// Where everything is on disk.
struct Place<'a> {
    program: &'a Path,
    root: &'a Path,
    credential: PathBuf,
}

impl<'a> Place<'a> {
    fn new(program: &'a Path, root: &'a Path) -> anyhow::Result<Self> {
        let credential = root.join("admin");
        fs::write(&credential, "an-admin-credential-for-a-benchmark").context("writing the admin credential")?;
        fs::create_dir(root.join("fleet")).context("making the fleet's folder")?;
        let tenants = ["quiet", "noisy"].map(|cluster| Tenant { cluster, per_object: 1, records: 0 }.manifest());
        fs::write(root.join("fleet/fleet.yaml"), FLEET.to_owned() + &tenants.concat()).context("writing the fleet")?;
        Ok(Self { program, root, credential })
    }

    fn start(&self) -> anyhow::Result<Server> {
        let credential = self.credential.to_str().context("the folder's name is no text")?;
        let more = ["--agents", "127.0.0.1:0", "--admin-credential", credential, "--dns-rate-limit", "0"];
        Server::start_with(self.program, &self.root.join("fleet"), &self.root.join("data"), &more)
    }

    /// A bootstrap file for a tenant's cluster.
    fn issue(&self, admin: SocketAddr, tenant: &Tenant) -> anyhow::Result<PathBuf> {
        let file = self.root.join(tenant.cluster).with_extension("json");
        let begun = Instant::now();
        loop {
            let mut command = Command::new(self.program);
            command.args(["credential", "issue", tenant.cluster, "--admin", &admin.to_string()]);
            let output = command.arg("--admin-credential").arg(&self.credential).output().context("issuing")?;
            if output.status.success() {
                fs::write(&file, output.stdout).context("writing a bootstrap file")?;
                return Ok(file);
            }
            let why = String::from_utf8_lossy(&output.stderr);
            ensure!(begun.elapsed() < ISSUE_PATIENCE, "no credential for {}: {why}", tenant.cluster);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
