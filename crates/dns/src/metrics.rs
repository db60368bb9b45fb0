//! What is counted. Names begin with `fleetgate_dns_`.

use std::fmt::{self, Write as _};

use domain::base::iana::OptRcode;
use model::DnsName;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::query::{Outcome, Transport};

/// Cheap to clone; all clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    queries: Family<QueryLabels, Counter>,
    truncated: Counter,
    ignored: Family<TransportLabels, Counter>,
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("fleetgate_dns");
        registry.register(
            "queries",
            "Answered queries; zone is `none` outside of every zone served",
            metrics.queries.clone(),
        );
        registry.register(
            "truncated",
            "UDP answers that did not fit and sent the client to TCP",
            metrics.truncated.clone(),
        );
        registry.register("ignored", "Messages that got no answer: too short, or responses", metrics.ignored.clone());
        registry.register("tcp_connections", "TCP connections now open", metrics.connections.clone());
        registry.register(
            "tcp_connections_refused",
            "TCP connections closed at once, because too many were open",
            metrics.connections_refused.clone(),
        );
        metrics
    }

    pub(crate) fn count(&self, transport: Transport, outcome: Option<&Outcome>) {
        let Some(outcome) = outcome else {
            self.ignored.get_or_create(&TransportLabels { transport }).inc();
            return;
        };
        let labels = QueryLabels { transport, rcode: Code(outcome.rcode), zone: Apex(outcome.zone.clone()) };
        self.queries.get_or_create(&labels).inc();
        if outcome.truncated {
            self.truncated.inc();
        }
    }
}

/// Bounded: codes are those that we send, zones those that we serve. What a client can choose is in none of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueryLabels {
    transport: Transport,
    rcode: Code,
    zone: Apex,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransportLabels {
    transport: Transport,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Code(OptRcode);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Apex(Option<DnsName>);

impl EncodeLabelValue for Transport {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

impl EncodeLabelValue for Code {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        write!(encoder, "{}", self.0)
    }
}

impl EncodeLabelValue for Apex {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        match &self.0 {
            Some(apex) => write!(encoder, "{apex}"),
            None => encoder.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_told_apart_by_transport_code_and_zone() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let zone = DnsName::parse("fleet.example").ok();
        let outcome = Outcome { rcode: OptRcode::NXDOMAIN, zone, truncated: false };
        metrics.count(Transport::Udp, Some(&outcome));
        metrics.count(Transport::Udp, Some(&outcome));
        metrics.count(Transport::Tcp, Some(&Outcome { rcode: OptRcode::REFUSED, zone: None, truncated: false }));
        metrics.count(Transport::Udp, None);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"fleetgate_dns_queries_total{transport="udp",rcode="NXDOMAIN",zone="fleet.example"} 2"#,
            r#"fleetgate_dns_queries_total{transport="tcp",rcode="REFUSED",zone="none"} 1"#,
            r#"fleetgate_dns_ignored_total{transport="udp"} 1"#,
            "fleetgate_dns_tcp_connections 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
