//! What holds for any facts in any order.
//!
//! Facts come from small alphabets, so that most of them clash with others.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use super::super::*;
use super::fleet::{at, facts};
use crate::identity::ClusterId;
use crate::name::DnsName;
use crate::routes::Host;
use crate::serial::is_newer;
use crate::snapshot::{Apps, ClusterPart, RecordSet, Route, Soa, TenantName, ZoneChange, ZonePart};
use crate::zone_file::ZoneFile;

/// One fact as a line; shrinks towards the first of everything.
fn upsert(grace: &'static str) -> impl Strategy<Value = String> {
    let domains = vec!["fleet.example", "c2.fleet.example", "other.test"];
    let gateways = vec!["192.0.2.10", "lb.example.net", "none"];
    let bare = vec!["", "", "", "", "", "external", "external handout", "handout", "dnssec"];
    let files = vec![
        "",
        "",
        "file=soa/7,@/NS/ns.test",
        "file=soa/1005,@/NS/ns.test,api.c1/A/192.0.2.9",
        "file=@/TXT/x,c2/NS/ns.test,s/A/192.0.2.9",
        "file=@/NS/ns1.fleet.example,c3/DNAME/other.test",
        "ns=none file=www/A/192.0.2.9",
    ];
    let zone =
        (select(vec!["main", "twin", "child"]), select(domains), 0..3u8, select(gateways), select(bare), select(files))
            .prop_map(move |(name, domain, since, gateway, bare, file)| {
                format!("zone {name} {domain} since={since} gateway={gateway} {grace} {bare} {file}")
            });
    let tenant = select(vec![
        "tenant acme",
        "tenant initech",
        "tenant acme connections=3",
        "tenant acme domains=other.test,x.y.c2.fleet.example allow=0.0.0.0/0",
        "tenant initech domains=other.test allow=192.0.2.0/24 records=2",
        "tenant initech domains=c1.fleet.example,s.other.test namespace=acme since=2",
        "tenant acme domains=outside.test,x.other.test",
    ]);
    let tenant = tenant.prop_map(str::to_owned);
    let claimed = vec![
        "www.c1.fleet.example",
        "api.c1.fleet.example",
        "*.c1.fleet.example",
        "x.c2.fleet.example",
        "x.y.c2.fleet.example",
        "a.other.test",
        "*.other.test",
        "s.other.test",
        "c1.fleet.example",
    ];
    let data = vec![
        "A/192.0.2.1",
        "A/192.0.2.2+192.0.2.1/60",
        "A/10.0.0.1",
        "AAAA/2001:db8::1",
        "TXT/x",
        "CNAME/a.other.test",
        "CNAME/www.c1.fleet.example",
        "CNAME/lb.example.net",
    ];
    let endpoint = (select(claimed), select(data)).prop_map(|(name, data)| format!("{name}/{data}"));
    let records = (
        select(vec!["acme/web", "acme/other", "initech/web", "nobody/web"]),
        0..3u8,
        select(vec!["", "", "cluster=c1"]),
        vec(endpoint, 0..4),
    );
    let records = records.prop_map(|(object, since, cluster, endpoints)| {
        format!("records {object} since={since} {cluster} {}", endpoints.join(" "))
    });
    let snis = vec!["s.fleet.example", "api.c1.fleet.example", "ns1.other.test", "s.test", "x.c2.fleet.example"];
    let some_snis = prop_oneof![3 => Just(Vec::new()), 2 => subsequence(snis, 1..3)];
    let nodes = vec!["192.0.2.1,!192.0.2.2", "!192.0.2.1,192.0.2.2", "!192.0.2.1", "2001:db8::1"];
    let bare = vec!["", "", "", "https=192.0.2.1:443", "labels=env:prod http=192.0.2.1:80", "hub", "hub", "proof"];
    let bare = [bare, placed(), inside()].concat();
    let cluster = (
        select(vec!["c1", "c2", "c3", "c4", "c5"]),
        0..4u8,
        select(vec!["acme", "acme", "initech"]),
        select(vec!["main", "main", "twin", "child"]),
        select(vec!["x", "y", "z"]),
        some_snis,
        select(nodes),
        select(bare),
    );
    let cluster = cluster.prop_map(|(name, since, tenant, zone, id, snis, nodes, bare)| {
        let sni = if snis.is_empty() { String::new() } else { format!("sni={}", snis.join(",")) };
        format!("cluster {name} since={since} tenant={tenant} zone={zone} id={id} nodes={nodes} {sni} {bare}")
    });
    prop_oneof![
        8 => cluster,
        3 => zone,
        2 => tenant,
        6 => records,
        1 => Just("policy p".to_owned()),
        6 => federated(),
    ]
}

