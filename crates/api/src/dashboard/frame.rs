//! What all pages have around them.

use maud::{DOCTYPE, Markup, html};

use super::{Session, assets};
use crate::objects::Failure;

/// A part of a page that is replaced when it is otherwise.
pub(super) struct Region {
    pub(super) id: &'static str,
    pub(super) body: Markup,
    /// Stands alone where others stand in two columns.
    is_wide: bool,
}

impl Region {
    pub(super) fn new(id: &'static str, body: Markup) -> Self {
        Self { id, body, is_wide: false }
    }

    pub(super) fn wide(id: &'static str, body: Markup) -> Self {
        Self { id, body, is_wide: true }
    }

    fn render(&self) -> Markup {
        html! { div.region id=(self.id) { (self.body) } }
    }
}

pub(super) struct Page {
    pub(super) title: String,
    /// The path of its entry in the navigation.
    pub(super) entry: &'static str,
    /// What was searched for.
    pub(super) searched: String,
    /// Stands first and stays as it is.
    pub(super) lead: Markup,
    pub(super) regions: Vec<Region>,
    pub(super) layout: Layout,
}

/// How regions stand on a wide screen; on a narrow one all stand below each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// The map beside what needs attention.
    Fleet,
    /// Below each other.
    One,
    /// Left and right by turns, each column as dense as it can be.
    Columns,
}

const ENTRIES: [(&str, &str); 7] = [
    ("/", "Fleet"),
    ("/clusters", "Clusters"),
    ("/zones", "Zones"),
    ("/tenants", "Tenants"),
    ("/ingresses", "Ingresses"),
    ("/refusals", "Refusals"),
    ("/explain", "Explain"),
];

/// `here` is where it was asked for, for those who log in.
pub(super) fn whole(page: &Page, session: Option<&Session>, here: &str) -> Markup {
    let body = html! {
        main #main tabindex="-1" data-live="yes" {
            (page.lead)
            @if page.layout == Layout::Columns {
                @for group in page.regions.chunk_by(|one, other| one.is_wide == other.is_wide) { (columns(group)) }
            } @else {
                div.regions.fleet[page.layout == Layout::Fleet] { @for region in &page.regions { (region.render()) } }
            }
        }
    };
    shell(&page.title, Some(page.entry), &page.searched, session, here, &body)
}

fn columns(group: &[Region]) -> Markup {
    html! {
        @if group.iter().any(|region| region.is_wide) {
            div.regions { @for region in group { (region.render()) } }
        } @else {
            div.columns {
                @for side in 0..2 { div.column { @for region in group.iter().skip(side).step_by(2) { (region.render()) } } }
            }
        }
    }
}

/// A page of one piece, which nothing is told of.
pub(super) fn plain(title: &str, session: Option<&Session>, body: &Markup) -> Markup {
    shell(title, None, "", session, "/", &html! { main #main tabindex="-1" { (body) } })
}

pub(super) fn refusal(session: Option<&Session>, failure: &Failure) -> Markup {
    let body = html! {
        section.card.narrow {
            h1 { (failure.status().as_u16()) " " (failure.code()) }
            p { (failure.message()) "." }
            p {
                @if session.is_none() && failure.status() == axum::http::StatusCode::FORBIDDEN {
                    a.button.primary href="/login" { "Log in" } " "
                }
                a.button href="/" { "To the fleet" }
            }
        }
    };
    plain(failure.code(), session, &body)
}

fn shell(
    title: &str,
    entry: Option<&str>,
    searched: &str,
    session: Option<&Session>,
    here: &str,
    main: &Markup,
) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " · Fleetgate" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href=(assets::path("icon.svg")) type="image/svg+xml";
                link rel="stylesheet" href=(assets::path("style.css"));
                script src=(assets::path("live.js")) defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header.bar {
                    a.brand href="/" {
                        img src=(assets::path("icon.svg")) alt="" width="22" height="22";
                        span { "Fleetgate" }
                    }
                    nav aria-label="Pages" {
                        ul {
                            @for (path, name) in ENTRIES {
                                li { a href=(path) aria-current=[(entry == Some(path)).then_some("page")] { (name) } }
                            }
                        }
                    }
                    form.search role="search" action="/clusters" {
                        label.unseen for="search" { "Find a cluster" }
                        input #search type="search" name="q" value=(searched) placeholder="Find a cluster" autocomplete="off"
                            spellcheck="false" aria-keyshortcuts="/";
                        kbd aria-hidden="true" { "/" }
                    }
                    div.who {
                        span #live role="status" { }
                        @if let Some(session) = session {
                            form method="post" action="/logout" {
                                input type="hidden" name="word" value=(session.word);
                                button.quiet type="submit" { "Log out" }
                            }
                        } @else {
                            a.quiet href=(format!("/login?{}", super::table::query(&[("next", here)]))) { "Log in" }
                        }
                    }
                }
                (main)
            }
        }
    }
}
