//! Both ways of HTTP/1.1, the lean one and hyper's alone, on the same octets: members get the same, clients hear the same,
//! and connections end or go on alike.

use std::net::SocketAddr;
use std::sync::Arc;

use model::ingress::PathMatch;
use model::routes::{Host, HttpRoute, HttpTable};
use model::{DnsName, ObjectName};
use proptest::prelude::*;
use web::Settings;

use crate::backend::{Recorder, scripted};
use crate::fixture::{Client, Front, Site};

/// Asked behind everything else: whether the connection goes on. Who still waits for octets by then gets as many as it
/// needs, so that nothing has to be waited for.
const PROBE: &str = "GET /probe HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n";
const FILLER: usize = 2048;

/// A door of each kind.
struct Both {
    lean: Front,
    hyper: Front,
}

/// What became of some octets.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// Status, fields and body of each answer.
    heard: Vec<(u16, Vec<String>, String)>,
    /// Head, fields and body of each request that a member got.
    reached: Vec<(String, Vec<String>, Vec<u8>)>,
}

impl Both {
    fn start(table: &HttpTable) -> Self {
        let front = |is_lean| Front::with(table.clone(), &Settings { threads: 1, is_lean, ..Settings::default() });
        Self { lean: front(true), hyper: front(false) }
    }

    /// The octets in these pieces, on a connection of their own.
    fn compare(&self, pieces: &[&[u8]], recorders: &[&Recorder]) -> Outcome {
        let [lean, hyper] = [&self.lean, &self.hyper].map(|front| outcome(front.http, pieces, recorders));
        let said = || pieces.iter().map(|piece| String::from_utf8_lossy(piece).into_owned()).collect::<Vec<_>>();
        assert!(lean.agrees_with(&hyper), "{:?}\nlean: {lean:#?}\nhyper: {hyper:#?}", said());
        lean
    }
}

impl Outcome {
    /// The same, but for one thing that depends on the moment on either way: behind a request that was refused before its body
    /// had come, the body is skipped where it comes soon enough, and else the connection ends.
    fn agrees_with(&self, other: &Self) -> bool {
        let (short, long) = if self.heard.len() <= other.heard.len() { (self, other) } else { (other, self) };
        let is_refused = |(_, fields, _): &(u16, Vec<String>, String)| {
            fields.iter().any(|field| field.starts_with("fleetgate-refusal:"))
        };
        self == other
            || (short.heard.last().is_some_and(is_refused)
                && long.heard.starts_with(&short.heard)
                && long.reached.starts_with(&short.reached))
    }
}

fn outcome(door: SocketAddr, pieces: &[&[u8]], recorders: &[&Recorder]) -> Outcome {
    let before: Vec<usize> = recorders.iter().map(|recorder| recorder.requests().len()).collect();
    let mut client = Client::to(door);
    for piece in pieces {
        client.say_if_open(piece);
    }
    client.say_if_open([PROBE.as_bytes(), &[b'z'; FILLER], b"\r\n\r\n"].concat());
    let mut heard = Vec::new();
    while let Some(answer) = client.hear() {
        heard.push((answer.status, fields(&answer.head, &["date"]), answer.body));
    }
    let new = recorders.iter().zip(before).flat_map(|(recorder, before)| recorder.requests().split_off(before));
    let reached = new.map(|request| {
        let line = request.head.lines().next().unwrap_or_default().to_owned();
        // hyper leaves it out, which means the same.
        let fields = fields(&request.head, &[]).into_iter().filter(|field| field != "content-length: 0");
        (line, fields.collect(), request.body)
    });
    Outcome { heard, reached: reached.collect() }
}

/// In an order of their own, as theirs says nothing.
fn fields(head: &str, without: &[&str]) -> Vec<String> {
    let lines = head.lines().skip(1).filter(|line| !line.is_empty()).map(ToOwned::to_owned);
    let is_kept = |line: &String| !without.iter().any(|name| line.starts_with(&format!("{name}:")));
    let mut fields: Vec<String> = lines.filter(is_kept).collect();
    fields.sort_unstable();
    fields
}