/// Members, and what was seen of Ingresses in them.
fn placed() -> Vec<&'static str> {
    vec![
        "https=192.0.2.1:443 class=nginx access=reachable",
        "https=192.0.2.1:443 access=reachable placed=acme/web:ready",
        "https=192.0.2.1:443 access=reachable placed=acme/web:unready,acme/web2:missing",
        "https=192.0.2.1:443 access=reachable placed=acme/web:pending,initech/web:foreign cut",
        "https=192.0.2.1:443 access=unreachable placed=acme/web:unready",
        "https=192.0.2.1:443 access=reachable placed=acme/web:unready drained=3",
    ]
}

/// What is reached through the tunnel.
fn inside() -> Vec<&'static str> {
    vec![
        "hub inner-http=i.w.svc:80 inner-https=i.w.svc:443",
        "hub inner-https=i.w.svc:443 labels=env:prod",
        "hub inner-http=10.0.0.1:80 from=192.0.2.0/24",
        "inner-http=i.w.svc:80",
    ]
}

/// What federated ingress follows from.
fn federated() -> impl Strategy<Value = String> {
    let policies = vec!["policy p", "policy p dns", "policy p labels=env:prod", "policy p plain"];
    let classes = vec!["class fleetgate", "class fleetgate policy=p", "class other policy=p", "class other foreign"];
    let secrets = vec!["secret acme/tls", "secret acme/tls bad", "secret initech/tls"];
    let hosts = vec![
        "www.c1.fleet.example/",
        "www.c1.fleet.example/a@b",
        "x.y.c2.fleet.example/",
        "*.dev.c1.fleet.example/",
        "a.other.test/",
        "a.other.test/!",
        "*.other.test/a",
        "outside.test/",
        "api.c1.fleet.example/",
        "s.other.test/a?",
        "/",
        "/a@b",
    ];
    let more = vec![
        "",
        "",
        "default=d",
        "tls=tls",
        "tls=tls:a.other.test",
        "class=other",
        "class=foreign",
        "nothing",
        "overrides=c1:x",
    ];
    let objects = vec!["acme/web", "acme/web2", "initech/web", "nobody/web"];
    let ingress = (select(objects), 0..3u8, select(more), vec(select(hosts), 0..4));
    let ingress = ingress
        .prop_map(|(object, since, more, hosts)| format!("ingress {object} since={since} {more} {}", hosts.join(" ")));
    prop_oneof![
        5 => ingress,
        1 => select(policies).prop_map(str::to_owned),
        1 => select(classes).prop_map(str::to_owned),
        1 => select(secrets).prop_map(str::to_owned),
    ]
}

/// An upsert, or the deletion of what it would have made.
fn change(grace: &'static str) -> impl Strategy<Value = String> {
    (upsert(grace), prop_oneof![8 => Just(""), 3 => Just("gone"), 1 => Just("broken")]).prop_map(|(line, fate)| {
        match fate {
            "gone" => gone_line(&line),
            "broken" if ["records", "ingress", "secret", "class"].iter().any(|kind| line.starts_with(kind)) => {
                gone_line(&line)
            }
            "broken" => {
                gone_line(&line).replacen("gone policy", "gone federationpolicy", 1).replacen("gone", "broken", 1)
            }
            _ => line,
        }
    })
}

fn gone_line(line: &str) -> String {
    let line = line.trim().trim_start_matches("broken ").trim_start_matches("federation");
    let mut words = line.split_whitespace();
    format!("gone {} {}", words.next().unwrap_or(""), words.next().unwrap_or(""))
}

fn is_broken(line: &str) -> bool {
    line.trim_start().starts_with("broken")
}

