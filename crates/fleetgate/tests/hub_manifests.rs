//! A folder and a hub take the same manifests and refuse the same ones: `fleetgate check` and a real API server with our
//! custom resource definitions are asked in turn.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use model::identity::Kind;
use model::{Planner, Since, Timestamp};
use serde_json::{Value, json};
use testbed::{ApiServer, KubectlError};

/// The folders under `examples/`, and the codes with which `check` refuses objects there.
const EXAMPLES: [(&str, &[&str]); 3] = [("fleet", &[]), ("records", &[]), ("hub", &["NeedsHub"])];

/// Marks the line of a wrong manifest that `check` names; behind it stands what is in the hub's answer.
const MARK: &str = "# <- ";

#[test]
fn definitions_are_taken_without_a_warning() {
    let Some(hub) = Hub::start() else { return };
    for crd in hub.json(&["get", "customresourcedefinitions"])["items"].as_array().unwrap() {
        let name = &crd["metadata"]["name"];
        let conditions = crd["status"]["conditions"].as_array().unwrap();
        let holds = |kind: &str| conditions.iter().any(|at| at["type"] == kind && at["status"] == "True");
        assert!(holds("Established") && holds("NamesAccepted"), "{name}: {conditions:?}");
        assert!(!holds("NonStructuralSchema"), "{name}: {conditions:?}");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        if crd["spec"]["group"] == "fleetgate.dev" {
            undocumented(schema, name.as_str().unwrap());
        }
    }

    // Once more: what the server made of it is what was meant, so nothing is left to change.
    let before = generations(&hub);
    hub.server.kubectl_apply(&crds()).unwrap();
    assert_eq!(generations(&hub), before);
}

#[test]
fn examples_are_taken_by_both() {
    let Some(hub) = Hub::start() else { return };
    for (folder, codes) in EXAMPLES {
        let folder = examples().join(folder);
        for file in manifests(&folder) {
            hub.apply(&file, &[]).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        let Report { text, mut refusals, mistakes } = check(&folder);
        assert_eq!(mistakes, 0, "{text}");
        refusals.sort();
        refusals.dedup();
        assert_eq!(refusals, codes, "{text}");
    }
    let documented: Vec<_> = EXAMPLES.iter().map(|(folder, _)| (*folder).to_owned()).collect();
    assert_eq!(sorted(folders(&examples())), sorted(documented), "each folder under examples/ is held to something");
}

#[test]
fn the_node_proxys_daemon_set_is_taken() {
    let Some(hub) = Hub::start() else { return };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/node-proxy/daemonset.yaml");
    let taken = hub.apply(&file, &["--validate=strict"]).unwrap();
    assert!(taken.contains("daemonset.apps/node-proxy"), "{taken}");
    assert!(!taken.contains("Warning"), "{taken}");
}

/// Under the strictest level of Pod Security, and with arguments that the program knows.
#[test]
fn the_agents_deployments_are_taken() {
    let Some(hub) = Hub::start() else { return };
    for (file, namespace, name) in [
        ("sync.yaml", "fleetgate-sync", "sync"),
        ("external-dns.yaml", "external-dns", "external-dns"),
        ("load.yaml", "fleetgate-load", "load"),
        ("tunnel.yaml", "fleetgate-tunnel", "tunnel"),
    ] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/agent").join(file);
        let taken = hub.apply(&file, &["--warnings-as-errors"]).unwrap();
        assert!(taken.contains(&format!("deployment.apps/{name}")), "{taken}");
        // Nobody makes pods of it here, so that we do: a Deployment is only warned about.
        let deployment = hub.json(&["get", "deployment", "-n", namespace, name]);
        let template = &deployment["spec"]["template"];
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": template["spec"] });
        pod["metadata"] = json!({ "name": "one", "namespace": namespace, "labels": template["metadata"]["labels"] });
        let strictly = ["apply", "--server-side", "--warnings-as-errors", "-f", "-"];
        hub.server.kubectl_with_input(&strictly, &pod.to_string()).unwrap();
        pod["spec"]["hostNetwork"] = json!(true);
        pod["metadata"]["name"] = json!("two");
        hub.server.kubectl_with_input(&strictly, &pod.to_string()).expect_err("the level counts");
        let containers = ["initContainers", "containers"].map(|field| template["spec"][field].as_array().cloned());
        let ours: Vec<Value> = containers.into_iter().flatten().flatten().collect();
        let ours = ours.iter().filter(|container| container["image"].as_str().unwrap().starts_with("fleetgate:"));
        for container in ours.clone() {
            let arguments = container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
            let output = Command::new(env!("CARGO_BIN_EXE_fleetgate")).args(arguments).arg("--help").output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert_eq!(container["image"], format!("fleetgate:{}", env!("CARGO_PKG_VERSION")));
        }
        assert_eq!(ours.count(), 1);
    }
}

