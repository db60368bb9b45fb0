//! What a page may take to be there: each has a name, which stands in its blocks (`with: NAME`).

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::{fs, thread};

use testbed::ApiServer;

use crate::pods::{KUBECTL, Pods};
use crate::shell::Shell;

/// Holds what runs beside the shell.
#[derive(Default)]
pub(crate) struct Surroundings {
    name: String,
    /// Before the server that they ask.
    pods: Option<Pods>,
    controllers: Option<testbed::RunningControllerManager>,
    server: Option<ApiServer>,
}

impl Surroundings {
    /// In place of those before. `None` where this machine lacks something, which has been said.
    pub(crate) fn set(&mut self, shell: &mut Shell, name: &str) -> Option<()> {
        if self.name == name {
            return Some(());
        }
        shell.end_all();
        *self = Self { name: name.to_owned(), ..Self::default() };
        match name {
            // The page begins with nothing but the repository.
            "nothing" => {}
            // What `make run` starts.
            "demo" => shell.must("fleetgate demo"),
            // The fleet of the README, which nobody serves yet.
            "fleet" => write_fleet(shell),
            "shop" => shop(shell),
            "held names" => hold_names(shell),
            // A hub on which nothing is installed, and whose workloads are run.
            "empty hub" | "new hub" => {
                self.start_server(shell)?;
                self.controllers = Some(testbed::controller_manager()?.start(self.server.as_ref()?).unwrap());
                self.pods = Some(Pods::default());
            }
            // The same with the chart, a zone, a tenant and a cluster.
            "installed hub" => {
                self.start_server(shell)?;
                self.pods = Some(Pods::default());
                self.install(shell);
            }
            // A hub with a fleet that one process serves, all roles in one.
            "hub" => {
                self.start_server(shell)?;
                serve_hub(shell);
            }
            // A hub that knows a fleet, which nobody serves yet.
            "prepared hub" => {
                self.start_server(shell)?;
                prepare_hub(shell);
            }
            // A hub's door for agents, and a tenant's cluster that KUBECONFIG leads to.
            "agents" => {
                self.start_server(shell)?;
                open_agents_door(shell);
            }
            // A fleet that nobody serves yet, a hub for its Secrets, and what is inside the cluster of one control plane.
            "control plane" => {
                self.start_server(shell)?;
                shell.must("kubectl create namespace control-plane-c1");
                write_fleet(shell);
                inside(shell);
            }
            _ => panic!("there is no such thing as {name:?}"),
        }
        Some(())
    }

    /// What others would do after a command: nodes run what a hub wants.
    pub(crate) fn after(&mut self, shell: &Shell, command: &str) {
        if let (Some(pods), Some(server)) = (&mut self.pods, &self.server)
            && command.starts_with("helm ")
        {
            pods.follow(shell, server);
        }
    }

    fn start_server(&mut self, shell: &mut Shell) -> Option<()> {
        let kubernetes = testbed::kubernetes()?;
        let server = ApiServer::start(&kubernetes).unwrap();
        shell.link("kubectl.real", &kubernetes.kubectl());
        shell.install("kubectl", KUBECTL);
        shell.link("helm", testbed::helm()?.program());
        shell.link("external-dns", testbed::external_dns()?.program());
        shell.export("KUBECONFIG", server.kubeconfig_path().to_str().unwrap());
        server.kubectl_apply(include_str!("../dnsendpoint-crd.yaml")).unwrap();
        server.kubectl_apply(include_str!("../chart/service-monitor-crd.yaml")).unwrap();
        self.server = Some(server);
        Some(())
    }

    fn install(&mut self, shell: &mut Shell) {
        shell.write("values.yaml", "image: {repository: registry.example.net/fleetgate}\n");
        let release =
            "helm install fleetgate deploy/chart --namespace fleetgate-system --create-namespace --values values.yaml";
        shell.must(release);
        self.after(shell, release);
        shell.write("fleet/fleet.yaml", HUB_FLEET);
        shell.must("kubectl apply --server-side -f fleet/fleet.yaml");
    }
}

/// The manifests of the README.
fn write_fleet(shell: &Shell) {
    let readme = include_str!("../../../../README.md");
    let (_, rest) = readme.split_once("```yaml file: fleet/fleet.yaml\n").expect("the README has a fleet");
    shell.write("fleet/fleet.yaml", rest.split_once("```").expect("blocks end").0);
}

const HUB_FLEET: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [192.0.2.53]}]
  gateway: {addresses: [192.0.2.10]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {namespace: acme}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: c1}
