//! A real API server takes what the chart makes, and keeps what it should when the release goes.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use testbed::{ApiServer, KubectlError};

use crate::helm::{ALL_IN_ONE, DEFAULT, Helm, NAMESPACE, SETS, chart, install_page, yaml_blocks};

pub(crate) const WORKLOADS: &str = "deployments,statefulsets,daemonsets";
/// Where objects of a release are that belong to it alone.
const OWNED: &str = "deployments,statefulsets,daemonsets,services,serviceaccounts,poddisruptionbudgets,networkpolicies,\
                     roles,rolebindings,clusterroles,clusterrolebindings,\
                     validatingwebhookconfigurations,mutatingwebhookconfigurations";
const OURS: &str = "--selector=app.kubernetes.io/name=fleetgate";

pub(crate) struct Hub {
    pub(crate) server: ApiServer,
}

impl Hub {
    /// An empty one, with what others bring along. `None` means that the test should return.
    pub(crate) fn start() -> Option<Self> {
        let server = ApiServer::start(&testbed::kubernetes()?).unwrap();
        for definition in [include_str!("service-monitor-crd.yaml"), include_str!("../dnsendpoint-crd.yaml")] {
            server.kubectl_apply(definition).unwrap();
        }
        server.kubectl(&["wait", "--for=condition=Established", "customresourcedefinitions", "--all"]).unwrap();
        server.kubectl(&["create", "namespace", NAMESPACE]).unwrap();
        // What the strictest level does not like about a pod is a warning, and those are failures here.
        let levels = ["enforce", "warn"].map(|mode| format!("pod-security.kubernetes.io/{mode}=restricted"));
        server.kubectl(&["label", "namespace", NAMESPACE, &levels[0], &levels[1]]).unwrap();
        Some(Self { server })
    }

    pub(crate) fn apply(&self, manifests: &str, flags: &[&str]) -> Result<String, KubectlError> {
        let strictly = ["apply", "--server-side", "--warnings-as-errors", "--validate=strict", "-f", "-"];
        self.server.kubectl_with_input(&[&strictly, flags].concat(), manifests)
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let printed = self.server.kubectl(&[arguments, &["--output", "json"]].concat()).unwrap();
        serde_json::from_str(&printed).unwrap()
    }

    pub(crate) fn items(&self, kinds: &str) -> Vec<Value> {
        let list = self.json(&["get", kinds, OURS, "--all-namespaces"]);
        list["items"].as_array().unwrap().clone()
    }

    /// Makes room for other values: volumes and load balancers cannot be changed in place.
    pub(crate) fn clear(&self) {
        self.server.kubectl(&["delete", OWNED, OURS, "--all-namespaces"]).unwrap();
        self.server.kubectl(&["delete", "secrets", OURS, "--namespace", NAMESPACE]).unwrap();
    }

    /// The namespaces that the release's own objects go to, and that a dry run would not make.
    pub(crate) fn make_namespaces(&self) {
        for namespace in ["fleetgate-publish", "fleetgate-kubeconfigs", "more-kubeconfigs", "zone-files", "shop"] {
            let manifest = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n");
            self.server.kubectl_apply(&manifest).unwrap();
        }
    }
}

#[test]
fn every_set_of_values_is_taken_by_the_server() {
    let (Some(helm), Some(hub)) = (Helm::find(), Hub::start()) else { return };
    hub.make_namespaces();
    for (name, values) in SETS {
        let manifests = helm.render(values).unwrap();
        hub.apply(&manifests, &["--dry-run=server"]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(hub.items(WORKLOADS).is_empty(), "a dry run is dry");
        hub.apply(&manifests, &["--force-conflicts"]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let workloads = hub.items(WORKLOADS);
        assert!(!workloads.is_empty(), "{name}");
        for workload in &workloads {
            look_at_pod(name, &workload["spec"]["template"]["spec"]);
        }
        selectors_find_what_they_should(name, &hub, &workloads);
        hub.clear();
    }
}

/// What the pods of all roles have in common, beyond what the API server demands of them.
fn look_at_pod(set: &str, pod: &Value) {
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{set}");
    assert_eq!(container["securityContext"]["capabilities"]["drop"], serde_json::json!(["ALL"]), "{set}");
    assert_eq!(pod["securityContext"]["runAsUser"], 65532, "{set}");
    assert!(container["resources"]["requests"]["memory"].is_string(), "{set}");
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], "metrics", "{set}: {probe}");
    }
    let ports = container["ports"].as_array().unwrap();
    assert!(ports.iter().all(|port| port["containerPort"].as_u64().unwrap() >= 1024), "{set}: {ports:?}");

    let arguments = arguments(container);
    let drain = arguments.iter().find_map(|argument| argument.strip_prefix("--drain=")?.strip_suffix('s'));
    let drain: u64 = drain.map_or(0, |seconds| seconds.parse().unwrap());
    let pause = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > drain + pause, "{set}: {pod}");

    // Every file that it is told of is mounted.
    let mounts: Vec<&str> = container["volumeMounts"].as_array().into_iter().flatten().map(mount_path).collect();
    for argument in &arguments {
        if let Some(file) = argument.split_once("=/").map(|(_, file)| format!("/{file}")) {
            assert!(mounts.iter().any(|mount| file.starts_with(mount)), "{set}: {argument} is not in {mounts:?}");
        }
    }
}

