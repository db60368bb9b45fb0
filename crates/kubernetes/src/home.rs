//! The hub as home: what it shows becomes facts, for the one thread that plans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kube::Client;
use kube::core::ObjectMeta;
use model::{Changes, FactChange, Timestamp};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::apply::{Actual, Dirty, OwnStatus};
use crate::index::{Index, News};
use crate::resolvers::ControlPlanes;
use crate::resource::{Resource, Roles, watched};
use crate::seen::{Key, Seen};
use crate::tenants::{Originals, Wish};
use crate::watch::{self, Message};

/// Between the watches and the thread that plans; a watch waits while it is full.
const WAITING: usize = 1024;
/// Changes planned at once: what comes together is planned together, and still nobody waits long.
const BATCH: usize = 4096;

pub struct Settings {
    pub roles: Roles,
    /// Where Fleetgate itself is installed.
    pub namespace: String,
    /// The namespaces from which Secrets and `ConfigMap`s may be named.
    pub sources: Vec<String>,
    /// The namespaces of tenants from which certificates are read; `*` is all of them.
    pub certificates: Vec<String>,
}

/// For those who write back: what the hub has, and what of it is to be looked at again.
#[derive(Debug, Clone, Default)]
pub struct Writing {
    pub actual: Arc<Actual>,
    pub dirty: Arc<Dirty>,
    /// For those who keep Ingresses in tenant clusters.
    pub originals: Arc<Originals>,
    /// For those who lead control planes to their resolver.
    pub planes: Arc<ControlPlanes>,
}

impl Writing {
    /// Has what a plan made another of be looked at again.
    pub fn mark_planned(&self, changes: &Changes) {
        self.dirty.mark_planned(changes);
        self.originals.mark_planned(changes);
        self.planes.mark_planned(changes);
    }
}

pub struct Home {
    index: Index,
    /// Why each watch cannot be read at the moment, by its number.
    away: BTreeMap<usize, String>,
    /// Whether an earlier process's state was there to begin with.
    recalled: bool,
    /// What the last update said of the hub: whether everything was listed, and why something is away.
    told: (bool, Option<String>),
    writing: Option<Writing>,
    messages: Receiver<Message>,
    runtime: Handle,
    stop: CancellationToken,
    _watches: DropGuard,
}

/// What came of waiting.
enum Received {
    Message(Message),
    /// It is too late for one.
    Nothing,
    Stop,
}

/// What changed on the hub.
#[derive(Debug, Default)]
pub struct Update {
    pub facts: Vec<FactChange>,
    /// To be kept as the last good state: what stands at each key now.
    pub saves: BTreeMap<Key, Option<Box<str>>>,
    /// For whoever follows the tenant clusters.
    pub wishes: Vec<Wish>,
    /// Everything has been listed since the start: from now on it is the hub's word, not the disk's.
    pub complete: bool,
    /// Why something cannot be read at the moment.
    pub away: Option<String>,
}

impl Home {
    /// Begins to read. What an earlier process knew is given at once; without it nothing is, until everything has been
    /// listed: half a fleet is no fleet.
    pub fn open(
        client: &Client,
        settings: Settings,
        known: Vec<(Key, Box<str>)>,
        writing: Option<Writing>,
        runtime: Handle,
    ) -> (Self, Update) {
        let Settings { roles, namespace, sources, certificates } = settings;
        let kinds = watched(roles, &namespace, &sources, &certificates);
        let (sender, messages) = mpsc::channel(WAITING);
        let (stop, watches) = (CancellationToken::new(), CancellationToken::new());
        for (number, kind) in kinds.iter().enumerate() {
            let follow = watch::follow(client.clone(), number, kind.clone(), sender.clone(), watches.clone());
            runtime.spawn(follow);
        }
        let mut index = Index::new(roles, namespace, kinds);
        let mut news = News::default();
        let recalled = !known.is_empty();
        if recalled {
            index.recall(known);
            index.settle(&mut news);
        }
        let (away, told) = (BTreeMap::new(), (false, None));
        let _watches = watches.drop_guard();
        #[allow(clippy::used_underscore_binding)] // Held for its end.
        let home = Self { index, away, recalled, told, writing, messages, runtime, stop, _watches };
        let update = Update { facts: news.facts, wishes: news.wishes, ..Update::default() };
        (home, update)
    }

