//! The agents' door: HTTPS for what runs in tenant clusters. `manifest::agents` says what is said here.
//!
//! A bootstrap token buys a certificate of an hour from the hub's private authority, and that certificate speaks for one
//! cluster. Every request is checked anew against the credential and the snapshot of that moment, so that a no counts at once,
//! on open connections too. Whatever is claimed here is kept as a `DNSEndpoint` of the tenant's, which the same policy
//! judges as any other.

pub mod authority;
mod behalf;
mod connection;
mod control_plane;
mod credentials;
mod home;
mod limits;
mod link;
mod listen;
pub(crate) mod load;
mod metrics;
mod problem;
mod reports;
mod request;
mod standing;
mod tls;
mod verdicts;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use manifest::agents::Bootstrap;
use manifest::kept::{Credential, Holder};
use model::policy::rate::Rate;
use model::{ClusterName, Snapshot};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tunnel::Hub;

pub use behalf::NotSigned;
pub use home::{Answer, Changed, FolderHome, Home, HomeError};
pub use listen::serve;
pub use metrics::Metrics;
pub use reports::{OfOne, Reports, Service};
pub use verdicts::Verdicts;

pub(crate) use credentials::{is_same, random, to_hex};
pub(crate) use limits::{Buckets, source};

use authority::{AuthorityError, MAX_VALID, RequestError};
use tls::Keys;

/// How often the authorities are looked at: another process may have changed them, and they have their times.
const LOOK: Duration = Duration::from_mins(10);
/// Where that failed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Wrong tokens from one source for one credential, as many clients may share an address: a mistake is made a few times, and a guess would take ages.
const ATTEMPTS: Rate = Rate { burst: 10, spacing: Duration::from_secs(10) };
/// Some 400 KiB; above, the oldest attempts are forgotten.
const MAX_SOURCES: usize = 4096;
/// An agent sends a few requests a minute, and hundreds when it starts.
const REQUESTS: Rate = Rate { burst: 200, spacing: Duration::from_millis(20) };
/// Fleets have thousands.
const MAX_CLUSTERS: usize = 65_536;
/// Bodies that are read at once: 256 MiB at the very most.
const MAX_BODIES: usize = 32;
/// Long lines of load that are read at once: 64 MiB at the very most. A cluster with some hundred services sends short ones.
const MAX_LONG_LINES: usize = 256;
/// How often old load reports are looked for.
const SWEEP: Duration = Duration::from_secs(5);
/// Links of all clusters' agents: a few of each of thousands of clusters. Some 100 KiB each while nothing is carried.
const MAX_LINKS: usize = 16_384;
/// Each stays until it is revoked; one per place where an agent runs is plenty.
const MAX_CREDENTIALS: usize = 16;

pub struct Door {
    home: Arc<dyn Home>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    /// Whether the snapshot is of all of the fleet as it is, and not of what is left of an earlier process.
    informed: Arc<AtomicBool>,
    verdicts: Arc<Verdicts>,
    reports: Arc<Reports>,
    metrics: Metrics,
    /// Where the door is, for a certificate where no zone has a name for it.
    address: IpAddr,
    /// None until the home has been read.
    keys: ArcSwapOption<Keys>,
    has_keys: Notify,
    /// Wrong tokens.
    attempts: Buckets<(IpAddr, String)>,
    rates: Buckets<ClusterName>,
    bodies: Semaphore,
    long_lines: Semaphore,
    slots: Mutex<HashMap<ClusterName, Arc<Slot>>>,
    /// Who has the links, and what ends them all.
    hub: Option<(Hub, CancellationToken)>,
    links: Semaphore,
}

/// What the door holds for one cluster, as long as it has connections.
#[derive(Default)]
struct Slot {
    connections: AtomicUsize,
    /// They last, and count apart.
    links: AtomicUsize,
    /// One request with a body at a time, until the plan has come to it: a cluster with many connections gets no larger share of
    /// it. With how many endpoints each key has, and for which UID, once that was read.
    writing: tokio::sync::Mutex<Option<Counted>>,
    /// Ends the stream of load that is open.
    load: Mutex<CancellationToken>,
}

impl Slot {
    /// For a new stream of load; ends the one before.
    fn begin_load(&self) -> CancellationToken {
        let ours = CancellationToken::new();
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *load, ours.clone()).cancel();
        ours
    }
}

struct Counted {
    uid: Arc<str>,
    endpoints: BTreeMap<String, usize>,
}

/// Why a credential is not issued or revoked.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("no cluster that is accepted is called {0}")]
    NoSuchCluster(String),
    #[error("no credential has the id {0}")]
    NoSuchCredential(String),
    #[error("{0} has {MAX_CREDENTIALS} credentials already; revoke one of them first")]
    TooMany(String),
    #[error("a credential is valid for at least a second and at most {} days", MAX_VALID.as_secs() / 86_400)]
    Valid,
    #[error("the agents' door has no authority yet; the log says why")]
    NoAuthority,
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Home(#[from] HomeError),
}

