//! * Load reports: each second, how much the Services of a tenant's cluster serve, how busy their pods are and how many are ready.
//!
//! One loop measures: hear which pods there are, read their pages of metrics, make a line of that. Another carries the latest line to the
//! hub. Neither waits for the other, and nothing is kept: what is not said again is forgotten by the hub.

mod endpoints;
mod exposition;
mod metrics;
mod page;
mod scrape;
mod tally;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use kubernetes::sources::{Cluster, Followed, PodNews};
use manifest::agents::{LoadLine, ServiceLoad};
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::health::{Health, MOST_SHOWN, Refused};
use crate::link::{Link, Pause, plain};
use endpoints::{Endpoints, Pods};
pub use endpoints::{Port, PortError, Service, ServiceError, Wanted};
pub use metrics::LoadMetrics;
pub use page::{Limit, Metrics};
use scrape::{ScrapeError, Scraped, Scraper};
use tally::Tally;

/// From one line to the next.
const SECOND: Duration = Duration::from_secs(1);
/// A stream that lasted so long was a good one: what ended it is a first failure again.
const GOOD: Duration = Duration::from_secs(10);

pub struct Load {
    pub link: Arc<Link>,
    pub cluster: Cluster,
    pub wanted: Wanted,
    /// Of the pages.
    pub path: String,
    pub page: Metrics,
    pub health: Arc<Health>,
    pub metrics: LoadMetrics,
}

/// Those of a round; without pods where nothing is known of them.
type Services = [(Service, Option<Pods>)];

/// What is known of a Service from one round to the next.
#[derive(Default)]
struct Seen {
    /// There is a rate only from the second round on.
    rounds: u64,
    /// Pods whose page could not be read.
    failing: usize,
}

