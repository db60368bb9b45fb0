//! Who has logged in: a cookie that only the browser has, and a word in every form that only our pages know.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use model::policy::rate::Rate;

use crate::agents::{Buckets, is_same, random, source};

/// Host-only, as it names no domain. Without `__Host-`, which would need TLS: `--admin` is plain HTTP on loopback.
const COOKIE: &str = "fleetgate_session";
/// A working day.
const LIFE: Duration = Duration::from_hours(8);
/// More people than look after a fleet; above, the oldest is logged out.
const MOST: usize = 64;
/// Wrong credentials from one source: a mistake is made a few times, and a guess would take ages.
const ATTEMPTS: Rate = Rate { burst: 10, spacing: Duration::from_secs(10) };
/// Some 100 KiB; above, the oldest attempts are forgotten.
const MOST_SOURCES: usize = 1024;

/// Somebody who showed the admin credential.
#[derive(Clone)]
pub(crate) struct Session {
    cookie: Arc<str>,
    /// What a form of ours carries.
    pub(super) word: Arc<str>,
    until: Instant,
}

pub(super) struct Sessions {
    open: Mutex<Vec<Session>>,
    attempts: Buckets<IpAddr>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { open: Mutex::default(), attempts: Buckets::new(ATTEMPTS, MOST_SOURCES) }
    }
}

impl Sessions {
    /// How long somebody has to wait who tried too often.
    pub(super) fn may_try(&self, peer: IpAddr) -> Result<(), Duration> {
        self.attempts.check(&source(peer))
    }

    pub(super) fn failed(&self, peer: IpAddr) {
        self.attempts.spend(&source(peer), 1);
    }

    pub(super) fn open(&self) -> Session {
        // 256 bits each.
        let [cookie, word] = [random::<32>().into(), random::<32>().into()];
        let session = Session { cookie, word, until: Instant::now() + LIFE };
        let mut open = self.lock();
        if open.len() >= MOST {
            open.remove(0);
        }
        open.push(session.clone());
        session
    }

    pub(super) fn find(&self, headers: &HeaderMap) -> Option<Session> {
        let shown = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut shown = shown.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let (_, cookie) = shown.find(|(name, _)| *name == COOKIE)?;
        let open = self.lock();
        open.iter().find(|session| is_same(session.cookie.as_bytes(), cookie.as_bytes())).cloned()
    }

    /// Whether it still counts.
    pub(super) fn is_open(&self, session: &Session) -> bool {
        self.lock().iter().any(|open| Arc::ptr_eq(&open.cookie, &session.cookie))
    }

    pub(super) fn close(&self, session: &Session) {
        self.lock().retain(|open| !Arc::ptr_eq(&open.cookie, &session.cookie));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Session>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        open.retain(|session| now < session.until);
        open
    }
}

impl Session {
    /// The header that has a browser keep it.
    pub(super) fn set_cookie(&self) -> String {
        format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/; Max-Age={}", self.cookie, LIFE.as_secs())
    }

    /// The header that has a browser forget it.
    pub(super) fn clear_cookie() -> String {
        format!("{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0")
    }

    /// Whether a form is one that we gave to this very browser.
    pub(super) fn wrote(&self, word: &str) -> bool {
        is_same(self.word.as_bytes(), word.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn showing(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, cookie.parse().unwrap())])
    }

    #[test]
    fn a_cookie_counts_until_it_is_given_back() {
        let sessions = Sessions::default();
        let (one, other) = (sessions.open(), sessions.open());
        let cookie = one.set_cookie();
        let pair = cookie.split(';').next().unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict; Path=/;"), "{cookie}");
        assert_eq!(pair.len(), COOKIE.len() + 1 + 64);
        let found = sessions.find(&showing(&format!("theme=dark; {pair}"))).unwrap();
        assert!(found.wrote(&one.word) && !found.wrote(&other.word) && !found.wrote(""));
        for stranger in ["", "fleetgate_session=", "fleetgate_session=0", &pair.replace("session=", "session=0")] {
            assert!(sessions.find(&showing(stranger)).is_none(), "{stranger}");
        }
        sessions.close(&found);
        assert!(sessions.find(&showing(pair)).is_none() && !sessions.is_open(&one) && sessions.is_open(&other));
    }

    #[test]
    fn the_table_is_bounded_and_so_are_attempts() {
        let sessions = Sessions::default();
        let first = sessions.open();
        for _ in 0..MOST {
            sessions.open();
        }
        assert!(!sessions.is_open(&first));
        assert_eq!(sessions.lock().len(), MOST);

        let (peer, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        for _ in 0..ATTEMPTS.burst {
            assert!(sessions.may_try(peer).is_ok());
            sessions.failed(peer);
        }
        assert!(sessions.may_try(peer).is_err() && sessions.may_try(other).is_ok());
    }
}
