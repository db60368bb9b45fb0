//! Lists the nodes of one cluster, then follows them: Kubernetes' list and watch, with bookmarks.

use std::ops::RangeInclusive;
use std::time::Duration;

use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::away::Away;
use super::link::{Lines, Link, whole};
use crate::nodes::{Metadata, NodeSet, Observed};

const NODES: &str = "/api/v1/nodes";
/// A node has some 15 KiB, most of it images. A page is held whole while it is read.
const PAGE: u32 = 50;
const MOST_OF_A_PAGE: usize = 8 * 1024 * 1024;
/// Twice what Kubernetes supports; a server that never ends its list ends here.
const PAGES: usize = 200;
/// After the server should have ended a watch.
const SLACK: Duration = Duration::from_secs(10);
/// Both are opaque and short; they come back in our requests.
const LONGEST_VERSION: usize = 128;
const LONGEST_CONTINUE: usize = 4096;

/// What is known of one cluster's nodes, and up to where.
#[derive(Default)]
pub(super) struct Watched {
    pub(super) nodes: NodeSet,
    /// Where to go on; `None` to list anew.
    version: Option<String>,
}

impl Watched {
    pub(super) fn new(nodes: NodeSet) -> Self {
        Self { nodes, version: None }
    }

    /// After a long absence, a server behind the same address may count in another way.
    pub(super) fn list_anew(&mut self) {
        self.version = None;
    }

    /// Follows the nodes until the server ends the watch, which it does after some time out of `seconds`. `tell` hears
    /// of them once the watch has begun, and of every change. When the cluster must be listed anew, the nodes stay what
    /// they were until the new list is complete.
    pub(super) async fn follow(
        &mut self,
        link: &mut Link,
        seconds: RangeInclusive<u32>,
        mut tell: impl FnMut(&NodeSet),
    ) -> Result<(), Away> {
        if self.version.is_none() {
            let (nodes, version) = list(link).await?;
            self.nodes = nodes;
            self.version = Some(version);
        }
        let ended = self.watch(link, fastrand::u32(seconds), &mut tell).await;
        // A server that says no to where we were may say yes to a list.
        if matches!(ended, Err(Away::Gone | Away::Status(_) | Away::Malformed(_))) {
            self.version = None;
        }
        ended
    }

    async fn watch(&mut self, link: &mut Link, seconds: u32, tell: &mut impl FnMut(&NodeSet)) -> Result<(), Away> {
        let params = WatchParams { timeout: Some(seconds), bookmarks: true, ..WatchParams::default() };
        let version = self.version.as_deref().unwrap_or_default();
        let answer = link.get(&path(Request::new(NODES).watch(&params, version))?).await?;
        tell(&self.nodes);

        let silent = Instant::now() + Duration::from_secs(seconds.into()) + SLACK;
        let mut lines = Lines::new(answer);
        let mut changed = false;
        loop {
            let Ok(next) = timeout_at(silent, lines.next()).await else { return Err(Away::TimedOut) };
            let Some(event) = next? else { return Ok(()) };
            changed |= self.take(&event)?;
            if changed && !lines.has_next() {
                tell(&self.nodes);
                changed = false;
            }
        }
    }

    /// Whether the list is another one now.
    fn take(&mut self, line: &[u8]) -> Result<bool, Away> {
        let (version, changed) = match event(line)? {
            Event::Applied(node) => {
                let changed = self.nodes.apply(&node);
                (node.metadata.resource_version, changed)
            }
            Event::Deleted(node) => {
                let changed = self.nodes.remove(&node.metadata.name);
                (node.metadata.resource_version, changed)
            }
            Event::Bookmark(version) => (version, false),
        };
        self.version = Some(checked(version, LONGEST_VERSION)?);
        Ok(changed)
    }
}

/// All pages, or nothing.
async fn list(link: &mut Link) -> Result<(NodeSet, String), Away> {
    #[derive(Deserialize)]
    struct Page {
        metadata: ListMetadata,
        items: Option<Vec<Observed>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ListMetadata {
        #[serde(default)]
        resource_version: String,
        #[serde(default)]
        r#continue: Option<String>,
    }

    let mut nodes = NodeSet::default();
    let mut params = ListParams::default().limit(PAGE);
    for _ in 0..PAGES {
        let answer = link.get(&path(Request::new(NODES).list(&params))?).await?;
        let octets = whole(answer, MOST_OF_A_PAGE, "8 MiB for 50 nodes").await?;
        let page: Page = serde_json::from_slice(&octets).map_err(|_| Away::Malformed("it lists no nodes"))?;
        for node in page.items.iter().flatten() {
            nodes.apply(node);
        }
        match page.metadata.r#continue.filter(|more| !more.is_empty()) {
            Some(more) => params.continue_token = Some(checked(more, LONGEST_CONTINUE)?),
            None => return Ok((nodes, checked(page.metadata.resource_version, LONGEST_VERSION)?)),
        }
    }
    Err(Away::TooMuch("10000 nodes"))
}