    /// For whoever wants to end [`Home::next`].
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits for the next change, or until `deadline`; `None` means stop.
    pub fn next(&mut self, deadline: Option<Instant>) -> Option<Update> {
        let mut news = News::default();
        loop {
            let doubt = self.index.wake().map(|at| Instant::now() + at.as_unix().saturating_sub(now().as_unix()));
            let until = [deadline, doubt].into_iter().flatten().min();
            match self.receive(until) {
                Received::Message(message) => self.take(message, &mut news),
                Received::Nothing => self.index.believe(now(), &mut news),
                Received::Stop => return None,
            }
            for _ in 0..BATCH {
                let Ok(message) = self.messages.try_recv() else { break };
                self.take(message, &mut news);
            }
            let complete = self.index.is_complete();
            if complete || self.recalled {
                self.index.settle(&mut news);
            }
            let told = (complete, self.away.values().next().cloned());
            let has_news = !(news.facts.is_empty() && news.saves.is_empty() && news.wishes.is_empty());
            if has_news || told != self.told || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.told = told.clone();
                let News { facts, saves, wishes, .. } = news;
                return Some(Update { facts, saves, wishes, complete, away: told.1 });
            }
        }
    }

    fn receive(&mut self, until: Option<Instant>) -> Received {
        let messages = &mut self.messages;
        let next = async {
            match until {
                Some(until) => tokio::time::timeout_at(until.into(), messages.recv()).await.ok().flatten(),
                None => messages.recv().await,
            }
        };
        match self.runtime.block_on(self.stop.run_until_cancelled(next)) {
            Some(Some(message)) => Received::Message(message),
            Some(None) => Received::Nothing,
            None => Received::Stop,
        }
    }

    fn take(&mut self, message: Message, news: &mut News) {
        match message {
            Message::Listed(number, objects) => {
                self.away.remove(&number);
                for seen in &objects {
                    self.see(seen);
                }
                self.index.list(number, objects, now(), news);
            }
            Message::Changed(number, seen) => {
                self.away.remove(&number);
                self.see(&seen);
                self.index.change(*seen, news);
            }
            Message::Gone(number, key) => {
                self.away.remove(&number);
                self.index.remove(&key, news);
            }
            Message::Back(number) => _ = self.away.remove(&number),
            Message::Away(number, reason) => _ = self.away.insert(number, reason),
        }
        for key in std::mem::take(&mut news.gone) {
            self.miss(&key);
        }
    }

    fn see(&self, Seen { key, meta, spec, status, .. }: &Seen) {
        let Some(Writing { actual, dirty, originals, planes }) = &self.writing else { return };
        if let Some(object) = key.object().filter(|_| key.resource == Resource::Ingress) {
            originals.see(object, meta, spec);
        }
        if let Some(object) = key.object().filter(|_| key.resource == Resource::Cluster) {
            planes.see(&object, meta, spec, status);
        }
        let touched = match key.resource {
            Resource::Verdict => actual.see_verdict(meta, spec),
            Resource::Address => actual.see_address(meta, spec),
            Resource::DnsEndpoint if key.is_ours() => actual.see_published(meta, spec),
            // Nothing is written to Secrets.
            Resource::Certificate => None,
            _ => key.object().and_then(|object| {
                let status = OwnStatus::read(object.kind, status);
                actual.see(object, meta, status)
            }),
        };
        dirty.mark_all(touched);
    }

    fn miss(&self, key: &Key) {
        let Some(Writing { actual, dirty, originals, planes }) = &self.writing else { return };
        if let Some(object) = key.object().filter(|_| key.resource == Resource::Ingress) {
            originals.gone(&object);
        }
        if let Some(object) = key.object().filter(|_| key.resource == Resource::Cluster) {
            planes.gone(&object);
        }
        let meta =
            || ObjectMeta { name: Some(key.name.clone()), namespace: key.namespace.clone(), ..ObjectMeta::default() };
        let touched = match key.resource {
            Resource::Verdict => actual.gone_verdict(&meta()),
            Resource::Address => actual.gone_address(&meta()),
            Resource::DnsEndpoint if key.is_ours() => actual.gone_published(&meta()),
            _ => key.object().and_then(|object| actual.gone(&object)),
        };
        dirty.mark_all(touched);
    }
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_unix(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}
