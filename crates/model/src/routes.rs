//! Which HTTP request goes where: hosts first, then paths, as `networking.k8s.io/v1` has it.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

use rpds::HashTrieMapSync;

use crate::identity::{ClusterName, ObjectName, ObjectRef};
use crate::ingress::{Backend, Certificate, FederationPolicy, PathMatch, RouteOptions, UpstreamTls};
use crate::inside::Place;
use crate::name::DnsName;
use crate::network::{Cidr, Location};
use crate::steering::{Known, Unhealthy};

/// Every host that is served. Successive versions share what did not change.
#[derive(Debug, Clone, Default)]
pub struct HttpTable {
    /// By name; `*.shop.test` under that very name.
    pub(crate) hosts: HashTrieMapSync<DnsName, Arc<Host>>,
    /// Rules without a host, by the suffixes of their tenant: they have what no host of the tenant's has.
    pub(crate) elsewhere: HashTrieMapSync<DnsName, Arc<Host>>,
    /// What comes by `apps` wildcards through the tunnel, by what those stand under.
    pub(crate) apps: HashTrieMapSync<DnsName, Arc<Host>>,
}

impl HttpTable {
    /// The host of a request: the very name, then the wildcard that stands for its first label and no more, then what is deepest
    /// of the `apps` wildcard that it lies under, at any depth as DNS has it, and of the suffix below which somebody serves every
    /// host of its own; where they are alike the wildcard, which is somebody's in particular.
    pub fn host(&self, name: &DnsName) -> Option<&Arc<Host>> {
        self.find(name).map(|found| found.host)
    }

    /// The same, and which rules it is that serve it.
    pub fn find(&self, name: &DnsName) -> Option<FoundHost<'_>> {
        let found = |by| move |(place, host)| FoundHost { by, place, host };
        let wildcard = || self.hosts.get_key_value(&name.parent()?.prepend("*").ok()?).map(found(HostRule::Wildcard));
        let elsewhere = || {
            let mut places = std::iter::successors(Some(name.clone()), DnsName::parent);
            places.find_map(|place| self.elsewhere.get_key_value(&place)).map(found(HostRule::AnyHost))
        };
        // `*` in a request is a label like any other, and no host's.
        if name.is_wildcard() {
            return elsewhere();
        }
        let others = || match (below(&self.apps, name).map(found(HostRule::Apps)), elsewhere()) {
            (Some(apps), Some(elsewhere)) if !is_below(elsewhere.place, apps.place) => Some(apps),
            (apps, None) => apps,
            (_, elsewhere) => elsewhere,
        };
        self.hosts.get_key_value(name).map(found(HostRule::Name)).or_else(wildcard).or_else(others)
    }

    /// Every host by its pattern, in no order.
    pub fn hosts(&self) -> impl Iterator<Item = (&DnsName, &Arc<Host>)> {
        self.hosts.iter()
    }

    /// What comes by `apps` wildcards, by what those stand under, in no order.
    pub fn apps(&self) -> impl Iterator<Item = (&DnsName, &Arc<Host>)> {
        self.apps.iter()
    }

    /// Rules without a host, by the suffixes below which they count, in no order.
    pub fn elsewhere(&self) -> impl Iterator<Item = (&DnsName, &Arc<Host>)> {
        self.elsewhere.iter()
    }

    /// Every entry of an Ingress, as often as a route leads to it.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        let hosts = self.hosts.values().chain(self.elsewhere.values());
        hosts.flat_map(|host| host.routes.iter().map(|route| &route.entry).chain(&host.default))
    }

    /// Of hosts by their patterns, without a plan.
    pub fn of(hosts: impl IntoIterator<Item = (DnsName, Host)>) -> Self {
        let hosts = hosts.into_iter().map(|(pattern, host)| (pattern, Arc::new(host))).collect();
        Self { hosts, ..Self::default() }
    }

    /// With what comes by `apps` wildcards, by what those stand under.
    pub fn with_apps(mut self, apps: impl IntoIterator<Item = (DnsName, Host)>) -> Self {
        self.apps = apps.into_iter().map(|(subtree, host)| (subtree, Arc::new(host))).collect();
        self
    }

    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.elsewhere.is_empty() && self.apps.is_empty()
    }
}

/// Of what stands under names, the deepest that a name lies below. RFC 4592 2.2.1: what a wildcard stands under is not its own.
pub(crate) fn below<'a, T>(table: &'a HashTrieMapSync<DnsName, T>, name: &DnsName) -> Option<(&'a DnsName, &'a T)> {
    // A name has up to 127 labels; most tables have nothing.
    if table.is_empty() || name.is_wildcard() {
        return None;
    }
    let mut places = std::iter::successors(name.parent(), DnsName::parent);
    places.find_map(|place| table.get_key_value(&place))
}

