//! What the doors and DNS say of a request that nobody makes, from the name to the cluster.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gateway::explain::{Question as Connection, Verdict as Passed, Wanted};
use model::ingress::{EntryMode, PathMatch, Port, Steering};
use model::routes::{Entry, HostRule};
use model::{DnsName, Snapshot, Timestamp};
use serde_json::{Value, json};
use web::DoorKind;
use web::explain::{Explanation, HostFound, Question, RouteFound, Shown, Tls, Url, Verdict};
use x509_parser::extensions::GeneralName;

use super::names::{self, Told};
use super::{connection, doors, members, refused};
use crate::objects::{Failure, database};
use crate::state::{Doors, State};

/// Where clients of HTTPS come to if they are not told otherwise.
const HTTPS: u16 = 443;
const HTTP: u16 = 80;
/// Names of a certificate, and Ingresses of a host, that are shown.
const MOST_NAMES: usize = 20;

pub(super) fn explain(state: &State, question: &Question, text: &str) -> Result<Value, Failure> {
    let gateway = doors(state)?;
    let Some(web) = state.web.get() else { return Err(super::not_ready()) };
    let (url, now) = (&question.url, Instant::now());
    let (snapshot, listening) = (state.snapshot.load(), state.doors.get().copied().unwrap_or_default());
    let told = url.asked.name.as_ref().map(|name| names::resolve(name, question.from, state));
    let explanation = web.explain(question, now);

    let by_name = question.server_name.as_ref().or(url.asked.name.as_ref()).filter(|_| url.is_https);
    let by_name = by_name.map(|name| Connection { wants: Wanted::ServerName(name.clone()), from: question.from });
    let by_name = by_name.map(|question| (gateway.explain(&question, now), question));
    let is_control = by_name.as_ref().is_some_and(|(connection, _)| connection.way.is_some());
    let passed = by_name.filter(|_| is_passed_through(url, &listening, is_control));
    // A name whose addresses are chosen leads past our gateways.
    let is_straight = passed.is_none() && told.as_ref().is_some_and(|told| !told.chosen.is_empty());

    let mut answer = json!({
        "asked": {
            "url": text,
            "serverName": question.server_name.as_ref().map(ToString::to_string),
            "from": question.from.map(|from| from.to_string()),
        },
        "verdict": verdict(&explanation),
        "gateway": gateway_of(&explanation, &listening, &snapshot),
        "route": explanation.route.as_ref().zip(explanation.host.as_ref()).map(|(route, host)| to_route(route, host)),
        "choice": explanation.choice.as_ref().map(members::of_gateway),
    });
    let mut remarks = explanation.remarks.clone();
    if let Some((connection, question)) = &passed {
        answer["verdict"] = passed_verdict(connection);
        answer["gateway"] = passing_gateway(connection, &listening);
        answer["connection"] = connection::to_json(connection, question);
        (answer["route"], answer["choice"]) = (Value::Null, Value::Null);
    } else if let Some(told) = told.as_ref().filter(|_| is_straight) {
        (answer["verdict"], answer["choice"]) = straight(told, &explanation, state);
        answer["gateway"] = Value::Null;
    } else if let Some(name) = url.asked.name.as_ref().filter(|_| explanation.host.is_none()) {
        answer["owner"] = owner(name, &snapshot);
    }
    if !is_straight {
        remarks.extend(of_port(url, &answer["gateway"]));
        remarks.extend(of_source(&explanation));
    }
    answer["remarks"] = remarks.into();
    if let (Some(name), Some(told)) = (&url.asked.name, told) {
        answer["dns"] = names::to_json(name, told, &state.guides, &snapshot, &state.recent);
        answer["refused"] = refused::who_wants(&Wanted::ServerName(name.clone()), &snapshot, &*database(state)?)?;
    }
    Ok(answer)
}

/// Whether a connection of TLS comes to the door that passes it through. Where the port does not say which door it is, who has the
/// name does: a load balancer leads there.
fn is_passed_through(url: &Url, doors: &Doors, is_control: bool) -> bool {
    let port = url.port.unwrap_or(HTTPS);
    let is_at = |door: Option<SocketAddr>| door.is_some_and(|door| door.port() == port);
    match (is_at(doors.sni), is_at(doors.https)) {
        (true, false) => true,
        (false, true) => false,
        // One address for both, or another one.
        _ => is_control,
    }
}

