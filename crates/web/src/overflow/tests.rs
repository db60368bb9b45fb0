use std::collections::BTreeMap;
use std::net::IpAddr;

use model::identity::{Kind, ObjectRef};
use model::ingress::{Backend, FederationPolicy, Port, Steering, UpstreamTls};
use model::network::Coordinates;
use model::overflow::{Basis, Edge, pour};
use model::{Location, Timestamp};

use super::*;
use crate::choice::{Choice, InFlight, Visitor, choose};

const EDGE: &str = "gateway-1";

/// Berlin, Paris and Tokyo, whose clients are in the networks that begin with their numbers.
fn entry(steering: Steering) -> Entry {
    let member = |(name, latitude, longitude): (&str, f64, f64)| {
        Arc::new(Member {
            cluster: cluster(name),
            uid: name.into(),
            location: Location {
                coordinates: Some(Coordinates::new(latitude, longitude).unwrap()),
                ..Location::default()
            },
            http: vec![model::inside::Place::Address("192.0.2.1:80".parse().unwrap())],
            https: Vec::new(),
        })
    };
    let object =
        ObjectRef { kind: Kind::Ingress, namespace: Some("acme".parse().unwrap()), name: "web".parse().unwrap() };
    Entry {
        object,
        tenant: "acme".parse().unwrap(),
        backend: Backend { service: "web".parse().unwrap(), port: Port::Number(80) },
        options: Arc::default(),
        policy: Arc::new(FederationPolicy { steering, upstream: UpstreamTls::Plain, ..FederationPolicy::default() }),
        members: [("c1", 52.5, 13.4), ("c2", 48.8, 2.3), ("c3", 35.7, 139.7)].into_iter().map(member).collect(),
        unready: Arc::new([]),
    }
}

fn cluster(name: &str) -> ClusterName {
    name.parse().unwrap()
}

fn places() -> ArcSwapOption<geo::Map> {
    let map = "1.0.0.0/8 52.5 13.4\n2.0.0.0/8 48.8 2.3\n3.0.0.0/8 35.7 139.7\n";
    ArcSwapOption::from_pointee(geo::Map::parse(map.as_bytes()).unwrap())
}

/// A table that was made from these rooms and what comes of each home.
fn table(rooms: [(f64, Option<Out>); 3], homes: &[(Option<&str>, f64)]) -> Arc<Table> {
    let names = ["c1", "c2", "c3"];
    let room = |(rate, out): (f64, Option<Out>)| Room { rate, most: rate, basis: Basis::Measured, out };
    let rooms: BTreeMap<_, _> = names.map(cluster).into_iter().zip(rooms.map(room)).collect();
    let origin = |(home, demand): &(Option<&str>, f64)| {
        let first = home.and_then(|home| names.iter().position(|name| *name == home)).unwrap_or_default();
        let ring = |number: usize| u32::try_from((number + names.len() - first) % names.len()).unwrap();
        let rings = names.iter().enumerate().map(|(number, name)| (cluster(name), ring(number))).collect();
        (Origin { edge: EDGE.parse().unwrap(), home: home.map(cluster) }, Edge { demand: *demand, rings })
    };
    Arc::new(pour(&homes.iter().map(origin).collect(), &rooms, None, Timestamp(0)).unwrap())
}

struct Fixture {
    entry: Entry,
    outlook: EntryOutlook,
    places: ArcSwapOption<geo::Map>,
    now: Instant,
}

impl Fixture {
    fn new(steering: Steering) -> Self {
        let entry = entry(steering);
        let (outlook, now) = (EntryOutlook::new(&entry), Instant::now());
        for member in entry.members.iter() {
            outlook.asked(&entry, member, now);
        }
        Self { entry, outlook, places: places(), now }
    }

    fn follow(&self, table: &Arc<Table>) {
        self.outlook.plans.follow(table, &EDGE.parse().unwrap(), self.now);
    }

