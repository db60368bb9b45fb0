//! Who owns what: all that the policy asks of the fleet. Shared by the plan and, as part of every snapshot, by the doors.

use std::net::IpAddr;
use std::sync::Arc;

use rpds::{HashTrieMapSync, RedBlackTreeMapSync};

use super::Applicant;
use crate::fact::{Since, Timestamp};
use crate::identity::{ClusterName, ObjectName};
use crate::name::DnsName;
use crate::network::Cidr;
use crate::resource::Tenant;
use crate::zone_file::ZoneFile;

/// Successive versions share what did not change.
#[derive(Debug, Clone, Default)]
pub struct Ground {
    tenants: HashTrieMapSync<ObjectName, Arc<Tenant>>,
    /// Whose a namespace is: all who say so, the most senior first.
    namespaces: HashTrieMapSync<ObjectName, Arc<[(Since, ObjectName)]>>,
    /// Where rights begin. The deepest that a name lies in counts.
    suffixes: RedBlackTreeMapSync<DnsName, Suffix>,
    /// The names of control planes, and which tenant's cluster each is of.
    control: HashTrieMapSync<DnsName, ObjectName>,
    zones: HashTrieMapSync<DnsName, Arc<ZoneGround>>,
    /// Names that zones keep to themselves, and which zone.
    reserved: HashTrieMapSync<DnsName, ObjectName>,
    /// The addresses of nodes, and of whose: a tenant as often as its clusters have the address.
    nodes: HashTrieMapSync<IpAddr, Arc<[ObjectName]>>,
    /// The ranges of the pools, by their first address; none lies in another.
    pools: RedBlackTreeMapSync<IpAddr, Cidr>,
    /// The addresses that were given, and to the claims of which namespace.
    addresses: HashTrieMapSync<IpAddr, ObjectName>,
}

/// Who has the right to claim at and under a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Suffix {
    /// The cluster whose subtree it is, and its tenant.
    cluster: Option<(ClusterName, ObjectName)>,
    /// Those whose domain it is; of several, the first at each name has it.
    tenants: Vec<ObjectName>,
}

/// What claims have to know of a zone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ZoneGround {
    pub(crate) apex: DnsName,
    pub(crate) ttl: u32,
    /// How long it is remembered that a name is not there.
    pub(crate) negative_ttl: u32,
    pub(crate) authoritative: bool,
    pub(crate) hand_out: bool,
    pub(crate) max_share: f64,
    pub(crate) released: Option<Timestamp>,
    pub(crate) name: ObjectName,
    pub(crate) file: Option<Arc<ZoneFile>>,
}

/// What an accepted cluster holds for its tenant and for its control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub cluster: ClusterName,
    pub tenant: ObjectName,
    /// Tells a cluster from a later one of the same name.
    pub uid: Arc<str>,
    /// The name that the `apps` wildcard stands under.
    pub subtree: DnsName,
    /// The names of its control plane; the `apps` wildcard is one of them.
    pub control: Vec<DnsName>,
    /// Of all its nodes, ready or not; sorted, each once.
    pub nodes: Vec<IpAddr>,
}

/// Whose a name is to claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owners<'a> {
    /// Where the right begins; `None` if the name is nobody's.
    pub suffix: Option<DnsName>,
    /// The cluster whose subtree that is.
    pub cluster: Option<&'a ClusterName>,
    /// Of several, the first at the name has it.
    pub tenants: &'a [ObjectName],
    /// The tenant whose control plane has this very name.
    pub control: Option<&'a ObjectName>,
    /// The Zone that keeps this very name to itself.
    pub reserved_by: Option<&'a ObjectName>,
}

impl Suffix {
    fn is_nobodys(&self) -> bool {
        self.cluster.is_none() && self.tenants.is_empty()
    }

    fn is_tenants(&self, tenant: &ObjectName) -> bool {
        match &self.cluster {
            Some((_, owner)) => owner == tenant,
            None => self.tenants.contains(tenant),
        }
    }

    fn is_only_tenants(&self, tenant: &ObjectName) -> bool {
        let of_cluster = self.cluster.iter().map(|(_, owner)| owner);
        of_cluster.chain(&self.tenants).all(|owner| owner == tenant)
    }
}

/// Whether somebody may claim a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Right<'a> {
    No,
    /// It is the tenant's, but another cluster's than the one that asks.
    OtherCluster(&'a ClusterName),
    /// Below this suffix; whether that is a cluster's subtree.
    Yes {
        suffix: DnsName,
        of_cluster: bool,
    },
}

impl Ground {
    /// The tenant whose namespace it is.
    pub fn tenant_of_namespace(&self, namespace: &ObjectName) -> Option<&ObjectName> {
        self.namespaces.get(namespace)?.first().map(|(_, tenant)| tenant)
    }

    /// All that say so.
    pub(crate) fn owners_of_namespace(&self, namespace: &ObjectName) -> impl Iterator<Item = &ObjectName> {
        self.namespaces.get(namespace).into_iter().flat_map(|owners| owners.iter().map(|(_, tenant)| tenant))
    }

