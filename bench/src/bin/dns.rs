//! DNS, side by side with Knot, NSD, BIND and PowerDNS on the same job: 10,000 clusters, the server on one core, the
//! load on the other, rounds interleaved. Then a million names from a zone file, and names that change under load.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bench::dns::peers::{Found, Peer};
use bench::dns::updates::Changing;
use bench::dns::{echo, million, rates};
use bench::{Report, cores};
use clap::{Parser, ValueEnum};

/// Measures DNS beside Knot, NSD, BIND and PowerDNS.
#[derive(Parser)]
struct Arguments {
    /// The release binary
    #[arg(long, default_value = "target/release/fleetgate")]
    fleetgate: PathBuf,
    /// Runs the other servers, and fetches them should they not be there
    #[arg(long, default_value = "testbed/dns-peers")]
    peers: PathBuf,
    /// The parts to measure; all unless told otherwise
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_enum)]
    only: Vec<Part>,
    /// Clusters, of two names each
    #[arg(long, default_value_t = 10_000)]
    clusters: u32,
    /// How often each server has its turn
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long a turn takes, in seconds
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Starts with a million names
    #[arg(long, default_value_t = 3)]
    starts: usize,
    /// Pairs of turns without and with updates, of one second each
    #[arg(long, default_value_t = 20)]
    pairs: usize,
    /// Changes whose answer is waited for
    #[arg(long, default_value_t = 200)]
    changes: usize,
    /// Be the bare echo server
    #[arg(long, hide = true)]
    echo: Option<SocketAddr>,
    #[arg(long, hide = true, default_value_t = 100)]
    echo_length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Queries per second
    Rates,
    /// A million names from a zone file
    Million,
    /// The cost of updates under load
    Updates,
    /// From a changed node to the changed answer
    Changes,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(address) = arguments.echo {
        return echo::serve(address, arguments.echo_length);
    }
    let wanted = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    cores::pin_load()?;
    println!("load before: {}", bench::report::load());
    let program = arguments.fleetgate.canonicalize().context("finding fleetgate; build it with --release")?;

    let mut report = Report::new("dns");
    let compared = wanted(Part::Rates) || wanted(Part::Million);
    let found = if compared { find(&arguments.peers, &mut report) } else { Vec::new() };
    if wanted(Part::Rates) {
        let (clusters, rounds) = (arguments.clusters, arguments.rounds);
        let plan = rates::Plan { clusters, rounds, time: Duration::from_secs(arguments.seconds) };
        rates::measure(&program, &found, &plan, &mut report).context("measuring queries per second")?;
    }
    if wanted(Part::Million) {
        million::measure(&program, &found, arguments.starts, &mut report).context("measuring a million names")?;
    }
    if wanted(Part::Updates) || wanted(Part::Changes) {
        let mut changing = Changing::start(&program, arguments.clusters)?;
        if wanted(Part::Updates) {
            let time = Duration::from_secs(1);
            changing.measure_cost(arguments.pairs, time, &mut report).context("measuring updates under load")?;
        }
        if wanted(Part::Changes) {
            changing.measure_changes(arguments.changes, &mut report).context("measuring changes")?;
        }
    }
    report.finish()
}

/// Loud where one is not: a table without its rows must not look like one that nobody asked for.
fn find(runner: &Path, report: &mut Report) -> Vec<Found> {
    let find = |peer: Peer| match peer.find(runner) {
        Ok(found) => {
            println!("{}", found.name);
            Some(found)
        }
        Err(error) => {
            let line = "=".repeat(80);
            eprintln!("\n{line}\nThere is no {}, so that it is NOT MEASURED: {error:#}\n{line}\n", peer.name());
            report.note(format!("{} is NOT MEASURED: {error:#}", peer.name()));
            None
        }
    };
    Peer::ALL.into_iter().filter_map(find).collect()
}
