//! A tenant that wants ten times what it may have, and its neighbour, who wants what it always does: what the
//! neighbour notices. The proxy on one core, the load on the other, by turns.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench::fleet::Member;
use bench::load::{Backend, Headers};
use bench::proxies::{Clusters, Proxy, fleetgate};
use bench::statistics::ratios;
use bench::stream::{self, Outcome, Source};
use bench::{Bar, Report, Row, Summary, Unit, cores};
use clap::Parser;

/// Of others, who do nothing here but fill the tables.
const OTHERS: u32 = 1000;
/// Of each of the two tenants.
const CLUSTERS: u32 = 10;
/// A tenant may save up a second's worth of new connections: after this time the noisy one begins as it always does.
const SAVED_UP: Duration = Duration::from_secs(1);
const TEN_PERCENT_MORE: f64 = 1.1;

/// Measures what a tenant beyond its limits costs its neighbour.
#[derive(Parser)]
struct Arguments {
    /// The release binary
    #[arg(long, default_value = "target/release/fleetgate")]
    fleetgate: PathBuf,
    /// How many rounds there are, of a turn of each kind
    #[arg(long, default_value_t = 16)]
    rounds: usize,
    /// How long a turn takes, in seconds
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// New connections a second of the quiet tenant, half of what it may have
    #[arg(long, default_value_t = 1000)]
    quiet: u32,
    /// New connections a second that the noisy tenant may have; it tries ten times as many
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

/// Who comes in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    quiet: bool,
    noisy: bool,
}

const KINDS: [Kind; 4] = [
    Kind { quiet: true, noisy: false },
    Kind { quiet: true, noisy: true },
    Kind { quiet: false, noisy: true },
    // The first one again: what its figures are worth.
    Kind { quiet: true, noisy: false },
];

/// The turns of one kind.
#[derive(Default)]
struct Figures {
    /// Of the quiet tenant, in microseconds.
    median: Vec<f64>,
    p99: Vec<f64>,
    /// Of the proxy, in seconds.
    cpu: Vec<f64>,
    quiet_answered: Vec<f64>,
    quiet_lost: Vec<f64>,
    noisy_answered: Vec<f64>,
    noisy_refused: Vec<f64>,
}

impl Figures {
    fn noisy_tried(&self) -> Vec<f64> {
        self.noisy_answered.iter().zip(&self.noisy_refused).map(|(answered, refused)| answered + refused).collect()
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    cores::pin_load()?;
    let folder = tempfile::tempdir()?;
    let backends: Vec<Backend> = (0..2).map(|_| Backend::start()).collect::<Result<_, _>>()?;
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address).collect();
    let program = arguments.fleetgate.canonicalize().context("finding fleetgate; build it with --release")?;
    let (quiet, noisy) = (OTHERS..OTHERS + CLUSTERS, OTHERS + CLUSTERS..OTHERS + 2 * CLUSTERS);
    let tenants = tenant("quiet", 2 * arguments.quiet, quiet.clone(), addresses[0])?
        + &tenant("noisy", arguments.limit, noisy.clone(), addresses[1])?;
    let others = Clusters { count: OTHERS, backends: &addresses };
    let proxy = fleetgate::start_with(&program, folder.path(), others, &tenants)?;
    let headers = |numbers: std::ops::Range<u32>| Headers::new(numbers.map(|number| Member(number).name()), proxy.door);
    let (quiet, noisy) = (headers(quiet)?, headers(noisy)?);

    let mut figures: [Figures; 4] = std::array::from_fn(|_| Figures::default());
    for round in 0..=arguments.rounds {
        // Each kind comes first in some rounds.
        for turn in 0..KINDS.len() {
            let which = (round + turn) % KINDS.len();
            let mut warming_up = Figures::default();
            let kept = if round == 0 { &mut warming_up } else { &mut figures[which] };
            measure(&arguments, &proxy, KINDS[which], [&quiet, &noisy], kept)?;
        }
        eprintln!("round {round} of {} done", arguments.rounds);
    }
    report(&arguments, &figures)
}

/// A tenant with its limits, and its clusters.
fn tenant(
    name: &str,
    per_second: u32,
    numbers: impl Iterator<Item = u32>,
    backend: SocketAddr,
) -> anyhow::Result<String> {
    let mut text = format!(
        "\
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {{name: {name}}}
spec: {{limits: {{connections: {per_second}, newConnectionsPerSecond: {per_second}}}}}
"
    );
    for number in numbers {
        write!(text, "---\n{}", Member(number).manifest_of(name, backend))?;
    }
    Ok(text)
}

