//! What a zone file adds to its zone, what it replaces, and what it stands in the way of.

use super::fleet::{Fleet, lines, zone_file};
use crate::identity::Kind;
use crate::name::DnsName;
use crate::snapshot::{ZoneChange, ZonePart};
use crate::zone_file::ZoneFile;

fn part(fleet: &Fleet) -> &ZonePart {
    fleet.planned.snapshot.zone(&"main".parse().unwrap()).unwrap()
}

/// A word per set: its name, its type's number and how many records it has.
fn sets(file: &ZoneFile) -> Vec<String> {
    let names = file.names().map(|name| (DnsName::from_wire(name.wire).unwrap(), name.sets));
    let sets = names.flat_map(|(name, sets)| sets.map(move |number| (name.clone(), file.set(number))));
    sets.map(|(name, set)| format!("{name}/{}/{}", set.rtype, set.count)).collect()
}

/// Each row: settings of a zone, the names that the plan gives, and what the file is served as, where it is not as it is.
#[test]
fn what_a_zone_with_a_file_serves() {
    for (settings, names, merged) in [
        // The file has said it all.
        ("ns=none file=soa/7,@/NS/ns.test", vec![], None),
        ("file=soa/7,@/NS/ns.test", vec![], None),
        ("file=@/NS/ns.fleet.example,ns/A/192.0.2.9", vec![], None),
        // Its own name servers count verbatim, also where it gives no addresses.
        ("ns=none file=@/NS/ns.fleet.example", vec![], None),
        // Ours stand beside what is elsewhere in the zone.
        (
            "file=www/A/192.0.2.1",
            vec!["fleet.example 30 NS ns1.fleet.example", "ns1.fleet.example 30 A 192.0.2.53"],
            None,
        ),
        // The addresses of its name servers may be ours to add.
        ("file=@/NS/ns1.fleet.example", vec!["ns1.fleet.example 30 A 192.0.2.53"], None),
        // They yield to those of the file.
        ("file=ns1/A/192.0.2.9", vec!["fleet.example 30 NS ns1.fleet.example"], None),
        ("ns=ns1.fleet.example file=ns1/A/192.0.2.9", vec!["fleet.example 30 NS ns1.fleet.example"], None),
        // Names that the file has get what they lack.
        (
            "file=@/TXT/x,www/A/192.0.2.1",
            vec!["ns1.fleet.example 30 A 192.0.2.53"],
            Some(vec!["fleet.example/2/1", "fleet.example/16/1", "www.fleet.example/1/1"]),
        ),
        (
            "ns=b.test,a.test file=@/A/192.0.2.1,@/TXT/x",
            vec![],
            Some(vec!["fleet.example/1/1", "fleet.example/2/2", "fleet.example/16/1"]),
        ),
        (
            "file=ns1/TXT/x",
            vec!["fleet.example 30 NS ns1.fleet.example"],
            Some(vec!["ns1.fleet.example/1/1", "ns1.fleet.example/16/1"]),
        ),
    ] {
        let fleet = Fleet::grounded(&format!("zone main fleet.example {settings}"));
        assert_eq!(fleet.verdict(Kind::Zone, "main"), "Valid", "{settings}");
        assert_eq!(part(&fleet).names.iter().flat_map(lines).collect::<Vec<_>>(), names, "{settings}");
        let written = settings.split("file=").nth(1).unwrap();
        let plain = sets(&zone_file("fleet.example", written));
        let merged = merged.map_or(plain, |sets| sets.into_iter().map(str::to_owned).collect());
        assert_eq!(sets(part(&fleet).file.as_ref().unwrap()), merged, "{settings}");
        let [ZoneChange::Serve { file: Some(served), .. }] = fleet.planned.changes.zones.as_slice() else {
            panic!("{settings}: {:?}", fleet.planned.changes.zones)
        };
        assert_eq!(Some(served), part(&fleet).file.as_ref(), "{settings}");
    }
}

#[test]
fn an_soa_of_the_file_counts_verbatim_and_a_missing_one_is_made() {
    let fleet = Fleet::grounded("zone main fleet.example file=soa/7,@/NS/ns.test");
    let soa = &part(&fleet).soa;
    assert_eq!((soa.primary.to_string().as_str(), soa.ttl, soa.refresh, soa.minimum), ("primary.test", 5, 1, 4));
    let fleet = Fleet::grounded("zone main fleet.example ns=none file=@/NS/ns.test");
    let soa = &part(&fleet).soa;
    assert_eq!((soa.primary.to_string().as_str(), soa.ttl, soa.refresh, soa.minimum), ("ns.test", 30, 3600, 30));
}

#[test]
fn the_verdicts_of_a_zone_with_a_file() {
    let nobody =
        "NoNameservers: the Zone has no name servers; give `nameservers`, or NS records at the apex of its zone file";
    for (settings, expected) in [
        ("ns=none file=soa/7,www/A/192.0.2.1", nobody),
        // A delegation is no name server of the zone itself.
        ("ns=none file=sub/NS/ns.test", nobody),
        (
            "ns=ns1.fleet.example file=ns1/TXT/x",
            "NameserverWithoutAddress: name server ns1.fleet.example lies inside the Zone and needs an address",
        ),
        (
            "file=@/DNAME/other.test",
            "HiddenByZoneFile: ns1.fleet.example lies below fleet.example, whose DNAME record in the zone file of Zone main \
             would hide it",
        ),
        ("ns=ns.test file=@/DNAME/other.test", "Valid"),
        // Its address is glue.
        ("ns=ns.sub.fleet.example/192.0.2.1 file=sub/NS/ns.sub.fleet.example", "Valid"),
    ] {
        let fleet = Fleet::grounded(&format!("zone main fleet.example {settings}"));
        assert_eq!(fleet.verdict(Kind::Zone, "main"), expected, "{settings}");
    }
}

