//! The last good state of a hub, written to disk behind the thread that plans: a process that starts while the API is
//! away serves from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use kubernetes::resource::Resource;
use kubernetes::seen::Key;
use store::{Database, DatabaseError, Record, SealKey};

use crate::telemetry::ControlMetrics;

/// What comes within this is written together: a storm of changes is a write a second. As much is lost at most when the
/// machine loses its power, and read again from the hub.
const TOGETHER: Duration = Duration::from_secs(1);

/// The longest pause before a write that failed is tried again: a disk that has room again is noticed within this.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What stands at each key now; bounded by what the hub has.
type Saves = BTreeMap<Key, Option<Box<str>>>;

pub(crate) struct Keeper {
    waiting: Arc<Waiting>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Waiting {
    state: Mutex<(Saves, bool)>,
    changed: Condvar,
}

struct Writer {
    database: Arc<Database>,
    seal: Option<SealKey>,
    metrics: ControlMetrics,
}

/// What an earlier process kept.
pub(crate) fn recall(database: &Database, seal: Option<&SealKey>) -> Result<Vec<(Key, Box<str>)>, DatabaseError> {
    let objects = database.load()?.into_iter();
    let mut known: Vec<(Key, Box<str>)> =
        objects.filter_map(|(object, record)| Some((Key::of(&object)?, record.text.into()))).collect();
    for (place, content) in database.behind()? {
        let Some(key) = Key::parse(&place) else { continue };
        let content = if is_secret(&key) { seal.and_then(|seal| seal.open(&place, &content)) } else { Some(content) };
        let Some(text) = content.and_then(|content| String::from_utf8(content).ok()) else {
            tracing::warn!(%key, "its last good state cannot be opened: is --data-key the one that it was sealed with?");
            continue;
        };
        known.push((key, text.into()));
    }
    Ok(known)
}

impl Keeper {
    pub(crate) fn start(
        database: Arc<Database>,
        seal: Option<SealKey>,
        metrics: ControlMetrics,
    ) -> anyhow::Result<Self> {
        let waiting = Arc::new(Waiting::default());
        let writer = Writer { database, seal, metrics };
        let thread = std::thread::Builder::new().name("keeper".into());
        let queue = Arc::clone(&waiting);
        let thread = thread.spawn(move || writer.run(&queue)).context("starting the keeper's thread")?;
        Ok(Self { waiting, thread })
    }

    pub(crate) fn keep(&self, saves: Saves) {
        if !saves.is_empty() {
            lock(&self.waiting.state).0.extend(saves);
            self.waiting.changed.notify_one();
        }
    }

    /// Returns once all is written.
    pub(crate) fn stop(self) {
        lock(&self.waiting.state).1 = true;
        self.waiting.changed.notify_one();
        if self.thread.join().is_err() {
            tracing::error!("the keeper's thread panicked");
        }
    }
}

impl Waiting {
    /// What was not written and has not been overtaken by something newer.
    fn put_back(&self, saves: Saves) {
        let mut state = lock(&self.state);
        for (key, text) in saves {
            state.0.entry(key).or_insert(text);
        }
    }
}

impl Writer {
    fn run(&self, waiting: &Waiting) {
        let mut pause = TOGETHER;
        loop {
            let idle = |state: &mut (Saves, bool)| state.0.is_empty() && !state.1;
            let state = lock(&waiting.state);
            drop(waiting.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner));
            let state = lock(&waiting.state);
            let wait = waiting.changed.wait_timeout_while(state, pause, |state| !state.1);
            let (mut state, _) = wait.unwrap_or_else(PoisonError::into_inner);
            let (saves, stop) = (std::mem::take(&mut state.0), state.1);
            drop(state);
            match self.write(&saves) {
                Ok(()) if pause > TOGETHER => {
                    pause = TOGETHER;
                    tracing::info!("the last good state is on disk again");
                }
                Ok(()) => {}
                Err(error) => {
                    self.metrics.unsaved.inc();
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "the last good state is not on disk; it is tried again");
                    waiting.put_back(saves);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            if stop {
                return;
            }
        }
    }