/// Plans, each of a few changes at once.
fn plans(grace: &'static str) -> impl Strategy<Value = Vec<Vec<String>>> {
    let some = vec(vec(change(grace), 1..5), 1..12);
    // Most sequences begin with something that clusters can be accepted in.
    (prop::bool::weighted(0.8), some).prop_map(move |(grounded, mut plans)| {
        if grounded {
            let ground = format!("zone main fleet.example {grace}\n tenant acme\n tenant initech");
            plans.insert(0, vec![ground]);
        }
        plans
    })
}

/// The last word on each object; that it cannot be read comes after what was good.
fn last_words(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut last = BTreeMap::new();
    for line in lines.into_iter().flat_map(|lines| lines.lines().map(str::to_owned).collect::<Vec<_>>()) {
        let gone = line.trim_start().starts_with("gone");
        let key = if gone { line.trim().to_owned() } else { gone_line(&line) };
        let (good, broken) = last.entry(key).or_insert((None, None));
        if is_broken(&line) {
            *broken = Some(line);
        } else {
            (*good, *broken) = ((!gone).then_some(line), None);
        }
    }
    last.into_values().flat_map(|(good, broken)| [good, broken]).flatten().collect()
}

/// When every name that was given up can be had again.
const RESTED: u64 = 1_000_000;

/// Plans until nothing rests any more: what can be had again may take something from somebody, which rests in its turn.
fn come_to_rest(planner: &mut Planner) {
    let mut now = RESTED;
    while planned(planner, &[], now).wake.is_some() {
        now += RESTED;
        assert!(now < 100 * RESTED, "it never comes to rest");
    }
}

fn planned(planner: &mut Planner, lines: &[String], seconds: u64) -> Planned {
    planner.apply(facts(&lines.join("\n")), at(seconds))
}

/// A snapshot without its history: serials, revision, and since when conditions hold.
#[derive(Debug, PartialEq)]
struct Content {
    zones: BTreeMap<ObjectName, ZonePart>,
    clusters: BTreeMap<ClusterName, ClusterPart>,
    by_id: BTreeMap<ClusterId, Arc<Route>>,
    by_server_name: BTreeMap<DnsName, Arc<Route>>,
    names: BTreeMap<DnsName, TenantName>,
    hosts: BTreeMap<DnsName, Arc<Host>>,
    elsewhere: BTreeMap<DnsName, Arc<Host>>,
    apps: (BTreeMap<DnsName, Arc<Route>>, BTreeMap<DnsName, Arc<Host>>),
    foreign: BTreeSet<ObjectRef>,
    statuses: BTreeMap<ObjectRef, Status>,
}

fn content(snapshot: &Snapshot) -> Content {
    let timeless = |status: &Arc<Status>| {
        let mut status = Status::clone(status);
        for condition in &mut status.conditions {
            condition.since = Timestamp::default();
        }
        if let Detail::Zone { serial, .. } = &mut status.detail {
            *serial = 0;
        }
        status
    };
    let unnumbered = |part: &Arc<ZonePart>| {
        let mut part = ZonePart::clone(part);
        part.soa.serial = 0;
        part
    };
    Content {
        zones: snapshot.zones.iter().map(|(name, part)| (name.clone(), unnumbered(part))).collect(),
        clusters: snapshot.clusters.iter().map(|(name, part)| (name.clone(), ClusterPart::clone(part))).collect(),
        by_id: snapshot.routes_by_id.iter().map(|(id, route)| (id.clone(), Arc::clone(route))).collect(),
        by_server_name: snapshot
            .routes_by_server_name
            .iter()
            .map(|(name, route)| (name.clone(), Arc::clone(route)))
            .collect(),
        names: snapshot.names.iter().map(|(name, held)| (name.clone(), TenantName::clone(held))).collect(),
        hosts: sorted(&snapshot.http.hosts),
        elsewhere: sorted(&snapshot.http.elsewhere),
        apps: (sorted(&snapshot.apps_routes), sorted(&snapshot.http.apps)),
        foreign: snapshot.foreign.iter().cloned().collect(),
        statuses: snapshot.statuses().map(|(object, status)| (object.clone(), timeless(status))).collect(),
    }
}

