//! The reference of our kinds, page by page, made from their definitions: what a hub is told of them is what people read.

use std::fmt::Write as _;

use model::identity::Kind;
use model::snapshot::Condition;
use serde_json::Value;

use crate::crds;
use crate::status::ClusterStatus;

/// Stands at the top of every page.
pub const NOTICE: &str = "<!-- Written by `make reference`, from the sources: do not edit it here. -->\n";

/// A page in Markdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// `zone.md`.
    pub file: String,
    /// `Zone`.
    pub title: String,
    /// One sentence.
    pub about: String,
    pub text: String,
}

/// One for each kind. `examples` are files by their paths; the first object of a kind is shown.
pub fn pages(examples: &[(String, String)]) -> Vec<Page> {
    let definitions = crds::all().into_iter();
    let definitions =
        definitions.map(|crd| serde_json::to_value(crd).expect("a definition is made of texts and numbers"));
    definitions.map(|crd| page(&crd, examples)).collect()
}

fn page(crd: &Value, examples: &[(String, String)]) -> Page {
    let spec = &crd["spec"];
    let (kind, version) = (text(&spec["names"]["kind"]), &spec["versions"][0]);
    let schema = &version["schema"]["openAPIV3Schema"];
    let about_kind = about(schema);
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let scope = if spec["scope"] == "Namespaced" { "in the tenant's namespace" } else { "cluster-scoped" };
    let mut page = format!("{NOTICE}\n# {kind}\n\n{about_kind}\n\n");
    let shown = Kind::find(&plural).map(|kind| format!(", `fleetgate get {}`", kind.plural())).unwrap_or_default();
    let version_name = text(&version["name"]);
    _ = write!(
        page,
        "`apiVersion: {group}/{version_name}`, `kind: {kind}`; {scope}; `kubectl get {plural}.{group}`{shown}."
    );
    if matches!(kind.as_str(), "Address" | "Verdict") {
        page.push_str(" Fleetgate writes it, and nobody else does.");
    }
    page.push_str("\n\n");
    if let Some((path, example)) = find_example(&kind, examples) {
        _ = write!(page, "## Example\n\nFrom `{path}`:\n\n```yaml\n{example}```\n\n");
    }
    let (asked, told) = (&schema["properties"]["spec"], &schema["properties"]["status"]);
    page.push_str(
        "## spec\n\nWhat is asked for.\n\n| field | type | default | what it says | rules |\n|---|---|---|---|---|\n",
    );
    for Field { path, schema, is_required } in fields(asked) {
        let default = match &schema["default"] {
            // Those of its fields say more.
            Value::Null | Value::Object(_) if is_required => "required".to_owned(),
            Value::Null | Value::Object(_) => String::new(),
            default => format!("`{default}`"),
        };
        add_row(
            &mut page,
            &[&format!("`{path}`"), &type_of(schema), &default, &about(schema), &rules(schema).join("; ")],
        );
    }
    page.push('\n');
    if !told.is_null() {
        page.push_str("## status\n\nWhat Fleetgate says of it.\n\n| field | type | what it says |\n|---|---|---|\n");
        for Field { path, schema, .. } in fields(told) {
            add_row(&mut page, &[&format!("`{path}`"), &type_of(schema), &about(schema)]);
        }
        page.push('\n');
    }
    let conditions = conditions(&kind);
    if !conditions.is_empty() {
        page.push_str("## Conditions\n\n`status.conditions`, by type. Reasons of those that are `False` are codes of [refusals](../refusals.md).\n\n");
        page.push_str("| type | what it says when it is `True` |\n|---|---|\n");
        for (name, meaning) in conditions {
            add_row(&mut page, &[&format!("`{name}`"), meaning]);
        }
        page.push('\n');
    }
    page.push_str("## Columns\n\nOf `kubectl get`:\n\n| column | from |\n|---|---|\n");
    for column in list(&version["additionalPrinterColumns"]) {
        _ = writeln!(page, "| {} | `{}` |", text(&column["name"]), text(&column["jsonPath"]).trim_start_matches('.'));
    }
    Page { file: format!("{}.md", kind.to_ascii_lowercase()), title: kind, about: about_kind, text: page }
}

fn add_row(page: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    _ = writeln!(page, "| {} |", cells.join(" | "));
}

struct Field<'a> {
    path: String,
    schema: &'a Value,
    is_required: bool,
}

