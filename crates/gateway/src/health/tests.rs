use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use model::resource::{Cluster, IngressMode, Limits, Nameserver, Quota, Tenant, Upstream, Zone};
use model::{Fact, FactChange, Location, Planner, Since, Timestamp};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::*;

#[test]
fn outcomes_in_a_row_change_the_health() {
    // A plus is a success, a minus a failure; what follows is the health after it.
    for (outcomes, expected) in [
        ("+", "H"),
        ("---", "??U"),
        ("--+--", "??HHH"),
        ("--+---", "??HHHU"),
        ("+---", "HHHU"),
        ("---+-+-++", "??UUUUUUH"),
        ("---++---", "??UUHHHU"),
        ("+-+-+-+--", "HHHHHHHHH"),
    ] {
        let mut record = Record::new();
        let mut seen = String::new();
        for outcome in outcomes.chars() {
            let before = record.health;
            let changed = record.note(outcome == '+', Thresholds::default());
            assert_eq!(changed.is_some(), record.health != before);
            seen.push(match record.health {
                Health::Unknown => '?',
                Health::Healthy => 'H',
                Health::Unhealthy => 'U',
            });
        }
        assert_eq!(seen, expected, "{outcomes}");
    }
}

#[test]
fn checks_are_spread_and_keep_their_pace() {
    let second = Duration::from_secs(1);
    let mut pace = Pace::new(10 * second, 42);
    let firsts: BTreeSet<u64> = (0..1000).map(|_| pace.first().as_secs()).collect();
    assert!((0..10).all(|part| firsts.contains(&part)), "{firsts:?}");
    assert!((0..1000).map(|_| pace.next()).all(|next| (9 * second..=11 * second).contains(&next)));
    assert_eq!(Pace::new(second, 7).first(), Pace::new(second, 7).first());
    assert_ne!(Pace::new(second, 0).first(), Duration::ZERO);
}

fn tls_config(versions: &[&'static SupportedProtocolVersion]) -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["api.c1.fleet.example".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    Arc::new(config)
}

#[test]
fn servers_of_either_version_take_the_hello() {
    for versions in [[&TLS12].as_slice(), &[&TLS13], &[&TLS12, &TLS13]] {
        let mut server = ServerConnection::new(tls_config(versions)).unwrap();
        let hello = hello::client_hello(&"api.c1.fleet.example".parse().unwrap());
        assert_eq!(server.read_tls(&mut hello.as_slice()).unwrap(), hello.len());
        server.process_new_packets().unwrap();
        assert_eq!(server.server_name(), Some("api.c1.fleet.example"));
        let mut answer = Vec::new();
        server.write_tls(&mut answer).unwrap();
        assert_eq!(answer[0], 22);
    }
}

/// What an address does with who connects.
#[derive(Clone, Copy)]
enum Does {
    Nothing,
    Tls,
    /// Says this whatever comes.
    Say(&'static [u8]),
    /// Nothing, until the moment that the flag is set; TLS from then on.
    TlsOnce(&'static AtomicBool),
}

fn listener(does: Does) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = tls_config(&[&TLS13]);
    thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            match does {
                Does::Tls => answer_tls(stream, &config),
                Does::Say(words) => answer(stream, words),
                Does::TlsOnce(flag) if flag.load(Ordering::Relaxed) => answer_tls(stream, &config),
                Does::Nothing | Does::TlsOnce(_) => silent.push(stream),
            }
        }
    });
    address
}

fn answer(mut stream: TcpStream, words: &[u8]) {
    let _ = stream.read(&mut [0; 2048]);
    let _ = stream.write_all(words);
    let _ = stream.read(&mut [0; 1]);
}

fn answer_tls(mut stream: TcpStream, config: &Arc<ServerConfig>) {
    let mut server = ServerConnection::new(Arc::clone(config)).unwrap();
    // The check resets the connection once it has seen enough.
    let _ = server.complete_io(&mut stream);
}

/// Nobody listens there.
fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// What a planner makes of clusters `c0`, `c1`, ... with these addresses.
fn snapshot(clusters: &[&[SocketAddr]]) -> Snapshot {
    fn fact<T>(value: T) -> Fact<T> {
        Fact::new(Since::at(Timestamp(1)), value)
    }
    let zone = Zone {
        name: "main".parse().unwrap(),
        domain: "fleet.example".parse().unwrap(),
        nameservers: vec![Nameserver { name: "ns.test".parse().unwrap(), addresses: Vec::new() }],
        ttl: 30,
        api: "api.{cluster}".parse().unwrap(),
        apps: "*.{cluster}".parse().unwrap(),
        gateway: None,
        authoritative: true,
        zone_file: None,
        grace: Duration::ZERO,
        max_share: 1.0,
        released: None,
        hand_out: false,
        hindrance: None,
    };
    let tenant = Tenant {
        name: "acme".parse().unwrap(),
        namespace: "acme".parse().unwrap(),
        domains: Vec::new(),
        released: None,
        allowed_names: None,
        allowed_targets: Vec::new(),
        quota: Quota::default(),
        limits: Limits::default(),
    };
    let clusters = clusters.iter().enumerate().map(|(number, addresses)| Cluster {
        name: format!("c{number}").parse().unwrap(),
        labels: std::collections::BTreeMap::default(),
        tenant: "acme".parse().unwrap(),
        zone: "main".parse().unwrap(),
        id: format!("c{number}").parse().unwrap(),
        location: Location::default(),
        api_server: Upstream::Addresses(addresses.to_vec()),
        services: Vec::new(),
        nodes: Arc::default(),
        ingress: IngressMode::Nodes,
        controller: model::resource::IngressController::default(),
        allowed_sources: [].into(),
        proof: Arc::default(),
        limits: Limits::default(),
        access: None,
        resolver: model::resolver::ResolverPart::default(),
        kept: None,
        drained: None,
        hindrance: None,
        closed: None,
    });
    let facts = [
        FactChange::Zone(zone.name.clone(), Some(fact(zone))),
        FactChange::Tenant(tenant.name.clone(), Some(fact(tenant))),
    ];
    let clusters = clusters.map(|cluster| FactChange::Cluster(cluster.name.clone(), Some(fact(cluster))));
    let planned = Planner::default().apply(facts.into_iter().chain(clusters), Timestamp(1));
    Snapshot::clone(&planned.snapshot)
}

