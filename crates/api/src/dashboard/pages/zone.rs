//! One zone.

use maud::html;
use model::ObjectRef;
use model::identity::Kind;

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::health::{Health, yes_no};
use super::super::table::{counted, grouped, query};
use super::super::view::{Done, missing};
use crate::objects::Failure;

pub(in super::super) fn page(look: &Look, name: &str, done: &Done) -> Result<Page, Failure> {
    let lost = || missing(format!("no Zone is called {name}"));
    let object = ObjectRef::cluster_scoped(Kind::Zone, name.parse().map_err(|_| lost())?);
    let status = look.snapshot.status(&object).ok_or_else(lost)?;
    let row = look.summary.zones.get(&object.name).ok_or_else(lost)?;
    let mut facts = vec![("Clusters", html! { (grouped(row.clusters)) })];
    if let Some(part) = look.snapshot.zone(&object.name) {
        let apex = part.apex.to_string();
        facts.push(("Domain", html! { code { (apex) } }));
        facts.push(("Serial", html! { (part.soa.serial) }));
        facts.push(("Primary", html! { code { (part.soa.primary.to_string()) } }));
        let by = match (part.authoritative, part.hand_out) {
            (true, false) => "answered here",
            (true, true) => "answered here, and clusters' names are handed to others",
            (false, true) => "clusters' names are handed to others",
            (false, false) => "published by nobody",
        };
        facts.push(("Published", html! { (by) }));
        facts.push((
            "Zone file",
            html! { @if part.file.is_some() { "stands beside our own records" } @else { "none" } },
        ));
        facts.push((
            "Records",
            html! { a href=(format!("/records?{}", query(&[("q", &apex)]))) { "search below " (apex) } },
        ));
    }
    let state = match (&row.refusal, row.held) {
        (Some(_), _) => Health::Refused.badge(),
        (None, 0) => yes_no(true, "Served"),
        (None, _) => Health::Held.badge(),
    };
    let overview = html! { section.card { div.head { h1 { (name) } (state) } (super::facts(facts)) } };
    let held = html! {
        section.card {
            h2 { "Held" }
            @if row.held == 0 {
                p.empty { "Nothing is held." }
            } @else {
                p { (counted(row.held, "name")) " would go in a mass and " (if row.held == 1 { "is" } else { "are" }) " served on until somebody lets go." }
                (super::action(look, &format!("/zones/{name}/release"), "Release", &format!("{} of this zone and of its tenants that nobody asks for any more will go from DNS.", counted(row.held, "name"))))
            }
        }
    };
    let regions = vec![
        Region::new("overview", overview),
        Region::new("held", held),
        Region::new("conditions", html! { section.card { (super::conditions(&status.conditions)) } }),
        Region::new("changes", html! { section.card { (super::changes(look, Some(&object))) } }),
    ];
    let lead = super::done(done);
    Ok(Page { title: name.into(), entry: "/zones", searched: String::new(), lead, regions, layout: Layout::Columns })
}
