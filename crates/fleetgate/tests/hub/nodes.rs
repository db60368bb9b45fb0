//! Nodes of tenant clusters, from their API servers to the answers of DNS and to ExternalDNS' objects.

use crate::fixture::{
    Server, ZONE, eventually, field, hub, kubeconfig_secret, set_node, wait_for_answer, watched_cluster,
};
use testbed::ApiServer;

/// Seed 000 with a hub and three tenant clusters: the wildcard follows the ready nodes, in our own answers and in the
/// `DNSEndpoint`s, and a cluster that is away keeps the last ones without touching the others.
#[test]
fn the_wildcard_follows_the_ready_nodes_of_every_cluster() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    let tenants: Vec<ApiServer> = (0..3).map(|_| ApiServer::start(&kubernetes).unwrap()).collect();
    hub.kubectl_apply(ZONE).unwrap();
    for (number, tenant) in tenants.iter().enumerate() {
        let name = format!("c{number}");
        set_node(tenant, "n1", &format!("198.51.100.{}", 10 * number + 1), true);
        set_node(tenant, "n2", &format!("198.51.100.{}", 10 * number + 2), true);
        hub.kubectl_apply(&kubeconfig_secret(&name, tenant.kubeconfig())).unwrap();
        hub.kubectl_apply(&watched_cluster(&name)).unwrap();
    }
    let server = Server::start_informed(hub.kubeconfig_path(), &["serve", "--hub", "--dns", "127.0.0.1:0"]);
    wait_for_answer(&server, "shop.c0.fleet.example", &["198.51.100.1", "198.51.100.2"]);
    wait_for_answer(&server, "shop.c2.fleet.example", &["198.51.100.21", "198.51.100.22"]);
    wait_for_answer(&server, "api.c1.fleet.example", &["192.0.2.10"]);

    set_node(&tenants[0], "n2", "198.51.100.2", false);
    wait_for_answer(&server, "shop.c0.fleet.example", &["198.51.100.1"]);
    let endpoint = ["-n", "fleetgate-publish", "dnsendpoint", "c0"];
    eventually("the DNSEndpoint follows", || {
        let targets = field(&hub, &endpoint, ".spec.endpoints[?(@.dnsName==\"*.c0.fleet.example\")].targets");
        (targets == r#"["198.51.100.1"]"#).then_some(())
    });
    eventually("the status counts one ready node", || {
        let nodes = field(&hub, &["clusters.fleetgate.dev", "c0"], ".status.readyNodes");
        (nodes == "1").then_some(())
    });

    tenants[0].kubectl(&["cordon", "n1"]).unwrap();
    set_node(&tenants[0], "n2", "198.51.100.2", true);
    wait_for_answer(&server, "shop.c0.fleet.example", &["198.51.100.2"]);

    // One goes away: the others follow on, its own names stay, and its object says since when.
    let mut tenants = tenants.into_iter();
    drop(tenants.next());
    let rest: Vec<ApiServer> = tenants.collect();
    rest[0].kubectl(&["delete", "node", "n1"]).unwrap();
    wait_for_answer(&server, "shop.c1.fleet.example", &["198.51.100.12"]);
    eventually("c0 is said to be away", || {
        let reachable =
            field(&hub, &["clusters.fleetgate.dev", "c0"], ".status.conditions[?(@.type==\"Reachable\")].status");
        (reachable == "False").then_some(())
    });
    wait_for_answer(&server, "shop.c0.fleet.example", &["198.51.100.2"]);

    let table = hub.kubectl(&["get", "clusters.fleetgate.dev"]).unwrap();
    let row = table.lines().find(|line| line.starts_with("c1 ")).unwrap_or_else(|| panic!("{table}"));
    for column in ["acme", "api.c1.fleet.example", "1"] {
        assert!(row.split_whitespace().any(|cell| cell == column), "{column} in {table}");
    }

    // A family has no line before something was counted; a watch has ended, and statuses were written.
    let page = include_str!("../../../../docs/metrics.md");
    let (_, of_controllers) = page.split_once("A controller on a hub").unwrap();
    let (of_controllers, _) = of_controllers.split_once("With `--admission`").unwrap();
    let metrics = server.get("/metrics");
    for metric in of_controllers.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()) {
        assert!(metrics.contains(&format!("# TYPE {metric} ")), "{metric} in {metrics}");
    }
}
