//! Names that would go in a mass stay until somebody lets them go, also past kill -9; and names that were given up rest.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::Output;

use serde_json::Value;

use crate::server::{BASE, Fleet, Server, cluster, connect, fleetgate, nowhere};

const NAMES: usize = 30;

pub(crate) fn base() -> String {
    BASE.replacen("gateway:", "withdrawal: {grace: 1s, maxShare: 0.3}\n  gateway:", 1)
}

/// Half of the names each: more than may go at once.
pub(crate) fn records(half: usize) -> String {
    let endpoint =
        |number: usize| format!("  - {{dnsName: n{number}.c1.fleet.example, recordType: TXT, targets: [here]}}\n");
    let numbers = half * NAMES / 2..(half + 1) * NAMES / 2;
    let head = "apiVersion: externaldns.k8s.io/v1alpha1\nkind: DNSEndpoint\n";
    let endpoints: String = numbers.map(endpoint).collect();
    format!("{head}metadata: {{name: web{half}, namespace: acme}}\nspec:\n  endpoints:\n{endpoints}")
}

fn fleet() -> Fleet {
    let fleet = Fleet::new(&[
        ("base.yaml", &base()),
        ("c1.yaml", &cluster("c1", nowhere(), 11)),
        ("web0.yaml", &records(0)),
        ("web1.yaml", &records(1)),
    ]);
    fs::write(fleet.root().join("admin"), "an-admin-credential-of-some-length").unwrap();
    fleet
}

fn serve(fleet: &Fleet) -> Server {
    let any = "127.0.0.1:0".parse().unwrap();
    let mut command = fleet.command(any, any);
    command.arg("--admin-credential").arg(fleet.root().join("admin"));
    Server::start(&command)
}

/// How many names have their record. The others have none, and are told of where a test fails.
fn served(server: &Server) -> usize {
    let is_served = |number: &usize| {
        let name = format!("n{number}.c1.fleet.example");
        match server.dig(&["+noall", "+comments", "+answer", &name, "TXT"]) {
            answer if answer.contains("\t\"here\"\n") => true,
            answer => {
                println!("{name} has no record: {answer}");
                false
            }
        }
    };
    (0..NAMES).filter(is_served).count()
}

pub(crate) fn delete(fleet: &Fleet) {
    for file in ["web0.yaml", "web1.yaml"] {
        fs::remove_file(fleet.folder().join(file)).unwrap();
    }
}

/// What `get tenants` says of acme.
fn remarks(server: &Server) -> String {
    String::from_utf8(server.get(&["tenants"]).stdout).unwrap()
}

pub(crate) fn is_held(server: &Server, records: usize) -> bool {
    remarks(server).contains(&format!("{records} records of acme would go at once"))
}

fn metric(server: &Server) -> String {
    let (_, metrics) = server.http("/metrics", "localhost");
    let line = metrics.lines().find(|line| line.starts_with("fleetgate_withdrawals_held ")).unwrap();
    line.split(' ').nth(1).unwrap().to_owned()
}

fn release(fleet: &Fleet, server: &Server, what: &[&str], with_credential: bool) -> Output {
    let mut command = fleetgate();
    command.arg("release").args(what).args(["--admin", &server.admin.to_string()]);
    if with_credential {
        command.arg("--admin-credential").arg(fleet.root().join("admin"));
    }
    command.output().unwrap()
}

fn killed(mut server: Server) {
    server.process.signal("KILL").unwrap();
}

#[test]
fn names_that_go_in_a_mass_are_held_past_kill_9_until_they_are_released() {
    let fleet = fleet();
    let mut server = serve(&fleet);
    assert_eq!((served(&server), metric(&server).as_str()), (NAMES, "0"));
    let nothing = release(&fleet, &server, &["tenant", "acme"], true);
    assert!(nothing.status.success(), "{nothing:?}");
    assert_eq!(String::from_utf8_lossy(&nothing.stdout), "nothing of Tenant acme is held\n");

    delete(&fleet);
    server.until("they are held", |server| is_held(server, NAMES));
    server.process.wait_for_line("`fleetgate release tenant acme` lets them go", crate::server::PATIENCE).unwrap();
    assert_eq!((served(&server), metric(&server).as_str()), (NAMES, "30"));
    killed(server);
    for _ in 0..2 {
        let server = serve(&fleet);
        assert_eq!(served(&server), NAMES);
        assert!(is_held(&server, NAMES), "{}", remarks(&server));
        killed(server);
    }

    let mut server = serve(&fleet);
    let refused = release(&fleet, &server, &["tenant", "acme"], false);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("admin credential"), "{refused:?}");
    let mut stream = connect(server.admin);
    write!(stream, "POST /v1/release/tenants/acme HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("NoCredential"), "{answer}");
    for (what, why) in [(["tenant", "nobody"], "no Tenant is called nobody"), (["zone", "nowhere"], "no Zone")] {
        let refused = release(&fleet, &server, &what, true);
        assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains(why), "{refused:?}");
    }
    assert_eq!(served(&server), NAMES);

    let released = release(&fleet, &server, &["tenant", "acme"], true);
    assert!(released.status.success(), "{released:?}");
    assert_eq!(String::from_utf8_lossy(&released.stdout), "30 names of Tenant acme are let go\n");
    server.until("they are gone", |server| served(server) == 0);
    assert!(!remarks(&server).contains("held"), "{}", remarks(&server));
    assert_eq!(metric(&server), "0");
    killed(server);
    let server = serve(&fleet);
    assert_eq!(served(&server), 0);
    server.terminate();
}

