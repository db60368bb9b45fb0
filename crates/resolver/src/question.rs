//! * One question: from the octets that came to a cluster's port to those that go back.
//!
//! What is known is told at once. Else somebody is asked, once for all who wait for the same answer, and what is told after
//! 1.8 s, or when that fails, is what was known before, unless it was a no.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use domain::base::iana::OptRcode;
use model::DnsName;
use tokio::sync::watch;
use tokio::time::{timeout, timeout_at};
use tunnel::{Host, Refused, Target};

use crate::answer::{Answer, Record, RecordData};
use crate::directory::{self, Asked};
use crate::failure::Failure;
use crate::listen::Transport;
use crate::message::{Age, Extended, Head, Key, Mark, Query, Received, Remark, Response, receive};
use crate::metrics::{From, Outcome as Counted};
use crate::resolver::Shared;
use crate::route::Route;
use crate::servers::{Judged, judge, over_stream};
use crate::tenancy::{Met, Outcome, Tenancy, Waiting};

/// RFC 8767 5: how long a client waits for the truth before it is told what was true.
const PATIENCE: Duration = Duration::from_millis(1800);
/// Until the cluster's DNS is asked a second time: a datagram may have been lost.
const TENANT_ATTEMPT: Duration = Duration::from_millis(1200);
/// For both, and TCP where that is needed.
const TENANT_WITHIN: Duration = Duration::from_millis(2600);
/// For whoever knows the cluster's Services; clients wait for 5 s in all.
const DIRECTORY_WITHIN: Duration = Duration::from_millis(1800);
/// How many names an answer may lead to, one after the other.
const MOST_NAMES: usize = 8;
/// For how long what needs no server may be kept.
const OWN_TTL: u32 = 30;
const OWN_ADDRESS_TTL: u32 = 300;

/// What becomes of a message right away.
pub(crate) enum Step {
    /// It gets no answer.
    Nothing,
    Reply(Vec<u8>),
    Wait(Wait),
}

/// A question that waits for somebody.
pub(crate) struct Wait {
    outcome: watch::Receiver<Option<Outcome>>,
    stale: Option<Arc<Response>>,
    _waiting: Waiting,
}

impl Shared {
    /// Never waits.
    pub(crate) fn begin(self: &Arc<Self>, tenancy: &Arc<Tenancy>, octets: &[u8], transport: Transport) -> Step {
        let (head, key, mark) = match receive(octets) {
            Received::Nothing => {
                self.metrics.count(transport, Counted::Ignored);
                return Step::Nothing;
            }
            Received::No { head, rcode } => {
                self.metrics.count(transport, Counted::Malformed);
                return Step::Reply(head.say(rcode, None));
            }
            Received::Question { head, key, mark } => (head, key, mark),
        };
        add(&tenancy.counts.questions);
        if mark.is_some_and(|mark| mark.is_loop(self.process)) {
            return Step::Reply(self.fail(tenancy, &head, Failure::Loop, transport));
        }
        let now = Instant::now();
        let (outcome, begun, stale) = match tenancy.meet(&key, self.settings.rate, &self.flights, now) {
            Met::Limited => {
                add(&tenancy.counts.limited);
                self.metrics.count(transport, Counted::Limited);
                return Step::Nothing;
            }
            Met::Fresh(response, age) => {
                add(&tenancy.counts.cached);
                self.metrics.count(transport, Counted::Cached);
                return Step::Reply(self.tell(&response, &head, Age::Seconds(age), transport));
            }
            Met::Stale(response) => return Step::Reply(self.tell_stale(tenancy, &response, &head, transport)),
            Met::Failed(failure) => return Step::Reply(self.fail(tenancy, &head, failure, transport)),
            Met::Asked { outcome, begun, stale } => (outcome, begun, stale),
        };
        if let Some(begun) = begun {
            let flight = Flight { shared: Arc::clone(self), tenancy: Arc::clone(tenancy), key };
            tokio::spawn(flight.fly(mark.unwrap_or_default().and(self.process), begun));
        } else {
            self.metrics.joined.inc();
        }
        match tenancy.wait() {
            Some(waiting) => Step::Wait(Wait { outcome, stale, _waiting: waiting }),
            None => Step::Reply(match stale {
                Some(response) => self.tell_stale(tenancy, &response, &head, transport),
                None => self.fail(tenancy, &head, Failure::TooMany, transport),
            }),
        }
    }

    /// The answer to octets for which [`Self::begin`] said to wait.
    pub(crate) async fn finish(
        &self,
        tenancy: &Tenancy,
        octets: &[u8],
        mut wait: Wait,
        transport: Transport,
    ) -> Vec<u8> {
        let outcome = async {
            let outcome = wait.outcome.wait_for(Option::is_some).await;
            // Who asks tells something, unless it is gone.
            outcome.map_or(Err(Failure::Network), |outcome| outcome.clone().unwrap_or(Err(Failure::Network)))
        };
        let outcome = match &wait.stale {
            Some(_) => timeout(PATIENCE, outcome).await.unwrap_or(Err(Failure::NoAnswer)),
            None => outcome.await,
        };
        let Received::Question { head, .. } = receive(octets) else { return Vec::new() };
        match (outcome, &wait.stale) {
            (Ok(response), _) => {
                self.metrics.count(transport, Counted::Asked);
                self.tell(&response, &head, Age::Seconds(0), transport)
            }
            (Err(_), Some(stale)) => self.tell_stale(tenancy, stale, &head, transport),
            (Err(failure), None) => self.fail(tenancy, &head, failure, transport),
        }
    }

