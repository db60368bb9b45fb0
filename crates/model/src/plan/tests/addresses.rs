//! Addresses: who has which, what may lead to them, and the names that they have.

use super::super::*;
use super::fleet::{Fleet, at, claim_id, facts, lines};
use crate::snapshot::Condition;

/// Two tenants with a cluster each, and a pool of 198.51.100.1 to 198.51.100.6 and of an IPv6 /64.
const GROUND: &str = "
    zone main fleet.example
    tenant acme domains=acme.test addresses=3
    tenant initech allow=0.0.0.0/0,::/0
    cluster c1 tenant=acme nodes=192.0.2.11
    cluster c2 tenant=initech nodes=192.0.2.21
    pool public 198.51.100.0/29,2001:db8:1::/64 ns=ns1.fleet.example
";

impl Fleet {
    /// Plans, writes down what is asked for, tells of it, and plans again until nothing is asked for any more.
    fn write(&mut self, seconds: u64, lines: &str) {
        let mut unwritten = self.plan(seconds, lines).addresses.clone();
        for _ in 0..10 {
            if unwritten.is_empty() {
                return;
            }
            let told = unwritten.into_iter().map(|(address, written)| FactChange::Address(address, written));
            self.planned = self.planner.apply(told.collect::<Vec<_>>(), at(seconds));
            unwritten = self.planned.addresses.clone();
        }
        panic!("it does not come to rest: {unwritten:?}");
    }

