//! The door by cluster id, side by side with HAProxy and Envoy on the same job: a thousand clusters, the proxy on one
//! core, the load on the other, rounds interleaved.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bench::fleet::Member;
use bench::load::{self, Backend, Headers};
use bench::proxies::haproxy::{self, Shape};
use bench::proxies::{Clusters, Proxy, envoy, fleetgate};
use bench::route_change::{Figures as Changed, Subject};
use bench::statistics::ratios;
use bench::{Bar, Report, Row, Summary, Unit, cores};
use clap::Parser;

const CLUSTERS: u32 = 1000;
const CONCURRENT: usize = 64;
/// As many as the descriptors of one process allow: each is two here and two in the proxy.
const RESTING: usize = 9_500;
const GIB: u64 = 1 << 30;
const CHANGE_BAR_MS: f64 = 10.0;
/// Of fleetgate's and HAProxy's changes, one after the other.
const CHANGE_TURNS: u32 = 5;

/// Measures the door by cluster id beside HAProxy and Envoy.
#[derive(Parser)]
struct Arguments {
    /// The release binary
    #[arg(long, default_value = "target/release/fleetgate")]
    fleetgate: PathBuf,
    /// Runs Envoy, and fetches it should it not be there
    #[arg(long, default_value = "testbed/envoy")]
    envoy: PathBuf,
    /// How often each proxy has its turn; 0 leaves this part out
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How long a turn of new connections takes, in seconds
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How many clusters fleetgate learns of under load; 0 leaves this part out
    #[arg(long, default_value_t = 100)]
    changes: u32,
    /// How many HAProxy does, each by a reload
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    reloads: u32,
}

/// What one proxy was measured at, turn by turn.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    cpu_per_10k: Vec<f64>,
    cpu_per_gib: Vec<f64>,
    bytes_at_rest: Vec<f64>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    cores::pin_load()?;
    let haproxy = testbed::haproxy().context("HAProxy 2.9 or newer is needed: run testbed/install")?;
    let backends: Vec<Backend> = (0..2).map(|_| Backend::start()).collect::<Result<_, _>>()?;
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address).collect();
    let clusters = Clusters { count: CLUSTERS, backends: &addresses };
    let program = arguments.fleetgate.canonicalize().context("finding fleetgate; build it with --release")?;
    let mut report = Report::new("ingress");
    if arguments.rounds > 0 {
        compare_proxies(&arguments, &program, haproxy.program(), clusters, &mut report)?;
    }
    if arguments.changes > 0 {
        change_routes(&arguments, &program, haproxy.program(), clusters, &mut report)?;
    }
    report.finish()
}

/// All proxies on the same job, by turns.
fn compare_proxies(
    arguments: &Arguments,
    program: &Path,
    haproxy: &Path,
    clusters: Clusters<'_>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut proxies = vec![fleetgate::start(program, folder.path(), clusters)?];
    for shape in [Shape::Map, Shape::Rules, Shape::Splice] {
        proxies.push(haproxy::start(haproxy, shape, folder.path(), clusters)?);
    }
    if has_envoy(&arguments.envoy) {
        proxies.push(envoy::start(&arguments.envoy, folder.path(), clusters)?);
    }

    let mut figures: Vec<Figures> = proxies.iter().map(|_| Figures::default()).collect();
    for round in 0..=arguments.rounds {
        for (proxy, figures) in proxies.iter().zip(&mut figures) {
            let headers = Headers::new((0..CLUSTERS).map(|number| Member(number).name()), proxy.door)?;
            let turn = measure(proxy, &headers, Duration::from_secs(arguments.seconds));
            let turn = turn.with_context(|| format!("measuring {}", proxy.name))?;
            // The first round warms up.
            if round > 0 {
                figures.rates.push(turn.0);
                figures.cpu_per_10k.push(turn.1);
                figures.cpu_per_gib.push(turn.2);
            }
        }
        eprintln!("round {round} of {} done", arguments.rounds);
    }
    // Last, and one after the other: what rests stays in a proxy's memory.
    for (proxy, figures) in proxies.iter().zip(&mut figures) {
        let headers = Headers::new((0..CLUSTERS).map(|number| Member(number).name()), proxy.door)?;
        figures.bytes_at_rest.push(rest(proxy, &headers)?);
    }
    report_proxies(&proxies, &figures, report)
}

/// Loud where it is not: a table without its rows must not look like one that nobody asked for.
fn has_envoy(program: &Path) -> bool {
    match envoy::version(program) {
        Ok(version) => println!("Envoy is {version}"),
        Err(error) => {
            let line = "=".repeat(80);
            eprintln!("\n{line}\nThere is no Envoy, so that it is NOT MEASURED: {error:#}\n{line}\n");
            return false;
        }
    }
    true
}

/// New connections a second, processor seconds per 10,000 of them, and per GiB on one connection.
fn measure(proxy: &Proxy, headers: &Headers, time: Duration) -> anyhow::Result<(f64, f64, f64)> {
    let before = proxy.cpu_seconds()?;
    let answered = load::connections(proxy.door, headers, CONCURRENT, time)?;
    let used = proxy.cpu_seconds()? - before;
    #[allow(clippy::cast_precision_loss)]
    let answered = answered as f64;
    let before = proxy.cpu_seconds()?;
    load::flood(proxy.door, headers, 2 * GIB)?;
    let per_gib = (proxy.cpu_seconds()? - before) / 2.0;
    Ok((answered / time.as_secs_f64(), used / answered * 10_000.0, per_gib))
}

