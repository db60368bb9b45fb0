//! HTTP/1.1 with connections that are kept, side by side with nginx, HAProxy, Envoy and Traefik on the same job: a
//! thousand hosts, the proxy on one core, the load on the other, rounds interleaved. Then HTTPS and HTTP/2 beside nginx.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bench::http::gate::{self, Gate};
use bench::http::load::Clients;
use bench::http::peers::{self, Found, Peer, Pem};
use bench::http::{DOMAIN, Sites, Speaks, Tls, World, fleetgate};
use bench::proxies::Proxy;
use bench::statistics::ratios;
use bench::{Bar, Program, Report, Row, Summary, Unit, cores};
use clap::Parser;

const SITES: usize = 1000;
/// Addresses that the hosts share: as many as a fleet may have clusters behind one gateway's busiest hosts.
const BACKENDS: usize = 8;
const AT_ONCE: usize = 64;
/// Requests at once on a connection of HTTP/2.
const STREAMS: usize = 8;

/// Measures HTTP beside nginx, HAProxy, Envoy and Traefik.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    gate: Gate,
    #[command(flatten)]
    program: Program,
    /// The folder with the programs that run the peers, and fetch them should they not be there
    #[arg(long, default_value = "testbed")]
    testbed: PathBuf,
    /// How often each proxy has its turn
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long a turn of each kind takes, in milliseconds
    #[arg(long, default_value_t = 2000)]
    turn: u64,
    /// Requests a second, for latencies: about a seventh of what nginx can do
    #[arg(long, default_value_t = 5000.0)]
    rate: f64,
    /// Measures only some of it
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Leaves out some of the peers
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Plain HTTP/1.1, beside all peers
    Plain,
    /// HTTPS, and HTTP/2 over it, beside nginx
    Tls,
}

/// A proxy with its clients, and what it was measured at, turn by turn.
struct Subject {
    proxy: Proxy,
    clients: Clients,
    rates: Vec<f64>,
    cpu_per_100k: Vec<f64>,
    /// The 99th percentile of a turn, in microseconds.
    latencies: Vec<f64>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.gate.is_wanted() {
        return arguments.gate.serve();
    }
    let wanted = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    cores::pin_load()?;
    println!("load before: {}", bench::report::load());
    let mut report = Report::new("http");
    let found = find(&arguments, &mut report);
    let mut world = World::new(BACKENDS)?;
    let addresses = world.backends().to_vec();
    let sites = Sites { count: SITES, backends: &addresses };
    let folder = tempfile::tempdir()?;
    if wanted(Part::Plain) {
        compare(&arguments, &found, folder.path(), sites, &mut world, &mut report)?;
    }
    if wanted(Part::Tls)
        && let Some(nginx) = found.iter().find(|found| found.peer == Peer::Nginx)
    {
        compare_tls(&arguments, nginx, folder.path(), sites, &mut world, &mut report)?;
    }
    report.finish()
}

/// Loud where one is not: a table without its rows must not look like one that nobody asked for.
fn find(arguments: &Arguments, report: &mut Report) -> Vec<Found> {
    let find = |peer: Peer| match peer.find(&arguments.testbed) {
        Ok(found) => {
            println!("{}", found.title);
            Some(found)
        }
        Err(error) => {
            let line = "=".repeat(80);
            eprintln!("\n{line}\nThere is no {}, so that it is NOT MEASURED: {error:#}\n{line}\n", peer.name());
            report.note(format!("{} is NOT MEASURED: {error:#}", peer.name()));
            None
        }
    };
    let wanted = |peer: &Peer| !arguments.without.iter().any(|name| name.eq_ignore_ascii_case(peer.name()));
    Peer::ALL.into_iter().filter(wanted).filter_map(find).collect()
}

/// All proxies on plain HTTP/1.1, by turns.
fn compare(
    arguments: &Arguments,
    found: &[Found],
    folder: &Path,
    sites: Sites<'_>,
    world: &mut World,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut subjects = Vec::new();
    let program = arguments.program.find()?;
    for proxy in [fleetgate::start(&program, folder, sites, None)?, gate::start(sites)?] {
        subjects.push(Subject::new(proxy, &Speaks::Http1, sites, world)?);
    }
    for peer in found {
        let proxy = peer.start(folder, sites).with_context(|| format!("starting {}", peer.title))?;
        subjects.push(Subject::new(proxy, &Speaks::Http1, sites, world)?);
    }
    measure(arguments, &mut subjects, world)?;
    for subject in &subjects {
        subject.report("", report)?;
    }
    let [ours, peers @ ..] = &subjects[..] else { anyhow::bail!("nothing was measured") };
    let of = |name: &str| peers.iter().find(|subject| subject.proxy.name == name);
    if let Some(nginx) = of("nginx") {
        for (what, sample, bar) in [
            ("requests against nginx", ratios(&ours.rates, &nginx.rates), Bar::AtLeast(1.4)),
            ("CPU per request against nginx", ratios(&ours.cpu_per_100k, &nginx.cpu_per_100k), Bar::MedianAtMost(0.7)),
            ("p99 latency against nginx", ratios(&ours.latencies, &nginx.latencies), Bar::MedianAtMost(1.0)),
        ] {
            ratio(what, &sample, Some(bar), report)?;
        }
    }
    for (name, bar) in [("HAProxy", None), ("Envoy", Some(Bar::AtLeast(4.0))), ("Traefik", None)] {
        if let Some(peer) = of(name) {
            ratio(&format!("requests against {name}"), &ratios(&ours.rates, &peer.rates), bar, report)?;
        }
    }
    if let Some(haproxy) = of("HAProxy") {
        let sample = [ours.proxy.own_memory()? / haproxy.proxy.own_memory()?];
        ratio("memory against HAProxy", &sample, Some(Bar::MedianAtMost(1.0)), report)?;
    }
    Ok(())
}

