//! The admission webhook: the hub's real API server asks the real controller, on behalf of the real `kubectl`.

#[path = "../attacks/rows.rs"]
mod rows;

use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::{ApiServer, Kubernetes};

use crate::fixture::{Server, ZONE, eventually, field, given_cluster, hub};

const CONFIGURATION: [&str; 2] = ["validatingwebhookconfiguration", "fleetgate"];
const SECRET: [&str; 4] = ["-n", "fleetgate-system", "secret", "fleetgate-admission"];

const GOOD: &str = "{dnsName: www.c1.fleet.example, recordType: A, targets: [198.51.100.7]}";
const ANOTHER: &str = "{dnsName: blog.c1.fleet.example, recordType: A, targets: [198.51.100.7]}";
const NOT_ALLOWED: &str = "{dnsName: a.c1.fleet.example, recordType: A, targets: [203.0.113.66]}";
const NOT_YOURS: &str = "{dnsName: bank.fleet.example, recordType: A, targets: [198.51.100.7]}";

fn records(namespace: &str, name: &str, endpoints: &[&str]) -> String {
    let endpoints = endpoints.join(", ");
    format!(
        "\
apiVersion: externaldns.k8s.io/v1alpha1
kind: DNSEndpoint
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{endpoints: [{endpoints}]}}
"
    )
}

/// A hub with a tenant and a cluster.
struct Fixture {
    hub: ApiServer,
    kubectl: std::path::PathBuf,
}

impl Fixture {
    fn start(kubernetes: &Kubernetes) -> Self {
        let hub = hub(kubernetes);
        hub.kubectl_apply(ZONE).unwrap();
        hub.kubectl_apply(&given_cluster("c1", 7)).unwrap();
        Self { hub, kubectl: kubernetes.kubectl() }
    }

    fn controller(&self) -> Server {
        self.start_role(&["controller"])
    }

    /// One that the API server finds at a port of its own.
    fn start_role(&self, role: &[&str]) -> Server {
        let address = free_address();
        let url = format!("https://{address}");
        let address = address.to_string();
        let arguments = [role, &["--admission", &address, "--admission-url", &url]].concat();
        Server::start_informed(self.hub.kubeconfig_path(), &arguments)
    }

    /// What `kubectl apply` says, warnings included.
    fn apply(&self, manifest: &str) -> Output {
        let file = tempfile::NamedTempFile::new_in(self.hub.work_dir()).unwrap();
        std::fs::write(file.path(), manifest).unwrap();
        let mut kubectl = Command::new(&self.kubectl);
        kubectl
            .arg("--kubeconfig")
            .arg(self.hub.kubeconfig_path())
            .args(["apply", "--server-side", "-f"])
            .arg(file.path());
        kubectl.env("KUBERC", "off").arg("--cache-dir").arg(self.hub.work_dir().join("kubectl-cache"));
        kubectl.output().unwrap()
    }

    #[track_caller]
    fn admitted(&self, manifest: &str) -> String {
        let output = self.apply(manifest);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{manifest}{said}");
        said
    }

    #[track_caller]
    fn denied(&self, manifest: &str) -> String {
        let output = self.apply(manifest);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{manifest}{said}");
        said
    }

    /// Waits until the API server asks `server`, and gets answers.
    fn until_asked(&self, server: &Server) {
        let url = format!("https://{}/admit/", server.address("admission"));
        eventually("the API server is told where to ask", || {
            field(&self.hub, &CONFIGURATION, ".webhooks[0].clientConfig.url").starts_with(&url).then_some(())
        });
        self.until_it_asks("acme", NOT_YOURS);
    }

    /// Each time a new object: one that was taken before anybody was asked is taken again as it is.
    fn until_it_asks(&self, namespace: &str, bad: &str) {
        let mut number = 0;
        eventually("the API server asks", || {
            number += 1;
            let output = self.apply(&records(namespace, &format!("probe-{number}"), &[bad]));
            String::from_utf8_lossy(&output.stderr).contains("NotYours").then_some(())
        });
    }

