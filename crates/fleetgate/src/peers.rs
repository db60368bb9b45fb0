//! This process among the others of its hub: what it tells the leader, and what it does as the leader (`kubernetes::peers`).

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::egress::{Gate as _, NotAdmitted};
use anyhow::Context as _;
use api::agents::{NotSigned, OfOne, Reports, Service};
use bytes::Bytes;
use kubernetes::lease::Term;
use kubernetes::peers::wire::MAX_REPORTS;
use kubernetes::peers::{
    self, Answer, Asks, ClusterReports, Desk, DeskError, Door, Hears, Identity, Link, Listener, Meeting, Metrics, No,
    Peer, PeerView, Replica, Role, Settings, Speaks,
};
use kubernetes::resource::Roles;
use kubernetes::tenants;
use manifest::agents::Certificate;
use model::overflow::desk::FRESH;
use model::overflow::{Sighting, Tables};
use model::{ClusterName, ObjectName, Timestamp};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::arguments::{HubOptions, PeersOptions};
use crate::control::now;
use crate::job::{Job, JobHome};
use crate::overflow::Overflow;
use crate::replicas::Replicas;
use crate::wiring::Counter;

/// One that reads a long line leaves the other to the rest.
const THREADS: usize = 2;
/// How often a leader says to itself what it carries.
const SECOND: Duration = Duration::from_secs(1);
/// How often old reports are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// What there is to speak with.
struct Means<'a> {
    access: &'a HubOptions,
    options: &'a PeersOptions,
    roles: Roles,
    listener: Option<Listener>,
    overflow: &'a Overflow,
    reports: &'a Arc<Reports>,
    /// What this process carries.
    carries: Option<Arc<Replicas>>,
    /// The agents' door, where it has one with an authority.
    agents: Option<Arc<api::agents::Door>>,
    /// Who knows Services of tenant clusters.
    directory: Option<tenants::Directory>,
    metrics: Metrics,
}

/// Ends with [`Running::stop`].
pub(crate) struct Running {
    stop: CancellationToken,
    thread: std::thread::JoinHandle<()>,
    /// For a controller that others can reach.
    chair: Option<Chair>,
    /// How the leader is asked.
    asks: Asks,
    /// For people.
    view: api::peers::View,
}

/// What a leader does: it hears others, and makes the tables.
#[derive(Clone)]
pub(crate) struct Chair {
    pub(crate) meeting: Meeting,
    door: Door,
    overflow: Overflow,
}

impl Chair {
    /// Until the term is lost, and nobody is heard any more.
    pub(crate) async fn lead(&self, term: Term) {
        self.overflow.lead(true);
        self.door.lead(term).await;
        self.overflow.lead(false);
    }
}

/// A folder has no others.
pub(crate) fn metrics(job: &Job, registry: &mut Registry) -> Metrics {
    match &job.home {
        JobHome::Folder(_) => Metrics::default(),
        JobHome::Hub { .. } => Metrics::register(registry),
    }
}

/// Goes among the others of a hub.
pub(crate) async fn join(
    job: &Job,
    listener: Option<Listener>,
    overflow: &Overflow,
    state: &api::State,
    (carries, directory, metrics): (Option<Arc<Replicas>>, Option<tenants::Directory>, Metrics),
) -> anyhow::Result<Option<Running>> {
    let JobHome::Hub { access, roles } = &job.home else { return Ok(None) };
    let (options, roles, reports) = (&job.peers, *roles, &state.reports);
    let agents = state.agents.get().cloned();
    let means = Means { access, options, roles, listener, overflow, reports, carries, agents, directory, metrics };
    let running = start(means).await.context("meeting the hub's other processes")?;
    // Set once, here.
    let _ = state.peers.set(Arc::clone(&running.view));
    Ok(Some(running))
}

