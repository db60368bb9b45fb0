//! From the text of a manifest file to model values, with every mistake located.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use model::address::{AddressClaim, AddressPool, Allocation, ClaimId};
use model::identity::Kind;
use model::ingress::{Certificate, FederationPolicy, Ingress, IngressClass};
use model::resource::{Cluster, RecordClaims, Tenant, Zone};
use model::{ClusterName, Fact, FactChange, ObjectName, ObjectRef, Refusal, Since, Timestamp};
use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_saphyr::{DefaultMessageFormatter, MessageFormatter as _};

use crate::address::{AddressClaimSpec, AddressPoolSpec};
use crate::certificate;
use crate::cluster::ClusterSpec;
use crate::dns_endpoint::DnsEndpointSpec;
use crate::federation::FederationPolicySpec;
use crate::foreign;
use crate::ingress;
use crate::labels::{self, LabelKey, LabelValue};
use crate::named::{Home, Lookup, Named, WrongFile};
use crate::tenant::TenantSpec;
use crate::text::{Check, Namespace, Text, Written, checked_option};
use crate::zone::ZoneSpec;

/// One YAML document of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a> {
    /// Where `text` begins in the file, counted from 1.
    pub first_line: usize,
    pub text: &'a str,
}

/// One object, read and checked by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    pub object: ObjectRef,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Zone(Zone),
    Tenant(Tenant),
    Cluster(Box<Cluster>),
    Records(RecordClaims),
    AddressPool(AddressPool),
    AddressClaim(AddressClaim),
    /// What a hub has written down of an address; nobody writes such a thing into a folder.
    Address(IpAddr, Allocation),
    Ingress(Box<Ingress>),
    IngressClass(IngressClass),
    FederationPolicy(Arc<FederationPolicy>),
    /// What is in a Secret with a certificate, or why that cannot be used.
    Certificate(Result<Arc<Certificate>, Refusal>),
    /// Something whose content nothing acts upon; its form has been checked.
    Other,
}

impl Manifest {
    /// That the object is there as it was read.
    pub fn into_fact(self, since: Since, generation: Option<i64>) -> FactChange {
        match self.value {
            Value::Zone(value) => FactChange::Zone(self.object.name, Some(Fact { since, generation, value })),
            Value::Tenant(value) => FactChange::Tenant(self.object.name, Some(Fact { since, generation, value })),
            Value::Cluster(value) => {
                FactChange::Cluster(value.name.clone(), Some(Fact { since, generation, value: *value }))
            }
            Value::Records(value) => FactChange::Records(self.object, Some(Fact { since, generation, value })),
            Value::AddressPool(value) => {
                FactChange::AddressPool(self.object.name, Some(Fact { since, generation, value }))
            }
            Value::AddressClaim(value) => match ClaimId::of(&self.object) {
                Some(id) => FactChange::AddressClaim(id, Some(Fact { since, generation, value })),
                None => FactChange::Other(self.object, true),
            },
            Value::Address(address, allocation) => FactChange::Address(address, Some(allocation)),
            Value::Ingress(value) => FactChange::Ingress(self.object, Some(Fact { since, generation, value: *value })),
            Value::IngressClass(value) => {
                FactChange::IngressClass(self.object.name, Some(Fact { since, generation, value }))
            }
            Value::FederationPolicy(value) => {
                FactChange::FederationPolicy(self.object.name, Some(Fact { since, generation, value }))
            }
            Value::Certificate(certificate) => FactChange::Certificate(self.object, Some(certificate)),
            Value::Other => FactChange::Other(self.object, true),
        }
    }
}

/// What is wrong with a document, and where in the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {reason}")]
pub struct Mistake {
    pub line: usize,
    pub column: usize,
    pub reason: String,
}

/// Splits a file at its document markers. YAML 1.2 9.1.2: `---` at the start of a line is a marker wherever it stands,
/// inside scalars too, so that no parser is needed. Documents that hold nothing but comments are left out.
pub fn split(file: &str) -> impl Iterator<Item = Document<'_>> {
    let mut rest = file.strip_prefix('\u{feff}').unwrap_or(file);
    let mut line = 1;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = next_marker(rest);
        let document = Document { first_line: line, text: &rest[..end] };
        line += document.text.bytes().filter(|octet| *octet == b'\n').count();
        rest = &rest[end..];
        Some(document)
    })
    .filter(|document| !is_blank(document.text))
}

