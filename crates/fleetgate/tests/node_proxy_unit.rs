//! The systemd unit of the node proxy is one that systemd takes.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::path::Path;
use std::process::Command;

#[test]
fn systemd_has_nothing_to_say_against_the_unit() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/node-proxy/fleetgate-node-proxy.service");
    let text = std::fs::read_to_string(unit).unwrap();
    // With every line that somebody may uncomment, and the program where it is now.
    let text = text.replace("#LoadCredential", "LoadCredential").replace("#Environment", "Environment");
    let text = text.replace("/usr/local/bin/fleetgate", env!("CARGO_BIN_EXE_fleetgate"));
    let text = text.replace("/usr/sbin/ip", "/bin/true");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleetgate-node-proxy.service");
    std::fs::write(&path, text).unwrap();
    let output =
        Command::new("systemd-analyze").args(["verify", "--man=no", "--recursive-errors=no"]).arg(&path).output();
    let output = output.expect("systemd-analyze is there: testbed/install installs it");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("fleetgate-node-proxy.service"), "{said}");
}
