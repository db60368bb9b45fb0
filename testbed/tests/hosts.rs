//! Hosts reach each other by the addresses they were given, nothing else, and are gone with their test.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use testbed::{Host, Process};

/// Far more than any of these needs, so that a busy machine fails none of them.
const PATIENCE: Duration = Duration::from_secs(30);

fn two_hosts() -> Option<[Host; 2]> {
    testbed::hosts([&["11.0.0.1/8", "2600::1/16"], &["11.0.0.2/8", "2600::2/16"]])
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn printed(host: &Host, script: &str) -> String {
    let output = host.output(&shell(script)).unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn hosts_reach_each_other_and_nothing_else() {
    let Some([first, second]) = two_hosts() else { return };
    for (host, others) in [(&first, ["11.0.0.2", "2600::2"]), (&second, ["11.0.0.1", "2600::1"])] {
        for other in others {
            let route = printed(host, &format!("ip route get {other}"));
            assert!(route.contains("dev cable"), "{route}");
        }
        for outside in ["192.0.2.1", "2001:db8::1"] {
            let route = host.output(&shell(&format!("ip route get {outside}"))).unwrap();
            assert!(!route.status.success(), "{route:?}");
        }
        let links = printed(host, "ip -oneline link show");
        assert_eq!(links.lines().count(), 2, "loopback and the cable: {links}");
    }
    let networks = [network(&first), network(&second), fs::read_link("/proc/self/ns/net").unwrap()];
    assert_eq!(BTreeSet::from(networks).len(), 3);
}

/// Set for the run of this same file that is to be killed.
const VICTIM: &str = "TESTBED_VICTIM";

#[test]
fn a_killed_test_takes_its_hosts_and_what_runs_on_them_along() {
    if two_hosts().is_none() {
        return;
    }
    let mut test = Command::new(env::current_exe().unwrap());
    test.args(["--exact", "victim_of_the_test_above", "--nocapture"]).env(VICTIM, "yes");
    let mut test = Process::start(&test).unwrap();
    let line = test.wait_for_line("networks: ", PATIENCE).unwrap();
    let networks: Vec<&Path> = line.split(' ').skip(1).map(Path::new).collect();
    assert!(networks.len() == 2 && networks.iter().all(|network| is_used(network)), "{line}");

    drop(test); // by SIGKILL, so it cannot clean up

    let deadline = Instant::now() + PATIENCE;
    while networks.iter().any(|network| is_used(network)) {
        assert!(Instant::now() < deadline, "waited for {PATIENCE:?} until {networks:?} are gone");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn victim_of_the_test_above() {
    if env::var_os(VICTIM).is_none() {
        return;
    }
    let [first, second] = two_hosts().unwrap();
    let running = [&first, &second].map(|host| host.start(&shell("exec sleep 600")).unwrap());
    println!("networks: {} {}", network(&first).display(), network(&second).display());
    thread::sleep(PATIENCE);
    drop(running);
}

/// What the kernel calls it.
fn network(host: &Host) -> PathBuf {
    printed(host, "readlink /proc/self/ns/net").trim_end().into()
}

/// Whether any process of this machine is in it.
fn is_used(network: &Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut used = processes.filter_map(|process| fs::read_link(process.path().join("ns/net")).ok());
    used.any(|used| used == network)
}