/// In a runtime of its own: what others say must not hold up a query, a connection or the renewal of the Lease.
async fn start(means: Means<'_>) -> anyhow::Result<Running> {
    let Means { access, options, roles, listener, overflow, reports, carries, agents, directory, metrics } = means;
    // Its connections are those of the other runtime.
    let (client, bearer) = kubernetes::client::connect_with_token(access.kubeconfig.as_deref()).await?;
    let namespace = access.namespace.clone();
    let ears = Arc::new(Ears { overflow: overflow.clone(), reports: Arc::clone(reports) });
    let chair = match &listener {
        Some(listener) => {
            let identity = Identity::new()?;
            let address = advertised(listener.address(), options.peers_address)?;
            let meeting = Meeting { address, certificate: identity.fingerprint };
            let settings = Settings {
                namespace: namespace.clone(),
                accounts: options.peers_accounts.clone(),
                link_accounts: options.peers_link_accounts.clone(),
            };
            let counter = directory.map(Counter::new);
            let has_desk = agents.is_some() || counter.is_some();
            let desk = has_desk.then(|| Arc::new(OwnDesk { agents, counter }) as Arc<dyn Desk>);
            let hears = (Arc::clone(&ears) as _, desk);
            let door = Door::new(settings, identity, client.clone(), hears, metrics.clone());
            Some(Chair { meeting, door, overflow: overflow.clone() })
        }
        None => None,
    };
    let (tell, meeting) = watch::channel(None);
    let voice = Voice {
        overflow: overflow.clone(),
        is_edge: roles.gateway || roles.dns,
        reports: Arc::clone(reports),
        told: Mutex::new((now(), None)),
        carries: carries.clone(),
    };
    let own = chair.as_ref().map(|chair| chair.door.fingerprint());
    let asks = Asks { meeting: meeting.clone(), own, bearer: bearer.clone() };
    let link = Link {
        meeting: meeting.clone(),
        own,
        me: Peer { name: overflow.edge.clone(), role: role(roles) },
        bearer,
        speaks: Arc::new(voice),
        metrics: metrics.clone(),
    };
    let me = link.me.clone();
    let view = view(chair.as_ref().map(|chair| chair.door.clone()), meeting, link.own, (carries.clone(), metrics));

    let stop = CancellationToken::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    let (stopped, door) = (stop.clone(), chair.as_ref().map(|chair| chair.door.clone()));
    let serving = move || {
        runtime.block_on(async {
            // These end with the runtime.
            tokio::spawn(async move { peers::follow(client, &namespace, tell).await });
            tokio::spawn(sweep(Arc::clone(&ears.reports)));
            if let Some((door, carries)) = door.clone().zip(carries) {
                tokio::spawn(carry(door, me, carries));
            }
            let hear = async {
                if let Some((door, listener)) = door.zip(listener) {
                    door.serve(listener, stopped.clone()).await;
                }
            };
            tokio::join!(hear, link.run(stopped.clone()));
            stopped.cancelled().await;
        });
    };
    let thread = std::thread::Builder::new().name("peers".into());
    let thread = thread.spawn(serving).context("starting the thread of --peers")?;
    Ok(Running { stop, thread, chair, asks, view })
}

impl Running {
    pub(crate) fn chair(&self) -> Option<Chair> {
        self.chair.clone()
    }

    pub(crate) fn asks(&self) -> Asks {
        self.asks.clone()
    }

    pub(crate) fn stop(self) {
        self.stop.cancel();
        if self.thread.join().is_err() {
            tracing::error!("the thread of --peers panicked");
        }
    }
}

/// Where others reach the listener.
fn advertised(listener: SocketAddr, address: Option<IpAddr>) -> anyhow::Result<SocketAddr> {
    let address = address.unwrap_or_else(|| listener.ip());
    if address.is_unspecified() {
        anyhow::bail!(
            "--peers listens on all addresses: say by --peers-address at which one the hub's other processes reach it"
        );
    }
    Ok(SocketAddr::new(address, listener.port()))
}

fn role(roles: Roles) -> Role {
    match roles {
        Roles { controller: true, dns: false, gateway: false, .. } => Role::Controller,
        Roles { controller: false, dns: true, gateway: false, .. } => Role::Dns,
        Roles { controller: false, dns: false, gateway: true, .. } => Role::Gateway,
        _ => Role::All,
    }
}

/// What the leader hears.
struct Ears {
    overflow: Overflow,
    reports: Arc<Reports>,
}

impl Hears for Ears {
    fn see(&self, edge: &ObjectName, sighting: Sighting) {
        self.overflow.see(edge.clone(), sighting);
    }

    fn report(&self, reports: Vec<ClusterReports>) {
        for ClusterReports { cluster, uid, services } in reports {
            let of = |(namespace, name, report)| (Service { namespace, name }, report);
            self.reports.take(&cluster, &uid, services.into_iter().map(of).collect(), now());
        }
    }

    fn tables(&self) -> watch::Receiver<Arc<Tables>> {
        self.overflow.news()
    }
}

