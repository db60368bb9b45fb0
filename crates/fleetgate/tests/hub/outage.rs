//! The hub's API is away: what was known serves on, also after a restart, and comes back without a gap.

use crate::fixture::{Server, ZONE, data_folder, eventually, field, given_cluster, hub, prepare, wait_for_answer};

#[test]
fn names_and_doors_outlive_the_hub_and_their_own_restart() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let mut hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 1)).unwrap();
    let config = hub.kubeconfig_path().to_owned();
    let data = data_folder();
    let arguments = ["dns", "--dns", "127.0.0.1:0", "--data", data.path().to_str().unwrap()];
    let (folder, key) = (data_folder(), data.path().join("key"));
    std::fs::write(&key, [7; 32]).unwrap();
    let (kept, key) = (folder.path().to_str().unwrap(), key.to_str().unwrap());
    let door = ["gateway", "--apiserver", "127.0.0.1:0", "--data", kept, "--data-key", key];
    let mut gateway = Server::start_informed(&config, &door);
    let leads_somewhere = |gateway: &Server| gateway.get("/v1/explain?tlv=c1").contains("\"127.0.0.1:9\"");
    assert!(leads_somewhere(&gateway));
    let controller = Server::start_informed(&config, &["controller"]);
    let mut dns = Server::start_informed(&config, &arguments);
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.1"]);
    let serial = eventually("the leader numbers the zone", || {
        let serial = dns.serial("fleet.example");
        (field(&hub, &["zones.fleetgate.dev", "main"], ".status.serial") == serial.to_string()).then_some(serial)
    });

    hub.stop().unwrap();
    eventually("it is noticed", || dns.get("/metrics").contains("fleetgate_hub_away 1").then_some(()));
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.1"]);
    assert!(leads_somewhere(&gateway));
    for server in [&mut dns, &mut gateway] {
        server.process.signal("TERM").unwrap();
        server.process.wait_for_exit(crate::fixture::PATIENCE).unwrap();
    }

    let dns = Server::start_informed(&config, &arguments);
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.1"]);
    assert_eq!(dns.serial("fleet.example"), serial);
    let gateway = Server::start_informed(&config, &door);
    assert!(leads_somewhere(&gateway));

    hub.start_again().unwrap();
    hub.kubectl_apply(&given_cluster("c1", 2)).unwrap();
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.2"]);
    // Also where nothing happens that a watch could tell of: the controller has resumed all that it watched before.
    for server in [&dns, &gateway, &controller] {
        eventually("it is read again", || server.get("/metrics").contains("fleetgate_hub_away 0").then_some(()));
    }
}

/// A hub that comes back without its storage shows nothing at all; nobody's names go because of that.
#[test]
fn a_hub_that_lost_everything_withdraws_nothing() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let mut hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 1)).unwrap();
    let dns = Server::start_informed(hub.kubeconfig_path(), &["dns", "--dns", "127.0.0.1:0"]);
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.1"]);

    hub.stop().unwrap();
    hub.wipe().unwrap();
    hub.start_again().unwrap();
    prepare(&hub);
    let said = |what: &str| dns.process.log().contains(&format!("the hub lists no {what} any more"));
    eventually("the empty lists are doubted", || (said("zones") && said("clusters")).then_some(()));
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.1"]);

    // What is put back counts again, and what changes there.
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 2)).unwrap();
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.2"]);
}
