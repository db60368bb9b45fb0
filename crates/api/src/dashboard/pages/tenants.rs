//! The tenants, with what they have and may have.

use maud::html;

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::health::{Health, yes_no};
use super::super::table::{Paged, counted, grouped, number, table, text};
use super::super::view::Search;

pub(in super::super) fn page(look: &Look, search: &Search) -> Page {
    let wanted = search.q.trim().to_ascii_lowercase();
    let tenants = look.summary.tenants.iter().filter(|(name, _)| name.as_str().contains(&wanted));
    let tenants: Vec<_> = tenants.collect();
    let total = tenants.len();
    let paged = Paged::of(tenants.into_iter(), total, search.page);
    let rows = paged.rows.iter().map(|(name, row)| {
        let quota = look.snapshot.ground().tenant(name).map(|tenant| tenant.quota).unwrap_or_default();
        vec![
            super::tenant_link(name.as_str()),
            match (&row.refusal, row.held) {
                (Some(_), _) => Health::Refused.badge(),
                (None, 0) => yes_no(true, "Accepted"),
                (None, _) => Health::Held.badge(),
            },
            super::of_quota(row.clusters, quota.clusters),
            super::of_quota(row.records, quota.records),
            super::of_quota(row.addresses, quota.addresses),
            html! { (grouped(row.held)) },
            html! { (grouped(row.refused)) },
        ]
    });
    let columns = [
        text("Tenant"),
        text("State"),
        number("Clusters"),
        number("Records"),
        number("Addresses"),
        number("Names held"),
        number("Refused"),
    ];
    let list = html! {
        section.card {
            (table(&format!("{} found", counted(total, "tenant")), &columns, rows.collect(), "No tenant is like that."))
            (paged.links("/tenants", &[("q", &search.q)]))
        }
    };
    let lead = html! { h1 { "Tenants" } (super::search("/tenants", "Find a tenant", "name", &search.q)) };
    let regions = vec![Region::new("list", list)];
    Page { title: "Tenants".into(), entry: "/tenants", searched: String::new(), lead, regions, layout: Layout::One }
}
