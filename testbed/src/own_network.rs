//! A test that has a network to itself: for what needs addresses that no machine has.

use crate::installed;
use crate::process::tied_to_parent;
use std::path::Path;
use std::process::Command;

const ENTERED: &str = "FLEETGATE_TEST_NETWORK";

/// Runs the test of this name, as `--exact` takes it, once more in a network of its own, whose loopback has these addresses
/// beside. `false`: it has been run there, or cannot be on this machine, and should return; `true`: it is there.
///
/// # Panics
/// If it failed there; or if `CI=true` and it cannot be run: there a test that did not run must not look like one that passed.
pub fn own_network(test: &str, addresses: &[&str]) -> bool {
    let add = addresses.iter().map(|address| format!("ip address add {address} dev lo && "));
    let script = format!("ip link set lo up && {}exec \"$0\" \"$@\"", add.collect::<String>());
    again(test, &["--map-root-user", "--net"], &script)
}

/// What a test finds on a machine of its own.
pub struct Machine<'a> {
    /// Networks of which the machine has every address: `192.0.2.0/24`.
    pub networks: &'a [&'a str],
    /// Lines of /etc/hosts, beside the usual ones.
    pub hosts: &'a str,
    /// Folders that it has to see even if they are below /tmp; the one with the programs of `testbed/install` it always does.
    pub kept: &'a [&'a Path],
}

/// As [`own_network`], and what is below /etc may be changed there without anybody else noticing; /run, /tmp and /var/lib are
/// empty and its own. Names are found in /etc/hosts alone. Processes that the test left behind end with it.
///
/// # Panics
/// As [`own_network`].
pub fn own_machine(test: &str, machine: &Machine<'_>) -> bool {
    let routes = machine.networks.iter().map(|network| {
        let family = if network.contains(':') { "-6" } else { "-4" };
        format!("ip {family} route add local {network} dev lo\n")
    });
    let cache = installed::cache().filter(|cache| cache.is_dir());
    let kept = machine.kept.iter().copied().chain(cache.as_deref());
    let kept = kept.filter_map(|kept| kept.strip_prefix("/tmp").ok()).map(|kept| {
        let kept = kept.display();
        format!("mkdir -p '/tmp/{kept}'\nmount --bind '/run/machine/tmp/{kept}' '/tmp/{kept}'\n")
    });
    let (routes, kept, hosts) = (routes.collect::<String>(), kept.collect::<String>(), machine.hosts);
    let script = format!(
        "set -e
ip link set lo up
{routes}mount -t tmpfs tmpfs /run
mkdir -p /run/machine/tmp /run/machine/etc
# A copy, so that it belongs to who is root here; without what only the machine's own root may read.
cp -a /etc/. /run/machine/etc 2>/dev/null || true
mount --bind /run/machine/etc /etc
mount -t tmpfs tmpfs /var/lib
mount --bind /tmp /run/machine/tmp
mount -t tmpfs -o mode=1777 tmpfs /tmp
{kept}cat >> /etc/hosts <<'END'
{hosts}
END
rm -f /etc/resolv.conf
echo nameserver 192.0.2.253 > /etc/resolv.conf
exec \"$0\" \"$@\""
    );
    let apart = ["--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    again(test, &apart, &script)
}

fn again(test: &str, apart: &[&str], script: &str) -> bool {
    if std::env::var_os(ENTERED).is_some() {
        return true;
    }
    let enter = |program: &Path, arguments: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(apart).args(["sh", "-c", script]).arg(program).args(arguments).env(ENTERED, "1");
        // Whoever interrupts the outer test ends the inner one.
        tied_to_parent(&unshare).output()
    };
    let tried = enter(Path::new("true"), &[]);
    if !tried.as_ref().is_ok_and(|output| output.status.success()) {
        let why = match &tried {
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        assert!(std::env::var("CI").as_deref() != Ok("true"), "there can be no network of the test's own here: {why}");
        eprintln!("SKIPPED {test}: it takes unshare, ip and a kernel that permits networks of one's own: {why}");
        return false;
    }
    let program = std::env::current_exe().expect("a test is a program");
    let output = enter(&program, &["--exact", test, "--nocapture"]).expect("it could be entered a moment ago");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{test} failed in its own network");
    false
}
