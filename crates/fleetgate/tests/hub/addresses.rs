//! Addresses on a hub: given once by whoever leads, named by every name server, and resting when they are released.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use testbed::ApiServer;

use crate::fixture::{Server, ZONE, eventually, field, hub};

/// 192.0.2.1 to 192.0.2.62.
const POOL: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: AddressPool
metadata: {name: public}
spec:
  cidrs: [192.0.2.0/26]
  reverse: {nameservers: [ns1.fleet.example], domain: pool.fleet.example, ttl: 1}
  quarantine: 2s
";

fn claims(numbers: std::ops::Range<usize>) -> String {
    let claim = |number| {
        format!(
            "apiVersion: fleetgate.dev/v1alpha1\nkind: AddressClaim\nmetadata: {{name: a{number}, namespace: acme}}\nspec: {{pool: public, family: IPv4}}\n"
        )
    };
    numbers.map(claim).collect::<Vec<_>>().join("---\n")
}

fn items(hub: &ApiServer, arguments: &[&str]) -> Vec<Value> {
    let answer = hub.kubectl(&[&["get"], arguments, &["-o", "json"]].concat()).unwrap();
    let list: Value = serde_json::from_str(&answer).unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// What the claims say that they have.
fn had(hub: &ApiServer) -> BTreeMap<String, String> {
    let claims = items(hub, &["addressclaims.fleetgate.dev", "--namespace=acme"]);
    let had = claims.iter().filter_map(|claim| {
        let name = claim["metadata"]["name"].as_str()?.to_owned();
        Some((name, claim["status"]["address"].as_str()?.to_owned()))
    });
    had.collect()
}

#[test]
fn a_leader_that_is_killed_while_it_gives_addresses_leaves_none_given_twice() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(&format!("{ZONE}---\n{POOL}")).unwrap();
    let config = hub.kubeconfig_path();
    let replicas = [(); 2].map(|()| Server::start_informed(config, &["dns", "--dns", "127.0.0.1:0"]));
    let mut controllers = [(); 2].map(|()| Server::start_informed(config, &["controller"]));
    let holder = || field(&hub, &["-n", "fleetgate-system", "lease", "fleetgate-controller"], ".spec.holderIdentity");
    eventually("somebody leads", || Some(holder()).filter(|holder| !holder.is_empty()));
    hub.kubectl_apply(&claims(0..20)).unwrap();
    eventually("some have an address", || (had(&hub).len() > 3).then_some(()));
    let early = had(&hub);
    let leader = controllers.iter_mut().find(|server| server.process.log().contains("\"leading"));
    leader.expect("one of them leads").process.signal("KILL").unwrap();
    hub.kubectl_apply(&claims(20..60)).unwrap();
    eventually("all have an address", || (had(&hub).len() == 60).then_some(()));

    let all = had(&hub);
    let given: BTreeSet<&String> = all.values().collect();
    assert_eq!(given.len(), 60, "{all:?}");
    for (claim, address) in &early {
        assert_eq!(all[claim], *address, "{claim} keeps what it had");
    }
    // What stands in the objects is what the claims say, and there is one for each.
    let objects = items(&hub, &["addresses.fleetgate.dev"]);
    let held = |object: &Value| object["spec"]["releasedUntil"].is_null();
    let written: BTreeMap<String, String> = objects
        .iter()
        .filter(|object| held(object))
        .map(|object| {
            let text = |pointer: &str| object.pointer(pointer).unwrap().as_str().unwrap().to_owned();
            (text("/spec/claim/name"), text("/metadata/name"))
        })
        .collect();
    assert_eq!(written, all);

    // Every name server knows their names, under the same serial.
    let zone = "0-26.2.0.192.in-addr.arpa";
    for server in &replicas {
        for address in all.values() {
            let last = address.rsplit('.').next().unwrap();
            let expected = [format!("{}.pool.fleet.example.", address.replace('.', "-"))];
            eventually("the address has its name", || {
                (server.resolve(&format!("{last}.{zone}"), "PTR") == expected).then_some(())
            });
        }
    }
    eventually("all replicas and the status agree", || {
        let status = field(&hub, &["addresspools.fleetgate.dev", "public"], ".status.reverseZones[0].serial");
        replicas.iter().all(|server| server.serial(zone).to_string() == status).then_some(())
    });

    // Released, it rests; then somebody else gets it.
    let address = all["a7"].clone();
    hub.kubectl_apply(&claims(60..70)).unwrap();
    hub.kubectl(&["delete", "addressclaims.fleetgate.dev", "a7", "--namespace=acme"]).unwrap();
    eventually("it rests", || {
        let until = field(&hub, &["addresses.fleetgate.dev", &address], ".spec.releasedUntil");
        (!until.is_empty()).then_some(())
    });
    let last = address.rsplit('.').next().unwrap();
    for server in &replicas {
        eventually("its name is gone", || server.resolve(&format!("{last}.{zone}"), "PTR").is_empty().then_some(()));
    }
    eventually("it is somebody else's", || had(&hub).values().any(|given| *given == address).then_some(()));
    // 62 addresses, 69 claims: the others are told so.
    let exhausted = eventually("those without one are told why", || {
        let claims = items(&hub, &["addressclaims.fleetgate.dev", "--namespace=acme"]);
        let refused = claims.iter().filter(|claim| claim["status"].to_string().contains("PoolExhausted")).count();
        (refused == 7).then_some(refused)
    });
    assert_eq!(exhausted, 7);

    // Deleted by hand, it comes back to whom it was given.
    let (claim, address) = had(&hub).into_iter().next().unwrap();
    hub.kubectl(&["delete", "addresses.fleetgate.dev", &address]).unwrap();
    eventually("it is written down again", || {
        (field(&hub, &["addresses.fleetgate.dev", &address], ".spec.claim.name") == claim).then_some(())
    });
}