    /// To somebody of whom nobody knows whose it is.
    pub(crate) fn refuse(&self, octets: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let head = match receive(octets) {
            Received::Nothing => return None,
            Received::No { head, .. } | Received::Question { head, .. } => head,
        };
        self.metrics.count(transport, Counted::Refused);
        let text = "this address is of no control plane that the resolver knows";
        Some(head.say(OptRcode::REFUSED, Some(Remark { code: Extended::Prohibited, text })))
    }

    fn tell(&self, response: &Response, head: &Head<'_>, age: Age, transport: Transport) -> Vec<u8> {
        let limit = match transport {
            Transport::Udp => head.udp_limit(),
            Transport::Tcp => usize::from(u16::MAX),
        };
        let reply = response.to(head, age, limit);
        if Query::is_truncated(&reply) {
            self.metrics.truncated.inc();
        }
        reply
    }

    fn tell_stale(&self, tenancy: &Tenancy, response: &Response, head: &Head<'_>, transport: Transport) -> Vec<u8> {
        add(&tenancy.counts.stale);
        self.metrics.count(transport, Counted::Stale);
        self.tell(response, head, Age::Stale, transport)
    }

    fn fail(&self, tenancy: &Tenancy, head: &Head<'_>, failure: Failure, transport: Transport) -> Vec<u8> {
        add(&tenancy.counts.failed);
        self.metrics.count(transport, Counted::Failed);
        self.metrics.fail(failure);
        head.say(OptRcode::SERVFAIL, Some(failure.remark()))
    }

    /// Asks for a name and for whatever its aliases lead to.
    async fn look_up(&self, tenancy: &Tenancy, key: &Key, mark: Mark) -> Outcome {
        let mut parts: Vec<Arc<Response>> = Vec::new();
        let mut next = *key;
        while parts.len() < MOST_NAMES {
            let known = if parts.is_empty() { None } else { tenancy.fresh(&next, Instant::now()) };
            let part = match known {
                Some(known) => known,
                None => self.ask(tenancy, &next, mark).await?,
            };
            let alias = part.alias.clone();
            parts.push(part);
            match alias {
                Some(target) => {
                    // Only we ourselves lead from a name to the hub's.
                    let is_ours = matches!(tenancy.routes.of(&next.name()), Route::Alias(_));
                    if !is_ours && tenancy.routes.of(&target) == Route::Hub {
                        return Err(Failure::Misleading);
                    }
                    next = next.with_name(&target);
                }
                None if parts.len() == 1 => return parts.pop().ok_or(Failure::Garbled),
                None => return Response::chain(key, &parts).map(Arc::new).ok_or(Failure::Garbled),
            }
        }
        Err(Failure::Aliases)
    }

    /// Asks whoever knows the name.
    async fn ask(&self, tenancy: &Tenancy, key: &Key, mark: Mark) -> Outcome {
        let (name, begun) = (key.name(), Instant::now());
        let (from, outcome) = match tenancy.routes.of(&name) {
            Route::Tenant => match self.ask_tenant(tenancy, key, mark).await {
                Ok(response) => (From::Tenant, Ok(Arc::new(response))),
                Err(failure) => (From::Directory, self.ask_directory(tenancy, key).await.ok_or(failure)),
            },
            Route::Hub => (From::Hub, self.hub_servers.ask(key, mark).await.map(Arc::new)),
            Route::Upstream => (From::Upstream, self.upstreams.ask(key, mark).await.map(Arc::new)),
            own => (From::Own, own_answer(&own, &name, key).ok_or(Failure::Garbled)),
        };
        // What a tenant, or anybody outside, has names lead to: a control plane that dials by itself must not come to the hub's own cloud.
        let is_foreign = matches!(from, From::Tenant | From::Directory | From::Upstream);
        let misleads = |response: &Arc<Response>| is_foreign && response.misleads;
        let outcome =
            outcome.and_then(|response| if misleads(&response) { Err(Failure::Misleading) } else { Ok(response) });
        self.metrics.asked(from, outcome.is_ok(), begun.elapsed());
        outcome
    }

