//! What stands in a Cluster's status of the federated Ingresses that are to be in it.

use std::sync::Arc;

use model::ObjectName;
use model::ingress::{Backend, Port};
use model::placement::{BackendState, IngressPlace, Placement, PlacementFault, Placements};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::List;
use crate::text::Text;

/// Ingresses that are told of, in one cluster.
pub const MOST_PLACED: usize = 1000;
/// Backends that are told of, in one Ingress.
pub const MOST_BACKENDS: usize = 64;
/// The reason of one that is as it should be.
pub const PLACED: &str = "Placed";

/// A federated Ingress in the cluster, as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacedStatus {
    /// Its namespace, here and there.
    pub namespace: Text<ObjectName>,
    /// Its name, here and there.
    pub name: Text<ObjectName>,
    /// Whether a copy of it is in the cluster, if perhaps not the latest.
    pub placed: bool,
    /// `Placed`, or why it is not there as it should be: `Pending`, `AlreadyThere` (an Ingress of this name that is not
    /// Fleetgate's), `NoNamespace`, `Forbidden` or `Rejected`.
    pub reason: String,
    /// The same for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its backends; the first, where there are many.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub backends: List<BackendStatus, MOST_BACKENDS>,
}

/// A backend of an Ingress, as it was last seen in the cluster. What is not known is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendStatus {
    /// The name of the Service.
    pub service: Text<ObjectName>,
    /// The number or the name of its port.
    pub port: String,
    /// Whether the Service is there and has the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<bool>,
    /// Whether any of its endpoints is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
}

impl PlacedStatus {
    pub fn new((namespace, name): &IngressPlace, placement: &Placement, message: &str) -> Self {
        let backends = placement.backends.iter().take(MOST_BACKENDS).map(|(backend, state)| BackendStatus {
            service: Text(backend.service.clone()),
            port: backend.port.to_string(),
            found: state.is_found,
            ready: state.is_ready,
        });
        Self {
            namespace: Text(namespace.clone()),
            name: Text(name.clone()),
            placed: placement.is_there,
            reason: placement.fault.map_or(PLACED, PlacementFault::as_str).to_owned(),
            message: message.to_owned(),
            backends: List(backends.collect()),
        }
    }

    fn into_model(self) -> (IngressPlace, Placement) {
        let backend = |backend: BackendStatus| {
            let port = backend.port.parse().map_or_else(|_| Port::Name(backend.port.as_str().into()), Port::Number);
            let state = BackendState { is_found: backend.found, is_ready: backend.ready };
            (Backend { service: backend.service.0, port }, state)
        };
        let placement = Placement {
            is_there: self.placed,
            fault: (self.reason != PLACED).then(|| PlacementFault::read(&self.reason)),
            backends: self.backends.0.into_iter().map(backend).collect(),
        };
        ((self.namespace.0, self.name.0), placement)
    }
}

/// Of a whole cluster.
pub(crate) fn into_model(ingresses: List<PlacedStatus, MOST_PLACED>, is_cut: bool) -> Arc<Placements> {
    Arc::new(Placements { ingresses: ingresses.0.into_iter().map(PlacedStatus::into_model).collect(), is_cut })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let backend = |port| Backend { service: "shop".parse().unwrap(), port };
        let state = |is_found, is_ready| BackendState { is_found, is_ready };
        let place: IngressPlace = ("acme".parse().unwrap(), "shop".parse().unwrap());
        for (is_there, fault) in
            [(true, None), (true, Some(PlacementFault::Rejected)), (false, Some(PlacementFault::AlreadyThere))]
        {
            let backends = BTreeMap::from([
                (backend(Port::Number(80)), state(Some(true), Some(false))),
                (backend(Port::Name("http".into())), state(Some(false), None)),
            ]);
            let placement = Placement { is_there, fault, backends };
            let written = serde_json::to_value(PlacedStatus::new(&place, &placement, "for people")).unwrap();
            let read: PlacedStatus = serde_json::from_value(written).unwrap();
            assert_eq!(read.into_model(), (place.clone(), placement));
        }
    }
}
