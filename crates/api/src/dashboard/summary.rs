//! What is worked out of a whole fleet, once for all who look: rows to search in, sums, and the map.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use model::identity::Kind;
use model::ingress::{EntryMode, Steering};
use model::network::Coordinates;
use model::policy::Refused;
use model::snapshot::{Condition, Detail, Status};
use model::{ClusterName, DnsName, ObjectName, ObjectRef, Snapshot};

use super::health::Health;
use super::map::Map;

/// While a fleet never rests, it is summed up again in this part of the time at most: viewers of a fleet of 10,000 clusters
/// see changes some tenths of a second later, and its processor is for others.
const PAUSE: u32 = 20;

/// The last one.
#[derive(Default)]
pub(super) struct Summaries(Mutex<Option<Made>>);

struct Made {
    summary: Arc<Summary>,
    at: Instant,
    took: Duration,
}

impl Summaries {
    /// Made where there is none of this snapshot yet; those who ask meanwhile wait for it.
    pub(super) fn of(&self, snapshot: &Snapshot) -> Arc<Summary> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        if let Some(made) = &*last
            && (made.summary.revision == snapshot.revision || begun - made.at < made.took * PAUSE)
        {
            return Arc::clone(&made.summary);
        }
        let summary = Arc::new(Summary::of(snapshot));
        let at = Instant::now();
        *last = Some(Made { summary: Arc::clone(&summary), at, took: at - begun });
        summary
    }
}

#[derive(Default)]
pub(super) struct Summary {
    revision: u64,
    /// By name, those that are refused among them.
    pub(super) clusters: Vec<ClusterRow>,
    /// By [`Health`].
    pub(super) by_health: [usize; Health::ALL.len()],
    pub(super) ready_nodes: usize,
    pub(super) nodes: usize,
    pub(super) zones: BTreeMap<ObjectName, ZoneRow>,
    pub(super) tenants: BTreeMap<ObjectName, TenantRow>,
    pub(super) ingresses: BTreeMap<ObjectRef, IngressRow>,
    pub(super) refusals: Vec<RefusalRow>,
    pub(super) map: Map,
}

#[derive(Debug, Clone)]
pub(super) struct ClusterRow {
    pub(super) name: ObjectName,
    pub(super) tenant: Option<ObjectName>,
    pub(super) region: Option<String>,
    pub(super) coordinates: Option<Coordinates>,
    pub(super) health: Health,
    /// Where something is to be said.
    pub(super) why: Option<String>,
    pub(super) ready: usize,
    pub(super) nodes: usize,
}

pub(super) struct ZoneRow {
    pub(super) apex: Option<DnsName>,
    pub(super) serial: Option<u32>,
    pub(super) clusters: usize,
    pub(super) held: usize,
    pub(super) refusal: Option<String>,
}

#[derive(Default)]
pub(super) struct TenantRow {
    pub(super) clusters: usize,
    pub(super) records: usize,
    pub(super) addresses: usize,
    pub(super) held: usize,
    pub(super) resting: usize,
    /// Objects and parts of objects.
    pub(super) refused: usize,
    pub(super) refusal: Option<String>,
}

pub(super) struct IngressRow {
    pub(super) tenant: Option<ObjectName>,
    pub(super) hosts: Vec<DnsName>,
    pub(super) members: usize,
    pub(super) entry: Option<EntryMode>,
    pub(super) steering: Option<&'static str>,
    pub(super) refused: usize,
}

