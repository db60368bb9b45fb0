//! `fleetgate get`: objects of a running fleetgate, with their status; what is refused, what is in DNS, and every way in.

mod routes;
mod what;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;
use model::DnsName;
use model::identity::Kind;
use model::snapshot::Condition;
use serde_json::{Value, json};

use crate::admin::{self, encode};
use crate::advice::Advise as _;
use crate::arguments::{GetOptions, OutputFormat};
use crate::paint::Paint;
use crate::table;
pub(crate) use what::What;

/// As many as a page may have.
const PAGE: usize = 1000;

pub(crate) fn run(options: &GetOptions, paint: Paint) -> anyhow::Result<ExitCode> {
    let Some(what) = options.kind else {
        print(&kinds(), options.output, paint, list_kinds)?;
        return Ok(ExitCode::SUCCESS);
    };
    let path = path(what, options)?;
    let answer = match what {
        What::Routes => options.running.ask_pages(&path),
        _ => options.running.ask(&path),
    };
    let answer = admin::advise_missing(answer, &listed(what, options))?;
    match what {
        What::Refusals => print(&answer, options.output, paint, refusals),
        What::Names => print(&answer, options.output, paint, names),
        What::Routes => print(&answer, options.output, paint, routes::render),
        What::Objects(_) => print(&answer, options.output, paint, objects),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn print(answer: &Value, form: OutputFormat, paint: Paint, to_table: fn(&Value) -> String) -> anyhow::Result<()> {
    match form {
        OutputFormat::Json => table::write(&format!("{answer:#}\n")),
        OutputFormat::Yaml => table::write(&serde_saphyr::to_string(answer).context("writing YAML")?),
        OutputFormat::Table => table::show(&to_table(answer), paint),
    }
    Ok(())
}

/// What can be asked for.
fn kinds() -> Value {
    let kind = |what: &What| json!({ "kind": what.word(), "namespaced": what.is_namespaced(), "about": what.about() });
    json!({ "items": What::value_variants().iter().map(kind).collect::<Vec<_>>() })
}

fn list_kinds(answer: &Value) -> String {
    let rows: Vec<Vec<String>> = answer["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|kind| ["kind", "about"].map(|field| kind[field].as_str().unwrap_or_default().to_owned()).to_vec())
        .collect();
    table::render(&["KIND", "WHAT IT SHOWS"], &rows)
}

/// How a list is asked for.
fn listed(what: What, options: &GetOptions) -> String {
    let namespace = options.namespace.as_ref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    format!("{}{namespace}", what.word())
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

fn path(what: What, options: &GetOptions) -> anyhow::Result<String> {
    let kind = match what {
        What::Objects(kind) => kind,
        _ if options.namespace.is_some() => {
            return Err(anyhow::anyhow!("{} have no namespace", what.word())).advise(|| "leave -n out".into());
        }
        What::Refusals if options.name.is_some() => {
            return Err(anyhow::anyhow!("refusals have no names")).advise(|| "leave NAME out".into());
        }
        What::Refusals => return Ok("/v1/refusals".into()),
        What::Names => {
            return Ok(format!("/v1/records{}", below(options)?.map(|at| format!("?{at}")).unwrap_or_default()));
        }
        What::Routes => {
            let below = below(options)?.map(|at| format!("&{at}")).unwrap_or_default();
            return Ok(format!("/v1/routes?limit={PAGE}{below}"));
        }
    };
    let plural = kind.plural();
    let plain = |text: &str| text.bytes().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.'));
    for text in [&options.name, &options.namespace].into_iter().flatten() {
        if text.is_empty() || !plain(text) {
            bail!("{text:?} is no name of an object");
        }
    }
    match (&options.name, &options.namespace) {
        (Some(name), Some(namespace)) if kind.is_namespaced() => Ok(format!("/v1/objects/{plural}/{namespace}/{name}")),
        (Some(name), None) if kind.is_namespaced() => Err(anyhow::anyhow!("{kind} {name} is in a namespace"))
            .advise(|| format!("give it with -n; `fleetgate get {plural}` lists all with their namespaces")),
        (_, Some(_)) if !kind.is_namespaced() => {
            Err(anyhow::anyhow!("{kind} objects have no namespace")).advise(|| "leave -n out".into())
        }
        (Some(name), _) => Ok(format!("/v1/objects/{plural}/{name}")),
        (None, Some(namespace)) => Ok(format!("/v1/objects/{plural}?namespace={namespace}")),
        (None, None) => Ok(format!("/v1/objects/{plural}")),
    }
}

/// A name and what is below it; of routes also a cluster, which has no dot.
fn below(options: &GetOptions) -> anyhow::Result<Option<String>> {
    let Some(name) = &options.name else { return Ok(None) };
    if options.kind == Some(What::Routes) && !name.contains('.') {
        return Ok(Some(format!("cluster={}", encode(name))));
    }
    let name = DnsName::parse(name)
        .with_context(|| format!("{name:?} is no name"))
        .advise(|| "give a DNS name, such as c1.fleet.example".into())?;
    Ok(Some(format!("under={}", encode(&name.to_string()))))
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
            (condition["status"] == "False") != Condition::EXCEPTIONS.iter().any(|kind| condition["type"] == *kind)
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
