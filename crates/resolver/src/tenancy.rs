//! What the resolver has of one cluster: its cache, its questions under way and its limits. Nothing of it is shared.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use foldhash::quality::RandomState;
use model::ClusterName;
use model::resolver::ResolverPart;
use tokio::sync::{Semaphore, watch};

use crate::cache::{Cache, Found};
use crate::failure::Failure;
use crate::message::{Key, Response};
use crate::route::Routes;

/// What a cluster always may have under way: more than a control plane asks for at once.
const OWN_FLIGHTS: usize = 16;
/// What it may have while others leave room.
const MOST_FLIGHTS: usize = 256;
/// What all may have together, beside those that everybody may have: each holds a descriptor for some seconds.
const SHARED_FLIGHTS: usize = 4096;
/// Questions that wait for an answer: each holds some KiB.
const MOST_WAITING: usize = 1024;
/// RFC 7766 6.2.2: a client needs one or two.
const MOST_CONNECTIONS: usize = 64;

/// What becomes of a question.
pub(crate) type Outcome = Result<Arc<Response>, Failure>;

pub(crate) struct Tenancy {
    pub(crate) cluster: ClusterName,
    /// Tells it from a later one of the same name.
    pub(crate) uid: Arc<str>,
    pub(crate) part: Arc<ResolverPart>,
    pub(crate) routes: Routes,
    inner: Mutex<Inner>,
    waiting: AtomicUsize,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) counts: Counts,
}

/// For people: of all that came since the cluster is known.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) questions: AtomicU64,
    pub(crate) cached: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) limited: AtomicU64,
}

struct Inner {
    cache: Cache,
    flights: HashMap<Box<[u8]>, watch::Receiver<Option<Outcome>>, RandomState>,
    /// Questions that may still come now, in millionths.
    tokens: u64,
    filled: Instant,
}

/// What a question meets.
pub(crate) enum Met {
    /// Above the rate.
    Limited,
    Fresh(Arc<Response>, u32),
    Stale(Arc<Response>),
    Failed(Failure),
    /// Somebody is asked. Where `begun` is there, that is for the caller to do.
    Asked {
        outcome: watch::Receiver<Option<Outcome>>,
        begun: Option<watch::Sender<Option<Outcome>>>,
        stale: Option<Arc<Response>>,
    },
}

impl Tenancy {
    pub(crate) fn new(
        cluster: ClusterName,
        uid: Arc<str>,
        part: Arc<ResolverPart>,
        routes: Routes,
        room: usize,
    ) -> Self {
        let inner =
            Inner { cache: Cache::new(room), flights: HashMap::default(), tokens: u64::MAX, filled: Instant::now() };
        Self {
            cluster,
            uid,
            part,
            routes,
            inner: Mutex::new(inner),
            waiting: AtomicUsize::new(0),
            connections: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            counts: Counts::default(),
        }
    }

    /// What is known of a question, and who is asked if that is nothing: equal ones wait for one answer.
    pub(crate) fn meet(&self, key: &Key, rate: u32, others: &AtomicUsize, now: Instant) -> Met {
        let mut inner = self.lock();
        if !inner.take_token(rate, now) {
            return Met::Limited;
        }
        let (stale, may_ask) = match inner.cache.get(key.as_slice(), now) {
            Found::Fresh(response, age) => return Met::Fresh(response, age),
            Found::Stale { response, may_ask } => (Some(response), may_ask),
            Found::Failure(failure) => return Met::Failed(failure),
            Found::Nothing => (None, true),
        };
        if let Some(response) = stale.as_ref().filter(|_| !may_ask) {
            return Met::Stale(Arc::clone(response));
        }
        if let Some(outcome) = inner.flights.get(key.as_slice()) {
            return Met::Asked { outcome: outcome.clone(), begun: None, stale };
        }
        let under_way = inner.flights.len();
        let has_room =
            under_way < OWN_FLIGHTS || (under_way < MOST_FLIGHTS && others.load(Ordering::Relaxed) < SHARED_FLIGHTS);
        if !has_room {
            return stale.map_or(Met::Failed(Failure::TooMany), Met::Stale);
        }
        let (begun, outcome) = watch::channel(None);
        inner.flights.insert(key.as_slice().into(), outcome.clone());
        others.fetch_add(1, Ordering::Relaxed);
        Met::Asked { outcome, begun: Some(begun), stale }
    }

    /// Keeps what became of a question that somebody was asked.
    pub(crate) fn keep(&self, key: &Key, outcome: &Outcome, now: Instant) {
        let mut inner = self.lock();
        match outcome {
            Ok(response) => inner.cache.insert(key.as_slice(), Arc::clone(response), now),
            Err(failure) => inner.cache.fail(key.as_slice(), *failure, now),
        }
    }

    /// Nobody is asked any more.
    pub(crate) fn land(&self, key: &Key, others: &AtomicUsize) {
        if self.lock().flights.remove(key.as_slice()).is_some() {
            others.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// What is known of a name on the way, where aliases lead.
    pub(crate) fn fresh(&self, key: &Key, now: Instant) -> Option<Arc<Response>> {
        match self.lock().cache.get(key.as_slice(), now) {
            Found::Fresh(response, 0) => Some(response),
            // Its TTLs would have to be counted down.
            _ => None,
        }
    }

    /// One more that waits; `None` where there are enough.
    pub(crate) fn wait(self: &Arc<Self>) -> Option<Waiting> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(Arc::clone(self));
        (before < MOST_WAITING).then_some(waiting)
    }

    pub(crate) fn set_room(&self, room: usize) {
        self.lock().cache.set_most(room);
    }

    /// Entries, octets, and questions under way.
    pub(crate) fn load(&self) -> (usize, usize, usize) {
        let inner = self.lock();
        (inner.cache.len(), inner.cache.octets(), inner.flights.len())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// A second's worth may come at once.
    fn take_token(&mut self, rate: u32, now: Instant) -> bool {
        const ONE: u64 = 1_000_000;
        let most = u64::from(rate) * ONE;
        let passed = now.saturating_duration_since(self.filled).as_micros();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        self.filled = self.filled.max(now);
        // So many a second are as many millionths of one in a microsecond.
        self.tokens = self.tokens.saturating_add(passed.saturating_mul(rate.into())).min(most);
        let enough = self.tokens >= ONE;
        if enough {
            self.tokens -= ONE;
        }
        enough
    }
}

/// A question that waits.
pub(crate) struct Waiting(Arc<Tenancy>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
