//! A request, from the name to the cluster, in words.

use serde_json::Value;

use super::{Topic, dns, links, list, refused, text, way};

pub(super) fn topics(answer: &Value) -> Vec<Topic> {
    let verdict = &answer["verdict"];
    let mut topics: Vec<Topic> = vec![("request", vec![question(&answer["asked"])]), ("verdict", told(verdict))];
    topics.push(("rule", vec![text(&verdict["rule"])]));
    if !answer["dns"].is_null() {
        topics.push(("DNS", dns(&answer["dns"])));
    }
    if !answer["gateway"].is_null() {
        topics.extend(gateway(&answer["gateway"]));
    }
    if !answer["route"].is_null() {
        topics.push(("route", route(&answer["route"])));
    }
    if !answer["connection"]["cluster"].is_null() {
        topics.extend(way(&answer["connection"]));
    }
    if !answer["choice"].is_null() {
        topics.extend(choice(&answer["choice"]));
    }
    if !answer["owner"].is_null() {
        topics.push(("owner", vec![owner(&answer["owner"])]));
    }
    topics.push(("remarks", list(&answer["remarks"]).map(text).collect()));
    topics.push(("refused", refused(answer)));
    topics
}

fn question(asked: &Value) -> String {
    let name = &asked["serverName"];
    let hello = if name.is_null() { String::new() } else { format!(" on a connection to {}", text(name)) };
    let from = if asked["from"].is_null() { String::new() } else { format!(" from {}", text(&asked["from"])) };
    format!("{}{hello}{from}", text(&asked["url"]))
}

fn told(verdict: &Value) -> Vec<String> {
    let (code, blame) = (text(&verdict["code"]), text(&verdict["blame"]));
    let status = if verdict["status"].is_null() { String::new() } else { format!(" ({})", text(&verdict["status"])) };
    let first = match verdict["kind"].as_str() {
        Some("Refused") => format!("refused with {code}{status}, blame: {blame}"),
        Some("Doubtful") => format!("likely forwarded, though no cluster is well, blame: {blame}"),
        Some("PassedThrough") if !verdict["blame"].is_null() => format!("likely {code}, blame: {blame}"),
        _ => format!("{}{status}", text(&verdict["kind"])),
    };
    vec![first, text(&verdict["reason"])]
}

fn gateway(gateway: &Value) -> Vec<Topic> {
    let door = text(&gateway["door"]);
    let place = match (gateway["address"].as_str(), gateway["sharedWithSni"].as_bool()) {
        (None, _) => format!("--{door}, which this fleetgate does not listen on"),
        (Some(_), Some(true)) if door != "sni" => {
            format!("--{door} at {}, shared with --sni", text(&gateway["address"]))
        }
        (Some(_), _) => format!("--{door} at {}", text(&gateway["address"])),
    };
    let tls = match gateway["tls"].as_str() {
        Some("Terminated") => "TLS ends here",
        Some("PassedThrough") => "TLS is passed through",
        Some("Refused") => "the TLS handshake is refused",
        _ => "no TLS",
    };
    let mut topics = vec![("gateway", vec![format!("{place}: {tls}")])];
    let certificate = &gateway["certificate"];
    if certificate.is_null() {
        topics
            .push(("certificate", list(&gateway["noCertificate"]).map(|why| format!("none: {}", text(why))).collect()));
    } else {
        let from =
            if certificate["secret"].is_null() { "of".into() } else { format!("{}, of", text(&certificate["secret"])) };
        let names: Vec<String> = list(&certificate["names"]).map(text).collect();
        let (tenant, until) = (text(&certificate["tenant"]), text(&certificate["notAfter"]));
        topics.push(("certificate", vec![format!("{from} Tenant {tenant}, for {}, until {until}", names.join(", "))]));
    }
    topics
}

fn route(route: &Value) -> Vec<String> {
    let field = |name| text(&route[name]);
    let backend = format!("Service {}, port {}", field("service"), field("port"));
    let redirect = if route["redirectToHttps"] == true { ", plain HTTP is redirected" } else { "" };
    vec![
        format!("{} of Tenant {}: {backend}", field("ingress"), field("tenant")),
        format!("entry {}, steering {}{redirect}", field("entry"), field("steering")),
    ]
}

