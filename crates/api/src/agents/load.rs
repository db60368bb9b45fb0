//! A stream of load reports: lines in the body of one request, which are nobody's word but the agent's.
//!
//! Whatever is wrong with one report leaves the others alone; what is wrong with a line ends the stream, as whoever writes such lines has
//! to be told. What is said goes no further than [`super::Reports`]: it is of this cluster's own services, and gone in a minute.

use std::time::{Duration, SystemTime};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use manifest::agents::{LoadLine, LoadSummary, MAX_LINE, MAX_SERVICES, ServiceLoad};
use manifest::kept::Owner;
use model::identity::is_label;
use model::overflow::{BadReport, Report};
use model::policy::rate::{Buckets, Rate};
use model::{ObjectName, Timestamp};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, interval_at, sleep_until, timeout};

use super::Door;
use super::connection::Peer;
use super::problem::No;
use super::reports::Service;
use super::request::{admit_still, parse};

/// From one line to the next: one is sent every second.
const SILENCE: Duration = Duration::from_secs(15);
/// How soon somebody whose credential was revoked is out.
const LOOK: Duration = Duration::from_secs(2);
/// Lines that are read. Those above are dropped: they come in a bunch where the network was slow.
const READ: Rate = Rate { burst: 4, spacing: Duration::from_millis(250) };
/// Lines that are put up with. Above, it is no slow network.
const BORNE: Rate = Rate { burst: 32, spacing: Duration::from_millis(100) };
/// Longer lines wait for a place: some hundred services.
const SHORT_LINE: usize = 16 << 10;
/// How long they wait.
const BUSY_TIME: Duration = Duration::from_secs(5);
/// How long they keep it, so that whoever dribbles long lines does not hold up the others: a quarter of a mebibyte comes within
/// this over a megabit per second.
const LONG_LINE_TIME: Duration = Duration::from_secs(3);

/// Until it ends, one way or another.
pub(super) async fn receive(door: &Door, peer: &Peer, owner: &Owner, body: &mut Incoming) -> Result<LoadSummary, No> {
    let Some((identity, expires)) = &peer.identity else { return Err(No::no_certificate()) };
    let slot = door.slot(&owner.cluster);
    let replaced = slot.begin_load();
    let mut stream = Stream::new(door, owner);
    tracing::info!(cluster = %owner.cluster, "a stream of load reports has begun");
    let mut looks = interval_at(Instant::now() + LOOK, LOOK);
    let ended = loop {
        tokio::select! {
            biased;
            () = replaced.cancelled() => break Err(No::replaced()),
            _ = looks.tick() => {
                if let Err(no) = admit_still(door, identity, *expires).await {
                    break Err(no);
                }
            }
            () = sleep_until(stream.deadline()) => break Err(stream.too_slow()),
            frame = body.frame() => match frame {
                None => break stream.finish(),
                Some(Err(_)) => break Err(No::malformed("the stream broke off")),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref()
                        && let Err(no) = stream.feed(data).await
                    {
                        break Err(no);
                    }
                }
            },
        }
    };
    let outcome = ended.as_ref().map_or_else(|no| no.code, |()| "Ok");
    tracing::info!(cluster = %owner.cluster, outcome, lines = stream.summary.lines, "a stream of load reports has ended");
    if let Err(no) = &ended
        && no.is_out()
    {
        door.reports.forget(&owner.cluster, &owner.uid);
    }
    ended.map(|()| stream.summary)
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_unix(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

struct Stream<'a> {
    door: &'a Door,
    owner: &'a Owner,
    /// What has come of a line, and the place that it takes up if it is long.
    begun: Vec<u8>,
    place: Option<Place<'a>>,
    since: Instant,
    /// When the last whole line came.
    heard: Instant,
    read: Buckets<()>,
    borne: Buckets<()>,
    summary: LoadSummary,
    /// What is wrong with reports is logged once.
    told: bool,
}

/// Of a long line.
struct Place<'a> {
    until: Instant,
    _permit: SemaphorePermit<'a>,
}

impl<'a> Stream<'a> {
    fn new(door: &'a Door, owner: &'a Owner) -> Self {
        door.metrics.load_streams.inc();
        let now = Instant::now();
        Self {
            door,
            owner,
            begun: Vec::new(),
            place: None,
            since: now,
            heard: now,
            read: Buckets::new(READ, 1),
            borne: Buckets::new(BORNE, 1),
            summary: LoadSummary::default(),
            told: false,
        }
    }

    /// However the lines are split.
    async fn feed(&mut self, mut data: &[u8]) -> Result<(), No> {
        while let Some(end) = data.iter().position(|octet| *octet == b'\n') {
            self.keep(&data[..end]).await?;
            data = &data[end + 1..];
            let line = std::mem::take(&mut self.begun);
            self.line(&line)?;
            self.place = None;
        }
        self.keep(data).await
    }

