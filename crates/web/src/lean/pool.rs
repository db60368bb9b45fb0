//! Connections to members that wait for a request.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use model::ObjectName;
use model::inside::Place;
use tokio::io::{AsyncRead as _, ReadBuf};

use crate::upstream::Plain;

/// Whose connections may be used for what: never another tenant's.
pub(super) type Key = (Place, ObjectName);

/// Those that rest, and since when.
type Resting = HashMap<Key, Vec<(Plain, Instant)>, RandomState>;

/// Of one thread: nobody else takes the lock. No more rest than there are connections, which are bounded.
pub(super) struct Pool {
    /// The last to come is the first to go: the others grow old and are closed.
    resting: Mutex<Resting>,
    idle: Duration,
}

impl Pool {
    pub(super) fn new(idle: Duration) -> Self {
        Self { resting: Mutex::default(), idle }
    }

    pub(super) fn take(&self, key: &Key, now: Instant) -> Option<Plain> {
        let mut resting = self.lock();
        let slot = resting.get_mut(key)?;
        while let Some((mut connection, since)) = slot.pop() {
            if now.saturating_duration_since(since) < self.idle && is_quiet(&mut connection) {
                return Some(connection);
            }
        }
        None
    }

    pub(super) fn put(&self, connection: Plain, now: Instant) {
        let mut resting = self.lock();
        match resting.get_mut(&connection.key) {
            Some(slot) => slot.push((connection, now)),
            None => _ = resting.insert(connection.key.clone(), vec![(connection, now)]),
        }
    }

    /// Closes what has rested for too long, or was closed at the other end.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        self.lock().retain(|_, slot| {
            slot.retain_mut(|(connection, since)| {
                now.saturating_duration_since(*since) < self.idle && is_quiet(connection)
            });
            !slot.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Neither closed nor saying something that nobody asked for. The kernel is not asked: the runtime knows whether something
/// has happened.
fn is_quiet(connection: &mut Plain) -> bool {
    let mut nothing = [0; 1];
    let mut cx = Context::from_waker(Waker::noop());
    Pin::new(&mut connection.stream).poll_read(&mut cx, &mut ReadBuf::new(&mut nothing)).is_pending()
}
