//! What agents say of the load of their clusters.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use manifest::text::Text;
use model::ClusterName;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::extract::Query;
use crate::state::State;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    cluster: Option<Text<ClusterName>>,
}

/// The latest report of each service, of all clusters or one.
pub(crate) async fn list(Shared(state): Shared<Arc<State>>, Query(filter): Query<Filter>) -> Json<Value> {
    let all = state.reports.all().into_iter();
    let wanted = all.filter(|(cluster, ..)| filter.cluster.as_ref().is_none_or(|wanted| wanted.0 == *cluster));
    let items = wanted.map(|(cluster, service, report, at)| {
        json!({
            "cluster": cluster.as_str(),
            "namespace": service.namespace.as_str(),
            "name": service.name.as_str(),
            "served": report.served(),
            "utilization": report.utilization(),
            "ready": report.ready(),
            "reported": at.to_string(),
        })
    });
    Json(json!({ "items": items.collect::<Vec<_>>() }))
}