/// Where the next document begins: the first marker that is not at the very start.
fn next_marker(text: &str) -> usize {
    let mut from = 0;
    while let Some(found) = text[from..].find("\n---") {
        let marker = from + found + 1;
        if is_marker(&text[marker..]) {
            return marker;
        }
        from = marker;
    }
    text.len()
}

fn is_marker(text: &str) -> bool {
    text.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

fn is_blank(text: &str) -> bool {
    let text = if is_marker(text) { &text[3..] } else { text };
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#') || line == "...")
}

/// Reads one document of a folder, and the files that it names.
pub fn read(document: &Document<'_>, named: Named<'_>) -> Result<Manifest, Mistake> {
    let lookup = Lookup { home: Home::Folder, named };
    let header = match Header::at_a_glance(document.text) {
        Some(header) => header,
        None => parse(document)?,
    };
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.as_str() == header.kind) else {
        return Err(mistake(document, format!("no kind is called {:?}; known are {}", header.kind, known_kinds())));
    };
    if header.api_version != kind.api_version() {
        let reason = format!("{kind} is of apiVersion {}, not {}", kind.api_version(), header.api_version);
        return Err(mistake(document, reason));
    }
    match kind {
        Kind::Zone => zone(document, lookup),
        Kind::Tenant => tenant(document),
        Kind::Cluster => cluster(document, lookup),
        Kind::AddressPool => {
            of_spec(document, kind, |name, spec: AddressPoolSpec| Value::AddressPool(spec.into_model(name)))
        }
        Kind::AddressClaim => {
            of_spec(document, kind, |_, spec: AddressClaimSpec| Value::AddressClaim(spec.into_model()))
        }
        Kind::Address => {
            let reason = "Address objects are Fleetgate's own notes of who has which; write an AddressClaim";
            Err(mistake(document, reason.into()))
        }
        Kind::FederationPolicy => of_spec(document, kind, |_, spec: FederationPolicySpec| {
            Value::FederationPolicy(Arc::new(spec.into_model()))
        }),
        Kind::DnsEndpoint => of_spec(document, kind, |_, spec: DnsEndpointSpec| Value::Records(spec.to_model(None))),
        Kind::Ingress => others(document, kind, |ingress| Value::Ingress(Box::new(ingress::read(ingress)))),
        Kind::IngressClass => others(document, kind, |class| Value::IngressClass(ingress::read_class(class))),
        Kind::Secret => {
            others(document, kind, |secret| certificate::read(secret).map_or(Value::Other, Value::Certificate))
        }
    }
}

/// The document as JSON, as `get` shows it. What is in a Secret is not shown.
pub fn to_json(text: &str) -> Result<serde_json::Value, Mistake> {
    let mut value: serde_json::Value = parse(&Document { first_line: 1, text })?;
    if value["kind"] == "Secret" {
        for field in ["data", "stringData"] {
            for (_, secret) in value.get_mut(field).and_then(serde_json::Value::as_object_mut).into_iter().flatten() {
                *secret = "(hidden)".into();
            }
        }
    }
    Ok(value)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    api_version: String,
    kind: String,
}

impl Header {
    /// As nearly everybody writes it: each on a line of its own, without quotes. Nothing inside a block mapping can stand
    /// at the start of a line, and what is written twice is found when the whole document is read.
    fn at_a_glance(text: &str) -> Option<Self> {
        let plain = |value: &&str| {
            let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/');
            !value.is_empty() && value.chars().all(letter)
        };
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim).filter(plain);
        Some(Self { api_version: value("apiVersion:")?.into(), kind: value("kind:")?.into() })
    }
}

/// One of our objects; `N` is what its name must be.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[serde(bound = "N: Written, S: DeserializeOwned + Check")]
struct Object<N, S> {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    metadata: Metadata<N>,
    #[serde(deserialize_with = "present")]
    spec: S,
    /// As `kubectl get -o yaml` prints it; ours to say, not the author's.
    #[serde(default, rename = "status")]
    _status: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound = "N: Written")]