    fn choose(&self, client: &str, tried: &[ClusterName]) -> Choice<'_> {
        let address: IpAddr = client.parse().unwrap();
        choose(&self.entry, &self.outlook, tried, &Visitor { address, places: &self.places }, self.now)
    }

    /// Of a thousand requests, how many go where; `-` is refused, and `?` is nobody.
    fn spread(&self, client: &str) -> BTreeMap<String, u32> {
        let mut spread = BTreeMap::new();
        for _ in 0..1000 {
            let to = match self.choose(client, &[]) {
                Choice::Ask(member, _) => member.cluster.to_string(),
                Choice::Shed => "-".to_owned(),
                Choice::Nobody => "?".to_owned(),
            };
            *spread.entry(to).or_default() += 1;
        }
        spread
    }
}

fn about(spread: &BTreeMap<String, u32>, wanted: &[(&str, u32)]) {
    let names: Vec<&str> = spread.keys().map(String::as_str).collect();
    assert_eq!(names, wanted.iter().map(|(name, _)| *name).collect::<Vec<_>>(), "{spread:?}");
    for (name, wanted) in wanted {
        assert!(spread[*name].abs_diff(*wanted) < 10, "{name}: {spread:?}");
    }
}

/// What does not fit leaves its own home; who has room at home stays, at the same gateway.
#[test]
fn a_client_is_sent_home_and_what_does_not_fit_there_elsewhere() {
    let fixture = Fixture::new(Steering::Geo);
    about(&fixture.spread("1.2.3.4"), &[("c1", 1000)]);
    let homes = [(Some("c1"), 100.0), (Some("c2"), 10.0), (Some("c3"), 10.0), (None, 0.0)];
    fixture.follow(&table([(60.0, None), (1000.0, None), (1000.0, None)], &homes));
    about(&fixture.spread("1.2.3.4"), &[("c1", 600), ("c2", 400)]);
    about(&fixture.spread("2.2.3.4"), &[("c2", 1000)]);
    about(&fixture.spread("3.2.3.4"), &[("c3", 1000)]);
    // Too old: as without any.
    let later = Fixture { now: fixture.now + FRESH, ..fixture };
    about(&later.spread("1.2.3.4"), &[("c1", 1000)]);
}

#[test]
fn what_fits_nowhere_is_refused_and_where_nobody_is_well_all_are_tried() {
    let fixture = Fixture::new(Steering::Geo);
    fixture.follow(&table([(30.0, None), (20.0, None), (10.0, None)], &[(Some("c1"), 100.0)]));
    about(&fixture.spread("1.2.3.4"), &[("-", 400), ("c1", 300), ("c2", 200), ("c3", 100)]);
    let out = (0.0, Some(Out::Unhealthy));
    fixture.follow(&table([out, out, out], &[(Some("c1"), 100.0)]));
    about(&fixture.spread("1.2.3.4"), &[("c1", 1000)]);
}

/// Agreed: whatever is seen from here. And what is seen from here is not asked, before the others know.
#[test]
fn members_are_out_by_agreement_and_by_our_own_eyes() {
    let fixture = Fixture::new(Steering::Geo);
    let homes = [(Some("c1"), 100.0), (Some("c2"), 10.0), (Some("c3"), 10.0)];
    fixture.follow(&table([(0.0, Some(Out::Unhealthy)), (1000.0, None), (1000.0, None)], &homes));
    about(&fixture.spread("1.2.3.4"), &[("c2", 1000)]);
    let agreed = |name: usize| fixture.outlook.agreed(&fixture.entry.members[name], fixture.now).unhealthy;
    assert_eq!([agreed(0), agreed(1)], [Some(Unhealthy::FailedChecks), None]);
    // The second is found failing here alone: requests stay away, and DNS, which speaks for all, does not.
    fixture.outlook.of(&fixture.entry.members[1]).unwrap().set_failing(true);
    about(&fixture.spread("1.2.3.4"), &[("c3", 1000)]);
    assert_eq!(agreed(1), None);
}

/// A request that failed goes outwards, never where it was, and not where there is no room.
#[test]
fn another_try_goes_where_there_is_room() {
    let fixture = Fixture::new(Steering::Geo);
    fixture.follow(&table([(100.0, None), (1000.0, None), (0.0, None)], &[(Some("c1"), 50.0)]));
    let asked = |tried: &[&str]| {
        let tried: Vec<ClusterName> = tried.iter().map(|name| cluster(name)).collect();
        match fixture.choose("1.2.3.4", &tried) {
            Choice::Ask(member, Some(_)) => member.cluster.to_string(),
            choice => format!("{choice:?}"),
        }
    };
    assert_eq!(asked(&["c1"]), "c2");
    assert_eq!(asked(&["c2"]), "c1");
    assert_eq!(asked(&["c1", "c2"]), "Nobody");
}

