//! What one cluster can take of one service.
//!
//! A pod that serves `r / n` at utilisation `u` would serve `r / (n u)` at 1, and `u*` of that where the policy wants it. That is averaged
//! over time and multiplied by the pods that are ready, where pods that have just come count little by little.
//!
//! Reports come from tenants. They decide about their own service alone, and even there not beyond what is declared: a reported rate must
//! agree with what the edges counted, and what it leads to is capped. Where both agree the edges' count is computed with: it is ours,
//! less noisy, and does not contain what a service gets past the edges, for which there has to be room as well.

use crate::fact::Timestamp;
use crate::overflow::table::{Basis, Out, Room};
use crate::overflow::{UNLIMITED, seconds_between};

/// Long enough to even out the noise of one-second reports, short enough that a throttled cluster is noticed within some seconds.
const AVERAGED_OVER: f64 = 5.0;
/// Below, the division of two small numbers says nothing about a pod under load.
const LEAST_UTILIZATION: f64 = 0.1;
/// Of the pods that are still missing, how many a second come to count: caches and connections are cold at first.
const SLOW_START: f64 = 0.1;
/// Reports come every second; ten that are missing are no hiccup of the network any more.
const FRESH: f64 = 10.0;
/// Then the declared rate takes over, slowly: what was measured a minute ago still says more than a guess.
const FORGOTTEN_OVER: f64 = 30.0;
/// How far apart a reported and a counted rate may be: clocks, samples and requests under way at either end differ.
const TOLERANCE: f64 = 0.2;
/// The same in requests per second, for services that have hardly any.
const TOLERATED_RATE: f64 = 10.0;
/// Kubernetes is built for 150,000 pods in a cluster.
const MAX_READY: u32 = 150_000;
/// A limit that is exceeded a hundred times is not one.
const MAX_UTILIZATION: f64 = 100.0;

/// What an agent says of a service in its cluster, and can be computed with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    served: f64,
    utilization: f64,
    ready: u32,
}

/// Why a report is not taken. All are the reporting agent's to mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadReport {
    #[error("the agent's report has a {0} that is no finite number")]
    NotFinite(&'static str),
    #[error("the agent's report has a negative {0}")]
    Negative(&'static str),
    #[error("the agent's report has a {0} beyond what any cluster has")]
    TooLarge(&'static str),
}

impl BadReport {
    /// Fixed: a metric's label and a log's field.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFinite(_) => "ReportNotFinite",
            Self::Negative(_) => "ReportNegative",
            Self::TooLarge(_) => "ReportTooLarge",
        }
    }
}

impl Report {
    /// `served` are the requests per second that were answered, not those that came; `utilization` as of [`utilization`]; `ready` the pods
    /// that take requests.
    pub fn check(served: f64, utilization: f64, ready: u32) -> Result<Self, BadReport> {
        for (name, value, most) in [("served rate", served, UNLIMITED), ("utilization", utilization, MAX_UTILIZATION)] {
            if !value.is_finite() {
                return Err(BadReport::NotFinite(name));
            }
            if value < 0.0 {
                return Err(BadReport::Negative(name));
            }
            if value > most {
                return Err(BadReport::TooLarge(name));
            }
        }
        if ready > MAX_READY {
            return Err(BadReport::TooLarge("number of ready pods"));
        }
        Ok(Self { served, utilization, ready })
    }

    /// Requests per second.
    pub fn served(&self) -> f64 {
        self.served
    }

    pub fn utilization(&self) -> f64 {
        self.utilization
    }

    /// Pods.
    pub fn ready(&self) -> u32 {
        self.ready
    }

    fn agrees_with(&self, counted: f64) -> bool {
        let sane = (0.0..=UNLIMITED).contains(&counted);
        sane && (self.served - counted).abs() <= TOLERANCE * self.served.max(counted) + TOLERATED_RATE
    }
}

/// What an agent reports as utilisation: whichever of its limits a service is closest to. Nothing where nothing has a limit.
pub fn utilization(cpu: Option<f64>, named: Option<f64>, in_flight: Option<f64>) -> Option<f64> {
    [cpu, named, in_flight].into_iter().flatten().filter(|value| value.is_finite()).reduce(f64::max)
}

/// What `FederationPolicy.spec.overflow` says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The utilisation that a cluster is filled to.
    utilization: f64,
    /// Requests per second that a pod gets at most.
    rate_per_pod: Option<f64>,
}

impl Limits {
    /// The policy's schema has checked both; what it would not have let through is brought within its bounds.
    pub fn new(utilization: f64, rate_per_pod: Option<u32>) -> Self {
        let utilization = if utilization.is_finite() { utilization.clamp(0.05, 1.0) } else { 0.8 };
        Self { utilization, rate_per_pod: rate_per_pod.map(f64::from) }
    }

