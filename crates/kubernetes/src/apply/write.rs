//! One write: the request that it is, sent within what remains of our term, and what the hub made of it.

use std::time::Duration;

use http::Uri;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::request::{Error as RequestError, Request};
use kube::{Client, Error};
use model::ObjectName;
use model::identity::Kind;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::wanted::Write;
use super::{MANAGER, address, publish, verdict};
use crate::lease::Term;

/// An honest hub answers within milliseconds. What takes longer is tried again, and does not hold up a whole round.
const WITHIN: Duration = Duration::from_secs(2);
/// With less than this left of our term nothing is begun: it could end after another has begun.
const LEAST: Duration = Duration::from_millis(500);

/// How a write fails, as a fixed word, and what that means.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("our term is over or about to be")]
    NotLeading,
    #[error("the hub did not answer in time")]
    Late,
    #[error("the object, its namespace or its kind is not on the hub: {0}")]
    NotFound(String),
    #[error("the hub has another object or a newer version there: {0}")]
    Conflict(String),
    #[error("the hub does not take it: {0}")]
    Rejected(String),
    #[error("the hub does not let us: {0}")]
    Forbidden(String),
    #[error("the hub could not do it, or is away: {0}")]
    Hub(Error),
}

/// Every outcome of a write, as metrics have it.
pub(super) const OUTCOMES: [&str; 8] =
    ["ok", "notLeading", "late", "notFound", "conflict", "rejected", "forbidden", "error"];
/// Every kind that is written.
pub(super) const KINDS: [&str; 11] = [
    "Zone",
    "Tenant",
    "Cluster",
    "AddressPool",
    "AddressClaim",
    "Address",
    "FederationPolicy",
    "DNSEndpoint",
    "Ingress",
    "Verdict",
    "Event",
];

impl Failure {
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::NotLeading => "notLeading",
            Self::Late => "late",
            Self::NotFound(_) => "notFound",
            Self::Conflict(_) => "conflict",
            Self::Rejected(_) => "rejected",
            Self::Forbidden(_) => "forbidden",
            Self::Hub(_) => "error",
        }
    }

    /// Whether the same would be rejected again.
    pub(super) fn is_rejected(&self) -> bool {
        matches!(self, Self::Rejected(_))
    }

    pub(super) fn of(error: Error) -> Self {
        match error {
            Error::Api(status) => match status.code {
                400 | 413 | 422 => Self::Rejected(status.message),
                401 | 403 => Self::Forbidden(status.message),
                404 => Self::NotFound(status.message),
                409 => Self::Conflict(status.message),
                _ => Self::Hub(Error::Api(status)),
            },
            error => Self::Hub(error),
        }
    }
}

impl Write {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Status { object, .. } => object.kind.as_str(),
            Self::Publish { .. } | Self::Withdraw { .. } => Kind::DnsEndpoint.as_str(),
            Self::Judge { .. } | Self::DropVerdict { .. } => "Verdict",
            Self::Allocate { .. } | Self::Reallocate { .. } | Self::Free { .. } => Kind::Address.as_str(),
        }
    }

    /// Sends it; returns the object as the hub has it afterwards.
    pub(super) async fn send(&self, client: &Client, term: &Term) -> Result<Value, Failure> {
        send_within(client, term, || self.request()).await
    }

    fn request(&self) -> Result<http::Request<Vec<u8>>, RequestError> {
        let apply = PatchParams::apply(MANAGER).force();
        match self {
            Self::Status { object, version, status, .. } => {
                let namespace = object.namespace.as_ref().map(ObjectName::as_str);
                let mut body = json!({
                    "apiVersion": object.kind.api_version(),
                    "kind": object.kind.as_str(),
                    "metadata": { "name": object.name.as_str(), "namespace": namespace },
                    "status": status.to_json(),
                });
                if let Some(version) = version {
                    body["metadata"]["resourceVersion"] = version.as_str().into();
                }
                let path = path(object.kind.api_version(), namespace, object.kind.plural());
                path.patch_subresource("status", object.name.as_str(), &apply, &Patch::Apply(body))
            }
            Self::Publish { endpoint } => {
                let body = publish::body(endpoint);
                endpoints_path().patch(endpoint.name.as_str(), &apply, &Patch::Apply(body))
            }
            Self::Withdraw { name, uid } => endpoints_path().delete(name.as_str(), &only(uid)),
            Self::Judge { place, verdict } => {
                let body = verdict::body(place, verdict);
                verdicts_path(place).patch(place.1.as_str(), &apply, &Patch::Apply(body))
            }
            Self::DropVerdict { place, uid } => verdicts_path(place).delete(place.1.as_str(), &only(uid)),
            Self::Allocate { name, spec } => addresses_path().create(&post(), octets(&address::body(name, None, spec))),
            Self::Reallocate { name, uid, version, spec } => {
                let body = address::body(name, Some((uid, version)), spec);
                addresses_path().replace(name.as_str(), &post(), octets(&body))
            }
            Self::Free { name, uid, version } => {
                let only = Preconditions { uid: Some(uid.clone()), resource_version: Some(version.clone()) };
                addresses_path().delete(name.as_str(), &DeleteParams::default().preconditions(only))
            }
        }
    }
}