fn sorted<T>(table: &rpds::HashTrieMapSync<DnsName, Arc<T>>) -> BTreeMap<DnsName, Arc<T>> {
    table.iter().map(|(name, value)| (name.clone(), Arc::clone(value))).collect()
}

/// What a name server keeps: by apex, the SOA, the zone file and every name beside it.
pub(super) type Served = BTreeMap<DnsName, ServedZone>;
pub(super) type ServedZone = (Soa, Option<Arc<ZoneFile>>, BTreeMap<DnsName, Arc<[RecordSet]>>);

pub(super) fn follow(served: &mut Served, changes: &Changes) {
    for change in &changes.zones {
        match change {
            ZoneChange::Withdraw { apex } => _ = served.remove(apex),
            ZoneChange::Serve { apex, soa, file } => {
                let names = served.remove(apex).map(|(_, _, names)| names).unwrap_or_default();
                served.insert(apex.clone(), (soa.clone(), file.clone(), names));
            }
        }
    }
    for change in &changes.names {
        // Withdrawing a zone took its names along.
        let Some((_, _, names)) = served.get_mut(&change.apex) else { continue };
        if change.records.is_empty() {
            names.remove(&change.name);
        } else {
            names.insert(change.name.clone(), Arc::clone(&change.records));
        }
    }
}

pub(super) fn served_by(snapshot: &Snapshot) -> Served {
    let mut served = Served::new();
    let zones: Vec<_> = snapshot.zones.values().filter(|part| part.authoritative).collect();
    for part in &zones {
        let earlier = served.insert(part.apex.clone(), (part.soa.clone(), part.file.clone(), BTreeMap::new()));
        assert_eq!(earlier, None, "two zones have the domain {}", part.apex);
    }
    let of_zones = zones.iter().map(|part| (&part.apex, part.names.as_slice()));
    let of_clusters = snapshot.clusters.values().map(|part| (&part.apex, part.answered()));
    let of_tenants = snapshot.names.values().map(|held| (&held.apex, held.answered()));
    for (apex, names) in of_zones.chain(of_clusters).chain(of_tenants) {
        for name in names {
            let (_, file, there) = served.get_mut(apex).expect("only names of served zones are published");
            let shared = file.as_ref().is_some_and(|file| !file.sets_of(&name.name).is_empty());
            assert!(!shared, "{} has records of the file too", name.name);
            assert!(!name.records.is_empty() && name.name.is_at_or_under(apex), "{name:?} in {apex}");
            let earlier = there.insert(name.name.clone(), Arc::clone(&name.records));
            assert_eq!(earlier, None, "{} has two owners", name.name);
        }
    }
    served
}

