//! How a cluster is, as a colour, a shape and a word.

use maud::{Markup, html};
use model::snapshot::{ClusterPart, Condition, Detail, Status};

/// The worst last: of several at one place of the map, the worst is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Health {
    Ready,
    Drained,
    Degraded,
    Held,
    Down,
    Refused,
}

impl Health {
    pub(super) const ALL: [Self; 6] =
        [Self::Ready, Self::Degraded, Self::Down, Self::Held, Self::Drained, Self::Refused];

    pub(super) fn of(part: &ClusterPart, status: &Status) -> Self {
        let fails = |kind: &str| status.conditions.iter().any(|condition| condition.kind == kind && !condition.holds);
        let state = match &status.detail {
            Detail::Cluster { state, .. } => *state,
            _ => "",
        };
        if part.drained.is_some() {
            Self::Drained
        } else if part.held {
            Self::Held
        } else if matches!(state, "NoReadyNodes" | "Unreachable") {
            Self::Down
        } else if state != "Ready"
            || fails(Condition::ACCEPTED)
            || fails(Condition::DOOR_OPEN)
            || fails(Condition::INGRESS_ROUTED)
            || part.nodes.iter().any(|node| !node.ready)
        {
            Self::Degraded
        } else {
            Self::Ready
        }
    }

    /// As it stands in a query and as a class.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Down => "down",
            Self::Held => "held",
            Self::Drained => "drained",
            Self::Refused => "refused",
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Degraded => "Degraded",
            Self::Down => "Down",
            Self::Held => "Held",
            Self::Drained => "Drained",
            Self::Refused => "Refused",
        }
    }

    /// For those who do not know the word.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Ready => "all nodes are ready",
            Self::Degraded => "served, but something of it is not as it should be",
            Self::Down => "no node is ready, or nobody gets through to it",
            Self::Held => "no node is ready; its names are kept until somebody releases them",
            Self::Drained => "somebody took it out of federated ingresses",
            Self::Refused => "not served at all",
        }
    }

    pub(super) fn find(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|health| health.key() == key)
    }

    /// A circle, a triangle and so on around 0, 0; told apart without any colour.
    pub(super) fn shape(self) -> &'static str {
        match self {
            Self::Ready => "M0-4a4 4 0 1 1 0 8a4 4 0 1 1 0-8z",
            Self::Degraded => "M0-4.6L4.8 3.8H-4.8z",
            Self::Down => "M-3.8-3.8h7.6v7.6h-7.6z",
            Self::Held => "M0-5L5 0 0 5-5 0z",
            Self::Drained => "M0-4.4a4.4 4.4 0 1 1 0 8.8a4.4 4.4 0 1 1 0-8.8zm0 2.4a2 2 0 1 0 0 4a2 2 0 1 0 0-4z",
            Self::Refused => {
                "M-4.2-2.5L-2.5-4.2 0-1.7 2.5-4.2 4.2-2.5 1.7 0 4.2 2.5 2.5 4.2 0 1.7-2.5 4.2-4.2 2.5-1.7 0z"
            }
        }
    }

    /// The shape alone.
    pub(super) fn symbol(self) -> Markup {
        html! { svg.symbol.(self.key()) viewBox="-5.5 -5.5 11 11" aria-hidden="true" { path d=(self.shape()) {} } }
    }

    /// The shape and the word.
    pub(super) fn badge(self) -> Markup {
        html! { span.badge title=(self.meaning()) { (self.symbol()) (self.word()) } }
    }
}

/// Of anything that is either fine or not.
pub(super) fn yes_no(is_fine: bool, word: &str) -> Markup {
    let health = if is_fine { Health::Ready } else { Health::Degraded };
    html! { span.badge { (health.symbol()) (word) } }
}
