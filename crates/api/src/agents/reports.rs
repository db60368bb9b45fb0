//! What agents last said of the load of their clusters' services. Whoever reads takes no lock; a cluster's stream writes its own part.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use manifest::agents::MAX_SERVICES;
use model::overflow::Report;
use model::{ClusterName, ObjectName, Timestamp};

/// Nobody computes with what is older: reports count for 10 s, and what is measured from them for some more.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);
/// Of all clusters: some 100 MiB.
const MOST: usize = 500_000;

/// Of the cluster that is spoken of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service {
    pub namespace: ObjectName,
    pub name: ObjectName,
}

/// What was said of a cluster, which is the one with that UID.
#[derive(Debug, Clone, PartialEq)]
pub struct OfOne {
    pub cluster: ClusterName,
    pub uid: Arc<str>,
    pub services: Vec<(Service, Report)>,
}

#[derive(Default)]
pub struct Reports {
    /// Replaced when a cluster comes or goes.
    clusters: ArcSwap<HashMap<ClusterName, Arc<OfCluster>>>,
    coming: Mutex<()>,
    /// Counted anew by every sweep, and about right in between.
    count: AtomicUsize,
}

struct OfCluster {
    /// A cluster of the same name that was made anew is another one.
    uid: Arc<str>,
    /// Replaced with every line.
    services: ArcSwap<HashMap<Service, (Report, Timestamp)>>,
    writing: Mutex<()>,
}

impl Reports {
    /// What was last said of a service, and when.
    pub fn of(
        &self,
        cluster: &ClusterName,
        uid: &str,
        namespace: &ObjectName,
        name: &ObjectName,
    ) -> Option<(Report, Timestamp)> {
        let clusters = self.clusters.load();
        let part = clusters.get(cluster).filter(|part| *part.uid == *uid)?;
        let service = Service { namespace: namespace.clone(), name: name.clone() };
        part.services.load().get(&service).copied()
    }