#[test]
fn wrong_manifests_are_refused_by_both() {
    let Some(hub) = Hub::start() else { return };
    let files = manifests(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong"));
    assert!(files.len() > 50, "the table has become short: {}", files.len());
    let complaints: Vec<String> = files.iter().flat_map(|file| agree_on_refusal(&hub, file)).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// What is wrong with how a wrong manifest is refused.
fn agree_on_refusal(hub: &Hub, file: &Path) -> Vec<String> {
    let name = file.file_name().unwrap().to_string_lossy();
    let text = fs::read_to_string(file).unwrap();
    assert!(text.starts_with("# "), "{name} begins with what is wrong with it");
    let (line, answer) = text
        .lines()
        .enumerate()
        .find_map(|(line, text)| Some((line + 1, text.split_once(MARK)?.1)))
        .unwrap_or_else(|| panic!("{name} has no line with {MARK:?}"));
    let mut complaints = Vec::new();
    match hub.apply(file, &["--dry-run=server"]) {
        Ok(_) => complaints.push(format!("{name}: the hub takes it")),
        Err(error) if !error.to_string().contains(answer) => complaints.push(format!("{name}: no {answer} in {error}")),
        Err(_) => {}
    }

    let folder = tempfile::tempdir().unwrap();
    fs::copy(file, folder.path().join(&*name)).unwrap();
    let report = check(folder.path());
    if report.mistakes != 1 || !report.text.contains(&format!("{name}:{line}:")) {
        complaints.push(format!("{name}: check does not name line {line}: {}", report.text));
    }
    complaints
}

#[test]
fn defaults_are_those_of_the_contract() {
    let Some(hub) = Hub::start() else { return };
    let zone = hub.read_back(&json!({
        "apiVersion": "fleetgate.dev/v1alpha1", "kind": "Zone", "metadata": {"name": "main"},
        "spec": {"domain": "fleet.example"},
    }));
    assert_eq!(
        zone["spec"],
        json!({
            "domain": "fleet.example",
            "ttl": 30,
            "names": {"api": "api.{cluster}", "apps": "*.{cluster}"},
            "publish": ["authoritative"],
            "withdrawal": {"grace": "60s", "maxShare": 0.3},
            "dnssec": {"enabled": false},
        })
    );
    let control_plane = json!({"kubeApiserver": {"addresses": ["10.0.0.7:6443"]}});
    let cluster = hub.read_back(&json!({
        "apiVersion": "fleetgate.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "c1"},
        "spec": {"tenant": "acme", "zone": "main", "controlPlane": control_plane, "nodes": [{"name": "n1"}]},
    }));
    assert_eq!(
        cluster["spec"],
        json!({
            "tenant": "acme",
            "zone": "main",
            "controlPlane": control_plane,
            "nodes": [{"name": "n1", "ready": true}],
            "location": {},
            "ingress": {"mode": "nodes"},
            "allowedSources": ["0.0.0.0/0", "::/0"],
            "proof": {"required": false},
            "limits": {},
        })
    );
    let policy = hub.read_back(&json!({
        "apiVersion": "fleetgate.dev/v1alpha1", "kind": "FederationPolicy", "metadata": {"name": "default"}, "spec": {},
    }));
    assert_eq!(
        policy["spec"],
        json!({
            "placement": {"clusterSelector": {}},
            "entry": "vip",
            "steering": {"mode": "geo"},
            "overflow": {"utilization": 0.8},
            "health": {"path": "/healthz", "interval": "5s", "timeout": "2s", "unhealthy": 3, "healthy": 2},
            "upstreamTLS": {"plainText": false, "verify": true},
        })
    );

    // What the hub made of it can be put into a folder as it is.
    let folder = tempfile::tempdir().unwrap();
    let mut exported = vec![zone, cluster, policy];
    exported.push(hub.read_back(&json!({
        "apiVersion": "fleetgate.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "acme"}, "spec": {},
    })));
    for object in &exported {
        let file = folder.path().join(format!("{}.json", object["kind"].as_str().unwrap()));
        fs::write(file, object.to_string()).unwrap();
    }
    let Report { text, refusals, mistakes } = check(folder.path());
    assert_eq!(mistakes, 0, "{text}");
    // The zone has no name servers, and the policy's part has not come yet.
    assert_eq!(sorted(refusals), ["NoNameservers", "RefusedZone"], "{text}");
}

#[test]
fn kubectl_shows_what_matters() {
    let Some(hub) = Hub::start() else { return };
    hub.server.kubectl(&["apply", "--server-side", "--recursive", "-f", &examples().to_string_lossy()]).unwrap();
    for (kind, columns) in [
        ("zones.fleetgate.dev", "NAME DOMAIN SERIAL ACCEPTED AGE"),
        ("tenants.fleetgate.dev", "NAME NAMESPACE ACCEPTED AGE"),
        ("clusters.fleetgate.dev", "NAME TENANT API READY-NODES STATE AGE"),
        ("addresspools.fleetgate.dev", "NAME CIDRS GIVEN RESTING ACCEPTED AGE"),
        ("addressclaims.fleetgate.dev", "NAME POOL ADDRESS ACCEPTED AGE"),
        ("federationpolicies.fleetgate.dev", "NAME ENTRY MODE ACCEPTED AGE"),
    ] {
        let table = hub.server.kubectl(&["get", kind, "--namespace=acme"]).unwrap();
        let header: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(header.join(" "), columns, "{table}");
    }
    let all = hub.server.kubectl(&["get", "fleetgate", "--namespace=acme", "-o", "name"]).unwrap();
    for kind in ["zone", "tenant", "cluster", "addresspool", "addressclaim", "federationpolicy"] {
        assert!(all.contains(&format!("{kind}.fleetgate.dev/")), "no {kind} in {all}");
    }
    let table = hub.server.kubectl(&["get", "clusters.fleetgate.dev", "c1", "--no-headers"]).unwrap();
    assert!(table.starts_with("c1 ") && table.contains(" acme "), "{table}");

    // A status as the controller will write it.
    let status = json!({"status": {
        "apiName": "api.c1.fleet.example",
        "readyNodes": 2,
        "state": "Ready",
        "nodes": [{"name": "n1", "addresses": ["192.0.2.1", "2001:db8::1"], "ready": true}],
        "kept": {"name": "*.c1.fleet.example", "addresses": ["192.0.2.1"], "until": "2026-01-01T00:00:00.123456789Z"},
        "conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    }});
    let patch = ["patch", "clusters.fleetgate.dev", "c1", "--subresource=status", "--type=merge", "--patch"];
    hub.server.kubectl(&[&patch[..], &[&status.to_string()]].concat()).unwrap();
    let table = hub.server.kubectl(&["get", "clusters.fleetgate.dev", "c1", "--no-headers"]).unwrap();
    let row: Vec<_> = table.split_whitespace().collect();
    assert_eq!(row[..5], ["c1", "acme", "api.c1.fleet.example", "2", "Ready"], "{table}");
}

/// The very objects that the API server gives back, with all that it adds.
#[test]
fn what_the_hub_has_is_read() {
    let Some(hub) = Hub::start() else { return };
    hub.server.kubectl(&["apply", "--server-side", "--recursive", "-f", &examples().to_string_lossy()]).unwrap();
    let mut missing = |source: manifest::Source<'_>| Err(manifest::Missing(format!("{source} is not there")));
    let (mut facts, mut hindrances) = (Vec::new(), Vec::new());
    for kind in Kind::ALL {
        let group = if kind.api_version() == "v1" { String::new() } else { format!(".{}", group_of(kind)) };
        let list = hub.json(&["get", &format!("{}{group}", kind.plural()), "--namespace=acme"]);
        for object in list["items"].as_array().unwrap() {
            let read = manifest::hub::read(kind, object.clone(), &mut missing);
            let mut manifest = read.unwrap_or_else(|reason| panic!("{object}: {reason}"));
            match &mut manifest.value {
                manifest::Value::Zone(zone) => hindrances.extend(zone.hindrance.clone()),
                manifest::Value::Cluster(cluster) => {
                    cluster.resolve(vec!["10.0.0.7:6443".parse().unwrap()]);
                    hindrances.extend(cluster.hindrance.clone().or(cluster.closed.clone()));
                }
                _ => {}
            }
            facts.push(manifest.into_fact(Since::at(Timestamp(1)), None));
        }
    }
    // The Secret of the proof's first key, which closes the door alone, and the ConfigMap of the zone file; the rest is as good as in
    // a folder.
    let what: Vec<_> = hindrances.iter().map(ToString::to_string).collect();
    assert_eq!(what.len(), 2, "{what:?}");
    assert!(hindrances.iter().all(|hindrance| hindrance.code() == "Unreadable"), "{what:?}");

    // What the plan says of each is taken as its status.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let planned = Planner::default().apply(facts, Timestamp::from_unix(now));
    let statuses = planned.snapshot.statuses();
    let ours = statuses.filter(|(object, _)| object.kind.api_version().starts_with("fleetgate.dev/"));
    let mut written = 0;
    for (object, status) in ours {
        let mut applied = json!({
            "apiVersion": object.kind.api_version(),
            "kind": object.kind.as_str(),
            "metadata": {"name": object.name.as_str()},
            "status": manifest::status::to_json(object.kind, status),
        });
        if let Some(namespace) = &object.namespace {
            applied["metadata"]["namespace"] = namespace.as_str().into();
        }
        let apply =
            ["apply", "--server-side", "--subresource=status", "--field-manager=fleetgate", "-o", "json", "-f", "-"];
        let printed = hub.server.kubectl_with_input(&apply, &applied.to_string());
        let printed: Value =
            serde_json::from_str(&printed.unwrap_or_else(|error| panic!("{object}: {error}"))).unwrap();
        assert_eq!(printed["status"], applied["status"], "{object}");
        if object.kind == Kind::Zone && status.refusal().is_none() {
            let number = manifest::hub::number(&printed).unwrap();
            let part = planned.snapshot.zone(&object.name).unwrap();
            assert_eq!((number.serial, number.digest), (part.soa.serial, part.digest), "{object}");
        }
        written += 1;
    }
    assert!(written > 8, "{written} objects of ours are in the examples");
}

fn group_of(kind: Kind) -> &'static str {
    kind.api_version().split('/').next().unwrap()
}

#[test]
fn definitions_are_printed_the_same_each_time() {
    assert_eq!(crds(), crds());
}

/// An API server that knows our kinds, and `DNSEndpoint`.
struct Hub {
    server: ApiServer,
}

impl Hub {
    fn start() -> Option<Self> {
        let server = ApiServer::start(&testbed::kubernetes()?).unwrap();
        // So that a warning, of a format that the server does not know for example, is a failure.
        let strictly = ["apply", "--server-side", "--warnings-as-errors", "-f", "-"];
        server.kubectl_with_input(&strictly, &crds()).unwrap();
        server.kubectl_with_input(&strictly, include_str!("dnsendpoint-crd.yaml")).unwrap();
        let established = ["wait", "--for=condition=Established", "customresourcedefinitions", "--all"];
        server.kubectl(&established).unwrap();
        server.kubectl(&["create", "namespace", "acme"]).unwrap();
        Some(Self { server })
    }

    fn apply(&self, file: &Path, flags: &[&str]) -> Result<String, KubectlError> {
        let file = file.to_string_lossy();
        self.server.kubectl(&[&["apply", "--server-side", "--validate=strict", "-f", &file], flags].concat())
    }

    /// The object as the server has it once it is applied.
    fn read_back(&self, object: &Value) -> Value {
        let apply = ["apply", "--server-side", "--validate=strict", "-o", "json", "-f", "-"];
        let printed = self.server.kubectl_with_input(&apply, &object.to_string()).unwrap();
        serde_json::from_str(&printed).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.server.kubectl(&[args, &["-o", "json"]].concat()).unwrap()).unwrap()
    }
}

fn generations(hub: &Hub) -> Vec<Value> {
    let crds = hub.json(&["get", "customresourcedefinitions"]);
    crds["items"].as_array().unwrap().iter().map(|crd| crd["metadata"]["generation"].clone()).collect()
}

/// Fails on a field that `kubectl explain` would have nothing to say of.
fn undocumented(schema: &Value, path: &str) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        assert!(field["description"].as_str().is_some_and(|text| !text.is_empty()), "{path} has no description");
        undocumented(field, &path);
    }
    if schema["items"].is_object() {
        undocumented(&schema["items"], &format!("{path}[]"));
    }
}

fn crds() -> String {
    let output = fleetgate(&["crds"]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What `fleetgate check` prints.
struct Report {
    text: String,
    /// The codes of refused objects.
    refusals: Vec<String>,
    /// How many mistakes there are in files.
    mistakes: usize,
}

fn check(folder: &Path) -> Report {
    let output = fleetgate(&["check", "--fleet", &folder.to_string_lossy()]);
    let text = String::from_utf8(output.stdout).unwrap();
    // The code of a refusal stands on a line of its own, above its sentence.
    let is_code = |line: &&str| !line.is_empty() && line.chars().all(|c| c.is_ascii_alphanumeric());
    let refusals: Vec<String> = text.lines().filter(is_code).map(str::to_owned).collect();
    let sentences = text.lines().filter(|line| line.starts_with("  x ")).count();
    assert_eq!(output.status.code(), Some(i32::from(sentences > 0)), "{text}");
    let mistakes = sentences.checked_sub(refusals.len()).unwrap_or_else(|| panic!("a code without a sentence: {text}"));
    Report { text, refusals, mistakes }
}

fn fleetgate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fleetgate")).args(args).output().unwrap()
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Every YAML file below a folder.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(manifests(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    sorted(found)
}

fn folders(parent: &Path) -> Vec<String> {
    let entries = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir());
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values
}
