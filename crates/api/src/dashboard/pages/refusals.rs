//! Everything that is refused.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Deserialize;

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::table::{Paged, counted, grouped, query, table, text};

/// Files that are shown; each may have many mistakes.
const FILES: usize = 100;

#[derive(Debug, Clone, Default, Deserialize)]
pub(in super::super) struct Filter {
    #[serde(default)]
    q: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    page: usize,
}

pub(in super::super) fn page(look: &Look, filter: &Filter) -> Page {
    let wanted = filter.q.trim().to_ascii_lowercase();
    let all = &look.summary.refusals;
    let mut codes: BTreeMap<&str, usize> = BTreeMap::new();
    for row in all {
        *codes.entry(row.code).or_default() += 1;
    }
    let found = all.iter().filter(|row| {
        (filter.code.is_empty() || row.code == filter.code)
            && (wanted.is_empty()
                || row.object.to_string().to_ascii_lowercase().contains(&wanted)
                || row.message.to_ascii_lowercase().contains(&wanted))
    });
    let found: Vec<_> = found.collect();
    let total = found.len();
    let paged = Paged::of(found.into_iter(), total, filter.page);
    let rows = paged.rows.iter().map(|row| {
        vec![
            super::object(&row.object),
            html! { (row.part.as_deref().unwrap_or("all of it")) },
            html! { code.word { (row.code) } },
            html! { (row.message) },
        ]
    });
    let columns = [text("Object"), text("Part"), text("Code"), text("Reason")];
    let list = html! {
        section.card {
            nav.choices aria-label="By code" {
                a href="/refusals" aria-current=[filter.code.is_empty().then_some("true")] { "All" }
                @for (code, count) in codes {
                    @let path = format!("/refusals?{}", query(&[("q", &filter.q), ("code", code)]));
                    a href=(path) aria-current=[(filter.code == code).then_some("true")] { (code) " " small { (grouped(count)) } }
                }
            }
            (table(&counted(total, "refusal"), &columns, rows.collect(), "Nothing is refused."))
            (paged.links("/refusals", &[("q", &filter.q), ("code", &filter.code)]))
        }
    };
    let lead =
        html! { h1 { "Refusals" } (super::search("/refusals", "Find a refusal", "object or reason", &filter.q)) };
    let regions = vec![Region::new("files", files(look)), Region::new("list", list)];
    Page { title: "Refusals".into(), entry: "/refusals", searched: String::new(), lead, regions, layout: Layout::One }
}

/// Of a folder: what could not be read at all.
fn files(look: &Look) -> Markup {
    let folder = look.state.folder.load();
    let mistakes =
        folder.refused.iter().flat_map(|file| file.mistakes.iter().map(move |mistake| (&file.file, mistake)));
    let rows = mistakes.take(FILES).map(|(file, mistake)| {
        vec![
            html! { code { (file.display()) } },
            html! { (mistake.line) ":" (mistake.column) },
            html! { (mistake.reason) },
        ]
    });
    let rows: Vec<_> = rows.collect();
    html! {
        @if folder.error.is_some() || !rows.is_empty() {
            section.card {
                @if let Some(error) = &folder.error { p.error role="alert" { (error.to_string()) } }
                @if !rows.is_empty() {
                    (table("Refused files", &[text("File"), text("At"), text("Reason")], rows, ""))
                    p.hint { "What these held before keeps serving." }
                }
            }
        }
    }
}
