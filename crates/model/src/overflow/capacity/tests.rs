#![allow(clippy::float_cmp)] // What is computed exactly, or rounded before.

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp((1_000_000 + seconds) * 1_000_000_000)
}

fn report(served: f64, utilization: f64, ready: u32) -> Report {
    Report::check(served, utilization, ready).unwrap()
}

/// Ten pods that serve this at this utilisation, every second of a range, and agree with the edges.
fn observe(capacity: &mut Capacity, limits: &Limits, seconds: std::ops::Range<u64>, served: f64, utilization: f64) {
    for second in seconds {
        capacity.observe(report(served, utilization, 10), served, limits, at(second));
    }
}

fn rate(capacity: &Capacity, limits: &Limits, second: u64) -> f64 {
    capacity.room(limits, None, at(second)).rate
}

#[track_caller]
fn assert_near(is: f64, wanted: f64) {
    assert!((is - wanted).abs() <= 0.01 * wanted.abs() + 1e-9, "{is} is not about {wanted}");
}

const DECLARED: u32 = 100;

fn declared() -> Limits {
    Limits::new(0.8, Some(DECLARED))
}

fn undeclared() -> Limits {
    Limits::new(0.8, None)
}

#[test]
fn reports_that_cannot_be_computed_with_are_refused() {
    let nan = f64::NAN;
    for (served, utilization, ready, code) in [
        (nan, 0.5, 1, "ReportNotFinite"),
        (1.0, nan, 1, "ReportNotFinite"),
        (f64::INFINITY, 0.5, 1, "ReportNotFinite"),
        (1.0, f64::NEG_INFINITY, 1, "ReportNotFinite"),
        (-1.0, 0.5, 1, "ReportNegative"),
        (1.0, -0.1, 1, "ReportNegative"),
        (1e300, 0.5, 1, "ReportTooLarge"),
        (1.0, 1e6, 1, "ReportTooLarge"),
        (1.0, 0.5, u32::MAX, "ReportTooLarge"),
    ] {
        let refused = Report::check(served, utilization, ready).unwrap_err();
        assert_eq!(refused.code(), code, "{served} {utilization} {ready}: {refused}");
    }
    for (served, utilization, ready) in [(0.0, 0.0, 0), (1e9, 100.0, 150_000), (1e-300, 1.7, 1)] {
        assert!(Report::check(served, utilization, ready).is_ok(), "{served} {utilization} {ready}");
    }
}

#[test]
fn the_limit_that_is_closest_is_the_utilization() {
    for (cpu, named, in_flight, wanted) in [
        (Some(0.5), None, None, Some(0.5)),
        (Some(0.5), Some(0.7), Some(0.6), Some(0.7)),
        (None, None, Some(0.1), Some(0.1)),
        (Some(f64::NAN), Some(0.2), Some(f64::INFINITY), Some(0.2)),
        (None, None, None, None),
    ] {
        assert_eq!(utilization(cpu, named, in_flight), wanted, "{cpu:?} {named:?} {in_flight:?}");
    }
}

#[test]
fn what_nobody_knows_is_unlimited() {
    let room = Capacity::default().room(&declared(), None, at(0));
    assert_eq!((room.rate, room.basis), (UNLIMITED, Basis::Declared), "how many pods there are is not known");
    let mut capacity = Capacity::default();
    capacity.ready(10, at(0));
    assert_eq!(capacity.room(&undeclared(), None, at(0)).basis, Basis::Unknown);
    assert_near(rate(&capacity, &undeclared(), 0), UNLIMITED);
    // The first measurement is then all there is.
    capacity.observe(report(500.0, 0.5, 10), 500.0, &undeclared(), at(1));
    assert_near(rate(&capacity, &undeclared(), 1), 800.0);
}

#[test]
fn a_cold_start_goes_by_the_declared_rate() {
    let mut capacity = Capacity::default();
    capacity.ready(10, at(0));
    let room = capacity.room(&declared(), None, at(0));
    assert_eq!((room.rate, room.most, room.basis), (800.0, 1000.0, Basis::Declared));
}

