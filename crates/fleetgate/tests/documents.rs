//! What the documents say is so.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use testbed::Process;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

/// What stands between backticks, outside of blocks of code.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

#[test]
fn every_path_in_the_documents_exists() {
    let mut seen = 0;
    for file in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"] {
        let text = document(file);
        let linked = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let linked = linked.filter(|target| !target.contains("://"));
        let paths = quoted(&text).filter(|word| {
            ["crates/", "testbed", "bench", "docs/", "examples", ".ci/"].iter().any(|start| word.starts_with(start))
        });
        for path in paths.chain(linked) {
            assert!(root().join(path).exists(), "{file} names {path}, which does not exist");
            seen += 1;
        }
    }
    assert!(seen > 30, "the documents name files; found {seen}");
}

/// Pages of `docs/` lead to each other, and to the files they speak of.
#[test]
fn every_link_and_path_in_docs_exists() {
    let mut seen = 0;
    let is_page = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md");
    for page in files_below(&root().join("docs")).into_iter().filter(is_page) {
        let text = fs::read_to_string(&page).unwrap();
        let linked = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let linked = linked.filter(|target| !target.contains("://"));
        let linked = linked.map(|target| page.parent().unwrap().join(target.split('#').next().unwrap()));
        let named = quoted(&text).filter(|word| ["crates/", "deploy/", "docs/"].iter().any(|at| word.starts_with(at)));
        for path in linked.chain(named.map(|path| root().join(path))) {
            assert!(path.exists(), "{} names {}, which does not exist", page.display(), path.display());
            seen += 1;
        }
    }
    assert!(seen > 5, "found {seen}");
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// The reference is made from the kinds and the command line, and kept with them.
#[test]
fn the_reference_is_that_of_the_sources() {
    let written = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fleetgate"));
    command.args(["reference", "--out"]).arg(written.path()).arg("--examples").arg(root().join("examples"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let pages = |folder: &Path| -> BTreeMap<PathBuf, String> {
        let named = |path: PathBuf| (path.strip_prefix(folder).unwrap().into(), fs::read_to_string(&path).unwrap());
        files_below(folder).into_iter().map(named).collect()
    };
    let (wanted, kept) = (pages(written.path()), pages(&root().join("docs/reference")));
    assert_eq!(kept.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "run `make reference`");
    for (page, text) in &wanted {
        assert!(kept[page] == *text, "docs/reference/{} is another: run `make reference`", page.display());
    }
    // Those of Ingresses stand in their own verdicts.
    let source = document("crates/model/src/snapshot.rs");
    let constants = source.split("\nimpl Condition {\n").nth(1).unwrap().split("\n}\n").next().unwrap();
    let types = constants.lines().filter_map(|line| line.split_once("&'static str = \"")?.1.strip_suffix("\";"));
    let types: Vec<&str> = types.filter(|name| *name != "Placed").collect();
    assert!(types.len() > 8, "{types:?}");
    for name in types {
        let told = format!("| `{name}` | ");
        assert!(
            wanted.values().any(|page| page.contains(&told)),
            "crates/manifest/src/reference.rs does not tell of {name}"
        );
    }
    let command_line = &wanted[Path::new("command-line.md")];
    for part in
        ["## fleetgate serve\n", "## fleetgate agent node-proxy\n", "`--trusted-proxies CIDR,...`", "`FLEETGATE_ADMIN`"]
    {
        assert!(command_line.contains(part), "{part}");
    }
    assert!(!command_line.contains("fleetgate reference\n"), "what is hidden is not told");
}

/// Dependencies as ARCHITECTURE.md draws them: none of these sees another.
#[test]
fn crates_depend_only_where_the_architecture_says_so() {
    let allowed: [(&str, &[&str]); 8] = [
        ("model", &[]),
        ("manifest", &["model"]),
        ("dns", &["model"]),
        ("gateway", &["model"]),
        ("web", &["model"]),
        ("tunnel", &["model"]),
        ("store", &["manifest", "model"]),
        ("api", &["dns", "gateway", "manifest", "model", "store", "tunnel", "web"]),
    ];
    let ours: BTreeSet<&str> = allowed.iter().map(|(name, _)| *name).chain(["fleetgate"]).collect();
    for (name, allowed) in allowed {
        let manifest = document(&format!("crates/{name}/Cargo.toml"));
        let normal = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        let names = normal.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        let found: Vec<&str> = names.filter(|dependency| ours.contains(dependency)).collect();
        assert_eq!(found, allowed, "what crates/{name} depends on");
    }
    let model = document("crates/model/Cargo.toml");
    for banned in ["tokio", "tracing", "kube", "serde"] {
        assert!(!model.contains(banned), "model is pure and does not depend on {banned}");
    }
}

#[test]
fn every_refusal_code_is_documented() {
    let text = document("docs/refusals.md");
    let documented: BTreeSet<&str> = quoted(&text).collect();
    for (source, function) in [
        ("crates/model/src/refusal.rs", "fn code("),
        ("crates/model/src/inside.rs", "fn code("),
        ("crates/gateway/src/refusal.rs", "fn code("),
        ("crates/web/src/refusal.rs", "fn code("),
        ("crates/egress/src/refusal.rs", "fn label("),
        ("crates/tunnel/src/refused.rs", "fn code("),
    ] {
        let code = document(source);
        let body = code.split(function).nth(1).unwrap();
        let body = body.split("\n    }\n").next().unwrap();
        let codes: Vec<&str> = body.split('"').skip(1).step_by(2).collect();
        assert!(codes.len() > 5, "{source}: {codes:?}");
        for code in codes {
            assert!(documented.contains(code), "docs/refusals.md does not explain {code} of {source}");
        }
    }
}

/// An entry whose only member is not there.
const LOST_ENTRY: &str = "\
{apiVersion: fleetgate.dev/v1alpha1, kind: Tenant, metadata: {name: acme}, spec: {domains: [shop.test]}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec: {domain: fleet.example, nameservers: [{name: ns1.fleet.example, addresses: [192.0.2.53]}], gateway: {addresses: [192.0.2.10]}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: c1}
spec: {tenant: acme, zone: main, controlPlane: {kubeApiserver: {addresses: ['127.0.0.1:1']}}, ingress: {http: ['127.0.0.1:1']}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {name: eager}
spec: {upstreamTLS: {plainText: true}, health: {interval: 1s, unhealthy: 1}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: eager}
spec: {controller: fleetgate.dev/ingress, parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: eager}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: acme}
spec:
  ingressClassName: eager
  rules: [{host: www.shop.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
";

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("fleet.yaml"), LOST_ENTRY).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fleetgate"));
    command.args(["serve", "--log-format", "json", "--fleet"]).arg(folder.path());
    for door in ["--dns", "--apiserver", "--sni", "--http", "--agents", "--admin"] {
        command.args([door, "127.0.0.1:0"]);
    }
    let mut server = Process::start(&command).unwrap();
    let line = server.wait_for_line("\"message\":\"ready\"", Duration::from_mins(1)).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = |field: &str| ready[field].as_str().unwrap();

    // A family has no line before something was counted: a query, a message that deserves no answer, a connection, a request,
    // and a member that is out, which is found out within a second.
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let query = b"\0\x01\0\0\0\x01\0\0\0\0\0\0\x04test\0\0\x01\0\x01";
    for message in [query.as_slice(), b"short"] {
        client.send_to(message, address("dns")).unwrap();
    }
    drop(TcpStream::connect(address("apiserver")).unwrap());
    assert!(http_get(address("http"), "/").starts_with("HTTP/1.1 404"));

    let text = document("docs/metrics.md");
    // Those of a controller are held to this page by the tests of the hub.
    let (everywhere, _) = text.split_once("A controller on a hub").unwrap();
    let documented: BTreeSet<&str> =
        everywhere.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let metrics = http_get(address("admin"), "/metrics");
        let exposed: BTreeSet<&str> =
            metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        if exposed == documented {
            break;
        }
        assert!(Instant::now() < deadline, "/metrics has {exposed:?}, docs/metrics.md has {documented:?}");
    }
}

/// The page says of every label what it can be, and why there are not more of them; and every metric has a type and a meaning.
#[test]
fn every_label_is_bounded() {
    let page = document("docs/metrics.md");
    let (metrics, labels) = page.split_once("\n## Labels\n").unwrap();
    let is_row = |line: &&str| line.starts_with("| `");
    let explained: BTreeSet<&str> = labels.lines().filter(is_row).filter_map(|row| row.split('`').nth(1)).collect();
    let mut used = BTreeSet::new();
    for row in metrics.lines().filter(is_row) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else { panic!("four cells: {row}") };
        assert!(["counter", "gauge", "histogram"].contains(&kind) && meaning.len() > 10, "{name}: {row}");
        used.extend(labels.split('`').skip(1).step_by(2));
    }
    assert_eq!(used, explained);
}

/// Rules for Prometheus and the dashboard for Grafana ask for metrics that there are, by labels that these have, and each rule has its section.
#[test]
fn alerts_and_the_dashboard_ask_for_metrics_that_exist() {
    let page = document("docs/metrics.md");
    let known: BTreeMap<&str, BTreeSet<&str>> = page
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `fleetgate_").map(|_| line.split(" | "))?;
            let name = cells.next()?.trim_matches(['|', ' ', '`']);
            let labels = cells.nth(1)?.split('`').skip(1).step_by(2).collect();
            Some((name, labels))
        })
        .collect();
    // Whoever scrapes adds these, and buckets have their bound.
    let added = ["instance", "job", "le"];
    let asked = |expression: &str| {
        let mut seen = 0;
        for (at, _) in expression.match_indices("fleetgate_") {
            let name: String =
                expression[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let base = ["_total", "_bucket"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
            let labels = known.get(base).unwrap_or_else(|| panic!("{expression}: docs/metrics.md has no {base}"));
            let rest = &expression[at + name.len()..];
            let matched = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
            for label in matched.split(',').filter_map(|pair| pair.split(['=', '!']).next()).filter(|l| !l.is_empty()) {
                assert!(labels.contains(label) || added.contains(&label), "{expression}: {base} has no {label}");
            }
            seen += 1;
        }
        seen
    };

    let rules: serde_json::Value = serde_saphyr::from_str(&document("deploy/monitoring/alerts.yaml")).unwrap();
    let playbooks = document("docs/operations.md");
    let rules: Vec<&serde_json::Value> =
        rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    for rule in &rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(playbooks.contains(&format!("\n### {name}\n")), "docs/operations.md has no section for {name}");
        assert!(asked(rule["expr"].as_str().unwrap()) > 0 || name == "FleetgateDown", "{name}");
        assert!(matches!(rule["labels"]["severity"].as_str(), Some("page" | "ticket")), "{name}");
    }
    let sections = playbooks.lines().filter(|line| line.starts_with("### Fleetgate")).count();
    assert_eq!(sections, rules.len(), "each section is of a rule");

    let dashboard: serde_json::Value = serde_json::from_str(&document("deploy/monitoring/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
    let mut shown = 0;
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            assert!(asked(target["expr"].as_str().unwrap()) > 0, "{}", panel["title"]);
            shown += 1;
        }
    }
    assert!(shown > 20, "{shown}");
}

