use std::time::Duration;

use model::Timestamp;
use model::identity::Kind;
use model::ingress::{Backend, FederationPolicy, Port, RouteOptions, UpstreamTls};
use model::network::{Coordinates, Location};
use model::overflow::{Edge, Origin, Out, Room, pour};
use model::routes::{Host, HttpRoute};

use super::*;

const PLACES: &[u8] = b"203.0.113.0/24 48.8 2.3 eu\n198.51.100.0/24 34.7 135.5 jp\n";

fn member(name: &str, latitude: f64, longitude: f64) -> Arc<Member> {
    let coordinates = Some(Coordinates::new(latitude, longitude).unwrap());
    Arc::new(Member {
        cluster: name.parse().unwrap(),
        uid: name.into(),
        location: Location { coordinates, ..Location::default() },
        http: vec![model::inside::Place::Address("192.0.2.1:80".parse().unwrap())],
        https: vec![model::inside::Place::Address("192.0.2.1:443".parse().unwrap())],
    })
}

fn entry(ingress: &str, tenant: &str, change: impl FnOnce(&mut Entry)) -> Arc<Entry> {
    let policy = FederationPolicy { upstream: UpstreamTls::Plain, ..FederationPolicy::default() };
    let mut entry = Entry {
        object: ObjectRef {
            kind: Kind::Ingress,
            namespace: Some(tenant.parse().unwrap()),
            name: ingress.parse().unwrap(),
        },
        tenant: tenant.parse().unwrap(),
        backend: Backend { service: ingress.parse().unwrap(), port: Port::Number(80) },
        options: Arc::default(),
        policy: Arc::new(policy),
        members: [member("berlin", 52.5, 13.4), member("tokyo", 35.7, 139.7)].into(),
        unready: Arc::new([]),
    };
    change(&mut entry);
    Arc::new(entry)
}

