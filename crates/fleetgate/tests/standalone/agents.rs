//! The agents' door of the real binary: who gets in, what is kept, and who does not get in any more.

#[path = "../agents/client.rs"]
pub(crate) mod client;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use serde_json::{Value, json};

use crate::server::{BASE, Fleet, PATIENCE, Server, cluster, connect, fleetgate, nowhere};
use client::{Bootstrap, Shown, csr};

const SECRET: &str = "an admin credential of some length, 42";

/// Two tenants with a cluster each.
pub(crate) fn fleet() -> Fleet {
    let other = "---\napiVersion: fleetgate.dev/v1alpha1\nkind: Tenant\nmetadata: {name: rival}\nspec: {}\n";
    let theirs = cluster("c2", nowhere(), 12).replace("tenant: acme", "tenant: rival");
    let fleet = Fleet::new(&[
        ("base.yaml", &format!("{BASE}{other}")),
        ("c1.yaml", &cluster("c1", nowhere(), 11)),
        ("c2.yaml", &theirs),
    ]);
    secret(&fleet);
    fleet
}

/// What `--admin-credential` is given.
pub(crate) fn secret(fleet: &Fleet) {
    std::fs::write(fleet.root().join("admin"), SECRET.replace([' ', ','], "-")).unwrap();
}

pub(crate) fn serve(fleet: &Fleet) -> Server {
    let mut command = fleet.command(any(), any());
    command.args(["--agents", "127.0.0.1:0", "--admin-credential"]).arg(fleet.root().join("admin"));
    Server::start(&command)
}

fn any() -> std::net::SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub(crate) fn credential(fleet: &Fleet, server: &Server, arguments: &[&str]) -> Output {
    let mut command = fleetgate();
    command.arg("credential").args(arguments).args(["--admin", &server.admin.to_string()]);
    command.arg("--admin-credential").arg(fleet.root().join("admin")).output().unwrap()
}

pub(crate) fn issue(fleet: &Fleet, server: &Server, cluster: &str, more: &[&str]) -> Bootstrap {
    // The authority is made just after the process is ready.
    let mut output = credential(fleet, server, &[&["issue", cluster], more].concat());
    let begun = Instant::now();
    while String::from_utf8_lossy(&output.stderr).contains("no authority yet") {
        assert!(begun.elapsed() < PATIENCE);
        output = credential(fleet, server, &[&["issue", cluster], more].concat());
    }
    assert!(output.status.success(), "{output:?}");
    Bootstrap::read(&output.stdout, server.agents.unwrap())
}

fn claim(key: &str, name: &str) -> Value {
    let endpoint = json!({ "dnsName": name, "recordType": "A", "targets": ["198.51.100.11"] });
    json!({ "set": [{ "key": key, "endpoints": [endpoint] }] })
}

