//! Whatever tenants claim: no answer lies outside of what each may have. The server itself is asked; what is right is found
//! here by the plainest means, not by the policy's own.
//!
//! Every tenant's records lead to addresses that tell whose they are, so that an answer says who made it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use model::policy::RecordClaim;
use model::record::{RecordData, Strings};
use model::resource::{
    Cluster, Endpoint, FrontDoor, IngressController, IngressMode, Limits, Nameserver, Node, Quota, RecordClaims,
    Tenant, Upstream, Zone,
};
use model::{Cidr, Fact, FactChange, ObjectRef, Planner, Since, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

const TENANTS: [&str; 2] = ["acme", "initech"];
const ZONES: [&str; 3] = ["fleet.example", "a.test", "shared.test"];
const DOMAINS: [&str; 6] =
    ["a.test", "x.a.test", "shared.test", "y.shared.test", "d.y.c2.fleet.example", "c1.fleet.example"];
/// What the gateway, and nobody else, leads to.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 250);

const CLAIMED: [&str; 19] = [
    "www.c1.fleet.example",
    "*.dev.c1.fleet.example",
    "*.c1.fleet.example",
    "api.c1.fleet.example",
    "c2.fleet.example",
    "d.y.c2.fleet.example",
    "a.d.y.c2.fleet.example",
    "*.c2.fleet.example",
    "fleet.example",
    "*.fleet.example",
    "w.a.test",
    "*.a.test",
    "x.a.test",
    "*.x.a.test",
    "w.shared.test",
    "*.shared.test",
    "*.y.shared.test",
    "w.y.shared.test",
    "y.c2.fleet.example",
];

fn addresses_of(tenant: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, if tenant == 0 { 1 } else { 2 })
}

fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn fact<T>(value: T) -> Fact<T> {
    Fact::new(Since::at(Timestamp(1)), value)
}

fn zone(domain: &str) -> FactChange {
    let name = domain.replace('.', "-");
    let zone = Zone {
        name: parse(&name),
        domain: parse(domain),
        nameservers: vec![Nameserver { name: parse("ns.elsewhere.example"), addresses: Vec::new() }],
        ttl: 30,
        api: parse("api.{cluster}"),
        apps: parse("*.{cluster}"),
        gateway: Some(FrontDoor::Addresses(vec![GATEWAY.into()])),
        zone_file: None,
        authoritative: true,
        hand_out: false,
        grace: Duration::ZERO,
        max_share: 1.0,
        released: None,
        hindrance: None,
    };
    FactChange::Zone(parse(&name), Some(fact(zone)))
}

fn tenant(number: usize, domains: &[&str]) -> FactChange {
    let tenant = Tenant {
        name: parse(TENANTS[number]),
        namespace: parse(TENANTS[number]),
        domains: domains.iter().map(|domain| parse(domain)).collect(),
        allowed_targets: vec![parse::<Cidr>(&format!("{}/32", addresses_of(number)))],
        allowed_names: None,
        quota: Quota::default(),
        limits: Limits::default(),
        released: None,
    };
    FactChange::Tenant(parse(TENANTS[number]), Some(fact(tenant)))
}

fn cluster(number: usize, name: &str) -> FactChange {
    let cluster = Cluster {
        name: parse(name),
        labels: std::collections::BTreeMap::new(),
        tenant: parse(TENANTS[number]),
        zone: parse("fleet-example"),
        id: parse(name),
        location: model::Location::default(),
        api_server: Upstream::Addresses(vec![parse("10.0.0.7:6443")]),
        services: Vec::new(),
        nodes: [Node { name: "n".into(), addresses: vec![IpAddr::V4(addresses_of(number))], ready: true }].into(),
        access: None,
        ingress: IngressMode::Nodes,
        controller: IngressController::default(),
        allowed_sources: [parse("0.0.0.0/0")].into(),
        proof: std::sync::Arc::default(),
        limits: Limits::default(),
        kept: None,
        drained: None,
        hindrance: None,
        closed: None,
        resolver: model::resolver::ResolverPart::default(),
    };
    FactChange::Cluster(parse(name), Some(fact(cluster)))
}

/// What a tenant asks for: leads to itself, to the other, inside, or to a name.
fn endpoint(name: &str, kind: u8) -> Endpoint {
    let a = |address: Ipv4Addr| RecordData::A(vec![address]);
    let data = match kind {
        0 => a(addresses_of(0)),
        1 => a(addresses_of(1)),
        2 => a(Ipv4Addr::LOCALHOST),
        3 => a(Ipv4Addr::new(10, 0, 0, 1)),
        4 => a(GATEWAY),
        5 => RecordData::Cname(parse("www.c1.fleet.example")),
        6 => RecordData::Cname(parse("c2.fleet.example")),
        7 => RecordData::Cname(parse("w.a.test")),
        _ => RecordData::Txt(vec![Strings::of_text(b"text")]),
    };
    let claim = RecordClaim { name: parse(name), ttl: None, data };
    Endpoint { part: name.into(), since: None, claim: Ok(claim) }
}

