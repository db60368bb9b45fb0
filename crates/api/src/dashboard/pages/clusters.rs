//! All clusters, to search in.

use maud::html;
use serde::Deserialize;

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::health::Health;
use super::super::summary::ClusterRow;
use super::super::table::{Paged, counted, number, query, table, text};

#[derive(Debug, Clone, Default, Deserialize)]
pub(in super::super) struct Filter {
    #[serde(default)]
    q: String,
    #[serde(default)]
    state: String,
    /// A mark of the map.
    #[serde(default)]
    at: String,
    #[serde(default)]
    page: usize,
}

pub(in super::super) fn page(look: &Look, filter: &Filter) -> Page {
    let wanted = filter.q.trim().to_ascii_lowercase();
    let state = Health::find(&filter.state);
    let (clusters, map) = (&look.summary.clusters, &look.summary.map);
    let is_wanted = |row: &&ClusterRow| {
        state.is_none_or(|state| row.health == state)
            && (filter.at.is_empty() || map.is_at(row, &filter.at))
            && (wanted.is_empty() || has(row, &wanted))
    };
    let found: Vec<&ClusterRow> = clusters.iter().filter(is_wanted).collect();
    let total = found.len();
    let paged = Paged::of(found.into_iter(), total, filter.page);
    let state_key = state.map_or("", Health::key);
    let lead = html! {
        h1 { "Clusters" }
        nav.choices aria-label="By state" {
            @for (key, word) in [("", "All")].into_iter().chain(Health::ALL.map(|health| (health.key(), health.word()))) {
                @let path = format!("/clusters?{}", query(&[("q", &filter.q), ("at", &filter.at), ("state", key)]));
                a href=(path) aria-current=[(key == state_key).then_some("true")] { (word) }
            }
        }
    };
    let rows = paged.rows.iter().map(|row| {
        vec![
            super::cluster_link(row.name.as_str()),
            row.health.badge(),
            html! { @if let Some(tenant) = &row.tenant { (super::tenant_link(tenant.as_str())) } @else { "–" } },
            html! { (row.region.as_deref().unwrap_or("–")) },
            html! { (row.ready) " of " (row.nodes) },
            html! { (row.why.as_deref().unwrap_or("")) },
        ]
    });
    let columns = [text("Name"), text("State"), text("Tenant"), text("Region"), number("Ready nodes"), text("Remark")];
    let fields = [("q", filter.q.as_str()), ("at", &filter.at), ("state", state_key)];
    let list = html! {
        section.card {
            (table(&format!("{} found", counted(total, "cluster")), &columns, rows.collect(), "No cluster is like that."))
            (paged.links("/clusters", &fields))
        }
    };
    let regions = vec![Region::new("list", list)];
    Page {
        title: "Clusters".into(),
        entry: "/clusters",
        searched: filter.q.clone(),
        lead,
        regions,
        layout: Layout::One,
    }
}

fn has(row: &ClusterRow, wanted: &str) -> bool {
    row.name.as_str().contains(wanted)
        || row.tenant.as_ref().is_some_and(|tenant| tenant.as_str().contains(wanted))
        || row.region.as_ref().is_some_and(|region| region.to_ascii_lowercase().contains(wanted))
}