/// HTTPS, and HTTP/2 over it, beside nginx.
fn compare_tls(
    arguments: &Arguments,
    nginx: &Found,
    folder: &Path,
    sites: Sites<'_>,
    world: &mut World,
    report: &mut Report,
) -> anyhow::Result<()> {
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(vec![format!("*.{DOMAIN}")])?;
    let pem = Pem { certificate: folder.join("certificate.pem"), key: folder.join("key.pem") };
    fs::write(&pem.certificate, cert.pem())?;
    fs::write(&pem.key, signing_key.serialize_pem())?;
    let program = arguments.program.find()?;
    let tls = |protocol| Tls::new(cert.der().clone(), protocol);
    for (kind, speaks) in
        [("HTTPS", Speaks::Https1(tls(b"http/1.1")?)), ("HTTP/2", Speaks::Http2(tls(b"h2")?, STREAMS))]
    {
        let mut subjects = [
            Subject::new(fleetgate::start(&program, folder, sites, Some(&pem))?, &speaks, sites, world)?,
            Subject::new(peers::start_nginx_tls(nginx, folder, &pem, sites)?, &speaks, sites, world)?,
        ];
        measure(arguments, &mut subjects, world)?;
        for subject in &subjects {
            subject.report(&format!(", {kind}"), report)?;
        }
        let [ours, theirs] = &subjects;
        for (what, sample) in [
            ("requests", ratios(&ours.rates, &theirs.rates)),
            ("CPU per request", ratios(&ours.cpu_per_100k, &theirs.cpu_per_100k)),
            ("p99 latency", ratios(&ours.latencies, &theirs.latencies)),
        ] {
            ratio(&format!("{kind}: {what} against nginx (goal: ahead)"), &sample, None, report)?;
        }
    }
    Ok(())
}

fn ratio(what: &str, sample: &[f64], bar: Option<Bar>, report: &mut Report) -> anyhow::Result<()> {
    let figures = Summary::of(sample).context("nothing was measured")?;
    report.add(Row { what: what.into(), unit: Unit::Times, figures, bar });
    Ok(())
}

/// The subjects take turns; each round begins with another one.
fn measure(arguments: &Arguments, subjects: &mut [Subject], world: &mut World) -> anyhow::Result<()> {
    let time = Duration::from_millis(arguments.turn);
    for round in 0..=arguments.rounds {
        let count = subjects.len();
        for number in 0..count {
            let subject = &mut subjects[(number + round as usize) % count];
            // The first round warms up.
            let turn = subject.turn(world, arguments.rate, time, round > 0);
            turn.with_context(|| format!("measuring {}", subject.proxy.name))?;
        }
        eprintln!("round {round} of {} done, load {}", arguments.rounds, bench::report::load());
    }
    Ok(())
}

impl Subject {
    fn new(proxy: Proxy, speaks: &Speaks, sites: Sites<'_>, world: &mut World) -> anyhow::Result<Self> {
        if !matches!(speaks, Speaks::Http2(..)) {
            let checked = world.check(proxy.door, speaks, sites);
            checked.with_context(|| format!("checking what {} does", proxy.name))?;
        }
        let clients = world.clients(proxy.door, speaks, AT_ONCE, sites.count)?;
        Ok(Self { proxy, clients, rates: Vec::new(), cpu_per_100k: Vec::new(), latencies: Vec::new() })
    }

    fn turn(&mut self, world: &mut World, rate: f64, time: Duration, counts: bool) -> anyhow::Result<()> {
        let before = self.proxy.cpu_seconds()?;
        let answers = world.saturate(&mut self.clients, time)?;
        let used = self.proxy.cpu_seconds()? - before;
        let latencies = world.steady(&mut self.clients, rate, time)?;
        if counts {
            #[allow(clippy::cast_precision_loss)]
            let answers = answers as f64;
            self.rates.push(answers / time.as_secs_f64());
            self.cpu_per_100k.push(used / answers * 1e5);
            let summary = Summary::of(&latencies).context("no request was answered")?;
            self.latencies.push(summary.judged());
        }
        Ok(())
    }

    /// `kind` stands behind its name.
    fn report(&self, kind: &str, report: &mut Report) -> anyhow::Result<()> {
        let mut add = |what: &str, unit, sample: &[f64]| {
            let figures = Summary::of(sample).context("nothing was measured")?;
            report.add(Row { what: format!("{}{kind}: {what}", self.proxy.name), unit, figures, bar: None });
            anyhow::Ok(())
        };
        add("requests", Unit::PerSecond, &self.rates)?;
        add("CPU per 100,000 requests", Unit::Seconds, &self.cpu_per_100k)?;
        add("p99 latency of a turn", Unit::Microseconds, &self.latencies)?;
        add("memory", Unit::Megabytes, &[self.proxy.own_memory()? / 1e6])
    }
}