impl Load {
    /// Until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let mut namespaces: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for service in &self.wanted.services {
            namespaces.entry(service.namespace.clone()).or_default().push(service.name.clone());
        }
        let following = stop.child_token();
        let (news, tasks) = self.cluster.follow_pods(&namespaces, self.wanted.class.is_some(), &following);
        let (lines, latest) = watch::channel(Bytes::new());
        let working = async { tokio::join!(self.measure(news, lines), self.carry(latest)) };
        stop.run_until_cancelled(working).await;
        following.cancel();
        tasks.wait().await;
    }

    async fn measure(&self, mut news: Receiver<PodNews>, lines: watch::Sender<Bytes>) {
        let mut endpoints = Endpoints::default();
        let mut scraper = Scraper::new(&self.path, self.page.clone());
        let mut tally = Tally::default();
        let mut seen = HashMap::new();
        let mut ticks = interval(SECOND);
        // What took too long is not made up for: a line is of the time since the last one.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                heard = news.recv() => {
                    let Some(heard) = heard else { return };
                    self.hear(&heard);
                    endpoints.hear(heard, self.wanted.class.as_deref());
                }
                _ = ticks.tick() => {
                    let services = endpoints.services(&self.wanted);
                    let pods = endpoints.pods(&services);
                    let all: BTreeSet<SocketAddr> = pods.iter().flatten().flat_map(|pods| pods.pages.clone()).collect();
                    let services: Vec<_> = services.into_iter().zip(pods).collect();
                    let round = scraper.round(all.iter().copied()).await;
                    self.take_in(&mut tally, &round);
                    tally.keep(|pod| all.contains(pod));
                    self.tell(&services, &round, &mut seen);
                    lines.send_replace(self.line(&tally, &services, &seen));
                }
            }
        }
    }

    fn hear(&self, news: &PodNews) {
        let (kind, reason) = match news {
            PodNews::Slices(_, Followed::Away(reason)) => ("EndpointSlices", reason.as_str()),
            PodNews::Slices(_, Followed::Absent) => ("EndpointSlices", "there is no such kind"),
            PodNews::Ingresses(Followed::Away(reason)) => ("Ingresses", reason.as_str()),
            PodNews::Ingresses(Followed::Absent) => ("Ingresses", "there is no such kind"),
            _ => return,
        };
        self.metrics.cluster_away.inc();
        tracing::warn!(kind, reason, "the cluster cannot be read; the pods that are known are reported on");
    }

    fn take_in(&self, tally: &mut Tally, round: &HashMap<SocketAddr, Scraped>) {
        for (pod, scraped) in round {
            match scraped {
                Ok((sample, at)) => tally.observe(*pod, *sample, *at),
                Err(_) => tally.missed(*pod),
            }
            self.metrics.page(scraped.as_ref().map_or_else(ScrapeError::code, |_| "Ok"));
        }
    }

    /// Shows what could not be read, and logs when that begins and ends.
    fn tell(&self, services: &Services, round: &HashMap<SocketAddr, Scraped>, seen: &mut HashMap<String, Seen>) {
        let (mut count, mut shown) = (0, Vec::new());
        let mut before = std::mem::take(seen);
        for (service, pods) in services {
            let Some(pods) = pods else { continue };
            let name = service.to_string();
            let mut now = before.remove(&name).unwrap_or_default();
            now.rounds += 1;
            let failed = pods.pages.iter().filter_map(|pod| Some((pod, round.get(pod)?.as_ref().err()?)));
            let mut failed: Vec<(String, &ScrapeError)> = failed.map(|(pod, error)| (pod.to_string(), error)).collect();
            let failing = failed.len() + pods.portless;
            if pods.portless > 0 {
                failed.push((format!("{} pods", pods.portless), &ScrapeError::NoPort));
            }
            if let (0, Some((pod, error))) = (now.failing, failed.first()) {
                tracing::warn!(%service, pod, %error, "a pod's metrics cannot be read: it counts as idle");
            } else if now.failing > 0 && failing == 0 {
                tracing::info!(%service, "the metrics of all its pods are read again");
            }
            now.failing = failing;
            count += failing;
            let room = MOST_SHOWN.saturating_sub(shown.len());
            shown.extend(failed.into_iter().take(room).map(|(record, error)| {
                let (code, reason) = (error.code().to_owned(), plain(&error.to_string()));
                Refused { source: name.clone(), record, code, reason, field: String::new() }
            }));
            seen.insert(name, now);
        }
        self.health.set_refused(count, shown);
    }

    /// A Service that nothing is known of yet is left out: nothing would be concluded from a line without it.
    fn line(&self, tally: &Tally, services: &Services, seen: &HashMap<String, Seen>) -> Bytes {
        let mut reports = Vec::new();
        let mut ready = 0;
        for (service, pods) in services {
            let is_known = || seen.get(&service.to_string()).is_some_and(|seen| seen.rounds > 1);
            let Some(pods) = pods.as_ref().filter(|pods| pods.ready == 0 || is_known()) else { continue };
            let reported = tally.report(pods);
            ready += pods.ready;
            reports.push(ServiceLoad {
                namespace: service.namespace.clone(),
                name: service.name.clone(),
                served: Some(rounded(reported.served)),
                utilization: Some(rounded(reported.utilization)),
                ready: i64::try_from(pods.ready).unwrap_or(i64::MAX),
            });
        }
        self.metrics.show(reports.len(), ready);
        let mut line = serde_json::to_vec(&LoadLine { services: reports }).unwrap_or_default();
        line.push(b'\n');
        line.into()
    }

    async fn carry(&self, mut lines: watch::Receiver<Bytes>) {
        let mut pause = Pause::default();
        loop {
            let begun = Instant::now();
            let ended = self.link.load(&mut lines, || {
                self.metrics.lines.inc();
                self.health.set_ready(true);
            });
            let ended = ended.await;
            if lines.has_changed().is_err() {
                return;
            }
            if begun.elapsed() > GOOD {
                pause.reset();
            }
            let wait = match ended {
                // We have another certificate.
                Ok(_) => pause.next(),
                Err(error) => {
                    self.health.set_ready(false);
                    let wait = pause.after(&error);
                    tracing::warn!(%error, again_in = ?wait, "the hub does not hear of our load");
                    wait
                }
            };
            tokio::time::sleep(wait).await;
        }
    }
}

/// To a thousandth, which is more than is measured, so that a line is no longer than it has to be.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