/// Whatever the facts: one owner per id and name, tables that agree with the parts, a status for every object.
fn assert_sound(planner: &Planner) {
    assert_apart(planner);
    let snapshot = planner.snapshot();
    let mut claimed = HashSet::new();
    let (mut by_id, mut by_server_name) = (BTreeMap::new(), BTreeMap::new());
    let mut apps = (BTreeMap::new(), BTreeMap::new());
    for (name, part) in &snapshot.clusters {
        assert!(claimed.insert(part.id.to_string()), "{name} shares its id");
        let (published, routed) = (part.names.iter().map(|name| &name.name), part.routes.iter().map(|(name, _)| name));
        for claim in published.chain(routed).collect::<BTreeSet<_>>() {
            assert!(claimed.insert(format!("{claim}.")), "{name} shares {claim}");
        }
        assert!(part.routes.iter().all(|(_, route)| route.cluster == *name));
        by_id.insert(part.id.clone(), Arc::clone(&part.routes[0].1));
        by_server_name.extend(part.routes.iter().cloned());
        if let Some(Apps { subtree, tls, http }) = &part.apps {
            assert!(tls.iter().all(|route| route.cluster == *name));
            apps.0.extend(tls.iter().map(|route| (subtree.clone(), Arc::clone(route))));
            apps.1.extend(http.iter().map(|host| (subtree.clone(), Arc::clone(host))));
        }
    }
    let content = content(snapshot);
    assert_eq!(content.by_id, by_id);
    assert_eq!(content.by_server_name, by_server_name);
    assert_eq!(content.apps, apps);

    let scheduled = snapshot.clusters.iter().filter(|(_, part)| !part.held);
    let scheduled = scheduled.filter_map(|(name, part)| Some((part.withdraw_at?, name.clone())));
    assert_eq!(planner.withdrawals, scheduled.collect::<BTreeSet<_>>());

    assert_eq!(snapshot.refused_count(), snapshot.statuses().filter(|(_, status)| status.refusal().is_some()).count());

    let object = |kind, name: &ObjectName| ObjectRef::cluster_scoped(kind, name.clone());
    let zones = planner.zones.keys().map(|name| object(Kind::Zone, name));
    let tenants = planner.tenants.keys().map(|name| object(Kind::Tenant, name));
    let clusters = planner.clusters.keys().map(|name| object(Kind::Cluster, &name.into()));
    let broken = planner.broken.keys().cloned();
    let records = planner.records.objects().cloned();
    let known = zones.chain(tenants).chain(clusters).chain(broken).chain(records);
    let known: BTreeSet<_> = known.chain(planner.federation.told()).collect();
    let told = content.statuses.keys().cloned();
    assert_eq!(told.collect::<BTreeSet<_>>(), known);
    for (object, status) in snapshot.statuses() {
        let accepted = status.refusal().is_none();
        if planner.broken.contains_key(object) {
            assert!(!accepted, "{object}");
            continue;
        }
        match object.kind {
            Kind::Zone => {
                let part = snapshot.zone(&object.name);
                assert_eq!(part.is_some(), accepted, "{object}");
                let told = |part: &Arc<ZonePart>| Detail::Zone { serial: part.soa.serial, digest: part.digest };
                let detail = part.map_or(Detail::None, told);
                assert_eq!(status.detail, detail, "{object}");
            }
            Kind::Cluster => {
                let name: ClusterName = object.name.as_str().parse().unwrap();
                assert_eq!(snapshot.cluster(&name).is_some(), accepted, "{object}");
                assert_eq!(planner.clusters[&name].accepted, accepted, "{object}");
            }
            _ => {}
        }
    }
}

/// Nothing of one tenant's leads to another's: neither hosts nor members, whatever their selectors and classes say.
fn assert_apart(planner: &Planner) {
    let snapshot = planner.snapshot();
    for (subtree, host) in &snapshot.http.apps {
        assert_eq!(snapshot.ground.is_tenants(&host.tenant, subtree), Some(true), "{subtree} is {}'s", host.tenant);
        let entry = host.default().unwrap();
        assert!(host.routes().is_empty() && entry.tenant == host.tenant && entry.members.len() == 1, "{subtree}");
        assert_eq!(planner.clusters[&entry.members[0].cluster].cluster.tenant, host.tenant, "{subtree}");
    }
    let tables = snapshot.http.hosts.iter().chain(snapshot.http.elsewhere.iter());
    for (name, host) in tables {
        // `elsewhere` begins at the tenant's own suffix; a wildcard stands for names below.
        let own = snapshot.ground.is_tenants(&host.tenant, name);
        assert_eq!(own, Some(true), "{name} is served for {}", host.tenant);
        for route in host.routes() {
            let entry = &route.entry;
            assert_eq!(entry.tenant, host.tenant, "{name}");
            let namespace = entry.object.namespace.as_ref().unwrap();
            assert_eq!(snapshot.ground.tenant_of_namespace(namespace), Some(&host.tenant), "{name}");
            for member in entry.members.iter() {
                let owner = planner.clusters.get(&member.cluster).map(|state| &state.cluster.tenant);
                assert_eq!(owner, Some(&host.tenant), "{name} is served by {}", member.cluster);
                assert!(snapshot.cluster(&member.cluster).is_some(), "{} is not accepted", member.cluster);
            }
        }
        let published = snapshot.names.get(name);
        assert!(published.is_none_or(|held| held.tenant == host.tenant), "{name} is published for somebody else");
    }
}

