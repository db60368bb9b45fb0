//! * Record sync: a tenant's `DNSEndpoint`s become claims at the hub, and the hub's verdicts are written beside them.
//!
//! One loop: hear what there is to hear, send the hub the difference ([`book`]), say what became of it. Whatever fails is tried
//! again after a pause, and nothing is concluded from it. Nothing is kept on disk: what the hub has, it lists.

mod book;
mod keys;
mod metrics;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kubernetes::sources::{Cluster, Followed, News, Notice, WriteError};
use manifest::agents::{ClaimChanges, VerdictList};
use ring::digest::{SHA256, digest};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::claims::{batches, halves};
use crate::health::{Health, MOST_SHOWN};
use crate::link::{Link, LinkError, Pause, hex, plain};
use book::{Book, Saying};
pub use metrics::SyncMetrics;

/// What came meanwhile is taken in together, up to this much.
const TOGETHER: usize = 4096;
/// Verdicts written in one go: news are not kept waiting for longer than a second.
const MOST_SAID: usize = 100;
/// The hub's claims are read again at most this often when they are others than we think: it may be about to show them.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// And at least this often: should both sides have gone astray, they find together again.
const READ_ANYWAY: Duration = Duration::from_mins(10);
/// What is to be installed for verdicts.
const INSTALL: &str = "install the kind Verdict (`fleetgate crds` prints its definition) to have verdicts as objects";

pub struct Sync {
    pub link: Arc<Link>,
    pub cluster: Cluster,
    /// The namespaces to follow; `None` is all of them.
    pub namespaces: Vec<Option<String>>,
    pub health: Arc<Health>,
    pub metrics: SyncMetrics,
}

/// When what is due, on either side.
struct Due {
    hub: Instant,
    hub_pause: Pause,
    cluster: Instant,
    cluster_pause: Pause,
    news: Instant,
    news_pause: Pause,
    read: Instant,
}

/// The question for news that is under way.
struct Asked {
    /// How often we had sent something when it was asked: an answer may be about what was there before.
    sent: u64,
    answer: JoinHandle<Result<VerdictList, LinkError>>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.answer.abort();
    }
}

impl Sync {
    /// Until told to stop. What is under way then is done again by the next process.
    pub async fn run(self, stop: CancellationToken) {
        let following = stop.child_token();
        let (news, tasks) = self.cluster.follow(&self.namespaces, &following);
        stop.run_until_cancelled(self.work(news)).await;
        following.cancel();
        tasks.wait().await;
    }