fn rest(proxy: &Proxy, headers: &Headers) -> anyhow::Result<f64> {
    let before = proxy.own_memory()?;
    let connections = load::resting(proxy.door, headers, RESTING)?;
    // One more that is answered: everything that came before it has been dealt with.
    load::connections(proxy.door, headers, 1, Duration::from_millis(500))?;
    #[allow(clippy::cast_precision_loss)]
    let each = (proxy.own_memory()? - before) / RESTING as f64;
    drop(connections);
    Ok(each.max(0.0))
}

fn report_proxies(proxies: &[Proxy], figures: &[Figures], report: &mut Report) -> anyhow::Result<()> {
    let mut add = |what: String, unit, sample: &[f64], bar| {
        let figures = Summary::of(sample).context("nothing was measured")?;
        report.add(Row { what, unit, figures, bar });
        anyhow::Ok(())
    };
    for (proxy, figures) in proxies.iter().zip(figures) {
        add(format!("{}: new connections", proxy.name), Unit::PerSecond, &figures.rates, None)?;
        add(format!("{}: CPU per 10,000 connections", proxy.name), Unit::Seconds, &figures.cpu_per_10k, None)?;
        add(format!("{}: CPU per GiB", proxy.name), Unit::Seconds, &figures.cpu_per_gib, None)?;
        add(format!("{}: memory per idle connection", proxy.name), Unit::Bytes, &figures.bytes_at_rest, None)?;
    }
    let [ours, map, rules, splice, envoy @ ..] = figures else { anyhow::bail!("four proxies or more are measured") };
    for (what, sample, bar) in [
        ("rate against HAProxy with a map (goal 1.25)", ratios(&ours.rates, &map.rates), Bar::AtLeast(1.1)),
        ("rate against a rule per cluster (goal 1.5)", ratios(&ours.rates, &rules.rates), Bar::AtLeast(1.3)),
        (
            "CPU per connection against a map (goal 0.75)",
            ratios(&ours.cpu_per_10k, &map.cpu_per_10k),
            Bar::MedianAtMost(0.9),
        ),
        (
            "CPU per GiB against splice (goal 1.0)",
            ratios(&ours.cpu_per_gib, &splice.cpu_per_gib),
            Bar::MedianAtMost(1.2),
        ),
        ("CPU per GiB against no splice", ratios(&ours.cpu_per_gib, &map.cpu_per_gib), Bar::MedianAtMost(0.3)),
        (
            "memory per idle connection (goal 0.1)",
            ratios(&ours.bytes_at_rest, &map.bytes_at_rest),
            Bar::MedianAtMost(0.4),
        ),
    ] {
        add(what.into(), Unit::Times, &sample, Some(bar))?;
    }
    for envoy in envoy {
        let sample = ratios(&ours.rates, &envoy.rates);
        add("rate against Envoy (goal 3)".into(), Unit::Times, &sample, Some(Bar::AtLeast(2.3)))?;
    }
    Ok(())
}

/// Clusters that come under load, by turns.
fn change_routes(
    arguments: &Arguments,
    program: &Path,
    haproxy: &Path,
    clusters: Clusters<'_>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut subjects = [
        (Subject::fleetgate(program, folder.path(), clusters)?, arguments.changes, clusters, Changed::default()),
        (Subject::haproxy(haproxy, folder.path(), clusters)?, arguments.reloads, clusters, Changed::default()),
    ];
    for turn in 0..CHANGE_TURNS {
        for (subject, count, clusters, figures) in &mut subjects {
            // As even as they go into the turns.
            let share = *count * (turn + 1) / CHANGE_TURNS - *count * turn / CHANGE_TURNS;
            subject.change(clusters, share, figures)?;
        }
        eprintln!("turn {} of {CHANGE_TURNS} of route changes done", turn + 1);
    }
    for (subject, _, _, figures) in &mut subjects {
        let (name, ours) = (subject.name(), matches!(subject, Subject::Fleetgate(..)));
        let (processes, megabytes) = subject.processes()?;
        let cut = figures.resting.iter().filter(|connection| !load::is_resting(connection)).count();
        let took = Summary::of(&figures.took).context("no route was changed")?;
        let mut add = |what: &str, unit, summary, bar: Option<Bar>| {
            report.add(Row { what: format!("{name}: {what}"), unit, figures: summary, bar: bar.filter(|_| ours) });
        };
        add("a route changes under load", Unit::Milliseconds, took, Some(Bar::AtMost(CHANGE_BAR_MS)));
        #[allow(clippy::cast_precision_loss)]
        for (what, count, bar) in [
            ("new connections meanwhile", figures.connections as f64, None),
            ("of these lost", figures.lost as f64, Some(Bar::AtMost(0.0))),
            ("connections at rest meanwhile", figures.resting.len() as f64, None),
            ("of these cut", cut as f64, Some(Bar::AtMost(0.0))),
        ] {
            add(what, Unit::Count, Summary::single(count), bar);
        }
        add("processes afterwards", Unit::Count, Summary::single(processes.into()), Some(Bar::AtMost(1.0)));
        add("their memory", Unit::Megabytes, Summary::single(megabytes), None);
    }
    Ok(())
}
