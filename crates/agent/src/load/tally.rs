//! From pages to what is reported: rates between two pages of a pod, and sums over the pods.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::endpoints::Pods;
use super::page::Sample;

/// Two pages that are closer say little about a rate.
const LEAST_APART: Duration = Duration::from_millis(100);
/// A page that is older says nothing about this second.
const MOST_APART: Duration = Duration::from_secs(10);

/// What is known of each pod.
#[derive(Default)]
pub(super) struct Tally {
    pods: HashMap<SocketAddr, Pod>,
}

struct Pod {
    page: Sample,
    at: Instant,
    /// None until there were two pages.
    load: Option<Load>,
}

/// Of a pod, in the time between its last two pages.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Load {
    served: f64,
    utilization: f64,
}

/// What is reported of a service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reported {
    pub(super) served: f64,
    pub(super) utilization: f64,
}

impl Tally {
    /// Takes in a pod's page.
    pub(super) fn observe(&mut self, pod: SocketAddr, page: Sample, at: Instant) {
        let load = self.pods.get(&pod).and_then(|before| {
            let apart = at.saturating_duration_since(before.at);
            (LEAST_APART..=MOST_APART).contains(&apart).then(|| between(&before.page, &page, apart))
        });
        self.pods.insert(pod, Pod { page, at, load });
    }

    /// Nothing is known of what happened since its last page.
    pub(super) fn missed(&mut self, pod: SocketAddr) {
        if let Some(pod) = self.pods.get_mut(&pod) {
            pod.load = None;
        }
    }

    /// Forgets those that are gone.
    pub(super) fn keep(&mut self, is_there: impl Fn(&SocketAddr) -> bool) {
        self.pods.retain(|pod, _| is_there(pod));
    }

    /// Pods without a page count as idle, and pods that nobody looked at as the others on average.
    pub(super) fn report(&self, pods: &Pods) -> Reported {
        let loads = pods.pages.iter().filter_map(|pod| self.pods.get(pod)?.load);
        let (served, busy) =
            loads.fold((0.0, 0.0), |(served, busy), load| (served + load.served, busy + load.utilization));
        let each_stands_for = as_number(pods.ready.saturating_sub(pods.portless)) / as_number(pods.pages.len().max(1));
        let utilization = busy * each_stands_for / as_number(pods.ready.max(1));
        Reported { served: served * each_stands_for, utilization }
    }
}

/// Counters only rise; one that fell began anew, with its pod.
fn between(before: &Sample, page: &Sample, apart: Duration) -> Load {
    let rate = |before: f64, now: f64| {
        let more = if now >= before { now - before } else { now };
        more.max(0.0) / apart.as_secs_f64()
    };
    let cpu = before.cpu.zip(page.cpu).map(|((before, _), (now, cores))| rate(before, now) / cores);
    let utilization = model::overflow::utilization(cpu, page.named, page.in_flight);
    Load { served: rate(before.served, page.served), utilization: utilization.unwrap_or_default().max(0.0) }
}

fn as_number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 80))
    }

    fn pods(ready: usize, portless: usize, pages: &[u8]) -> Pods {
        Pods { ready, portless, pages: pages.iter().map(|number| pod(*number)).collect() }
    }

    fn page(served: f64) -> Sample {
        Sample { served, named: Some(0.5), ..Sample::default() }
    }

    #[test]
    fn rates_are_between_two_pages_and_survive_a_restart() {
        let (mut tally, start) = (Tally::default(), Instant::now());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let report = |tally: &Tally| tally.report(&pods(1, 0, &[1]));
        let busy = |served| Reported { served, utilization: 0.5 };
        let idle = Reported { served: 0.0, utilization: 0.0 };
        tally.observe(pod(1), page(1000.0), at(0.0));
        assert_eq!(report(&tally), idle, "one page is no rate");
        tally.observe(pod(1), page(1050.0), at(0.5));
        assert_eq!(report(&tally), busy(100.0));
        tally.observe(pod(1), page(30.0), at(1.5));
        assert_eq!(report(&tally), busy(30.0), "it began anew, and has served since");
        tally.missed(pod(1));
        assert_eq!(report(&tally), idle, "without a page it counts as idle");
        tally.observe(pod(1), page(70.0), at(3.5));
        assert_eq!(report(&tally), busy(20.0), "the next page is of both seconds");
        tally.observe(pod(1), page(99_999.0), at(30.0));
        assert_eq!(report(&tally), idle, "and after a longer time a first one again");
        tally.keep(|_| false);
        tally.observe(pod(1), page(0.0), at(31.0));
        assert_eq!(report(&tally), idle, "what is forgotten is");
    }

    #[test]
    fn a_service_is_the_sum_of_its_pods() {
        let (mut tally, start) = (Tally::default(), Instant::now());
        for (number, rate) in [(1, 100.0), (2, 300.0)] {
            tally.observe(pod(number), page(0.0), start);
            tally.observe(pod(number), page(rate), start + Duration::from_secs(1));
        }
        for (ready, portless, pages, served, utilization, why) in [
            (2, 0, &[1, 2][..], 400.0, 0.5, "all of them"),
            (20, 0, &[1, 2], 4000.0, 0.5, "two speak for twenty"),
            (4, 0, &[1, 2, 3, 4], 400.0, 0.25, "those without a page are idle"),
            (4, 2, &[1, 2], 400.0, 0.25, "and those without a port, too"),
            (22, 2, &[1, 2], 4000.0, 10.0 / 22.0, "however many the others speak for"),
            (3, 3, &[], 0.0, 0.0, "nobody speaks"),
            (0, 0, &[], 0.0, 0.0, "nobody is there"),
        ] {
            assert_eq!(tally.report(&pods(ready, portless, pages)), Reported { served, utilization }, "{why}");
        }
    }

    #[test]
    fn the_limit_that_is_closest_counts() {
        let before = Sample { cpu: Some((10.0, 2.0)), ..page(0.0) };
        let now = Sample { cpu: Some((11.5, 2.0)), in_flight: Some(0.6), ..page(0.0) };
        let busy = |utilization| Load { served: 0.0, utilization };
        assert_eq!(between(&before, &now, Duration::from_secs(1)), busy(0.75));
        assert_eq!(between(&before, &now, Duration::from_secs(10)), busy(0.6));
        let nothing = Sample::default();
        assert_eq!(between(&nothing, &nothing, Duration::from_secs(1)), busy(0.0));
    }
}
