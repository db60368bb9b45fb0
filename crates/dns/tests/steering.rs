//! Steered names on real sockets, asked by a real client.

// The lint knows test functions, but not what they call.
#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dns::{Guides, RateLimit, Settings};
use model::steering::{Known, Standings, Unhealthy};

mod records;
#[allow(dead_code)] // Others use more of it.
mod serving;

use serving::{PATIENCE, Server};

const PLACES: &[u8] =
    b"203.0.113.0/24 50.1 8.7\n198.51.100.0/24 42.4 -71.1\n2001:db8::/32 42.4 -71.1\n127.0.0.0/8 50.1 8.7";

fn guides() -> Guides {
    let guides = Guides::default();
    guides.places.store(Some(Arc::new(geo::Map::parse(PLACES).unwrap())));
    guides
}

#[test]
fn dig_is_told_the_nearest_to_its_subnet() {
    let guides = guides();
    let server = Server::start("127.0.0.1:0", Settings::default().with_guides(guides.clone()));
    for (arguments, expected, subnet) in [
        ("+subnet=203.0.113.0/24 geo.fleet.example", "192.0.2.1", Some("203.0.113.0/24/24")),
        ("+subnet=198.51.100.7 geo.fleet.example", "192.0.2.2", Some("198.51.100.7/32/24")),
        ("+tcp +subnet=198.51.100.7 geo.fleet.example", "192.0.2.2", Some("198.51.100.7/32/24")),
        ("+subnet=2001:db8::/32 geo.fleet.example", "192.0.2.2", Some("2001:db8::/32/32")),
        ("+cookie +subnet=198.51.100.0/24 geo.fleet.example", "192.0.2.2", Some("198.51.100.0/24/24")),
        // By the resolver's own address, and then nothing is said of subnets.
        ("geo.fleet.example", "192.0.2.1", None),
        ("+noedns geo.fleet.example", "192.0.2.1", None),
        ("+subnet=198.51.100.0/24 api.c1.fleet.example", "192.0.2.10", Some("198.51.100.0/24/0")),
        ("+subnet=0 geo.fleet.example", "192.0.2.", Some("0.0.0.0/0/0")),
        ("+subnet=::/0 geo.fleet.example", "192.0.2.", Some("::/0/0")),
    ] {
        let told = dig(&server, arguments);
        assert!(told.contains(&format!("\tA\t{expected}")), "dig {arguments}:\n{told}");
        assert!(told.contains("ANSWER: 1,"), "dig {arguments}:\n{told}");
        let found = told.lines().find_map(|line| line.strip_prefix("; CLIENT-SUBNET: "));
        assert_eq!(found, subnet, "dig {arguments}:\n{told}");
        assert!(!told.contains("malformed") && !told.contains("WARNING: Message"), "dig {arguments}:\n{told}");
    }
    assert!(dig(&server, "geo.fleet.example").contains("geo.fleet.example.\t10\tIN"));
    // Two octets of a /24.
    assert!(dig(&server, "+ednsopt=8:000118000a00 geo.fleet.example").contains("status: FORMERR"));
    // A scope in a query.
    assert!(dig(&server, "+ednsopt=8:00011818cb0071 geo.fleet.example").contains("status: FORMERR"));

    // The next answer is without a cluster that failed.
    let out = Known { unhealthy: Some(Unhealthy::FailedChecks), ..Known::default() };
    let standings: Standings = [(records::member_key("c1"), out)].into_iter().collect();
    guides.standings.store(Arc::new(standings));
    assert!(dig(&server, "+subnet=203.0.113.0/24 geo.fleet.example").contains("\tA\t192.0.2.2"));
    // And by another map.
    guides.standings.store(Arc::default());
    guides.places.store(Some(Arc::new(geo::Map::parse(b"203.0.113.0/25 42.4 -71.1").unwrap())));
    let told = dig(&server, "+subnet=203.0.113.0/24 geo.fleet.example");
    assert!(told.contains("\tA\t192.0.2.2") && told.contains("203.0.113.0/24/25"), "{told}");
}

/// Who asks for ever other subnets is still one who asks.
#[test]
fn subnets_do_not_lead_past_the_rate_limit() {
    let limit = RateLimit { per_second: 50, slip: 0 };
    let server = Server::start("127.0.0.1:0", Settings::default().with_rate_limit(limit).with_guides(guides()));
    let client = server.client("127.0.0.1:0");
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let begun = Instant::now();
    for network in 0..=255 {
        let mut request = vec![0, network, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        request.extend_from_slice(records::name("geo.fleet.example").as_wire());
        request.extend_from_slice(b"\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\x0b\0\x08\0\x07\0\x01\x18\0");
        request.extend_from_slice(&[network, 51, 100]);
        client.send(&request).unwrap();
    }
    let mut answered = 0.0;
    while client.recv(&mut [0; 512]).is_ok() {
        answered += 1.0;
        assert!(begun.elapsed() < PATIENCE);
    }
    let allowed = f64::from(limit.per_second) * (2.0 + begun.elapsed().as_secs_f64());
    assert!((50.0..=allowed).contains(&answered), "{answered} answered where {allowed} may be");
}

fn dig(server: &Server, arguments: &str) -> String {
    let mut dig = Command::new("dig");
    dig.args(["-r", &format!("@{}", server.address.ip()), "-p", &server.address.port().to_string()]);
    let output = testbed::dig(dig.args(["+tries=1", "+nocookie"]).args(arguments.split_whitespace()))
        .expect("these tests ask with `dig`, which must be installed (Debian: bind9-dnsutils)");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "dig {arguments} failed:\n{told}{}", String::from_utf8_lossy(&output.stderr));
    told
}