struct Metadata<N> {
    name: Text<N>,
    namespace: Option<Text<Namespace>>,
    #[serde(default)]
    labels: BTreeMap<Text<LabelKey>, Text<LabelValue>>,
    #[serde(default)]
    annotations: BTreeMap<Text<LabelKey>, String>,
    // What a hub adds: allowed, so that an object exported from one can be put into a folder.
    #[serde(default, rename = "uid")]
    _uid: Option<IgnoredAny>,
    #[serde(default, rename = "resourceVersion")]
    _resource_version: Option<IgnoredAny>,
    #[serde(default, rename = "generation")]
    _generation: Option<IgnoredAny>,
    #[serde(default, rename = "creationTimestamp")]
    _creation_timestamp: Option<IgnoredAny>,
    #[serde(default, rename = "managedFields")]
    _managed_fields: Option<IgnoredAny>,
    #[serde(default, rename = "ownerReferences")]
    _owner_references: Option<IgnoredAny>,
    #[serde(default, rename = "finalizers")]
    _finalizers: Option<IgnoredAny>,
}

impl<N> Metadata<N> {
    /// What an annotation says that is a moment.
    fn moment(&self, name: &str, document: &Document<'_>) -> Result<Option<Timestamp>, Mistake> {
        let annotation = self.annotations.iter().find(|(key, _)| key.0.0 == name);
        labels::moment(name, annotation.map(|(_, text)| text.as_str()))
            .map_err(|reason| where_it_says(document, name, reason))
    }
}

/// A hub refuses `spec:` with nothing behind it, also where nothing in it is required.
fn present<'de, D, S>(deserializer: D) -> Result<S, D::Error>
where
    D: Deserializer<'de>,
    S: DeserializeOwned + Check,
{
    checked_option(deserializer)?
        .ok_or_else(|| D::Error::custom("there is no value; write {} where nothing is to be said"))
}

/// The name and place of an object of somebody else's kind, whose type is not ours to be strict about.
#[derive(Deserialize)]
struct ForeignName {
    metadata: ForeignMetadata,
}

#[derive(Deserialize)]
struct ForeignMetadata {
    name: Text<ObjectName>,
    namespace: Option<Text<Namespace>>,
}

fn of_spec<S: DeserializeOwned + Check>(
    document: &Document<'_>,
    kind: Kind,
    value: impl FnOnce(ObjectName, S) -> Value,
) -> Result<Manifest, Mistake> {
    let Object { metadata, spec, .. } = parse::<Object<ObjectName, S>>(document)?;
    let object = place(document, kind, metadata.name.0.clone(), metadata.namespace)?;
    Ok(Manifest { object, value: value(metadata.name.0, spec) })
}

fn zone(document: &Document<'_>, mut lookup: Lookup<'_>) -> Result<Manifest, Mistake> {
    let Object { metadata, spec, .. } = parse::<Object<ObjectName, ZoneSpec>>(document)?;
    let released = metadata.moment(labels::RELEASED, document)?;
    let object = place(document, Kind::Zone, metadata.name.0.clone(), metadata.namespace)?;
    let zone = spec.into_model(metadata.name.0, &mut lookup).map_err(|wrong| in_file(document, &wrong))?;
    Ok(Manifest { object, value: Value::Zone(Zone { released, ..zone }) })
}

fn tenant(document: &Document<'_>) -> Result<Manifest, Mistake> {
    let Object { metadata, spec, .. } = parse::<Object<ObjectName, TenantSpec>>(document)?;
    let released = metadata.moment(labels::RELEASED, document)?;
    let object = place(document, Kind::Tenant, metadata.name.0.clone(), metadata.namespace)?;
    let tenant = spec.into_model(metadata.name.0);
    Ok(Manifest { object, value: Value::Tenant(Tenant { released, ..tenant }) })
}

fn cluster(document: &Document<'_>, mut lookup: Lookup<'_>) -> Result<Manifest, Mistake> {
    let Object { metadata, spec, .. } = parse::<Object<ClusterName, ClusterSpec>>(document)?;
    let drained = metadata.moment(labels::DRAINED, document)?;
    let object = place(document, Kind::Cluster, ObjectName::from(&metadata.name.0), metadata.namespace)?;
    let labels = metadata.labels.into_iter().map(|(key, value)| (key.0.0, value.0.0)).collect();
    let cluster = spec.into_model(metadata.name.0, labels, None, &mut lookup);
    let cluster = cluster.map_err(|wrong| in_file(document, &wrong))?;
    Ok(Manifest { object, value: Value::Cluster(Box::new(Cluster { drained, ..cluster })) })
}