#[test]
fn a_token_buys_a_certificate_and_a_revocation_counts_at_once() {
    let fleet = fleet();
    let server = serve(&fleet);
    let one = issue(&fleet, &server, "c1", &[]);
    assert_eq!(one.server_name, "agents.fleet.example");
    let first = one.enrolled();
    let mut agent = one.connect(Some(&first)).unwrap();
    assert_eq!(agent.get("/v1/cluster").json()["cluster"], "c1");

    let (csr, key) = csr();
    let renewed = agent.post("/v1/renew", &json!({ "csr": csr }));
    assert_eq!(renewed.status, 200, "{}", renewed.text);
    let expires = renewed.json()["expires"].as_u64().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!((3500..=3601).contains(&(expires - now)), "valid for an hour: {}", expires - now);
    let second = Shown { certificate: renewed.json()["certificate"].as_str().unwrap().to_owned(), key };
    let mut next = one.connect(Some(&second)).unwrap();
    assert_eq!(next.get("/v1/cluster").status, 200);
    // A pod that lost its disk enrols again; through the door that goes by server names, which knows this one too.
    let by_name = Bootstrap { door: server.sni, ..one.clone() };
    let mut third = by_name.agent();
    let explained = String::from_utf8(server.explain(&[&one.server_name]).stdout).unwrap();
    assert!(explained.contains("agents' door"), "{explained}");

    let other = issue(&fleet, &server, "c1", &[]);
    let mut untouched = other.agent();
    let output = credential(&fleet, &server, &["revoke", one.id()]);
    assert!(output.status.success(), "{output:?}");
    for agent in [&mut agent, &mut next, &mut third] {
        assert_eq!(agent.get("/v1/cluster").problem(), (403, "Revoked".into()), "on an open connection");
        assert_eq!(agent.post("/v1/claims", &claim("a", "a.c1.fleet.example")).status, 403);
        assert_eq!(agent.get("/v1/claims").status, 403);
    }
    assert_eq!(one.connect(Some(&second)).unwrap().get("/v1/cluster").status, 403, "and on a new one");
    assert_eq!(one.enroll().0.problem(), (401, "BadToken".into()));
    assert_eq!(untouched.get("/v1/cluster").status, 200, "another credential goes on");
    let output = credential(&fleet, &server, &["revoke", one.id()]);
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("no credential"),
        "{output:?}"
    );
    server.terminate();
}

/// One bad record does not hurt the others, and each is told what became of it.
#[test]
fn claims_are_judged_one_by_one_and_served() {
    let fleet = fleet();
    let mut server = serve(&fleet);
    let issued = issue(&fleet, &server, "c1", &[]);
    let shown = issued.enrolled();
    let mut agent = issued.connect(Some(&shown)).unwrap();
    let view = agent.get("/v1/cluster").json();
    assert_eq!(view["suffixes"], json!(["c1.fleet.example"]), "{view}");
    let endpoint = |name: &str, target: &str| json!({ "dnsName": name, "recordType": "A", "targets": [target] });
    let endpoints = json!([
        endpoint("web.c1.fleet.example", "198.51.100.11"),
        endpoint("web.c2.fleet.example", "198.51.100.11"),
        endpoint("api.c1.fleet.example", "198.51.100.11"),
        endpoint("a..b", "198.51.100.11"),
        endpoint("evil.c1.fleet.example", "169.254.169.254"),
        endpoint("more.c1.fleet.example", "198.51.100.11"),
    ]);
    let published = |verdicts: &Value| -> Vec<bool> {
        verdicts.as_array().unwrap().iter().map(|verdict| verdict["published"].as_bool().unwrap()).collect()
    };
    let expected = [true, false, false, false, false, true];
    let judged = agent.post("/v1/judge", &json!({ "endpoints": endpoints })).json();
    assert_eq!(published(&judged["verdicts"]), expected, "{judged}");
    assert_eq!(server.resolve("web.c1.fleet.example", "A"), ["198.51.100.11"], "by the wildcard; nothing was changed");
    assert_eq!(agent.get("/v1/claims").json(), json!({ "claims": [] }));

    let first = agent.get("/v1/verdicts").json();
    let waiting = {
        let (issued, shown, after) = (issued.clone(), shown.clone(), first["revision"].clone());
        std::thread::spawn(move || {
            issued.connect(Some(&shown)).unwrap().get(&format!("/v1/verdicts?after={after}")).json()
        })
    };
    let answer = agent.post("/v1/claims", &json!({ "set": [{ "key": "a", "endpoints": endpoints }] })).json();
    assert_eq!(published(&answer["verdicts"][0]["verdicts"]), expected, "{answer}");
    for (number, code) in [(1, "NotYours"), (2, "ControlPlaneName"), (3, "BadName"), (4, "TargetForbidden")] {
        let verdict = &answer["verdicts"][0]["verdicts"][number];
        assert_eq!(verdict["code"], code, "{verdict}");
        assert!(!verdict["reason"].as_str().unwrap().contains("rival"), "{verdict}");
    }
    let news = waiting.join().unwrap();
    assert_eq!(published(&news["verdicts"][0]["verdicts"]), expected, "who waits for verdicts is told: {news}");
    assert_ne!(news["revision"], first["revision"]);
    let claims = agent.get("/v1/claims").json();
    assert_eq!(published(&claims["claims"][0]["verdicts"]), expected, "{claims}");

    let moved = json!({ "set": [{ "key": "a", "endpoints": [
        { "dnsName": "mail.c1.fleet.example", "recordType": "TXT", "targets": ["by an agent"] },
    ] }] });
    let answer = agent.post("/v1/claims", &moved).json();
    assert_eq!(published(&answer["verdicts"][0]["verdicts"]), [true], "{answer}");
    server.until("it is served", |server| server.resolve("mail.c1.fleet.example", "TXT") == ["\"by an agent\""]);
    server.terminate();
}

