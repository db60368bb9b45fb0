//! * One connection: read where it wants to go, find its route, check who it is, connect and carry; or refuse.
//!
//! A connection is a small value that its thread advances whenever one of its sockets is ready. What it needs of the
//! snapshot it takes once, as an `Arc<Route>`: later snapshots never touch it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwap;
use model::inside::Denied;
use model::snapshot::Route;
use model::{Blame, Snapshot};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, getsockname, recv, send, shutdown, sockopt};

use crate::address::{ClientAddr, Named, PeerAddr};
use crate::balance::{Load, Order};
use crate::client_hello::{Hello, HelloReader};
use crate::decision::{Decision, Selector, decide, is_terminated};
use crate::doorway::{Doorway, Way};
use crate::hub::Hub;
use crate::inward::{self, Counts};
use crate::limits::Place;
use crate::limits::openings::OpeningPlace;
use crate::listen::{DoorKind, Terminate, Terminated};
use crate::outer_header;
use crate::proxy_header::{self, Parsed};
use crate::readiness::Readiness;
use crate::refusal::Refusal;
use crate::relay::{Direction, Flow, Lent, Socket};
use crate::token::{Side, Token};
use crate::upstream;
use crate::worker::Tools;

/// Targets inside a cluster that are tried, each in its own time: with more the client has given up.
const TARGETS: usize = 3;

pub(crate) struct Connection {
    pub(crate) token: Token,
    /// Which of the thread's doors it came through.
    pub(crate) door: u8,
    client: OwnedFd,
    client_readiness: Readiness,
    upstream_readiness: Readiness,
    upstream: Option<OwnedFd>,
    peer: PeerAddr,
    /// Whom its headers named so far.
    named: Named,
    /// When one of its sockets was last ready.
    active: Instant,
    /// Its place among those that have not said yet where they want to go.
    pub(crate) opening_place: Option<OpeningPlace>,
    stage: Stage,
}

enum Stage {
    /// Has not said yet where it wants to go; `None` until a first part of that has come.
    Opening(Option<Box<Partial>>),
    Connecting(Box<Connecting>),
    /// Waits for word from inside a cluster.
    Reaching(Box<Reaching>),
    Relaying(Relaying),
    /// Carried into a cluster by who has a way there: only its end is waited for.
    Away(Box<Away>),
    /// Was refused with an alert; closing first could reset the connection and lose it.
    Farewell,
    /// Only while a step is being taken.
    Between,
}

/// An opening that came in pieces.
#[derive(Default)]
struct Partial {
    received: Vec<u8>,
    reader: HelloReader,
}

struct Connecting {
    attempt: Attempt,
    load: Load,
    /// What came with the opening and belongs to the stream.
    first: Vec<u8>,
    deadline: Instant,
}

/// The way to a control plane, address by address.
struct Attempt {
    route: Arc<Route>,
    place: Place,
    /// The addresses, the best first.
    order: Order,
    /// How many of them have been tried.
    tried: usize,
}

struct Reaching {
    entrance: Entrance,
    /// What came with the opening and belongs to the stream.
    first: Vec<u8>,
    deadline: Instant,
}

/// The way into a cluster, target by target.
struct Entrance {
    route: Arc<Route>,
    place: Place,
    /// How many targets have been tried.
    tried: usize,
    counts: Counts,
}

struct Away {
    route: Arc<Route>,
    counts: Counts,
    /// What had been carried when it was last looked at.
    seen: u64,
    _place: Place,
}

struct Relaying {
    route: Arc<Route>,
    to_upstream: Direction,
    to_client: Direction,
    /// Held for as long as it lasts: its place among the cluster's connections, and its share of the address' load.
    _place: Place,
    _load: Load,
}

/// What an opening said, once it is whole.
struct Opened<'a> {
    selector: Selector<'a>,
    /// As the node proxy names it: for the log, never believed.
    client: Option<ClientAddr>,
    /// How many bytes of it are ours and not the stream's.
    consumed: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Wait,
    /// There is more to do, but it is others' turn.
    Yield,
    End,
}

/// Which time ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    Opening,
    Connecting,
    Farewell,
    /// It has lasted: worth the calls that short ones are spared.
    Lasting,
    Idle,
}

/// How a stage ended its turn.
enum Step {
    /// Into the next stage.
    Goes,
    Waits,
    /// It is somebody else's now.
    Ends,
}

