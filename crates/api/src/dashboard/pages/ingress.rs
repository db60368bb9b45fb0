//! One federated ingress: who serves it, and where the traffic of each region goes and why.

use std::collections::BTreeMap;
use std::sync::Arc;

use maud::{Markup, html};
use model::identity::Kind;
use model::ingress::Port;
use model::overflow::{Destination, Row, Shed, Table, UNLIMITED};
use model::routes::Entry;
use model::snapshot::{Detail, EntryPoint};
use model::steering::{Asked, Candidate, Known, MemberKey, Situation, Unhealthy, Whereabouts, order};
use model::{ClusterName, ObjectRef};

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::health::yes_no;
use super::super::summary::steering_word;
use super::super::table::{number, table, text};
use super::super::view::missing;
use super::ingresses::entry_word;
use crate::objects::Failure;

/// Backends and rows that are shown; few Ingresses have more.
const MOST: usize = 20;

pub(in super::super) fn page(look: &Look, namespace: &str, name: &str) -> Result<Page, Failure> {
    let lost = || missing(format!("no Ingress is called {namespace}/{name}"));
    let parsed = (namespace.parse(), name.parse());
    let (Ok(own_namespace), Ok(own_name)) = parsed else { return Err(lost()) };
    let object = ObjectRef { kind: Kind::Ingress, namespace: Some(own_namespace), name: own_name };
    let status = look.snapshot.status(&object).ok_or_else(lost)?;
    let row = look.summary.ingresses.get(&object).ok_or_else(lost)?;
    let entries = entries(look, &object);
    let failing = look.state.failing().get(&object).map_or(0, std::collections::BTreeSet::len);
    let entry_points = match &status.detail {
        Detail::Ingress { entry_points, .. } => &**entry_points,
        _ => &[],
    };
    let entry_points = entry_points.iter().map(|point| match point {
        EntryPoint::Address(address) => address.to_string(),
        EntryPoint::Name(name) => name.to_string(),
    });
    let entry_points: Vec<String> = entry_points.collect();
    let hosts: Vec<String> = row.hosts.iter().map(ToString::to_string).collect();
    let joined = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    let facts = vec![
        (
            "Tenant",
            html! { @if let Some(tenant) = &row.tenant { (super::tenant_link(tenant.as_str())) } @else { "–" } },
        ),
        ("Hosts", html! { code { (joined(&hosts)) } }),
        ("Clients come by", html! { (entry_word(row.entry)) }),
        ("Steering", html! { (row.steering.unwrap_or("–")) }),
        ("Entry points", html! { code { (joined(&entry_points)) } }),
    ];
    let overview = html! {
        section.card {
            div.head { h1 { (namespace) "/" (name) } (state(row.members, failing)) }
            (super::facts(facts))
        }
    };
    let parts = status.detail.parts();
    let refused =
        parts.iter().filter_map(|(part, outcome)| Some((part, outcome.err()?))).take(MOST).map(|(part, why)| {
            vec![html! { (part) }, html! { code.word { (why.refusal.code()) } }, html! { (why.refusal.to_string()) }]
        });
    let refused =
        table("Refused", &[text("Part"), text("Code"), text("Reason")], refused.collect(), "Nothing of it is refused.");
    let regions = vec![
        Region::new("overview", overview),
        Region::new("members", html! { section.card { (members(look, &entries)) } }),
        Region::wide("where", traffic(look, &entries)),
        Region::wide("refused", html! { section.card { (refused) } }),
        Region::new("conditions", html! { section.card { (super::conditions(&status.conditions)) } }),
        Region::new("changes", html! { section.card { (super::changes(look, Some(&object))) } }),
    ];
    let title = format!("{namespace}/{name}");
    Ok(Page { title, entry: "/ingresses", searched: String::new(), lead: html! {}, regions, layout: Layout::Columns })
}

fn state(members: usize, failing: usize) -> Markup {
    match (members, failing) {
        (0, _) => yes_no(false, "Served by nobody"),
        (_, 0) => yes_no(true, "Served"),
        (_, failing) => yes_no(false, &format!("{failing} of {members} failing")),
    }
}

/// Each backend once, by its name.
fn entries(look: &Look, object: &ObjectRef) -> Vec<Arc<Entry>> {
    let of_object = look.snapshot.http().entries().filter(|entry| entry.object == *object);
    let by_backend: BTreeMap<_, _> = of_object.map(|entry| (backend(entry), Arc::clone(entry))).collect();
    by_backend.into_values().take(MOST).collect()
}

fn backend(entry: &Entry) -> String {
    match &entry.backend.port {
        Port::Number(number) => format!("{}:{number}", entry.backend.service),
        Port::Name(name) => format!("{}:{name}", entry.backend.service),
    }
}

fn members(look: &Look, entries: &[Arc<Entry>]) -> Markup {
    let standings = look.state.guides.standings.load();
    let mut rows = Vec::new();
    if let Some(entry) = entries.first() {
        for member in entry.members.iter() {
            let known = entry.known(member, standings.of(MemberKey::of(&entry.object, &member.uid)));
            let word = match known.unhealthy {
                Some(why) => why.as_str(),
                None if known.full => "full",
                None => "well",
            };
            let round_trip = known.round_trip.map(|round_trip| format!("{:.1} ms", round_trip.as_secs_f64() * 1e3));
            rows.push(vec![
                super::cluster_link(member.cluster.as_str()),
                yes_no(known.unhealthy.is_none(), word),
                html! { (member.location.region.as_deref().unwrap_or("–")) },
                html! { (round_trip.unwrap_or_else(|| "–".into())) },
            ]);
        }
    }
    let columns = [text("Cluster"), text("State"), text("Region"), number("Round trip")];
    table("Clusters that serve it", &columns, rows, "No cluster serves it.")
}

