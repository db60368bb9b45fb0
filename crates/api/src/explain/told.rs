//! What an explanation says, in words for people: for `fleetgate explain` and for the dashboard.

mod request;

use serde_json::Value;

/// A word and what there is to say about it, which may take several lines.
pub type Topic = (&'static str, Vec<String>);

/// Of an answer of `/v1/explain`, in the order in which people ask; those of which there is nothing to say are left out.
pub fn topics(answer: &Value) -> Vec<Topic> {
    let mut topics = if answer["asked"]["url"].is_null() { of_connection(answer) } else { request::topics(answer) };
    topics.retain(|(_, lines)| !lines.is_empty());
    topics
}

fn of_connection(answer: &Value) -> Vec<Topic> {
    let connection = &answer["connection"];
    let mut topics: Vec<Topic> = vec![("connection", vec![question(answer)]), ("verdict", verdict(connection))];
    topics.push(("rule", vec![text(&connection["rule"])]));
    if !connection["cluster"].is_null() {
        topics.extend(way(connection));
    }
    if !answer["dns"].is_null() {
        let mut lines = dns(&answer["dns"]);
        lines.extend(list(&answer["dns"]["steered"]).map(request::steered));
        topics.push(("DNS", lines));
    }
    topics.push(("refused", refused(answer)));
    topics
}

/// Who wants the same and may not have it.
fn refused(answer: &Value) -> Vec<String> {
    let refused = list(&answer["refused"]).map(|object| {
        let field = |name| text(&object[name]);
        let namespace = object["namespace"].as_str().map(|_| format!("{}/", field("namespace"))).unwrap_or_default();
        let object = format!("{} {namespace}{}", field("kind"), field("name"));
        format!("{object} wants the same: {}: {}", field("code"), field("message"))
    });
    refused.collect()
}

fn question(answer: &Value) -> String {
    let (asked, connection) = (&answer["asked"], &answer["connection"]);
    let selector = if asked["clusterId"].is_null() {
        format!("by server name {}", text(&asked["name"]))
    } else {
        format!("by cluster id \"{}\"", text(&asked["clusterId"]))
    };
    let proof = if asked["proof"] == true { " and a good proof" } else { "" };
    let from = if asked["from"].is_null() { String::new() } else { format!(" from {}", text(&asked["from"])) };
    let door = text(&connection["door"]);
    let served = if connection["served"] == true { "" } else { ", which this fleetgate does not listen on" };
    format!("{selector}{proof}{from} through --{door}{served}")
}

fn verdict(connection: &Value) -> Vec<String> {
    let code = text(&connection["code"]);
    let blame = text(&connection["blame"]);
    let first = match connection["verdict"].as_str() {
        Some("Established" | "Terminated") => code,
        Some("Doubtful") => format!("likely {code}, blame: {blame}"),
        _ => format!("refused with {code}, blame: {blame}"),
    };
    vec![first, text(&connection["reason"])]
}

fn way(connection: &Value) -> Vec<Topic> {
    let (cluster, tenant) = (text(&connection["cluster"]), text(&connection["tenant"]));
    let place = format!("{cluster} of Tenant {tenant}, {}", text(&connection["service"]));
    let mut topics = vec![("cluster", vec![place]), ("source", source(connection))];
    let proof = &connection["proof"];
    if !proof.is_null() {
        let required = if proof["required"] == true { "required" } else { "not required" };
        topics.push(("proof", vec![format!("{required}, {} keys to check it by", text(&proof["keys"]))]));
    }
    let limits = &connection["limits"];
    let of_cluster = fullness(&format!("Cluster {cluster}"), &limits["cluster"]);
    topics.push(("limits", vec![of_cluster, fullness(&format!("Tenant {tenant}"), &limits["tenant"])]));
    let tunnel = &connection["tunnel"];
    if tunnel.is_null() {
        topics.push(("upstreams", (1..).zip(list(&connection["upstreams"])).map(upstream).collect()));
    } else {
        let targets: Vec<String> = list(&tunnel["targets"]).map(text).collect();
        topics.push(("tunnel", vec![format!("to {}; {}", targets.join(", "), links(&tunnel["links"]))]));
    }
    topics
}

/// By how many ways a cluster is reached through the tunnel.
fn links(links: &Value) -> String {
    match links.as_u64() {
        None | Some(0) => "no link".to_owned(),
        Some(1) => "one link".to_owned(),
        Some(links) => format!("{links} links"),
    }
}

fn source(connection: &Value) -> Vec<String> {
    let source = &connection["source"];
    let ranges: Vec<String> = list(&source["allowedSources"]).map(text).collect();
    let ranges = if ranges.is_empty() { "nobody".into() } else { ranges.join(", ") };
    let mut lines = vec![match source["allowed"].as_bool() {
        Some(true) => format!("allowed by {}", text(&source["allowedBy"])),
        Some(false) => format!("not allowed; allowed: {ranges}"),
        None => format!("any that is allowed: {ranges}"),
    }];
    if connection["trustedProxy"] == true {
        lines.push("the address is a trusted proxy's: the client that it names counts, not itself".into());
    }
    lines
}

fn fullness(whose: &str, level: &Value) -> String {
    let (open, left) = (text(&level["open"]), text(&level["newLeft"]));
    let new = |rate: &Value| format!("{left} of {} new ones per second left", text(rate));
    match (&level["connections"], &level["newConnectionsPerSecond"]) {
        (Value::Null, Value::Null) => format!("{whose}: {open} open, no limits"),
        (limit, Value::Null) => format!("{whose}: {open} of {} open", text(limit)),
        (Value::Null, rate) => format!("{whose}: {open} open, {}", new(rate)),
        (limit, rate) => format!("{whose}: {open} of {} open, {}", text(limit), new(rate)),
    }
}

fn upstream((number, upstream): (usize, &Value)) -> String {
    let health = match upstream["health"].as_str() {
        Some("Healthy") => "healthy",
        Some("Unhealthy") => "unhealthy",
        _ => "not checked",
    };
    let ejected = if upstream["ejected"] == true { ", could not be reached of late" } else { "" };
    format!("{number}. {}: {health}{ejected}, {} open", text(&upstream["address"]), text(&upstream["open"]))
}

fn dns(dns: &Value) -> Vec<String> {
    let zone = if dns["zone"].is_null() {
        "no Zone that is served holds the name".into()
    } else {
        format!("from Zone {}", text(&dns["zone"]))
    };
    // Who asks matters where addresses are chosen.
    let (subnet, is_steered) = (&dns["clientSubnet"], list(&dns["steered"]).next().is_some());
    let network = if is_steered && !subnet.is_null() { format!(", for {}", text(subnet)) } else { String::new() };
    let mut lines = vec![format!("{} {zone}{network}", text(&dns["rcode"]))];
    lines.extend(list(&dns["records"]).map(|record| {
        let field = |name| text(&record[name]);
        format!("{} {} {} {} ({})", field("name"), field("ttl"), field("type"), field("data"), field("from"))
    }));
    if list(&dns["records"]).next().is_none() && dns["rcode"] == "NOERROR" {
        lines.push("the name exists and has no addresses".into());
    }
    lines.extend(list(&dns["remarks"]).map(text));
    lines.extend(list(&dns["recent"]).map(|query| {
        let field = |name| text(&query[name]);
        let (at, client, transport) = (field("at"), field("client"), field("transport"));
        format!("{at} {client} asked over {transport}: {} {}, {}", field("type"), field("rcode"), field("reason"))
    }));
    lines
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// On one line and without what a terminal would obey: ids are whatever somebody typed or sent.
fn text(value: &Value) -> String {
    let harmless = |letter: char| match letter {
        letter if letter.is_control() => letter.escape_default().collect(),
        letter => String::from(letter),
    };
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.chars().map(harmless).collect(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing() {
        assert_eq!(text(&Value::from("a\u{1b}[2J\nü\"")), "a\\u{1b}[2J\\nü\"");
    }
}
