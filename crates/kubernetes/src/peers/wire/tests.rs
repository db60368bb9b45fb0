use std::collections::HashMap;

use model::overflow::{Basis, Cell, Origin, Out, Reason, Room, Row, Shed, Table};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn destination(number: u16) -> Destination {
    let (namespace, ingress, service) = ("shop".parse().unwrap(), format!("i{number}").parse().unwrap(), "web".parse());
    let port = if number.is_multiple_of(2) { Port::Number(number) } else { Port::Name("http".into()) };
    let ingress = ObjectRef { kind: Kind::Ingress, namespace: Some(namespace), name: ingress };
    Destination { ingress, backend: Backend { service: service.unwrap(), port } }
}

fn cluster(number: usize) -> ClusterName {
    format!("c{number:03}").parse().unwrap()
}

fn row(edge: &str, home: Option<usize>, cells: Vec<Cell>) -> Row {
    let origin = Origin { edge: edge.parse().unwrap(), home: home.map(cluster) };
    Row { origin, demand: 12.5, cells, shed: 0.25, why_shed: Some(Shed::AllFull) }
}

/// One of every kind of thing that a table may say.
fn table(at: Timestamp) -> Table {
    let bases = [
        Basis::Unknown,
        Basis::Declared,
        Basis::Measured,
        Basis::Disagreed { served: 10.5, counted: 20.25 },
        Basis::Silent { since: Timestamp(at.0 - 7_000_000_000) },
        Basis::Measured,
        Basis::Measured,
        Basis::Measured,
        Basis::Measured,
    ];
    let outs = [Out::Drained, Out::Unreachable, Out::Unhealthy, Out::NoReadyPods].map(Some);
    let room = |(number, basis): (usize, Basis)| {
        let out = outs.get(number).copied().flatten();
        (cluster(number), Room { rate: 800.0, most: 1e9, basis, out })
    };
    let reasons = [
        Reason::Nearest,
        Reason::Overflow { full: 0, rate: 800.125 },
        Reason::InPlaceOf { lost: 8, out: Out::Drained },
        Reason::AllFull,
        Reason::Returning,
        Reason::NotNeeded,
        Reason::Full { rate: 1.0 },
        Reason::Out(Out::Unhealthy),
        Reason::NoWay,
    ];
    let cell = |(number, reason): (usize, Reason)| {
        let ring = (number != 8).then_some(u32::try_from(number).unwrap());
        Cell { ring, share: 0.125, target: 0.5, quota: 100.5, reason }
    };
    let cells: Vec<Cell> = reasons.into_iter().enumerate().map(cell).collect();
    Table {
        at,
        clusters: bases.into_iter().enumerate().map(room).collect(),
        rows: vec![
            row("dns", None, cells.clone()),
            row("gw-0", None, cells.clone()),
            row("gw-0", Some(1), cells.clone()),
            row("gw-1", None, cells),
        ],
    }
}

fn read(line: &Bytes) -> Result<Tables, String> {
    match told(line.trim_ascii_end())? {
        Told::Tables(tables) => Ok(tables),
        _ => Err("no".into()),
    }
}

/// Whole microseconds, as clocks go on between the two.
fn is_near(one: Timestamp, other: Timestamp) -> bool {
    one.0.abs_diff(other.0) < 1_000_000_000
}

#[test]
fn an_edge_is_told_its_own_rows_and_those_of_dns() {
    let at = now();
    let sent = Tables { at, by_destination: HashMap::from([(destination(1), Arc::new(table(at)))]) };
    for (edge, rows) in [("gw-0", 3), ("gw-1", 2), ("gw-2", 1), ("dns", 1)] {
        let line = tables(&sent, &edge.parse().unwrap());
        let came = read(&line).unwrap();
        assert!(is_near(came.at, at));
        let came = came.of(&destination(1)).unwrap();
        assert_eq!(came.rows.len(), rows, "{edge}");
        assert!(is_near(came.at, at));
        let expected = table(at);
        for row in &came.rows {
            assert_eq!(Some(row), expected.row(&row.origin), "{edge}");
        }
        for ((came_name, came), (name, room)) in came.clusters.iter().zip(&expected.clusters) {
            assert_eq!((came_name, came.rate, came.most, came.out), (name, room.rate, room.most, room.out));
            match (came.basis, room.basis) {
                (Basis::Silent { since: came }, Basis::Silent { since }) => assert!(is_near(came, since)),
                (came, basis) => assert_eq!(came, basis),
            }
        }
    }
}

