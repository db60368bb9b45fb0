//! `ingress.mode: hub`: what comes by the `apps` name of a cluster goes through the tunnel to the cluster's own ingress controller.
//!
//! Two clusters, which call their ingress controllers the same and have them at the same ports. Each is an HAProxy with
//! certificates of its own; a DNS server of each cluster says where it is.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use testbed::{HAProxy, Process, RunningHAProxy};

use crate::fixture::{Agent, Hub, PATIENCE, eventually, fleetgate, start};

/// How soon a cluster is served again once its agent is back, and how long a refusal may take.
const SOON: Duration = Duration::from_secs(3);

/// The inside of a cluster.
struct Cluster {
    name: &'static str,
    at: Ipv4Addr,
    folder: TempDir,
    _controller: RunningHAProxy<1>,
    _dns: Process,
    dns: SocketAddr,
}

/// The ports at which both clusters have their ingress controllers.
#[derive(Clone, Copy)]
struct Ports {
    http: u16,
    https: u16,
}

/// An address of loopback that nobody else has, and ports that are free there.
fn own_place() -> (Ipv4Addr, Ports) {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let at = Ipv4Addr::new(127, high | 0x80, low, COUNT.fetch_add(2, Ordering::Relaxed));
    let free = || TcpListener::bind((at, 0)).unwrap();
    let (http, https) = (free(), free());
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    (at, Ports { http: port(&http), https: port(&https) })
}

impl Cluster {
    fn start(haproxy: &HAProxy, name: &'static str, at: Ipv4Addr, ports: Ports, websocket: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for host in ["shop", "desk"] {
            let host = format!("{host}.{name}.fleet.example");
            let key = KeyPair::generate().unwrap();
            let made = CertificateParams::new(vec![host.clone()]).unwrap().self_signed(&key).unwrap();
            let pem = made.pem();
            fs::write(folder.path().join(format!("{host}.pem")), format!("{pem}{}", key.serialize_pem())).unwrap();
            fs::write(folder.path().join(format!("{host}.ca")), pem).unwrap();
        }
        let Ports { http, https } = ports;
        let path = folder.path().display();
        let configuration = |[ready]: [SocketAddr; 1]| {
            format!(
                "defaults\n mode http\n timeout connect 10s\n timeout client 1m\n timeout server 1m\n\
                 frontend ready\n bind {ready}\n\
                 frontend plain\n bind {at}:{http}\n use_backend chat if {{ path /chat }}\n \
                 http-request return status 200 content-type text/plain lf-string \"{name} http %[req.hdr(host)] %[req.hdr(x-forwarded-for)] %[req.hdr(x-forwarded-proto)]\" unless {{ path /chat }}\n\
                 frontend secure\n bind {at}:{https} ssl crt {path}/shop.{name}.fleet.example.pem crt {path}/desk.{name}.fleet.example.pem alpn h2,http/1.1\n \
                 http-request return status 200 content-type text/plain lf-string \"{name} https %[req.hdr(host)]\"\n\
                 backend chat\n server chat {websocket}\n"
            )
        };
        let controller = haproxy.start(configuration).unwrap();
        let (process, dns) = dns(folder.path(), at);
        Self { name, at, folder, _controller: controller, _dns: process, dns }
    }

    /// An agent of it, which may reach what is at its address.
    fn agent(&self, hub: &Hub, allow: &str) -> Agent {
        let bootstrap = hub.issue_for(self.name);
        let dns = self.dns.to_string();
        let role = ["tunnel", "--dns", &dns, "--allow", allow, "--allow", "cluster.local", "--health", "127.0.0.1:0"];
        Agent::start_in(&self.folder.path().join("state"), hub, &bootstrap, &role)
    }

    fn range(&self) -> String {
        format!("{}/32", self.at)
    }

    /// What vouches for one of its hosts.
    fn authority(&self, host: &str) -> String {
        self.folder.path().join(format!("{host}.ca")).display().to_string()
    }
}