fn others<T: DeserializeOwned + Serialize>(
    document: &Document<'_>,
    kind: Kind,
    value: impl FnOnce(&T) -> Value,
) -> Result<Manifest, Mistake> {
    let typed = parse::<T>(document)?;
    if let Some(path) = foreign::unknown_field(&parse(document)?, &typed) {
        return Err(unknown_field(document, &path));
    }
    let ForeignName { metadata } = parse(document)?;
    let object = place(document, kind, metadata.name.0, metadata.namespace)?;
    Ok(Manifest { object, value: value(&typed) })
}

fn place(
    document: &Document<'_>,
    kind: Kind,
    name: ObjectName,
    namespace: Option<Text<Namespace>>,
) -> Result<ObjectRef, Mistake> {
    match (kind.is_namespaced(), &namespace) {
        (true, None) => Err(mistake(document, format!("{kind} {name} needs a metadata.namespace"))),
        (false, Some(_)) => Err(mistake(document, format!("{kind} {name} has no namespace; leave it out"))),
        _ => Ok(ObjectRef { kind, namespace: namespace.map(|namespace| namespace.0.0), name }),
    }
}

fn parse<T: DeserializeOwned>(document: &Document<'_>) -> Result<T, Mistake> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        // As a hub reads it: `clusterID: 12` is a number there, and no number is a text; `no` is a boolean, and 017 is 15.
        no_schema: true,
        strict_booleans: false,
        legacy_octal_numbers: true,
    };
    serde_saphyr::from_str_with_options(document.text, options).map_err(|error| {
        let position = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).max(1);
        let (line, column) = error.location().map_or((1, 1), |at| (position(at.line()), position(at.column())));
        let reason = DefaultMessageFormatter.format_message(error.without_snippet()).escape_debug().to_string();
        Mistake { line: document.first_line + line - 1, column, reason: tidy(&reason) }
    })
}

/// Undoes what escaping does to the quotes of our own messages, and names types as people do.
fn tidy(reason: &str) -> String {
    let reason = reason.replace("\\\"", "\"").replace("\\'", "'").replace("\\\\", "\\");
    [
        ("expected u16", "expected a whole number"),
        ("expected u32", "expected a whole number"),
        ("expected string scalar", "expected a text"),
        ("expected mapping start", "expected fields and their values"),
        (
            "cannot deserialize null into string; use Option<String>",
            "there is no value; write one, or leave the field out",
        ),
        (", set DuplicateKeyPolicy in Options if acceptable", ""),
    ]
    .iter()
    .fold(reason, |reason, (from, to)| reason.replace(from, to))
}

fn mistake(document: &Document<'_>, reason: String) -> Mistake {
    Mistake { line: first_content_line(document), column: 1, reason }
}

/// Only the path of the field is known.
fn unknown_field(document: &Document<'_>, path: &str) -> Mistake {
    let name = path.rsplit('.').next().unwrap_or(path);
    where_it_says(document, name, format!("unknown field `{path}`"))
}

/// What is wrong with a file that the document names.
fn in_file(document: &Document<'_>, wrong: &WrongFile) -> Mistake {
    where_it_says(document, &wrong.path, wrong.told.clone())
}

/// The first line that spells the text is most likely the one.
fn where_it_says(document: &Document<'_>, text: &str, reason: String) -> Mistake {
    let found = document
        .text
        .lines()
        .enumerate()
        .find_map(|(line, content)| Some((line, content[..content.find(text)?].chars().count())));
    let (line, column) = found.unwrap_or_default();
    Mistake { line: document.first_line + line, column: column + 1, reason }
}

/// The line that a document's content begins on, past its marker and comments.
pub fn first_content_line(document: &Document<'_>) -> usize {
    let offset = document.text.lines().position(|line| !is_blank(line)).unwrap_or(0);
    document.first_line + offset
}

fn known_kinds() -> String {
    let written = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Address);
    written.map(Kind::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
