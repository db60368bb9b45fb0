//! The server on real sockets under load that means it no good.

// The lint knows test functions, but not what they call.
#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use dns::{RateLimit, Settings};

mod records;
mod serving;

use serving::{PATIENCE, Server, question};

/// As many as the descriptors of a test allow; each also holds one on the server's side.
#[test]
fn slow_clients_stop_neither_udp_nor_other_connections() {
    let server = Server::start("127.0.0.1:0", Settings::default());
    let mut slow = Vec::new();
    for _ in 0..5000 {
        let Ok(mut stream) = TcpStream::connect_timeout(&server.address, PATIENCE) else { break };
        // Half a message; the server may have hung up already.
        let _ = stream.write_all(&[0, 40, 1, 2, 3]);
        slow.push(stream);
        // Those that the server let go of need not be held.
        if slow.len() >= 400 {
            slow.drain(..200);
        }
    }
    server.must_answer(&server.client("127.0.0.1:0"));
    for _ in 0..20 {
        let mut stream = TcpStream::connect_timeout(&server.address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let question = question(9);
        let mut framed = u16::try_from(question.len()).unwrap().to_be_bytes().to_vec();
        framed.extend_from_slice(&question);
        stream.write_all(&framed).unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[2..], [0, 9]);
    }
    // The rest of the slow ones still gets nothing.
    drop(slow);
}

#[test]
fn who_asks_too_much_is_put_off_and_others_are_not() {
    let limit = RateLimit { per_second: 50, slip: 2 };
    let server = Server::start("127.0.0.1:0", Settings::default().with_rate_limit(limit));
    let client = server.client("127.0.0.1:0");
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let (mut answered, mut put_off) = (0.0, 0.0);
    let mut response = [0; 512];
    let begun = Instant::now();
    for _ in 0..4 {
        for id in 0..100 {
            client.send(&question(id)).unwrap();
        }
        while let Ok(length) = client.recv(&mut response) {
            let truncated = response[2] & 2 != 0;
            assert_eq!(truncated, length == question(0).len());
            *if truncated { &mut put_off } else { &mut answered } += 1.0;
        }
    }
    // Two seconds' share at once, and its share of the time since; of the others every second one.
    let allowed = f64::from(limit.per_second) * (2.0 + begun.elapsed().as_secs_f64());
    assert!((100.0..=allowed + 1.0).contains(&answered), "{answered} answered where {allowed} may be");
    assert!(put_off > 0.0 && put_off <= (400.0 - answered) / 2.0 + 1.0, "{put_off} put off, {answered} answered");
    server.must_answer(&server.client("127.1.2.3:0"));
}

/// RFC 2181 4.1: or the client does not take it for an answer.
#[test]
fn a_wildcard_address_answers_from_the_address_that_was_asked() {
    for (bound, asked, from) in [
        ("0.0.0.0:0", "127.3.2.1", "127.0.0.1:0"),
        ("[::]:0", "127.3.2.1", "127.0.0.1:0"),
        ("[::]:0", "::1", "[::1]:0"),
    ] {
        let server = Server::start(bound, Settings::default());
        let client = UdpSocket::bind(from).unwrap();
        // Takes answers from there only.
        client.connect(SocketAddr::new(asked.parse::<IpAddr>().unwrap(), server.address.port())).unwrap();
        server.must_answer(&client);
    }
}

#[test]
fn recent_queries_say_what_became_of_them() {
    let server = Server::start("127.0.0.1:0", Settings::default());
    let client = server.client("127.0.0.1:0");
    server.must_answer(&client);
    let queries = server.recent.queries();
    let query = queries.first().unwrap();
    assert_eq!(query.name.to_string(), "api.c1.fleet.example");
    assert_eq!(query.client, client.local_addr().unwrap().ip());
    assert_eq!(query.zone.as_ref().map(ToString::to_string).as_deref(), Some("fleet.example"));
    assert_eq!((query.rcode.to_string().as_str(), query.kind), ("NOERROR", dns::Kind::Answer));
}
