//! The controllers of Kubernetes itself, for tests that need one: nothing else collects garbage, ends namespaces or makes
//! endpoint slices.

use crate::api_server::ApiServer;
use crate::installed::{or_skip, path_variable};
use crate::kubernetes::cache_folder;
use crate::process::Process;
use crate::start::StartError;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The others would only cost: there are no nodes that run anything.
const CONTROLLERS: &str =
    "garbage-collector-controller,namespace-controller,endpointslice-controller,serviceaccount-controller";

/// It takes about 3 seconds on 2 idle cores.
const READY_WITHIN: Duration = Duration::from_mins(2);

/// The controller manager for a test that cannot do without it: `None` means that the test should return.
///
/// The test then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn controller_manager() -> Option<ControllerManager> {
    or_skip(ControllerManager::find())
}

/// The program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerManager {
    program: PathBuf,
}

/// This machine lacks the program.
#[derive(Debug, thiserror::Error)]
#[error("there is no kube-controller-manager on this machine. Run `make test` or `testbed/install`.")]
pub struct MissingControllerManager(());

impl ControllerManager {
    /// What the user chose wins over what we built; envtest's assets come without it.
    pub fn find() -> Result<Self, MissingControllerManager> {
        let folders = [path_variable("KUBEBUILDER_ASSETS"), cache_folder()];
        let programs = folders.into_iter().flatten().map(|folder| folder.join("kube-controller-manager"));
        let program = programs.into_iter().find(|program| program.is_file()).ok_or(MissingControllerManager(()))?;
        Ok(Self { program })
    }

    /// Returns once it collects garbage. It looks for new kinds only every 30 seconds: a test that defines some should
    /// do so before.
    pub fn start(&self, server: &ApiServer) -> Result<RunningControllerManager, StartError> {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(server.kubeconfig_path())
            .arg(format!("--controllers={CONTROLLERS}"))
            // It is alone, and nobody asks it anything.
            .args(["--leader-elect=false", "--secure-port=0"]);
        let mut process = Process::start(&command)?;
        process.wait_for_line("Garbage collector: all resource monitors have synced", READY_WITHIN)?;
        Ok(RunningControllerManager { process })
    }
}

/// Dropping it ends it.
pub struct RunningControllerManager {
    process: Process,
}

impl RunningControllerManager {
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
