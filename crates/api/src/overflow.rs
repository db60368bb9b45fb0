//! The tables that requests and names go by.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use manifest::text::Text;
use model::ObjectName;
use model::ingress::Port;
use model::overflow::{Cell, Destination, Room, Row, Shed, Table, UNLIMITED};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::extract::Query;
use crate::state::State;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    namespace: Option<Text<ObjectName>>,
    ingress: Option<Text<ObjectName>>,
}

/// Of all Ingresses, of those in a namespace, or of one.
pub(crate) async fn list(Shared(state): Shared<Arc<State>>, Query(filter): Query<Filter>) -> Json<Value> {
    let tables = state.tables.load_full();
    let is = |wanted: &Option<Text<ObjectName>>, is: Option<&ObjectName>| {
        wanted.as_ref().is_none_or(|wanted| Some(&wanted.0) == is)
    };
    let namespace = |of: &Destination| of.ingress.namespace.clone();
    let mut wanted: Vec<(&Destination, &Arc<Table>)> = tables
        .by_destination
        .iter()
        .filter(|(of, _)| is(&filter.namespace, of.ingress.namespace.as_ref()))
        .filter(|(of, _)| is(&filter.ingress, Some(&of.ingress.name)))
        .collect();
    let order = |of: &Destination| (namespace(of), of.ingress.name.clone(), of.backend.service.clone(), port(of));
    wanted.sort_by_cached_key(|(of, _)| order(of));
    let items: Vec<Value> = wanted.into_iter().map(|(of, table)| shown(of, table)).collect();
    Json(json!({ "items": items }))
}

fn shown(of: &Destination, table: &Table) -> Value {
    let clusters = table.clusters.iter().map(|(name, room)| {
        json!({
            "cluster": name.as_str(),
            "rate": known(room, room.rate),
            "most": known(room, room.most),
            "basis": room.basis.code(),
            "basisText": room.basis.to_string(),
            "out": room.out.map(|out| out.code()),
        })
    });
    json!({
        "namespace": of.ingress.namespace.as_ref().map(ObjectName::as_str),
        "ingress": of.ingress.name.as_str(),
        "service": of.backend.service.as_str(),
        "port": port(of),
        "made": table.at.to_string(),
        "clusters": clusters.collect::<Vec<_>>(),
        "rows": table.rows.iter().map(|row| shown_row(table, row)).collect::<Vec<_>>(),
    })
}

fn shown_row(table: &Table, row: &Row) -> Value {
    let cell = |((name, _), cell): (&(model::ClusterName, Room), &Cell)| {
        json!({
            "cluster": name.as_str(),
            "ring": cell.ring,
            "share": cell.share,
            "target": cell.target,
            "quota": cell.quota,
            "reason": cell.reason.code(),
            "text": table.explain(cell),
        })
    };
    json!({
        "edge": row.origin.edge.as_str(),
        "home": row.origin.home.as_ref().map(model::ClusterName::as_str),
        "demand": row.demand,
        "shed": row.shed,
        "whyShed": row.why_shed.map(|why| match why {
            Shed::AllFull => "AllFull",
            Shed::AllOut => "AllOut",
        }),
        "shares": table.clusters.iter().zip(&row.cells).map(cell).collect::<Vec<_>>(),
    })
}

/// Null where a cluster counts as unlimited.
fn known(room: &Room, rate: f64) -> Option<f64> {
    (room.out.is_some() || rate < UNLIMITED).then_some(rate)
}

fn port(of: &Destination) -> String {
    match &of.backend.port {
        Port::Number(number) => number.to_string(),
        Port::Name(name) => name.to_string(),
    }
}
