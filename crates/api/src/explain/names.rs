//! What DNS answers for a name, and which object each record comes from.

use std::net::{IpAddr, Ipv4Addr};

use dns::{Chosen, Guides};
use domain::base::iana::Rtype;
use domain::base::{Message, ParsedName};
use domain::rdata::AllRecordData;
use model::identity::Kind;
use model::snapshot::{Condition, Detail, ZonePart};
use model::{Cidr, DnsName, ObjectRef, Snapshot, Timestamp};
use serde_json::{Value, json};

use super::members;
use crate::state::State;

/// How many of the last queries for a name are shown.
const RECENT: usize = 10;

/// What a client is told, and why.
pub(super) struct Told {
    rcode: String,
    zone: Option<DnsName>,
    /// The network that its resolver asks for, where it is known.
    pub(super) network: Option<Cidr>,
    records: Vec<Record>,
    /// Of names whose addresses are chosen.
    pub(super) chosen: Vec<Chosen>,
}

/// As a resolver asks that says where its client is (RFC 7871).
pub(super) fn resolve(name: &DnsName, from: Option<IpAddr>, state: &State) -> Told {
    let index = state.index.load();
    let settings = dns::Settings::default().with_guides(state.guides.clone());
    let network = from.map(network_of);
    let Answer { rcode, zone, mut records, mut chosen } = ask(&index, &settings, name, Rtype::A, network);
    let other = ask(&index, &settings, name, Rtype::AAAA, network);
    for record in other.records {
        // An alias is part of both answers.
        if !records.contains(&record) {
            records.push(record);
        }
    }
    chosen.extend(other.chosen);
    Told { rcode, zone, network, records, chosen }
}

/// RFC 7871 11.1: resolvers tell no more of an address than this.
fn network_of(address: IpAddr) -> Cidr {
    let address = address.to_canonical();
    Cidr::around(address, if address.is_ipv4() { 24 } else { 56 })
}

pub(super) fn to_json(name: &DnsName, told: Told, guides: &Guides, snapshot: &Snapshot, recent: &dns::Recent) -> Value {
    let Told { rcode, zone, network, records, chosen } = told;
    let records: Vec<Value> = records
        .into_iter()
        .map(|Record { owner, ttl, kind, data }| {
            let from = origin(&owner, snapshot);
            json!({
                "name": owner.to_string(),
                "ttl": ttl,
                "type": kind,
                "data": data,
                "from": from.map(|object| object.to_string()),
            })
        })
        .collect();
    json!({
        "rcode": rcode,
        "zone": zone_holding(name, snapshot).map(|(zone, _)| zone.name.as_str()),
        "apex": zone.map(|apex| apex.to_string()),
        "clientSubnet": network.map(|network| network.to_string()),
        "records": records,
        "steered": chosen.iter().map(|chosen| members::of_dns(chosen, network, guides)).collect::<Vec<_>>(),
        "remarks": remarks(name, snapshot),
        "recent": recently_asked(name, recent),
    })
}

/// Who asked for this very name of late, and what they were told; under load only a sample is kept.
fn recently_asked(name: &DnsName, recent: &dns::Recent) -> Vec<Value> {
    let queries = recent.queries().into_iter().filter(|query| query.name == *name);
    let told = queries.take(RECENT).map(|query| {
        json!({
            "at": Timestamp::from_unix(query.at).to_string(),
            "client": query.client.to_string(),
            "transport": query.transport.as_str(),
            "type": query.qtype.to_string(),
            "rcode": query.rcode.to_string(),
            "reason": query.kind.as_str(),
            "truncated": query.truncated,
        })
    });
    told.collect()
}

#[derive(Debug, Default)]
struct Answer {
    rcode: String,
    /// The apex of the zone that answered.
    zone: Option<DnsName>,
    records: Vec<Record>,
    chosen: Vec<Chosen>,
}

#[derive(Debug, PartialEq, Eq)]
struct Record {
    owner: DnsName,
    ttl: u32,
    kind: String,
    data: String,
}

/// Asks over the transport that cuts nothing short.
fn ask(index: &dns::Index, settings: &dns::Settings, name: &DnsName, rtype: Rtype, network: Option<Cidr>) -> Answer {
    // One question (RFC 1035 4.1.1), of class IN, and nothing else but where the client is.
    let mut request = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(network.is_some())];
    request.extend_from_slice(name.as_wire());
    request.extend_from_slice(&rtype.to_int().to_be_bytes());
    request.extend_from_slice(&[0, 1]);
    if let Some(network) = network {
        push_subnet(&mut request, network);
    }
    // Without a cookie the time does not count.
    let client = dns::Client { address: Ipv4Addr::LOCALHOST.into(), transport: dns::Transport::Tcp, now: 0 };
    let mut response = Vec::new();
    let Some((outcome, chosen)) = dns::explain(index, settings, &client, &request, &mut response) else {
        return Answer::default();
    };
    let (rcode, zone) = (outcome.rcode.to_string(), outcome.apex().cloned());
    Answer { rcode, zone, records: answered(&response).unwrap_or_default(), chosen }
}

