//! What becomes of the hosts that HTTP requests are for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rpds::HashTrieMapSync;

use super::Step;
use crate::identity::ObjectRef;
use crate::name::DnsName;
use crate::routes::Host;
use crate::snapshot::Snapshot;

/// `None`: nobody serves it any more.
#[derive(Debug, Default)]
pub(super) struct HttpStep {
    hosts: BTreeMap<DnsName, Option<Arc<Host>>>,
    elsewhere: BTreeMap<DnsName, Option<Arc<Host>>>,
    foreign: BTreeMap<ObjectRef, bool>,
}

impl Step {
    pub(in crate::plan) fn place_host(&mut self, name: &DnsName, host: Option<Host>) {
        self.http.hosts.insert(name.clone(), host.map(Arc::new));
    }

    /// For the hosts at and under a name that nobody has.
    pub(in crate::plan) fn place_elsewhere(&mut self, suffix: &DnsName, host: Option<Arc<Host>>) {
        self.http.elsewhere.insert(suffix.clone(), host);
    }

    /// Notes whether an Ingress is others' to serve.
    pub(in crate::plan) fn set_foreign(&mut self, object: &ObjectRef, is_foreign: bool) {
        self.http.foreign.insert(object.clone(), is_foreign);
    }

    /// Returns the hosts that are served otherwise than before, and whether other Ingresses are foreign.
    pub(super) fn apply_http(&mut self, next: &mut Snapshot) -> (Vec<DnsName>, bool) {
        let HttpStep { hosts, elsewhere, foreign } = std::mem::take(&mut self.http);
        let mut other_foreign = false;
        for (object, is_foreign) in foreign {
            if next.foreign.contains(&object) == is_foreign {
                continue;
            }
            other_foreign = true;
            if is_foreign {
                next.foreign.insert_mut(object);
            } else {
                next.foreign.remove_mut(&object);
            }
        }
        let mut changed = BTreeSet::new();
        apply(&mut next.http.hosts, hosts, &mut changed);
        apply(&mut next.http.elsewhere, elsewhere, &mut changed);
        (changed.into_iter().collect(), other_foreign)
    }
}

/// What stays is not touched, so that holders of it keep theirs.
fn apply<T: PartialEq>(
    table: &mut HashTrieMapSync<DnsName, Arc<T>>,
    news: BTreeMap<DnsName, Option<Arc<T>>>,
    changed: &mut BTreeSet<DnsName>,
) {
    for (name, value) in news {
        if table.get(&name) == value.as_ref() {
            continue;
        }
        match value {
            Some(value) => table.insert_mut(name.clone(), value),
            None => _ = table.remove_mut(&name),
        }
        changed.insert(name);
    }
}