/// A certificate that nobody could be shown is as good as none.
fn certificate(names: &[&str]) -> Arc<Certificate> {
    let made = rcgen::generate_simple_self_signed(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    let (chain, key) = (vec![made.cert.der().to_vec()], made.signing_key.serialize_der());
    let digest = model::Digest::of_text(&key);
    Arc::new(Certificate { chain, key, digest })
}

/// Two tenants: one with a host, a wildcard and a host without TLS, the other with a host.
fn insight() -> (Insight, Arc<Entry>) {
    let prefix =
        |path: &str, entry: &Arc<Entry>| HttpRoute { path: PathMatch::Prefix(path.into()), entry: Arc::clone(entry) };
    let exact =
        |path: &str, entry: &Arc<Entry>| HttpRoute { path: PathMatch::Exact(path.into()), entry: Arc::clone(entry) };
    let web = entry("web", "acme", |_| {});
    let cart = entry("cart", "acme", |_| {});
    let secure = entry("secure", "acme", |entry| {
        entry.options = Arc::new(RouteOptions { redirect_to_https: true, ..RouteOptions::default() });
    });
    let lost = entry("lost", "acme", |entry| entry.members = Arc::new([]));
    let other = entry("other", "initech", |_| {});
    let host = |tenant: &str, routes: Vec<HttpRoute>, default: Option<&Arc<Entry>>, names: &[&str]| {
        let certificate = (!names.is_empty()).then(|| certificate(names));
        Host::new(tenant.parse().unwrap(), routes, default.cloned(), certificate)
    };
    let shop = vec![prefix("/", &web), exact("/cart", &cart), prefix("/secure", &secure), prefix("/lost", &lost)];
    let hosts = [
        ("shop.test", host("acme", shop, None, &["shop.test"])),
        ("*.shop.test", host("acme", vec![exact("/only", &web)], Some(&cart), &["*.shop.test"])),
        ("plain.test", host("acme", vec![prefix("/a", &web)], None, &[])),
        ("other.test", host("initech", vec![prefix("/", &other)], None, &["other.test"])),
    ];
    let table = HttpTable::of(hosts.map(|(pattern, host)| (pattern.parse().unwrap(), host)));
    let mut insight = Insight::without_doors(&Arc::new(ArcSwap::from_pointee(table))).unwrap();
    insight.places.store(Some(Arc::new(geo::Map::parse(PLACES).unwrap())));
    insight.redirect_port = Some(8443);
    (insight, web)
}

fn ask(insight: &Insight, url: &str, from: Option<&str>) -> Explanation {
    let from = from.map(|from| from.parse().unwrap());
    insight.explain(&Question { url: Url::parse(url).unwrap(), server_name: None, from }, Instant::now())
}

#[test]
fn requests_are_told_with_the_rule_that_decides() {
    let (insight, _) = insight();
    for (url, code, status, rule) in [
        ("https://shop.test/", "Forwarded", None, "Ingress acme/web: host shop.test, path / (Prefix)"),
        ("https://shop.test/cart", "Forwarded", None, "Ingress acme/cart: host shop.test, path /cart (Exact)"),
        ("https://SHOP.test:444/cart?a", "Forwarded", None, "Ingress acme/cart: host shop.test, path /cart (Exact)"),
        ("https://shop.test/Cart", "Forwarded", None, "Ingress acme/web: host shop.test, path / (Prefix)"),
        ("https://shop.test/c%61rt", "Forwarded", None, "Ingress acme/web: host shop.test, path / (Prefix)"),
        ("https://a.shop.test/", "Forwarded", None, "Ingress acme/cart: host *.shop.test, defaultBackend"),
        ("https://shop.test/secure/x", "Forwarded", None, "Ingress acme/secure: host shop.test, path /secure (Prefix)"),
        (
            "http://shop.test/secure/x?y=z",
            "Redirected",
            Some(308),
            "Ingress acme/secure: annotation fleetgate.dev/redirect-to-https",
        ),
        ("http://shop.test/lost", "NoMember", Some(503), "Ingress acme/lost: no cluster serves it"),
        ("http://plain.test/a", "Forwarded", None, "Ingress acme/web: host plain.test, path /a (Prefix)"),
        (
            "http://plain.test/b",
            "NoRoute",
            Some(404),
            "none of the 1 paths of host plain.test has /b, and there is no default backend",
        ),
        ("https://plain.test/a", "UnknownServerName", None, "host plain.test has no certificate that can be used"),
        ("http://nobody.test/", "NoRoute", Some(404), "no Ingress that is served has the host nobody.test"),
        ("https://nobody.test/", "UnknownServerName", None, "no Ingress that is served has the host nobody.test"),
        ("http://192.0.2.7/", "NoRoute", Some(404), "an address is nobody's host"),
        ("https://192.0.2.7/", "NoServerName", None, "an address is nobody's host"),
    ] {
        let told = ask(&insight, url, None);
        assert_eq!((told.verdict.code(), told.verdict.status()), (code, status), "{url}");
        assert_eq!(told.rule, rule, "{url}");
    }
    let Verdict::Redirected(location) = ask(&insight, "http://shop.test/secure/x?y=z", None).verdict else { panic!() };
    assert_eq!(location, "https://shop.test:8443/secure/x?y=z");
}

#[test]
fn a_connection_that_was_made_for_somebody_else_is_misdirected() {
    let (insight, _) = insight();
    for (url, server_name, code) in [
        ("https://shop.test/", "other.test", "Misdirected"),
        ("https://shop.test/", "a.shop.test", "Forwarded"),
        ("https://shop.test/", "nobody.test", "UnknownServerName"),
        ("https://nobody.test/", "shop.test", "NoRoute"),
    ] {
        let server_name = Some(server_name.parse().unwrap());
        let question = Question { url: Url::parse(url).unwrap(), server_name, from: None };
        assert_eq!(insight.explain(&question, Instant::now()).verdict.code(), code, "{question:?}");
    }
    let question = Question {
        url: Url::parse("https://shop.test/cart").unwrap(),
        server_name: Some("other.test".parse().unwrap()),
        from: None,
    };
    let told = insight.explain(&question, Instant::now());
    assert_eq!(told.rule, "the certificate is of Tenant initech, the host of Tenant acme");
    assert_eq!(told.route.unwrap().entry.backend.service.as_str(), "cart", "what it would have met is told, too");
}

/// Members in their order, each with the code of its reason.
fn ranked(told: &Explanation) -> Vec<(String, &'static str)> {
    let members = &told.choice.as_ref().unwrap().members;
    members.iter().map(|prospect| (prospect.member.cluster.to_string(), prospect.reason.code())).collect()
}

#[test]
fn the_cluster_is_told_with_the_reasons_of_all() {
    let (insight, web) = insight();
    let told = ask(&insight, "https://shop.test/", Some("203.0.113.7"));
    assert_eq!(ranked(&told), [("berlin".into(), "Nearest"), ("tokyo".into(), "Farther")]);
    let place = told.choice.as_ref().unwrap().place.clone().unwrap();
    assert_eq!(place.region.as_deref(), Some("eu"));
    let told = ask(&insight, "https://shop.test/", Some("198.51.100.7"));
    assert_eq!(ranked(&told), [("tokyo".into(), "Nearest"), ("berlin".into(), "Farther")]);

    // As requests and checks found out.
    let (table, now) = (insight.table.load_full(), Instant::now());
    let outlook = insight.members.of(&web, &table, now);
    let [berlin, tokyo] = [0, 1].map(|number| outlook.asked(&web, &web.members[number], now));
    berlin.set_failing(true);
    tokyo.answered(Duration::from_millis(20), true, now);
    let told = ask(&insight, "https://shop.test/", Some("203.0.113.7"));
    assert_eq!(ranked(&told), [("tokyo".into(), "Nearest"), ("berlin".into(), "Unhealthy")]);
    assert_eq!(told.reason(), "it is forwarded to the ingress of Cluster tokyo");
    let members = &told.choice.as_ref().unwrap().members;
    assert_eq!(members[0].known.round_trip, Some(Duration::from_millis(20)));
    assert_eq!(members[1].reason.to_string(), "unhealthy: failed checks");

    tokyo.set_failing(true);
    let told = ask(&insight, "https://shop.test/", Some("203.0.113.7"));
    assert_eq!(ranked(&told), [("berlin".into(), "Nearest"), ("tokyo".into(), "Farther")]);
    assert_eq!((told.verdict.code(), told.choice.unwrap().situation), ("Doubtful", Situation::Panic));
    let turns = [0; 4].map(|_| outlook.turn());
    assert_eq!(turns, [turns[0]; 4], "asking takes nobody's turn");
}

/// Of all that belongs to Berlin, so much does not fit.
#[test]
fn the_measured_load_is_told_where_it_has_a_say() {
    let (insight, web) = insight();
    let (table, now) = (insight.table.load_full(), Instant::now());
    let outlook = insight.members.of(&web, &table, now);
    let names: [ClusterName; 2] = ["berlin", "tokyo"].map(|name| name.parse().unwrap());
    let edge: ObjectName = "gateway-1".parse().unwrap();
    let follow = |rates: [f64; 2], out: Option<Out>, demand: f64| {
        let room = |rate| Room { rate, most: rate, basis: Basis::Measured, out };
        let rooms = names.iter().cloned().zip(rates.map(room)).collect();
        let origin = Origin { edge: edge.clone(), home: Some(names[0].clone()) };
        let rings = names.iter().cloned().zip([0, 1]).collect();
        let poured = pour(&[(origin, Edge { demand, rings })].into(), &rooms, None, Timestamp(0));
        outlook.plans.follow(&Arc::new(poured.unwrap()), &edge, now);
    };

    follow([100.0, 1000.0], None, 400.0);
    let told = ask(&insight, "https://shop.test/", Some("203.0.113.7"));
    assert_eq!(ranked(&told), [("berlin".into(), "Nearest"), ("tokyo".into(), "Farther")]);
    assert_eq!(told.reason(), "it is likely forwarded to the ingress of Cluster tokyo, by the measured load");
    let choice = told.choice.as_ref().unwrap();
    let overflow = choice.overflow.clone().unwrap();
    assert_eq!((overflow.home, overflow.demand, overflow.shed), (Some(names[0].clone()), 400.0, 0.0));
    let loads = [0, 1].map(|number| choice.members[number].load.clone().unwrap());
    assert_eq!(loads.each_ref().map(|load| (load.share, load.rate)), [(0.25, Some(100.0)), (0.75, Some(1000.0))]);
    assert_eq!(loads.each_ref().map(|load| load.code), ["Nearest", "Overflow"]);
    assert_eq!(loads[1].text, "overflow: berlin is full at 100 requests/s");

    // Others belong elsewhere, or nowhere in particular.
    let told = ask(&insight, "https://shop.test/", Some("198.51.100.7"));
    assert_eq!((told.choice.as_ref().unwrap().overflow.as_ref(), told.verdict.code()), (None, "Forwarded"));

    follow([100.0, 100.0], None, 1000.0);
    let told = ask(&insight, "https://shop.test/", Some("203.0.113.7"));
    let shed = told.choice.as_ref().unwrap().overflow.as_ref().unwrap().shed;
    assert!((shed - 0.8).abs() < 1e-6, "{shed}");
    assert_eq!(told.verdict.code(), "Forwarded", "a fifth of them is");

    follow([100.0, 100.0], Some(Out::NoReadyPods), 1000.0);
    let told = ask(&insight, "https://shop.test/", Some("203.0.113.7"));
    assert_eq!((told.verdict.code(), told.choice.unwrap().members[0].known.unhealthy.is_some()), ("Doubtful", true));
}

#[test]
fn what_clients_change_before_they_send_is_remarked() {
    let (insight, _) = insight();
    for (url, expected) in [
        ("https://shop.test/cart", vec![]),
        ("https://shop.test/%63art", vec!["decoded, it would be /cart, which another rule has"]),
        ("https://shop.test/%zz%6", vec![]),
        ("https://shop.test/x%20y", vec![]),
        ("https://shop.test/x/../cart", vec!["browsers and curl resolve . and .."]),
        ("https://nobody.test/%63art", vec![]),
    ] {
        let told = ask(&insight, url, None);
        assert_eq!(told.remarks.len(), expected.len(), "{url}: {:?}", told.remarks);
        assert!(told.remarks.iter().zip(expected).all(|(said, part)| said.contains(part)), "{url}: {:?}", told.remarks);
    }
}

#[test]
fn keys_are_never_told() {
    let (insight, _) = insight();
    let told = ask(&insight, "https://shop.test/", None);
    assert_eq!(told.tls.as_ref().unwrap().shown.as_ref().unwrap().certificate.chain.len(), 1);
    assert!(!format!("{told:?}").contains("key: ["), "{told:?}");
}
