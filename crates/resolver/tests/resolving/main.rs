//! The resolver against real DNS servers, through a real link, asked by dig.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod world;

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use testbed::ServingBind;
use world::{INSIDE, Link, World, bind, dig, free_port, until, wanted};

/// Where the resolver listens.
const AT: [u8; 4] = [127, 0, 0, 53];

/// The name of the test, as it is run in its own network.
macro_rules! own_network {
    () => {{
        fn here() {}
        let name = std::any::type_name_of_val(&here);
        let parts: Vec<&str> = name.split("::").filter(|part| *part != "here" && *part != "{{closure}}").collect();
        if testbed::bind().is_none() || !testbed::own_network(parts.last().unwrap(), &["10.10.10.10/32"]) {
            return;
        }
    }};
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test);
}

const OUTSIDE: &[(&str, &str)] = &[
    (
        "example.org",
        "@ 300 A 192.0.2.80\nwww 300 CNAME @\nshort 1 A 192.0.2.81\nodd 60 TYPE65400 \\# 3 010203\n\
         loop 60 CNAME loop2\nloop2 60 CNAME loop3.example.org.\nloop3 60 CNAME loop\n\
         long 60 TXT ( \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" \
         \"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\" \
         \"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc\" )",
    ),
    ("hub.test", "etcd.c1.svc 60 A 192.0.2.11\netcd.c2.svc 60 A 192.0.2.12"),
];

fn inside(address: &str) -> String {
    let many: Vec<String> = (1..=90).map(|number| format!("many.shop.svc 60 A 10.1.0.{number}")).collect();
    let many = many.join("\n");
    format!(
        "web.shop.svc 60 A {address}\n_https._tcp.web.shop.svc 60 SRV 0 100 443 web.shop.svc\nshort.shop.svc 1 A {address}\n\
         db.shop.svc 60 CNAME www.example.org.\n{many}"
    )
}

/// Two clusters, each with a DNS of its own at the same address, and one server for the outside and the hub.
struct Fleet {
    world: World,
    ports: [u16; 2],
    tenants: [ServingBind; 2],
    _outside: ServingBind,
    links: [Link; 2],
}

async fn fleet() -> Fleet {
    let (outside, server) = bind([127, 0, 0, 1], OUTSIDE);
    let (first, one) = bind(INSIDE, &[("cluster.local", &inside("10.0.0.1"))]);
    let (second, two) = bind(INSIDE, &[("cluster.local", &inside("10.0.0.2"))]);
    let world = World::new(|settings| {
        settings.upstreams = vec![outside];
        settings.hub_servers = vec![outside];
    });
    let ports = [free_port(AT.into()), free_port(AT.into())];
    world.serve(vec![wanted("c1", first, ports[0]), wanted("c2", second, ports[1])]).await;
    let links = [world.link("c1").await, world.link("c2").await];
    Fleet { world, ports, tenants: [one, two], _outside: server, links }
}

