//! Fleetgate on a folder of manifests.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{Clusters, Proxy, free_address};
use crate::{cores, fleet};

/// Keeps its manifests below `folder`.
pub fn start(program: &Path, folder: &Path, clusters: Clusters<'_>) -> anyhow::Result<Proxy> {
    let fleet = folder.join("fleet");
    fs::create_dir_all(&fleet)?;
    let mut text = fleet::ground_manifest();
    for (member, backend) in clusters.members() {
        write!(text, "---\n{}", member.manifest(backend))?;
    }
    fs::write(fleet.join("fleet.yaml"), text)?;
    let door = free_address()?;
    let mut command = cores::pinned_proxy(program);
    command.arg("serve").arg("--fleet").arg(&fleet).args(["--apiserver", &door.to_string()]);
    Proxy::start("fleetgate", door, &command)
}
