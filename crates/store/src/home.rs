//! What the folder means: which objects there are, what changed, and which files are refused.
//!
//! A file is taken whole or not at all. While it is refused, the objects that it held before stay as they were; every
//! other file goes on. What was taken is on disk before anybody hears of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use foldhash::quality::RandomState;
use manifest::dns_endpoint::{self, EndpointSpec};
use manifest::{Document, Manifest, Missing, Mistake, Source, Value};
use model::identity::Kind;
use model::resource::{Endpoint, RecordClaims};
use model::{ClusterName, Fact, FactChange, ObjectRef, Since, Timestamp};

use crate::agents::ClaimRow;
use crate::database::{Database, DatabaseError, Record};
use crate::folder::{self, Stamp};
use crate::parallel;
use crate::ports::{PortDesk, Resolver};
use crate::watch::{Dirty, Signal, Watcher};

/// How long a file may be away before its objects go. Editors that write a new file and rename leave a gap, and a whole
/// folder that is being deleted loses its files one by one before it is seen to be gone itself.
const ABSENCE: Duration = Duration::from_millis(500);
/// How often the folder is looked at without being told: is it still the same, and has anything slipped by?
const PATROL: Duration = Duration::from_secs(1);
/// How often all files are compared, for changes that no event tells of (links out of the folder, network shares).
const COMPARE: Duration = Duration::from_secs(10);
/// Enough to mend a file by; a file of another format would give one per document.
const MISTAKES_PER_FILE: usize = 20;

pub struct Home {
    root: PathBuf,
    database: Arc<Database>,
    watcher: Watcher,
    files: BTreeMap<PathBuf, FileState>,
    /// Files that are refused, and why. Apart from all others, of which there are many more.
    mistaken: BTreeMap<PathBuf, Vec<Mistake>>,
    /// Files that are away, and since when.
    missing: BTreeMap<PathBuf, Instant>,
    held: HashMap<ObjectRef, Held>,
    /// Where there is a resolver.
    ports: Option<PortDesk>,
    /// The manifests that name a file, by that file.
    named_by: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    /// What became of claims that there were before: written once the plan has said what of it is held.
    later: Vec<(ObjectRef, Option<Record>)>,
    /// What could not be written to the database yet.
    unsaved: BTreeMap<ObjectRef, Option<Record>>,
    /// The latest `since` that was given: a clock that is set back makes nobody senior.
    latest: Timestamp,
    digests: RandomState,
    folder_error: Option<FolderError>,
    /// What the last update said is wrong.
    told: (Vec<RefusedFile>, Option<FolderError>),
    compared: Instant,
}

#[derive(Default)]
struct FileState {
    stamp: Option<Stamp>,
    objects: BTreeSet<ObjectRef>,
    /// The files that its documents name, as they were when it was last read.
    beside: Beside,
}

/// Files that a manifest names, relative to the folder; `None` for one that was not there.
type Beside = BTreeMap<PathBuf, Option<Stamp>>;

/// An object that serves, and the document that it was last taken from.
struct Held {
    file: PathBuf,
    line: usize,
    digest: u64,
    since: Timestamp,
    /// The files that the document names.
    beside: Beside,
}

