//! The zones, and the way to their records.

use maud::html;

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::health::{Health, yes_no};
use super::super::table::{Paged, counted, grouped, number, table, text};
use super::super::view::Search;

pub(in super::super) fn page(look: &Look, search: &Search) -> Page {
    let wanted = search.q.trim().to_ascii_lowercase();
    let zones = look.summary.zones.iter().filter(|(name, row)| {
        let apex = row.apex.as_ref().map(ToString::to_string).unwrap_or_default();
        wanted.is_empty() || name.as_str().contains(&wanted) || apex.contains(&wanted)
    });
    let zones: Vec<_> = zones.collect();
    let total = zones.len();
    let paged = Paged::of(zones.into_iter(), total, search.page);
    let rows = paged.rows.iter().map(|(name, row)| {
        vec![
            html! { a href=(format!("/zones/{name}")) { (name.as_str()) } },
            html! { code { (row.apex.as_ref().map(ToString::to_string).unwrap_or_default()) } },
            match (&row.refusal, row.held) {
                (Some(_), _) => Health::Refused.badge(),
                (None, 0) => yes_no(true, "Served"),
                (None, _) => Health::Held.badge(),
            },
            html! { (grouped(row.clusters)) },
            html! { (grouped(row.held)) },
            html! { @if let Some(serial) = row.serial { (serial) } },
            html! { (row.refusal.as_deref().unwrap_or("")) },
        ]
    });
    let columns = [
        text("Zone"),
        text("Domain"),
        text("State"),
        number("Clusters"),
        number("Held"),
        number("Serial"),
        text("Remark"),
    ];
    let reverse: Vec<_> = look.snapshot.zones().filter(|part| part.pool.is_some()).collect();
    let list = html! {
        section.card {
            (table(&format!("{} found", counted(total, "zone")), &columns, rows.collect(), "No zone is like that."))
            (paged.links("/zones", &[("q", &search.q)]))
            @if !reverse.is_empty() {
                p.hint { "and " (counted(reverse.len(), "reverse zone")) " of address pools" }
            }
        }
    };
    let lead = html! {
        h1 { "Zones" }
        div.searches {
            (super::search("/records", "Find a record", "name or address", ""))
        }
    };
    let regions = vec![Region::new("list", list)];
    Page { title: "Zones".into(), entry: "/zones", searched: String::new(), lead, regions, layout: Layout::One }
}
