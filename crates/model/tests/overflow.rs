//! The gates that overflow has to meet, in the simulation of `simulation/mod.rs`. `make simulate-overflow` prints the whole of it.

mod simulation;

use simulation::{DROP, Policy, Run, Scenario, Tick, WARM, all, deviation, highest, line, named, run, run_with};

/// By then an estimate that began with a wrong declared rate is what was measured.
const LEARNT: u32 = 60;

/// Ours, with and without the guards at the edges: each gate has to be met by the table alone.
fn both(scenario: &Scenario) -> [Run; 2] {
    [run(scenario, Policy::ours()), run(scenario, Policy::ours_guarded())]
}

fn lost(ticks: &[Tick]) -> f64 {
    ticks.iter().map(|tick| tick.lost).sum()
}

#[test]
fn s1_nothing_leaves_home_while_there_is_room() {
    for run in both(&named("S1")) {
        assert!(run.ticks.iter().all(|tick| tick.remote <= 0.0), "something left home");
        assert!(lost(&run.ticks) <= 0.0);
    }
}

#[test]
fn s2_and_s3_overflow_without_errors_and_without_swinging() {
    // One seed could be luck.
    for (name, seed) in ["S2", "S3"].into_iter().flat_map(|name| (0..10).map(move |seed| (name, seed))) {
        let run = run_with(&named(name), Policy::ours(), seed);
        let steady = run.since(LEARNT);
        assert!(lost(steady) <= 0.0, "{name}: {} were lost", lost(steady));
        assert!(highest(steady) <= 0.82, "{name}: a region was at {}", highest(steady));
        assert!(deviation(steady) < 2.0, "{name}: shares swing by {} points", deviation(steady));
    }
    // What is declared right costs nothing from the first second on; to learn that it is wrong costs a little.
    let [right, guarded] = both(&named("S2"));
    assert!(lost(&right.ticks) + lost(&guarded.ticks) <= 0.0);
    for wrong in both(&named("S3")) {
        let (lost, ..) = wrong.cells();
        assert!(lost < 0.3, "{lost} %");
        assert!(wrong.last_loss() <= Some(15), "{:?}", wrong.last_loss());
    }
}

/// The share that leaves home is what does not fit there: 700 of 2,000 requests/s.
#[test]
fn s2_sends_away_what_does_not_fit_and_no_more() {
    for run in both(&named("S2")) {
        let (_, remote, mean) = run.cells();
        assert!((34.0..36.5).contains(&remote), "{remote} %");
        assert!(mean < 60.0, "{mean} ms");
    }
}

/// A signal from the wrong place leads astray; what is declared bounds that.
#[test]
fn s4_a_signal_of_the_first_hop_is_bounded_by_what_is_declared() {
    let (astray, ..) = run(&named("S4"), Policy::ours()).cells();
    assert!(astray > 20.0, "{astray} %");
    let (bounded, ..) = run(&named("S4d"), Policy::ours()).cells();
    assert!(bounded <= 0.0, "{bounded} %");
}

#[test]
fn s5_and_s7_recover_within_15_seconds() {
    for (name, event, most) in [("S5", 10, 0.2), ("S7", WARM, 1.0)] {
        for run in both(&named(name)) {
            let (lost, ..) = run.cells();
            assert!(lost < most, "{name}: {lost} %");
            let recovered = run.last_loss().map_or(event, |second| second + 1);
            assert!(recovered <= event + 15, "{name}: after {} s", recovered - event);
            assert!(
                run.ticks.iter().all(|tick| tick.second >= event || tick.lost <= 0.0),
                "{name}: before it happened"
            );
        }
    }
}

/// Until the next report comes, the guards do what the table cannot.
#[test]
fn s5_and_s7_guards_spare_nearly_all_errors() {
    for name in ["S5", "S7"] {
        let [table, guarded] = both(&named(name)).map(|run| run.cells().0);
        assert!(guarded < table / 5.0, "{name}: {guarded} % of {table} %");
    }
}

#[test]
fn s6_and_s9_lose_nothing() {
    for name in ["S6", "S9"] {
        for run in both(&named(name)) {
            assert!(lost(&run.ticks) <= 0.0, "{name}: {} were lost", lost(&run.ticks));
        }
    }
}

/// All edges share one table: it does not matter how many they are.
#[test]
fn s8_twelve_edges_do_what_three_do() {
    let twelve = named("S8");
    let three = Scenario { edges_per_region: 1, ..twelve.clone() };
    let (twelve, three) = (run(&twelve, Policy::ours()), run(&three, Policy::ours()));
    for (twelve, three) in twelve.ticks.iter().zip(&three.ticks) {
        assert!((twelve.lost - three.lost).abs() < 1e-6, "second {}", twelve.second);
        assert!((twelve.remote - three.remote).abs() < 1e-6, "second {}", twelve.second);
        assert!((twelve.mean_ms - three.mean_ms).abs() < 1e-6, "second {}", twelve.second);
    }
    assert!(lost(&twelve.ticks) <= 0.0);
    // It is the shared table that does it: with one each, they run after the same room.
    let (alone, ..) = run(&named("S8"), Policy::alone()).cells();
    assert!(alone > 5.0, "{alone} %");
}

/// Only shedding helps: whatever is above what all can serve is lost, and hardly more.
#[test]
fn s10_at_120_percent_a_sixth_is_shed() {
    for run in both(&named("S10")) {
        let (lost, ..) = run.cells();
        assert!((16.6..17.5).contains(&lost), "{lost} %");
        let sum = |of: fn(&Tick) -> f64| run.ticks.iter().map(of).sum::<f64>();
        let shed = 100.0 * sum(|tick| tick.shed) / sum(|tick| tick.offered);
        assert!(shed > 16.0, "only {shed} % are refused at once");
    }
}

#[test]
fn s11_traffic_is_home_25_seconds_after_the_load_drops() {
    for run in both(&named("S11")) {
        let tick = run.since(DROP + 25)[0];
        let remote = 100.0 * tick.remote / tick.offered;
        assert!(remote <= 2.0, "{remote} % of all traffic");
        let last = run.ticks.last().unwrap();
        assert!(last.remote <= 0.0, "{} requests/s never came home", last.remote);
        assert!(lost(&run.ticks) <= 0.0);
    }
}

/// The model itself: what Envoy's priority levels come to can be computed by hand.
#[test]
fn the_simulation_agrees_with_arithmetic() {
    // A serves 1,000 of 1,500, at 501 ms; B and C are at 0.3 and 0.2.
    let (lost, remote, mean) = run(&named("S2"), Policy::Priority).cells();
    let expected = (1500.0 * 501.0 + 300.0 * (1.0 + 10.0 / 0.7) + 200.0 * (1.0 + 10.0 / 0.8)) / 2000.0;
    assert!((lost - 25.0).abs() < 1e-6 && remote <= 0.0 && (mean - expected).abs() < 1e-6, "{lost} {remote} {mean}");
}

/// `make simulate-overflow` prints what has to stand there.
#[test]
fn the_document_has_the_figures_of_this_code() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/overflow.md");
    let document = std::fs::read_to_string(document).unwrap();
    for scenario in all() {
        let line = line(&scenario);
        assert!(document.lines().any(|there| there == line), "docs/overflow.md does not have\n{line}");
    }
}
