//! What `fleetgate` says to people: what there is, and what to do about an error.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use crate::server::{BASE, Fleet, cluster, fleetgate, nowhere};

fn run(arguments: &[&str]) -> Output {
    fleetgate().args(arguments).env_remove("FLEETGATE_ADMIN_CREDENTIAL").output().unwrap()
}

/// Runs it and holds the end and what is said to what is expected: whose code, and pieces of standard error.
fn refuses(arguments: &[&str], code: i32, expected: &[&str]) {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    for piece in expected {
        assert!(said.contains(piece), "{arguments:?} should say {piece:?}: {said}");
    }
    assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
}

#[test]
fn arguments_that_make_no_sense_are_refused_with_what_would() {
    refuses(&["get", "clutsers"], 2, &["a similar value exists: 'clusters'", "routes"]);
    refuses(&["explian"], 2, &["a similar subcommand exists: 'explain'"]);
    refuses(&["get", "clusters", "--adnim", "x"], 2, &["a similar argument exists: '--admin'"]);
    refuses(&["get", "clusters", "--admin", "here"], 2, &["--admin <ADDR>", "invalid socket address"]);
    refuses(&["get", "clusters", "a_b"], 1, &["\"a_b\" is no name of an object"]);
    refuses(&["get", "ingress", "shop"], 1, &["is in a namespace", "help: give it with -n"]);
    refuses(&["get", "cluster", "c1", "-n", "acme"], 1, &["Cluster objects have no namespace", "help: leave -n out"]);
    refuses(&["get", "refusals", "c1"], 1, &["refusals have no names", "help: leave NAME out"]);
    refuses(&["get", "names", "a..b"], 1, &["\"a..b\" is no name", "help: give a DNS name, such as"]);
    refuses(&["explain"], 2, &["<URL|NAME>", "Usage: fleetgate explain"]);
    refuses(&["release", "cluster", "c1"], 2, &["[possible values: zone, tenant]"]);
}

#[test]
fn a_folder_that_cannot_be_read_is_said_so() {
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let (folder, file) = (fleet.folder(), fleet.folder().join("base.yaml"));
    let missing = fleet.root().join("missing");
    let check =
        |path: &std::path::Path, expected: &[&str]| refuses(&["check", "--fleet", path.to_str().unwrap()], 1, expected);
    check(
        &missing,
        &["there is no folder", "help: give the folder with your manifests by --fleet DIR or FLEETGATE_FLEET"],
    );
    check(
        &file,
        &["is no folder", &format!("help: give the folder that the file is in: --fleet {}", folder.display())],
    );
    let closed = fleet.root().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    // Whoever is root may read everything.
    if std::fs::read_dir(&closed).is_err() {
        check(&closed, &["reading the folder", "help: see who may read it: `ls -ld"]);
    }
}

#[test]
fn nobody_or_somebody_else_at_the_admin_address_is_said_so() {
    // Bound and dropped: nobody listens there.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let help = format!("help: nobody listens there: start one with `fleetgate serve --fleet DIR --admin {nobody}`");
    for arguments in
        [["get", "clusters"].as_slice(), &["explain", "a.test"], &["release", "zone", "main"], &["credential", "list"]]
    {
        refuses(&[arguments, &["--admin", &nobody]].concat(), 1, &["Connection refused", &help, "FLEETGATE_ADMIN"]);
    }
    for (answer, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "answered no JSON"),
        ("220 mail.example ESMTP\r\n", "asking"),
        ("", "asking"),
    ] {
        let stranger = answer_once(answer);
        refuses(
            &["get", "clusters", "--admin", &stranger.to_string()],
            1,
            &[expected, "help: is 127.0.0.1", "--admin or FLEETGATE_ADMIN"],
        );
    }
}

/// Answers one connection with a fixed text, whatever it asks.
fn answer_once(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The head is read, so that closing is no reset.
        let mut head = Vec::new();
        let mut octet = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut octet).unwrap_or(0) == 1 {
            head.push(octet[0]);
        }
        _ = stream.write_all(answer.as_bytes());
    });
    address
}

#[test]
fn a_running_fleetgate_s_no_comes_with_the_next_step() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", nowhere(), 11))]);
    let (good, wrong) = (fleet.root().join("good"), fleet.root().join("wrong"));
    std::fs::write(&good, "the-credential-of-the-running-fleetgate").unwrap();
    std::fs::write(&wrong, "another-credential-that-nobody-was-given").unwrap();
    let plain = fleet.serve();
    let admin = plain.admin.to_string();
    let of = |arguments: &[&str], expected: &[&str]| refuses(&[arguments, &["--admin", &admin]].concat(), 1, expected);
    of(&["get", "clusters", "c9"], &["no Cluster is called c9", "help: `fleetgate get clusters` lists"]);
    of(
        &["get", "dnsendpoint", "x", "-n", "acme"],
        &["no DNSEndpoint is called acme/x", "`fleetgate get dnsendpoints -n acme` lists"],
    );
    of(&["release", "zone", "main"], &["this changes something", "help: start it again with --admin-credential FILE"]);
    plain.terminate();

    let mut command = fleet.command("127.0.0.1:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap());
    command.args(["--metrics", "127.0.0.1:0", "--admin-credential"]).arg(&good);
    let server = crate::server::Server::start(&command);
    let admin = server.admin.to_string();
    let of = |arguments: &[&str], expected: &[&str]| refuses(&[arguments, &["--admin", &admin]].concat(), 1, expected);
    let (good, wrong) = (good.to_str().unwrap(), wrong.to_str().unwrap());
    of(
        &["release", "zone", "main"],
        &[
            "needs the admin credential",
            "help: give the file that it was started with: --admin-credential FILE, or FLEETGATE_ADMIN_CREDENTIAL",
        ],
    );
    of(
        &["release", "zone", "main", "--admin-credential", wrong],
        &["is not the file that the running fleetgate was started with"],
    );
    of(
        &["release", "zone", "other", "--admin-credential", good],
        &["no Zone is called other", "help: `fleetgate get zones` lists"],
    );
    of(&["release", "zone", "main", "--admin-credential", "/nowhere"], &["reading the admin credential /nowhere"]);
    let output = run(&["release", "zone", "main", "--admin", &admin, "--admin-credential", good]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "nothing of Zone main is held\n");
    let metrics = server.metrics.unwrap().to_string();
    refuses(
        &["get", "clusters", "--admin", &metrics],
        1,
        &["nothing is at /v1/objects/clusters", "is the address of its --metrics"],
    );
    server.terminate();
}

#[test]
fn what_there_is_to_ask_for_is_listed() {
    let output = run(&["get"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && table.starts_with("KIND "), "{table}");
    for kind in ["clusters", "zones", "names", "routes", "refusals", "dnsendpoints"] {
        assert!(table.lines().any(|line| line.starts_with(&format!("{kind} "))), "{table}");
    }
    let json: serde_json::Value = serde_json::from_slice(&run(&["get", "-o", "json"]).stdout).unwrap();
    assert_eq!(json["items"][0]["kind"], "clusters");
}

/// Whoever asks a subcommand for help is told what it does and how it is used.
#[test]
fn every_subcommand_has_help() {
    let output = run(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let commands = text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands =
        commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).filter(|word| !word.is_empty());
    let commands: Vec<&str> = commands.filter(|word| *word != "help").collect();
    assert!(commands.len() > 10, "{text}");
    for command in commands {
        let output = run(&[command, "--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(&format!("Usage: fleetgate {command}")), "{command}: {text}");
    }
}
