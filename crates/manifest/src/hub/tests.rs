use std::sync::Arc;

use model::Refusal;
use model::resource::{Access, Upstream};
use serde_json::json;

use super::*;
use crate::named::{Missing, Source};
use crate::nothing_named;

/// As the API server gives one, with everything that it adds.
fn object(kind: Kind, spec: &Json) -> Json {
    let mut object = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.as_str(),
        "metadata": {
            "name": "c1",
            "generateName": "c",
            "selfLink": "/apis/x",
            "uid": "5b9c1f8e-3a51-4d35-8d59-6f1e4c1c2b11",
            "resourceVersion": "17",
            "generation": 3,
            "creationTimestamp": "2026-01-31T12:00:00Z",
            "deletionTimestamp": "2026-01-31T13:00:00Z",
            "deletionGracePeriodSeconds": 0,
            "finalizers": ["example.org/x"],
            "labels": {"env": "prod"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "ownerReferences": [{"kind": "X"}],
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": spec,
    });
    if kind.is_namespaced() {
        object["metadata"]["namespace"] = "acme".into();
    }
    object
}

fn cluster_spec() -> Json {
    json!({
        "tenant": "acme",
        "zone": "main",
        "controlPlane": {"kubeApiserver": {"addresses": ["10.0.0.7:6443"]}},
        "nodes": [{"name": "given", "addresses": ["192.0.2.1"], "ready": true}],
    })
}

fn read_cluster(object: Json, named: Named<'_>) -> model::resource::Cluster {
    match read(Kind::Cluster, object, named).unwrap().value {
        Value::Cluster(cluster) => *cluster,
        other => panic!("no cluster: {other:?}"),
    }
}

fn read_zone(spec: &Json, named: Named<'_>) -> model::resource::Zone {
    match read(Kind::Zone, object(Kind::Zone, spec), named).unwrap().value {
        Value::Zone(zone) => zone,
        other => panic!("no zone: {other:?}"),
    }
}

/// Something of each kind, as little as it may be.
#[test]
fn every_kind_is_read() {
    for (kind, spec) in [
        (Kind::Zone, json!({"domain": "fleet.example"})),
        (Kind::Tenant, json!({})),
        (Kind::Cluster, cluster_spec()),
        (Kind::AddressPool, json!({"cidrs": ["198.51.100.0/24"]})),
        (Kind::AddressClaim, json!({"pool": "public", "family": "IPv4"})),
        (Kind::FederationPolicy, json!({})),
        (Kind::DnsEndpoint, json!({"endpoints": [{"dnsName": "a.b", "recordTTL": 5, "targets": ["192.0.2.1"]}]})),
        (Kind::Ingress, json!({"rules": [], "whatever": "comes"})),
        (Kind::IngressClass, json!({"controller": "fleetgate.dev/ingress"})),
        (Kind::Secret, json!(null)),
    ] {
        let read = read(kind, object(kind, &spec), &mut nothing_named).unwrap_or_else(|why| panic!("{kind}: {why}"));
        assert_eq!((read.object.kind, read.object.name.as_str()), (kind, "c1"));
        assert_eq!(read.object.namespace.is_some(), kind.is_namespaced());
    }
}

#[test]
fn who_has_an_address_is_read_by_its_name() {
    let spec = json!({"pool": "public", "claim": {"namespace": "acme", "name": "web", "uid": "u"}});
    for (name, expected) in [
        ("198.51.100.7", Some("198.51.100.7")),
        ("2001-0db8-0000-0000-0000-0000-0000-0007", Some("2001:db8::7")),
        ("c1", None),
    ] {
        let mut object = object(Kind::Address, &spec);
        object["metadata"]["name"] = name.into();
        match (read(Kind::Address, object, &mut nothing_named), expected) {
            (Ok(Manifest { value: Value::Address(address, allocation), .. }), Some(expected)) => {
                assert_eq!((address.to_string().as_str(), &*allocation.uid), (expected, "u"));
            }
            (Err(wrong), None) => assert!(wrong.starts_with("metadata.name: \"c1\" is no address"), "{wrong}"),
            (read, _) => panic!("{name}: {read:?}"),
        }
    }
}

#[test]
fn numbers_of_reverse_zones_are_found_in_the_status() {
    let digest = "0123456789abcdef0123456789abcdef";
    let zone = |zone: &str, digest: &str| json!({"zone": zone, "serial": 7, "digest": digest});
    let zones = [zone("2.0.192.in-addr.arpa", digest), zone("..", digest), zone("8.b.d.0.1.0.0.2.ip6.arpa", "x")];
    let numbers = reverse_numbers(&json!({"status": {"reverseZones": zones}}));
    let number = Number { serial: 7, digest: digest.parse().unwrap() };
    assert_eq!(numbers, [("2.0.192.in-addr.arpa".parse().unwrap(), number)]);
    assert_eq!(reverse_numbers(&json!({"status": {"reverseZones": 5}})), []);
    assert_eq!(reverse_numbers(&json!({})), []);
}

