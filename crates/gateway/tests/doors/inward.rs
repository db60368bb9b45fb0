//! What comes by the `apps` wildcard of a cluster and goes inside: the other ends of the pairs are served by real sockets.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gateway::explain::{Verdict, Wanted};
use gateway::proxy_header::Encoder;
use gateway::{DoorKind, Inbound, Inward, Timeouts};
use model::inside::{Denied, Inside};
use model::resource::Limits;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;

use crate::fleet::{Fleet, Member, Settings, expect, expect_closed, nobody, snapshot, soon};

/// What a target inside a cluster does.
#[derive(Clone, Copy)]
enum There {
    At(SocketAddr),
    Denies(Denied),
    /// Never says a word.
    Silent,
    /// Connects, and says so too late.
    Late(SocketAddr),
    /// Is gone without a word.
    Lost,
}

/// Carries what it is given by a table of clusters and targets.
struct Way {
    there: Mutex<HashMap<(String, String), There>>,
    links: AtomicUsize,
}

fn way(rows: &[(&str, &str, There)]) -> (Arc<Way>, Inward) {
    let there = rows.iter().map(|(cluster, target, there)| (((*cluster).to_owned(), (*target).to_owned()), *there));
    let way = Arc::new(Way { there: Mutex::new(there.collect()), links: AtomicUsize::new(2) });
    let (given, mut taken) = mpsc::unbounded_channel::<Inbound>();
    let table = Arc::clone(&way);
    tokio::spawn(async move {
        while let Some(inbound) = taken.recv().await {
            let key = (inbound.cluster.to_string(), inbound.target.to_string());
            let there = table.there.lock().unwrap().get(&key).copied().unwrap_or(There::Denies(Denied::NoLink));
            tokio::spawn(carry(inbound, there));
        }
    });
    let links = Arc::clone(&way);
    let inward = Inward::new(move |inbound| _ = given.send(inbound), move |_| links.links.load(Ordering::Relaxed));
    (way, inward)
}

async fn carry(inbound: Inbound, there: There) {
    let mut word = UnixStream::from_std(inbound.word).unwrap();
    match there {
        There::At(address) => {
            let mut inside = TcpStream::connect(address).await.unwrap();
            word.write_all(&[0]).await.unwrap();
            assert_eq!(word.read(&mut [0]).await.unwrap(), 1, "it is given the client");
            let mut client = TcpStream::from_std(inbound.client).unwrap();
            inside.write_all(&inbound.first).await.unwrap();
            inbound.counts.to_upstream(inbound.first.len() as u64);
            tokio::select! {
                carried = tokio::io::copy_bidirectional(&mut client, &mut inside) => {
                    let (up, down) = carried.unwrap_or_default();
                    inbound.counts.to_upstream(up);
                    inbound.counts.to_client(down);
                }
                _ = word.read_u8() => {}
            }
        }
        There::Denies(denied) => word.write_all(&[denied.octet()]).await.unwrap(),
        There::Silent => _ = word.read(&mut [0]).await,
        There::Late(address) => {
            // Says yes only when nobody wants to hear it any more.
            let _inside = TcpStream::connect(address).await.unwrap();
            assert_eq!(word.read(&mut [0]).await.unwrap(), 0);
            let _ = word.write_all(&[0]).await;
            assert!(matches!(word.read(&mut [0]).await, Ok(0) | Err(_)), "it is never given the client");
        }
        There::Lost => {}
    }
}

/// Says who it is after the hello, then sends back all that comes, and has the last word.
async fn controller(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 5];
                stream.read_exact(&mut head).await.unwrap();
                let mut hello = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
                stream.read_exact(&mut hello).await.unwrap();
                stream.write_all(name.as_bytes()).await.unwrap();
                let (mut read, mut write) = stream.split();
                if tokio::io::copy(&mut read, &mut write).await.is_ok() {
                    let _ = write.write_all(b"the end").await;
                }
            });
        }
    });
    address
}

fn inside(targets: &[&str]) -> Inside {
    Inside {
        https: targets.iter().map(|target| target.parse().unwrap()).collect(),
        allowed_sources: ["0.0.0.0/0", "::/0"].map(|range| range.parse().unwrap()).into(),
        ..Inside::default()
    }
}

fn member(name: &'static str, targets: &[&str]) -> Member {
    Member { inside: Some(inside(targets)), ..Member::new(name, nobody()) }
}

