//! What is served: every zone and every name in it, immutable and shared between its successive versions.

use std::sync::Arc;

use model::snapshot::{NameChange, RecordSet, Soa, ZoneChange};
use model::{Changes, DnsName};

use crate::trie::Node;

/// All zones. [`Index::apply`] makes the next one; the cost follows the changes, not the fleet.
#[derive(Debug, Clone, Default)]
pub struct Index {
    /// By apex, from the root of the name space.
    zones: Node<Arc<Zone>>,
}

impl Index {
    /// Takes the steps in their order: zones, then names. A step for a name of a zone that is not there is void, since
    /// withdrawing a zone took its names along.
    pub fn apply(&self, changes: &Changes) -> Self {
        let mut next = self.clone();
        for change in &changes.zones {
            match change {
                ZoneChange::Withdraw { apex } => next.zones.set(&path(apex), None),
                ZoneChange::Serve { apex, soa, .. } => next.serve(apex, soa),
            }
        }
        for change in &changes.names {
            next.set_name(change);
        }
        next
    }

    /// The zone that answers for a name: the one with the deepest apex.
    pub(crate) fn zone_of(&self, name: &DnsName) -> Option<&Arc<Zone>> {
        let mut node = &self.zones;
        let mut deepest = node.value();
        for label in path(name) {
            let Some(child) = node.child(label) else { break };
            node = child;
            deepest = node.value().or(deepest);
        }
        deepest
    }

    fn serve(&mut self, apex: &DnsName, soa: &Soa) {
        let path = path(apex);
        if let Some(zone) = self.zones.value_mut(&path) {
            Arc::make_mut(zone).soa = soa.clone();
            return;
        }
        let zone = Zone { apex: apex.clone(), depth: path.len(), soa: soa.clone(), names: Node::default() };
        self.zones.set(&path, Some(Arc::new(zone)));
    }

    fn set_name(&mut self, change: &NameChange) {
        if !change.name.is_at_or_under(&change.apex) {
            return;
        }
        if let Some(zone) = self.zones.value_mut(&path(&change.apex)) {
            let zone = Arc::make_mut(zone);
            let records = (!change.records.is_empty()).then(|| Arc::clone(&change.records));
            zone.names.set(&path(&change.name)[zone.depth..], records);
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Zone {
    pub(crate) apex: DnsName,
    pub(crate) soa: Soa,
    /// How many labels the apex has.
    depth: usize,
    /// From the apex downwards; the root is the apex itself. Never holds an empty slice.
    names: Node<Arc<[RecordSet]>>,
}

/// A name's place in its zone.
pub(crate) type Place = Node<Arc<[RecordSet]>>;

impl Zone {
    pub(crate) fn apex_place(&self) -> &Place {
        &self.names
    }

    /// The labels from below the apex down to `name`, which must lie in this zone.
    pub(crate) fn labels_below<'a>(&self, name: &'a DnsName) -> Vec<&'a [u8]> {
        path(name).split_off(self.depth)
    }

    /// The place of exactly this name, whatever zone cuts are above it.
    pub(crate) fn place(&self, name: &DnsName) -> Option<&Place> {
        if !name.is_at_or_under(&self.apex) {
            return None;
        }
        self.labels_below(name).into_iter().try_fold(&self.names, Node::child)
    }
}

impl Place {
    /// None at an empty non-terminal.
    pub(crate) fn records(&self) -> &[RecordSet] {
        self.value().map_or(&[], AsRef::as_ref)
    }
}

/// The labels of a name, the one below the root first.
fn path(name: &DnsName) -> Vec<&[u8]> {
    let mut labels: Vec<&[u8]> = name.labels().collect();
    labels.reverse();
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{changes, name};

    const FLEET: &str = "
        example             30 SOA 1
        c1.example          30 A 192.0.2.1
        fleet.example       30 SOA 1
        a.b.fleet.example   30 A 192.0.2.2
    ";

    #[test]
    fn the_deepest_zone_answers_for_a_name() {
        let index = Index::default().apply(&changes(FLEET));
        for (asked, apex) in [
            ("example", Some("example")),
            ("fleet.example", Some("fleet.example")),
            ("x.y.fleet.example", Some("fleet.example")),
            ("evilfleet.example", Some("example")),
            ("test", None),
            (".", None),
        ] {
            assert_eq!(index.zone_of(&name(asked)).map(|zone| zone.apex.clone()), apex.map(name), "{asked}");
        }
    }

    #[test]
    fn a_change_leaves_other_zones_and_the_index_before_as_they_were() {
        let before = Index::default().apply(&changes(FLEET));
        let after = before.apply(&Changes {
            zones: Vec::new(),
            names: changes("fleet.example 30 SOA 1\nc2.fleet.example 30 A 192.0.2.3").names,
            statuses: Vec::new(),
        });
        let zone = |index: &Index, apex| Arc::clone(index.zone_of(&name(apex)).unwrap());
        assert!(Arc::ptr_eq(&zone(&before, "example"), &zone(&after, "example")));
        assert!(zone(&before, "fleet.example").place(&name("c2.fleet.example")).is_none());
        assert!(zone(&after, "fleet.example").place(&name("c2.fleet.example")).is_some());
    }

    #[test]
    fn steps_for_a_withdrawn_zone_are_void() {
        let apex = name("fleet.example");
        let mut steps = changes("fleet.example 30 SOA 1\nc2.fleet.example 30 A 192.0.2.3");
        steps.zones = vec![ZoneChange::Withdraw { apex: apex.clone() }];
        let index = Index::default().apply(&changes(FLEET)).apply(&steps);
        assert_eq!(index.zone_of(&apex).map(|zone| zone.apex.clone()), Some(name("example")));
        assert!(index.zone_of(&apex).unwrap().place(&name("c2.fleet.example")).is_none());
    }

    #[test]
    fn a_new_soa_keeps_the_names() {
        let index = Index::default().apply(&changes(FLEET)).apply(&changes("fleet.example 30 SOA 2"));
        let zone = index.zone_of(&name("fleet.example")).unwrap();
        assert_eq!(zone.soa.serial, 2);
        assert!(zone.place(&name("a.b.fleet.example")).is_some());
    }
}
