//! * `fleetgate agent tunnel`: keeps links to the hub, so that it can reach what is inside the cluster (`tunnel` has both ends).
//!
//! A load balancer may lead anywhere, so that only the hub's hello says which of its processes is at the other end. We dial
//! until there are enough links to enough of them, and again whenever one is lost. A new certificate makes new links; the old
//! ones end with their streams.

mod redial;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::tunnel::inside::Dialler;
use ::tunnel::{ALPN, Hello, Metrics, server, tune};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::health::Health;
use crate::link::{Link, LinkError, Opening, broken};
use crate::place::Place;
use redial::Redial;

/// TCP and TLS with one address: packets cross the world in a tenth of it.
const CONNECT: Duration = Duration::from_secs(3);
/// The hub's hello after it.
const HELLO: Duration = Duration::from_secs(5);
/// How many processes of the hub there should be links to, where there are as many: one may end at any time.
const REPLICAS: usize = 2;
/// Dials that have not come to an end: one that waits for a hub that is gone must not hold up the next.
const AT_ONCE: usize = 4;
/// A new certificate, and a change at the hub, are noticed within this.
const LOOK: Duration = Duration::from_secs(1);
/// A link that was up for so long was a good one.
const LASTED: Duration = Duration::from_secs(2);
/// How long streams may go on when the process ends.
const FAREWELL: Duration = Duration::from_secs(20);

/// What it takes.
pub struct Tunnel {
    pub link: Arc<Link>,
    pub dialler: Arc<Dialler>,
    /// Connections to each of the hub's processes: one TCP connection may be the bottleneck.
    pub links: usize,
    pub health: Arc<Health>,
    pub metrics: Metrics,
}

/// A link that is up.
struct Held {
    opening: Opening,
    hello: watch::Receiver<Option<Hello>>,
    drain: CancellationToken,
    serving: JoinHandle<()>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What a link counts as.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    hello: Hello,
    /// Whether it was opened with the certificate of the moment.
    current: bool,
}