/// What happened in the folder since the last update.
#[derive(Debug, Default)]
pub struct Update {
    /// What an earlier process knew, for the first update alone. To be planned before the facts: what changed while nobody
    /// looked is then a change like any other, and nodes that went meanwhile have their grace time.
    pub recalled: Vec<FactChange>,
    pub facts: Vec<FactChange>,
    /// All files that are refused now.
    pub refused: Vec<RefusedFile>,
    pub folder: Option<FolderError>,
    /// The state is served but would not survive a restart.
    pub unsaved: Option<DatabaseError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedFile {
    pub file: PathBuf,
    pub mistakes: Vec<Mistake>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FolderError {
    #[error("there is no folder {0}")]
    Missing(PathBuf),
    #[error("{0} is no folder")]
    NotAFolder(PathBuf),
    #[error("reading the folder {path}: {reason}")]
    Unreadable { path: PathBuf, reason: String },
    #[error("watching the folder {path}: {reason}; changes are noticed by comparing every {} s", COMPARE.as_secs())]
    Unwatched { path: PathBuf, reason: String },
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl Home {
    /// Reads the database and then the folder. A folder that is away is an error only when nothing is known of it.
    /// Where there is a resolver, every cluster gets a port of its own there.
    pub fn open(root: &Path, database: Arc<Database>, resolver: Option<Resolver>) -> Result<(Self, Update), OpenError> {
        let known = database.load()?;
        let ports = resolver.map(|resolver| PortDesk::open(resolver, &database)).transpose()?;
        // Events come with real paths; a folder given as a link or relative must match them.
        let root = root.canonicalize().unwrap_or_else(|_| root.into());
        if known.is_empty() {
            list(&root)?;
        }
        let mut home = Self {
            watcher: Watcher::new(&root),
            root,
            database,
            files: BTreeMap::new(),
            mistaken: BTreeMap::new(),
            missing: BTreeMap::new(),
            held: HashMap::new(),
            ports,
            named_by: BTreeMap::new(),
            later: Vec::new(),
            unsaved: BTreeMap::new(),
            latest: Timestamp::default(),
            digests: RandomState::default(),
            folder_error: None,
            told: (Vec::new(), None),
            compared: Instant::now(),
        };
        home.rewatch();
        home.database.tell(home.watcher.sender());
        let mut recalled = home.recall(known);
        if let Some(ports) = &mut home.ports {
            ports.give(&mut recalled);
        }
        recalled.extend(home.recall_claims()?);
        recalled.extend(home.database.recall_held()?);
        let update = home.refresh(&Dirty { all: true, ..Dirty::default() });
        let mut update = Update { recalled, ..update };
        // A folder that is away says nothing of who is gone.
        if let Some(ports) = home.ports.as_mut().filter(|_| update.folder.is_none()) {
            ports.forget_others(&mut update.facts);
            update.unsaved = update.unsaved.or(ports.save(&home.database));
        }
        home.told = (update.refused.clone(), update.folder.clone());
        Ok((home, update))
    }

    /// For whoever wants to end [`Home::next`].
    pub fn stopper(&self) -> Sender<Signal> {
        self.watcher.sender()
    }

    /// Waits for the next change, or until `deadline`; `None` means stop.
    pub fn next(&mut self, deadline: Option<Instant>) -> Option<Update> {
        loop {
            let now = Instant::now();
            let absent = self.missing.values().map(|since| *since + ABSENCE).min();
            let until = [Some(now + PATROL), absent, deadline].into_iter().flatten().min().unwrap_or(now);
            let mut dirty = self.watcher.wait(until)?;
            let now = Instant::now();
            if self.is_replaced() {
                self.rewatch();
                dirty.all = true;
            }
            if now >= self.compared + COMPARE {
                dirty.all = true;
            }
            let absent = absent.is_some_and(|at| now >= at);
            let claimed = if std::mem::take(&mut dirty.claims) { self.take_claims() } else { Vec::new() };
            if dirty == Dirty::default() && !absent && !claimed.is_empty() {
                let (refused, folder) = self.told.clone();
                return Some(Update { facts: claimed, refused, folder, ..Update::default() });
            }
            if dirty != Dirty::default() || absent {
                let mut update = self.refresh(&dirty);
                update.facts.extend(claimed);
                if !update.facts.is_empty() || self.told != (update.refused.clone(), update.folder.clone()) {
                    self.told = (update.refused.clone(), update.folder.clone());
                    return Some(update);
                }
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                let (refused, folder) = self.told.clone();
                return Some(Update { refused, folder, ..Update::default() });
            }
        }
    }

    /// Takes over what the database remembers; the folder is read after it and wins.
    fn recall(&mut self, known: BTreeMap<ObjectRef, Record>) -> Vec<FactChange> {
        let known: Vec<(ObjectRef, Record)> = known.into_iter().collect();
        let values = parallel::map(&known, |(_, record)| {
            let document = Document { first_line: record.line, text: &record.text };
            let recall = |source: Source<'_>| {
                let content = match source {
                    Source::File(path) => record.beside.get(path).cloned(),
                    Source::Secret { .. } | Source::ConfigMap { .. } => None,
                };
                content.ok_or_else(|| Missing("is not in the database".into()))
            };
            manifest::read(&document, &mut { recall }).map(|manifest| manifest.value)
        });
        let mut facts = Vec::new();
        for ((object, record), value) in known.into_iter().zip(values) {
            let value = match value {
                Ok(value) => value,
                Err(mistake) => {
                    tracing::warn!(%object, file = %record.file.display(), %mistake, "the database's last good state of it is not valid any more; left out");
                    continue;
                }
            };
            self.latest = self.latest.max(record.since());
            facts.push(fact(&object, Some((record.since(), value))));
            self.files.entry(record.file.clone()).or_default().objects.insert(object.clone());
            // Files that it names may have changed meanwhile: such a document is read again, and has no digest that would
            // spare it that.
            let digest = if record.beside.is_empty() { self.digests.hash_one(&record.text) } else { 0 };
            let (file, line, since) = (record.file.clone(), record.line, record.since());
            let held = Held { file, line, digest, since, beside: Beside::new() };
            self.held.insert(object, held);
        }
        facts
    }

    /// What agents claimed; but not for clusters that went while nobody looked.
    fn recall_claims(&mut self) -> Result<Vec<FactChange>, DatabaseError> {
        self.database.forget_clusters(|cluster, uid| !is_held(&self.held, cluster, uid))?;
        Ok(self.database.all_claims()?.into_iter().map(|(object, row)| claim_fact(object, Some(row))).collect())
    }

    /// What agents claimed since the last time, and what somebody has let go or had drained. A cluster may have gone while its agent was speaking.
    fn take_claims(&mut self) -> Vec<FactChange> {
        let changed = self.database.take_changed_claims();
        let orders = self.database.take_orders().into_values();
        let is_late =
            |row: &ClaimRow| !row.cluster.parse().is_ok_and(|cluster| is_held(&self.held, &cluster, &row.uid));
        let late = changed.values().flatten().any(is_late);
        if late && let Err(error) = self.database.forget_clusters(|cluster, uid| !is_held(&self.held, cluster, uid)) {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "what agents claimed too late is still in the database"
            );
        }
        let claimed = changed.into_iter().map(|(object, row)| claim_fact(object, row.filter(|row| !is_late(row))));
        claimed.chain(orders).collect()
    }

    /// Takes away what agents claimed for clusters that are gone now.
    fn forget_claims(&mut self, changes: &mut Changes) {
        let gone = |(object, record): &(ObjectRef, Option<Record>)| {
            if object.kind == Kind::Cluster && record.is_none() { object.name.as_str().parse().ok() } else { None }
        };
        let gone: BTreeSet<ClusterName> = changes.records.iter().filter_map(gone).collect();
        if gone.is_empty() {
            return;
        }
        match self.database.forget_clusters(|cluster, _| gone.contains(cluster)) {
            Ok(claims) => changes.facts.extend(claims.into_iter().map(|object| claim_fact(object, None))),
            // They are bound to the cluster that is gone, and the next start takes them away.
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "what agents claimed for clusters that are gone is still in the database");
            }
        }
    }

    fn rewatch(&mut self) {
        self.folder_error = match list(&self.root) {
            Err(error) => Some(error),
            Ok(()) => self
                .watcher
                .rewatch()
                .err()
                .map(|error| FolderError::Unwatched { path: self.root.clone(), reason: error.to_string() }),
        };
    }

    /// Whether the path leads to another folder than the one being watched, or to one again.
    fn is_replaced(&self) -> bool {
        match &self.folder_error {
            None | Some(FolderError::Unwatched { .. }) => self.watcher.root_changed(),
            Some(old) => list(&self.root).err().as_ref() != Some(old),
        }
    }

    fn refused(&self) -> Vec<RefusedFile> {
        let refused = self.mistaken.iter();
        refused.map(|(file, mistakes)| RefusedFile { file: file.clone(), mistakes: mistakes.clone() }).collect()
    }

    /// * Reads what is dirty, decides what it means, keeps it, and says what changed.
    fn refresh(&mut self, dirty: &Dirty) -> Update {
        let mut changes = Changes::default();
        if let Some(candidates) = self.candidates(dirty) {
            let (mut taken, gone) = self.read(candidates);
            self.refuse_doubles(&mut taken, &gone);
            self.take(taken, &mut changes);
            self.drop_gone(&gone, &mut changes);
            self.forget_claims(&mut changes);
        }
        let mut unsaved = self.save(changes.records);
        if let Some(ports) = &mut self.ports {
            ports.give(&mut changes.facts);
            unsaved = unsaved.or(ports.save(&self.database));
        }
        self.later.append(&mut changes.later);
        let (refused, folder) = (self.refused(), self.folder_error.clone());
        Update { recalled: Vec::new(), facts: changes.facts, refused, folder, unsaved }
    }

    /// The files that have to be looked at; `None` while the folder is away, when nothing is to be concluded.
    fn candidates(&mut self, dirty: &Dirty) -> Option<BTreeSet<PathBuf>> {
        let named_by = |file: &PathBuf| self.named_by.get(file).into_iter().flatten().cloned();
        let mut candidates: BTreeSet<PathBuf> = dirty.files.iter().flat_map(named_by).collect();
        candidates.extend(dirty.files.iter().filter(|file| folder::is_manifest(file)).cloned());
        if dirty.all || dirty.folders.iter().any(|path| self.is_or_was_folder(path)) {
            let found = match folder::scan(&self.root) {
                Ok(found) => found,
                Err(error) => {
                    self.folder_error = Some(unreadable(&self.root, &error));
                    return None;
                }
            };
            self.compared = Instant::now();
            let known = |file: &PathBuf| self.files.get(file).and_then(|state| state.stamp.as_ref());
            let changed = found.iter().filter(|(file, stamp)| known(file) != Some(stamp)).map(|(file, _)| file);
            let changed = changed.filter(|file| !self.watcher.is_being_written(file));
            candidates.extend(changed.cloned());
            let outdated = self.files.iter().filter(|(_, state)| !is_current(&self.root, &state.beside));
            candidates.extend(outdated.map(|(file, _)| file.clone()));
            candidates.extend(self.files.keys().filter(|file| !found.contains_key(*file)).cloned());
        } else if let Err(error) = look(&self.root) {
            self.folder_error = Some(error);
            return None;
        }
        // What was refused because of another file may be right now, and what is away may be away long enough.
        candidates.extend(self.mistaken.keys().chain(self.missing.keys()).cloned());
        // A file that it names and that is being written brings it back once that is whole.
        let unfinished = |state: &FileState| state.beside.keys().any(|file| self.watcher.is_being_written(file));
        candidates.retain(|file| !self.files.get(file).is_some_and(unfinished));
        Some(candidates)
    }

    /// Whether files of ours lie below a path, or may now: editors' temporary files come and go too, and must not make
    /// us compare the whole folder.
    fn is_or_was_folder(&self, path: &Path) -> bool {
        let held = self.files.range(path.to_owned()..).next();
        held.is_some_and(|(file, _)| file.starts_with(path)) || self.root.join(path).is_dir()
    }

    /// Reads files: those that can be taken, and those that are gone for good.
    fn read(&mut self, candidates: BTreeSet<PathBuf>) -> (BTreeMap<PathBuf, Vec<Entry>>, BTreeSet<PathBuf>) {
        let candidates: Vec<PathBuf> = candidates.into_iter().collect();
        let reader = Reader { root: &self.root, files: &self.files, held: &self.held, digests: &self.digests };
        let readings = parallel::map(&candidates, |file| reader.read(file));
        let (mut taken, mut gone) = (BTreeMap::new(), BTreeSet::new());
        let mut named = false;
        for (file, reading) in candidates.into_iter().zip(readings) {
            let Some(Reading { stamp, beside, entries }) = reading else {
                if self.files.contains_key(&file) {
                    let missing_since = *self.missing.entry(file.clone()).or_insert_with(Instant::now);
                    self.mistaken.remove(&file);
                    if missing_since.elapsed() >= ABSENCE {
                        gone.insert(file);
                    }
                }
                continue;
            };
            let state = self.files.entry(file.clone()).or_default();
            state.stamp = Some(stamp);
            self.missing.remove(&file);
            if state.beside != beside {
                named |= !state.beside.keys().eq(beside.keys());
                state.beside = beside;
            }
            match entries {
                Ok(entries) => _ = taken.insert(file, entries),
                Err(mistakes) => self.refuse(file, mistakes),
            }
        }
        if named {
            self.follow_named();
        }
        (taken, gone)
    }

    /// Has the watcher tell of the files that manifests name.
    fn follow_named(&mut self) {
        self.named_by.clear();
        for (manifest, state) in &self.files {
            for file in state.beside.keys() {
                self.named_by.entry(file.clone()).or_default().insert(manifest.clone());
            }
        }
        self.watcher.follow(self.named_by.keys().cloned());
    }

    /// An object that is written down twice counts where it was first; the other file is refused.
    fn refuse_doubles(&mut self, taken: &mut BTreeMap<PathBuf, Vec<Entry>>, gone: &BTreeSet<PathBuf>) {
        let mut claimed: HashMap<&ObjectRef, (&Path, usize)> = HashMap::new();
        let mut refused = Vec::new();
        for (file, entries) in &*taken {
            let mut mine = HashMap::new();
            let mut mistakes = Vec::new();
            for entry in entries {
                let object = &entry.object;
                let elsewhere = self.still_held_elsewhere(object, file, taken, gone);
                let first = claimed.get(object).copied().or(elsewhere).or(mine.get(object).copied());
                if let Some((first, line)) = first {
                    let reason = format!("{object} is already defined in {}:{line}", first.display());
                    mistakes.push(Mistake { line: entry.line, column: 1, reason });
                }
                mine.entry(object).or_insert((file.as_path(), entry.line));
            }
            if mistakes.is_empty() {
                claimed.extend(mine);
            } else {
                mistakes.truncate(MISTAKES_PER_FILE);
                refused.push((file.clone(), mistakes));
            }
        }
        for (file, mistakes) in refused {
            taken.remove(&file);
            self.refuse(file, mistakes);
        }
    }

    /// The other file that holds an object and is not about to give it up.
    fn still_held_elsewhere<'a>(
        &'a self,
        object: &ObjectRef,
        file: &Path,
        taken: &BTreeMap<PathBuf, Vec<Entry>>,
        gone: &BTreeSet<PathBuf>,
    ) -> Option<(&'a Path, usize)> {
        let held = self.held.get(object).filter(|held| held.file != file && !gone.contains(&held.file))?;
        let stays = match taken.get(&held.file) {
            Some(entries) => entries.iter().any(|entry| entry.object == *object),
            None => !self.missing.contains_key(&held.file),
        };
        stays.then_some((held.file.as_path(), held.line))
    }

    fn refuse(&mut self, file: PathBuf, mistakes: Vec<Mistake>) {
        if self.mistaken.get(&file) != Some(&mistakes) {
            for mistake in &mistakes {
                let file = file.display();
                tracing::error!(%file, line = mistake.line, column = mistake.column, "{file}:{mistake}; the last good state of this file keeps serving");
            }
        }
        self.mistaken.insert(file, mistakes);
    }

    fn take(&mut self, taken: BTreeMap<PathBuf, Vec<Entry>>, changes: &mut Changes) {
        let now = self.moment();
        let mut before = Vec::new();
        for (file, entries) in taken {
            let state = self.files.entry(file.clone()).or_default();
            if self.mistaken.remove(&file).is_some() {
                tracing::info!(file = %file.display(), "the file is in order again");
            }
            let objects = entries.iter().map(|entry| entry.object.clone()).collect();
            before.push((file.clone(), std::mem::replace(&mut state.objects, objects)));
            for entry in entries {
                self.hold(&file, entry, now, changes);
            }
        }
        // Only now: an object may have moved from one file to another.
        for (file, objects) in before {
            let left = objects.into_iter().filter(|object| !self.files[&file].objects.contains(object));
            for object in left.collect::<Vec<_>>() {
                self.release(&file, &object, changes);
            }
        }
    }

    fn hold(&mut self, file: &Path, entry: Entry, now: Timestamp, changes: &mut Changes) {
        let Entry { object, line, digest, beside, news } = entry;
        let old = self.held.get_mut(&object);
        let is_new = old.is_none();
        let since = old.as_ref().map_or(now, |held| held.since);
        if let Some(held) = old
            && held.file == file
            && held.digest == digest
            && news.is_none()
        {
            held.line = line;
            return;
        }
        if let Some(old) = self.held.get(&object).filter(|held| held.file != file)
            && let Some(state) = self.files.get_mut(&old.file)
        {
            state.objects.remove(&object);
        }
        self.held.insert(object.clone(), Held { file: file.into(), line, digest, since, beside });
        // Without news the digest was known for this very file, and the return above was taken.
        let Some(News { value, text, beside }) = news else { return };
        changes.facts.push(fact(&object, Some((since, value))));
        let record = Record { since: since.0, file: file.into(), line, text, beside };
        changes.write(object, Some(record), is_new);
    }

    fn release(&mut self, file: &Path, object: &ObjectRef, changes: &mut Changes) {
        if self.held.get(object).is_some_and(|held| held.file == file) {
            self.held.remove(object);
            changes.facts.push(fact(object, None));
            changes.write(object.clone(), None, false);
        }
    }

    fn drop_gone(&mut self, gone: &BTreeSet<PathBuf>, changes: &mut Changes) {
        for file in gone {
            self.missing.remove(file);
            let objects = self.files.remove(file).map(|state| state.objects).unwrap_or_default();
            for object in objects {
                self.release(file, &object, changes);
            }
        }
    }

    /// To be called when what the last update said has been planned, and what is held of it is on disk.
    pub fn settle(&mut self) -> Option<DatabaseError> {
        let later = std::mem::take(&mut self.later);
        if later.is_empty() { None } else { self.save(later) }
    }

    fn save(&mut self, records: Vec<(ObjectRef, Option<Record>)>) -> Option<DatabaseError> {
        if records.is_empty() && self.unsaved.is_empty() {
            return None;
        }
        self.unsaved.extend(records);
        let all: Vec<_> = std::mem::take(&mut self.unsaved).into_iter().collect();
        let error = self.database.commit(&all).err()?;
        self.unsaved = all.into_iter().collect();
        Some(error)
    }

    fn moment(&mut self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.latest = self.latest.max(Timestamp::from_unix(since_epoch));
        self.latest
    }
}

