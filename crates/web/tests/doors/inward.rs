//! Members that are reached inside their clusters, and hosts of `apps` wildcards. What is called the same in all clusters leads to
//! real sockets of each.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::identity::Kind;
use model::ingress::{Backend, FederationPolicy, HealthCheck, PathMatch, Port, UpstreamTls};
use model::inside::{Denied, Inner, Place};
use model::routes::{Entry, Host, HttpRoute, HttpTable, Member};
use model::{DnsName, Location, ObjectRef};
use prometheus_client::registry::Registry;
use tokio::net::TcpStream;
use web::inward::{InnerStream, Reaching};
use web::{Doors, Inward, Settings};

use crate::backend::Recorder;
use crate::fixture::{Authority, Front, Site, curl, table, wait_for};

/// As it is called inside every cluster.
const HTTP: &str = "ingress.web.svc:80";
const HTTPS: &str = "ingress.web.svc:443";

type Rows = Arc<Mutex<HashMap<(String, String), Result<SocketAddr, Denied>>>>;

struct Way {
    rows: Rows,
    connects: Arc<AtomicUsize>,
    inward: Inward,
}

fn way(rows: &[(&str, &str, Result<SocketAddr, Denied>)]) -> Way {
    let rows = rows.iter().map(|(cluster, target, at)| (((*cluster).to_owned(), (*target).to_owned()), *at)).collect();
    let rows: Rows = Arc::new(Mutex::new(rows));
    let connects = Arc::new(AtomicUsize::new(0));
    let (table, count) = (Arc::clone(&rows), Arc::clone(&connects));
    let connect = move |inner: &Inner, _: Duration| -> Reaching {
        let key = (inner.cluster.to_string(), inner.target.to_string());
        let at = table.lock().unwrap().get(&key).copied().unwrap_or(Err(Denied::NoLink));
        count.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let stream = TcpStream::connect(at?).await.map_err(|_| Denied::Unreachable)?;
            Ok(Box::new(stream) as Box<dyn InnerStream>)
        })
    };
    let table = Arc::clone(&rows);
    let links = move |cluster: &model::ClusterName| {
        let rows = table.lock().unwrap();
        rows.iter().filter(|((of, _), at)| of == cluster.as_str() && **at != Err(Denied::NoLink)).count()
    };
    Way { rows, connects, inward: Inward::new(connect, links) }
}

fn member(cluster: &str) -> Arc<Member> {
    let inside = |target: &str| {
        let (cluster, target) = (cluster.parse().unwrap(), target.parse().unwrap());
        vec![Place::Inside(Arc::new(Inner { cluster, uid: "uid".into(), target }))]
    };
    Arc::new(Member {
        cluster: cluster.parse().unwrap(),
        uid: cluster.into(),
        location: Location::default(),
        http: inside(HTTP),
        https: inside(HTTPS),
    })
}

fn entry(object: ObjectRef, members: &[&str], policy: FederationPolicy) -> Arc<Entry> {
    Arc::new(Entry {
        object,
        tenant: "acme".parse().unwrap(),
        backend: Backend { service: "ingress".parse().unwrap(), port: Port::Number(80) },
        options: Arc::default(),
        policy: Arc::new(policy),
        members: members.iter().map(|cluster| member(cluster)).collect(),
        unready: Arc::new([]),
    })
}

/// As the plan makes it of clusters with `ingress.mode: hub`.
fn apps(clusters: &[&str]) -> Vec<(DnsName, Host)> {
    let host = |cluster: &&str| {
        let object = ObjectRef::cluster_scoped(Kind::Cluster, cluster.parse().unwrap());
        let policy = FederationPolicy { upstream: UpstreamTls::Plain, ..FederationPolicy::default() };
        let entry = entry(object, &[cluster], policy);
        let host = Host::new("acme".parse().unwrap(), Vec::new(), Some(entry), None);
        (DnsName::parse(&format!("{cluster}.fleet.example")).unwrap(), host)
    };
    clusters.iter().map(host).collect()
}

