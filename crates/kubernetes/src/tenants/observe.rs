//! * One tenant cluster, as long as it is followed: connect, list, watch, and again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use model::ClusterName;
use tokio::sync::{SemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};

use super::away::Away;
use super::link::{CONNECT, Link};
use super::pace::Backoff;
use super::place::Placer;
use super::report::{Contact, Report, Seen, now};
use super::watch::{Query, Watched};
use super::write::write;
use super::{Shared, Subject};
use crate::kubeconfig::{self, Server};
use crate::nodes::NodeSet;

/// A watch that lasted this long was a good one: what comes next is no failure in a row. Something in between may end
/// watches early; one every few seconds from each of a thousand clusters can be borne.
const GOOD: Duration = Duration::from_secs(4);
/// How long a connection that is being made keeps others from beginning. Servers that answer are through by then; those
/// that hang must not stand in the way.
const HOLD: Duration = Duration::from_millis(250);

/// Ends when the sender of `subjects` is gone.
pub(super) async fn cluster(
    shared: Arc<Shared>,
    name: ClusterName,
    mut subjects: watch::Receiver<Arc<Subject>>,
    has_copies: Arc<AtomicBool>,
) {
    let (seen, view) = watch::channel(None);
    let observing = async {
        loop {
            let subject = Arc::clone(&subjects.borrow_and_update());
            let observer = Observer::new(&shared, &name, subject, &seen, &has_copies);
            tokio::select! {
                () = observer.observe() => {}
                changed = subjects.changed() => if changed.is_err() { return },
            }
        }
    };
    // The writer lasts while kubeconfigs come and go, so that there is never more than one.
    let writing = write(&shared, &name, view);
    tokio::select! {
        () = observing => {}
        () = writing => {}
    }
}

struct Observer<'a> {
    shared: &'a Arc<Shared>,
    name: &'a ClusterName,
    subject: Arc<Subject>,
    seen: &'a watch::Sender<Option<Seen>>,
    has_copies: &'a AtomicBool,
    /// What was known of this very Cluster before: by us, or else by an earlier leader.
    nodes: NodeSet,
}