/// What reading a file gave.
struct Reading {
    stamp: Stamp,
    /// The files that its documents name.
    beside: Beside,
    /// What it holds, or what is wrong with it.
    entries: Result<Vec<Entry>, Vec<Mistake>>,
}

/// What reading a file needs to know, and can share between threads.
struct Reader<'a> {
    root: &'a Path,
    files: &'a BTreeMap<PathBuf, FileState>,
    held: &'a HashMap<ObjectRef, Held>,
    digests: &'a RandomState,
}

impl Reader<'_> {
    /// `None` for a file that is not there.
    fn read(&self, file: &Path) -> Option<Reading> {
        let path = self.root.join(file);
        let stamp = folder::stamp(&path)?;
        let (beside, entries) = match folder::read(&path) {
            Ok(text) => self.entries(file, &text),
            Err(mistake) => (Beside::new(), Err(vec![mistake])),
        };
        Some(Reading { stamp, beside, entries })
    }

    fn entries(&self, file: &Path, text: &str) -> (Beside, Result<Vec<Entry>, Vec<Mistake>>) {
        let objects = self.files.get(file).map(|state| &state.objects).into_iter().flatten();
        let known: HashMap<u64, &ObjectRef> = objects.map(|object| (self.held[object].digest, object)).collect();
        let documents: Vec<Document<'_>> = manifest::split(text).collect();
        let (mut entries, mut mistakes) = (Vec::with_capacity(documents.len()), Vec::new());
        let mut named = Beside::new();
        for (beside, entry) in parallel::map(&documents, |document| self.entry(file, document, &known)) {
            named.extend(beside);
            match entry {
                Ok(entry) => entries.push(entry),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        mistakes.truncate(MISTAKES_PER_FILE);
        (named, if mistakes.is_empty() { Ok(entries) } else { Err(mistakes) })
    }

    /// With the files that it names, which are told also when it is wrong.
    fn entry(
        &self,
        file: &Path,
        document: &Document<'_>,
        known: &HashMap<u64, &ObjectRef>,
    ) -> (Beside, Result<Entry, Mistake>) {
        let digest = self.digests.hash_one(document.text);
        let line = manifest::document::first_content_line(document);
        if let Some(&object) = known.get(&digest)
            && let beside = &self.held[object].beside
            && is_current(self.root, beside)
        {
            let entry = Entry { object: object.clone(), line, digest, beside: beside.clone(), news: None };
            return (beside.clone(), Ok(entry));
        }
        let (mut stamps, mut contents) = (Beside::new(), BTreeMap::new());
        let read = manifest::read(document, &mut |source: Source<'_>| {
            let Source::File(given) = source else { return Err(Missing("a folder has files only".into())) };
            let file = folder::beside(file, given).map_err(Missing)?;
            let path = self.root.join(&file);
            // Before the content: what is written meanwhile has another one.
            stamps.insert(file, folder::stamp(&path));
            let content = Arc::new(folder::read_beside(&path).map_err(Missing)?);
            contents.insert(given.to_owned(), Arc::clone(&content));
            Ok(content)
        });
        let entry = read.map(|Manifest { object, value }| {
            let news = Some(News { value, text: document.text.to_owned(), beside: contents });
            Entry { object, line, digest, beside: stamps.clone(), news }
        });
        (stamps, entry)
    }
}

