//! Follows the Nodes of tenant clusters, keeps federated Ingresses in them, and writes what it sees to the hub, as the
//! leading controller alone does.
//!
//! Everybody else, and the leader's own plan too, learns of both from `Cluster.status`. There, `.status.nodes`,
//! `.status.ingresses` and the conditions `Reachable` and `IngressesPlaced` belong to this module ([`FIELD_MANAGER`]):
//!
//! | `Reachable` | reason | |
//! |---|---|---|
//! | `True` | `Watching` | the nodes are what the cluster says now |
//! | `False` | `Unreachable` | its API server has been away for longer than [`Settings::patience`] |
//! | `False` | `Unauthorized` | the credential is not accepted, or may not list and watch nodes |
//! | `False` | `BadKubeconfig` | the kubeconfig is refused; see [`crate::kubeconfig`] |
//! | `False` | `NoKubeconfig` | there is no kubeconfig where the Cluster says |
//!
//! | `IngressesPlaced` | reason | |
//! |---|---|---|
//! | absent | | no Ingress is to be there |
//! | `True` | `Placed` | all are as they should be |
//! | `False` | `NotPlaced` | some are not; `.status.ingresses` says which, and why |
//! | `False` | `Forbidden` | the credential may not do all that is needed; nodes are followed all the same |
//!
//! While `Reachable` is `False`, the nodes last seen stay. A cluster that says that it has no nodes is believed: clusters without
//! nodes exist, and the grace time of the plan covers a mistake.
//!
//! Each cluster has a task of its own, its own connections and its own waits, so that one that hangs slows no other. What a
//! cluster sends is bounded (`link.rs`, `watch.rs`), what is kept of it too (`nodes.rs`), and how often it makes us
//! write (`pace.rs`).

mod away;
mod copy;
pub mod directory;
mod link;
mod metrics;
mod observe;
mod pace;
mod place;
mod placed;
mod report;
mod services;
mod wanted;
mod watch;
mod write;

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use manifest::placed::PlacedStatus;
use manifest::status::ClusterStatus;
use model::ClusterName;
use model::resource::Node;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub use copy::ORIGIN;
pub use directory::{Directory, EndpointView, PortView, ServiceView};
pub use metrics::Metrics;
pub use wanted::{Originals, Sides, Wanted, keep};
pub use write::FIELD_MANAGER;

use crate::kubeconfig::{Policy, SecretKey};
use placed::Placed;

/// Connections that begin at once: a hub that starts with a thousand clusters does not storm its network.
const CONNECTS: usize = 32;
/// Each takes a connection of its own to the hub.
const WRITES: usize = 16;

/// How one Cluster is read. Two that are equal are read alike.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// Of the Cluster object, so that one that is made anew does not get the nodes of its namesake.
    pub uid: Arc<str>,
    /// Where the kubeconfig stands, for messages.
    pub secret: SecretKey,
    /// Its octets, or why there are none: what the condition says, so it tells people what to do.
    pub kubeconfig: Result<Arc<[u8]>, Arc<str>>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("uid", &self.uid).field("secret", &self.secret).finish_non_exhaustive()
    }
}

/// What the status of the Cluster says already, perhaps by an earlier leader.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Last {
    pub nodes: Vec<Node>,
    /// The condition `Reachable`.
    pub reachable: Option<Condition>,
    pub ingresses: Vec<PlacedStatus>,
    pub more_ingresses: bool,
    /// The condition `IngressesPlaced`.
    pub placed: Option<Condition>,
}

impl Last {
    fn placed(&self) -> Placed {
        Placed { ingresses: self.ingresses.clone().into(), is_cut: self.more_ingresses, told: None }
    }
}

impl From<&ClusterStatus> for Last {
    fn from(status: &ClusterStatus) -> Self {
        let nodes = status.nodes.iter().map(|node| Node {
            name: node.name.clone(),
            addresses: node.addresses.iter().map(|address| address.0).collect(),
            ready: node.ready,
        });
        let condition = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind).cloned();
        Self {
            nodes: nodes.collect(),
            reachable: condition(ClusterStatus::REACHABLE),
            ingresses: status.ingresses.0.clone(),
            more_ingresses: status.more_ingresses,
            placed: condition(ClusterStatus::INGRESSES_PLACED),
        }
    }
}

/// A Cluster to follow.
#[derive(Debug)]
pub struct Subject {
    pub access: Access,
    pub last: Last,
}