#[test]
fn measurements_take_over_within_seconds() {
    let mut capacity = Capacity::default();
    // Half as strong as declared.
    observe(&mut capacity, &declared(), 0..5, 400.0, 0.8);
    let after = rate(&capacity, &declared(), 5);
    assert_near(after, 400.0 + 400.0 * (-1.0_f64).exp());
    observe(&mut capacity, &declared(), 5..40, 400.0, 0.8);
    let room = capacity.room(&declared(), None, at(39));
    assert_near(room.rate, 400.0);
    assert_near(room.most, 500.0);
    assert_eq!(room.basis, Basis::Measured);
}

#[test]
fn the_average_goes_by_time_not_by_the_number_of_reports() {
    let (mut often, mut seldom) = (Capacity::default(), Capacity::default());
    for capacity in [&mut often, &mut seldom] {
        observe(capacity, &undeclared(), 0..1, 400.0, 0.8);
    }
    observe(&mut often, &undeclared(), 1..5, 800.0, 0.8);
    observe(&mut seldom, &undeclared(), 4..5, 800.0, 0.8);
    assert_near(rate(&often, &undeclared(), 4), rate(&seldom, &undeclared(), 4));
    // And twice the same moment counts once.
    observe(&mut seldom, &undeclared(), 4..5, 80.0, 0.8);
    assert_near(rate(&often, &undeclared(), 4), rate(&seldom, &undeclared(), 4));
}

#[test]
fn nothing_is_learnt_while_there_is_hardly_any_load() {
    let mut capacity = Capacity::default();
    observe(&mut capacity, &declared(), 0..60, 3.0, 0.09);
    let room = capacity.room(&declared(), None, at(60));
    assert_eq!((room.rate, room.basis), (800.0, Basis::Declared));
    observe(&mut capacity, &declared(), 60..120, 400.0, 0.8);
    observe(&mut capacity, &declared(), 120..600, 3.0, 0.09);
    assert_near(rate(&capacity, &declared(), 600), 400.0);
}

#[test]
fn what_is_declared_is_never_exceeded() {
    let mut capacity = Capacity::default();
    observe(&mut capacity, &declared(), 0..60, 900.0, 0.2);
    let room = capacity.room(&declared(), None, at(60));
    assert_eq!((room.rate, room.most), (1000.0, 1000.0));
    assert_near(rate(&capacity, &undeclared(), 60), 3600.0);
}

#[test]
fn new_pods_count_little_by_little_and_lost_ones_not_at_all() {
    let mut capacity = Capacity::default();
    capacity.ready(10, at(0));
    capacity.ready(20, at(0));
    assert_near(rate(&capacity, &declared(), 0), 800.0);
    capacity.ready(20, at(1));
    assert_near(rate(&capacity, &declared(), 1), 880.0);
    capacity.ready(20, at(61));
    assert_near(rate(&capacity, &declared(), 61), 1600.0);
    capacity.ready(4, at(61));
    assert_near(rate(&capacity, &declared(), 61), 320.0);
    capacity.ready(0, at(62));
    assert_eq!(capacity.room(&declared(), None, at(62)).out, Some(Out::NoReadyPods));
    // Whoever comes back starts slowly.
    capacity.ready(10, at(63));
    assert_near(rate(&capacity, &declared(), 63), 80.0);
}

#[test]
fn what_is_out_takes_nothing() {
    let mut capacity = Capacity::default();
    observe(&mut capacity, &declared(), 0..60, 400.0, 0.8);
    for out in [Out::Drained, Out::Unreachable, Out::Unhealthy] {
        let room = capacity.room(&declared(), Some(out), at(60));
        assert_eq!((room.rate, room.most, room.out), (0.0, 0.0, Some(out)));
    }
}

#[test]
fn reports_that_the_edges_do_not_confirm_lead_to_the_declared_rate() {
    let mut capacity = Capacity::default();
    observe(&mut capacity, &declared(), 0..60, 400.0, 0.8);
    // It claims twice what came.
    for second in 60..100 {
        capacity.observe(report(800.0, 0.8, 10), 400.0, &declared(), at(second));
    }
    let room = capacity.room(&declared(), None, at(100));
    assert_near(room.rate, 800.0);
    assert_eq!(room.basis, Basis::Disagreed { served: 800.0, counted: 400.0 });
    assert_eq!(room.basis.to_string(), "as declared: 800 requests/s are reported, 400 were counted");
    // Once they agree again it is measured again.
    observe(&mut capacity, &declared(), 100..140, 400.0, 0.8);
    let room = capacity.room(&declared(), None, at(140));
    assert_near(room.rate, 400.0);
    assert_eq!(room.basis, Basis::Measured);
    // Where nothing is declared the last good estimate stays.
    for second in 140..200 {
        capacity.observe(report(8000.0, 0.8, 10), 400.0, &undeclared(), at(second));
    }
    assert_near(rate(&capacity, &undeclared(), 200), 400.0);
}

