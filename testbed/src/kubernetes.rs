//! Where the Kubernetes programs are that `testbed/install` built, or that the user brought along.

use crate::installed::{self, or_skip, path_variable};
use std::path::{Path, PathBuf};

/// The file that pins the version which `testbed/install` builds.
const GO_MOD: &str = include_str!("../kubernetes/go.mod");

/// Kubernetes for a test that cannot do without it: `None` means that the test should return.
///
/// The test then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn kubernetes() -> Option<Kubernetes> {
    or_skip(Kubernetes::find())
}

/// A folder with `kube-apiserver`, `etcd` and `kubectl`, laid out as envtest's assets are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubernetes {
    folder: PathBuf,
}

/// This machine lacks the programs.
#[derive(Debug, thiserror::Error)]
#[error(
    "no kube-apiserver, etcd and kubectl in {}. Run `make test` or `testbed/install`, \
     or set KUBEBUILDER_ASSETS to a folder that has them.",
    describe(.looked_in)
)]
pub struct Missing {
    looked_in: Vec<PathBuf>,
}

impl Kubernetes {
    /// What the user chose wins over what we built.
    pub fn find() -> Result<Self, Missing> {
        Self::find_in([path_variable("KUBEBUILDER_ASSETS"), cache_folder()].into_iter().flatten().collect())
    }

    fn find_in(folders: Vec<PathBuf>) -> Result<Self, Missing> {
        match folders.iter().find(|folder| is_complete(folder)) {
            Some(folder) => Ok(Self { folder: folder.clone() }),
            None => Err(Missing { looked_in: folders }),
        }
    }

    pub fn kube_apiserver(&self) -> PathBuf {
        self.folder.join("kube-apiserver")
    }

    pub fn etcd(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    pub fn kubectl(&self) -> PathBuf {
        self.folder.join("kubectl")
    }
}

fn is_complete(folder: &Path) -> bool {
    ["kube-apiserver", "etcd", "kubectl"].iter().all(|program| folder.join(program).is_file())
}

/// Must agree with `testbed/install`, which fills it.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    Some(installed::cache()?.join(format!("kubernetes-{}", pinned_version())))
}

fn pinned_version() -> &'static str {
    installed::pinned_version(GO_MOD, "k8s.io/kubernetes")
}

fn describe(folders: &[PathBuf]) -> String {
    match folders {
        [] => "any folder (neither KUBEBUILDER_ASSETS nor HOME is set)".to_owned(),
        _ => folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" or "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_version_is_read_from_go_mod() {
        assert!(pinned_version().starts_with("v1."), "{}", pinned_version());
    }

    #[test]
    fn an_incomplete_folder_is_passed_over() {
        let incomplete = tempfile::tempdir().unwrap();
        fs::write(incomplete.path().join("etcd"), "").unwrap();
        let complete = tempfile::tempdir().unwrap();
        for program in ["kube-apiserver", "etcd", "kubectl"] {
            fs::write(complete.path().join(program), "").unwrap();
        }

        let found = Kubernetes::find_in(vec![incomplete.path().into(), complete.path().into()]).unwrap();
        assert_eq!(found.etcd(), complete.path().join("etcd"));
    }

    #[test]
    fn what_is_missing_says_where_it_looked_and_what_to_run() {
        let message = Kubernetes::find_in(vec!["/nowhere".into()]).unwrap_err().to_string();
        assert!(message.contains("/nowhere") && message.contains("testbed/install"), "{message}");
    }
}