fn federated(host: &str, members: &[&str], policy: FederationPolicy) -> HttpTable {
    let (namespace, name) = (Some("acme".parse().unwrap()), "web".parse().unwrap());
    let entry = entry(ObjectRef { kind: Kind::Ingress, namespace, name }, members, policy);
    let route = HttpRoute { path: PathMatch::Prefix("/".into()), entry };
    HttpTable::of([(DnsName::parse(host).unwrap(), Host::new("acme".parse().unwrap(), vec![route], None, None))])
}

fn settings(way: &Way, is_lean: bool) -> Settings {
    Settings { threads: 1, inward: Some(way.inward.clone()), is_lean, ..Settings::default() }
}

fn get(host: &str) -> String {
    format!("GET /x HTTP/1.1\r\nhost: {host}\r\n\r\n")
}

#[test]
fn each_host_leads_into_its_own_cluster() {
    for is_lean in [true, false] {
        let (c1, c2) = (Recorder::start(), Recorder::start());
        let way = way(&[("c1", HTTP, Ok(c1.address)), ("c2", HTTP, Ok(c2.address))]);
        let front = Front::with(HttpTable::default().with_apps(apps(&["c1", "c2"])), &settings(&way, is_lean));
        let mut client = front.connect();
        for round in 1..=5 {
            for (host, there, other, before) in
                [("shop.c1.fleet.example", &c1, &c2, round - 1), ("a.b.C2.fleet.example:8080", &c2, &c1, round)]
            {
                client.say(get(host));
                let answer = client.hear().unwrap();
                assert_eq!((answer.status, answer.body.as_str()), (200, "/x "), "{}", answer.head);
                let request = there.last();
                assert!(host.eq_ignore_ascii_case(request.header("host").unwrap()), "{}", request.head);
                assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
                assert_eq!(request.header("x-forwarded-proto"), Some("http"));
                assert!(request.header("forwarded").is_some(), "{}", request.head);
                assert_eq!((there.requests().len(), other.requests().len()), (round, before), "{host}");
            }
        }
        // Connections rest, and each is one cluster's.
        assert_eq!(way.connects.load(Ordering::Relaxed), 2, "lean: {is_lean}");
        client.say(get("c1.fleet.example"));
        assert_eq!(client.hear().unwrap().code(), Some("NoRoute"));
    }
}

#[test]
fn what_is_denied_is_told_at_once_and_is_over_when_there_is_a_link_again() {
    for is_lean in [true, false] {
        let recorder = Recorder::start();
        let way = way(&[]);
        let front = Front::with(HttpTable::default().with_apps(apps(&["c1"])), &settings(&way, is_lean));
        for (denied, status, code) in [
            (Denied::NoLink, 503, "NoLink"),
            (Denied::Forbidden, 502, "TargetForbidden"),
            (Denied::UnknownName, 502, "UnknownName"),
            (Denied::TimedOut, 504, "DialTimeout"),
            (Denied::TooMany, 503, "TooManyStreams"),
            (Denied::LinkLost, 502, "LinkLost"),
        ] {
            way.rows.lock().unwrap().insert(("c1".into(), HTTP.into()), Err(denied));
            let mut client = front.connect();
            client.say(get("shop.c1.fleet.example"));
            let answer = client.hear().unwrap();
            assert_eq!((answer.status, answer.code()), (status, Some(code)), "{}", answer.body);
            assert!(answer.body.contains(&denied.to_string()) && !answer.body.contains("c1"), "{}", answer.body);
            assert_eq!(answer.header("retry-after").is_some(), denied == Denied::NoLink, "{code}");
        }
        // It is the only one there is: nobody is kept from it by what was.
        way.rows.lock().unwrap().insert(("c1".into(), HTTP.into()), Ok(recorder.address));
        let mut client = front.connect();
        client.say(get("shop.c1.fleet.example"));
        assert_eq!(client.hear().unwrap().status, 200);
    }
    let front = Front::start(HttpTable::default().with_apps(apps(&["c1"])));
    let mut client = front.connect();
    client.say(get("shop.c1.fleet.example"));
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.code()), (503, Some("NoTunnel")));
}