/// Usual ones, and what is known to be taken for different things.
const REQUESTS: [&str; 52] = [
    "GET /a HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "GET /a?b=c&d HTTP/1.1\r\nHost: SHOP.test:8080\r\nUser-Agent: x\r\nAccept: */*\r\nCookie: a=b; c=d\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test.\r\nx-forwarded-for: 192.0.2.1\r\nX_Forwarded_Host: evil\r\nforwarded: for=x\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 5\r\ncontent-type: text/plain\r\n\r\nhello",
    "PUT /a HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 0\r\n\r\n",
    "DELETE /a HTTP/1.1\r\nhost: shop.test\r\nconnection: keep-alive\r\nkeep-alive: timeout=5\r\n\r\n",
    "PATCH /a HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 2\r\n\r\n{}",
    "OPTIONS /a HTTP/1.1\r\nhost: shop.test\r\naccess-control-request-method: POST\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\nGET /b HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\n\r\nGET /b HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nconnection: x-mine\r\nx-mine: 1\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nconnection: close, cookie\r\ncookie: a\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\ncookie: a\r\ncookie: b\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nte: trailers\r\nproxy-authorization: x\r\nhttp2-settings: x\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nfleetgate-hops: 1\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nfleetgate-hops: 4\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nx: \t y \t\r\nempty:\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: nobody.test\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    "GET /a HTTP/1.1\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost:\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nhost: shop.test\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: user@shop.test\r\n\r\n",
    "GET http://shop.test/a HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "GET http://other.test/a HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "GET /a|b{c} HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "GET /a%zz%00/../b HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "GET //a HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "GET /a? HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "GET /a HTTP/1.0\r\nhost: shop.test\r\n\r\n",
    "GET /a HTTP/1.0\r\nhost: shop.test\r\nconnection: keep-alive\r\n\r\n",
    "BREW /a HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "TRACE /a HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "\r\nGET /a HTTP/1.1\r\nhost: shop.test\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 5\r\n\r\nhello\r\n",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ntransfer-encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nx-t: 1\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 5, 5\r\n\r\nhello",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ncontent-length: +5\r\n\r\nhello",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 05\r\n\r\nhello",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ncontent-length : 5\r\n\r\nhello",
    "POST /a HTTP/1.1\r\nhost: shop.test\r\ntransfer-encoding: identity\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nx: y\r\n folded\r\n\r\n",
    "GET /a HTTP/1.1\nhost: shop.test\n\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nx: y\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nx: a\rb\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nupgrade: h2c\r\n\r\n",
    "GET /a HTTP/1.1\r\nhost: shop.test\r\nx: \u{80}\u{ff}\r\n\r\n",
];

#[test]
fn both_ways_do_the_same_with_every_request() {
    let recorder = Recorder::start();
    let both = Both::start(&Site::new("shop.test", &[recorder.address]).table());
    for request in REQUESTS {
        both.compare(&[request.as_bytes()], &[&recorder]);
        // However it comes.
        let (first, second) = request.as_bytes().split_at(request.len() / 2);
        both.compare(&[first, second], &[&recorder]);
        // And behind one that is usual, on a connection that was used before.
        both.compare(&[REQUESTS[0].as_bytes(), request.as_bytes()], &[&recorder]);
    }
}

/// Nothing above would fail if all of it took the same way.
#[test]
fn usual_requests_take_the_short_way_and_others_do_not() {
    /// By their numbers: the first few, and some that look odd but mean one thing.
    const USUAL: [usize; 18] = [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 17, 27, 28, 29, 34, 35, 43, 51];
    let recorder = Recorder::start();
    let both = Both::start(&Site::new("shop.test", &[recorder.address]).table());
    let handovers = r#"fleetgate_web_handovers_total{door="http"}"#;
    let mut expected = 0;
    for (number, request) in REQUESTS.iter().enumerate() {
        both.compare(&[request.as_bytes()], &[&recorder]);
        expected += u64::from(!USUAL.contains(&number));
        assert_eq!(both.lean.metric(handovers), expected, "{request:?}");
    }
    assert_eq!(both.hyper.metric(handovers), 0);
}

/// The table of `networking.k8s.io/v1`, by the ways of both.
#[test]
fn both_ways_lead_to_the_same_place() {
    let recorders: Vec<Recorder> = (0..5).map(|_| Recorder::start()).collect();
    let entry = |number: usize| {
        let table = Site::new("shop.test", &[recorders[number].address]).table();
        Arc::clone(table.host(&DnsName::parse("shop.test").unwrap()).unwrap().entry("/").unwrap())
    };
    let route = |path, number| HttpRoute { path, entry: entry(number) };
    let tenant: ObjectName = "acme".parse().unwrap();
    let routes = vec![
        route(PathMatch::Exact("/foo".into()), 0),
        route(PathMatch::Prefix("/foo".into()), 1),
        route(PathMatch::Prefix("/foo/bar/".into()), 2),
    ];
    let name = |text: &str| DnsName::parse(text).unwrap();
    let table = HttpTable::of([
        (name("shop.test"), Host::new(tenant.clone(), routes, Some(entry(3)), None)),
        (name("*.wild.test"), Host::new(tenant, vec![route(PathMatch::Prefix("/only".into()), 4)], None, None)),
    ]);
    let both = Both::start(&table);
    let recorders: Vec<&Recorder> = recorders.iter().collect();
    let mut answered = 0;
    for host in ["shop.test", "SHOP.TEST:80", "shop.test.", "a.wild.test", "a.b.wild.test", "wild.test", "other.test"] {
        for path in [
            "/foo",
            "/foo/",
            "/FOO",
            "/foo?q",
            "/foobar",
            "/foo/bar",
            "/foo/bar/baz",
            "/%66oo",
            "//foo",
            "/only/x",
            "/",
        ] {
            let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
            let outcome = both.compare(&[request.as_bytes()], &recorders);
            answered += usize::from(outcome.heard[0].0 == 200);
        }
    }
    assert_eq!(answered, 34);
}

/// What members say, and what clients hear of it.
#[test]
fn both_ways_carry_the_same_answers() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Mine: a\r\nX-Mine: b\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nserver: x\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: x-mine\r\nx-mine: 1\r\nkeep-alive: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nfleetgate-refusal: NoRoute\r\nproxy-authenticate: x\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n",
        "HTTP/1.1 404 Nothing Here\r\ncontent-length: 2\r\n\r\nno",
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nset-cookie: a=b\r\nset-cookie: c=d\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nx: y\r\n folded\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 2000 OK\r\ncontent-length: 0\r\n\r\n",
        "nonsense\r\n\r\n",
        "",
    ] {
        let answers: &'static [&'static [u8]] = Box::leak(Box::new([answer.as_bytes()]));
        let answers = if answer.is_empty() { &[] } else { answers };
        for method in ["GET", "POST"] {
            // It answers once on each connection.
            let both = Both::start(&Site::new("shop.test", &[scripted(answers)]).table());
            let request = format!("{method} /a HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n");
            let outcome = both.compare(&[request.as_bytes()], &[]);
            assert_eq!(outcome.heard.len(), 1, "{answer:?}");
        }
    }
}

#[derive(Debug, Clone)]
enum Mutation {
    Insert(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Replace(prop::sample::Index, u8),
    /// A line of another request, among these.
    Line(prop::sample::Index, prop::sample::Index, prop::sample::Index),
}

impl Mutation {
    fn apply(&self, octets: &mut Vec<u8>) {
        match self {
            Self::Insert(at, octet) => octets.insert(at.index(octets.len() + 1), *octet),
            Self::Remove(at) => _ = octets.remove(at.index(octets.len())),
            Self::Replace(at, octet) => {
                let at = at.index(octets.len());
                octets[at] = *octet;
            }
            Self::Line(request, line, at) => {
                let lines: Vec<&str> = request.get(&REQUESTS).split_inclusive("\r\n").collect();
                let starts = octets.windows(2).enumerate().filter(|(_, two)| *two == b"\r\n").map(|(at, _)| at + 2);
                let starts: Vec<usize> = starts.collect();
                if !starts.is_empty() {
                    let at = starts[at.index(starts.len())];
                    octets.splice(at..at, line.get(&lines).bytes());
                }
            }
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    use prop::sample::Index;
    let octet = || prop::sample::select(&b"\r\n \t:;,/?#%\0\x7f\"{aA059zZ-_."[..]);
    prop_oneof![
        (any::<Index>(), octet()).prop_map(|(at, octet)| Mutation::Insert(at, octet)),
        any::<Index>().prop_map(Mutation::Remove),
        (any::<Index>(), octet()).prop_map(|(at, octet)| Mutation::Replace(at, octet)),
        (any::<Index>(), any::<Index>(), any::<Index>()).prop_map(|(a, b, c)| Mutation::Line(a, b, c)),
    ]
}

#[test]
fn both_ways_do_the_same_with_whatever_comes() {
    let recorder = Recorder::start();
    let both = Both::start(&Site::new("shop.test", &[recorder.address]).table());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: ProptestConfig::default().cases.max(400),
        failure_persistence: None,
        // Each takes a while where it has to be waited for.
        max_shrink_iters: 20,
        ..ProptestConfig::default()
    });
    let requests = (prop::sample::select(&REQUESTS[..]), prop::collection::vec(mutation(), 1..4), 0_usize..200);
    runner
        .run(&requests, |(request, mutations, split)| {
            let mut octets = request.as_bytes().to_vec();
            for mutation in &mutations {
                mutation.apply(&mut octets);
            }
            // The recorder keeps text.
            prop_assume!(std::str::from_utf8(&octets).is_ok());
            // Chunks are all hyper's. Where they break off, or nobody reads them, the moment decides what is heard, on either way.
            prop_assume!(!octets.to_ascii_lowercase().windows(8).any(|part| part == b"transfer"));
            // A number that is longer than the filler would be waited for.
            prop_assume!(longest_number(&octets) < 4);
            let (first, second) = octets.split_at(split.min(octets.len()));
            both.compare(&[first, second], &[&recorder]);
            Ok(())
        })
        .unwrap();
}

fn longest_number(octets: &[u8]) -> usize {
    octets
        .split(|octet| !octet.is_ascii_hexdigit())
        .map(|part| part.iter().filter(|octet| octet.is_ascii_digit()).count())
        .max()
        .unwrap_or(0)
}
