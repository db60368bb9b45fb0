use super::*;
use model::ObjectRef;
use model::identity::Kind;
use model::ingress::{Backend, FederationPolicy, Port, UpstreamTls};

fn member(name: &str) -> Arc<Member> {
    let https = vec![model::inside::Place::Address("192.0.2.1:443".parse().unwrap())];
    Arc::new(Member {
        cluster: name.parse().unwrap(),
        uid: name.into(),
        location: model::Location::default(),
        http: Vec::new(),
        https,
    })
}

fn entry(members: &[&str]) -> Entry {
    Entry {
        object: ObjectRef {
            kind: Kind::Ingress,
            namespace: Some("acme".parse().unwrap()),
            name: "web".parse().unwrap(),
        },
        tenant: "acme".parse().unwrap(),
        backend: Backend { service: "web".parse().unwrap(), port: Port::Number(80) },
        options: Arc::default(),
        policy: Arc::new(FederationPolicy { steering: Steering::RoundRobin, ..FederationPolicy::default() }),
        members: members.iter().map(|name| member(name)).collect(),
        unready: Arc::new([]),
    }
}

fn chosen(entry: &Entry, outlook: &EntryOutlook, tried: &[&str], now: Instant) -> Option<String> {
    let tried: Vec<ClusterName> = tried.iter().map(|name| name.parse().unwrap()).collect();
    chosen_from(entry, outlook, &tried, "192.0.2.99", &ArcSwapOption::empty(), now)
}

fn chosen_from(
    entry: &Entry,
    outlook: &EntryOutlook,
    tried: &[ClusterName],
    client: &str,
    places: &ArcSwapOption<geo::Map>,
    now: Instant,
) -> Option<String> {
    let client = Visitor { address: client.parse().unwrap(), places };
    match choose(entry, outlook, tried, &client, now) {
        Choice::Ask(member, _) => Some(member.cluster.to_string()),
        Choice::Shed | Choice::Nobody => None,
    }
}

/// By where the client is; past members that are out, and to all of them where all are.
#[test]
fn clients_are_sent_to_the_nearest_member_that_is_well() {
    let mut entry = entry(&["berlin", "tokyo"]);
    let at = |member: &Arc<Member>, latitude: f64, longitude: f64| {
        let coordinates = model::network::Coordinates::new(latitude, longitude).unwrap();
        Arc::new(Member {
            location: model::Location { coordinates: Some(coordinates), ..model::Location::default() },
            ..(**member).clone()
        })
    };
    entry.members = [at(&entry.members[0], 52.5, 13.4), at(&entry.members[1], 35.7, 139.7)].into();
    entry.policy = Arc::default();
    let outlook = EntryOutlook::new(&entry);
    let map = geo::Map::parse(b"198.51.100.0/24 48.8 2.3\n203.0.113.0/24 37.5 127.0\n").unwrap();
    let (places, now) = (ArcSwapOption::from_pointee(map), Instant::now());
    let from = |client: &str| chosen_from(&entry, &outlook, &[], client, &places, now).unwrap();
    for _ in 0..10 {
        assert_eq!([from("198.51.100.7"), from("203.0.113.7")], ["berlin", "tokyo"]);
    }
    outlook.asked(&entry, &entry.members[0], now).set_failing(true);
    assert_eq!(from("198.51.100.7"), "tokyo");
    outlook.asked(&entry, &entry.members[1], now).set_failing(true);
    assert_eq!(from("198.51.100.7"), "berlin");
}

#[test]
fn members_take_turns() {
    let entry = entry(&["a", "b", "c"]);
    let outlook = EntryOutlook::new(&entry);
    let now = Instant::now();
    let mut seen: Vec<_> = (0..6).map(|_| chosen(&entry, &outlook, &[], now).unwrap()).collect();
    assert_eq!(seen[..3], seen[3..]);
    seen.truncate(3);
    seen.sort();
    assert_eq!(seen, ["a", "b", "c"]);
    assert_eq!(chosen(&entry, &outlook, &["a", "c"], now).as_deref(), Some("b"));
    assert_eq!(chosen(&entry, &outlook, &["a", "b", "c"], now), None);
}

