//! What is said in the status of a Cluster of the federated Ingresses that are to be there. Pure.

use std::sync::Arc;

use manifest::placed::{MOST_PLACED, PlacedStatus};
use model::placement::{IngressPlace, Placement, PlacementFault};

/// Of all of them: etcd takes objects of 1.5 MiB, and nodes may have one.
const MOST_OCTETS: usize = 256 << 10;

/// What is said, but for since when.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Placed {
    pub(super) ingresses: Arc<[PlacedStatus]>,
    /// There are more than these.
    pub(super) is_cut: bool,
    /// The condition: whether it holds, its reason and its message. `None` where nothing is to be there.
    pub(super) told: Option<(bool, &'static str, String)>,
}

/// What the credential may not look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    Ingresses,
    Services,
    EndpointSlices,
}

impl Lack {
    fn advice(self) -> &'static str {
        match self {
            Self::Ingresses => "get, list, watch, create, patch and delete ingresses",
            Self::Services => "get, list and watch services",
            Self::EndpointSlices => "get, list and watch endpointslices",
        }
    }
}

impl Placed {
    pub(super) fn of(placements: impl Iterator<Item = (IngressPlace, Placement)>, lacks: &[Lack]) -> Self {
        let (mut ingresses, mut octets, mut count, mut good) = (Vec::new(), 0, 0, 0);
        let mut is_forbidden = false;
        for (place, placement) in placements {
            count += 1;
            good += usize::from(placement.fault.is_none());
            is_forbidden |= placement.fault == Some(PlacementFault::Forbidden);
            let status = PlacedStatus::new(&place, &placement, placement.fault.map_or("", message));
            octets += self::octets(&status);
            if ingresses.len() < MOST_PLACED && octets <= MOST_OCTETS {
                ingresses.push(status);
            }
        }
        let told = match lacks {
            [] if is_forbidden => (false, "Forbidden", forbidden(&[Lack::Ingresses])),
            [] if good == count => (true, "Placed", "its federated Ingresses are as they should be".to_owned()),
            [] => (false, "NotPlaced", "some of its federated Ingresses are not as they should be".to_owned()),
            lacks => (false, "Forbidden", forbidden(lacks)),
        };
        Self { is_cut: ingresses.len() < count, ingresses: ingresses.into(), told: (count > 0).then_some(told) }
    }
}

fn forbidden(lacks: &[Lack]) -> String {
    let mut advice: Vec<&str> = lacks.iter().map(|lack| lack.advice()).collect();
    advice.dedup();
    format!("the credential may not do all that federated Ingresses need; let it {}", advice.join(", and "))
}

/// For whoever runs the cluster. Fixed words: nothing that its server says is repeated.
fn message(fault: PlacementFault) -> &'static str {
    match fault {
        PlacementFault::Pending => "it has not come there yet",
        PlacementFault::AlreadyThere => "an Ingress of this name is there, and is not Fleetgate's",
        PlacementFault::NoNamespace => "there is no such namespace in the cluster",
        PlacementFault::Forbidden => "the credential may not write it",
        PlacementFault::Rejected => "the cluster does not take it",
    }
}

/// About what it takes.
fn octets(status: &PlacedStatus) -> usize {
    let backends = status.backends.iter().map(|at| 64 + at.service.0.as_str().len() + at.port.len()).sum::<usize>();
    96 + status.namespace.0.as_str().len() + status.name.0.as_str().len() + status.message.len() + backends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(fault: Option<PlacementFault>) -> Placement {
        Placement { is_there: fault.is_none(), fault, ..Placement::default() }
    }

    fn placed(faults: &[Option<PlacementFault>], lacks: &[Lack]) -> Placed {
        let place = |number: usize| ("acme".parse().unwrap(), format!("i{number}").parse().unwrap());
        let all = faults.iter().enumerate().map(|(number, fault)| (place(number), placement(*fault)));
        Placed::of(all, lacks)
    }

    #[test]
    fn the_condition_is_what_all_of_them_come_to() {
        for (faults, lacks, told) in [
            (&[][..], &[][..], None),
            (&[None, None], &[], Some((true, "Placed"))),
            (&[None, Some(PlacementFault::AlreadyThere)], &[], Some((false, "NotPlaced"))),
            (&[Some(PlacementFault::Forbidden)], &[], Some((false, "Forbidden"))),
            (&[None], &[Lack::Services], Some((false, "Forbidden"))),
            (&[None], &[Lack::Services, Lack::EndpointSlices], Some((false, "Forbidden"))),
        ] {
            let placed = placed(faults, lacks);
            assert_eq!(placed.told.as_ref().map(|(holds, reason, _)| (*holds, *reason)), told, "{faults:?} {lacks:?}");
            assert_eq!((placed.ingresses.len(), placed.is_cut), (faults.len(), false));
        }
        let (.., message) = placed(&[None], &[Lack::Services]).told.unwrap();
        assert!(message.ends_with("let it get, list and watch services"), "{message}");
    }

    #[test]
    fn no_more_is_told_than_fits() {
        let all = placed(&[None; MOST_PLACED + 1], &[]);
        assert_eq!((all.ingresses.len(), all.is_cut), (MOST_PLACED, true));
        let size = serde_json::to_vec(&*all.ingresses).unwrap().len();
        let counted: usize = all.ingresses.iter().map(octets).sum();
        assert!(size <= counted, "{size} octets, counted as {counted}");
    }
}