    fn authorities(&self) -> usize {
        use std::io::Write as _;
        let bundle = field(&self.hub, &CONFIGURATION, ".webhooks[0].clientConfig.caBundle");
        let mut base64 = Command::new("base64")
            .arg("-d")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        base64.stdin.take().unwrap().write_all(bundle.as_bytes()).unwrap();
        let output = base64.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).matches("BEGIN CERTIFICATE").count()
    }

    fn certificate(&self) -> String {
        field(&self.hub, &SECRET, ".data.tls\\.crt")
    }
}

/// Free a moment ago: the URL has to be known before anybody listens.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn tenants_are_told_by_the_api_server_itself() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let fixture = Fixture::start(&kubernetes);
    let hub = &fixture.hub;
    // Written while nobody was asked.
    fixture.admitted(&records("acme", "old", &[NOT_YOURS]));
    let mut controller = fixture.controller();
    fixture.until_asked(&controller);

    // Good.
    assert!(!fixture.admitted(&records("acme", "good", &[GOOD])).contains("Warning"));

    // The only record is bad.
    let said = fixture.denied(&records("acme", "bad", &[NOT_ALLOWED]));
    let expected = "admission webhook \"dnsendpoints.fleetgate.dev\" denied the request: spec.endpoints[0].targets[0]: \
                    TargetNotAllowed: 203.0.113.66 is neither an address of your nodes";
    assert!(said.contains(expected) && said.contains("(Forbidden)"), "{said}");
    assert!(hub.kubectl(&["-n", "acme", "get", "dnsendpoint", "bad"]).is_err());

    // Some of it is: kubectl prints why, and the Verdict says the same.
    let said = fixture.admitted(&records("acme", "mixed", &[ANOTHER, NOT_ALLOWED, NOT_YOURS]));
    for line in
        ["Warning: spec.endpoints[1].targets[0]: TargetNotAllowed: ", "Warning: spec.endpoints[2].dnsName: NotYours: "]
    {
        assert!(said.contains(line), "{said}");
    }
    let verdict = ["-n", "acme", "verdicts.fleetgate.dev", "mixed"];
    eventually("the verdict beside it", || {
        (field(hub, &verdict, ".spec.parts[*].published") == "true false false").then_some(())
    });
    // A wildcard is worth a word.
    let wildcard = "{dnsName: '*.dev.c1.fleet.example', recordType: A, targets: [198.51.100.7]}";
    let said = fixture.admitted(&records("acme", "wild", &[wildcard]));
    assert!(said.contains("Warning: spec.endpoints[0].dnsName: Wildcard: ") && said.contains("ndots:5"), "{said}");

    // What was there before can be labelled, made smaller and deleted, but asks for nothing more.
    hub.kubectl(&["-n", "acme", "label", "dnsendpoint", "old", "a=b"]).unwrap();
    let said = fixture.denied(&records("acme", "old", &[NOT_YOURS, NOT_ALLOWED]));
    assert!(said.contains("NotYours") && said.contains("TargetNotAllowed"), "{said}");
    hub.kubectl(&["-n", "acme", "delete", "dnsendpoint", "old"]).unwrap();

    // Nobody's namespace is nobody's business, and the controller's own is its own.
    fixture.admitted(&records("default", "raw", &[NOT_YOURS]));
    fixture.admitted(&records("fleetgate-publish", "raw", &[NOT_YOURS]));

    let page = include_str!("../../../../docs/metrics.md");
    let metrics = controller.get("/metrics");
    let exposed: Vec<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .filter(|name| name.starts_with("fleetgate_admission_"))
        .collect();
    assert_eq!(exposed.len(), 4, "{exposed:?}");
    for name in exposed {
        assert!(page.contains(&format!("| `{name}` |")), "docs/metrics.md does not have {name}");
    }
    assert!(metrics.contains("fleetgate_admission_registered 1\n"), "{metrics}");

    // What somebody else does to the configuration is undone.
    let patch = r#"[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]"#;
    hub.kubectl(&[&["patch"], &CONFIGURATION[..], &["--type=json", "-p", patch]].concat()).unwrap();
    eventually("the configuration is put right", || {
        (field(hub, &CONFIGURATION, ".webhooks[0].failurePolicy") == "Fail").then_some(())
    });

    // Nobody answers: nothing is written, and everything can still be deleted.
    controller.process.signal("TERM").unwrap();
    controller.process.wait_for_exit(crate::fixture::PATIENCE).unwrap();
    let said = fixture.denied(&records("acme", "late", &[GOOD]));
    assert!(said.contains("failed calling webhook"), "{said}");
    hub.kubectl(&["-n", "acme", "delete", "dnsendpoint", "mixed"]).unwrap();
}

