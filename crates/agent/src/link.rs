//! The agent's end of the agents' door: who we are to the hub, and what is said there (`manifest::agents`).
//!
//! A bootstrap token buys a certificate, which is renewed when two thirds of its time are over. Should it be lost or not be
//! taken any more, the token buys another one. Nothing here gives up: whoever asks hears of an error at once, and of how
//! long to wait before asking again.

mod error;
mod identity;
mod metrics;
mod pause;
mod wire;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hyper::Method;
use hyper::body::Bytes;
use manifest::agents::{
    Certificate, ClaimChanges, ClaimList, ClusterView, EnrollRequest, JudgeRequest, Judgement, LoadSummary, Problem,
    RenewRequest, VerdictList,
};
use manifest::dns_endpoint::EndpointSpec;
use manifest::verdict::PartVerdict;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::place::Place;
pub use error::LinkError;
pub(crate) use error::plain;
pub(crate) use identity::hex;
use identity::{Identity, Store};
pub use metrics::LinkMetrics;
pub(crate) use pause::Pause;
pub(crate) use wire::broken;
use wire::{Call, Wire};

/// Certificates, problems and who we are.
const SMALL_ANSWER: usize = 1 << 20;
/// Everything that a cluster claims: some 200,000 endpoints with their verdicts.
const LARGE_ANSWER: usize = 128 << 20;
/// ExternalDNS waits for 15 s in all: what takes longer than this is told as an error while it still listens.
const PATIENCE: Duration = Duration::from_secs(10);
/// The hub answers within 30 s even when there is no news.
const NEWS_PATIENCE: Duration = Duration::from_secs(45);
/// Of a request, in octets: half of what the hub takes, so that what surrounds the endpoints never matters.
const LARGEST_QUESTION: usize = manifest::agents::MAX_BODY / 2;
/// And in endpoints.
const MOST_ASKED: usize = 10_000;
/// A machine that slept, or whose clock was set, notices within this that a certificate is to be renewed.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// The hub's doors for agents; tried one after the other.
    pub hubs: Vec<Place>,
    /// What `fleetgate credential issue` printed. Read again for every enrolment, so that a new token is found.
    pub bootstrap: PathBuf,
    /// A folder and the name of our file in it.
    pub state: Option<(PathBuf, &'static str)>,
}

/// Who we are to the hub, and the connections to it.
pub struct Link {
    store: Store,
    wire: Wire,
    identity: Mutex<Option<Arc<Identity>>>,
    enrolment: tokio::sync::Mutex<Enrolment>,
    metrics: LinkMetrics,
}

/// As whom a connection is opened, and whom it has to meet.
#[derive(Clone)]
pub(crate) struct Opening {
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) server_name: ServerName<'static>,
    identity: Arc<Identity>,
}

/// Enrolments are made one at a time. After one that failed, or that bought nothing, there is none for a while.
#[derive(Default)]
struct Enrolment {
    pause: Pause,
    refused: Option<(LinkError, Instant)>,
}

impl Link {
    /// Reads the bootstrap file, and what is left of an earlier process. Reaches for nothing yet.
    pub fn open(options: LinkOptions, metrics: LinkMetrics) -> Result<Self, LinkError> {
        let store = Store::open(options.bootstrap, options.state)?;
        let identity = store.recall(unix_now());
        if let Some(identity) = &identity {
            metrics.certified(identity);
            tracing::info!(expires = identity.expires(), "an earlier certificate is still good");
        }
        let identity = Mutex::new(identity.map(Arc::new));
        Ok(Self { store, wire: Wire::new(options.hubs), identity, enrolment: tokio::sync::Mutex::default(), metrics })
    }

    /// Whom the hub takes us for, and what that cluster may claim.
    pub async fn cluster(&self) -> Result<ClusterView, LinkError> {
        self.ask(&Call::get("/v1/cluster", SMALL_ANSWER, PATIENCE)).await
    }

    /// Everything that our cluster claims, by whichever agent.
    pub async fn claims(&self) -> Result<ClaimList, LinkError> {
        self.ask(&Call::get("/v1/claims", LARGE_ANSWER, PATIENCE)).await
    }

    /// The verdicts on what was changed, which is safely kept then.
    pub async fn change(&self, changes: &ClaimChanges) -> Result<VerdictList, LinkError> {
        self.ask(&post("/v1/claims", changes, LARGE_ANSWER)?).await
    }

    /// What would become of these, one by one.
    pub async fn judge(&self, endpoints: &[EndpointSpec]) -> Result<Vec<PartVerdict>, LinkError> {
        let mut verdicts = Vec::with_capacity(endpoints.len());
        for asked in questions(endpoints) {
            let request = JudgeRequest { endpoints: asked.to_vec() };
            let judgement: Judgement = self.ask(&post("/v1/judge", &request, LARGE_ANSWER)?).await?;
            if judgement.verdicts.len() != asked.len() {
                return Err(LinkError::Garbled("it judged other endpoints than it was asked about".into()));
            }
            verdicts.extend(judgement.verdicts);
        }
        Ok(verdicts)
    }