#[derive(Debug, Clone)]
pub enum Wish {
    /// With an equal [`Access`], nothing changes, and [`Last`] is not looked at. With another one, the watch starts anew.
    Follow(ClusterName, Arc<Subject>),
    /// It is not to be followed any more. What was said of it is taken back from the Cluster that has this UID.
    Clear(ClusterName, Arc<str>),
    /// It is not to be followed any more, and nothing was said of it, or it is gone.
    Leave(ClusterName),
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub policy: Policy,
    /// How long a cluster may be away before its status says so. API servers restart within this.
    pub patience: Duration,
    /// The longest watch. Networks drop what is silent for five minutes; servers end watches by themselves before that.
    pub watch: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { policy: Policy::default(), patience: Duration::from_secs(10), watch: Duration::from_secs(285) }
    }
}

impl Settings {
    /// Each watch ends at a time of its own.
    fn watch_seconds(&self) -> RangeInclusive<u32> {
        let longest = u32::try_from(self.watch.as_secs()).unwrap_or(u32::MAX).clamp(1, 290);
        longest - longest / 6..=longest
    }
}

/// What the tasks of all clusters have in common.
struct Shared {
    hub: kube::Client,
    settings: Settings,
    metrics: Metrics,
    stop: CancellationToken,
    connects: Semaphore,
    writes: Semaphore,
    wanted: Arc<Wanted>,
}

/// Runs until `stop` or the end of the wishes. After `stop` no write begins, and one that has begun is given up.
pub async fn follow(
    hub: kube::Client,
    mut wishes: mpsc::UnboundedReceiver<Wish>,
    settings: Settings,
    metrics: Metrics,
    wanted: Arc<Wanted>,
    stop: CancellationToken,
) {
    let shared = Arc::new(Shared {
        hub,
        settings,
        metrics,
        stop,
        connects: Semaphore::new(CONNECTS),
        writes: Semaphore::new(WRITES),
        wanted,
    });
    let mut followed: HashMap<ClusterName, Followed> = HashMap::new();
    let mut cleared: HashMap<ClusterName, AbortOnDropHandle<()>> = HashMap::new();
    let mut leaving: HashMap<ClusterName, AbortOnDropHandle<()>> = HashMap::new();
    loop {
        let wish = tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            wish = wishes.recv() => wish,
        };
        match wish {
            None => break,
            Some(Wish::Leave(name)) => {
                let gone = followed.remove(&name);
                cleared.remove(&name);
                leaving.extend(gone.and_then(|gone| gone.leave(&shared)).map(|task| (name, task)));
            }
            Some(Wish::Clear(name, uid)) => {
                let gone = followed.remove(&name);
                leaving.extend(gone.and_then(|gone| gone.leave(&shared)).map(|task| (name.clone(), task)));
                // It is wished for again with every change of the Cluster until it is done.
                if cleared.get(&name).is_none_or(AbortOnDropHandle::is_finished) {
                    let task = tokio::spawn(write::clear(Arc::clone(&shared), name.clone(), uid));
                    cleared.insert(name, AbortOnDropHandle::new(task));
                }
            }
            Some(Wish::Follow(name, subject)) => {
                cleared.remove(&name);
                leaving.remove(&name);
                match followed.get(&name) {
                    Some(known) => known.turn_to(subject),
                    None => drop(followed.insert(name.clone(), Followed::start(&shared, name, subject))),
                }
            }
        }
        leaving.retain(|_, task| !task.is_finished());
        shared.metrics.followed(followed.len());
    }
    shared.metrics.followed(0);
}

/// Its task ends with it.
struct Followed {
    subject: tokio::sync::watch::Sender<Arc<Subject>>,
    /// Whether Ingresses of ours may be there.
    has_copies: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
}

impl Followed {
    fn start(shared: &Arc<Shared>, name: ClusterName, subject: Arc<Subject>) -> Self {
        let has_copies = Arc::new(AtomicBool::new(!subject.last.ingresses.is_empty()));
        let (subject, subjects) = tokio::sync::watch::channel(subject);
        let task = tokio::spawn(observe::cluster(Arc::clone(shared), name, subjects, Arc::clone(&has_copies)));
        Self { subject, has_copies, _task: AbortOnDropHandle::new(task) }
    }

    /// Ends, and removes what is ours in the cluster if that can be done at once. Nobody waits for it.
    fn leave(self, shared: &Arc<Shared>) -> Option<AbortOnDropHandle<()>> {
        let subject = Arc::clone(&self.subject.borrow());
        let has_copies = self.has_copies.load(Ordering::Relaxed);
        has_copies.then(|| AbortOnDropHandle::new(tokio::spawn(place::say_farewell(Arc::clone(shared), subject))))
    }

    fn turn_to(&self, subject: Arc<Subject>) {
        self.subject.send_if_modified(|known| {
            let changed = known.access != subject.access;
            if changed {
                *known = subject;
            }
            changed
        });
    }
}

#[cfg(test)]
mod tests;
