//! Prints what each policy does in each scenario, as a table in Markdown, and draws some of them over time.
//!
//! `cargo run -p fleetgate-model --example overflow -- docs/overflow.svg`
#![allow(clippy::unwrap_used)] // There is nobody to tell.

mod plot;
#[path = "../../tests/simulation/mod.rs"]
mod simulation;

use plot::Stroke;
use simulation::{DROP, POLICIES, Policy, Scenario, WARM, all, deviation, highest, line, named, run};

/// How each policy is drawn.
const STROKES: [Stroke; 5] = [
    plain("#888888"),
    plain("#e69f00"),
    Stroke { dashes: "6 3", ..plain("#56b4e9") },
    Stroke { dashes: "2 2", ..plain("#009e73") },
    Stroke { width: 2.5, ..plain("#00634a") },
];

const fn plain(colour: &'static str) -> Stroke {
    Stroke { colour, width: 1.5, dashes: "" }
}

fn main() {
    println!("| scenario (requests/s in A/B/C) | {} |", POLICIES.map(|(name, _)| name).join(" | "));
    println!("|---|---|---|---|---|---|");
    for scenario in all() {
        println!("{}", line(&scenario));
    }
    println!("\nCells: lost % / served remotely % / mean ms.\n");
    for name in ["S2", "S3", "S5", "S7", "S8"] {
        println!("{name}, table alone: {}", gates(&named(name), Policy::ours()));
        println!("{name}, with guards: {}", gates(&named(name), Policy::ours_guarded()));
    }
    let (lost, remote, mean) = run(&named("S8"), Policy::alone()).cells();
    println!("S8, each edge with a table of its own: {lost:.1} / {remote:.0} / {mean:.0}");
    let dropped = run(&named("S11"), Policy::ours_guarded()).since(DROP + 25)[0];
    println!("S11: {:.2} % are remote 25 s after the drop", 100.0 * dropped.remote / dropped.offered);
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(&path, drawing()).unwrap();
        println!("\nDrawn to {path}");
    }
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
        let runs = POLICIES.map(|(_, policy)| run(&named(name), policy()));
        for (unit, of) in [
            ("lost %", (|tick| 100.0 * tick.lost / tick.offered) as fn(&simulation::Tick) -> f64),
            ("remote %", |tick| 100.0 * tick.remote / tick.offered),
            ("mean ms", |tick| tick.mean_ms),
        ] {
            let lines = runs.iter().zip(STROKES).map(|(run, stroke)| {
                let ticks = run.since(from).iter().take_while(|tick| tick.second <= from + seconds);
                (ticks.map(|tick| (f64::from(tick.second - from), of(tick))).collect(), stroke)
            });
            panels.push(plot::Panel { title: format!("{name}: {what}"), unit, lines: lines.collect() });
        }
    }
    let legend: Vec<(&str, Stroke)> = POLICIES.iter().map(|(name, _)| *name).zip(STROKES).collect();
    plot::draw(&legend, &panels, 3)
}