    pub fn tenant(&self, name: &ObjectName) -> Option<&Arc<Tenant>> {
        self.tenants.get(name)
    }

    /// At and under which names somebody may claim.
    pub fn suffixes(&self, applicant: &Applicant) -> Vec<DnsName> {
        let mut found = Vec::new();
        for (name, suffix) in &self.suffixes {
            let may = match &suffix.cluster {
                Some((cluster, tenant)) => {
                    *tenant == applicant.tenant && applicant.cluster.as_ref().is_none_or(|asking| asking == cluster)
                }
                None => suffix.tenants.contains(&applicant.tenant),
            };
            if may {
                found.push(name.clone());
            }
        }
        found
    }

    /// Who may have something at a name, whoever has it now. For operators: it names tenants to each other.
    pub fn owners(&self, name: &DnsName) -> Owners<'_> {
        let found = self.suffix_of(name);
        let (cluster, tenants) = match found.as_ref().map(|(_, suffix)| *suffix) {
            Some(Suffix { cluster: Some((cluster, tenant)), .. }) => (Some(cluster), std::slice::from_ref(tenant)),
            Some(Suffix { tenants, .. }) => (None, &**tenants),
            None => (None, &[][..]),
        };
        let (control, reserved_by) = (self.control(name), self.reserved_by(name));
        Owners { suffix: found.map(|(place, _)| place), cluster, tenants, control, reserved_by }
    }

    pub(crate) fn has_zone(&self, apex: &DnsName) -> bool {
        self.zones.contains_key(apex)
    }

    /// The zone that answers for a name: the deepest one that it lies in.
    pub(crate) fn zone_of(&self, name: &DnsName) -> Option<&Arc<ZoneGround>> {
        upwards(name).find_map(|place| self.zones.get(&place))
    }

    pub(super) fn right(&self, applicant: &Applicant, name: &DnsName) -> Right<'_> {
        let Some((place, suffix)) = self.suffix_of(name) else { return Right::No };
        match &suffix.cluster {
            Some((_, tenant)) if *tenant != applicant.tenant => Right::No,
            Some((cluster, _)) if applicant.cluster.as_ref().is_some_and(|asking| asking != cluster) => {
                Right::OtherCluster(cluster)
            }
            Some(_) => Right::Yes { suffix: place, of_cluster: true },
            None if suffix.tenants.contains(&applicant.tenant) => Right::Yes { suffix: place, of_cluster: false },
            None => Right::No,
        }
    }

    /// Whether it is the tenant's; `None` if it is nobody's.
    pub(crate) fn is_tenants(&self, tenant: &ObjectName, name: &DnsName) -> Option<bool> {
        self.suffix_of(name).map(|(_, suffix)| suffix.is_tenants(tenant))
    }

    /// Whether anybody but the tenant may claim a name.
    pub(crate) fn is_contested(&self, name: &DnsName, tenant: &ObjectName) -> bool {
        self.suffix_of(name).is_none_or(|(_, suffix)| !suffix.is_only_tenants(tenant))
    }

    fn suffix_of(&self, name: &DnsName) -> Option<(DnsName, &Suffix)> {
        upwards(name).find_map(|place| {
            let suffix = self.suffixes.get(&place)?;
            Some((place, suffix))
        })
    }

    /// Whether somebody else may claim below a name.
    pub(crate) fn others_below(&self, tenant: &ObjectName, name: &DnsName) -> bool {
        if self.suffix_of(name).is_some_and(|(_, suffix)| !suffix.is_only_tenants(tenant)) {
            return true;
        }
        let below = self.suffixes.range(name.clone()..).take_while(|(place, _)| place.is_at_or_under(name));
        below.filter(|(place, _)| *place != name).any(|(_, suffix)| !suffix.is_only_tenants(tenant))
    }

    /// The tenant of the control plane that a name is of.
    pub(super) fn control(&self, name: &DnsName) -> Option<&ObjectName> {
        self.control.get(name)
    }

    pub(super) fn reserved_by(&self, name: &DnsName) -> Option<&ObjectName> {
        self.reserved.get(name)
    }

    /// The zone with this very apex.
    pub(crate) fn zone_at(&self, apex: &DnsName) -> Option<&Arc<ZoneGround>> {
        self.zones.get(apex)
    }

    /// The tenant to one of whose claims the address was given.
    pub(super) fn address_owner(&self, address: IpAddr) -> Option<&ObjectName> {
        self.tenant_of_namespace(self.addresses.get(&address)?)
    }

    /// Whether the address is given by a claim or not at all.
    pub(super) fn is_in_pool(&self, address: IpAddr) -> bool {
        let range = self.pools.range(..=address).next_back();
        range.is_some_and(|(_, range)| range.contains(address)) || self.addresses.contains_key(&address)
    }

    /// Who has nodes with this address.
    pub(super) fn node_owners(&self, address: IpAddr) -> &[ObjectName] {
        self.nodes.get(&address).map_or(&[], |owners| owners)
    }

    pub(crate) fn set_pools(&mut self, ranges: impl IntoIterator<Item = Cidr>) {
        self.pools = ranges.into_iter().map(|range| (range.network(), range)).collect();
    }

    /// Returns whether that is new.
    pub(crate) fn set_address(&mut self, address: IpAddr, namespace: Option<ObjectName>) -> bool {
        if self.addresses.get(&address) == namespace.as_ref() {
            return false;
        }
        match namespace {
            Some(namespace) => self.addresses.insert_mut(address, namespace),
            None => _ = self.addresses.remove_mut(&address),
        }
        true
    }

    /// Whether that made a difference.
    pub(crate) fn set_zones(
        &mut self,
        zones: impl IntoIterator<Item = ZoneGround>,
        reserved: impl IntoIterator<Item = (DnsName, ObjectName)>,
    ) -> bool {
        let zones = zones.into_iter().map(|zone| (zone.apex.clone(), Arc::new(zone))).collect();
        let reserved = reserved.into_iter().collect();
        let changed = self.zones != zones || self.reserved != reserved;
        (self.zones, self.reserved) = (zones, reserved);
        changed
    }

    /// Puts a tenant in the place of what it was; whether that made a difference.
    pub(crate) fn set_tenant(&mut self, name: &ObjectName, tenant: Option<(&Since, &Tenant)>) -> bool {
        let old = self.tenants.get(name).cloned();
        let since = |old: &Arc<Tenant>| {
            let owners = self.namespaces.get(&old.namespace)?.iter();
            owners.filter(|(_, tenant)| tenant == name).map(|(since, _)| since.clone()).next()
        };
        let before = old.as_ref().and_then(|old| Some((since(old)?, old)));
        if before.as_ref().map(|(since, old)| (since, old.as_ref())) == tenant {
            return false;
        }
        if let Some(old) = old {
            for domain in &old.domains {
                self.change_suffix(domain, |suffix| suffix.tenants.retain(|tenant| tenant != name));
            }
            self.change_namespace(&old.namespace, |owners| owners.retain(|(_, tenant)| tenant != name));
            self.tenants.remove_mut(name);
        }
        let Some((since, tenant)) = tenant else { return true };
        for domain in &tenant.domains {
            self.change_suffix(domain, |suffix| {
                if let Err(place) = suffix.tenants.binary_search(name) {
                    suffix.tenants.insert(place, name.clone());
                }
            });
        }
        self.change_namespace(&tenant.namespace, |owners| {
            owners.push((since.clone(), name.clone()));
            owners.sort();
        });
        self.tenants.insert_mut(name.clone(), Arc::new(tenant.clone()));
        true
    }

    pub(crate) fn add(&mut self, holding: &Holding) {
        let Holding { cluster, tenant, subtree, control, nodes, .. } = holding;
        self.change_suffix(subtree, |suffix| suffix.cluster = Some((cluster.clone(), tenant.clone())));
        for name in control {
            self.control.insert_mut(name.clone(), tenant.clone());
        }
        for node in nodes {
            let mut owners = self.node_owners(*node).to_vec();
            owners.push(tenant.clone());
            self.nodes.insert_mut(*node, owners.into());
        }
    }

    pub(crate) fn remove(&mut self, holding: &Holding) {
        self.change_suffix(&holding.subtree, |suffix| suffix.cluster = None);
        for name in &holding.control {
            self.control.remove_mut(name);
        }
        for node in &holding.nodes {
            let mut owners = self.node_owners(*node).to_vec();
            if let Some(place) = owners.iter().position(|owner| *owner == holding.tenant) {
                owners.remove(place);
            }
            if owners.is_empty() {
                self.nodes.remove_mut(node);
            } else {
                self.nodes.insert_mut(*node, owners.into());
            }
        }
    }

    fn change_suffix(&mut self, name: &DnsName, change: impl FnOnce(&mut Suffix)) {
        let mut suffix = self.suffixes.get(name).cloned().unwrap_or_default();
        change(&mut suffix);
        if suffix.is_nobodys() {
            self.suffixes.remove_mut(name);
        } else {
            self.suffixes.insert_mut(name.clone(), suffix);
        }
    }

    fn change_namespace(&mut self, namespace: &ObjectName, change: impl FnOnce(&mut Vec<(Since, ObjectName)>)) {
        let mut owners = self.namespaces.get(namespace).map_or_else(Vec::new, |owners| owners.to_vec());
        change(&mut owners);
        if owners.is_empty() {
            self.namespaces.remove_mut(namespace);
        } else {
            self.namespaces.insert_mut(namespace.clone(), owners.into());
        }
    }
}

/// A name, and then those above it.
pub(super) fn upwards(name: &DnsName) -> impl Iterator<Item = DnsName> + use<> {
    std::iter::successors(Some(name.clone()), DnsName::parent)
}
