//! Notices that files changed, and when they are whole.
//!
//! What counts is the moment a writer closes a file or renames one into place, not each write: an editor that truncates
//! and rewrites must not make us read half a fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RemoveKind, RenameMode};
use notify::{RecursiveMode, Watcher as _};

use crate::folder;

/// How long a file that is written to and not closed may rest before it is read all the same: file systems without
/// such an event (network shares) exist.
const WRITING: Duration = Duration::from_secs(2);

/// What woke us.
pub enum Signal {
    Folder(notify::Result<notify::Event>),
    /// What agents claim has changed in the database, or somebody has let go what is held.
    Claims,
    Stop,
}

/// What has to be read again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Relative to the folder.
    pub files: BTreeSet<PathBuf>,
    /// What came or went and may have been a folder; relative to the folder.
    pub folders: BTreeSet<PathBuf>,
    /// Events may have been missed: compare everything.
    pub all: bool,
    /// What agents claim.
    pub claims: bool,
}

pub struct Watcher {
    root: PathBuf,
    events: Receiver<Signal>,
    sender: Sender<Signal>,
    /// Dropped to stop watching.
    inner: Option<notify::RecommendedWatcher>,
    /// The device and number of the folder that is being watched.
    identity: Option<(u64, u64)>,
    /// Files that manifests name; shared with the thread that events come from.
    followed: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// Files that are being written, and when to stop waiting for the end.
    writing: BTreeMap<PathBuf, Instant>,
    dirty: Dirty,
}

impl Watcher {
    pub fn new(root: &Path) -> Self {
        let (sender, events) = mpsc::channel();
        Self {
            root: root.into(),
            events,
            sender,
            inner: None,
            identity: None,
            followed: Arc::default(),
            writing: BTreeMap::new(),
            dirty: Dirty::default(),
        }
    }

    /// For whoever wants to end [`Watcher::wait`].
    pub fn sender(&self) -> Sender<Signal> {
        self.sender.clone()
    }

    /// Watches the folder that is at the path now; what is in it already has to be read after this.
    pub fn rewatch(&mut self) -> notify::Result<()> {
        self.inner = None;
        self.identity = identity(&self.root);
        let (sender, root, followed) = (self.sender.clone(), self.root.clone(), Arc::clone(&self.followed));
        let mut inner = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // One save makes half a dozen events, and each that is passed on wakes a thread.
            if event.as_ref().is_ok_and(|event| !concerns_us(event, &root, &lock(&followed))) {
                return;
            }
            // Nobody listens any more only while the program ends.
            let _ = sender.send(Signal::Folder(event));
        })?;
        inner.watch(&self.root, RecursiveMode::Recursive)?;
        self.inner = Some(inner);
        Ok(())
    }

    /// Files that are no manifests and count all the same; relative to the folder.
    pub fn follow(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        *lock(&self.followed) = files.into_iter().collect();
    }

    /// Whether another folder is at the path now: renamed into its place, or deleted and made anew.
    pub fn root_changed(&self) -> bool {
        identity(&self.root) != self.identity
    }

    /// Waits until something has to be read or `until` has come; `None` means stop.
    pub fn wait(&mut self, until: Instant) -> Option<Dirty> {
        loop {
            let now = Instant::now();
            self.settle(now);
            if self.dirty != Dirty::default() || now >= until {
                return Some(std::mem::take(&mut self.dirty));
            }
            let due = self.writing.values().min().copied().unwrap_or(until).min(until);
            match self.events.recv_timeout(due.saturating_duration_since(now)) {
                Ok(signal) => {
                    // Take all that has piled up: a thousand files are read in one go, not in a thousand.
                    for signal in std::iter::once(signal).chain(self.events.try_iter().collect::<Vec<_>>()) {
                        match signal {
                            Signal::Stop => return None,
                            Signal::Claims => self.dirty.claims = true,
                            Signal::Folder(event) => self.take(event),
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Whether a file is in the middle of being written.
    pub fn is_being_written(&self, file: &Path) -> bool {
        self.writing.contains_key(file)
    }

    fn settle(&mut self, now: Instant) {
        let rested: Vec<_> = self.writing.extract_if(.., |_, due| *due <= now).map(|(file, _)| file).collect();
        self.dirty.files.extend(rested);
    }

    fn take(&mut self, event: notify::Result<notify::Event>) {
        let Ok(event) = event else {
            self.dirty.all = true;
            return;
        };
        if event.need_rescan() {
            self.dirty.all = true;
        }
        let Some(step) = step(event.kind) else { return };
        for path in &event.paths {
            let Ok(file) = path.strip_prefix(&self.root) else { continue };
            if folder::is_manifest(file) || lock(&self.followed).contains(file) {
                self.note(file, step, path);
            } else if is_swap(file) {
                // A mounted `ConfigMap`, whose `..data` now points at new files.
                self.dirty.all = true;
            } else if !folder::is_hidden(file) && (path.is_dir() || folder_went(event.kind)) {
                self.dirty.folders.insert(file.into());
            }
        }
    }

    fn note(&mut self, file: &Path, step: Step, path: &Path) {
        // Links are whole when they appear; nobody will close them.
        let is_link = || path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        match step {
            Step::Touched if self.writing.contains_key(file) => {}
            Step::Writing if !is_link() => _ = self.writing.insert(file.into(), Instant::now() + WRITING),
            Step::Ended | Step::Touched | Step::Writing => {
                self.writing.remove(file);
                self.dirty.files.insert(file.into());
            }
        }
    }
}

/// Where in its saving a file is.
#[derive(Clone, Copy)]
enum Step {
    Writing,
    /// Its permissions or times changed, perhaps while it is being written.
    Touched,
    Ended,
}

fn step(kind: EventKind) -> Option<Step> {
    match kind {
        // Both ends of a renaming have been told of before.
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => None,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Name(_))
        | EventKind::Remove(_) => Some(Step::Ended),
        EventKind::Modify(ModifyKind::Metadata(_)) => Some(Step::Touched),
        EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Any) | EventKind::Create(_) => Some(Step::Writing),
        _ => None,
    }
}

/// Whether an event may change anything: not that a file was opened, which we do ourselves, nor what editors do to
/// hidden files.
fn concerns_us(event: &notify::Event, root: &Path, followed: &BTreeSet<PathBuf>) -> bool {
    let counts = |file: &Path| !folder::is_hidden(file) || is_swap(file) || followed.contains(file);
    let mut files = event.paths.iter().filter_map(|path| path.strip_prefix(root).ok());
    event.need_rescan() || (step(event.kind).is_some() && files.any(counts))
}

fn lock(followed: &Mutex<BTreeSet<PathBuf>>) -> MutexGuard<'_, BTreeSet<PathBuf>> {
    followed.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity(root: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    root.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Of what was moved away nobody can tell any more whether it was a folder.
fn folder_went(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Remove(RemoveKind::Folder | RemoveKind::Any) | EventKind::Modify(ModifyKind::Name(RenameMode::From))
    )
}

fn is_swap(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == "..data")
}
