//! What a hostile tenant tries, as endpoints of a `DNSEndpoint`, and what it is told.
//!
//! The attacker, tenant `evil`, has cluster c1 (node 198.51.100.11) and shares the domain shared.test; the operator also gave it
//! x.y.c2.fleet.example, below the other one's cluster. The quarry has cluster c2 (node 198.51.100.12), the domain prey.test, the
//! name held.shared.test and the address 203.0.113.1.

use serde_json::{Value, json};

pub(crate) const GROUND: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [127.0.0.1]}]
  gateway: {addresses: [192.0.2.10]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: prey}
spec: {domain: prey.test, nameservers: [{name: ns1.fleet.example}]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: shared}
spec: {domain: shared.test, nameservers: [{name: ns1.fleet.example}]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: AddressPool
metadata: {name: public}
spec: {cidrs: [203.0.113.0/24], reverse: {nameservers: [ns1.fleet.example], domain: rev.fleet.example}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: evil}
spec: {domains: [shared.test, x.y.c2.fleet.example], targets: {allow: [0.0.0.0/0]}, quota: {records: 50}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: quarry}
spec: {domains: [prey.test, shared.test]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: AddressClaim
metadata: {name: quarry-address, namespace: quarry}
spec: {pool: public, family: IPv4, address: 203.0.113.1, ptr: www.prey.test}
---
apiVersion: externaldns.k8s.io/v1alpha1
kind: DNSEndpoint
metadata: {name: quarry-object, namespace: quarry}
spec:
  endpoints:
  - {dnsName: www.prey.test, recordType: A, targets: [203.0.113.1]}
  - {dnsName: held.shared.test, recordType: A, targets: [198.51.100.12]}
";

pub(crate) struct Row {
    /// As the groups are numbered in `docs/tenants.md`.
    pub(crate) group: u8,
    pub(crate) what: &'static str,
    pub(crate) endpoint: Value,
    /// The refusal's code, or `published`.
    pub(crate) told: &'static str,
}

const OWN: &str = "198.51.100.11";
pub(crate) const PUBLISHED: &str = "published";

fn row(group: u8, what: &'static str, name: &str, rtype: &str, targets: &[&str], told: &'static str) -> Row {
    let endpoint = json!({ "dnsName": name, "recordType": rtype, "targets": targets });
    Row { group, what, endpoint, told }
}

fn with(mut row: Row, field: &str, value: Value) -> Row {
    row.endpoint[field] = value;
    row
}

pub(crate) fn rows() -> Vec<Row> {
    let a = |group, what, name: &str, told| row(group, what, name, "A", &[OWN], told);
    let to = |group, what, rtype: &str, target: &str, told| {
        row(group, what, "target.c1.fleet.example", rtype, &[target], told)
    };
    let text = |group, what, name: &str, text: &str, told| row(group, what, name, "TXT", &[text], told);
    let many: Vec<String> = (0..65).map(|number| format!("198.51.100.{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (long, longer) = ("x".repeat(65_536), format!("\"{}\"", "x".repeat(256)));
    let owner = json!({ "owner": "evil,external-dns/owner=quarry" });
    let alias = json!([{ "name": "alias", "value": "true" }]);
    vec![
        a(0, "its own name", "www.c1.fleet.example", PUBLISHED),
        a(1, "another's name", "www.prey.test", "NotYours"),
        a(1, "in other case, with a final dot", "WWW.Prey.TEST.", "NotYours"),
        a(1, "as punycode", "xn--prey-9qa.test", "NotYours"),
        a(1, "with an escaped dot", "www.prey\\046test", "BadName"),
        a(1, "with an escaped letter", "www.pre\\121.test", "NotYours"),
        a(1, "below another's cluster", "www.c2.fleet.example", "NotYours"),
        a(2, "a longer label", "evilprey.test", "NotYours"),
        a(2, "a longer label of a cluster", "xc2.fleet.example", "NotYours"),
        a(3, "the parent of all", "fleet.example", "NotYours"),
        a(3, "the top", "test", "NotYours"),
        row(3, "a child zone of another's", "c2.fleet.example", "NS", &["ns.evil.example"], "TypeNotAllowed"),
        a(4, "a wildcard over siblings", "*.fleet.example", "NotYours"),
        a(4, "another's wildcard", "*.c2.fleet.example", "NotYours"),
        a(4, "a wildcard over a shared domain", "*.shared.test", "WildcardOverOthers"),
        a(4, "a deep name below another's wildcard", "x.y.c2.fleet.example", "DisablesWildcard"),
        a(4, "a wildcard mid-name", "a.*.c1.fleet.example", "BadName"),
        row(5, "a delegation", "sub.c1.fleet.example", "NS", &["ns.evil.example"], "TypeNotAllowed"),
        row(5, "a DS", "sub.c1.fleet.example", "DS", &["1 13 2 00"], "TypeNotAllowed"),
        row(5, "a DNAME", "sub.c1.fleet.example", "DNAME", &["prey.test"], "TypeNotAllowed"),
        row(5, "an SOA", "sub.c1.fleet.example", "SOA", &["a b 1 1 1 1 1"], "TypeNotAllowed"),
        text(5, "at the apex", "shared.test", "v=spf1 -all", "Reserved"),
        text(5, "_dmarc", "_dmarc.c1.fleet.example", "v=DMARC1", "ReservedLabel"),
        a(5, "wpad", "wpad.c1.fleet.example", "ReservedLabel"),
        a(5, "autodiscover", "autodiscover.c1.fleet.example", "ReservedLabel"),
        a(5, "localhost", "localhost.c1.fleet.example", "ReservedLabel"),
        a(5, "the API server's name", "api.c1.fleet.example", "ControlPlaneName"),
        a(5, "below the API server's name", "x.api.c1.fleet.example", "ControlPlaneName"),
        a(5, "the apps wildcard", "*.c1.fleet.example", "ControlPlaneName"),
        a(5, "the agents' door", "agents.fleet.example", "NotYours"),
        a(5, "a name server", "ns1.fleet.example", "NotYours"),
        a(6, "a cluster that is not there yet", "www.c9.fleet.example", "NotYours"),
        a(7, "no name", "", "BadName"),
        a(7, "the root", ".", "BadName"),
        text(8, "a registry's note", "a-api.c1.fleet.example", "\"heritage=external-dns\"", "ControlPlaneName"),
        with(a(8, "a comma in labels", "labels.c1.fleet.example", PUBLISHED), "labels", owner),
        a(9, "a name that somebody has", "held.shared.test", "NameTaken"),
        text(9, "another type at it", "held.shared.test", "mine", "NameTaken"),
        with(a(9, "a set identifier", "set.c1.fleet.example", "FieldNotSupported"), "setIdentifier", json!("quarry")),
        with(a(10, "provider-specific", "ps.c1.fleet.example", "FieldNotSupported"), "providerSpecific", alias),
        to(11, "private", "A", "10.0.0.1", "TargetNotAllowed"),
        to(11, "loopback", "A", "127.0.0.1", "TargetForbidden"),
        to(11, "link-local: metadata", "A", "169.254.169.254", "TargetForbidden"),
        to(11, "behind a carrier's translator", "A", "100.64.0.1", "TargetNotAllowed"),
        to(11, "unspecified", "A", "0.0.0.0", "TargetForbidden"),
        to(11, "unique local", "AAAA", "fd00::1", "TargetNotAllowed"),
        to(11, "metadata over IPv6", "AAAA", "fd00:ec2::254", "TargetForbidden"),
        to(11, "IPv4 in IPv6", "AAAA", "::ffff:10.0.0.1", "TargetForbidden"),
        to(11, "an alias that ends inside", "CNAME", "metadata.google.internal", "BadTarget"),
        to(11, "an alias to an address", "CNAME", "10.0.0.1", "BadTarget"),
        with(a(11, "a TTL to flip by", "flip.c1.fleet.example", "BadTTL"), "recordTTL", json!(1)),
        to(12, "another's node", "A", "198.51.100.12", "TargetNotAllowed"),
        to(12, "another's address", "A", "203.0.113.1", "TargetNotAllowed"),
        to(12, "a free address of a pool", "A", "203.0.113.9", "TargetNotAllowed"),
        to(12, "an alias to another's name", "CNAME", "www.prey.test", "TargetNotYours"),
        to(12, "mail to another's name", "MX", "10 www.prey.test", "TargetNotYours"),
        to(12, "an alias to itself", "CNAME", "target.c1.fleet.example", "BadTarget"),
        row(12, "SVCB to another's name", "svc.c1.fleet.example", "SVCB", &["1 www.prey.test"], "TypeNotAllowed"),
        row(14, "a PTR of an address", "7.100.51.198.in-addr.arpa", "PTR", &["www.prey.test"], "TypeNotAllowed"),
        row(14, "a reverse delegation", "113.0.203.in-addr.arpa", "NS", &["ns.evil.example"], "TypeNotAllowed"),
        text(15, "another's challenge", "_acme-challenge.prey.test", "x", "NotYours"),
        row(15, "as an alias", "_acme-challenge.c2.fleet.example", "CNAME", &["evil.example"], "NotYours"),
        row(15, "another's CAA", "prey.test", "CAA", &["0 issue \"evil.example\""], "NotYours"),
        text(15, "its API server's challenge", "_acme-challenge.api.c1.fleet.example", "x", "ControlPlaneName"),
        text(16, "a new line", "poison.c1.fleet.example", "a\nb", "BadTarget"),
        text(16, "a NUL", "poison.c1.fleet.example", "a\0b", "BadTarget"),
        text(16, "an open quote", "poison.c1.fleet.example", "\"open", "BadTarget"),
        text(16, "a string of 256", "poison.c1.fleet.example", &longer, "BadTarget"),
        text(16, "64 KiB", "poison.c1.fleet.example", &long, "SetTooLarge"),
        to(16, "two lines in an address", "A", "198.51.100.11\n198.51.100.12", "BadTarget"),
        row(17, "a huge set", "huge.c1.fleet.example", "A", &many, "SetTooLarge"),
        with(a(17, "a TTL of 2^31", "ttl.c1.fleet.example", "BadTTL"), "recordTTL", json!(2_147_483_648_u32)),
        with(a(17, "a TTL below zero", "ttl.c1.fleet.example", "BadTTL"), "recordTTL", json!(-1)),
    ]
}