    /// The address of a claim and its name, or the refusal's code and message.
    fn claim(&self, id: &str) -> String {
        let status = self.planned.snapshot.status(&claim_id(id).to_object()).unwrap();
        let Detail::AddressClaim { address, name } = &status.detail else { panic!("{id}: {status:?}") };
        let refusal = status.refusal().map(|refusal| format!("{}: {}", refusal.reason, refusal.message));
        let told = [address.map(|address| address.to_string()), name.as_ref().map(ToString::to_string), refusal];
        told.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// Reason and message of the condition about a claim's name.
    fn pointer(&self, id: &str) -> String {
        let status = self.planned.snapshot.status(&claim_id(id).to_object()).unwrap();
        let condition = status.conditions.iter().find(|condition| condition.kind == Condition::PTR_PUBLISHED);
        let condition = condition.unwrap_or_else(|| panic!("{id}: {status:?}"));
        assert_eq!(condition.holds, ["AsClaimed", "Default"].contains(&condition.reason), "{condition:?}");
        format!("{} {}", condition.reason, condition.message).trim().to_owned()
    }

    /// All PTR records.
    fn pointers(&self) -> Vec<String> {
        let mut pointers: Vec<_> =
            self.planned.snapshot.pointers.values().flat_map(|part| lines(&part.records)).collect();
        pointers.sort();
        pointers
    }

    /// All reverse zones, with what stands at their apex.
    fn reverse_zones(&self) -> Vec<String> {
        let mut zones: Vec<_> =
            self.planned.snapshot.reverse_zones.values().flat_map(|part| lines(&part.names[0])).collect();
        zones.sort();
        zones
    }
}

fn grounded(more: &str) -> Fleet {
    let mut fleet = Fleet::new();
    fleet.write(1000, &format!("{GROUND}\n{more}"));
    fleet
}

#[test]
fn a_claim_gets_an_address_with_a_name_once_it_is_written_down() {
    let mut fleet = grounded("");
    let planned = fleet.plan(1001, "claim acme/web public cluster=c1\n claim acme/six public IPv6");
    assert_eq!(planned.addresses.len(), 2);
    assert_eq!((fleet.claim("acme/web"), fleet.pointers().len()), (String::new(), 0));
    let allocated = |fleet: &Fleet| {
        let status = fleet.planned.snapshot.status(&claim_id("acme/web").to_object()).unwrap();
        let allocated = status.conditions.iter().find(|condition| condition.kind == Condition::ALLOCATED).unwrap();
        (allocated.holds, allocated.reason)
    };
    assert_eq!(allocated(&fleet), (false, "Pending"));
    fleet.write(1002, "address 198.51.100.1 acme/web public\n address 2001:db8:1::1 acme/six public");
    assert_eq!(allocated(&fleet), (true, "Allocated"));
    assert_eq!(fleet.claim("acme/web"), "198.51.100.1 198-51-100-1.pool.example");
    assert_eq!(fleet.claim("acme/six"), "2001:db8:1::1 2001-0db8-0001-0000-0000-0000-0000-0001.pool.example");
    assert_eq!(
        fleet.pointers(),
        [
            "1.0-29.100.51.198.in-addr.arpa 300 PTR 198-51-100-1.pool.example",
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa 300 PTR \
             2001-0db8-0001-0000-0000-0000-0000-0001.pool.example",
        ]
    );
    assert_eq!(
        fleet.reverse_zones(),
        [
            "0-29.100.51.198.in-addr.arpa 300 NS ns1.fleet.example",
            "0.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa 300 NS ns1.fleet.example",
        ]
    );
}

/// Each row: a claim, and what is said of it. Nothing in these texts is another tenant's.
#[test]
fn claims_are_refused_with_the_field_at_fault() {
    for (claim, expected) in [
        ("acme/b nowhere", "UnknownPool: spec.pool: no AddressPool is called nowhere"),
        ("acme/b broad", "RefusedPool: spec.pool: AddressPool broad is refused itself"),
        ("acme/b public cluster=c2", "NotYourCluster: spec.cluster: you have no accepted cluster that is called c2"),
        ("acme/b public cluster=c9", "NotYourCluster: spec.cluster: you have no accepted cluster that is called c9"),
        ("nobody/b public", "NoTenant: metadata.namespace: namespace nobody is no tenant's"),
        (
            "acme/b public address=198.51.100.7",
            "NotInPool: spec.address: 198.51.100.7 is none of the addresses that AddressPool public gives",
        ),
        (
            "acme/b public address=198.51.100.1",
            "AddressTaken: spec.address: 198.51.100.1 has been given already; leave it out to get another one",
        ),
        (
            "acme/b public address=198.51.100.2",
            "Quarantined: spec.address: 198.51.100.2 was somebody else's until just now, and stays free until \
             1970-01-01T01:16:40Z as caches still know it",
        ),
        ("acme/b public address=198.51.100.6", "198.51.100.6 198-51-100-6.pool.example"),
    ] {
        let mut fleet =
            grounded("pool broad 198.51.100.0/24 since=2\n claim initech/a public\n claim initech/r public since=2");
        fleet.write(1000, "gone claim initech/r");
        fleet.write(1001, &format!("claim {claim} since=3"));
        let id = claim.split_whitespace().next().unwrap();
        assert_eq!(fleet.claim(id), expected);
    }
    let fleet = grounded(
        "claim acme/a public\n claim acme/b public since=2\n claim acme/c public since=3\n claim acme/d public since=4",
    );
    assert_eq!(fleet.claim("acme/d"), "QuotaExceeded: spec: you may have 3 addresses, and have them");
    let mut fleet = grounded("pool tiny 203.0.113.0/30\n claim initech/a tiny\n claim initech/b tiny since=2");
    fleet.write(1001, "claim acme/web tiny since=3");
    assert_eq!(fleet.claim("acme/web"), "PoolExhausted: spec.pool: AddressPool tiny has no IPv4 address left");
}

#[test]
fn pools_say_how_much_is_left_and_whether_their_zones_are_served() {
    let fleet = grounded(
        "claim acme/web public
         pool silent 203.0.113.0/29
         pool inside 192.0.2.0/24 ns=ns.2.0.192.in-addr.arpa
         zone arpa 0.10.in-addr.arpa
         pool taken 10.0.0.0/16 ns=ns1.fleet.example
         pool later 198.51.100.4/30 since=2",
    );
    let served = |pool: &str| {
        let condition = fleet.condition(Kind::AddressPool, pool, Condition::REVERSE_SERVED);
        format!("{} {}", condition.reason, condition.message)
    };
    assert_eq!(served("public"), "Served ");
    assert!(served("silent").starts_with("NoNameservers "));
    assert!(served("inside").starts_with("NameserverWithoutAddress name server ns.2.0.192.in-addr.arpa"));
    assert_eq!(served("taken"), "DomainTaken domain 0.10.in-addr.arpa belongs to Zone arpa, which was first");
    assert_eq!(
        fleet.verdict(Kind::AddressPool, "later"),
        "RangeTaken: some of 198.51.100.4/30 belongs to AddressPool public, which was first"
    );
    let object = ObjectRef::cluster_scoped(Kind::AddressPool, "public".parse().unwrap());
    let status = fleet.planned.snapshot.status(&object).unwrap();
    let Detail::AddressPool { given, resting, free_v4, free_v6, zones } = &status.detail else { panic!("{status:?}") };
    assert_eq!((*given, *resting, *free_v4, *free_v6), (1, 0, 5, u64::MAX));
    for zone in zones {
        let part = fleet.planned.snapshot.zone_at(&zone.apex).unwrap();
        assert_eq!((zone.serial, zone.digest), (part.soa.serial, part.digest));
        assert_ne!(zone.serial, 0);
    }
    assert_eq!(zones.len(), 2);
}

/// Each row: a claim's `ptr`, records of the tenant's, and what is said of the name.
#[test]
fn a_name_is_the_tenants_own_and_leads_to_the_address() {
    for (ptr, records, expected) in [
        ("www.c1.fleet.example", "www.c1.fleet.example/A/198.51.100.1", "AsClaimed"),
        ("www.c1.fleet.example", "www.c1.fleet.example/A/192.0.2.11+198.51.100.1", "AsClaimed"),
        ("WWW.C1.Fleet.Example.", "www.c1.fleet.example/A/198.51.100.1", "AsClaimed"),
        (
            "alias.c1.fleet.example",
            "alias.c1.fleet.example/CNAME/www.c1.fleet.example www.c1.fleet.example/A/198.51.100.1",
            "AsClaimed",
        ),
        ("www.c1.fleet.example", "www.c1.fleet.example/A/192.0.2.11", "PtrDoesNotResolve"),
        ("www.c1.fleet.example", "other.c1.fleet.example/A/198.51.100.1", "PtrDoesNotResolve"),
        ("www.c1.fleet.example", "www.c1.fleet.example/TXT/198.51.100.1", "PtrDoesNotResolve"),
        ("alias.c1.fleet.example", "alias.c1.fleet.example/CNAME/lb.example.net", "PtrDoesNotResolve"),
        // Names of the platform and of others.
        ("api.c1.fleet.example", "www.c1.fleet.example/A/198.51.100.1", "PtrDoesNotResolve"),
        ("www.c2.fleet.example", "www.c2.fleet.example/A/198.51.100.1", "PtrNotYours"),
        ("fleet.example", "www.c1.fleet.example/A/198.51.100.1", "PtrNotYours"),
        ("evilc1.fleet.example", "www.c1.fleet.example/A/198.51.100.1", "PtrNotYours"),
        ("mail.victim.example", "www.c1.fleet.example/A/198.51.100.1", "PtrNotYours"),
        (".", "www.c1.fleet.example/A/198.51.100.1", "PtrNotYours"),
    ] {
        let fleet = grounded(&format!("claim acme/web public ptr={ptr}\n records acme/web {records}"));
        let told = fleet.pointer("acme/web");
        assert_eq!(told.split(' ').next(), Some(expected), "{ptr} {records}: {told}");
        let name = if expected == "AsClaimed" { ptr } else { "198-51-100-1.pool.example" };
        let name = name.to_ascii_lowercase();
        let pointer = format!("1.0-29.100.51.198.in-addr.arpa 300 PTR {}", name.trim_end_matches('.'));
        assert_eq!(fleet.pointers(), [pointer], "{ptr} {records}");
    }
}

#[test]
fn names_and_addresses_follow_each_other() {
    let mut fleet = grounded("claim acme/web public ptr=alias.c1.fleet.example");
    let pointer = |fleet: &Fleet| fleet.pointers().join("; ").split(' ').next_back().unwrap_or("").to_owned();
    assert_eq!(pointer(&fleet), "198-51-100-1.pool.example");
    let serial = |fleet: &Fleet| {
        fleet.planned.snapshot.zone_at(&"0-29.100.51.198.in-addr.arpa".parse().unwrap()).unwrap().soa.serial
    };
    let first = serial(&fleet);
    // Steps: lines, and the name of the address afterwards.
    for (lines, expected) in [
        ("records acme/a alias.c1.fleet.example/CNAME/www.c1.fleet.example", "198-51-100-1.pool.example"),
        ("records acme/b www.c1.fleet.example/A/198.51.100.1", "alias.c1.fleet.example"),
        ("records acme/b www.c1.fleet.example/A/192.0.2.11", "198-51-100-1.pool.example"),
        ("records acme/b www.c1.fleet.example/A/198.51.100.1/60", "alias.c1.fleet.example"),
        ("gone cluster c1", "198-51-100-1.pool.example"),
        ("cluster c1 tenant=acme", "alias.c1.fleet.example"),
        ("cluster c1 tenant=initech", "198-51-100-1.pool.example"),
        ("cluster c1 tenant=acme", "alias.c1.fleet.example"),
        ("pool public 198.51.100.0/29 ns=ns1.fleet.example domain=other.test", "alias.c1.fleet.example"),
        ("claim acme/web public", "198-51-100-1.other.test"),
        ("pool public 198.51.100.0/29", ""),
        ("pool public 198.51.100.0/29 ns=ns1.fleet.example", "198-51-100-1.pool.example"),
        ("gone pool public", ""),
        ("pool public 198.51.100.0/29 ns=ns1.fleet.example", "198-51-100-1.pool.example"),
        ("gone tenant acme", "198-51-100-1.pool.example"),
        ("tenant acme", "198-51-100-1.pool.example"),
        ("gone claim acme/web", ""),
    ] {
        fleet.write(1001, lines);
        assert_eq!(pointer(&fleet), expected, "{lines}");
    }
    assert!(serial(&fleet) > first);
}

/// Attacks 11 to 13: what records may lead to follows from whose the address is now.
#[test]
fn addresses_of_pools_are_targets_of_those_who_have_them() {
    let mut fleet = grounded("claim acme/web public");
    for (lines, object, expected) in [
        ("records acme/own www.c1.fleet.example/A/198.51.100.1", "acme/own", "published"),
        // `allow` is everything, and still neither another's address nor one that nobody has can be had.
        ("records initech/thief www.c2.fleet.example/A/198.51.100.1", "initech/thief", "TargetNotAllowed targets[0]"),
        ("records initech/thief www.c2.fleet.example/A/198.51.100.2", "initech/thief", "TargetNotAllowed targets[0]"),
        (
            "records initech/thief www.c2.fleet.example/AAAA/2001:db8:1::7",
            "initech/thief",
            "TargetNotAllowed targets[0]",
        ),
        ("records initech/thief www.c2.fleet.example/A/198.51.100.9", "initech/thief", "published"),
        // A node that says it has another's address does not have it.
        (
            "cluster c2 tenant=initech nodes=198.51.100.1
             records initech/thief www.c2.fleet.example/A/198.51.100.1",
            "initech/thief",
            "TargetNotAllowed targets[0]",
        ),
        // Released: nobody's target any more, its last owner's neither.
        ("gone claim acme/web", "acme/own", "TargetNotAllowed targets[0]"),
        ("claim acme/web public", "acme/own", "published"),
    ] {
        fleet.write(1001, lines);
        assert_eq!(fleet.parts(object), [expected], "{lines}");
    }
}

/// Attack 13: an address is not recycled before the TTLs of all that led to it ran out.
#[test]
fn a_released_address_rests_as_long_as_anybody_remembers_it() {
    for (rest, ttl, record_ttl, until) in [(60, 30, 30, 1060), (60, 600, 30, 1600), (60, 30, 7200, 8200)] {
        let mut fleet = grounded(&format!(
            "pool mine 203.0.113.1/32 ns=ns1.fleet.example rest={rest} ttl={ttl}
             claim acme/web mine ptr=www.c1.fleet.example
             records acme/web www.c1.fleet.example/A/203.0.113.1/{record_ttl}"
        ));
        fleet.write(1000, "gone claim acme/web\n claim initech/next mine since=2");
        assert_eq!(fleet.pointers(), [""; 0]);
        fleet.write(until - 1, "");
        assert_eq!(fleet.claim("initech/next"), "PoolExhausted: spec.pool: AddressPool mine has no IPv4 address left");
        assert_eq!(fleet.planned.wake, Some(at(until)));
        fleet.write(until, "");
        assert_eq!(fleet.claim("initech/next"), "203.0.113.1 203-0-113-1.pool.example");
        assert_eq!(fleet.parts("acme/web"), ["TargetNotAllowed targets[0]"]);
    }
}

#[test]
fn what_a_hub_numbers_is_taken_over_by_reverse_zones_too() {
    let mut fleet = grounded("claim acme/web public");
    let apex: DnsName = "0-29.100.51.198.in-addr.arpa".parse().unwrap();
    let digest = fleet.planned.snapshot.zone_at(&apex).unwrap().digest;
    let number = Number { serial: 77, digest };
    let planned = fleet.planner.apply([FactChange::ReverseNumber(apex.clone(), number)], at(1001));
    assert_eq!(planned.numbers, [(apex.clone(), number)]);
    assert_eq!(planned.snapshot.zone_at(&apex).unwrap().soa.serial, 77);
    fleet.write(1002, "gone claim acme/web");
    assert_eq!(fleet.planned.snapshot.zone_at(&apex).unwrap().soa.serial, 78);
}

/// What is served of the reverse zones follows from the steps as it does from the snapshot.
#[test]
fn every_name_of_a_reverse_zone_is_in_the_changes() {
    let mut fleet = Fleet::new();
    let planned = fleet.plan(1000, &format!("{GROUND}\n claim acme/web public\n address 198.51.100.1 acme/web public"));
    let names: Vec<String> = planned.changes.names.iter().map(|change| change.name.to_string()).collect();
    assert!(names.contains(&"1.0-29.100.51.198.in-addr.arpa".to_owned()), "{names:?}");
    assert!(names.contains(&"0-29.100.51.198.in-addr.arpa".to_owned()), "{names:?}");
    let planned = fleet.plan(1001, "gone claim acme/web");
    let [change] = planned.changes.names.as_slice() else { panic!("{:?}", planned.changes) };
    assert_eq!((change.name.to_string().as_str(), change.records.len()), ("1.0-29.100.51.198.in-addr.arpa", 0));
}

mod properties {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn line() -> impl Strategy<Value = String> {
        let namespaces = || select(vec!["acme", "initech", "nobody"]);
        let claim = (
            namespaces(),
            select(vec!["a", "b", "c"]),
            select(vec!["public", "public", "tiny", "nowhere"]),
            select(vec!["", "", "IPv6", "address=198.51.100.3", "cluster=c1", "cluster=c2"]),
            select(vec!["", "ptr=www.c1.fleet.example", "ptr=a.c1.fleet.example", "ptr=x.c2.fleet.example"]),
        );
        // Who was first does not change, as claims keep their names.
        let claim = claim.prop_map(|(namespace, name, pool, wish, ptr)| {
            format!("claim {namespace}/{name} {pool} since={} {wish} {ptr}", name.len() + namespace.len())
        });
        let records = (
            namespaces(),
            select(vec!["www.c1.fleet.example", "a.c1.fleet.example", "x.c2.fleet.example"]),
            select(vec![
                "A/198.51.100.1",
                "A/198.51.100.2+198.51.100.3",
                "A/203.0.113.1",
                "CNAME/www.c1.fleet.example",
            ]),
        );
        let records = records.prop_map(|(namespace, name, data)| format!("records {namespace}/r {name}/{data}"));
        let others = select(vec![
            "cluster c1 tenant=acme",
            "cluster c1 tenant=initech",
            "cluster c2 tenant=initech nodes=198.51.100.2",
            "tenant acme addresses=1",
            "tenant acme",
            "tenant initech allow=0.0.0.0/0",
            "pool public 198.51.100.0/29,2001:db8:1::/64 ns=ns1.fleet.example rest=1",
            "pool public 198.51.100.0/30 ns=ns1.fleet.example rest=1",
            "pool tiny 203.0.113.1/32 ns=ns1.fleet.example since=2 rest=1",
            "pool tiny 198.51.100.2/31 ns=ns1.fleet.example since=2 rest=1",
        ]);
        let line = prop_oneof![4 => claim, 3 => records, 3 => others.prop_map(str::to_owned)];
        (line, prop::bool::weighted(0.25)).prop_map(|(line, gone)| {
            let mut words = line.split_whitespace();
            if gone { format!("gone {} {}", words.next().unwrap(), words.next().unwrap()) } else { line }
        })
    }

