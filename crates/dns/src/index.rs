//! What is served: every zone and every name in it, immutable and shared between its successive versions.

mod sets;
mod soa;

use std::sync::Arc;

use model::snapshot::{NameChange, Soa, ZoneChange};
use model::zone_file::ZoneFile;
use model::{Changes, DnsName};

use crate::metrics::ZoneCounters;
use crate::name::QueryName;
use crate::tree::{Node, NodeId, Tree, Value};
pub(crate) use sets::{Set, Sets, Types};
pub(crate) use soa::SoaRecord;

/// All zones. [`Index::apply`] makes the next one; the cost follows the changes, not the fleet.
#[derive(Debug, Clone, Default)]
pub struct Index {
    /// By apex, whose whole wire form is one label here: most servers have zones of one depth, and find the zone of a
    /// name at once.
    zones: Tree<Option<Arc<Zone>>>,
    /// A bit for each number of labels that an apex has.
    depths: u128,
}

impl Value for Option<Arc<Zone>> {
    fn is_nothing(&self) -> bool {
        self.is_none()
    }
}

impl Index {
    /// Takes the steps in their order: zones, then names. A step for a name of a zone that is not there is void, since
    /// withdrawing a zone took its names along.
    pub fn apply(&self, changes: &Changes) -> Self {
        let mut next = self.clone();
        for change in &changes.zones {
            match change {
                ZoneChange::Withdraw { apex } => next.zones.set([apex.as_wire()], None),
                ZoneChange::Serve { apex, soa, file } => next.serve(apex, soa, file.as_ref()),
            }
        }
        if !changes.zones.is_empty() {
            let depths = next.zones().map(|zone| 1 << zone.apex.labels().count());
            next.depths = depths.fold(0, |all, depth: u128| all | depth);
        }
        // Steps come zone by zone: each zone is copied once, not once for each of its names.
        for names in changes.names.chunk_by(|left, right| left.apex == right.apex) {
            next.set_names(&names[0].apex, names);
        }
        next
    }

    /// The zone that answers for a name, the one with the deepest apex, and how many labels of the name lie below it.
    pub(crate) fn zone_of(&self, name: &QueryName) -> Option<(&Arc<Zone>, usize)> {
        self.zone_above(name, 0)
    }

    /// The same among those with at least `below` labels of the name below them.
    pub(crate) fn zone_above(&self, name: &QueryName, below: usize) -> Option<(&Arc<Zone>, usize)> {
        let labels = name.label_count();
        // Those that the name is too short for are left out; a name has 127 labels at most.
        let mut depths = self.depths & (u128::MAX >> (127 - labels.checked_sub(below)?));
        while depths != 0 {
            let depth = 127 - depths.leading_zeros() as usize;
            if let Some(zone) = self.zone(name.without(labels - depth)) {
                return Some((zone, labels - depth));
            }
            depths ^= 1 << depth;
        }
        None
    }

    /// Every zone, in no order.
    pub(crate) fn zones(&self) -> impl Iterator<Item = &Arc<Zone>> {
        self.zones.values().filter_map(|(_, zone)| zone.as_ref())
    }

    /// By its apex in wire form.
    fn zone(&self, apex: &[u8]) -> Option<&Arc<Zone>> {
        let (_, node) = self.zones.child(NodeId::ROOT, self.zones.node(NodeId::ROOT), apex)?;
        node.value.as_ref()
    }

    fn serve(&mut self, apex: &DnsName, soa: &Soa, file: Option<&Arc<ZoneFile>>) {
        let zone = match self.zone(apex.as_wire()) {
            Some(zone) if same_file(zone.file.as_ref(), file) => {
                Zone { soa: SoaRecord::new(apex, soa), ..Zone::clone(zone) }
            }
            Some(zone) => Zone {
                soa: SoaRecord::new(apex, soa),
                names: zone.names_with(file),
                file: file.cloned(),
                ..Zone::clone(zone)
            },
            None => Zone {
                apex: apex.clone(),
                soa: SoaRecord::new(apex, soa),
                names: names_of(apex, file),
                file: file.cloned(),
                counters: Arc::default(),
            },
        };
        self.zones.set([apex.as_wire()], Some(Arc::new(zone)));
    }

