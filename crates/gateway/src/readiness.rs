//! What is known of a socket from edge-triggered events: a bit is set by an event and cleared by a call that would have
//! blocked.

use rustix::event::epoll::EventFlags;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Readiness(u8);

const READABLE: u8 = 1;
const WRITABLE: u8 = 2;
/// The other end has sent its last byte: reads must go on until they see it.
const ENDING: u8 = 4;

impl Readiness {
    /// A fresh socket: the first call finds out.
    pub(crate) fn unknown() -> Self {
        Self(READABLE | WRITABLE)
    }

    pub(crate) fn note(&mut self, events: EventFlags) {
        if events.intersects(EventFlags::IN) {
            self.0 |= READABLE;
        }
        if events.intersects(EventFlags::OUT) {
            self.0 |= WRITABLE;
        }
        if events.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            // Both, so that whoever tries next meets the end or the error.
            self.0 |= READABLE | WRITABLE | ENDING;
        }
    }

    pub(crate) fn readable(self) -> bool {
        self.0 & READABLE != 0
    }

    pub(crate) fn writable(self) -> bool {
        self.0 & WRITABLE != 0
    }

    pub(crate) fn ending(self) -> bool {
        self.0 & ENDING != 0
    }

    pub(crate) fn clear_readable(&mut self) {
        self.0 &= !READABLE;
    }

    pub(crate) fn clear_readable_unless_ending(&mut self) {
        if !self.ending() {
            self.clear_readable();
        }
    }

    pub(crate) fn clear_writable(&mut self) {
        self.0 &= !WRITABLE;
    }
}
