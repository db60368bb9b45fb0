//! Whether the names of a message stay what they are when it is told on, with another id, other flags and other times: a pointer
//! (RFC 1035 4.1.4) may lead anywhere before it, into these too.

use std::ops::Range;

use domain::base::iana::Rtype;

use super::HEADER;

/// RFC 1035 2.3.4: a name has no more labels, and so no more pointers that lead to some.
const MOST_STEPS: usize = 255;

/// Octets that change, by where they begin.
pub(super) struct Changing<'a> {
    pub(super) octets: &'a [u8],
    /// Where times stand, in their order; each has four octets.
    pub(super) ttls: &'a [u16],
}

impl Changing<'_> {
    /// Where the name that begins there ends in its own place, if nothing of it stands in what changes.
    pub(super) fn skip_steady(&self, mut at: usize) -> Option<usize> {
        let mut end = None;
        for _ in 0..MOST_STEPS {
            let length = usize::from(*self.octets.get(at)?);
            let next = match length >> 6 {
                0 => at + 1 + length,
                3 => at + 2,
                _ => return None,
            };
            if at < HEADER || next > self.octets.len() || self.changes(at, next) {
                return None;
            }
            if length == 0 {
                return Some(end.unwrap_or(next));
            }
            at = next;
            if length >> 6 == 3 {
                end = end.or(Some(next));
                at = (length & 0x3f) << 8 | usize::from(self.octets[next - 1]);
            }
        }
        None
    }

    /// The same of all names in the data of a record, as far as they may be compressed (RFC 3597 4); they end within the data.
    pub(super) fn has_steady_data(&self, rtype: Rtype, data: Range<usize>) -> bool {
        let (before, names) = match rtype {
            Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::DNAME | Rtype::MB | Rtype::MG | Rtype::MR => (0, 1),
            Rtype::SOA | Rtype::MINFO | Rtype::RP => (0, 2),
            Rtype::MX | Rtype::AFSDB | Rtype::RT | Rtype::KX => (2, 1),
            Rtype::SRV => (6, 1),
            _ => return true,
        };
        let last = (0..names).try_fold(data.start + before, |at, _| self.skip_steady(at));
        last.is_some_and(|end| end <= data.end)
    }

    fn changes(&self, from: usize, to: usize) -> bool {
        let ends_behind = self.ttls.partition_point(|ttl| usize::from(*ttl) + 4 <= from);
        self.ttls.get(ends_behind).is_some_and(|ttl| usize::from(*ttl) < to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_stand_in_what_changes_are_seen() {
        let mut octets = vec![0; HEADER];
        // `a.` at 12, `b.` and `a.` at 15, a pointer to the header at 19, times from 21 to 24, a pointer to them at 25.
        octets.extend(b"\x01a\0\x01b\xc0\x0c\xc0\x02\0\0\0\x05\xc0\x15\xc0\x19\x40\xc0\x1d");
        let changing = Changing { octets: &octets, ttls: &[21] };
        for (at, expected) in [
            (12, Some(15)),
            (15, Some(19)),
            (19, None),
            (21, None),
            (25, None),
            (27, None),
            (29, None),
            // Leads to what is no label; behind the end; into the header itself.
            (30, None),
            (32, None),
            (2, None),
        ] {
            assert_eq!(changing.skip_steady(at), expected, "{at}");
        }
        for (rtype, data, expected) in [
            (Rtype::A, 19..21, true),
            (Rtype::CNAME, 19..21, false),
            (Rtype::SOA, 12..19, true),
            (Rtype::SOA, 12..18, false),
            (Rtype::SOA, 15..21, false),
            (Rtype::MX, 13..19, true),
            (Rtype::MX, 13..13, false),
        ] {
            assert_eq!(changing.has_steady_data(rtype, data.clone()), expected, "{rtype} {data:?}");
        }
        let unchanged = Changing { octets: &octets, ttls: &[] };
        assert_eq!(unchanged.skip_steady(25), Some(27), "nothing changes there");
    }
}
