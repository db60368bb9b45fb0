//! What is counted of the provider.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Codes are fixed words of the hub's; a hub that makes more of them up gets one for all.
const MOST_CODES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    call: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: String,
}

#[derive(Debug, Clone, Default)]
pub struct ProviderMetrics {
    answers: Family<Answer, Counter>,
    refusals: Family<Code, Counter>,
    codes: Arc<Mutex<BTreeSet<String>>>,
    refused: Gauge,
    records: Gauge,
}

impl ProviderMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "fleetgate_agent_external_dns_answers",
            "Answers to ExternalDNS, by what became of the request",
            metrics.answers.clone(),
        );
        registry.register(
            "fleetgate_agent_external_dns_refusals",
            "Records that the hub refused, by its code; each counts once as long as it is refused",
            metrics.refusals.clone(),
        );
        registry.register(
            "fleetgate_agent_external_dns_refused",
            "Records that are refused now; /refused says why",
            metrics.refused.clone(),
        );
        registry.register(
            "fleetgate_agent_external_dns_records",
            "Records that the hub has from ExternalDNS",
            metrics.records.clone(),
        );
        metrics
    }

    pub(super) fn answered(&self, call: &'static str, outcome: &'static str) {
        self.answers.get_or_create(&Answer { call, outcome }).inc();
    }

    pub(super) fn refused(&self, code: &str) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = codes.contains(code) || (codes.len() < MOST_CODES && codes.insert(code.to_owned()));
        let code = if known { code } else { "other" }.to_owned();
        self.refusals.get_or_create(&Code { code }).inc();
    }

    pub(super) fn refused_now(&self, number: usize) {
        self.refused.set(i64::try_from(number).unwrap_or(i64::MAX));
    }

    pub(super) fn records(&self, number: usize) {
        self.records.set(i64::try_from(number).unwrap_or(i64::MAX));
    }
}