impl Connection {
    pub(crate) fn new(token: Token, door: u8, client: OwnedFd, peer: PeerAddr, now: Instant) -> Self {
        Self {
            token,
            door,
            client,
            client_readiness: Readiness::unknown(),
            upstream_readiness: Readiness::default(),
            upstream: None,
            peer,
            named: Named::default(),
            active: now,
            opening_place: None,
            stage: Stage::Opening(None),
        }
    }

    pub(crate) fn client(&self) -> &OwnedFd {
        &self.client
    }

    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.stage, Stage::Opening(_))
    }

    pub(crate) fn note(&mut self, side: Side, events: EventFlags, now: Instant) {
        self.active = now;
        match side {
            Side::Client => self.client_readiness.note(events),
            Side::Upstream => self.upstream_readiness.note(events),
        }
    }

    /// Takes it as far as it goes now.
    pub(crate) fn advance(&mut self, doorway: &Doorway, tools: &mut Tools) -> Next {
        loop {
            let step = match std::mem::replace(&mut self.stage, Stage::Between) {
                Stage::Opening(partial) => match &doorway.way {
                    Way::Asked(snapshot) => self.open(partial, snapshot, doorway, tools),
                    Way::ToHub(hub) => self.go_to_hub(hub, doorway, tools),
                },
                Stage::Connecting(connecting) => self.finish_connecting(connecting, doorway, tools),
                Stage::Reaching(reaching) => self.finish_reaching(reaching, doorway, tools),
                Stage::Relaying(relaying) => return self.relay(relaying, doorway, tools),
                Stage::Away(away) => return self.wait_for_its_end(away, doorway),
                Stage::Farewell => return self.say_farewell(tools),
                Stage::Between => return Next::End,
            };
            match step {
                Ok(Step::Goes) => {}
                Ok(Step::Waits) => return Next::Wait,
                Ok(Step::Ends) => return Next::End,
                Err(refusal) => return self.refuse(&refusal, doorway, tools),
            }
        }
    }

    /// Reads the opening; usually all of it comes at once and is never copied.
    fn open(
        &mut self,
        partial: Option<Box<Partial>>,
        snapshot: &ArcSwap<Snapshot>,
        doorway: &Doorway,
        tools: &mut Tools,
    ) -> Result<Step, Refusal> {
        let mut buffer = std::mem::take(&mut tools.buffer);
        let step = self.open_with(&mut buffer, partial, snapshot, doorway, tools);
        tools.buffer = buffer;
        step
    }

    fn open_with(
        &mut self,
        buffer: &mut [u8],
        mut partial: Option<Box<Partial>>,
        snapshot: &ArcSwap<Snapshot>,
        doorway: &Doorway,
        tools: &mut Tools,
    ) -> Result<Step, Refusal> {
        let trusted = doorway.trusts(self.peer);
        while self.client_readiness.readable() {
            let count = match recv(&self.client, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Err(Refusal::HungUp),
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => {
                    self.client_readiness.clear_readable();
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(_) => return Err(Refusal::HungUp),
            };
            if count < buffer.len() {
                self.client_readiness.clear_readable_unless_ending();
            }
            let Some(pieces) = &mut partial else {
                let mut reader = HelloReader::default();
                if let Some(opened) =
                    read_opening(doorway.kind, trusted, &buffer[..count], &mut reader, &mut self.named)?
                {
                    return self.decide(&opened, &buffer[opened.consumed..count], snapshot, doorway, tools);
                }
                partial = Some(Box::new(Partial { received: buffer[..count].to_vec(), reader }));
                continue;
            };
            // Bounded: the readers refuse what announces more than they accept before that has come.
            pieces.received.extend_from_slice(&buffer[..count]);
            let Partial { received, reader } = &mut **pieces;
            if let Some(opened) = read_opening(doorway.kind, trusted, received, reader, &mut self.named)? {
                return self.decide(&opened, &received[opened.consumed..], snapshot, doorway, tools);
            }
        }
        self.stage = Stage::Opening(partial);
        Ok(Step::Waits)
    }

    fn decide(
        &mut self,
        opened: &Opened<'_>,
        first: &[u8],
        snapshot: &ArcSwap<Snapshot>,
        doorway: &Doorway,
        tools: &mut Tools,
    ) -> Result<Step, Refusal> {
        self.named.claim(opened.client);
        let source = self.named.source(self.peer);
        let snapshot = snapshot.load();
        if let (Some(terminate), Selector::ServerName(name)) = (&doorway.terminate, &opened.selector)
            && is_terminated(&snapshot, name)
        {
            return self.hand_over(terminate, first, tools);
        }
        let Decision { route, proof } = decide(&snapshot, &opened.selector, doorway.agents.as_ref(), source)?;
        let nonce = match proof {
            Some(proof) => {
                let now = SystemTime::now();
                Some((proof.check(&route, now)?, now))
            }
            None => None,
        };
        let place = doorway.admissions.admit(&route, tools.now)?;
        // Last: who was over a limit may come again with the same proof.
        if let Some((nonce, now)) = nonce {
            doorway.replays.take(nonce, now).map_err(|error| Refusal::spent_proof(&route.cluster, error))?;
        }
        let (door, peer) = (doorway.kind.label(), self.peer);
        let client = self.named.client().map(tracing::field::display);
        tracing::debug!(door, %peer, client, cluster = %route.cluster, service = %route.service, "connection admitted");
        if route.is_inside() {
            let entrance = Entrance { route, place, tried: 0, counts: Counts::new(&doorway.metrics) };
            return self.reach(entrance, first, Denied::NoTunnel, doorway, tools);
        }
        let order = doorway.upstreams.order(&route, tools.now);
        self.connect(Attempt { route, place, order, tried: 0 }, first, Errno::HOSTUNREACH, doorway, tools)
    }

    /// Gives the client to who terminates its TLS, with what it has sent.
    fn hand_over(&self, terminate: &Terminate, received: &[u8], tools: &Tools) -> Result<Step, Refusal> {
        // The kernel tells of a descriptor as long as a copy of it is open; most have not been told to it yet.
        tools.forget(&self.client);
        let stream = self.client.try_clone().map_err(|_| Refusal::HungUp)?.into();
        let client = self.named.vouched().unwrap_or(self.peer.0);
        terminate.take(Terminated { stream, received: received.to_vec(), client });
        Ok(Step::Ends)
    }

    /// On a node there is nothing to ask: the header that names the cluster goes first, whatever the client says.
    fn go_to_hub(&mut self, hub: &Hub, doorway: &Doorway, tools: &mut Tools) -> Result<Step, Refusal> {
        let destination = getsockname(&self.client).map_err(|_| Refusal::HungUp)?;
        let destination = SocketAddr::try_from(destination).map_err(|_| Refusal::HungUp)?;
        let header = hub.header(self.peer, destination)?;
        let route = hub.route();
        let place = doorway.admissions.admit(&route, tools.now)?;
        let order = doorway.upstreams.order(&route, tools.now);
        self.connect(Attempt { route, place, order, tried: 0 }, &header, Errno::HOSTUNREACH, doorway, tools)
    }

    /// Tries the addresses that are left, each in its own time.
    fn connect(
        &mut self,
        mut attempt: Attempt,
        first: &[u8],
        mut failure: Errno,
        doorway: &Doorway,
        tools: &mut Tools,
    ) -> Result<Step, Refusal> {
        while attempt.tried < attempt.order.len() * doorway.rounds {
            let address = Arc::clone(&attempt.order[attempt.tried % attempt.order.len()]);
            attempt.tried += 1;
            // Counted before it is there, so that those who choose at the same moment see each other.
            let load = address.attempt();
            let begun = upstream::begin_connect(address.address()).and_then(|upstream| {
                tools.register(&upstream, self.token, Side::Upstream)?;
                Ok(upstream)
            });
            let sent = match &begun {
                // On this machine or a near one it may be there already.
                Ok(upstream) if !first.is_empty() => send(upstream, first, SendFlags::NOSIGNAL),
                Ok(_) => Err(Errno::AGAIN),
                Err(error) => Err(*error),
            };
            match (begun, sent) {
                (Ok(upstream), Ok(count)) => {
                    self.upstream = Some(upstream);
                    self.upstream_readiness = Readiness::unknown();
                    let established = (attempt.route, attempt.place, load);
                    self.establish(established, &first[count..], first.len(), doorway, tools);
                    return Ok(Step::Goes);
                }
                (Ok(upstream), Err(Errno::AGAIN | Errno::NOTCONN | Errno::INTR)) => {
                    self.upstream = Some(upstream);
                    self.upstream_readiness = Readiness::default();
                    let deadline = tools.connecting.add(self.token, tools.now);
                    let connecting = Connecting { attempt, load, first: first.to_vec(), deadline };
                    self.stage = Stage::Connecting(Box::new(connecting));
                    return Ok(Step::Waits);
                }
                (_, Err(error)) | (Err(error), Ok(_)) => {
                    note_failure(doorway, &attempt.route, address.address(), error);
                    load.failed(error, tools.now);
                    failure = error;
                }
            }
        }
        let last = attempt.order.last().map(|address| address.address());
        let last = last.unwrap_or_else(|| (std::net::Ipv4Addr::UNSPECIFIED, 0).into());
        let (cluster, service) = (attempt.route.cluster.clone(), attempt.route.service.to_string());
        Err(Refusal::Unreachable { cluster, service, last, source: failure.into() })
    }

    fn finish_connecting(
        &mut self,
        connecting: Box<Connecting>,
        doorway: &Doorway,
        tools: &mut Tools,
    ) -> Result<Step, Refusal> {
        let Some(upstream) = self.upstream.as_ref().filter(|_| self.upstream_readiness.writable()) else {
            self.stage = Stage::Connecting(connecting);
            return Ok(Step::Waits);
        };
        let outcome = if self.upstream_readiness.ending() {
            sockopt::socket_error(upstream).and_then(|outcome| outcome)
        } else {
            Ok(())
        };
        match outcome {
            Ok(()) => {
                let Connecting { attempt, load, first, .. } = *connecting;
                self.establish((attempt.route, attempt.place, load), &first, first.len(), doorway, tools);
                Ok(Step::Goes)
            }
            Err(error) => self.try_next_address(*connecting, error, doorway, tools),
        }
    }

    /// Has the next target inside the cluster tried, by whoever has a way there. `last` is why the one before was not reached.
    fn reach(
        &mut self,
        mut entrance: Entrance,
        first: &[u8],
        last: Denied,
        doorway: &Doorway,
        tools: &mut Tools,
    ) -> Result<Step, Refusal> {
        let Entrance { route, tried, counts, .. } = &mut entrance;
        let is_over = *tried >= TARGETS || (*tried > 0 && !last.is_of_target());
        let (Some(target), Some(inward), false) = (route.inside.get(*tried), &doorway.inward, is_over) else {
            let target = route.inside[tried.saturating_sub(1).min(route.inside.len() - 1)].clone();
            return Err(Refusal::Inward { cluster: route.cluster.clone(), target, source: last });
        };
        *tried += 1;
        let wanted = (&route.cluster, target, tools.connecting.span());
        let begun = inward.begin(wanted, (&self.client, first), counts).and_then(|upstream| {
            tools.register(&upstream, self.token, Side::Upstream)?;
            Ok(upstream)
        });
        match begun {
            Ok(upstream) => {
                self.upstream = Some(upstream);
                self.upstream_readiness = Readiness::unknown();
                let deadline = tools.connecting.add(self.token, tools.now);
                self.stage = Stage::Reaching(Box::new(Reaching { entrance, first: first.to_vec(), deadline }));
                Ok(Step::Goes)
            }
            Err(error) => {
                tracing::debug!(cluster = %route.cluster, %error, "no pair of sockets");
                let (cluster, target) = (route.cluster.clone(), target.clone());
                Err(Refusal::Inward { cluster, target, source: Denied::TooMany })
            }
        }
    }

    fn finish_reaching(
        &mut self,
        reaching: Box<Reaching>,
        doorway: &Doorway,
        tools: &mut Tools,
    ) -> Result<Step, Refusal> {
        let upstream = self.upstream.as_ref().filter(|_| self.upstream_readiness.readable());
        let Some(outcome) = upstream.and_then(inward::heard) else {
            self.upstream_readiness.clear_readable();
            self.stage = Stage::Reaching(reaching);
            return Ok(Step::Waits);
        };
        match outcome {
            Ok(()) => {
                // Before it is the other's: the kernel tells of a descriptor as long as a copy of it is open.
                tools.forget(&self.client);
                if upstream.is_none_or(|word| inward::give(word).is_err()) {
                    return self.try_next_target(*reaching, Denied::LinkLost, doorway, tools);
                }
                let Entrance { route, place, counts, .. } = reaching.entrance;
                doorway.metrics.established();
                tools.idle.add(self.token, tools.now);
                self.upstream_readiness = Readiness::unknown();
                self.stage = Stage::Away(Box::new(Away { route, counts, seen: 0, _place: place }));
                Ok(Step::Goes)
            }
            Err(denied) => self.try_next_target(*reaching, denied, doorway, tools),
        }
    }

    /// Dropping our end of the pair ends it, too.
    fn wait_for_its_end(&mut self, away: Box<Away>, doorway: &Doorway) -> Next {
        let word = self.upstream.as_ref().filter(|_| self.upstream_readiness.readable());
        if word.is_some_and(inward::has_ended) {
            let (door, peer) = (doorway.kind.label(), self.peer);
            tracing::debug!(door, %peer, cluster = %away.route.cluster, "connection into the cluster ended");
            return Next::End;
        }
        self.upstream_readiness.clear_readable();
        self.stage = Stage::Away(away);
        Next::Wait
    }

    fn try_next_target(
        &mut self,
        reaching: Reaching,
        denied: Denied,
        doorway: &Doorway,
        tools: &mut Tools,
    ) -> Result<Step, Refusal> {
        let Reaching { entrance, first, .. } = reaching;
        let (cluster, reason) = (&entrance.route.cluster, denied);
        tracing::debug!(%cluster, code = denied.code(), %reason, "not reached through the tunnel");
        self.upstream = None;
        self.reach(entrance, &first, denied, doorway, tools)
    }

    fn try_next_address(
        &mut self,
        connecting: Connecting,
        error: Errno,
        doorway: &Doorway,
        tools: &mut Tools,
    ) -> Result<Step, Refusal> {
        let Connecting { attempt, load, first, .. } = connecting;
        note_failure(doorway, &attempt.route, load.state().address(), error);
        load.failed(error, tools.now);
        self.upstream = None;
        self.connect(attempt, &first, error, doorway, tools)
    }

    /// `unsent` is what is left of the `first` bytes of the stream.
    fn establish(
        &mut self,
        (route, place, load): (Arc<Route>, Place, Load),
        unsent: &[u8],
        first: usize,
        doorway: &Doorway,
        tools: &mut Tools,
    ) {
        load.connected();
        doorway.metrics.established();
        tools.carried[usize::from(self.door)].to_upstream += first as u64;
        tools.lasting.add(self.token, tools.now);
        self.stage = Stage::Relaying(Relaying {
            route,
            to_upstream: Direction::holding(unsent.to_vec()),
            to_client: Direction::default(),
            _place: place,
            _load: load,
        });
    }

    fn relay(&mut self, mut relaying: Relaying, doorway: &Doorway, tools: &mut Tools) -> Next {
        let Some(upstream) = &self.upstream else { return Next::End };
        let Relaying { route, to_upstream, to_client, .. } = &mut relaying;
        let carried = &mut tools.carried[usize::from(self.door)];
        let mut lent = Lent { buffer: &mut tools.buffer, pipes: &mut tools.pipes, carried: &mut carried.to_upstream };
        let (client_side, upstream_side) = (&mut self.client_readiness, &mut self.upstream_readiness);

        let (up_ended, down_ended) = (to_upstream.has_ended(), to_client.has_ended());
        let up = to_upstream.pump(
            Socket { fd: &self.client, readiness: client_side },
            Socket { fd: upstream, readiness: upstream_side },
            &mut lent,
        );
        lent.carried = &mut carried.to_client;
        let down = up.and_then(|up| {
            let down = to_client.pump(
                Socket { fd: upstream, readiness: upstream_side },
                Socket { fd: &self.client, readiness: client_side },
                &mut lent,
            );
            down.map(|down| (up, down))
        });
        let (up, down) = match down {
            Ok(flows) => flows,
            Err(error) => {
                let (door, peer) = (doorway.kind.label(), self.peer);
                tracing::debug!(door, %peer, cluster = %route.cluster, %error, "connection broke");
                return Next::End;
            }
        };
        match (up, down) {
            (Flow::Ended, Flow::Ended) => {
                tracing::debug!(door = doorway.kind.label(), peer = %self.peer, cluster = %route.cluster, "connection ended");
                return Next::End;
            }
            (Flow::Ended, _) if !up_ended => Direction::pass_on_end(upstream),
            (_, Flow::Ended) if !down_ended => Direction::pass_on_end(&self.client),
            _ => {}
        }
        self.stage = Stage::Relaying(relaying);
        if up == Flow::Yields || down == Flow::Yields { Next::Yield } else { Next::Wait }
    }

    pub(crate) fn refuse(&mut self, refusal: &Refusal, doorway: &Doorway, tools: &mut Tools) -> Next {
        doorway.metrics.refused(refusal, doorway.snapshot());
        let (door, code, blame, peer) = (doorway.kind.label(), refusal.code(), refusal.blame(), self.peer);
        let client = self.named.client().map(tracing::field::display);
        // Anybody can have us refuse them; only what somebody on our side can mend is worth a line by default.
        if blame == Blame::Client {
            tracing::debug!(door, %peer, client, code, blame = blame.as_str(), reason = %refusal, "connection refused");
        } else {
            tracing::info!(door, %peer, client, code, blame = blame.as_str(), reason = %refusal, "connection refused");
        }
        let Some(alert) = refusal.alert() else { return Next::End };
        // RFC 8446 6: a fatal alert in a record of its own.
        let record = [21, 3, 3, 0, 2, 2, alert];
        if send(&self.client, &record, SendFlags::NOSIGNAL).is_err() || shutdown(&self.client, Shutdown::Write).is_err()
        {
            return Next::End;
        }
        self.stage = Stage::Farewell;
        tools.farewell.add(self.token, tools.now);
        self.client_readiness = Readiness::unknown();
        self.say_farewell(tools)
    }

    /// Reads on, and forgets it, until the client has closed.
    fn say_farewell(&mut self, tools: &mut Tools) -> Next {
        self.stage = Stage::Farewell;
        while self.client_readiness.readable() {
            match recv(&self.client, &mut *tools.buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Next::End,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.client_readiness.clear_readable(),
                Err(_) => return Next::End,
            }
        }
        Next::Wait
    }

    /// A time ran out; whether it still matters is seen here.
    pub(crate) fn expire(&mut self, expiry: Expiry, at: Instant, doorway: &Doorway, tools: &mut Tools) -> Next {
        match (expiry, &self.stage) {
            (Expiry::Opening, Stage::Opening(_)) => {
                let refusal = match doorway.kind {
                    DoorKind::ClusterId => Refusal::HeaderTimeout,
                    // A node's door waits for nothing before it connects.
                    DoorKind::ServerName | DoorKind::Node => Refusal::HelloTimeout,
                };
                self.refuse(&refusal, doorway, tools)
            }
            (Expiry::Connecting, Stage::Connecting(connecting)) if connecting.deadline == at => {
                let Stage::Connecting(connecting) = std::mem::replace(&mut self.stage, Stage::Between) else {
                    return Next::End;
                };
                match self.try_next_address(*connecting, Errno::TIMEDOUT, doorway, tools) {
                    Ok(Step::Goes) => self.advance(doorway, tools),
                    Ok(Step::Waits) => Next::Wait,
                    Ok(Step::Ends) => Next::End,
                    Err(refusal) => self.refuse(&refusal, doorway, tools),
                }
            }
            (Expiry::Connecting, Stage::Reaching(reaching)) if reaching.deadline == at => {
                let Stage::Reaching(reaching) = std::mem::replace(&mut self.stage, Stage::Between) else {
                    return Next::End;
                };
                match self.try_next_target(*reaching, Denied::TimedOut, doorway, tools) {
                    Ok(Step::Goes) => self.advance(doorway, tools),
                    Ok(Step::Waits) => Next::Wait,
                    Ok(Step::Ends) => Next::End,
                    Err(refusal) => self.refuse(&refusal, doorway, tools),
                }
            }
            (Expiry::Farewell, Stage::Farewell) => Next::End,
            (Expiry::Lasting, Stage::Relaying(_)) => {
                self.upstream.iter().for_each(upstream::keep_alive);
                tools.idle.add(self.token, tools.now);
                Next::Wait
            }
            (Expiry::Idle, Stage::Relaying(relaying)) => {
                if tools.now.saturating_duration_since(self.active) >= tools.idle.span() {
                    let (door, peer) = (doorway.kind.label(), self.peer);
                    tracing::debug!(door, %peer, cluster = %relaying.route.cluster, "idle for too long: closed");
                    return Next::End;
                }
                // Was active meanwhile; looked at again after the whole time, which is at most twice what was asked.
                tools.idle.add(self.token, tools.now);
                Next::Wait
            }
            (Expiry::Idle, Stage::Away(_)) => self.look_at_what_is_away(doorway, tools),
            _ => Next::Wait,
        }
    }

    fn look_at_what_is_away(&mut self, doorway: &Doorway, tools: &mut Tools) -> Next {
        let Stage::Away(away) = &mut self.stage else { return Next::Wait };
        let moved = away.counts.moved();
        if moved == away.seen {
            let (door, peer) = (doorway.kind.label(), self.peer);
            tracing::debug!(door, %peer, cluster = %away.route.cluster, "idle for too long: closed");
            return Next::End;
        }
        away.seen = moved;
        tools.idle.add(self.token, tools.now);
        Next::Wait
    }

    /// Whether the snapshot still lets this client in. A cluster that is gone says nothing about it.
    pub(crate) fn recheck(&mut self, snapshot: &Snapshot, doorway: &Doorway) -> Next {
        let route = match &self.stage {
            Stage::Relaying(relaying) => &relaying.route,
            Stage::Away(away) => &away.route,
            _ => return Next::Wait,
        };
        let part = snapshot.cluster(&route.cluster);
        let current = part.and_then(|part| {
            let apps = part.apps.iter().flat_map(|apps| &apps.tls);
            let mut routes = part.routes.iter().map(|(_, current)| current).chain(apps);
            routes.find(|current| current.service == route.service && current.is_inside() == route.is_inside())
        });
        match current {
            Some(current) if !Arc::ptr_eq(current, route) && !current.admits(self.named.source(self.peer)) => {
                doorway.metrics.cut.inc();
                let (door, peer) = (doorway.kind.label(), self.peer);
                let client = self.named.client().map(tracing::field::display);
                tracing::info!(door, %peer, client, cluster = %route.cluster, "cut: not among the allowed sources any more");
                Next::End
            }
            _ => Next::Wait,
        }
    }
}

