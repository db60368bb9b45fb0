//! kill -9 at any moment, and a folder that is broken when it comes back.

use model::serial::is_newer;

use crate::server::{BASE, Fleet, Server, cluster, nowhere};

#[test]
fn the_last_good_state_survives_kill_9_and_a_broken_folder() {
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let mut acknowledged = 0;
    // Each round kills the server in the middle of a storm of saves, a little later than the round before.
    for round in 1..=5_u8 {
        let mut server = fleet.serve();
        let target = acknowledged + round * 3;
        for node in acknowledged + 1..=target {
            fleet.write("c1.yaml", &cluster("c1", nowhere(), node));
        }
        server.until("some of the storm", |server| {
            let answer = server.resolve("x.c1.fleet.example", "A");
            let seen = answer.first().and_then(|address| address.rsplit('.').next()?.parse::<u8>().ok());
            acknowledged = acknowledged.max(seen.unwrap_or(0));
            acknowledged > target - round * 3
        });
        server.process.signal("KILL").unwrap();
        drop(server);

        fleet.write("c1.yaml", "kind: [broken");
        let server = fleet.serve();
        let answer = server.resolve("x.c1.fleet.example", "A");
        let kept: u8 = answer[0].rsplit('.').next().unwrap().parse().unwrap();
        assert!(kept >= acknowledged, "round {round}: 198.51.100.{acknowledged} was answered, now it is {kept}");
        assert_eq!(server.get_json(&["refusals"])["files"][0]["file"], "c1.yaml");
        server.terminate();
        acknowledged = kept;
    }
}

#[test]
fn nodes_that_went_while_nobody_looked_keep_their_addresses_for_the_grace_time() {
    let ready = cluster("c1", nowhere(), 11);
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &ready)]);
    fleet.serve().terminate();
    fleet.write("c1.yaml", &ready.replace("11]", "11], ready: false"));
    let server = fleet.serve();
    assert_eq!(server.resolve("a.c1.fleet.example", "A"), ["198.51.100.11"]);
    let conditions = server.get_json(&["cluster", "c1"])["status"]["conditions"].to_string();
    assert!(conditions.contains("\"reason\":\"Grace\""), "{conditions}");
    server.terminate();
}

fn serial(server: &Server) -> u32 {
    server.resolve("fleet.example", "SOA")[0].split(' ').nth(2).unwrap().parse().unwrap()
}

#[test]
fn serials_never_go_back() {
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let (mut last, mut node) = (None, 0_u8);
    for round in 0..5 {
        let mut server = fleet.serve();
        let first = serial(&server);
        assert!(last.is_none_or(|last| is_newer(first, last)), "round {round}: {first} after {last:?}");
        // A storm of changes, several in a second; the server is killed after having answered with one of the last.
        let before = first;
        for _ in 0..10 {
            node += 1;
            fleet.write("c1.yaml", &cluster("c1", nowhere(), node));
        }
        server.until("some of the storm", |server| is_newer(serial(server), before));
        last = Some(serial(&server));
        server.process.signal("KILL").unwrap();
    }
    // Ended in order, nothing is skipped: the same content has the same serial again.
    let server = fleet.serve();
    let settled = serial(&server);
    server.terminate();
    let server = fleet.serve();
    assert_eq!(serial(&server), settled);
    server.terminate();
}
