#![allow(clippy::float_cmp)] // What is computed exactly, or rounded before.

use proptest::prelude::*;

use super::*;
use crate::identity::Kind;
use crate::ingress::{FederationPolicy, Overflow, PathMatch, Port, Steering};
use crate::inside::Place as Where;
use crate::name::DnsName;
use crate::network::{Coordinates, Location};
use crate::overflow::table::{Reason, Row};
use crate::routes::{Host, HttpRoute};
use crate::steering::Unhealthy;

fn at(seconds: u32) -> Timestamp {
    Timestamp::from_unix(Duration::from_secs(1_800_000_000 + u64::from(seconds)))
}

fn cluster(name: &str) -> ClusterName {
    name.parse().unwrap()
}

fn edge(name: &str) -> ObjectName {
    name.parse().unwrap()
}

/// Berlin, Paris and Tokyo.
fn location(name: &str) -> Location {
    let (latitude, longitude) = match name.trim_start_matches(|letter: char| !letter.is_ascii_digit()) {
        "1" => (52.5, 13.4),
        "2" => (48.8, 2.3),
        _ => (35.7, 139.7),
    };
    Location { coordinates: Some(Coordinates::new(latitude, longitude).unwrap()), ..Location::default() }
}

fn member(name: &str) -> Arc<Member> {
    Arc::new(Member {
        cluster: cluster(name),
        uid: format!("uid-of-{name}").into(),
        location: location(name),
        http: vec![Where::Address("192.0.2.1:80".parse().unwrap())],
        https: vec![Where::Address("192.0.2.1:443".parse().unwrap())],
    })
}

fn policy(steering: Steering, rate: Option<u32>) -> FederationPolicy {
    let overflow = Overflow { utilization: 0.8, max_rate_per_pod: rate };
    FederationPolicy { steering, overflow, ..FederationPolicy::default() }
}

fn entry(tenant: &str, ingress: &str, service: &str, members: &[&str], policy: &FederationPolicy) -> Arc<Entry> {
    Arc::new(Entry {
        object: ObjectRef {
            kind: Kind::Ingress,
            namespace: Some(tenant.parse().unwrap()),
            name: ingress.parse().unwrap(),
        },
        tenant: tenant.parse().unwrap(),
        backend: Backend { service: service.parse().unwrap(), port: Port::Number(80) },
        options: Arc::default(),
        policy: Arc::new(policy.clone()),
        members: members.iter().map(|name| member(name)).collect(),
        unready: Arc::new([]),
    })
}

fn table_of(entries: &[Arc<Entry>]) -> Arc<HttpTable> {
    let host = |entry: &Arc<Entry>| {
        let name = DnsName::parse(&format!("{}.{}.test", entry.object.name, entry.tenant)).unwrap();
        // Twice, as paths of one backend are.
        let routes =
            ["/", "/a"].map(|path| HttpRoute { path: PathMatch::Prefix(path.into()), entry: Arc::clone(entry) });
        (name, Host::new(entry.tenant.clone(), routes.to_vec(), None, None))
    };
    Arc::new(HttpTable::of(entries.iter().map(host)))
}

/// Real clusters: so many pods of a Service in each, and what one serves.
struct World {
    http: Arc<HttpTable>,
    entries: Vec<Arc<Entry>>,
    pods: HashMap<ClusterName, (u32, f64)>,
    /// What agents say: served, utilisation and ready pods, at each UID.
    reports: HashMap<Arc<str>, (Report, Timestamp)>,
    desk: Desk,
    tables: Arc<Tables>,
    second: u32,
    /// Of this second.
    load: HashMap<ClusterName, f64>,
    lost: f64,
}

