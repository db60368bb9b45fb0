//! Federated Ingresses inside a member cluster, as whoever keeps them there saw them.

use std::collections::BTreeMap;

use crate::identity::{ClusterName, ObjectName};
use crate::ingress::Backend;
use crate::refusal::Refusal;
use crate::resource::Access;
use crate::steering::Unhealthy;

/// Namespaces of Kubernetes' own, in which nothing is ever written.
pub const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// The namespace and the name of an Ingress, which are the same in every member.
pub type IngressPlace = (ObjectName, ObjectName);

/// What was seen in one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placements {
    pub ingresses: BTreeMap<IngressPlace, Placement>,
    /// There are more, of which nothing is said.
    pub is_cut: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// A copy of ours is there, if perhaps not the latest.
    pub is_there: bool,
    /// Why it is not as it should be.
    pub fault: Option<PlacementFault>,
    pub backends: BTreeMap<Backend, BackendState>,
}

/// `None` where nobody could look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackendState {
    /// The Service is there and has the port.
    pub is_found: Option<bool>,
    /// At least one endpoint is ready.
    pub is_ready: Option<bool>,
}

/// Why an Ingress is not in a cluster as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementFault {
    /// It has not come to it yet, or the cluster's server could not do it.
    Pending,
    /// An Ingress of this name is there, and is not ours.
    AlreadyThere,
    NoNamespace,
    /// The kubeconfig may not do that.
    Forbidden,
    /// The cluster does not take it.
    Rejected,
}

impl PlacementFault {
    const ALL: [Self; 5] = [Self::Pending, Self::AlreadyThere, Self::NoNamespace, Self::Forbidden, Self::Rejected];

    /// The word that stands for it in a status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::AlreadyThere => "AlreadyThere",
            Self::NoNamespace => "NoNamespace",
            Self::Forbidden => "Forbidden",
            Self::Rejected => "Rejected",
        }
    }

    /// What nobody knows is not yet done.
    pub fn read(word: &str) -> Self {
        Self::ALL.into_iter().find(|fault| fault.as_str() == word).unwrap_or(Self::Pending)
    }
}

impl Access {
    /// What there is to tell of an Ingress that is to be in the cluster.
    pub(crate) fn judge<'a>(
        &self,
        cluster: &ClusterName,
        place: &IngressPlace,
        backends: impl Iterator<Item = &'a Backend>,
    ) -> Result<(), Refusal> {
        let cluster = cluster.clone();
        if self.reachable == Some(false) {
            return Err(Refusal::ClusterAway { cluster });
        }
        let Some(placement) = self.placements.ingresses.get(place) else {
            return if self.placements.is_cut { Ok(()) } else { Err(Refusal::NotPlaced { cluster }) };
        };
        if let Some(fault) = placement.fault {
            return Err(match fault {
                PlacementFault::Pending => Refusal::NotPlaced { cluster },
                PlacementFault::AlreadyThere => Refusal::AlreadyThere { cluster },
                PlacementFault::NoNamespace => Refusal::NoNamespace { cluster, namespace: place.0.clone() },
                PlacementFault::Forbidden => Refusal::MayNotPlace { cluster },
                PlacementFault::Rejected => Refusal::NotTaken { cluster },
            });
        }
        for backend in backends {
            let state = placement.state(backend);
            if state.is_found == Some(false) {
                return Err(Refusal::NoService { cluster, backend: backend.clone() });
            }
            if state.is_ready == Some(false) {
                return Err(Refusal::NoReadyEndpoints { cluster, service: backend.service.clone() });
            }
        }
        Ok(())
    }

    /// Why nobody is to be sent to the cluster for a backend. Of what nothing is known counts as ready.
    pub(crate) fn unready(&self, place: &IngressPlace, backend: &Backend) -> Option<Unhealthy> {
        let Some(placement) = self.placements.ingresses.get(place) else {
            let is_awaited = self.reachable == Some(true) && !self.placements.is_cut;
            return is_awaited.then_some(Unhealthy::NotPlaced);
        };
        let state = placement.state(backend);
        if state.is_found == Some(false) || state.is_ready == Some(false) {
            return Some(Unhealthy::NoReadyEndpoints);
        }
        // What others keep there may serve it all the same.
        let is_others = matches!(placement.fault, Some(PlacementFault::AlreadyThere | PlacementFault::Forbidden));
        (!placement.is_there && !is_others).then_some(Unhealthy::NotPlaced)
    }
}

impl Placement {
    fn state(&self, backend: &Backend) -> BackendState {
        self.backends.get(backend).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingress::Port;
    use std::sync::Arc;

    /// What was seen, and what becomes of it: what is told, and why nobody is sent there.
    #[test]
    fn what_is_told_and_who_is_left_out() {
        let backend = Backend { service: "web".parse().unwrap(), port: Port::Number(80) };
        let place: IngressPlace = ("acme".parse().unwrap(), "web".parse().unwrap());
        let state = |is_found, is_ready| BackendState { is_found, is_ready };
        let (yes, no) = (Some(true), Some(false));
        let fault = |is_there, fault| Some((is_there, Some(fault), state(yes, yes)));
        let good = |of| Some((true, None, of));
        let rows = [
            (yes, false, None, "NotPlaced", Some(Unhealthy::NotPlaced)),
            (yes, true, None, "", None),
            (None, false, None, "NotPlaced", None),
            (no, false, None, "ClusterAway", None),
            (yes, false, good(state(yes, yes)), "", None),
            (yes, false, good(state(None, None)), "", None),
            (yes, false, good(state(yes, no)), "NoReadyEndpoints", Some(Unhealthy::NoReadyEndpoints)),
            (yes, false, good(state(no, None)), "NoService", Some(Unhealthy::NoReadyEndpoints)),
            // As it was last seen.
            (no, false, good(state(yes, no)), "ClusterAway", Some(Unhealthy::NoReadyEndpoints)),
            (yes, false, fault(false, PlacementFault::Pending), "NotPlaced", Some(Unhealthy::NotPlaced)),
            (yes, false, fault(true, PlacementFault::Pending), "NotPlaced", None),
            (yes, false, fault(false, PlacementFault::AlreadyThere), "AlreadyThere", None),
            (yes, false, fault(false, PlacementFault::Forbidden), "MayNotPlace", None),
            (yes, false, fault(false, PlacementFault::NoNamespace), "NoNamespace", Some(Unhealthy::NotPlaced)),
            (yes, false, fault(false, PlacementFault::Rejected), "NotTaken", Some(Unhealthy::NotPlaced)),
        ];
        for (reachable, is_cut, seen, told, unready) in rows {
            let placement = seen.map(|(is_there, fault, state)| {
                (place.clone(), Placement { is_there, fault, backends: BTreeMap::from([(backend.clone(), state)]) })
            });
            let placements = Placements { ingresses: placement.into_iter().collect(), is_cut };
            let (namespace, name) = place.clone();
            let access = Access { namespace, name, reachable, placements: Arc::new(placements) };
            let judged = access.judge(&"c1".parse().unwrap(), &place, [&backend].into_iter());
            assert_eq!(judged.map_or_else(|refusal| refusal.code(), |()| ""), told, "{access:?}");
            assert_eq!(access.unready(&place, &backend), unready, "{access:?}");
        }
        for fault in PlacementFault::ALL {
            assert_eq!(PlacementFault::read(fault.as_str()), fault);
        }
        assert_eq!(PlacementFault::read("something new"), PlacementFault::Pending);
    }
}
