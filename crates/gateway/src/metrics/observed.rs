//! What is not counted as it happens but read when somebody asks.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::by_cluster::{Count, RefusalsByCluster};
use crate::insight::Insight;

pub(super) struct Observed {
    pub(super) refusals: Arc<RefusalsByCluster>,
    pub(super) insight: Arc<ArcSwapOption<Insight>>,
}

impl Collector for Observed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let insight = self.insight.load();
        let counts = insight.as_ref().map_or_else(Vec::new, |insight| self.refusals.counts(&insight.snapshot.load()));
        let help = "Refused connections whose cluster was known, of the clusters there are now";
        let mut refusals = encoder.encode_descriptor("refusals", help, None, MetricType::Counter)?;
        for Count { cluster, door, code, count } in &counts {
            let labels = [("door", *door), ("cluster", cluster.as_str()), ("code", *code)];
            refusals.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").finish_non_exhaustive()
    }
}
