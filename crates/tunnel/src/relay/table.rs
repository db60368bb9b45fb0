//! The others that can be asked, and the connections to them.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use model::ClusterName;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, interval, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::tls::server_name;
use super::{Fingerprint, Keys, Listed};
use crate::hub::{Answer, Hub, Relay};
use crate::line::Line;
use crate::metrics::Metrics;
use crate::refused::Refused;
use crate::stream::Stream;
use crate::target::Target;
use crate::wire::{Hello, tune};

/// Connections to one other process: a single one is a bottleneck on a fast network.
const LINES: usize = 2;
/// Streams on a connection before there is a second one.
const MANY: usize = 16;
/// TCP, TLS and a greeting, within a cluster: then another one is asked.
const DIAL: Duration = Duration::from_millis(1500);
/// Whoever was not reached is not asked again by each of a thousand that wait.
const AFTER_FAILURE: Duration = Duration::from_millis(300);
/// How often it is looked whether a connection is of use to anybody.
const LOOK: Duration = Duration::from_secs(1);

/// All others, as this process was last told of them.
pub struct Table {
    hub: Hub,
    keys: Arc<Keys>,
    metrics: Metrics,
    /// Connections are of this runtime, whoever asks for them.
    runtime: Handle,
    others: HashMap<(SocketAddr, Fingerprint), Arc<Other>>,
}

impl Table {
    pub fn new(hub: Hub, keys: Arc<Keys>, metrics: Metrics, runtime: Handle) -> Self {
        Self { hub, keys, metrics, runtime, others: HashMap::new() }
    }

    /// From now on these are the others. Connections to those that stay are kept; to those that go they end with their last
    /// stream.
    pub fn set(&mut self, listed: Vec<Listed>) {
        let own = self.keys.fingerprint();
        let mut before = std::mem::take(&mut self.others);
        for Listed { address, certificate, clusters } in listed {
            if certificate == own {
                continue;
            }
            let other = match before.remove(&(address, certificate)) {
                Some(other) => other,
                None => match self.other(address, certificate) {
                    Ok(other) => other,
                    Err(error) => {
                        tracing::error!(%error, %address, "no TLS for a relay");
                        continue;
                    }
                },
            };
            *other.clusters.write().unwrap_or_else(PoisonError::into_inner) = clusters.into_iter().collect();
            self.others.insert((address, certificate), other);
        }
        self.hub.set_relays(self.others.values().map(|other| Arc::clone(other) as Arc<dyn Relay>).collect());
    }

    fn other(&self, address: SocketAddr, certificate: Fingerprint) -> Result<Arc<Other>, rustls::Error> {
        let tls = Arc::new(self.keys.client(certificate)?);
        Ok(Arc::new(Other {
            address,
            tls,
            replica: self.hub.replica().to_owned(),
            clusters: RwLock::default(),
            slots: Arc::default(),
            metrics: self.metrics.clone(),
            runtime: self.runtime.clone(),
        }))
    }
}

/// One of them.
struct Other {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    /// What we are called.
    replica: String,
    clusters: RwLock<HashSet<ClusterName>>,
    slots: Arc<[Slot; LINES]>,
    metrics: Metrics,
    runtime: Handle,
}

#[derive(Default)]
struct Slot {
    line: Mutex<Option<Arc<Line>>>,
    /// One at a time; and when it last failed.
    dialling: tokio::sync::Mutex<Option<Instant>>,
}

impl Relay for Other {
    fn has(&self, cluster: &ClusterName) -> bool {
        self.clusters.read().unwrap_or_else(PoisonError::into_inner).contains(cluster)
    }

    fn burden(&self) -> (bool, usize) {
        let lines: Vec<Arc<Line>> = self.lines().collect();
        let silent = !lines.is_empty() && lines.iter().all(|line| line.is_suspect());
        (silent, lines.iter().map(|line| line.busy()).sum())
    }

    fn connect<'a>(&'a self, cluster: &'a ClusterName, target: &'a Target, within: Duration) -> Answer<'a, Stream> {
        Box::pin(async move {
            let deadline = Instant::now() + within;
            let line = self.line(deadline).await?;
            line.connect(Some(cluster), target, deadline.saturating_duration_since(Instant::now())).await
        })
    }

    fn exchange<'a>(
        &'a self,
        cluster: &'a ClusterName,
        target: &'a Target,
        datagram: Bytes,
        within: Duration,
    ) -> Answer<'a, Bytes> {
        Box::pin(async move {
            let deadline = Instant::now() + within;
            let line = self.line(deadline).await?;
            let left = deadline.saturating_duration_since(Instant::now());
            line.exchange(Some(cluster), target, &datagram, left).await
        })
    }
}

