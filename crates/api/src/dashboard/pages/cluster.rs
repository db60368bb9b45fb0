//! One cluster.

use std::time::Instant;

use gateway::balance::Health as Answering;
use gateway::explain::{Question, Wanted};
use gateway::limits::Fullness;
use maud::{Markup, html};
use model::identity::Kind;
use model::snapshot::{ClusterPart, Detail, NameRecords, Status};
use model::{ClusterName, ObjectRef, Timestamp, listing};

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::health::{Health, yes_no};
use super::super::table::{number, table, text};
use super::super::view::{Done, missing};
use crate::objects::Failure;

/// Of each kind; a cluster has hundreds of nodes at most.
const MOST: usize = 200;

pub(in super::super) fn page(look: &Look, name: &str, done: &Done) -> Result<Page, Failure> {
    let lost = || missing(format!("no Cluster is called {name}"));
    let cluster: ClusterName = name.parse().map_err(|_| lost())?;
    let object = ObjectRef::cluster_scoped(Kind::Cluster, (&cluster).into());
    let status = look.snapshot.status(&object).ok_or_else(lost)?;
    let part = look.snapshot.cluster(&cluster);
    let health = part.map_or(Health::Refused, |part| Health::of(part, status));
    let mut regions = vec![Region::new("overview", overview(name, health, status, part.map(AsRef::as_ref)))];
    if let Some(part) = part {
        regions.extend([
            Region::new("nodes", nodes(part)),
            Region::new("names", names(part)),
            Region::new("doors", doors(look, &cluster, part)),
            Region::new("tunnel", tunnel(look, &cluster)),
            Region::new("ingresses", ingresses(look, &cluster)),
        ]);
    }
    regions.push(Region::new("conditions", html! { section.card { (super::conditions(&status.conditions)) } }));
    regions.push(Region::new("changes", html! { section.card { (super::changes(look, Some(&object))) } }));
    if let Some(part) = part {
        regions.push(Region::new("actions", actions(look, name, part)));
    }
    let lead = html! { (super::done(done)) };
    Ok(Page { title: name.into(), entry: "/clusters", searched: String::new(), lead, regions, layout: Layout::Columns })
}

fn overview(name: &str, health: Health, status: &Status, part: Option<&ClusterPart>) -> Markup {
    let mut facts = Vec::new();
    if let Some(part) = part {
        let ready = part.nodes.iter().filter(|node| node.ready).count();
        facts.push(("Tenant", super::tenant_link(part.holding.tenant.as_str())));
        facts.push(("Cluster id", html! { code { (part.id.to_string()) } }));
        if let Detail::Cluster { api_name, apps_name, .. } = &status.detail {
            facts.push(("API", html! { code { (api_name.to_string()) } }));
            facts.push(("Applications", html! { code { (apps_name.to_string()) } }));
        }
        facts.push(("Ready nodes", html! { (ready) " of " (part.nodes.len()) }));
        facts.push(("Location", location(part)));
    }
    if let Some(first) = &status.lost_to {
        facts.push(("Lost to", super::object(first)));
    }
    html! {
        section.card {
            div.head { h1 { (name) } (health.badge()) }
            p.hint { (health.meaning()) }
            (super::facts(facts))
        }
    }
}

fn location(part: &ClusterPart) -> Markup {
    let place = &part.location;
    let coordinates = place.coordinates.map(|at| format!("{:.2}, {:.2}", at.latitude(), at.longitude()));
    let said = [place.region.clone(), place.provider.clone(), coordinates];
    let said: Vec<String> = said.into_iter().flatten().collect();
    html! { @if said.is_empty() { "not said" } @else { (said.join(" · ")) } }
}

fn nodes(part: &ClusterPart) -> Markup {
    let rows = part.nodes.iter().take(MOST).map(|node| {
        let addresses = node.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let word = if node.ready { "Ready" } else { "Not ready" };
        vec![html! { (node.name) }, yes_no(node.ready, word), html! { code { (addresses) } }]
    });
    let columns = [text("Node"), text("State"), text("Addresses")];
    html! { section.card { (table("Nodes", &columns, rows.collect(), "It has no nodes.")) (more(part.nodes.len())) } }
}

fn more(all: usize) -> Markup {
    html! { @if all > MOST { p.hint { "and " (all - MOST) " more" } } }
}

fn names(part: &ClusterPart) -> Markup {
    let sets =
        part.names.iter().flat_map(|NameRecords { name, records, .. }| records.iter().map(move |set| (name, set)));
    let rows = sets.take(MOST).map(|(name, set)| {
        vec![
            html! { code { (name.to_string()) } },
            html! { (listing::type_name(set.data.rtype())) },
            html! { (set.ttl) },
            html! { code { (set.data.to_text().join(", ")) } },
        ]
    });
    let columns = [text("Name"), text("Type"), number("TTL"), text("Records")];
    let by = match (part.authoritative, part.hand_out) {
        (true, false) => "answered here",
        (true, true) => "answered here, and handed to others",
        (false, true) => "handed to others",
        (false, false) => "published by nobody",
    };
    let rows = rows.collect();
    html! { section.card { (table("Names", &columns, rows, "None of its names has a record.")) p.hint { (by) } } }
}

