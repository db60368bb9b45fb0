//! What becomes of objects that have no room for conditions of ours.
//!
//! A `DNSEndpoint` and an Ingress of the same name share one [`Verdict`](manifest::verdict::Verdict): it has the name of
//! both, as promised, and is owned by both.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use manifest::verdict::{JudgedObject, PartVerdict, VerdictSpec, parts};
use model::identity::Kind;
use model::snapshot::Status;
use model::{ObjectName, ObjectRef};
use serde_json::{Value, json};

use super::publish::owner;
use super::{MANAGED_BY, MANAGER};

/// Beside this many parts the verdict of each is no longer read by people, and the object has a bound of its own.
const MOST_PARTS: usize = 1000;

/// Where a verdict stands: its namespace and name.
pub(super) type Place = (ObjectName, ObjectName);

/// A Verdict as the hub has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenVerdict {
    pub(super) uid: String,
    pub(super) ours: bool,
    /// The UIDs of those that it is about.
    owners: Vec<String>,
    spec: Option<VerdictSpec>,
}

impl SeenVerdict {
    pub(super) fn read(meta: &ObjectMeta, spec: &Value) -> Self {
        let manager = meta.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY));
        let judged = [Kind::DnsEndpoint.as_str(), Kind::Ingress.as_str()];
        let owners = meta.owner_references.iter().flatten().filter(|owner| judged.contains(&&*owner.kind));
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            ours: manager.is_some_and(|manager| manager == MANAGER),
            owners: sorted(owners.map(|owner| owner.uid.clone())),
            spec: serde_json::from_value(spec.clone()).ok(),
        }
    }

    pub(super) fn is(&self, wanted: &WantedVerdict) -> bool {
        self.ours
            && self.owners == sorted(wanted.owners.iter().map(|owner| owner.uid.clone()))
            && self.spec.as_ref() == Some(&wanted.spec)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct WantedVerdict {
    spec: VerdictSpec,
    owners: Vec<OwnerReference>,
}

/// An object that was judged, as the hub has it.
pub(super) struct Judged<'a> {
    pub(super) object: &'a ObjectRef,
    pub(super) uid: &'a str,
    pub(super) generation: i64,
    pub(super) status: Cow<'a, Status>,
}

/// Of one object, or of a `DNSEndpoint` and the Ingress of the same name.
pub(super) fn verdict(judged: &[Judged<'_>]) -> Option<WantedVerdict> {
    let first = judged.first()?;
    let about = |judged: &Judged<'_>| JudgedObject {
        kind: judged.object.kind.as_str().into(),
        generation: judged.status.generation.unwrap_or(judged.generation),
    };
    let mut parts: Vec<PartVerdict> = judged
        .iter()
        .flat_map(|of| {
            let kind = if judged.len() > 1 { of.object.kind.as_str() } else { "" };
            parts(&of.status).into_iter().map(move |part| PartVerdict { kind: kind.into(), ..part })
        })
        .collect();
    let count = |published: bool| {
        let parts = parts.iter().filter(|part| part.published == published);
        u32::try_from(parts.count()).unwrap_or(u32::MAX)
    };
    let (published, refused) = (count(true), count(false));
    parts.truncate(MOST_PARTS);
    let spec = VerdictSpec { object: about(first), beside: judged.get(1).map(about), published, refused, parts };
    Some(WantedVerdict { spec, owners: judged.iter().map(|judged| owner(judged.object, judged.uid)).collect() })
}

/// What is applied.
pub(super) fn body((namespace, name): &Place, wanted: &WantedVerdict) -> Value {
    json!({
        "apiVersion": Kind::Cluster.api_version(),
        "kind": "Verdict",
        "metadata": {
            "name": name.as_str(),
            "namespace": namespace.as_str(),
            "labels": { MANAGED_BY: MANAGER },
            "ownerReferences": wanted.owners,
        },
        "spec": wanted.spec,
    })
}

/// Those that share a verdict, the first of which it names first.
pub(super) fn sharing((namespace, name): &Place) -> [ObjectRef; 2] {
    [Kind::DnsEndpoint, Kind::Ingress].map(|kind| ObjectRef {
        kind,
        namespace: Some(namespace.clone()),
        name: name.clone(),
    })
}

fn sorted(uids: impl Iterator<Item = String>) -> Vec<String> {
    let mut uids: Vec<_> = uids.collect();
    uids.sort_unstable();
    uids
}
