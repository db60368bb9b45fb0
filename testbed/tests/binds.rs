//! BIND is real, takes signed updates and no others, and is gone with its test.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use testbed::RunningBind;

/// Sends an update as `nsupdate` does, signed unless the arguments are empty.
fn update(bind: &RunningBind, args: &[&str], change: &str) -> Output {
    let mut nsupdate = Command::new("nsupdate");
    nsupdate.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut nsupdate = nsupdate.spawn().unwrap();
    let port = bind.address().port();
    let text = format!("server 127.0.0.1 {port}\nzone {}\nupdate {change}\nsend\n", bind.zone());
    nsupdate.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    nsupdate.wait_with_output().unwrap()
}

#[test]
fn a_signed_update_is_answered_and_transferred_and_an_unsigned_one_refused() {
    let Some(bind) = testbed::bind() else { return };
    if testbed::program("nsupdate").is_none() {
        return;
    }
    let mut bind = bind.start("fleet.example").unwrap();
    assert_eq!(bind.records().unwrap(), [""; 0]);

    let key = bind.key_path();
    let output = update(&bind, &["-k", key.to_str().unwrap()], "add *.c1.fleet.example 30 A 192.0.2.11");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(bind.answers("www.c1.fleet.example", "A").unwrap(), ["192.0.2.11"]);
    assert_eq!(bind.records().unwrap(), ["*.c1.fleet.example. 30 IN A 192.0.2.11"]);

    let output = update(&bind, &[], "add api.c1.fleet.example 30 A 192.0.2.12");
    assert!(String::from_utf8_lossy(&output.stderr).contains("REFUSED"), "{output:?}");
    assert_eq!(bind.answers("api.c1.fleet.example", "AAAA").unwrap(), [""; 0]);

    let id = bind.process().id();
    drop(bind);
    assert!(!Path::new(&format!("/proc/{id}")).exists(), "process {id} is still there");
}