struct Checked {
    snapshot: Arc<ArcSwap<Snapshot>>,
    upstreams: Arc<Upstreams>,
    checks: Checks,
}

fn quick() -> CheckSettings {
    let (interval, timeout) = (Duration::from_millis(50), Duration::from_millis(200));
    CheckSettings { interval, timeout, ..CheckSettings::default() }
}

impl Checked {
    fn start(clusters: &[&[SocketAddr]], settings: CheckSettings) -> Self {
        let snapshot = Arc::new(ArcSwap::from_pointee(snapshot(clusters)));
        let upstreams = Arc::new(Upstreams::default());
        let checks = Checks::start(&snapshot, &upstreams, settings).unwrap();
        Self { snapshot, upstreams, checks }
    }

    /// Waits until the address is seen so.
    fn expect(&self, address: SocketAddr, expected: Health) {
        let state = self.upstreams.state(address, Instant::now());
        let deadline = Instant::now() + Duration::from_secs(20);
        while state.health() != expected {
            assert!(Instant::now() < deadline, "{address} is {:?} and not {expected:?}", state.health());
            thread::park_timeout(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_tls_check_asks_for_a_tls_answer() {
    let addresses = [
        (listener(Does::Tls), Health::Healthy),
        // An alert: it speaks TLS and does not know the name.
        (listener(Does::Say(&[21, 3, 3, 0, 2, 2, 112])), Health::Healthy),
        (listener(Does::Say(b"HTTP/1.1 400 Bad Request\r\n\r\n")), Health::Unhealthy),
        (listener(Does::Say(b"")), Health::Unhealthy),
        (listener(Does::Nothing), Health::Unhealthy),
        (closed(), Health::Unhealthy),
    ];
    let checked = Checked::start(&[&addresses.map(|(address, _)| address)], quick());
    for (address, expected) in addresses {
        checked.expect(address, expected);
    }
}

#[test]
fn a_tcp_check_asks_for_a_connection() {
    let addresses = [(listener(Does::Nothing), Health::Healthy), (closed(), Health::Unhealthy)];
    let settings = CheckSettings { kind: CheckKind::Tcp, ..quick() };
    let checked = Checked::start(&[&addresses.map(|(address, _)| address)], settings);
    for (address, expected) in addresses {
        checked.expect(address, expected);
    }
}

#[test]
fn an_address_that_comes_back_is_seen() {
    static ANSWERS: AtomicBool = AtomicBool::new(false);
    let address = listener(Does::TlsOnce(&ANSWERS));
    let checked = Checked::start(&[&[address, closed()]], quick());
    checked.expect(address, Health::Unhealthy);
    ANSWERS.store(true, Ordering::Relaxed);
    checked.expect(address, Health::Healthy);
}

#[test]
fn one_at_a_time_still_comes_to_all() {
    let addresses = [listener(Does::Nothing), listener(Does::Nothing), listener(Does::Tls), closed()];
    let timeout = Duration::from_millis(50);
    let checked = Checked::start(&[&addresses], CheckSettings { max_in_flight: 1, timeout, ..quick() });
    for (address, expected) in addresses.into_iter().zip([Health::Unhealthy, Health::Unhealthy, Health::Healthy]) {
        checked.expect(address, expected);
    }
    checked.expect(addresses[3], Health::Unhealthy);
}

#[test]
fn checks_follow_the_snapshot() {
    let (old, new, stays) = (closed(), closed(), listener(Does::Tls));
    let checked = Checked::start(&[&[old, stays]], quick());
    checked.expect(old, Health::Unhealthy);
    checked.expect(stays, Health::Healthy);
    checked.snapshot.store(Arc::new(snapshot(&[&[new, stays]])));
    checked.expect(old, Health::Unknown);
    checked.expect(new, Health::Unhealthy);
    checked.expect(stays, Health::Healthy);
}

#[test]
fn only_where_there_is_a_choice_is_there_a_check() {
    let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
    let snapshot = snapshot(&[&[address(1)], &[address(2), address(3)], &[address(3), address(4)]]);
    let wanted = runner::addresses_to_check(&snapshot);
    let wanted: Vec<_> = wanted.into_iter().map(|(address, name)| format!("{} {name}", address.port())).collect();
    // The first name, where several lead to one address.
    assert_eq!(wanted, ["2 api.c1.fleet.example", "3 api.c1.fleet.example", "4 api.c2.fleet.example"]);
}

#[test]
fn dropping_ends_them_at_once() {
    let settings = CheckSettings { timeout: Duration::from_mins(10), ..quick() };
    let checked = Checked::start(&[&[listener(Does::Nothing), closed()]], settings);
    let begun = Instant::now();
    drop(checked.checks);
    assert!(begun.elapsed() < Duration::from_secs(10));
}