/// Sends a request that writes, if our term lasts; returns the object as the hub has it afterwards.
pub(crate) async fn send_within(
    client: &Client,
    term: &Term,
    request: impl FnOnce() -> Result<http::Request<Vec<u8>>, RequestError>,
) -> Result<Value, Failure> {
    if !term.holds_for(LEAST) {
        return Err(Failure::NotLeading);
    }
    let within = term.remaining().min(WITHIN);
    let mut request = request().map_err(|error| Failure::Hub(Error::BuildRequest(error)))?;
    end_within(&mut request, within);
    timeout(within, client.request(request)).await.map_err(|_| Failure::Late)?.map_err(Failure::of)
}

/// The hub gives up at the same moment as we do: nothing of ours is done after our term.
fn end_within(request: &mut http::Request<Vec<u8>>, within: Duration) {
    let separator = if request.uri().query().is_some_and(|query| !query.is_empty()) { "&" } else { "?" };
    let text = request.uri().to_string();
    let uri = format!("{}{separator}timeout={}ms", text.trim_end_matches('?'), within.as_millis());
    *request.uri_mut() = uri.parse::<Uri>().expect("a URI stays one with a parameter more");
}

fn path(api_version: &str, namespace: Option<&str>, plural: &str) -> Request {
    let namespace = namespace.map_or_else(String::new, |namespace| format!("namespaces/{namespace}/"));
    Request::new(format!("/apis/{api_version}/{namespace}{plural}"))
}

fn endpoints_path() -> Request {
    path(Kind::DnsEndpoint.api_version(), Some(publish::NAMESPACE), Kind::DnsEndpoint.plural())
}

fn verdicts_path((namespace, _): &verdict::Place) -> Request {
    path(Kind::Cluster.api_version(), Some(namespace.as_str()), "verdicts")
}

fn addresses_path() -> Request {
    path(Kind::Address.api_version(), None, Kind::Address.plural())
}

fn post() -> PostParams {
    PostParams { dry_run: false, field_manager: Some(MANAGER.into()) }
}

fn octets(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

fn only(uid: &str) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions { uid: Some(uid.into()), resource_version: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_created_or_replaced_as_they_were_seen() {
        let name: ObjectName = "192.0.2.1".parse().unwrap();
        let spec: manifest::address::AddressSpec = serde_json::from_value(json!({
            "pool": "public", "claim": {"namespace": "acme", "name": "web", "uid": "u"},
        }))
        .unwrap();
        let (uid, version) = ("a".to_owned(), "7".to_owned());
        let allocate = Write::Allocate { name: name.clone(), spec: spec.clone() };
        let reallocate = Write::Reallocate { name: name.clone(), uid: uid.clone(), version: version.clone(), spec };
        let free = Write::Free { name, uid, version };
        for (write, method, path, expected) in [
            (allocate, "POST", "/apis/fleetgate.dev/v1alpha1/addresses", None),
            (reallocate, "PUT", "/apis/fleetgate.dev/v1alpha1/addresses/192.0.2.1", Some("/metadata/resourceVersion")),
            (
                free,
                "DELETE",
                "/apis/fleetgate.dev/v1alpha1/addresses/192.0.2.1",
                Some("/preconditions/resourceVersion"),
            ),
        ] {
            let request = write.request().unwrap();
            assert_eq!((request.method().as_str(), request.uri().path()), (method, path));
            let body: Value = serde_json::from_slice(request.body()).unwrap();
            assert!(expected.is_none_or(|pointer| body.pointer(pointer) == Some(&json!("7"))), "{body}");
        }
    }

    #[test]
    fn requests_end_with_our_patience() {
        let cluster: ObjectName = "c1".parse().unwrap();
        let publish = Write::Publish { endpoint: publish::of_cluster(&cluster, "u", &[]) };
        let withdraw = Write::Withdraw { name: cluster, uid: "u".into() };
        for (write, method, uri) in [
            (publish, "PATCH", "?&fieldManager=fleetgate&force=true&timeout=1500ms"),
            (withdraw, "DELETE", "?timeout=1500ms"),
        ] {
            let mut request = write.request().unwrap();
            end_within(&mut request, Duration::from_millis(1500));
            let path = "/apis/externaldns.k8s.io/v1alpha1/namespaces/fleetgate-publish/dnsendpoints/c1";
            let query = request.uri().query().unwrap().trim_start_matches('&');
            assert_eq!(request.method(), method);
            assert_eq!(request.uri().path(), path);
            let mut parameters: Vec<_> = query.split('&').collect();
            parameters.sort_unstable();
            let mut expected: Vec<_> = uri.trim_start_matches(['?', '&']).split('&').collect();
            expected.sort_unstable();
            assert_eq!(parameters, expected);
        }
    }
}
