//! The real schemathesis, which asks a server everything that its OpenAPI description allows, and more.

use crate::installed::{cache, or_skip, path_variable};
use std::path::PathBuf;

/// The file that pins the version which `testbed/install` fetches.
const WANTED: &str = include_str!("../schemathesis/requirements.txt");

/// For a test that cannot do without it: `None` means that the test should return.
///
/// The test then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn schemathesis() -> Option<PathBuf> {
    let version = WANTED.lines().find_map(|line| line.strip_prefix("schemathesis==")?.split(' ').next());
    let folder = format!("schemathesis-{}", version.expect("its own requirements name it"));
    let in_cache = cache().map(|cache| cache.join(folder).join("schemathesis"));
    let found = [path_variable("SCHEMATHESIS"), in_cache].into_iter().flatten().find(|path| path.is_file());
    or_skip(found.ok_or(MissingSchemathesis))
}

#[derive(Debug, thiserror::Error)]
#[error(
    "there is no schemathesis on this machine. Run `make test` or `testbed/install`, or set SCHEMATHESIS to the path of one."
)]
struct MissingSchemathesis;