    /// Everything, in order.
    pub fn all(&self) -> Vec<(ClusterName, Service, Report, Timestamp)> {
        let clusters = self.clusters.load();
        let of_cluster = |(cluster, part): (&ClusterName, &Arc<OfCluster>)| {
            let services = part.services.load_full();
            let told = |(service, (report, at)): (&Service, &(Report, Timestamp))| {
                (cluster.clone(), service.clone(), *report, *at)
            };
            services.iter().map(told).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = clusters.iter().flat_map(of_cluster).collect();
        all.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        all
    }

    /// What was said after a moment, cluster by cluster from the one after `begin` on and around, as long as there are no more than
    /// so many services. Also the last cluster that was looked at: where to go on from when not all had room.
    pub fn said_after(
        &self,
        moment: Timestamp,
        begin: Option<&ClusterName>,
        most: usize,
    ) -> (Vec<OfOne>, Option<ClusterName>) {
        let clusters = self.clusters.load();
        let mut order: Vec<&ClusterName> = clusters.keys().collect();
        order.sort();
        let first = order.partition_point(|cluster| begin.is_some_and(|begin| *cluster <= begin));
        order.rotate_left(first);
        let (mut count, mut said) = (0, Vec::new());
        for cluster in order {
            let Some(part) = clusters.get(cluster) else { continue };
            let services = part.services.load_full();
            let new = services.iter().filter(|(_, (_, at))| moment < *at);
            let services: Vec<_> = new.map(|(service, (report, _))| (service.clone(), *report)).collect();
            if services.is_empty() {
                continue;
            }
            count += services.len();
            if count > most {
                let last = said.last().map(|last: &OfOne| last.cluster.clone());
                return (said, last);
            }
            said.push(OfOne { cluster: cluster.clone(), uid: Arc::clone(&part.uid), services });
        }
        (said, None)
    }

    /// Takes in what a cluster says; how many of its services there was no room for.
    pub fn take(&self, cluster: &ClusterName, uid: &Arc<str>, said: Vec<(Service, Report)>, now: Timestamp) -> usize {
        let part = self.part(cluster, uid);
        let _writing = lock(&part.writing);
        let mut services = HashMap::clone(&part.services.load());
        services.retain(|_, (_, at)| is_fresh(*at, now));
        let (mut come, mut no_room) = (0, 0);
        for (service, report) in said {
            if !services.contains_key(&service) {
                let full = self.count.load(Ordering::Relaxed).saturating_add(come) >= MOST;
                if full || services.len() >= MAX_SERVICES {
                    no_room += 1;
                    continue;
                }
                come += 1;
            }
            services.insert(service, (report, now));
        }
        self.count.fetch_add(come, Ordering::Relaxed);
        part.services.store(Arc::new(services));
        no_room
    }

    /// Nothing that it said counts any more.
    pub(super) fn forget(&self, cluster: &ClusterName, uid: &str) {
        let _coming = lock(&self.coming);
        if self.clusters.load().get(cluster).is_some_and(|part| *part.uid == *uid) {
            let mut clusters = HashMap::clone(&self.clusters.load());
            clusters.remove(cluster);
            self.clusters.store(Arc::new(clusters));
        }
    }

    /// Forgets what is too old.
    pub fn sweep(&self, now: Timestamp) {
        let _coming = lock(&self.coming);
        let clusters = self.clusters.load_full();
        let (mut count, mut silent) = (0, Vec::new());
        for (cluster, part) in &*clusters {
            let _writing = lock(&part.writing);
            let services = part.services.load_full();
            let fresh = services.values().filter(|(_, at)| is_fresh(*at, now)).count();
            if fresh < services.len() {
                let mut services = HashMap::clone(&services);
                services.retain(|_, (_, at)| is_fresh(*at, now));
                part.services.store(Arc::new(services));
            }
            count += fresh;
            if fresh == 0 {
                silent.push(cluster);
            }
        }
        self.count.store(count, Ordering::Relaxed);
        if !silent.is_empty() {
            let mut kept = HashMap::clone(&clusters);
            for cluster in silent {
                kept.remove(cluster);
            }
            self.clusters.store(Arc::new(kept));
        }
    }

    fn part(&self, cluster: &ClusterName, uid: &Arc<str>) -> Arc<OfCluster> {
        let known = |clusters: &HashMap<ClusterName, Arc<OfCluster>>| {
            clusters.get(cluster).filter(|part| part.uid == *uid).map(Arc::clone)
        };
        if let Some(part) = known(&self.clusters.load()) {
            return part;
        }
        let _coming = lock(&self.coming);
        if let Some(part) = known(&self.clusters.load()) {
            return part;
        }
        let part = OfCluster { uid: Arc::clone(uid), services: ArcSwap::default(), writing: Mutex::default() };
        let part = Arc::new(part);
        let mut clusters = HashMap::clone(&self.clusters.load());
        clusters.insert(cluster.clone(), Arc::clone(&part));
        self.clusters.store(Arc::new(clusters));
        part
    }
}

fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    now < at.saturating_add(FORGOTTEN_AFTER)
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(Duration::from_secs(1_800_000_000 + seconds))
    }

    fn service(name: &str) -> Service {
        Service { namespace: "shop".parse().unwrap(), name: name.parse().unwrap() }
    }

    fn served(rate: u32) -> Report {
        Report::check(f64::from(rate), 0.5, 3).unwrap()
    }

    #[test]
    fn the_last_word_of_a_cluster_counts_for_a_minute_and_for_that_cluster_alone() {
        let reports = Reports::default();
        let (one, other): (ClusterName, ClusterName) = ("c1".parse().unwrap(), "c2".parse().unwrap());
        let (first, second): (Arc<str>, Arc<str>) = ("u1".into(), "u2".into());
        let of = |cluster, uid: &str, name: &str| {
            let Service { namespace, name } = service(name);
            reports.of(cluster, uid, &namespace, &name)
        };
        reports.take(&one, &first, vec![(service("web"), served(1)), (service("api"), served(2))], at(0));
        reports.take(&other, &first, vec![(service("web"), served(3))], at(30));
        reports.take(&one, &first, vec![(service("web"), served(4))], at(40));
        assert_eq!(of(&one, "u1", "web"), Some((served(4), at(40))));
        assert_eq!(of(&one, "u1", "api"), Some((served(2), at(0))));
        assert_eq!(of(&other, "u1", "web"), Some((served(3), at(30))));
        assert_eq!(of(&one, "u2", "web"), None, "a cluster that was made anew is another one");
        assert_eq!(reports.all().len(), 3);

        reports.sweep(at(60));
        assert_eq!((of(&one, "u1", "api"), of(&one, "u1", "web").is_some()), (None, true));
        reports.sweep(at(99));
        assert_eq!(of(&other, "u1", "web"), None);
        reports.take(&one, &second, vec![(service("web"), served(5))], at(99));
        assert_eq!((of(&one, "u1", "web"), of(&one, "u2", "web")), (None, Some((served(5), at(99)))));
        reports.forget(&one, "u1");
        assert_eq!(reports.all().len(), 1, "nobody else is forgotten");
        reports.forget(&one, "u2");
        assert_eq!(reports.all(), []);
    }

    #[test]
    fn what_is_new_is_told_in_turns() {
        let reports = Reports::default();
        let uid: Arc<str> = "u".into();
        for (cluster, moment) in [("c1", 0), ("c2", 5), ("c3", 6)] {
            let said = vec![(service("web"), served(1)), (service("api"), served(2))];
            reports.take(&cluster.parse().unwrap(), &uid, said, at(moment));
        }
        let told = |moment, begin: Option<&str>, most| {
            let (said, last) = reports.said_after(at(moment), begin.map(|begin| begin.parse().unwrap()).as_ref(), most);
            assert!(said.iter().all(|one| one.services.len() == 2 && one.uid == uid));
            let said: Vec<String> = said.into_iter().map(|one| one.cluster.to_string()).collect();
            (said.join(" "), last.map(|last| last.to_string()))
        };
        assert_eq!(told(0, None, 100), ("c2 c3".into(), None));
        assert_eq!(told(5, None, 100), ("c3".into(), None));
        assert_eq!(told(6, None, 100), (String::new(), None));
        // With room for one or two, each has its turn.
        reports.take(
            &"c1".parse().unwrap(),
            &uid,
            vec![(service("web"), served(1)), (service("api"), served(1))],
            at(7),
        );
        assert_eq!(told(1, None, 2), ("c1".into(), Some("c1".into())));
        assert_eq!(told(1, Some("c1"), 3), ("c2".into(), Some("c2".into())));
        assert_eq!(told(1, Some("c2"), 4), ("c3 c1".into(), Some("c1".into())));
        assert_eq!(told(1, Some("c3"), 100), ("c1 c2 c3".into(), None));
    }

    #[test]
    fn a_cluster_has_room_for_as_many_services_as_a_line_has() {
        let reports = Reports::default();
        let (cluster, uid): (ClusterName, Arc<str>) = ("c1".parse().unwrap(), "u".into());
        let said = |from: usize| (from..from + MAX_SERVICES).map(|n| (service(&format!("s{n}")), served(1))).collect();
        assert_eq!(reports.take(&cluster, &uid, said(0), at(0)), 0);
        assert_eq!(reports.take(&cluster, &uid, said(600), at(1)), 600, "those that are known are still taken");
        assert_eq!(reports.take(&cluster, &uid, said(600), at(60)), 0, "once the others are forgotten");
        assert_eq!(reports.all().len(), MAX_SERVICES);
    }
}