fn serve(members: impl IntoIterator<Item = Member>, inward: Option<Inward>) -> Fleet {
    serve_with(members, &Settings { inward, ..Settings::default() })
}

fn serve_with(members: impl IntoIterator<Item = Member>, settings: &Settings) -> Fleet {
    Fleet::start_with(DoorKind::ServerName, snapshot(members), settings)
}

/// As a client of today sends it, for a name.
fn hello(name: &str) -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
}

async fn ask(fleet: &Fleet, name: &str) -> TcpStream {
    let mut client = fleet.connect().await;
    client.write_all(&hello(name)).await.unwrap();
    client
}

#[tokio::test]
async fn each_name_leads_into_its_own_cluster() {
    // Both are called the same inside.
    let (c1, c2) = (controller("one").await, controller("two").await);
    let target = "ingress.web.svc:443";
    let (_, inward) = way(&[("c1", target, There::At(c1)), ("c2", target, There::At(c2))]);
    let fleet = serve([member("c1", &[target]), member("c2", &[target])], Some(inward));
    for (name, who) in [
        ("shop.c1.fleet.example", "one"),
        ("shop.c2.fleet.example", "two"),
        ("a.b.C1.fleet.example", "one"),
        ("shop.c1.fleet.example", "one"),
    ] {
        let mut client = ask(&fleet, name).await;
        expect(&mut client, who).await;
        client.write_all(b"and more").await.unwrap();
        expect(&mut client, "and more").await;
    }
    assert_eq!(fleet.outcomes("sni", "Established"), 4);
    // The control plane's name is another way, and c1.fleet.example nobody's.
    expect_closed(&mut ask(&fleet, "api.c1.fleet.example").await).await;
    assert_eq!(fleet.outcomes("sni", "Unreachable"), 1);
    let mut answer = Vec::new();
    soon(ask(&fleet, "c1.fleet.example").await.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 112]);
}