#[test]
fn sources_are_those_of_the_wildcard() {
    for is_lean in [true, false] {
        let recorder = Recorder::start();
        let way = way(&[("c1", HTTP, Ok(recorder.address))]);
        for (range, status) in [("127.0.0.0/8", 200), ("192.0.2.0/24", 403)] {
            let mut apps = apps(&["c1"]);
            apps[0].1.allowed_sources = Some([range.parse().unwrap()].into());
            let front = Front::with(HttpTable::default().with_apps(apps), &settings(&way, is_lean));
            let mut client = front.connect();
            client.say(get("shop.c1.fleet.example"));
            let answer = client.hear().unwrap();
            assert_eq!(answer.status, status);
            assert_eq!(answer.code(), (status == 403).then_some("SourceNotAllowed"));
        }
        assert_eq!(recorder.requests().len(), 1);
    }
}

/// TLS for an `apps` wildcard ends in its cluster: what came over TLS that ended here was for somebody else.
#[test]
fn a_connection_whose_tls_ended_here_is_for_no_wildcard() {
    let recorder = Recorder::start();
    let way = way(&[("c1", HTTP, Ok(recorder.address))]);
    let authority = Authority::new();
    let site = Site { certificate: Some(authority.issue("shop.test")), ..Site::new("shop.test", &[recorder.address]) };
    let front = Front::with(table([site]).with_apps(apps(&["c1"])), &settings(&way, true));
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let port = front.https.port();
    let resolve = format!("shop.test:{port}:127.0.0.1");
    let url = format!("https://shop.test:{port}/x");
    let ask = |host: &str| {
        let host = format!("host: {host}");
        let (ok, text) =
            curl(&["--cacert", ca.to_str().unwrap(), "--resolve", &resolve, "--include", "-H", &host, &url]);
        assert!(ok, "{text}");
        text
    };
    assert!(ask("shop.test").contains("200"));
    let told = ask("shop.c1.fleet.example");
    assert!(told.contains("421") && told.contains("fleetgate-refusal: Misdirected"), "{told}");
    // And there is no certificate for it.
    let resolve = format!("shop.c1.fleet.example:{port}:127.0.0.1");
    let url = format!("https://shop.c1.fleet.example:{port}/x");
    let (ok, text) = curl(&["--insecure", "--resolve", &resolve, &url]);
    assert!(!ok, "{text}");
}

#[test]
fn other_protocols_and_long_bodies_pass_inside() {
    let way = way(&[("c1", HTTP, Ok(crate::streams::echo()))]);
    let front = Front::with(HttpTable::default().with_apps(apps(&["c1"])), &settings(&way, true));
    let mut client = front.connect();
    client.say("GET /chat HTTP/1.1\r\nhost: shop.c1.fleet.example\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nhello");
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("websocket")));
    assert_eq!(client.exactly(5), b"hello");

    let recorder = Recorder::start();
    way.rows.lock().unwrap().insert(("c1".into(), HTTP.into()), Ok(recorder.address));
    for is_chunked in [false, true] {
        let front = Front::with(HttpTable::default().with_apps(apps(&["c1"])), &settings(&way, true));
        let mut client = front.connect();
        let body = "x".repeat(3 << 20);
        let (framing, body) = if is_chunked {
            ("transfer-encoding: chunked".to_owned(), format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()))
        } else {
            (format!("content-length: {}", body.len()), body)
        };
        client.say(format!("POST /up HTTP/1.1\r\nhost: shop.c1.fleet.example\r\n{framing}\r\n\r\n"));
        client.say(body);
        let answer = client.hear().unwrap();
        assert_eq!((answer.status, answer.body.len()), (200, "/up ".len() + (3 << 20)));
    }
}