#[test]
fn names_go_where_they_belong() {
    own_network!();
    block_on(async {
        let fleet = fleet().await;
        let [first, second] = fleet.ports;
        for (port, words, status, answers) in [
            (first, "web.shop.svc.cluster.local", "NOERROR", "A 10.0.0.1"),
            (second, "web.shop.svc.cluster.local", "NOERROR", "A 10.0.0.2"),
            // Once more, from the cache, over TCP, without EDNS and in other letters.
            (first, "+tcp Web.Shop.svc.cluster.local", "NOERROR", "A 10.0.0.1"),
            (second, "+noedns WEB.shop.svc.cluster.local", "NOERROR", "A 10.0.0.2"),
            (
                first,
                "_https._tcp.web.shop.svc.cluster.local SRV",
                "NOERROR",
                "SRV 0 100 443 web.shop.svc.cluster.local.",
            ),
            (first, "web.shop.svc.cluster.local AAAA", "NOERROR", ""),
            (first, "none.shop.svc.cluster.local", "NXDOMAIN", ""),
            // Without its domain, and where aliases lead out of the cluster.
            (second, "web.shop.svc", "NOERROR", "A 10.0.0.2|CNAME web.shop.svc.cluster.local."),
            (first, "db.shop.svc.cluster.local", "NOERROR", "A 192.0.2.80|CNAME example.org.|CNAME www.example.org."),
            // The hub: the own namespace and no other.
            (first, "etcd.c1.svc.hub.test", "NOERROR", "A 192.0.2.11"),
            (second, "etcd.c1.svc.hub.test", "NXDOMAIN", ""),
            (second, "etcd.c2.svc.hub.test", "NOERROR", "A 192.0.2.12"),
            (first, "etcd.c1.svc", "NOERROR", "A 192.0.2.11|CNAME etcd.c1.svc.hub.test."),
            (first, "svc.hub.test", "NOERROR", ""),
            // The rest of the world.
            (first, "www.example.org", "NOERROR", "A 192.0.2.80|CNAME example.org."),
            (first, "odd.example.org TYPE65400", "NOERROR", "TYPE65400 \\# 3 010203"),
            (first, "localhost", "NOERROR", "A 127.0.0.1"),
            (first, "loop.example.org", "SERVFAIL", ""),
            (first, "example.net", "SERVFAIL", ""),
            (first, "version.bind TXT CH", "NOTIMP", ""),
        ] {
            let dug = dig(port, words).await;
            assert_eq!((dug.status(), dug.answers().join("|").as_str()), (status, answers), "{words}:\n{}", dug.text);
            assert!(dug.has_flag("ra") && !dug.has_flag("aa"), "{words}:\n{}", dug.text);
        }
        // What does not fit: in 512 octets, and in 1,232 although the cluster's DNS says that it does not.
        let cut = dig(first, "long.example.org TXT +noedns +ignore").await;
        assert!(cut.has_flag("tc") && cut.answers().is_empty(), "{}", cut.text);
        let whole = dig(first, "long.example.org TXT +noedns").await;
        assert!(!whole.has_flag("tc") && whole.answers().len() == 1, "{}", whole.text);
        let cut = dig(first, "many.shop.svc.cluster.local +ignore +bufsize=4096").await;
        assert!(cut.has_flag("tc"), "{}", cut.text);
        let many = dig(first, "many.shop.svc.cluster.local").await;
        assert_eq!(many.answers().len(), 90, "{}", many.text);
        assert!(fleet.world.metric("fleetgate_resolver_truncated_total") >= 3.0);
        let views = fleet.world.resolver.view();
        assert!(views[0].questions > views[1].questions && views[1].entries > 0 && views[0].failed == 2, "{views:?}");
    });
}