/// The objects of which the two say different things.
fn told_anew(before: &Snapshot, after: &Snapshot) -> Vec<ObjectRef> {
    let objects: BTreeSet<_> = before.statuses().chain(after.statuses()).map(|(object, _)| object.clone()).collect();
    objects.into_iter().filter(|object| before.status(object) != after.status(object)).collect()
}

/// What happens to a process between two plans.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    GoesOn,
    Rests,
    Ends,
    IsKilled,
}

proptest! {
    #[test]
    fn the_order_and_the_batches_of_facts_do_not_matter(
        lines in vec(upsert("grace=60"), 1..25),
        order in vec(any::<Index>(), 25),
        cuts in vec(any::<bool>(), 25),
    ) {
        let lines = last_words(lines);
        let mut at_once = Planner::default();
        planned(&mut at_once, &lines, 1000);

        let mut rest = lines.clone();
        let mut shuffled = vec![Vec::new()];
        for (place, cut) in order.iter().zip(cuts) {
            if rest.is_empty() {
                break;
            }
            let line = rest.swap_remove(place.index(rest.len()));
            if cut {
                shuffled.push(Vec::new());
            }
            shuffled.last_mut().expect("there is always a batch").push(line);
        }
        let mut piecemeal = Planner::default();
        for batch in &shuffled {
            planned(&mut piecemeal, batch, 1000);
            assert_sound(&piecemeal);
        }
        come_to_rest(&mut at_once);
        come_to_rest(&mut piecemeal);
        prop_assert_eq!(content(at_once.snapshot()), content(piecemeal.snapshot()), "{:#?}", shuffled);
    }

    /// Without grace: what no longer is ready may legitimately be remembered with it.
    #[test]
    fn step_by_step_ends_where_starting_from_scratch_does(plans in plans("grace=0")) {
        let mut planner = Planner::default();
        for (seconds, lines) in (1000..).zip(&plans) {
            planned(&mut planner, lines, seconds);
            assert_sound(&planner);
        }
        let mut fresh = Planner::default();
        planned(&mut fresh, &last_words(plans.concat()), 1000);
        come_to_rest(&mut planner);
        come_to_rest(&mut fresh);
        prop_assert_eq!(content(planner.snapshot()), content(fresh.snapshot()));
        prop_assert_eq!(planner.claims, fresh.claims);
        prop_assert_eq!(planner.clusters_of_tenant, fresh.clusters_of_tenant);
    }

    #[test]
    fn planning_the_same_facts_again_changes_nothing(plans in plans("grace=60"), pause in 0..30u64) {
        let mut planner = Planner::default();
        let mut now = 1000;
        for lines in &plans {
            let done = planned(&mut planner, lines, now);
            let again = planned(&mut planner, lines, now);
            prop_assert_eq!(&again.changes, &Changes::default());
            prop_assert!(Arc::ptr_eq(&done.snapshot, &again.snapshot));
            prop_assert_eq!(done.wake, again.wake);
            prop_assert!(done.wake.is_none_or(|wake| wake > at(now)));
            now += pause;
        }
        let known = last_words(plans.concat());
        let before = Arc::clone(planner.snapshot());
        let again = planned(&mut planner, &known, now - pause);
        prop_assert_eq!(&again.changes, &Changes::default());
        prop_assert!(Arc::ptr_eq(&before, &again.snapshot));
    }

    #[test]
    fn deleting_and_making_again_at_once_changes_nothing(plans in plans("grace=60")) {
        let mut planner = Planner::default();
        for lines in &plans {
            planned(&mut planner, lines, 1000);
        }
        let known = last_words(plans.concat());
        let gone = |line: &String| (!is_broken(line)).then(|| gone_line(line));
        let twice: Vec<_> = known.iter().flat_map(|line| gone(line).into_iter().chain([line.clone()])).collect();
        let before = Arc::clone(planner.snapshot());
        let again = planned(&mut planner, &twice, 1001);
        prop_assert_eq!(&again.changes, &Changes::default());
        prop_assert!(Arc::ptr_eq(&before, &again.snapshot));
    }

    #[test]
    fn changes_lead_to_what_the_snapshot_says(plans in plans("grace=60"), pause in 0..30u64) {
        let mut planner = Planner::default();
        let mut served = Served::new();
        let mut ever_served = Served::new();
        for (turn, lines) in (0..).zip(&plans) {
            let now = 1000 + turn * pause;
            let before = Arc::clone(planner.snapshot());
            let done = planned(&mut planner, lines, now);
            assert_sound(&planner);
            prop_assert_eq!(&done.changes.statuses, &told_anew(&before, &done.snapshot));
            follow(&mut served, &done.changes);
            prop_assert_eq!(&served, &served_by(&done.snapshot), "{:#?}", done.changes);

            for (apex, (soa, file, names)) in &served {
                let earlier = ever_served.insert(apex.clone(), (soa.clone(), file.clone(), names.clone()));
                let Some((old, old_file, old_names)) = earlier else { continue };
                let alike = *names == old_names && *file == old_file && *soa == Soa { serial: soa.serial, ..old.clone() };
                prop_assert!(is_newer(soa.serial, old.serial) || (alike && soa.serial == old.serial), "{}", apex);
                let told = done.changes.names.iter().any(|change| change.apex == *apex)
                    || done.changes.zones.iter().any(|change| matches!(change, ZoneChange::Serve { apex: told, .. } if told == apex));
                prop_assert!(told || soa.serial == old.serial, "{} was renumbered in silence", apex);
            }
        }
    }

    /// Whatever the clock shows, and whenever a process ends: what differs from what was served last has a later serial,
    /// and nothing has an earlier one.
    #[test]
    fn serials_never_go_back(
        plans in plans("grace=5"),
        turns in vec((select(vec![Fate::GoesOn, Fate::GoesOn, Fate::Rests, Fate::Ends, Fate::IsKilled]), 0..9000u64), 13),
    ) {
        let mut planner = Planner::default();
        let mut disk = BTreeMap::new();
        let mut ever_served = BTreeMap::new();
        let mut known = Vec::new();
        for (lines, (fate, now)) in plans.iter().zip(turns) {
            match fate {
                Fate::GoesOn => {}
                Fate::Rests => disk.extend(planner.rest()),
                Fate::Ends | Fate::IsKilled => {
                    if fate == Fate::Ends {
                        disk.extend(planner.rest());
                    }
                    planner = Planner::resume(disk.clone());
                    let done = planned(&mut planner, &last_words(known.clone()), now);
                    disk.extend(done.reserve.iter().cloned());
                    assert_served(&mut ever_served, served_by(&done.snapshot), fate == Fate::Ends);
                }
            }
            known.extend(lines.clone());
            let done = planned(&mut planner, lines, now);
            disk.extend(done.reserve.iter().cloned());
            assert_served(&mut ever_served, served_by(&done.snapshot), true);
        }
    }
}

