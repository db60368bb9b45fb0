//! Clients that take their time.

use std::time::{Duration, Instant};

use web::{Limits, Settings, Timeouts};

use crate::backend::{Recorder, scripted};
use crate::downgrade::{GET, Outcome, Raw};
use crate::fixture::{Front, Site};

fn hasty() -> Settings {
    let timeouts = Timeouts {
        opening: Duration::from_millis(300),
        head: Duration::from_millis(300),
        idle: Duration::from_millis(600),
        body: Duration::from_millis(500),
        ..Timeouts::default()
    };
    Settings { threads: 1, timeouts, ..Settings::default() }
}

#[test]
fn heads_that_do_not_come_are_not_waited_for() {
    let recorder = Recorder::start();
    let front = Front::with(Site::new("shop.test", &[recorder.address]).table(), &hasty());
    // Nothing at all, on both doors and in both protocols.
    let mut silent = front.connect();
    assert!(silent.hear().is_none());
    let mut silent = crate::fixture::Client::to(front.https);
    assert!(silent.hear().is_none());
    let mut silent = Raw::connect(&front);
    assert!(matches!(silent.outcome(1), Outcome::GoAway | Outcome::Closed));
    // Half a head, and then a line now and then: what counts is when it began.
    let mut slow = front.connect();
    slow.say("GET / HTTP/1.1\r\nhost: shop.test\r\n");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(250) {
        slow.say("x: y\r\n");
        std::thread::sleep(Duration::from_millis(50));
    }
    let answer = slow.hear().unwrap();
    assert_eq!((answer.status, answer.code()), (408, Some("HeadTimeout")));
    assert!(slow.hear().is_none());
    // The same for a later one on a connection that was good until then.
    let mut late = front.connect();
    late.say("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    assert_eq!(late.hear().unwrap().status, 200);
    late.say("GET / HTTP/1.1\r\n");
    assert_eq!(late.hear().unwrap().code(), Some("HeadTimeout"));
    assert_eq!(recorder.requests().len(), 1);
}

#[test]
fn connections_that_rest_are_closed_in_the_end() {
    let recorder = Recorder::start();
    let front = Front::with(Site::new("shop.test", &[recorder.address]).table(), &hasty());
    let mut client = front.connect();
    client.say("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    assert_eq!(client.hear().unwrap().status, 200);
    let begin = Instant::now();
    assert!(client.hear().is_none());
    assert!(begin.elapsed() >= Duration::from_millis(500), "{:?}", begin.elapsed());
    let mut client = Raw::connect(&front);
    client.headers(1, &GET, true);
    assert_eq!(client.outcome(1), Outcome::Status(Some(200)));
    assert_eq!(client.outcome(3), Outcome::GoAway);
}

/// A slow answer is no rest.
#[test]
fn answers_may_take_longer_than_rests() {
    let member = crate::backend::serve(None, |_| async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        http::Response::new(crate::backend::text("late"))
    });
    let front = Front::with(Site::new("shop.test", &[member]).table(), &hasty());
    let mut client = front.connect();
    client.say("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    assert_eq!(client.hear().unwrap().body, "late");
    let mut client = Raw::connect(&front);
    client.headers(1, &GET, true);
    assert_eq!(client.outcome(1), Outcome::Status(Some(200)));
}

#[test]
fn bodies_have_to_keep_a_pace() {
    let recorder = Recorder::start();
    let limits = Limits { body_pace: 1000, ..Limits::default() };
    let front = Front::with(Site::new("shop.test", &[recorder.address]).table(), &Settings { limits, ..hasty() });
    let head = "POST / HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 10000\r\n\r\n";
    // One that stops.
    let mut client = front.connect();
    client.say(format!("{head}hello"));
    assert_eq!(client.hear().unwrap().code(), Some("SlowBody"));
    // One that sends an octet whenever it would be given up: it is too slow on average.
    let mut client = front.connect();
    client.say(head);
    let begin = Instant::now();
    client.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut octet = [0];
    while let Err(error) = client.0.peek(&mut octet) {
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
        client.say("x");
    }
    assert_eq!(client.hear().unwrap().code(), Some("SlowBody"));
    assert!(begin.elapsed() >= Duration::from_millis(500), "{:?}", begin.elapsed());
    assert!(recorder.requests().is_empty());
    // And in HTTP/2.
    let mut client = Raw::connect(&front);
    client.headers(1, &[&[(":method", "POST")], &GET[1..]].concat(), false);
    client.data(1, b"hello", false);
    assert_eq!(client.outcome(1), Outcome::Status(None));
    assert_eq!(front.metric(r#"fleetgate_web_refusals_total{door="http",code="SlowBody"}"#), 3);
}

/// Many silent connections keep nobody out: the oldest go.
#[test]
fn silent_crowds_keep_nobody_out() {
    let recorder = Recorder::start();
    let limits = Limits { openings: 20, openings_per_source: 10, ..Limits::default() };
    let settings = Settings { threads: 1, limits, ..Settings::default() };
    let front = Front::with(Site::new("shop.test", &[recorder.address]).table(), &settings);
    let mut crowd: Vec<_> = (0..30).map(|_| front.connect()).collect();
    let mut honest = front.connect();
    honest.say("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    assert_eq!(honest.hear().unwrap().status, 200);
    // The first of them have gone, and the last are still welcome.
    assert!(crowd[0].hear().is_none());
    let last = crowd.last_mut().unwrap();
    last.say("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    assert_eq!(last.hear().unwrap().status, 200);
    let refused = front.metric(r#"fleetgate_web_refusals_total{door="http",code="TooManyOpeningsOfSource"}"#);
    assert_eq!(refused, 21);
}

#[test]
fn a_full_door_takes_no_more() {
    let recorder = Recorder::start();
    let limits = Limits { connections: 5, ..Limits::default() };
    let settings = Settings { threads: 2, limits, ..Settings::default() };
    let front = Front::with(Site::new("shop.test", &[recorder.address]).table(), &settings);
    let request = "GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n";
    let mut inside: Vec<_> = (0..5).map(|_| front.connect()).collect();
    for client in &mut inside {
        client.say(request);
        assert_eq!(client.hear().unwrap().status, 200);
    }
    let mut outside = front.connect();
    assert!(outside.hear().is_none());
    assert_eq!(front.metric(r#"fleetgate_web_refusals_total{door="http",code="TooManyConnections"}"#), 1);
    inside.pop();
    front.wait_for_metric(r#"fleetgate_web_open_connections{door="http"}"#, 4);
    let mut next = front.connect();
    next.say(request);
    assert_eq!(next.hear().unwrap().status, 200);
}

#[test]
fn members_that_do_not_answer_are_given_up() {
    let silent = scripted(&[b"", b""]);
    let mut site = Site::new("shop.test", &[silent]);
    site.options.request_timeout = Duration::from_millis(300);
    let front = Front::with(site.table(), &Settings { threads: 1, ..Settings::default() });
    let mut client = front.connect();
    client.say("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.code()), (504, Some("AnswerTimeout")));
    // From the last octet of a request on: a slow body is no slow answer.
    let mut client = front.connect();
    client.say("POST / HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 5\r\n\r\n");
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    client.say("hello");
    assert_eq!(client.hear().unwrap().status, 504);
    assert!(begin.elapsed() >= Duration::from_millis(250), "{:?}", begin.elapsed());
}

/// Responses that nobody takes: HTTP/2 has windows of its own, which the kernel knows nothing of.
#[test]
fn responses_that_nobody_takes_are_not_kept() {
    let large = crate::backend::serve(None, |_| async { http::Response::new(crate::backend::text(vec![0; 8 << 20])) });
    let mut settings = hasty();
    settings.timeouts.untaken = Duration::from_millis(500);
    let front = Front::with(Site::new("shop.test", &[large]).table(), &settings);
    let mut client = Raw::connect(&front);
    client.headers(1, &GET, true);
    assert_eq!(client.outcome(1), Outcome::Status(Some(200)));
    // The window of 64 KiB is never widened.
    assert!(matches!(client.outcome(3), Outcome::GoAway | Outcome::Closed));
    front.wait_for_metric(r#"fleetgate_web_refusals_total{door="http",code="Untaken"}"#, 1);
    front.wait_for_metric("fleetgate_web_upstream_connections", 0);
    // In HTTP/1 it is the kernel that notices.
    let mut client = front.connect();
    client.say("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    client.until("\r\n\r\n");
    front.wait_for_metric(r#"fleetgate_web_open_connections{door="http"}"#, 0);
}
