//! The federated ingresses.

use maud::html;
use model::ingress::EntryMode;

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::health::yes_no;
use super::super::table::{Paged, counted, number, table, text};
use super::super::view::Search;

pub(in super::super) fn page(look: &Look, search: &Search) -> Page {
    let wanted = search.q.trim().to_ascii_lowercase();
    let failing = look.state.failing();
    let found = look.summary.ingresses.iter().filter(|(object, row)| {
        wanted.is_empty()
            || object.to_string().contains(&wanted)
            || row.hosts.iter().any(|host| host.to_string().contains(&wanted))
    });
    let found: Vec<_> = found.collect();
    let total = found.len();
    let paged = Paged::of(found.into_iter(), total, search.page);
    let rows = paged.rows.iter().map(|(object, row)| {
        let hosts = row.hosts.iter().take(4).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let fails = failing.get(object).map_or(0, std::collections::BTreeSet::len);
        let (is_fine, word) = match (row.members, row.refused, fails) {
            (0, ..) => (false, "Served by nobody".to_owned()),
            (_, _, fails) if fails > 0 => (false, format!("{fails} failing")),
            (_, refused, _) if refused > 0 => (false, "Partly refused".to_owned()),
            _ => (true, "Served".to_owned()),
        };
        vec![
            super::object(object),
            yes_no(is_fine, &word),
            html! { @if let Some(tenant) = &row.tenant { (super::tenant_link(tenant.as_str())) } @else { "–" } },
            html! { code { (hosts) } @if row.hosts.len() > 4 { " and " (row.hosts.len() - 4) " more" } },
            html! { (row.members) },
            html! { (entry_word(row.entry)) " · " (row.steering.unwrap_or("–")) },
        ]
    });
    let columns =
        [text("Ingress"), text("State"), text("Tenant"), text("Hosts"), number("Clusters"), text("Entry · steering")];
    let list = html! {
        section.card {
            (table(&format!("{} found", counted(total, "federated ingress").replace("ingresss", "ingresses")), &columns, rows.collect(), "No federated Ingress is like that."))
            (paged.links("/ingresses", &[("q", &search.q)]))
        }
    };
    let lead = html! { h1 { "Federated ingresses" } (super::search("/ingresses", "Find an Ingress", "name or host", &search.q)) };
    let regions = vec![Region::new("list", list)];
    Page { title: "Ingresses".into(), entry: "/ingresses", searched: String::new(), lead, regions, layout: Layout::One }
}

pub(super) fn entry_word(entry: Option<EntryMode>) -> &'static str {
    match entry {
        Some(EntryMode::Vip) => "gateways",
        Some(EntryMode::Dns) => "DNS",
        None => "–",
    }
}
