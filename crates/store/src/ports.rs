//! Which port of the control planes' resolver each cluster has. On a hub that stands in the status of the Cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::resolver::{Ports, ResolverPlace, assign};
use model::resource::Cluster;
use model::{ClusterName, Fact, FactChange, Since};
use redb::TableDefinition;

use crate::database::{Database, DatabaseError, Table};

/// A cluster to its port, in two octets.
pub(crate) const PORTS: Table = TableDefinition::new("ports");

/// Where the resolver listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolver {
    /// None where it listens on all addresses, of which nobody knows which one pods can reach.
    pub address: Option<IpAddr>,
    pub ports: Ports,
}

/// Gives ports to the clusters of a folder.
pub(crate) struct PortDesk {
    resolver: Resolver,
    given: BTreeMap<ClusterName, u16>,
    clusters: BTreeMap<ClusterName, Since>,
    /// Those for which no port was left, to be told again when they get one.
    waiting: BTreeMap<ClusterName, Fact<Cluster>>,
    /// What is not in the database yet.
    unsaved: BTreeMap<ClusterName, Option<u16>>,
}

impl PortDesk {
    pub(crate) fn open(resolver: Resolver, database: &Database) -> Result<Self, DatabaseError> {
        Ok(Self {
            resolver,
            given: database.ports()?,
            clusters: BTreeMap::new(),
            waiting: BTreeMap::new(),
            unsaved: BTreeMap::new(),
        })
    }

    /// Puts the port of each cluster into its fact, and adds the facts of those that get one now.
    pub(crate) fn give(&mut self, facts: &mut Vec<FactChange>) {
        let mut changed = false;
        for fact in &*facts {
            let FactChange::Cluster(name, fact) = fact else { continue };
            if let Some(fact) = fact {
                changed |= self.clusters.insert(name.clone(), fact.since.clone()).is_none();
            } else {
                changed |= self.clusters.remove(name).is_some();
                self.waiting.remove(name);
                self.take_back(name);
            }
        }
        if changed {
            self.assign();
        }
        let mut told = BTreeSet::new();
        for fact in facts.iter_mut() {
            let FactChange::Cluster(name, Some(fact)) = fact else { continue };
            fact.value.resolver.place = self.place(name);
            told.insert(name.clone());
            if fact.value.resolver.place.is_none() {
                self.waiting.insert(name.clone(), fact.clone());
            } else {
                self.waiting.remove(name);
            }
        }
        let served: Vec<_> = self.waiting.keys().filter(|name| self.given.contains_key(*name)).cloned().collect();
        for name in served {
            let Some(mut fact) = self.waiting.remove(&name) else { continue };
            fact.value.resolver.place = self.place(&name);
            facts.push(FactChange::Cluster(name, Some(fact)));
        }
    }

    /// Returns once it is on disk: after a restart nobody has another port.
    pub(crate) fn save(&mut self, database: &Database) -> Option<DatabaseError> {
        if self.unsaved.is_empty() {
            return None;
        }
        let error = database.keep_ports(&self.unsaved).err();
        if error.is_none() {
            self.unsaved.clear();
        }
        error
    }

    /// Takes back what an earlier process gave to clusters that are gone since; once all that are there are known.
    pub(crate) fn forget_others(&mut self, facts: &mut Vec<FactChange>) {
        let others: Vec<_> = self.given.keys().filter(|name| !self.clusters.contains_key(*name)).cloned().collect();
        if !others.is_empty() {
            for name in &others {
                self.take_back(name);
            }
            self.assign();
            self.give(facts);
        }
    }

    fn take_back(&mut self, name: &ClusterName) {
        if self.given.remove(name).is_some() {
            self.unsaved.insert(name.clone(), None);
        }
    }

    fn assign(&mut self) {
        // Of those that an earlier process gave one, some may not have been read yet.
        let (unread, clusters) = (Since::default(), self.clusters.iter().map(|(name, since)| (since, name)));
        let others = self.given.keys().filter(|name| !self.clusters.contains_key(*name)).map(|name| (&unread, name));
        let given = assign(&self.resolver.ports, &self.given, clusters.chain(others));
        for (name, port) in &given {
            if self.given.get(name) != Some(port) {
                self.unsaved.insert(name.clone(), Some(*port));
            }
        }
        self.given = given;
    }

    fn place(&self, name: &ClusterName) -> Option<ResolverPlace> {
        let port = *self.given.get(name)?;
        Some(ResolverPlace { port, address: self.resolver.address })
    }
}

impl Database {
    pub fn ports(&self) -> Result<BTreeMap<ClusterName, u16>, DatabaseError> {
        let mut known = BTreeMap::new();
        self.visit(PORTS, "", |name, value| {
            let read = || Some((name.parse().ok()?, u16::from_be_bytes(value.try_into().ok()?)));
            let (cluster, port) = read().ok_or_else(|| DatabaseError::Entry(name.into()))?;
            known.insert(cluster, port);
            Ok(())
        })?;
        Ok(known)
    }

    fn keep_ports(&self, changes: &BTreeMap<ClusterName, Option<u16>>) -> Result<(), DatabaseError> {
        self.write_with(|transaction| {
            let mut table = transaction.open_table(PORTS)?;
            for (cluster, port) in changes {
                match port {
                    Some(port) => _ = table.insert(cluster.as_str(), port.to_be_bytes().as_slice())?,
                    None => _ = table.remove(cluster.as_str())?,
                }
            }
            Ok(())
        })
    }
}
