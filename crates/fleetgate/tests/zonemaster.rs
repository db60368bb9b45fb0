//! Zonemaster, which registries judge delegations by, finds no error in a zone that Fleetgate answers for.
//!
//! It all happens in an internet of two hosts with a cable between them. One has the root, the parent zone and
//! Zonemaster; the other is Fleetgate. The addresses look public, because Zonemaster objects to others.
//!
//! Fleetgate is one process on one wildcard address, and the zone's two name servers are addresses of its host. Two
//! processes would number the zone apart, each by its own clock, until replicas of a hub agree on serials.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use testbed::{Host, Process, WorkDir};

/// Zonemaster takes some 5 seconds, the rest a second: reached only by a test that fails.
const PATIENCE: Duration = Duration::from_mins(1);

const ROOT: [&str; 2] = ["11.1.0.53", "2600:1::53"];
const PARENT: [&str; 2] = ["11.2.0.53", "2600:2::53"];
/// Those of ns1 and of ns2, each in a prefix of its own.
const FLEETGATE: [&str; 4] = ["11.53.0.1", "2600:53::1", "11.54.0.1", "2600:54::1"];

const FLEET: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers:
  - {name: ns1.fleet.example, addresses: [11.53.0.1, '2600:53::1']}
  - {name: ns2.fleet.example, addresses: [11.54.0.1, '2600:54::1']}
  gateway: {addresses: [11.53.0.10, '2600:53::10']}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: c1}
spec:
  tenant: acme
  zone: main
  controlPlane: {kubeApiserver: {addresses: ['11.53.0.20:6443']}}
  nodes: [{name: n1, addresses: [11.53.0.30, '2600:53::30']}]
";

const HINTS: &str = "\
. 3600 IN NS a.root.
a.root. 3600 IN A 11.1.0.53
a.root. 3600 IN AAAA 2600:1::53
";

/// In front of every zone but the root.
const APEX: &str = "\
$TTL 3600
@ SOA a.nic.example. hostmaster.nic.example. 1 14400 3600 604800 3600
@ NS a.nic.example.
";

/// What the root's server answers for.
const ROOT_ZONES: [(&str, &str); 1] = [(
    ".",
    "\
$TTL 3600
@ SOA a.root. hostmaster.root. 1 14400 3600 604800 3600
@ NS a.root.
a.root A 11.1.0.53
a.root AAAA 2600:1::53
example NS a.nic.example.
arpa NS a.nic.example.
asn NS a.nic.example.
a.nic.example A 11.2.0.53
a.nic.example AAAA 2600:2::53
",
)];

/// What the parent's server answers for: the delegation, who the addresses belong to, and which autonomous system
/// announces them.
const PARENT_ZONES: [(&str, &str); 3] = [
    (
        "example",
        "\
a.nic A 11.2.0.53
a.nic AAAA 2600:2::53
fleet NS ns1.fleet
fleet NS ns2.fleet
ns1.fleet A 11.53.0.1
ns1.fleet AAAA 2600:53::1
ns2.fleet A 11.54.0.1
ns2.fleet AAAA 2600:54::1
",
    ),
    (
        "arpa",
        "\
1.0.53.11.in-addr PTR ns1.fleet.example.
1.0.54.11.in-addr PTR ns2.fleet.example.
1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.3.5.0.0.0.0.6.2.ip6 PTR ns1.fleet.example.
1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.4.5.0.0.0.0.6.2.ip6 PTR ns2.fleet.example.
",
    ),
    (
        "asn",
        "\
*.53.11.origin TXT \"65053 | 11.53.0.0/16 | ZZ | test | 2026-01-01\"
*.54.11.origin TXT \"65054 | 11.54.0.0/16 | ZZ | test | 2026-01-01\"
*.3.5.0.0.0.0.6.2.origin6 TXT \"65053 | 2600:53::/32 | ZZ | test | 2026-01-01\"
*.4.5.0.0.0.0.6.2.origin6 TXT \"65054 | 2600:54::/32 | ZZ | test | 2026-01-01\"
",
    ),
];

/// All test cases stay in. Only the service that is asked for autonomous systems is one of ours, since none of the real
/// ones can be reached.
const PROFILE: &str = r#"{"asn_db": {"style": "cymru", "sources": {"cymru": ["asn"]}}}"#;

/// Not run where there is nothing for them to look at: the first is for zones without name servers that answer, the
/// second for those with mail servers.
const NOT_NEEDED: [&str; 2] = ["basic03", "syntax08"];

#[test]
fn zonemaster_finds_no_error_in_a_delegated_zone() {
    let (Some(nsd), Some(zonemaster)) = (testbed::program("nsd"), testbed::program("zonemaster-cli")) else { return };
    let on_world = ["11.1.0.53/8", "2600:1::53/16", "11.2.0.53/8", "2600:2::53/16"];
    let on_fleet = ["11.53.0.1/8", "2600:53::1/16", "11.54.0.1/8", "2600:54::1/16"];
    let Some([world, fleet]) = testbed::hosts([&on_world, &on_fleet]) else { return };
    let folder = WorkDir::create().unwrap();

    let _fleetgate = start_fleetgate(&fleet, &folder.path().join("fleet"));
    let _root = start_nsd(&world, &nsd, &folder.path().join("root"), ROOT, &ROOT_ZONES);
    let _parent = start_nsd(&world, &nsd, &folder.path().join("parent"), PARENT, &PARENT_ZONES);
    every_address_answers_alike(&world);

    let wanted = test_cases(&world, &zonemaster);
    let rows = judge(&world, &zonemaster, folder.path());
    for row in complaints(&rows, &["WARNING"]) {
        println!("{row}");
    }
    let errors = complaints(&rows, &["ERROR", "CRITICAL"]);
    assert!(errors.is_empty(), "{}", errors.join("\n"));

    // It looked at everything, and at all of us.
    let all = |tag: &str, field: &str| -> BTreeSet<String> {
        let rows = rows.iter().filter(|row| row["tag"] == tag);
        rows.filter_map(|row| Some(row["args"][field].as_str()?.to_lowercase())).collect()
    };
    let ended = all("TEST_CASE_END", "testcase");
    let left_out: Vec<&String> = wanted.difference(&ended).collect();
    assert_eq!(left_out, NOT_NEEDED, "what did not run of {wanted:?}");
    let asked = all("EXTERNAL_QUERY", "ip");
    assert!(FLEETGATE.iter().all(|address| asked.contains(*address)), "{asked:?}");
}