    async fn keep(&mut self, more: &[u8]) -> Result<(), No> {
        let length = self.begun.len() + more.len();
        if length > MAX_LINE {
            self.door.metrics.line("TooLarge");
            return Err(No::too_large(format!("a line of load has at most {MAX_LINE} octets")));
        }
        if length > SHORT_LINE && self.place.is_none() {
            let permit = timeout(BUSY_TIME, self.door.long_lines.acquire()).await;
            let permit = permit.ok().and_then(Result::ok).ok_or_else(No::busy)?;
            self.place = Some(Place { until: Instant::now() + LONG_LINE_TIME, _permit: permit });
        }
        self.begun.extend_from_slice(more);
        Ok(())
    }

    /// When the line that is coming must be there.
    fn deadline(&self) -> Instant {
        let silent = self.heard + SILENCE;
        self.place.as_ref().map_or(silent, |place| place.until.min(silent))
    }

    fn too_slow(&self) -> No {
        if self.place.is_some() { No::too_slow() } else { No::silent() }
    }

    /// A last line may have no end.
    fn finish(&mut self) -> Result<(), No> {
        let line = std::mem::take(&mut self.begun);
        if line.is_empty() { Ok(()) } else { self.line(&line) }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), No> {
        self.heard = Instant::now();
        let now = self.heard - self.since;
        if let Err(wait) = self.borne.take(&(), 1, now) {
            self.door.metrics.line("TooFast");
            return Err(No::too_fast(wait));
        }
        if self.read.take(&(), 1, now).is_err() {
            self.door.metrics.line("TooFast");
            self.summary.dropped += 1;
            return Ok(());
        }
        let LoadLine { services } = parse(line).inspect_err(|_| self.door.metrics.line("Malformed"))?;
        if services.len() > MAX_SERVICES {
            self.door.metrics.line("TooLarge");
            return Err(No::too_large(format!("a line of load has at most {MAX_SERVICES} services")));
        }
        self.door.metrics.line("Ok");
        self.summary.lines += 1;
        self.take(services);
        Ok(())
    }

    fn take(&mut self, services: Vec<ServiceLoad>) {
        let mut good = Vec::with_capacity(services.len());
        for said in services {
            match check(&said) {
                Ok(report) => good.push(report),
                Err(code) => self.drop_reports(code, 1),
            }
        }
        let count = good.len();
        let no_room = self.door.reports.take(&self.owner.cluster, &self.owner.uid, good, now());
        if no_room > 0 {
            self.drop_reports("TooManyServices", no_room);
        }
        self.door.metrics.reports("Ok", count - no_room);
        self.summary.reports += (count - no_room) as u64;
    }

    fn drop_reports(&mut self, code: &'static str, many: usize) {
        self.door.metrics.reports(code, many);
        self.summary.dropped += many as u64;
        if !self.told {
            self.told = true;
            tracing::warn!(cluster = %self.owner.cluster, code, "a load report is not taken, nor will others like it be");
        }
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.door.metrics.load_streams.dec();
    }
}

/// Or the code of what is wrong with it.
fn check(said: &ServiceLoad) -> Result<(Service, Report), &'static str> {
    let (Some(namespace), Some(name)) = (label(&said.namespace), label(&said.name)) else { return Err("BadName") };
    let ready = match u32::try_from(said.ready) {
        Ok(ready) => ready,
        Err(_) if said.ready < 0 => return Err(BadReport::Negative("number of ready pods").code()),
        Err(_) => u32::MAX,
    };
    let (served, utilization) = (said.served.unwrap_or(f64::NAN), said.utilization.unwrap_or(f64::NAN));
    let report = Report::check(served, utilization, ready).map_err(|bad| bad.code())?;
    Ok((Service { namespace, name }, report))
}

fn label(text: &str) -> Option<ObjectName> {
    is_label(text).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_dropped_with_a_code() {
        let good = ServiceLoad {
            namespace: "shop".into(),
            name: "web".into(),
            served: Some(12.5),
            utilization: Some(0.7),
            ready: 3,
        };
        let code = |change: &dyn Fn(&mut ServiceLoad)| {
            let mut said = good.clone();
            change(&mut said);
            check(&said).map_or_else(|code| code, |_| "Ok")
        };
        assert_eq!(code(&|_| ()), "Ok");
        assert_eq!(code(&|said| said.namespace = "Shop".into()), "BadName");
        assert_eq!(code(&|said| said.name = "web.other".into()), "BadName");
        assert_eq!(code(&|said| said.name = "a".repeat(64)), "BadName");
        assert_eq!(code(&|said| said.name = "../c2/web".into()), "BadName");
        assert_eq!(code(&|said| said.name = String::new()), "BadName");
        assert_eq!(code(&|said| said.served = None), "ReportNotFinite");
        assert_eq!(code(&|said| said.utilization = Some(f64::INFINITY)), "ReportNotFinite");
        assert_eq!(code(&|said| said.served = Some(-1.0)), "ReportNegative");
        assert_eq!(code(&|said| said.served = Some(1e300)), "ReportTooLarge");
        assert_eq!(code(&|said| said.ready = -1), "ReportNegative");
        assert_eq!(code(&|said| said.ready = i64::MAX), "ReportTooLarge");
    }
}