/// An OPT record (RFC 6891 6.1.2) with a client subnet (RFC 7871 6).
fn push_subnet(request: &mut Vec<u8>, network: Cidr) {
    let (family, octets) = match network.network() {
        IpAddr::V4(address) => (1, address.octets().to_vec()),
        IpAddr::V6(address) => (2, address.octets().to_vec()),
    };
    let sent = &octets[..usize::from(network.prefix_len().div_ceil(8))];
    // At most 16, and 8 more.
    let length = u8::try_from(sent.len()).unwrap_or(u8::MAX);
    request.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, length + 8]);
    request.extend_from_slice(&[0, 8, 0, length + 4, 0, family, network.prefix_len(), 0]);
    request.extend_from_slice(sent);
}

/// The answer section; what we wrote ourselves is well-formed.
fn answered(response: &[u8]) -> Option<Vec<Record>> {
    let message = Message::from_slice(response).ok()?;
    let records = message.answer().ok()?.limit_to::<AllRecordData<&[u8], ParsedName<&[u8]>>>();
    let records = records.map(|record| {
        let record = record.ok()?;
        let owner = DnsName::parse(&record.owner().to_string()).ok()?;
        let (ttl, kind) = (record.ttl().as_secs(), record.rtype().to_string());
        Some(Record { owner, ttl, kind, data: record.data().to_string() })
    });
    records.collect()
}

/// The object whose name this is, or whose wildcard stands in for it: the deepest wildcard above a name is the one that
/// answers for it (RFC 4592 2.2.1).
fn origin(name: &DnsName, snapshot: &Snapshot) -> Option<ObjectRef> {
    let ancestors = std::iter::successors(name.parent(), DnsName::parent);
    let wildcards = ancestors.filter_map(|ancestor| ancestor.prepend("*").ok());
    let candidates: Vec<DnsName> = std::iter::once(name.clone()).chain(wildcards).collect();
    let place = |own: &DnsName| candidates.iter().position(|candidate| candidate == own);

    let clusters = objects(Kind::Cluster, snapshot).filter_map(|object| {
        let part = snapshot.cluster(&object.name.as_str().parse().ok()?)?;
        Some((part.names.iter().filter_map(|own| place(&own.name)).min()?, object))
    });
    let (zone, part) = zone_holding(name, snapshot)?;
    let in_file = part.file.as_ref().and_then(|file| candidates.iter().position(|own| !file.sets_of(own).is_empty()));
    let of_zone = part.names.iter().filter_map(|own| place(&own.name)).chain(in_file).min();
    // What a tenant claimed stands before the wildcard of its cluster.
    let claimed = candidates.iter().position(|own| snapshot.tenant_name(own).is_some());
    let claimed = claimed.and_then(|at| Some((at, publisher(&candidates[at], snapshot)?)));
    let nearest = claimed.into_iter().chain(clusters).chain(of_zone.map(|at| (at, zone))).min_by_key(|(at, _)| *at);
    // What nobody else accounts for, such as the records at the apex, is the zone's.
    Some(nearest.map_or(zone, |(_, object)| object).clone())
}

/// The object by which a tenant has a name.
fn publisher<'a>(name: &DnsName, snapshot: &'a Snapshot) -> Option<&'a ObjectRef> {
    let publishes = |detail: &Detail| match detail {
        Detail::Ingress { published, .. } => published.iter().any(|set| set.name == *name),
        Detail::Records { parts, .. } => {
            parts.iter().filter_map(|part| part.outcome.as_ref().ok()).any(|set| set.name == *name)
        }
        _ => false,
    };
    snapshot.statuses().find(|(_, status)| publishes(&status.detail)).map(|(object, _)| object)
}

/// The zone that answers for a name: the one with the deepest apex.
pub(super) fn zone_holding<'a>(name: &DnsName, snapshot: &'a Snapshot) -> Option<(&'a ObjectRef, &'a ZonePart)> {
    let zones = objects(Kind::Zone, snapshot).filter_map(|object| Some((object, &**snapshot.zone(&object.name)?)));
    let above = zones.filter(|(_, part)| part.authoritative && name.is_at_or_under(&part.apex));
    above.max_by_key(|(_, part)| part.apex.labels().count())
}

/// What is wrong with the names of accepted clusters, where it is about this name.
fn remarks(name: &DnsName, snapshot: &Snapshot) -> Vec<String> {
    let mut remarks = Vec::new();
    for object in objects(Kind::Cluster, snapshot) {
        let Some(status) = snapshot.status(object) else { continue };
        let Detail::Cluster { api_name, apps_name, .. } = &status.detail else { continue };
        // A name that is there is none of the wildcard's.
        let is_apps = apps_name == name
            || apps_name.is_wildcard()
                && apps_name.parent().is_some_and(|base| name.is_at_or_under(&base))
                && snapshot.tenant_name(name).is_none();
        let wrong =
            status.conditions.iter().filter(|condition| !condition.holds).filter(|condition| match condition.kind {
                Condition::PUBLISHED => api_name == name || is_apps,
                Condition::NODES_READY => is_apps && api_name != name,
                _ => false,
            });
        remarks.extend(wrong.map(|condition| format!("{object}: {}: {}", condition.reason, condition.message)));
    }
    remarks.sort();
    remarks
}

fn objects(kind: Kind, snapshot: &Snapshot) -> impl Iterator<Item = &ObjectRef> {
    snapshot.statuses().map(|(object, _)| object).filter(move |object| object.kind == kind)
}
