//! What only a terminal sees: colours, and a line for who waits. The terminal is a real one, of util-linux' `script`.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::server::{BASE, Fleet, PATIENCE, cluster, fleetgate, nowhere};

/// `fleetgate` with these arguments at a terminal; what that shows comes out of its standard output.
fn at_terminal(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    let words: Vec<&str> = std::iter::once(env!("CARGO_BIN_EXE_fleetgate")).chain(arguments.iter().copied()).collect();
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &words.join(" "), "/dev/null"]);
    command.env("TERM", "xterm").env_remove("NO_COLOR").envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("script is there: it is in Debian's bsdutils")
}

fn shown(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let output = at_terminal(arguments, variables).wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn colours_are_for_terminals_that_show_them() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", nowhere(), 11))]);
    let server = fleet.serve();
    let admin = server.admin.to_string();
    let folder = fleet.folder();
    let get = ["get", "clusters", "--admin", &admin];
    let explain = ["explain", "api.c1.fleet.example", "--admin", &admin];
    let check = ["check", "--fleet", folder.to_str().unwrap()];
    for arguments in [get.as_slice(), &explain, &check] {
        let colours = |more: &[&str], variables: &[(&str, &str)]| {
            shown(&[arguments, more].concat(), variables).contains("\x1b[32m")
        };
        assert!(colours(&[], &[]), "{arguments:?}");
        assert!(colours(&[], &[("NO_COLOR", "")]), "{arguments:?}: nothing is no wish");
        assert!(!colours(&[], &[("NO_COLOR", "1")]), "{arguments:?}");
        assert!(!colours(&[], &[("TERM", "dumb")]), "{arguments:?}");
        assert!(!colours(&["--color", "never"], &[]), "{arguments:?}");
        assert!(colours(&["--color", "always"], &[("NO_COLOR", "1")]), "{arguments:?}: who says so wants them");
        let piped = |more: &[&str]| {
            let output = fleetgate().args(arguments).args(more).output().unwrap();
            String::from_utf8(output.stdout).unwrap().contains("\x1b[32m")
        };
        assert!(!piped(&[]) && piped(&["--color", "always"]), "{arguments:?} into a pipe");
    }
    assert!(!shown(&[get.as_slice(), &["-o", "json"]].concat(), &[]).contains('\x1b'), "JSON has none");
    server.terminate();
}

/// The server is stopped until somebody who waits has been told for what: at a terminal, and nowhere else.
#[test]
fn who_waits_at_a_terminal_is_told_for_what() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", nowhere(), 11))]);
    let mut server = fleet.serve();
    let admin = server.admin.to_string();
    server.process.signal("STOP").unwrap();
    let mut piped = fleetgate();
    piped.args(["get", "routes", "-o", "json", "--admin", &admin]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let piped = piped.spawn().unwrap();
    let mut terminal = at_terminal(&["get", "clusters", "--admin", &admin], &[]);
    let mut screen = terminal.stdout.take().unwrap();
    let mut seen = String::new();
    let begun = Instant::now();
    let line = format!("waiting for {admin} (3 s)");
    while !seen.contains(&line) {
        assert!(begun.elapsed() < PATIENCE, "never told: {seen:?}");
        let mut piece = [0; 256];
        let count = screen.read(&mut piece).unwrap();
        assert_ne!(count, 0, "it ended before it told anything: {seen:?}");
        seen.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    assert!(!seen.contains("(1 s)"), "who waits for less does not wonder: {seen:?}");
    server.process.signal("CONT").unwrap();
    screen.read_to_string(&mut seen).unwrap();
    assert!(terminal.wait().unwrap().success());
    let (_, after) = seen.rsplit_once("\r\x1b[K").unwrap();
    assert!(after.contains("NAME") && after.contains("c1"), "the line is gone before the answer: {seen:?}");

    // It waited for longer than the other.
    let output = piped.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "nobody looks at a pipe");
    assert!(serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok());
    server.terminate();
}
