//! Names and subtrees that were given up rest until no cache knows them any more: somebody else who got one at once would get
//! the old one's visitors.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::fact::Timestamp;
use crate::identity::ObjectName;
use crate::name::DnsName;
use crate::resource::{Place, Resting};

#[derive(Debug, Default)]
pub(super) struct Quarantine {
    places: HashMap<Place, Resting>,
    ends: BTreeSet<(Timestamp, Place)>,
    /// What a restart is to know; `None` where that is over.
    changed: BTreeMap<Place, Option<Resting>>,
}

impl Quarantine {
    /// What rests already rests for the later of the two times. Whether that is another one than before.
    pub(super) fn add(&mut self, place: Place, resting: Resting) -> bool {
        if let Some(before) = self.places.get(&place) {
            if before.until >= resting.until {
                return false;
            }
            self.ends.remove(&(before.until, place.clone()));
        }
        self.ends.insert((resting.until, place.clone()));
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
            let Some((_, place)) = self.ends.pop_first() else { break };
            self.places.remove(&place);
            self.changed.insert(place.clone(), None);
            lapsed.push(place);
        }
        lapsed
    }

    pub(super) fn take_changed(&mut self) -> Vec<(Place, Option<Resting>)> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    pub(super) fn wake(&self) -> Option<Timestamp> {
        self.ends.first().map(|(until, _)| *until)
    }
}
