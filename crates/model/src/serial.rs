//! Serials of zones (RFC 1982): they rise with every change and never go back, also where a process ends at any moment.

use crate::digest::Digest;
use crate::fact::{Number, Timestamp};

/// How many serials one write to disk reserves. A storm of a change every 10 ms writes every 10 s; a process that is
/// killed skips at most as many, of which there are 2 million times as many to skip.
pub const BLOCK: u32 = 1000;

/// What is on disk of a domain's serials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SerialFloor {
    /// No serial beyond this one was ever served.
    pub serial: u32,
    /// What was served under this very serial, where it was the last one; else the serial is the end of a block, of
    /// which nobody knows how much was used.
    pub digest: Option<Digest>,
}

/// RFC 1982 3.2. Two serials that are 2^31 apart are in no order.
pub fn is_newer(serial: u32, than: u32) -> bool {
    (1..1 << 31).contains(&serial.wrapping_sub(than))
}

/// Where the serials of a domain have come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SerialState {
    pub(crate) serial: u32,
    pub(crate) digest: Option<Digest>,
    /// The last one that may be served without writing to disk first.
    reserved: u32,
}

/// What a zone wants to be numbered by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Content {
    pub(crate) digest: Digest,
    /// The serial in its zone file.
    pub(crate) of_file: Option<u32>,
    /// Whether nothing of ours is in the zone.
    pub(crate) verbatim: bool,
}

impl From<SerialFloor> for SerialState {
    fn from(floor: SerialFloor) -> Self {
        Self { serial: floor.serial, digest: floor.digest, reserved: floor.serial }
    }
}

impl From<Number> for SerialState {
    /// What a hub has needs no disk. The next change has the next serial, so that everybody guesses it alike.
    fn from(number: Number) -> Self {
        Self { serial: number.serial, digest: Some(number.digest), reserved: number.serial.wrapping_add(BLOCK) }
    }
}

impl SerialState {
    /// The state after `content` has been published. It must be on disk before, where it comes with a floor.
    pub(crate) fn next(before: Option<Self>, content: Content, now: Timestamp) -> (Self, Option<SerialFloor>) {
        if let Some(before) = before.filter(|before| before.digest == Some(content.digest)) {
            return (before, None);
        }
        let digest = Some(content.digest);
        let last = before.map(|before| before.serial);
        let above_file = |serial: u32| content.of_file.is_none_or(|of_file| is_newer(serial, of_file));
        if content.verbatim {
            // A file that changed without its serial, or whose serial went back, still needs a new one: those who know
            // the last one would never ask again.
            let of_file = content.of_file.filter(|serial| last.is_none_or(|last| is_newer(*serial, last)));
            let serial = of_file.unwrap_or_else(|| after(last, now));
            // Nothing but a saved file changes such a zone, so that each serial is on disk together with its content.
            return (Self { serial, digest, reserved: serial }, Some(SerialFloor { serial, digest }));
        }
        if let Some(before) = before {
            let serial = before.serial.wrapping_add(1);
            if before.serial != before.reserved && above_file(serial) {
                return (Self { serial, digest, ..before }, None);
            }
        }
        let newest = match (last, content.of_file) {
            (Some(last), Some(of_file)) if is_newer(of_file, last) => Some(of_file),
            (None, of_file) => of_file,
            (last, _) => last,
        };
        let serial = after(newest, now);
        let reserved = serial.wrapping_add(BLOCK - 1);
        (Self { serial, digest, reserved }, Some(SerialFloor { serial: reserved, digest: None }))
    }

    /// What to write down when nothing more is going to be published for a while; nothing where that is on disk.
    pub(crate) fn rest(&mut self) -> Option<SerialFloor> {
        if self.serial == self.reserved {
            return None;
        }
        self.reserved = self.serial;
        Some(SerialFloor { serial: self.serial, digest: self.digest })
    }
}

