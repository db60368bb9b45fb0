//! Fleetgate on a folder of manifests.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Instant;

use super::{Clusters, Proxy, free_address};
use crate::{cores, fleet};

const FLEET: &str = "fleet";

/// Keeps its manifests and its state below `folder`.
pub fn start(program: &Path, folder: &Path, clusters: Clusters<'_>) -> anyhow::Result<Proxy> {
    start_with(program, folder, clusters, "")
}

/// With more manifests than those of the clusters.
pub fn start_with(program: &Path, folder: &Path, clusters: Clusters<'_>, more: &str) -> anyhow::Result<Proxy> {
    let fleet = folder.join(FLEET);
    fs::create_dir_all(&fleet)?;
    let mut text = fleet::ground_manifest();
    for (member, backend) in clusters.members() {
        write!(text, "---\n{}", member.manifest(backend))?;
    }
    text.push_str(more);
    fs::write(fleet.join("fleet.yaml"), text)?;
    let door = free_address()?;
    let mut command = cores::pinned_proxy(program);
    command.arg("serve").arg("--fleet").arg(&fleet).arg("--data").arg(folder.join("data"));
    command.args(["--apiserver", &door.to_string()]);
    Proxy::start("fleetgate", door, &command)
}

/// Saves the manifest of the last of these clusters, as editors do: a hidden new file, renamed into its place. Returns
/// the moment before the rename, when nothing but the name is missing.
pub fn save_last(folder: &Path, clusters: Clusters<'_>) -> anyhow::Result<Instant> {
    let member = clusters.last();
    let fleet = folder.join(FLEET);
    let draft = fleet.join(".draft");
    fs::write(&draft, member.manifest(clusters.backend_of(member)))?;
    let saved = Instant::now();
    fs::rename(&draft, fleet.join(member.name()).with_extension("yaml"))?;
    Ok(saved)
}