    async fn work(&self, mut news: Receiver<News>) {
        let mut book = Book::new(&self.namespaces);
        let mut due = Due::now();
        let mut asked: Option<Asked> = None;
        let (mut revision, mut sent) = (0, 0);
        loop {
            self.round(&mut book, &mut due, &mut sent).await;
            self.show(&book);
            let now = Instant::now();
            if asked.is_none() && book.knows_hub() && now >= due.news {
                let link = Arc::clone(&self.link);
                let answer = tokio::spawn(async move { link.verdicts(revision).await });
                asked = Some(Asked { sent, answer });
            }
            let wake = due.next(&book, asked.is_some());
            tokio::select! {
                heard = news.recv() => {
                    let Some(heard) = heard else { return };
                    self.hear(&mut book, heard);
                    // Those that wait come along.
                    for _ in 1..TOGETHER {
                        let Ok(heard) = news.try_recv() else { break };
                        self.hear(&mut book, heard);
                    }
                }
                answer = answered(&mut asked) => match answer {
                    Ok((list, of)) if of == sent => {
                        due.news_pause.reset();
                        revision = list.revision;
                        if !book.judged(list) {
                            due.read = due.read.min(Instant::now() + READ_AGAIN);
                        }
                    }
                    // Something was sent since it was asked: the next answer is about that.
                    Ok(_) => due.news_pause.reset(),
                    Err(error) => {
                        tracing::warn!(%error, "no verdicts from the hub");
                        due.news = Instant::now() + due.news_pause.after(&error);
                        // It may come back as another one.
                        revision = 0;
                        due.read = due.read.min(Instant::now() + READ_AGAIN);
                    }
                },
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    fn hear(&self, book: &mut Book, news: News) {
        match &news {
            News::Sources(_, Followed::Away(reason)) => {
                self.metrics.cluster_away.inc();
                tracing::warn!(reason, "the cluster's DNSEndpoints cannot be read; what is published stays");
            }
            News::Sources(_, Followed::Absent) => {
                self.metrics.cluster_away.inc();
                tracing::warn!("this cluster has no kind DNSEndpoint (it comes with ExternalDNS): nothing to publish");
            }
            News::Verdicts(_, Followed::Absent) => tracing::info!("verdicts are told by Events: {INSTALL}"),
            News::Verdicts(_, Followed::Away(reason)) => {
                tracing::warn!(reason, "the cluster's Verdicts cannot be read");
            }
            _ => {}
        }
        book.hear(news, Instant::now());
    }

    /// What is due on both sides. What fails on one does not hold up the other.
    async fn round(&self, book: &mut Book, due: &mut Due, sent: &mut u64) {
        let now = Instant::now();
        if now >= due.read {
            book.forget_hub();
            due.read = now + READ_ANYWAY;
        }
        if book.is_listed() && now >= due.hub {
            match self.send(book, sent).await {
                Ok(()) => {
                    due.hub_pause.reset();
                    self.health.set_ready(true);
                }
                Err(error) => {
                    let pause = due.hub_pause.after(&error);
                    tracing::warn!(%error, again_in = ?pause, "the hub does not have what it should");
                    // Some of it may have arrived.
                    book.forget_hub();
                    due.hub = Instant::now() + pause;
                }
            }
        }
        if now >= due.cluster {
            match self.say(book).await {
                Ok(()) => due.cluster_pause.reset(),
                Err(error) => {
                    let pause = due.cluster_pause.next();
                    tracing::warn!(%error, again_in = ?pause, "a verdict could not be written");
                    due.cluster = Instant::now() + pause;
                }
            }
        }
    }

    async fn send(&self, book: &mut Book, sent: &mut u64) -> Result<(), LinkError> {
        if !book.knows_hub() {
            book.load(self.link.claims().await?);
            *sent += 1;
        }
        let now = Instant::now();
        let doubted = book.doubted(now);
        if doubted > 0 {
            tracing::error!(
                claims = doubted,
                "the cluster suddenly lists no DNSEndpoints: their records stay for an hour"
            );
        }
        self.metrics.doubted.set(i64::try_from(doubted).unwrap_or(i64::MAX));
        let (wanted, gone) = book.changes(now);
        let mut waiting = batches(wanted, gone);
        waiting.reverse();
        while let Some(changes) = waiting.pop() {
            match self.link.change(&changes).await {
                Ok(answer) => {
                    self.metrics.sent(&changes);
                    tracing::info!(set = changes.set.len(), deleted = changes.delete.len(), "claims were sent");
                    *sent += 1;
                    book.sent(&changes, answer);
                }
                // One of them is at fault; the others are not to suffer for it.
                Err(error) if error.is_refused() => match halves(changes) {
                    Ok([first, second]) => waiting.extend([second, first]),
                    Err(one) => reject(book, &one, &error),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn say(&self, book: &mut Book) -> Result<(), WriteError> {
        let mut failed = Ok(());
        for saying in book.sayings(MOST_SAID) {
            match self.say_one(&saying).await {
                Ok(()) => book.said(saying),
                // It went meanwhile, which is heard of.
                Err(WriteError::NotFound(_)) => {}
                Err(error) => {
                    book.unsaid(&saying);
                    failed = Err(error);
                }
            }
        }
        failed
    }

    async fn say_one(&self, saying: &Saying) -> Result<(), WriteError> {
        let Saying { source, spec, as_event, was_refused } = saying;
        if !as_event {
            self.cluster.write_verdict(source, spec).await?;
            self.metrics.written.inc();
            tracing::debug!(object = %source.place, published = spec.published, refused = spec.refused, "verdict written");
            return Ok(());
        }
        let Some(notice) = notice(saying) else { return Ok(()) };
        if spec.refused > 0 || *was_refused {
            tracing::warn!(object = %source.place, reason = notice.reason, "{}", notice.message);
        }
        self.cluster.tell(source, &notice).await?;
        self.metrics.written.inc();
        Ok(())
    }

    fn show(&self, book: &Book) {
        let (objects, published, refused) = book.counts();
        self.metrics.show(objects, published, refused);
        self.health.set_refused(refused, book.refused(MOST_SHOWN));
    }
}

/// What an Event says; nothing where all is well and always was.
fn notice(saying: &Saying) -> Option<Notice> {
    let spec = &saying.spec;
    let refused: Vec<_> = spec.parts.iter().filter(|part| !part.published).collect();
    let (reason, message) = match refused.first() {
        Some(first) => {
            let all = refused.iter().map(|part| format!("{}: {} ({})", part.part, part.reason, part.code));
            (first.code.clone(), plain(&all.collect::<Vec<_>>().join("; ")))
        }
        None if saying.was_refused => {
            ("Published".into(), format!("all of its {} records are published", spec.published))
        }
        None => return None,
    };
    // Of what is said and of what: the same again has the same name.
    let said = format!("{}/{}/{reason}/{message}", saying.source.uid, saying.source.generation);
    let id = hex(&digest(&SHA256, said.as_bytes()).as_ref()[..8]);
    Some(Notice { is_warning: !refused.is_empty(), reason, message, id })
}

fn reject(book: &mut Book, one: &ClaimChanges, error: &LinkError) {
    let LinkError::Refused { code, reason } = error else { return };
    let key = one.set.first().map(|claims| &claims.key).or(one.delete.first());
    tracing::error!(key, %error, "the hub does not take these claims; the others are not held up by them");
    book.reject(one, code, reason);
}

/// Waits for ever while nothing is asked.
async fn answered(asked: &mut Option<Asked>) -> Result<(VerdictList, u64), LinkError> {
    let Some(under_way) = asked else { return std::future::pending().await };
    let answer = (&mut under_way.answer).await;
    let sent = under_way.sent;
    *asked = None;
    // A task that panicked has said so.
    let answer = answer.unwrap_or_else(|_| Err(LinkError::Away("the question was dropped".into())));
    answer.map(|list| (list, sent))
}

impl Due {
    fn now() -> Self {
        let now = Instant::now();
        Self {
            hub: now,
            hub_pause: Pause::default(),
            cluster: now,
            cluster_pause: Pause::default(),
            news: now,
            news_pause: Pause::default(),
            read: now + READ_ANYWAY,
        }
    }

    /// When something is to be done even if nothing is heard.
    fn next(&self, book: &Book, is_asked: bool) -> Instant {
        let mut next = self.read;
        if book.is_listed() && !book.knows_hub() {
            next = next.min(self.hub);
        }
        if book.has_unsaid() {
            next = next.min(self.cluster);
        }
        if book.knows_hub() && !is_asked {
            next = next.min(self.news);
        }
        next
    }
}