    /// What a pod is taken to serve at the wanted utilisation while nothing else is known.
    fn cold(&self) -> Option<f64> {
        self.rate_per_pod.map(|rate| rate * self.utilization)
    }
}

/// The estimate for one service in one cluster.
#[derive(Debug, Clone, Default)]
pub struct Capacity {
    /// What a pod serves at the wanted utilisation, as averaged; none until something was measured.
    per_pod: Option<f64>,
    pods: Option<Pods>,
    /// When the last report came.
    heard: Option<Timestamp>,
    /// What the last report said and what the edges counted, if the two did not agree.
    disagreed: Option<(f64, f64)>,
}

/// Those that are ready, and as how many they count.
#[derive(Debug, Clone, Copy)]
struct Pods {
    ready: u32,
    counted: f64,
    since: Timestamp,
}

impl Capacity {
    /// Takes in a report, beside the rate that the edges together counted as answered by this cluster in the time that the report is of.
    pub fn observe(&mut self, report: Report, counted: f64, limits: &Limits, now: Timestamp) {
        self.ready(report.ready, now);
        let agrees = report.agrees_with(counted);
        let measurable = report.utilization >= LEAST_UTILIZATION && report.ready > 0;
        let seen = match (agrees, measurable) {
            (true, true) => Some(counted / (f64::from(report.ready) * report.utilization) * limits.utilization),
            (true, false) => None,
            (false, _) => limits.cold(),
        };
        self.per_pod = match (self.estimate(limits, now), seen) {
            (Some(average), Some(seen)) => Some(seen + (average - seen) * self.weight_of_the_past(now)),
            (None, Some(seen)) => Some(seen),
            // What was forgotten in a silence stays so; what was never measured stays that, too.
            (average, None) => self.per_pod.and(average),
        };
        self.heard = self.heard.max(Some(now));
        self.disagreed = (!agrees).then_some((report.served, counted));
    }

    fn weight_of_the_past(&self, now: Timestamp) -> f64 {
        // The first report is of the second before it.
        let passed = self.heard.map_or(1.0, |heard| seconds_between(heard, now));
        (-passed / AVERAGED_OVER).exp()
    }

    /// How many pods are ready, where that is known otherwise than by a report: from the member's endpoints.
    pub fn ready(&mut self, ready: u32, now: Timestamp) {
        let ready = ready.min(MAX_READY);
        let target = f64::from(ready);
        let counted = match self.pods {
            Some(pods) if target > pods.counted => {
                let missing = (1.0 - SLOW_START).powf(seconds_between(pods.since, now));
                target - (target - pods.counted) * missing
            }
            // Pods that are there when we come have been there before: it is we who start.
            _ => target,
        };
        let since = self.pods.map_or(now, |pods| pods.since.max(now));
        self.pods = Some(Pods { ready, counted, since });
    }

    /// What the cluster can take now; nothing while it is out.
    pub fn room(&self, limits: &Limits, out: Option<Out>, now: Timestamp) -> Room {
        let no_pods = self.pods.is_some_and(|pods| pods.ready == 0).then_some(Out::NoReadyPods);
        let out = out.or(no_pods);
        let basis = self.basis(limits, now);
        if out.is_some() {
            return Room { rate: 0.0, most: 0.0, basis, out };
        }
        let (Some(pods), Some(per_pod)) = (self.pods, self.estimate(limits, now)) else {
            return Room { rate: UNLIMITED, most: UNLIMITED, basis, out };
        };
        let maximum = limits.rate_per_pod.map_or(UNLIMITED, |rate| (pods.counted * rate).min(UNLIMITED));
        let rate = (pods.counted * per_pod).min(maximum);
        Room { rate, most: (rate / limits.utilization).min(maximum), basis, out }
    }

    /// What a pod serves at the wanted utilisation, as far as that is known: the declared rate takes over where reports stop.
    fn estimate(&self, limits: &Limits, now: Timestamp) -> Option<f64> {
        let cold = limits.cold();
        let Some(per_pod) = self.per_pod else { return cold };
        // Without a declared rate the last measurement is all there is.
        let Some(cold) = cold else { return Some(per_pod) };
        let silent = self.heard.map_or(0.0, |heard| seconds_between(heard, now) - FRESH);
        Some(cold + (per_pod - cold) * (-silent.max(0.0) / FORGOTTEN_OVER).exp())
    }

    fn basis(&self, limits: &Limits, now: Timestamp) -> Basis {
        match (self.disagreed, self.per_pod, self.heard) {
            (_, _, Some(heard)) if seconds_between(heard, now) > FRESH => Basis::Silent { since: heard },
            (Some((served, counted)), ..) => Basis::Disagreed { served, counted },
            (None, Some(_), _) => Basis::Measured,
            (None, None, _) if limits.rate_per_pod.is_some() => Basis::Declared,
            (None, None, _) => Basis::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