/// The cluster's own DNS: where its ingress controller's Service is.
fn dns(folder: &Path, at: Ipv4Addr) -> (Process, SocketAddr) {
    let fleet = folder.join("dns");
    fs::create_dir(&fleet).unwrap();
    let zone = "apiVersion: fleetgate.dev/v1alpha1\nkind: Zone\nmetadata: {name: inner}\nspec: {domain: cluster.local, zoneFile: {file: inner.zone}}\n";
    let records = format!("@ SOA ns hostmaster 1 60 60 60 5\n@ NS ns\nns A {at}\ningress.web.svc A {at}\n");
    fs::write(fleet.join("inner.zone"), records).unwrap();
    fs::write(fleet.join("zone.yaml"), zone).unwrap();
    let mut command = fleetgate();
    command.args(["serve", "--dns", "127.0.0.1:0", "--log-format", "json", "--fleet"]).arg(fleet);
    let (process, ready) = start(&command);
    (process, ready["dns"].as_str().unwrap().parse().unwrap())
}

fn fleet(ports: Ports) -> String {
    let cluster = |name: &str, tenant: &str| {
        format!(
            "---\napiVersion: fleetgate.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}, labels: {{of: {tenant}}}}}\nspec:\n  tenant: {tenant}\n  zone: main\n  \
             controlPlane: {{kubeApiserver: {{addresses: [\"127.0.0.1:9\"]}}}}\n  \
             ingress: {{mode: hub, service: {{namespace: web, name: ingress, httpPort: {}, httpsPort: {}}}}}\n",
            ports.http, ports.https
        )
    };
    let tenant = |name: &str| {
        format!("---\napiVersion: fleetgate.dev/v1alpha1\nkind: Tenant\nmetadata: {{name: {name}}}\nspec: {{}}\n")
    };
    let ingress = "---\napiVersion: fleetgate.dev/v1alpha1\nkind: FederationPolicy\nmetadata: {name: quick}\nspec: {health: {interval: 1s, timeout: 1s, unhealthy: 1, healthy: 1}}\n\
         ---\napiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: quick}\nspec:\n  controller: fleetgate.dev/ingress\n  parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: quick}\n\
         ---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web, namespace: acme}\nspec:\n  ingressClassName: quick\n  rules:\n  - host: everywhere.c1.fleet.example\n    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}\n";
    let zone = "apiVersion: fleetgate.dev/v1alpha1\nkind: Zone\nmetadata: {name: main}\nspec:\n  domain: fleet.example\n  nameservers: [{name: ns1.fleet.example, addresses: [127.0.0.1]}]\n  gateway: {addresses: [192.0.2.10]}\n";
    [zone, &tenant("acme"), &tenant("rival"), &cluster("c1", "acme"), &cluster("c2", "rival"), ingress].concat()
}

/// A fleet and the insides of its two clusters, without agents.
struct World {
    hub: Hub,
    c1: Cluster,
    c2: Cluster,
}

