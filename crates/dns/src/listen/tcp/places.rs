//! Who may be connected: when all places are taken, the connection that was quiet for longest goes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone)]
pub(super) struct Places {
    state: Arc<Mutex<State>>,
    total: usize,
    per_client: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Rises with everything that anybody does.
    clock: u64,
    /// By when each last did something.
    taken: BTreeMap<u64, (IpAddr, CancellationToken)>,
    /// The same, of each client.
    by_client: HashMap<IpAddr, BTreeSet<u64>>,
}

/// A connection's place; free again when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    client: IpAddr,
    last: Mutex<u64>,
    lost: CancellationToken,
}

impl Places {
    pub(super) fn new(total: usize, per_client: usize) -> Self {
        Self { state: Arc::default(), total, per_client }
    }

    /// A place for a new connection, and whether another had to go for it.
    pub(super) fn take(&self, client: IpAddr) -> (Place, bool) {
        let mut state = self.state();
        let of_client = state.by_client.get(&client).filter(|of_client| of_client.len() >= self.per_client);
        let oldest = match of_client.and_then(BTreeSet::first) {
            Some(oldest) => Some(*oldest),
            None if state.taken.len() >= self.total => state.taken.keys().next().copied(),
            None => None,
        };
        if let Some(oldest) = oldest
            && let Some(loser) = state.remove(oldest)
        {
            loser.cancel();
        }
        let token = CancellationToken::new();
        let last = state.insert(client, token.clone());
        (Place { places: self.clone(), client, last: Mutex::new(last), lost: token }, oldest.is_some())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn insert(&mut self, client: IpAddr, token: CancellationToken) -> u64 {
        self.clock += 1;
        self.taken.insert(self.clock, (client, token));
        self.by_client.entry(client).or_default().insert(self.clock);
        self.clock
    }

    fn remove(&mut self, last: u64) -> Option<CancellationToken> {
        let (client, token) = self.taken.remove(&last)?;
        if let Some(of_client) = self.by_client.get_mut(&client) {
            of_client.remove(&last);
            if of_client.is_empty() {
                self.by_client.remove(&client);
            }
        }
        Some(token)
    }
}

impl Place {
    /// Somebody else has it now.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// The client did something.
    pub(super) fn refresh(&self) {
        let mut state = self.places.state();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is lost stays so.
        if let Some(token) = state.remove(*last) {
            *last = state.insert(self.client, token);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let last = *self.last.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.places.state().remove(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn the_quietest_goes_first_and_first_of_the_same_client() {
        let places = Places::new(3, 2);
        let take = |last| places.take(client(last));
        let (first, ousted) = take(1);
        let (second, _) = take(1);
        assert!(!ousted);
        first.refresh();
        let (third, ousted) = take(1);
        assert!(ousted && second.lost.is_cancelled() && !first.lost.is_cancelled());
        drop(second);
        let (fourth, ousted) = take(2);
        assert!(!ousted);
        third.refresh();
        let (fifth, ousted) = take(3);
        assert!(ousted && first.lost.is_cancelled() && !third.lost.is_cancelled() && !fourth.lost.is_cancelled());
        drop((first, third, fourth, fifth));
        let state = places.state();
        assert!(state.taken.is_empty() && state.by_client.is_empty());
    }
}
