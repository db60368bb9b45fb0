//! Who has to be done by when.
//!
//! Everything of one kind has the same time to do it, so that a queue is in order by itself. Entries are not taken out
//! when their connection goes on or ends; they come up, find that, and are forgotten: what a queue holds is bounded by
//! the rate of connections times the span.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::token::Token;

pub(crate) struct Deadlines {
    span: Duration,
    waiting: VecDeque<(Instant, Token)>,
}

impl Deadlines {
    pub(crate) fn new(span: Duration) -> Self {
        Self { span, waiting: VecDeque::new() }
    }

    /// Returns the deadline, for telling this entry from a later one of the same connection.
    pub(crate) fn add(&mut self, token: Token, now: Instant) -> Instant {
        let at = now + self.span;
        self.waiting.push_back((at, token));
        at
    }

    pub(crate) fn span(&self) -> Duration {
        self.span
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.front().map(|(at, _)| *at)
    }

    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Token)> {
        self.waiting.pop_front_if(|(at, _)| *at <= now)
    }
}
