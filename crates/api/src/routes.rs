//! Every way in and where it leads: `GET /v1/routes`, page by page. `under=NAME` has those at a name or below it,
//! `cluster=NAME` those to a cluster, by its name or id.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use model::identity::MAX_CLUSTER_ID;
use model::ingress::{EntryMode, PathMatch};
use model::inside::Place;
use model::resource::Limits;
use model::routes::{Entry, Host, Member};
use model::snapshot::Route;
use model::{DnsName, Snapshot};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::extract::Query;
use crate::objects::Failure;
use crate::state::State;

/// What a page has where nobody says how much: some 250 KiB.
const USUAL_PAGE: usize = 500;
/// Some half a megabyte, written within milliseconds: one thread answers everything on `--admin`.
const LARGEST_PAGE: usize = 1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    under: Option<String>,
    cluster: Option<String>,
    limit: Option<usize>,
    /// What the page before ended with.
    #[serde(rename = "continue")]
    after: Option<String>,
}

pub(crate) async fn list(
    Shared(state): Shared<Arc<State>>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, Failure> {
    let under = asked.under.as_deref().map(DnsName::parse).transpose();
    let under = under.map_err(|error| bad("BadName", format!("under: {error}")))?;
    let limit = asked.limit.unwrap_or(USUAL_PAGE);
    if !(1..=LARGEST_PAGE).contains(&limit) {
        return Err(bad("BadLimit", format!("limit: a page has 1 to {LARGEST_PAGE} routes")));
    }
    if asked.cluster.as_ref().is_some_and(|cluster| !(1..=MAX_CLUSTER_ID).contains(&cluster.len())) {
        return Err(bad("BadClusterId", format!("cluster: a name or an id has 1 to {MAX_CLUSTER_ID} bytes")));
    }
    let after = asked.after.as_deref().map(|mark| Way::read(mark).ok_or(mark)).transpose();
    let after = after.map_err(|mark| bad("BadContinue", format!("continue: {mark:?} ends no page")))?;

    let snapshot = state.snapshot.load();
    let agents = state.insight.get().and_then(|insight| insight.agents());
    let mut ways = all(&snapshot, agents);
    ways.retain(|(way, target)| {
        after.as_ref().is_none_or(|after| way > after)
            && under.as_ref().is_none_or(|apex| is_under(way, target, apex, &snapshot))
            && asked.cluster.as_deref().is_none_or(|cluster| leads_to(way, target, cluster))
    });
    let remaining = ways.len().saturating_sub(limit);
    if remaining > 0 {
        // Only what is shown is put in order.
        ways.select_nth_unstable_by(limit, |(one, _), (other, _)| one.cmp(other));
        ways.truncate(limit);
    }
    ways.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mark = ways.last().filter(|_| remaining > 0).map(|(way, _)| way.to_string());
    let items: Vec<Value> = ways.iter().map(|(way, target)| show(way, target)).collect();
    Ok(Json(json!({ "items": items, "continue": mark, "remaining": remaining })))
}

fn bad(code: &'static str, reason: impl Into<String>) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, code, reason)
}

/// What a connection or a request is found by. No two are the same, and their order is that of the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Way<'a> {
    ClusterId(Cow<'a, str>),
    ServerName(Cow<'a, DnsName>),
    /// TLS below an `apps` wildcard, by what that stands under.
    AppsTls(Cow<'a, DnsName>),
    /// The same of HTTP.
    AppsHttp(Cow<'a, DnsName>),
    Host(Cow<'a, DnsName>, Path<'a>),
    /// Rules without a host, by the suffix below which they count.
    AnyHost(Cow<'a, DnsName>, Path<'a>),
}

/// Of a rule; the default backend comes last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Path<'a> {
    Exact(Cow<'a, str>),
    Prefix(Cow<'a, str>),
    Default,
}

/// Where a way leads.
enum Target<'a> {
    Route(&'a Route),
    /// The agents' door, which is no tenant's.
    Agents(&'a Route),
    Entry(&'a Host, &'a Entry),
}

/// In no order.
fn all<'a>(snapshot: &'a Snapshot, agents: Option<&'a Arc<Route>>) -> Vec<(Way<'a>, Target<'a>)> {
    let mut ways = Vec::new();
    for (id, route) in snapshot.routes_by_id() {
        ways.push((Way::ClusterId(id.as_str().into()), Target::Route(route)));
    }
    for (name, route) in snapshot.routes() {
        ways.push((Way::ServerName(Cow::Borrowed(name)), Target::Route(route)));
    }
    if let Some(route) = agents {
        let zones = snapshot.zones().filter(|zone| zone.pool.is_none());
        // What somebody has in particular comes first, as at the door.
        let names = zones.filter_map(|zone| Snapshot::agents_door(&zone.apex));
        let names = names.filter(|name| snapshot.is_agents_door(name) && snapshot.route_by_server_name(name).is_none());
        ways.extend(names.map(|name| (Way::ServerName(Cow::Owned(name)), Target::Agents(route))));
    }
    for (subtree, route) in snapshot.apps_routes() {
        ways.push((Way::AppsTls(Cow::Borrowed(subtree)), Target::Route(route)));
    }
    for (subtree, host) in snapshot.http().apps() {
        ways.extend(host.default().map(|entry| (Way::AppsHttp(Cow::Borrowed(subtree)), Target::Entry(host, entry))));
    }
    for (name, host) in snapshot.http().hosts() {
        ways.extend(
            paths(host).map(|(path, entry)| (Way::Host(Cow::Borrowed(name), path), Target::Entry(host, entry))),
        );
    }
    for (suffix, host) in snapshot.http().elsewhere() {
        let paths = paths(host);
        ways.extend(paths.map(|(path, entry)| (Way::AnyHost(Cow::Borrowed(suffix), path), Target::Entry(host, entry))));
    }
    ways
}

fn paths(host: &Host) -> impl Iterator<Item = (Path<'_>, &Entry)> {
    let of_rules = host.routes().iter().map(|route| {
        let path = match &route.path {
            PathMatch::Exact(path) => Path::Exact(Cow::Borrowed(path)),
            PathMatch::Prefix(path) => Path::Prefix(Cow::Borrowed(path)),
        };
        (path, &*route.entry)
    });
    of_rules.chain(host.default().map(|entry| (Path::Default, &**entry)))
}

/// An id is below whatever the API name of its cluster is below.
fn is_under(way: &Way<'_>, target: &Target<'_>, apex: &DnsName, snapshot: &Snapshot) -> bool {
    match (way, target) {
        (Way::ClusterId(_), Target::Route(route)) => {
            let part = snapshot.cluster(&route.cluster);
            part.and_then(|part| part.routes.first()).is_some_and(|(name, _)| name.is_at_or_under(apex))
        }
        (way, _) => way.name().is_some_and(|name| name.is_at_or_under(apex)),
    }
}

fn leads_to(way: &Way<'_>, target: &Target<'_>, cluster: &str) -> bool {
    match (way, target) {
        (Way::ClusterId(id), Target::Route(route)) => id == cluster || route.cluster.as_str() == cluster,
        (_, Target::Route(route)) => route.cluster.as_str() == cluster,
        (_, Target::Agents(_)) => false,
        (_, Target::Entry(_, entry)) => entry.members.iter().any(|member| member.cluster.as_str() == cluster),
    }
}

fn show(way: &Way<'_>, target: &Target<'_>) -> Value {
    let (path, path_type) = match way.path() {
        None => (None, None),
        Some(Path::Exact(path)) => (Some(path), Some("Exact")),
        Some(Path::Prefix(path)) => (Some(path), Some("Prefix")),
        Some(Path::Default) => (None, Some("DefaultBackend")),
    };
    let mut shown = json!({ "by": way.by(), "match": way.pattern(), "path": path, "pathType": path_type });
    match target {
        Target::Route(route) => show_route(&mut shown, way, route),
        Target::Agents(route) => {
            show_route(&mut shown, way, route);
            (shown["tenant"], shown["cluster"], shown["service"]) = (Value::Null, Value::Null, "agents".into());
        }
        Target::Entry(host, entry) => show_entry(&mut shown, host, entry),
    }
    shown
}

fn show_route(shown: &mut Value, way: &Way<'_>, route: &Route) {
    let by_id = matches!(way, Way::ClusterId(_));
    let text = |list: Vec<String>| Value::from(list);
    shown["doors"] = json!([if by_id { "apiserver" } else { "sni" }]);
    shown["tenant"] = route.tenant.as_str().into();
    shown["cluster"] = route.cluster.as_str().into();
    shown["service"] = (*route.service).into();
    shown["upstreams"] = text(route.upstreams.iter().map(ToString::to_string).collect());
    shown["inside"] = text(route.inside.iter().map(ToString::to_string).collect());
    shown["allowedSources"] = text(route.allowed_sources.iter().map(ToString::to_string).collect());
    shown["proofRequired"] = (by_id && route.proof.required).into();
    shown["limits"] = json!({ "cluster": limits(route.limits), "tenant": limits(route.tenant_limits) });
}

fn limits(limits: Limits) -> Value {
    json!({ "connections": limits.connections, "newConnectionsPerSecond": limits.new_connections_per_second })
}

fn show_entry(shown: &mut Value, host: &Host, entry: &Entry) {
    let is_secure = host.certificate.is_some();
    shown["doors"] = if is_secure { json!(["http", "https"]) } else { json!(["http"]) };
    shown["tenant"] = entry.tenant.as_str().into();
    shown["object"] = entry.object.to_string().into();
    shown["service"] = format!("{}:{}", entry.backend.service, entry.backend.port).into();
    shown["entry"] = match entry.policy.entry {
        EntryMode::Vip => "vip",
        EntryMode::Dns => "dns",
    }
    .into();
    shown["members"] = entry.members.iter().map(|member| show_member(member, entry)).collect();
    let sources = host.allowed_sources.as_ref();
    shown["allowedSources"] = sources.map(|ranges| ranges.iter().map(ToString::to_string).collect::<Vec<_>>()).into();
    shown["redirectToHttps"] = entry.options.redirect_to_https.into();
    shown["limits"] = json!({
        "requestTimeoutSeconds": entry.options.request_timeout.as_secs_f64(),
        "bodyOctets": entry.options.max_body,
    });
}

fn show_member(member: &Member, entry: &Entry) -> Value {
    let place = |place: &Place| match place {
        Place::Address(address) => address.to_string(),
        Place::Inside(inner) => inner.target.to_string(),
    };
    let places: Vec<String> = member.places(&entry.policy.upstream).list.iter().map(place).collect();
    let field = if member.is_inside() { "inside" } else { "upstreams" };
    json!({ "cluster": member.cluster.as_str(), field: places })
}

impl<'a> Way<'a> {
    fn by(&self) -> &'static str {
        match self {
            Self::ClusterId(_) => "ClusterId",
            Self::ServerName(_) => "ServerName",
            Self::AppsTls(_) => "AppsTls",
            Self::AppsHttp(_) => "AppsHttp",
            Self::Host(..) => "Host",
            Self::AnyHost(..) => "AnyHost",
        }
    }

    fn name(&self) -> Option<&DnsName> {
        match self {
            Self::ClusterId(_) => None,
            Self::ServerName(name)
            | Self::AppsTls(name)
            | Self::AppsHttp(name)
            | Self::Host(name, _)
            | Self::AnyHost(name, _) => Some(name),
        }
    }

    fn path(&self) -> Option<&Path<'a>> {
        match self {
            Self::Host(_, path) | Self::AnyHost(_, path) => Some(path),
            _ => None,
        }
    }

    /// What an id or a name must be, or lie under, to come this way.
    fn pattern(&self) -> String {
        match self {
            Self::ClusterId(id) => id.clone().into_owned(),
            Self::ServerName(name) | Self::Host(name, _) => name.to_string(),
            Self::AppsTls(name) | Self::AppsHttp(name) | Self::AnyHost(name, _) => format!("*.{name}"),
        }
    }

    /// The mark of [`Display`](fmt::Display).
    fn read(mark: &str) -> Option<Way<'static>> {
        let mut words = mark.splitn(4, ' ');
        let (by, place) = (words.next()?, words.next()?);
        let path = match (words.next(), words.next()) {
            (Some("Exact"), Some(path)) => Some(Path::Exact(path.to_owned().into())),
            (Some("Prefix"), Some(path)) => Some(Path::Prefix(path.to_owned().into())),
            (Some("Default"), None) => Some(Path::Default),
            (None, _) => None,
            _ => return None,
        };
        let name = || DnsName::parse(place).ok().map(Cow::Owned);
        Some(match (by, path) {
            ("ClusterId", None) => Way::ClusterId(place.to_owned().into()),
            ("ServerName", None) => Way::ServerName(name()?),
            ("AppsTls", None) => Way::AppsTls(name()?),
            ("AppsHttp", None) => Way::AppsHttp(name()?),
            ("Host", Some(path)) => Way::Host(name()?, path),
            ("AnyHost", Some(path)) => Way::AnyHost(name()?, path),
            _ => return None,
        })
    }
}

/// What the next page begins behind. Neither ids nor names have spaces.
impl fmt::Display for Way<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterId(id) => write!(f, "{} {id}", self.by()),
            _ => write!(f, "{} {}", self.by(), self.name().unwrap_or(&DnsName::root())),
        }?;
        match self.path() {
            None => Ok(()),
            Some(Path::Exact(path)) => write!(f, " Exact {path}"),
            Some(Path::Prefix(path)) => write!(f, " Prefix {path}"),
            Some(Path::Default) => f.write_str(" Default"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let name = |text: &str| Cow::Owned(DnsName::parse(text).unwrap());
        let ways = [
            Way::ClusterId("a/b:c".into()),
            Way::ServerName(name("api.c1.test")),
            Way::AppsTls(name("c1.test")),
            Way::AppsHttp(name("c1.test")),
            Way::Host(name("a\\032b.test"), Path::Prefix("/".into())),
            Way::Host(name("*.shop.test"), Path::Exact("/a b".into())),
            Way::AnyHost(name("shop.test"), Path::Default),
        ];
        for way in &ways {
            assert_eq!(Way::read(&way.to_string()).as_ref(), Some(way), "{way}");
        }
        assert!(ways.is_sorted(), "the order of the list");
        for mark in
            ["", "Host", "Host shop.test", "Host shop.test Exact", "ServerName a..b", "Other x", "ClusterId c1 Default"]
        {
            assert_eq!(Way::read(mark), None, "{mark:?}");
        }
    }
}
