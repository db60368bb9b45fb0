//! Who comes: the hub's API server is asked whose token it is.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use model::policy::rate::{Buckets, Rate};
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::refusal::Refusal;

/// For so long an answer counts.
const REMEMBERED: Duration = Duration::from_mins(1);
/// Of good tokens: several times as many as there are peers. Wrong ones are not remembered but counted.
const MOST_REMEMBERED: usize = 1024;
/// Questions at once: the API server has others to answer.
const AT_ONCE: usize = 8;
/// For an answer, the turn included.
const PATIENCE: Duration = Duration::from_secs(5);
/// Wrong tokens from one address: a mistake is made a few times.
const TRIES: Rate = Rate { burst: 10, spacing: Duration::from_secs(10) };
/// Some 100 KiB.
const MOST_SOURCES: usize = 1024;

/// The SHA-256 of a token.
type Key = [u8; 32];

/// The name of an account, and until when that counts.
struct Admitted {
    account: Arc<str>,
    until: Instant,
}

/// Who is admitted, and by whom that is known.
pub(super) struct Reviews {
    client: Client,
    namespace: String,
    accounts: Vec<String>,
    known: Mutex<HashMap<Key, Admitted>>,
    wrong: Mutex<Buckets<IpAddr>>,
    start: Instant,
    at_once: Semaphore,
}

impl Reviews {
    pub(super) fn new(client: Client, namespace: String, accounts: Vec<String>) -> Self {
        Self {
            client,
            namespace,
            accounts,
            known: Mutex::default(),
            wrong: Mutex::new(Buckets::new(TRIES, MOST_SOURCES)),
            start: Instant::now(),
            at_once: Semaphore::new(AT_ONCE),
        }
    }

    /// The name of the account, where it is one of ours.
    pub(super) async fn admit(&self, token: &str, from: IpAddr) -> Result<Arc<str>, Refusal> {
        let mut key: Key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let now = Instant::now();
        if let Some(known) = lock(&self.known).get(&key).filter(|known| now < known.until) {
            return Ok(Arc::clone(&known.account));
        }
        lock(&self.wrong).check(&from, self.start.elapsed()).map_err(|_| Refusal::TooManyTries)?;
        let user = timeout(PATIENCE, self.ask(token)).await.map_err(|_| Refusal::HubAway)??;
        let admitted = match &user {
            None => Err(Refusal::BadToken),
            Some(user) => self.account(user).ok_or(Refusal::NotAllowed),
        };
        let account: Arc<str> = match admitted {
            Ok(account) => account.into(),
            Err(no) => {
                lock(&self.wrong).spend(&from, 1, self.start.elapsed());
                return Err(no);
            }
        };
        let mut known = lock(&self.known);
        if known.len() >= MOST_REMEMBERED {
            known.retain(|_, known| now < known.until);
            if known.len() >= MOST_REMEMBERED {
                known.clear();
            }
        }
        known.insert(key, Admitted { account: Arc::clone(&account), until: now + REMEMBERED });
        Ok(account)
    }

    /// Whom the API server takes the bearer for.
    async fn ask(&self, token: &str) -> Result<Option<String>, Refusal> {
        let away = |error: kube::Error| {
            tracing::warn!(error = crate::watch::chain(&error), "a peer's token could not be reviewed");
            Refusal::HubAway
        };
        let _turn = self.at_once.acquire().await.map_err(|_| Refusal::HubAway)?;
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), audiences: None },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await.map_err(away)?.status.unwrap_or_default();
        let user = status.user.and_then(|user| user.username);
        Ok(user.filter(|_| status.authenticated == Some(true) && status.error.is_none_or(|error| error.is_empty())))
    }

    fn account<'a>(&self, user: &'a str) -> Option<&'a str> {
        let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        (namespace == self.namespace && self.accounts.iter().any(|account| account == name)).then_some(name)
    }

    /// Our own, so that it is known who is a controller like us.
    pub(super) async fn own_account(&self) -> Result<Option<String>, kube::Error> {
        let reviews: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
        let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
        Ok(user.and_then(|user| self.account(&user).map(str::to_owned)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
