//! The root file system of the image, made as the Dockerfile makes it, is all that the program needs. No container engine is
//! needed for that: the program runs in it by chroot, and cannot write to it.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testbed::Process;

const PATIENCE: Duration = Duration::from_mins(1);

const FLEET: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [127.0.0.1]}]
";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn root_file_system() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let made = Command::new(repository().join("deploy/rootfs"))
        .arg(env!("CARGO_BIN_EXE_fleetgate"))
        .arg(root.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    root
}

/// `fleetgate` as the image's entry point, in a root that it cannot write to. `None` means that the test should return.
fn contained(root: &Path, arguments: &[&str]) -> Option<Command> {
    const ENTER: &str = "\
        mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec chroot \"$0\" /usr/bin/fleetgate \"$@\"";
    let mut command = Command::new(testbed::program("unshare")?);
    command.args(["--map-root-user", "--mount", "sh", "-c", ENTER]).arg(root).args(arguments);
    // As a runtime starts it: with no variable of this machine's.
    for (variable, _) in std::env::vars_os().filter(|(variable, _)| variable != "PATH") {
        command.env_remove(variable);
    }
    Some(command)
}

#[test]
fn the_program_says_its_version_and_serves() {
    let root = root_file_system();
    let Some(mut version) = contained(root.path(), &["--version"]) else { return };
    let said = version.output().unwrap();
    let expected = format!("fleetgate {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&said.stdout), expected, "{said:?}");

    // Where a volume would be.
    fs::create_dir(root.path().join("fleet")).unwrap();
    fs::write(root.path().join("fleet/zone.yaml"), FLEET).unwrap();
    let arguments =
        ["serve", "--fleet", "/fleet", "--dns", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log-format", "json"];
    let mut server = Process::start(&contained(root.path(), &arguments).unwrap()).unwrap();
    let line = server.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let port = ready["dns"].as_str().unwrap().rsplit(':').next().unwrap();
    let Some(dig) = testbed::program("dig") else { return };
    let answer = Command::new(dig)
        .args(["@127.0.0.1", "-p", port, "+short", "+time=30", "+tries=1", "ns1.fleet.example", "A"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "127.0.0.1\n", "{answer:?}");
}

#[test]
fn nothing_is_in_it_that_is_not_needed() {
    let root = root_file_system();
    let mut found = files(root.path(), root.path());
    found.retain(|file| !file.starts_with("lib"));
    let expected =
        ["etc/group", "etc/nsswitch.conf", "etc/passwd", "etc/ssl/certs/ca-certificates.crt", "usr/bin/fleetgate"];
    assert_eq!(found, expected);

    // Never into what somebody has made already.
    let again = Command::new(repository().join("deploy/rootfs")).args(["/bin/true".as_ref(), root.path()]).output();
    assert!(!again.unwrap().status.success());
}

fn files(folder: &Path, root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, root));
        } else {
            found.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

/// What the Dockerfile says is what the rest of the repository says.
#[test]
fn the_dockerfile_agrees_with_toolchain_chart_and_script() {
    let read = |file: &str| fs::read_to_string(repository().join(file)).unwrap();
    let dockerfile = read("Dockerfile");
    let toolchain = read("rust-toolchain.toml");
    let channel = toolchain.split("channel = \"").nth(1).unwrap().split('"').next().unwrap();
    for needed in [
        format!("ARG RUST=rust:{channel}-"),
        "cargo build --release --locked --package fleetgate\n".into(),
        "RUN deploy/rootfs target/release/fleetgate /rootfs\n".into(),
        "FROM scratch\nCOPY --from=build /rootfs /\n".into(),
        "USER 65532:65532\n".into(),
        "ENTRYPOINT [\"/usr/bin/fleetgate\"]\n".into(),
    ] {
        assert!(dockerfile.contains(&needed), "{needed}");
    }
    let pod = read("deploy/chart/templates/_pod.tpl");
    assert!(pod.contains("runAsUser: 65532\n") && pod.contains("runAsGroup: 65532\n"));
    // The build copies a repository without these; nothing that is compiled may be among them.
    assert!(read(".dockerignore").lines().all(|line| !line.contains("crates") && !line.contains("Cargo")));
}