/// A tenant's names lead into its cluster or out into the world: not to the machine that asks, not to where clouds hand out
/// credentials, and not to the hub. The same holds for everybody's names outside.
#[test]
fn names_of_others_do_not_lead_back() {
    own_network!();
    block_on(async {
        let (outside, _server) = bind(
            [127, 0, 0, 1],
            &[
                ("example.org", "rebind 60 A 127.0.0.1\ntohub 60 CNAME etcd.c1.svc.hub.test.\nfine 60 A 192.0.2.80"),
                ("hub.test", "etcd.c1.svc 60 A 192.0.2.11"),
            ],
        );
        let (dns, _tenant) = bind(
            INSIDE,
            &[(
                "cluster.local",
                "meta.shop.svc 60 A 169.254.169.254\nlo.shop.svc 60 AAAA ::1\nmapped.shop.svc 60 AAAA ::ffff:127.0.0.1\n\
                 etcd.shop.svc 60 CNAME etcd.c1.svc.hub.test.\ntwo.shop.svc 60 A 10.0.0.1\ntwo.shop.svc 60 A 127.0.0.1\n\
                 out.shop.svc 60 CNAME rebind.example.org.\nfine.shop.svc 60 CNAME fine.example.org.",
            )],
        );
        let world = World::new(|settings| {
            settings.upstreams = vec![outside];
            settings.hub_servers = vec![outside];
        });
        let port = free_port(AT.into());
        world.serve(vec![wanted("c1", dns, port)]).await;
        let _link = world.link("c1").await;
        for words in [
            "meta.shop.svc.cluster.local",
            "lo.shop.svc.cluster.local AAAA",
            "mapped.shop.svc.cluster.local AAAA",
            "two.shop.svc.cluster.local",
            "etcd.shop.svc.cluster.local",
            "out.shop.svc.cluster.local",
            "rebind.example.org",
            "tohub.example.org",
        ] {
            let dug = dig(port, words).await;
            assert_eq!((dug.status(), dug.answers().is_empty()), ("SERVFAIL", true), "{words}:\n{}", dug.text);
            assert!(dug.text.contains("EDE: 15 "), "{words}:\n{}", dug.text);
        }
        for (words, answers) in [
            ("fine.shop.svc.cluster.local", "A 192.0.2.80|CNAME fine.example.org."),
            // What we ourselves say is not an other's.
            ("etcd.c1.svc", "A 192.0.2.11|CNAME etcd.c1.svc.hub.test."),
            ("localhost", "A 127.0.0.1"),
        ] {
            let dug = dig(port, words).await;
            assert_eq!(
                (dug.status(), dug.answers().join("|").as_str()),
                ("NOERROR", answers),
                "{words}:\n{}",
                dug.text
            );
        }
    });
}

