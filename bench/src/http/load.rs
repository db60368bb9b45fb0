//! Clients and backends on one loop, so that neither has to wake the other. It never sleeps while it measures: to wake it
//! would cost the proxies time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::backends::Backends;
use super::connection::{self, Connection, Speaks};
use super::{Site, Sites};
use crate::Random;
use crate::load::wait;

/// Without an answer.
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(100);
const LISTENER: u64 = 1 << 32;
const UPSTREAM: u64 = 1 << 33;
const NUMBER: u64 = LISTENER - 1;

/// Everything around a proxy.
pub struct World {
    epoll: OwnedFd,
    backends: Backends,
    events: Vec<epoll::Event>,
    random: Random,
}

/// Clients of one door, with their connections open.
pub struct Clients {
    connections: Vec<Connection>,
    requests: Vec<Vec<u8>>,
    next: usize,
    at_once: usize,
}

impl World {
    pub fn new(backends: usize) -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let backends = Backends::start(backends)?;
        backends.watch(&epoll, |number| LISTENER | number as u64)?;
        Ok(Self { epoll, backends, events: Vec::with_capacity(256), random: Random::seeded(1) })
    }

    pub fn backends(&self) -> &[SocketAddr] {
        &self.backends.addresses
    }

    /// Opens connections for so many requests at once.
    pub fn clients(&self, door: SocketAddr, speaks: &Speaks, at_once: usize, sites: usize) -> anyhow::Result<Clients> {
        let count = at_once / speaks.at_once();
        let connections: Vec<_> =
            (0..count).map(|_| Connection::open(door, speaks)).collect::<Result<_, _>>().context("opening a client")?;
        for (number, connection) in connections.iter().enumerate() {
            epoll::add(&self.epoll, &connection.socket, EventData::new_u64(number as u64), EventFlags::IN)?;
        }
        Ok(Clients { connections, requests: speaks.requests(sites), next: 0, at_once: speaks.at_once() })
    }

    /// Each client asks for the next site as soon as it is answered; how many answers there were.
    pub fn saturate(&mut self, clients: &mut Clients, time: Duration) -> anyhow::Result<u64> {
        let begun = Instant::now();
        for client in 0..clients.connections.len() * clients.at_once {
            clients.ask(client / clients.at_once, begun)?;
        }
        let mut answers = 0;
        let mut last = Instant::now();
        while begun.elapsed() < time {
            let mut done = Vec::new();
            if self.turn(clients, |client, _| done.push(client))? {
                last = Instant::now();
            }
            ensure!(last.elapsed() < PATIENCE, "the proxy does not answer any more");
            answers += done.len() as u64;
            for client in done {
                clients.ask(client, begun)?;
            }
        }
        self.settle(clients)?;
        Ok(answers)
    }

    /// Requests come at their own moments, whatever became of those before; from each moment to the end of the answer, in
    /// microseconds. Who finds no connection free waits for one.
    pub fn steady(&mut self, clients: &mut Clients, per_second: f64, time: Duration) -> anyhow::Result<Vec<f64>> {
        let begun = Instant::now();
        let mut next = begun;
        let mut waiting = VecDeque::new();
        let mut free: Vec<usize> =
            (0..clients.connections.len()).flat_map(|client| std::iter::repeat_n(client, clients.at_once)).collect();
        let mut latencies = Vec::new();
        while begun.elapsed() < time {
            while next <= Instant::now() {
                waiting.push_back(next);
                next += Duration::from_secs_f64(self.random.exponential() / per_second);
            }
            while let (Some(since), Some(client)) = (waiting.front(), free.pop()) {
                clients.ask(client, *since)?;
                waiting.pop_front();
            }
            self.turn(clients, |client, since| {
                latencies.push(since.elapsed().as_secs_f64() * 1e6);
                free.push(client);
            })?;
        }
        self.settle(clients)?;
        Ok(latencies)
    }

    /// What reaches the backend of each site has the right Host and tells who asked; otherwise the proxy does not do the job.
    pub fn check(&mut self, door: SocketAddr, speaks: &Speaks, sites: Sites<'_>) -> anyhow::Result<()> {
        let mut clients = self.clients(door, speaks, 1, 0)?;
        for number in (0..sites.count).step_by(sites.count.div_ceil(50)) {
            let site = Site(number);
            connection::ask_for_mirror(&mut clients.connections[0], site)?;
            let begun = Instant::now();
            let head = loop {
                ensure!(begun.elapsed() < PATIENCE, "the proxy does not answer for {}", site.name());
                self.backends_turn()?;
                match connection::mirrored(&mut clients.connections[0])? {
                    Some(head) if !head.is_empty() => break head.to_ascii_lowercase(),
                    // Some listen before they know where to.
                    Some(_) => {
                        std::thread::sleep(AGAIN);
                        clients = self.clients(door, speaks, 1, 0)?;
                        connection::ask_for_mirror(&mut clients.connections[0], site)?;
                    }
                    None => {}
                }
            };
            let has = |line: &str| head.contains(&format!("\r\n{line}"));
            // Envoy names this machine by another address than loopback.
            let is_right = has(&format!("host: {}\r\n", site.name())) && has("x-forwarded-for: ");
            let host = has(&format!("x-forwarded-host: {}\r\n", site.name()));
            ensure!(is_right && host && has("x-forwarded-proto: http"), "what reached the backend is wrong:\n{head}");
        }
        Ok(())
    }

    /// What is under way is answered before the next one measures.
    fn settle(&mut self, clients: &mut Clients) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !clients.connections.iter().all(Connection::is_idle) {
            ensure!(Instant::now() < deadline, "the proxy does not answer any more");
            self.turn(clients, |_, _| {})?;
        }
        Ok(())
    }

    /// Looks once at what happened; whether something did.
    fn turn(&mut self, clients: &mut Clients, mut answered: impl FnMut(usize, Instant)) -> anyhow::Result<bool> {
        let mut events = self.events()?;
        for event in &events {
            let data = event.data.u64();
            if data < LISTENER {
                let client = usize::try_from(data)?;
                clients.connections[client].take(|since| answered(client, since))?;
            } else {
                self.backend_event(data)?;
            }
        }
        let happened = !events.is_empty();
        events.clear();
        self.events = events;
        Ok(happened)
    }

    fn backends_turn(&mut self) -> anyhow::Result<()> {
        let events = self.events()?;
        events.iter().filter(|event| event.data.u64() >= LISTENER).try_for_each(|event| {
            let data = event.data.u64();
            self.backend_event(data)
        })
    }

    fn backend_event(&mut self, data: u64) -> anyhow::Result<()> {
        let number = usize::try_from(data & NUMBER)?;
        if data & LISTENER != 0 {
            return self.backends.accept(number, &self.epoll, |key| UPSTREAM | key as u64);
        }
        self.backends.answer(number);
        Ok(())
    }

    fn events(&mut self) -> anyhow::Result<Vec<epoll::Event>> {
        let mut events = std::mem::take(&mut self.events);
        events.reserve(256);
        wait(&self.epoll, &mut events, Duration::ZERO)?;
        Ok(events)
    }
}

impl Clients {
    fn ask(&mut self, client: usize, since: Instant) -> anyhow::Result<()> {
        self.next = (self.next + 1) % self.requests.len();
        self.connections[client].ask(&mut self.requests[self.next], since)
    }
}