impl World {
    fn start() -> Option<Self> {
        let haproxy = testbed::haproxy()?;
        testbed::program("openssl")?;
        let (at, ports) = own_place();
        let second = Ipv4Addr::from(u32::from(at) + 1);
        let websocket = websocket();
        let c1 = Cluster::start(&haproxy, "c1", at, ports, websocket);
        let c2 = Cluster::start(&haproxy, "c2", second, ports, websocket);
        let hub = Hub::serving(&fleet(ports), &["--sni", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        Some(Self { hub, c1, c2 })
    }

    /// The answer to a request over TLS, which is checked against what vouches for the host.
    fn https(&self, cluster: &Cluster, host: &str) -> Result<String, String> {
        let port = self.hub.sni.unwrap().port();
        let (resolve, url) = (format!("{host}:{port}:127.0.0.1"), format!("https://{host}:{port}/"));
        curl(&["--cacert", &cluster.authority(host), "--resolve", &resolve, &url])
    }

    fn http(&self, host: &str) -> Result<String, String> {
        let url = format!("http://{}/", self.hub.http.unwrap());
        curl(&["--include", "-H", &format!("host: {host}"), &url])
    }

    /// The subject alternative names of the certificate that is shown for a name.
    fn shown(&self, name: &str) -> String {
        let door = self.hub.sni.unwrap().to_string();
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &door, "-servername", name, "-showcerts"]).stdin(Stdio::null());
        let shown = command.output().unwrap();
        let mut command = Command::new("openssl");
        command.args(["x509", "-noout", "-ext", "subjectAltName"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut reader = command.spawn().unwrap();
        reader.stdin.take().unwrap().write_all(&shown.stdout).unwrap();
        String::from_utf8(reader.wait_with_output().unwrap().stdout).unwrap()
    }

    fn metric(&self, line: &str) -> u64 {
        let text = self.hub.get("/metrics");
        let found = text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or(0)
    }
}

fn curl(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--noproxy", "*"]).args(arguments);
    let output = command.output().expect("curl is installed");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}

/// Grants another protocol and sends back what comes. The key that it is asked with is RFC 6455's own (1.3).
fn websocket() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || -> std::io::Result<u64> {
                let mut stream = stream?;
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut octet = [0];
                    stream.read_exact(&mut octet)?;
                    head.push(octet[0]);
                }
                stream.write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
                )?;
                let mut reader = stream.try_clone()?;
                std::io::copy(&mut reader, &mut stream)
            });
        }
    });
    address
}