/// Each row: records of the file, and what becomes of cluster c1 with `sni=s.fleet.example`.
#[test]
fn a_cluster_does_not_share_a_name_with_the_file() {
    let taken = |name: &str| format!("InZoneFile: {name}.fleet.example stands in the zone file of Zone main");
    let hidden = |name: &str, cut: &str, rtype: &str| {
        format!(
            "HiddenByZoneFile: {name}.fleet.example lies below {cut}fleet.example, whose {rtype} record in the zone file of Zone main would hide it"
        )
    };
    for (file, expected) in [
        ("www/A/192.0.2.1", "Valid".to_owned()),
        ("api.c1/A/192.0.2.1", taken("api.c1")),
        ("api.c1/TXT/x", taken("api.c1")),
        ("*.c1/CNAME/other.test", taken("*.c1")),
        ("s/A/192.0.2.1", taken("s")),
        ("api.c1/NS/ns.test", taken("api.c1")),
        ("c1/NS/ns.test", hidden("api.c1", "c1.", "NS")),
        ("c1/DNAME/other.test", hidden("api.c1", "c1.", "DNAME")),
        ("@/DNAME/other.test,ns1/A/192.0.2.1", hidden("api.c1", "", "DNAME")),
        // None of these stands in the way.
        ("c1/A/192.0.2.1,www.c1/A/192.0.2.1,x.api.c1/A/192.0.2.1", "Valid".to_owned()),
        ("c1/CNAME/other.test", "Valid".to_owned()),
        ("*/A/192.0.2.1", "Valid".to_owned()),
        ("c10/NS/ns.test,x.api.c1/NS/ns.test", "Valid".to_owned()),
    ] {
        let zone = format!("zone main fleet.example ns=ns.test file={file}");
        let fleet = Fleet::grounded(&format!("{zone}\n cluster c1 sni=s.fleet.example nodes=192.0.2.1"));
        assert_eq!(fleet.verdict(Kind::Cluster, "c1"), expected, "{file}");
    }
}

#[test]
fn a_file_takes_a_name_from_a_cluster_and_gives_it_back() {
    let mut fleet = Fleet::grounded("cluster c1\n cluster c2");
    fleet.plan(1001, "zone main fleet.example file=api.c1/A/192.0.2.1");
    assert_eq!(fleet.accepted_clusters(), ["c2"]);
    let gone = fleet.planned.changes.names.iter().find(|change| change.name.to_string() == "api.c1.fleet.example");
    assert!(gone.is_some_and(|change| change.records.is_empty()), "the file's records stand alone");
    fleet.plan(1002, "zone main fleet.example file=www/A/192.0.2.1");
    assert_eq!(fleet.accepted_clusters(), ["c1", "c2"]);
}

/// A server name outside of the cluster's own zone is only routed: the operator may publish it by hand.
#[test]
fn a_file_of_another_zone_may_hold_a_cluster_s_server_name() {
    let other = "zone other other.test file=s/A/192.0.2.10";
    let fleet = Fleet::grounded(&format!("{other}\n cluster c1 sni=s.other.test"));
    assert_eq!(fleet.by_server_name("s.other.test").as_deref(), Some("c1 service-0"));
}

/// The deepest zone answers: what the parent's file says inside of a child zone is never asked for, so that it neither
/// clashes with the child's names nor is taken out of the file. Without the child zone it counts.
#[test]
fn the_file_of_a_parent_zone_is_silent_inside_a_child_zone() {
    let parent = "zone main fleet.example file=child/NS/ns.test,api.c1.child/A/192.0.2.1";
    let child = "zone child child.fleet.example";
    let mut fleet = Fleet::grounded(&format!("{parent}\n {child}\n cluster c1 zone=child"));
    assert_eq!(fleet.accepted_clusters(), ["c1"]);
    assert_eq!(sets(part(&fleet).file.as_ref().unwrap()).len(), 2);

    fleet.plan(1001, &format!("gone zone child\n {parent} api=api.{{cluster}}.child\n cluster c1"));
    assert_eq!(
        fleet.verdict(Kind::Cluster, "c1"),
        "InZoneFile: api.c1.child.fleet.example stands in the zone file of Zone main"
    );
}

#[test]
fn name_servers_of_the_file_are_reserved() {
    let zone = "zone main fleet.example ns=none file=@/NS/ns9.fleet.example";
    let fleet = Fleet::grounded(&format!("{zone}\n cluster c1 sni=ns9.fleet.example"));
    assert_eq!(fleet.verdict(Kind::Cluster, "c1"), "Reserved: ns9.fleet.example is reserved by Zone main");
}

#[test]
fn an_unchanged_file_is_merged_once() {
    let zone = "zone main fleet.example file=@/TXT/x";
    let mut fleet = Fleet::grounded(zone);
    let before = part(&fleet).file.clone().unwrap();
    fleet.plan(1001, "zone other other.test");
    fleet.plan(1002, &format!("{zone} gateway=192.0.2.11"));
    assert!(std::sync::Arc::ptr_eq(&before, part(&fleet).file.as_ref().unwrap()));
}
