//! The end of a process: what is under way is finished, and nothing new is begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::backend::{serve, text};
use crate::downgrade::{GET, Outcome, Raw};
use crate::fixture::{Client, Front, Site, wait_for};

/// With a member that takes its time, and how many requests it has seen.
fn slow(after: Duration) -> (Front, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let member = serve(None, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(after).await;
            http::Response::new(text("done"))
        }
    });
    (Front::start(Site::new("shop.test", &[member]).table()), seen)
}

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n";

#[test]
fn requests_under_way_are_finished_and_connections_told_to_end() {
    let (mut front, seen) = slow(Duration::from_millis(700));
    let (mut resting, mut busy) = (front.connect(), front.connect());
    resting.say(REQUEST);
    assert_eq!(resting.hear().unwrap().status, 200);
    let mut raw = Raw::connect(&front);
    raw.headers(1, &GET, true);
    busy.say(REQUEST);
    wait_for("three requests", || seen.load(Ordering::Relaxed) == 3);
    let running = front.running.take().unwrap();
    let begin = Instant::now();
    let draining = std::thread::spawn(move || running.drain(Duration::from_secs(20)));
    assert!(resting.hear().is_none(), "what rests ends at once");
    let answer = busy.hear().unwrap();
    assert_eq!((answer.body.as_str(), answer.header("connection")), ("done", Some("close")));
    assert!(busy.hear().is_none());
    assert_eq!(raw.outcome(1), Outcome::GoAway);
    assert_eq!(raw.outcome(1), Outcome::Status(Some(200)));
    drop(raw);
    draining.join().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(15), "nobody waits for nobody: {:?}", begin.elapsed());
    assert!(std::net::TcpStream::connect(front.http).is_err(), "nobody listens any more");
}

#[test]
fn what_takes_longer_than_the_deadline_is_cut() {
    let (mut front, seen) = slow(Duration::from_mins(1));
    let mut client = front.connect();
    client.say(REQUEST);
    wait_for("the request", || seen.load(Ordering::Relaxed) == 1);
    let begin = Instant::now();
    front.running.take().unwrap().drain(Duration::from_millis(300));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert!(client.hear().is_none());
}

/// Another process that has the same socket takes what comes from then on: no connection is refused in between.
#[test]
fn a_successor_takes_connections_from_the_same_socket() {
    let member = serve(None, |_| async { http::Response::new(text("done")) });
    let table = Arc::new(arc_swap::ArcSwap::from_pointee(Site::new("shop.test", &[member]).table()));
    let listener = web::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let start = |listener| {
        let doors = web::Doors { http: vec![listener], https: Vec::new() };
        let settings = web::Settings { threads: 1, ..web::Settings::default() };
        web::start(
            settings,
            doors,
            &table,
            &web::Metrics::register(&mut prometheus_client::registry::Registry::default()),
        )
        .unwrap()
    };
    let mut running = start(listener.try_clone().unwrap());
    for _ in 0..5 {
        let next = start(listener.try_clone().unwrap());
        let before = std::mem::replace(&mut running, next);
        let draining = std::thread::spawn(move || before.drain(Duration::from_secs(5)));
        for _ in 0..50 {
            let mut client = Client::to(address);
            client.say("GET / HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n");
            // One that the old process took just before may be closed unheard; it was never begun.
            if let Some(answer) = client.hear() {
                assert_eq!(answer.body, "done");
            }
        }
        draining.join().unwrap();
    }
}

/// A connection that changed its protocol is one still: it counts, and has its time at the end.
#[test]
fn tunnels_are_connections_until_they_end() {
    let mut front = Front::start(Site::new("shop.test", &[crate::streams::echo()]).table());
    let mut client = front.connect();
    client.say("GET / HTTP/1.1\r\nhost: shop.test\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    assert_eq!(client.hear().unwrap().status, 101);
    client.say("one");
    assert_eq!(client.exactly(3), b"one");
    assert_eq!(front.metric(r#"fleetgate_web_open_connections{door="http"}"#), 1);
    let running = front.running.take().unwrap();
    let draining = std::thread::spawn(move || running.drain(Duration::from_secs(20)));
    wait_for("the door to close", || std::net::TcpStream::connect(front.http).is_err());
    client.say("two");
    assert_eq!(client.exactly(3), b"two");
    assert!(!draining.is_finished());
    drop(client);
    let begin = Instant::now();
    draining.join().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!(front.metric(r#"fleetgate_web_open_connections{door="http"}"#), 0);
}
