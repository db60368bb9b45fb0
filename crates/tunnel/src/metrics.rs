//! What is counted of links. Nothing that a peer sends becomes a label.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::Refused;

/// Of one end; the other process counts its own.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub(crate) links: Gauge,
    pub(crate) streams: Gauge,
    ends: Family<Reason, Counter>,
    dials: Family<Dial, Counter>,
    octets: Family<Direction, Counter>,
    pub(crate) stalled: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Dial {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

/// Looked up once, and then counted for every piece.
#[derive(Debug, Clone)]
pub(crate) struct Octets {
    pub(crate) sent: Counter,
    pub(crate) received: Counter,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        Self::register_as("fleetgate_tunnel", registry)
    }

    /// Of connections between processes of a hub.
    pub fn register_relays(registry: &mut Registry) -> Self {
        Self::register_as("fleetgate_relay", registry)
    }

    fn register_as(prefix: &'static str, registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // A family has no line before something was counted.
        for kind in ["tcp", "udp"] {
            let _ = metrics.dials.get_or_create(&Dial { kind, outcome: "Ok" });
        }
        let _ = metrics.ends.get_or_create(&Reason { reason: "Closed" });
        let _ = metrics.octets();
        let registry = registry.sub_registry_with_prefix(prefix);
        registry.register("links", "Links that are open now", metrics.links.clone());
        registry.register("open_streams", "Streams that are open now", metrics.streams.clone());
        registry.register("link_ends", "Links that have ended, by why", metrics.ends.clone());
        registry.register(
            "dials",
            "Streams and datagrams that were asked for, by what became of them: Ok, or the code of the refusal",
            metrics.dials.clone(),
        );
        registry.register("octets", "Octets of streams over links, by direction", metrics.octets.clone());
        registry.register(
            "stalled_streams",
            "Streams that were ended because their receiver held up what others need",
            metrics.stalled.clone(),
        );
        metrics
    }

    pub(crate) fn octets(&self) -> Octets {
        let of = |direction| self.octets.get_or_create(&Direction { direction }).clone();
        Octets { sent: of("sent"), received: of("received") }
    }

    pub(crate) fn dialled<T>(&self, kind: &'static str, answer: &Result<T, Refused>) {
        let outcome = answer.as_ref().err().map_or("Ok", Refused::code);
        self.dials.get_or_create(&Dial { kind, outcome }).inc();
    }

    pub(crate) fn ended(&self, reason: &'static str) {
        self.ends.get_or_create(&Reason { reason }).inc();
    }
}