/// By the tables where load was measured; else by the policy's mode and health alone.
fn traffic(look: &Look, entries: &[Arc<Entry>]) -> Markup {
    let tables = look.state.tables.load();
    html! {
        section.card {
            h2 { "Where traffic goes" }
            @if entries.is_empty() { p.empty { "No request is for it." } }
            @for entry in entries {
                @match tables.of(&Destination::from(&**entry)) {
                    Some(table) => (by_load(entry, table)),
                    None => (by_mode(look, entry)),
                }
            }
        }
    }
}

fn by_load(entry: &Entry, made: &Table) -> Markup {
    let rooms = made.clusters.iter().map(|(cluster, room)| {
        let rate = |rate: f64| {
            if room.out.is_none() && rate >= UNLIMITED { "no limit".into() } else { format!("{rate:.0}/s") }
        };
        let state = room.out.map_or_else(|| "takes traffic".to_owned(), |out| out.to_string());
        vec![
            super::cluster_link(cluster.as_str()),
            yes_no(room.out.is_none(), &state),
            html! { (rate(room.rate)) },
            html! { (room.basis.to_string()) },
        ]
    });
    let rooms = table(
        "What each can take",
        &[text("Cluster"), text("State"), number("Capacity"), text("Basis")],
        rooms.collect(),
        "",
    );
    html! {
        p.hint { "Service " code { (backend(entry)) } ", by the measured load, as of " (super::time(made.at)) }
        @for row in made.rows.iter().take(MOST) { (flows(made, row)) }
        @if made.rows.is_empty() { p.empty { "No requests come now." } }
        (rooms)
    }
}

/// What becomes of the requests of one home.
fn flows(made: &Table, row: &Row) -> Markup {
    let home = row.origin.home.as_ref().map_or("no cluster in particular", ClusterName::as_str);
    let mut cells: Vec<_> = made.clusters.iter().zip(&row.cells).collect();
    cells.sort_by(|(_, one), (_, other)| other.share.total_cmp(&one.share));
    let shares = cells.into_iter().map(|((cluster, _), cell)| {
        vec![super::cluster_link(cluster.as_str()), share(cell.share), html! { (made.explain(cell)) }]
    });
    let shed = row.why_shed.filter(|_| row.shed > 0.0).map(|why| {
        let why = match why {
            Shed::AllFull => "all that it can send to are full",
            Shed::AllOut => "it can send to nobody",
        };
        vec![html! { "refused with 503" }, share(row.shed), html! { (why) }]
    });
    let caption = format!("From {home}, at gateway {}: {:.0} requests/s", row.origin.edge, row.demand);
    table(&caption, &[text("Goes to"), number("Share"), text("Why")], shares.chain(shed).collect(), "")
}

/// As a number and as a bar.
fn share(share: f64) -> Markup {
    html! {
        span.share { meter min="0" max="1" value=(format!("{share:.3}")) aria-hidden="true" {} (format!("{:.1} %", share * 100.0)) }
    }
}

/// A client near each of the members.
fn by_mode(look: &Look, entry: &Entry) -> Markup {
    let standings = look.state.guides.standings.load();
    let known: Vec<Known> = entry
        .members
        .iter()
        .map(|member| entry.known(member, standings.of(MemberKey::of(&entry.object, &member.uid))))
        .collect();
    let mut rows = Vec::new();
    let mut situation = Situation::Usual;
    for home in entry.members.iter().take(MOST) {
        let asked =
            Asked { steering: &entry.policy.steering, client: Whereabouts::from(&home.location), turn: 0, random: 0 };
        let candidates = entry.members.iter().zip(&known).map(|(member, known)| Candidate {
            cluster: &member.cluster,
            location: &member.location,
            known: *known,
        });
        let ranking = order(&asked, candidates);
        situation = ranking.situation;
        let ranked: Vec<_> = ranking.reasons().collect();
        let Some((first, others)) = ranked.split_first() else { continue };
        let name = |ranked: &model::steering::Ranked| entry.members[ranked.member].cluster.as_str();
        let next = others.iter().find(|other| known[other.member].unhealthy != Some(Unhealthy::Drained));
        let out = others.iter().find(|other| entry.members[other.member].cluster == home.cluster);
        let region = home.location.region.as_deref().unwrap_or("–");
        rows.push(vec![
            html! { (home.cluster.as_str()) @if region != "–" { " (" (region) ")" } },
            super::cluster_link(name(first)),
            html! { (first.reason.to_string()) @if let Some(out) = out { "; " (home.cluster.as_str()) " is " (out.reason.to_string()) } },
            html! { @if let Some(next) = next { (name(next)) ": " (next.reason.to_string()) } @else { "–" } },
        ]);
    }
    let mode = steering_word(&entry.policy.steering);
    let columns = [text("Clients near"), text("Go to"), text("Why"), text("Then")];
    html! {
        p.hint { "Service " code { (backend(entry)) } ": no load is measured, so that the policy's mode (" (mode) ") and health decide." }
        @match situation {
            Situation::Usual => {},
            Situation::AllFull => p.error { "All clusters are full." },
            Situation::Panic => p.error { "No cluster is well: all count as well." },
        }
        (table("By the policy", &columns, rows, "No cluster serves it."))
    }
}