impl Other {
    fn lines(&self) -> impl Iterator<Item = Arc<Line>> {
        self.slots.iter().filter_map(|slot| slot.line().clone()).filter(|line| !line.is_over())
    }

    /// The one with the least to do; a new one where there is none, or where all have much.
    async fn line(&self, deadline: Instant) -> Result<Arc<Line>, Refused> {
        let best = self.lines().min_by_key(|line| (line.is_suspect(), line.busy()));
        let free = self.slots.iter().position(|slot| slot.line().as_ref().is_none_or(|line| line.is_over()));
        match (best, free) {
            (Some(line), None) => Ok(line),
            (Some(line), Some(free)) => {
                if line.busy() >= MANY || line.is_suspect() {
                    // Whoever comes later has the use of it.
                    self.runtime.spawn(self.dial(free));
                }
                Ok(line)
            }
            (None, free) => {
                // In a task: others wait for it too.
                let dialled = self.runtime.spawn(self.dial(free.unwrap_or(0)));
                let dialled = timeout_at(deadline, dialled).await.map_err(|_| Refused::TimedOut)?;
                dialled.unwrap_or(Err(Refused::LinkLost))
            }
        }
    }

    fn dial(&self, number: usize) -> impl Future<Output = Result<Arc<Line>, Refused>> + Send + 'static {
        let (address, tls, slots) = (self.address, Arc::clone(&self.tls), Arc::clone(&self.slots));
        let (metrics, replica) = (self.metrics.clone(), self.replica.clone());
        async move {
            let slot = &slots[number];
            let mut failed = slot.dialling.lock().await;
            // Somebody else may have been faster.
            if let Some(line) = slot.line().clone().filter(|line| !line.is_over()) {
                return Ok(line);
            }
            if failed.is_some_and(|failed| failed.elapsed() < AFTER_FAILURE) {
                return Err(Refused::LinkLost);
            }
            let opened = open(address, tls, &replica, &metrics, (Arc::downgrade(&slots), number));
            let opened = timeout(DIAL, opened).await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
            match opened {
                Ok(line) => {
                    *failed = None;
                    *slot.line() = Some(Arc::clone(&line));
                    Ok(line)
                }
                Err(why) => {
                    *failed = Some(Instant::now());
                    tracing::warn!(relay = %address, why, "another process of the hub's is not reached");
                    Err(Refused::LinkLost)
                }
            }
        }
    }
}

impl Slot {
    fn line(&self) -> MutexGuard<'_, Option<Arc<Line>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Goes on by itself, until it breaks or is of no use.
async fn open(
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    replica: &str,
    metrics: &Metrics,
    (slots, number): (Weak<[Slot; LINES]>, usize),
) -> Result<Arc<Line>, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    tune(&stream);
    let name = server_name().map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|error| error.to_string())?;
    let (line, driver) = Line::open(stream, metrics).await.map_err(|error| error.to_string())?;
    let (held, counted) = (Arc::clone(&line), metrics.clone());
    let given_up = CancellationToken::new();
    let unless_it_answers = given_up.clone().drop_guard();
    tokio::spawn(async move {
        let useless = async {
            let mut looks = interval(LOOK);
            loop {
                tokio::select! {
                    _ = looks.tick() => {}
                    () = given_up.cancelled() => return,
                }
                if slots.strong_count() == 0 && held.busy() == 0 {
                    return;
                }
            }
        };
        counted.links.inc();
        let reason = driver.run(useless, || usize::try_from(counted.links.get()).unwrap_or(1)).await;
        counted.links.dec();
        counted.ended(reason);
        tracing::info!(relay = %address, reason, "a connection to another process of the hub's has ended");
        if let Some(slots) = slots.upgrade() {
            slots[number].line().take_if(|line| Arc::ptr_eq(line, &held));
        }
    });
    // Until it has answered it is not known whether it takes us for one of its own.
    let hello = Hello { replica: replica.to_owned(), replicas: 0, leaving: false };
    line.hello(&hello).await.map_err(|error| error.to_string())?;
    let _ = unless_it_answers.disarm();
    Ok(line)
}