    /// The verdicts on all claims, as soon as their revision is another than `after`; after half a minute in any case.
    pub async fn verdicts(&self, after: u64) -> Result<VerdictList, LinkError> {
        self.ask(&Call::get(format!("/v1/verdicts?after={after}"), LARGE_ANSWER, NEWS_PATIENCE)).await
    }

    /// Sends the latest line whenever there is another one, until there are no more, the hub ends it, or our certificate is
    /// another one. `sent` hears of each.
    pub async fn load(
        &self,
        lines: &mut watch::Receiver<Bytes>,
        mut sent: impl FnMut(),
    ) -> Result<LoadSummary, LinkError> {
        let identity = self.admitted().await?;
        let mut answer = self.load_as(&identity, lines, &mut sent).await;
        if answer.as_ref().is_err_and(LinkError::is_not_admitted) {
            let identity = self.enrol_instead_of(Some(&identity)).await?;
            answer = self.load_as(&identity, lines, &mut sent).await;
            self.not_better(&answer).await;
        }
        self.metrics.asked(answer.as_ref().err().map_or("ok", LinkError::code));
        read(&answer?)
    }

    async fn load_as(
        &self,
        identity: &Arc<Identity>,
        lines: &mut watch::Receiver<Bytes>,
        sent: &mut impl FnMut(),
    ) -> Result<Vec<u8>, LinkError> {
        let (sender, answer) = self.wire.open(&identity.credential, "/v1/load", SMALL_ANSWER).await?;
        let mut answer = pin!(answer);
        // The one that there is has been sent, or is a second old.
        lines.mark_unchanged();
        let mut taken = Instant::now();
        while self.current().is_some_and(|current| Arc::ptr_eq(&current, identity)) {
            tokio::select! {
                biased;
                answer = answer.as_mut() => return accepted(answer?),
                changed = lines.changed() => if changed.is_err() { break },
            }
            let line = lines.borrow_and_update().clone();
            // One that finds no room is late by then: the next one says more.
            if sender.try_send(line).is_ok() {
                taken = Instant::now();
                sent();
            } else if taken.elapsed() > PATIENCE {
                return Err(LinkError::Away("it takes no more lines".into()));
            }
        }
        drop(sender);
        let late = |_| LinkError::Away(format!("no answer within {} s", PATIENCE.as_secs()));
        accepted(timeout(PATIENCE, answer).await.map_err(late)??)
    }

    /// Has a certificate at hand before anybody asks, and renews it in time.
    pub async fn keep(&self, stop: CancellationToken) {
        let renewing = async {
            let mut pause = Pause::default();
            loop {
                let renewed = match self.current() {
                    Some(identity) => match identity.until_renewal(unix_now()) {
                        Some(wait) => {
                            tokio::time::sleep(wait.min(LOOK_AT_CLOCK)).await;
                            continue;
                        }
                        None => self.renew(&identity).await,
                    },
                    None => self.enrol_instead_of(None).await.map(drop),
                };
                match renewed {
                    Ok(()) => pause.reset(),
                    Err(error) => {
                        let wait = pause.after(&error);
                        tracing::warn!(%error, again_in = ?wait, "no new certificate yet");
                        tokio::time::sleep(wait).await;
                    }
                }
            }
        };
        stop.run_until_cancelled(renewing).await;
    }

    /// How another kind of connection to the hub is opened as who we are.
    pub(crate) async fn opening(&self, protocol: &[u8]) -> Result<Opening, LinkError> {
        let identity = self.admitted().await?;
        let mut tls = (*identity.credential.tls).clone();
        tls.alpn_protocols = vec![protocol.to_vec()];
        Ok(Opening { tls: Arc::new(tls), server_name: identity.credential.server_name.clone(), identity })
    }

    /// Whether it was opened with the certificate that we have now.
    pub(crate) fn is_current(&self, opening: &Opening) -> bool {
        self.current().is_some_and(|current| Arc::ptr_eq(&current, &opening.identity))
    }

    pub(crate) fn hubs(&self) -> &[Place] {
        self.wire.hubs()
    }

    /// Asks as who we are. Where we are not taken for that any more, we enrol and ask once more.
    async fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T, LinkError> {
        let identity = self.admitted().await?;
        let mut answer = self.ask_as(&identity, call).await;
        if answer.as_ref().is_err_and(LinkError::is_not_admitted) {
            let identity = self.enrol_instead_of(Some(&identity)).await?;
            answer = self.ask_as(&identity, call).await;
            self.not_better(&answer).await;
        }
        let outcome = answer.as_ref().err().map_or("ok", LinkError::code);
        self.metrics.asked(outcome);
        read(&answer?)
    }

    async fn admitted(&self) -> Result<Arc<Identity>, LinkError> {
        match self.current().filter(|identity| !identity.is_over(unix_now())) {
            Some(identity) => Ok(identity),
            None => self.enrol_instead_of(None).await,
        }
    }

    /// A new certificate that is no better than the old one: another would not be, either.
    async fn not_better(&self, answer: &Result<Vec<u8>, LinkError>) {
        if let Err(error) = answer
            && error.is_not_admitted()
        {
            self.enrolment.lock().await.failed(error);
        }
    }

