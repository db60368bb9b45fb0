//! The hosts of Ingresses, which stand in one line with the records that tenants claim: a name has one owner. All Ingresses of
//! the tenant that has a host share it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Rank, Records, Standing, Touched};
use crate::fact::{Since, Timestamp};
use crate::identity::{ObjectName, ObjectRef};
use crate::name::DnsName;
use crate::policy::{Ground, Placed};
use crate::record::{RecordData, RecordSet};
use crate::refusal::Refusal;
use crate::snapshot::SteeredName;

#[derive(Debug, Default)]
pub(in crate::plan) struct Hosts {
    /// Everybody who wants a host, senior first.
    lines: BTreeMap<DnsName, Vec<HostClaim>>,
    /// The hosts of each Ingress; where each stands there is its number in line.
    of_object: BTreeMap<ObjectRef, Vec<DnsName>>,
    /// Those of which somebody has been told something else.
    changed: BTreeSet<DnsName>,
}

/// A host that is good by itself.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::plan) struct HostClaim {
    rank: Rank,
    pub(in crate::plan) tenant: ObjectName,
    pub(in crate::plan) ask: HostAsk,
    within_quota: bool,
    pub(in crate::plan) verdict: Result<(), Refusal>,
}

impl HostClaim {
    /// The Ingress.
    pub(in crate::plan) fn object(&self) -> &ObjectRef {
        &self.rank.object
    }

    fn count(&self) -> usize {
        self.ask.sets.iter().map(|set| set.data.count()).sum()
    }
}

/// What is to stand at the name of a host.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::plan) struct HostAsk {
    pub(in crate::plan) host: DnsName,
    /// Nowhere, where no zone answers for the name.
    pub(in crate::plan) placed: Option<Placed>,
    /// What it leads to; nothing where that is not known.
    pub(in crate::plan) sets: Vec<RecordSet>,
    /// How DNS chooses among those, where it does.
    pub(in crate::plan) steered: Option<Arc<SteeredName>>,
}

impl Hosts {
    /// Everybody who wants a host and is good by itself, senior first.
    pub(in crate::plan) fn line(&self, host: &DnsName) -> &[HostClaim] {
        self.lines.get(host).map_or(&[], Vec::as_slice)
    }

    /// The hosts of which somebody has been told something else since this was last asked.
    pub(in crate::plan) fn take_changed(&mut self) -> BTreeSet<DnsName> {
        std::mem::take(&mut self.changed)
    }

    /// Whether a tenant still wants a host.
    pub(super) fn are_wanted(&self, host: &DnsName, tenant: &ObjectName) -> bool {
        self.line(host).iter().any(|claim| claim.tenant == *tenant)
    }

    /// Of a rank that is a host's.
    pub(super) fn set_quota(&mut self, rank: &Rank, within_quota: bool, names: &mut BTreeSet<DnsName>) {
        let Some(host) = self.of_object.get(&rank.object).and_then(|hosts| hosts.get(rank.number)) else { return };
        let line = self.lines.get_mut(host).into_iter().flatten();
        for claim in line.filter(|claim| claim.rank == *rank && claim.within_quota != within_quota) {
            claim.within_quota = within_quota;
            names.insert(host.clone());
        }
    }
}

impl Records {
    /// Puts the hosts that an Ingress asks for in the place of those before.
    pub(in crate::plan) fn claim_hosts(
        &mut self,
        object: &ObjectRef,
        since: &Since,
        tenant: &ObjectName,
        asks: Vec<HostAsk>,
        touched: &mut Touched,
    ) {
        let rank = |number| Rank { since: since.clone(), object: object.clone(), number };
        let claims: Vec<HostClaim> = asks
            .into_iter()
            .enumerate()
            .map(|(number, ask)| HostClaim {
                rank: rank(number),
                tenant: tenant.clone(),
                ask,
                within_quota: true,
                verdict: Ok(()),
            })
            .collect();
        let hosts = self.hosts.of_object.get(object).map_or(&[][..], Vec::as_slice);
        let before = hosts.iter().filter_map(|host| {
            let mine = self.hosts.line(host).iter().find(|claim| claim.rank.object == *object)?;
            Some((&mine.rank, &mine.tenant, &mine.ask))
        });
        if before.eq(claims.iter().map(|claim| (&claim.rank, &claim.tenant, &claim.ask))) {
            return;
        }
        self.drop_hosts(object, touched);
        if claims.is_empty() {
            return;
        }
        self.hosts.of_object.insert(object.clone(), claims.iter().map(|claim| claim.ask.host.clone()).collect());
        touched.tenants.insert(tenant.clone());
        for claim in claims {
            self.usage.entry(tenant.clone()).or_default().add(claim.rank.clone(), claim.count());
            touched.names.insert(claim.ask.host.clone());
            self.hosts.changed.insert(claim.ask.host.clone());
            let line = self.hosts.lines.entry(claim.ask.host.clone()).or_default();
            line.insert(line.partition_point(|other| other.rank < claim.rank), claim);
        }
    }