/// What the leader's process does for others.
struct OwnDesk {
    agents: Option<Arc<api::agents::Door>>,
    /// For Services of tenant clusters.
    counter: Option<Counter>,
}

impl OwnDesk {
    fn agents(&self) -> Result<&Arc<api::agents::Door>, DeskError> {
        self.agents.as_ref().ok_or_else(|| DeskError::Away("this controller has no --agents".into()))
    }
}

impl Desk for OwnDesk {
    fn sign<'a>(&'a self, csr: &'a str) -> Answer<'a, Certificate> {
        let signed = self.agents().and_then(|agents| {
            agents.sign_gateway(csr).map_err(|error| match error {
                NotSigned::NoAuthority => DeskError::Away(error.to_string()),
                NotSigned::Request(error) => DeskError::Wrong(error.to_string()),
            })
        });
        Box::pin(std::future::ready(signed))
    }

    fn admitted<'a>(&'a self, identities: &'a [String]) -> Answer<'a, Vec<Option<No>>> {
        Box::pin(async move {
            let agents = self.agents()?;
            let mut answers = Vec::with_capacity(identities.len());
            for identity in identities {
                let Some(identity) = tunnel::Identity::parse(identity) else {
                    return Err(DeskError::Wrong("an identity is none".into()));
                };
                // Whoever asks has seen the certificate, and knows when it ends.
                answers.push(match agents.admit(&identity, u64::MAX).await {
                    Ok(()) => None,
                    Err(NotAdmitted::Out { code, reason }) => Some(No { code: code.into(), reason }),
                    Err(NotAdmitted::Unavailable) => {
                        return Err(DeskError::Away("credentials cannot be looked at right now".into()));
                    }
                });
            }
            Ok(answers)
        })
    }

    fn service<'a>(
        &'a self,
        cluster: &'a ClusterName,
        namespace: &'a ObjectName,
        name: &'a ObjectName,
    ) -> Answer<'a, Option<Bytes>> {
        Box::pin(async move {
            let nobody = || DeskError::Away("nobody looks up Services here".into());
            let found = self.counter.as_ref().ok_or_else(nobody)?.service(cluster, namespace, name).await?;
            Ok(found.map(Bytes::from))
        })
    }
}

/// What this process carries is in the table like everybody else's, while it leads; and the table is for it too.
async fn carry(door: Door, me: Peer, carries: Arc<Replicas>) {
    let mut told = door.replicas();
    let mut ticks = tokio::time::interval(SECOND);
    loop {
        tokio::select! {
            _ = ticks.tick() => door.carry(&me, Some(carries.says())),
            changed = told.changed() => {
                if changed.is_err() {
                    return;
                }
                let replicas = told.borrow_and_update().clone();
                if let Some(replicas) = replicas {
                    carries.hears(peers::Replicas::clone(&replicas));
                }
            }
        }
    }
}

/// The agents' door does so too, where there is one.
async fn sweep(reports: Arc<Reports>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        reports.sweep(now());
    }
}

/// What this process has to say.
struct Voice {
    overflow: Overflow,
    /// Whether it looks at members.
    is_edge: bool,
    reports: Arc<Reports>,
    /// Until when reports were told, and the cluster to go on from.
    told: Mutex<(Timestamp, Option<ClusterName>)>,
    carries: Option<Arc<Replicas>>,
}

impl Speaks for Voice {
    fn sighting(&self) -> Option<Sighting> {
        self.is_edge.then(|| Sighting::clone(&self.overflow.seen.load()))
    }

    fn reports(&self) -> Vec<ClusterReports> {
        let now = now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have no room are said again by their agents, and begin the next time.
        let (said, last) = self.reports.said_after(told.0, told.1.as_ref(), MAX_REPORTS);
        *told = (now, last);
        let of = |OfOne { cluster, uid, services }: OfOne| {
            let of = |(service, report): (Service, _)| (service.namespace, service.name, report);
            ClusterReports { cluster, uid, services: services.into_iter().map(of).collect() }
        };
        said.into_iter().map(of).collect()
    }

    fn take(&self, tables: Tables) {
        // Somebody who hangs makes no new ones.
        if now() < tables.at.saturating_add(FRESH) {
            self.overflow.publish(Arc::new(tables));
        }
    }

    fn replica(&self) -> Option<Replica> {
        self.carries.as_ref().map(|carries| carries.says())
    }

