//! `fleetgate explain`: where a connection, a query or a request would go, and why.

mod request;

use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::Value;

use crate::admin::encode;
use crate::arguments::{ExplainFormat, ExplainOptions};
use crate::paint::Paint;
use crate::table;

pub(crate) fn run(options: &ExplainOptions, paint: Paint) -> anyhow::Result<ExitCode> {
    let answer = options.running.ask(&path(options))?;
    table::write(&match options.output {
        ExplainFormat::Json => format!("{answer:#}\n"),
        ExplainFormat::Yaml => serde_saphyr::to_string(&answer).context("writing YAML")?,
        ExplainFormat::Text => tell(&answer, paint),
    });
    Ok(ExitCode::SUCCESS)
}

fn path(options: &ExplainOptions) -> String {
    let from = options.from.map(|from| from.to_string());
    let proof = options.proof.then(|| "true".to_owned());
    let is_url = options.name.as_ref().is_some_and(|name| name.contains("://"));
    let asked = if is_url { "url" } else { "name" };
    let fields = [
        (asked, &options.name),
        ("tlv", &options.tlv),
        ("serverName", &options.server_name),
        ("from", &from),
        ("proof", &proof),
    ];
    let fields = fields.into_iter().filter_map(|(field, value)| Some(format!("{field}={}", encode(value.as_ref()?))));
    format!("/v1/explain?{}", fields.collect::<Vec<_>>().join("&"))
}

/// A word and what there is to say about it, which may take several lines.
type Topic = (&'static str, Vec<String>);

/// The words bold; the verdict and who is refused in the colour of how it ends.
fn tell(answer: &Value, paint: Paint) -> String {
    let topics = if answer["asked"]["url"].is_null() { of_connection(answer) } else { request::topics(answer) };
    let verdict =
        if answer["asked"]["url"].is_null() { &answer["connection"]["verdict"] } else { &answer["verdict"]["kind"] };
    let is_doubtful = verdict == "Doubtful" || answer["verdict"]["blame"].is_string();
    let ends = |line: &str| match verdict.as_str() {
        Some("Refused") => paint.red(line),
        _ if is_doubtful => paint.yellow(line),
        _ => paint.green(line),
    };
    let told = topics.iter().flat_map(|(word, lines)| {
        lines.iter().enumerate().map(move |(number, line)| {
            let label = if number == 0 { word } else { "" };
            let line = match *word {
                "verdict" if number == 0 => ends(line),
                "refused" => paint.red(line),
                _ => line.clone(),
            };
            let room = " ".repeat(12_usize.saturating_sub(label.len()));
            format!("{}{room}{line}\n", paint.bold(label))
        })
    });
    told.collect()
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

    #[test]
    fn the_verdict_has_the_colour_of_how_it_ends() {
        let paint = Paint { is_on: true };
        for (verdict, colour) in [("Established", "\x1b[32m"), ("Doubtful", "\x1b[33m"), ("Refused", "\x1b[31m")] {
            let answer = serde_json::json!({ "asked": { "name": "a.test" }, "connection": { "verdict": verdict, "code": "Code" } });
            let told = tell(&answer, paint);
            let line = told.lines().find(|line| line.contains("verdict")).unwrap();
            assert!(line.contains(colour), "{told:?}");
            let answer = serde_json::json!({ "asked": { "url": "http://a.test" }, "verdict": { "kind": verdict } });
            assert!(tell(&answer, paint).contains(colour), "{verdict}");
        }
    }
}
