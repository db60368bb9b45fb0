//! What a tenant's records may lead to.

use std::net::IpAddr;

use super::ground::Ground;
use super::{Applicant, RecordClaim, Refused};
use crate::name::DnsName;
use crate::reach::{self, Reach};
use crate::record::{RecordData, Strings};
use crate::refusal::Refusal;
use crate::resource::Tenant;

/// Names that lead to whatever the asking machine is, or to its cluster's or its cloud's inside (RFC 6761, RFC 6762,
/// RFC 8375, ICANN's `internal`).
const INSIDE: [&[u8]; 6] = [b"localhost", b"local", b"internal", b"invalid", b"onion", b"arpa"];

pub(super) fn judge(
    ground: &Ground,
    applicant: &Applicant,
    claim: &RecordClaim,
    handed_out: bool,
) -> Result<(), Refused> {
    let Some(tenant) = ground.tenant(&applicant.tenant) else {
        return Err(Refused::at_name(Refusal::UnknownTenant(applicant.tenant.clone())));
    };
    let addresses: Vec<IpAddr> = match &claim.data {
        RecordData::A(addresses) => addresses.iter().copied().map(IpAddr::from).collect(),
        RecordData::Aaaa(addresses) => addresses.iter().copied().map(IpAddr::from).collect(),
        _ => Vec::new(),
    };
    for (number, address) in addresses.into_iter().enumerate() {
        check_address(ground, tenant, address).map_err(|refusal| Refused::at_target(refusal, number))?;
    }
    for (number, target) in claim.data.targets().into_iter().enumerate() {
        let nothing = target.is_root() && matches!(claim.data, RecordData::Mx(_) | RecordData::Srv(_));
        // RFC 7505 and RFC 2782: the root says that there is no such service.
        if !nothing {
            check_name(ground, tenant, &claim.name, target).map_err(|refusal| Refused::at_target(refusal, number))?;
        }
    }
    if let RecordData::Txt(texts) = &claim.data {
        for (number, text) in texts.iter().enumerate() {
            check_text(text, handed_out).map_err(|refusal| Refused::at_target(refusal, number))?;
        }
    }
    Ok(())
}

fn check_address(ground: &Ground, tenant: &Tenant, target: IpAddr) -> Result<(), Refusal> {
    let kind = Reach::of(target);
    if kind != Reach::Ordinary {
        return Err(Refusal::TargetForbidden { target, kind: kind.as_str() });
    }
    if reach::is_disguised(target) {
        return Err(Refusal::TargetForbidden { target, kind: "IPv4-in-IPv6" });
    }
    let owner = ground.address_owner(target);
    if owner == Some(&tenant.name) {
        return Ok(());
    }
    let owners = ground.node_owners(target);
    if owners.contains(&tenant.name) && owner.is_none() {
        return Ok(());
    }
    // What a pool has is had by a claim, whatever range it lies in.
    if ground.is_in_pool(target) {
        return Err(Refusal::TargetNotAllowed { target });
    }
    // A wide range does not let anybody inside: private addresses are had by a range that is itself private.
    let inside = reach::is_private(target);
    let mut ranges = tenant.allowed_targets.iter().filter(|range| range.contains(target));
    if owners.is_empty() && ranges.any(|range| !inside || range.is_private()) {
        return Ok(());
    }
    Err(Refusal::TargetNotAllowed { target })
}

fn check_name(ground: &Ground, tenant: &Tenant, owner: &DnsName, target: &DnsName) -> Result<(), Refusal> {
    let bad = |reason: &str| Err(Refusal::BadTarget { reason: format!("{target} {reason}") });
    if target == owner {
        return bad("is the name itself");
    }
    let plain = |label: &[u8]| label.iter().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_'));
    if !target.labels().all(plain) {
        return bad("has characters other than letters, digits, `-` and `_`");
    }
    let Some(top) = target.labels().last() else { return bad("is the root") };
    if top.iter().all(u8::is_ascii_digit) {
        return bad("is an address, not a name");
    }
    match ground.is_tenants(&tenant.name, target) {
        Some(true) => return Ok(()),
        Some(false) => return Err(Refusal::TargetNotYours { target: target.clone() }),
        None if ground.zone_of(target).is_some() => {
            return Err(Refusal::TargetNotYours { target: target.clone() });
        }
        None => {}
    }
    if target.labels().count() == 1 || INSIDE.contains(&top) {
        return bad("has no meaning on the internet");
    }
    match &tenant.allowed_names {
        Some(allowed) if !allowed.iter().any(|suffix| target.is_at_or_under(suffix)) => {
            Err(Refusal::TargetNameNotAllowed { target: target.clone() })
        }
        _ => Ok(()),
    }
}

fn check_text(text: &Strings, handed_out: bool) -> Result<(), Refusal> {
    if text.strings().flatten().any(u8::is_ascii_control) {
        return Err(Refusal::BadTarget { reason: "the text has control characters".into() });
    }
    // Whoever it is handed to would take it for its own note about who owns a name.
    let first: Vec<u8> = text.strings().flatten().copied().take(9).collect();
    if handed_out && first.eq_ignore_ascii_case(b"heritage=") {
        return Err(Refusal::RegistryRecord);
    }
    Ok(())
}
