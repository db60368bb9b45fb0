//! Who writes: leadership by a Lease of the hub.
//!
//! There is never more than one writer. Whoever holds the Lease counts its time from before it asked for it, stops a
//! margin earlier, and asks for nothing that could end later ([`Term`]). Everybody else counts a whole duration from when
//! they last saw the Lease change, each by its own monotonic clock, so that no two clocks are ever compared. The Lease is
//! only written over the version that was read, so that of several who try one succeeds. kube-runtime has no such thing.
//!
//! The Lease also says where its holder is met by the hub's other processes ([`crate::peers`]).

pub(crate) mod record;
mod term;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::peers::Meeting;
use record::{Action, Observer};
use term::Tenure;
pub use term::Term;

/// The Lease's name, in our own namespace.
pub const NAME: &str = "fleetgate-controller";

#[derive(Debug, Clone)]
pub struct Settings {
    pub namespace: String,
    pub name: String,
    /// Who we are, for people who look at the Lease; something random is added, so that a process never takes another's
    /// Lease for its own.
    pub identity: String,
    /// How long the Lease is good for without being renewed, in whole seconds: they stand in the Lease.
    pub duration: Duration,
    /// How often it is renewed; the others look twice as often.
    pub renew: Duration,
    /// Where the hub's other processes meet us while we lead.
    pub meeting: Option<Meeting>,
}

impl Settings {
    /// A leader that vanishes is followed within 3 s, half a look and a request: under 5 s. Two renewals in a row may fail.
    pub fn new(namespace: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: NAME.into(),
            identity: identity.into(),
            duration: Duration::from_secs(3),
            renew: Duration::from_secs(1),
            meeting: None,
        }
    }

    /// How long a holder trusts a renewal: a sixth less than the others do, for clocks that do not run at the same rate.
    fn hold(&self) -> Duration {
        self.duration * 5 / 6
    }

    /// Until something that failed is tried again: several times within what is left of a term.
    fn retry(&self) -> Duration {
        (self.renew / 5).mul_f64(0.5 + fastrand::f64())
    }
}

/// A contender, which goes on in a task of its own.
#[derive(Debug)]
pub struct Election {
    /// The term at hand, while we lead.
    pub term: watch::Receiver<Option<Term>>,
    /// Ends after `stop`, once the Lease is free for the next.
    pub ended: JoinHandle<()>,
}

/// Contends for the Lease until `stop`; then the Lease is given back as soon as nobody holds the [`Term`] any more.
pub fn contend(client: Client, settings: Settings, stop: CancellationToken) -> Election {
    let (terms, term) = watch::channel(None);
    let identity: Arc<str> = format!("{}_{:016x}", settings.identity, fastrand::u64(..)).into();
    let leases = Api::namespaced(client, &settings.namespace);
    let observer = Observer::new(Arc::clone(&identity), settings.duration);
    let contender = Contender { leases, settings, identity, observer, terms, stop };
    Election { term, ended: tokio::spawn(contender.run()) }
}

struct Contender {
    leases: Api<Lease>,
    settings: Settings,
    identity: Arc<str>,
    observer: Observer,
    terms: watch::Sender<Option<Term>>,
    stop: CancellationToken,
}