#[test]
fn apps_names_lead_through_the_tunnel_into_their_own_cluster() {
    let Some(world) = World::start() else { return };
    let World { hub, c1, c2 } = &world;
    assert_eq!(hub.resolve("shop.c1.fleet.example", "A"), ["192.0.2.10"], "the wildcard is the gateway's");
    let agents = [c1, c2].map(|cluster| cluster.agent(hub, &cluster.range()));
    agents.iter().for_each(Agent::wait_until_ready);

    // TLS ends in the cluster: each name has the certificate that its own ingress controller has for it.
    for cluster in [c1, c2] {
        for host in ["shop", "desk"] {
            let host = format!("{host}.{}.fleet.example", cluster.name);
            let answer =
                world.https(cluster, &host).unwrap_or_else(|error| panic!("{host}: {error}\n{}", hub.log_tail()));
            assert!(answer.starts_with(&format!("{} https {host}", cluster.name)), "{answer}");
            assert!(world.shown(&host).contains(&format!("DNS:{host}")), "{}", world.shown(&host));
            let answer = world.http(&host).unwrap();
            let expected = format!("{} http {host} 127.0.0.1 http", cluster.name);
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(&expected), "{answer}");
        }
    }
    // At any depth, as DNS answers it; the certificate is the ingress controller's matter.
    assert!(world.shown("a.b.c2.fleet.example").contains("DNS:shop.c2.fleet.example"));
    assert!(world.http("a.b.c2.fleet.example").unwrap().contains("c2 http a.b.c2.fleet.example"));
    // Neither what the wildcard stands under nor a name that nobody has leads anywhere.
    for host in ["c1.fleet.example", "shop.c3.fleet.example"] {
        assert!(world.http(host).unwrap().contains("fleetgate-refusal: NoRoute"), "{host}");
        assert_eq!(world.shown(host), "", "{host}");
    }

    // Another protocol, by its host.
    let mut chat = TcpStream::connect(hub.http.unwrap()).unwrap();
    chat.set_read_timeout(Some(PATIENCE)).unwrap();
    chat.write_all(b"GET /chat HTTP/1.1\r\nhost: shop.c1.fleet.example\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut octet = [0];
        chat.read_exact(&mut octet).unwrap();
        answer.push(octet[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    for message in ["hello", "and again"] {
        chat.write_all(message.as_bytes()).unwrap();
        let mut heard = vec![0; message.len()];
        chat.read_exact(&mut heard).unwrap();
        assert_eq!(heard, message.as_bytes());
    }

    let explained = hub.explain(&["shop.c1.fleet.example"]);
    assert!(explained.contains("the apps wildcard of Cluster c1, by the tunnel"), "{explained}");
    assert!(explained.contains("links") || explained.contains("one link"), "{explained}");
    let explained = hub.explain(&["http://shop.c2.fleet.example/"]);
    assert!(explained.contains("the apps wildcard of Cluster c2, by the tunnel"), "{explained}");
    agents.into_iter().for_each(Agent::terminate);
}

#[test]
fn without_a_link_it_is_refused_at_once_and_served_again_soon() {
    let Some(world) = World::start() else { return };
    let World { hub, c1, c2 } = &world;
    let host = "shop.c1.fleet.example";
    let refused = |code: &str| {
        let begun = Instant::now();
        let answer = world.http(host).unwrap();
        assert!(answer.contains(&format!("fleetgate-refusal: {code}")), "{answer}");
        world.https(c1, host).expect_err("there is no way there");
        assert!(begun.elapsed() < SOON, "{code} after {:?}", begun.elapsed());
        assert!(world.metric(&format!("fleetgate_gateway_connections_total{{door=\"sni\",outcome=\"{code}\"}}")) > 0);
    };
    refused("NoLink");
    let explained = hub.explain(&[host]);
    assert!(explained.contains("refused with NoLink, blame: backend") && explained.contains("no link"), "{explained}");

    let mut agent = c1.agent(hub, &c1.range());
    let other = c2.agent(hub, &c2.range());
    agent.wait_until_ready();
    other.wait_until_ready();
    world.https(c1, host).unwrap();
    agent.kill();
    eventually("the links are gone", || world.http(host).unwrap().contains("NoLink").then_some(()));
    refused("NoLink");
    assert!(world.https(c2, "shop.c2.fleet.example").is_ok(), "others are not concerned");
    agent.start_again();
    let begun = Instant::now();
    eventually("it is served again", || world.https(c1, host).ok());
    let took = begun.elapsed();
    println!("served again {took:?} after the agent was back");
    assert!(took < SOON, "{took:?}");
    assert!(world.http(host).unwrap().contains("c1 http"));
    agent.terminate();

    // What the agent does not allow is no way in either, and says so.
    let strict = c1.agent(hub, "10.0.0.0/8");
    strict.wait_until_ready();
    refused("TargetForbidden");
    strict.terminate();
    other.terminate();
}

/// An Ingress of the fleet whose member has no address outside: requests and checks go through the tunnel.
#[test]
fn a_federated_ingress_is_served_through_the_tunnel() {
    let Some(world) = World::start() else { return };
    let World { hub, c1, .. } = &world;
    let host = "everywhere.c1.fleet.example";
    let mut agent = c1.agent(hub, &c1.range());
    agent.wait_until_ready();
    let answer = eventually("it is served", || {
        let answer = world.http(host).unwrap();
        answer.starts_with("HTTP/1.1 200").then_some(answer)
    });
    assert!(answer.ends_with(&format!("c1 http {host} 127.0.0.1 http")), "{answer}");
    let explained = hub.explain(&[&format!("http://{host}/")]);
    assert!(explained.contains("Ingress acme/web") && explained.contains("through the tunnel"), "{explained}");
    // An Ingress has the name, and no certificate for it: no TLS by the wildcard beside.
    assert_eq!(world.shown(host), "");

    let out = "fleetgate_web_members_out{ingress=\"acme/web\",cluster=\"c1\"";
    agent.kill();
    eventually("checks fail", || hub.get("/metrics").lines().any(|line| line.starts_with(out)).then_some(()));
    assert!(world.http(host).unwrap().contains("fleetgate-refusal: NoLink"));
    agent.start_again();
    eventually("it is well again", || (!hub.get("/metrics").lines().any(|line| line.starts_with(out))).then_some(()));
    assert!(world.http(host).unwrap().starts_with("HTTP/1.1 200"));
    agent.terminate();
}