/// Without a capacity there is nothing to overflow: the mode decides, and turns stay turns.
#[test]
fn where_no_capacity_is_known_the_mode_decides_alone() {
    let fixture = Fixture::new(Steering::RoundRobin);
    let unlimited = (UNLIMITED, None);
    fixture.follow(&table([unlimited, unlimited, (0.0, Some(Out::Unhealthy))], &[(Some("c1"), 100.0)]));
    about(&fixture.spread("1.2.3.4"), &[("c1", 500), ("c2", 500)]);
}

/// What an edge says of a second, and that it says it once.
#[test]
fn what_came_and_was_answered_is_told_once() {
    let fixture = Fixture::new(Steering::Geo);
    for (client, count) in [("1.2.3.4", 20), ("2.2.3.4", 4), ("9.9.9.9", 6)] {
        for _ in 0..count {
            let Choice::Ask(member, permit) = fixture.choose(client, &[]) else { panic!("nobody is asked") };
            let outlook = fixture.outlook.asked(&fixture.entry, member, fixture.now);
            let _under_way = InFlight::new(&outlook, permit, fixture.now);
            if client != "9.9.9.9" {
                outlook.answered(Duration::from_millis(30), client == "1.2.3.4", fixture.now);
            }
        }
    }
    let seen = saw(&fixture.entry, &fixture.outlook, 2.0, fixture.now).unwrap();
    let of = |name: &str| seen.members.iter().find(|(of, _)| of.as_str() == name).unwrap().1;
    assert!((seen.came - 15.0).abs() < 1e-9);
    assert!((of("c1").home_of - 10.0).abs() < 1e-9 && (of("c2").home_of - 2.0).abs() < 1e-9, "{seen:?}");
    assert!((of("c1").answered - 10.0).abs() < 1e-9, "{seen:?}");
    assert!(of("c2").answered <= 0.0, "errors of a member's ingress are no answers: {seen:?}");
    assert_eq!(of("c1").round_trip, Some(Duration::from_millis(30)));
    assert_eq!(saw(&fixture.entry, &fixture.outlook, 1.0, fixture.now), None);
    // Slow answers make no longer way.
    let first = &fixture.entry.members[0];
    for _ in 0..5 {
        fixture.outlook.of(first).unwrap().answered(Duration::from_secs(1), true, fixture.now);
        saw(&fixture.entry, &fixture.outlook, 1.0, fixture.now).unwrap();
    }
    let round_trip = fixture.outlook.of(first).unwrap().round_trip.load(Ordering::Relaxed);
    assert!(round_trip < 350_000, "{round_trip} us");
    assert!(saw(&fixture.entry, &EntryOutlook::new(&fixture.entry), 1.0, fixture.now).is_none());
}

/// A permit is held for as long as a request is under way, and no longer.
#[test]
fn what_is_under_way_is_counted_until_it_is_answered() {
    let fixture = Fixture::new(Steering::Geo);
    let table = table([(60.0, None), (1000.0, None), (1000.0, None)], &[(Some("c1"), 50.0)]);
    fixture.follow(&table);
    let Choice::Ask(member, permit) = fixture.choose("1.2.3.4", &[]) else { panic!("nobody is asked") };
    let outlook = fixture.outlook.asked(&fixture.entry, member, fixture.now);
    let mut first = InFlight::new(&outlook, permit, fixture.now);
    let under_way = || {
        let plan = fixture.outlook.plans.fresh(fixture.now).unwrap();
        plan.ways(Some(&cluster("c1"))).unwrap().guard.under_way(&cluster("c1")).unwrap().0
    };
    assert_eq!(under_way(), 1);
    // Also from table to table.
    fixture.follow(&table);
    assert_eq!(under_way(), 1);
    // A WebSocket is no request any more.
    first.answered();
    assert_eq!((under_way(), outlook.in_flight()), (0, 1));
    drop(first);
    assert_eq!((under_way(), outlook.in_flight()), (0, 0));
}
