//! The agents' door of this process: where it keeps things, and the thread that it has to itself.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use api::agents::{Answer, Changed, Door, Home, HomeError};
use api::orders::Orders;
use kubernetes::agents::{Agents, AgentsError};
use manifest::kept::{Authorities, ClaimChange, Credential, KeptClaims, Owner};
use model::{ClusterName, ObjectRef, Timestamp};
use server::Bound;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// A hub as the door's home.
pub(crate) struct HubHome(pub(crate) Arc<Agents>);

impl Home for HubHome {
    fn authorities(&self) -> Answer<'_, Option<Authorities>> {
        Box::pin(async { self.0.authorities().await.map_err(away) })
    }

    fn keep_authorities(&self, known: Option<Authorities>, next: Authorities) -> Answer<'_, Authorities> {
        Box::pin(async move { self.0.keep_authorities(known.as_ref(), &next).await.map_err(away) })
    }

    fn credential<'a>(&'a self, id: &'a str) -> Answer<'a, Option<Credential>> {
        Box::pin(async move { self.0.credential(id).await.map_err(away) })
    }

    fn confirm<'a>(&'a self, id: &'a str) -> Answer<'a, Option<Credential>> {
        Box::pin(async move { self.0.confirm(id).await.map_err(away) })
    }

    fn credentials(&self) -> Answer<'_, Vec<Credential>> {
        Box::pin(async { self.0.credentials().map_err(away) })
    }

    fn issue(&self, credential: Credential) -> Answer<'_, ()> {
        Box::pin(async move { self.0.issue(&credential).await.map_err(away) })
    }

    fn revoke<'a>(&'a self, id: &'a str) -> Answer<'a, bool> {
        Box::pin(async move { self.0.revoke(id).await.map_err(away) })
    }

    fn claims<'a>(&'a self, owner: &'a Owner) -> Answer<'a, Vec<KeptClaims>> {
        Box::pin(async move { self.0.claims(owner).await.map_err(away) })
    }

    fn change<'a>(&'a self, owner: &'a Owner, changes: Vec<ClaimChange>) -> Answer<'a, Changed> {
        Box::pin(async move { self.0.change(owner, changes).await.map_err(away) })
    }
}

/// A hub, where annotations say what is let go and what is drained.
pub(crate) struct HubOrders(pub(crate) kubernetes::Client);

impl Orders for HubOrders {
    fn release(&self, object: ObjectRef, until: Timestamp) -> Answer<'_, ()> {
        Box::pin(async move {
            let released = kubernetes::orders::release(&self.0, &object, until).await;
            released.map_err(|error| HomeError::Away(Box::new(error)))
        })
    }

    fn drain(&self, cluster: ClusterName, since: Option<Timestamp>) -> Answer<'_, ()> {
        Box::pin(async move {
            let drained = kubernetes::orders::drain(&self.0, &cluster, since).await;
            drained.map_err(|error| HomeError::Away(Box::new(error)))
        })
    }

    fn are_in_objects(&self) -> bool {
        true
    }
}

fn away(error: AgentsError) -> HomeError {
    match error {
        AgentsError::Rejected(reason) => HomeError::Rejected(reason),
        error => HomeError::Away(Box::new(error)),
    }
}

/// With the links, apart from the doors: what agents send must not hold up a query or a connection. `hub` is followed meanwhile.
pub(crate) fn serve(
    listener: Bound,
    door: Arc<Door>,
    hub: Option<Arc<Agents>>,
    runtime: Handle,
    stop: CancellationToken,
) -> anyhow::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("agents".into());
    let serving = move || {
        runtime.block_on(async {
            if let Some(hub) = hub {
                tokio::spawn(hub.follow(stop.clone()));
            }
            api::agents::serve(listener, door, stop).await;
        });
    };
    thread.spawn(serving).context("starting the thread of --agents")
}
