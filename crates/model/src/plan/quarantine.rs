//! Names and subtrees that were given up rest until no cache knows them any more: somebody else who got one at once would get
//! the old one's visitors.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::fact::Timestamp;
use crate::identity::ObjectName;
use crate::name::DnsName;
use crate::resource::{Place, Resting};

/// Of one tenant's, in its status: an object of a hub holds 1.5 MiB.
const MOST_TOLD: usize = 1000;
/// Of one tenant's, some megabytes: as many as it may have records by default. Whoever gives up names faster than they may be
/// had again loses the protection of those that end first, which are its own.
const MOST_OF_TENANT: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Quarantine {
    places: HashMap<Place, Resting>,
    ends: BTreeSet<(Timestamp, Place)>,
    of_tenant: BTreeMap<ObjectName, BTreeSet<(Timestamp, Place)>>,
    /// What a restart is to know; `None` where that is over.
    changed: BTreeMap<Place, Option<Resting>>,
    untold: BTreeSet<ObjectName>,
}

impl Quarantine {
    /// What rests already rests for the later of the two times. Whether that is another one than before.
    pub(super) fn add(&mut self, place: Place, resting: Resting) -> bool {
        if let Some(before) = self.places.get(&place) {
            if before.until >= resting.until {
                return false;
            }
            self.forget(&place);
        }
        self.ends.insert((resting.until, place.clone()));
        let of_tenant = self.of_tenant.entry(resting.tenant.clone()).or_default();
        of_tenant.insert((resting.until, place.clone()));
        let surplus = of_tenant.first().filter(|_| of_tenant.len() > MOST_OF_TENANT).map(|(_, place)| place.clone());
        self.untold.insert(resting.tenant.clone());
        self.changed.insert(place.clone(), Some(resting.clone()));
        self.places.insert(place, resting);
        if let Some(surplus) = surplus {
            self.forget(&surplus);
            self.changed.insert(surplus, None);
        }
        true
    }

    pub(super) fn of_name(&self, name: &DnsName, tenant: &ObjectName, now: Timestamp) -> Option<&Resting> {
        self.get(&Place::Name(name.clone()), tenant, now)
    }

    /// The same cluster may come back at once, whosever it is then.
    pub(super) fn of_subtree(
        &self,
        subtree: &DnsName,
        tenant: &ObjectName,
        uid: &str,
        now: Timestamp,
    ) -> Option<&Resting> {
        self.get(&Place::Subtree(subtree.clone()), tenant, now).filter(|resting| resting.keeps_out(tenant, uid))
    }

    /// What keeps a tenant from having it.
    fn get(&self, place: &Place, tenant: &ObjectName, now: Timestamp) -> Option<&Resting> {
        self.places.get(place).filter(|resting| now < resting.until && resting.tenant != *tenant)
    }

    /// Forgets what has rested long enough, and says what that was.
    pub(super) fn lapse(&mut self, now: Timestamp) -> Vec<Place> {
        let mut lapsed = Vec::new();
        while self.ends.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, place)) = self.ends.first().cloned() else { break };
            self.forget(&place);
            self.changed.insert(place.clone(), None);
            lapsed.push(place);
        }
        lapsed
    }

    fn forget(&mut self, place: &Place) {
        let Some(Resting { tenant, until, .. }) = self.places.remove(place) else { return };
        let end = (until, place.clone());
        self.ends.remove(&end);
        if let Some(ends) = self.of_tenant.get_mut(&tenant) {
            ends.remove(&end);
            if ends.is_empty() {
                self.of_tenant.remove(&tenant);
            }
        }
        self.untold.insert(tenant);
    }

    /// What a tenant had, and nobody else can have yet; what rests longest first.
    pub(super) fn rests_of(&self, tenant: &ObjectName) -> Vec<(Place, Resting)> {
        let ends = self.of_tenant.get(tenant).into_iter().flatten().rev();
        ends.filter_map(|(_, place)| Some((place.clone(), self.places.get(place)?.clone()))).take(MOST_TOLD).collect()
    }

    /// The tenants of which more or less rests than when this was last asked.
    pub(super) fn take_untold(&mut self) -> BTreeSet<ObjectName> {
        std::mem::take(&mut self.untold)
    }

    pub(super) fn take_changed(&mut self) -> Vec<(Place, Option<Resting>)> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    pub(super) fn wake(&self) -> Option<Timestamp> {
        self.ends.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenant that makes up names and gives them up costs no more than that.
    #[test]
    fn of_one_tenant_so_many_rest_and_no_more() {
        let mut quarantine = Quarantine::default();
        let (acme, initech): (ObjectName, ObjectName) = ("acme".parse().unwrap(), "initech".parse().unwrap());
        let place = |number: usize| Place::Name(DnsName::parse(&format!("n{number}.test")).unwrap());
        let resting = |tenant: &ObjectName, until: usize| Resting {
            tenant: tenant.clone(),
            cluster: None,
            until: Timestamp(u64::try_from(until).unwrap()),
        };
        quarantine.add(Place::Name(DnsName::parse("other.test").unwrap()), resting(&initech, 1));
        for number in 0..MOST_OF_TENANT + 5 {
            quarantine.add(place(number), resting(&acme, 100 + number));
        }
        assert_eq!(quarantine.places.len(), MOST_OF_TENANT + 1);
        assert_eq!((quarantine.ends.len(), quarantine.rests_of(&initech).len()), (MOST_OF_TENANT + 1, 1));
        assert!(!quarantine.places.contains_key(&place(4)) && quarantine.places.contains_key(&place(5)));
        assert_eq!(quarantine.changed[&place(4)], None, "a restart does not bring it back");
    }
}