    /// All that is told of addresses and names, but serials, which tell of the way, and the times of rest.
    fn told(fleet: &Fleet) -> Vec<String> {
        let snapshot = &fleet.planned.snapshot;
        let statuses = snapshot.statuses().map(|(object, status)| {
            // Of several things that a claim lacks it is told the one that was found first.
            let lacks = ["QuotaExceeded", "AddressTaken", "Quarantined", "PoolExhausted"];
            let conditions = status.conditions.iter().map(|of| {
                if lacks.contains(&of.reason) {
                    format!("{} lacks something", of.kind)
                } else {
                    format!("{} {} {}", of.kind, of.reason, of.message)
                }
            });
            let detail = match &status.detail {
                Detail::AddressPool { given, resting, free_v4, free_v6, zones } => {
                    let zones: Vec<_> = zones.iter().map(|zone| (&zone.apex, zone.digest)).collect();
                    format!("{given} {resting} {free_v4} {free_v6} {zones:?}")
                }
                Detail::AddressClaim { address, name } => format!("{address:?} {name:?}"),
                _ => String::new(),
            };
            format!("{object}: {detail} {}", conditions.collect::<Vec<_>>().join(", "))
        });
        let pointers = snapshot.pointers.values().flat_map(|part| lines(&part.records));
        let names = snapshot.names.values().flat_map(|held| lines(&held.records));
        let zones = snapshot.reverse_zones.values().map(|part| format!("{} {:?}", part.apex, part.digest));
        let mut told: Vec<_> = statuses.chain(pointers).chain(names).chain(zones).collect();
        told.sort();
        told
    }

