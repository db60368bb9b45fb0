//! `networking.k8s.io/v1` Ingress and `IngressClass`, read piece by piece: what is wrong with one path says nothing of the next.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, Ingress, IngressBackend, IngressClass, IngressRule, IngressTLS,
};
use model::ingress::{
    Backend, Ingress as ModelIngress, IngressClass as ModelClass, OVERRIDE, Override, PathMatch, PathPart, PathRule,
    Port, RouteOptions, Rule, Tls,
};
use model::policy::Refused;
use model::{ClusterName, DnsName, ObjectName, Refusal};
use serde::Deserialize;

use crate::text::{Span, Text};

/// What an `IngressClass` of ours names as its controller.
pub const CONTROLLER: &str = "fleetgate.dev/ingress";
/// Whose annotations are ours.
const DOMAIN: &str = "fleetgate.dev";
/// What our annotations begin with.
const OURS: &str = "fleetgate.dev/";
const REDIRECT: &str = "fleetgate.dev/redirect-to-https";
const TIMEOUT: &str = "fleetgate.dev/request-timeout";
const MAX_BODY: &str = "fleetgate.dev/max-body";

/// Longer than any answer that somebody waits for; who wants more streams.
const LONGEST_TIMEOUT: Duration = Duration::from_hours(1);
/// Rules, and paths of all of them: as many as a Verdict tells of.
const MOST_PATHS: usize = 1000;
/// Entries of `tls`, and hosts of each.
const MOST_CERTIFICATES: usize = 256;
/// Characters of a path; servers take request lines of 8 KiB.
const LONGEST_PATH: usize = 1024;
/// Of what is otherwise in one cluster; Kubernetes takes 256 KiB of annotations in all.
const LONGEST_OVERRIDE: usize = 16 << 10;
/// More clusters than one service runs in.
const MOST_OVERRIDES: usize = 256;
/// Characters of what was written, where it is repeated.
const MOST_TOLD: usize = 256;

pub(crate) fn read(ingress: &Ingress) -> ModelIngress {
    let spec = ingress.spec.clone().unwrap_or_default();
    let annotations = ingress.metadata.annotations.as_ref();
    let (options, mut wrong_annotations) = options(annotations);
    let overrides = overrides(annotations, &mut wrong_annotations);
    let class = spec.ingress_class_name.as_deref().and_then(|class| class.parse().ok());
    let rules = spec.rules.unwrap_or_default();
    let nothing = rules.is_empty() && spec.default_backend.is_none();
    let mut paths = 0;
    ModelIngress {
        class,
        default_backend: spec.default_backend.map(|at| backend(&at, "defaultBackend")),
        rules: rules.iter().enumerate().map(|(number, at)| rule(number, at, &mut paths)).collect(),
        tls: spec.tls.unwrap_or_default().iter().enumerate().map(|(number, entry)| tls(number, entry)).collect(),
        options: Arc::new(options),
        wrong_annotations,
        overrides,
        hindrance: nothing.then_some(Refusal::NothingToServe),
    }
}

pub(crate) fn read_class(class: &IngressClass) -> ModelClass {
    let spec = class.spec.clone().unwrap_or_default();
    let ours = spec.controller.as_deref() == Some(CONTROLLER);
    let (policy, hindrance) = match spec.parameters.filter(|_| ours) {
        None => (None, None),
        Some(named) if named.kind == "FederationPolicy" && named.api_group.as_deref() == Some("fleetgate.dev") => {
            match named.name.parse() {
                Ok(name) => (Some(name), None),
                Err(error) => {
                    (None, Some(Refusal::Malformed { reason: told(&format!("spec.parameters.name: {error}")) }))
                }
            }
        }
        Some(_) => {
            let reason = "spec.parameters: it names no FederationPolicy of apiGroup fleetgate.dev".to_owned();
            (None, Some(Refusal::Malformed { reason }))
        }
    };
    ModelClass { ours, policy, hindrance }
}

/// What is asked for, and the annotations of ours that ask for nothing.
fn options(annotations: Option<&BTreeMap<String, String>>) -> (RouteOptions, Vec<(Arc<str>, Refused)>) {
    let (mut options, mut wrong) = (RouteOptions::default(), Vec::new());
    for (name, value) in annotations.into_iter().flatten().filter(|(name, _)| name.starts_with(OURS)) {
        let read = match name.as_str() {
            REDIRECT => flag(value).map(|redirect| options.redirect_to_https = redirect),
            TIMEOUT => timeout(value).map(|timeout| options.request_timeout = timeout),
            MAX_BODY => octets(value).map(|octets| options.max_body = Some(octets)),
            _ => Err(format!("there are {REDIRECT}, {TIMEOUT} and {MAX_BODY}")),
        };
        if let Err(reason) = read {
            let refused =
                Refused::new(Refusal::BadAnnotation { reason }, format!("metadata.annotations[{}]", told(name)));
            wrong.push((told(name).into(), refused));
        }
    }
    (options, wrong)
}

