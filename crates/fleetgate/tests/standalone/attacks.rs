//! What hostile tenants try, at every door of a folder's home, in one table: `cargo test --test standalone attacks -- --nocapture`
//! prints it. On a hub, `tests/hub/admission.rs` tries the same rows.

#[path = "../attacks/rows.rs"]
mod rows;

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use testbed::Process;

use crate::agents::client::Bootstrap;
use crate::server::{Fleet, PATIENCE, Server, cluster, fleetgate, nowhere};
use rows::{GROUND, PUBLISHED, Row, rows};

/// What the quarry has; none of it may ever be another.
const QUARRY: [(&str, &str); 9] = [
    ("www.prey.test", "A"),
    ("prey.test", "CAA"),
    ("_acme-challenge.prey.test", "TXT"),
    ("held.shared.test", "A"),
    ("held.shared.test", "TXT"),
    ("other.shared.test", "A"),
    ("app.c2.fleet.example", "A"),
    ("app.y.c2.fleet.example", "A"),
    ("1.113.0.203.in-addr.arpa", "PTR"),
];

fn fleet() -> Fleet {
    let of = |tenant: &str, text: String| text.replace("tenant: acme", &format!("tenant: {tenant}"));
    let fleet = Fleet::new(&[
        ("ground.yaml", GROUND),
        ("c1.yaml", &of("evil", cluster("c1", nowhere(), 11))),
        ("c2.yaml", &of("quarry", cluster("c2", nowhere(), 12))),
    ]);
    std::fs::write(fleet.root().join("admin"), "an-admin-credential-of-some-length").unwrap();
    fleet
}

fn credential(fleet: &Fleet, server: &Server) -> Vec<u8> {
    let mut printed = Vec::new();
    let mut ask = || {
        let mut command = fleetgate();
        command.args(["credential", "issue", "c1", "--admin", &server.admin.to_string(), "--admin-credential"]);
        let output = command.arg(fleet.root().join("admin")).output().unwrap();
        printed = output.stdout;
        output.status.success()
    };
    // The authority is made just after the process is ready.
    let begun = std::time::Instant::now();
    while !ask() {
        assert!(begun.elapsed() < PATIENCE, "no credential");
        std::thread::sleep(Duration::from_millis(50));
    }
    printed
}

fn quarry(server: &Server) -> Vec<Vec<String>> {
    QUARRY.iter().map(|(name, kind)| server.resolve(name, kind)).collect()
}

