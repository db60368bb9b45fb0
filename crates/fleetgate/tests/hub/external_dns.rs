//! Seed 000 to its end: what the controller publishes goes through real ExternalDNS into a real BIND, and nothing else does.

use std::fs;

use testbed::{ApiServer, EXTERNAL_DNS_RIGHTS, Registry};

use crate::fixture::{Server, ZONE, eventually, field, hub, kubeconfig_secret, set_node, watched_cluster};

/// What a tenant would like to have; nothing accepts it.
const RAW: &str = "\
apiVersion: externaldns.k8s.io/v1alpha1
kind: DNSEndpoint
metadata: {name: wish, namespace: acme}
spec: {endpoints: [{dnsName: bank.fleet.example, recordType: A, recordTTL: 30, targets: [203.0.113.66]}]}
";

#[test]
fn external_dns_takes_what_is_planned_to_bind_and_nothing_else() {
    let (Some(kubernetes), Some(external_dns), Some(bind)) =
        (testbed::kubernetes(), testbed::external_dns(), testbed::bind())
    else {
        return;
    };
    let bind = bind.start("fleet.example").unwrap();
    let hub = hub(&kubernetes);
    let tenant = ApiServer::start(&kubernetes).unwrap();
    set_node(&tenant, "n1", "198.51.100.1", true);
    set_node(&tenant, "n2", "198.51.100.2", true);
    hub.kubectl_apply(EXTERNAL_DNS_RIGHTS).unwrap();
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(RAW).unwrap();
    hub.kubectl_apply(&kubeconfig_secret("c1", tenant.kubeconfig())).unwrap();
    hub.kubectl_apply(&watched_cluster("c1")).unwrap();
    let _controller = Server::start_informed(hub.kubeconfig_path(), &["controller"]);
    let kubeconfig = hub.work_dir().join("external-dns-kubeconfig");
    fs::write(&kubeconfig, hub.kubeconfig_for_service_account("fleetgate-publish", "external-dns").unwrap()).unwrap();
    let owner = Registry::Txt { owner: "fleetgate", prefix: "owner-%{record_type}-" };
    let _external_dns = external_dns.start(&kubeconfig, "fleetgate-publish", &bind, owner).unwrap();

    let answers = |name: &str, expected: &[&str]| {
        eventually(&format!("BIND has {expected:?} at {name}"), || {
            let mut answers = bind.answers(name, "A").unwrap();
            answers.sort();
            (answers == expected).then_some(())
        });
    };
    answers("shop.c1.fleet.example", &["198.51.100.1", "198.51.100.2"]);
    answers("api.c1.fleet.example", &["192.0.2.10"]);

    set_node(&tenant, "n1", "198.51.100.1", false);
    answers("shop.c1.fleet.example", &["198.51.100.2"]);

    eventually("the tenant is told no", || {
        let verdict = ["-n", "acme", "verdicts.fleetgate.dev", "wish"];
        (field(&hub, &verdict, ".spec.parts[0].published") == "false").then_some(())
    });
    // Several rounds of ExternalDNS have passed since it was there.
    answers("bank.fleet.example", &[]);
    let records = bind.records().unwrap();
    assert!(!records.iter().any(|record| record.contains("203.0.113.66")), "{records:?}");

    hub.kubectl(&["delete", "clusters.fleetgate.dev", "c1"]).unwrap();
    answers("shop.c1.fleet.example", &[]);
}
