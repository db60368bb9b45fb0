//! What a hub's nodes would run. There is no kubelet here: for every workload of the chart one process of the program is started, with the arguments, the
//! Secrets and the service account of its pods; Services lead to it, and `kubectl exec` runs the program against it.
//!
//! A pod has an address of its own, which stands for its network: `0.0.0.0` in the chart's arguments is that address, and `127.0.0.1` one of loopback that no
//! other pod has.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use testbed::{ApiServer, Process};

use crate::shell::Shell;

const PATIENCE: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "fleetgate-system";

/// Stands for a part of kubectl: `exec` in a pod becomes the command with what the pod's environment has.
pub(crate) const KUBECTL: &str = r#"#!/bin/bash
arguments=("$@")
for index in "${!arguments[@]}"; do
    if [ "${arguments[index]}" = exec ]; then
        set -a
        . "$SHELL_FOLDER/pods/${arguments[index + 1]}" || exit 1
        while [ "$1" != -- ]; do shift; done
        shift
        exec "$@"
    fi
done
exec kubectl.real "$@"
"#;

#[derive(Default)]
pub(crate) struct Pods {
    running: BTreeMap<String, Pod>,
    started: u8,
}

struct Pod {
    address: String,
    labels: Value,
    ports: Value,
    arguments: Vec<String>,
    // Dropped with the pod.
    _process: Process,
}

impl Pods {
    /// Starts and ends processes until they are those that the hub wants.
    pub(crate) fn follow(&mut self, shell: &Shell, hub: &ApiServer) {
        let workloads = list(hub, "deployments,statefulsets");
        let mut wanted = BTreeMap::new();
        for workload in &workloads {
            let kind = workload["kind"].as_str().unwrap().to_lowercase();
            wanted.insert(format!("{kind}/{}", workload["metadata"]["name"].as_str().unwrap()), workload);
        }
        self.running.retain(|name, _| wanted.contains_key(name));
        for (name, workload) in wanted {
            let template = &workload["spec"]["template"];
            let arguments = strings(&template["spec"]["containers"][0]["args"]);
            if self.running.get(&name).is_none_or(|pod| pod.arguments != arguments) {
                // The old one first, as a StatefulSet does it: it has the volume.
                self.running.remove(&name);
                self.started += 1;
                let pod = start(shell, hub, &name, self.started, template, arguments);
                self.running.insert(name.clone(), pod);
            }
            is_available(hub, &name, workload);
        }
        self.lead(hub);
    }

    /// What kube-proxy and a load balancer do.
    fn lead(&self, hub: &ApiServer) {
        let mut rules = Vec::new();
        for service in list(hub, "services") {
            let selector = service["spec"]["selector"].as_object().unwrap();
            let fits = |pod: &&Pod| selector.iter().all(|(key, value)| pod.labels[key] == *value);
            let Some(pod) = self.running.values().find(fits) else { continue };
            let mut addresses = vec![service["spec"]["clusterIP"].as_str().unwrap().to_owned()];
            if service["spec"]["type"] == "LoadBalancer" {
                let name = service["metadata"]["name"].as_str().unwrap();
                let usual = if name == "fleetgate-dns" { "192.0.2.53" } else { "192.0.2.10" };
                let address = service["spec"]["loadBalancerIP"].as_str().unwrap_or(usual).to_owned();
                let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}});
                patch_status(hub, &format!("service/{name}"), &status);
                addresses.push(address);
            }
            for port in service["spec"]["ports"].as_array().unwrap() {
                let protocol = port["protocol"].as_str().unwrap().to_lowercase();
                let named = |at: &&Value| at["name"] == port["targetPort"];
                let target = pod.ports.as_array().unwrap().iter().find(named).unwrap();
                for address in addresses.iter().filter(|address| *address != "None") {
                    rules.push(format!(
                        "ip daddr {address} {protocol} dport {} dnat to {}:{}",
                        port["port"], pod.address, target["containerPort"]
                    ));
                }
            }
        }
        let chain = format!("chain output {{\ntype nat hook output priority -100;\n{}\n}}", rules.join("\n"));
        nft(&format!("table ip services\ndelete table ip services\ntable ip services {{\n{chain}\n}}\n"));
    }
}