    /// The DNS inside the cluster.
    async fn ask_tenant(&self, tenancy: &Tenancy, key: &Key, mark: Mark) -> Result<Response, Failure> {
        let server = tenancy.part.dns.server;
        let target = Target { host: Host::Address(server.ip()), port: server.port() };
        let until = tokio::time::Instant::now() + TENANT_WITHIN;
        let mut last = Failure::NoAnswer;
        let mut with_edns = true;
        for _ in 0..3 {
            let left = until.saturating_duration_since(tokio::time::Instant::now()).min(TENANT_ATTEMPT);
            if left.is_zero() {
                break;
            }
            let query = Query::new(key, with_edns.then_some(mark));
            let datagram = Bytes::copy_from_slice(query.as_octets());
            let answer = match self.tunnel.exchange(&tenancy.cluster, &target, datagram, left).await {
                Ok(answer) if query.is_answered_by(&answer) => answer.to_vec(),
                Ok(_) => {
                    last = Failure::Garbled;
                    continue;
                }
                Err(Refused::TimedOut) => {
                    last = Failure::NoAnswer;
                    continue;
                }
                Err(refused) => return Err(failure_of(&refused)),
            };
            let answer = if Query::is_truncated(&answer) {
                let left = until.saturating_duration_since(tokio::time::Instant::now());
                let stream = self.tunnel.connect(&tenancy.cluster, &target, left).await;
                over_stream(stream.map_err(|refused| failure_of(&refused))?, &query, until).await?
            } else {
                answer
            };
            match judge(&answer, key)? {
                Judged::Answer(response) => return Ok(response),
                Judged::Malformed if with_edns => with_edns = false,
                Judged::Malformed => return Err(Failure::Server),
            }
        }
        Err(last)
    }

    /// What the cluster's API server says of its Services, while its DNS cannot be asked.
    async fn ask_directory(&self, tenancy: &Tenancy, key: &Key) -> Option<Arc<Response>> {
        let (name, dns) = (key.name(), &tenancy.part.dns);
        let asked = directory::read(&name, &dns.domain)?;
        let answer = match &asked {
            Asked::Service { namespace, name: service, part } => {
                let view = match self.directory.load_full() {
                    Some(directory) => {
                        let until = tokio::time::Instant::now() + DIRECTORY_WITHIN;
                        timeout_at(until, directory.0.service(&tenancy.cluster, namespace, service)).await.ok()
                    }
                    None => None,
                };
                match view {
                    Some(Ok(Some(view))) => directory::records(&view, namespace, service, part, &dns.domain),
                    Some(Ok(None)) => Answer::no_such_name(),
                    // Every cluster has this one, at an address that is known where its networks are.
                    Some(Err(_)) | None if (&**namespace, &**service) == ("default", "kubernetes") => {
                        let view = directory::api_server(&dns.services)?;
                        directory::records(&view, namespace, service, part, &dns.domain)
                    }
                    Some(Err(error)) => {
                        tracing::debug!(cluster = %tenancy.cluster, %error, "nobody can tell of a Service");
                        return None;
                    }
                    None => return None,
                }
            }
            other => directory::plain(other, &name)?,
        };
        let octets = answer.to_message(&name, key.rtype(), &dns.domain, directory::TTL)?;
        Response::own(&octets, key)
    }
}

/// Answers that need no server.
fn own_answer(route: &Route, name: &DnsName, key: &Key) -> Option<Arc<Response>> {
    let record = |data: RecordData| Record::new(name, OWN_ADDRESS_TTL, data);
    let answer = match route {
        Route::Loopback => {
            let addresses = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            Answer::of(addresses.map(|address| record(RecordData::Address(address))).into())
        }
        Route::Alias(target) => Answer::of(vec![Record::new(name, OWN_TTL, RecordData::Alias(target.clone()))]),
        Route::Between => Answer::no_data(),
        _ => Answer::no_such_name(),
    };
    // The zone that a no comes from is the topmost label: nothing of it is anybody's.
    let top = name.labels().count().saturating_sub(1);
    let zone = (0..top).try_fold(name.clone(), |name, _| name.parent()).unwrap_or_else(DnsName::root);
    let octets = answer.to_message(name, key.rtype(), &zone, OWN_TTL)?;
    Response::own(&octets, key)
}

fn failure_of(refused: &Refused) -> Failure {
    match refused {
        Refused::NoLink | Refused::LinkLost => Failure::NoLink,
        Refused::Forbidden(_) | Refused::Malformed(_) => Failure::Forbidden,
        Refused::TimedOut => Failure::NoAnswer,
        Refused::TooMany => Failure::TooMany,
        Refused::Garbled(_) => Failure::Garbled,
        Refused::Unreachable(_) | Refused::UnknownName(_) => Failure::Network,
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A question that somebody is being asked. Whatever becomes of it, it is not under way for ever.
struct Flight {
    shared: Arc<Shared>,
    tenancy: Arc<Tenancy>,
    key: Key,
}

impl Flight {
    async fn fly(self, mark: Mark, outcome: watch::Sender<Option<Outcome>>) {
        let found = self.shared.look_up(&self.tenancy, &self.key, mark).await;
        self.tenancy.keep(&self.key, &found, Instant::now());
        // Whoever waited may be gone.
        let _ = outcome.send(Some(found));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.tenancy.land(&self.key, &self.shared.flights);
    }
}