fn is_current(root: &Path, beside: &Beside) -> bool {
    beside.iter().all(|(file, stamp)| folder::stamp(&root.join(file)) == *stamp)
}

/// One object of a file that was read.
struct Entry {
    object: ObjectRef,
    line: usize,
    digest: u64,
    beside: Beside,
    /// `None`: the document is the one that is served already.
    news: Option<News>,
}

struct News {
    value: Value,
    text: String,
    /// The content of the files that it names, by the path that it gives.
    beside: BTreeMap<String, Arc<Vec<u8>>>,
}

#[derive(Default)]
struct Changes {
    facts: Vec<FactChange>,
    records: Vec<(ObjectRef, Option<Record>)>,
    later: Vec<(ObjectRef, Option<Record>)>,
}

impl Changes {
    fn write(&mut self, object: ObjectRef, record: Option<Record>, is_new: bool) {
        let later = object.kind == Kind::DnsEndpoint && !is_new;
        let records = if later { &mut self.later } else { &mut self.records };
        records.push((object, record));
    }
}

fn fact(object: &ObjectRef, value: Option<(Timestamp, Value)>) -> FactChange {
    match value {
        Some((since, value)) => Manifest { object: object.clone(), value }.into_fact(Since::at(since), None),
        None => FactChange::gone(object),
    }
}

