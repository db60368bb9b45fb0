//! One tenant: what it has and may have, what is held of it, and what it is refused.

use maud::{Markup, html};
use model::ObjectRef;
use model::identity::Kind;
use model::resource::{HeldClaims, Place};
use model::snapshot::Detail;

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::health::{Health, yes_no};
use super::super::summary::TenantRow;
use super::super::table::{counted, query, table, text};
use super::super::view::{Done, missing};
use crate::objects::Failure;

/// Of each kind; there may be thousands.
const MOST: usize = 100;

pub(in super::super) fn page(look: &Look, name: &str, done: &Done) -> Result<Page, Failure> {
    let lost = || missing(format!("no Tenant is called {name}"));
    let object = ObjectRef::cluster_scoped(Kind::Tenant, name.parse().map_err(|_| lost())?);
    let status = look.snapshot.status(&object).ok_or_else(lost)?;
    let row = look.summary.tenants.get(&object.name).ok_or_else(lost)?;
    let (held, resting) = match &status.detail {
        Detail::Tenant { held, resting } => (&**held, &**resting),
        _ => (&[][..], &[][..]),
    };
    let resting = resting.iter().take(MOST).map(|(place, resting)| {
        let place = match place {
            Place::Name(name) => name.to_string(),
            Place::Subtree(name) => format!("{name} and all below"),
        };
        vec![html! { code { (place) } }, super::time(resting.until)]
    });
    let resting = table("Resting", &[text("Name"), text("Nobody else before")], resting.collect(), "Nothing rests.");
    let regions = vec![
        Region::new("overview", overview(look, &object, row)),
        Region::new("held", html! { section.card { (held_names(look, name, row, held)) } }),
        Region::wide("refused", html! { section.card { (refused(look, &object)) } }),
        Region::new("resting", html! { section.card { (resting) } }),
        Region::new("conditions", html! { section.card { (super::conditions(&status.conditions)) } }),
        Region::new("changes", html! { section.card { (super::changes(look, Some(&object))) } }),
    ];
    let lead = super::done(done);
    Ok(Page { title: name.into(), entry: "/tenants", searched: String::new(), lead, regions, layout: Layout::Columns })
}

fn overview(look: &Look, object: &ObjectRef, row: &TenantRow) -> Markup {
    let name = object.name.as_str();
    let tenant = look.snapshot.ground().tenant(&object.name);
    let quota = tenant.map(|tenant| tenant.quota).unwrap_or_default();
    let clusters = format!("/clusters?{}", query(&[("q", name)]));
    let mut facts = vec![
        ("Clusters", html! { a href=(clusters) { (super::of_quota(row.clusters, quota.clusters)) } }),
        ("Records", super::of_quota(row.records, quota.records)),
        ("Addresses", super::of_quota(row.addresses, quota.addresses)),
    ];
    if let Some(tenant) = tenant {
        let list = |items: Vec<String>, none: &str| if items.is_empty() { none.to_owned() } else { items.join(", ") };
        let domains = tenant.domains.iter().map(ToString::to_string).collect();
        let targets = tenant.allowed_targets.iter().map(ToString::to_string).collect();
        facts.push(("Namespace", html! { code { (tenant.namespace.as_str()) } }));
        facts.push(("Domains", html! { (list(domains, "none of its own")) }));
        facts.push(("Other targets", html! { (list(targets, "none")) }));
        let open = look.state.insight.get().map(|doors| doors.open_of_tenant(&object.name));
        facts.push(("Connections", super::of_quota(open.unwrap_or_default() as usize, tenant.limits.connections)));
    }
    let state = match (&row.refusal, row.held) {
        (Some(_), _) => Health::Refused.badge(),
        (None, 0) => yes_no(true, "Accepted"),
        (None, _) => Health::Held.badge(),
    };
    html! { section.card { div.head { h1 { (name) } (state) } (super::facts(facts)) } }
}

fn held_names(look: &Look, name: &str, row: &TenantRow, held: &[HeldClaims]) -> Markup {
    let names = held.iter().flat_map(|claims| claims.names().into_iter().map(move |name| (name, claims)));
    let rows = names.take(MOST).map(|(name, claims)| {
        vec![html! { code { (name.to_string()) } }, super::object(&claims.object), super::time(claims.held_since)]
    });
    let columns = [text("Name"), text("Asked for by"), text("Held since")];
    html! {
        (table("Held names", &columns, rows.collect(), "Nothing of it is held."))
        @if row.held > MOST { p.hint { "and " (row.held - MOST) " more" } }
        @if row.held > 0 {
            (super::action(look, &format!("/tenants/{name}/release"), "Release", &format!("{} that nobody asks for any more will go from DNS.", counted(row.held, "name"))))
        }
    }
}

fn refused(look: &Look, object: &ObjectRef) -> Markup {
    let of_tenant = look.summary.refusals.iter().filter(|row| row.tenant.as_ref() == Some(&object.name));
    let rows: Vec<_> = of_tenant.collect();
    let total = rows.len();
    let rows = rows.into_iter().take(MOST).map(|row| {
        vec![
            super::object(&row.object),
            html! { (row.part.as_deref().unwrap_or("all of it")) },
            html! { code.word { (row.code) } },
            html! { (row.message) },
        ]
    });
    let columns = [text("Object"), text("Part"), text("Code"), text("Reason")];
    html! {
        (table("Refused", &columns, rows.collect(), "Nothing of it is refused."))
        @if total > MOST { p.hint { "and " (total - MOST) " more" } }
    }
}
