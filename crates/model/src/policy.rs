//! What a tenant may publish: one policy for every door, asked by the door and asked again by the plan.
//!
//! [`judge`] looks at one claim by itself, upon the [`Ground`] of who owns what. Who was first, how much a tenant may
//! have and which names rest after their release are the plan's to settle (`plan/records.rs`), as they follow from all
//! claims together.

pub mod ground;
mod names;
pub mod rate;
mod targets;

use crate::identity::{ClusterName, ObjectName};
use crate::name::DnsName;
use crate::record::RecordData;
use crate::refusal::Refusal;

pub use ground::{Ground, Holding, Owners};

/// Below, an alias or an address could be flipped faster than anybody who checked it asks again, and every resolver asks
/// anew all the time.
pub const MIN_TTL: u32 = 5;
/// A week, as resolvers keep nothing longer (RFC 8767 4).
pub const MAX_TTL: u32 = 604_800;
/// Records of one name and type: an answer of twice as many no longer fits into a packet that crosses every network.
pub const MAX_RECORDS: usize = 64;
/// Octets of the data of one name and type: room for every honest TXT record, and too little to amplify with.
pub const MAX_OCTETS: usize = 4096;

/// One record set that a tenant asks for. The records are in the order in which they were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordClaim {
    pub name: DnsName,
    /// The zone's, if none is given.
    pub ttl: Option<u32>,
    pub data: RecordData,
}

/// A no to one claim, and the field of it that is at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub refusal: Refusal,
    /// As it stands in an endpoint of a `DNSEndpoint`, such as `targets[2]`, or in an Ingress, such as `rules[0].host`.
    pub field: String,
}

impl Refused {
    pub fn new(refusal: Refusal, field: impl Into<String>) -> Self {
        Self { refusal, field: field.into() }
    }

    pub fn at_name(refusal: Refusal) -> Self {
        Self::new(refusal, "dnsName")
    }

    /// Of a target by its number.
    pub fn at_target(refusal: Refusal, number: usize) -> Self {
        Self::new(refusal, format!("targets[{number}]"))
    }
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applicant {
    pub tenant: ObjectName,
    /// An agent speaks for its own cluster alone: of the tenant's names it has those of that cluster, and the domains.
    pub cluster: Option<ClusterName>,
}

/// Where a good claim belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub apex: DnsName,
    pub ttl: u32,
    /// Whether we answer for it.
    pub authoritative: bool,
    /// Whether it is handed to others.
    pub hand_out: bool,
}

/// Whether a claim may stand, if nobody else wants the same.
pub fn judge(ground: &Ground, applicant: &Applicant, claim: &RecordClaim) -> Result<Placed, Refused> {
    let zone = names::judge(ground, applicant, &claim.name).map_err(Refused::at_name)?;
    if matches!(claim.data, RecordData::Ns(_) | RecordData::Ptr(_)) {
        let rtype = claim.data.type_name().to_owned();
        return Err(Refused::new(Refusal::TypeNotAllowed { rtype }, "recordType"));
    }
    let ttl = match claim.ttl {
        None => zone.ttl,
        Some(ttl) if (MIN_TTL..=MAX_TTL).contains(&ttl) => ttl,
        Some(ttl) => return Err(Refused::new(Refusal::BadTtl { ttl: ttl.into() }, "recordTTL")),
    };
    check_size(&claim.data)?;
    targets::judge(ground, applicant, claim, zone.hand_out)?;
    Ok(Placed { apex: zone.apex.clone(), ttl, authoritative: zone.authoritative, hand_out: zone.hand_out })
}

/// Whether a host may be a tenant's, if nobody else wants the same, and where its name stands: outside every zone nowhere.
pub fn judge_host(ground: &Ground, tenant: &ObjectName, host: &DnsName) -> Result<Option<Placed>, Refusal> {
    let applicant = Applicant { tenant: tenant.clone(), cluster: None };
    let zone = names::judge_anywhere(ground, &applicant, host)?;
    Ok(zone.map(|zone| Placed {
        apex: zone.apex.clone(),
        ttl: zone.ttl,
        authoritative: zone.authoritative,
        hand_out: zone.hand_out,
    }))
}

fn check_size(data: &RecordData) -> Result<(), Refused> {
    let too_large = |what, most| Err(Refused::new(Refusal::SetTooLarge { what, most }, "targets"));
    if data.count() > MAX_RECORDS {
        return too_large("records", MAX_RECORDS);
    }
    if data.to_wire().iter().map(Vec::len).sum::<usize>() > MAX_OCTETS {
        return too_large("octets of data", MAX_OCTETS);
    }
    Ok(())
}