fn start(shell: &Shell, hub: &ApiServer, name: &str, number: u8, template: &Value, arguments: Vec<String>) -> Pod {
    let spec = &template["spec"];
    let container = &spec["containers"][0];
    let (address, loopback) = (format!("10.244.0.{number}"), format!("127.0.1.{number}"));
    let folder = shell.path(&format!(".shell/volumes/{name}"));
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let path = folder.join(mount["mountPath"].as_str().unwrap().trim_start_matches('/'));
        fs::create_dir_all(&path).unwrap();
        let is_it = |volume: &&Value| volume["name"] == mount["name"];
        let volume = spec["volumes"].as_array().into_iter().flatten().find(is_it);
        if let Some(secret) = volume.and_then(|volume| volume["secret"]["secretName"].as_str()) {
            let key = if secret.contains("data-key") { "key" } else { "credential" };
            let template = format!("--output=jsonpath={{.data.{key}}}");
            let coded = hub.kubectl(&["get", "secret", secret, "--namespace", NAMESPACE, &template]).unwrap();
            let file = fs::File::create(path.join(key)).unwrap();
            give(Command::new("base64").arg("--decode").stdout(file), &coded);
        }
    }
    let account = spec["serviceAccountName"].as_str().unwrap();
    let kubeconfig = folder.join("kubeconfig");
    fs::create_dir_all(&folder).unwrap();
    fs::write(&kubeconfig, hub.kubeconfig_for_service_account(NAMESPACE, account).unwrap()).unwrap();

    let here = |text: &str| {
        let there = folder.display().to_string();
        let text = text.replace("0.0.0.0:", &format!("{address}:")).replace("127.0.0.1:", &format!("{loopback}:"));
        text.replace("=/etc/", &format!("={there}/etc/")).replace("=/var/", &format!("={there}/var/"))
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleetgate"));
    command.args(arguments.iter().map(|argument| here(argument)));
    command.arg("--kubeconfig").arg(&kubeconfig).arg("--allow-loopback");
    let pod_name = format!("{}-0", name.rsplit('/').next().unwrap());
    for variable in container["env"].as_array().into_iter().flatten() {
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some("status.podIP") => address.clone(),
            Some(_) => pod_name.clone(),
            None => variable["value"].as_str().unwrap().to_owned(),
        };
        command.env(variable["name"].as_str().unwrap(), value);
    }
    let credential = folder.join("etc/fleetgate/admin/credential");
    command.env_remove("FLEETGATE_ADMIN_CREDENTIAL").env("FLEETGATE_LOG_FORMAT", "json");
    let mut process = Process::start(&command).unwrap();
    process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
    let mut environment = format!("FLEETGATE_ADMIN={loopback}:9630\n");
    // As in the chart: where there is one.
    if credential.exists() {
        writeln!(environment, "FLEETGATE_ADMIN_CREDENTIAL={}", credential.display()).unwrap();
    }
    shell.write(&format!(".shell/pods/{name}"), &environment);
    let (labels, ports) = (template["metadata"]["labels"].clone(), container["ports"].clone());
    Pod { address, labels, ports, arguments, _process: process }
}

/// As the controllers of workloads say it.
fn is_available(hub: &ApiServer, name: &str, workload: &Value) {
    let replicas = &workload["spec"]["replicas"];
    let status = json!({"status": {
        "observedGeneration": workload["metadata"]["generation"], "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas,
    }});
    patch_status(hub, name, &status);
}

fn patch_status(hub: &ApiServer, object: &str, status: &Value) {
    let patch = ["--subresource=status", "--type=merge", "--patch", &status.to_string()];
    hub.kubectl(&[&["patch", object, "--namespace", NAMESPACE], &patch[..]].concat()).unwrap();
}

fn list(hub: &ApiServer, kinds: &str) -> Vec<Value> {
    let ours = ["--selector=app.kubernetes.io/name=fleetgate", "--namespace", NAMESPACE, "--output=json"];
    let list: Value = serde_json::from_str(&hub.kubectl(&[&["get", kinds], &ours[..]].concat()).unwrap()).unwrap();
    list["items"].as_array().unwrap().clone()
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn nft(rules: &str) {
    let nft = testbed::program("nft").expect("testbed/install installs it");
    give(Command::new(nft).args(["--file", "-"]), rules);
}

fn give(command: &mut Command, text: &str) {
    let mut process = command.stdin(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(process.wait().unwrap().success(), "{command:?}: {text}");
}
