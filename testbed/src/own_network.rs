//! A test that has a network to itself: for what needs addresses that no machine has.

use std::process::Command;

const ENTERED: &str = "FLEETGATE_TEST_NETWORK";

/// Runs the test of this name, as `--exact` takes it, once more in a network of its own, whose loopback has these addresses
/// beside. `false`: it has been run there, or cannot be on this machine, and should return; `true`: it is there.
///
/// # Panics
/// If it failed there; or if `CI=true` and it cannot be run: there a test that did not run must not look like one that passed.
pub fn own_network(test: &str, addresses: &[&str]) -> bool {
    if std::env::var_os(ENTERED).is_some() {
        return true;
    }
    let add = addresses.iter().map(|address| format!("ip address add {address} dev lo && "));
    let script = format!("ip link set lo up && {}exec \"$0\" \"$@\"", add.collect::<String>());
    let enter = || {
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--net", "sh", "-c", &script]);
        unshare
    };
    if !enter().arg("true").output().is_ok_and(|output| output.status.success()) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "there can be no network of the test's own here");
        eprintln!("SKIPPED {test}: it takes unshare, ip and a kernel that permits networks of one's own");
        return false;
    }
    let program = std::env::current_exe().expect("a test is a program");
    let output = enter().arg(program).args(["--exact", test, "--nocapture"]).env(ENTERED, "1").output();
    let output = output.expect("it could be entered a moment ago");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{test} failed in its own network");
    false
}
