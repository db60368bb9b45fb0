//! What the chart says on its own, without Helm.

use std::fs;
use std::process::Command;

use crate::helm::repository;

#[test]
fn definitions_are_those_that_the_program_prints() {
    let printed = Command::new(env!("CARGO_BIN_EXE_fleetgate")).arg("crds").output().unwrap();
    let kept = fs::read_to_string(repository().join("deploy/chart/files/crds.yaml")).unwrap();
    let same = kept == String::from_utf8(printed.stdout).unwrap();
    assert!(same, "run `cargo run --package fleetgate -- crds > deploy/chart/files/crds.yaml`");
}

#[test]
fn chart_and_program_have_one_version() {
    let chart = fs::read_to_string(repository().join("deploy/chart/Chart.yaml")).unwrap();
    for key in ["version", "appVersion"] {
        let line = format!("{key}: {}", env!("CARGO_PKG_VERSION"));
        assert!(chart.lines().any(|found| found == line), "{line}\n{chart}");
    }
}
