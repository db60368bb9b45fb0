//! What outlives a restart: every object's last good text and the moment it was first seen.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use model::identity::Kind;
use model::{ObjectName, ObjectRef, Timestamp};
use redb::backends::InMemoryBackend;
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use serde::{Deserialize, Serialize};

use crate::agents::{AUTHORITIES, CLAIMS, CREDENTIALS, ClaimRow, MOMENTS, Mailbox};
use crate::held::{DRAINS, HELD, RELEASES, RESTING};
use crate::ports::PORTS;

/// `Kind/namespace/name` to a [`Record`] in JSON.
const OBJECTS: Table = TableDefinition::new("objects");
/// `Kind/namespace/name`, a line end, the path as its manifest gives it, a line end and eight digits, to a part of that
/// file's content.
const BESIDE: Table = TableDefinition::new("beside");
/// The database keeps each value in one piece, whose length is a power of two, and holds it in memory: a large file in one
/// value is written twice over. This leaves room for the key.
const PART: usize = (1 << 20) - (4 << 10);
/// A domain to how far its serials have come, and a cluster to the addresses that were kept for it; both in JSON.
pub(crate) const SERIALS: Table = TableDefinition::new("serials");
pub(crate) const KEPT: Table = TableDefinition::new("kept");
/// An address, as an `Address` object is called, to who has it, in JSON.
pub(crate) const ADDRESSES: Table = TableDefinition::new("addresses");
/// A key of a hub to what stands there, as text; Secrets sealed.
pub(crate) const HUB: Table = TableDefinition::new("hub");
/// The form of what is stored, so that a later version knows what it has before it.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const FORM: u64 = 1;
/// The whole of a large fleet's working set; the operating system caches the rest.
const CACHE: usize = 8 << 20;
const FILE: &str = "fleetgate.redb";

pub(crate) type Table = TableDefinition<'static, &'static str, &'static [u8]>;

pub struct Database {
    /// `None` while it could not be opened again. Only that waits for those who read and write.
    inner: RwLock<Option<redb::Database>>,
    /// Nobody will recall what is kept in memory, so that large files need not be kept.
    file: Option<PathBuf>,
    /// A write failed. redb then refuses everything else until it is opened anew.
    failed: AtomicBool,
    /// For the home: what agents claimed since it last looked.
    pub(crate) mailbox: Mailbox,
}

/// One object as it was last accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When the object was first seen, in nanoseconds since the Unix epoch.
    pub since: u64,
    /// The file that it came from, relative to the folder.
    pub file: PathBuf,
    /// Where its document began in the file.
    pub line: usize,
    pub text: String,
    /// The files that it names, by the path that it gives.
    #[serde(skip)]
    pub beside: BTreeMap<String, Arc<Vec<u8>>>,
}

