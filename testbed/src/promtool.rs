//! The real promtool, which reads rules as Prometheus does and has them judge series.

use crate::installed::{cache, on_path, or_skip};
use std::path::PathBuf;

/// For a test that cannot do without it: `None` means that the test should return.
///
/// The test then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn promtool() -> Option<PathBuf> {
    let in_cache = cache().map(|cache| cache.join("promtool/promtool")).filter(|path| path.is_file());
    or_skip(on_path("promtool").or(in_cache).ok_or(MissingPromtool))
}

#[derive(Debug, thiserror::Error)]
#[error("there is no promtool on this machine. Run `make test` or `testbed/install`.")]
struct MissingPromtool;
