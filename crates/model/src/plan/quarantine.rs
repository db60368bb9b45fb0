//! Names that were given up rest until no cache knows them any more: somebody else who got one at once would get the old
//! one's visitors.

use std::collections::{BTreeSet, HashMap};

use crate::fact::Timestamp;
use crate::identity::ObjectName;
use crate::name::DnsName;

#[derive(Debug, Default)]
pub(super) struct Quarantine {
    names: HashMap<DnsName, Resting>,
    ends: BTreeSet<(Timestamp, DnsName)>,
}

/// Nobody but the tenant that had the name can have it before then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resting {
    pub(super) tenant: ObjectName,
    pub(super) until: Timestamp,
}

impl Quarantine {
    /// What rests already rests for the later of the two times.
    pub(super) fn add(&mut self, name: &DnsName, tenant: &ObjectName, until: Timestamp) {
        if let Some(before) = self.names.get(name) {
            if before.until >= until {
                return;
            }
            self.ends.remove(&(before.until, name.clone()));
        }
        self.names.insert(name.clone(), Resting { tenant: tenant.clone(), until });
        self.ends.insert((until, name.clone()));
    }

    pub(super) fn get(&self, name: &DnsName, now: Timestamp) -> Option<&Resting> {
        self.names.get(name).filter(|resting| now < resting.until)
    }

    /// Forgets what has rested long enough, and says what that was.
    pub(super) fn lapse(&mut self, now: Timestamp) -> Vec<DnsName> {
        let mut lapsed = Vec::new();
        while self.ends.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, name)) = self.ends.pop_first() else { break };
            self.names.remove(&name);
            lapsed.push(name);
        }
        lapsed
    }

    pub(super) fn wake(&self) -> Option<Timestamp> {
        self.ends.first().map(|(until, _)| *until)
    }
}
