//! * One request of the API server's: may this object be written? Decided from the published snapshot alone.
//!
//! A no is for objects of which nothing would be served. Where something would, the object passes and what is refused of it
//! comes back as warnings, so that one bad record never blocks the others. The plan judges again, whatever passed here. Pods are
//! another matter ([`super::pods`]).

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::ByteString;
use manifest::dns_endpoint::{CLUSTER_LABEL, DnsEndpointSpec, EndpointSpec};
use model::identity::Kind;
use model::policy::{Applicant, RecordClaim, Refused};
use model::{ClusterName, ObjectName, Refusal, Snapshot};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Warnings are headers of the API server's answer, which cuts what is longer.
const LONGEST: usize = 256;
/// Enough to mend an object by; the rest is counted. A denial says no more either.
const MOST: usize = 20;
const API_VERSION: &str = "admission.k8s.io/v1";

/// What the API server asks. What it says of the user is not looked at: the namespace says whose an object is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    uid: String,
    resource: ResourceName,
    sub_resource: Option<String>,
    namespace: Option<String>,
    operation: String,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
    dry_run: Option<bool>,
}

#[derive(Deserialize)]
struct ResourceName {
    group: String,
    resource: String,
}

/// An object, as far as it is looked at.
#[derive(Deserialize)]
struct Object<'a> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    labels: Option<BTreeMap<String, String>>,
}

/// What is said to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) outcome: Outcome,
    pub(super) warnings: Vec<String>,
    /// What is changed of the object before it is written: a JSON patch.
    pub(super) patch: Option<Value>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing that a tenant could want of us.
    NotOurs,
    /// It asks for nothing that was not asked for before.
    NothingNew,
    Allowed,
    /// And changed.
    Patched,
    /// Nothing of it would be served.
    Refused(String),
    Malformed(String),
    TooFast(Refusal),
}

impl Outcome {
    /// Fixed words, for metrics.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::NotOurs => "notOurs",
            Self::NothingNew => "nothingNew",
            Self::Allowed => "allowed",
            Self::Patched => "patched",
            Self::Refused(_) => "refused",
            Self::Malformed(_) => "malformed",
            Self::TooFast(_) => "tooFast",
        }
    }
}

impl From<Outcome> for Decision {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, warnings: Vec::new(), patch: None }
    }
}

impl Decision {
    pub(super) fn malformed(reason: &str) -> Self {
        Outcome::Malformed(cut(&format!("Malformed: {reason}"))).into()
    }
}

