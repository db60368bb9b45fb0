//! `fleetgate release` on a hub: an annotation of the Zone or the Tenant, which every process reads.

use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, Error};
use manifest::labels::RELEASED;
use manifest::text::Moment;
use model::identity::Kind;
use model::{ObjectRef, Timestamp};
use serde_json::json;
use tokio::time::timeout;

use crate::resource::Resource;

/// Who owns the annotation.
const MANAGER: &str = "fleetgate-release";
/// An honest hub answers within milliseconds.
const WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    #[error("nothing is held of a {0}")]
    NothingHeld(Kind),
    #[error("the hub did not answer in time")]
    Late,
    #[error("the hub could not do it, or is away")]
    Hub(#[from] Error),
}

/// Lets go what was held of a Zone or a Tenant until then.
pub async fn release(client: &Client, object: &ObjectRef, until: Timestamp) -> Result<(), ReleaseError> {
    let resource = match object.kind {
        Kind::Zone => Resource::Zone,
        Kind::Tenant => Resource::Tenant,
        kind => return Err(ReleaseError::NothingHeld(kind)),
    };
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource.api());
    let patch = json!({ "metadata": { "annotations": { RELEASED: Moment(until).to_string() } } });
    let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let patched = timeout(WITHIN, objects.patch(object.name.as_str(), &params, &Patch::Merge(&patch))).await;
    patched.map_err(|_| ReleaseError::Late)??;
    Ok(())
}