spec:
  tenant: acme
  zone: main
  controlPlane: {kubeApiserver: {addresses: ['10.0.0.7:6443']}}
  nodes: [{name: n1, addresses: [192.0.2.11]}, {name: n2, addresses: [192.0.2.12]}, {name: n3, addresses: [192.0.2.13]}]
";

fn prepare_hub(shell: &mut Shell) {
    shell.must("fleetgate crds | kubectl apply --server-side -f -");
    shell.must("kubectl wait --for=condition=Established customresourcedefinitions --all");
    for namespace in ["fleetgate-system", "fleetgate-publish", "acme"] {
        shell.must(&format!("kubectl create namespace {namespace}"));
    }
    shell.write("hub.yaml", HUB_FLEET);
    shell.must("kubectl apply --server-side -f hub.yaml");
    // The pods of the resolver, and how `kubectl exec` finds the controller that a page starts by itself.
    shell.write("resolver.yaml", RESOLVER);
    shell.must("kubectl apply --server-side -f resolver.yaml");
    shell.write(".shell/pods/deployment/fleetgate-controller", "FLEETGATE_ADMIN=127.0.0.1:9630\n");
    shell.must("openssl rand -hex 32 > admin-credential");
}

const RESOLVER: &str = "\
{apiVersion: v1, kind: Service, metadata: {name: fleetgate-resolver, namespace: fleetgate-system}, spec: {clusterIP: None, ports: [{port: 53}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: resolver, namespace: fleetgate-system, labels: {kubernetes.io/service-name: fleetgate-resolver}}
addressType: IPv4
endpoints: [{addresses: [10.244.0.9], conditions: {ready: true}}]
ports: [{port: 53}]
";

fn serve_hub(shell: &mut Shell) {
    prepare_hub(shell);
    shell.must(
        "fleetgate serve --hub --dns 192.0.2.53:53 --admin 127.0.0.1:9630 --admission 127.0.0.1:9633 \
         --admission-url https://127.0.0.1:9633 --peers 10.0.0.7:9634 --peers-address 10.0.0.7 --allow-loopback",
    );
    shell.must("kubectl wait --for=condition=Accepted clusters.fleetgate.dev/c1");
    shell.must("kubectl get validatingwebhookconfiguration fleetgate");
}

fn open_agents_door(shell: &mut Shell) {
    write_fleet(shell);
    shell.must("openssl rand -hex 32 > admin-credential");
    shell.must(
        "fleetgate serve --fleet fleet --data data --dns 127.0.0.1:5300 --agents 0.0.0.0:8444 --admin 127.0.0.1:9630 \
         --admin-credential admin-credential",
    );
    shell.must("fleetgate credential issue c1 --admin-credential admin-credential -o c1.json");
    shell.must("fleetgate crds | kubectl apply --server-side -f -");
    shell.must("kubectl create namespace shop");
    shell.must("kubectl wait --for=condition=Established customresourcedefinitions --all");
    // A Service whose only pod says how busy it is.
    shell.write("web.yaml", WEB);
    shell.must("kubectl apply --server-side -f web.yaml");
    answer("10.20.0.7:8081", "http_requests_total 7\nhttp_requests_in_flight 8\nprocess_cpu_seconds_total 1\n");
}

const WEB: &str = "\
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: None, ports: [{name: http, port: 8081}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.20.0.7], conditions: {ready: true}}]
ports: [{name: http, port: 8081}]
";

/// Names that were there and are not asked for any more, all at once.
fn hold_names(shell: &mut Shell) {
    write_fleet(shell);
    let endpoint =
        |number| format!("  - {{dnsName: n{number}.c1.fleet.example, recordType: A, targets: [192.0.2.11]}}\n");
    let endpoints: String = (0..30).map(endpoint).collect();
    shell.write("fleet/records.yaml", &format!(
        "apiVersion: externaldns.k8s.io/v1alpha1\nkind: DNSEndpoint\nmetadata: {{name: many, namespace: acme}}\nspec:\n  endpoints:\n{endpoints}"
    ));
    shell.must("openssl rand -hex 32 > admin-credential");
    shell.must(
        "fleetgate serve --fleet fleet --data data --dns 127.0.0.1:5300 --admin 127.0.0.1:9630 --admin-credential admin-credential",
    );
    fs::remove_file(shell.path("fleet/records.yaml")).unwrap();
    shell.must("fleetgate get tenants | grep -q held");
}

