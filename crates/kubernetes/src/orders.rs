//! What an operator orders on a hub: annotations, which every process reads. `fleetgate release` writes one on a Zone or a Tenant,
//! `fleetgate drain` on a Cluster.

use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, Error};
use manifest::labels::{DRAINED, RELEASED};
use manifest::text::Moment;
use model::identity::Kind;
use model::{ClusterName, ObjectRef, Timestamp};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::resource::Resource;

/// Who owns the annotations.
const RELEASER: &str = "fleetgate-release";
const DRAINER: &str = "fleetgate-drain";
/// An honest hub answers within milliseconds.
const WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    #[error("nothing is held of a {0}")]
    NothingHeld(Kind),
    #[error("the hub did not answer in time")]
    Late,
    #[error("the hub could not do it, or is away")]
    Hub(#[from] Error),
}

/// Lets go what was held of a Zone or a Tenant until then.
pub async fn release(client: &Client, object: &ObjectRef, until: Timestamp) -> Result<(), OrderError> {
    let resource = match object.kind {
        Kind::Zone => Resource::Zone,
        Kind::Tenant => Resource::Tenant,
        kind => return Err(OrderError::NothingHeld(kind)),
    };
    let annotations = json!({ RELEASED: Moment(until).to_string() });
    annotate(client, resource, object.name.as_str(), &annotations, RELEASER).await
}

/// Has no federated traffic sent to a cluster since then, or sends it there again.
pub async fn drain(client: &Client, cluster: &ClusterName, since: Option<Timestamp>) -> Result<(), OrderError> {
    let annotations = json!({ DRAINED: since.map(|since| Moment(since).to_string()) });
    annotate(client, Resource::Cluster, cluster.as_str(), &annotations, DRAINER).await
}

async fn annotate(
    client: &Client,
    resource: Resource,
    name: &str,
    annotations: &Value,
    manager: &str,
) -> Result<(), OrderError> {
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource.api());
    let patch = json!({ "metadata": { "annotations": annotations } });
    let params = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
    let patched = timeout(WITHIN, objects.patch(name, &params, &Patch::Merge(&patch))).await;
    patched.map_err(|_| OrderError::Late)??;
    Ok(())
}
