//! A steady stream of connections: they begin when their time has come, whatever became of those before, as with
//! clients that know nothing of each other.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use slab::Slab;

use crate::Random;
use crate::load::{Client, Headers, Progress, wait};

/// What has not been answered so long after the last one began never will be.
const FAREWELL: Duration = Duration::from_secs(5);

/// How soon it notices that it is to end, should nobody come.
const LOOK_UP: Duration = Duration::from_millis(10);

/// Those who come: to these clusters in turn, and so many of them.
pub struct Source<'a> {
    pub headers: &'a Headers,
    pub per_second: f64,
    /// The same one means the same moments, so that two runs do the same.
    pub seed: u64,
}

/// What became of them.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Of each one that was answered, from before it connected until it had seen the end of the answer, in
    /// microseconds.
    pub latencies: Vec<f64>,
    /// Closed or reset without the whole answer.
    pub refused: u64,
    /// Neither one nor the other when time was up.
    pub unanswered: u64,
}

impl Outcome {
    pub fn begun(&self) -> u64 {
        self.latencies.len() as u64 + self.lost()
    }

    pub fn lost(&self) -> u64 {
        self.refused + self.unanswered
    }
}

/// Goes on as long as it is told to, waits for what is under way, and says what became of all.
pub fn run(door: SocketAddr, source: &Source<'_>, mut goes_on: impl FnMut() -> bool) -> anyhow::Result<Outcome> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut outcome = Outcome::default();
    let mut clients: Slab<(Instant, Client)> = Slab::new();
    let mut events = Vec::with_capacity(256);
    let mut arrivals = Arrivals::new(source);
    let mut ends_at = None;
    while ends_at.is_none_or(|ends_at| Instant::now() < ends_at && !clients.is_empty()) {
        if ends_at.is_none() && !goes_on() {
            ends_at = Some(Instant::now() + FAREWELL);
        }
        while ends_at.is_none() && arrivals.next_at <= Instant::now() {
            let place = clients.vacant_entry();
            let begun = Instant::now();
            let client = Client::begin(door, arrivals.opening(), &epoll, place.key())?;
            place.insert((begun, client));
        }
        events.clear();
        wait(&epoll, &mut events, arrivals.next_at.saturating_duration_since(Instant::now()).min(LOOK_UP))?;
        for event in &events {
            let slot = usize::try_from(event.data.u64())?;
            let Some((begun, client)) = clients.get_mut(slot) else { continue };
            match client.proceed() {
                Progress::Waits => continue,
                Progress::Answered => outcome.latencies.push(begun.elapsed().as_secs_f64() * 1e6),
                Progress::Refused => outcome.refused += 1,
            }
            clients.remove(slot);
        }
    }
    outcome.unanswered = clients.len() as u64;
    Ok(outcome)
}

/// When the next one comes, and where it wants to go.
struct Arrivals {
    openings: Vec<Vec<u8>>,
    turn: usize,
    next_at: Instant,
    mean_gap: f64,
    random: Random,
}

impl Arrivals {
    fn new(source: &Source<'_>) -> Self {
        let mut random = Random::seeded(source.seed);
        let mean_gap = 1.0 / source.per_second;
        let next_at = Instant::now() + Duration::from_secs_f64(mean_gap * random.exponential());
        Self { openings: source.headers.openings(), turn: 0, next_at, mean_gap, random }
    }

    /// What the one that comes now has to say; the one after it comes at a time that does not depend on it.
    fn opening(&mut self) -> &[u8] {
        self.next_at += Duration::from_secs_f64(self.mean_gap * self.random.exponential());
        self.turn = (self.turn + 1) % self.openings.len();
        &self.openings[self.turn]
    }
}
