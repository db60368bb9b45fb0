//! The command lines that the chart gives to the program, run with the rights of the accounts that it gives them.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::Process;

use crate::helm::{AGENTS, DEFAULT, Helm, NAMESPACE, SETS};
use crate::hub::{Hub, WORKLOADS, arguments};

const PATIENCE: Duration = Duration::from_mins(2);

/// The flags that have a process listen.
const ADDRESSES: [&str; 8] =
    ["--dns", "--apiserver", "--sni", "--agents", "--metrics", "--admin", "--admission", "--peers"];

/// A fleet that makes every role do all that it can: names, a proof, and records to hand out.
const FLEET: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [192.0.2.53]}]
  gateway: {addresses: [192.0.2.10]}
  publish: [authoritative, dnsEndpoint]
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {namespace: acme}
---
apiVersion: v1
kind: Secret
metadata: {name: c1-proof, namespace: fleetgate-system}
type: fleetgate.dev/proof
stringData: {key: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: c1}
spec:
  tenant: acme
  zone: main
  controlPlane: {kubeApiserver: {addresses: [\"10.0.0.7:6443\"]}}
  nodes: [{name: n1, addresses: [192.0.2.11]}]
  proof: {required: true, keys: [{secret: {namespace: fleetgate-system, name: c1-proof}}]}
";

#[test]
fn the_program_takes_the_arguments_of_every_pod() {
    let (Some(helm), Some(hub)) = (Helm::find(), Hub::start()) else { return };
    hub.make_namespaces();
    for (set, values) in SETS {
        hub.apply(&helm.render(values).unwrap(), &["--force-conflicts"]).unwrap();
        for workload in hub.items(WORKLOADS) {
            let arguments = arguments(&workload["spec"]["template"]["spec"]["containers"][0]).join(" ");
            // Said last, it shows the help once all before it was understood.
            let mut program = Command::new(env!("CARGO_BIN_EXE_fleetgate"));
            let output = program.args(arguments.split(' ')).arg("--help").output().unwrap();
            assert!(output.status.success(), "{set}: {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        }
        hub.clear();
    }
}

#[test]
fn each_role_runs_with_the_rights_of_its_account() {
    let (Some(helm), Some(hub)) = (Helm::find(), Hub::start()) else { return };
    hub.make_namespaces();
    hub.apply(&helm.render(DEFAULT).unwrap(), &["--force-conflicts"]).unwrap();
    hub.server.kubectl(&["wait", "--for=condition=Established", "customresourcedefinitions", "--all"]).unwrap();
    hub.apply(FLEET, &[]).unwrap();

    let mut roles: Vec<Role> = hub.items(WORKLOADS).iter().map(|workload| Role::start(&hub, workload)).collect();
    assert_eq!(roles.len(), 3);
    for role in &mut roles {
        role.ready = role.process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
    }

    // What the controller plans it may write ...
    until("a serial", || hub.json(&["get", "zones.fleetgate.dev", "main"])["status"]["serial"].is_number());
    let endpoint = ["get", "dnsendpoints.externaldns.k8s.io", "c1", "--namespace=fleetgate-publish"];
    until("records for ExternalDNS", || hub.server.kubectl(&endpoint).is_ok());
    until("a leader", || {
        let lease = ["get", "lease", "fleetgate-controller", "--namespace", NAMESPACE];
        hub.server.kubectl(&lease).is_ok()
    });
    until("the webhook", || {
        let webhook = ["get", "validatingwebhookconfiguration", "fleetgate"];
        hub.json(&webhook)["webhooks"][0]["clientConfig"]["service"]["name"] == "fleetgate-admission"
    });
    // ... and what the data planes need they may read.
    let dns = roles.iter().find(|role| role.name == "fleetgate-dns").unwrap();
    let ready: Value = serde_json::from_str(&dns.ready).unwrap();
    let (_, port) = ready["dns"].as_str().unwrap().rsplit_once(':').unwrap();
    until("an answer", || {
        let mut dig = Command::new("dig");
        let asked =
            dig.args(["@127.0.0.1", "-p", port, "+short", "+time=30", "+tries=1", "x.c1.fleet.example"]).output();
        String::from_utf8_lossy(&asked.expect("dig is there: testbed/install installs it").stdout) == "192.0.2.11\n"
    });

    // The leader hears them, as their tokens say who they are.
    for role in roles.iter().filter(|role| role.name != "fleetgate-controller") {
        until("a stream to the leader", || role.process.log().contains("the leader hears us"));
    }

    for role in &mut roles {
        role.process.check_running().unwrap();
        let log = role.process.log();
        let refused = log.lines().find(|line| line.to_lowercase().contains("forbidden"));
        assert_eq!(refused, None, "{}", role.name);
    }
}

/// The authority and the credentials, by way of what `kubectl exec` would run.
#[test]
fn agents_get_credentials_with_the_rights_of_the_controller() {
    let (Some(helm), Some(hub)) = (Helm::find(), Hub::start()) else { return };
    hub.make_namespaces();
    hub.apply(&helm.render(AGENTS).unwrap(), &["--force-conflicts"]).unwrap();
    hub.server.kubectl(&["wait", "--for=condition=Established", "customresourcedefinitions", "--all"]).unwrap();
    hub.apply(FLEET, &[]).unwrap();
    let workloads = hub.items(WORKLOADS);
    let controller = workloads.iter().find(|at| at["metadata"]["name"] == "fleetgate-controller").unwrap();
    let mut controller = Role::start(&hub, controller);
    let ready: Value =
        serde_json::from_str(&controller.process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap()).unwrap();
    let credential = |arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_fleetgate"));
        program.arg("credential").args(arguments).args(["--admin", ready["admin"].as_str().unwrap()]);
        let output = program.arg("--admin-credential").arg(admin_credential(&hub)).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };

    // The controller has to have heard of the cluster, and to have made the authority.
    let mut issued = None;
    until("a credential", || {
        issued = credential(&["issue", "c1"]);
        issued.is_some()
    });
    let issued: Value = serde_json::from_str(&issued.unwrap()).unwrap();
    assert_eq!(issued["serverName"], "agents.fleet.example");
    let kept = |kind: &str| {
        let only = format!("--field-selector=type=fleetgate.dev/{kind}");
        hub.json(&["get", "secrets", "--namespace", NAMESPACE, &only])["items"].as_array().unwrap().clone()
    };
    assert_eq!(kept("agents-authority")[0]["metadata"]["name"], "fleetgate-agents-authority");
    let name = kept("agent-credential")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    credential(&["revoke", name.strip_prefix("fleetgate-agent-").unwrap()]).unwrap();
    assert!(kept("agent-credential").is_empty());

    controller.process.check_running().unwrap();
    let log = controller.process.log();
    assert_eq!(log.lines().find(|line| line.to_lowercase().contains("forbidden")), None);
}

struct Role {
    name: String,
    process: Process,
    ready: String,
}

impl Role {
    /// The chart's command line, on ports of this machine's and with a token of the account's.
    fn start(hub: &Hub, workload: &Value) -> Self {
        let pod = &workload["spec"]["template"]["spec"];
        let account = pod["serviceAccountName"].as_str().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleetgate"));
        for argument in arguments(&pod["containers"][0]) {
            match argument.split_once('=') {
                Some(("--data" | "--data-key", _)) => {}
                Some((flag, _)) if ADDRESSES.contains(&flag) => _ = command.arg(format!("{flag}=127.0.0.1:0")),
                Some((flag @ "--admin-credential", _)) => _ = command.arg(flag).arg(admin_credential(hub)),
                _ => _ = command.arg(argument),
            }
        }
        command.arg("--kubeconfig").arg(kubeconfig(hub, account)).args(["--log-format", "json"]);
        Self { name: account.to_owned(), process: Process::start(&command).unwrap(), ready: String::new() }
    }
}

/// What the Secret would hold.
fn admin_credential(hub: &Hub) -> PathBuf {
    let path = hub.server.work_dir().join("admin-credential");
    std::fs::write(&path, "as-long-as-nobody-guesses-0123456789").unwrap();
    path
}

fn kubeconfig(hub: &Hub, account: &str) -> PathBuf {
    let token = hub.server.kubectl(&["create", "token", account, "--namespace", NAMESPACE]).unwrap();
    let path = hub.server.work_dir().join(format!("{account}.kubeconfig"));
    std::fs::write(&path, hub.server.kubeconfig_with_token(token.trim())).unwrap();
    path
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
    }
}
