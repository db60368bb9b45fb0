//! What Services of a tenant's cluster serve, as their pods' pages say it, at the hub within seconds; and again after the death of either side.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{Agent, Hub, eventually, tenant};

/// An address that an `EndpointSlice` may have: the API server takes none of loopback. Nothing is sent.
pub(crate) fn own_address() -> Option<IpAddr> {
    let own = || {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("203.0.113.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
    };
    let found = own();
    if found.is_none() {
        let skipped = "SKIPPED: this machine has no address but loopback";
        // There a test that did not run must not look like one that passed.
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{skipped}");
        eprintln!("{skipped}");
    }
    found
}

/// A pod: serves as many requests a second as it is told, says so on its page, and is as busy as it is told.
struct Pod {
    at: SocketAddr,
    rate: Arc<AtomicU64>,
    broken: Arc<AtomicBool>,
}

impl Pod {
    fn start(address: IpAddr, rate: u64, in_flight: u64) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let (rate, broken) = (Arc::new(AtomicU64::new(rate)), Arc::new(AtomicBool::new(false)));
        let pod = Self { at, rate: Arc::clone(&rate), broken: Arc::clone(&broken) };
        std::thread::spawn(move || {
            let (mut served, mut since) = (1_000_000.0, Instant::now());
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut line = String::new();
                // One request after the other on a connection, as long as it lasts.
                while {
                    line.clear();
                    stream.read_line(&mut line).is_ok_and(|read| read > 0)
                } {
                    if line != "\r\n" {
                        continue;
                    }
                    let passed = since.elapsed().as_secs_f64();
                    since = Instant::now();
                    served += passed * f64::from(u32::try_from(rate.load(Ordering::Acquire)).unwrap());
                    let page = format!(
                        "# TYPE http_requests_total counter\n\
                         http_requests_total{{code=\"200\"}} {}\n\
                         http_requests_total{{code=\"404\"}} {}\n\
                         open_requests {in_flight}\nmost_requests 100\n",
                        served * 0.75,
                        served * 0.25,
                    );
                    let status = if broken.load(Ordering::Acquire) { "500 Broken" } else { "200 OK" };
                    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", page.len());
                    if stream.get_mut().write_all(format!("{head}{page}").as_bytes()).is_err() {
                        break;
                    }
                }
            }
        });
        pod
    }
}

/// The Service `web`, with a slice for each pod: they share an address, and not a port.
fn service(pods: &[(&Pod, bool)]) -> String {
    let slice = |(number, (pod, ready)): (usize, &(&Pod, bool))| {
        format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: web-{number}, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}\n\
             addressType: IPv4\nports: [{{name: http, port: {}}}]\n\
             endpoints: [{{addresses: [\"{}\"], conditions: {{ready: {ready}}}}}]\n",
            pod.at.port(),
            pod.at.ip(),
        )
    };
    let slices: String = pods.iter().enumerate().map(slice).collect();
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: shop}}\nspec: {{ports: [{{port: 80}}]}}\n{slices}"
    )
}

/// What the hub has of shop/web in c1: served, utilization, ready.
fn reported(hub: &Hub) -> Option<(f64, f64, u64)> {
    let items: Value = serde_json::from_str(&hub.get("/v1/load")).unwrap();
    let items = items["items"].as_array().unwrap();
    assert!(items.len() <= 1, "{items:?}");
    let item = items.first()?;
    assert_eq!((item["cluster"].as_str(), item["name"].as_str()), (Some("c1"), Some("web")));
    Some((item["served"].as_f64()?, item["utilization"].as_f64()?, item["ready"].as_u64()?))
}

/// Waits until the hub hears about as much; what a pod serves is spread over seconds that begin anywhere.
fn wait_for(hub: &Hub, served: f64, utilization: f64, ready: u64) -> Duration {
    let begun = Instant::now();
    eventually(&format!("{served} served, {utilization} busy, {ready} ready"), || {
        let (rate, busy, pods) = reported(hub)?;
        let close = (rate - served).abs() <= 0.1 * served && (busy - utilization).abs() < 0.01;
        (close && pods == ready).then_some(())
    });
    begun.elapsed()
}

