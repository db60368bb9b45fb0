//! A temporary folder that does not stay behind when its test is killed.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;
use std::{env, io};
use tempfile::TempDir;

const PREFIX: &str = "fleetgate-testbed.";

/// Held locked by the owner; the kernel unlocks it when the owner is gone, however it went.
const LOCK: &str = "lock";

/// A folder is made a moment before it is locked. Nobody takes this long in between.
const SURELY_LOCKED_AFTER: Duration = Duration::from_mins(1);

/// Removed on drop. A killed test cannot do that, and an etcd leaves over 100 MB, so whoever makes
/// the next one removes what the dead left.
pub struct WorkDir {
    folder: TempDir,
    _lock: File,
}

impl WorkDir {
    pub fn create() -> io::Result<Self> {
        remove_abandoned(&env::temp_dir());
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let lock = File::create(folder.path().join(LOCK))?;
        lock.lock()?;
        Ok(Self { folder, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Tidying up must not fail a test: what cannot be looked at or removed, stays.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(folder: &Path) -> bool {
    let Ok(lock) = File::open(folder.join(LOCK)) else { return false };
    let age = lock.metadata().and_then(|file| file.modified()).ok().and_then(|made| made.elapsed().ok());
    age.is_some_and(|age| age > SURELY_LOCKED_AFTER) && lock.try_lock().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn only_old_folders_without_an_owner_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, age: u64| {
            let folder = parent.path().join(format!("{PREFIX}{name}"));
            fs::create_dir(&folder).unwrap();
            let lock = File::create(folder.join(LOCK)).unwrap();
            lock.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            (folder, lock)
        };
        let (abandoned, _) = make("abandoned", 3600);
        let (young, _) = make("young", 0);
        let (owned, lock) = make("owned", 3600);
        lock.lock().unwrap();

        remove_abandoned(parent.path());

        assert_eq!([abandoned.exists(), young.exists(), owned.exists()], [false, true, true]);
    }
}
