//! Services of tenant clusters, looked up at real API servers.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod hub;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubernetes::kubeconfig::{Policy, SecretKey};
use kubernetes::tenants::{Access, Directory, Last, Subject, Wish};
use model::ClusterName;
use testbed::ApiServer;

const SERVICES: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{name: https, port: 443}]}
---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: shop}
spec: {type: ExternalName, externalName: db.example.com}
---
apiVersion: v1
kind: Service
metadata: {name: store, namespace: shop}
spec: {clusterIP: None, ports: [{name: client, port: 2379}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: store-1, namespace: shop, labels: {kubernetes.io/service-name: store}}
addressType: IPv4
ports: [{name: client, port: 2379}]
endpoints:
- {addresses: [10.2.0.1], hostname: store-0, conditions: {ready: true}}
- {addresses: [10.2.0.2], hostname: store-1, conditions: {ready: false}}
";

fn follow(directory: &Directory, cluster: &ClusterName, kubeconfig: &str) {
    let secret = SecretKey { namespace: "fleetgate-system".into(), name: "c".into(), key: "kubeconfig".into() };
    let kubeconfig = Ok(Arc::from(kubeconfig.as_bytes()));
    let access = Access { uid: "u".into(), secret, kubeconfig };
    directory.take(&Wish::Follow(cluster.clone(), Arc::new(Subject { access, last: Last::default() })));
}

fn signal(server: &ApiServer, signal: &str) {
    let [id, _] = server.process_ids();
    let kill = ["-c", "kill -s \"$1\" \"$2\"", "sh", signal, &id.to_string()];
    assert!(Command::new("sh").args(kill).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_looked_up_and_a_server_that_hangs_slows_no_other() {
    let (Some(east), Some(west)) = (hub::start(), hub::start()) else { return };
    for server in [&east, &west] {
        server.kubectl(&["create", "namespace", "shop"]).unwrap();
        server.kubectl_apply(SERVICES).unwrap();
    }
    let directory = Directory::new(Policy { loopback: true });
    let [c1, c2, c3]: [ClusterName; 3] = ["c1", "c2", "c3"].map(|name| name.parse().unwrap());
    follow(&directory, &c1, east.kubeconfig());
    follow(&directory, &c2, west.kubeconfig());
    let address = |server: &ApiServer| {
        server.kubectl(&["-n", "shop", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]).unwrap()
    };

    let web = directory.service(&c1, "shop", "web").await.unwrap().unwrap();
    assert_eq!(web.cluster_ips, [address(&east).parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!((web.ports[0].name.as_str(), web.ports[0].port), ("https", 443));
    // Known for a moment, and one answer for all who ask.
    east.kubectl(&["-n", "shop", "delete", "service", "web"]).unwrap();
    let again = directory.service(&c1, "shop", "web").await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&web, &again));
    hub::eventually("it is heard that it is gone", async || {
        directory.service(&c1, "shop", "web").await.unwrap().is_none().then_some(())
    })
    .await;

    let store = directory.service(&c2, "shop", "store").await.unwrap().unwrap();
    let endpoints: Vec<_> = store.endpoints.iter().map(|one| (one.address.to_string(), one.hostname.clone())).collect();
    assert_eq!(endpoints, [("10.2.0.1".to_owned(), Some("store-0".to_owned()))]);
    assert!(store.cluster_ips.is_empty());
    let outside = directory.service(&c2, "shop", "outside").await.unwrap().unwrap();
    assert_eq!(outside.external_name.as_deref(), Some("db.example.com"));
    assert_eq!(directory.service(&c2, "nowhere", "web").await, Ok(None));
    // No name of a Service, and nobody is asked.
    assert_eq!(directory.service(&c2, "..", "web?x=").await, Ok(None));
    let unknown = directory.service(&c3, "shop", "web").await.unwrap_err().to_string();
    assert!(unknown.contains("spec.access"), "{unknown}");

    // What hangs is given up, for everybody who waits at once; others do not notice.
    signal(&east, "STOP");
    let begun = Instant::now();
    let waiting: Vec<_> = (0..50)
        .map(|number| {
            let (directory, c1) = (directory.clone(), c1.clone());
            tokio::spawn(async move { directory.service(&c1, "shop", &format!("none-{}", number % 5)).await })
        })
        .collect();
    assert!(directory.service(&c2, "shop", "web").await.unwrap().is_some());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    for waits in waiting {
        waits.await.unwrap().unwrap_err();
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    signal(&east, "CONT");
    hub::eventually("it is asked again", async || directory.service(&c1, "shop", "none-0").await.ok()).await;

    // Whoever is not followed any more is not asked.
    directory.take(&Wish::Leave(c2.clone()));
    assert!(directory.service(&c2, "shop", "web").await.is_err());
}