/// One object of the folder for each row, so that each stands alone.
fn in_the_folder(fleet: &Fleet, server: &mut Server, rows: &[Row]) -> Vec<(String, String)> {
    let object = |number: usize, row: &Row| {
        json!({
            "apiVersion": "externaldns.k8s.io/v1alpha1",
            "kind": "DNSEndpoint",
            "metadata": { "name": format!("row-{number}"), "namespace": "evil" },
            "spec": { "endpoints": [row.endpoint] },
        })
    };
    let documents = rows.iter().enumerate().map(|(number, row)| format!("---\n{}\n", object(number, row)));
    fleet.write("evil.yaml", &documents.collect::<String>());
    let part = |server: &Server, number: usize| -> Option<Value> {
        let items = server.get_json(&["dnsendpoints", "-n", "evil"]);
        let name = format!("row-{number}");
        let item = items["items"].as_array()?.iter().find(|item| item["metadata"]["name"] == name.as_str())?.clone();
        Some(item["status"]["parts"][0].clone()).filter(|part| !part.is_null())
    };
    server.until("the folder is read", |server| part(server, rows.len() - 1).is_some());
    let items = server.get_json(&["dnsendpoints", "-n", "evil"]);
    let found = |number: usize| {
        let name = format!("row-{number}");
        let item = items["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == name.as_str());
        told(&item.unwrap()["status"]["parts"][0])
    };
    let outcome = (0..rows.len()).map(found).collect();
    std::fs::remove_file(fleet.folder().join("evil.yaml")).unwrap();
    server.until("the folder is clean", |server| {
        server.get_json(&["dnsendpoints", "-n", "evil"])["items"].as_array().unwrap().is_empty()
    });
    outcome
}

/// The code, or `published`; and all the text that came with it.
fn told(verdict: &Value) -> (String, String) {
    let code = if verdict["published"] == true { PUBLISHED } else { verdict["code"].as_str().unwrap_or("?") };
    (code.to_owned(), verdict.to_string())
}

/// Beforehand and for real.
fn at_the_agents_door(bootstrap: &Bootstrap, rows: &[Row]) -> Vec<(String, String)> {
    let mut agent = bootstrap.agent();
    let endpoints: Vec<&Value> = rows.iter().map(|row| &row.endpoint).collect();
    let judged = agent.post("/v1/judge", &json!({ "endpoints": endpoints })).json();
    let before: Vec<_> = judged["verdicts"].as_array().unwrap().iter().map(told).collect();
    let set: Vec<Value> = rows
        .iter()
        .enumerate()
        .map(|(number, row)| json!({ "key": format!("row-{number}"), "endpoints": [row.endpoint] }))
        .collect();
    let answer = agent.post("/v1/claims", &json!({ "set": set })).json();
    let verdict = |number: usize| {
        let key = format!("row-{number}");
        let found = answer["verdicts"].as_array().unwrap().iter().find(|verdict| verdict["key"] == key.as_str());
        told(&found.unwrap_or_else(|| panic!("{key} is not in {answer}"))["verdicts"][0])
    };
    let after: Vec<_> = (0..rows.len()).map(verdict).collect();
    let codes = |told: &[(String, String)]| told.iter().map(|(code, _)| code.clone()).collect::<Vec<_>>();
    assert_eq!(codes(&before), codes(&after), "what was said beforehand");
    let keys: Vec<String> = (0..rows.len()).map(|number| format!("row-{number}")).collect();
    assert_eq!(agent.post("/v1/claims", &json!({ "delete": keys })).status, 200);
    after
}

/// What ExternalDNS would be told: it may keep an endpoint, or loses it without a word that would end it.
fn through_the_provider(bootstrap: &[u8], fleet: &Fleet, door: SocketAddr, rows: &[Row]) -> Vec<(String, String)> {
    let file = fleet.root().join("bootstrap");
    std::fs::write(&file, bootstrap).unwrap();
    let mut command = fleetgate();
    command.args(["agent", "external-dns", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0"]);
    command.args(["--hub", &door.to_string(), "--log-format", "json", "--bootstrap"]).arg(&file);
    let mut process = Process::start(&command).unwrap();
    let started = process.wait_for_line("\"message\":\"started\"", PATIENCE).unwrap();
    let started: Value = serde_json::from_str(&started).unwrap();
    let listen: SocketAddr = started["listen"].as_str().unwrap().parse().unwrap();
    let endpoints: Vec<&Value> = rows.iter().map(|row| &row.endpoint).collect();
    let begun = std::time::Instant::now();
    let kept = loop {
        // Until it has enrolled it answers with a soft error.
        let (status, body) = post(listen, "/adjustendpoints", &json!(endpoints));
        if status == 200 {
            break serde_json::from_str::<Value>(&body).unwrap();
        }
        assert!(status >= 500 && begun.elapsed() < PATIENCE, "{status} {body}");
        std::thread::sleep(Duration::from_millis(100));
    };
    let changes = json!({ "create": endpoints, "updateOld": [], "updateNew": [], "delete": [] });
    let (status, body) = post(listen, "/records", &changes);
    assert_eq!(status, 204, "a refused record ends nobody's process: {body}");
    let (status, body) =
        post(listen, "/records", &json!({ "create": [], "updateOld": [], "updateNew": [], "delete": endpoints }));
    assert_eq!(status, 204, "{body}");
    process.end();
    let is_kept = |row: &Row| {
        let name = row.endpoint["dnsName"].as_str().unwrap().trim_end_matches('.').to_ascii_lowercase();
        kept.as_array().unwrap().iter().any(|kept| {
            kept["dnsName"].as_str().unwrap().trim_end_matches('.').eq_ignore_ascii_case(&name)
                && kept["recordType"] == row.endpoint["recordType"]
                && kept["targets"] == row.endpoint["targets"]
        })
    };
    rows.iter().map(|row| (if is_kept(row) { PUBLISHED } else { "dropped" }.to_owned(), kept.to_string())).collect()
}

fn post(at: SocketAddr, path: &str, body: &Value) -> (u16, String) {
    use std::io::Read as _;
    let body = body.to_string();
    let media_type = "application/external.dns.webhook+json;version=1";
    let head = format!("POST {path} HTTP/1.1\r\nhost: agent\r\nconnection: close\r\ncontent-type: {media_type}");
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn no_attack_gets_anything_at_any_door() {
    let fleet = fleet();
    let mut command = fleet.command(nowhere_free(), nowhere_free());
    command.args(["--agents", "127.0.0.1:0", "--admin-credential"]).arg(fleet.root().join("admin"));
    let mut server = Server::start(&command);
    server.until("the quarry has its address", |server| server.resolve("www.prey.test", "A") == ["203.0.113.1"]);
    let before = quarry(&server);
    assert_eq!(before[8], ["www.prey.test."]);
    let rows = rows();

    let folder = in_the_folder(&fleet, &mut server, &rows);
    assert_eq!(quarry(&server), before, "through the folder");
    let printed = credential(&fleet, &server);
    let bootstrap = Bootstrap::read(&printed, server.agents.unwrap());
    let agents = at_the_agents_door(&bootstrap, &rows);
    assert_eq!(quarry(&server), before, "through the agents' door");
    let provider = through_the_provider(&printed, &fleet, server.agents.unwrap(), &rows);
    assert_eq!(quarry(&server), before, "through ExternalDNS' provider");

    println!("{:>2} {:<38} {:<20} {:<20} ExternalDNS", "", "attack", "folder", "agents' door");
    let mut wrong = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let (folder, agents, provider) = (&folder[number], &agents[number], &provider[number]);
        println!("{:>2} {:<38} {:<20} {:<20} {}", row.group, row.what, folder.0, agents.0, provider.0);
        // What only one provider understands is taken out before the endpoint is judged.
        let kept = row.told == PUBLISHED || row.endpoint.get("providerSpecific").is_some();
        if folder.0 != row.told || agents.0 != row.told || (provider.0 == PUBLISHED) != kept {
            wrong.push(format!("{} {}: expected {}", row.group, row.what, row.told));
        }
        for (_, text) in [folder, agents] {
            let own = row.endpoint.to_string();
            assert!(!text.contains("quarry") || own.contains("quarry"), "19 {}: {text}", row.what);
            assert!(text.len() < 4096, "19 {}: {} octets", row.what, text.len());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    server.terminate();
}

/// Groups 10, 13, 17 and 18: what is no single record.
#[test]
fn no_attack_by_other_means_gets_anything() {
    let fleet = fleet();
    // Its own nodes, and nothing else.
    fleet.write("ground.yaml", &GROUND.replace(" targets: {allow: [0.0.0.0/0]},", ""));
    let mut command = fleet.command(nowhere_free(), nowhere_free());
    command.args(["--agents", "127.0.0.1:0", "--admin-credential"]).arg(fleet.root().join("admin"));
    let mut server = Server::start(&command);
    server.until("the quarry has its address", |server| server.resolve("www.prey.test", "A") == ["203.0.113.1"]);

    // 17: a stranger's transfer, update and notification.
    let transfer = server.dig(&["AXFR", "prey.test"]);
    assert!(transfer.contains("Transfer failed") || transfer.contains("REFUSED"), "{transfer}");
    let update = format!(
        "server {} {}\nzone prey.test\nupdate add evil.prey.test 60 A 198.51.100.11\nsend\n",
        server.dns.ip(),
        server.dns.port()
    );
    let script = fleet.root().join("update");
    std::fs::write(&script, update).unwrap();
    assert!(!Command::new("nsupdate").arg(&script).output().unwrap().status.success());
    let notify = b"\x12\x34\x24\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04prey\x04test\x00\x00\x06\x00\x01";
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(notify, server.dns).unwrap();
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).unwrap();
    assert!(length >= 12 && matches!(answer[3] & 15, 4 | 5), "NOTIMP or REFUSED: {answer:?}");

    // 17: more than the quota, and the quarry's own still goes live.
    let many: Vec<Value> = (0..200)
        .map(|number| json!({ "dnsName": format!("n{number}.c1.fleet.example"), "recordType": "A", "targets": ["198.51.100.11"] }))
        .collect();
    let bootstrap = Bootstrap::read(&credential(&fleet, &server), server.agents.unwrap());
    let mut agent = bootstrap.agent();
    let answer = agent.post("/v1/claims", &json!({ "set": [{ "key": "many", "endpoints": many }] })).json();
    let verdicts = answer["verdicts"][0]["verdicts"].as_array().unwrap();
    let count = |code: &str| verdicts.iter().filter(|verdict| verdict["code"] == code).count();
    assert_eq!(
        (verdicts.iter().filter(|verdict| verdict["published"] == true).count(), count("QuotaExceeded")),
        (50, 150)
    );

    // 13: what led to a node goes with the node.
    server.until("it is served", |server| server.resolve("n0.c1.fleet.example", "A") == ["198.51.100.11"]);
    fleet.write("c1.yaml", &cluster("c1", nowhere(), 13).replace("tenant: acme", "tenant: evil"));
    server.until("it is not served", |server| server.resolve("n0.c1.fleet.example", "A") == ["198.51.100.13"]);

    // 14: names for addresses that one does not have, and names that one does not have for addresses.
    let claim = |name: &str, more: &str| {
        format!(
            "---\napiVersion: fleetgate.dev/v1alpha1\nkind: AddressClaim\nmetadata: {{name: {name}, namespace: evil}}\nspec: {{pool: public, family: IPv4, {more}}}\n"
        )
    };
    fleet.write(
        "addresses.yaml",
        &[claim("theirs", "address: 203.0.113.1"), claim("named", "address: 203.0.113.2, ptr: www.prey.test")].concat(),
    );
    server.until("its address has a name of nobody's", |server| {
        server.resolve("2.113.0.203.in-addr.arpa", "PTR") == ["203-0-113-2.rev.fleet.example."]
    });
    assert_eq!(server.resolve("1.113.0.203.in-addr.arpa", "PTR"), ["www.prey.test."]);
    let shown = server.get_json(&["addressclaims", "-n", "evil"]).to_string();
    assert!(shown.contains("AddressTaken") && shown.contains("PtrNotYours") && !shown.contains("quarry"), "{shown}");
    server.terminate();
}

fn nowhere_free() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}