    pub(in crate::plan) fn drop_hosts(&mut self, object: &ObjectRef, touched: &mut Touched) {
        for host in self.hosts.of_object.remove(object).unwrap_or_default() {
            let Some(line) = self.hosts.lines.get_mut(&host) else { continue };
            for claim in line.extract_if(.., |claim| claim.rank.object == *object) {
                if let Some(usage) = self.usage.get_mut(&claim.tenant) {
                    usage.forget(&claim.rank);
                }
                touched.tenants.insert(claim.tenant);
            }
            if line.is_empty() {
                self.hosts.lines.remove(&host);
            }
            self.hosts.changed.insert(host.clone());
            touched.names.insert(host);
        }
    }

    /// Settles those who are in line for a host before a rank, from the `next` on; all that are left without a rank.
    pub(super) fn settle_hosts(
        &mut self,
        host: &DnsName,
        before: Option<&Rank>,
        next: &mut usize,
        standing: &mut Standing,
        (ground, now): (&Ground, Timestamp),
    ) {
        while let Some(claim) = self.hosts.line(host).get(*next) {
            if before.is_some_and(|rank| claim.rank >= *rank) {
                return;
            }
            let verdict = self.admit_host(host, claim, standing, ground, now);
            if verdict.is_ok() && standing.host.is_none() {
                let object = &claim.rank.object;
                standing.sets.extend(claim.ask.sets.iter().map(|set| (object.clone(), set.clone())));
                standing.host = Some(object.clone());
                standing.steered.clone_from(&claim.ask.steered);
                standing.holder.get_or_insert((claim.tenant.clone(), claim.ask.placed.clone()));
            }
            if claim.verdict != verdict {
                self.hosts.changed.insert(host.clone());
                if let Some(claim) = self.hosts.lines.get_mut(host).and_then(|line| line.get_mut(*next)) {
                    claim.verdict = verdict;
                }
            }
            *next += 1;
        }
    }

    /// Whether an Ingress can have a host beside those before it.
    fn admit_host(
        &self,
        host: &DnsName,
        claim: &HostClaim,
        standing: &Standing,
        ground: &Ground,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let (name, tenant) = (host.clone(), &claim.tenant);
        if !claim.within_quota {
            let most = ground.tenant(tenant).and_then(|tenant| tenant.quota.records).unwrap_or_default();
            return Err(Refusal::QuotaExceeded { what: "records", most });
        }
        if let Some(resting) = self.quarantine.of_name(host, tenant, now) {
            return Err(Refusal::Quarantined { name, until: resting.until });
        }
        if standing.holder.as_ref().is_some_and(|(holder, _)| holder != tenant) {
            return Err(Refusal::NameHeld { name, holder: None });
        }
        if standing.host.is_some() {
            return Ok(());
        }
        if let Some((holder, _)) = standing.sets.iter().find(|(_, set)| leads_somewhere(&set.data)) {
            return Err(Refusal::NameHeld { name, holder: Some(holder.clone()) });
        }
        let is_alias = claim.ask.sets.iter().any(|set| matches!(set.data, RecordData::Cname(_)));
        if is_alias && !standing.sets.is_empty() {
            return Err(Refusal::CnameAndOthers { name });
        }
        Ok(())
    }
}

/// Whether the record says where a host is reached: that is the host's own to say, if it has the name.
pub(super) fn leads_somewhere(data: &RecordData) -> bool {
    matches!(data, RecordData::A(_) | RecordData::Aaaa(_) | RecordData::Cname(_))
}