impl Record {
    pub fn since(&self) -> Timestamp {
        Timestamp(self.since)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("creating the data folder {path}")]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("{path} is in use by another fleetgate; give each one a --data folder of its own")]
    InUse { path: PathBuf },
    #[error("opening the database {path}")]
    Open { path: PathBuf, source: Box<redb::Error> },
    #[error("{path} was written by a newer fleetgate (form {found}, this one knows {FORM})")]
    Newer { path: PathBuf, found: u64 },
    #[error("reading the database")]
    Read(#[source] Box<redb::Error>),
    #[error("writing the database")]
    Write(#[source] Box<redb::Error>),
    #[error("the database's entry {0:?} cannot be read; it was not written by this program")]
    Entry(String),
}

impl Database {
    pub fn open(folder: &Path) -> Result<Self, DatabaseError> {
        let failed = |source| DatabaseError::Folder { path: folder.into(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let path = folder.join(FILE);
        let inner = open_file(&path)?;
        // Manifests may hold Secrets.
        restrict(&path).map_err(failed)?;
        Self::new(inner, Some(path.clone())).check_form(&path)
    }

    /// Forgets everything when it is dropped.
    pub fn in_memory() -> Result<Self, DatabaseError> {
        let path = Path::new("(memory)");
        let inner = redb::Builder::new().create_with_backend(InMemoryBackend::new());
        let inner = inner.map_err(|error| DatabaseError::Open { path: path.into(), source: Box::new(error.into()) })?;
        Self::new(inner, None).check_form(path)
    }

    fn new(inner: redb::Database, file: Option<PathBuf>) -> Self {
        Self { inner: RwLock::new(Some(inner)), file, failed: AtomicBool::new(false), mailbox: Mailbox::default() }
    }

    fn check_form(self, path: &Path) -> Result<Self, DatabaseError> {
        let found = self.write_with(|transaction| {
            transaction.open_table(OBJECTS)?;
            for table in [BESIDE, SERIALS, KEPT, ADDRESSES, HUB, AUTHORITIES, CREDENTIALS, CLAIMS, MOMENTS] {
                transaction.open_table(table)?;
            }
            for table in [HELD, RESTING, RELEASES, DRAINS, PORTS] {
                transaction.open_table(table)?;
            }
            let mut meta = transaction.open_table(META)?;
            let found = meta.get("form")?.map(|form| form.value());
            if found.is_none() {
                meta.insert("form", FORM)?;
            }
            Ok(found)
        })?;
        match found {
            Some(found) if found > FORM => Err(DatabaseError::Newer { path: path.into(), found }),
            _ => Ok(self),
        }
    }

    /// Everything, with the files that manifests name.
    pub fn load(&self) -> Result<BTreeMap<ObjectRef, Record>, DatabaseError> {
        let mut objects = BTreeMap::new();
        self.for_each("", |object, record| _ = objects.insert(object, record))?;
        // Parts of one file come one after the other.
        self.visit(BESIDE, "", |key, part| {
            let (of, path) = key.split_once('\n').unwrap_or((key, ""));
            let path = path.rsplit_once('\n').map_or(path, |(path, _)| path);
            let object = object(of).ok_or_else(|| DatabaseError::Entry(of.into()))?;
            if let Some(record) = objects.get_mut(&object) {
                let content = record.beside.entry(path.into()).or_default();
                Arc::make_mut(content).extend_from_slice(part);
            }
            Ok(())
        })?;
        Ok(objects)
    }

    /// All objects of one kind, in the order of their names; those that agents claim among them.
    pub fn list(&self, kind: Kind) -> Result<Vec<(ObjectRef, Record)>, DatabaseError> {
        let mut objects = Vec::new();
        self.for_each(&format!("{kind}/"), |object, record| objects.push((object, record)))?;
        if kind == Kind::DnsEndpoint {
            let claimed = self.all_claims()?.into_iter().map(|(object, row)| (object.clone(), row.record(&object)));
            objects.extend(claimed);
            objects.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        Ok(objects)
    }

    pub fn get(&self, object: &ObjectRef) -> Result<Option<Record>, DatabaseError> {
        let key = key(object);
        let found =
            self.read_with(OBJECTS, |table| Ok(table.get(key.as_str())?.map(|value| value.value().to_vec())))?;
        if let Some(value) = found {
            return decode(&key, &value).map(Some);
        }
        let claimed =
            self.read_with(CLAIMS, |table| Ok(table.get(key.as_str())?.map(|value| value.value().to_vec())))?;
        let row =
            claimed.map(|value| serde_json::from_slice::<ClaimRow>(&value).map_err(|_| DatabaseError::Entry(key)));
        Ok(row.transpose()?.map(|row| row.record(object)))
    }

    /// One transaction: after a crash at any moment either all of it is there or nothing. Returns once it is on disk.
    pub fn commit(&self, changes: &[(ObjectRef, Option<Record>)]) -> Result<(), DatabaseError> {
        self.write_with(|transaction| {
            let mut table = transaction.open_table(OBJECTS)?;
            let mut beside = transaction.open_table(BESIDE)?;
            let none_beside = beside.is_empty()?;
            for (object, record) in changes {
                let key = key(object);
                if !none_beside {
                    // All that begins with the key and a line end lies before the octet that follows it.
                    beside.retain_in(format!("{key}\n").as_str()..format!("{key}\u{b}").as_str(), |_, _| false)?;
                }
                let files = record.iter().flat_map(|record| &record.beside).filter(|_| self.file.is_some());
                for (path, content) in files {
                    // An empty file is one as well.
                    let parts = content.chunks(PART).chain(content.is_empty().then_some(&[][..]));
                    for (number, part) in parts.enumerate() {
                        beside.insert(format!("{key}\n{path}\n{number:08}").as_str(), part)?;
                    }
                }
                match record {
                    Some(record) => {
                        let value = serde_json::to_vec(record).expect("a record is made of texts and numbers");
                        table.insert(key.as_str(), value.as_slice())?;
                    }
                    None => _ = table.remove(key.as_str())?,
                }
            }
            Ok(())
        })
    }

    fn for_each(&self, prefix: &str, mut take: impl FnMut(ObjectRef, Record)) -> Result<(), DatabaseError> {
        self.visit(OBJECTS, prefix, |key, value| {
            let object = object(key).ok_or_else(|| DatabaseError::Entry(key.into()))?;
            take(object, decode(key, value)?);
            Ok(())
        })
    }

    /// In the order of their keys.
    pub(crate) fn visit(
        &self,
        table: Table,
        prefix: &str,
        mut take: impl FnMut(&str, &[u8]) -> Result<(), DatabaseError>,
    ) -> Result<(), DatabaseError> {
        self.read_with(table, |table| {
            for entry in table.range(prefix..)? {
                let (key, value) = entry?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                if let Err(error) = take(key.value(), value.value()) {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(()))
        })?
    }

    pub(crate) fn read_with<T>(
        &self,
        table: Table,
        read: impl FnOnce(&redb::ReadOnlyTable<&'static str, &'static [u8]>) -> Result<T, redb::Error>,
    ) -> Result<T, DatabaseError> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let attempt = || read(&inner.as_ref().ok_or(redb::Error::DatabaseClosed)?.begin_read()?.open_table(table)?);
        attempt().map_err(|error| DatabaseError::Read(Box::new(error)))
    }

    pub(crate) fn write_with<T>(
        &self,
        write: impl FnOnce(&redb::WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, DatabaseError> {
        if self.failed.load(Ordering::Acquire) {
            self.reopen()?;
        }
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let attempt = || {
            let transaction = inner.as_ref().ok_or(redb::Error::DatabaseClosed)?.begin_write()?;
            let value = write(&transaction)?;
            transaction.commit()?;
            Ok(value)
        };
        attempt().map_err(|error| {
            self.failed.store(true, Ordering::Release);
            DatabaseError::Write(Box::new(error))
        })
    }

    /// A disk that was full need not be for ever.
    fn reopen(&self) -> Result<(), DatabaseError> {
        let Some(path) = &self.file else { return Ok(()) };
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        // It has to let go of the file first.
        *inner = None;
        *inner = Some(open_file(path)?);
        self.failed.store(false, Ordering::Release);
        Ok(())
    }
}

fn open_file(path: &Path) -> Result<redb::Database, DatabaseError> {
    redb::Builder::new().set_cache_size(CACHE).create(path).map_err(|error| match error {
        redb::DatabaseError::DatabaseAlreadyOpen => DatabaseError::InUse { path: path.into() },
        error => DatabaseError::Open { path: path.into(), source: Box::new(error.into()) },
    })
}

#[cfg(unix)]
fn restrict(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn restrict(_: &Path) -> std::io::Result<()> {
    Ok(())
}

pub(crate) fn key(object: &ObjectRef) -> String {
    let namespace = object.namespace.as_ref().map_or("", ObjectName::as_str);
    format!("{}/{namespace}/{}", object.kind, object.name)
}

pub(crate) fn object(key: &str) -> Option<ObjectRef> {
    let mut parts = key.splitn(3, '/');
    let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    let kind = Kind::ALL.into_iter().find(|candidate| candidate.as_str() == kind)?;
    let namespace = if namespace.is_empty() { None } else { Some(namespace.parse().ok()?) };
    Some(ObjectRef { kind, namespace, name: name.parse().ok()? })
}

fn decode(key: &str, value: &[u8]) -> Result<Record, DatabaseError> {
    serde_json::from_slice(value).map_err(|_| DatabaseError::Entry(key.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> ObjectRef {
        ObjectRef::cluster_scoped(Kind::Zone, name.parse().unwrap())
    }

    fn record(text: &str) -> Record {
        Record { since: 7, file: "a.yaml".into(), line: 3, text: text.into(), beside: BTreeMap::new() }
    }

    #[test]
    fn files_beside_a_manifest_are_kept_and_go_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let with = |files: &[(&str, &str)]| {
            let content = |content: &str| Arc::new(content.as_bytes().to_vec());
            let files = files.iter().map(|(path, text)| ((*path).to_owned(), content(text)));
            Record { beside: files.collect(), ..record("x") }
        };
        let recalled = || Database::open(folder.path()).unwrap().load().unwrap();
        let commit = |object, record| Database::open(folder.path()).unwrap().commit(&[(object, record)]).unwrap();
        commit(zone("a"), Some(with(&[("one.zone", "1"), ("two.zone", "2")])));
        commit(zone("ab"), Some(with(&[("one.zone", "of ab")])));
        commit(zone("a"), Some(with(&[("two.zone", "3")])));
        assert_eq!(recalled()[&zone("a")], with(&[("two.zone", "3")]));
        commit(zone("a"), None);
        assert_eq!(recalled(), BTreeMap::from([(zone("ab"), with(&[("one.zone", "of ab")]))]));
    }

    #[test]
    fn large_and_empty_files_come_back_whole() {
        let folder = tempfile::tempdir().unwrap();
        let content = |length: usize| Arc::new((0..length).map(|at| u8::try_from(at % 251).unwrap()).collect());
        let files = [("empty", 0), ("exact\n", PART), ("longer", 3 * PART + 1), ("short", 1)];
        let beside = files.map(|(path, length)| (path.to_owned(), content(length)));
        let record = Record { beside: BTreeMap::from(beside), ..record("x") };
        let objects = BTreeMap::from([(zone("a"), record)]);
        let changes: Vec<_> = objects.iter().map(|(object, record)| (object.clone(), Some(record.clone()))).collect();
        Database::open(folder.path()).unwrap().commit(&changes).unwrap();
        assert!(Database::open(folder.path()).unwrap().load().unwrap() == objects);
    }

    #[test]
    fn what_was_committed_is_there_after_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let claim = ObjectRef {
            kind: Kind::AddressClaim,
            namespace: Some("acme".parse().unwrap()),
            name: "web".parse().unwrap(),
        };
        {
            let database = Database::open(folder.path()).unwrap();
            let both = [
                (zone("a"), Some(record("one"))),
                (zone("b"), Some(record("two"))),
                (claim.clone(), Some(record("x"))),
            ];
            database.commit(&both).unwrap();
            database.commit(&[(zone("a"), None), (zone("b"), Some(record("three")))]).unwrap();
        }
        let database = Database::open(folder.path()).unwrap();
        let expected = BTreeMap::from([(zone("b"), record("three")), (claim.clone(), record("x"))]);
        assert_eq!(database.load().unwrap(), expected);
        assert_eq!(database.get(&claim).unwrap(), Some(record("x")));
        assert_eq!(database.get(&zone("a")).unwrap(), None);
        assert_eq!(database.list(Kind::Zone).unwrap(), [(zone("b"), record("three"))]);
    }

    #[test]
    fn two_processes_cannot_share_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let _first = Database::open(folder.path()).unwrap();
        assert!(matches!(Database::open(folder.path()), Err(DatabaseError::InUse { .. })));
    }

    #[test]
    fn the_file_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let _database = Database::open(folder.path()).unwrap();
        assert_eq!(fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_is_no_database_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "not a database").unwrap();
        assert!(matches!(Database::open(folder.path()), Err(DatabaseError::Open { .. })));
    }
}