/// What an agent claims speaks for its cluster alone.
fn claim_fact(object: ObjectRef, row: Option<ClaimRow>) -> FactChange {
    let fact = row.map(|row| {
        let since = |number: usize| row.endpoints_since.get(number).copied().map(Timestamp);
        let endpoint =
            |(number, endpoint): (usize, &EndpointSpec)| Endpoint { since: since(number), ..endpoint.to_model() };
        let endpoints = row.endpoints.iter().enumerate().map(endpoint).collect();
        let digest = dns_endpoint::digest(&row.endpoints);
        let claims = RecordClaims { cluster: row.cluster.parse().ok(), digest, endpoints };
        Fact { since: Since::at(row.since()), generation: Some(row.generation), value: claims }
    });
    FactChange::Records(object, fact)
}

/// Whether it is the very cluster that is served: one that is deleted and written anew is another one.
fn is_held(held: &HashMap<ObjectRef, Held>, cluster: &ClusterName, uid: &str) -> bool {
    let held = held.get(&ObjectRef::cluster_scoped(Kind::Cluster, cluster.into()));
    held.is_some_and(|held| *Since::at(held.since).uid(cluster) == *uid)
}

/// Whether the folder can be listed.
fn list(root: &Path) -> Result<(), FolderError> {
    std::fs::read_dir(root).map(drop).map_err(|error| unreadable(root, &error))
}

/// Whether there is a folder, without opening it: that would be an event, which wakes us again.
fn look(root: &Path) -> Result<(), FolderError> {
    match root.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(FolderError::NotAFolder(root.into())),
        Err(error) => Err(unreadable(root, &error)),
    }
}

fn unreadable(root: &Path, error: &io::Error) -> FolderError {
    match error.kind() {
        io::ErrorKind::NotFound => FolderError::Missing(root.into()),
        io::ErrorKind::NotADirectory => FolderError::NotAFolder(root.into()),
        _ => FolderError::Unreadable { path: root.into(), reason: error.to_string() },
    }
}

#[cfg(test)]
mod tests;