/// One after the other, the fields of a field right behind it.
fn fields(schema: &Value) -> Vec<Field<'_>> {
    let required: Vec<&str> = list(&schema["required"]).filter_map(Value::as_str).collect();
    let mut found = Vec::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        found.push(Field { path: name.clone(), schema: field, is_required: required.contains(&name.as_str()) });
        // Kubernetes' own, and the same everywhere.
        if name == "conditions" {
            continue;
        }
        for (link, inner) in [(".", field), ("[].", &field["items"]), (".*.", &field["additionalProperties"])] {
            let below = fields(inner).into_iter();
            found.extend(below.map(|field| Field { path: format!("{name}{link}{}", field.path), ..field }));
        }
    }
    found
}

fn about(schema: &Value) -> String {
    one_line(&text(&schema["description"]))
}

fn type_of(schema: &Value) -> String {
    let by_rule = list(&schema["x-kubernetes-validations"]).find_map(|rule| by_message(rule["message"].as_str()?));
    let by_pattern = schema["pattern"].as_str().and_then(named).or(by_rule);
    match schema["type"].as_str() {
        _ if schema["enum"].is_array() => {
            let words = list(&schema["enum"]).filter(|word| !word.is_null()).map(|word| format!("`{}`", text(word)));
            words.collect::<Vec<_>>().join(", ")
        }
        Some("string") if schema["format"] == "date-time" => "time".into(),
        Some("string") => by_pattern.unwrap_or("text").into(),
        Some("integer") => "whole number".into(),
        Some("number") => "number".into(),
        Some("boolean") => "yes or no".into(),
        Some("array") => format!("list of {}", plural(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map to {}", type_of(&schema["additionalProperties"]))
        }
        Some("object") => "object".into(),
        _ => "anything".into(),
    }
}

fn plural(schema: &Value) -> String {
    match type_of(schema).as_str() {
        words if words.starts_with('`') || words == "anything" => words.to_owned(),
        "IP address" => "IP addresses".into(),
        "address with port" => "addresses with port".into(),
        one => format!("{one}s"),
    }
}

/// The forms that have a name of their own: nobody reads a pattern of three lines.
fn named(pattern: &str) -> Option<&'static str> {
    Some(match pattern {
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" => "DNS label",
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" => "object name",
        "^([0-9]{1,9}(ms|s|m|h))+$" => "duration",
        "^[!-~]+$" => "visible text",
        long if long.contains(r"\{cluster\}") => "name template",
        long if long.starts_with(r"^(\.|(") => "DNS name",
        _ => return None,
    })
}

/// The same by what a hub says of what has another form.
fn by_message(message: &str) -> Option<&'static str> {
    Some(match message {
        "must be an IPv4 or IPv6 address" => "IP address",
        message if message.starts_with("must be an IPv4 or IPv6 address with its port") => "address with port",
        message if message.starts_with("must be a CIDR") => "CIDR",
        "a DNS name has at most 255 octets" => "DNS name",
        _ => return None,
    })
}

/// In the words in which a hub refuses what breaks them, where it has such.
fn rules(schema: &Value) -> Vec<String> {
    let mut rules = Vec::new();
    let number = |field: &str| schema[field].as_f64();
    // As many as a machine counts is no rule for people.
    let most = number("maximum").filter(|most| *most < f64::from(u32::MAX));
    match (number("minimum").filter(|least| *least != 0.0 || most.is_some()), most) {
        (Some(least), Some(most)) => rules.push(format!("{least} to {most}")),
        (Some(least), None) => rules.push(format!("at least {least}")),
        (None, Some(most)) => rules.push(format!("at most {most}")),
        (None, None) => {}
    }
    let items = |count: u64| if count == 1 { "1 item".to_owned() } else { format!("{count} items") };
    rules.extend(schema["minItems"].as_u64().map(|least| format!("at least {}", items(least))));
    rules.extend(schema["maxItems"].as_u64().map(|most| format!("at most {}", items(most))));
    let pattern = schema["pattern"].as_str();
    let messages: Vec<&Value> = list(&schema["x-kubernetes-validations"]).collect();
    // What a rule, or the type, says in words is enough.
    if messages.is_empty() && pattern.is_none_or(|pattern| named(pattern).is_none()) {
        rules.extend(schema["maxLength"].as_u64().map(|most| format!("at most {most} characters")));
        rules.extend(pattern.map(|pattern| format!("matches `{pattern}`")));
    }
    rules.extend(messages.into_iter().filter_map(|rule| match rule["message"].as_str() {
        Some(message) if by_message(message).is_some() => None,
        Some(message) => Some(one_line(message)),
        None => Some(format!("`{}`", text(&rule["rule"]))),
    }));
    let item = &schema["items"];
    if !item.is_null() && item["type"] != "object" {
        rules.extend(self::rules(item));
    }
    rules
}