    proptest! {
        #[test]
        fn whatever_way_it_came_addresses_are_had_once_and_named_truly(plans in prop::collection::vec(prop::collection::vec(line(), 1..4), 1..25)) {
            let mut fleet = grounded("");
            let mut known: BTreeMap<String, String> = BTreeMap::new();
            for line in GROUND.lines().map(str::trim).filter(|line| !line.is_empty()) {
                known.insert(key(line), line.to_owned());
            }
            for (step, plan) in (1001..).zip(plans) {
                for line in &plan {
                    match line.strip_prefix("gone ") {
                        Some(rest) => _ = known.remove(&key(rest)),
                        None => _ = known.insert(key(line), line.clone()),
                    }
                }
                fleet.write(step, &plan.join("\n"));
                check(&fleet)?;
            }
            // Somebody who learns of it all at once says the same of it.
            let now = 2000;
            fleet.write(now, "");
            let mut anew = Fleet::new();
            let written = fleet.planned.snapshot.addresses();
            let written = written.map(|(address, entry)| FactChange::Address(address, entry.actual.clone()));
            let lines = known.into_values().collect::<Vec<_>>().join("\n");
            anew.planned = anew.planner.apply(facts(&lines).into_iter().chain(written), at(now));
            anew.write(now, "");
            prop_assert_eq!(told(&anew), told(&fleet));
        }
    }

