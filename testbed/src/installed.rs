//! Where `testbed/install` puts programs, and what a test does without them.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::{env, thread};

/// Where Debian has servers, and where only root's shell looks.
const FOR_ROOT: &str = "/usr/sbin";

/// A program of this machine's that a test cannot do without: `None` means that the test should return.
///
/// The test then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn program(name: &'static str) -> Option<PathBuf> {
    or_skip(on_path(name).ok_or(MissingProgram(name)))
}

#[derive(Debug, thiserror::Error)]
#[error("there is no {0} on this machine. Run `make test` or `testbed/install`.")]
struct MissingProgram(&'static str);

pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([FOR_ROOT.into()]);
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// `None` means that the test should return. It then counts as passed, so this says loudly that it was skipped; under
/// `CI=true` it panics, where a test that did not run must not look like one that passed.
pub(crate) fn or_skip<T>(found: Result<T, impl Display>) -> Option<T> {
    let missing = match found {
        Ok(found) => return Some(found),
        Err(missing) => missing,
    };
    let test = thread::current().name().unwrap_or("a test").to_owned();
    assert!(env::var("CI").as_deref() != Ok("true"), "{test} cannot run: {missing}");
    // Not eprintln!: the test harness captures that and drops it when the test passes. Nothing can
    // be done if even this cannot be written.
    let _ = writeln!(io::stderr(), "\nSKIPPED: {test}: {missing}\n");
    None
}

/// What `testbed/install` built from a go.mod that pins `module`, unless `variable` names the user's own.
pub(crate) fn built(
    program: &'static str,
    variable: &'static str,
    go_mod: &str,
    module: &str,
) -> Result<PathBuf, NotBuilt> {
    let folder = format!("{program}-{}", pinned_version(go_mod, module));
    let in_cache = cache().map(|cache| cache.join(folder).join(program));
    let found = [path_variable(variable), in_cache].into_iter().flatten().find(|path| path.is_file());
    found.ok_or(NotBuilt { program, variable })
}

/// This machine lacks a program that is built from source.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no {program} on this machine. Run `make test` or `testbed/install`, or set {variable} to the path of one."
)]
pub struct NotBuilt {
    program: &'static str,
    variable: &'static str,
}

/// go.mod is the only place that names the version; `testbed/install` reads it there as well.
pub(crate) fn pinned_version<'a>(go_mod: &'a str, module: &str) -> &'a str {
    go_mod
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("require ").strip_prefix(module)?.strip_prefix(' '))
        .find_map(|version| version.split_whitespace().next())
        .expect("the go.mod of a program requires it")
}

/// Must agree with `testbed/install`, which fills it.
pub(crate) fn cache() -> Option<PathBuf> {
    path_variable("FLEETGATE_CACHE")
        .or_else(|| path_variable("XDG_CACHE_HOME").map(|caches| caches.join("fleetgate")))
        .or_else(|| path_variable("HOME").map(|home| home.join(".cache/fleetgate")))
}

/// As in the shell, a variable that is empty counts as not set.
pub(crate) fn path_variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