pub(super) struct RefusalRow {
    pub(super) object: ObjectRef,
    pub(super) tenant: Option<ObjectName>,
    pub(super) part: Option<String>,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Summary {
    fn of(snapshot: &Snapshot) -> Self {
        let mut summary = Self { revision: snapshot.revision, ..Self::default() };
        let apexes = summary.add_zones(snapshot);
        for (object, status) in snapshot.statuses() {
            summary.add_refusals(object, status, snapshot);
            match object.kind {
                Kind::Cluster => summary.add_cluster(object, status, snapshot, &apexes),
                Kind::Tenant => summary.add_tenant(object, status, snapshot, &apexes),
                Kind::Ingress if !snapshot.is_foreign(object) => summary.add_ingress(object, status, snapshot),
                Kind::AddressClaim => {
                    let has = matches!(status.detail, Detail::AddressClaim { address: Some(_), .. });
                    if let Some(tenant) = owner(object, snapshot).filter(|_| has) {
                        summary.tenants.entry(tenant).or_default().addresses += 1;
                    }
                }
                _ => {}
            }
        }
        for (name, host) in snapshot.http().hosts() {
            for entry in host.routes().iter().map(|route| &route.entry).chain(host.default()) {
                let Some(row) = summary.ingresses.get_mut(&entry.object) else { continue };
                row.entry = Some(entry.policy.entry);
                row.steering = Some(steering_word(&entry.policy.steering));
                if !row.hosts.contains(name) {
                    row.hosts.push(name.clone());
                }
            }
        }
        for row in summary.ingresses.values_mut() {
            row.hosts.sort();
        }
        summary.clusters.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        summary.refusals.sort_by(|one, other| (&one.object, &one.part).cmp(&(&other.object, &other.part)));
        summary.map = Map::of(&summary.clusters);
        summary
    }

    fn add_zones(&mut self, snapshot: &Snapshot) -> HashMap<DnsName, ObjectName> {
        let mut apexes = HashMap::new();
        for (object, status) in snapshot.statuses().filter(|(object, _)| object.kind == Kind::Zone) {
            let part = snapshot.zone(&object.name);
            if let Some(part) = part {
                apexes.insert(part.apex.clone(), object.name.clone());
            }
            let serial = match status.detail {
                Detail::Zone { serial, .. } => Some(serial),
                _ => None,
            };
            let refusal = status.refusal().map(|refusal| refusal.message.clone());
            let row = ZoneRow { apex: part.map(|part| part.apex.clone()), serial, clusters: 0, held: 0, refusal };
            self.zones.insert(object.name.clone(), row);
        }
        apexes
    }

    fn add_cluster(
        &mut self,
        object: &ObjectRef,
        status: &Status,
        snapshot: &Snapshot,
        apexes: &HashMap<DnsName, ObjectName>,
    ) {
        let name = object.name.as_str().parse::<ClusterName>().ok();
        let part = name.and_then(|name| snapshot.cluster(&name));
        let failing = status.conditions.iter().find(|condition| !condition.is_well());
        let why = failing.map(|Condition { reason, message, .. }| match message.as_str() {
            "" => (*reason).to_owned(),
            message => message.to_owned(),
        });
        let Some(part) = part else {
            let row = ClusterRow {
                name: object.name.clone(),
                tenant: None,
                region: None,
                coordinates: None,
                health: Health::Refused,
                why,
                ready: 0,
                nodes: 0,
            };
            self.by_health[Health::Refused as usize] += 1;
            self.clusters.push(row);
            return;
        };
        let health = Health::of(part, status);
        let ready = part.nodes.iter().filter(|node| node.ready).count();
        let nodes = part.nodes.len();
        let unready = || format!("{} of {nodes} nodes not ready", nodes - ready);
        let why = why.or_else(|| (ready < nodes).then(unready));
        self.by_health[health as usize] += 1;
        self.ready_nodes += ready;
        self.nodes += nodes;
        self.tenants.entry(part.holding.tenant.clone()).or_default().clusters += 1;
        if let Some(zone) = apexes.get(&part.apex).and_then(|zone| self.zones.get_mut(zone)) {
            zone.clusters += 1;
            zone.held += usize::from(part.held);
        }
        self.clusters.push(ClusterRow {
            name: object.name.clone(),
            tenant: Some(part.holding.tenant.clone()),
            region: part.location.region.clone(),
            coordinates: part.location.coordinates,
            health,
            why,
            ready,
            nodes,
        });
    }

    fn add_tenant(
        &mut self,
        object: &ObjectRef,
        status: &Status,
        snapshot: &Snapshot,
        apexes: &HashMap<DnsName, ObjectName>,
    ) {
        let row = self.tenants.entry(object.name.clone()).or_default();
        row.records = snapshot.published_by(&object.name);
        row.refusal = status.refusal().map(|refusal| refusal.message.clone());
        let Detail::Tenant { held, resting } = &status.detail else { return };
        row.resting = resting.len();
        for name in held.iter().flat_map(model::resource::HeldClaims::names) {
            row.held += 1;
            let mut above = std::iter::successors(Some(name.clone()), DnsName::parent);
            let zone = above.find_map(|place| apexes.get(&place)).and_then(|zone| self.zones.get_mut(zone));
            if let Some(zone) = zone {
                zone.held += 1;
            }
        }
    }

    fn add_ingress(&mut self, object: &ObjectRef, status: &Status, snapshot: &Snapshot) {
        let members = match &status.detail {
            Detail::Ingress { members, .. } => members.len(),
            _ => 0,
        };
        let parts = status.detail.parts().iter().filter(|(_, outcome)| outcome.is_err()).count();
        let row = IngressRow {
            tenant: owner(object, snapshot),
            hosts: Vec::new(),
            members,
            entry: None,
            steering: None,
            refused: parts + usize::from(status.refusal().is_some()),
        };
        self.ingresses.insert(object.clone(), row);
    }

    /// The object, or else those of its parts that are refused.
    fn add_refusals(&mut self, object: &ObjectRef, status: &Status, snapshot: &Snapshot) {
        let before = self.refusals.len();
        let tenant = owner(object, snapshot);
        let mut add = |part: Option<&str>, code, message| {
            let (object, tenant, part) = (object.clone(), tenant.clone(), part.map(str::to_owned));
            self.refusals.push(RefusalRow { object, tenant, part, code, message });
        };
        match status.refusal() {
            Some(refusal) => add(None, refusal.reason, refusal.message.clone()),
            None => {
                for (part, outcome) in status.detail.parts() {
                    if let Err(Refused { refusal, field }) = outcome {
                        let message =
                            if field.is_empty() { refusal.to_string() } else { format!("{field}: {refusal}") };
                        add(Some(part), refusal.code(), message);
                    }
                }
            }
        }
        let count = self.refusals.len() - before;
        if let Some(tenant) = tenant.filter(|_| count > 0) {
            self.tenants.entry(tenant).or_default().refused += count;
        }
    }

    pub(super) fn count(&self, health: Health) -> usize {
        self.by_health[health as usize]
    }

    /// Names that are kept although nobody asks for them any more.
    pub(super) fn held(&self) -> usize {
        self.count(Health::Held) + self.tenants.values().map(|tenant| tenant.held).sum::<usize>()
    }
}

/// Whose a namespaced object is.
fn owner(object: &ObjectRef, snapshot: &Snapshot) -> Option<ObjectName> {
    snapshot.ground().tenant_of_namespace(object.namespace.as_ref()?).cloned()
}

pub(super) fn steering_word(steering: &Steering) -> &'static str {
    match steering {
        Steering::Geo => "geo",
        Steering::Latency => "latency",
        Steering::Weighted(_) => "weighted",
        Steering::Failover(_) => "failover",
        Steering::RoundRobin => "roundRobin",
    }
}

#[cfg(test)]
impl ClusterRow {
    pub(super) fn of_name(name: &str) -> Self {
        Self {
            name: name.parse().unwrap(),
            tenant: None,
            region: None,
            coordinates: None,
            health: Health::Ready,
            why: None,
            ready: 0,
            nodes: 0,
        }
    }
}