#[test]
fn a_certificate_is_followed_by_another_while_tenants_write() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let fixture = Fixture::start(&kubernetes);
    let controller = fixture.controller();
    fixture.until_asked(&controller);
    let first = fixture.certificate();
    assert_eq!(fixture.authorities(), 1);

    // Whoever deletes the Secret gets another certificate; every single write on the way is answered.
    fixture.hub.kubectl(&[&["delete"], &SECRET[..]].concat()).unwrap();
    let mut writes = 0;
    let mut answered = |until: &dyn Fn() -> bool| {
        eventually("the next step of the rotation", || {
            writes += 1;
            let said = fixture.denied(&records("acme", "bad", &[NOT_YOURS]));
            assert!(said.contains("NotYours"), "after {writes} writes: {said}\n{}", controller.process.log_tail());
            until().then_some(())
        });
    };
    answered(&|| fixture.authorities() == 2);
    assert_eq!(fixture.certificate(), first, "it is served on until the new one is trusted");
    answered(&|| ![first.as_str(), ""].contains(&fixture.certificate().as_str()));
    answered(&|| controller.get("/metrics").contains("fleetgate_admission_certificates_total 2\n"));
    answered(&|| fixture.authorities() == 1);
    assert!(writes >= 4);

    // A Secret that somebody spoilt is made anew.
    let patch = r#"{"data": {"tls.key": "eA=="}}"#;
    fixture.hub.kubectl(&[&["patch"], &SECRET[..], &["--type=merge", "-p", patch]].concat()).unwrap();
    eventually("another certificate", || {
        (controller.get("/metrics").contains("fleetgate_admission_certificates_total 3\n")).then_some(())
    });
    eventually("the API server takes it", || {
        let said = String::from_utf8_lossy(&fixture.apply(&records("acme", "bad", &[NOT_YOURS])).stderr).into_owned();
        said.contains("NotYours").then_some(())
    });
}

#[test]
fn two_controllers_share_a_certificate_and_one_follows_the_other() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let fixture = Fixture::start(&kubernetes);
    // At once: both find nothing there.
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| fixture.start_role(&["serve", "--hub"]));
        (fixture.controller(), second.join().unwrap())
    });
    let leads = |server: &Server| server.process.log().contains("\"leading: writes");
    eventually("one of them leads", || (leads(&first) || leads(&second)).then_some(()));
    let (mut leader, other) = if leads(&first) { (first, second) } else { (second, first) };
    fixture.until_asked(&leader);
    let certificate = fixture.certificate();
    eventually("the other one has the certificate too", || {
        other.get("/metrics").contains("fleetgate_admission_certificates_total 1\n").then_some(())
    });
    assert!(other.get("/metrics").contains("fleetgate_admission_registered 0\n"));

    leader.process.signal("KILL").unwrap();
    fixture.until_asked(&other);
    assert_eq!(fixture.certificate(), certificate);
    fixture.admitted(&records("acme", "good", &[GOOD]));
}