fn verdict(explanation: &Explanation) -> Value {
    let verdict = &explanation.verdict;
    let location = match verdict {
        Verdict::Redirected(location) => Some(location),
        _ => None,
    };
    json!({
        "kind": match verdict {
            Verdict::Forwarded => "Forwarded",
            Verdict::Doubtful => "Doubtful",
            Verdict::Redirected(_) => "Redirected",
            Verdict::Refused(_) => "Refused",
        },
        "code": verdict.code(),
        "blame": verdict.blame().map(model::Blame::as_str),
        "status": verdict.status(),
        "location": location,
        "reason": explanation.reason(),
        "rule": explanation.rule,
    })
}

fn passed_verdict(connection: &gateway::explain::Explanation) -> Value {
    let verdict = &connection.verdict;
    json!({
        "kind": if matches!(verdict, Passed::Refused(_)) { "Refused" } else { "PassedThrough" },
        "code": verdict.code(),
        "blame": verdict.blame().map(model::Blame::as_str),
        "status": null,
        "location": null,
        "reason": connection.reason(),
        "rule": connection.rule,
    })
}

/// What becomes of a client that DNS leads past us, and by which choice: of IPv4, where there is one.
fn straight(told: &Told, explanation: &Explanation, state: &State) -> (Value, Value) {
    let is_told = |chosen: &&dns::Chosen| chosen.members.iter().any(|member| member.is_told);
    let chosen = told.chosen.iter().find(is_told).or(told.chosen.first());
    let choice = chosen.map(|chosen| members::of_dns(chosen, told.network, &state.guides));
    let mut clusters = chosen.iter().flat_map(|chosen| chosen.members.iter()).filter(|member| member.is_told);
    let first = clusters.next().map(|member| &member.cluster);
    let more = clusters.next().is_some();
    let reason = match (first, &explanation.route) {
        (None, _) => "DNS tells no address: no cluster that is well has one".to_owned(),
        (Some(cluster), Some(_)) if more => {
            format!("DNS leads to the ingress of Cluster {cluster}, and of others behind it")
        }
        (Some(cluster), Some(_)) => format!("DNS leads to the ingress of Cluster {cluster}, past the gateways"),
        (Some(cluster), None) => {
            format!(
                "DNS leads to the ingress of Cluster {cluster}, past the gateways; no rule has the path, so that it answers 404"
            )
        }
    };
    let verdict = json!({
        "kind": if first.is_some() { "Straight" } else { "Refused" },
        "code": if first.is_some() { "Straight" } else { "NoMember" },
        "blame": first.is_none().then_some(model::Blame::Backend.as_str()),
        "status": null,
        "location": null,
        "reason": reason,
        "rule": explanation.rule,
    });
    (verdict, choice.unwrap_or_default())
}

fn gateway_of(explanation: &Explanation, doors: &Doors, snapshot: &Snapshot) -> Value {
    let address = match explanation.door {
        DoorKind::Http => doors.http,
        DoorKind::Https => doors.https,
    };
    let shown = explanation.tls.as_ref().and_then(|tls| tls.shown.as_ref());
    json!({
        "door": explanation.door.label(),
        "served": address.is_some(),
        "address": address.map(|address| address.to_string()),
        "sharedWithSni": address.is_some() && address == doors.sni,
        "tls": match (&explanation.tls, shown) {
            (None, _) => "None",
            (Some(_), Some(_)) => "Terminated",
            (Some(_), None) => "Refused",
        },
        "certificate": shown.map(certificate),
        "noCertificate": explanation.tls.as_ref().filter(|_| shown.is_none()).map(|tls| why_none(tls, explanation, snapshot)),
    })
}

fn passing_gateway(connection: &gateway::explain::Explanation, doors: &Doors) -> Value {
    json!({
        "door": connection.door.label(),
        "served": connection.is_served,
        "address": doors.sni.map(|address| address.to_string()),
        "sharedWithSni": true,
        "tls": if connection.way.is_some() { "PassedThrough" } else { "Refused" },
        "certificate": null,
        "noCertificate": if connection.way.is_some() {
            let is_inside = connection.way.as_ref().is_some_and(|way| way.route.is_inside());
            json!([if is_inside {
                "TLS ends in the cluster, whose ingress controller has certificates of its own"
            } else {
                "TLS ends at the control plane, which has a certificate of its own"
            }])
        } else {
            json!([])
        },
    })
}

