//! The folder as it is on disk: which files are manifests, and what they hold.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use manifest::Mistake;

/// 32 MiB hold the manifests of some 50,000 clusters; a larger file is more likely a mistake than a fleet.
pub const MAX_FILE: u64 = 32 << 20;
/// For files that manifests name, which are read whole as well: zone files are the largest.
pub const MAX_BESIDE: u64 = manifest::zone_file::MAX_OCTETS;
/// Deeper than any layout that people keep, and an end for folders that are mounted into themselves.
const MAX_DEPTH: usize = 16;

/// Tells whether a file is still the one that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    file: u64,
    size: u64,
    modified: Option<SystemTime>,
    /// Changes with every write, also where the modification time is set back.
    changed: (i64, i64),
}

/// Every manifest file below `root`, relative to it, by its stamp. Hidden files and folders are left out, as editors and
/// version control keep theirs there.
pub fn scan(root: &Path) -> io::Result<BTreeMap<PathBuf, Stamp>> {
    let mut found = BTreeMap::new();
    walk(root, Path::new(""), 0, &mut found)?;
    Ok(found)
}

fn walk(root: &Path, below: &Path, depth: usize, found: &mut BTreeMap<PathBuf, Stamp>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if is_hidden(&path) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() && depth < MAX_DEPTH {
            // A folder that vanishes while we walk is like one that was never there.
            match walk(root, &path, depth + 1, found) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        } else if is_manifest(&path)
            && let Some(stamp) = stamp(&root.join(&path))
        {
            found.insert(path, stamp);
        }
    }
    Ok(())
}

/// Whether a file of this name is read at all.
pub fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json")) && !path.iter().any(|part| is_hidden(Path::new(part)))
}

/// Editors, version control and mounted `ConfigMap`s keep their own things under names with a leading dot.
pub fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// `None` for what is gone or no regular file; symbolic links are followed, as mounted `ConfigMap`s are made of them.
pub fn stamp(path: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(Stamp {
        file: metadata.ino(),
        size: metadata.len(),
        modified: metadata.modified().ok(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

/// The text of a manifest file, or why it is none.
pub fn read(path: &Path) -> Result<String, Mistake> {
    let at_start = |reason: String| Mistake { line: 1, column: 1, reason };
    let file = fs::File::open(path).map_err(|error| at_start(format!("cannot be opened: {error}")))?;
    let octets = read_up_to(file, MAX_FILE + 1).map_err(|error| at_start(format!("cannot be read: {error}")))?;
    if octets.len() as u64 > MAX_FILE {
        return Err(at_start(format!("the file is longer than {} MiB; split it", MAX_FILE >> 20)));
    }
    String::from_utf8(octets).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let mut lines = good.split(|octet| *octet == b'\n');
        let (line, column) = (lines.clone().count(), 1 + lines.next_back().map_or(0, <[u8]>::len));
        Mistake { line, column, reason: "this is no UTF-8 text".into() }
    })
}

/// Where a path that a manifest gives leads to, relative to the folder: beside the manifest or below, nowhere else.
pub fn beside(manifest: &Path, path: &str) -> Result<PathBuf, String> {
    let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !inside || path.is_empty() {
        return Err("the path of a file beside a manifest is relative and has no `..`".into());
    }
    Ok(manifest.parent().unwrap_or(Path::new("")).join(path).components().collect())
}

/// The content of a file that a manifest names, or why it cannot be had.
pub fn read_beside(path: &Path) -> Result<Vec<u8>, String> {
    let file = fs::File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let octets = read_up_to(file, MAX_BESIDE + 1).map_err(|error| format!("cannot be read: {error}"))?;
    if octets.len() as u64 > MAX_BESIDE {
        return Err(format!("the file is longer than {} MiB", MAX_BESIDE >> 20));
    }
    Ok(octets)
}

fn read_up_to(file: fs::File, limit: u64) -> io::Result<Vec<u8>> {
    // One octet more than there are, so that the end is found without growing.
    let length = (file.metadata()?.len() + 1).min(limit);
    let mut octets = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    file.take(limit).read_to_end(&mut octets)?;
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_manifests_are_found() {
        let root = tempfile::tempdir().unwrap();
        for file in [
            "a.yaml",
            "b.yml",
            "c.json",
            "d.txt",
            ".hidden.yaml",
            "e.yaml~",
            ".f.yaml.swp",
            "sub/g.yaml",
            ".git/h.yaml",
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink(root.path().join("d.txt"), root.path().join("linked.yaml")).unwrap();
        std::os::unix::fs::symlink(root.path().join("nowhere"), root.path().join("dangling.yaml")).unwrap();
        std::os::unix::fs::symlink(root.path(), root.path().join("loop")).unwrap();
        let found: Vec<_> = scan(root.path()).unwrap().into_keys().collect();
        let expected = ["a.yaml", "b.yml", "c.json", "linked.yaml", "sub/g.yaml"].map(PathBuf::from);
        assert_eq!(found, expected);
        for name in [".git/h.yaml", ".hidden.yaml", "..data/a.yaml"] {
            assert!(!is_manifest(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn paths_beside_a_manifest_stay_in_its_folder() {
        for (manifest, path, expected) in [
            ("a.yaml", "k.key", Some("k.key")),
            ("sub/a.yaml", "./keys/k.key", Some("sub/keys/k.key")),
            ("sub/a.yaml", "../k.key", None),
            ("a.yaml", "/etc/passwd", None),
            ("a.yaml", "", None),
        ] {
            assert_eq!(beside(Path::new(manifest), path).ok(), expected.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn files_that_cannot_be_taken_are_explained() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.yaml");
        fs::write(&path, b"a: 1\nb: \xff\n").unwrap();
        let mistake = read(&path).unwrap_err();
        assert_eq!((mistake.line, mistake.column), (2, 4), "{mistake}");
        fs::File::create(&path).unwrap().set_len(MAX_FILE + 1).unwrap();
        assert!(read(&path).unwrap_err().reason.contains("longer than 32 MiB"));
        assert!(read(&root.path().join("none.yaml")).unwrap_err().reason.contains("cannot be opened"));
    }
}
