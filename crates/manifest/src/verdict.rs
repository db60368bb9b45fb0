//! `kind: Verdict`: what we say of objects that have no room for conditions of ours.

use kube::CustomResource;
use model::policy::Refused;
use model::snapshot::{Detail, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{Moment, Text};

/// Beside a `DNSEndpoint` or an Ingress of the same name, and owned by it: what became of each of its parts. Where both have
/// the same name they share one, which has two owners then: any other name could itself be that of a third object.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "Verdict",
    plural = "verdicts",
    category = "fleetgate",
    doc = "Beside a DNSEndpoint or an Ingress of the same name, and owned by it: what became of each of its parts.",
    namespaced,
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.object.kind"),
    printcolumn(name = "Published", type_ = "integer", json_path = ".spec.published"),
    printcolumn(name = "Refused", type_ = "integer", json_path = ".spec.refused"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct VerdictSpec {
    /// What was judged.
    pub object: JudgedObject,
    /// The Ingress beside it, where a `DNSEndpoint` and an Ingress have the same name: they share the verdict, and each part
    /// says whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<JudgedObject>,
    /// How many parts are published.
    #[serde(default)]
    pub published: u32,
    /// How many parts are refused.
    #[serde(default)]
    pub refused: u32,
    /// What became of each part, the first 1,000 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub parts: Vec<PartVerdict>,
}

/// The object that a verdict is about; it has the verdict's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JudgedObject {
    /// `DNSEndpoint` or `Ingress`.
    pub kind: String,
    /// The generation that was judged.
    #[serde(default)]
    pub generation: i64,
}

/// One endpoint of a `DNSEndpoint`; or a path, a certificate, a member cluster or a wrong annotation of an Ingress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartVerdict {
    /// The endpoint's name and type; or host and path, `defaultBackend`, `tls[0]`, the cluster's or the annotation's name; `*`
    /// is all of it.
    pub part: String,
    /// Whose part it is, where two objects share the verdict.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Whether it is published.
    pub published: bool,
    /// Why not, as a fixed word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// Why not, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The field at fault.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// Since when it has been asked for; of two who want the same name, the earlier has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Text<Moment>>,
}

impl PartVerdict {
    pub fn new<T>(part: &str, outcome: &Result<T, Refused>) -> Self {
        let part = Self { part: part.to_owned(), ..Self::default() };
        match outcome {
            Ok(_) => Self { published: true, ..part },
            Err(Refused { refusal, field }) => {
                Self { code: refusal.code().into(), reason: refusal.to_string(), field: field.clone(), ..part }
            }
        }
    }
}

/// What the plan says of an object, part by part; of all of it at once where it does not speak of parts.
pub fn parts(status: &Status) -> Vec<PartVerdict> {
    if let Detail::Records { parts, .. } = &status.detail {
        let verdict = |part: &model::snapshot::PartStatus| PartVerdict {
            since: Some(Text(Moment(part.since))),
            ..PartVerdict::new(&part.part, &part.outcome)
        };
        return parts.iter().map(verdict).collect();
    }
    if let Detail::Ingress { .. } = &status.detail {
        let verdict =
            |(part, outcome): (&str, Result<(), &Refused>)| PartVerdict::new(part, &outcome.map_err(Clone::clone));
        return status.detail.parts().into_iter().map(verdict).collect();
    }
    let part = PartVerdict { part: "*".into(), ..PartVerdict::default() };
    vec![match status.refusal() {
        Some(refusal) => PartVerdict { code: refusal.reason.into(), reason: refusal.message.clone(), ..part },
        None => PartVerdict { published: true, ..part },
    }]
}