/// What clients see of it, and where it is from; never its key.
fn certificate(shown: &Shown) -> Value {
    let mut told = json!({
        "secret": shown.secret.as_ref().map(ToString::to_string),
        "tenant": shown.tenant.as_str(),
        "names": [],
        "notAfter": null,
    });
    let own = shown.certificate.chain.first();
    let Some((_, own)) = own.and_then(|der| x509_parser::parse_x509_certificate(der).ok()) else { return told };
    let names = own.subject_alternative_name().ok().flatten().map(|names| &names.value.general_names);
    let names = names.into_iter().flatten().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(Value::from(*name)),
        _ => None,
    });
    told["names"] = names.take(MOST_NAMES).collect();
    if let Ok(until) = u64::try_from(own.validity().not_after.timestamp()) {
        told["notAfter"] = Timestamp::from_unix(Duration::from_secs(until)).to_string().into();
    }
    told
}

/// What stands in the way of a certificate, line by line.
fn why_none(tls: &Tls, explanation: &Explanation, snapshot: &Snapshot) -> Vec<String> {
    let Some(name) = &tls.server_name else { return vec!["clients name no server in TLS for an address".into()] };
    let Some(host) = &explanation.host else { return vec![format!("no Ingress that is served has {name}")] };
    let mut why = Vec::new();
    for object in host.ingresses.iter().take(MOST_NAMES) {
        let Some(status) = snapshot.status(object) else { continue };
        let parts = status.detail.parts().into_iter().filter(|(part, _)| part.starts_with("tls["));
        why.extend(parts.filter_map(|(part, outcome)| {
            let refusal = &outcome.err()?.refusal;
            Some(format!("{part} of {object}: {}: {refusal}", refusal.code()))
        }));
    }
    if why.is_empty() {
        why.push(format!("no TLS entry of its Ingresses covers {name}"));
    }
    why
}

fn to_route(route: &RouteFound, host: &HostFound) -> Value {
    let Entry { object, tenant, backend, options, policy, .. } = &*route.entry;
    let (kind, path) = match &route.path {
        Some(path @ PathMatch::Exact(_)) => ("Exact", Some(path.as_str())),
        Some(path @ PathMatch::Prefix(_)) => ("Prefix", Some(path.as_str())),
        None => ("DefaultBackend", None),
    };
    json!({
        "ingress": object.to_string(),
        "tenant": tenant.as_str(),
        "host": host.place.to_string(),
        "hostRule": match host.by {
            HostRule::Name => "Name",
            HostRule::Wildcard => "Wildcard",
            HostRule::AnyHost => "AnyHost",
            HostRule::Apps => "Apps",
        },
        "pathType": kind,
        "path": path,
        "service": backend.service.as_str(),
        "port": match &backend.port {
            Port::Number(number) => json!(number),
            Port::Name(name) => json!(**name),
        },
        "entry": match policy.entry {
            EntryMode::Vip => "vip",
            EntryMode::Dns => "dns",
        },
        "steering": match &policy.steering {
            Steering::Geo => "geo",
            Steering::Latency => "latency",
            Steering::Weighted(_) => "weighted",
            Steering::Failover(_) => "failover",
            Steering::RoundRobin => "roundRobin",
        },
        "redirectToHttps": options.redirect_to_https,
    })
}

/// Whose a host is that nobody serves, for whoever wants to serve it.
fn owner(name: &DnsName, snapshot: &Snapshot) -> Value {
    let owners = snapshot.ground().owners(name);
    json!({
        "zone": names::zone_holding(name, snapshot).map(|(zone, _)| zone.name.as_str()),
        "suffix": owners.suffix.map(|suffix| suffix.to_string()),
        "cluster": owners.cluster.map(model::ClusterName::as_str),
        "tenants": owners.tenants.iter().map(model::ObjectName::as_str).collect::<Vec<_>>(),
        "controlPlaneOf": owners.control.map(model::ObjectName::as_str),
        "reservedBy": owners.reserved_by.map(model::ObjectName::as_str),
    })
}

/// The port of a URL is nothing that a door goes by, but clients do.
fn of_port(url: &Url, gateway: &Value) -> Option<String> {
    let address: SocketAddr = gateway["address"].as_str()?.parse().ok()?;
    let port = url.port.unwrap_or(if url.is_https { HTTPS } else { HTTP });
    let own = address.port();
    (port != own)
        .then(|| format!("the door listens on port {own}: clients of port {port} need something that leads there"))
}

fn of_source(explanation: &Explanation) -> Option<String> {
    let remark = "the address is a trusted proxy's: the client that it names counts, not itself";
    explanation.is_trusted_proxy.then(|| remark.to_owned())
}