    fn set_names(&mut self, apex: &DnsName, changes: &[NameChange]) {
        let Some(zone) = self.zone(apex.as_wire()) else { return };
        let mut zone = Zone::clone(zone);
        let depth = apex.labels().count();
        for change in changes.iter().filter(|change| change.name.is_at_or_under(apex)) {
            let path = path(&change.name).into_iter().skip(depth);
            let mut sets = Sets::planned(&change.records, change.steered.as_deref());
            if sets.is_nothing() {
                // The file's records were hidden as long as the plan had some: both are kept apart, and no name has both.
                sets = zone.file.as_ref().map_or(Sets::Nothing, |file| Sets::in_file(file, file.sets_of(&change.name)));
            }
            zone.names.set(path, sets);
        }
        self.zones.set([apex.as_wire()], Some(Arc::new(zone)));
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Zone {
    pub(crate) apex: DnsName,
    pub(crate) soa: SoaRecord,
    /// From the apex downwards; the root is the apex itself.
    pub(crate) names: Tree<Sets>,
    file: Option<Arc<ZoneFile>>,
    /// Shared by all versions of the zone.
    pub(crate) counters: Arc<ZoneCounters>,
}

impl Zone {
    /// The sets of one name.
    pub(crate) fn sets<'a>(&'a self, node: &'a Node<Sets>) -> impl Iterator<Item = Set<'a>> {
        node.value.iter(self.file.as_deref())
    }

    pub(crate) fn set<'a>(&'a self, node: &'a Node<Sets>, rtype: u16) -> Option<Set<'a>> {
        if let Some(set) = node.value.small() {
            return (set.rtype == rtype).then_some(set);
        }
        if !node.value.types().may_have(rtype) {
            return None;
        }
        self.sets(node).find(|set| set.rtype == rtype)
    }

    /// The place of exactly this name in wire form, whatever zone cuts are above it.
    pub(crate) fn place(&self, name: &QueryName) -> Option<&Node<Sets>> {
        let below = name.labels_below(&self.apex)?;
        let labels = (0..below).rev().map(|number| name.label(number));
        self.names.at(labels).map(|node| self.names.node(node))
    }

    /// The plan's names as they are, beside those of another file.
    fn names_with(&self, file: Option<&Arc<ZoneFile>>) -> Tree<Sets> {
        let mut names = names_of(&self.apex, file);
        for (path, sets) in self.names.values() {
            if sets.is_planned() {
                names.set(path, sets.clone());
            }
        }
        names
    }
}

fn same_file(one: Option<&Arc<ZoneFile>>, other: Option<&Arc<ZoneFile>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

fn names_of(apex: &DnsName, file: Option<&Arc<ZoneFile>>) -> Tree<Sets> {
    let Some(file) = file else { return Tree::default() };
    let depth = apex.labels().count();
    Tree::from_sorted(file.names().map(|name| {
        let mut labels: Vec<&[u8]> = wire_labels(name.wire).collect();
        labels.truncate(labels.len().saturating_sub(depth));
        (labels.into_iter().rev(), Sets::in_file(file, name.sets))
    }))
}

/// The labels of a name, the one below the root first.
fn path(name: &DnsName) -> Vec<&[u8]> {
    let mut labels: Vec<&[u8]> = name.labels().collect();
    labels.reverse();
    labels
}

/// The labels of a name in wire form, the leftmost first.
fn wire_labels(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = wire;
    std::iter::from_fn(move || {
        let (&length, behind) = rest.split_first()?;
        let (label, behind) = behind.split_at_checked(length.into())?;
        rest = behind;
        (length != 0).then_some(label)
    })
}

#[cfg(test)]
mod tests;