#[test]
fn how_far_reports_and_counts_may_be_apart() {
    for (served, counted, agrees) in [
        (1000.0, 1000.0, true),
        (1000.0, 830.0, true),
        (830.0, 1000.0, true),
        (1000.0, 700.0, false),
        (700.0, 1000.0, false),
        (0.0, 10.0, true),
        (10.0, 0.0, true),
        (0.0, 20.0, false),
        (1000.0, f64::NAN, false),
        (1000.0, f64::INFINITY, false),
        (1.0, -1.0, false),
    ] {
        assert_eq!(report(served, 0.5, 1).agrees_with(counted), agrees, "{served} {counted}");
    }
}

#[test]
fn there_is_room_for_what_comes_past_the_edges() {
    let mut capacity = Capacity::default();
    // 700 of 800 come through the edges, at the wanted utilisation.
    for second in 0..60 {
        capacity.observe(report(800.0, 0.8, 10), 700.0, &declared(), at(second));
    }
    assert_near(rate(&capacity, &declared(), 60), 700.0);
}

#[test]
fn when_reports_stop_the_declared_rate_takes_over() {
    let mut capacity = Capacity::default();
    observe(&mut capacity, &declared(), 0..61, 400.0, 0.8);
    assert_near(rate(&capacity, &declared(), 70), 400.0);
    assert_near(rate(&capacity, &declared(), 100), 800.0 - 400.0 * (-1.0_f64).exp());
    assert_near(rate(&capacity, &declared(), 400), 800.0);
    assert_eq!(capacity.room(&declared(), None, at(400)).basis, Basis::Silent { since: at(60) });
    // Nothing is declared: the last measurement is all there is.
    assert_near(rate(&capacity, &undeclared(), 100_000), 400.0);
    // What was forgotten stays forgotten when a report comes that says nothing.
    observe(&mut capacity, &declared(), 400..401, 3.0, 0.01);
    assert_near(rate(&capacity, &declared(), 400), 800.0);
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let mut capacity = Capacity::default();
    observe(&mut capacity, &declared(), 100..160, 400.0, 0.8);
    observe(&mut capacity, &declared(), 0..1, 40.0, 0.8);
    assert_near(rate(&capacity, &declared(), 0), 400.0);
    assert_near(rate(&capacity, &declared(), 160), 400.0);
}

proptest! {
    /// Whatever a tenant reports, what follows can be computed with and stays within what is declared.
    #[test]
    fn no_report_leads_beyond_the_bounds(
        reports in prop::collection::vec(
            (prop::num::f64::ANY, prop::num::f64::ANY, any::<u32>(), prop::num::f64::ANY, 0_u64..100, any::<bool>()), 1..50
        ),
        declared in prop::option::of(any::<u32>()),
        wanted in prop::num::f64::ANY,
    ) {
        let limits = Limits::new(wanted, declared);
        let mut capacity = Capacity::default();
        let mut second = 0;
        let mut most_ready = 0;
        for (served, utilization, ready, counted, later, honest) in reports {
            second += later;
            // Plain numbers beside wild ones, as most wild ones are refused.
            let (served, utilization) = if honest { (served.abs() % 1e6, utilization.abs() % 2.0) } else { (served, utilization) };
            let Ok(report) = Report::check(served, utilization, ready % 200_000) else { continue };
            most_ready = most_ready.max(report.ready);
            capacity.observe(report, if honest { served } else { counted }, &limits, at(second));
            let room = capacity.room(&limits, None, at(second + later));
            prop_assert!(room.rate >= 0.0 && room.rate <= room.most && room.most <= UNLIMITED, "{room:?}");
            if let Some(declared) = declared {
                prop_assert!(room.most <= f64::from(declared) * f64::from(most_ready) * (1.0 + 1e-9), "{room:?}");
            }
        }
    }
}