/// What is otherwise in single clusters.
fn overrides(
    annotations: Option<&BTreeMap<String, String>>,
    wrong: &mut Vec<(Arc<str>, Refused)>,
) -> BTreeMap<ClusterName, Arc<Override>> {
    let mut overrides = BTreeMap::new();
    for (name, value) in annotations.into_iter().flatten() {
        let Some(cluster) = name.strip_prefix(OVERRIDE) else { continue };
        let read = match cluster.parse() {
            Ok(_) if overrides.len() == MOST_OVERRIDES => Err(format!("there are more than {MOST_OVERRIDES}")),
            Ok(cluster) => override_of(value).map(|other| _ = overrides.insert(cluster, Arc::new(other))),
            Err(_) => Err(format!("{} is no name of a cluster", quoted(cluster))),
        };
        if let Err(reason) = read {
            let field = format!("metadata.annotations[{}]", told(name));
            wrong.push((told(name).into(), Refused::new(Refusal::BadAnnotation { reason: told(&reason) }, field)));
        }
    }
    overrides
}

fn override_of(text: &str) -> Result<Override, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Written {
        ingress_class_name: Option<Text<ObjectName>>,
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }

    if text.len() > LONGEST_OVERRIDE {
        return Err(format!("it is longer than {LONGEST_OVERRIDE} octets"));
    }
    let Written { ingress_class_name, annotations } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if let Some(name) = annotations.keys().find(|name| is_kept_back(name)) {
        return Err(format!("{} is not for others to give", quoted(name)));
    }
    Ok(Override { class: ingress_class_name.map(|class| class.0), annotations })
}

/// Annotations that no copy of an Ingress has from elsewhere: ours, and what kubectl remembers of the original.
pub fn is_kept_back(annotation: &str) -> bool {
    let prefix = annotation.split_once('/').map_or("", |(prefix, _)| prefix);
    let is_ours = prefix == DOMAIN || prefix.strip_suffix(DOMAIN).is_some_and(|rest| rest.ends_with('.'));
    is_ours || annotation == "kubectl.kubernetes.io/last-applied-configuration"
}

fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("{} is neither true nor false", quoted(text)))
}

fn timeout(text: &str) -> Result<Duration, String> {
    let Span(span) = text.parse().map_err(|_| format!("{} is no length of time such as 60s", quoted(text)))?;
    if span.is_zero() || span > LONGEST_TIMEOUT {
        return Err(format!("{} is not between 1ms and 1h", quoted(text)));
    }
    Ok(span)
}

/// As Kubernetes writes quantities, in whole numbers.
fn octets(text: &str) -> Result<u64, String> {
    let units =
        [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000)];
    let (number, unit) =
        units.iter().find_map(|(unit, octets)| Some((text.strip_suffix(unit)?, *octets))).unwrap_or((text, 1_u64));
    let wrong = || format!("{} is no number of octets such as 10Mi", quoted(text));
    if number.is_empty() || !number.bytes().all(|octet| octet.is_ascii_digit()) {
        return Err(wrong());
    }
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(wrong)
}

fn rule(number: usize, rule: &IngressRule, paths: &mut usize) -> Rule {
    let field = format!("rules[{number}]");
    let too_many = || Refused::new(Refusal::SetTooLarge { what: "rules", most: MOST_PATHS }, field.as_str());
    let host = match rule.host.as_deref() {
        _ if number >= MOST_PATHS => Err(too_many()),
        None | Some("") => Ok(None),
        Some(text) => host(text)
            .map(Some)
            .map_err(|reason| Refused::new(Refusal::BadName { reason: told(&reason) }, format!("{field}.host"))),
    };
    let given = rule.http.as_ref().map(|http| http.paths.as_slice()).unwrap_or_default();
    let parts = given.iter().enumerate().map(|(at, path)| {
        *paths += 1;
        let field = format!("{field}.http.paths[{at}]");
        let too_many = || Refused::new(Refusal::SetTooLarge { what: "paths", most: MOST_PATHS }, field.as_str());
        let rule = if *paths > MOST_PATHS { Err(too_many()) } else { path_rule(path, &field) };
        PathPart { written: told(path.path.as_deref().unwrap_or("/")).into(), rule }
    });
    // What is told of each of them has a bound too.
    let paths = parts.take(MOST_PATHS + 1).collect();
    Rule { field: field.as_str().into(), host, paths }
}

/// A name as Kubernetes takes it; a wildcard stands for the first label.
fn host(text: &str) -> Result<DnsName, String> {
    if text.parse::<IpAddr>().is_ok() {
        return Err(format!("{} is an address", quoted(text)));
    }
    if text == "*" {
        return Err("`*` alone is no host; leave it out to serve every host of your own".into());
    }
    let name = text.strip_prefix("*.").unwrap_or(text);
    if name.parse::<ObjectName>().is_err() {
        return Err(format!("{} is no host: lower-case letters, digits, `-` and `.`, or `*.` before it", quoted(text)));
    }
    DnsName::parse(text).map_err(|error| error.to_string())
}

