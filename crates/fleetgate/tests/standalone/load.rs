//! Load reports at the agents' door of the real binary: what is taken, what is dropped, and what ends a stream.

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agents::client::{Agent, Answer, Bootstrap, Shown};
use crate::agents::{credential, fleet, issue, serve};
use crate::server::{PATIENCE, Server};

/// A request whose body is sent bit by bit.
pub(crate) struct Stream(Agent);

impl Stream {
    pub(crate) fn begin(bootstrap: &Bootstrap, shown: &Shown) -> Self {
        let mut agent = bootstrap.connect(Some(shown)).unwrap();
        let head = "POST /v1/load HTTP/1.1\r\nhost: agents\r\ntransfer-encoding: chunked\r\n\r\n";
        agent.stream.get_mut().write_all(head.as_bytes()).unwrap();
        agent.stream.get_mut().flush().unwrap();
        Self(agent)
    }

    fn try_send(&mut self, text: &str) -> std::io::Result<()> {
        let stream = self.0.stream.get_mut();
        write!(stream, "{:x}\r\n{text}\r\n", text.len())?;
        stream.flush()
    }

    fn send(&mut self, text: &str) {
        self.try_send(text).unwrap();
    }

    pub(crate) fn line(&mut self, services: &Value) {
        self.send(&format!("{}\n", json!({ "services": services })));
    }

    /// What the door says, whenever that is.
    fn answer(mut self) -> Answer {
        self.0.receive().unwrap()
    }

    fn end(mut self) -> Answer {
        self.0.stream.get_mut().write_all(b"0\r\n\r\n").unwrap();
        self.answer()
    }
}

fn web(served: f64) -> Value {
    json!({ "namespace": "shop", "name": "web", "served": served, "utilization": 0.71, "ready": 10 })
}

fn shown(server: &Server) -> Vec<Value> {
    let (status, text) = server.http("/v1/load", "localhost");
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["items"].as_array().unwrap().clone()
}

/// What is said of shop/web in a cluster.
fn served(server: &Server, cluster: &str) -> Option<f64> {
    let items = shown(server);
    let of = items.iter().find(|item| item["cluster"] == cluster && item["name"] == "web")?;
    of["served"].as_f64()
}

fn metric(server: &Server, line: &str) -> u64 {
    let (_, text) = server.http("/metrics", "localhost");
    text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok()).unwrap_or_default()
}

#[test]
fn what_an_agent_reports_is_seen_at_once_and_of_its_own_cluster() {
    let fleet = fleet();
    let mut server = serve(&fleet);
    let (mine, theirs) = (issue(&fleet, &server, "c1", &[]), issue(&fleet, &server, "c2", &[]));
    let shown_by_us = mine.enrolled();
    let mut stream = Stream::begin(&mine, &shown_by_us);
    let mut other = Stream::begin(&theirs, &theirs.enrolled());
    stream.line(&json!([web(123.4)]));
    let took = server.until("the report is seen", |server| served(server, "c1") == Some(123.4));
    assert!(took < Duration::from_secs(1), "{took:?}");
    other.line(&json!([web(7.0)]));
    server.until("the other's, too", |server| served(server, "c2") == Some(7.0));
    let items = shown(&server);
    assert_eq!(items.len(), 2, "{items:?}");
    assert_eq!(
        (&items[0]["namespace"], &items[0]["utilization"], &items[0]["ready"]),
        (&json!("shop"), &json!(0.71), &json!(10))
    );
    let (_, text) = server.http("/v1/load?cluster=c2", "localhost");
    assert!(text.contains("c2") && !text.contains("c1"), "{text}");
    assert_eq!(metric(&server, "fleetgate_agents_load_streams"), 2);

    // However it is split, and the others of a line in spite of a bad one.
    let rows = json!([
        web(200.0),
        { "namespace": "shop", "name": "null", "served": null, "utilization": 0.5, "ready": 1 },
        { "namespace": "shop", "name": "less", "served": -1, "utilization": 0.5, "ready": 1 },
        { "namespace": "shop", "name": "more", "served": 1e12, "utilization": 0.5, "ready": 1 },
        { "namespace": "shop", "name": "none", "served": 1, "utilization": 0.5, "ready": -1 },
        { "namespace": "../c2", "name": "web", "served": 1, "utilization": 0.5, "ready": 1 },
        { "namespace": "shop", "name": "last", "served": 1, "utilization": 0, "ready": 0 },
    ]);
    let text = format!("{}\n", json!({ "services": rows }));
    let (one, two) = text.split_at(text.len() / 2);
    stream.send(one);
    stream.send(two);
    server.until("the good ones are taken", |server| shown(server).len() == 3 && served(server, "c1") == Some(200.0));
    assert_eq!(served(&server, "c2"), Some(7.0));
    for (code, count) in [("ReportNotFinite", 1), ("ReportNegative", 2), ("ReportTooLarge", 1), ("BadName", 1)] {
        let line = format!("fleetgate_agents_load_reports_total{{outcome=\"{code}\"}}");
        assert_eq!(metric(&server, &line), count, "{code}");
    }
    // Lines are no requests: the bucket of those is still full.
    let mut asking = mine.connect(Some(&shown_by_us)).unwrap();
    for _ in 0..150 {
        assert_eq!(asking.get("/v1/cluster").status, 200);
    }
    let answer = stream.end();
    assert_eq!(
        (answer.status, answer.json()),
        (200, json!({ "lines": 2, "reports": 3, "dropped": 5 })),
        "{}",
        answer.text
    );
    server.until("the stream has ended", |server| metric(server, "fleetgate_agents_load_streams") == 1);
    assert_eq!(served(&server, "c1"), Some(200.0), "what was said stays for a while");
    server.terminate();
}