fn path(request: Result<http::Request<Vec<u8>>, kube::core::request::Error>) -> Result<String, Away> {
    let uri = request.map_err(|_| Away::Malformed("it gave what does not fit a request"))?.into_parts().0.uri;
    Ok(uri.to_string())
}

fn checked(text: String, longest: usize) -> Result<String, Away> {
    let fits = (1..=longest).contains(&text.len()) && text.bytes().all(|octet| octet.is_ascii_graphic());
    if fits { Ok(text) } else { Err(Away::Malformed("it does not say where its list ends")) }
}

#[derive(Debug)]
enum Event {
    Applied(Observed),
    Deleted(Observed),
    Bookmark(String),
}

/// Read twice: what the object is depends on the type, which may stand behind it.
fn event(line: &[u8]) -> Result<Event, Away> {
    #[derive(Deserialize)]
    struct Typed {
        r#type: String,
    }
    #[derive(Deserialize)]
    struct Of<T> {
        object: T,
    }
    #[derive(Deserialize)]
    struct OnlyMetadata {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Failure {
        #[serde(default)]
        code: u16,
    }
    fn object<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, Away> {
        let read: Result<Of<T>, _> = serde_json::from_slice(line);
        read.map(|read| read.object).map_err(|_| MALFORMED)
    }
    const MALFORMED: Away = Away::Malformed("it sends no watch events");

    let typed: Typed = serde_json::from_slice(line).map_err(|_| MALFORMED)?;
    match typed.r#type.as_str() {
        "ADDED" | "MODIFIED" => Ok(Event::Applied(object(line)?)),
        "DELETED" => Ok(Event::Deleted(object(line)?)),
        "BOOKMARK" => Ok(Event::Bookmark(object::<OnlyMetadata>(line)?.metadata.resource_version)),
        "ERROR" => Err(Away::of_status(object::<Failure>(line)?.code)),
        _ => Err(MALFORMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_change_the_nodes_and_say_where_to_go_on() {
        let node = |kind: &str, version: u32, ready: &str| {
            format!(
                r#"{{"type":"{kind}","object":{{"kind":"Node","metadata":{{"name":"n1","resourceVersion":"{version}"}},
                "status":{{"conditions":[{{"type":"Ready","status":"{ready}"}}],"addresses":[]}}}}}}"#
            )
        };
        let bookmark = r#"{"object":{"kind":"Node","metadata":{"resourceVersion":"13","creationTimestamp":null},
            "spec":{},"status":{}},"type":"BOOKMARK"}"#;
        let mut watched = Watched::default();
        for (line, changed, version, count) in [
            (node("ADDED", 10, "True"), true, "10", 1),
            (node("MODIFIED", 11, "True"), false, "11", 1),
            (node("MODIFIED", 12, "False"), true, "12", 1),
            (bookmark.to_owned(), false, "13", 1),
            (node("DELETED", 14, "False"), true, "14", 0),
            (node("DELETED", 15, "False"), false, "15", 0),
        ] {
            assert_eq!(watched.take(line.as_bytes()), Ok(changed), "{line}");
            assert_eq!(watched.version.as_deref(), Some(version));
            assert_eq!(watched.nodes.to_list().len(), count);
        }
    }

    #[test]
    fn what_is_no_event_ends_the_watch() {
        for (line, away) in [
            (r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}"#, Away::Gone),
            (r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":504}}"#, Away::Status(504)),
            (r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":401}}"#, Away::Unauthorized),
            (r#"{"type":"ERROR","object":{}}"#, Away::Status(0)),
        ] {
            assert_eq!(event(line.as_bytes()).unwrap_err(), away);
        }
        let long =
            format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{}"}}}}}}"#, "9".repeat(200));
        for line in [
            "",
            "null",
            "{}",
            r#"{"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":{"metadata":{"name":"n1"}}}"#,
            r#"{"type":"ADDED","object":{"metadata":{"name":"n1","resourceVersion":"1 2"}}}"#,
            r#"{"type":"ADDED","object":{"metadata":[]}}"#,
            r#"{"type":"SOMETHING","object":{}}"#,
            &long,
        ] {
            assert!(matches!(Watched::default().take(line.as_bytes()), Err(Away::Malformed(_))), "{line}");
        }
    }
}