    fn take_replicas(&self, replicas: peers::Replicas) {
        if let Some(carries) = &self.carries {
            carries.hears(replicas);
        }
    }
}

/// For `GET /v1/peers`.
fn view(
    door: Option<Door>,
    meeting: watch::Receiver<Option<Meeting>>,
    own: Option<peers::Fingerprint>,
    (carries, metrics): (Option<Arc<Replicas>>, Metrics),
) -> api::peers::View {
    let peer = |PeerView { peer, account, from, since }: PeerView| {
        json!({
            "name": peer.name.as_str(),
            "role": peer.role.as_str(),
            "account": &*account,
            "from": from.to_string(),
            "heardForSeconds": since.as_secs(),
        })
    };
    let replica = |(peer, replica): &(Peer, Arc<Replica>)| {
        json!({
            "name": peer.name.as_str(),
            "role": peer.role.as_str(),
            "relay": replica.address.map(|address| address.to_string()),
            "takesLinks": replica.takes_links,
            "clusters": replica.clusters.iter().map(ClusterName::as_str).collect::<Vec<_>>(),
        })
    };
    Arc::new(move || -> Value {
        let leader = *meeting.borrow();
        let heard: Vec<Value> = door.iter().flat_map(Door::peers).map(peer).collect();
        let replicas = carries.as_ref().map(|carries| carries.heard());
        let replicas: Vec<Value> = replicas.iter().flat_map(|replicas| &replicas.0).map(replica).collect();
        json!({
            "replicas": replicas,
            "leader": leader.map(|leader| leader.address.to_string()),
            "leads": leader.is_some_and(|leader| Some(leader.certificate) == own),
            "linked": metrics.is_linked(),
            "tablesAgeSeconds": metrics.age().map(|age| age.as_secs_f64()),
            "items": heard,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_advertised_can_be_reached() {
        let at = |listener: &str, address: Option<&str>| {
            let address = address.map(|address| address.parse().unwrap());
            advertised(listener.parse().unwrap(), address).map(|address| address.to_string()).ok()
        };
        assert_eq!(at("192.0.2.1:9634", None).as_deref(), Some("192.0.2.1:9634"));
        assert_eq!(at("0.0.0.0:9634", Some("192.0.2.1")).as_deref(), Some("192.0.2.1:9634"));
        assert_eq!(at("[::]:9634", Some("2001:db8::1")).as_deref(), Some("[2001:db8::1]:9634"));
        assert_eq!(at("0.0.0.0:9634", None), None);
        assert_eq!(at("[::]:9634", Some("::")), None);
    }

    /// A new leader has those of the last one for its edges, until it has heard enough to make its own.
    #[test]
    fn tables_of_a_leader_are_there_for_the_next_one_to_tell() {
        let overflow = Overflow::new("host", &Arc::default(), false);
        let (reports, told) = (Arc::<Reports>::default(), Mutex::new((now(), None)));
        let voice =
            Voice { overflow: overflow.clone(), is_edge: false, reports: Arc::clone(&reports), told, carries: None };
        let news = Ears { overflow: overflow.clone(), reports }.tables();
        voice.take(Tables::default());
        assert!(!news.has_changed().unwrap(), "they are too old");
        voice.take(Tables { at: now(), ..Tables::default() });
        assert!(news.has_changed().unwrap());
        assert!(Arc::ptr_eq(&news.borrow(), &overflow.tables.load_full()));
    }

    /// Told once, and not at all before the process has begun.
    #[test]
    fn reports_are_passed_on_as_they_come() {
        let reports = Arc::new(Reports::default());
        let report = model::overflow::Report::check(1.0, 0.5, 3).unwrap();
        let service = || Service { namespace: "shop".parse().unwrap(), name: "web".parse().unwrap() };
        let say = |cluster: &str| {
            reports.take(&cluster.parse().unwrap(), &"u".into(), vec![(service(), report)], now());
        };
        say("c0");
        let overflow = Overflow::new("host", &Arc::default(), false);
        let told = Mutex::new((now(), None));
        let voice = Voice { overflow, is_edge: false, reports: Arc::clone(&reports), told, carries: None };
        assert_eq!((voice.reports(), voice.sighting()), (Vec::new(), None));
        say("c1");
        let said = voice.reports();
        assert_eq!((said.len(), said[0].cluster.as_str(), said[0].services.len()), (1, "c1", 1));
        assert_eq!(voice.reports(), Vec::new());
    }
}
