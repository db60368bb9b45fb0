//! Checks of the control planes' addresses, from one thread beside the doors.
//!
//! [`Checks::start`] begins them and `runner` makes them; what follows from an outcome is decided here (`Record`,
//! `Pace`), without a clock or a socket. An address is checked while some route has it beside another one: where there
//! is only one, nothing could be chosen, and it is tried whatever a check would say.

mod hello;
mod runner;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use model::Snapshot;
use rustix::event::{EventfdFlags, eventfd};

use crate::balance::{Health, Upstreams};
use runner::Runner;

/// What has to happen for a check to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckKind {
    /// It answers a TLS hello with a TLS record: a port that is open in front of a process that hangs does not.
    #[default]
    Tls,
    /// It takes a connection.
    Tcp,
}

#[derive(Debug, Clone)]
pub struct CheckSettings {
    pub kind: CheckKind,
    /// Between two checks of one address, give or take a tenth.
    pub interval: Duration,
    pub timeout: Duration,
    pub thresholds: Thresholds,
    /// At once. They cost a descriptor each, which the doors want too; 256 that all run into the time-out still are 128
    /// a second. Where that is not enough, intervals become longer.
    pub max_in_flight: usize,
}

impl Default for CheckSettings {
    /// An address that falls silent is out after 11 to 19 seconds, well before a kubelet's lease ends (40 s); who
    /// cannot connect to it meanwhile has had it ejected long before. Two seconds are twice the kernel's first
    /// retransmission.
    fn default() -> Self {
        Self {
            kind: CheckKind::default(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            thresholds: Thresholds::default(),
            max_in_flight: 256,
        }
    }
}

/// How many outcomes in a row change a mind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// One lost handshake is the network's, three are not.
    pub unhealthy: u32,
    /// A server that starts and falls again answers once.
    pub healthy: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { unhealthy: 3, healthy: 2 }
    }
}

/// Checks that are being made, until this is dropped.
#[derive(Debug)]
pub struct Checks {
    thread: Option<JoinHandle<()>>,
    stop: Arc<Stop>,
}

#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    wake: OwnedFd,
}

impl Checks {
    /// Follows the snapshot from then on and writes what it finds into `upstreams`.
    pub fn start(
        snapshot: &Arc<ArcSwap<Snapshot>>,
        upstreams: &Arc<Upstreams>,
        settings: CheckSettings,
    ) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Arc::new(Stop { asked: AtomicBool::new(false), wake });
        let runner = Runner::new(Arc::clone(snapshot), Arc::clone(upstreams), settings, Arc::clone(&stop))?;
        let thread = std::thread::Builder::new().name("checks".into()).spawn(move || runner.run())?;
        Ok(Self { thread: Some(thread), stop })
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.stop.asked.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.stop.wake, &1_u64.to_ne_bytes());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the checks panicked");
        }
    }
}

/// What an address' outcomes so far say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    health: Health,
    /// Outcomes in a row that say otherwise.
    against: u32,
}

impl Record {
    fn new() -> Self {
        Self { health: Health::Unknown, against: 0 }
    }

    /// Takes an outcome in, and returns the health where it changed by it.
    fn note(&mut self, success: bool, thresholds: Thresholds) -> Option<Health> {
        let (says, needed) = match (success, self.health) {
            // Nothing speaks against an address of which nothing is known.
            (true, Health::Unknown) => (Health::Healthy, 1),
            (true, _) => (Health::Healthy, thresholds.healthy),
            (false, _) => (Health::Unhealthy, thresholds.unhealthy),
        };
        if says == self.health {
            self.against = 0;
            return None;
        }
        self.against += 1;
        if self.against < needed {
            return None;
        }
        *self = Self { health: says, against: 0 };
        Some(says)
    }
}

/// When the next check is. Random, so that the addresses of a fleet that came with one snapshot, and the replicas of a
/// gateway that were started together, do not knock in step.
#[derive(Debug)]
struct Pace {
    interval: Duration,
    /// Xorshift64* (Vigna 2016): never zero.
    random: u64,
}

impl Pace {
    fn new(interval: Duration, seed: u64) -> Self {
        Self { interval, random: seed | 1 }
    }

    /// Until the first check of an address: anywhere in an interval.
    fn first(&mut self) -> Duration {
        self.interval.mul_f64(self.fraction())
    }

    /// Until the next: an interval, give or take a tenth.
    fn next(&mut self) -> Duration {
        self.interval.mul_f64(0.9 + 0.2 * self.fraction())
    }

    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // The upper half of the product, which is the better one, fits.
        #[allow(clippy::cast_possible_truncation)]
        let upper = (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32;
        f64::from(upper) / f64::from(u32::MAX)
    }
}