impl Door {
    pub fn new(
        home: Arc<dyn Home>,
        (snapshot, informed): (Arc<ArcSwap<Snapshot>>, Arc<AtomicBool>),
        (verdicts, reports): (Arc<Verdicts>, Arc<Reports>),
        metrics: Metrics,
        address: IpAddr,
    ) -> Self {
        Self {
            home,
            snapshot,
            informed,
            verdicts,
            reports,
            metrics,
            address,
            keys: ArcSwapOption::empty(),
            has_keys: Notify::new(),
            attempts: Buckets::new(ATTEMPTS, MAX_SOURCES),
            rates: Buckets::new(REQUESTS, MAX_CLUSTERS),
            bodies: Semaphore::new(MAX_BODIES),
            long_lines: Semaphore::new(MAX_LONG_LINES),
            slots: Mutex::default(),
            hub: None,
            links: Semaphore::new(MAX_LINKS),
        }
    }

    /// Takes links too, until `stop`.
    pub fn with_links(mut self, hub: Hub, stop: CancellationToken) -> Self {
        self.hub = Some((hub, stop));
        self
    }

    /// A token for a cluster, which nobody is told again.
    pub async fn issue(&self, cluster: &str, valid: Duration) -> Result<(Credential, Bootstrap), CredentialError> {
        if valid < Duration::from_secs(1) || valid > MAX_VALID {
            return Err(CredentialError::Valid);
        }
        let unknown = || CredentialError::NoSuchCluster(cluster.to_owned());
        let name = cluster.parse().map_err(|_| unknown())?;
        let standing = standing::of(&self.snapshot.load(), &name).ok_or_else(unknown)?;
        let server_name = Snapshot::agents_door(&standing.apex).ok_or_else(unknown)?.to_string();
        let ca = self.keys.load_full().ok_or(CredentialError::NoAuthority)?.signer.trusted.clone();
        let of_it = |kept: &&Credential| {
            kept.holder == Holder::Agent && kept.cluster == cluster && kept.uid == *standing.owner.uid
        };
        if self.home.credentials().await?.iter().filter(of_it).count() >= MAX_CREDENTIALS {
            return Err(CredentialError::TooMany(cluster.to_owned()));
        }
        let (credential, token) = credentials::issue((cluster, &standing.owner.uid), unix_now(), valid);
        self.home.issue(credential.clone()).await?;
        tell_issued(&credential);
        Ok((credential, Bootstrap { token, server_name, ca }))
    }

    pub async fn credentials(&self) -> Result<Vec<Credential>, HomeError> {
        self.home.credentials().await
    }

    /// From now on it is good for nothing, and neither are the certificates that it bought.
    pub async fn revoke(&self, id: &str) -> Result<(), CredentialError> {
        if !credentials::is_id(id) || !self.home.revoke(id).await? {
            return Err(CredentialError::NoSuchCredential(id.to_owned()));
        }
        tracing::info!(target: "audit", event = "credential-revoked", credential = id, "a credential was revoked");
        Ok(())
    }

    /// Forgets what nobody has said again for a while.
    async fn sweep_reports(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            self.reports.sweep(load::now());
        }
    }

    /// Makes the authority if there is none, follows its times, and those of other processes that keep it.
    async fn keep_keys(&self) {
        loop {
            let pause = match self.look_at_keys().await {
                Ok(()) => LOOK,
                Err(error) => {
                    tracing::error!(error = &*error as &dyn std::error::Error, "the authority of agents is as it was");
                    LOOK_AGAIN
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn look_at_keys(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let now = unix_now();
        let mut kept = self.home.authorities().await?;
        if let Some(next) = authority::due(kept.as_ref(), now)? {
            kept = Some(self.home.keep_authorities(kept, next).await?);
        }
        let Some(kept) = kept else { return Err(AuthorityError::NoneValid.into()) };
        let is_current = |keys: &Keys| keys.kept == kept && now < keys.made.saturating_add(LOOK.as_secs() * 6);
        if self.keys.load().as_deref().is_some_and(is_current) {
            return Ok(());
        }
        let keys = Keys::new(kept, Arc::clone(&self.snapshot), self.address, (now, self.hub.is_some()))?;
        self.keys.store(Some(Arc::new(keys)));
        self.has_keys.notify_waiters();
        Ok(())
    }

    fn slot(&self, cluster: &ClusterName) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(cluster) {
            return Arc::clone(slot);
        }
        // Those of clusters whose last connection has ended.
        slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        Arc::clone(slots.entry(cluster.clone()).or_default())
    }
}

/// Who may speak for a cluster from now on.
fn tell_issued(Credential { id, cluster, holder, .. }: &Credential) {
    let (event, holder) = ("credential-issued", holder.as_str());
    tracing::info!(target: "audit", event, cluster, credential = id, holder, "a credential was issued");
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
