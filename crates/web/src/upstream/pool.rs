//! Connections to members that wait for a request, and how many there may be.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::client::conn::{http1, http2};
use model::inside::Place as Where;

use super::{Key, Need, Sender};
use crate::body::RequestBody;
use crate::settings::Settings;

/// Of one thread, with its share of the limits: nobody else takes the lock.
pub(super) struct Pool {
    slots: Mutex<Slots>,
    per_address: usize,
    total: usize,
    streams: usize,
    idle: Duration,
}

#[derive(Default)]
struct Slots {
    by_key: HashMap<Key, Slot>,
    /// Open connections by where they lead, and all of them.
    open: HashMap<Where, usize>,
    all: usize,
}

#[derive(Default)]
struct Slot {
    /// The last to come is the first to go: the others grow old and are closed.
    resting: Vec<(http1::SendRequest<RequestBody>, Instant)>,
    shared: Vec<Shared>,
}

struct Shared {
    sender: http2::SendRequest<RequestBody>,
    streams: Arc<AtomicUsize>,
    used: Instant,
}

/// A request on a connection that others use too.
pub(super) struct Streams(Arc<AtomicUsize>);

/// An open connection, until it is dropped.
pub(super) struct Place {
    pool: Arc<Pool>,
    to: Where,
}

impl Pool {
    pub(super) fn new(settings: &Settings) -> Self {
        let share = |limit: usize| limit.div_ceil(settings.threads.max(1));
        Self {
            slots: Mutex::default(),
            per_address: share(settings.limits.upstream_per_address),
            total: share(settings.limits.upstream_total),
            streams: settings.limits.upstream_streams,
            idle: settings.timeouts.pooled,
        }
    }

    pub(super) fn take(&self, key: &Key, need: Need) -> Option<Sender> {
        let mut slots = self.lock();
        let slot = slots.by_key.get_mut(key)?;
        let now = Instant::now();
        if need != Need::Http1 {
            slot.shared.retain(|shared| !shared.sender.is_closed());
            let free = slot.shared.iter_mut().find(|shared| shared.streams.load(Ordering::Relaxed) < self.streams);
            if let Some(shared) = free {
                shared.used = now;
                return Some(Sender::Http2(shared.sender.clone(), Streams::new(&shared.streams)));
            }
        }
        while need != Need::Http2
            && let Some((sender, since)) = slot.resting.pop()
        {
            if sender.is_ready() && now.saturating_duration_since(since) < self.idle {
                return Some(Sender::Http1(sender));
            }
        }
        None
    }

    pub(super) fn put(&self, key: Key, sender: http1::SendRequest<RequestBody>) {
        // As many as there are connections: those are bounded.
        self.lock().by_key.entry(key).or_default().resting.push((sender, Instant::now()));
    }

    /// A new connection of HTTP/2, whose first request is under way.
    pub(super) fn share(&self, key: &Key, sender: http2::SendRequest<RequestBody>) -> Streams {
        let streams = Arc::default();
        let first = Streams::new(&streams);
        let shared = Shared { sender, streams, used: Instant::now() };
        self.lock().by_key.entry(key.clone()).or_default().shared.push(shared);
        first
    }

    /// Room for one more connection.
    pub(super) fn place(self: &Arc<Self>, key: &Key) -> Option<Place> {
        let mut slots = self.lock();
        let there = slots.open.get(&key.place).copied().unwrap_or(0);
        if there >= self.per_address || slots.all >= self.total {
            return None;
        }
        slots.open.insert(key.place.clone(), there + 1);
        slots.all += 1;
        Some(Place { pool: Arc::clone(self), to: key.place.clone() })
    }

    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let is_young = |since: Instant| now.saturating_duration_since(since) < self.idle;
        self.lock().by_key.retain(|_, slot| {
            slot.resting.retain(|(sender, since)| sender.is_ready() && is_young(*since));
            slot.shared.retain(|shared| {
                !shared.sender.is_closed() && (shared.streams.load(Ordering::Relaxed) > 0 || is_young(shared.used))
            });
            !slot.resting.is_empty() || !slot.shared.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streams {
    fn new(streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(streams))
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut slots = self.pool.lock();
        slots.all -= 1;
        match slots.open.get_mut(&self.to) {
            Some(more @ 2..) => *more -= 1,
            _ => _ = slots.open.remove(&self.to),
        }
    }
}
