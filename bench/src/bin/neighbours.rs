//! A tenant that wants ten times what it may have, and its neighbour, who wants what it always does: what the
//! neighbour notices. The proxy on one core, the load on the other, rounds interleaved.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench::fleet::Member;
use bench::load::{Backend, Headers};
use bench::proxies::{Clusters, Proxy, fleetgate};
use bench::statistics::ratios;
use bench::stream::{self, Source};
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
    /// How many rounds of each kind there are
    #[arg(long, default_value_t = 16)]
    rounds: usize,
    /// How long one of them takes, in seconds
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// New connections a second of the quiet tenant, half of what it may have
    #[arg(long, default_value_t = 1000)]
    quiet: u32,
    /// New connections a second that the noisy tenant may have; it tries ten times as many
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

/// Who comes in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Quiet,
    Both,
    Noisy,
    /// What the quiet one's figures are worth.
    QuietAgain,
}

const KINDS: [Kind; 4] = [Kind::Quiet, Kind::Both, Kind::Noisy, Kind::QuietAgain];

/// The rounds of one kind.
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
    let quiet_rate = if kind == Kind::Noisy { 0 } else { arguments.quiet };
    let noisy_rate = if matches!(kind, Kind::Both | Kind::Noisy) { 10 * arguments.limit } else { 0 };
    if noisy_rate > 0 {
        std::thread::sleep(SAVED_UP);
    }
    let sources = [
        Source { headers: quiet, per_second: quiet_rate.into() },
        Source { headers: noisy, per_second: noisy_rate.into() },
    ];
    let before = proxy.cpu_seconds()?;
    let begun = Instant::now();
    let time = Duration::from_secs(arguments.seconds);
    let outcomes = stream::run(proxy.door, &sources, || begun.elapsed() < time)?;
    figures.cpu.push(proxy.cpu_seconds()? - before);
    let [quiet, noisy] = &outcomes[..] else { anyhow::bail!("two tenants come") };
    if kind != Kind::Noisy {
        let latency = Summary::of(&quiet.latencies).context("nobody was answered")?;
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
    let come: Vec<f64> =
        noisy.noisy_answered.iter().zip(&noisy.noisy_refused).map(|(answered, refused)| answered + refused).collect();
    add(
        "CPU per connection of the noisy one, alone, mostly refused",
        Unit::Microseconds,
        &scaled(&ratios(&noisy.cpu, &come), 1e6),
        None,
    )?;

    #[allow(clippy::cast_precision_loss)]
    let per_second = |sample: &[f64]| scaled(sample, 1.0 / arguments.seconds as f64);
    add("the quiet one's connections, beside", Unit::PerSecond, &per_second(&both.quiet_answered), None)?;
    add("of these lost", Unit::Count, &both.quiet_lost, Some(Bar::AtMost(0.0)))?;
    add("the noisy one's connections, admitted", Unit::PerSecond, &per_second(&both.noisy_answered), None)?;
    add("the noisy one's connections, refused", Unit::PerSecond, &per_second(&both.noisy_refused), None)?;
    report.finish()
}

fn scaled(sample: &[f64], factor: f64) -> Vec<f64> {
    sample.iter().map(|value| value * factor).collect()
}
