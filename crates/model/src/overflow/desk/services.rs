//! What each Service of each cluster can take. Several destinations may lead to the same one: two Ingresses, or two paths. It has one capacity, which
//! they share by what comes to each.

use std::collections::HashMap;
use std::sync::Arc;

use crate::fact::Timestamp;
use crate::identity::ObjectName;
use crate::ingress::Overflow;
use crate::overflow::UNLIMITED;
use crate::overflow::capacity::{Capacity, Limits, Report};
use crate::overflow::table::{Out, Room};
use crate::routes::{Entry, Member};

/// Seconds that a report may be of: those of agents and edges begin anywhere, and either may be late by one.
const SECONDS: usize = 3;
/// A destination that nobody asks for has this part of a Service for each that has all of it: it may begin any time.
const LEAST_PART: f64 = 0.01;

/// Tells a Service from all others: those of a later cluster of the same name are others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ServiceKey {
    uid: Arc<str>,
    pub(super) namespace: ObjectName,
    pub(super) name: ObjectName,
}

impl ServiceKey {
    /// The Service stands in the member where the Ingress stands here.
    pub(super) fn of(entry: &Entry, member: &Member) -> Option<Self> {
        let namespace = entry.object.namespace.clone()?;
        Some(Self { uid: Arc::clone(&member.uid), namespace, name: entry.backend.service.clone() })
    }
}

/// No more than the destinations of one table lead to.
#[derive(Debug, Default)]
pub(super) struct Services(HashMap<ServiceKey, Service>);

#[derive(Debug)]
struct Service {
    capacity: Capacity,
    /// Of the strictest policy that leads here.
    limits: Overflow,
    /// What the edges counted as answered, the last second first.
    answered: [f64; SECONDS],
    /// Of all destinations together, and how many they are.
    demand: f64,
    destinations: u32,
    /// Clients come past the gateways, so that nobody counts but the agent.
    is_direct: bool,
    report: Option<(Report, Timestamp)>,
    observed: Option<Timestamp>,
}

impl Services {
    pub(super) fn begin(&mut self) {
        for service in self.0.values_mut() {
            service.answered.rotate_right(1);
            service.answered[0] = 0.0;
            (service.demand, service.destinations, service.is_direct, service.report) = (0.0, 0, false, None);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A destination that leads here.
    pub(super) fn count(&mut self, key: &ServiceKey, limits: &Overflow, answered: f64, demand: f64, is_direct: bool) {
        let service = self.0.entry(key.clone()).or_insert_with(|| Service::new(limits));
        let is_first = service.destinations == 0;
        service.limits = if is_first { *limits } else { stricter(&service.limits, limits) };
        service.answered[0] += answered;
        service.demand += demand;
        service.destinations += 1;
        service.is_direct |= is_direct;
    }

    /// What the agent last said of it.
    pub(super) fn report(&mut self, key: &ServiceKey, report: Report, at: Timestamp) {
        if let Some(service) = self.0.get_mut(key) {
            service.report = Some((report, at));
        }
    }

    /// Forgets those that nothing leads to any more, and takes in what is new of the others.
    pub(super) fn observe(&mut self, now: Timestamp) {
        self.0.retain(|_, service| service.destinations > 0);
        for service in self.0.values_mut() {
            if let Some((report, at)) = service.report.filter(|(_, at)| service.observed != Some(*at)) {
                let counted = service.counted(&report);
                service.capacity.observe(report, counted, &limits(&service.limits), now);
                service.observed = Some(at);
            }
        }
    }

    /// One destination's part of what a Service can take.
    pub(super) fn room(
        &self,
        key: &ServiceKey,
        limits: &Limits,
        demand: f64,
        out: Option<Out>,
        now: Timestamp,
    ) -> Option<Room> {
        let service = self.0.get(key)?;
        let room = service.capacity.room(limits, out, now);
        if service.destinations < 2 || room.rate >= UNLIMITED {
            return Some(room);
        }
        let least = (service.demand * LEAST_PART).max(f64::MIN_POSITIVE);
        let part = (demand + least) / (service.demand + f64::from(service.destinations) * least);
        Some(Room { rate: room.rate * part, most: room.most * part, ..room })
    }
}

impl Service {
    fn new(limits: &Overflow) -> Self {
        Self {
            capacity: Capacity::default(),
            limits: *limits,
            answered: [0.0; SECONDS],
            demand: 0.0,
            destinations: 0,
            is_direct: false,
            report: None,
            observed: None,
        }
    }

    /// What the edges counted in the second that the report is of: whichever is closest.
    fn counted(&self, report: &Report) -> f64 {
        if self.is_direct {
            return report.served();
        }
        let distance = |counted: &f64| (counted - report.served()).abs();
        self.answered.into_iter().min_by(|one, other| distance(one).total_cmp(&distance(other))).unwrap_or_default()
    }
}

pub(super) fn limits(overflow: &Overflow) -> Limits {
    Limits::new(overflow.utilization, overflow.max_rate_per_pod)
}

/// Pods do not know who leads to them.
fn stricter(one: &Overflow, other: &Overflow) -> Overflow {
    let rates = [one.max_rate_per_pod, other.max_rate_per_pod];
    Overflow {
        utilization: one.utilization.min(other.utilization),
        max_rate_per_pod: rates.into_iter().flatten().min(),
    }
}