/// Over the tunnel plain text needs no asking for; with authorities of its own a policy has TLS in it.
#[test]
fn members_inside_are_asked_as_the_policy_says() {
    let authority = Authority::new();
    let certificate = authority.issue("shop.test");
    let plain = Recorder::start();
    let secure = crate::backend::serve(Some((&certificate, &["http/1.1"][..])), |_| async {
        http::Response::new(crate::backend::text("by TLS"))
    });
    let way = way(&[("c1", HTTP, Ok(plain.address)), ("c1", HTTPS, Ok(secure))]);
    let trusting = UpstreamTls::Verified { authorities: [authority.der()].into() };
    let distrusting = UpstreamTls::Verified { authorities: [Authority::new().der()].into() };
    for (upstream, status, body) in [
        (UpstreamTls::default(), 200, "/x "),
        (UpstreamTls::Plain, 200, "/x "),
        (UpstreamTls::Unverified, 200, "by TLS"),
        (trusting, 200, "by TLS"),
        (distrusting, 502, ""),
    ] {
        let policy = FederationPolicy { upstream: upstream.clone(), ..FederationPolicy::default() };
        let front = Front::with(federated("shop.test", &["c1"], policy), &settings(&way, true));
        let mut client = front.connect();
        client.say(get("shop.test"));
        let answer = client.hear().unwrap();
        assert_eq!(answer.status, status, "{upstream:?}: {}", answer.body);
        assert!(answer.body.starts_with(body), "{upstream:?}: {}", answer.body);
        assert_eq!(answer.code(), (status == 502).then_some("Untrusted"));
    }
}

/// A member without a link is passed over at once, and back as soon as it has one.
#[test]
fn another_member_is_asked_where_there_is_no_link() {
    let (c1, c2) = (Recorder::start(), Recorder::start());
    let way = way(&[("c2", HTTP, Ok(c2.address))]);
    let policy = FederationPolicy { steering: model::ingress::Steering::RoundRobin, ..FederationPolicy::default() };
    let front = Front::with(federated("shop.test", &["c1", "c2"], policy), &settings(&way, true));
    let ask = || {
        let mut client = front.connect();
        client.say(get("shop.test"));
        client.hear().unwrap().status
    };
    for _ in 0..4 {
        assert_eq!(ask(), 200);
    }
    assert_eq!((c1.requests().len(), c2.requests().len()), (0, 4));
    way.rows.lock().unwrap().insert(("c1".into(), HTTP.into()), Ok(c1.address));
    wait_for("a request to the member that is back", || {
        ask();
        !c1.requests().is_empty()
    });
}

/// Checks go the same way; what is inside is not checked where there is no way there.
#[test]
fn members_inside_are_checked_inside() {
    let c1 = Recorder::start();
    let way = way(&[("c1", HTTP, Ok(c1.address))]);
    let health =
        HealthCheck { interval: Duration::from_millis(100), unhealthy: 1, healthy: 1, ..HealthCheck::default() };
    let policy = FederationPolicy { health, ..FederationPolicy::default() };
    let table = Arc::new(arc_swap::ArcSwap::from_pointee(federated("shop.test", &["c1", "c2"], policy)));
    for has_way in [true, false] {
        let mut registry = Registry::default();
        let settings = Settings { threads: 1, inward: has_way.then(|| way.inward.clone()), ..Settings::default() };
        let metrics = web::Metrics::register(&mut registry);
        let running = web::start(settings, Doors::default(), &table, &metrics).unwrap();
        let out = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            let lines =
                text.lines().filter(|line| line.starts_with("fleetgate_web_members_out") && line.ends_with(" 1"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        if has_way {
            wait_for("the one without a link to be out", || out().iter().any(|line| line.contains("\"c2\"")));
            assert!(!out().iter().any(|line| line.contains("\"c1\"")), "{:?}", out());
            wait_for("a check", || c1.requests().iter().any(|request| request.path() == "/healthz"));
        } else {
            // Some checks would have failed meanwhile.
            std::thread::sleep(Duration::from_millis(600));
            assert!(out().is_empty(), "{:?}", out());
        }
        running.drain(Duration::ZERO);
    }
}
