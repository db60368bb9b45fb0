//! Which core does what: a proxy has one to itself, and all that surrounds it shares the other.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

const PROXY: usize = 0;
/// Of clients and control planes.
const LOAD: usize = 1;

/// Pins this thread, and those that it starts from now on.
pub fn pin_load() -> anyhow::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(LOAD);
    sched_setaffinity(None, &cores).context("pinning the load to a core; this benchmark needs two")
}

/// A program on the core of the proxies. It becomes the process that is started, with the same number.
pub fn pinned_proxy(program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &PROXY.to_string()]).arg(program);
    command
}

/// From now on this thread runs when nobody else wants its core, and stops at once when somebody does: as if it had one
/// elsewhere, as far as the others can tell.
pub fn give_way() -> anyhow::Result<()> {
    let thread = gettid().as_raw_nonzero().to_string();
    let status = Command::new("chrt").args(["--idle", "--pid", "0", &thread]).status();
    ensure!(status.context("running chrt")?.success(), "chrt cannot make a thread give way");
    Ok(())
}