    fn write(&self, saves: &Saves) -> Result<(), DatabaseError> {
        let (mut objects, mut behind) = (Vec::new(), Vec::new());
        for (key, text) in saves {
            match key.object() {
                Some(object) => objects.push((object, text.as_deref().map(record))),
                None => behind.extend(self.sealed(key, text.as_deref())),
            }
        }
        if !behind.is_empty() {
            self.database.keep_behind(&behind)?;
        }
        if !objects.is_empty() {
            self.database.commit(&objects)?;
        }
        Ok(())
    }

    /// Secrets are kept sealed or not at all.
    fn sealed(&self, key: &Key, text: Option<&str>) -> Option<(String, Option<Vec<u8>>)> {
        let place = key.to_string();
        let content = match text {
            Some(text) if is_secret(key) => Some(self.seal.as_ref()?.seal(&place, text.as_bytes())),
            text => text.map(|text| text.as_bytes().to_vec()),
        };
        Some((place, content))
    }
}

fn is_secret(key: &Key) -> bool {
    matches!(key.resource, Resource::Secret | Resource::Certificate)
}

fn record(text: &str) -> Record {
    let since = kubernetes::seen::created(text).0;
    Record { since, file: std::path::PathBuf::new(), line: 1, text: text.into(), beside: BTreeMap::new() }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap()
    }

    #[test]
    fn what_was_not_written_waits_behind_what_is_newer() {
        let waiting = Waiting::default();
        let saves = |entries: &[(&str, Option<&str>)]| -> Saves {
            entries.iter().map(|(place, text)| (key(place), text.map(Box::from))).collect()
        };
        lock(&waiting.state).0.extend(saves(&[("zones/changed", Some("new")), ("zones/gone", None)]));
        waiting.put_back(saves(&[
            ("zones/changed", Some("old")),
            ("zones/gone", Some("old")),
            ("zones/left", None),
            ("zones/other", Some("old")),
        ]));
        let expected = saves(&[
            ("zones/changed", Some("new")),
            ("zones/gone", None),
            ("zones/left", None),
            ("zones/other", Some("old")),
        ]);
        assert_eq!(lock(&waiting.state).0, expected);
    }

    /// What a process that ends writes, another one finds; Secrets only with the key.
    #[test]
    fn secrets_are_found_again_only_with_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let key_file = folder.path().join("key");
        std::fs::write(&key_file, [7; 32]).unwrap();
        let seal = || SealKey::read(&key_file).unwrap();
        let data = folder.path().join("data");
        let zone = r#"{"apiVersion":"fleetgate.dev/v1alpha1","kind":"Zone","metadata":{"name":"main","creationTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let texts = [("zones/main", zone), ("services/a/b", "{}"), ("secrets/a/b", "hush, hush")];

        let database = Arc::new(Database::open(&data).unwrap());
        let metrics = ControlMetrics::register(&mut Registry::default());
        let keeper = Keeper::start(Arc::clone(&database), Some(seal()), metrics.clone()).unwrap();
        keeper.keep(texts.iter().map(|(place, text)| (key(place), Some(Box::from(*text)))).collect());
        keeper.stop();
        drop(database);

        let octets = std::fs::read(data.join("fleetgate.redb")).unwrap();
        assert!(!octets.windows(10).any(|window| window == b"hush, hush"));
        let database = Database::open(&data).unwrap();
        let with_key = recall(&database, Some(&seal())).unwrap();
        assert_eq!(with_key.len(), 3, "{with_key:?}");
        assert!(with_key.iter().any(|(key, text)| key.to_string() == "secrets/a/b" && &**text == "hush, hush"));
        assert_eq!(recall(&database, None).unwrap().len(), 2);
    }
}