#[tokio::test(flavor = "multi_thread")]
async fn either_end_may_end_first_and_large_transfers_pass() {
    let target = "10.0.0.1:443";
    let (_, inward) = way(&[("c1", target, There::At(controller("one").await))]);
    let fleet = serve([member("c1", &[target])], Some(inward));
    let mut client = ask(&fleet, "shop.c1.fleet.example").await;
    expect(&mut client, "one").await;
    // More than all buffers on the way, and enough to be spliced.
    let sent: Vec<u8> = (0..16_u32 << 20).map(|place| (place % 251) as u8).collect();
    let (mut read, mut write) = client.split();
    let sending = async {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let ((), outcome) = soon(async { tokio::join!(sending, read.read_to_end(&mut received)) }).await;
    outcome.unwrap();
    assert_eq!(received.len(), sent.len() + "the end".len());
    assert!(received.starts_with(&sent) && received.ends_with(b"the end"));
    let carried = || fleet.metric(r#"fleetgate_gateway_bytes_total{door="sni",direction="to_client"}"#);
    soon(async {
        // Counted when it is over.
        while carried() != Some(("one".len() + received.len()) as u64) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Who does not read holds up nobody but himself, and takes no memory of ours beyond sockets' buffers.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_is_waited_for() {
    let target = "10.0.0.1:443";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_, inward) = way(&[("c1", target, There::At(listener.local_addr().unwrap()))]);
    let fleet = serve([member("c1", &[target])], Some(inward));
    let client = ask(&fleet, "shop.c1.fleet.example").await;
    let (mut inside, _) = soon(listener.accept()).await.unwrap();
    let mut came = vec![0; hello("shop.c1.fleet.example").len()];
    soon(inside.read_exact(&mut came)).await.unwrap();
    let mut sent = 0;
    let piece = vec![7; 1 << 20];
    // Until nothing is taken any more.
    while let Ok(written) = tokio::time::timeout(Duration::from_secs(2), inside.write(&piece)).await {
        sent += written.unwrap();
        assert!(sent < 256 << 20, "it is read ahead of a client that takes nothing");
    }
    let mut other = ask(&fleet, "other.c1.fleet.example").await;
    let (mut second, _) = soon(listener.accept()).await.unwrap();
    second.write_all(b"at once").await.unwrap();
    expect(&mut other, "at once").await;
    inside.shutdown().await.unwrap();
    let mut received = Vec::new();
    let mut client = client;
    soon(client.read_to_end(&mut received)).await.unwrap();
    assert_eq!(received.len(), sent);
}

#[tokio::test]
async fn what_is_denied_is_told_by_its_code() {
    let target = "10.0.0.1:443";
    let (way, inward) = way(&[]);
    let settings = Settings {
        inward: Some(inward),
        timeouts: Timeouts { connect: Duration::from_millis(300), ..Settings::default().timeouts },
        ..Settings::default()
    };
    let fleet = serve_with([member("c1", &[target])], &settings);
    for (there, code) in [
        (There::Denies(Denied::NoLink), "NoLink"),
        (There::Denies(Denied::Forbidden), "TargetForbidden"),
        (There::Denies(Denied::UnknownName), "UnknownName"),
        (There::Denies(Denied::Unreachable), "Unreachable"),
        (There::Denies(Denied::TooMany), "TooManyStreams"),
        (There::Lost, "LinkLost"),
        (There::Silent, "DialTimeout"),
    ] {
        way.there.lock().unwrap().insert(("c1".into(), target.into()), there);
        let begun = Instant::now();
        expect_closed(&mut ask(&fleet, "shop.c1.fleet.example").await).await;
        assert_eq!(fleet.outcomes("sni", code), 1, "{code}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{code}");
    }
    let of_cluster = r#"fleetgate_gateway_refusals_total{door="sni",cluster="c1",code="NoLink"}"#;
    assert_eq!(fleet.metric(of_cluster), Some(1));
    assert_eq!(fleet.metric(r#"fleetgate_gateway_open_connections{door="sni"}"#), Some(0));
}

/// What one target is denied another may have; what the link is denied is denied to all of them.
#[tokio::test]
async fn the_next_target_is_tried_where_it_may_help() {
    let (first, second) = ("first.svc:443", "second.svc:443");
    let at = There::At(controller("one").await);
    for (there, code) in [
        (There::Denies(Denied::Unreachable), "Established"),
        (There::Denies(Denied::Forbidden), "Established"),
        (There::Silent, "Established"),
        (There::Late(controller("late").await), "Established"),
        (There::Denies(Denied::NoLink), "NoLink"),
        (There::Lost, "LinkLost"),
    ] {
        let (_, inward) = way(&[("c1", first, there), ("c1", second, at)]);
        let timeouts = Timeouts { connect: Duration::from_millis(300), ..Settings::default().timeouts };
        let settings = Settings { inward: Some(inward), timeouts, ..Settings::default() };
        let fleet = serve_with([member("c1", &[first, second])], &settings);
        let mut client = ask(&fleet, "shop.c1.fleet.example").await;
        if code == "Established" {
            expect(&mut client, "one").await;
        } else {
            expect_closed(&mut client).await;
        }
        assert_eq!(fleet.outcomes("sni", code), 1, "{code}");
    }
}

#[tokio::test]
async fn a_process_without_a_tunnel_says_so() {
    let fleet = serve([member("c1", &["10.0.0.1:443"])], None);
    expect_closed(&mut ask(&fleet, "shop.c1.fleet.example").await).await;
    assert_eq!(fleet.outcomes("sni", "NoTunnel"), 1);
    let told = fleet.explain(Wanted::ServerName("shop.c1.fleet.example".parse().unwrap()), None);
    assert_eq!(
        (told.verdict.code(), told.rule.as_str()),
        ("NoTunnel", "the apps wildcard of Cluster c1, by the tunnel")
    );
}

#[tokio::test]
async fn sources_and_limits_are_those_of_the_applications() {
    let target = "10.0.0.1:443";
    let limited = Inside {
        allowed_sources: ["192.0.2.0/24".parse().unwrap()].into(),
        limits: Limits { connections: Some(1), new_connections_per_second: None },
        ..inside(&[target])
    };
    let (_, inward) = way(&[("c1", target, There::At(controller("one").await))]);
    // Nobody may connect to its control plane, which is another matter.
    let member = Member { inside: Some(limited), allowed: &[], ..Member::new("c1", nobody()) };
    let settings = Settings { inward: Some(inward), trusted_proxies: &["127.0.0.0/8"], ..Settings::default() };
    let fleet = serve_with([member], &settings);
    let from = |client: &str| {
        let outer = Encoder::proxy(client.parse().unwrap(), "198.51.100.1:443".parse().unwrap()).finish().unwrap();
        [outer, hello("shop.c1.fleet.example")].concat()
    };
    let mut stranger = fleet.connect().await;
    stranger.write_all(&from("203.0.113.7:4000")).await.unwrap();
    expect_closed(&mut stranger).await;
    assert_eq!(fleet.outcomes("sni", "SourceNotAllowed"), 1);
    let mut first = fleet.connect().await;
    first.write_all(&from("192.0.2.7:4000")).await.unwrap();
    expect(&mut first, "one").await;
    let mut second = fleet.connect().await;
    second.write_all(&from("192.0.2.8:4000")).await.unwrap();
    expect_closed(&mut second).await;
    assert_eq!(fleet.outcomes("sni", "ClusterConnections"), 1);
    for (from, code, rule) in [
        ("203.0.113.7", "SourceNotAllowed", "ingress.allowedSources of Cluster c1"),
        ("192.0.2.9", "ClusterConnections", "ingress.limits.connections of Cluster c1"),
    ] {
        let told = fleet.explain(Wanted::ServerName("shop.c1.fleet.example".parse().unwrap()), Some(from));
        assert_eq!((told.verdict.code(), told.rule.as_str()), (code, rule));
    }
}

#[tokio::test]
async fn it_is_told_beforehand_by_how_many_links() {
    let (way, inward) = way(&[]);
    let fleet = serve([member("c1", &["ingress.web.svc:443"])], Some(inward));
    let told = || fleet.explain(Wanted::ServerName("a.b.c1.fleet.example".parse().unwrap()), None);
    assert!(matches!(told().verdict, Verdict::Established));
    assert_eq!(
        told().reason(),
        "it is carried through the tunnel to ingress.web.svc:443 inside Cluster c1, which has 2 links"
    );
    assert_eq!(told().rule, "the apps wildcard of Cluster c1, by the tunnel");
    way.links.store(0, Ordering::Relaxed);
    assert_eq!((told().verdict.code(), told().way.unwrap().links), ("NoLink", Some(0)));
    assert_eq!(
        told().reason(),
        "ingress.web.svc:443 inside Cluster c1 could not be reached through the tunnel: no agent of the cluster is linked"
    );
}

/// Open ones have the time that they are given, and those that only begin too.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_waits_for_what_is_inside() {
    let target = "10.0.0.1:443";
    let (_, inward) = way(&[("c1", target, There::At(controller("one").await))]);
    let mut fleet = serve([member("c1", &[target])], Some(inward));
    let mut client = ask(&fleet, "shop.c1.fleet.example").await;
    expect(&mut client, "one").await;
    let ending = fleet.shut_down();
    client.write_all(b"still there").await.unwrap();
    expect(&mut client, "still there").await;
    assert!(!ending.is_finished());
    client.shutdown().await.unwrap();
    expect(&mut client, "the end").await;
    expect_closed(&mut client).await;
    soon(ending).await.unwrap();
}

/// Nothing is seen of it here but its counts.
#[tokio::test]
async fn what_rests_for_too_long_is_ended() {
    let target = "10.0.0.1:443";
    let (_, inward) = way(&[("c1", target, There::At(controller("one").await))]);
    let timeouts = Timeouts { idle: Duration::from_millis(400), ..Settings::default().timeouts };
    let settings = Settings { inward: Some(inward), timeouts, ..Settings::default() };
    let fleet = serve_with([member("c1", &[target])], &settings);
    let mut client = ask(&fleet, "shop.c1.fleet.example").await;
    expect(&mut client, "one").await;
    let begun = Instant::now();
    expect_closed(&mut client).await;
    assert!(begun.elapsed() > Duration::from_millis(300), "{:?}", begun.elapsed());
    assert_eq!(fleet.metric(r#"fleetgate_gateway_open_connections{door="sni"}"#), Some(0));
}

#[tokio::test]
async fn who_may_not_come_any_more_is_cut() {
    let target = "10.0.0.1:443";
    let (_, inward) = way(&[("c1", target, There::At(controller("one").await))]);
    let fleet = serve([member("c1", &[target])], Some(inward));
    let mut client = ask(&fleet, "shop.c1.fleet.example").await;
    expect(&mut client, "one").await;
    let shrunk = Inside { allowed_sources: ["192.0.2.0/24".parse().unwrap()].into(), ..inside(&[target]) };
    let mut next = snapshot([Member { inside: Some(shrunk), ..Member::new("c1", nobody()) }]);
    next.revision += 1;
    fleet.snapshot.store(next.into());
    expect_closed(&mut client).await;
    assert_eq!(fleet.metric(r#"fleetgate_gateway_cut_total{door="sni"}"#), Some(1));
}
