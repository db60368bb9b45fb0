//! Prints what each policy does in each scenario, as a table in Markdown, and draws some of them over time.
//!
//! `cargo run -p fleetgate-model --example overflow -- docs/overflow.svg`
#![allow(clippy::unwrap_used)] // There is nobody to tell.

mod plot;
#[path = "../../tests/simulation/mod.rs"]
mod simulation;

use plot::Stroke;
use simulation::{DROP, Policy, Run, Scenario, WARM, all, deviation, highest, named, run};

/// Who is compared, and how it is drawn.
const POLICIES: [Peer; 5] = [
    Peer { name: "Envoy priority levels", policy: || Policy::Priority, stroke: plain("#888888") },
    Peer { name: "Envoy load_aware_locality", policy: Policy::load_aware, stroke: plain("#e69f00") },
    Peer {
        name: "declared-rate waterfall",
        policy: || Policy::Declared,
        stroke: Stroke { dashes: "6 3", ..plain("#56b4e9") },
    },
    Peer { name: "ours, table alone", policy: Policy::ours, stroke: Stroke { dashes: "2 2", ..plain("#009e73") } },
    Peer { name: "ours", policy: Policy::ours_guarded, stroke: Stroke { width: 2.5, ..plain("#00634a") } },
];

struct Peer {
    name: &'static str,
    policy: fn() -> Policy,
    stroke: Stroke,
}

const fn plain(colour: &'static str) -> Stroke {
    Stroke { colour, width: 1.5, dashes: "" }
}

fn main() {
    println!("| scenario (requests/s in A/B/C) | {} |", POLICIES.map(|peer| peer.name).join(" | "));
    println!("|---|---|---|---|---|---|");
    for scenario in all() {
        println!(
            "| {} {} | {} |",
            scenario.name,
            scenario.what,
            POLICIES.map(|peer| cells(&run(&scenario, (peer.policy)()))).join(" | ")
        );
    }
    println!("\nCells: lost % / served remotely % / mean ms.\n");
    for name in ["S2", "S3", "S5", "S7", "S8"] {
        println!("{name}, table alone: {}", gates(&named(name), Policy::ours()));
        println!("{name}, with guards: {}", gates(&named(name), Policy::ours_guarded()));
    }
    let dropped = run(&named("S11"), Policy::ours_guarded()).since(DROP + 25)[0];
    println!("S11: {:.2} % are remote 25 s after the drop", 100.0 * dropped.remote / dropped.offered);
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(&path, drawing()).unwrap();
        println!("\nDrawn to {path}");
    }
}

fn cells(run: &Run) -> String {
    let (lost, remote, mean) = run.cells();
    format!("{lost:.1} / {remote:.0} / {mean:.0}")
}

/// What the gates of the tests look at.
fn gates(scenario: &Scenario, policy: Policy) -> String {
    let run = run(scenario, policy);
    let steady = run.since(60);
    let lost = run.last_loss().map_or_else(|| "never".to_owned(), |second| format!("in second {second}"));
    let (highest, deviation) = (highest(steady), deviation(steady));
    format!("highest u {highest:.3}, home share of A swings by {deviation:.2} points, last lost {lost}")
}

fn drawing() -> String {
    let columns = [
        ("S2", "A at 150 %", 0, 90),
        ("S3", "B half as strong as declared", 0, 90),
        ("S7", "A throttled to half", WARM - 10, 90),
        ("S11", "demand drops", DROP - 10, 90),
    ];
    let mut panels = Vec::new();
    for (name, what, from, seconds) in columns {
        let runs = POLICIES.map(|peer| (run(&named(name), (peer.policy)()), peer.stroke));
        for (unit, of) in [
            ("lost %", (|tick| 100.0 * tick.lost / tick.offered) as fn(&simulation::Tick) -> f64),
            ("remote %", |tick| 100.0 * tick.remote / tick.offered),
            ("mean ms", |tick| tick.mean_ms),
        ] {
            let lines = runs.iter().map(|(run, stroke)| {
                let ticks = run.since(from).iter().take_while(|tick| tick.second <= from + seconds);
                (ticks.map(|tick| (f64::from(tick.second - from), of(tick))).collect(), *stroke)
            });
            panels.push(plot::Panel { title: format!("{name}: {what}"), unit, lines: lines.collect() });
        }
    }
    plot::draw(&POLICIES.map(|peer| (peer.name, peer.stroke)), &panels, 3)
}