impl Contender {
    async fn run(mut self) {
        while !self.stop.is_cancelled() {
            let wait = match self.look_and_try().await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "the Lease could not be read or taken");
                    self.settings.retry()
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Leads, where that is possible, for as long as it is; returns when to look again.
    async fn look_and_try(&mut self) -> Result<Duration, Trouble> {
        let lease = self.read(self.patience()).await?;
        let now = Instant::now();
        match self.observer.observe(lease.as_ref(), now) {
            Action::Wait(until) => Ok((until - now).min(self.settings.renew / 2)),
            Action::Write(lease) => {
                let sent = Instant::now();
                match self.write(&self.marked(*lease), self.patience()).await {
                    Ok(lease) => {
                        self.lead(lease, sent).await;
                        Ok(Duration::ZERO)
                    }
                    // Another was faster; look at what it wrote.
                    Err(trouble) if trouble.is_overtaken() => Ok(Duration::ZERO),
                    Err(trouble) => Err(trouble),
                }
            }
        }
    }

    async fn lead(&mut self, mut lease: Lease, sent: Instant) {
        let epoch = record::transitions(&lease);
        let tenure = Tenure::begin(epoch, sent + self.settings.hold());
        tracing::info!(epoch, identity = &*self.identity, "leading");
        self.terms.send_replace(Some(tenure.term()));
        let mut next = sent + self.settings.renew;
        let end = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break End::Stopped,
                () = sleep_until(tenure.valid_until()) => break End::Expired,
                renewed = self.renew(&mut lease, next) => match renewed {
                    Some(sent) => {
                        tenure.extend(sent + self.settings.hold());
                        next = sent + self.settings.renew;
                    }
                    None => break End::Taken,
                },
            }
        };
        self.terms.send_replace(None);
        tenure.end().await;
        match end {
            End::Stopped => {
                self.release(lease, tenure.valid_until()).await;
                tracing::info!(epoch, "leading no more: stopped");
            }
            End::Expired => tracing::warn!(epoch, "leading no more: the Lease could not be renewed in time"),
            End::Taken => tracing::warn!(epoch, "leading no more: the Lease was taken away or deleted"),
        }
    }

    /// Tries until it succeeds; returns when the successful request was sent, or `None` if the Lease is not ours any more.
    async fn renew(&self, lease: &mut Lease, at: Instant) -> Option<Instant> {
        sleep_until(at).await;
        loop {
            let sent = Instant::now();
            let trouble = match self.write(&self.marked(record::renewed(lease)), self.patience()).await {
                Ok(written) => {
                    *lease = written;
                    return Some(sent);
                }
                // By a request of ours whose answer was lost, by somebody's hand, or by the next leader.
                Err(trouble) if trouble.is_overtaken() => match self.read(self.patience()).await {
                    Ok(Some(found)) if record::holder(&found) == Some(&self.identity) => {
                        *lease = found;
                        continue;
                    }
                    Ok(_) => return None,
                    Err(trouble) => trouble,
                },
                Err(trouble) => trouble,
            };
            tracing::warn!(error = &trouble as &dyn std::error::Error, "the Lease could not be renewed; trying again");
            sleep(self.settings.retry()).await;
        }
    }

    /// Lets the next one lead without waiting. Later than `until` there is nothing to give back.
    async fn release(&self, mut lease: Lease, until: Instant) {
        loop {
            let mut released = record::released(&lease);
            Meeting::mark(None, &mut released);
            match self.write(&released, until).await {
                Ok(_) => return,
                // A renewal was under way.
                Err(trouble) if trouble.is_overtaken() => match self.read(until).await {
                    Ok(Some(found)) if record::holder(&found) == Some(&self.identity) => lease = found,
                    _ => return,
                },
                Err(trouble) => {
                    tracing::warn!(
                        error = &trouble as &dyn std::error::Error,
                        "the Lease was not given back; it runs out"
                    );
                    return;
                }
            }
        }
    }

    /// With where we are met, and not where somebody before us was.
    fn marked(&self, mut lease: Lease) -> Lease {
        Meeting::mark(self.settings.meeting.as_ref(), &mut lease);
        lease
    }

    async fn read(&self, until: Instant) -> Result<Option<Lease>, Trouble> {
        within(until, self.leases.get_opt(&self.settings.name)).await
    }

    /// Over the version that was read; a Lease that was none is created.
    async fn write(&self, lease: &Lease, until: Instant) -> Result<Lease, Trouble> {
        let by_us = PostParams { field_manager: Some(crate::apply::MANAGER.into()), ..PostParams::default() };
        if lease.metadata.resource_version.is_some() {
            within(until, self.leases.replace(&self.settings.name, &by_us, lease)).await
        } else {
            let mut lease = lease.clone();
            lease.metadata.name = Some(self.settings.name.clone());
            within(until, self.leases.create(&by_us, &lease)).await
        }
    }

    /// A request that takes longer is not waited for: there is time for another.
    fn patience(&self) -> Instant {
        Instant::now() + self.settings.renew
    }
}

/// Why a term ended.
enum End {
    Stopped,
    Expired,
    Taken,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the hub did not answer in time")]
    Late,
    #[error("the hub said no, or was not there")]
    Api(#[source] Error),
}

impl Trouble {
    /// Whether the Lease is another than the one that was to be replaced.
    fn is_overtaken(&self) -> bool {
        matches!(self, Self::Api(Error::Api(status)) if status.is_conflict() || status.is_already_exists() || status.is_not_found())
    }
}

async fn within<T>(until: Instant, request: impl Future<Output = Result<T, Error>>) -> Result<T, Trouble> {
    timeout_at(until, request).await.map_err(|_| Trouble::Late)?.map_err(Trouble::Api)
}
