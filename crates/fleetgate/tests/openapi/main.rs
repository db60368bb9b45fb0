//! The interface on `--admin` of the real binary, held to its description by schemathesis.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod description;
mod fixture;

use std::path::Path;
use std::process::Command;

use description::{Asked, Description};
use fixture::{CREDENTIAL, Running};

/// Whatever is asked, there is an answer as it is described.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,allow_header_conformance";
/// What can only be told where a credential is shown: without one, what changes something is refused before it is looked at.
const MORE_CHECKS: &str = "unsupported_method,ignored_auth,use_after_free,ensure_resource_availability";

#[test]
fn with_the_credential_everything_is_as_described() {
    let Some(schemathesis) = testbed::schemathesis() else { return };
    let running = Running::start();
    let credential = format!("Authorization: Bearer {CREDENTIAL}");
    let checks = format!("{CHECKS},{MORE_CHECKS}");
    let said = run(&schemathesis, &running, &running.description(), &["--header", &credential, "--checks", &checks]);
    assert_tested(&said, running.description().operations());
    running.terminate();
}

#[test]
fn without_a_credential_everything_is_as_described() {
    let Some(schemathesis) = testbed::schemathesis() else { return };
    let running = Running::start();
    let said = run(&schemathesis, &running, &running.description(), &["--checks", CHECKS]);
    assert_tested(&said, running.description().operations());
    assert_eq!(running.credentials(), running.issued(), "nobody issued or revoked any");
    running.terminate();
}

/// Questions that have an answer in this fleet: of any others nearly all are refused, as only one thing can be asked for at a time.
#[test]
fn explanations_are_as_described() {
    let Some(schemathesis) = testbed::schemathesis() else { return };
    let running = Running::start();
    for asked in [Asked::Name, Asked::Id, Asked::Url] {
        let description = running.description().of_explanations(asked);
        let more = ["--checks", CHECKS, "--mode", "positive", "--phases", "coverage,fuzzing"];
        let said = run(&schemathesis, &running, &description, &more);
        assert_tested(&said, 1);
    }
    running.terminate();
}

/// Runs it against the server; what it finds fails the test.
fn run(schemathesis: &Path, running: &Running, description: &Description, more: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("openapi.json"), description.to_text()).unwrap();
    let url = format!("http://{}", running.admin());
    let mut command = Command::new(schemathesis);
    // In a folder of its own: no settings and no examples of an earlier run are found there.
    command.current_dir(folder.path()).args(["run", "openapi.json", "--url", &url]);
    // The same requests each time.
    command.args(["--generation-deterministic", "--max-examples", "10", "--workers", "1"]);
    // A connection lasts 10 s, and may end just when it is used again.
    command.args(["--request-retries", "2"]);
    command.args(["--no-color", "--warnings", "off", "--output-truncate", "false"]).args(more);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn assert_tested(said: &str, operations: usize) {
    assert!(said.contains(&format!("Tested: {operations}\n")), "{operations} operations: {said}");
    let cases = said.lines().find(|line| line.contains(" generated, ")).unwrap_or_default();
    let last = said.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
    println!("{}; {}", cases.trim(), last.trim_matches(['=', ' ']));
}
