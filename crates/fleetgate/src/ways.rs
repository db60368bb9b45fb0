//! The ways into tenant clusters and from there: agents and their links, control planes and their resolver, and what the hub's processes
//! do for each other.

use std::sync::Arc;
use std::time::Duration;

use ::egress::Gate;
use api::agents::{Door as AgentsDoor, FolderHome, Home as AgentsHome};
use kubernetes::tenants;
use prometheus_client::registry::Registry;
use server::Bound;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::agents;
use crate::egress;
use crate::job::Job;
use crate::links::Links;
use crate::overflow::Overflow;
use crate::peers;
use crate::replicas::{self, RelayListener};
use crate::resolver;
use crate::wiring::AskedLeader;

/// An agent dials in milliseconds; one that finds nobody else is not waited for.
const LEFT_WITHIN: Duration = Duration::from_secs(3);

/// Where others come in.
pub(crate) struct Callers {
    pub(crate) agents: Option<Bound>,
    pub(crate) egress: Option<Bound>,
    pub(crate) peers: Option<kubernetes::peers::Listener>,
}

/// What is there before anybody is answered.
pub(crate) struct Prepared {
    pub(crate) links: Links,
    pub(crate) resolver: Option<resolver::Prepared>,
    replicas: Option<replicas::Running>,
    stop_agents: CancellationToken,
    agents_metrics: api::agents::Metrics,
    egress_metrics: ::egress::Metrics,
    peers_metrics: kubernetes::peers::Metrics,
}

/// Where this process keeps what agents say and what is known of tenants' clusters, on a hub.
pub(crate) struct OnHub {
    pub(crate) agents: Option<Arc<kubernetes::agents::Agents>>,
    /// Of a controller.
    pub(crate) directory: Option<tenants::Directory>,
}

/// All of them, while they are served.
pub(crate) struct Ways {
    links: Links,
    stop_agents: CancellationToken,
    agents: Option<std::thread::JoinHandle<()>>,
    egress: Option<egress::Running>,
    /// The control planes' resolver.
    resolver: Option<tokio::task::JoinHandle<()>>,
    stop_resolver: CancellationToken,
    /// The stream between the hub's processes.
    peers: Option<peers::Running>,
    /// What is carried for them, and links that a gateway takes.
    replicas: Option<replicas::Running>,
}

impl Prepared {
    /// `edge` is what this process is called.
    pub(crate) fn new(
        job: &Job,
        edge: &str,
        relay: Option<RelayListener>,
        registry: &mut Registry,
    ) -> anyhow::Result<Self> {
        let links = Links::new(edge, registry)?;
        let stop_agents = CancellationToken::new();
        Ok(Self {
            replicas: replicas::open(job, relay, &links, stop_agents.clone(), registry)?,
            resolver: resolver::prepare(job, &links.hub, registry)?,
            agents_metrics: api::agents::Metrics::register(registry),
            egress_metrics: ::egress::Metrics::register(registry),
            peers_metrics: peers::metrics(job, registry),
            links,
            stop_agents,
        })
    }