#[test]
fn names_that_come_back_need_no_release() {
    let fleet = fleet();
    let server = serve(&fleet);
    assert_eq!(served(&server), NAMES);
    server.terminate();
    // While nobody looked.
    delete(&fleet);
    let mut server = serve(&fleet);
    server.until("they are held", |server| is_held(server, NAMES));
    assert_eq!(served(&server), NAMES);
    fleet.write("web0.yaml", &records(0));
    server.until("half of them are back", |server| is_held(server, NAMES / 2));
    fleet.write("web1.yaml", &records(1));
    server.until("nothing is held", |server| !remarks(server).contains("at once"));
    assert_eq!(served(&server), NAMES);
    // A few go as ever.
    let fewer = records(1).lines().filter(|line| !line.contains("n29.")).collect::<Vec<_>>().join("\n");
    fleet.write("web1.yaml", &fewer);
    server.until("one is gone", |server| served(server) == NAMES - 1);
    server.terminate();
}

#[test]
fn wildcards_of_many_clusters_are_held_until_their_zone_is_released() {
    let fleet = Fleet::new(&[("base.yaml", &base())]);
    fs::write(fleet.root().join("admin"), "an-admin-credential-of-some-length").unwrap();
    let clusters = |ready: bool| {
        let one = |number: u8| {
            let text = cluster(&format!("d{number}"), nowhere(), number);
            if ready { text } else { text.replace(&format!("100.{number}]"), &format!("100.{number}], ready: false")) }
        };
        (1..=10).map(one).collect::<Vec<_>>().join("---\n")
    };
    fleet.write("clusters.yaml", &clusters(true));
    let lit = |server: &Server| {
        (1..=10).filter(|number| !server.resolve(&format!("a.d{number}.fleet.example"), "A").is_empty()).count()
    };
    let held = |server: &Server| {
        let is_held = |cluster: &Value| cluster["status"]["conditions"].to_string().contains("\"Held\"");
        server.get_json(&["clusters"])["items"].as_array().unwrap().iter().filter(|item| is_held(item)).count()
    };
    let mut server = serve(&fleet);
    assert_eq!(lit(&server), 10);
    fleet.write("clusters.yaml", &clusters(false));
    server.until("all are held", |server| held(server) == 10);
    assert_eq!((lit(&server), metric(&server).as_str()), (10, "10"));
    killed(server);
    let mut server = serve(&fleet);
    server.until("all are held still", |server| held(server) == 10);
    assert_eq!(lit(&server), 10);
    let released = release(&fleet, &server, &["zone", "main"], true);
    assert_eq!(String::from_utf8_lossy(&released.stdout), "10 names of Zone main are let go\n", "{released:?}");
    server.until("they are gone", |server| lit(server) == 0);
    server.terminate();
}

#[test]
fn a_name_that_was_given_up_rests_past_a_restart() {
    let zone = "---\napiVersion: fleetgate.dev/v1alpha1\nkind: Zone\nmetadata: {name: shared}\nspec:\n  domain: shared.test\n  ttl: 3600\n  nameservers: [{name: ns1.fleet.example}]\n";
    let tenant = |name: &str| {
        let head = "---\napiVersion: fleetgate.dev/v1alpha1\nkind: Tenant\n";
        format!("{head}metadata: {{name: {name}}}\nspec: {{domains: [shared.test]}}\n")
    };
    let claim = |namespace: &str| {
        let head = "apiVersion: externaldns.k8s.io/v1alpha1\nkind: DNSEndpoint\n";
        let endpoint = format!("{{dnsName: a.shared.test, recordType: TXT, targets: [{namespace}]}}");
        format!("{head}metadata: {{name: web, namespace: {namespace}}}\nspec: {{endpoints: [{endpoint}]}}\n")
    };
    let text = format!("{BASE}{zone}{}{}", tenant("one"), tenant("two"));
    let fleet = Fleet::new(&[("base.yaml", &text), ("claim.yaml", &claim("one"))]);
    let mut server = fleet.serve();
    assert_eq!(server.resolve("a.shared.test", "TXT"), ["\"one\""]);
    fs::remove_file(fleet.folder().join("claim.yaml")).unwrap();
    server.until("it is gone", |server| server.resolve("a.shared.test", "TXT").is_empty());
    killed(server);
    fleet.write("claim.yaml", &claim("two"));
    let server = fleet.serve();
    assert_eq!(server.resolve("a.shared.test", "TXT"), [""; 0]);
    let refusals = server.get_json(&["refusals"]);
    let refused = &refusals["objects"][0];
    assert_eq!(
        (&refused["code"], &refused["part"]),
        (&"Quarantined".into(), &"a.shared.test TXT".into()),
        "{refusals}"
    );
    let table = String::from_utf8(server.get(&["refusals"]).stdout).unwrap();
    assert!(table.contains("DNSEndpoint two/web (a.shared.test TXT)"), "{table}");
    server.terminate();
}