#[test]
fn the_hub_hears_what_pods_serve_whoever_dies_meanwhile() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let Some(address) = own_address() else { return };
    let mut hub = Hub::start();
    let tenant = tenant(&kubernetes);
    let pods = [Pod::start(address, 100, 30), Pod::start(address, 300, 50), Pod::start(address, 50, 10)];
    tenant.kubectl_apply(&service(&[(&pods[0], true), (&pods[1], true), (&pods[2], false)])).unwrap();
    let bootstrap = hub.issue();
    let kubeconfig = tenant.kubeconfig_path().to_str().unwrap();
    let busy = ["--in-flight-metric", "open_requests", "--limit-metric", "most_requests"];
    let role = ["load", "--kubeconfig", kubeconfig, "--service", "shop/web,shop/nobody", "--health", "127.0.0.1:0"];
    let mut agent = Agent::start(&hub, &bootstrap, &[&role[..], &busy].concat());
    wait_for(&hub, 400.0, 0.4, 2);
    agent.wait_until_ready();

    // Another pod becomes ready, and one serves more.
    tenant.kubectl_apply(&service(&[(&pods[0], true), (&pods[1], true), (&pods[2], true)])).unwrap();
    wait_for(&hub, 450.0, 0.3, 3);
    pods[0].rate.store(1000, Ordering::Release);
    wait_for(&hub, 1350.0, 0.3, 3);

    // One whose page cannot be read counts as idle, and that is told.
    pods[1].broken.store(true, Ordering::Release);
    wait_for(&hub, 1050.0, 0.4 / 3.0, 3);
    let refused: Value = serde_json::from_str(&agent.get("health", "/refused").1).unwrap();
    assert_eq!((&refused["count"], &refused["records"][0]["code"]), (&1.into(), &"Status".into()), "{refused}");
    assert_eq!(refused["records"][0]["record"], pods[1].at.to_string());
    assert!(agent.process.log().contains("cannot be read: it counts as idle"), "{}", agent.process.log_tail());
    pods[1].broken.store(false, Ordering::Release);
    wait_for(&hub, 1350.0, 0.3, 3);

    // The hub forgets all of it with its process, and hears it again; so it does from an agent that begins anew.
    hub.kill();
    hub.start_again();
    let took = wait_for(&hub, 1350.0, 0.3, 3);
    assert!(took < Duration::from_secs(30), "{took:?}");
    agent.kill();
    pods[0].rate.store(100, Ordering::Release);
    agent.start_again();
    wait_for(&hub, 450.0, 0.3, 3);
    let metrics = agent.get("health", "/metrics").1;
    assert!(metrics.contains("fleetgate_agent_load_services 1"), "{metrics}");

    // All pods stop being ready: that is said, and not merely nothing.
    tenant.kubectl_apply(&service(&[(&pods[0], false), (&pods[1], false), (&pods[2], false)])).unwrap();
    wait_for(&hub, 0.0, 0.0, 0);
    // A new credential in the old one's place is found.
    hub.revoke_all();
    eventually("the agent is out", || (agent.get("health", "/readyz").0 == 503).then_some(()));
    eventually("what it said is gone", || reported(&hub).is_none().then_some(()));
    hub.issue();
    wait_for(&hub, 0.0, 0.0, 0);
    agent.wait_until_ready();
    agent.terminate();
}

/// Nobody lists Services: the Ingresses of the member do.
#[test]
fn services_are_found_by_the_ingresses_of_a_class() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let Some(address) = own_address() else { return };
    let hub = Hub::start();
    let tenant = tenant(&kubernetes);
    let pod = Pod::start(address, 100, 30);
    tenant.kubectl_apply(&service(&[(&pod, true)])).unwrap();
    let ingress = |class: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: web, namespace: shop}}\n\
             spec: {{ingressClassName: {class}, defaultBackend: {{service: {{name: web, port: {{number: 80}}}}}}}}\n"
        )
    };
    tenant.kubectl_apply(&ingress("other")).unwrap();
    let bootstrap = hub.issue();
    let kubeconfig = tenant.kubeconfig_path().to_str().unwrap();
    let role = ["load", "--kubeconfig", kubeconfig, "--all-of-ingress-class", "nginx", "--health", "127.0.0.1:0"];
    let busy = ["--in-flight-metric", "open_requests", "--in-flight-limit", "60", "--metrics-port", "http"];
    let agent = Agent::start(&hub, &bootstrap, &[&role[..], &busy].concat());
    agent.wait_until_ready();
    assert_eq!(reported(&hub), None, "the Ingress is of another class");
    tenant.kubectl_apply(&ingress("nginx")).unwrap();
    wait_for(&hub, 100.0, 0.5, 1);
    agent.terminate();
}

#[test]
fn what_cannot_be_reported_is_told_at_once() {
    let run = |arguments: &[&str]| {
        let mut command = crate::fixture::fleetgate();
        command.args(["agent", "load", "--hub", "127.0.0.1:9", "--bootstrap", "/nonexistent"]).args(arguments);
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (arguments, complaint) in [
        (&["--service", "web"][..], "NAMESPACE/NAME"),
        (&[][..], "--service"),
        (&["--service", "shop/web,shop/web:1"][..], "given twice"),
        (&["--service", "shop/web", "--in-flight-metric", "x"][..], "--in-flight-limit"),
        (&["--service", "shop/web", "--cpu-limit", "0"][..], "above 0"),
        (&["--service", "shop/web", "--metrics-port", "0"][..], "1 to 65535"),
        (&["--service", "shop/web"][..], "bootstrap file"),
    ] {
        let told = run(arguments);
        assert!(told.contains(complaint), "{arguments:?}: {told}");
    }
}