impl Tunnel {
    /// Until `stop`, and then until the streams have ended, or for some seconds.
    pub async fn run(self, stop: CancellationToken) {
        let this = Arc::new(self);
        let ended = Arc::new(Notify::new());
        let mut held: Vec<Held> = Vec::new();
        let mut dials: JoinSet<Result<Held, LinkError>> = JoinSet::new();
        let mut redial = Redial::default();
        let mut attempt = 0;
        let mut next = Instant::now();
        loop {
            held.retain(|link| !link.serving.is_finished());
            let seen: Vec<Seen> = held.iter().filter_map(|link| link.seen(&this.link)).collect();
            this.health.set_ready(!seen.is_empty());
            let enough = is_enough(&seen, this.links);
            if enough {
                held.iter().filter(|link| link.is_replaced(&this.link)).for_each(|link| link.drain.cancel());
            }
            tokio::select! {
                () = stop.cancelled() => break,
                Some(dialled) = dials.join_next(), if !dials.is_empty() => {
                    let added = match dialled {
                        Ok(Ok(link)) if is_wanted(&seen, link.seen(&this.link), this.links) => {
                            held.push(link);
                            true
                        }
                        // To a process of the hub's that we have enough links to.
                        Ok(Ok(_)) | Err(_) => false,
                        Ok(Err(error)) => {
                            tracing::warn!(%error, "no link to the hub");
                            false
                        }
                    };
                    if added {
                        redial = Redial::default();
                        next = Instant::now();
                    }
                }
                () = sleep_until(next), if !enough && dials.len() < AT_ONCE => {
                    let (this, ended) = (Arc::clone(&this), Arc::clone(&ended));
                    dials.spawn(async move { this.dial(attempt, ended).await });
                    attempt = attempt.wrapping_add(1);
                    next = Instant::now() + redial.next(Instant::now());
                }
                // A link that was lost, or is about to be, is dialled at once.
                () = ended.notified() => {
                    redial = Redial::default();
                    next = Instant::now();
                }
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        dials.shutdown().await;
        for link in &held {
            link.drain.cancel();
        }
        let all = async {
            for link in &mut held {
                let _ = (&mut link.serving).await;
            }
        };
        let _ = timeout(FAREWELL, all).await;
    }

    /// A link that has said hello.
    async fn dial(&self, attempt: usize, ended: Arc<Notify>) -> Result<Held, LinkError> {
        let opening = self.link.opening(ALPN).await?;
        let (hub, address) = self.place(attempt).await?;
        let connected = timeout(CONNECT, connect(address, &opening)).await;
        let late = || LinkError::Away(format!("{hub} at {address}: no connection in time"));
        let linked = match connected.map_err(|_| late())? {
            Ok(stream) => self.link_up(stream, opening, address, ended).await,
            // A hub that is away would be away for a question, too.
            Err(error) if !error.is_not_admitted() => return Err(error),
            Err(error) => Err(error),
        };
        if linked.is_err() {
            // Requests are answered with a reason, and enrol anew where our certificate is not taken any more.
            self.link.cluster().await?;
        }
        linked
    }

    /// All doors of the hub in turn, and of each all addresses.
    async fn place(&self, attempt: usize) -> Result<(&Place, SocketAddr), LinkError> {
        let hubs = self.link.hubs();
        let away = |why: String| LinkError::Away(why);
        let hub = hubs.get(attempt % hubs.len().max(1)).ok_or_else(|| away("there is no address".into()))?;
        let addresses =
            timeout(CONNECT, hub.addresses()).await.map_err(|_| away(format!("{hub}: no address in time")))?;
        let addresses = addresses.map_err(|error| away(format!("{hub}: {error}")))?;
        let address = addresses.get(attempt / hubs.len().max(1) % addresses.len().max(1));
        Ok((hub, *address.ok_or_else(|| away(format!("{hub} has no address")))?))
    }

    async fn link_up(
        &self,
        stream: TlsStream<TcpStream>,
        opening: Opening,
        address: SocketAddr,
        ended: Arc<Notify>,
    ) -> Result<Held, LinkError> {
        let (inside, mut hello) = self.dialler.on_link();
        let drain = CancellationToken::new();
        let (metrics, draining, mut said) = (self.metrics.clone(), drain.clone(), hello.clone());
        let began = Instant::now();
        let serving = tokio::spawn(async move {
            let serving = server::serve(stream, inside, &metrics, draining.cancelled(), std::future::pending());
            let mut serving = std::pin::pin!(serving);
            let is_leaving = |hello: &Option<Hello>| hello.as_ref().is_some_and(|hello| hello.leaving);
            let reason = tokio::select! {
                reason = &mut serving => reason,
                true = async { said.wait_for(is_leaving).await.is_ok() } => {
                    ended.notify_one();
                    serving.await
                }
            };
            tracing::info!(%address, reason, "a link has ended");
            // One that never was a link, or not for long, is no reason to hurry.
            if said.borrow().is_some() && began.elapsed() >= LASTED {
                ended.notify_one();
            }
        });
        let mut held = Held { opening, hello: hello.clone(), drain, serving };
        tokio::select! {
            heard = timeout(HELLO, hello.wait_for(Option::is_some)) => match heard {
                Ok(Ok(hello)) => {
                    let replica = hello.as_ref().map(|hello| hello.replica.clone());
                    tracing::info!(%address, replica, "a link is up");
                }
                _ => return Err(LinkError::Away(format!("{address}: it said nothing in time"))),
            },
            _ = &mut held.serving => return Err(LinkError::Away(format!("{address}: it took the link and ended it"))),
        }
        Ok(held)
    }
}

impl Held {
    /// Whether others are there in its place, once there are enough of them.
    fn is_replaced(&self, link: &Link) -> bool {
        !link.is_current(&self.opening) || self.hello.borrow().as_ref().is_some_and(|hello| hello.leaving)
    }

    fn seen(&self, link: &Link) -> Option<Seen> {
        let hello = self.hello.borrow().clone()?;
        Some(Seen { hello, current: link.is_current(&self.opening) })
    }
}

async fn connect(address: SocketAddr, opening: &Opening) -> Result<TlsStream<TcpStream>, LinkError> {
    let away = |error: std::io::Error| LinkError::Away(format!("{address}: {error}"));
    let stream = TcpStream::connect(address).await.map_err(away)?;
    tune(&stream);
    let connector = TlsConnector::from(Arc::clone(&opening.tls));
    let stream = connector.connect(opening.server_name.clone(), stream).await.map_err(|error| broken(&error))?;
    if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
        return Err(LinkError::Away(format!("{address}: it takes no links")));
    }
    Ok(stream)
}

/// How many links there are to each of the hub's processes that stay.
fn by_replica(seen: &[Seen]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for Seen { hello, current } in seen {
        if *current && !hello.leaving {
            *counts.entry(hello.replica.as_str()).or_default() += 1;
        }
    }
    counts
}

/// How many of the hub's processes there should be links to. Only what is heard now counts: processes come and go.
fn wanted(seen: &[Seen]) -> usize {
    let replicas = seen.iter().filter(|seen| !seen.hello.leaving).map(|seen| seen.hello.replicas).max();
    replicas.unwrap_or(1).clamp(1, REPLICAS)
}

fn is_enough(seen: &[Seen], links: usize) -> bool {
    by_replica(seen).values().filter(|&&count| count >= links).count() >= wanted(seen)
}

/// Whether a link that has just come up is one that was missing.
fn is_wanted(seen: &[Seen], new: Option<Seen>, links: usize) -> bool {
    let Some(new) = new else { return false };
    new.current
        && !new.hello.leaving
        && by_replica(seen).get(new.hello.replica.as_str()).is_none_or(|&count| count < links)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(links: &[(&str, usize)]) -> Vec<Seen> {
        let hello = |(replica, replicas): &(&str, usize)| Seen {
            hello: Hello {
                replica: replica.trim_start_matches(['-', '!']).into(),
                replicas: *replicas,
                leaving: replica.starts_with('!'),
            },
            current: !replica.starts_with('-'),
        };
        links.iter().map(hello).collect()
    }

    /// `-` is a link with an old certificate, `!` one to a process that is about to end.
    #[test]
    fn links_go_to_as_many_processes_as_there_are_up_to_two() {
        for (links, per_replica, enough) in [
            (&[][..], 1, false),
            (&[("a", 1)], 1, true),
            (&[("a", 1)], 2, false),
            (&[("a", 1), ("a", 1)], 2, true),
            (&[("a", 3)], 1, false),
            (&[("a", 3), ("a", 3)], 1, false),
            (&[("a", 3), ("b", 3)], 1, true),
            (&[("a", 3), ("a", 3), ("b", 3)], 2, false),
            (&[("a", 3), ("b", 3), ("c", 3)], 2, false),
            (&[("a", 3), ("a", 3), ("b", 3), ("b", 3)], 2, true),
            // What goes away does not count, neither does what is shown with an old certificate.
            (&[("a", 1), ("-a", 1)], 2, false),
            (&[("!a", 1)], 1, false),
            (&[("!a", 1), ("b", 1)], 1, true),
            // A process that was the third has not heard yet that it is the second.
            (&[("a", 3), ("b", 1)], 1, true),
        ] {
            assert_eq!(is_enough(&seen(links), per_replica), enough, "{links:?}");
        }
    }

    #[test]
    fn a_link_too_many_is_not_kept() {
        for (links, new, wanted) in [
            (&[][..], "a", true),
            (&[("a", 2)], "a", false),
            (&[("a", 2)], "b", true),
            (&[("-a", 2)], "a", true),
            (&[("a", 2)], "-b", false),
            (&[("a", 2)], "!b", false),
        ] {
            let new = seen(&[(new, 2)]).pop();
            assert_eq!(is_wanted(&seen(links), new.clone(), 1), wanted, "{links:?} {new:?}");
        }
    }
}