fn mount_path(mount: &Value) -> &str {
    mount["mountPath"].as_str().unwrap()
}

pub(crate) fn arguments(container: &Value) -> Vec<&str> {
    container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()).collect()
}

/// Services, budgets and policies are for pods that there are; ports for ports that those have.
fn selectors_find_what_they_should(set: &str, hub: &Hub, workloads: &[Value]) {
    let templates: Vec<&Value> = workloads.iter().map(|workload| &workload["spec"]["template"]).collect();
    let chosen = |selector: &Value| {
        let wanted: BTreeMap<String, String> = serde_json::from_value(selector.clone()).unwrap();
        let fits =
            |template: &&&Value| wanted.iter().all(|(key, value)| template["metadata"]["labels"][key] == **value);
        let found: Vec<&&Value> = templates.iter().filter(fits).collect();
        assert_eq!(found.len(), 1, "{set}: {selector} finds the pods of one workload");
        found[0]["spec"]["containers"][0].clone()
    };
    for service in hub.items("services") {
        let container = chosen(&service["spec"]["selector"]);
        for port in service["spec"]["ports"].as_array().unwrap() {
            let has = |there: &Value| there["name"] == port["targetPort"] && there["protocol"] == port["protocol"];
            assert!(container["ports"].as_array().unwrap().iter().any(has), "{set}: {port} of {service}");
        }
    }
    for object in hub.items("networkpolicies").iter().chain(&hub.items("poddisruptionbudgets")) {
        let spec = &object["spec"];
        let selector = if spec["podSelector"].is_object() { &spec["podSelector"] } else { &spec["selector"] };
        chosen(&selector["matchLabels"]);
    }
    let accounts: Vec<Value> = hub.items("serviceaccounts").iter().map(|at| at["metadata"]["name"].clone()).collect();
    assert_eq!(accounts.len(), workloads.len(), "{set}: one each");
    for template in templates {
        assert!(accounts.contains(&template["spec"]["serviceAccountName"]), "{set}: {accounts:?}");
    }
}

#[test]
fn a_release_is_installed_upgraded_and_removed() {
    let (Some(helm), Some(hub)) = (Helm::find(), Hub::start()) else { return };
    let chart = chart();
    let kubeconfig = hub.server.kubeconfig_path().to_string_lossy();
    let here = ["--namespace", NAMESPACE, "--kubeconfig", &kubeconfig];
    let release = |doing: &str, values: &str| {
        helm.run_with(&[&[doing, "fleetgate", &chart], &here[..]].concat(), values).unwrap()
    };
    let data_key =
        || hub.json(&["get", "secret", "fleetgate-data-key", "--namespace", NAMESPACE])["data"]["key"].clone();

    let notes = release("install", DEFAULT);
    assert!(notes.contains("exec deployment/fleetgate-controller -- fleetgate get refusals"), "{notes}");
    let key = data_key();
    // 32 octets in base64.
    assert_eq!(key.as_str().unwrap().trim_end_matches('=').len(), 43, "the key");
    let definitions = || hub.json(&["get", "customresourcedefinitions", OURS])["items"].as_array().unwrap().clone();
    let generations = || definitions().iter().map(|at| at["metadata"]["generation"].clone()).collect::<Vec<_>>();
    assert_eq!(definitions().len(), 8);

    // What the chart made of the definitions on the way is what the program prints.
    let before = generations();
    let printed = Command::new(env!("CARGO_BIN_EXE_fleetgate")).arg("crds").output().unwrap();
    hub.apply(&String::from_utf8(printed.stdout).unwrap(), &["--force-conflicts"]).unwrap();
    assert_eq!(generations(), before);

    // Objects, which nothing below may touch.
    hub.server.kubectl(&["wait", "--for=condition=Established", "customresourcedefinitions", "--all"]).unwrap();
    let page = install_page();
    let (_, manifests) = yaml_blocks(&page);
    assert!(!manifests.is_empty());
    for manifests in manifests {
        hub.apply(manifests, &[]).unwrap_or_else(|error| panic!("{manifests}{error}"));
    }

    let notes = release("upgrade", ALL_IN_ONE);
    assert!(notes.contains("exec statefulset/fleetgate -- fleetgate get refusals"), "{notes}");
    let names: Vec<Value> = hub.items(WORKLOADS).iter().map(|at| at["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["fleetgate"], "the separate ones are gone");
    assert_eq!(data_key(), key);

    helm.run(&[&["uninstall", "fleetgate"], &here[..]].concat()).unwrap();
    assert!(hub.items(OWNED).is_empty());
    assert_eq!((definitions().len(), data_key()), (8, key.clone()));
    hub.server.kubectl(&["get", "tenants.fleetgate.dev/acme", "clusters.fleetgate.dev/c1"]).unwrap();
    hub.server.kubectl(&["get", "namespace", "fleetgate-publish", "fleetgate-kubeconfigs"]).unwrap();

    release("install", DEFAULT);
    assert_eq!((hub.items(WORKLOADS).len(), data_key()), (3, key));
}
