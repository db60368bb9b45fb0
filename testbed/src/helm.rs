//! The real Helm, which lints, renders and installs charts.

use crate::installed::{NotBuilt, built, or_skip};
use crate::process::tied_to_parent;
use crate::work_dir::WorkDir;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::{fmt, io};

/// The file that pins the version which `testbed/install` builds.
const GO_MOD: &str = include_str!("../helm/go.mod");

/// Helm for a test that cannot do without it: `None` means that the test should return.
///
/// The test then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn helm() -> Option<Helm> {
    or_skip(Helm::find())
}

/// The program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helm {
    program: PathBuf,
}

/// Its `Debug` is its `Display`: tests unwrap, and escaped lines are unreadable.
#[derive(thiserror::Error)]
pub enum HelmError {
    #[error("this machine cannot run helm {args}: {source}")]
    NotRun { args: String, source: io::Error },
    /// Helm said no; linting says what it found on standard output.
    #[error("helm {args} ended with {status}: {stdout}{stderr}")]
    Refused { args: String, status: ExitStatus, stdout: String, stderr: String },
}

impl fmt::Debug for HelmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Helm {
    pub fn find() -> Result<Self, NotBuilt> {
        Ok(Self { program: built("helm", "HELM", GO_MOD, "helm.sh/helm/v3")? })
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it and returns what it printed. To reach a cluster it wants `--kubeconfig` among `args`.
    pub fn run(&self, args: &[&str]) -> Result<String, HelmError> {
        let mut helm = Command::new(&self.program);
        helm.args(args);
        let mut run = || {
            // Not the plugins, repositories and cluster of the person at this machine.
            let home = WorkDir::create()?;
            for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
                helm.env(variable, home.path());
            }
            tied_to_parent(helm.env("KUBECONFIG", "/dev/null")).output()
        };
        let output = run().map_err(|source| HelmError::NotRun { args: args.join(" "), source })?;
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        if output.status.success() {
            return Ok(stdout);
        }
        Err(HelmError::Refused { args: args.join(" "), status: output.status, stdout, stderr })
    }
}