/// Whether the one stands below the other and is not the same.
pub(crate) fn is_below(name: &DnsName, other: &DnsName) -> bool {
    name != other && name.is_at_or_under(other)
}

/// A host, and why it is the one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FoundHost<'a> {
    pub by: HostRule,
    /// The name or wildcard of the rules, or the suffix below which rules without a host count.
    pub place: &'a DnsName,
    pub host: &'a Arc<Host>,
}

/// Which rules serve a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostRule {
    /// Those for the very name.
    Name,
    /// Those for a wildcard.
    Wildcard,
    /// None: it is the cluster's whose `apps` wildcard it is.
    Apps,
    /// Those without a host.
    AnyHost,
}

/// What is served under one name. All of it is one tenant's.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    pub tenant: ObjectName,
    /// In the order in which they are tried.
    routes: Vec<HttpRoute>,
    /// For paths that none of them has.
    default: Option<Arc<Entry>>,
    /// Without one nobody can come by TLS.
    pub certificate: Option<Arc<Certificate>>,
    /// Where the certificate is from, as far as that is known.
    pub secret: Option<Arc<ObjectRef>>,
    /// Who may ask; everybody, if there is no list.
    pub allowed_sources: Option<Arc<[Cidr]>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct HttpRoute {
    pub path: PathMatch,
    pub entry: Arc<Entry>,
}

impl Host {
    /// Of two routes with the same path the first counts.
    pub fn new(
        tenant: ObjectName,
        mut routes: Vec<HttpRoute>,
        default: Option<Arc<Entry>>,
        certificate: Option<Arc<Certificate>>,
    ) -> Self {
        routes.sort_by_key(|route| route.path.rank());
        Self { tenant, routes, default, certificate, secret: None, allowed_sources: None }
    }

    pub fn admits(&self, client: IpAddr) -> bool {
        let is_in = |ranges: &Arc<[Cidr]>| ranges.iter().any(|range| range.contains(client));
        self.allowed_sources.as_ref().is_none_or(is_in)
    }

    /// Where a path leads; it is compared as it was sent, without the query.
    pub fn entry(&self, path: &str) -> Option<&Arc<Entry>> {
        self.find(path).map(|(_, entry)| entry)
    }

    /// The same, and the path of the rule that has it; none is the default backend.
    pub fn find(&self, path: &str) -> Option<(Option<&PathMatch>, &Arc<Entry>)> {
        let matching = self.routes.iter().find(|route| route.path.matches(path));
        let matching = matching.map(|route| (Some(&route.path), &route.entry));
        matching.or_else(|| Some((None, self.default.as_ref()?)))
    }

    /// What has the paths that no route has.
    pub fn default(&self) -> Option<&Arc<Entry>> {
        self.default.as_ref()
    }

    pub fn routes(&self) -> &[HttpRoute] {
        &self.routes
    }
}

impl PathMatch {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Exact(path) | Self::Prefix(path) => path,
        }
    }

    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *path,
            // A slash at the end says nothing: elements are compared.
            Self::Prefix(prefix) => {
                let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
                path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }

    /// The longest first, an exact one before a prefix of the same length.
    fn rank(&self) -> (Reverse<usize>, bool) {
        (Reverse(self.as_str().len()), matches!(self, Self::Prefix(_)))
    }
}

/// What a request is sent to: one backend of one Ingress, in all clusters that have it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The Ingress.
    pub object: ObjectRef,
    pub tenant: ObjectName,
    pub backend: Backend,
    pub options: Arc<RouteOptions>,
    pub policy: Arc<FederationPolicy>,
    /// By the names of their clusters.
    pub members: Arc<[Arc<Member>]>,
    /// Members that are known not to serve it, and why. Few; those of which nothing is known are not among them.
    pub unready: Arc<[(ClusterName, Unhealthy)]>,
}

impl Entry {
    /// What is known of a member where it is asked, with what the hub knows of it.
    pub fn known(&self, member: &Member, seen_here: Known) -> Known {
        let of_hub = self.unready.iter().find(|(cluster, _)| *cluster == member.cluster).map(|(_, why)| *why);
        Known { unhealthy: of_hub.or(seen_here.unhealthy), ..seen_here }
    }
}

/// A cluster that serves an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub cluster: ClusterName,
    /// Tells a cluster from a later one of the same name.
    pub uid: Arc<str>,
    pub location: Location,
    /// Where its ingress controller takes plain HTTP.
    pub http: Vec<Place>,
    /// Where it takes HTTPS.
    pub https: Vec<Place>,
}

/// Where a member is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places<'a> {
    pub list: &'a [Place],
    /// Whether TLS is spoken there.
    pub is_tls: bool,
}

