//! A tenant's own cluster, as an agent in it sees it: the `DNSEndpoint`s whose records are to be published, and the
//! Verdicts beside them that say what became of each. Where the kind Verdict is not installed, Events say it. And where the
//! pods of its Services are, for who reports their load.

mod follow;
mod read;
mod slices;
mod tell;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use manifest::dns_endpoint::EndpointSpec;
use manifest::verdict::VerdictSpec;
use model::identity::Kind;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::apply::MANAGED_BY;
use crate::resource::Resource;
use crate::watch::chain;
pub use follow::Followed;
pub use slices::{Backends, Slice};
pub use tell::Notice;

/// Who writes into a tenant's cluster, as field manager and as label.
pub const AGENT: &str = "fleetgate-agent";
/// News that wait to be taken in; then the watches wait.
const WAITING: usize = 1024;

/// Where an object stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub namespace: String,
    pub name: String,
}

/// A `DNSEndpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub place: Place,
    pub uid: String,
    pub generation: i64,
    /// Or why they cannot be read.
    pub endpoints: Result<Vec<EndpointSpec>, String>,
}

/// A Verdict of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub place: Place,
    /// The `DNSEndpoint` that owns it.
    pub owner: String,
    pub spec: VerdictSpec,
}

/// What is heard of a cluster; the number is that of the namespace.
#[derive(Debug)]
pub enum News {
    Sources(usize, Followed<Source>),
    Verdicts(usize, Followed<Written>),
}

/// What is heard of where pods are; the number is that of the namespace, or of all of them.
#[derive(Debug)]
pub enum PodNews {
    Slices(usize, Followed<Slice>),
    Ingresses(Followed<Backends>),
}

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the object, its namespace or its kind is not there: {0}")]
    NotFound(String),
    #[error("the API server does not let us: {0}")]
    Forbidden(String),
    #[error("the API server does not take it: {0}")]
    Rejected(String),
    #[error("the API server could not do it, or is away: {0}")]
    Away(String),
}

/// A tenant's cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

impl Cluster {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Follows both kinds in these namespaces, or in all of them (`None`), until told to stop.
    pub fn follow(
        &self,
        namespaces: &[Option<String>],
        stop: &CancellationToken,
    ) -> (mpsc::Receiver<News>, TaskTracker) {
        let (news, heard) = mpsc::channel(WAITING);
        let tasks = TaskTracker::new();
        for (number, namespace) in namespaces.iter().enumerate() {
            let api = self.api(Resource::DnsEndpoint, namespace.as_deref());
            let tell = move |followed| News::Sources(number, followed);
            tasks.spawn(follow::follow(api, None, read::source, tell, news.clone(), stop.clone()));
            let api = self.api(Resource::Verdict, namespace.as_deref());
            let tell = move |followed| News::Verdicts(number, followed);
            let labels = Some(format!("{MANAGED_BY}={AGENT}"));
            tasks.spawn(follow::follow(api, labels, read::written, tell, news.clone(), stop.clone()));
        }
        tasks.close();
        (heard, tasks)
    }

    /// Follows the `EndpointSlice`s of these Services, by namespace, until told to stop; and with `ingresses` all slices, and the Ingresses.
    pub fn follow_pods(
        &self,
        services: &BTreeMap<String, Vec<String>>,
        ingresses: bool,
        stop: &CancellationToken,
    ) -> (mpsc::Receiver<PodNews>, TaskTracker) {
        let (news, heard) = mpsc::channel(WAITING);
        let tasks = TaskTracker::new();
        let mut parts: Vec<(Option<&str>, Option<String>)> = vec![(None, None)];
        if ingresses {
            let api = self.api(Resource::Ingress, None);
            tasks.spawn(follow::follow(api, None, slices::backends, PodNews::Ingresses, news.clone(), stop.clone()));
        } else {
            parts =
                services.iter().map(|(namespace, names)| (Some(namespace.as_str()), slices::selector(names))).collect();
        }
        for (number, (namespace, labels)) in parts.into_iter().enumerate() {
            let api = self.api(Resource::EndpointSlice, namespace);
            let tell = move |followed| PodNews::Slices(number, followed);
            tasks.spawn(follow::follow(api, labels, slices::slice, tell, news.clone(), stop.clone()));
        }
        tasks.close();
        (heard, tasks)
    }

    /// Beside the object, and gone with it.
    pub async fn write_verdict(&self, source: &Source, spec: &VerdictSpec) -> Result<(), WriteError> {
        let Place { namespace, name } = &source.place;
        let owner = OwnerReference {
            api_version: Kind::DnsEndpoint.api_version().into(),
            kind: Kind::DnsEndpoint.as_str().into(),
            name: name.clone(),
            uid: source.uid.clone(),
            ..OwnerReference::default()
        };
        let body = json!({
            "apiVersion": Kind::Cluster.api_version(),
            "kind": "Verdict",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": { MANAGED_BY: AGENT },
                "ownerReferences": [owner],
            },
            "spec": spec,
        });
        let apply = PatchParams::apply(AGENT).force();
        let api = self.api(Resource::Verdict, Some(namespace));
        api.patch(name, &apply, &Patch::Apply(body)).await.map(drop).map_err(WriteError::of)
    }

    /// As an Event on the object. Telling the same again is nothing.
    pub async fn tell(&self, source: &Source, notice: &Notice) -> Result<(), WriteError> {
        tell::tell(&self.client, source, notice).await
    }

    fn api(&self, resource: Resource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource.api()),
            None => Api::all_with(self.client.clone(), &resource.api()),
        }
    }
}

impl WriteError {
    fn of(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                400 | 409 | 413 | 422 => Self::Rejected(status.message),
                401 | 403 => Self::Forbidden(status.message),
                404 => Self::NotFound(status.message),
                _ => Self::Away(format!("{} ({})", status.message, status.code)),
            },
            error => Self::Away(chain(&error)),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