impl<'a> Request<'a> {
    /// The error says what it is instead of a review.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, String> {
        let review: Review<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if review.api_version != API_VERSION || review.kind != "AdmissionReview" {
            return Err(format!("it is no AdmissionReview of {API_VERSION}"));
        }
        Ok(review.request)
    }

    /// `pace` counts a change of so many endpoints of a tenant's, or refuses it; `ours` are the namespaces that are ours.
    pub(super) fn decide(
        &self,
        snapshot: &Snapshot,
        ours: &[String],
        pace: impl FnOnce(&ObjectName, usize) -> Result<(), Refusal>,
    ) -> Decision {
        let writes = ["CREATE", "UPDATE"].contains(&self.operation.as_str());
        let whole = self.sub_resource.as_deref().unwrap_or_default().is_empty();
        let namespace = self.namespace.as_deref().unwrap_or_default();
        if !self.is_of(Kind::DnsEndpoint) || !writes || !whole || ours.iter().any(|own| own == namespace) {
            return Outcome::NotOurs.into();
        }
        // What is in a namespace that is nobody's is never served either.
        let namespace = namespace.parse().ok();
        let Some(tenant) = namespace.and_then(|namespace| snapshot.ground().tenant_of_namespace(&namespace)) else {
            return Outcome::NotOurs.into();
        };
        self.decide_records(snapshot, tenant, pace).unwrap_or_else(|reason| Decision::malformed(&reason))
    }

    /// The error is where in the object something cannot be read, and why.
    fn decide_records(
        &self,
        snapshot: &Snapshot,
        tenant: &ObjectName,
        pace: impl FnOnce(&ObjectName, usize) -> Result<(), Refusal>,
    ) -> Result<Decision, String> {
        let object: Object<'_> = parse("", self.object.ok_or("there is no object")?)?;
        let old: Option<Object<'_>> = self.old_object.and_then(|old| parse("", old).ok());
        let (spec, old) = (object.spec, old.and_then(|old| old.spec));
        // Finalizers and labels can be changed whatever has become of the policy meanwhile.
        if old.is_some_and(|old| spec.is_some_and(|spec| spec.get() == old.get())) {
            return Ok(Outcome::NothingNew.into());
        }
        let spec: DnsEndpointSpec = parse("spec", spec.ok_or("spec: is missing")?)?;
        let old: Option<DnsEndpointSpec> = old.and_then(|old| parse("spec", old).ok());
        if old.is_some_and(|old| only_takes_away(&old, &spec)) {
            return Ok(Outcome::NothingNew.into());
        }
        let applicant = Applicant { tenant: tenant.clone(), cluster: object.metadata.cluster()? };
        if self.dry_run != Some(true)
            && let Err(refusal) = pace(tenant, spec.endpoints.len())
        {
            return Ok(Outcome::TooFast(refusal).into());
        }
        Ok(decide_endpoints(snapshot, &applicant, &spec.endpoints))
    }

    /// Whether a pod is to be made.
    pub(super) fn is_pod(&self) -> bool {
        let ResourceName { group, resource } = &self.resource;
        let whole = self.sub_resource.as_deref().unwrap_or_default().is_empty();
        group.is_empty() && resource == "pods" && self.operation == "CREATE" && whole
    }

    pub(super) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// What a label of the object says.
    pub(super) fn label(&self, key: &str) -> Result<Option<String>, String> {
        let object: Object<'_> = self.object()?;
        Ok(object.metadata.labels.and_then(|mut labels| labels.remove(key)))
    }

    pub(super) fn object<T: Deserialize<'a>>(&self) -> Result<T, String> {
        parse("", self.object.ok_or("there is no object")?)
    }

    fn is_of(&self, kind: Kind) -> bool {
        let group = kind.api_version().split('/').next();
        group == Some(&self.resource.group) && kind.plural() == self.resource.resource
    }

    /// The whole answer.
    pub(super) fn answer(&self, Decision { outcome, warnings, patch }: Decision) -> Value {
        let denied =
            |code: u16, reason: &str, message: String| json!({ "code": code, "reason": reason, "message": message });
        let status = match outcome {
            Outcome::NotOurs | Outcome::NothingNew | Outcome::Allowed | Outcome::Patched => None,
            Outcome::Refused(message) => Some(denied(403, "Forbidden", message)),
            Outcome::Malformed(message) => Some(denied(422, "Invalid", message)),
            Outcome::TooFast(refusal) => {
                let mut status = denied(429, "TooManyRequests", format!("{}: {refusal}", refusal.code()));
                if let Refusal::TooFast { seconds, .. } = refusal {
                    status["details"] = json!({ "retryAfterSeconds": seconds });
                }
                Some(status)
            }
        };
        let mut response = json!({ "uid": self.uid, "allowed": status.is_none() });
        if let Some(status) = status {
            response["status"] = status;
        }
        if !warnings.is_empty() {
            response["warnings"] = warnings.into();
        }
        if let Some(patch) = patch {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = json!(ByteString(patch.to_string().into_bytes()));
        }
        json!({ "apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response })
    }
}

impl Metadata {
    /// The cluster that it speaks for, where an agent wrote it.
    fn cluster(&self) -> Result<Option<ClusterName>, String> {
        let label = self.labels.as_ref().and_then(|labels| labels.get(CLUSTER_LABEL));
        let read = |name: &String| name.parse().map_err(|error| format!("metadata.labels[{CLUSTER_LABEL}]: {error}"));
        label.map(read).transpose()
    }
}

fn decide_endpoints(snapshot: &Snapshot, applicant: &Applicant, endpoints: &[EndpointSpec]) -> Decision {
    let (mut refused, mut remarks) = (Told::default(), Told::default());
    let claims: Vec<_> = endpoints.iter().map(EndpointSpec::claim).collect();
    // What an object gives up counts towards the quota until it is taken in.
    let mut over_quota = 0;
    for (number, judged) in snapshot.judge(applicant, &claims).into_iter().enumerate() {
        match (judged, &claims[number]) {
            (Ok(()), Ok(claim)) if claim.name.is_wildcard() => remarks.add(|| wildcard(number, claim)),
            (Ok(()), _) => {}
            (Err(Refused { refusal, field }), _) => {
                over_quota += usize::from(matches!(refusal, Refusal::QuotaExceeded { .. }));
                refused.add(|| format!("spec.endpoints[{number}].{field}: {}: {refusal}", refusal.code()));
            }
        }
    }
    if !endpoints.is_empty() && over_quota == 0 && refused.count == endpoints.len() {
        return Outcome::Refused(refused.into_lines().join("; ")).into();
    }
    let warnings = refused.into_lines().into_iter().chain(remarks.into_lines()).collect();
    Decision { outcome: Outcome::Allowed, warnings, patch: None }
}

/// A resolver that tries search paths first asks for `example.com.<path>` before `example.com`, and a wildcard answers.
fn wildcard(number: usize, claim: &RecordClaim) -> String {
    let above = claim.name.parent().unwrap_or_else(|| claim.name.clone());
    format!(
        "spec.endpoints[{number}].dnsName: Wildcard: keep its domain out of the search paths of nodes and pods, which \
         with ndots:5 would take names of the internet for names below {above}"
    )
}

/// Whether every endpoint was there before.
fn only_takes_away(old: &DnsEndpointSpec, new: &DnsEndpointSpec) -> bool {
    let old: HashSet<&EndpointSpec> = old.endpoints.iter().collect();
    new.endpoints.iter().all(|endpoint| old.contains(endpoint))
}

/// The first few, and how many there are.
#[derive(Default)]
struct Told {
    lines: Vec<String>,
    count: usize,
}

impl Told {
    fn add(&mut self, line: impl FnOnce() -> String) {
        self.count += 1;
        if self.lines.len() < MOST {
            self.lines.push(cut(&line()));
        }
    }

    fn into_lines(mut self) -> Vec<String> {
        let more = self.count - self.lines.len();
        if more > 0 {
            self.lines.push(format!("and {more} more"));
        }
        self.lines
    }
}

fn parse<'a, T: Deserialize<'a>>(place: &str, json: &'a RawValue) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_str(json.get());
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let place = match (place, path.as_str()) {
            (place, ".") => place.to_owned(),
            ("", path) => path.to_owned(),
            (place, path) => format!("{place}.{path}"),
        };
        format!("{place}: {}", error.into_inner())
    })
}

fn cut(line: &str) -> String {
    let end = line.floor_char_boundary(LONGEST);
    line[..end].to_owned()
}

#[cfg(test)]
mod tests;
