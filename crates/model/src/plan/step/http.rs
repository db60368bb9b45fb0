//! What becomes of the hosts that HTTP requests are for, and of `apps` wildcards that lead through the tunnel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rpds::HashTrieMapSync;

use super::Step;
use crate::identity::ObjectRef;
use crate::name::DnsName;
use crate::routes::Host;
use crate::snapshot::{Apps, ClusterPart, Snapshot};

/// `None`: nobody serves it any more.
#[derive(Debug, Default)]
pub(super) struct HttpStep {
    hosts: BTreeMap<DnsName, Option<Arc<Host>>>,
    elsewhere: BTreeMap<DnsName, Option<Arc<Host>>>,
    foreign: BTreeMap<ObjectRef, bool>,
    /// What stands under these wildcards is served otherwise than before.
    apps: BTreeSet<DnsName>,
}

impl Step {
    /// Takes out what a cluster's wildcard led to and does not any more.
    pub(super) fn leave_apps(&mut self, old: &ClusterPart, new: Option<&ClusterPart>, next: &mut Snapshot) {
        let Some(Apps { subtree, tls, http }) = &old.apps else { return };
        let kept = new.and_then(|new| new.apps.as_ref()).filter(|kept| kept.subtree == *subtree);
        if tls.is_some() && kept.map(|kept| &kept.tls) != Some(tls) {
            next.apps_routes.remove_mut(subtree);
        }
        if http.is_some() && kept.map(|kept| &kept.http) != Some(http) {
            next.http.apps.remove_mut(subtree);
            self.http.apps.insert(subtree.clone());
        }
    }

    /// Puts in what it leads to now.
    pub(super) fn enter_apps(&mut self, old: Option<&ClusterPart>, new: &ClusterPart, next: &mut Snapshot) {
        let Some(Apps { subtree, tls, http }) = &new.apps else { return };
        let kept = old.and_then(|old| old.apps.as_ref()).filter(|kept| kept.subtree == *subtree);
        if let Some(tls) = tls
            && kept.and_then(|kept| kept.tls.as_ref()) != Some(tls)
        {
            next.apps_routes.insert_mut(subtree.clone(), Arc::clone(tls));
        }
        if let Some(http) = http
            && kept.and_then(|kept| kept.http.as_ref()) != Some(http)
        {
            next.http.apps.insert_mut(subtree.clone(), Arc::clone(http));
            self.http.apps.insert(subtree.clone());
        }
    }

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
        let HttpStep { hosts, elsewhere, foreign, apps } = std::mem::take(&mut self.http);
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
        let mut changed = apps;
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
