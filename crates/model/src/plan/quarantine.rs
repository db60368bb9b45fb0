//! Names and subtrees that were given up rest until no cache knows them any more: somebody else who got one at once would get
//! the old one's visitors.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::fact::Timestamp;
use crate::identity::ObjectName;
use crate::name::DnsName;
use crate::resource::{Place, Resting};

/// Of one tenant's, in its status: an object of a hub holds 1.5 MiB.
const MOST_TOLD: usize = 1000;

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
        self.of_tenant.entry(resting.tenant.clone()).or_default().insert((resting.until, place.clone()));
        self.untold.insert(resting.tenant.clone());
        self.changed.insert(place.clone(), Some(resting.clone()));
        self.places.insert(place, resting);
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
