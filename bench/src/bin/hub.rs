//! A hub of real API servers and the real binary: how soon a node's state is in the answers, and what a thousand tenant
//! clusters cost at rest and per change.

use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench::hub::{Hub, TenantCluster};
use bench::{Bar, Report, Row, Summary, Unit};
use clap::Parser;

/// From the API server's acknowledgement to the answer.
const LATENCY_BAR_MS: f64 = 100.0;
/// Of one core, at rest.
const REST_BAR: f64 = 0.05;
const FEW: u32 = 10;
/// Between two changes. The nodes of one cluster are written ten times a second at most, so that none of them can keep the
/// hub busy; who changes more often waits for that.
const BETWEEN: Duration = Duration::from_millis(150);

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    program: bench::Program,
    /// Tenant clusters of the large fleet
    #[arg(long, default_value_t = 1_000)]
    clusters: u32,
    /// Changes of a node, with each fleet
    #[arg(long, default_value_t = 200)]
    changes: u32,
    /// Seconds of rest that are measured; by default as long as the longest watch and more, so that each begins anew once
    #[arg(long, default_value_t = 320)]
    rest: u64,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let program = options.program.find()?;
    println!("load before: {}", bench::report::load());
    let mut report = Report::new("hub");
    let few = measure(&program, FEW, &options, &mut report)?;
    let many = measure(&program, options.clusters, &options, &mut report)?;
    report.add(Row {
        what: format!("CPU per change, {} clusters : {FEW}", options.clusters),
        unit: Unit::Times,
        figures: Summary::single(many / few),
        bar: None,
    });
    report.note("The tenant clusters share one API server, but for the one whose node changes, which has its own.");
    report.finish()
}

/// Returns the CPU time of a change, in milliseconds.
fn measure(program: &Path, clusters: u32, options: &Options, report: &mut Report) -> anyhow::Result<f64> {
    let kubernetes = testbed::Kubernetes::find()?;
    let shared = TenantCluster::start(&kubernetes)?;
    let alone = TenantCluster::start(&kubernetes)?;
    let hub = Hub::start(&kubernetes)?;
    hub.add_zone()?;
    hub.add_clusters(["alone".to_owned()], &alone)?;
    hub.add_clusters((1..clusters).map(|number| format!("c{number}")), &shared)?;
    shared.set_node([192, 0, 2, 1].into(), true)?;
    alone.set_node([198, 51, 100, 1].into(), true)?;

    let mut server = hub.serve(program)?;
    server.until_answered("shop.alone.fleet.example", &[[198, 51, 100, 1].into()])?;
    if clusters > 1 {
        server.until_answered(&format!("shop.c{}.fleet.example", clusters - 1), &[[192, 0, 2, 1].into()])?;
    }
    println!("{clusters} clusters: all answered after {:.1} s", server.started.elapsed().as_secs_f64());
    // Until everything that a start has to write is written.
    server.until_at_rest()?;

    let row = |what: &str, unit, figures, bar| Row { what: format!("{what}, {clusters} clusters"), unit, figures, bar };
    let before = server.cpu()?;
    thread::sleep(Duration::from_secs(options.rest));
    #[allow(clippy::cast_precision_loss)]
    let at_rest = server.cpu()?.saturating_sub(before).as_secs_f64() / options.rest as f64;
    report.add(row("share of a core at rest", Unit::Times, Summary::single(at_rest), Some(Bar::AtMost(REST_BAR))));
    report.add(row("memory", Unit::Megabytes, Summary::single(server.memory("VmRSS")?), None));

    let before = server.cpu()?;
    let begun = Instant::now();
    let mut sample = Vec::new();
    for change in 0..options.changes {
        thread::sleep(BETWEEN);
        let address = Ipv4Addr::new(198, 51, 100, u8::try_from(change % 200 + 2).unwrap_or(2));
        alone.set_node(address, true)?;
        let acknowledged = Instant::now();
        server.until_answered("shop.alone.fleet.example", &[address])?;
        sample.push(acknowledged.elapsed().as_secs_f64() * 1e3);
    }
    let rest = at_rest * begun.elapsed().as_secs_f64();
    let per_change =
        (server.cpu()?.saturating_sub(before).as_secs_f64() - rest).max(0.0) / f64::from(options.changes) * 1e3;
    let latency = Summary::of(&sample).context("no changes")?;
    report.add(row(
        "a node's state acknowledged to answered",
        Unit::Milliseconds,
        latency,
        Some(Bar::AtMost(LATENCY_BAR_MS)),
    ));
    report.add(row("CPU per change", Unit::Milliseconds, Summary::single(per_change), None));
    server.stop()?;
    Ok(per_change)
}