fn path_rule(path: &HTTPIngressPath, field: &str) -> Result<PathRule, Refused> {
    let bad = |reason: String, at: &str| Refused::new(Refusal::BadPath { reason }, format!("{field}.{at}"));
    let written = path.path.as_deref().unwrap_or_default();
    let (text, is_exact) = match path.path_type.as_str() {
        "Exact" => (written, true),
        "Prefix" => (written, false),
        // Ours to choose what it is; without a path it is everything.
        "ImplementationSpecific" => (if written.is_empty() { "/" } else { written }, false),
        "" => {
            return Err(bad(
                "it has no pathType; there are Exact, Prefix and ImplementationSpecific".into(),
                "pathType",
            ));
        }
        other => return Err(bad(format!("{} is no pathType", quoted(other)), "pathType")),
    };
    check_path(text).map_err(|reason| bad(reason.into(), "path"))?;
    let path_match = if is_exact { PathMatch::Exact(text.into()) } else { PathMatch::Prefix(text.into()) };
    Ok(PathRule { path: path_match, backend: backend(&path.backend, &format!("{field}.backend"))? })
}

/// As Kubernetes checks it, and nothing that no request could have.
fn check_path(path: &str) -> Result<(), &'static str> {
    if !path.starts_with('/') {
        return Err("it does not begin with `/`");
    }
    if path.len() > LONGEST_PATH {
        return Err("it is longer than 1024 characters");
    }
    let lower = path.to_ascii_lowercase();
    if ["//", "/./", "/../", "%2f"].iter().any(|part| lower.contains(part))
        || path.ends_with("/.")
        || path.ends_with("/..")
    {
        return Err("it has `//`, `/./`, `/../` or an escaped `/`, which others would read differently");
    }
    if !path.bytes().all(|octet| octet.is_ascii_graphic() && !matches!(octet, b'?' | b'#')) {
        return Err("it has characters that the path of a request never has");
    }
    Ok(())
}

fn backend(backend: &IngressBackend, field: &str) -> Result<Backend, Refused> {
    let bad = |reason: &str, at: &str| {
        Refused::new(Refusal::BadBackend { reason: reason.to_owned() }, format!("{field}.{at}"))
    };
    if backend.resource.is_some() {
        return Err(Refused::new(Refusal::FieldNotSupported("resource"), format!("{field}.resource")));
    }
    let Some(service) = &backend.service else { return Err(bad("it names no service", "service")) };
    let Ok(name) = service.name.parse() else { return Err(bad("it names no service", "service.name")) };
    let port = service.port.clone().unwrap_or_default();
    let wrong = |reason: &str| Err(bad(reason, "service.port"));
    let named = port.name.filter(|name| !name.is_empty());
    let port = match (named, port.number.filter(|number| *number != 0)) {
        (Some(_), Some(_)) => return wrong("a port has a name or a number, not both"),
        (None, None) => return wrong("the port has neither a name nor a number"),
        (Some(name), None)
            if name.len() <= 63 && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-') =>
        {
            Port::Name(name.into())
        }
        (Some(_), None) => return wrong("the port's name is none"),
        (None, Some(number)) => match u16::try_from(number) {
            Ok(number) => Port::Number(number),
            Err(_) => return wrong("a port is 1 to 65535"),
        },
    };
    Ok(Backend { service: name, port })
}

fn tls(number: usize, entry: &IngressTLS) -> Tls {
    let field = format!("tls[{number}]");
    let refused = |refusal, at: &str| Refused::new(refusal, format!("{field}{at}"));
    let given = entry.hosts.as_deref().unwrap_or_default();
    let mut hosts = Vec::new();
    let mut wrong = None;
    for (at, text) in given.iter().enumerate().take(MOST_CERTIFICATES) {
        match host(text) {
            Ok(host) => hosts.push(host),
            Err(reason) => {
                let refusal = Refusal::BadName { reason: told(&reason) };
                wrong.get_or_insert_with(|| refused(refusal, &format!(".hosts[{at}]")));
            }
        }
    }
    if number >= MOST_CERTIFICATES || given.len() > MOST_CERTIFICATES {
        wrong =
            Some(refused(Refusal::SetTooLarge { what: "tls entries, or hosts of one", most: MOST_CERTIFICATES }, ""));
    }
    let name = entry.secret_name.as_deref().unwrap_or_default();
    let secret = match (wrong, name.parse::<ObjectName>()) {
        (Some(wrong), _) => Err(wrong),
        (None, Ok(name)) => Ok(name),
        (None, Err(_)) => Err(refused(Refusal::NoSecretNamed, ".secretName")),
    };
    Tls { field: field.as_str().into(), hosts, secret }
}

fn quoted(text: &str) -> String {
    format!("{:?}", text.chars().take(MOST_TOLD).collect::<String>())
}

/// Without what would make one line of a log two.
fn told(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    text.chars().take(MOST_TOLD).map(escaped).collect()
}

#[cfg(test)]
mod tests;