#[test]
fn labels_and_addresses_come_along() {
    let cluster = read_cluster(object(Kind::Cluster, &cluster_spec()), &mut nothing_named);
    assert_eq!(cluster.labels["env"], "prod");
    assert_eq!(cluster.api_server, Upstream::Addresses(vec!["10.0.0.7:6443".parse().unwrap()]));
    assert_eq!((cluster.hindrance, cluster.access, cluster.kept), (None, None, None));
}

/// Each row: a field, a value that a schema might let pass, and what is said of it.
#[test]
fn mistakes_say_where_they_are() {
    let mut wrong = Vec::new();
    for (kind, spec, pointer, value, expected) in [
        (
            Kind::Cluster,
            cluster_spec(),
            "/spec/nodes/0/addresses/0",
            json!("::ffff:192.0.2.1"),
            "spec.nodes[0].addresses[0]: \"::ffff:192.0.2.1\" is an IPv4 address in IPv6 form; write 192.0.2.1",
        ),
        (Kind::Cluster, cluster_spec(), "/spec/tenant", json!(7), "spec.tenant: invalid type: integer `7`"),
        (Kind::Cluster, cluster_spec(), "/spec/controlPlane/kubeApiserver", json!({}), "either addresses or a service"),
        (Kind::Cluster, cluster_spec(), "/spec", json!({}), "spec: missing field `tenant`"),
        (Kind::Cluster, cluster_spec(), "/spec/nodes/0", json!({"name": "n", "colour": 1}), "spec.nodes[0]"),
        (Kind::Cluster, cluster_spec(), "/metadata/name", json!("a.b"), "metadata.name: \"a.b\" is no DNS label"),
        (Kind::Zone, json!({"domain": "a"}), "/spec/domain", json!("a..b"), "spec.domain: "),
        (Kind::Tenant, json!({}), "/metadata/namespace", json!("acme"), "metadata.namespace: does not belong there"),
        (
            Kind::AddressClaim,
            json!({"pool": "p", "family": "IPv4", "address": "::1"}),
            "/spec/pool",
            json!("p"),
            "spec: address ::1 is not of family IPv4",
        ),
    ] {
        let mut object = object(kind, &spec);
        match object.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => object["metadata"]["namespace"] = value,
        }
        let told = read(kind, object, &mut nothing_named).expect_err(expected);
        if !told.contains(expected) {
            wrong.push(format!("{pointer}: expected {expected}, found {told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn watched_nodes_come_from_the_status() {
    let mut spec = cluster_spec();
    let mut status = json!({
        "nodes": [{"name": "seen", "addresses": ["192.0.2.2", "2001:db8::2"], "ready": false}],
        "kept": {"name": "*.c1.fleet.example", "addresses": ["192.0.2.2"], "until": "2026-01-31T12:00:00.5Z"},
        "somethingNew": 1,
    });
    let with = |spec: &Json, status: &Json| {
        let mut object = object(Kind::Cluster, spec);
        object["status"] = status.clone();
        read_cluster(object, &mut nothing_named)
    };

    // Without access the given ones count, whatever was seen once.
    let given = with(&spec, &status);
    assert_eq!(given.nodes[0].name, "given");
    assert_eq!(given.kept.unwrap().until, model::Timestamp(1_769_860_800_500_000_000));

    spec["access"] = json!({"kubeconfig": {"secret": {"namespace": "fleetgate-system", "name": "c1-kubeconfig"}}});
    for (told, reachable) in
        [(None, None), (Some("True"), Some(true)), (Some("False"), Some(false)), (Some("Unknown"), None)]
    {
        status["conditions"] = told.into_iter().map(|told| condition("Reachable", told)).collect();
        let watched = with(&spec, &status);
        assert_eq!(watched.nodes.len(), 1);
        assert_eq!((watched.nodes[0].name.as_str(), watched.nodes[0].addresses.len()), ("seen", 2));
        let (namespace, name) = ("fleetgate-system".parse().unwrap(), "c1-kubeconfig".parse().unwrap());
        let placements = std::sync::Arc::default();
        assert_eq!(watched.access, Some(Access { namespace, name, reachable, placements }));
    }
    // Nothing seen yet: no node, rather than those that somebody wrote down once.
    assert_eq!(read_cluster(object(Kind::Cluster, &spec), &mut nothing_named).nodes.len(), 0);
}

fn condition(kind: &str, status: &str) -> Json {
    json!({
        "type": kind, "status": status, "reason": "X", "message": "", "lastTransitionTime": "2026-01-31T12:00:00Z",
    })
}

/// Each row: what a Cluster or Zone names, and why it cannot have it.
#[test]
fn what_is_named_and_cannot_be_had_is_a_hindrance() {
    let secret = json!({"secret": {"namespace": "fleetgate-system", "name": "c1-proof"}});
    let file = json!({"file": "key"});
    let map = json!({"configMap": {"namespace": "fleetgate-system", "name": "extra", "key": "extra.zone"}});
    let missing = |what: &str, reason: &str| Refusal::Unreadable { what: what.into(), reason: reason.into() };
    let mut named = |source: Source<'_>| -> Result<Arc<Vec<u8>>, Missing> {
        Err(Missing(format!("there is no {}", source.to_string().split(' ').next().unwrap_or_default())))
    };
    // A Secret is not for every role to read, so that nothing but the door may follow from it.
    for (key, hindrance, closed) in [
        (&secret, None, Some(missing("Secret fleetgate-system/c1-proof", "there is no Secret"))),
        (&file, Some(Refusal::NeedsFolder("spec.proof.keys.file")), None),
    ] {
        let mut spec = cluster_spec();
        spec["proof"] = json!({"required": true, "keys": [key]});
        let cluster = read_cluster(object(Kind::Cluster, &spec), &mut named);
        assert_eq!((cluster.hindrance, cluster.closed), (hindrance, closed));
    }
    let mut spec = cluster_spec();
    spec["access"] = json!({"kubeconfig": file});
    let expected = Refusal::NeedsFolder("spec.access.kubeconfig.file");
    assert_eq!(read_cluster(object(Kind::Cluster, &spec), &mut named).hindrance, Some(expected));

    for (zone_file, expected) in [
        (&map, missing("key extra.zone of ConfigMap fleetgate-system/extra", "there is no key")),
        (&file, Refusal::NeedsFolder("spec.zoneFile.file")),
    ] {
        let zone = read_zone(&json!({"domain": "fleet.example", "zoneFile": zone_file}), &mut named);
        assert_eq!(zone.hindrance, Some(expected));
    }
}

#[test]
fn what_is_named_is_read() {
    let key = "0123456789abcdef0123456789abcdef";
    let mut named = |source: Source<'_>| -> Result<Arc<Vec<u8>>, Missing> {
        let content = match source {
            Source::ConfigMap { key: "good", .. } => "www A 192.0.2.1\n",
            Source::ConfigMap { .. } => "www A nowhere\n",
            Source::Secret { name, .. } if name.as_str() == "good" => key,
            Source::Secret { .. } => "hunter2",
            Source::File(_) => panic!("a hub is asked for a file"),
        };
        Ok(Arc::new(content.into()))
    };
    let zone = |key: &str, named: Named<'_>| {
        let map = json!({"namespace": "fleetgate-system", "name": "extra", "key": key});
        read_zone(&json!({"domain": "fleet.example", "zoneFile": {"configMap": map}}), named)
    };
    let good = zone("good", &mut named);
    assert!(good.hindrance.is_none() && good.zone_file.is_some());
    let told = zone("bad", &mut named).hindrance.unwrap().to_string();
    assert!(told.starts_with("key bad of ConfigMap fleetgate-system/extra cannot be used: 1:"), "{told}");

    let cluster = |secrets: &[&str], named: Named<'_>| {
        let mut spec = cluster_spec();
        let key = |name: &&str| json!({"secret": {"namespace": "fleetgate-system", "name": name}});
        spec["proof"] = json!({"required": true, "keys": secrets.iter().map(key).collect::<Vec<_>>()});
        read_cluster(object(Kind::Cluster, &spec), named)
    };
    let good = cluster(&["good"], &mut named);
    assert!(good.closed.is_none() && good.proof.keys[0].octets() == key.as_bytes());
    let told = cluster(&["good", "short"], &mut named).closed.unwrap().to_string();
    let expected = "Secret fleetgate-system/short cannot be used: the key has 7 bytes; at least 32 are needed";
    assert_eq!(told, expected);
}