fn choice(choice: &Value) -> Vec<Topic> {
    let (chosen, others): (Vec<&Value>, Vec<&Value>) =
        list(&choice["members"]).partition(|member| member["chosen"] == true);
    let mut client = Vec::new();
    let place = &choice["client"];
    if !place.is_null() {
        client.push(whereabouts(place));
    }
    match choice["situation"].as_str() {
        Some("Panic") => client.push("no cluster is well: all count as well".into()),
        Some("AllFull") => client.push("all clusters are full".into()),
        _ => {}
    }
    if choice["informed"] == false {
        client.push("this fleetgate neither serves requests nor checks clusters: of none is anything known".into());
    }
    let overflow = &choice["overflow"];
    if let (Some(demand), Some(shed)) = (overflow["demand"].as_f64(), overflow["shed"].as_f64()) {
        let home = if overflow["home"].is_null() { "no cluster in particular".into() } else { text(&overflow["home"]) };
        let refused = if shed > 0.0 { format!("; {:.1} % of them are refused", shed * 100.0) } else { String::new() };
        client.push(format!("of {demand:.0} requests/s here that belong to {home}{refused}"));
    }
    let lines = |members: Vec<&Value>| members.into_iter().map(member).collect();
    vec![("client", client), ("cluster", lines(chosen)), ("others", lines(others))]
}

fn whereabouts(place: &Value) -> String {
    let region = if place["region"].is_null() { String::new() } else { format!("region {}", text(&place["region"])) };
    match (place["latitude"].as_f64(), place["longitude"].as_f64()) {
        (Some(latitude), Some(longitude)) if region.is_empty() => format!("at {latitude:.1}, {longitude:.1}"),
        (Some(latitude), Some(longitude)) => format!("at {latitude:.1}, {longitude:.1}, {region}"),
        _ => region,
    }
}

/// Its name, why it stands where it does, and what else is known of it.
fn member(member: &Value) -> String {
    let reason = &member["reason"];
    let mut facts = vec![text(&reason["message"])];
    let code = reason["code"].as_str().unwrap_or_default();
    let load = &member["load"];
    if let Some(share) = load["share"].as_f64() {
        let why = text(&load["reason"]["message"]);
        let room = load["rate"].as_f64().map(|rate| format!(", takes {rate:.0} requests/s")).unwrap_or_default();
        facts.push(format!("gets {:.1} %: {why}{room}", share * 100.0));
    }
    if let Some(km) = member["distanceKm"].as_f64().filter(|_| !matches!(code, "Nearest" | "Farther")) {
        facts.push(format!("{km:.0} km away"));
    }
    if !member["unhealthy"].is_null() && code != "Unhealthy" {
        facts.push(format!("unhealthy: {}", text(&member["unhealthy"])));
    }
    if member["full"] == true && code != "Full" {
        facts.push("full".into());
    }
    if let Some(ms) = member["roundTripMs"].as_f64().filter(|_| !matches!(code, "Fastest" | "Slower")) {
        facts.push(format!("answers in {ms:.1} ms"));
    }
    if let Some(count) = member["inFlight"].as_u64().filter(|count| *count > 0) {
        facts.push(format!("{count} requests under way"));
    }
    let addresses: Vec<String> = list(&member["addresses"]).map(text).collect();
    if !addresses.is_empty() {
        facts.push(format!("at {}", addresses.join(", ")));
    }
    if !member["links"].is_null() {
        facts.push(links(&member["links"]));
    }
    format!("{}: {}", text(&member["cluster"]), facts.join("; "))
}

/// One type of a steered name, on a line.
pub(super) fn steered(steered: &Value) -> String {
    let one = |member: &Value| {
        let chosen = if member["chosen"] == true { "" } else { "not " };
        format!("{chosen}{} ({})", text(&member["cluster"]), text(&member["reason"]["message"]))
    };
    let members: Vec<String> = list(&steered["members"]).map(one).collect();
    format!("{} of {}", text(&steered["type"]), members.join(", "))
}

fn owner(owner: &Value) -> String {
    let zone = if owner["zone"].is_null() { "in no Zone".into() } else { format!("in Zone {}", text(&owner["zone"])) };
    let tenants: Vec<String> = list(&owner["tenants"]).map(text).collect();
    let suffix = text(&owner["suffix"]);
    let whose = match tenants.as_slice() {
        _ if !owner["reservedBy"].is_null() => format!("kept by Zone {} itself", text(&owner["reservedBy"])),
        _ if !owner["controlPlaneOf"].is_null() => {
            format!("of a control plane of Tenant {}", text(&owner["controlPlaneOf"]))
        }
        [] => "no Tenant may have it".into(),
        [tenant] if !owner["cluster"].is_null() => {
            format!("Tenant {tenant} may have it, below {suffix} of Cluster {}", text(&owner["cluster"]))
        }
        [tenant] => format!("Tenant {tenant} may have it, below {suffix}"),
        several => format!("of Tenants {} the first may have it, below {suffix}", several.join(", ")),
    };
    format!("{zone}; {whose}")
}