/// Whose a name is, by the text of the longest suffix; nobody's where there is none.
fn owners(name: &str, domains: &[Vec<&'static str>]) -> Vec<usize> {
    let under = |suffix: &str| name == suffix || name.ends_with(&format!(".{suffix}"));
    let clusters = [(0, "c1.fleet.example"), (1, "c2.fleet.example")];
    let of_domains =
        domains.iter().enumerate().flat_map(|(number, domains)| domains.iter().map(move |at| (number, *at)));
    let fitting: Vec<(usize, &str)> =
        clusters.into_iter().chain(of_domains).filter(|(_, suffix)| under(suffix)).collect();
    let longest = fitting.iter().map(|(_, suffix)| suffix.len()).max();
    let of_cluster = clusters.iter().find(|(_, suffix)| Some(suffix.len()) == longest && under(suffix));
    match of_cluster {
        Some((number, _)) => vec![*number],
        None => {
            fitting.into_iter().filter(|(_, suffix)| Some(suffix.len()) == longest).map(|(number, _)| number).collect()
        }
    }
}

proptest! {
    #[test]
    fn no_answer_lies_outside_of_what_tenants_may_have(
        acme in subsequence(&DOMAINS[..], 0..5),
        initech in subsequence(&DOMAINS[..], 0..5),
        claims in vec((0..2_usize, 0..3_usize, select(&CLAIMED[..]), 0..9_u8), 0..25),
    ) {
        let domains = [acme, initech];
        let mut facts: Vec<FactChange> = ZONES.iter().map(|domain| zone(domain)).collect();
        facts.extend((0..2).map(|number| tenant(number, &domains[number])));
        facts.extend([cluster(0, "c1"), cluster(1, "c2")]);
        let mut objects = std::collections::BTreeMap::<(usize, usize), Vec<Endpoint>>::new();
        for (number, object, name, kind) in &claims {
            objects.entry((*number, *object)).or_default().push(endpoint(name, *kind));
        }
        for ((number, object), endpoints) in objects {
            let object = ObjectRef {
                kind: model::identity::Kind::DnsEndpoint,
                namespace: Some(parse(TENANTS[number])),
                name: parse(&format!("o{object}")),
            };
            facts.push(FactChange::Records(object, Some(fact(RecordClaims { endpoints, ..RecordClaims::default() }))));
        }
        let planned = Planner::default().apply(facts, Timestamp(2));
        let index = Index::default().apply(&planned.changes);

        let prefixes = ["", "q.", "r.q."];
        for asked in CLAIMED.iter().flat_map(|name| prefixes.map(|prefix| format!("{prefix}{}", name.trim_start_matches("*.")))) {
            let mut out = Vec::new();
            answer_over(&index, &query(&format!("{asked} A")).finish(), Transport::Tcp, &mut out).unwrap();
            let told = tell(&out);
            // The last link of a chain of aliases is what is asked for.
            let mut name = asked.clone();
            for line in told.lines().filter_map(|line| line.strip_prefix("answer ")) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let data = words[words.len() - 1];
                let whose = owners(&name, &domains);
                match data.parse::<Ipv4Addr>() {
                    Ok(GATEWAY) => prop_assert!(name.starts_with("api."), "{told}"),
                    Ok(address) => {
                        let number = (0..2).find(|number| addresses_of(*number) == address);
                        // The platform's own wildcard stands above what it gave to others within.
                        let apps = ["c1.fleet.example", "c2.fleet.example"].map(|subtree| name.ends_with(subtree));
                        let is_right = number.is_some_and(|number| whose.contains(&number) || apps[number]);
                        prop_assert!(is_right, "{name} is of {whose:?}: {told}");
                    }
                    Err(_) => {
                        let target = data.trim_end_matches('.').to_ascii_lowercase();
                        let theirs = owners(&target, &domains);
                        prop_assert!(whose.iter().any(|number| theirs.contains(number)), "{name} to {target}: {told}");
                        name = target;
                    }
                }
            }
            // Nobody switches off a neighbour's wildcard: below it, only initech's own names do that.
            let own = claims.iter().any(|(number, _, name, _)| *number == 1 && name.ends_with("y.c2.fleet.example"));
            if asked == "r.q.c2.fleet.example" || (asked == "q.y.c2.fleet.example" && !own) {
                prop_assert!(told.contains("answer "), "{asked}: {told}");
            }
        }
    }
}
