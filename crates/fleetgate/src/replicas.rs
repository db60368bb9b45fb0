//! This process among those of its hub that carry streams into clusters: what it says of itself, whom it relays to, and, as a
//! gateway, the links that it takes.

pub(crate) mod admission;
mod door;
pub(crate) mod keys;

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use ::egress::{Admitting, Gate};
use anyhow::Context as _;
use arc_swap::ArcSwap;
use clap::Args;
use kubernetes::peers::{self, Asks, Fingerprint, Replica};
use kubernetes::resource::Roles;
use model::Snapshot;
use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use server::Bound;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tunnel::relay::{self, Keys, Listed, Table};
use tunnel::{Hub, Identity, Metrics};

use crate::job::{Job, JobHome};
use crate::links::Links;
use admission::Admissions;
use door::LinkDoor;
use keys::Keyring;

/// For those that take links, on a hub.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RelayOptions {
    /// Take streams here from the hub's other processes, for clusters whose agents are linked to this one
    #[arg(long, value_name = "ADDR")]
    pub(crate) relay: Option<SocketAddr>,
    /// Where the others reach --relay, as the leader tells them; the address of --relay by default
    #[arg(long, value_name = "IP", requires = "relay", env = "FLEETGATE_RELAY_ADDRESS")]
    pub(crate) relay_address: Option<IpAddr>,
}

/// Links, where a gateway takes them.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LinksOptions {
    /// Take the links of agents here (`fleetgate agent tunnel`); they enrol at a controller's --agents
    #[arg(long, value_name = "ADDR", requires = "relay")]
    pub(crate) agents: Option<SocketAddr>,
}

/// A bound listener that does not answer yet.
pub(crate) struct RelayListener {
    socket: std::net::TcpListener,
    pub(crate) address: SocketAddr,
}

impl RelayListener {
    pub(crate) fn bind(at: SocketAddr) -> anyhow::Result<Self> {
        let open = || {
            let socket = std::net::TcpListener::bind(at)?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            std::io::Result::Ok(Self { socket, address })
        };
        open().with_context(|| format!("binding --relay on {at}"))
    }
}

/// Cheap to share. What the leader is told of us, and what we are told of others.
pub(crate) struct Replicas {
    hub: Hub,
    keys: Arc<Keys>,
    /// Where the others relay to.
    address: Option<SocketAddr>,
    takes_links: bool,
    /// Once it takes no more.
    leaving: CancellationToken,
    table: Mutex<Table>,
    known: watch::Sender<Arc<HashSet<relay::Fingerprint>>>,
    /// The last that was heard, for people.
    heard: ArcSwap<peers::Replicas>,
}

/// Ends with [`Running::stop`].
pub(crate) struct Running {
    pub(crate) replicas: Arc<Replicas>,
    /// That of links.
    runtime: Handle,
    door: Option<(relay::Door, RelayListener)>,
    ends: CancellationToken,
    serving: Vec<tokio::task::JoinHandle<()>>,
    leave: Option<Leave>,
}

/// By which doors of a process without an authority take whom they take: its certificate is signed by the leader, who also says
/// which credentials count. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Leave {
    pub(crate) keyring: Keyring,
    pub(crate) admissions: Admissions,
}

impl Leave {
    /// Within a tokio runtime, where the leader is asked.
    fn start(asks: Asks, snapshot: Arc<ArcSwap<Snapshot>>, informed: Arc<AtomicBool>) -> Self {
        let keyring = Keyring::default();
        tokio::spawn(keyring.clone().keep(asks.clone(), Arc::clone(&snapshot)));
        Self { keyring, admissions: Admissions::start(asks, snapshot, informed) }
    }
}

impl Gate for Leave {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.keyring.keys().map(|keys| Arc::clone(&keys.egress))
    }

    fn admit<'a>(&'a self, identity: &'a Identity, expires: u64) -> Admitting<'a> {
        Box::pin(self.admissions.admit(identity, expires))
    }
}

