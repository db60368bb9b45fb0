//! A search among all records.

use maud::html;
use model::snapshot::NameRecords;
use model::{DnsName, Snapshot, listing};
use serde::Deserialize;

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::table::{Paged, ROWS, counted, grouped, number, table, text};

/// Enough to see that the search was too wide.
const MOST: usize = 20 * ROWS;

#[derive(Debug, Clone, Default, Deserialize)]
pub(in super::super) struct Filter {
    #[serde(default)]
    q: String,
    #[serde(default)]
    page: usize,
}

/// A set of records, as it is shown.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    name: DnsName,
    kind: String,
    ttl: u32,
    records: String,
}

pub(in super::super) fn page(look: &Look, filter: &Filter) -> Page {
    let wanted = filter.q.trim().trim_end_matches('.').to_ascii_lowercase();
    let (mut found, is_all) = if wanted.is_empty() { (Vec::new(), true) } else { find(&look.snapshot, &wanted) };
    found.sort_unstable();
    let total = found.len();
    let paged = Paged::of(found.into_iter(), total, filter.page);
    let rows = paged.rows.iter().map(|row| {
        vec![
            html! { code { (row.name.to_string()) } },
            html! { (row.kind) },
            html! { (row.ttl) },
            html! { code { (row.records) } },
        ]
    });
    let columns = [text("Name"), text("Type"), number("TTL"), text("Records")];
    let empty = if wanted.is_empty() { "Type a part of a name, or an address." } else { "No record is like that." };
    let list = html! {
        section.card {
            (table(&format!("{} found", counted(total, "set")), &columns, rows.collect(), empty))
            @if !is_all { p.hint { "These are the first " (grouped(MOST)) " that were found: search for more of the name." } }
            (paged.links("/records", &[("q", &filter.q)]))
        }
    };
    let lead = html! { h1 { "Records" } (super::search("/records", "Find a record", "name or address", &filter.q)) };
    let regions = vec![Region::new("list", list)];
    Page { title: "Records".into(), entry: "/zones", searched: String::new(), lead, regions, layout: Layout::One }
}

/// What has the text in its name or among its records, and whether that is all.
fn find(snapshot: &Snapshot, wanted: &str) -> (Vec<Row>, bool) {
    let mut found = Vec::new();
    let names = snapshot.zones().flat_map(|zone| &zone.names);
    let names = names.chain(snapshot.clusters().flat_map(|(_, part)| &part.names));
    let names = names.chain(snapshot.tenant_names().map(|held| &held.records));
    let names = names.chain(snapshot.pointers().map(|part| &part.records));
    for NameRecords { name, records, .. } in names {
        let is_named = name.to_string().contains(wanted);
        for set in records.iter() {
            let texts = set.data.to_text();
            if is_named || texts.iter().any(|text| text.to_ascii_lowercase().contains(wanted)) {
                let (kind, records) = (listing::type_name(set.data.rtype()), texts.join(", "));
                found.push(Row { name: name.clone(), kind, ttl: set.ttl, records });
                if found.len() >= MOST {
                    return (found, false);
                }
            }
        }
    }
    let files = snapshot.zones().filter_map(|zone| zone.file.as_ref());
    for file in files {
        for own in file.names() {
            let Some(name) = DnsName::from_wire(own.wire).ok() else { continue };
            if !name.to_string().contains(wanted) {
                continue;
            }
            for set in own.sets.clone().map(|number| file.set(number)) {
                let records = set.records().map(|wire| listing::text(set.rtype, wire)).collect::<Vec<_>>().join(", ");
                found.push(Row { name: name.clone(), kind: listing::type_name(set.rtype), ttl: set.ttl, records });
                if found.len() >= MOST {
                    return (found, false);
                }
            }
        }
    }
    (found, true)
}
