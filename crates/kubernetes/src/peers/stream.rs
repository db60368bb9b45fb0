//! * One stream at the leader's: lines that come, tables that go, and all the ways in which it ends.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use model::policy::rate::{Buckets, Rate};
use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};

use super::lines::Begun;
use super::listen::{Inner, Seat};
use super::refusal::Refusal;
use super::wire::{self, Said};
use super::{MAX_LINE, Peer, SILENCE};

/// How soon somebody whose account is gone is out, after what is remembered of it.
const LOOK: Duration = Duration::from_mins(1);
/// Lines that are read. Those above are dropped: they come in a bunch where the network was slow.
const READ: Rate = Rate { burst: 4, spacing: Duration::from_millis(250) };
/// Lines that are put up with. Above, it is no slow network.
const BORNE: Rate = Rate { burst: 32, spacing: Duration::from_millis(100) };
/// Longer lines wait for a place: some thousand entries.
const SHORT_LINE: usize = 256 << 10;
/// How long they wait.
const BUSY_TIME: Duration = Duration::from_secs(5);
/// For the line before to be taken, so that the reason for an end follows it. Within the farewell of a leader.
const LAST_WORD: Duration = Duration::from_millis(250);

pub(super) struct Stream {
    door: Arc<Inner>,
    seat: Seat,
    /// As it was shown, and where that came from.
    token: (String, IpAddr),
    lines: mpsc::Sender<Bytes>,
    since: Instant,
    /// When the last whole line came.
    heard: Instant,
    /// Since when what was sent waits to be read.
    stuck: Option<Instant>,
    read: Buckets<()>,
    borne: Buckets<()>,
    count: u64,
}

impl Stream {
    pub(super) fn new(door: Arc<Inner>, seat: Seat, token: (String, IpAddr), lines: mpsc::Sender<Bytes>) -> Self {
        let now = Instant::now();
        let (read, borne) = (Buckets::new(READ, 1), Buckets::new(BORNE, 1));
        Self { door, seat, token, lines, since: now, heard: now, stuck: None, read, borne, count: 0 }
    }

    pub(super) async fn run(mut self, body: Incoming) {
        let Peer { name, role } = self.seat.peer.clone();
        tracing::info!(replica = %name, %role, "a process is heard");
        let ended = self.hear(body).await;
        let code = ended.map_or_else(Refusal::code, |()| "Ok");
        tracing::info!(replica = %name, %role, lines = self.count, code, "a process is not heard any more");
        if let Err(no) = ended {
            if matches!(no, Refusal::BadToken | Refusal::NotAllowed | Refusal::NoLinks) {
                self.door.roster().forget(&self.seat.peer);
            }
            self.door.metrics.refused(no.code());
            // For its log; whoever does not read it is told nothing.
            let _ = timeout(LAST_WORD, self.lines.send(wire::no(no.code(), &no.to_string()))).await;
        }
    }

    /// Until it ends, one way or another.
    async fn hear(&mut self, mut body: Incoming) -> Result<(), Refusal> {
        let door = Arc::clone(&self.door);
        let (over, replaced) = (self.seat.over.clone(), self.seat.replaced.clone());
        let mut tables = door.hears.tables();
        // Those that there are go out at once.
        tables.mark_changed();
        let mut replicas = door.replicas.subscribe();
        let mut owed = replicas.borrow_and_update().is_some();
        let lines = self.lines.clone();
        let mut looks = interval_at(Instant::now() + LOOK, LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut begun, mut place) = (Begun::default(), None);
        loop {
            let deadline = self.stuck.unwrap_or(self.heard).min(self.heard) + SILENCE;
            tokio::select! {
                biased;
                () = over.cancelled() => return Err(Refusal::NotLeading),
                () = replaced.cancelled() => return Err(Refusal::Replaced),
                () = sleep_until(deadline) => {
                    return Err(if self.heard + SILENCE <= Instant::now() { Refusal::Silent } else { Refusal::Slow });
                }
                _ = looks.tick() => {
                    let (token, from) = &self.token;
                    match door.reviews.admit(token, *from).await {
                        // What was known of it still counts.
                        Ok(_) | Err(Refusal::HubAway | Refusal::TooManyTries) => {}
                        Err(no) => return Err(no),
                    }
                }
                changed = tables.changed() => {
                    if changed.is_err() {
                        return Err(Refusal::NotLeading);
                    }
                    let tables = Arc::clone(&tables.borrow_and_update());
                    self.tell(&tables);
                }
                // Unlike tables, they do not come every second: they wait for their turn.
                changed = replicas.changed() => {
                    if changed.is_err() {
                        return Err(Refusal::NotLeading);
                    }
                    owed = true;
                }
                Ok(place) = lines.reserve(), if owed => {
                    if let Some(replicas) = &*replicas.borrow_and_update() {
                        place.send(wire::replicas(replicas));
                    }
                    (owed, self.stuck) = (false, None);
                }
                frame = body.frame() => match frame {
                    None => return Ok(()),
                    Some(Err(_)) => return Err(Refusal::BrokenOff),
                    Some(Ok(frame)) => {
                        let Some(mut data) = frame.data_ref().map(|data| &data[..]) else { continue };
                        while let Some(line) = begun.line(&mut data, MAX_LINE).map_err(|_| Refusal::TooLarge)? {
                            self.line(&line)?;
                            place = None;
                        }
                        if begun.len() > SHORT_LINE && place.is_none() {
                            place = Some(long_place(&door).await?);
                        }
                    }
                },
            }
        }
    }

    /// Only the newest is worth sending: one that does not fit is left out.
    fn tell(&mut self, tables: &model::overflow::Tables) {
        let now = Instant::now();
        match self.lines.try_reserve() {
            Ok(place) => {
                place.send(wire::tables(tables, &self.seat.peer.name));
                self.stuck = None;
            }
            Err(_) => self.stuck = self.stuck.or(Some(now)),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        self.heard = Instant::now();
        let now = self.heard - self.since;
        self.borne.take(&(), 1, now).map_err(|_| Refusal::TooFast)?;
        if self.read.take(&(), 1, now).is_err() {
            return Ok(());
        }
        let Said { sighting, reports, replica } = wire::said(line).map_err(|wrong| {
            tracing::warn!(replica = %self.seat.peer.name, role = %self.seat.peer.role, "a line of a process is not taken: {wrong}");
            Refusal::Malformed
        })?;
        self.count += 1;
        self.door.metrics.lines.inc();
        if let Some(sighting) = sighting {
            self.door.hears.see(&self.seat.peer.name, sighting);
        }
        if !reports.is_empty() {
            // Only a controller has the agents' door.
            if !self.seat.reports {
                return Err(Refusal::NotAllowed);
            }
            self.door.hears.report(reports);
        }
        if let Some(replica) = replica {
            let carries = replica.takes_links || replica.address.is_some() || !replica.clusters.is_empty();
            if carries && !self.seat.links {
                return Err(Refusal::NoLinks);
            }
            self.door.roster().say(&self.seat.peer, replica);
        }
        Ok(())
    }
}

async fn long_place(door: &Inner) -> Result<SemaphorePermit<'_>, Refusal> {
    timeout(BUSY_TIME, door.long_lines.acquire()).await.ok().and_then(Result::ok).ok_or(Refusal::Busy)
}