/// The clock's second, or the next serial where the clock is behind: a server that remembers nothing does not go back
/// either, unless it changed more often than once a second.
fn after(newest: Option<u32>, now: Timestamp) -> u32 {
    // RFC 1982 arithmetic is modulo 2^32; so is the clock here.
    #[allow(clippy::cast_possible_truncation)]
    let clock = now.as_unix().as_secs() as u32;
    match newest {
        Some(serial) if !is_newer(clock, serial) => serial.wrapping_add(1),
        _ => clock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000)
    }

    fn ours(digest: u128) -> Content {
        Content { digest: Digest(digest), of_file: None, verbatim: false }
    }

    #[test]
    fn serials_rise_whatever_the_clock_does() {
        for (before, now, expected) in [
            (None, at(1000), 1000),
            (Some(1000), at(2000), 2000),
            (Some(1000), at(1000), 1001),
            (Some(1000), at(5), 1001),
            (Some(u32::MAX), at(5), 5),
            (Some(u32::MAX), at(u64::from(u32::MAX)), 0),
            (Some(0), at(1 << 31), 1),
        ] {
            assert_eq!(after(before, now), expected, "{before:?} at {now}");
        }
    }

    /// Each row: what is on disk, what is published at 1000 seconds, its serial, and what has to be written first.
    #[test]
    fn a_restart_goes_on_from_what_is_on_disk() {
        let floor = |serial, digest: Option<u128>| SerialFloor { serial, digest: digest.map(Digest) };
        let file = |digest, serial| Content { digest: Digest(digest), of_file: Some(serial), verbatim: true };
        let merged = |digest, serial| Content { verbatim: false, ..file(digest, serial) };
        for (on_disk, content, serial, written) in [
            (None, ours(1), 1000, Some(floor(1999, None))),
            (Some(floor(500, None)), ours(1), 1000, Some(floor(1999, None))),
            (Some(floor(1499, None)), ours(1), 1500, Some(floor(2499, None))),
            (Some(floor(1499, Some(1))), ours(1), 1499, None),
            (Some(floor(1499, Some(2))), ours(1), 1500, Some(floor(2499, None))),
            (Some(floor(u32::MAX, Some(2))), ours(1), 1000, Some(floor(1999, None))),
            (None, file(1, 7), 7, Some(floor(7, Some(1)))),
            (None, file(1, 0), 0, Some(floor(0, Some(1)))),
            (Some(floor(7, Some(1))), file(1, 7), 7, None),
            (Some(floor(7, Some(1))), file(2, 8), 8, Some(floor(8, Some(2)))),
            // Changed without its serial, and gone back.
            (Some(floor(7000, Some(1))), file(2, 7000), 7001, Some(floor(7001, Some(2)))),
            (Some(floor(7000, Some(1))), file(2, 6), 7001, Some(floor(7001, Some(2)))),
            // With something of ours in it, above both the file's and the last one.
            (None, merged(1, 2_024_010_100), 2_024_010_101, Some(floor(2_024_011_100, None))),
            (None, merged(1, 7), 1000, Some(floor(1999, None))),
            (Some(floor(3000, None)), merged(1, 7), 3001, Some(floor(4000, None))),
            (Some(floor(3000, Some(2))), merged(1, 5000), 5001, Some(floor(6000, None))),
        ] {
            let (state, floor) = SerialState::next(on_disk.map(Into::into), content, at(1000));
            assert_eq!((state.serial, floor), (serial, written), "{on_disk:?} {content:?}");
        }
    }

    #[test]
    fn one_write_is_good_for_a_block() {
        let (mut state, mut writes, mut last) = (None, 0, None);
        for change in 0..2500 {
            let (next, floor) = SerialState::next(state, ours(change), at(1000));
            assert!(last.is_none_or(|last| next.serial == last + 1));
            writes += usize::from(floor.is_some());
            (state, last) = (Some(next), Some(next.serial));
        }
        assert_eq!((last, writes), (Some(3499), 3));
        let mut state = state.unwrap();
        assert_eq!(state.rest(), Some(SerialFloor { serial: 3499, digest: Some(Digest(2499)) }));
        assert_eq!(state.rest(), None);
        // What was written down as the last one is no longer true once there is a next one.
        let (_, floor) = SerialState::next(Some(state), ours(9999), at(1000));
        assert_eq!(floor, Some(SerialFloor { serial: 4499, digest: None }));
    }

    #[test]
    fn a_file_whose_serial_overtakes_ours_is_overtaken() {
        let merged = |digest, serial| Content { digest: Digest(digest), of_file: Some(serial), verbatim: false };
        let (state, _) = SerialState::next(None, merged(1, 7), at(1000));
        let (state, floor) = SerialState::next(Some(state), merged(2, 1000), at(1000));
        assert_eq!((state.serial, floor), (1001, None));
        let (state, floor) = SerialState::next(Some(state), merged(3, 1500), at(1000));
        assert_eq!((state.serial, floor), (1501, Some(SerialFloor { serial: 2500, digest: None })));
    }
}