    async fn ask_as(&self, identity: &Identity, call: &Call) -> Result<Vec<u8>, LinkError> {
        accepted(self.wire.exchange(&identity.credential, call).await?)
    }

    async fn renew(&self, identity: &Identity) -> Result<(), LinkError> {
        let (key, csr) = identity::key_and_request()?;
        let call = post("/v1/renew", &RenewRequest { csr }, SMALL_ANSWER)?;
        match self.ask_as(identity, &call).await {
            Ok(answer) => self.take(&key, &read(&answer)?).map(drop),
            Err(error) if error.is_not_admitted() || identity.is_over(unix_now()) => {
                tracing::warn!(%error, "the certificate is not taken any more: enrolling anew");
                self.enrol_instead_of(Some(identity)).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Enrols, unless somebody else has meanwhile.
    async fn enrol_instead_of(&self, old: Option<&Identity>) -> Result<Arc<Identity>, LinkError> {
        let mut enrolment = self.enrolment.lock().await;
        let current = self.current().filter(|identity| !identity.is_over(unix_now()));
        if let Some(current) = current.filter(|current| old.is_none_or(|old| !std::ptr::eq(old, &raw const **current)))
        {
            return Ok(current);
        }
        if let Some((error, until)) = &enrolment.refused
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let enrolled = self.enrol().await;
        match &enrolled {
            Ok(_) => *enrolment = Enrolment::default(),
            Err(error) => enrolment.failed(error),
        }
        enrolled
    }

    async fn enrol(&self) -> Result<Arc<Identity>, LinkError> {
        let (token, credential) = self.store.newcomer()?;
        let (key, csr) = identity::key_and_request()?;
        let call = post("/v1/enroll", &EnrollRequest { token, csr }, SMALL_ANSWER)?;
        let answer = accepted(self.wire.exchange(&credential, &call).await?)?;
        self.take(&key, &read(&answer)?)
    }

    /// Makes it ours. One that cannot be kept on disk is used all the same.
    fn take(&self, key: &str, certificate: &Certificate) -> Result<Arc<Identity>, LinkError> {
        let identity = Arc::new(self.store.identity(key, certificate, unix_now())?);
        self.store.keep(&identity);
        self.metrics.certified(&identity);
        tracing::info!(expires = identity.expires(), "the hub gave us a certificate");
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&identity));
        Ok(identity)
    }

    fn current(&self) -> Option<Arc<Identity>> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Enrolment {
    fn failed(&mut self, error: &LinkError) {
        let wait = self.pause.after(error);
        self.refused = Some((error.clone(), Instant::now() + wait));
    }
}

fn post(path: &'static str, body: &impl Serialize, limit: usize) -> Result<Call, LinkError> {
    let body = serde_json::to_vec(body).map_err(|error| LinkError::Garbled(error.to_string()))?;
    Ok(Call { method: Method::POST, path: path.into(), body: body.into(), limit, patience: PATIENCE })
}

fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, LinkError> {
    serde_json::from_slice(answer).map_err(|error| LinkError::Garbled(error.to_string()))
}

/// What the hub says when it does not say no.
fn accepted(answer: wire::Answer) -> Result<Vec<u8>, LinkError> {
    if answer.status.is_success() {
        return Ok(answer.body);
    }
    let problem = serde_json::from_slice(&answer.body).unwrap_or_else(|_| Problem {
        code: "Unexplained".into(),
        reason: format!("the hub answered {}", answer.status.as_u16()),
    });
    Err(LinkError::of(answer.status, &problem, answer.retry_after))
}

/// As few questions as the bound on a request allows.
fn questions(endpoints: &[EndpointSpec]) -> Vec<&[EndpointSpec]> {
    let mut questions = Vec::new();
    let (mut from, mut size) = (0, 0);
    for (number, endpoint) in endpoints.iter().enumerate() {
        let more = json_size(endpoint);
        if number > from && (size + more > LARGEST_QUESTION || number - from >= MOST_ASKED) {
            questions.push(&endpoints[from..number]);
            (from, size) = (number, 0);
        }
        size += more;
    }
    if from < endpoints.len() {
        questions.push(&endpoints[from..]);
    }
    questions
}

/// With the comma behind it.
pub(crate) fn json_size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |text| text.len() + 1)
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_keep_to_the_bound_and_to_the_order() {
        let long = |number: usize| EndpointSpec {
            dns_name: number.to_string(),
            targets: vec!["x".repeat(LARGEST_QUESTION / 3)],
            ..EndpointSpec::default()
        };
        for (count, expected) in [(0, vec![]), (1, vec![1]), (2, vec![2]), (3, vec![2, 1]), (5, vec![2, 2, 1])] {
            let endpoints: Vec<_> = (0..count).map(long).collect();
            let questions = questions(&endpoints);
            assert_eq!(questions.iter().map(|asked| asked.len()).collect::<Vec<_>>(), expected, "{count}");
            assert_eq!(questions.concat(), endpoints);
        }
    }
}
