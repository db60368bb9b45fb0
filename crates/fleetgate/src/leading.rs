//! A controller's work on the hub: contend for leadership, and while it lasts follow the tenant clusters, keep Ingresses in
//! them and write back what was planned.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use kubernetes::admission::Admission;
use kubernetes::apply;
use kubernetes::home::Writing;
use kubernetes::lease::{self, Term};
use kubernetes::resolvers;
use kubernetes::tenants::{self, Wanted, Wish};
use model::overflow::Failing;
use model::{ClusterName, Snapshot};
use prometheus_client::registry::Registry;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::peers::Chair;
use crate::wiring::Wiring;

/// Where the thread that plans leaves what a controller has to do. It never waits for it: wishes are kept by cluster, and
/// what is to be written by object.
pub(crate) struct Desk {
    pub(crate) writing: Writing,
    wishes: UnboundedSender<Wish>,
}

/// Ready to begin.
pub(crate) struct Leading {
    client: kubernetes::Client,
    lease: lease::Settings,
    tenants: tenants::Settings,
    snapshot: Arc<ArcSwap<Snapshot>>,
    writing: Writing,
    wishes: UnboundedReceiver<Wish>,
    apply_metrics: apply::Metrics,
    tenants_metrics: tenants::Metrics,
    /// Looks into tenant clusters on demand.
    directory: tenants::Directory,
    /// Where control planes are led to a resolver.
    wiring: Option<Wiring>,
    /// Where the API server asks us.
    admission: Option<Admission>,
    /// Where the hub's other processes are heard.
    chair: Option<Chair>,
    /// The members that fail, as those who check them agree.
    failing: watch::Receiver<Arc<Failing>>,
}

pub(crate) struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Desk {
    pub(crate) fn open(
        client: kubernetes::Client,
        lease: lease::Settings,
        tenants: tenants::Settings,
        snapshot: Arc<ArcSwap<Snapshot>>,
        writing: Writing,
        admission: Option<Admission>,
        registry: &mut Registry,
    ) -> (Self, Leading) {
        let (desk, wishes) = unbounded_channel();
        let leading = Leading {
            client,
            lease,
            directory: tenants::Directory::new(tenants.policy),
            tenants,
            wiring: None,
            snapshot,
            writing: writing.clone(),
            wishes,
            apply_metrics: apply::Metrics::register(registry),
            tenants_metrics: tenants::Metrics::register(registry),
            admission,
            chair: None,
            failing: watch::channel(Arc::default()).1,
        };
        (Self { writing, wishes: desk }, leading)
    }

    pub(crate) fn take(&self, wishes: Vec<Wish>, complete: bool) {
        for wish in wishes {
            // Nobody is there any more when the process ends.
            let _ = self.wishes.send(wish);
        }
        if complete {
            self.writing.actual.set_whole();
        }
    }
}

impl Leading {
    /// Has the hub's other processes heard while we lead, and the Lease say where.
    pub(crate) fn with_chair(mut self, chair: Option<Chair>, failing: watch::Receiver<Arc<Failing>>) -> Self {
        self.failing = failing;
        self.lease.meeting = chair.as_ref().map(|chair| chair.meeting);
        self.chair = chair;
        self
    }

    /// Has control planes be led to a resolver while we lead.
    pub(crate) fn with_wiring(mut self, wiring: Option<Wiring>) -> Self {
        self.wiring = wiring;
        self
    }

    /// Who knows the Services of tenant clusters: whether we lead or not.
    pub(crate) fn directory(&self) -> tenants::Directory {
        self.directory.clone()
    }

    /// Within a tokio runtime.
    pub(crate) fn start(self) -> Running {
        let stop = CancellationToken::new();
        let task = tokio::spawn(self.run(stop.clone()));
        Running { stop, task }
    }

    async fn run(mut self, stop: CancellationToken) {
        let mut election = lease::contend(self.client.clone(), self.lease.clone(), stop.clone());
        let mut followed = BTreeMap::new();
        while !stop.is_cancelled() {
            let term = election.term.borrow_and_update().clone();
            if let Some(term) = term {
                // Ends by itself with the term: what was begun is not left to itself.
                Box::pin(self.lead(term, &mut followed)).await;
                continue;
            }
            tokio::select! {
                () = self.listen(None, &mut followed) => {}
                changed = election.term.changed() => if changed.is_err() { break },
                () = stop.cancelled() => {}
            }
        }
        // The Lease is free once its holder has let go of it.
        if election.ended.await.is_err() {
            tracing::error!("the contender for the Lease panicked");
        }
    }

    /// Goes on until the term is lost, and what was begun has ended.
    async fn lead(&mut self, term: Term, followed: &mut BTreeMap<ClusterName, Wish>) {
        tracing::info!("leading: writes to the hub, follows tenant clusters and keeps Ingresses in them");
        let (sender, wishes) = unbounded_channel();
        for wish in followed.values() {
            let _ = sender.send(wish.clone());
        }
        let wanted = Arc::new(Wanted::default());
        let follow = tenants::follow(
            self.client.clone(),
            wishes,
            self.tenants.clone(),
            self.tenants_metrics.clone(),
            Arc::clone(&wanted),
            term.lost().clone(),
        );
        let Writing { actual, dirty, originals, planes } = self.writing.clone();
        let places = tenants::Sides { plan: Arc::clone(&self.snapshot), hub: Arc::clone(&actual), originals };
        let (wiring, client, wired) = (self.wiring.clone(), self.client.clone(), term.clone());
        let sides = resolvers::Sides { plan: Arc::clone(&self.snapshot), hub: Arc::clone(&actual), planes };
        let wire = async move {
            if let Some(wiring) = wiring {
                wiring.lead(client, sides, wired).await;
            }
        };
        let place = tenants::keep(places, wanted, term.lost().clone());
        let (plan, failing) = (Arc::clone(&self.snapshot), self.failing.clone());
        let sides = apply::Sides { plan, hub: actual, dirty, failing };
        let settings = apply::Settings { identity: self.lease.identity.clone() };
        let write = apply::run(self.client.clone(), sides, term.clone(), settings, self.apply_metrics.clone());
        let (chair, chairing) = (self.chair.clone(), term.clone());
        let hear = async move {
            if let Some(chair) = chair {
                chair.lead(chairing).await;
            }
        };
        let (admission, client) = (self.admission.clone(), self.client.clone());
        let admit = async move {
            if let Some(admission) = admission {
                admission.lead(client, term).await;
            }
        };
        let work = async { tokio::join!(follow, place, write, admit, hear, wire) };
        tokio::select! {
            ((), (), (), (), (), ()) = work => {}
            () = self.listen(Some(sender), followed) => {}
        }
    }

    /// Keeps the wishes together, and passes them on.
    async fn listen(&mut self, to: Option<UnboundedSender<Wish>>, followed: &mut BTreeMap<ClusterName, Wish>) {
        while let Some(wish) = self.wishes.recv().await {
            if let Some(to) = &to {
                let _ = to.send(wish.clone());
            }
            self.directory.take(&wish);
            match &wish {
                Wish::Follow(cluster, _) | Wish::Clear(cluster, _) => {
                    _ = followed.insert(cluster.clone(), wish.clone());
                }
                Wish::Leave(cluster) => _ = followed.remove(cluster),
            }
        }
        std::future::pending::<()>().await;
    }
}

impl Running {
    /// Returns once another controller can lead.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            tracing::error!("the controller panicked");
        }
    }
}
