//! Lists the objects of one kind in one cluster, then follows them: Kubernetes' list and watch, with bookmarks.

use std::ops::RangeInclusive;
use std::time::Duration;

use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::away::Away;
use super::link::{Lines, Link, whole};
use crate::nodes::{Metadata, NodeSet, Observed};

/// A node has some 15 KiB, most of it images. A page is held whole while it is read.
const PAGE: u32 = 50;
const MOST_OF_A_PAGE: usize = 8 * 1024 * 1024;
/// Of nodes twice what Kubernetes supports; a server that never ends its list ends here.
const PAGES: usize = 200;
/// After the server should have ended a watch.
const SLACK: Duration = Duration::from_secs(10);
/// Both are opaque and short; they come back in our requests.
const LONGEST_VERSION: usize = 128;
const LONGEST_CONTINUE: usize = 4096;

/// What is kept of the objects of one kind. Bounded, whatever a server sends.
pub(super) trait Kept: Default {
    type Object: DeserializeOwned;

    fn version(object: &Self::Object) -> &str;
    /// Whether what is kept is another now.
    fn apply(&mut self, object: &Self::Object) -> bool;
    fn remove(&mut self, object: &Self::Object) -> bool;
}

impl Kept for NodeSet {
    type Object = Observed;

    fn version(node: &Observed) -> &str {
        &node.metadata.resource_version
    }

    fn apply(&mut self, node: &Observed) -> bool {
        Self::apply(self, node)
    }

    fn remove(&mut self, node: &Observed) -> bool {
        Self::remove(self, &node.metadata.name)
    }
}

/// Which objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) path: String,
    pub(super) labels: Option<String>,
}

impl Query {
    pub(super) fn nodes() -> Self {
        Self { path: "/api/v1/nodes".into(), labels: None }
    }
}

/// What is known of the objects of one kind, and up to where.
#[derive(Default)]
pub(super) struct Watched<K> {
    pub(super) kept: K,
    /// Where to go on; `None` to list anew.
    version: Option<String>,
}

impl<K: Kept> Watched<K> {
    pub(super) fn new(kept: K) -> Self {
        Self { kept, version: None }
    }

    /// After a long absence, a server behind the same address may count in another way.
    pub(super) fn list_anew(&mut self) {
        self.version = None;
    }

    /// Follows the objects until the server ends the watch, which it does after some time out of `seconds`. `tell` hears
    /// of them once the watch has begun, and of every change. When the cluster must be listed anew, they stay what they
    /// were until the new list is complete.
    pub(super) async fn follow(
        &mut self,
        link: &mut Link,
        query: &Query,
        seconds: RangeInclusive<u32>,
        mut tell: impl FnMut(&K),
    ) -> Result<(), Away> {
        if self.version.is_none() {
            let (kept, version) = list(link, query).await?;
            self.kept = kept;
            self.version = Some(version);
        }
        let ended = self.watch(link, query, fastrand::u32(seconds), &mut tell).await;
        // A server that says no to where we were may say yes to a list.
        if matches!(ended, Err(Away::Gone | Away::Status(_) | Away::Malformed(_))) {
            self.version = None;
        }
        ended
    }

    async fn watch(
        &mut self,
        link: &mut Link,
        query: &Query,
        seconds: u32,
        tell: &mut impl FnMut(&K),
    ) -> Result<(), Away> {
        let label_selector = query.labels.clone();
        let params = WatchParams { label_selector, timeout: Some(seconds), bookmarks: true, ..WatchParams::default() };
        let version = self.version.as_deref().unwrap_or_default();
        let answer = link.get(fitting(Request::new(&query.path).watch(&params, version))?).await?;
        tell(&self.kept);

        let silent = Instant::now() + Duration::from_secs(seconds.into()) + SLACK;
        let mut lines = Lines::new(answer);
        let mut changed = false;
        loop {
            let Ok(next) = timeout_at(silent, lines.next()).await else { return Err(Away::TimedOut) };
            let Some(event) = next? else { return Ok(()) };
            changed |= self.take(&event)?;
            if changed && !lines.has_next() {
                tell(&self.kept);
                changed = false;
            }
        }
    }

    /// Whether the list is another one now.
    fn take(&mut self, line: &[u8]) -> Result<bool, Away> {
        let (version, changed) = match event::<K::Object>(line)? {
            Event::Applied(object) => {
                let changed = self.kept.apply(&object);
                (K::version(&object).to_owned(), changed)
            }
            Event::Deleted(object) => {
                let changed = self.kept.remove(&object);
                (K::version(&object).to_owned(), changed)
            }
            Event::Bookmark(version) => (version, false),
        };
        self.version = Some(checked(version, LONGEST_VERSION)?);
        Ok(changed)
    }
}

/// All pages, or nothing.
pub(super) async fn list<K: Kept>(link: &mut Link, query: &Query) -> Result<(K, String), Away> {
    #[derive(Deserialize)]
    struct Page<T> {
        metadata: ListMetadata,
        items: Option<Vec<T>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ListMetadata {
        #[serde(default)]
        resource_version: String,
        #[serde(default)]
        r#continue: Option<String>,
    }

    let mut kept = K::default();
    let mut params = ListParams { label_selector: query.labels.clone(), ..ListParams::default().limit(PAGE) };
    for _ in 0..PAGES {
        let answer = link.get(fitting(Request::new(&query.path).list(&params))?).await?;
        let octets = whole(answer, MOST_OF_A_PAGE, "8 MiB in one page").await?;
        let page: Page<K::Object> = serde_json::from_slice(&octets).map_err(|_| Away::Malformed("it sends no list"))?;
        for object in page.items.iter().flatten() {
            kept.apply(object);
        }
        match page.metadata.r#continue.filter(|more| !more.is_empty()) {
            Some(more) => params.continue_token = Some(checked(more, LONGEST_CONTINUE)?),
            None => return Ok((kept, checked(page.metadata.resource_version, LONGEST_VERSION)?)),
        }
    }
    Err(Away::TooMuch("200 pages in one list"))
}

/// A request that is made of what the server gave, too.
pub(super) fn fitting(
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<http::Request<Vec<u8>>, Away> {
    request.map_err(|_| Away::Malformed("it gave what does not fit a request"))
}

fn checked(text: String, longest: usize) -> Result<String, Away> {
    let fits = (1..=longest).contains(&text.len()) && text.bytes().all(|octet| octet.is_ascii_graphic());
    if fits { Ok(text) } else { Err(Away::Malformed("it does not say where its list ends")) }
}

#[derive(Debug)]
enum Event<T> {
    Applied(T),
    Deleted(T),
    Bookmark(String),
}

/// Read twice: what the object is depends on the type, which may stand behind it.
fn event<T: DeserializeOwned>(line: &[u8]) -> Result<Event<T>, Away> {
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
        let mut watched = Watched::<NodeSet>::default();
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
            assert_eq!(watched.kept.to_list().len(), count);
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
            assert_eq!(event::<Observed>(line.as_bytes()).unwrap_err(), away);
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
            assert!(matches!(Watched::<NodeSet>::default().take(line.as_bytes()), Err(Away::Malformed(_))), "{line}");
        }
    }
}
