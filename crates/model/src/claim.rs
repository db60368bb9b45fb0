//! Who was first: what clusters claim, and who else claims the same.

use std::collections::HashMap;
use std::fmt;

use crate::fact::Since;
use crate::identity::{ClusterId, ClusterName};
use crate::name::DnsName;

/// Something that at most one cluster of the fleet can have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Claim {
    Id(ClusterId),
    /// A DNS name, a server name, or both: one name never leads to two places.
    Name(DnsName),
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "cluster id {id}"),
            Self::Name(name) => write!(f, "name {name}"),
        }
    }
}

/// Orders claimants: the earlier is the senior one, ties go by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seniority {
    pub since: Since,
    pub cluster: ClusterName,
}

/// Everybody who claims something, senior first.
#[derive(Debug, Default, PartialEq)]
pub struct Claims {
    claimants: HashMap<Claim, Vec<Seniority>>,
}

impl Claims {
    pub fn register(&mut self, claim: &Claim, claimant: &Seniority) {
        match self.claimants.get_mut(claim) {
            Some(line) => {
                if let Err(position) = line.binary_search(claimant) {
                    line.insert(position, claimant.clone());
                }
            }
            // Nearly every claim has one claimant: room for one, not for the four that a push would make.
            None => {
                self.claimants.insert(claim.clone(), vec![claimant.clone()]);
            }
        }
    }

    pub fn unregister(&mut self, claim: &Claim, claimant: &Seniority) {
        let Some(line) = self.claimants.get_mut(claim) else { return };
        if let Ok(position) = line.binary_search(claimant) {
            line.remove(position);
        }
        if line.is_empty() {
            self.claimants.remove(claim);
        }
    }

    /// Who claimed it before `claimant`, the most senior first.
    pub fn seniors<'a>(&'a self, claim: &Claim, claimant: &'a Seniority) -> impl Iterator<Item = &'a Seniority> {
        self.line(claim).iter().take_while(move |other| *other < claimant)
    }

    /// Who claimed it after `claimant`.
    pub fn juniors<'a>(&'a self, claim: &Claim, claimant: &'a Seniority) -> impl Iterator<Item = &'a Seniority> {
        self.line(claim).iter().skip_while(move |other| *other <= claimant)
    }

    fn line(&self, claim: &Claim) -> &[Seniority] {
        self.claimants.get(claim).map_or(&[], Vec::as_slice)
    }
}