fn doors(look: &Look, cluster: &ClusterName, part: &ClusterPart) -> Markup {
    let question =
        Question { wants: Wanted::ClusterId { id: part.id.as_str().as_bytes().to_vec(), proof: true }, from: None };
    let doors = look.state.insight.get();
    let way = doors.and_then(|doors| doors.explain(&question, Instant::now()).way);
    let rows = part.routes.iter().map(|(name, route)| {
        let upstreams = route.upstreams.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        vec![html! { code { (name.to_string()) } }, html! { (route.service) }, html! { code { (upstreams) } }]
    });
    let columns = [text("Server name"), text("Service"), text("Upstreams")];
    let refused = look.state.meters.get().map(|meters| meters.gateway.refusals_of(cluster)).unwrap_or_default();
    html! {
        section.card {
            (table("Routes", &columns, rows.collect(), "The door to its control plane is closed."))
            @if let Some(way) = way {
                ul.plain {
                    @for upstream in &way.upstreams {
                        li {
                            code { (upstream.address.to_string()) } " "
                            @match upstream.health {
                                Answering::Healthy => (yes_no(true, "answers")),
                                Answering::Unhealthy => (yes_no(false, "does not answer")),
                                Answering::Unknown => "not checked",
                            }
                            @if upstream.ejected { ", could not be reached of late" }
                            ", " (upstream.open) " open"
                        }
                    }
                }
                (super::facts(vec![
                    ("Of the cluster", fullness(way.limits.cluster)),
                    ("Of its tenant", fullness(way.limits.tenant)),
                ]))
            }
            @if !refused.is_empty() {
                h3 { "Refused here since this process began" }
                ul.plain { @for (door, code, times) in refused { li { (times) " × " code { (code) } " at --" (door) } } }
            }
        }
    }
}

/// Limits and use.
fn fullness(level: Fullness) -> Markup {
    let limits = level.limits;
    html! {
        (level.open) " connections open, "
        @match limits.connections { Some(most) => { "of " (most) }, None => "no limit" }
        "; "
        @match (limits.new_connections_per_second, level.new_left) {
            (Some(most), Some(left)) => { (left) " of " (most) " new ones per second left" },
            _ => "new ones without a limit",
        }
    }
}

fn tunnel(look: &Look, cluster: &ClusterName) -> Markup {
    let links = look.state.links.get().map(|hub| (hub.links_of(cluster), hub.ways(cluster)));
    let (links, ways) = links.unwrap_or_default();
    let rows = links.into_iter().map(|link| {
        let since = Timestamp::from_unix(std::time::Duration::from_secs(link.since));
        let word = if link.silent { "does not answer" } else { "answers" };
        vec![html! { (link.agent) }, yes_no(!link.silent, word), html! { (link.streams) }, super::time(since)]
    });
    let columns = [text("Agent"), text("State"), number("Streams"), text("Since")];
    let empty = if ways > 0 { "Other processes have its links." } else { "Its agent has no link here." };
    html! { section.card { (table("Tunnel", &columns, rows.collect(), empty)) } }
}

fn ingresses(look: &Look, cluster: &ClusterName) -> Markup {
    let failing = look.state.failing();
    let mut rows = Vec::new();
    for (object, row) in &look.summary.ingresses {
        let Some(status) = look.snapshot.status(object) else { continue };
        let Detail::Ingress { members, .. } = &status.detail else { continue };
        if !members.contains(cluster) || rows.len() >= MOST {
            continue;
        }
        let hosts = row.hosts.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let fails = failing.get(object).is_some_and(|failing| failing.contains(cluster));
        let word = if fails { "fails its checks" } else { "serves it" };
        rows.push(vec![super::object(object), html! { code { (hosts) } }, yes_no(!fails, word)]);
    }
    let columns = [text("Ingress"), text("Hosts"), text("State here")];
    html! { section.card { (table("Federated ingresses", &columns, rows, "It serves no federated Ingress.")) } }
}

fn actions(look: &Look, name: &str, part: &ClusterPart) -> Markup {
    html! {
        section.card {
            h2 { "Actions" }
            @if part.drained.is_some() {
                (super::action(look, &format!("/clusters/{name}/undrain"), "Undrain", "Federated ingresses may send to this cluster again."))
            } @else {
                (super::action(look, &format!("/clusters/{name}/drain"), "Drain", "Federated ingresses send nothing new to this cluster, as long as others are well. Its names and its control plane stay as they are."))
            }
            @if part.held {
                p { "Its last addresses are held: " a href="/zones" { "release the zone" } " to let them go." }
            }
        }
    }
}
