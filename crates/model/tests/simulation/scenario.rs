//! What happens to the three regions.

use super::REGIONS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The utilisation of the pods that serve.
    Destination,
    /// That of the proxy before them, which has three times as much to spare.
    FirstHop,
}

#[derive(Clone)]
pub struct Scenario {
    pub name: &'static str,
    pub what: &'static str,
    pub seconds: u32,
    /// The second from which on it is measured.
    pub measured_from: u32,
    /// Requests per second that come in each region, by the second.
    pub demand: fn(u32) -> [f64; REGIONS],
    /// Ready pods, by the second and the region.
    pub pods: fn(u32, usize) -> u32,
    /// What a pod really serves, by the second and the region.
    pub strength: fn(u32, usize) -> f64,
    /// What a pod is declared to serve.
    pub declared: Option<u32>,
    pub edges_per_region: u32,
    /// In seconds.
    pub report_age: usize,
    pub signal: Signal,
}

const USUAL: Scenario = Scenario {
    name: "",
    what: "",
    seconds: 600,
    measured_from: 0,
    demand: |_| [500.0, 200.0, 200.0],
    pods: |_, _| 10,
    strength: |_, _| 100.0,
    declared: Some(100),
    edges_per_region: 1,
    report_age: 2,
    signal: Signal::Destination,
};

/// All of them, in the order of their names.
pub fn all() -> Vec<Scenario> {
    vec![
        Scenario { name: "S1", what: "all have room: 500/200/200", ..USUAL },
        Scenario { name: "S2", what: "A at 150 %: 1500/300/200", demand: hot, ..USUAL },
        Scenario {
            name: "S3",
            what: "B's pods half as strong as declared: 1200/300/200",
            demand: |_| [1200.0, 300.0, 200.0],
            strength: |_, region| if region == 1 { 50.0 } else { 100.0 },
            ..USUAL
        },
        Scenario {
            name: "S4",
            what: "S2, CPU of the first hop as the signal, nothing declared",
            demand: hot,
            signal: Signal::FirstHop,
            declared: None,
            ..USUAL
        },
        Scenario { name: "S4d", what: "S4, with 100 a pod declared", demand: hot, signal: Signal::FirstHop, ..USUAL },
        Scenario {
            name: "S5",
            what: "A loses 6 of 10 pods: 700/300/200",
            demand: |_| [700.0, 300.0, 200.0],
            pods: |second, region| if region == 0 && second >= 10 { 4 } else { 10 },
            ..USUAL
        },
        Scenario {
            name: "S6",
            what: "A scales up from 0 to 30 pods in 60 s, B and C have 30: 2000/800/800",
            seconds: 75,
            demand: |_| [2000.0, 800.0, 800.0],
            pods: |second, region| if region == 0 { (second / 2).min(30) } else { 30 },
            ..USUAL
        },
        Scenario {
            name: "S7",
            what: "A throttled to half: 700/300/200",
            seconds: WARM + 150,
            measured_from: WARM,
            demand: |_| [700.0, 300.0, 200.0],
            strength: |second, region| if region == 0 && second >= WARM { 50.0 } else { 100.0 },
            ..USUAL
        },
        Scenario {
            name: "S8",
            what: "S2 with 12 edges and reports 5 s old",
            demand: hot,
            edges_per_region: 4,
            report_age: 5,
            ..USUAL
        },
        Scenario {
            name: "S9",
            what: "A's demand a sine from 200 to 1600: -/300/200",
            seconds: 300,
            demand: |second| {
                let turn = f64::from(second) / 200.0 * std::f64::consts::TAU;
                [900.0 - 700.0 * turn.sin(), 300.0, 200.0]
            },
            ..USUAL
        },
        Scenario {
            name: "S10",
            what: "120 % everywhere: 1200/1200/1200",
            demand: |_| [1200.0, 1200.0, 1200.0],
            ..USUAL
        },
        Scenario {
            name: "S11",
            what: "S2, and A's demand drops to 500",
            demand: |second| if second < DROP { hot(second) } else { [500.0, 300.0, 200.0] },
            ..USUAL
        },
    ]
}

/// When A is throttled in S7.
pub const WARM: u32 = 30;
/// When the demand drops in S11.
pub const DROP: u32 = 300;

fn hot(_: u32) -> [f64; REGIONS] {
    [1500.0, 300.0, 200.0]
}

/// By its name.
pub fn named(name: &str) -> Scenario {
    all().into_iter().find(|scenario| scenario.name == name).unwrap()
}