fn measure(
    arguments: &Arguments,
    proxy: &Proxy,
    kind: Kind,
    [quiet, noisy]: [&Headers; 2],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let quiet = kind.quiet.then(|| Source { headers: quiet, per_second: arguments.quiet.into(), seed: 1 });
    let noisy = kind.noisy.then(|| Source { headers: noisy, per_second: (10 * arguments.limit).into(), seed: 2 });
    thread::sleep(SAVED_UP);
    let before = proxy.cpu_seconds()?;
    let come = |source: Option<Source<'_>>| {
        let ends_at = Instant::now() + Duration::from_secs(arguments.seconds);
        source.map_or(Ok(Outcome::default()), |source| stream::run(proxy.door, &source, || Instant::now() < ends_at))
    };
    let ready = Barrier::new(2);
    let (quiet, noisy) = thread::scope(|scope| {
        let noisy = scope.spawn(|| {
            // Its clients are elsewhere: what they do is no reason for the quiet one's to wait.
            let given_way = cores::give_way();
            ready.wait();
            given_way.and_then(|()| come(noisy))
        });
        ready.wait();
        let quiet = come(quiet)?;
        anyhow::Ok((quiet, noisy.join().map_err(|_| anyhow::anyhow!("the noisy tenant panicked"))??))
    })?;
    figures.cpu.push(proxy.cpu_seconds()? - before);
    if let Some(latency) = Summary::of(&quiet.latencies) {
        figures.median.push(latency.median);
        figures.p99.push(latency.judged());
    }
    #[allow(clippy::cast_precision_loss)]
    {
        figures.quiet_answered.push(quiet.latencies.len() as f64);
        figures.quiet_lost.push(quiet.lost() as f64);
        figures.noisy_answered.push(noisy.latencies.len() as f64);
        figures.noisy_refused.push(noisy.refused as f64);
    }
    Ok(())
}

fn report(arguments: &Arguments, [quiet, both, noisy, again]: &[Figures; 4]) -> anyhow::Result<()> {
    let mut report = Report::new("neighbours");
    let mut add = |what: &str, unit, sample: &[f64], bar| {
        let figures = Summary::of(sample).context("nothing was measured")?;
        report.add(Row { what: what.into(), unit, figures, bar });
        anyhow::Ok(())
    };
    let bar = Some(Bar::MedianAtMost(TEN_PERCENT_MORE));
    for (label, alone, beside, again) in
        [("median", &quiet.median, &both.median, &again.median), ("p99", &quiet.p99, &both.p99, &again.p99)]
    {
        add(&format!("{label} latency, alone"), Unit::Microseconds, alone, None)?;
        add(&format!("{label} latency, beside the noisy one"), Unit::Microseconds, beside, None)?;
        let bar = bar.filter(|_| label == "p99");
        add(&format!("{label} latency, beside : alone"), Unit::Times, &ratios(beside, alone), bar)?;
        add(&format!("{label} latency, alone : alone (the noise)"), Unit::Times, &ratios(again, alone), None)?;
    }

    let per_connection = |figures: &Figures| scaled(&ratios(&figures.cpu, &figures.quiet_answered), 1e6);
    let (alone, whole, again) = (per_connection(quiet), per_connection(both), per_connection(again));
    // What the process needs more when the quiet one comes as well.
    let own: Vec<f64> = both.cpu.iter().zip(&noisy.cpu).map(|(both, noisy)| both - noisy).collect();
    let beside = scaled(&ratios(&own, &both.quiet_answered), 1e6);
    add("CPU per connection, alone", Unit::Microseconds, &alone, None)?;
    add("CPU per connection, beside the noisy one", Unit::Microseconds, &beside, None)?;
    add("CPU per connection, beside : alone", Unit::Times, &ratios(&beside, &alone), bar)?;
    add("CPU per connection, alone : alone (the noise)", Unit::Times, &ratios(&again, &alone), None)?;
    add(
        "CPU per connection with all that the noisy one costs, beside : alone",
        Unit::Times,
        &ratios(&whole, &alone),
        None,
    )?;
    let mostly_refused = scaled(&ratios(&noisy.cpu, &noisy.noisy_tried()), 1e6);
    add("CPU per connection of the noisy one, alone, mostly refused", Unit::Microseconds, &mostly_refused, None)?;

    #[allow(clippy::cast_precision_loss)]
    let per_second = |sample: &[f64]| scaled(sample, 1.0 / arguments.seconds as f64);
    add("the quiet one's connections, beside", Unit::PerSecond, &per_second(&both.quiet_answered), None)?;
    add("of these lost", Unit::Count, &both.quiet_lost, Some(Bar::AtMost(0.0)))?;
    // Less than nine times its limit is not the noise that was asked for: others kept its clients from the core.
    let enough = Some(Bar::AtLeast(f64::from(9 * arguments.limit)));
    add("the noisy one's connections, beside", Unit::PerSecond, &per_second(&both.noisy_tried()), enough)?;
    add("of these admitted", Unit::PerSecond, &per_second(&both.noisy_answered), None)?;
    report.finish()
}

fn scaled(sample: &[f64], factor: f64) -> Vec<f64> {
    sample.iter().map(|value| value * factor).collect()
}
