//! The fleet at a glance.

use maud::{Markup, html};

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::health::Health;
use super::super::table::{counted, grouped};
use super::super::traffic::Now;

/// Clusters that somebody should look at; the others are behind a link.
const ATTENTION: usize = 12;

pub(in super::super) fn page(look: &Look) -> Page {
    let regions = vec![
        Region::new("tiles", tiles(look)),
        Region::new("traffic", figures(look, look.board.traffic.now(&look.state))),
        Region::new("map", map(look)),
        Region::new("changes", html! { section.card { (super::changes(look, None)) } }),
        Region::new("attention", attention(look)),
    ];
    let lead = html! { h1.unseen { "The fleet at a glance" } };
    Page { title: "Fleet".into(), entry: "/", searched: String::new(), lead, regions, layout: Layout::Fleet }
}

fn tiles(look: &Look) -> Markup {
    let summary = &look.summary;
    let all = summary.clusters.len();
    let tile = |health: Health| {
        let count = summary.count(health);
        let path = format!("/clusters?state={}", health.key());
        html! {
            li {
                a.tile.quiet[count == 0] href=(path) title=(health.meaning()) {
                    span.label { (health.symbol()) (health.word()) }
                    span.value { (grouped(count)) }
                }
            }
        }
    };
    html! {
        ul.tiles {
            li { a.tile href="/clusters" { span.label { "Clusters" } span.value { (grouped(all)) } } }
            @for health in Health::ALL { (tile(health)) }
        }
    }
}

fn figures(look: &Look, now: Now) -> Markup {
    let summary = &look.summary;
    let rate = |pick: fn(&super::super::traffic::Rates) -> f64| match &now.rates {
        Some(rates) => per_second(pick(rates)),
        None => "…".to_owned(),
    };
    html! {
        dl.figures {
            div { dt { "Ready nodes" } dd { (grouped(summary.ready_nodes)) small { " of " (grouped(summary.nodes)) } } }
            div { dt { a href="/refusals" { "Refusals" } } dd { (grouped(summary.refusals.len())) } }
            div { dt { a href="/tenants" { "Names held" } } dd { (grouped(summary.held())) } }
            div { dt { "DNS queries" } dd { (rate(|rates| rates.queries)) small { "/s" } } }
            div { dt { "Connections" } dd { (rate(|rates| rates.connections)) small { "/s" } } }
            div { dt { "HTTP requests" } dd { (rate(|rates| rates.requests)) small { "/s" } } }
            div { dt { "Refused at doors" } dd { (rate(|rates| rates.refused)) small { "/s" } } }
            div { dt { "Open connections" } dd { (now.open) } }
        }
    }
}

/// Small rates have a digit more.
fn per_second(rate: f64) -> String {
    if rate < 10.0 && rate > 0.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

fn map(look: &Look) -> Markup {
    let map = &look.summary.map;
    html! {
        section.card aria-labelledby="where" {
            div.head {
                h2 #where { "Where clusters are" }
                ul.legend {
                    @for health in Health::ALL.into_iter().filter(|health| *health != Health::Refused) {
                        li title=(health.meaning()) { (health.symbol()) (health.word()) }
                    }
                }
            }
            (map.render())
            @if map.unplaced > 0 {
                p.hint { (counted(map.unplaced, "cluster")) " without a place: " code { "spec.location" } " has no coordinates, or the cluster is refused." }
            }
        }
    }
}

fn attention(look: &Look) -> Markup {
    let summary = &look.summary;
    let wrong = |health: &Health| !matches!(health, Health::Ready | Health::Drained);
    let total: usize = Health::ALL.into_iter().filter(wrong).map(|health| summary.count(health)).sum();
    let mut rows = Vec::new();
    for health in [Health::Down, Health::Held, Health::Refused, Health::Degraded] {
        // Those of one kind may be thousands: no more are looked for than are shown.
        let left = ATTENTION.saturating_sub(rows.len()).min(summary.count(health));
        if left > 0 {
            rows.extend(summary.clusters.iter().filter(|row| row.health == health).take(left));
        }
    }
    html! {
        section.card {
            h2 { "Needs attention" }
            @if rows.is_empty() { p.empty { "Every cluster is as it should be." } }
            ul.attention {
                @for row in &rows {
                    li {
                        (row.health.badge()) " " (super::cluster_link(row.name.as_str()))
                        @if let Some(why) = &row.why { p { (why) } }
                    }
                }
            }
            @if total > rows.len() { p.hint { "and " (grouped(total - rows.len())) " more: see the tiles above" } }
        }
    }
}
