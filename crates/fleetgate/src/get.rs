//! `fleetgate get`: objects of a running fleetgate, with their status; what is refused, and what is in DNS.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use model::DnsName;
use model::identity::Kind;
use serde_json::Value;

use crate::admin;
use crate::arguments::{GetOptions, OutputFormat};
use crate::table;

/// What is no kind of object, and can be asked for all the same.
const REFUSALS: &str = "refusals";
const NAMES: &str = "names";
/// Conditions that are only there while something is out of the ordinary; the others should hold.
const EXCEPTIONS: [&str; 2] = ["WithdrawalsHeld", "Drained"];

pub(crate) fn run(options: &GetOptions) -> anyhow::Result<ExitCode> {
    let path = path(options)?;
    let mut answer = admin::ask(options.running.admin, &path)?;
    if options.kind == NAMES
        && let Some(below) = &options.name
    {
        keep_below(&mut answer, below)?;
    }
    match options.output {
        OutputFormat::Json => println!("{answer:#}"),
        OutputFormat::Yaml => print!("{}", serde_saphyr::to_string(&answer).context("writing YAML")?),
        OutputFormat::Table if options.kind == REFUSALS => table::show(&refusals(&answer)),
        OutputFormat::Table if options.kind == NAMES => table::show(&names(&answer)),
        OutputFormat::Table => table::show(&objects(&answer)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Of the sets of records those whose name is this one, or below it.
fn keep_below(answer: &mut Value, name: &str) -> anyhow::Result<()> {
    let apex = DnsName::parse(name).with_context(|| format!("{name:?} is no name"))?;
    if let Some(sets) = answer["sets"].as_array_mut() {
        let is_below = |set: &Value| set["name"].as_str().and_then(|name| DnsName::parse(name).ok());
        sets.retain(|set| is_below(set).is_some_and(|name| name.is_at_or_under(&apex)));
    }
    Ok(())
}

fn names(answer: &Value) -> String {
    let sets = answer["sets"].as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = sets
        .map(|set| {
            let records = set["records"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let text = |field: &str| set[field].as_str().unwrap_or("-").to_owned();
            vec![text("name"), text("type"), set["ttl"].to_string(), records.collect::<Vec<_>>().join(", ")]
        })
        .collect();
    if rows.is_empty() { "nothing found\n".into() } else { table::render(&["NAME", "TYPE", "TTL", "RECORDS"], &rows) }
}

fn path(options: &GetOptions) -> anyhow::Result<String> {
    match options.kind.as_str() {
        REFUSALS => return Ok("/v1/refusals".into()),
        NAMES => return Ok("/v1/records".into()),
        _ => {}
    }
    let Some(kind) = Kind::find(&options.kind) else {
        let known = Kind::ALL.map(Kind::plural).join(", ");
        bail!("no kind is called {}; there are {known}, {NAMES} and {REFUSALS}", options.kind);
    };
    let plural = kind.plural();
    let plain = |text: &str| text.bytes().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.'));
    for text in [&options.name, &options.namespace].into_iter().flatten() {
        if text.is_empty() || !plain(text) {
            bail!("{text:?} is no name of an object");
        }
    }
    match (&options.name, &options.namespace) {
        (Some(name), Some(namespace)) => Ok(format!("/v1/objects/{plural}/{namespace}/{name}")),
        (Some(name), None) if kind.is_namespaced() => bail!("{kind} {name} is in a namespace: give it with -n"),
        (Some(name), None) => Ok(format!("/v1/objects/{plural}/{name}")),
        (None, Some(namespace)) => Ok(format!("/v1/objects/{plural}?namespace={namespace}")),
        (None, None) => Ok(format!("/v1/objects/{plural}")),
    }
}

fn objects(answer: &Value) -> String {
    let items: Vec<&Value> = answer["items"].as_array().map_or_else(|| vec![answer], |items| items.iter().collect());
    let Some(kind) = items.first().and_then(|item| Kind::find(item["kind"].as_str()?)) else {
        return "nothing found\n".into();
    };
    let text = |value: &Value| {
        value.as_str().map_or_else(|| if value.is_null() { "-".into() } else { value.to_string() }, str::to_owned)
    };
    let condition = |item: &Value, kind: &str| {
        let conditions = item["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|condition| condition["type"] == kind).map(|condition| text(&condition["reason"])).next()
    };
    let accepted = |item: &Value| condition(item, "Accepted").unwrap_or_else(|| "-".into());
    let message = |item: &Value| {
        let conditions = item["status"]["conditions"].as_array().into_iter().flatten();
        let wrong = |condition: &&Value| {
            (condition["status"] == "False") != EXCEPTIONS.iter().any(|kind| condition["type"] == *kind)
        };
        let wrong = conditions.filter(wrong);
        wrong.filter_map(|condition| condition["message"].as_str()).collect::<Vec<_>>().join("; ")
    };
    let name = |item: &Value| text(&item["metadata"]["name"]);
    match kind {
        Kind::Cluster => table::render(
            &["NAME", "TENANT", "API", "READY", "ACCEPTED", "REMARKS"],
            &rows(&items, |item| {
                let status = &item["status"];
                let spec = &item["spec"];
                vec![
                    name(item),
                    text(&spec["tenant"]),
                    text(&status["apiName"]),
                    text(&status["readyNodes"]),
                    accepted(item),
                    message(item),
                ]
            }),
        ),
        Kind::Zone => table::render(
            &["NAME", "DOMAIN", "SERIAL", "ACCEPTED", "REMARKS"],
            &rows(&items, |item| {
                vec![
                    name(item),
                    text(&item["spec"]["domain"]),
                    text(&item["status"]["serial"]),
                    accepted(item),
                    message(item),
                ]
            }),
        ),
        Kind::Ingress => table::render(
            &["NAMESPACE", "NAME", "HOSTS", "MEMBERS", "ACCEPTED", "REMARKS"],
            &rows(&items, |item| {
                let list = |value: &Value| {
                    let words = value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
                    if words.is_empty() { "-".to_owned() } else { words.join(",") }
                };
                let rules = item["spec"]["rules"].as_array().into_iter().flatten();
                let hosts: Value = rules.map(|rule| rule["host"].as_str().unwrap_or("*")).collect();
                vec![
                    text(&item["metadata"]["namespace"]),
                    name(item),
                    list(&hosts),
                    list(&item["status"]["members"]),
                    accepted(item),
                    ingress_remarks(item, &message(item)),
                ]
            }),
        ),
        kind if kind.is_namespaced() => table::render(
            &["NAMESPACE", "NAME", "ACCEPTED", "REMARKS"],
            &rows(&items, |item| vec![text(&item["metadata"]["namespace"]), name(item), accepted(item), message(item)]),
        ),
        _ => table::render(
            &["NAME", "ACCEPTED", "REMARKS"],
            &rows(&items, |item| vec![name(item), accepted(item), message(item)]),
        ),
    }
}

/// What is wrong, and with which of its parts.
fn ingress_remarks(item: &Value, message: &str) -> String {
    let parts = item["status"]["parts"].as_array().into_iter().flatten().filter(|part| part["published"] == false);
    let told = |part: &Value| {
        let text = |field: &str| part[field].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", text("part"), text("code"))
    };
    let parts = parts.map(told).collect::<Vec<_>>().join(", ");
    [message, &parts].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
}

fn rows(items: &[&Value], row: impl Fn(&Value) -> Vec<String>) -> Vec<Vec<String>> {
    items.iter().map(|item| row(item)).collect()
}

fn refusals(answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut rows = Vec::new();
    if let Some(reason) = answer["folder"].as_str() {
        rows.push(vec!["folder".into(), String::new(), reason.into()]);
    }
    for file in answer["files"].as_array().into_iter().flatten() {
        let place = format!("{}:{}:{}", text(&file["file"]), file["line"], file["column"]);
        rows.push(vec![place, "File".into(), text(&file["message"])]);
    }
    for object in answer["objects"].as_array().into_iter().flatten() {
        let place = object["namespace"].as_str().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let part = object["part"].as_str().map(|part| format!(" ({part})")).unwrap_or_default();
        let name = format!("{} {place}{}{part}", text(&object["kind"]), text(&object["name"]));
        rows.push(vec![name, text(&object["code"]), text(&object["message"])]);
    }
    if rows.is_empty() { "nothing is refused\n".into() } else { table::render(&["WHAT", "CODE", "WHY"], &rows) }
}