/// What was answered is told on while nobody answers, and what was not there is not.
#[test]
fn stale_answers_are_told_and_stale_noes_are_not() {
    own_network!();
    block_on(async {
        let Fleet { world, ports: [port, _], mut tenants, links: [link, _other], _outside } = fleet().await;
        let name = "short.shop.svc.cluster.local";
        assert_eq!(dig(port, name).await.answers(), ["A 10.0.0.1"]);
        assert_eq!(dig(port, "none.shop.svc.cluster.local").await.status(), "NXDOMAIN");
        assert_eq!(dig(port, "short.shop.svc.cluster.local AAAA").await.status(), "NOERROR");
        tenants[0].process().signal("STOP").unwrap();
        // Their time is one second.
        tokio::time::sleep(Duration::from_millis(1200)).await;
        let stale = dig(port, name).await;
        assert_eq!((stale.answers(), stale.ttls()), (vec!["A 10.0.0.1".to_owned()], vec![30]), "{}", stale.text);
        assert!(stale.text.contains("EDE: 3 "), "{}", stale.text);
        assert!(stale.took > Duration::from_millis(1700) && stale.took < Duration::from_secs(4), "{:?}", stale.took);
        // Who asked has failed at last: now nobody waits.
        until("it is known that nobody answers", || world.resolver.view()[0].under_way == 0).await;
        let again = dig(port, name).await;
        assert!(again.took < Duration::from_secs(1), "{:?}", again.took);
        assert_eq!(again.answers(), ["A 10.0.0.1"]);
        for words in
            ["none.shop.svc.cluster.local", "short.shop.svc.cluster.local AAAA", "other.shop.svc.cluster.local"]
        {
            let no = dig(port, words).await;
            assert_eq!(no.status(), "SERVFAIL", "{words}:\n{}", no.text);
            assert!(no.text.contains("EDE: 22 "), "{}", no.text);
        }
        tenants[0].process().signal("CONT").unwrap();
        let deadline = Instant::now() + world::PATIENCE;
        while dig(port, name).await.ttls() != [1] {
            assert!(Instant::now() < deadline, "never fresh again");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        // Without a link nobody has to be waited for.
        link.cut(&world, "c1").await;
        tokio::time::sleep(Duration::from_millis(1200)).await;
        let stale = dig(port, name).await;
        assert_eq!((stale.answers(), stale.ttls()), (vec!["A 10.0.0.1".to_owned()], vec![30]), "{}", stale.text);
        assert!(stale.took < Duration::from_secs(1), "{:?}", stale.took);
        let no = dig(port, "never.shop.svc.cluster.local").await;
        assert_eq!(no.status(), "SERVFAIL");
        assert!(no.text.contains("no agent of the cluster is linked"), "{}", no.text);
    });
}

/// Before its first node a cluster has no DNS, and its control plane asks all the same.
#[test]
fn the_api_server_has_a_name_before_the_first_node() {
    own_network!();
    block_on(async {
        let world = World::new(|_| ());
        let port = free_port(AT.into());
        let mut cluster = wanted("c1", SocketAddr::from((INSIDE, 53)), port);
        Arc::make_mut(&mut cluster.part).dns.services = vec!["10.10.0.0/16".parse().unwrap()];
        world.serve(vec![cluster]).await;
        for (words, status, answers) in [
            ("kubernetes.default.svc.cluster.local", "NOERROR", "A 10.10.0.1"),
            ("kubernetes.default.svc", "NOERROR", "A 10.10.0.1|CNAME kubernetes.default.svc.cluster.local."),
            (
                "_https._tcp.kubernetes.default.svc.cluster.local SRV",
                "NOERROR",
                "SRV 0 100 443 kubernetes.default.svc.cluster.local.",
            ),
            ("kubernetes.default.svc.cluster.local AAAA", "NOERROR", ""),
            ("dns-version.cluster.local TXT", "NOERROR", "TXT \"1.1.0\""),
            ("svc.cluster.local", "NOERROR", ""),
            // Nobody said that it is not there.
            ("web.shop.svc.cluster.local", "SERVFAIL", ""),
            ("10-0-0-1.shop.pod.cluster.local", "SERVFAIL", ""),
        ] {
            let dug = dig(port, words).await;
            assert_eq!((dug.status(), dug.answers().join("|").as_str()), (status, answers), "{words}:\n{}", dug.text);
        }
    });
}

#[test]
fn equal_questions_wait_for_one_answer() {
    own_network!();
    block_on(async {
        let mut fleet = fleet().await;
        let resolver = SocketAddr::from((AT, fleet.ports[0]));
        fleet.tenants[0].process().signal("STOP").unwrap();
        let question = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03web\x04shop\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01";
        let sockets: Vec<UdpSocket> = (0..10).map(|_| UdpSocket::bind(("127.0.0.1", 0)).unwrap()).collect();
        for socket in &sockets {
            socket.send_to(question, resolver).unwrap();
        }
        until("all wait", || fleet.world.metric("fleetgate_resolver_joined_total") > 8.5).await;
        fleet.tenants[0].process().signal("CONT").unwrap();
        tokio::task::spawn_blocking(move || {
            for socket in sockets {
                socket.set_read_timeout(Some(world::PATIENCE)).unwrap();
                let mut answer = [0; 512];
                let length = socket.recv(&mut answer).unwrap();
                assert_eq!((&answer[..2], &answer[length - 4..length]), (&[0, 7][..], &[10, 0, 0, 1][..]));
            }
        })
        .await
        .unwrap();
        assert_eq!(fleet.world.resolver.view()[0].questions, 10);
    });
}

/// A cluster that asks without end is in nobody's way.
#[test]
fn a_cluster_has_limits_of_its_own() {
    own_network!();
    block_on(async {
        let mut fleet = fleet().await;
        let [first, second] = fleet.ports;
        fleet.tenants[0].process().signal("STOP").unwrap();
        let flood = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        for number in 0..1000 {
            let name = format!("n{number:04}");
            let mut question = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05".to_vec();
            question.extend_from_slice(name.as_bytes());
            question.extend_from_slice(b"\x04shop\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01");
            flood.send_to(&question, SocketAddr::from((AT, first))).unwrap();
            if number % 50 == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        until("some are refused", || {
            fleet.world.metric("fleetgate_resolver_failures_total{code=\"TooManyQuestions\"}") > 0.0
        })
        .await;
        let view = &fleet.world.resolver.view()[0];
        assert!(view.under_way <= 256, "{view:?}");
        let dug = dig(second, "web.shop.svc.cluster.local").await;
        assert_eq!(dug.answers(), ["A 10.0.0.2"]);
        assert!(dug.took < Duration::from_secs(1), "{:?}", dug.took);
        let dug = dig(second, "example.org").await;
        assert_eq!(dug.answers(), ["A 192.0.2.80"]);
    });
}

#[test]
fn the_rate_is_limited_by_cluster() {
    own_network!();
    block_on(async {
        let (outside, _server) = bind([127, 0, 0, 1], OUTSIDE);
        let world = World::new(|settings| {
            settings.upstreams = vec![outside];
            settings.rate = 50;
        });
        let ports = [free_port(AT.into()), free_port(AT.into())];
        let server = SocketAddr::from((INSIDE, 53));
        world.serve(vec![wanted("c1", server, ports[0]), wanted("c2", server, ports[1])]).await;
        assert_eq!(dig(ports[0], "example.org").await.status(), "NOERROR");
        let flood = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let question = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01";
        for _ in 0..200 {
            flood.send_to(question, SocketAddr::from((AT, ports[0]))).unwrap();
        }
        until("it is limited", || world.resolver.view()[0].limited > 100).await;
        assert_eq!(dig(ports[1], "example.org").await.status(), "NOERROR");
        assert_eq!(world.resolver.view()[1].limited, 0);
        // A second later it may ask again.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(dig(ports[0], "example.org").await.status(), "NOERROR");
    });
}

/// Two resolvers that take each other for the outside.
#[test]
fn loops_end() {
    own_network!();
    block_on(async {
        let at = |port: u16| SocketAddr::from((AT, port));
        let ports = [free_port(AT.into()), free_port([127, 0, 0, 54].into())];
        let here = World::new(|settings| settings.upstreams = vec![SocketAddr::from(([127, 0, 0, 54], ports[1]))]);
        let there = World::new(|settings| {
            settings.listen = Some(([127, 0, 0, 54].into(), "1024-65535".parse().unwrap()));
            settings.upstreams = vec![at(ports[0])];
        });
        let server = SocketAddr::from((INSIDE, 53));
        here.serve(vec![wanted("c1", server, ports[0])]).await;
        there.serve(vec![wanted("c1", server, ports[1])]).await;
        let dug = dig(ports[0], "example.org").await;
        assert_eq!(dug.status(), "SERVFAIL", "{}", dug.text);
        assert!(dug.took < Duration::from_secs(1), "{:?}", dug.took);
        let loops = |world: &World| world.metric("fleetgate_resolver_failures_total{code=\"Loop\"}");
        assert!(loops(&here) + loops(&there) >= 1.0);
        let questions = here.resolver.view()[0].questions + there.resolver.view()[0].questions;
        assert!(questions <= 20, "a question went round {questions} times");
    });
}

/// Servers are asked in their order, and the next one only where one does not answer.
#[test]
fn servers_are_asked_in_their_order() {
    own_network!();
    block_on(async {
        let (first, mut one) = bind([127, 0, 0, 1], &[("example.org", "@ 1 A 192.0.2.1")]);
        let (second, _two) =
            bind([127, 0, 0, 1], &[("example.org", "@ 1 A 192.0.2.2"), ("example.net", "@ 60 A 192.0.2.3")]);
        let world = World::new(|settings| settings.upstreams = vec![first, second]);
        let port = free_port(AT.into());
        world.serve(vec![wanted("c1", SocketAddr::from((INSIDE, 53)), port)]).await;
        for _ in 0..3 {
            assert_eq!(dig(port, "example.org").await.answers(), ["A 192.0.2.1"]);
            tokio::time::sleep(Duration::from_millis(1050)).await;
        }
        assert_eq!(dig(port, "example.net").await.answers(), ["A 192.0.2.3"], "the first cannot tell");
        one.process().signal("STOP").unwrap();
        // Stale at first, as the second is only asked when the first has not answered.
        let deadline = Instant::now() + world::PATIENCE;
        while dig(port, "example.org").await.answers() != ["A 192.0.2.2"] {
            assert!(Instant::now() < deadline, "the second is never asked");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
}

/// The address that all may share answers those whose it is, and nobody else.
#[test]
fn strangers_are_refused_at_the_shared_address() {
    own_network!();
    block_on(async {
        let (outside, _server) = bind([127, 0, 0, 1], OUTSIDE);
        let shared = SocketAddr::from((AT, free_port(AT.into())));
        let world = World::new(|settings| {
            settings.listen = None;
            settings.shared = Some(shared);
            settings.upstreams = vec![outside];
        });
        let mut cluster = wanted("c1", SocketAddr::from((INSIDE, 53)), 1);
        Arc::make_mut(&mut cluster.part).place = None;
        world.serve(vec![cluster]).await;
        let deadline = Instant::now() + world::PATIENCE;
        let mut dug = dig(shared.port(), "example.org").await;
        while !dug.text.contains("status: ") {
            assert!(Instant::now() < deadline, "it never listens");
            dug = dig(shared.port(), "example.org").await;
        }
        assert_eq!(dug.status(), "REFUSED", "{}", dug.text);
        assert!(dug.text.contains("EDE: 18 "), "{}", dug.text);
        assert_eq!(dig(shared.port(), "+tcp example.org").await.status(), "REFUSED");
        let pods = HashMap::from([("127.0.0.9".parse().unwrap(), "c1".parse().unwrap())]);
        world.pods.store(Arc::new(pods));
        assert_eq!(dig(shared.port(), "-b 127.0.0.9 example.org").await.answers(), ["A 192.0.2.80"]);
        assert_eq!(dig(shared.port(), "-b 127.0.0.9 +tcp example.org").await.answers(), ["A 192.0.2.80"]);
        assert_eq!(dig(shared.port(), "-b 127.0.0.8 example.org").await.status(), "REFUSED");
    });
}

/// Clusters come, move and go; a port that is taken is had when it is free.
#[test]
fn ports_follow_the_clusters() {
    own_network!();
    block_on(async {
        let (outside, _server) = bind([127, 0, 0, 1], OUTSIDE);
        let world = World::new(|settings| settings.upstreams = vec![outside]);
        let (one, two) = (free_port(AT.into()), free_port(AT.into()));
        let server = SocketAddr::from((INSIDE, 53));
        world.serve(vec![wanted("c1", server, one)]).await;
        assert_eq!(dig(one, "example.org").await.status(), "NOERROR");
        let blocker = UdpSocket::bind((std::net::Ipv4Addr::from(AT), two)).unwrap();
        world.resolver.set_clusters([wanted("c1", server, two)]);
        let gone = || UdpSocket::bind((std::net::Ipv4Addr::from(AT), one)).is_ok();
        until("the old port is closed", gone).await;
        assert!(!world.resolver.view()[0].is_bound);
        drop(blocker);
        until("the new port is open", || world.resolver.view()[0].is_bound).await;
        let cached = world.resolver.view()[0].cached;
        assert_eq!(dig(two, "example.org").await.status(), "NOERROR");
        assert_eq!(world.resolver.view()[0].cached, cached + 1, "what was known is known on");
        // Another cluster of the same name knows nothing of it.
        let mut other = wanted("c1", server, two);
        other.uid = "2".into();
        world.serve(vec![other]).await;
        assert_eq!(world.resolver.view()[0].entries, 0);
        world.serve(Vec::new()).await;
        until("the last port is closed", || UdpSocket::bind((std::net::Ipv4Addr::from(AT), two)).is_ok()).await;
    });
}