#[test]
fn what_agents_have_outlives_a_restart() {
    let fleet = fleet();
    let server = serve(&fleet);
    let issued = issue(&fleet, &server, "c1", &[]);
    let shown = issued.enrolled();
    let mut agent = issued.connect(Some(&shown)).unwrap();
    let answer = agent.post("/v1/claims", &claim("sync/default/web", "web.c1.fleet.example"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let object = server.get_json(&["dnsendpoints", "-n", "acme"])["items"][0].clone();
    assert_eq!(object["metadata"]["labels"]["fleetgate.dev/cluster"], "c1");
    assert_eq!(object["metadata"]["annotations"]["fleetgate.dev/agent-key"], "sync/default/web");
    assert_eq!(object["spec"]["endpoints"][0]["dnsName"], "web.c1.fleet.example");
    server.terminate();

    let mut server = serve(&fleet);
    let again = Bootstrap { door: server.agents.unwrap(), ..issued.clone() };
    let mut agent = again.connect(Some(&shown)).unwrap();
    assert_eq!(agent.get("/v1/claims").json()["claims"][0]["key"], "sync/default/web", "the same authority and claims");
    assert_eq!(again.agent().get("/v1/cluster").status, 200, "and the same credential");
    let gone = agent.post("/v1/claims", &json!({ "delete": ["sync/default/web"] }));
    assert_eq!(gone.status, 200, "{}", gone.text);
    server.until("the object is gone", |server| {
        server.get_json(&["dnsendpoints", "-n", "acme"])["items"].as_array().unwrap().is_empty()
    });
    server.terminate();
}

#[test]
fn a_new_process_takes_the_door_over() {
    let fleet = fleet();
    let mut old = serve(&fleet);
    let issued = issue(&fleet, &old, "c1", &[]);
    let shown = issued.enrolled();
    assert_eq!(issued.connect(Some(&shown)).unwrap().post("/v1/claims", &claim("a", "a.c1.fleet.example")).status, 200);
    let mut command = fleet.command(any(), any());
    command.args(["--agents", "127.0.0.1:0", "--take-over", "--admin-credential"]).arg(fleet.root().join("admin"));
    let new = Server::start(&command);
    assert_eq!(new.agents, old.agents, "at the same address");
    assert!(old.process.wait_for_exit(PATIENCE).unwrap().success());
    let mut agent = issued.connect(Some(&shown)).unwrap();
    assert_eq!(agent.get("/v1/claims").json()["claims"][0]["key"], "a");
    assert_eq!(agent.post("/v1/claims", &claim("b", "b.c1.fleet.example")).status, 200);
    new.terminate();
}

#[test]
fn an_agent_sees_and_changes_its_own_cluster_alone() {
    let fleet = fleet();
    let server = serve(&fleet);
    let mut mine = issue(&fleet, &server, "c1", &[]).agent();
    let mut theirs = issue(&fleet, &server, "c2", &[]).agent();
    for (agent, key) in [(&mut mine, "same"), (&mut theirs, "same")] {
        assert_eq!(agent.post("/v1/claims", &claim(key, "x.fleet.example")).status, 200);
    }
    let deleted = theirs.post("/v1/claims", &json!({ "delete": ["same"] }));
    assert_eq!(deleted.status, 200);
    assert_eq!(theirs.get("/v1/claims").json(), json!({ "claims": [] }));
    assert_eq!(mine.get("/v1/claims").json()["claims"].as_array().unwrap().len(), 1);
    let claimed = theirs.post("/v1/claims", &claim("steal", "api.c1.fleet.example"));
    for answer in [theirs.get("/v1/cluster"), theirs.get("/v1/claims"), theirs.get("/v1/verdicts"), claimed] {
        assert_eq!(answer.status, 200, "{}", answer.text);
        let text = answer.text.replace("api.c1.fleet.example", "");
        assert!(!text.contains("c1") && !text.contains("acme"), "nothing of others: {text}");
    }
    server.terminate();
}

#[test]
fn a_cluster_that_is_made_anew_does_not_know_old_tokens() {
    let fleet = fleet();
    let mut server = serve(&fleet);
    let old = issue(&fleet, &server, "c1", &[]);
    let mut agent = old.agent();
    assert_eq!(agent.post("/v1/claims", &claim("web", "web.c1.fleet.example")).status, 200);

    std::fs::remove_file(fleet.folder().join("c1.yaml")).unwrap();
    server.until("the cluster is gone", |_| agent.get("/v1/cluster").status == 403);
    assert_eq!(old.enroll().0.status, 401, "its credential went with it");
    assert!(server.get_json(&["dnsendpoints"])["items"].as_array().unwrap().is_empty(), "and what it claimed");
    fleet.write("c1.yaml", &cluster("c1", nowhere(), 11));
    server.until("the cluster is back", |server| server.get(&["clusters", "c1"]).status.success());
    assert_eq!(agent.get("/v1/cluster").status, 403);
    assert_eq!(old.enroll().0.status, 401);
    let mut new = issue(&fleet, &server, "c1", &[]).agent();
    assert_eq!(new.get("/v1/claims").json(), json!({ "claims": [] }), "the heir of nothing");
    server.terminate();
}

#[test]
fn a_token_ends_and_those_who_have_enrolled_go_on() {
    let fleet = fleet();
    let mut server = serve(&fleet);
    let short = issue(&fleet, &server, "c1", &["--valid", "2s"]);
    let mut agent = short.agent();
    server.until("the token has expired", |_| short.enroll().0.status != 200);
    assert_eq!(short.enroll().0.problem(), (401, "TokenExpired".into()));
    let renewed = agent.post("/v1/renew", &json!({ "csr": csr().0 }));
    assert_eq!(renewed.status, 200, "{}", renewed.text);
    let output = credential(&fleet, &server, &["issue", "c1", "--valid", "400d"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("at most 365 days"), "{output:?}");
    let output = credential(&fleet, &server, &["issue", "nobody"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no cluster"), "{output:?}");
    server.terminate();
}

#[test]
fn strangers_do_not_get_in() {
    let fleet = fleet();
    let server = serve(&fleet);
    let real = issue(&fleet, &server, "c1", &[]);
    let mut stranger = real.connect(None).unwrap();
    for (method, path) in [
        ("GET", "/v1/cluster"),
        ("GET", "/v1/claims"),
        ("POST", "/v1/claims"),
        ("POST", "/v1/judge"),
        ("POST", "/v1/renew"),
        ("GET", "/v1/verdicts?after=1"),
    ] {
        assert_eq!(stranger.send(method, path, "").problem(), (401, "NoCertificate".into()), "{path}");
    }
    // A certificate that says all the right things, of an authority of one's own.
    let identity = "fleetgate://cluster/c1/u/0123456789abcdef";
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::new(authority, KeyPair::generate().unwrap());
    let mut forged = CertificateParams::default();
    forged.subject_alt_names = vec![SanType::URI(identity.try_into().unwrap())];
    let certificate = forged.signed_by(&key, &issuer).unwrap().pem();
    let forged = real.connect(Some(&Shown { certificate, key: key.serialize_der() }));
    // TLS 1.3 tells a client only after its own last word.
    let answer = forged.and_then(|mut agent| agent.try_send("GET", "/v1/cluster", b""));
    assert!(answer.is_err(), "{:?}", answer.map(|answer| answer.text));

    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 1000], &[0x16, 3, 1, 0xff, 0xff], b"\x16\x03\x01\x00\x05hello"]
    {
        let mut stream = connect(real.door);
        stream.write_all(garbage).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // Cut or refused, with an alert at most.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 20, "{answer:?}");
    }
    let elsewhere = Bootstrap { server_name: "agents.other.example".into(), ..real.clone() };
    assert!(elsewhere.connect(None).is_err(), "no zone of ours has that name");

    let id = real.id();
    let wrong = [
        String::new(),
        "fleetgate".into(),
        format!("fleetgate.{id}.{}", "0".repeat(64)),
        format!("fleetgate.{}.{}", "0".repeat(16), "0".repeat(64)),
        format!("fleetgate.{id}\0.x"),
    ];
    let guess = |token: &str| Bootstrap { token: token.to_owned(), ..real.clone() }.enroll().0.problem();
    for token in &wrong {
        assert_eq!(guess(token), (401, "BadToken".into()), "{token:?}");
    }
    let limited = (0..20).map(|_| guess(&wrong[2])).find(|problem| problem.0 == 429);
    assert_eq!(limited, Some((429, "TooFast".into())), "nobody guesses for ever");
    server.terminate();
}

#[test]
fn bad_requests_get_a_clear_no_and_change_nothing() {
    let fleet = fleet();
    let server = serve(&fleet);
    let issued = issue(&fleet, &server, "c1", &[]);
    let shown = issued.enrolled();
    let connected = || issued.connect(Some(&shown)).unwrap();
    let mut agent = connected();
    assert_eq!(agent.post("/v1/claims", &claim("good", "good.c1.fleet.example")).status, 200);

    let deep = format!("{{\"set\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let many = json!({ "set": [{ "key": "a", "endpoints": vec![json!({}); 1001] }] }).to_string();
    let keys = json!({ "delete": (0..10_001).map(|key| key.to_string()).collect::<Vec<_>>() }).to_string();
    let rows: [(&str, &str, &[u8], u16, &str); 20] = [
        ("POST", "/v1/claims", b"", 400, "Malformed"),
        ("POST", "/v1/claims", b"{", 400, "Malformed"),
        ("POST", "/v1/claims", b"[]", 400, "Malformed"),
        ("POST", "/v1/claims", b"\0\0\0\0", 400, "Malformed"),
        ("POST", "/v1/claims", b"\xff\xfe{}", 400, "Malformed"),
        ("POST", "/v1/claims", b"{\"set\":{}}", 400, "Malformed"),
        ("POST", "/v1/claims", b"{\"set\":[{\"key\":1,\"endpoints\":[]}]}", 400, "Malformed"),
        ("POST", "/v1/claims", b"{\"set\":[{\"key\":\"a\",\"endpoints\":[{\"targets\":\"x\"}]}]}", 400, "Malformed"),
        ("POST", "/v1/claims", b"{\"set\":[{\"key\":\"a\",\"endpoints\":[],\"more\":1}]}", 400, "Malformed"),
        ("POST", "/v1/claims", b"{\"set\":[{\"key\":\"\",\"endpoints\":[]}]}", 400, "Malformed"),
        ("POST", "/v1/claims", b"{\"set\":[{\"key\":\"a\\u0000b\",\"endpoints\":[]}]}", 400, "Malformed"),
        ("POST", "/v1/claims", b"{\"set\":[{\"key\":\"../X\",\"endpoints\":[]}]}", 400, "Malformed"),
        ("POST", "/v1/claims", b"{\"delete\":[\"good\",\"good\"]}", 400, "Malformed"),
        ("POST", "/v1/claims", deep.as_bytes(), 400, "Malformed"),
        ("POST", "/v1/claims", many.as_bytes(), 413, "TooLarge"),
        ("POST", "/v1/claims", keys.as_bytes(), 413, "TooLarge"),
        ("POST", "/v1/renew", b"{\"csr\":\"x\"}", 400, "Malformed"),
        ("GET", "/v1/verdicts?after=x", b"", 400, "Malformed"),
        ("DELETE", "/v1/claims", b"", 405, "WrongMethod"),
        ("GET", "/v1/../etc", b"", 404, "NoSuchPath"),
    ];
    for (method, path, body, status, code) in rows {
        let answer = agent.try_send(method, path, body).unwrap();
        let shown = String::from_utf8_lossy(&body[..body.len().min(100)]);
        assert_eq!(answer.problem(), (status, code.into()), "{method} {path} {shown}: {}", answer.text);
        assert!(!answer.json()["reason"].as_str().unwrap().is_empty());
    }
    let large = vec![b' '; (8 << 20) + 1];
    assert_eq!(connected().try_send("POST", "/v1/claims", &large).unwrap().problem(), (413, "TooLarge".into()));
    let mut agent = connected();
    let claims = agent.get("/v1/claims").json();
    assert_eq!(claims["claims"].as_array().unwrap().len(), 1, "{claims}");
    // One client that does nothing else is told to wait, and until when.
    let limited = (0..2000).map(|_| agent.get("/v1/cluster")).find(|answer| answer.status != 200).unwrap();
    assert_eq!(limited.problem(), (429, "TooFast".into()));
    assert!(limited.head.contains("retry-after: "), "{}", limited.head);
    let mut other = issue(&fleet, &server, "c2", &[]).agent();
    assert_eq!(other.get("/v1/cluster").status, 200, "others do not have to");
    server.terminate();
}

#[test]
fn only_the_admin_credential_changes_something() {
    let fleet = fleet();
    let server = serve(&fleet);
    let issued = issue(&fleet, &server, "c1", &[]);
    let request = |method: &str, path: &str, authorization: &str| {
        let mut stream = connect(server.admin);
        let body = "{\"cluster\":\"c1\",\"validSeconds\":60}";
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             {authorization}content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let revoke = format!("/v1/credentials/{}", issued.id());
    let good = format!("authorization: Bearer {}\r\n", SECRET.replace([' ', ','], "-"));
    for wrong in ["", "authorization: Bearer x\r\n", "authorization: Basic x\r\n", &good.replace("42", "43")] {
        for (method, path) in [("POST", "/v1/credentials"), ("DELETE", &revoke)] {
            let answer = request(method, path, wrong);
            assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("NoCredential"), "{answer}");
        }
    }
    assert!(request("POST", "/v1/credentials", &good).starts_with("HTTP/1.1 200"));
    let listed = request("GET", "/v1/credentials", "");
    assert!(listed.contains(issued.id()) && !listed.contains("digest"), "{listed}");
    assert!(!listed.contains(issued.token.rsplit('.').next().unwrap()), "secrets are shown once");

    let file = fleet.root().join("bootstrap.json");
    let output = credential(&fleet, &server, &["issue", "c1", "-o", file.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let written = Bootstrap::read(&std::fs::read(&file).unwrap(), server.agents.unwrap());
    assert_eq!(written.agent().get("/v1/cluster").status, 200);
    let table = String::from_utf8(credential(&fleet, &server, &["list"]).stdout).unwrap();
    assert!(table.starts_with("ID") && table.lines().count() == 4, "{table}");
    server.terminate();

    let short = fleet.root().join("short");
    std::fs::write(&short, "too short").unwrap();
    let mut command = fleetgate();
    command.arg("serve").arg("--fleet").arg(fleet.folder()).arg("--admin-credential").arg(&short);
    let output = command.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("holds no admin credential"), "{output:?}");
}

/// A tenant's object: as many A records, which all lead to 203.0.113.`target`.
fn object(cluster: &str, number: usize, records: usize, target: usize) -> Value {
    let endpoint = |record| {
        let name = format!("r{record}.{cluster}.fleet.example");
        json!({ "dnsName": name, "recordType": "A", "recordTTL": 60, "targets": [format!("203.0.113.{target}")] })
    };
    let endpoints: Vec<Value> = (number * records..(number + 1) * records).map(endpoint).collect();
    json!({ "key": format!("sync/default/o{number}"), "endpoints": endpoints })
}

/// `bench/src/bin/tenants.rs` has the figures; here nobody must be held up, whatever the machine.
#[test]
fn a_tenant_at_full_speed_does_not_hold_up_its_neighbour() {
    const BOUND: Duration = Duration::from_secs(10);
    let fleet = fleet();
    let allowing = std::fs::read_to_string(fleet.folder().join("base.yaml")).unwrap();
    fleet.write("base.yaml", &allowing.replace("spec: {}", "spec: {targets: {allow: [203.0.113.0/24]}}"));
    let mut server = serve(&fleet);
    let (quiet, noisy) = (issue(&fleet, &server, "c1", &[]), issue(&fleet, &server, "c2", &[]));
    // 2,000 records each: the quiet one's in small objects, the noisy one's in as large ones as there may be.
    let mut agent = quiet.agent();
    for (bootstrap, cluster, objects, records) in [(&quiet, "c1", 200, 10), (&noisy, "c2", 2, 1000)] {
        let set: Vec<Value> = (0..objects).map(|number| object(cluster, number, records, 1)).collect();
        let answer = bootstrap.agent().post("/v1/claims", &json!({ "set": set }));
        assert!(answer.status == 200 && !answer.text.contains("\"published\":false"), "{:.1000}", answer.text);
        let last = format!("r{}.{cluster}.fleet.example", objects * records - 1);
        server.until("everything is loaded", |server| server.resolve(&last, "A") == ["203.0.113.1"]);
    }

    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let shown = noisy.enrolled();
    std::thread::scope(|scope| {
        // Also where the test fails: the threads would be waited for.
        let _stop = StopAtEnd(&stop);
        for thread in 0..4 {
            let (noisy, shown, stop, answered) = (&noisy, &shown, &stop, &answered);
            scope.spawn(move || {
                let mut agent = noisy.connect(Some(shown)).unwrap();
                for change in 0.. {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    let claims = object("c2", (thread + change) % 2, 1000, 2 + (thread + 4 * change) % 250);
                    let answer = agent.post("/v1/claims", &json!({ "set": [claims] }));
                    // Told to wait, it does not.
                    assert!([200, 429].contains(&answer.status), "{} {}", answer.status, answer.text);
                    answered.fetch_add(usize::from(answer.status == 200), Ordering::AcqRel);
                }
            });
        }
        for change in 0..10_usize {
            let before = answered.load(Ordering::Acquire);
            server.until("the other one goes on", |_| answered.load(Ordering::Acquire) > before);
            let (number, target) = (change * 17, 10 + change);
            let begun = Instant::now();
            let answer = agent.post("/v1/claims", &json!({ "set": [object("c1", number, 10, target)] }));
            assert_eq!(answer.status, 200, "{}", answer.text);
            let name = format!("r{}.c1.fleet.example", number * 10 + 9);
            server.until("the change is live", |server| server.resolve(&name, "A") == [format!("203.0.113.{target}")]);
            assert!(begun.elapsed() < BOUND, "change {change} took {:?}", begun.elapsed());
        }
    });
    server.terminate();
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
