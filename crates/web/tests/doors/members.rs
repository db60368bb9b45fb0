//! Which member gets a request, and which requests get another one.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use web::{Limits, Settings};

use crate::backend::{Recorder, scripted};
use crate::fixture::{Front, Site, wait_for};

/// Where nobody listens.
fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn one_thread() -> Settings {
    Settings { threads: 1, ..Settings::default() }
}

const GET: &str = "GET /x HTTP/1.1\r\nhost: shop.test\r\n\r\n";
const POST: &str = "POST /x HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 5\r\n\r\nhello";
const PUT: &str = "PUT /x HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 5\r\n\r\nhello";
const DELETE: &str = "DELETE /x HTTP/1.1\r\nhost: shop.test\r\n\r\n";
const EMPTY_POST: &str = "POST /x HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 0\r\n\r\n";

/// What a bad member does, what is asked, and whether a good one may be asked as well.
#[test]
fn only_safe_failures_are_tried_again() {
    let hangs_up = || scripted(&[]);
    let says_503 = || scripted(&[b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"]);
    for (bad, request, name, expected) in [
        // Nobody has seen anything of it.
        (closed(), GET, "refused, GET", 200),
        (closed(), POST, "refused, POST", 200),
        (closed(), PUT, "refused, PUT", 200),
        // Somebody may have: only what may be done twice.
        (hangs_up(), GET, "hung up, GET", 200),
        (hangs_up(), DELETE, "hung up, DELETE", 200),
        (hangs_up(), POST, "hung up, POST", 502),
        (hangs_up(), EMPTY_POST, "hung up, empty POST", 502),
        (hangs_up(), PUT, "hung up, PUT with a body", 502),
        // An answer is an answer.
        (says_503(), GET, "503, GET", 503),
    ] {
        let good = Recorder::start();
        // Each twice, so that both come first once.
        let front = Front::with(Site::new("shop.test", &[bad, good.address]).table(), &one_thread());
        let mut statuses = Vec::new();
        for _ in 0..2 {
            let mut client = front.connect();
            client.say(request);
            statuses.push(client.hear().unwrap().status);
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [200, expected], "{name}");
        let retries = front.metric(r#"fleetgate_web_retries_total{ingress="acme/web"}"#);
        assert_eq!(retries, u64::from(expected == 200), "{name}");
    }
}

#[test]
fn at_most_two_others_are_asked() {
    let good = Recorder::start();
    let site = Site::new("shop.test", &[closed(), closed(), closed(), closed(), closed()]);
    let front = Front::with(site.table(), &one_thread());
    let mut client = front.connect();
    client.say(GET);
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.code()), (502, Some("Unreachable")));
    assert!(!answer.body.contains("127.0.0.1"), "{}", answer.body);
    assert_eq!(front.metric("fleetgate_web_upstream_connects_total"), 3);
    front.table.store(std::sync::Arc::new(Site::new("shop.test", &[]).table()));
    client.say(GET);
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.code(), answer.header("retry-after")), (503, Some("NoMember"), Some("1")));
    assert!(good.requests().is_empty());
}

#[test]
fn members_take_turns_and_bad_ones_are_put_aside() {
    let (first, second) = (Recorder::start(), Recorder::start());
    let front = Front::with(Site::new("shop.test", &[first.address, closed(), second.address]).table(), &one_thread());
    let mut client = front.connect();
    for _ in 0..60 {
        client.say(GET);
        assert_eq!(client.hear().unwrap().status, 200);
    }
    // Five failures are enough: one more connection each, and none after that.
    assert_eq!(front.metric(r#"fleetgate_web_retries_total{ingress="acme/web"}"#), 5);
    let (first, second) = (first.requests().len(), second.requests().len());
    assert_eq!(first + second, 60);
    assert!(first.abs_diff(second) <= 10, "{first} and {second}");
}

/// Under load a member goes away: nobody notices who asks for what may be done twice.
#[test]
fn a_member_that_dies_under_load_costs_no_answer() {
    let stays = Recorder::start();
    let dies = Recorder::start();
    let front = std::sync::Arc::new(Front::with(
        Site::new("shop.test", &[stays.address, dies.address]).table(),
        &Settings { threads: 2, ..Settings::default() },
    ));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let address = front.http;
            std::thread::spawn(move || {
                let mut client = crate::fixture::Client::to(address);
                (0..200)
                    .filter(|_| {
                        client.say(GET);
                        client.hear().unwrap().status != 200
                    })
                    .count()
            })
        })
        .collect();
    wait_for("some load", || dies.requests().len() > 100);
    dies.kill();
    let failed: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert_eq!(failed, 0);
    assert!(stays.requests().len() + dies.requests().len() >= 1600);
}

#[test]
fn connections_to_members_are_used_again_and_closed_when_they_rest() {
    let recorder = Recorder::start();
    let mut settings = one_thread();
    settings.timeouts.pooled = Duration::from_millis(500);
    let front = Front::with(Site::new("shop.test", &[recorder.address]).table(), &settings);
    let mut client = front.connect();
    for _ in 0..20 {
        client.say(POST);
        assert_eq!(client.hear().unwrap().body, "/x hello");
        // The next request may be faster than the end of the last.
        front.wait_for_metric("fleetgate_web_upstream_connections", 1);
    }
    let connections: std::collections::BTreeSet<_> =
        recorder.requests().iter().map(|request| request.connection).collect();
    assert!(connections.len() <= 3, "{connections:?}");
    front.wait_for_metric("fleetgate_web_upstream_connections", 0);
    client.say(POST);
    assert_eq!(client.hear().unwrap().status, 200);
}

/// The pool's own race: a member closes a connection just as it is used again. Nobody hears of it.
#[test]
fn a_connection_that_ended_while_it_rested_is_no_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let closing = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let front = Front::with(Site::new("shop.test", &[closing]).table(), &one_thread());
    let mut client = front.connect();
    for _ in 0..50 {
        client.say(GET);
        assert_eq!(client.hear().unwrap().status, 200);
    }
}

#[test]
fn connections_to_members_have_a_bound() {
    let silent = scripted(&[b"", b""]);
    let limits = Limits { upstream_per_address: 3, ..Limits::default() };
    let front = Front::with(Site::new("shop.test", &[silent]).table(), &Settings { limits, ..one_thread() });
    let mut waiting: Vec<_> = (0..3).map(|_| front.connect()).collect();
    for client in &mut waiting {
        client.say(GET);
    }
    front.wait_for_metric("fleetgate_web_upstream_connections", 3);
    let mut client = front.connect();
    client.say(GET);
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.code(), answer.header("retry-after")), (503, Some("UpstreamBusy"), Some("1")));
    // Clients that go take their connections along.
    drop(waiting);
    front.wait_for_metric("fleetgate_web_upstream_connections", 0);
}

/// A client that goes in the middle of a response: its connection to the member is not used again.
#[test]
fn a_response_that_was_not_read_is_not_somebody_else_s() {
    let member = scripted(&[
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of somebody's",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong",
    ]);
    let front = Front::with(Site::new("shop.test", &[member]).table(), &one_thread());
    let mut client = front.connect();
    client.say(GET);
    client.until("half of somebody's");
    drop(client);
    front.wait_for_metric("fleetgate_web_upstream_connections", 0);
    let mut other = front.connect();
    other.say(GET);
    other.until("half of somebody's");
}
