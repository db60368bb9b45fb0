//! Lines for machines: each is what docs/logs.md says.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;

use serde_json::Value;

use crate::agents::{credential, issue, secret};
use crate::brake;
use crate::server::{Fleet, PATIENCE, Server, cluster, connect, fleetgate, nowhere};

/// Beside them stand the fields of an event, none of which may be called so.
const EVERY_LINE: [&str; 4] = ["timestamp", "level", "target", "message"];

const WEB: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {name: plain}
spec: {upstreamTLS: {plainText: true}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: plain}
spec: {controller: fleetgate.dev/ingress, parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: plain}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: acme}
spec:
  ingressClassName: plain
  rules: [{host: shop.c1.fleet.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
";

/// Rows of the table below a heading: level or event, then the fields, by message or event.
struct Documented(BTreeMap<String, Vec<String>>);

impl Documented {
    /// The events of docs/logs.md with their fields; those of `audit` by their `event`.
    fn read() -> Self {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/logs.md");
        let page = std::fs::read_to_string(page).unwrap();
        let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let mut events = BTreeMap::new();
        for (heading, name, fields) in [("\n## What to look for\n", 1, 2), ("\n## Audit\n", 0, 2)] {
            let section = page.split(heading).nth(1).unwrap().split("\n## ").next().unwrap();
            for row in section.lines().filter(|line| line.starts_with("| `")) {
                let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
                for name in quoted(cells[name]) {
                    events.insert(name, quoted(cells[fields]));
                }
            }
        }
        assert!(events.len() > 20, "{events:?}");
        Self(events)
    }

    /// Whether a line has the fields of the event, but for those that may be absent.
    fn check(&self, event: &str, line: &Value, absent: &[&str]) {
        let fields = self.0.get(event).unwrap_or_else(|| panic!("docs/logs.md does not list {event}: {line}"));
        for field in fields.iter().filter(|field| !absent.contains(&field.as_str())) {
            assert!(!line[field].is_null(), "{event} has no {field}: {line}");
        }
        let known = |field: &String| EVERY_LINE.contains(&field.as_str()) || field == "event" || fields.contains(field);
        let unknown: Vec<&String> = line.as_object().unwrap().keys().filter(|field| !known(field)).collect();
        assert!(unknown.is_empty(), "docs/logs.md does not list {unknown:?} of {event}: {line}");
    }
}

fn lines(server: &Server) -> Vec<Value> {
    let log = server.process.log();
    // The last one may still be written.
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let parsed = whole.lines().map(|line| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in EVERY_LINE {
            assert!(value[field].is_string(), "no {field}: {line}");
            assert_eq!(line.matches(&format!("\"{field}\":")).count(), 1, "{field} twice: {line}");
        }
        value
    });
    parsed.collect()
}

/// Waits for a line, and returns the first such one.
fn line(server: &mut Server, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    server.until(what, |server| lines(server).iter().any(&is_it));
    lines(server).into_iter().find(is_it).unwrap()
}

#[test]
fn every_line_is_an_object_and_events_have_their_fields() {
    let documented = Documented::read();
    let fleet = Fleet::new(&[
        ("base.yaml", &brake::base()),
        ("c1.yaml", &cluster("c1", nowhere(), 11)),
        ("web0.yaml", &brake::records(0)),
        ("web1.yaml", &brake::records(1)),
        ("shop.yaml", WEB),
    ]);
    secret(&fleet);
    let any = "127.0.0.1:0".parse().unwrap();
    let mut command = fleet.command(any, any);
    command.args(["--agents", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log", "info,gateway=debug"]);
    let mut server = Server::start(command.arg("--admin-credential").arg(fleet.root().join("admin")));
    let message = |text: &'static str| move |line: &Value| line["message"] == text;
    let event = |name: &'static str| move |line: &Value| line["target"] == "audit" && line["event"] == name;

    let ready = line(&mut server, "ready", message("ready"));
    documented.check("ready", &ready, &["https", "egress", "metrics"]);
    documented.check("published", &line(&mut server, "published", message("published")), &[]);

    // A refused object.
    fleet.write("late.yaml", &cluster("late", nowhere(), 13).replace("zone: main", "zone: main\n  clusterID: c1"));
    let refused = line(&mut server, "a refused object", |line| line["object"] == "Cluster late");
    documented.check("refused", &refused, &[]);
    assert_eq!((&refused["level"], &refused["code"]), (&"WARN".into(), &"ClusterIdTaken".into()), "{refused}");

    // A broken file, and a mended one.
    fleet.write("late.yaml", "kind: Cluster\napiVersion: nonsense\n");
    let broken = line(&mut server, "a broken file", |line| line["file"] == "late.yaml" && line["level"] == "ERROR");
    assert!(broken["line"].is_u64() && broken["column"].is_u64(), "{broken}");
    fleet.write("late.yaml", &cluster("late", nowhere(), 13));
    let mended = "the file is in order again";
    documented.check(mended, &line(&mut server, "a mended file", message(mended)), &[]);

    // A connection that no cluster has a place for.
    drop(server.by_id("nobody"));
    let refused = line(&mut server, "a refused connection", message("connection refused"));
    documented.check("connection refused", &refused, &[]);
    assert_eq!(refused["door"], "apiserver", "{refused}");

    // A request.
    let mut stream = connect(server.http.unwrap());
    write!(stream, "GET /cart?secret HTTP/1.1\r\nhost: nobody.example\r\nconnection: close\r\n\r\n").unwrap();
    let access = line(&mut server, "a request", |line| line["target"] == "access");
    assert_eq!((&access["message"], &access["path"]), (&"request".into(), &"/cart".into()), "{access}");
    assert_eq!((&access["status"], &access["host"]), (&404.into(), &"nobody.example".into()), "{access}");
    assert!(access["refusal"].is_string() && access["member"].is_null() && access["micros"].is_u64(), "{access}");

    // What is done with the admin credential.
    let issued = issue(&fleet, &server, "c1", &[]);
    documented.check("credential-issued", &line(&mut server, "issued", event("credential-issued")), &[]);
    assert!(credential(&fleet, &server, &["revoke", issued.id()]).status.success());
    let revoked = line(&mut server, "revoked", event("credential-revoked"));
    documented.check("credential-revoked", &revoked, &[]);
    assert_eq!(revoked["credential"], issued.id(), "{revoked}");
    brake::delete(&fleet);
    let held = line(&mut server, "names are held", |line| line["object"] == "Tenant acme" && line["level"] == "WARN");
    assert!(held["message"].as_str().unwrap().contains("fleetgate release tenant acme"), "{held}");
    // Both objects are gone, be it one after the other.
    server.until("all are held", |server| brake::is_held(server, 30));
    let mut release = fleetgate();
    release.args(["release", "tenant", "acme", "--admin", &server.admin.to_string(), "--admin-credential"]);
    assert!(release.arg(fleet.root().join("admin")).output().unwrap().status.success());
    let released = line(&mut server, "released", event("release"));
    documented.check("release", &released, &[]);
    assert_eq!((&released["object"], &released["names"]), (&"Tenant acme".into(), &30.into()), "{released}");
    let over = "nothing of it is held any more";
    documented.check(over, &line(&mut server, over, message(over)), &[]);
    for (undo, name, absent) in [(None, "drain", [].as_slice()), (Some("--undo"), "undrain", &["since"])] {
        let mut drain = fleetgate();
        drain.args(["drain", "c1", "--admin", &server.admin.to_string()]).args(undo).arg("--admin-credential");
        assert!(drain.arg(fleet.root().join("admin")).output().unwrap().status.success());
        documented.check(name, &line(&mut server, name, event(name)), absent);
    }
    let credential = std::fs::read_to_string(fleet.root().join("admin")).unwrap();
    for (typed, name) in [("not-this-one", "login-refused"), (credential.trim(), "login")] {
        let (admin, body) = (server.admin, format!("credential={typed}"));
        let request =
            format!("POST /login HTTP/1.1\r\nhost: {admin}\r\norigin: http://{admin}\r\nconnection: close\r\n");
        let form = "content-type: application/x-www-form-urlencoded\r\n";
        let mut stream = connect(admin);
        write!(stream, "{request}{form}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        // Whoever hangs up at once need not be heard.
        stream.read_to_end(&mut Vec::new()).unwrap();
        documented.check(name, &line(&mut server, name, event(name)), &[]);
    }

    server.process.signal("TERM").unwrap();
    assert!(server.process.wait_for_exit(PATIENCE).unwrap().success());
    let all = lines(&server);
    assert!(all.iter().any(|line| line["message"].as_str().unwrap().ends_with(": draining")));
    assert_eq!(all.last().unwrap()["message"], "stopped");
    // And no secret.
    let log = server.process.log();
    assert!(!log.contains(issued.token.rsplit('.').next().unwrap()) && !log.contains("admin-credential-of"), "{log}");
}
