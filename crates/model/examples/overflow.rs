//! Prints what each policy does in each scenario.
#[path = "../tests/simulation/mod.rs"]
mod simulation;

use simulation::{Policy, all, deviation, highest, run};

fn main() {
    for scenario in all() {
        let cell = |policy| {
            let run = run(&scenario, policy);
            let (lost, remote, mean) = run.cells();
            format!("{lost:.1}/{remote:.1}/{mean:.0}")
        };
        let ours = run(&scenario, Policy::ours());
        println!(
            "{:4} {:16} {:16} {:16} {:16} {:16} max u {:.3} sd {:.2} last {:?}",
            scenario.name,
            cell(Policy::Priority),
            cell(Policy::load_aware()),
            cell(Policy::Declared),
            cell(Policy::ours()),
            cell(Policy::ours_guarded()),
            highest(ours.since(60)),
            deviation(ours.since(60)),
            ours.last_loss()
        );
    }
}