/// `None` while more has to come. A trusted proxy speaks first, with a header of its own; whom that names is known from
/// then on, whatever becomes of the rest.
fn read_opening<'a>(
    kind: DoorKind,
    trusted: bool,
    received: &'a [u8],
    reader: &mut HelloReader,
    named: &mut Named,
) -> Result<Option<Opened<'a>>, Refusal> {
    if !trusted {
        return read_selector(kind, received, reader);
    }
    let outer_header::Parsed::Complete { client, length } = outer_header::parse(received)? else { return Ok(None) };
    named.vouch(client);
    let opened = read_selector(kind, &received[length..], reader)?;
    Ok(opened.map(|opened| Opened { consumed: length + opened.consumed, ..opened }))
}

fn read_selector<'a>(
    kind: DoorKind,
    received: &'a [u8],
    reader: &mut HelloReader,
) -> Result<Option<Opened<'a>>, Refusal> {
    match kind {
        DoorKind::ClusterId => match proxy_header::parse(received)? {
            Parsed::Incomplete => Ok(None),
            Parsed::Complete { header, length } => {
                let id = header.cluster_id.ok_or(Refusal::NoClusterId)?;
                // The header is ours alone; what came behind it is the stream.
                let selector = Selector::ClusterId { id, proof: header.proof };
                Ok(Some(Opened { selector, client: header.client, consumed: length }))
            }
        },
        // A node's door asks nothing, and does not come here.
        DoorKind::ServerName | DoorKind::Node => match reader.read(received)? {
            Hello::Incomplete => Ok(None),
            Hello::NoServerName => Err(Refusal::NoServerName),
            // The hello is the server's; all of it is passed on.
            Hello::ServerName(name) => {
                let selector = Selector::ServerName(name);
                Ok(Some(Opened { selector, client: None, consumed: 0 }))
            }
        },
    }
}

fn note_failure(doorway: &Doorway, route: &Route, address: SocketAddr, error: Errno) {
    if let Way::ToHub(hub) = &doorway.way {
        hub.tell_trouble();
    }
    tracing::debug!(cluster = %route.cluster, service = %route.service, %address, %error, "upstream not reached");
}
