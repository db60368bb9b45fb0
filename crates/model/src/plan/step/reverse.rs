//! The part of a step that is about addresses: reverse zones, their PTR records, and who is to have which.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::{NameSteps, Step};
use crate::allocation::Entry;
use crate::identity::{Kind, ObjectRef};
use crate::name::DnsName;
use crate::snapshot::{Detail, PointerPart, Snapshot, Status, ZoneChange, ZonePart};

/// `None`: it is gone.
#[derive(Debug, Default)]
pub(super) struct ReverseStep {
    zones: BTreeMap<DnsName, Option<ZonePart>>,
    pointers: BTreeMap<IpAddr, Option<PointerPart>>,
    entries: BTreeMap<IpAddr, Option<Entry>>,
}

impl ReverseStep {
    pub(super) fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    pub(super) fn apexes(&self) -> impl Iterator<Item = &DnsName> {
        self.zones.keys()
    }
}

impl Step {
    pub(in crate::plan) fn reverse_before(&self) -> impl Iterator<Item = &DnsName> {
        self.before.reverse_zones.keys()
    }

    /// Whether it is going to be served.
    pub(in crate::plan) fn has_reverse(&self, apex: &DnsName) -> bool {
        match self.reverse.zones.get(apex) {
            Some(part) => part.is_some(),
            None => self.before.reverse_zones.contains_key(apex),
        }
    }

    pub(in crate::plan) fn pointers_before(&self) -> impl Iterator<Item = IpAddr> {
        self.before.pointers.keys().copied()
    }

    pub(in crate::plan) fn place_reverse(&mut self, apex: &DnsName, part: Option<ZonePart>) {
        self.reverse.zones.insert(apex.clone(), part);
    }

    pub(in crate::plan) fn place_pointer(&mut self, address: IpAddr, part: Option<PointerPart>) {
        self.reverse.pointers.insert(address, part);
    }

    pub(in crate::plan) fn place_entry(&mut self, address: IpAddr, entry: Option<Entry>) {
        self.reverse.entries.insert(address, entry);
    }

    /// The names of tenants that were settled.
    pub(in crate::plan) fn names_touched(&self) -> impl Iterator<Item = &DnsName> {
        self.names.keys()
    }

    /// Returns whether anything is another than before, and the addresses of which something else is known or wanted.
    pub(super) fn apply_reverse(&mut self, next: &mut Snapshot, names: &mut NameSteps<'_>) -> (bool, Vec<IpAddr>) {
        let mut changed = false;
        for (apex, part) in &self.reverse.zones {
            let before = self.before.reverse_zones.get(apex).map(AsRef::as_ref);
            if before == part.as_ref() {
                continue;
            }
            changed = true;
            names.replace(
                before.map(|part| (apex, part.names.as_slice())),
                part.as_ref().map(|part| (apex, part.names.as_slice())),
            );
            match part {
                Some(part) => next.reverse_zones.insert_mut(apex.clone(), Arc::new(part.clone())),
                None => _ = next.reverse_zones.remove_mut(apex),
            }
        }
        for (address, part) in std::mem::take(&mut self.reverse.pointers) {
            let before = self.before.pointers.get(&address).map(AsRef::as_ref);
            if before == part.as_ref() {
                continue;
            }
            changed = true;
            names.replace(before.map(PointerPart::answered), part.as_ref().map(PointerPart::answered));
            match part {
                Some(part) => next.pointers.insert_mut(address, Arc::new(part)),
                None => _ = next.pointers.remove_mut(&address),
            }
        }
        let mut addresses = Vec::new();
        for (address, entry) in std::mem::take(&mut self.reverse.entries) {
            if self.before.addresses.get(&address).map(AsRef::as_ref) == entry.as_ref() {
                continue;
            }
            addresses.push(address);
            match entry {
                Some(entry) => next.addresses.insert_mut(address, Arc::new(entry)),
                None => _ = next.addresses.remove_mut(&address),
            }
        }
        (changed || !addresses.is_empty(), addresses)
    }

    /// Gives the reverse zones whose content changed their next serial.
    pub(super) fn number_reverse(
        &mut self,
        touched: &BTreeSet<DnsName>,
        next: &mut Snapshot,
        names: &mut NameSteps<'_>,
        changes: &mut Vec<ZoneChange>,
    ) {
        let placed = std::mem::take(&mut self.reverse.zones);
        let to_number: BTreeMap<DnsName, ZonePart> = touched
            .iter()
            .chain(placed.keys())
            .filter_map(|apex| Some((apex.clone(), ZonePart::clone(next.reverse_zones.get(apex)?))))
            .collect();
        for (apex, mut part) in to_number {
            let before = (part.digest, part.soa.serial);
            let is_new = self.before.reverse_zones.get(&apex) != next.reverse_zones.get(&apex);
            names.ledger.number(&mut part, self.now);
            if !is_new && (part.digest, part.soa.serial) == before {
                continue;
            }
            changes.push(ZoneChange::Serve { apex: apex.clone(), soa: part.soa.clone(), file: None });
            self.tell_number(&part);
            next.reverse_zones.insert_mut(apex, Arc::new(part));
        }
    }

    /// Has the pool say which serial its zone has.
    fn tell_number(&mut self, part: &ZonePart) {
        let Some(pool) = &part.pool else { return };
        let object = ObjectRef::cluster_scoped(Kind::AddressPool, pool.clone());
        let status = self.statuses.remove(&object).flatten();
        let status = status.or_else(|| self.before.status(&object).map(|status| Status::clone(status)));
        let Some(mut status) = status else { return };
        if let Detail::AddressPool { zones, .. } = &mut status.detail
            && let Some(zone) = zones.iter_mut().find(|zone| zone.apex == part.apex)
        {
            (zone.serial, zone.digest) = (part.soa.serial, part.digest);
        }
        self.statuses.insert(object, Some(status));
    }
}
