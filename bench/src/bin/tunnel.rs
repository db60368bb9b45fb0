//! One stream into a cluster through the real hub and the real agent, side by side with OpenSSH's port forwarding and with
//! plain TCP: throughput and latency, rounds interleaved; and a thousand streams of which one is not read.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bench::statistics::ratios;
use bench::tunnel::{Carrier, Inside, OpenSsh, Tunnel};
use bench::{Bar, Program, Report, Row, Summary, Unit};
use clap::Parser;

/// Measures streams through a link beside OpenSSH and plain TCP.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    program: Program,
    /// How often each carrier has its turn
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Of one stream in a turn, each way
    #[arg(long, default_value_t = 512)]
    mebibytes: u64,
    /// Octets that go there and back in a turn, one after the other
    #[arg(long, default_value_t = 5000)]
    pings: usize,
    /// Streams at once; 0 leaves this part out
    #[arg(long, default_value_t = 1000)]
    streams: usize,
}

/// What one carrier was measured at, turn by turn.
#[derive(Default)]
struct Figures {
    /// Megabytes a second.
    down: Vec<f64>,
    up: Vec<f64>,
    /// Microseconds, the median of a turn.
    there_and_back: Vec<f64>,
    /// Microseconds, from the wish for a stream to its first answer.
    opening: Vec<f64>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let inside = Inside::start()?;
    let tunnel = Tunnel::start(&arguments.program.find()?, folder.path(), inside.address)?;
    let ssh = OpenSsh::start(folder.path(), inside.address)?;
    let carriers = [
        Carrier { name: "fleetgate", address: tunnel.door },
        Carrier { name: "OpenSSH", address: ssh.address },
        Carrier { name: "plain TCP", address: inside.address },
    ];
    let mut figures: Vec<Figures> = carriers.iter().map(|_| Figures::default()).collect();
    for round in 0..=arguments.rounds {
        // Each comes first in some rounds.
        for turn in 0..carriers.len() {
            let which = (round + turn) % carriers.len();
            let mut warming_up = Figures::default();
            let kept = if round == 0 { &mut warming_up } else { &mut figures[which] };
            measure(&arguments, &carriers[which], kept)
                .with_context(|| format!("measuring {}", carriers[which].name))?;
        }
        eprintln!("round {round} of {} done", arguments.rounds);
    }
    let mut report = Report::new("tunnel");
    report.note(format!("{}; one connection, no compression, as it is configured by default", ssh.version));
    report.note(
        "fleetgate: `serve --sni` passes through to a cluster with `ingress.mode: hub`, one link of `agent tunnel`",
    );
    tell(&carriers, &figures, &mut report)?;
    if arguments.streams > 0 {
        stall(&arguments, &carriers[0], &mut report)?;
    }
    report.finish()
}

fn measure(arguments: &Arguments, carrier: &Carrier, figures: &mut Figures) -> anyhow::Result<()> {
    let octets = arguments.mebibytes << 20;
    figures.down.push(megabytes_a_second(octets, carrier.down(octets)?));
    figures.up.push(megabytes_a_second(octets, carrier.up(octets)?));
    let (opening, pings) = carrier.there_and_back(arguments.pings)?;
    figures.opening.push(micros(opening));
    let pings: Vec<f64> = pings.into_iter().map(micros).collect();
    figures.there_and_back.push(Summary::of(&pings).context("there were no pings")?.median);
    Ok(())
}

fn tell(carriers: &[Carrier], figures: &[Figures], report: &mut Report) -> anyhow::Result<()> {
    type Of = fn(&Figures) -> &Vec<f64>;
    let kinds: [(&str, Unit, Of, Bar); 4] = [
        ("one stream out of the cluster, a second", Unit::Megabytes, |figures| &figures.down, Bar::AtLeast(1.0)),
        ("one stream into the cluster, a second", Unit::Megabytes, |figures| &figures.up, Bar::AtLeast(1.0)),
        ("one octet there and back", Unit::Microseconds, |figures| &figures.there_and_back, Bar::MedianAtMost(1.0)),
        ("a new stream and its first answer", Unit::Microseconds, |figures| &figures.opening, Bar::MedianAtMost(1.0)),
    ];
    for (what, unit, of, ahead) in kinds {
        for (carrier, figures) in carriers.iter().zip(figures) {
            let figures = Summary::of(of(figures)).context("there were no rounds")?;
            report.add(Row { what: format!("{what}: {}", carrier.name), unit, figures, bar: None });
        }
        for (number, bar) in [(1, Some(ahead)), (2, None)] {
            let figures = Summary::of(&ratios(of(&figures[0]), of(&figures[number]))).context("no rounds")?;
            let what = format!("{what}: fleetgate / {}", carriers[number].name);
            report.add(Row { what, unit: Unit::Times, figures, bar });
        }
    }
    Ok(())
}

/// All at once, without and with one that nobody reads, by turns.
fn stall(arguments: &Arguments, carrier: &Carrier, report: &mut Report) -> anyhow::Result<()> {
    let each = 256 << 10;
    let (mut alone, mut beside, mut beside_many) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=arguments.rounds.min(5) {
        for (stalled, figures) in [(0, &mut alone), (1, &mut beside), (100, &mut beside_many)] {
            let began = Instant::now();
            let held = carrier.stalled(stalled)?;
            let held_after = began.elapsed();
            let others = arguments.streams - stalled;
            let began = Instant::now();
            let octets = carrier.many(others, each)?;
            ensure!(octets == each * others as u64, "some streams came short");
            drop(held);
            if round > 0 {
                figures.push(megabytes_a_second(octets, began.elapsed()));
            }
            eprintln!("{others} streams beside {stalled}, which took {held_after:.1?} to stall");
        }
    }
    let streams = arguments.streams;
    for (what, figures) in [
        (format!("{streams} streams out of the cluster, a second"), &alone),
        (format!("{} of them beside 1 that nobody reads", streams - 1), &beside),
        (format!("{} of them beside 100 that nobody reads", streams - 100), &beside_many),
    ] {
        let figures = Summary::of(figures).context("there were no rounds")?;
        report.add(Row { what, unit: Unit::Megabytes, figures, bar: None });
    }
    for (what, figures) in
        [("1 that nobody reads / without", &beside), ("100 that nobody reads / without", &beside_many)]
    {
        let figures = Summary::of(&ratios(figures, &alone)).context("there were no rounds")?;
        report.add(Row { what: what.into(), unit: Unit::Times, figures, bar: Some(Bar::AtLeast(0.9)) });
    }
    Ok(())
}

fn megabytes_a_second(octets: u64, time: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let octets = octets as f64;
    octets / 1e6 / time.as_secs_f64()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
