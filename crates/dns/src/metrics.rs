//! What is counted. Names begin with `fleetgate_dns_`.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use domain::base::iana::OptRcode;
use model::DnsName;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric as _, LabelValueEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::index::Index;
use crate::query::{Outcome, Transport};

/// Every code that we send.
const CODES: [OptRcode; 9] = [
    OptRcode::NOERROR,
    OptRcode::NXDOMAIN,
    OptRcode::REFUSED,
    OptRcode::FORMERR,
    OptRcode::SERVFAIL,
    OptRcode::NOTIMP,
    OptRcode::YXDOMAIN,
    OptRcode::BADVERS,
    OptRcode::BADCOOKIE,
];
const TRANSPORTS: [Transport; 2] = [Transport::Udp, Transport::Tcp];

/// The answered queries of one zone, by transport and code. A zone has them with it, so that counting looks nothing up.
#[derive(Debug, Default)]
pub(crate) struct ZoneCounters([[AtomicU64; CODES.len()]; TRANSPORTS.len()]);

impl ZoneCounters {
    fn total(&self) -> u64 {
        self.0.iter().flatten().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Cheap to clone; all clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Queries outside of every zone.
    outside: Arc<ZoneCounters>,
    truncated: Counter,
    ignored: Family<TransportLabels, Counter>,
    dropped: Counter,
    put_off: Counter,
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
}

impl Metrics {
    /// `index` is what is published; its zones hold their counters.
    pub fn register(registry: &mut Registry, index: &Arc<ArcSwap<Index>>) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("fleetgate_dns");
        let queries = Queries { index: Arc::clone(index), outside: Arc::clone(&metrics.outside) };
        registry.register_collector(Box::new(queries));
        registry.register(
            "truncated",
            "UDP answers that did not fit and sent the client to TCP",
            metrics.truncated.clone(),
        );
        registry.register("ignored", "Messages that got no answer: too short, or responses", metrics.ignored.clone());
        registry.register("limited", "UDP answers above the rate limit that were not sent", metrics.dropped.clone());
        registry.register(
            "put_off",
            "UDP answers above the rate limit that were sent as a short word to ask again over TCP",
            metrics.put_off.clone(),
        );
        registry.register("tcp_connections", "TCP connections now open", metrics.connections.clone());
        registry.register(
            "tcp_connections_refused",
            "Quiet TCP connections closed, because too many were open",
            metrics.connections_refused.clone(),
        );
        metrics
    }

    /// How many queries were answered since the process began, in the zones that there are now and outside of all.
    pub fn queries(&self, index: &Index) -> u64 {
        let all = index.zones().map(|zone| &zone.counters).chain([&self.outside]);
        all.map(|counters| counters.total()).sum()
    }

    /// An answer above the rate limit.
    pub(crate) fn limited(&self, how: Limited) {
        match how {
            Limited::Dropped => self.dropped.inc(),
            Limited::PutOff => self.put_off.inc(),
        };
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Limited {
    Dropped,
    PutOff,
}

/// Counts a batch of queries: most are of one zone, whose counters all threads share and should touch seldom. What was
/// counted shows when this is dropped.
pub(crate) struct Tally<'a> {
    metrics: &'a Metrics,
    transport: Transport,
    zone: &'a ZoneCounters,
    codes: [u32; CODES.len()],
}

impl<'a> Tally<'a> {
    pub(crate) fn new(metrics: &'a Metrics, transport: Transport) -> Self {
        Self { metrics, transport, zone: &metrics.outside, codes: [0; CODES.len()] }
    }

    pub(crate) fn count(&mut self, outcome: Option<&Outcome<'a>>) {
        let Some(outcome) = outcome else {
            self.metrics.ignored.get_or_create(&TransportLabels { transport: self.transport }).inc();
            return;
        };
        let zone = outcome.zone.map_or(&*self.metrics.outside, |zone| &*zone.counters);
        if !std::ptr::eq(zone, self.zone) {
            self.flush();
            self.zone = zone;
        }
        self.codes[CODES.iter().position(|code| *code == outcome.rcode).unwrap_or_default()] += 1;
        if outcome.truncated {
            self.metrics.truncated.inc();
        }
    }

    fn flush(&mut self) {
        for (count, of_zone) in self.codes.iter_mut().zip(&self.zone.0[self.transport as usize]) {
            if *count > 0 {
                of_zone.fetch_add(u64::from(*count), Ordering::Relaxed);
                *count = 0;
            }
        }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Reads the counters where they are. A zone that is withdrawn takes its own along.
#[derive(Debug)]
struct Queries {
    index: Arc<ArcSwap<Index>>,
    outside: Arc<ZoneCounters>,
}

impl Collector for Queries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut encoder = encoder.encode_descriptor(
            "queries",
            "Answered queries; zone is `none` outside of every zone served",
            None,
            MetricType::Counter,
        )?;
        let index = self.index.load();
        let zones = index.zones().map(|zone| (Some(&zone.apex), &zone.counters));
        for (apex, counters) in zones.chain([(None, &self.outside)]) {
            for (transport, of_transport) in TRANSPORTS.into_iter().zip(&counters.0) {
                for (code, count) in CODES.into_iter().zip(of_transport) {
                    let count = count.load(Ordering::Relaxed);
                    if count > 0 {
                        let labels = QueryLabels { transport, rcode: Code(code), zone: Apex(apex.cloned()) };
                        ConstCounter::new(count).encode(encoder.encode_family(&labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Bounded: codes are those that we send, zones those that we serve. What a client can choose is in none of them.
#[derive(Debug, Clone, EncodeLabelSet)]
struct QueryLabels {
    transport: Transport,
    rcode: Code,
    zone: Apex,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransportLabels {
    transport: Transport,
}

#[derive(Debug, Clone)]
struct Code(OptRcode);

#[derive(Debug, Clone)]
struct Apex(Option<DnsName>);

impl EncodeLabelValue for Transport {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(self.as_str())
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
    use crate::records::changes;

    #[test]
    fn queries_are_told_apart_by_transport_code_and_zone() {
        let index = Arc::new(ArcSwap::from_pointee(Index::default().apply(&changes("fleet.example 30 SOA 1"))));
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, &index);
        // A new version of a zone counts on.
        index.store(Arc::new(index.load().apply(&changes("fleet.example 30 SOA 2"))));
        let published = index.load();
        let outcome = |rcode, zone| Outcome {
            rcode,
            kind: crate::query::Kind::Error,
            truncated: false,
            proven: false,
            question: None,
            zone,
        };
        let zone = published.zones().next();
        let mut udp = Tally::new(&metrics, Transport::Udp);
        udp.count(Some(&outcome(OptRcode::NXDOMAIN, zone)));
        udp.count(Some(&outcome(OptRcode::NOERROR, None)));
        udp.count(Some(&outcome(OptRcode::NXDOMAIN, zone)));
        udp.count(None);
        drop(udp);
        Tally::new(&metrics, Transport::Tcp).count(Some(&outcome(OptRcode::REFUSED, None)));
        metrics.limited(Limited::PutOff);
        assert_eq!(metrics.queries(&published), 4);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"fleetgate_dns_queries_total{transport="udp",rcode="NXDOMAIN",zone="fleet.example"} 2"#,
            r#"fleetgate_dns_queries_total{transport="tcp",rcode="REFUSED",zone="none"} 1"#,
            r#"fleetgate_dns_queries_total{transport="udp",rcode="NOERROR",zone="none"} 1"#,
            r#"fleetgate_dns_ignored_total{transport="udp"} 1"#,
            "fleetgate_dns_put_off_total 1",
            "fleetgate_dns_tcp_connections 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
