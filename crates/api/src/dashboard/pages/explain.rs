//! Where a request, a connection or a query would go: the same answers as `fleetgate explain` gives.

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::super::Look;
use super::super::frame::{Layout, Page, Region};
use super::super::health::Health;
use crate::explain;

#[derive(Debug, Clone, Default, Deserialize)]
pub(in super::super) struct Asked {
    /// A URL, a name or a cluster id.
    #[serde(default)]
    what: String,
    /// `tlv` where it is a cluster id.
    #[serde(default)]
    by: String,
    #[serde(default)]
    from: String,
}

pub(in super::super) fn page(look: &Look, asked: &Asked) -> Page {
    let lead = html! {
        h1 { "Explain" }
        form.explain action="/explain" {
            div {
                label for="what" { "URL, name or cluster id" }
                input #what type="text" name="what" value=(asked.what) required placeholder="https://shop.example/cart" autocomplete="off" spellcheck="false";
            }
            div {
                label for="by" { "It is" }
                select #by name="by" {
                    option value="" { "a URL or a name" }
                    option value="tlv" selected[asked.by == "tlv"] { "a cluster id (TLV)" }
                }
            }
            div {
                label for="from" { "From IP (if known)" }
                input #from type="text" name="from" value=(asked.from) placeholder="203.0.113.7" autocomplete="off" spellcheck="false";
            }
            button.primary type="submit" { "Explain" }
        }
    };
    let answer = html! {
        section.card {
            @if asked.what.trim().is_empty() {
                p.empty { "Nothing is sent, counted or taken: those who would decide are asked what they would do." }
            } @else {
                (answer(look, asked))
            }
        }
    };
    let regions = vec![Region::new("answer", answer)];
    Page { title: "Explain".into(), entry: "/explain", searched: String::new(), lead, regions, layout: Layout::One }
}

fn answer(look: &Look, asked: &Asked) -> Markup {
    let what = Some(asked.what.trim().to_owned());
    let from = Some(asked.from.trim().to_owned()).filter(|from| !from.is_empty());
    let question = match (asked.by.as_str(), asked.what.contains("://")) {
        ("tlv", _) => explain::Asked { tlv: what, from, ..explain::Asked::default() },
        (_, true) => explain::Asked { url: what, from, ..explain::Asked::default() },
        (_, false) => explain::Asked { name: what, from, ..explain::Asked::default() },
    };
    let answer = match explain::answer(&look.state, &question) {
        Ok(answer) => answer,
        Err(failure) => return html! { p.error role="alert" { (failure.message()) } },
    };
    html! {
        div.head { h2 { "What would become of it" } (verdict(&answer)) }
        dl.topics {
            @for (word, lines) in explain::told::topics(&answer) {
                div { dt { (word) } dd { @for line in lines { p { (line) } } } }
            }
        }
    }
}

fn verdict(answer: &Value) -> Markup {
    let kind = answer["verdict"]["kind"].as_str().or(answer["connection"]["verdict"].as_str());
    let (health, word) = match kind {
        Some("Refused") => (Health::Refused, "Refused"),
        Some("Doubtful") => (Health::Degraded, "Doubtful"),
        _ => (Health::Ready, "Goes through"),
    };
    html! { span.badge { (health.symbol()) (word) } }
}
