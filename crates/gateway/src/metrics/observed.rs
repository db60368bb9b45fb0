//! What is not counted as it happens but read when somebody asks.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::by_cluster::{Count, RefusalsByCluster};
use crate::balance::Census;
use crate::insight::Insight;
use crate::listen::DoorKind;

pub(super) struct Observed {
    pub(super) refusals: Arc<RefusalsByCluster>,
    pub(super) insight: Arc<ArcSwapOption<Insight>>,
}

impl Collector for Observed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let insight = self.insight.load();
        let Some(insight) = insight.as_deref() else { return Ok(()) };
        encode_refusals(&self.refusals.counts(&insight.snapshot.load()), &mut encoder)?;
        encode_undecided(insight, &mut encoder)?;
        let Census { known, unhealthy, ejected } = insight.census();
        for (name, help, value) in [
            ("upstream_addresses", "Addresses of control planes that something is known of", known),
            ("upstream_addresses_unhealthy", "Those of them that fail their checks", unhealthy),
            ("upstream_addresses_ejected", "Those of them that connections could not reach of late", ejected),
            ("remembered_proofs", "Proofs that were used and must not be again", insight.remembered_proofs()),
        ] {
            let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            gauge.encode_gauge(&(value as u64))?;
        }
        Ok(())
    }
}

fn encode_refusals(counts: &[Count], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Refused connections whose cluster was known, of the clusters there are now";
    let mut refusals = encoder.encode_descriptor("refusals", help, None, MetricType::Counter)?;
    for Count { cluster, door, code, times } in counts {
        let labels = [("door", *door), ("cluster", cluster.as_str()), ("code", *code)];
        refusals.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(times, None)?;
    }
    Ok(())
}

fn encode_undecided(insight: &Insight, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Open connections that have not said yet where they want to go";
    let mut undecided = encoder.encode_descriptor("undecided_connections", help, None, MetricType::Gauge)?;
    for kind in [DoorKind::ClusterId, DoorKind::ServerName] {
        if let Some(count) = insight.undecided(kind) {
            undecided.encode_family(&[("door", kind.label())])?.encode_gauge(&count)?;
        }
    }
    Ok(())
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").finish_non_exhaustive()
    }
}