/// What comes to an edge for an entry, by the home of the clients.
type Demand<'a> = &'a [(&'a str, &'a [(Option<&'a str>, f64)])];

impl World {
    fn new(entries: &[Arc<Entry>], pods: &[(&str, u32, f64)]) -> Self {
        Self {
            http: table_of(entries),
            entries: entries.to_vec(),
            pods: pods.iter().map(|(name, count, rate)| (cluster(name), (*count, *rate))).collect(),
            reports: HashMap::new(),
            desk: Desk::default(),
            tables: Arc::default(),
            second: 0,
            load: HashMap::new(),
            lost: 0.0,
        }
    }

    /// A second: edges send by their rows, clusters serve what they can, agents and edges tell, and the desk turns.
    fn step(&mut self, demands: &[Demand<'_>]) {
        let now = at(self.second);
        self.load.clear();
        (self.lost, self.second) = (0.0, self.second + 1);
        let mut sent = Vec::new();
        for (number, demand) in demands.iter().enumerate() {
            for (edge, homes) in *demand {
                for (home, rate) in *homes {
                    let to = self.split(&self.entries[number], edge, *home, *rate);
                    for (name, rate) in &to {
                        *self.load.entry(name.clone()).or_default() += rate;
                    }
                    sent.push((number, edge, *home, *rate, to));
                }
            }
        }
        let part = |world: &Self, name: &ClusterName| {
            // Clusters without agents have as many as it takes.
            let most = world.pods.get(name).map_or(f64::MAX, |(pods, rate)| f64::from(*pods) * rate);
            (most / world.load[name]).min(1.0)
        };
        let mut sightings: BTreeMap<ObjectName, HashMap<usize, Seen>> = BTreeMap::new();
        for (number, name, home, rate, to) in &sent {
            let seen = sightings.entry(edge(name)).or_default().entry(*number).or_insert_with(|| Seen {
                came: 0.0,
                members: self.entries[*number]
                    .members
                    .iter()
                    .map(|member| (member.cluster.clone(), nothing()))
                    .collect(),
            });
            seen.came += rate;
            for (name, member) in &mut seen.members {
                if Some(name.as_str()) == *home {
                    member.home_of += rate;
                }
                for (_, rate) in to.iter().filter(|(to, _)| to == name) {
                    member.answered += rate * part(self, name);
                }
            }
            let lost: f64 = to.iter().map(|(name, rate)| rate * (1.0 - part(self, name))).sum();
            self.lost += lost + rate - to.iter().map(|(_, rate)| rate).sum::<f64>();
        }
        for (name, (pods, rate)) in &self.pods {
            let load = self.load.get(name).copied().unwrap_or_default();
            let most = f64::from(*pods) * rate;
            let report = Report::check(load.min(most), (load / most).min(1.0), *pods).unwrap();
            self.reports.insert(format!("uid-of-{name}").into(), (report, now));
        }
        for (edge, seen) in sightings {
            let entries = seen.into_iter().map(|(number, seen)| (Destination::from(&*self.entries[number]), seen));
            self.desk.see(edge, Sighting { checks: true, entries: entries.collect() }, now).unwrap();
        }
        self.turn();
    }

    fn turn(&mut self) {
        let reports = &self.reports;
        let report = |member: &Member, _: &ObjectName, _: &ObjectName| reports.get(&member.uid).copied();
        self.tables = self.desk.turn(&self.http, report, at(self.second - 1));
    }

    fn table(&self, number: usize) -> Option<&Table> {
        self.tables.of(&Destination::from(&*self.entries[number])).map(|table| &**table)
    }

    fn row(&self, number: usize, name: &str, home: Option<&str>) -> &Row {
        self.table(number).unwrap().row(&Origin { edge: edge(name), home: home.map(cluster) }).unwrap()
    }

    fn split(&self, entry: &Entry, name: &str, home: Option<&str>, rate: f64) -> Vec<(ClusterName, f64)> {
        let origin = Origin { edge: edge(name), home: home.map(cluster) };
        let table = self.tables.of(&Destination::from(entry));
        match table.and_then(|table| Some((table, table.row(&origin)?))) {
            Some((table, row)) => table
                .clusters
                .iter()
                .zip(&row.cells)
                .map(|((name, _), cell)| (name.clone(), cell.share * rate))
                .filter(|(_, rate)| *rate > 0.0)
                .collect(),
            None => vec![(home.map_or_else(|| entry.members[0].cluster.clone(), cluster), rate)],
        }
    }
}

fn nothing() -> MemberSeen {
    MemberSeen { round_trip: Some(Duration::from_millis(1)), ..MemberSeen::default() }
}

/// Shares in percent by the clusters' order, what is shed last.
fn percents(row: &Row) -> Vec<f64> {
    row.cells.iter().map(|cell| cell.share).chain([row.shed]).map(|share| (share * 100.0).round()).collect()
}

const THREE: [(&str, u32, f64); 3] = [("c1", 10, 100.0), ("c2", 10, 100.0), ("c3", 10, 100.0)];
const ALL: [&str; 3] = ["c1", "c2", "c3"];

/// Clients of three places come to one gateway, and those of Berlin are more than fit there: Paris gets what does not, and its own stay.
#[test]
fn what_does_not_fit_at_home_goes_to_the_next_nearest_of_home() {
    let mut world = World::new(&[entry("acme", "web", "web", &ALL, &policy(Steering::Geo, Some(100)))], &THREE);
    let homes: &[(Option<&str>, f64)] = &[(Some("c1"), 1200.0), (Some("c2"), 200.0), (Some("c3"), 200.0)];
    for _ in 0..30 {
        world.step(&[&[("e", homes)]]);
    }
    assert_eq!(percents(world.row(0, "e", Some("c1"))), [67.0, 33.0, 0.0, 0.0]);
    assert_eq!(percents(world.row(0, "e", Some("c2"))), [0.0, 100.0, 0.0, 0.0]);
    assert_eq!(percents(world.row(0, "e", Some("c3"))), [0.0, 0.0, 100.0, 0.0]);
    let table = world.table(0).unwrap();
    let reason = world.row(0, "e", Some("c1")).cells[1].reason;
    assert!(matches!(reason, Reason::Overflow { full: 0, .. }), "{reason:?}");
    assert!(table.clusters.iter().all(|(_, room)| room.basis == Basis::Measured), "{table:?}");
    assert!(world.load.values().all(|load| *load <= 820.0), "{:?}", world.load);
    // From the first table on nothing was lost, as what is declared is right.
    assert!(world.lost <= 1e-6, "{}", world.lost);
}

/// Each mode's promise, with room everywhere and where the first is full.
#[test]
fn every_mode_keeps_its_promise() {
    let weights = BTreeMap::from([(cluster("c1"), 3), (cluster("c2"), 1)]);
    let order = vec![cluster("c2"), cluster("c1")];
    // Homes as the mode gives them; then what goes to each cluster.
    for (what, steering, homes, wanted) in [
        (
            "weights hold",
            Steering::Weighted(weights.clone()),
            vec![(Some("c1"), 600.0), (Some("c2"), 200.0)],
            [600.0, 200.0, 0.0],
        ),
        (
            "until somebody is full, and who has no weight gets nothing",
            Steering::Weighted(weights),
            vec![(Some("c1"), 900.0), (Some("c2"), 300.0)],
            [800.0, 400.0, 0.0],
        ),
        (
            "turns hold",
            Steering::RoundRobin,
            vec![(Some("c1"), 300.0), (Some("c2"), 300.0), (Some("c3"), 300.0)],
            [300.0, 300.0, 300.0],
        ),
        ("the order holds", Steering::Failover(order.clone()), vec![(None, 700.0)], [0.0, 700.0, 0.0]),
        ("and the next one gets the rest", Steering::Failover(order), vec![(None, 1000.0)], [200.0, 800.0, 0.0]),
        ("the nearest of the edge", Steering::Latency, vec![(None, 800.0)], [800.0, 0.0, 0.0]),
        ("and then the next", Steering::Latency, vec![(None, 1000.0)], [800.0, 200.0, 0.0]),
        ("clients without a place", Steering::Geo, vec![(None, 1000.0)], [800.0, 200.0, 0.0]),
    ] {
        let entry = entry("acme", "web", "web", &ALL, &policy(steering, Some(100)));
        let mut world = World::new(&[Arc::clone(&entry)], &THREE);
        let come: f64 = homes.iter().map(|(_, rate)| rate).sum();
        let trips = [1, 20, 70].map(|ms| Some(Duration::from_millis(ms)));
        for second in 0..3 {
            let member = |(name, round_trip): (&&str, Option<Duration>)| {
                let of = |home: &&(Option<&str>, f64)| home.0 == Some(*name);
                let home_of = homes.iter().find(of).map_or(0.0, |(_, rate)| *rate);
                (cluster(name), MemberSeen { home_of, round_trip, ..MemberSeen::default() })
            };
            let seen = Seen { came: come, members: ALL.iter().zip(trips).map(member).collect() };
            let sighting = Sighting { checks: true, entries: vec![(Destination::from(&*entry), seen)] };
            world.desk.see(edge("e"), sighting, at(second)).unwrap();
            let ready = (Report::check(0.0, 0.0, 10).unwrap(), at(second));
            world.tables = world.desk.turn(&world.http, |_, _, _| Some(ready), at(second));
        }
        let mut sent = [0.0; 3];
        for row in &world.table(0).unwrap().rows {
            for (sent, cell) in sent.iter_mut().zip(&row.cells) {
                *sent += (cell.target * row.demand * 10.0).round() / 10.0;
            }
        }
        assert_eq!(sent.map(f64::round), wanted, "{what}");
    }
}

/// What each of some edges says of c1: whether it checks, and whether it finds it failing. Whether c1 is out, and who has no way there.
#[test]
fn a_member_is_out_when_most_of_those_who_check_it_say_so() {
    for (what, edges, out, without_way) in [
        ("one alone is its own majority", &[(true, true)][..], true, &[][..]),
        ("half is not most", &[(true, true), (true, false)], false, &[0][..]),
        ("two of three are", &[(true, true), (true, true), (true, false)], true, &[]),
        ("one of three has no way there itself", &[(true, false), (true, false), (true, true)], false, &[2]),
        ("who does not check has no vote", &[(true, true), (false, false), (false, false)], true, &[]),
        ("nobody checks", &[(false, false), (false, false)], false, &[]),
    ] {
        let entry = entry("acme", "web", "web", &["c1", "c2"], &policy(Steering::Geo, None));
        let mut world = World::new(&[Arc::clone(&entry)], &[]);
        let told = |failing: bool| {
            let member = |name: &str, failing: bool| (cluster(name), MemberSeen { failing, ..nothing() });
            Seen { came: 10.0, members: vec![member("c1", failing), member("c2", false)] }
        };
        for (number, (checks, failing)) in edges.iter().enumerate() {
            let entries = vec![(Destination::from(&*entry), told(*failing))];
            world.desk.see(edge(&format!("e{number}")), Sighting { checks: *checks, entries }, at(60)).unwrap();
        }
        // The first turn is long ago.
        world.desk.since = Some(at(0));
        world.second = 61;
        world.turn();
        if edges.iter().all(|(_, failing)| !failing) {
            assert!(world.table(0).is_none(), "{what}: there is nothing to say");
            continue;
        }
        let (_, room) = &world.table(0).unwrap().clusters[0];
        assert_eq!(room.out, out.then_some(Out::Unhealthy), "{what}");
        let failing = world.tables.failing();
        let c1 = failing.get(&entry.object).is_some_and(|clusters| *clusters == [cluster("c1")].into());
        assert_eq!((c1, failing.len()), (out, usize::from(out)), "{what}");
        for number in 0..edges.len() {
            let ring = world.row(0, &format!("e{number}"), Some("c2")).cells[0].ring;
            assert_eq!(ring.is_none(), without_way.contains(&number), "{what}: e{number}");
        }
        // What an edge said counts for ten seconds.
        world.second = 72;
        world.turn();
        assert!(world.table(0).is_none() && world.desk.edges().next().is_none(), "{what}: forgotten");
    }
}

/// What the hub knows needs nobody's vote.
#[test]
fn a_member_where_nothing_is_ready_is_out() {
    let entry = entry("acme", "web", "web", &["c1", "c2"], &policy(Steering::Geo, None));
    let unready = [(cluster("c1"), Unhealthy::NoReadyEndpoints)];
    let entry = Arc::new(Entry { unready: Arc::new(unready), ..Entry::clone(&entry) });
    let mut world = World::new(&[Arc::clone(&entry)], &[]);
    let seen = Seen { came: 10.0, members: vec![(cluster("c1"), MemberSeen { home_of: 10.0, ..nothing() })] };
    let entries = vec![(Destination::from(&*entry), seen)];
    world.desk.see(edge("e"), Sighting { checks: true, entries }, at(60)).unwrap();
    world.desk.since = Some(at(0));
    world.second = 61;
    world.turn();
    assert_eq!(world.table(0).unwrap().clusters[0].1.out, Some(Out::NoReadyPods));
    assert_eq!(percents(world.row(0, "e", Some("c1"))), [0.0, 100.0, 0.0]);
}

/// An agent that says other than what was counted is not believed, and says so to nobody's harm but its own.
#[test]
fn a_report_that_nobody_counted_is_not_believed() {
    let entry = entry("acme", "web", "web", &["c1", "c2"], &policy(Steering::Geo, Some(10)));
    let mut world = World::new(&[entry], &[("c1", 10, 10.0), ("c2", 10, 10.0)]);
    let homes: &[(Option<&str>, f64)] = &[(Some("c1"), 60.0)];
    for _ in 0..10 {
        world.step(&[&[("e", homes)]]);
    }
    let basis = |world: &World| world.table(0).unwrap().clusters[0].1.basis;
    assert_eq!(basis(&world), Basis::Measured);
    for _ in 0..3 {
        world.step(&[&[("e", homes)]]);
        let lie = Report::check(1000.0, 0.2, 10).unwrap();
        world.reports.insert("uid-of-c1".into(), (lie, at(world.second)));
        world.second += 1;
        world.turn();
    }
    assert!(matches!(basis(&world), Basis::Disagreed { served, .. } if served == 1000.0), "{:?}", basis(&world));
    assert!(world.table(0).unwrap().clusters[0].1.rate <= 100.0, "never above what is declared");
}

/// Two Ingresses lead to one Service, and a third to another one: the first two share what there is.
#[test]
fn entries_of_one_service_share_its_capacity() {
    let policy = policy(Steering::Geo, Some(100));
    let entries = [("one", "web"), ("two", "web"), ("other", "api")];
    let entries = entries.map(|(ingress, service)| entry("acme", ingress, service, &ALL, &policy));
    let mut world = World::new(&entries, &THREE);
    let at_home = |rate: f64| vec![(Some("c1"), rate)];
    let (most, least) = (at_home(900.0), at_home(300.0));
    let demands: [Demand<'_>; 3] = [&[("e", &most)], &[("e", &least)], &[]];
    for _ in 0..5 {
        world.step(&demands);
    }
    // Reports are of the Service: both are in it.
    let rate = |world: &World, number: usize| world.table(number).map_or(0.0, |table| table.clusters[0].1.rate);
    let (one, two) = (rate(&world, 0), rate(&world, 1));
    assert!((one + two - 800.0).abs() < 40.0, "{one} + {two}");
    assert!((one / two - 3.0).abs() < 0.2, "{one} to {two}");
    for _ in 0..25 {
        world.step(&demands);
    }
    assert!(world.load[&cluster("c1")] <= 830.0, "{:?}", world.load);
    assert!(world.lost <= 1e-6);
}

#[test]
fn edges_are_bounded_and_those_that_are_gone_make_room() {
    let mut desk = Desk::default();
    for number in 0..MAX_EDGES {
        desk.see(edge(&format!("e{number}")), Sighting::default(), at(0)).unwrap();
    }
    assert_eq!(desk.see(edge("one-more"), Sighting::default(), at(1)), Err(TooManyEdges));
    assert_eq!(desk.see(edge("e7"), Sighting::default(), at(1)), Ok(()), "those that are known are heard");
    assert_eq!(desk.see(edge("one-more"), Sighting::default(), at(10)), Ok(()));
    assert_eq!(desk.edges().count(), 2);
}

/// What nobody knows anything about has no table; nor has what is known of a member that is not in any Ingress.
#[test]
fn there_are_tables_where_there_is_something_to_say() {
    let silent = entry("acme", "web", "web", &ALL, &policy(Steering::Geo, None));
    let mut world = World::new(&[silent], &[]);
    let homes: &[(Option<&str>, f64)] = &[(Some("c1"), 60.0)];
    for _ in 0..10 {
        world.step(&[&[("e", homes)]]);
    }
    assert!(world.tables.by_destination.is_empty());
    world.http = Arc::default();
    world.step(&[&[("e", homes)]]);
    assert!(world.tables.by_destination.is_empty() && world.desk.places.is_empty() && world.desk.services.is_empty());
}

/// Somebody else takes over the desk: from what edges and agents tell it comes to the tables that were there, and loses nothing.
#[test]
fn a_desk_made_anew_goes_on_where_the_last_one_was() {
    for declared in [Some(100), None] {
        let entry = entry("acme", "web", "web", &ALL, &policy(Steering::Geo, declared));
        let mut world = World::new(&[entry], &THREE);
        let homes: &[(Option<&str>, f64)] = &[(Some("c1"), 1100.0), (Some("c2"), 300.0), (Some("c3"), 100.0)];
        for _ in 0..60 {
            world.step(&[&[("e", homes)]]);
        }
        let before = percents(world.row(0, "e", Some("c1")));
        // What is published stays until there is something newer; c3's agent is the last to come.
        let tables = Arc::clone(&world.tables);
        world.desk = Desk::default();
        for second in 0..10 {
            world.step(&[&[("e", homes)]]);
            if world.tables.by_destination.is_empty() {
                world.tables = Arc::clone(&tables);
            }
            assert!(world.lost <= 1e-6, "{declared:?}, second {second}: {} lost", world.lost);
        }
        let after = percents(world.row(0, "e", Some("c1")));
        for (before, after) in before.iter().zip(&after) {
            assert!((before - after).abs() <= 3.0, "{declared:?}: {before} became {after}");
        }
    }
}

/// Nobody has reported yet to somebody who has just begun: edges keep what they have rather than all go home.
#[test]
fn a_desk_that_begins_says_nothing_of_what_it_does_not_know() {
    let entry = entry("acme", "web", "web", &["c1", "c2"], &policy(Steering::Geo, None));
    let mut world = World::new(&[Arc::clone(&entry)], &[]);
    let known = (Report::check(60.0, 0.5, 10).unwrap(), at(0));
    for second in 0..8 {
        let member = |name: &str, rate: f64| (cluster(name), MemberSeen { home_of: rate, answered: rate, ..nothing() });
        let seen = Seen { came: 60.0, members: vec![member("c1", 60.0), member("c2", 0.0)] };
        let sighting = Sighting { checks: true, entries: vec![(Destination::from(&*entry), seen)] };
        world.desk.see(edge("e"), sighting, at(second)).unwrap();
        let report =
            |member: &Member, _: &ObjectName, _: &ObjectName| (member.cluster == cluster("c1")).then_some(known);
        world.tables = world.desk.turn(&world.http, report, at(second));
        assert_eq!(world.table(0).is_some(), second >= 5, "second {second}");
    }
}

/// DNS sends clients straight to the members: nobody counts them but the members, and answers are kept for a while.
#[test]
fn names_follow_what_members_say_that_they_serve() {
    let policy = FederationPolicy { entry: EntryMode::Dns, ..policy(Steering::Geo, Some(100)) };
    let entry = entry("acme", "web", "web", &ALL, &policy);
    let mut world = World::new(&[Arc::clone(&entry)], &THREE);
    let demand = [("c1", 1100.0), ("c2", 200.0), ("c3", 100.0)];
    let mut followed: Vec<BTreeMap<ClusterName, f64>> =
        demand.iter().map(|(home, _)| BTreeMap::from([(cluster(home), 1.0)])).collect();
    let mut load: BTreeMap<ClusterName, f64> = BTreeMap::new();
    for second in 0..180 {
        load.clear();
        for (number, (home, rate)) in demand.iter().enumerate() {
            // A tenth of the resolvers ask again in a second.
            let now: BTreeMap<_, _> = world.split(&entry, DNS_EDGE, Some(home), 1.0).into_iter().collect();
            for name in ALL.map(cluster) {
                let share = followed[number].entry(name.clone()).or_default();
                *share += (now.get(&name).copied().unwrap_or_default() - *share) * 0.1;
                *load.entry(name).or_default() += *share * rate;
            }
        }
        for (name, load) in &load {
            let report = Report::check(load.min(1000.0), (load / 1000.0).min(1.0), 10).unwrap();
            world.reports.insert(format!("uid-of-{name}").into(), (report, at(second)));
        }
        world.second = second + 1;
        world.turn();
    }
    let load: Vec<f64> = load.values().copied().collect();
    assert!((780.0..=830.0).contains(&load[0]), "{load:?}");
    assert!((load.iter().sum::<f64>() - 1400.0).abs() < 1.0, "{load:?}");
    assert!((450.0..=530.0).contains(&load[1]), "what leaves Berlin goes to Paris: {load:?}");
}

prop_compose! {
    fn homes()(rates in prop::collection::vec(0.0..1500.0_f64, 3)) -> Vec<f64> { rates }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever comes to whom: where the fleet has room, nobody is planned to get more than it can take, and nothing is shed.
    #[test]
    fn never_more_than_capacity_where_there_is_room_elsewhere(
        demands in prop::collection::vec(homes(), 1..4),
        pods in prop::collection::vec(1..40_u32, 3),
        steering in prop::sample::select(vec![Steering::Geo, Steering::RoundRobin, Steering::Latency]),
        seconds in 1..8_u32,
    ) {
        let entry = entry("acme", "web", "web", &ALL, &policy(steering.clone(), Some(100)));
        let mut world = World::new(&[entry], &[("c1", pods[0], 100.0), ("c2", pods[1], 100.0), ("c3", pods[2], 100.0)]);
        let names: Vec<String> = (0..demands.len()).map(|number| format!("e{number}")).collect();
        let has_home = !matches!(steering, Steering::Latency);
        let homes: Vec<Vec<(Option<&str>, f64)>> = demands
            .iter()
            .map(|rates| ALL.iter().zip(rates).map(|(name, rate)| (has_home.then_some(*name), *rate)).collect())
            .collect();
        let demand: Vec<_> = names.iter().zip(&homes).map(|(name, homes)| (name.as_str(), &homes[..])).collect();
        for _ in 0..seconds {
            world.step(&[&demand]);
        }
        let table = world.table(0).unwrap();
        let room: f64 = table.clusters.iter().map(|(_, room)| room.rate).sum();
        let come: f64 = table.rows.iter().map(|row| row.demand).sum();
        for (place, (name, has)) in table.clusters.iter().enumerate() {
            let planned: f64 = table.rows.iter().map(|row| row.cells[place].target * row.demand).sum();
            let most = if come <= room { has.rate } else { has.most };
            prop_assert!(planned <= most * (1.0 + 1e-6) + 0.1, "{name} gets {planned} of {most}");
        }
        if come <= room {
            prop_assert!(table.rows.iter().all(|row| row.cells.iter().map(|cell| cell.target).sum::<f64>() > 1.0 - 1e-6));
        }
    }

    /// Whatever one tenant's clients and agents do, another tenant's table is the same to the last bit.
    #[test]
    fn nothing_of_one_tenant_moves_another_tenants_table(
        theirs in prop::collection::vec((homes(), 0.0..2000.0_f64, 0.0..1.5_f64, 0..50_u32, any::<bool>()), 6),
    ) {
        let ours = entry("acme", "web", "web", &["a1", "a2", "a3"], &policy(Steering::Geo, Some(100)));
        let other = entry("initech", "web", "web", &["i1", "i2", "i3"], &policy(Steering::Geo, Some(100)));
        let http = table_of(&[Arc::clone(&ours), Arc::clone(&other)]);
        let (mut with, mut without) = (Desk::default(), Desk::default());
        for (second, (rates, served, utilization, ready, failing)) in theirs.into_iter().enumerate() {
            let now = at(u32::try_from(second).unwrap());
            let seen = |names: [&str; 3], rates: &[f64], failing: bool| Seen {
                came: rates.iter().sum(),
                members: names
                    .iter()
                    .zip(rates)
                    .map(|(name, rate)| {
                        let seen = MemberSeen { home_of: *rate, answered: *rate, failing, ..nothing() };
                        (cluster(name), seen)
                    })
                    .collect(),
            };
            let mine = (Destination::from(&*ours), seen(["a1", "a2", "a3"], &[900.0, 200.0, 100.0], false));
            let foreign = (Destination::from(&*other), seen(["i1", "i2", "i3"], &rates, failing));
            let sighting = |entries| Sighting { checks: true, entries };
            with.see(edge("e"), sighting(vec![mine.clone(), foreign]), now).unwrap();
            without.see(edge("e"), sighting(vec![mine]), now).unwrap();
            let report = |is_told: bool| {
                move |member: &Member, _: &ObjectName, _: &ObjectName| {
                    let of_ours = member.cluster.as_str().starts_with('a');
                    let report = if of_ours {
                        Report::check(400.0, 0.4, 10)
                    } else {
                        Report::check(served, utilization, ready)
                    };
                    (of_ours || is_told).then(|| (report.unwrap(), now))
                }
            };
            let (with, without) = (with.turn(&http, report(true), now), without.turn(&http, report(false), now));
            let destination = Destination::from(&*ours);
            prop_assert_eq!(with.of(&destination), without.of(&destination));
            prop_assert!(with.of(&destination).is_some());
        }
    }

    /// Whatever an edge says, there is a table, and it can be computed with.
    #[test]
    fn nothing_an_edge_says_spoils_a_table(
        rates in prop::collection::vec(prop::sample::select(vec![f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300, 7.0]), 9),
    ) {
        let entry = entry("acme", "web", "web", &ALL, &policy(Steering::Geo, Some(100)));
        let http = table_of(&[Arc::clone(&entry)]);
        let mut desk = Desk::default();
        let member = |(name, rates): (&&str, &[f64])| {
            (cluster(name), MemberSeen { home_of: rates[0], answered: rates[1], ..nothing() })
        };
        let seen = Seen { came: rates[8], members: ALL.iter().zip(rates.chunks(2)).map(member).collect() };
        let sighting = Sighting { checks: true, entries: vec![(Destination::from(&*entry), seen)] };
        desk.see(edge("e"), sighting, at(0)).unwrap();
        let tables = desk.turn(&http, |_, _, _| Some((Report::check(5.0, 0.5, 10).unwrap(), at(0))), at(0));
        for row in &tables.of(&Destination::from(&*entry)).unwrap().rows {
            let sum = row.cells.iter().map(|cell| cell.share).sum::<f64>() + row.shed;
            prop_assert!((sum - 1.0).abs() < 1e-6, "{row:?}");
        }
    }
}