    fn key(line: &str) -> String {
        line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    fn check(fleet: &Fleet) -> Result<(), TestCaseError> {
        let snapshot = &fleet.planned.snapshot;
        let mut had = BTreeMap::new();
        for (object, status) in snapshot.statuses() {
            if let Detail::AddressClaim { address: Some(address), .. } = status.detail {
                prop_assert_eq!(had.insert(address, object.clone()), None, "{} is had twice", address);
            }
        }
        for (address, part) in &snapshot.pointers {
            prop_assert!(had.contains_key(address), "{} has a name and no owner", address);
            let name = part.target().unwrap();
            // A name is the default, or leads back to the address by records of the owner's.
            if !name.is_at_or_under(&"pool.example".parse().unwrap()) {
                let tenant = had[address].namespace.clone().unwrap();
                let held = |name: &DnsName| snapshot.tenant_name(name).filter(|held| held.tenant == tenant).cloned();
                let first = held(&name).unwrap();
                let last = first.alias().map_or(Some(first.clone()), |target| held(&target)).unwrap();
                prop_assert!(last.records.addresses().contains(address), "{} is called {}", address, name);
            }
        }
        // No record leads to an address of a pool's that is not its tenant's.
        for held in snapshot.names.values() {
            for address in held.records.addresses() {
                let in_pool = snapshot.address(address).is_some();
                if in_pool && let Some(owner) = had.get(&address) {
                    prop_assert_eq!(Some(&held.tenant), owner.namespace.as_ref(), "{:?}", held);
                }
            }
        }
        Ok(())
    }
}