/// Whoever else reaches the port learns nothing and spends nothing of a tenant's.
#[test]
fn strangers_are_told_nothing() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let fixture = Fixture::start(&kubernetes);
    let controller = fixture.controller();
    fixture.until_asked(&controller);
    let address = controller.address("admission");
    let token = field(&fixture.hub, &CONFIGURATION, ".webhooks[0].clientConfig.url");
    let post = |path: &str, body: &str| {
        let url = if path.starts_with("https:") { path.to_owned() } else { format!("https://{address}{path}") };
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--insecure",
            "--max-time",
            "30",
            "--write-out",
            " %{http_code}",
            "--data-binary",
            "@-",
            &url,
        ]);
        let file = tempfile::NamedTempFile::new_in(fixture.hub.work_dir()).unwrap();
        std::fs::write(file.path(), body).unwrap();
        curl.stdin(std::fs::File::open(file.path()).unwrap());
        String::from_utf8_lossy(&curl.output().unwrap().stdout).into_owned()
    };
    let review = serde_json::json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u1", "operation": "CREATE", "namespace": "acme",
            "resource": {"group": "externaldns.k8s.io", "version": "v1alpha1", "resource": "dnsendpoints"},
            "object": {"metadata": {}, "spec": {"endpoints": []}},
        },
    });
    let large = " ".repeat(5 * 1024 * 1024);
    for (path, body, answer) in [
        ("/", "{}", "nothing else\n 404"),
        ("/admit/", &review.to_string(), "nothing else\n 404"),
        ("/admit/00000000000000000000000000000000", &review.to_string(), "nothing else\n 404"),
        (&*token, "what?", "400"),
        (&*token, "{\"kind\": \"Pod\"}", "400"),
        (&*token, &large, "413"),
    ] {
        let said = post(path, body);
        assert!(said.ends_with(answer), "{path}: {said}");
    }
    let said = post(&token, &review.to_string());
    let (answer, status) = said.rsplit_once(' ').unwrap();
    assert_eq!(status, "200", "{said}");
    assert_eq!(serde_json::from_str::<Value>(answer).unwrap()["response"]["allowed"], true);

    // The API server itself in haste, on behalf of one tenant: it is told when to come again, and kubectl does.
    let hasty = post(&format!("{token}?[1-3000]"), &review.to_string());
    let allowed = hasty.matches("\"allowed\":true").count();
    assert!((1000..3000).contains(&allowed), "{allowed} were let through");
    assert!(hasty.contains("\"code\":429") && hasty.contains("TooFast: ") && hasty.contains("\"retryAfterSeconds\":1"));
    fixture.admitted(&records("acme", "patient", &[GOOD]));

    // A configuration that goes with a release must not come back at once; one that was merely deleted comes back.
    fixture.hub.kubectl(&[&["delete"], &CONFIGURATION[..]].concat()).unwrap();
    let begun = Instant::now();
    fixture.until_asked(&controller);
    assert!(begun.elapsed() > Duration::from_secs(20), "after {:?}", begun.elapsed());
}

/// The rows of `tests/standalone/attacks.rs`, each as an object of its own: one that has nothing good is denied, with its code.
#[test]
fn no_attack_gets_past_the_api_server() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    for namespace in ["evil", "quarry"] {
        hub.kubectl(&["create", "namespace", namespace]).unwrap();
    }
    hub.kubectl_apply(rows::GROUND).unwrap();
    for (name, tenant, node) in [("c1", "evil", 11), ("c2", "quarry", 12)] {
        let cluster = given_cluster(name, node).replace("tenant: acme", &format!("tenant: {tenant}"));
        hub.kubectl_apply(&cluster).unwrap();
    }
    let fixture = Fixture { hub, kubectl: kubernetes.kubectl() };
    let controller = fixture.controller();
    fixture.until_it_asks("evil", "{dnsName: www.prey.test, recordType: A, targets: [198.51.100.11]}");
    eventually("the quarry has its name", || {
        let told = field(&fixture.hub, &["-n", "quarry", "verdict", "quarry-object"], ".spec.published");
        (told == "2").then_some(())
    });

    println!("{:>2} {:<38} hub", "", "attack");
    for (number, row) in rows::rows().iter().enumerate() {
        let object = serde_json::json!({
            "apiVersion": "externaldns.k8s.io/v1alpha1",
            "kind": "DNSEndpoint",
            "metadata": { "name": format!("row-{number}"), "namespace": "evil" },
            "spec": { "endpoints": [row.endpoint] },
        });
        let output = fixture.apply(&object.to_string());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("{:>2} {:<38} {}", row.group, row.what, if output.status.success() { "admitted" } else { row.told });
        assert_eq!(output.status.success(), row.told == rows::PUBLISHED, "{} {}: {said}", row.group, row.what);
        assert!(output.status.success() || said.contains(row.told), "{} {}: {said}", row.group, row.what);
        assert!(!said.contains("quarry") || row.endpoint.to_string().contains("quarry"), "19 {}: {said}", row.what);
    }
    drop(controller);
}