/// Prometheus itself reads the rules, and each alert that pages fires where it should and nowhere else.
#[test]
fn rules_do_what_they_say() {
    let Some(promtool) = testbed::promtool() else { return };
    let folder = root().join("deploy/monitoring");
    for arguments in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts-test.yaml"]] {
        let output = std::process::Command::new(&promtool).args(arguments).current_dir(&folder).output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success(), "promtool {arguments:?}: {said}");
    }
    let rules: serde_json::Value = serde_saphyr::from_str(&document("deploy/monitoring/alerts.yaml")).unwrap();
    let tested = document("deploy/monitoring/alerts-test.yaml");
    for rule in rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        let name = rule["alert"].as_str().unwrap();
        let fires = tested.contains(&format!("alertname: {name}\n    exp_alerts:\n    - exp_labels"));
        let rests = tested.contains(&format!("alertname: {name}, exp_alerts: []"));
        assert!(rule["labels"]["severity"] != "page" || fires && rests, "alerts-test.yaml does not test {name}");
    }
}

/// The page of the interface is the one that the binary serves.
#[test]
fn the_description_of_the_interface_is_the_committed_one() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_fleetgate")).arg("openapi").output().unwrap();
    let now = String::from_utf8(output.stdout).unwrap();
    assert!(document("docs/openapi.json") == now, "run: fleetgate openapi >docs/openapi.json");
}

fn http_get(address: &str, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The manifests of the README are taken as they stand there.
#[test]
fn the_readme_s_fleet_is_in_order() {
    let text = document("README.md");
    let manifests = text.split("```yaml file: fleet/fleet.yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("fleet.yaml"), manifests).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_fleetgate"))
        .args(["check", "--fleet"])
        .arg(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "1 clusters, 1 tenants, 1 zones: all in order\n");
}
