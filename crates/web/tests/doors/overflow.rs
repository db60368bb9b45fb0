//! What a table of the overflow does to requests, whichever way they go through the doors.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::overflow::{Basis, Destination, Edge, Origin, Room, Tables, pour};
use model::{ClusterName, Timestamp};
use web::Settings;

use crate::backend::Recorder;
use crate::fixture::{Front, Site, wait_for};

/// The short way, and hyper's.
const WAYS: [&str; 2] =
    ["GET /x HTTP/1.1\r\nhost: shop.test\r\n\r\n", "GET /x HTTP/1.1\r\nhost: shop.test\r\nte: trailers\r\n\r\n"];

fn cluster(number: usize) -> ClusterName {
    format!("c{number}").parse().unwrap()
}

/// One second's: members can take so much, of 100 requests/s for each that has its turn.
fn tables(front: &Front, rates: &[f64], second: u64) -> Arc<Tables> {
    let table = front.table.load();
    let entry = table.entries().next().unwrap();
    let room = |rate: f64| Room { rate, most: rate, basis: Basis::Measured, out: None };
    let rooms: BTreeMap<_, _> = rates.iter().enumerate().map(|(number, rate)| (cluster(number), room(*rate))).collect();
    let edge = |home: usize| {
        let ring = |number: usize| u32::from(number != home);
        let rings = (0..rates.len()).map(|number| (cluster(number), ring(number))).collect();
        let origin = Origin { edge: "front".parse().unwrap(), home: Some(cluster(home)) };
        (origin, Edge { demand: 100.0, rings })
    };
    let at = Timestamp(second * 1_000_000_000);
    let table = pour(&(0..rates.len()).map(edge).collect(), &rooms, None, at).unwrap();
    let by_destination = [(Destination::from(&**entry), Arc::new(table))].into();
    Arc::new(Tables { at, by_destination })
}

#[test]
fn requests_go_by_the_table_and_what_fits_nowhere_is_refused() {
    for request in WAYS {
        let (small, large) = (Recorder::start(), Recorder::start());
        let settings = Settings { threads: 1, edge: Some("front".parse().unwrap()), ..Settings::default() };
        let front = Front::with(Site::new("shop.test", &[small.address, large.address]).table(), &settings);
        let sights = front.running.as_ref().unwrap().sights();
        let ask = |count: usize| {
            let answers = (0..count).map(|_| {
                let mut client = front.connect();
                client.say(request);
                client.hear().unwrap()
            });
            answers.collect::<Vec<_>>()
        };
        // By turns, and it is told what came.
        assert!(ask(20).iter().all(|answer| answer.status == 200));
        assert_eq!((small.requests().len(), large.requests().len()), (10, 10));
        let seen = sights.take();
        let (_, seen) = &seen.entries[0];
        let answered = |number: usize| seen.members[number].1.answered / seen.came;
        assert!((answered(0) - 0.5).abs() < 1e-9 && (answered(1) - 0.5).abs() < 1e-9, "{seen:?}");

        // The first has room for a fifth of its own, and the second for the rest of them.
        settings.tables.store(tables(&front, &[20.0, 500.0], 1));
        let capacity = |rate: &str| {
            let metrics = front.metrics();
            let name = r#"fleetgate_web_member_capacity{ingress="acme/web",cluster="c1",basis="Measured"} "#;
            metrics.lines().any(|line| line.strip_prefix(name) == Some(rate))
        };
        wait_for("the table counts", || capacity("500.0"));
        assert!(ask(100).iter().all(|answer| answer.status == 200));
        let (first, second) = (small.requests().len() - 10, large.requests().len() - 10);
        assert!((8..=12).contains(&first) && first + second == 100, "{first} and {second}");

        // Both have room for half of it.
        settings.tables.store(tables(&front, &[50.0, 50.0], 2));
        wait_for("the next table counts", || capacity("50.0"));
        let answers = ask(100);
        let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
        assert!((45..=55).contains(&refused.len()), "{} were refused", refused.len());
        for answer in &refused {
            assert_eq!((answer.status, answer.code()), (503, Some("AllFull")));
            assert!(
                (1..=4).contains(&answer.header("retry-after").unwrap().parse::<u32>().unwrap()),
                "{}",
                answer.head
            );
        }
        let count = |name: &str| front.metric(name);
        let refused = u64::try_from(refused.len()).unwrap();
        assert_eq!(count(r#"fleetgate_web_shed_total{ingress="acme/web"}"#), refused);
        assert_eq!(count(r#"fleetgate_web_refusals_total{door="http",code="AllFull"}"#), refused);
        front.wait_for_metric(
            r#"fleetgate_web_requests_total{ingress="acme/web",code="5xx",protocol="http/1"}"#,
            refused,
        );
        // What was refused came, too.
        let seen = sights.take();
        let (_, seen) = &seen.entries[0];
        let answered: f64 = seen.members.iter().map(|(_, member)| member.answered).sum();
        let homes: f64 = seen.members.iter().map(|(_, member)| member.home_of).sum();
        assert!((answered / seen.came - 0.75).abs() < 0.03 && (homes / seen.came - 1.0).abs() < 1e-9, "{seen:?}");
    }
}
