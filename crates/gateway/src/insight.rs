//! What the doors know, for those who look on from outside: `/metrics` and `explain`.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use model::snapshot::Route;
use model::{Cidr, ObjectName, Snapshot};

use crate::balance::{Census, Upstreams};
use crate::inward::Inward;
use crate::limits::Admissions;
use crate::limits::openings::Openings;
use crate::listen::DoorKind;
use crate::proof::Replays;

/// Shares with the doors what they decide by. Looking changes nothing of it.
pub struct Insight {
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(crate) admissions: Arc<Admissions>,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) replays: Replays,
    pub(crate) trusted_proxies: Arc<[Cidr]>,
    pub(crate) agents: Option<Arc<Route>>,
    /// Whether the door by server name hands hosts with a certificate to who terminates their TLS.
    pub(crate) terminates: bool,
    pub(crate) inward: Option<Inward>,
    /// The doors that are served, each with those that have not said yet where they want to go.
    pub(crate) doors: Vec<(DoorKind, Arc<Openings>)>,
}

impl Insight {
    /// Where names of the agents' door lead, in a process that has it.
    pub fn agents(&self) -> Option<&Arc<Route>> {
        self.agents.as_ref()
    }

    /// How many connections of a door have not said yet where they want to go; `None` where there is no such door.
    pub(crate) fn undecided(&self, kind: DoorKind) -> Option<u64> {
        let counts = self.doors.iter().filter(|door| door.0 == kind).map(|(_, openings)| u64::from(openings.count()));
        counts.reduce(|sum, count| sum + count)
    }

    /// Connections of a tenant that are open now.
    pub fn open_of_tenant(&self, name: &ObjectName) -> u32 {
        self.admissions.open_of_tenant(name)
    }

    pub(crate) fn census(&self) -> Census {
        self.upstreams.census()
    }

    pub(crate) fn remembered_proofs(&self) -> usize {
        self.replays.held()
    }
}

impl fmt::Debug for Insight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Insight").finish_non_exhaustive()
    }
}
