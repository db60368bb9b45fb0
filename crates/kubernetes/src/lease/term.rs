//! The time for which we may write.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Leadership, for as long as it lasts. Whoever holds one may be about to write: the Lease is given back only when all
/// clones are gone.
#[derive(Debug, Clone)]
pub struct Term {
    /// How often the Lease had changed hands when it began.
    pub epoch: i32,
    valid_until: Arc<Mutex<Instant>>,
    lost: CancellationToken,
    _writer: TaskTrackerToken,
}

impl Term {
    /// Whether we certainly still lead when `span` is over. To be asked right before each write, with the write's
    /// time-out.
    pub fn holds_for(&self, span: Duration) -> bool {
        !self.lost.is_cancelled() && self.remaining() > span
    }

    /// How much of it is certain.
    pub fn remaining(&self) -> Duration {
        read(&self.valid_until).saturating_duration_since(Instant::now())
    }

    /// Cancelled when it is over, at the latest when nothing remains.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }
}

/// The holder's side of a [`Term`].
pub(super) struct Tenure {
    epoch: i32,
    valid_until: Arc<Mutex<Instant>>,
    lost: CancellationToken,
    writers: TaskTracker,
}

impl Tenure {
    pub(super) fn begin(epoch: i32, valid_until: Instant) -> Self {
        let valid_until = Arc::new(Mutex::new(valid_until));
        Self { epoch, valid_until, lost: CancellationToken::new(), writers: TaskTracker::new() }
    }

    pub(super) fn term(&self) -> Term {
        Term {
            epoch: self.epoch,
            valid_until: Arc::clone(&self.valid_until),
            lost: self.lost.clone(),
            _writer: self.writers.token(),
        }
    }

    pub(super) fn valid_until(&self) -> Instant {
        read(&self.valid_until)
    }

    pub(super) fn extend(&self, valid_until: Instant) {
        *self.valid_until.lock().unwrap_or_else(PoisonError::into_inner) = valid_until;
    }

    /// Returns when nobody writes any more.
    pub(super) async fn end(&self) {
        self.lost.cancel();
        self.writers.close();
        // Every write has a deadline before that.
        let _ = timeout_at(self.valid_until(), self.writers.wait()).await;
    }
}

/// Whoever holds it unseen, by a panic or a dropped future, must not keep it.
impl Drop for Tenure {
    fn drop(&mut self) {
        self.lost.cancel();
    }
}

fn read(moment: &Mutex<Instant>) -> Instant {
    *moment.lock().unwrap_or_else(PoisonError::into_inner)
}
