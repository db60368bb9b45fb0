//! One page each, and what several of them say in the same way.

pub(super) mod cluster;
pub(super) mod clusters;
pub(super) mod explain;
pub(super) mod fleet;
pub(super) mod ingress;
pub(super) mod ingresses;
pub(super) mod records;
pub(super) mod refusals;
pub(super) mod tenant;
pub(super) mod tenants;
pub(super) mod zone;
pub(super) mod zones;

use maud::{Markup, html};
use model::identity::Kind;
use model::snapshot::Condition;
use model::{ObjectRef, Timestamp};

use super::Look;
use super::health::yes_no;
use super::view::Done;

/// Changes that are shown of one object, and of the fleet.
const CHANGES: usize = 20;

/// An object, by its page where it has one.
fn object(object: &ObjectRef) -> Markup {
    let name = &object.name;
    let path = match (object.kind, &object.namespace) {
        (Kind::Cluster, _) => format!("/clusters/{name}"),
        (Kind::Zone, _) => format!("/zones/{name}"),
        (Kind::Tenant, _) => format!("/tenants/{name}"),
        (Kind::Ingress, Some(namespace)) => format!("/ingresses/{namespace}/{name}"),
        _ => return html! { (object.to_string()) },
    };
    html! { a href=(path) { (object.to_string()) } }
}

fn cluster_link(name: &str) -> Markup {
    html! { a href=(format!("/clusters/{name}")) { (name) } }
}

fn tenant_link(name: &str) -> Markup {
    html! { a href=(format!("/tenants/{name}")) { (name) } }
}

/// To the second, in UTC.
fn time(at: Timestamp) -> Markup {
    let text = at.to_string();
    let shown = text.replace('T', " ").replace('Z', "");
    html! { time datetime=(text) title="UTC" { (shown) } }
}

/// What there is to know, line by line.
fn facts(facts: Vec<(&str, Markup)>) -> Markup {
    html! { dl.facts { @for (word, fact) in facts { div { dt { (word) } dd { (fact) } } } } }
}

fn conditions(conditions: &[Condition]) -> Markup {
    html! {
        h2 { "Conditions" }
        ul.conditions {
            @for condition in conditions {
                li {
                    (yes_no(condition.is_well(), condition.kind)) " "
                    span.reason { (condition.reason) }
                    @if !condition.message.is_empty() { p { (condition.message) } }
                    p.since { "since " (time(condition.since)) }
                }
            }
        }
    }
}

/// The newest first; `None` is of the whole fleet.
fn changes(look: &Look, of: Option<&ObjectRef>) -> Markup {
    let mut list = match of {
        Some(object) => look.state.history.of(object),
        None => look.state.history.recent(CHANGES),
    };
    list.truncate(CHANGES);
    html! {
        h2 { "Last changes" }
        @if list.is_empty() { p.empty { "Nothing has changed since this process began." } }
        ol.changes {
            @for change in &list {
                li {
                    (time(change.at)) " "
                    @if of.is_none() { span.object { (object(&change.object)) } " " }
                    span.what { (change.what) }
                }
            }
        }
    }
}

/// What can be done, behind a question. It works without a script.
fn action(look: &Look, path: &str, word: &str, question: &str) -> Markup {
    html! {
        details.action {
            summary { (word) "…" }
            form method="post" action=(path) {
                p { (question) }
                @if let Some(session) = &look.session {
                    input type="hidden" name="word" value=(session.word);
                } @else {
                    p.hint { "This needs a login with the admin credential." }
                }
                button.danger type="submit" { (word) }
            }
        }
    }
}

/// What an action that led here has done.
fn done(done: &Done) -> Markup {
    html! { @if let Some(words) = done.words() { p.done role="status" { (words) } } }
}

/// A search box of a page's own.
fn search(path: &str, label: &str, hint: &str, searched: &str) -> Markup {
    html! {
        form.filter role="search" action=(path) {
            label for="find" { (label) }
            input #find type="search" name="q" value=(searched) placeholder=(hint) autocomplete="off" spellcheck="false";
            button type="submit" { "Search" }
        }
    }
}

/// So many of a quota.
fn of_quota(used: usize, most: Option<u32>) -> Markup {
    html! {
        @match most {
            Some(most) => span.quota.full[used >= most as usize] { (used) " of " (most) },
            None => (used),
        }
    }
}