impl<'a> Observer<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        name: &'a ClusterName,
        subject: Arc<Subject>,
        seen: &'a watch::Sender<Option<Seen>>,
        has_copies: &'a AtomicBool,
    ) -> Self {
        let uid = &subject.access.uid;
        let known =
            seen.borrow().as_ref().filter(|seen| seen.subject.access.uid == *uid).map(|seen| Arc::clone(&seen.nodes));
        let nodes = known.unwrap_or_else(|| Report::before(&subject).nodes);
        let nodes = nodes.iter().map(|node| (**node).clone()).collect();
        Self { shared, name, subject, seen, has_copies, nodes }
    }

    /// Lasts for ever.
    async fn observe(self) {
        let access = &self.subject.access;
        let octets = match &access.kubeconfig {
            Ok(octets) => octets,
            Err(why) => {
                return self.wait_for_a_kubeconfig(Contact::NoKubeconfig { since: now(), why: why.clone() }).await;
            }
        };
        match kubeconfig::read(&access.secret, octets, self.shared.settings.policy) {
            Ok(server) => {
                let server = Arc::new(server);
                let placer = Placer {
                    shared: self.shared,
                    cluster: self.name,
                    subject: Arc::clone(&self.subject),
                    seen: self.seen,
                    server: Arc::clone(&server),
                    has_copies: self.has_copies,
                };
                tokio::join!(self.follow(server), placer.run());
            }
            Err(refusal) => self.wait_for_a_kubeconfig(Contact::BadKubeconfig { since: now(), refusal }).await,
        }
    }

    async fn wait_for_a_kubeconfig(&self, contact: Contact) {
        self.tell(&self.nodes, contact);
        std::future::pending::<()>().await;
    }

    async fn follow(mut self, server: Arc<Server>) {
        let mut watched = Watched::new(std::mem::take(&mut self.nodes));
        let mut lost = None;
        let mut backoff = Backoff::default();
        let mut link = None;
        loop {
            let Ended { watching, why } = self.once(&server, &mut link, &mut watched, &mut lost).await;
            if watching.is_some() {
                lost = None;
            }
            let lost = lost.get_or_insert_with(Lost::now);
            match why {
                Ok(()) => self.shared.metrics.restarted("ended"),
                Err(away) => {
                    self.shared.metrics.restarted(away.label());
                    self.tell(&watched.kept, lost.because(away));
                    link = None;
                }
            }
            let good = watching.is_some_and(|since| since.elapsed() >= GOOD);
            if good {
                backoff.reset();
            }
            if !good || why.is_err() {
                sleep(backoff.next()).await;
            }
            if lost.at.elapsed() >= self.shared.settings.patience {
                watched.list_anew();
            }
        }
    }

    /// One watch, on the connection that there is, or on a new one.
    async fn once(
        &self,
        server: &Arc<Server>,
        link: &mut Option<Link>,
        watched: &mut Watched<NodeSet>,
        lost: &mut Option<Lost>,
    ) -> Ended {
        let mut watching = None;
        let seconds = self.shared.settings.watch_seconds();
        let why = async {
            let link = if let Some(link) = link {
                link
            } else {
                // The semaphore is never closed; without it there would only be no bound.
                let place = self.shared.connects.acquire().await.ok();
                if lost.is_none() {
                    // Only now: the time in the queue is not the server's fault.
                    self.tell(&watched.kept, lost.insert(Lost::now()).because(Away::NotYet));
                }
                link.insert(connect_from(self.shared, server, place).await?)
            };
            let tell = |nodes: &NodeSet| {
                let (_, since) = *watching.get_or_insert_with(|| (Instant::now(), now()));
                self.tell(nodes, Contact::Watching { since });
            };
            watched.follow(link, &Query::nodes(), seconds, tell).await
        };
        let why = why.await;
        Ended { watching: watching.map(|(at, _)| at), why }
    }

    fn tell(&self, nodes: &NodeSet, contact: Contact) {
        let subject = Arc::clone(&self.subject);
        self.seen.send_modify(|seen| {
            let before = seen.take().filter(|seen| seen.subject.access.uid == subject.access.uid);
            let placed = before.map_or_else(|| subject.last.placed(), |seen| seen.placed);
            *seen = Some(Seen { subject, nodes: nodes.to_list(), cut: nodes.is_cut(), contact, placed });
        });
    }
}

/// A connection more, when it is its turn.
pub(super) async fn connect(shared: &Shared, server: &Arc<Server>) -> Result<Link, Away> {
    // The semaphore is never closed; without it there would only be no bound.
    let place = shared.connects.acquire().await.ok();
    connect_from(shared, server, place).await
}

async fn connect_from(shared: &Shared, server: &Arc<Server>, place: Option<SemaphorePermit<'_>>) -> Result<Link, Away> {
    let connecting = timeout(CONNECT, Link::open(Arc::clone(server), shared.settings.policy));
    let mut connecting = std::pin::pin!(connecting);
    let soon = timeout(HOLD, &mut connecting).await;
    drop(place);
    let connected = match soon {
        Ok(connected) => connected,
        Err(_) => connecting.await,
    };
    connected.unwrap_or(Err(Away::TimedOut))
}

struct Ended {
    /// Since when nodes were watched, if it came to that.
    watching: Option<Instant>,
    why: Result<(), Away>,
}

/// Since when there is no watch.
struct Lost {
    since: Timestamp,
    at: Instant,
}

impl Lost {
    fn now() -> Self {
        Self { since: now(), at: Instant::now() }
    }

    fn because(&self, cause: Away) -> Contact {
        Contact::Lost { since: self.since, at: self.at, cause }
    }
}
