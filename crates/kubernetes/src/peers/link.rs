//! * A process' own stream to the leader, again and again: wherever the Lease says that it is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::connect::{LinkError, open};
use super::lines::Begun;
use super::meeting::{Fingerprint, Meeting, shortened};
use super::replicas::Replica;
use super::{Bearer, MAX_LINE, Metrics, Peer, SILENCE, Speaks, wire};

/// From one line to the next.
const SECOND: Duration = Duration::from_secs(1);
/// The pause after a stream that came to nothing, doubled with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Tables count for 10 s: there is time for two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Where we were told no, as trying again will hardly help.
const AFTER_NO: Duration = Duration::from_secs(30);
/// Whoever leads anew is not met by all within the same moment.
const SPREAD: Duration = Duration::from_millis(200);
/// What we carry is said again after so long, should a line have been dropped.
const SAY_AGAIN: Duration = Duration::from_secs(5);
/// A stream that lasted so long was a good one: what ended it is a first failure again.
const GOOD: Duration = Duration::from_secs(10);

pub struct Link {
    /// Where the leader is met.
    pub meeting: watch::Receiver<Option<Meeting>>,
    /// Where we ourselves are met, if so: nobody speaks to itself.
    pub own: Option<Fingerprint>,
    pub me: Peer,
    pub bearer: Option<Bearer>,
    pub speaks: Arc<dyn Speaks>,
    pub metrics: Metrics,
}

impl Link {
    /// Until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        match self.bearer.take() {
            Some(bearer) => _ = stop.run_until_cancelled(self.go_on(&bearer)).await,
            None => _ = stop.run_until_cancelled(self.go_without()).await,
        }
        self.metrics.linked.set(0);
    }

    /// Says so once there is a leader to speak to.
    async fn go_without(&mut self) {
        let own = self.own;
        let is_another = |at: &Option<Meeting>| at.is_some_and(|at| Some(at.certificate) != own);
        if self.meeting.wait_for(is_another).await.is_ok() {
            self.metrics.failed("NoToken");
            tracing::warn!(
                "this process has no token of a service account, which the stream to the leader needs (a kubeconfig with a client \
                 certificate does not do): it goes by its own eyes, without shared tables"
            );
        }
    }

    async fn go_on(&mut self, bearer: &Bearer) {
        let mut pause = FIRST_PAUSE;
        loop {
            let at = *self.meeting.borrow_and_update();
            let Some(at) = at.filter(|at| Some(at.certificate) != self.own) else {
                if self.meeting.changed().await.is_err() {
                    return;
                }
                sleep(SPREAD.mul_f64(fastrand::f64())).await;
                continue;
            };
            let begun = Instant::now();
            let mut meeting = self.meeting.clone();
            let ended = tokio::select! {
                // Not after a time-out: whoever leads now says so.
                changed = meeting.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    None
                }
                ended = self.converse(at, bearer) => Some(ended),
            };
            self.metrics.linked.set(0);
            let Some(error) = ended else {
                (pause, self.meeting) = (FIRST_PAUSE, meeting);
                sleep(SPREAD.mul_f64(fastrand::f64())).await;
                continue;
            };
            self.metrics.failed(error.code());
            if begun.elapsed() > GOOD {
                pause = FIRST_PAUSE;
            }
            let wait = shortened(if error.is_no() { AFTER_NO } else { pause });
            pause = (pause * 2).min(LONGEST_PAUSE);
            tracing::warn!(error = &error as &dyn std::error::Error, again_in = ?wait, "the leader does not hear us");
            tokio::select! {
                _ = self.meeting.changed() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Until it ends, one way or another.
    async fn converse(&self, at: Meeting, bearer: &Bearer) -> LinkError {
        let (lines, body) = match open(at, &self.me, bearer).await {
            Ok(opened) => opened,
            Err(error) => return error,
        };
        tracing::info!(leader = %at.address, "the leader hears us");
        self.metrics.linked.set(1);
        tokio::select! {
            error = self.speak(lines) => error,
            error = self.hear(body) => error,
        }
    }

    async fn speak(&self, lines: mpsc::Sender<Bytes>) -> LinkError {
        let mut ticks = interval(SECOND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut carries: Option<(Replica, Instant)> = None;
        loop {
            ticks.tick().await;
            // Only once there is a place, so that it is of now.
            let place = match tokio::time::timeout(SILENCE, lines.reserve()).await {
                Ok(Ok(place)) => place,
                // The one who reads knows why.
                Ok(Err(_)) => return std::future::pending().await,
                Err(_) => return LinkError::Slow,
            };
            let now = Instant::now();
            let is_said = |now_carries: &Replica| {
                carries.as_ref().is_some_and(|(said, at)| said == now_carries && now < *at + SAY_AGAIN)
            };
            let replica = self.speaks.replica().filter(|replica| !is_said(replica));
            place.send(wire::say(self.speaks.sighting().as_ref(), &self.speaks.reports(), replica.as_ref()));
            if let Some(replica) = replica {
                carries = Some((replica, now));
            }
        }
    }

    async fn hear(&self, mut body: Incoming) -> LinkError {
        let mut begun = Begun::default();
        let mut heard = Instant::now();
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = sleep_until(heard + SILENCE) => return LinkError::Silent,
            };
            let Some(Ok(frame)) = frame else { return LinkError::Ended };
            let Some(mut data) = frame.data_ref().map(|data| &data[..]) else { continue };
            loop {
                let line = match begun.line(&mut data, MAX_LINE) {
                    Ok(Some(line)) => line,
                    Ok(None) => break,
                    Err(_) => return LinkError::Garbled(format!("a line has more than {MAX_LINE} octets")),
                };
                heard = Instant::now();
                match wire::told(&line) {
                    Ok(wire::Told::Tables(tables)) => {
                        self.metrics.tables_came();
                        self.speaks.take(tables);
                    }
                    Ok(wire::Told::Replicas(replicas)) => self.speaks.take_replicas(replicas),
                    Ok(wire::Told::No { code, reason }) => return LinkError::Refused { code, reason },
                    Err(wrong) => return LinkError::Garbled(wrong),
                }
            }
        }
    }
}