#[test]
fn publishing_by_others_is_no_hindrance() {
    let zone = read_zone(&json!({"domain": "fleet.example", "publish": ["dnsEndpoint"]}), &mut nothing_named);
    assert_eq!((zone.authoritative, zone.hand_out, zone.hindrance), (false, true, None));
}

#[test]
fn numbers_are_found_in_the_status() {
    let digest = "0123456789abcdef0123456789abcdef";
    for (status, expected) in [
        (json!({"serial": 7, "digest": digest}), Some(7)),
        (json!({"serial": 7}), None),
        (json!({"serial": 7, "digest": "x"}), None),
        (json!({"serial": -1, "digest": digest}), None),
        (json!(null), None),
    ] {
        let zone = json!({"metadata": {"name": "main"}, "status": status});
        assert_eq!(number(&zone).map(|number| number.serial), expected, "{zone}");
    }
    assert_eq!(number(&json!({})), None);
}

/// What the plan says is understood when it comes back.
#[test]
fn what_is_kept_comes_back_as_it_was() {
    let kept = model::KeptSet {
        name: "*.c1.fleet.example".parse().unwrap(),
        addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        until: model::Timestamp(1_769_860_800_123_456_789),
    };
    let mut object = object(Kind::Cluster, &cluster_spec());
    object["status"] = json!({"kept": crate::status::KeptStatus::from(&kept)});
    assert_eq!(read_cluster(object, &mut nothing_named).kept, Some(kept));
}