    /// Answers whoever comes. Within a tokio runtime.
    pub(crate) async fn serve(
        self,
        job: &Job,
        callers: Callers,
        hub: OnHub,
        state: &Arc<api::State>,
        overflow: &Overflow,
    ) -> anyhow::Result<Ways> {
        let Self { links, resolver, mut replicas, stop_agents, agents_metrics, egress_metrics, peers_metrics } = self;
        // A gateway has no authority of its own.
        let asks_for_leave = replicas::asks_for_leave(job);
        let (leased, own) = if asks_for_leave { (callers.agents, None) } else { (None, callers.agents) };
        let door = own.as_ref().map(|listener| {
            let own_links = replicas::takes_links(job).then_some(&links);
            agents_door(listener, hub.agents.clone(), state, agents_metrics, own_links)
        });
        let agents = own.zip(door).map(|(listener, door)| {
            agents::serve(listener, door, hub.agents, links.runtime.clone(), stop_agents.clone())
        });
        let agents = agents.transpose()?;

        let leads = hub.directory.is_some();
        let carries = replicas.as_ref().map(|running| Arc::clone(&running.replicas));
        let peers = peers::join(job, callers.peers, overflow, state, (carries, hub.directory, peers_metrics)).await?;
        let asks = peers.as_ref().map(peers::Running::asks);
        if let (Some(resolver), Some(asks), false) = (&resolver, &asks, leads) {
            resolver.resolver.set_directory(Arc::new(AskedLeader(asks.clone())));
        }
        let stop_resolver = CancellationToken::new();
        let resolver = resolver.map(|resolver| resolver.start(Arc::clone(&state.snapshot), stop_resolver.clone()));
        if let Some(replicas) = &mut replicas {
            replicas.serve(leased, asks, (Arc::clone(&state.snapshot), state.whole()))?;
        }

        let own_gate = state.agents.get().map(|door| Arc::clone(door) as Arc<dyn Gate>);
        let leave = || replicas.as_ref().and_then(replicas::Running::leave);
        let gate = own_gate.or_else(|| leave().map(|leave| Arc::new(leave) as Arc<dyn Gate>));
        let egress = callers.egress.map(|listener| {
            let gate =
                gate.ok_or_else(|| anyhow::anyhow!("--egress needs --agents: links into clusters come there"))?;
            egress::serve(listener, gate, &links, egress_metrics, job.doors.end.drain)
        });
        let egress = egress.transpose()?;
        Ok(Ways { links, stop_agents, agents, egress, resolver, stop_resolver, peers, replicas })
    }
}

impl Ways {
    pub(crate) fn chair(&self) -> Option<peers::Chair> {
        self.peers.as_ref().and_then(peers::Running::chair)
    }

    /// Its ports are bound by another process as soon as they are free.
    pub(crate) fn give_up_ports(&self) {
        self.stop_resolver.cancel();
    }

    /// Agents come back to whoever serves them next; what they sent is kept.
    pub(crate) fn leave(&self) {
        self.links.hub.leave();
        self.stop_agents.cancel();
    }

    /// What control planes have open; to be waited for apart from the rest.
    pub(crate) fn take_egress(&mut self) -> Option<egress::Running> {
        self.egress.take()
    }

    /// What the doors carried through links has ended. Where another process takes links, agents have a moment to be linked there:
    /// between the two nobody would reach their clusters.
    pub(crate) async fn end_links(&mut self, handed_over: bool) {
        if handed_over || self.links.hub.has_relays() {
            let _ = timeout(LEFT_WITHIN, self.links.hub.until_left()).await;
        }
        self.links.stop.cancel();
        if let Some(replicas) = self.replicas.take() {
            replicas.stop().await;
        }
        // Until here the leader was told what was still seen.
        if let Some(peers) = self.peers.take() {
            peers.stop();
        }
    }

    pub(crate) async fn end_resolver(&mut self) {
        self.stop_resolver.cancel();
        if let Some(resolver) = self.resolver.take()
            && resolver.await.is_err()
        {
            tracing::error!("the resolver panicked");
        }
    }

    /// The agents' door, whose requests wait for what the control thread makes of them, and the threads of all this.
    pub(crate) fn end(self) {
        if let Some(thread) = self.agents
            && thread.join().is_err()
        {
            tracing::error!("the thread of --agents panicked");
        }
        self.links.end();
    }
}

/// It takes links where it is given them.
fn agents_door(
    listener: &Bound,
    hub: Option<Arc<kubernetes::agents::Agents>>,
    state: &Arc<api::State>,
    metrics: api::agents::Metrics,
    links: Option<&Links>,
) -> Arc<AgentsDoor> {
    let home: Arc<dyn AgentsHome> = match hub {
        Some(hub) => Arc::new(agents::HubHome(hub)),
        None => Arc::new(FolderHome(Arc::clone(&state.database))),
    };
    let fleet = (Arc::clone(&state.snapshot), state.whole());
    let told = (Arc::clone(&state.verdicts), Arc::clone(&state.reports));
    let door = AgentsDoor::new(home, fleet, told, metrics, listener.address().ip());
    let door = Arc::new(match links {
        Some(links) => door.with_links(links.hub.clone(), links.stop.clone()),
        None => door,
    });
    // Set once, here.
    let _ = state.agents.set(Arc::clone(&door));
    door
}