/// `remembered`: the same content has the same serial.
#[track_caller]
fn assert_served(ever: &mut BTreeMap<DnsName, (ServedZone, bool)>, served: Served, remembered: bool) {
    // While others publish a zone, nothing is in it, which is content of its own.
    for (apex, (_, was_served)) in ever.iter_mut() {
        *was_served &= served.contains_key(apex);
    }
    for (apex, now) in served {
        let Some(((last, last_file, last_names), was_served)) = ever.get(&apex) else {
            ever.insert(apex, (now, true));
            continue;
        };
        let remembered = remembered && *was_served;
        let (soa, file, names) = &now;
        let of_file = |file: &Option<Arc<ZoneFile>>| file.as_ref().and_then(|file| Some(file.soa()?.serial));
        let alike = names == last_names && file == last_file && *soa == Soa { serial: soa.serial, ..last.clone() };
        let stays = soa.serial == last.serial;
        assert!(is_newer(soa.serial, last.serial) || (alike && stays), "{apex}: {} after {}", soa.serial, last.serial);
        assert!(stays || !alike || !remembered, "{apex}: {} after {}", soa.serial, last.serial);
        if let Some(of_file) = of_file(file) {
            let verbatim = names.is_empty() && soa.serial == of_file;
            assert!(verbatim || is_newer(soa.serial, of_file), "{apex}: {} beside the file's {of_file}", soa.serial);
        }
        ever.insert(apex, (now, true));
    }
}