impl Member {
    /// Whether it is reached through the tunnel; then it has no other places.
    pub fn is_inside(&self) -> bool {
        self.http.iter().chain(&self.https).any(|place| matches!(place, Place::Inside(_)))
    }

    /// Where a policy has it asked. The tunnel is as good as TLS: who is at its other end has proved it. So TLS is spoken in it
    /// only where the policy says more of it than everybody does, or where nothing else is taken.
    pub fn places(&self, upstream: &UpstreamTls) -> Places<'_> {
        let is_tls = match upstream {
            UpstreamTls::Plain => false,
            UpstreamTls::Verified { authorities } if authorities.is_empty() => {
                !self.is_inside() || self.http.is_empty()
            }
            UpstreamTls::Verified { .. } | UpstreamTls::Unverified => true,
        };
        Places { list: if is_tls { &self.https } else { &self.http }, is_tls }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Kind;
    use crate::ingress::Port;

    fn entry(service: &str) -> Arc<Entry> {
        Arc::new(Entry {
            object: ObjectRef {
                kind: Kind::Ingress,
                namespace: Some("acme".parse().unwrap()),
                name: "web".parse().unwrap(),
            },
            tenant: "acme".parse().unwrap(),
            backend: Backend { service: service.parse().unwrap(), port: Port::Number(80) },
            options: Arc::default(),
            policy: Arc::default(),
            members: Arc::new([]),
            unready: Arc::new([]),
        })
    }

    fn host(paths: &[&str], default: bool) -> Host {
        let routes = paths.iter().enumerate().map(|(number, path)| {
            let (kind, path) = path.split_once(' ').unwrap();
            let path = match kind {
                "Exact" => PathMatch::Exact(path.into()),
                _ => PathMatch::Prefix(path.into()),
            };
            HttpRoute { path, entry: entry(&format!("s{number}")) }
        });
        Host::new("acme".parse().unwrap(), routes.collect(), default.then(|| entry("default")), None)
    }

    /// The table of `networking.k8s.io/v1`: paths of the rules, the path of a request, and the rule that has it.
    #[test]
    fn paths_match_as_kubernetes_says() {
        let rows: [(&[&str], &str, Option<usize>); 41] = [
            (&["Prefix /"], "/", Some(0)),
            (&["Prefix /"], "/any/path", Some(0)),
            (&["Exact /foo"], "/foo", Some(0)),
            (&["Exact /foo"], "/bar", None),
            (&["Exact /foo"], "/foo/", None),
            (&["Exact /foo"], "/FOO", None),
            (&["Exact /foo/"], "/foo", None),
            (&["Exact /foo/"], "/foo/", Some(0)),
            (&["Prefix /foo"], "/foo", Some(0)),
            (&["Prefix /foo"], "/foo/", Some(0)),
            (&["Prefix /foo"], "/FOO", None),
            (&["Prefix /foo/"], "/foo", Some(0)),
            (&["Prefix /foo/"], "/foo/", Some(0)),
            (&["Prefix /foo/"], "/foobar", None),
            (&["Prefix /aaa/bb"], "/aaa/bbb", None),
            (&["Prefix /aaa/bbb"], "/aaa/bbb", Some(0)),
            (&["Prefix /aaa/bbb"], "/aaa/bbb/", Some(0)),
            (&["Prefix /aaa/bbb"], "/aaa/bbb/ccc", Some(0)),
            (&["Prefix /aaa/bbb"], "/aaa/bbbxyz", None),
            (&["Prefix /aaa/bbb/"], "/aaa/bbb", Some(0)),
            (&["Prefix /aaa/bbb/"], "/aaa/bbb/", Some(0)),
            (&["Prefix /aaa/bbb/"], "/aaa/bbb/ccc", Some(0)),
            (&["Prefix /aaa"], "/aaa/ccc", Some(0)),
            (&["Prefix /aaa"], "/aaaccc", None),
            (&["Prefix /aaa"], "/ccc", None),
            (&["Prefix /", "Prefix /aaa"], "/aaa/ccc", Some(1)),
            (&["Prefix /aaa", "Prefix /"], "/aaa/ccc", Some(0)),
            (&["Prefix /", "Prefix /aaa", "Prefix /aaa/bbb"], "/aaa/bbb", Some(2)),
            (&["Prefix /", "Prefix /aaa", "Prefix /aaa/bbb"], "/ccc", Some(0)),
            (&["Prefix /foo", "Exact /foo"], "/foo", Some(1)),
            (&["Exact /foo", "Prefix /foo"], "/foo", Some(0)),
            (&["Exact /foo", "Prefix /foo"], "/foo/bar", Some(1)),
            (&["Prefix /foo", "Prefix /foo/"], "/foo", Some(1)),
            (&["Prefix /foo", "Prefix /foo/"], "/foo/bar", Some(1)),
            (&["Exact /foo", "Prefix /foo/"], "/foo", Some(1)),
            // The first of two alike, which are of the older Ingress.
            (&["Prefix /foo", "Prefix /foo"], "/foo", Some(0)),
            // As it was sent: nothing is decoded or resolved on the way.
            (&["Prefix /foo"], "/%66oo", None),
            (&["Prefix /foo"], "/foo/../bar", Some(0)),
            (&["Prefix /foo"], "//foo", None),
            (&["Prefix /"], "*", None),
            (&[], "/", None),
        ];
        for (paths, path, expected) in rows {
            for default in [false, true] {
                let host = host(paths, default);
                let found = host.entry(path).map(|entry| entry.backend.service.to_string());
                let expected = expected.map(|number| format!("s{number}")).or(default.then(|| "default".into()));
                assert_eq!(found, expected, "{path} among {paths:?}");
                let rule = host.find(path).and_then(|(rule, _)| rule);
                assert_eq!(rule.is_some(), expected.is_some_and(|found| found != "default"), "{path} among {paths:?}");
                assert!(rule.is_none_or(|rule| rule.matches(path)), "{path} among {paths:?}");
            }
        }
    }