fn conditions(kind: &str) -> Vec<(&'static str, &'static str)> {
    let accepted = (Condition::ACCEPTED, "It is valid, clashes with nothing that was there before, and counts.");
    match kind {
        "Zone" | "FederationPolicy" => vec![accepted],
        "Tenant" => vec![
            accepted,
            (
                Condition::NAMESPACE_OWNED,
                "Objects in its namespace are its own. Told only where another Tenant has the namespace.",
            ),
            (
                Condition::WITHDRAWALS_HELD,
                "Names would go in a mass and are served on, until somebody releases them ([withdrawals](../withdrawals.md)). Told only while they are.",
            ),
        ],
        "Cluster" => vec![
            accepted,
            (Condition::PUBLISHED, "Its names are in DNS."),
            (Condition::NODES_READY, "At least one node is ready."),
            (Condition::DOOR_OPEN, "Connections are let through to its control plane."),
            (
                Condition::DRAINED,
                "No federated traffic is sent to it, as somebody wants it. Told only while that is so.",
            ),
            (
                Condition::INGRESS_ROUTED,
                "It is known where its ingress controller is reached through the tunnel. Told with `ingress.mode: hub`.",
            ),
            (ClusterStatus::REACHABLE, "Its API server is watched. Told where `spec.access` is set."),
            (
                ClusterStatus::INGRESSES_PLACED,
                "Federated Ingresses are there as they should be. Told where `spec.access` is set.",
            ),
        ],
        "AddressPool" => vec![accepted, (Condition::REVERSE_SERVED, "Its reverse zones are answered for.")],
        "AddressClaim" => vec![
            accepted,
            (Condition::ALLOCATED, "It has an address."),
            (
                Condition::PTR_PUBLISHED,
                "The address has the name that the claim gives, or the default where it gives none.",
            ),
        ],
        _ => Vec::new(),
    }
}

fn find_example<'a>(kind: &str, examples: &'a [(String, String)]) -> Option<(&'a str, String)> {
    let wanted = format!("kind: {kind}");
    examples.iter().find_map(|(path, file)| {
        let document = file.split("\n---\n").find(|document| document.lines().any(|line| line == wanted))?;
        Some((path.as_str(), format!("{}\n", document.trim_end())))
    })
}

fn one_line(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, str::to_owned)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell of a table, by its field.
    fn row<'a>(page: &'a Page, field: &str) -> Vec<&'a str> {
        let start = format!("| `{field}` |");
        let line =
            page.text.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{field}: {}", page.text));
        line.trim_matches('|').split(" | ").map(str::trim).collect()
    }

    #[test]
    fn fields_have_their_type_default_and_rules() {
        let pages = pages(&[(
            "a.yaml".into(),
            "kind: Tenant\nspec: {}\n---\n# Ours.\nkind: Zone\nspec: {domain: a.test}\n".into(),
        )]);
        let page = |title: &str| pages.iter().find(|page| page.title == title).unwrap();
        let zone = page("Zone");
        assert!(
            zone.text.contains("From `a.yaml`:\n\n```yaml\n# Ours.\nkind: Zone\nspec: {domain: a.test}\n```"),
            "{}",
            zone.text
        );
        assert_eq!(row(zone, "domain")[1..3], ["DNS name", "required"]);
        assert_eq!(row(zone, "ttl")[1..3], ["whole number", "`30`"]);
        assert_eq!(row(zone, "nameservers[].addresses")[1], "list of IP addresses");
        assert!(row(zone, "gateway")[4].contains("give either addresses or a hostname"));
        assert_eq!(row(zone, "withdrawal.grace")[1..3], ["duration", "`\"60s\"`"]);
        assert_eq!(row(page("Cluster"), "ingress.mode")[1], "`nodes`, `hub`");
        for page in &pages {
            assert!(!page.text.contains(" |  |\n| `") || page.text.contains("| what it says |"), "{}", page.text);
            let status = page.text.split("## status").nth(1).unwrap_or_default();
            let wordless = status.lines().filter(|line| line.starts_with("| `") && line.ends_with("|  |"));
            assert_eq!(wordless.collect::<Vec<_>>(), [""; 0], "{}", page.file);
        }
    }
}