/// The clocks of two machines may be hours apart.
#[test]
fn a_table_is_as_old_as_it_was_where_it_was_made() {
    let old = Timestamp(now().0 - 8_000_000_000);
    let sent = Tables { at: old, by_destination: HashMap::from([(destination(1), Arc::new(table(old)))]) };
    let line = String::from_utf8(tables(&sent, &"gw-0".parse().unwrap()).to_vec()).unwrap();
    assert!(line.starts_with(r#"{"tables":{"age":8"#), "{line}");
    assert!(!line.contains(&old.0.to_string()[..8]), "no clock is told: {line}");
    assert!(is_near(read(&line.into()).unwrap().at, old));
}

#[test]
fn a_table_that_cannot_be_looked_up_in_is_not_taken() {
    let at = now();
    let sent = |change: &dyn Fn(&mut Table)| {
        let mut table = table(at);
        change(&mut table);
        let sent = Tables { at, by_destination: HashMap::from([(destination(1), Arc::new(table))]) };
        read(&tables(&sent, &"gw-0".parse().unwrap())).map(drop)
    };
    assert_eq!(sent(&|_| ()), Ok(()));
    for (wrong, change) in [
        ("clusters in no order", &(|table: &mut Table| table.clusters.reverse()) as &dyn Fn(&mut Table)),
        ("a cluster twice", &|table| table.clusters[1].0 = table.clusters[0].0.clone()),
        ("rows in no order", &|table| table.rows.reverse()),
        ("a cell too few", &|table| _ = table.rows[1].cells.pop()),
        ("a cluster that is not there", &|table| {
            table.rows[1].cells[0].reason = Reason::Overflow { full: 9, rate: 1.0 };
        }),
    ] {
        assert!(sent(change).is_err(), "{wrong}");
    }
    // What we computed wrongly is at least a number.
    assert_eq!(sent(&|table| table.rows[1].cells[0].quota = f64::NAN), Ok(()));
    assert_eq!(sent(&|table| table.rows[1].cells[0].share = 1.5), Ok(()));
}

#[test]
fn a_no_is_plain_text_of_some_length() {
    let line = no("Silent", &format!("a\u{1b}[31mb{}", "x".repeat(1000)));
    let Ok(Told::No { code, reason }) = told(line.trim_ascii_end()) else { panic!("{line:?}") };
    assert_eq!((&*code, reason.len()), ("Silent", MAX_REASON));
    assert!(reason.starts_with("a[31mb"));
}

#[test]
fn what_has_no_room_in_a_line_is_left_out() {
    let members = (0..MAX_CLUSTERS).map(|number| (cluster(number), MemberSeen::default())).collect();
    let seen = Seen { came: 1.0, members };
    let entries = (0..10_000).map(|number| (destination(number), seen.clone())).collect();
    let report = Report::check(1.0, 0.5, 3).unwrap();
    let services = vec![("shop".parse().unwrap(), "web".parse().unwrap(), report); 10];
    let reports = ClusterReports { cluster: cluster(1), uid: "u".into(), services };
    let line = say(Some(&Sighting { checks: true, entries }), &vec![reports.clone(); 2000], None);
    assert!(line.len() <= MAX_LINE);
    let came = said(line.trim_ascii_end()).unwrap();
    let entries = came.sighting.unwrap().entries.len();
    assert!((100..10_000).contains(&entries), "{entries}");
    assert_eq!(came.reports, vec![reports; 2000]);
}

fn replica_line(address: &str, clusters: &str) -> String {
    let certificate = "ab".repeat(32);
    format!(
        r#"{{"replica":{{"address":"{address}","certificate":"{certificate}","links":true,"clusters":[{clusters}]}}}}"#
    )
}

fn replica(clusters: usize) -> Replica {
    let clusters = (0..clusters).map(|number| format!("{number:05}-{}", "x".repeat(57)).parse().unwrap()).collect();
    let certificate = super::super::Fingerprint::of(b"x");
    Replica { address: "[2001:db8::1]:9636".parse().ok(), certificate, takes_links: true, clusters }
}

fn read_replicas(line: &[u8]) -> Result<Replicas, String> {
    match told(line.trim_ascii_end())? {
        Told::Replicas(replicas) => Ok(replicas),
        _ => Err("another line".into()),
    }
}

/// Names of 63 octets, as many as there may be, of as many processes.
#[test]
fn who_carries_what_is_told_whole() {
    use super::super::replicas::{MAX_LINKED, MAX_NAMED};
    let own = replica(MAX_LINKED);
    let entries: Vec<_> = (0..1000).map(|number| (destination(number), Seen::default())).collect();
    let line = say(Some(&Sighting { checks: true, entries }), &[], Some(&own));
    let came = said(line.trim_ascii_end()).unwrap();
    assert_eq!((came.replica, came.sighting.unwrap().entries.len()), (Some(own), 1000));
    let only = Replica { address: None, takes_links: false, clusters: Vec::new(), ..replica(0) };
    let line = say(None, &[], Some(&only));
    assert_eq!(said(line.trim_ascii_end()).unwrap().replica, Some(only));

    let peer = |number: usize| super::super::Peer {
        name: format!("gateway-{number:03}").parse().unwrap(),
        role: super::super::Role::Gateway,
    };
    let all = |each: usize| Replicas((0..250).map(|number| (peer(number), Arc::new(replica(each)))).collect());
    let most = all(MAX_NAMED / 250);
    let line = replicas(&most);
    assert!(line.len() < MAX_LINE, "{}", line.len());
    assert_eq!(read_replicas(&line).unwrap(), most);
    assert!(read_replicas(&replicas(&all(MAX_NAMED / 250 + 1))).is_err(), "more than there may be");
    let mut wrong = all(1);
    wrong.0.reverse();
    assert!(read_replicas(&replicas(&wrong)).is_err());
    for bad in ["{}", r#"{"replicas":{}}"#, r#"{"replicas":[{"name":"a","role":"king"}]}"#] {
        assert!(read_replicas(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn wrong_lines_are_not_taken() {
    for good in [
        "{}",
        r#"{"sighting":{"checks":true,"entries":[]}}"#,
        r#"{"sighting":{"checks":false,"entries":[{"of":["a","b","c",80],"came":1,"members":[["c1",0,0,null,false,true]]}]}}"#,
        r#"{"reports":[{"cluster":"c1","uid":"u","services":[["a","b",1,0.5,3]]}]}"#,
        &replica_line("192.0.2.1:1", r#""a","b""#),
    ] {
        assert!(said(good.as_bytes()).is_ok(), "{good}");
    }
    for bad in [
        "",
        "null",
        r#"{"sighting":{}}"#,
        r#"{"other":1}"#,
        r#"{"sighting":{"checks":true,"entries":[],"more":1}}"#,
        r#"{"sighting":{"checks":true,"entries":[{"of":["a","b","c",80],"came":-1,"members":[]}]}}"#,
        r#"{"sighting":{"checks":true,"entries":[{"of":["a","b","c",80],"came":1e10,"members":[]}]}}"#,
        r#"{"sighting":{"checks":true,"entries":[{"of":["a","b","c",80],"came":null,"members":[]}]}}"#,
        r#"{"sighting":{"checks":true,"entries":[{"of":["a","b","c",70000],"came":1,"members":[]}]}}"#,
        r#"{"sighting":{"checks":true,"entries":[{"of":["a","b","c","a-port-that-is-too-long"],"came":1,"members":[]}]}}"#,
        r#"{"sighting":{"checks":true,"entries":[{"of":["","b","c",80],"came":1,"members":[]}]}}"#,
        r#"{"sighting":{"checks":true,"entries":[{"of":["a","b","c",80],"came":1,"members":[["C1",0,0,null,false,false]]}]}}"#,
        r#"{"sighting":{"checks":true,"entries":[{"of":["a","b","c",80],"came":1,"members":[["c1",0,0,61,false,false]]}]}}"#,
        r#"{"sighting":{"checks":true,"entries":[{"of":["a","b","c",80],"came":1,"members":[["c1",0,0,null,false]]}]}}"#,
        r#"{"reports":[{"cluster":"c1","uid":"u","services":[["a","b",-1,0.5,3]]}]}"#,
        r#"{"reports":[{"cluster":"c1","uid":"u","services":[["a","b",1,0.5,-3]]}]}"#,
        r#"{"reports":[{"cluster":"c.1","uid":"u","services":[]}]}"#,
        r#"{"replica":{}}"#,
        r#"{"replica":{"certificate":"ab","links":true,"clusters":[]}}"#,
        &replica_line("192.0.2.1", ""),
        &replica_line("gw.example:1", ""),
        &replica_line("0.0.0.0:1", ""),
        &replica_line("[::]:1", ""),
        &replica_line("192.0.2.1:0", ""),
        &replica_line("192.0.2.1:1", r#""b","a""#),
        &replica_line("192.0.2.1:1", r#""a","a""#),
        &replica_line("192.0.2.1:1", r#""A""#),
        &replica_line("192.0.2.1:1", "1"),
    ] {
        assert!(said(bad.as_bytes()).is_err(), "{bad}");
    }
    let many = vec![r#"["a","b",1,0.5,3]"#; MAX_REPORTS + 1].join(",");
    assert!(said(format!(r#"{{"reports":[{{"cluster":"c1","uid":"u","services":[{many}]}}]}}"#).as_bytes()).is_err());
    let many = vec![r#"{"of":["a","b","c",80],"came":1,"members":[]}"#; MAX_ENTRIES + 1].join(",");
    assert!(said(format!(r#"{{"sighting":{{"checks":true,"entries":[{many}]}}}}"#).as_bytes()).is_err());
}

prop_compose! {
    /// With numbers that survive rounding.
    fn any_seen()(
        came in 0_u32..1_000_000,
        members in vec((0_u32..10_000, 0_u32..10_000, proptest::option::of(0_u64..60_000), any::<[bool; 2]>()), 0..4),
    ) -> Seen {
        let member = |(number, (home, answered, trip, [failing, ejected])): (usize, (u32, u32, Option<u64>, [bool; 2]))| {
            let (home_of, answered) = (f64::from(home) / 8.0, f64::from(answered) / 8.0);
            (cluster(number), MemberSeen { home_of, answered, round_trip: trip.map(Duration::from_millis), failing, ejected })
        };
        Seen { came: f64::from(came) / 8.0, members: members.into_iter().enumerate().map(member).collect() }
    }
}

proptest! {
    #[test]
    fn what_is_said_is_heard(checks: bool, seen in vec(any_seen(), 0..5)) {
        let entries: Vec<_> = (0..).map(destination).zip(seen).collect();
        let sighting = Sighting { checks, entries };
        let line = say(Some(&sighting), &[], None);
        prop_assert_eq!(line.iter().position(|octet| *octet == b'\n'), Some(line.len() - 1));
        let came = said(line.trim_ascii_end()).unwrap().sighting.unwrap();
        prop_assert_eq!(came.checks, checks);
        for ((to, seen), (came_to, came)) in sighting.entries.iter().zip(&came.entries) {
            prop_assert_eq!((to, seen.came, seen.members.len()), (came_to, came.came, came.members.len()));
            for ((name, seen), (came_name, came)) in seen.members.iter().zip(&came.members) {
                let near = |one: Option<Duration>, other: Option<Duration>| {
                    one.unwrap_or_default().abs_diff(other.unwrap_or_default()) < Duration::from_micros(2)
                };
                prop_assert!(near(seen.round_trip, came.round_trip) && seen.round_trip.is_some() == came.round_trip.is_some());
                let seen = MemberSeen { round_trip: came.round_trip, ..*seen };
                prop_assert_eq!((name, &seen), (came_name, came));
            }
        }
        prop_assert_eq!(came.entries.len(), sighting.entries.len());
    }

    #[test]
    fn nothing_that_comes_makes_us_panic(text in vec(any::<u8>(), 0..200), cut in 0_usize..2000, with: u8) {
        _ = (said(&text), told(&text).is_ok());
        let at = now();
        let good = Tables { at, by_destination: HashMap::from([(destination(1), Arc::new(table(at)))]) };
        let mut line = tables(&good, &"gw-0".parse().unwrap()).to_vec();
        let cut = cut % line.len();
        line[cut] = with;
        _ = told(&line).is_ok();
        _ = told(&line[..cut]).is_ok();
        let peer = super::super::Peer { name: "gw".parse().unwrap(), role: super::super::Role::All };
        let mut line = replicas(&Replicas(vec![(peer, Arc::new(replica(3)))])).to_vec();
        let cut = cut % line.len();
        line[cut] = with;
        _ = told(&line).is_ok();
        _ = told(&line[..cut]).is_ok();
    }
}
