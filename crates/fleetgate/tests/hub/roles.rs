//! The roles as processes of their own: one writes, the others only read and come to the same.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use gateway::proxy_header::{Encoder, TLV_HYPERSHIFT_CLUSTER_ID};
use testbed::ApiServer;

use crate::fixture::{PATIENCE, Server, ZONE, eventually, field, given_cluster, hub, wait_for_answer};

/// A control plane behind a Service of the hub: endpoint slices as the controller manager would write them.
fn control_plane(namespace: &str, at: SocketAddr, ready: bool) -> String {
    format!(
        "\
apiVersion: v1
kind: Service
metadata: {{name: kube-apiserver, namespace: {namespace}}}
spec: {{clusterIP: None, ports: [{{name: https, port: 443, targetPort: {port}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: kube-apiserver-1, namespace: {namespace}, labels: {{kubernetes.io/service-name: kube-apiserver}}}}
addressType: IPv4
ports: [{{name: https, port: {port}, protocol: TCP}}]
endpoints: [{{addresses: [\"127.0.0.1\"], conditions: {{ready: {ready}}}}}]
",
        port = at.port()
    )
}

fn cluster_behind_service(name: &str, namespace: &str) -> String {
    given_cluster(name, 1).replace(
        "{addresses: [\"127.0.0.1:9\"]}",
        &format!("{{service: {{namespace: {namespace}, name: kube-apiserver, port: 443}}}}"),
    )
}

/// Says its name to everybody who connects.
fn backend(name: &'static str) -> SocketAddr {
    // The door connects over loopback, which the test bed's API servers take for a valid endpoint address only here.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // Who has gone already does not hear it.
            let _ = stream.write_all(name.as_bytes());
        }
    });
    address
}

/// What comes through the door by cluster id; nothing where it is refused.
fn through_door(door: SocketAddr, id: &str) -> String {
    let mut stream = TcpStream::connect(door).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (source, destination) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    let header = Encoder::proxy(source, destination).tlv(TLV_HYPERSHIFT_CLUSTER_ID, id.as_bytes()).finish().unwrap();
    stream.write_all(&header).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn number(hub: &ApiServer) -> String {
    field(hub, &["zones.fleetgate.dev", "main"], ".status.serial")
}

#[test]
fn replicas_serve_the_number_that_the_leader_gives() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 1)).unwrap();
    let config = hub.kubeconfig_path();
    let _controller = Server::start_informed(config, &["controller"]);
    let replicas = [(); 2].map(|()| Server::start_informed(config, &["dns", "--dns", "127.0.0.1:0"]));
    for replica in &replicas {
        wait_for_answer(replica, "shop.c1.fleet.example", &["198.51.100.1"]);
    }
    for node in 2..12 {
        hub.kubectl_apply(&given_cluster("c1", node)).unwrap();
        let address = format!("198.51.100.{node}");
        for replica in &replicas {
            wait_for_answer(replica, "shop.c1.fleet.example", &[&address]);
        }
        let serials = replicas.each_ref().map(|replica| replica.serial("fleet.example").to_string());
        assert_eq!(serials, [number(&hub), number(&hub)]);
    }
}

#[test]
fn a_gateway_follows_the_endpoints_of_a_service() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&cluster_behind_service("c1", "acme")).unwrap();
    let _controller = Server::start_informed(hub.kubeconfig_path(), &["controller"]);
    let gateway = Server::start_informed(hub.kubeconfig_path(), &["gateway", "--apiserver", "127.0.0.1:0"]);
    let door = gateway.address("apiserver");
    assert_eq!(through_door(door, "c1"), "", "there is no endpoint yet");
    let condition = ".status.conditions[?(@.type==\"DoorOpen\")].reason";
    eventually("the cluster says why its door is closed", || {
        (field(&hub, &["clusters.fleetgate.dev", "c1"], condition) == "NoEndpoints").then_some(())
    });

    for name in ["first", "second"] {
        hub.kubectl_apply(&control_plane("acme", backend(name), true)).unwrap();
        eventually("the door leads to the Service's endpoint", || (through_door(door, "c1") == name).then_some(()));
    }
    eventually("the door is said to be open", || {
        (field(&hub, &["clusters.fleetgate.dev", "c1"], condition) == "Open").then_some(())
    });
}