fn start_fleetgate(host: &Host, folder: &Path) -> Process {
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("fleet.yaml"), FLEET).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleetgate"));
    command.arg("serve").arg("--fleet").arg(folder).args(["--dns", "[::]:53", "--log-format", "json"]);
    let mut process = host.start(&command).unwrap();
    process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
    process
}

/// Should it be killed, the processes that it starts see that and end as well.
fn start_nsd(host: &Host, nsd: &Path, folder: &Path, addresses: [&str; 2], zones: &[(&str, &str)]) -> Process {
    fs::create_dir(folder).unwrap();
    let place = folder.display();
    let [v4, v6] = addresses;
    let server = format!(
        "\
server:
    ip-address: {v4}
    ip-address: {v6}
    # We are as good as root here, and have no other user to become.
    username: \"\"
    pidfile: \"\"
    database: \"\"
    zonesdir: \"{place}\"
    zonelistfile: \"{place}/zones\"
    xfrdfile: \"{place}/xfrd\"
    xfrdir: \"{place}\"
    # Zonemaster is in a hurry, and not to be slowed down.
    rrl-ratelimit: 0
remote-control:
    control-enable: no
"
    );
    let zones = zones.iter().enumerate().map(|(number, (name, records))| {
        let apex = if *name == "." { "" } else { APEX };
        let file = format!("{number}.zone");
        fs::write(folder.join(&file), format!("{apex}{records}")).unwrap();
        format!("zone:\n    name: \"{name}\"\n    zonefile: \"{file}\"\n")
    });
    let configuration: String = std::iter::once(server).chain(zones).collect();
    let file = folder.join("nsd.conf");
    fs::write(&file, configuration).unwrap();
    let mut process = host.start(Command::new(nsd).arg("-d").arg("-c").arg(file)).unwrap();
    process.wait_for_line("nsd started", PATIENCE).unwrap();
    process
}

/// Zonemaster takes an answer from wherever it comes; resolvers, as dig, only from where they asked.
fn every_address_answers_alike(world: &Host) {
    let mut answers = BTreeSet::new();
    for address in FLEETGATE {
        for transport in ["+notcp", "+tcp"] {
            let server = format!("@{address}");
            let mut dig = Command::new("dig");
            dig.args([&server, "+norec", "+short", "+time=30", "+tries=1", transport, "fleet.example", "SOA"]);
            let output = world.output(&dig).expect("dig is there: testbed/install installs it");
            assert!(output.status.success(), "{address} {transport}: {output:?}");
            answers.insert(String::from_utf8(output.stdout).unwrap());
        }
    }
    assert!(answers.len() == 1 && answers.iter().all(|answer| answer.starts_with("ns1.")), "{answers:?}");
}

/// Those that it runs when nothing else is said, without DNSSEC's.
fn test_cases(world: &Host, zonemaster: &Path) -> BTreeSet<String> {
    let output = world.output(Command::new(zonemaster).arg("--dump-profile")).unwrap();
    let profile: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names = profile["test_cases"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_lowercase());
    names.filter(|name| !name.starts_with("dnssec")).collect()
}

/// What Zonemaster says of the zone, with all that it did for it.
fn judge(world: &Host, zonemaster: &Path, folder: &Path) -> Vec<Value> {
    let (hints, profile) = (folder.join("hints"), folder.join("profile.json"));
    fs::write(&hints, HINTS).unwrap();
    fs::write(&profile, PROFILE).unwrap();
    let mut command = Command::new(zonemaster);
    command.arg("--hints").arg(hints).arg("--profile").arg(profile);
    command.args(["--ipv4", "--ipv6", "--level=DEBUG", "--json", "--no-progress", "fleet.example"]);
    let mut process = world.start(&command).unwrap();
    let status = process.wait_for_exit(PATIENCE).unwrap();
    assert!(status.success(), "{status}\n{}", process.log_tail());
    let log = process.log();
    let json = log.lines().find(|line| line.starts_with(['[', '{'])).expect(&log);
    let mut answer: Value = serde_json::from_str(json).unwrap();
    // Newer ones put the rows into an object.
    let rows = if answer.is_array() { answer } else { answer["results"].take() };
    rows.as_array().unwrap().clone()
}

/// DNSSEC's aside: the zone is not signed.
fn complaints(rows: &[Value], levels: &[&str]) -> Vec<String> {
    let is_meant = |row: &&Value| levels.iter().any(|level| row["level"] == *level) && row["module"] != "DNSSEC";
    let text = |row: &Value| format!("{} {} {} {}", row["level"], row["testcase"], row["tag"], row["args"]);
    rows.iter().filter(is_meant).map(text).collect()
}