    #[test]
    fn hosts_match_as_kubernetes_says() {
        use HostRule::{AnyHost, Apps, Name, Wildcard};
        let name = |text: &str| DnsName::parse(text).unwrap();
        let called = |tenant: &str| Host::new(tenant.parse().unwrap(), Vec::new(), None, None);
        let patterns = ["foo.bar.com", "*.foo.com", "exact.foo.com"];
        let mut table = HttpTable::of(patterns.map(|pattern| (name(pattern), called(&pattern.replace('*', "any")))));
        table.elsewhere.insert_mut(name("acme.test"), Arc::new(called("elsewhere")));
        table.elsewhere.insert_mut(name("c1.test"), Arc::new(called("elsewhere")));
        table.elsewhere.insert_mut(name("deep.c1.test"), Arc::new(called("elsewhere")));
        table.hosts.insert_mut(name("shop.c1.test"), Arc::new(called("shop")));
        table.hosts.insert_mut(name("*.dev.c1.test"), Arc::new(called("dev")));
        let table = table.with_apps(["c1.test", "c2.c1.test"].map(|subtree| (name(subtree), called(subtree))));
        for (asked, expected, by) in [
            ("foo.bar.com", Some("foo.bar.com"), Some((Name, "foo.bar.com"))),
            ("FOO.bar.com", Some("foo.bar.com"), Some((Name, "foo.bar.com"))),
            ("subdomain.bar.com", None, None),
            ("bar.foo.com", Some("any.foo.com"), Some((Wildcard, "*.foo.com"))),
            ("baz.bar.foo.com", None, None),
            ("foo.com", None, None),
            ("*.foo.com", None, None),
            ("exact.foo.com", Some("exact.foo.com"), Some((Name, "exact.foo.com"))),
            ("acme.test", Some("elsewhere"), Some((AnyHost, "acme.test"))),
            ("a.b.acme.test", Some("elsewhere"), Some((AnyHost, "acme.test"))),
            ("acme.test.evil", None, None),
            // What an `apps` wildcard stands under is not its own, and what somebody has is not either.
            ("c1.test", Some("elsewhere"), Some((AnyHost, "c1.test"))),
            ("a.c1.test", Some("c1.test"), Some((Apps, "c1.test"))),
            ("a.b.c.c1.test", Some("c1.test"), Some((Apps, "c1.test"))),
            ("a.c2.c1.test", Some("c2.c1.test"), Some((Apps, "c2.c1.test"))),
            ("c2.c1.test", Some("c1.test"), Some((Apps, "c1.test"))),
            ("shop.c1.test", Some("shop"), Some((Name, "shop.c1.test"))),
            ("a.shop.c1.test", Some("c1.test"), Some((Apps, "c1.test"))),
            ("a.dev.c1.test", Some("dev"), Some((Wildcard, "*.dev.c1.test"))),
            ("a.b.dev.c1.test", Some("c1.test"), Some((Apps, "c1.test"))),
            ("a.deep.c1.test", Some("elsewhere"), Some((AnyHost, "deep.c1.test"))),
            ("*.c1.test", Some("elsewhere"), Some((AnyHost, "c1.test"))),
            ("evilc1.test", None, None),
        ] {
            let found = table.host(&name(asked)).map(|host| host.tenant.to_string());
            assert_eq!(found.as_deref(), expected, "{asked}");
            let found = table.find(&name(asked)).map(|found| (found.by, found.place.clone()));
            assert_eq!(found, by.map(|(by, place)| (by, name(place))), "{asked}");
        }
    }
}
