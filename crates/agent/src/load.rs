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
use kubernetes::sources::{Cluster, Followed, Slice};
use manifest::agents::{LoadLine, ServiceLoad};
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::health::{Health, MOST_SHOWN, Refused};
use crate::link::{Link, Pause, plain};
use endpoints::{Endpoints, Pods};
pub use endpoints::{Service, ServiceError};
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
    pub services: Vec<Service>,
    /// Of the pages.
    pub path: String,
    pub wanted: Metrics,
    pub health: Arc<Health>,
    pub metrics: LoadMetrics,
}

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
        for service in &self.services {
            namespaces.entry(service.namespace.clone()).or_default().push(service.name.clone());
        }
        let following = stop.child_token();
        let (news, tasks) = self.cluster.follow_slices(&namespaces, &following);
        let (lines, latest) = watch::channel(Bytes::new());
        let working = async { tokio::join!(self.measure(news, lines), self.carry(latest)) };
        stop.run_until_cancelled(working).await;
        following.cancel();
        tasks.wait().await;
    }

    async fn measure(&self, mut news: Receiver<(usize, Followed<Slice>)>, lines: watch::Sender<Bytes>) {
        let mut endpoints = Endpoints::default();
        let mut scraper = Scraper::new(&self.path, self.wanted.clone());
        let mut tally = Tally::default();
        let mut seen: Vec<Seen> = self.services.iter().map(|_| Seen::default()).collect();
        let mut ticks = interval(SECOND);
        // What took too long is not made up for: a line is of the time since the last one.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                heard = news.recv() => {
                    let Some((namespace, heard)) = heard else { return };
                    self.hear(&heard);
                    endpoints.hear(namespace, heard);
                }
                _ = ticks.tick() => {
                    let pods = self.pods(&endpoints);
                    let all: BTreeSet<SocketAddr> = pods.iter().flatten().flat_map(|pods| pods.pages.clone()).collect();
                    let round = scraper.round(all.iter().copied()).await;
                    self.take_in(&mut tally, &round);
                    tally.keep(|pod| all.contains(pod));
                    self.tell(&pods, &round, &mut seen);
                    let line = self.line(&tally, &pods, &seen);
                    lines.send_replace(line);
                }
            }
        }
    }

    fn hear(&self, news: &Followed<Slice>) {
        let reason = match news {
            Followed::Away(reason) => reason,
            Followed::Absent => "it has no EndpointSlices",
            _ => return,
        };
        self.metrics.cluster_away.inc();
        tracing::warn!(reason, "the cluster's EndpointSlices cannot be read; the pods that are known are reported on");
    }

    fn pods(&self, endpoints: &Endpoints) -> Vec<Option<Pods>> {
        self.services.iter().map(|service| endpoints.pods(service, self.services.len())).collect()
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
    fn tell(&self, pods: &[Option<Pods>], round: &HashMap<SocketAddr, Scraped>, seen: &mut [Seen]) {
        let (mut count, mut shown) = (0, Vec::new());
        for ((service, pods), seen) in self.services.iter().zip(pods).zip(seen) {
            let Some(pods) = pods else {
                *seen = Seen::default();
                continue;
            };
            seen.rounds += 1;
            let failed = pods.pages.iter().filter_map(|pod| Some((pod, round.get(pod)?.as_ref().err()?)));
            let failed: Vec<_> = failed.collect();
            if let (0, Some((pod, error))) = (seen.failing, failed.first()) {
                tracing::warn!(%service, %pod, %error, "a pod's metrics cannot be read: it counts as idle");
            } else if seen.failing > 0 && failed.is_empty() {
                tracing::info!(%service, "the metrics of all its pods are read again");
            }
            seen.failing = failed.len();
            count += failed.len();
            shown.extend(failed.into_iter().take(MOST_SHOWN - shown.len().min(MOST_SHOWN)).map(|(pod, error)| {
                Refused {
                    source: service.to_string(),
                    record: pod.to_string(),
                    code: error.code().to_owned(),
                    reason: plain(&error.to_string()),
                    field: String::new(),
                }
            }));
        }
        self.health.set_refused(count, shown);
    }

    /// A Service that nothing is known of yet is left out: nothing would be concluded from a line without it.
    fn line(&self, tally: &Tally, pods: &[Option<Pods>], seen: &[Seen]) -> Bytes {
        let mut services = Vec::new();
        let mut ready = 0;
        for ((service, pods), seen) in self.services.iter().zip(pods).zip(seen) {
            let Some(pods) = pods.as_ref().filter(|pods| seen.rounds > 1 || pods.ready == 0) else { continue };
            let reported = tally.report(pods.ready, &pods.pages);
            ready += pods.ready;
            services.push(ServiceLoad {
                namespace: service.namespace.clone(),
                name: service.name.clone(),
                served: Some(rounded(reported.served)),
                utilization: Some(rounded(reported.utilization)),
                ready: i64::try_from(pods.ready).unwrap_or(i64::MAX),
            });
        }
        self.metrics.show(services.len(), ready);
        let mut line = serde_json::to_vec(&LoadLine { services }).unwrap_or_default();
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
