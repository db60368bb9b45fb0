//! Real ExternalDNS takes `DNSEndpoint`s, as our controller writes them, to a real BIND: all of `fleetgate-publish`, and
//! nothing of any other namespace. It runs with the rights that its installation needs, and no others.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use testbed::{ApiServer, EXTERNAL_DNS_RIGHTS, Registry, RunningBind, RunningExternalDns};

const ZONE: &str = "fleet.example";
const PUBLISH: &str = "fleetgate-publish";
const OWNER: Registry<'_> = Registry::Txt { owner: "fleetgate", prefix: "owner-%{record_type}-" };

/// It looks every second; the rest is for a machine that is busy compiling.
const PATIENCE: Duration = Duration::from_mins(2);

const CRD: &str = include_str!("../../crates/fleetgate/tests/dnsendpoint-crd.yaml");

const NAMESPACES: &str = "\
{apiVersion: v1, kind: Namespace, metadata: {name: fleetgate-publish}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: acme}}
";

/// A hub whose `DNSEndpoint`s ExternalDNS takes to BIND.
struct Published {
    _external_dns: RunningExternalDns,
    bind: RunningBind,
    hub: ApiServer,
}

impl Published {
    fn start(registry: Registry<'_>) -> Option<Self> {
        let (kubernetes, external_dns) = (testbed::kubernetes()?, testbed::external_dns()?);
        let bind = testbed::bind()?.start(ZONE).unwrap();
        let hub = ApiServer::start(&kubernetes).unwrap();
        hub.kubectl_apply(CRD).unwrap();
        hub.kubectl(&[
            "wait",
            "--for=condition=Established",
            "customresourcedefinition/dnsendpoints.externaldns.k8s.io",
        ])
        .unwrap();
        hub.kubectl_apply(NAMESPACES).unwrap();
        hub.kubectl_apply(EXTERNAL_DNS_RIGHTS).unwrap();
        let kubeconfig = hub.work_dir().join("external-dns-kubeconfig");
        fs::write(&kubeconfig, hub.kubeconfig_for_service_account(PUBLISH, "external-dns").unwrap()).unwrap();
        let external_dns = external_dns.start(&kubeconfig, PUBLISH, &bind, registry).unwrap();
        Some(Self { _external_dns: external_dns, bind, hub })
    }

    /// Waits until BIND has these records and no others, but for those that say whose they are.
    fn wait_for(&self, expected: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut records = self.bind.records().unwrap();
            records.retain(|record| !record.contains(" IN TXT "));
            if records == expected {
                return;
            }
            assert!(Instant::now() < deadline, "after {PATIENCE:?} BIND has {records:#?}, not {expected:#?}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A record set as ExternalDNS wants it, or nothing: of a set without targets it would keep a TXT record for ever.
fn record(name: &str, kind: &str, targets: &[&str]) -> String {
    if targets.is_empty() {
        return String::new();
    }
    let targets: Vec<_> = targets.iter().map(|target| format!("'{target}'")).collect();
    format!("  - {{dnsName: '{name}.{ZONE}', recordType: {kind}, recordTTL: 30, targets: [{}]}}\n", targets.join(", "))
}

fn dns_endpoint(namespace: &str, cluster: &str, records: &[String]) -> String {
    format!(
        "apiVersion: externaldns.k8s.io/v1alpha1\n\
         kind: DNSEndpoint\n\
         metadata: {{name: {cluster}, namespace: {namespace}}}\n\
         spec:\n  endpoints:\n{}",
        records.concat()
    )
}

/// A cluster's names: its apps on the nodes, its API on the gateway.
fn names_of(cluster: &str, nodes_v4: &[&str], nodes_v6: &[&str]) -> [String; 4] {
    let (apps, api) = (format!("*.{cluster}"), format!("api.{cluster}"));
    [
        record(&apps, "A", nodes_v4),
        record(&apps, "AAAA", nodes_v6),
        record(&api, "A", &["192.0.2.10"]),
        record(&api, "AAAA", &["2001:db8::10"]),
    ]
}

#[test]
fn what_is_published_is_answered_and_changes_follow_and_other_namespaces_never_arrive() {
    let Some(published) = Published::start(OWNER) else { return };
    let (hub, bind) = (&published.hub, &published.bind);
    // First: by the time that the published ones have arrived, it would have as well.
    let stolen = names_of("stolen", &["203.0.113.66"], &["2001:db8::66"]);
    hub.kubectl_apply(&dns_endpoint("acme", "stolen", &stolen)).unwrap();
    let two_nodes = names_of("c1", &["192.0.2.12", "192.0.2.11"], &["2001:db8::11"]);
    hub.kubectl_apply(&dns_endpoint(PUBLISH, "c1", &two_nodes)).unwrap();
    published.wait_for(&[
        "*.c1.fleet.example. 30 IN A 192.0.2.11",
        "*.c1.fleet.example. 30 IN A 192.0.2.12",
        "*.c1.fleet.example. 30 IN AAAA 2001:db8::11",
        "api.c1.fleet.example. 30 IN A 192.0.2.10",
        "api.c1.fleet.example. 30 IN AAAA 2001:db8::10",
    ]);
    assert_eq!(bind.answers("www.c1.fleet.example", "A").unwrap(), ["192.0.2.11", "192.0.2.12"]);
    assert_eq!(bind.answers("www.c1.fleet.example", "AAAA").unwrap(), ["2001:db8::11"]);
    assert_eq!(bind.answers("api.c1.fleet.example", "A").unwrap(), ["192.0.2.10"]);

    // A node leaves, and with it the last address of IPv6.
    let other_nodes = names_of("c1", &["192.0.2.12", "192.0.2.13"], &[]);
    hub.kubectl_apply(&dns_endpoint(PUBLISH, "c1", &other_nodes)).unwrap();
    published.wait_for(&[
        "*.c1.fleet.example. 30 IN A 192.0.2.12",
        "*.c1.fleet.example. 30 IN A 192.0.2.13",
        "api.c1.fleet.example. 30 IN A 192.0.2.10",
        "api.c1.fleet.example. 30 IN AAAA 2001:db8::10",
    ]);

    hub.kubectl(&["delete", "dnsendpoint", "c1", "--namespace", PUBLISH]).unwrap();
    published.wait_for(&[]);
    assert_eq!(bind.records().unwrap(), [""; 0], "it goes in one step with the record that says whose it is");
}

#[test]
fn a_name_turns_from_addresses_to_an_alias_and_back() {
    let Some(published) = Published::start(Registry::Noop) else { return };
    let addresses = [record("api.c1", "A", &["192.0.2.10"]), record("api.c1", "AAAA", &["2001:db8::10"])];
    let alias = [record("api.c1", "CNAME", &["lb.example.net"])];
    let publish = |records| published.hub.kubectl_apply(&dns_endpoint(PUBLISH, "c1", records)).unwrap();

    publish(&addresses);
    let as_addresses = ["api.c1.fleet.example. 30 IN A 192.0.2.10", "api.c1.fleet.example. 30 IN AAAA 2001:db8::10"];
    published.wait_for(&as_addresses);
    publish(&alias);
    published.wait_for(&["api.c1.fleet.example. 30 IN CNAME lb.example.net."]);
    publish(&addresses);
    published.wait_for(&as_addresses);
}