#[test]
fn bad_lines_end_the_stream_with_a_reason() {
    let fleet = fleet();
    let server = serve(&fleet);
    let issued = issue(&fleet, &server, "c1", &[]);
    let credential = issued.enrolled();
    let many = json!({ "services": vec![web(1.0); 1001] }).to_string();
    let deep = "[".repeat(100_000);
    let foreign = json!({ "services": [{ "cluster": "c2", "namespace": "shop", "name": "web", "served": 1, "utilization": 0, "ready": 1 }] });
    for (line, status, code) in [
        ("", 400, "Malformed"),
        ("{}", 400, "Malformed"),
        ("[]", 400, "Malformed"),
        ("{\"services\":{}}", 400, "Malformed"),
        ("{\"services\":[{}]}", 400, "Malformed"),
        ("\0\0\0", 400, "Malformed"),
        (
            "{\"services\":[{\"namespace\":\"shop\",\"name\":\"web\",\"served\":NaN,\"utilization\":0,\"ready\":1}]}",
            400,
            "Malformed",
        ),
        (
            "{\"services\":[{\"namespace\":\"shop\",\"name\":\"web\",\"served\":1e999,\"utilization\":0,\"ready\":1}]}",
            400,
            "Malformed",
        ),
        (&foreign.to_string(), 400, "Malformed"),
        (&deep, 400, "Malformed"),
        (&many, 413, "TooLarge"),
        (&" ".repeat((256 << 10) + 1), 413, "TooLarge"),
    ] {
        let mut stream = Stream::begin(&issued, &credential);
        let _ = stream.try_send(&format!("{line}\n"));
        let begun = Instant::now();
        let answer = stream.answer();
        let start = &line[..line.len().min(80)];
        assert_eq!(answer.problem(), (status, code.into()), "{start}: {}", answer.text);
        assert!(begun.elapsed() < Duration::from_secs(4), "told at once, and not when the rest is read: {start}");
    }
    assert_eq!(shown(&server), Vec::<Value>::new());
    // Without a certificate there is no stream either.
    let mut stranger = issued.connect(None).unwrap();
    assert_eq!(stranger.send("POST", "/v1/load", "").problem(), (401, "NoCertificate".into()));
    server.terminate();
}

#[test]
fn who_is_too_fast_is_told_and_the_newer_of_two_streams_stays() {
    let fleet = fleet();
    let mut server = serve(&fleet);
    let issued = issue(&fleet, &server, "c1", &[]);
    let credential = issued.enrolled();
    // Some at once are a slow network: the first are read, and nobody is cut off.
    let mut bunch = Stream::begin(&issued, &credential);
    bunch.send(&format!("{}\n", json!({ "services": [] })).repeat(20));
    let answer = bunch.end();
    assert_eq!(answer.status, 200, "{}", answer.text);
    let summary = answer.json();
    assert_eq!(summary["lines"].as_u64().unwrap() + summary["dropped"].as_u64().unwrap(), 20, "{summary}");
    assert!(summary["lines"].as_u64().unwrap() < 10, "{summary}");
    let mut fast = Stream::begin(&issued, &credential);
    fast.send(&format!("{}\n", json!({ "services": [] })).repeat(200));
    let answer = fast.answer();
    assert_eq!(answer.problem(), (429, "TooFast".into()));
    assert!(answer.head.contains("retry-after: "), "{}", answer.head);

    let mut old = Stream::begin(&issued, &credential);
    old.line(&json!([web(1.0)]));
    server.until("the old one is heard", |server| served(server, "c1") == Some(1.0));
    let mut new = Stream::begin(&issued, &credential);
    new.line(&json!([web(2.0)]));
    assert_eq!(old.answer().problem(), (409, "Replaced".into()));
    server.until("the new one is heard", |server| served(server, "c1") == Some(2.0));
    assert_eq!(new.end().status, 200);
    server.terminate();
}

#[test]
fn silence_and_revocation_end_a_stream() {
    let fleet = fleet();
    let mut server = serve(&fleet);
    let (quiet, out) = (issue(&fleet, &server, "c2", &[]), issue(&fleet, &server, "c1", &[]));
    let (mut silent, mut revoked) = (Stream::begin(&quiet, &quiet.enrolled()), Stream::begin(&out, &out.enrolled()));
    silent.line(&json!([web(1.0)]));
    revoked.line(&json!([web(2.0)]));
    server.until("both are heard", |server| served(server, "c1") == Some(2.0) && served(server, "c2") == Some(1.0));
    // Octets that are no line do not keep it open.
    silent.send("{\"services\":");
    let begun = Instant::now();
    assert!(credential(&fleet, &server, &["revoke", out.id()]).status.success());
    assert_eq!(revoked.answer().problem(), (403, "Revoked".into()));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!(served(&server, "c1"), None, "and what it said counts no more");
    assert_eq!(silent.answer().problem(), (408, "TooSlow".into()));
    assert!(begun.elapsed() > Duration::from_secs(10) && begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    server.terminate();
}

#[test]
fn a_long_line_has_less_time_than_a_silent_stream() {
    let fleet = fleet();
    let server = serve(&fleet);
    let issued = issue(&fleet, &server, "c1", &[]);
    let mut slow = Stream::begin(&issued, &issued.enrolled());
    let begun = Instant::now();
    slow.send(&" ".repeat(20 << 10));
    assert_eq!(slow.answer().problem(), (408, "TooSlow".into()));
    assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "the place of a long line is not its for longer: {:?}",
        begun.elapsed()
    );
    server.terminate();
}
