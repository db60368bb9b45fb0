//! * All links of a process, by cluster, and how one of them is chosen for a stream.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use model::ClusterName;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::identity::Identity;
use crate::line::Line;
use crate::metrics::Metrics;
use crate::refused::Refused;
use crate::stream::Stream;
use crate::target::Target;
use crate::wire::Hello;

/// Some agents, each with some links, and twice as many while certificates are renewed.
pub const MAX_LINKS_PER_CLUSTER: usize = 64;

/// What comes of asking somebody.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refused>> + Send + 'a>>;

/// Another process of the hub's, which has links that this one has not. It never relays itself.
pub trait Relay: Send + Sync {
    /// Whether it has a link to the cluster, as far as we know.
    fn has(&self, cluster: &ClusterName) -> bool;
    /// Whether it does not answer at the moment, and how much it has to do for us. The least is asked first.
    fn burden(&self) -> (bool, usize);
    fn connect<'a>(&'a self, cluster: &'a ClusterName, target: &'a Target, within: Duration) -> Answer<'a, Stream>;
    fn exchange<'a>(
        &'a self,
        cluster: &'a ClusterName,
        target: &'a Target,
        datagram: Bytes,
        within: Duration,
    ) -> Answer<'a, Bytes>;
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    replica: String,
    metrics: Metrics,
    links: Mutex<HashMap<ClusterName, Vec<Arc<Link>>>>,
    relays: RwLock<Vec<Arc<dyn Relay>>>,
    /// How many processes take links, this one included, and whether this one will not for much longer.
    hello: watch::Sender<(usize, bool)>,
    changed: watch::Sender<u64>,
}

struct Link {
    identity: Identity,
    agent: String,
    since: SystemTime,
    line: Arc<Line>,
}

/// A link as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkView {
    pub cluster: String,
    /// What the agent calls itself.
    pub agent: String,
    /// The id of the credential that its certificate was bought with.
    pub credential: String,
    /// Unix seconds.
    pub since: u64,
    /// Open now.
    pub streams: usize,
    /// Whether it does not answer at the moment.
    pub silent: bool,
}

impl Hub {
    /// `replica` is what this process is called among its equals.
    pub fn new(replica: &str, metrics: Metrics) -> Self {
        Self(Arc::new(Inner {
            replica: replica.to_owned(),
            metrics,
            links: Mutex::default(),
            relays: RwLock::default(),
            hello: watch::Sender::new((1, false)),
            changed: watch::Sender::new(0),
        }))
    }

    pub fn replica(&self) -> &str {
        &self.0.replica
    }

    /// A connection to something inside the cluster: by the own link with the least to do, by another one where that fails
    /// before the agent has said anything of the target, and by other processes, all within the one deadline.
    pub async fn connect(&self, cluster: &ClusterName, target: &Target, within: Duration) -> Result<Stream, Refused> {
        let deadline = Instant::now() + within;
        let mut answer = self.connect_here(cluster, target, within).await;
        for relay in self.relays_to(cluster) {
            let Some(left) = left(&answer, deadline) else { break };
            answer = better(answer, relay.connect(cluster, target, left).await);
        }
        self.0.metrics.dialled("tcp", &answer);
        if let Err(refused) = &answer {
            audit("dial", cluster, target, refused);
        }
        answer
    }

    /// A datagram to something inside the cluster, and the one that comes back; by the same ways.
    pub async fn exchange(
        &self,
        cluster: &ClusterName,
        target: &Target,
        datagram: Bytes,
        within: Duration,
    ) -> Result<Bytes, Refused> {
        let deadline = Instant::now() + within;
        let mut answer = self.exchange_here(cluster, target, &datagram, within).await;
        for relay in self.relays_to(cluster) {
            let Some(left) = left(&answer, deadline) else { break };
            answer = better(answer, relay.exchange(cluster, target, datagram.clone(), left).await);
        }
        self.0.metrics.dialled("udp", &answer);
        // Others fail by the thousand where a cluster is away.
        if let Err(refused @ Refused::Forbidden(_)) = &answer {
            audit("exchange", cluster, target, refused);
        }
        answer
    }

    /// By the links of this process alone: for what another one relays.
    pub async fn connect_here(
        &self,
        cluster: &ClusterName,
        target: &Target,
        within: Duration,
    ) -> Result<Stream, Refused> {
        target.check()?;
        let deadline = Instant::now() + within;
        let mut tried = Vec::new();
        let mut answer = Err(Refused::NoLink);
        while let Some(left) = left(&answer, deadline)
            && let Some(link) = self.next_link(cluster, &mut tried)
        {
            let asked = link.line.connect(None, target, left);
            answer = better(answer, self.unless_suspect(cluster, &link, &tried, asked).await);
        }
        answer
    }

