//! Which names a tenant may claim.

use super::Applicant;
use super::ground::{Ground, Right, ZoneGround, upwards};
use crate::name::DnsName;
use crate::refusal::Refusal;

/// Names that programs ask for by themselves in whatever domain they are in: whoever has one below a shared domain speaks
/// for its neighbours' machines.
const RESERVED: [&[u8]; 5] = [b"localhost", b"wpad", b"isatap", b"autodiscover", b"autoconfig"];
/// What speaks for the mail of a whole domain; the platform's in clusters' subtrees, the tenant's own in its domains.
const RESERVED_IN_SUBTREES: [&[u8]; 5] = [b"_dmarc", b"_domainkey", b"_mta-sts", b"mta-sts", b"_smtp"];
/// Before a name's first label, by dash: where ExternalDNS' registry says who owns the name.
const REGISTRY_TYPES: [&[u8]; 9] = [b"a", b"aaaa", b"cname", b"txt", b"srv", b"mx", b"ns", b"ptr", b"naptr"];

pub(super) fn judge<'a>(ground: &'a Ground, applicant: &Applicant, name: &DnsName) -> Result<&'a ZoneGround, Refusal> {
    judge_anywhere(ground, applicant, name)?.ok_or_else(|| Refusal::OutsideZones { name: name.clone() })
}

/// Also where no zone of ours answers for the name.
pub(super) fn judge_anywhere<'a>(
    ground: &'a Ground,
    applicant: &Applicant,
    name: &DnsName,
) -> Result<Option<&'a ZoneGround>, Refusal> {
    check_form(name)?;
    let refused = || name.clone();
    // Said first, so that nobody learns from the other reasons what names there are that are not theirs.
    let (suffix, of_cluster) = match ground.right(applicant, name) {
        Right::Yes { suffix, of_cluster } => (suffix, of_cluster),
        Right::OtherCluster(cluster) => {
            return Err(Refusal::OtherCluster { name: refused(), cluster: cluster.clone() });
        }
        Right::No => return Err(Refusal::NotYours { name: refused() }),
    };
    let zone = ground.zone_of(name).map(AsRef::as_ref);
    if upwards(name).any(|place| ground.control(&place).is_some()) || is_registry_of_control(ground, name) {
        return Err(Refusal::ControlPlaneName { name: refused() });
    }
    if let Some(zone) = ground.reserved_by(name) {
        return Err(Refusal::Reserved { name: refused(), zone: zone.clone() });
    }
    check_labels(name, &suffix, of_cluster)?;
    if let Some((zone, file)) = zone.and_then(|zone| Some((zone, zone.file.as_ref()?))) {
        if !file.sets_of(name).is_empty() {
            return Err(Refusal::InZoneFile { name: refused(), zone: zone.name.clone() });
        }
        if let Some((cut, rtype)) = file.hides(name) {
            return Err(Refusal::HiddenByZoneFile { name: refused(), cut, rtype, zone: zone.name.clone() });
        }
    }
    if name.is_wildcard()
        && let Some(above) = name.parent()
        && ground.others_below(&applicant.tenant, &above)
    {
        return Err(Refusal::WildcardOverOthers { name: refused() });
    }
    if zone.is_some_and(|zone| disables_wildcard(ground, applicant, zone, &suffix)) {
        return Err(Refusal::DisablesWildcard { name: refused() });
    }
    Ok(zone)
}

/// Letters, digits, `-` and `_`; a wildcard stands in front or nowhere. What else octets could spell looks like one name
/// to people and like another to programs.
fn check_form(name: &DnsName) -> Result<(), Refusal> {
    let bad = |reason| Err(Refusal::BadName { reason });
    if name.is_root() {
        return bad("it is the root".to_owned());
    }
    for (position, label) in name.labels().enumerate() {
        if label == b"*" && position == 0 {
            continue;
        }
        if label.contains(&b'*') {
            return bad("`*` stands for a whole first label, or nowhere".to_owned());
        }
        if !label.iter().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_')) {
            return bad(format!("{name} has characters other than letters, digits, `-` and `_`"));
        }
    }
    Ok(())
}

fn check_labels(name: &DnsName, suffix: &DnsName, of_cluster: bool) -> Result<(), Refusal> {
    let own = name.labels().count() - suffix.labels().count();
    for label in name.labels().take(own) {
        if RESERVED.contains(&label) || (of_cluster && RESERVED_IN_SUBTREES.contains(&label)) {
            let label = String::from_utf8_lossy(label).into_owned();
            return Err(Refusal::ReservedLabel { name: name.clone(), label });
        }
    }
    Ok(())
}

/// Whether the name is where ExternalDNS' registry would say who owns a control plane's name.
fn is_registry_of_control(ground: &Ground, name: &DnsName) -> bool {
    let Some(first) = name.labels().next() else { return false };
    let Some(parent) = name.parent() else { return false };
    let owned = REGISTRY_TYPES.iter().filter_map(|kind| first.strip_prefix(*kind)?.strip_prefix(b"-"));
    let mut owned = owned.filter_map(|label| std::str::from_utf8(label).ok());
    owned.any(|label| parent.prepend(label).is_ok_and(|name| ground.control(&name).is_some()))
}

/// Whether names between the applicant's suffix and the apex, which would come to be without records, would take answers
/// from a wildcard that is somebody else's (RFC 4592 2.2.2). Below the suffix all is the applicant's own.
fn disables_wildcard(ground: &Ground, applicant: &Applicant, zone: &ZoneGround, suffix: &DnsName) -> bool {
    let mut below = suffix.clone();
    for place in upwards(suffix).skip(1).take_while(|place| place.is_at_or_under(&zone.apex)) {
        // What the suffix itself takes was given with it.
        if below != *suffix
            && let Ok(wildcard) = place.prepend("*")
        {
            let of_file = zone.file.as_ref().is_some_and(|file| !file.sets_of(&wildcard).is_empty());
            if of_file || ground.control(&wildcard).is_some_and(|owner| *owner != applicant.tenant) {
                return true;
            }
        }
        below = place;
    }
    false
}