#[test]
fn members_without_the_address_that_is_asked_for_are_none() {
    let mut entry = entry(&["a"]);
    let outlook = EntryOutlook::new(&entry);
    let policy = FederationPolicy { upstream: UpstreamTls::Plain, ..FederationPolicy::default() };
    entry.policy = Arc::new(policy);
    assert_eq!(chosen(&entry, &outlook, &[], Instant::now()), None);
}

#[test]
fn who_fails_again_and_again_is_put_aside_for_ever_longer() {
    let entry = entry(&["a", "b"]);
    let outlook = EntryOutlook::new(&entry);
    let mut now = Instant::now();
    let a = outlook.asked(&entry, &entry.members[0], now);
    for _ in 1..FAILURES {
        a.failed(now);
    }
    assert!(!a.is_ejected(now), "a few failures are none");
    a.answered(Duration::from_millis(1), true, now);
    for times in 1..=3 {
        for _ in 0..FAILURES {
            a.failed(now);
        }
        assert!(a.is_ejected(now));
        for _ in 0..4 {
            assert_eq!(chosen(&entry, &outlook, &[], now).as_deref(), Some("b"));
        }
        // Better than nobody.
        assert_eq!(chosen(&entry, &outlook, &["b"], now).as_deref(), Some("a"));
        now += EJECTED * times;
        assert!(!a.is_ejected(now), "time {times}");
    }
    a.answered(Duration::from_millis(1), true, now);
    for _ in 0..FAILURES {
        a.failed(now);
    }
    assert!(!a.is_ejected(now + EJECTED), "a success is remembered");
}

#[test]
fn retries_are_a_fifth() {
    let outlook = EntryOutlook::new(&entry(&["a"]));
    let burst = (0..1000).filter(|_| outlook.retries().spend()).count();
    assert_eq!(burst, 100);
    let affordable = (0..1000).filter(|_| {
        outlook.retries().save();
        outlook.retries().spend()
    });
    assert_eq!(affordable.count(), 200);
}

#[test]
fn what_is_gone_is_forgotten() {
    let now = Instant::now();
    let members = Members::new(now);
    let mut entry = entry(&["a", "b"]);
    let later = now + KEPT / 2;
    let outlook = members.of(&entry, &HttpTable::default(), later);
    outlook.asked(&entry, &entry.members[0].clone(), now);
    entry.members = [member("b"), member("c")].into();
    outlook.asked(&entry, &entry.members[0].clone(), now);
    assert!(outlook.of(&member("a")).is_none() && outlook.of(&member("b")).is_some());
    let left = |now: Instant| members.each(&HttpTable::default(), now).len();
    assert_eq!(left(later + KEPT), 1, "asked of late");
    assert_eq!(left(later + KEPT + Duration::from_secs(1)), 0);
}

#[test]
fn latency_follows_slowly() {
    let now = Instant::now();
    let outlook = Outlook::new(now);
    assert_eq!(outlook.latency(), None);
    outlook.answered(Duration::from_millis(80), true, now);
    assert_eq!(outlook.latency(), Some(Duration::from_millis(80)));
    outlook.answered(Duration::ZERO, true, now);
    assert_eq!(outlook.latency(), Some(Duration::from_millis(70)));
    let place = InFlight::new(&Arc::new(outlook), None, now);
    assert_eq!(place.outlook.in_flight(), 1);
}

/// What the hub knows of a member counts from the first request on, unless it says the same of all.
#[test]
fn members_without_ready_endpoints_are_left_out_unless_none_has_any() {
    let mut entry = entry(&["a", "b", "c"]);
    let (outlook, now) = (EntryOutlook::new(&entry), Instant::now());
    let out = |name: &str| (name.parse().unwrap(), Unhealthy::NoReadyEndpoints);
    for (unready, expected) in
        [(vec![out("b")], "a c"), (vec![out("a"), out("b")], "c"), (vec![out("a"), out("b"), out("c")], "a b c")]
    {
        entry.unready = unready.into();
        let mut seen: Vec<_> = (0..6).filter_map(|_| chosen(&entry, &outlook, &[], now)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.join(" "), expected);
    }
    // Where all others were tried, it is tried too.
    entry.unready = [out("b")].into();
    assert_eq!(chosen(&entry, &outlook, &["a", "c"], now).as_deref(), Some("b"));
}