/// None where there are no others, or nothing to carry.
pub(crate) fn open(
    job: &Job,
    listener: Option<RelayListener>,
    links: &Links,
    leaving: CancellationToken,
    registry: &mut Registry,
) -> anyhow::Result<Option<Running>> {
    let JobHome::Hub { roles, .. } = &job.home else { return Ok(None) };
    if !roles.gateway && !roles.dns {
        return Ok(None);
    }
    let keys = Arc::new(Keys::new()?);
    let metrics = Metrics::register_relays(registry);
    let table = Table::new(links.hub.clone(), Arc::clone(&keys), metrics.clone(), links.runtime.clone());
    let (tell, known) = watch::channel(Arc::default());
    let address =
        listener.as_ref().map(|listener| advertised(listener.address, job.relay.relay_address)).transpose()?;
    let door = listener.map(|listener| {
        let door = relay::Door::new(links.hub.clone(), &keys, known, metrics)?;
        anyhow::Ok((door, listener))
    });
    let replicas = Replicas {
        hub: links.hub.clone(),
        keys,
        address,
        takes_links: job.agents.agents.is_some(),
        leaving,
        table: Mutex::new(table),
        known: tell,
        heard: ArcSwap::default(),
    };
    let (replicas, door) = (Arc::new(replicas), door.transpose()?);
    Ok(Some(Running {
        replicas,
        runtime: links.runtime.clone(),
        door,
        ends: links.stop.clone(),
        serving: Vec::new(),
        leave: None,
    }))
}

/// Whether links are taken by the leave of whoever leads, and not by our own authority.
pub(crate) fn asks_for_leave(job: &Job) -> bool {
    matches!(&job.home, JobHome::Hub { roles: Roles { controller: false, .. }, .. })
}

/// Whether the agents' door takes links: a controller on its own carries nothing.
pub(crate) fn takes_links(job: &Job) -> bool {
    match &job.home {
        JobHome::Folder(_) => true,
        JobHome::Hub { roles, .. } => roles.gateway,
    }
}

impl Running {
    /// Answers the others; and takes links, where there is a listener for them and a leader to ask.
    pub(crate) fn serve(
        &mut self,
        links: Option<Bound>,
        asks: Option<Asks>,
        (snapshot, informed): (Arc<ArcSwap<Snapshot>>, Arc<AtomicBool>),
    ) -> anyhow::Result<()> {
        let (stop, ends) = (self.replicas.leaving.clone(), self.ends.clone());
        let runtime = self.runtime.clone();
        let _entered = runtime.enter();
        if let Some((door, listener)) = self.door.take() {
            let listener = tokio::net::TcpListener::from_std(listener.socket).context("using --relay")?;
            self.serving.push(runtime.spawn(door.serve(listener, stop.clone(), ends.clone())));
        }
        if let Some((listener, asks)) = links.zip(asks) {
            let leave = Leave::start(asks, snapshot, informed);
            let door = LinkDoor { listener, leave: leave.clone() };
            self.serving.push(runtime.spawn(door.serve(self.replicas.hub.clone(), stop, ends)));
            self.leave = Some(leave);
        }
        Ok(())
    }

    /// Of the leader, by which a gateway's doors take whom they take.
    pub(crate) fn leave(&self) -> Option<Leave> {
        self.leave.clone()
    }

    /// Once nobody needs a stream any more.
    pub(crate) async fn stop(self) {
        for serving in self.serving {
            if serving.await.is_err() {
                tracing::error!("--relay panicked");
            }
        }
    }
}

impl Replicas {
    /// For the leader.
    pub(crate) fn says(&self) -> Replica {
        let certificate = Fingerprint::from(self.keys.fingerprint());
        if self.leaving.is_cancelled() {
            // It may still ask, for as long as something is carried.
            return Replica { address: None, certificate, takes_links: false, clusters: Vec::new() };
        }
        let clusters = if self.address.is_some() { self.hub.clusters() } else { Vec::new() };
        Replica { address: self.address, certificate, takes_links: self.takes_links, clusters }
    }

    /// Of the leader.
    pub(crate) fn hears(&self, replicas: peers::Replicas) {
        self.known.send_if_modified(|known| {
            let now = replicas.0.iter().map(|(_, replica)| replica.certificate.octets()).collect();
            let changed = **known != now;
            if changed {
                *known = Arc::new(now);
            }
            changed
        });
        let listed = |(_, replica): &(peers::Peer, Arc<Replica>)| {
            let address = replica.address.filter(|_| replica.takes_links)?;
            let certificate = replica.certificate.octets();
            Some(Listed { address, certificate, clusters: replica.clusters.clone() })
        };
        let listed = replicas.0.iter().filter_map(listed).collect();
        self.table.lock().unwrap_or_else(PoisonError::into_inner).set(listed);
        self.heard.store(Arc::new(replicas));
    }

    /// What was heard last.
    pub(crate) fn heard(&self) -> Arc<peers::Replicas> {
        self.heard.load_full()
    }
}

/// Where others reach the listener.
fn advertised(listener: SocketAddr, address: Option<IpAddr>) -> anyhow::Result<SocketAddr> {
    let address = address.unwrap_or_else(|| listener.ip());
    if address.is_unspecified() {
        anyhow::bail!(
            "--relay listens on all addresses: say by --relay-address at which one the hub's other processes reach it"
        );
    }
    Ok(SocketAddr::new(address, listener.port()))
}
