//! Real API servers on the hub's side reach webhooks and extension API servers inside their own clusters.

use std::fs;
use std::net::SocketAddr;

use testbed::{ApiServer, Certificate, ExtensionServer, Kubernetes, RunningExtensionServer};

use crate::fixture::{A, B, EGRESS, SNI, World, eventually, fleetgate, printed};
use crate::tenant::{EXTENSION, Tenant, WEBHOOK, programs};

/// A goes by a socket and the proxy behind it, B by TLS to the hub itself: what `EgressSelectorConfiguration` has.
#[test]
fn api_servers_reach_webhooks_and_extensions_of_their_own_cluster() {
    let (Some(kubernetes), Some(extension)) = (testbed::kubernetes(), testbed::extension_server()) else { return };
    let (Some(programs), Some(mut world)) = (programs(), World::start()) else { return };
    let tenants = [A, B].map(|place| Tenant::start(&mut world, &programs, place));

    let socket = tenants[0].socket().to_str().unwrap().to_owned();
    let credential = tenants[1].credential.to_str().unwrap().to_owned();
    let url = format!("https://{}:{EGRESS}", B.gateway());
    let selectors: [&[&str]; 2] = [&["--uds", &socket], &["--url", &url, "--credential", &credential]];
    // At the same time: it takes a while.
    let parts: Vec<_> = std::thread::scope(|scope| {
        let start = |(tenant, selector): (&'_ Tenant, &'_ [&str])| {
            let server = start_with_selector(&world, &kubernetes, tenant, selector);
            let extension = start_extension(&kubernetes, &extension, tenant, &server);
            register(&server, tenant);
            (server, extension)
        };
        let starts: Vec<_> = tenants.iter().zip(selectors).map(|pair| scope.spawn(move || start(pair))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });

    for (tenant, (server, _)) in tenants.iter().zip(&parts) {
        the_webhook_refuses(server, tenant, "by-service");
        the_webhook_refuses(server, tenant, "by-name");
        let kinds = server.kubectl(&["get", "--raw", "/apis/wardle.example.com/v1alpha1"]).unwrap();
        assert!(kinds.contains("\"flunders\""), "{kinds}");
        let name = tenant.place.name;
        let flunder = format!("{{apiVersion: wardle.example.com/v1alpha1, kind: Flunder, metadata: {{name: {name}}}}}");
        server.kubectl_with_input(&["create", "-f", "-"], &flunder).unwrap();
    }
    // Each has its own, and only that.
    for (tenant, (server, _)) in tenants.iter().zip(&parts) {
        let flunders = server.kubectl(&["get", "flunders", "-o", "name"]).unwrap();
        assert_eq!(flunders, format!("flunder.wardle.example.com/{}\n", tenant.place.name));
    }

    // Whoever asks while A is cut off is told why, and B's are served.
    tenants[0].inside.cut().unwrap();
    eventually("people read that no agent is there", || says(&parts[0].0, "by-service", "NoLink"));
    the_webhook_refuses(&parts[1].0, &tenants[1], "by-service");
    tenants[0].inside.mend().unwrap();
    eventually("the webhook is asked again", || says(&parts[0].0, "by-service", "says no"));
}

/// What an API server says to who would make a forbidden object has these words, or else it is something else.
fn says(server: &ApiServer, way: &str, words: &str) -> Result<(), String> {
    let answer = server.kubectl(&["create", "configmap", &format!("forbidden-{way}"), "--dry-run=server"]);
    let answer = answer.unwrap_or_else(|refused| refused.to_string());
    if answer.contains(words) { Ok(()) } else { Err(answer) }
}

/// Both ways to the webhook were taken, and the word is this tenant's.
pub(crate) fn the_webhook_refuses(server: &ApiServer, tenant: &Tenant, way: &str) {
    let refused = server.kubectl(&["create", "configmap", &format!("forbidden-{way}")]).unwrap_err().to_string();
    let word = format!("the webhook of {} says no", tenant.place.name);
    assert!(refused.contains(&word) && refused.contains(&format!("{way}.webhook.example")), "{refused}");
}

/// The two webhooks and what stands behind them, in the API server.
pub(crate) fn register(server: &ApiServer, tenant: &Tenant) {
    server.kubectl_apply(&webhooks(&tenant.certificate)).unwrap();
    // It looks every second or so whom it is to ask, and until then takes everything.
    for way in ["by-service", "by-name"] {
        eventually("the webhook is asked", || says(server, way, "says no"));
    }
}

fn start_with_selector(world: &World, kubernetes: &Kubernetes, tenant: &Tenant, selector: &[&str]) -> ApiServer {
    let mut command = fleetgate();
    command.args(["egress", "config", tenant.place.name]).args(selector);
    let config = printed(&world.network.hub, &command).unwrap();
    let file = world.path(&format!("egress-{}.yaml", tenant.place.name));
    fs::write(&file, config).unwrap();
    let argument = format!("--egress-selector-config-file={}", file.display());
    ApiServer::start_on_host(kubernetes, &tenant.control.host, &[&tenant.place.api_name()], &[argument]).unwrap()
}

/// In the tenant's network. Whom to believe it asks the API server, by the hub's front door like everybody outside.
fn start_extension(
    kubernetes: &Kubernetes,
    program: &ExtensionServer,
    tenant: &Tenant,
    server: &ApiServer,
) -> RunningExtensionServer {
    let door: SocketAddr = format!("{}:{SNI}", tenant.place.hub()).parse().unwrap();
    let kubeconfig = server.kubeconfig_at(door, &tenant.place.api_name());
    let certificate = Certificate::for_server(&["wardle.default.svc"]).unwrap();
    let address = format!("{EXTENSION}:443").parse().unwrap();
    let running = program.start_on_host(kubernetes, &tenant.inside.host, address, &certificate, &kubeconfig).unwrap();
    server.kubectl_apply(&ExtensionServer::registration(EXTENSION, &certificate)).unwrap();
    server.kubectl(&["wait", "--for=condition=Available", "--timeout=120s", "apiservice", "--all"]).unwrap();
    running
}

fn webhooks(certificate: &Certificate) -> String {
    let authority = certificate.ca_bundle();
    let webhook = |way: &str, client: &str| {
        format!(
            "- name: {way}.webhook.example
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 30
  namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: default}}}}
  rules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]
  clientConfig:
    caBundle: {authority}
    {client}
"
        )
    };
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: webhook, namespace: default}}
spec: {{clusterIP: {WEBHOOK}, ports: [{{port: 443}}]}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: tenant}}
webhooks:
{}{}",
        webhook("by-service", "service: {namespace: default, name: webhook, path: /by-service}"),
        webhook("by-name", "url: https://webhook.default.svc.cluster.local/by-name"),
    )
}
