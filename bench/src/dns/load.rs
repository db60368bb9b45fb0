//! The load: as many queries under way as the sockets' buffers hold for sure, and a new one for every answer. Every
//! answer is looked at.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::batch::{Batch, MESSAGES, Wait};
use super::queries::{self, COUNT, Queries};

/// Queries under way. The default receive buffer holds some 270 small messages, and none should be lost.
const WINDOW: usize = 192;
/// Who says nothing for this long has lost what was sent.
const PATIENCE: Duration = Duration::from_millis(200);
/// Of the latencies that are counted; longer ones count as the longest.
const STEP_NS: u32 = 4_000;
const STEPS: usize = 1 << 14;

/// What a load came to.
pub struct Outcome {
    pub answered: u64,
    pub lost: u64,
    pub elapsed: Duration,
    /// How many answers took how many steps.
    latencies: Vec<u32>,
}

/// What is asked of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// That it is the right one.
    Answer,
    /// That it came: an echo.
    Id,
}

impl Outcome {
    #[allow(clippy::cast_precision_loss)]
    pub fn per_second(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }

    /// The 99th percentile of the time from a query to its answer, in microseconds.
    pub fn p99_us(&self) -> f64 {
        let wanted = (self.answered * 99).div_ceil(100);
        let mut seen = 0;
        let step = self.latencies.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        });
        let step = u32::try_from(step.unwrap_or(STEPS)).expect("there are few steps");
        f64::from(step + 1) * f64::from(STEP_NS) / 1e3
    }
}

/// Keeps the server busy for this long.
pub fn run(server: SocketAddr, queries: &mut Queries, time: Duration, check: Check) -> anyhow::Result<Outcome> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).context("opening a socket")?;
    socket.connect(server).context("connecting to a server")?;
    let started = Instant::now();
    let mut load = Load {
        sent_at: vec![0; COUNT],
        under_way: 0,
        next: 0,
        outcome: Outcome { answered: 0, lost: 0, elapsed: time, latencies: vec![0; STEPS] },
    };
    let (mut batch, mut now) = (Batch::connected(), started);
    let mut heard = started;
    while now - started < time {
        // Never zero, which says that nothing is under way. It wraps after 4 s, and no answer takes that long.
        #[allow(clippy::cast_possible_truncation)]
        let stamp = ((now - started).as_nanos() as u32).max(1);
        batch.messages().try_for_each(|message| load.take(queries, message, stamp, check))?;
        while load.under_way < WINDOW {
            load.ask(queries, &mut batch, stamp);
            batch.send(&socket).context("sending queries")?;
        }
        match batch.receive(&socket, Wait::No) {
            Ok(_) => heard = now,
            // The core is the load's own: asking again is quicker than being woken, and costs the server nothing.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("receiving answers"),
        }
        now = Instant::now();
        if now - heard > PATIENCE {
            load.give_up();
            heard = now;
        }
    }
    load.outcome.elapsed = now - started;
    Ok(load.outcome)
}

struct Load {
    /// When the query with this id was sent, in nanoseconds; 0 is not at all, or answered.
    sent_at: Vec<u32>,
    under_way: usize,
    next: u16,
    outcome: Outcome,
}

impl Load {
    /// Fills the batch with as many queries as the window has room for.
    fn ask(&mut self, queries: &mut Queries, batch: &mut Batch, now: u32) {
        batch.clear();
        while self.under_way < WINDOW && batch.len() < MESSAGES {
            let id = self.next;
            self.next = id.wrapping_add(1);
            queries.write(id, batch.push(queries.length(id)));
            let before = std::mem::replace(&mut self.sent_at[usize::from(id)], now);
            if before == 0 {
                self.under_way += 1;
            } else {
                // Sent when this id had its turn before, and since then so many others were answered.
                self.outcome.lost += 1;
            }
        }
    }

    fn take(&mut self, queries: &Queries, message: &[u8], now: u32, check: Check) -> anyhow::Result<()> {
        let id = queries::id_of(message).context("an answer has no id")?;
        let sent_at = std::mem::take(&mut self.sent_at[usize::from(id)]);
        if sent_at == 0 {
            // Given up too early; it was counted as lost.
            return Ok(());
        }
        self.under_way -= 1;
        let query = queries.get(id);
        if check == Check::Answer && !query.expected.is_met(message) {
            bail!("{:?} is answered with {message:02x?}", query.question);
        }
        self.outcome.answered += 1;
        let step = (now.wrapping_sub(sent_at) / STEP_NS) as usize;
        self.outcome.latencies[step.min(STEPS - 1)] += 1;
        Ok(())
    }

    fn give_up(&mut self) {
        self.sent_at.fill(0);
        self.outcome.lost += self.under_way as u64;
        self.under_way = 0;
    }
}