/// A DNS server that knows a webhook, and the webhook.
fn inside(shell: &mut Shell) {
    shell.write("inside/inside.yaml", "apiVersion: fleetgate.dev/v1alpha1\nkind: Zone\nmetadata: {name: inside}\nspec: {domain: cluster.local, zoneFile: {file: inside.zone}}\n");
    shell.write(
        "inside/inside.zone",
        "\
$ORIGIN cluster.local.
@ 30 SOA ns.dns hostmaster 1 3600 600 86400 5
@ 30 NS ns.dns
ns.dns 30 A 10.10.10.10
hook.shop.svc 30 A 10.10.0.20
",
    );
    shell.must("fleetgate serve --fleet inside --dns 10.10.10.10:53");
    let made = rcgen::generate_simple_self_signed(["hook.shop.svc".to_owned()]).unwrap();
    shell.write("hook.crt", &made.cert.pem());
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key.into()).unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("10.10.0.20:443").unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            thread::spawn(|| greet(rustls::StreamOwned::new(connection, stream), "hello from inside\n"));
        }
    });
}

/// A web server that says the same to everybody.
fn answer(address: &str, text: &'static str) {
    let listener = TcpListener::bind(address).unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| _ = thread::spawn(|| greet(stream, text))));
}

/// One entry in three places, of which one does not answer.
fn shop(shell: &mut Shell) {
    let made = rcgen::generate_simple_self_signed(["www.shop.example".to_owned()]).unwrap();
    let indented = |pem: &str| pem.trim().replace('\n', "\n    ");
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: shop-tls, namespace: acme}}\ntype: kubernetes.io/tls\n\
         stringData:\n  tls.crt: |\n    {}\n  tls.key: |\n    {}\n",
        indented(&made.cert.pem()),
        indented(&made.signing_key.serialize_pem())
    );
    let _ = fs::remove_dir_all(shell.path("shop"));
    shell.write("shop/secret.yaml", &secret);
    shell.write("shop/shop.yaml", SHOP);
    let places = [("berlin", 52.5, 13.4, 1), ("madrid", 40.4, -3.7, 2), ("tokyo", 35.7, 139.7, 3)];
    for (name, latitude, longitude, number) in places {
        shell.write(&format!("shop/{name}.yaml"), &format!(
            "apiVersion: fleetgate.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}}}\nspec:\n  tenant: acme\n  zone: shop\n  \
             location: {{latitude: {latitude}, longitude: {longitude}}}\n  controlPlane: {{kubeApiserver: {{addresses: ['10.0.0.{number}:6443']}}}}\n  \
             ingress: {{http: ['127.0.0.{number}:7080']}}\n"
        ));
    }
    shell.write("places.txt", "203.0.113.0/24 48.8 2.3 eu\n198.51.100.0/24 34.7 135.5 jp\n");
    for address in ["127.0.0.2:7080", "127.0.0.3:7080"] {
        answer(address, "shop\n");
    }
    shell.must(
        "fleetgate serve --fleet shop --data shop-data --geo places.txt --dns 127.0.0.1:5300 --sni 127.0.0.9:443 \
         --https 127.0.0.9:443 --http 127.0.0.9:80 --admin 127.0.0.1:9630",
    );
    // Berlin is out once it has been checked.
    shell.must(
        "fleetgate explain https://www.shop.example/cart --from 203.0.113.7 | grep -q 'unhealthy: failed checks'",
    );
}

const SHOP: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: shop}
spec:
  domain: shop.example
  nameservers: [{name: ns1.shop.example, addresses: [127.0.0.1]}]
  gateway: {addresses: [192.0.2.10]}
---
{apiVersion: fleetgate.dev/v1alpha1, kind: Tenant, metadata: {name: acme}, spec: {domains: [shop.example]}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {name: default}
spec:
  health: {path: /, interval: 1s, timeout: 1s, unhealthy: 1, healthy: 1}
  upstreamTLS: {plainText: true}
  overflow: {utilization: 0.8, maxRatePerPod: 100}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: fleetgate}
spec: {controller: fleetgate.dev/ingress, parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: default}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: acme}
spec:
  ingressClassName: fleetgate
  tls: [{secretName: shop-tls}]
  rules:
  - host: www.shop.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}]}
";

/// Answers request after request.
fn greet(mut stream: impl Read + Write, text: &str) {
    let mut head = Vec::new();
    let mut octet = [0];
    while stream.read(&mut octet).is_ok_and(|length| length == 1) {
        head.push(octet[0]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
            if stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    }
}