    /// The same for a datagram.
    pub async fn exchange_here(
        &self,
        cluster: &ClusterName,
        target: &Target,
        datagram: &[u8],
        within: Duration,
    ) -> Result<Bytes, Refused> {
        target.check()?;
        let deadline = Instant::now() + within;
        let mut tried = Vec::new();
        let mut answer = Err(Refused::NoLink);
        while let Some(left) = left(&answer, deadline)
            && let Some(link) = self.next_link(cluster, &mut tried)
        {
            let asked = link.line.exchange(None, target, datagram, left);
            answer = better(answer, self.unless_suspect(cluster, &link, &tried, asked).await);
        }
        answer
    }

    /// Has a link of an agent's, which was admitted, until it breaks or `ends`. Its streams are for that identity's cluster
    /// and no other.
    pub async fn serve_link<S>(&self, stream: S, identity: Identity, ends: impl Future<Output = ()>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let opened = Line::open(stream, &self.0.metrics).await;
        let Ok((line, driver)) = opened else { return self.0.metrics.ended("Unopened") };
        let cluster = identity.cluster.clone();
        let greeting = async {
            let mut changes = self.0.hello.subscribe();
            let mut known: Option<Known> = None;
            loop {
                let (replicas, leaving) = *changes.borrow_and_update();
                let hello = Hello { replica: self.0.replica.clone(), replicas, leaving };
                match line.hello(&hello).await {
                    Ok(greeting) if known.is_none() => {
                        let agent = crate::refused::plain(&greeting.agent);
                        known = self.add(Link {
                            identity: identity.clone(),
                            agent,
                            since: SystemTime::now(),
                            line: Arc::clone(&line),
                        });
                        if known.is_none() {
                            return "TooMany";
                        }
                    }
                    Ok(_) => {}
                    Err(_) => return "Unopened",
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let reason = tokio::select! {
            biased;
            reason = driver.run(ends, || self.0.count()) => reason,
            reason = greeting => reason,
        };
        self.0.metrics.ended(reason);
        tracing::info!(%cluster, reason, "a link has ended");
    }

    /// All of them, by cluster.
    pub fn links(&self) -> Vec<LinkView> {
        let mut views: Vec<LinkView> = self.0.links().values().flatten().map(|link| link.view()).collect();
        views.sort_by(|a, b| (&a.cluster, a.since, &a.agent).cmp(&(&b.cluster, b.since, &b.agent)));
        views
    }

    /// Those of one cluster, the oldest first.
    pub fn links_of(&self, cluster: &ClusterName) -> Vec<LinkView> {
        let mut views: Vec<LinkView> =
            self.0.links().get(cluster).into_iter().flatten().map(|link| link.view()).collect();
        views.sort_by(|a, b| (a.since, &a.agent).cmp(&(b.since, &b.agent)));
        views
    }

    /// The clusters that this process has a link to.
    pub fn clusters(&self) -> Vec<ClusterName> {
        let mut clusters: Vec<ClusterName> = self.0.links().keys().cloned().collect();
        clusters.sort_unstable();
        clusters
    }

    /// By how many ways a cluster is reached now: links of this process, and other processes that have some.
    pub fn ways(&self, cluster: &ClusterName) -> usize {
        let own =
            self.0.links().get(cluster).map_or(0, |links| links.iter().filter(|link| !link.line.is_over()).count());
        own + self.relays_to(cluster).len()
    }

    /// Whenever the set of linked clusters changes.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// All other processes that take links. Agents are told how many there are.
    pub fn set_relays(&self, relays: Vec<Arc<dyn Relay>>) {
        let replicas = relays.len() + 1;
        *self.0.relays.write().unwrap_or_else(PoisonError::into_inner) = relays;
        self.0.hello.send_if_modified(|(known, _)| std::mem::replace(known, replicas) != replicas);
    }

    /// Tells all agents that this process is about to end.
    pub fn leave(&self) {
        self.0.hello.send_if_modified(|(_, leaving)| !std::mem::replace(leaving, true));
    }

    /// Whether agents have somewhere else to go.
    pub fn has_relays(&self) -> bool {
        !self.0.relays.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Until no agent has a link to this process any more.
    pub async fn until_left(&self) {
        let mut changed = self.changed();
        while !self.0.links().is_empty() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn relays(&self) -> usize {
        self.0.relays.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn relays_to(&self, cluster: &ClusterName) -> Vec<Arc<dyn Relay>> {
        let relays = self.0.relays.read().unwrap_or_else(PoisonError::into_inner);
        let mut relays: Vec<Arc<dyn Relay>> = relays.iter().filter(|relay| relay.has(cluster)).cloned().collect();
        relays.sort_by_key(|relay| relay.burden());
        relays
    }

    /// Whoever is asked on a link that falls silent goes to another one, as soon as that is known and where there is one.
    async fn unless_suspect<T>(
        &self,
        cluster: &ClusterName,
        link: &Link,
        tried: &[Arc<Link>],
        asked: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        tokio::pin!(asked);
        tokio::select! {
            biased;
            answer = &mut asked => return answer,
            () = link.line.until_suspect() => {}
        }
        let others = self.0.links().get(cluster).is_some_and(|links| {
            links.iter().any(|other| !other.line.is_suspect() && !tried.iter().any(|tried| Arc::ptr_eq(tried, other)))
        });
        if others { Err(Refused::LinkLost) } else { asked.await }
    }

    /// One that was not tried yet: first those that answer, and of those the one with the least to do.
    fn next_link(&self, cluster: &ClusterName, tried: &mut Vec<Arc<Link>>) -> Option<Arc<Link>> {
        let links = self.0.links();
        let untried = |link: &&Arc<Link>| !link.line.is_over() && !tried.iter().any(|tried| Arc::ptr_eq(tried, link));
        let left = links.get(cluster)?.iter().filter(untried);
        let link = Arc::clone(left.min_by_key(|link| (link.line.is_suspect(), link.line.busy()))?);
        drop(links);
        tried.push(Arc::clone(&link));
        Some(link)
    }

    /// `None` where the cluster has enough.
    fn add(&self, link: Link) -> Option<Known> {
        let link = Arc::new(link);
        let mut links = self.0.links();
        let of_cluster = links.entry(link.identity.cluster.clone()).or_default();
        if of_cluster.len() >= MAX_LINKS_PER_CLUSTER {
            return None;
        }
        of_cluster.push(Arc::clone(&link));
        let is_first = of_cluster.len() == 1;
        drop(links);
        self.0.metrics.links.inc();
        if is_first {
            self.0.changed.send_modify(|revision| *revision += 1);
        }
        tracing::info!(cluster = %link.identity.cluster, agent = link.agent, "a link is up");
        Some(Known { hub: self.clone(), link })
    }
}

/// A link that may be chosen, until this is dropped.
struct Known {
    hub: Hub,
    link: Arc<Link>,
}

impl Drop for Known {
    fn drop(&mut self) {
        let cluster = &self.link.identity.cluster;
        let mut links = self.hub.0.links();
        let mut is_last = false;
        if let Some(of_cluster) = links.get_mut(cluster) {
            of_cluster.retain(|link| !Arc::ptr_eq(link, &self.link));
            is_last = of_cluster.is_empty();
        }
        if is_last {
            links.remove(cluster);
        }
        drop(links);
        self.hub.0.metrics.links.dec();
        if is_last {
            self.hub.0.changed.send_modify(|revision| *revision += 1);
        }
    }
}

impl Inner {
    fn links(&self) -> MutexGuard<'_, HashMap<ClusterName, Vec<Arc<Link>>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> usize {
        usize::try_from(self.metrics.links.get()).unwrap_or(0)
    }
}

impl Link {
    fn view(&self) -> LinkView {
        LinkView {
            cluster: self.identity.cluster.to_string(),
            agent: self.agent.clone(),
            credential: self.identity.credential.to_string(),
            since: self.since.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            streams: self.line.busy(),
            silent: self.line.is_suspect(),
        }
    }
}

/// How long there is to try another way, where another way might help.
fn left<T>(answer: &Result<T, Refused>, deadline: Instant) -> Option<Duration> {
    let refused = answer.as_ref().err()?;
    let left = deadline.saturating_duration_since(Instant::now());
    (refused.is_of_the_link() && !left.is_zero()).then_some(left)
}

/// A refusal that says more is not forgotten for one that says less.
fn better<T>(earlier: Result<T, Refused>, later: Result<T, Refused>) -> Result<T, Refused> {
    match (earlier, later) {
        (Err(earlier), Err(Refused::NoLink)) => Err(earlier),
        (_, later) => later,
    }
}

fn audit(event: &'static str, cluster: &ClusterName, target: &Target, refused: &Refused) {
    tracing::info!(target: "audit", event, %cluster, destination = %target, code = refused.code(), reason = %refused, "refused");
}
