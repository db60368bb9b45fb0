//! Where a chunked body ends (RFC 9112 7.1), read strictly and without I/O.

use crate::head::Malformed;

/// Sixteen hexadecimal digits are 64 bits; extensions, which nobody uses, have the rest.
const MAX_LINE: usize = 256;
/// gRPC's are some hundred octets.
const MAX_TRAILERS: usize = 8 << 10;

/// A reader that has seen some of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunks {
    /// The line before a chunk: the size so far, how many digits, how many octets in all.
    Size {
        size: u64,
        digits: usize,
        length: usize,
    },
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a line behind the last chunk.
    Trailers(usize),
    Trailer(usize),
    TrailerLf(usize),
    EndLf,
    End,
}

impl Chunks {
    pub(crate) const START: Self = Self::Size { size: 0, digits: 0, length: 0 };

    /// How many of these octets belong to the body; less than all only at its end.
    pub(crate) fn advance(&mut self, octets: &[u8]) -> Result<usize, Malformed> {
        self.take(octets, |_| {})
    }

    /// The same, with what is in the chunks.
    pub(crate) fn take(&mut self, octets: &[u8], mut data: impl FnMut(&[u8])) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < octets.len() && *self != Self::End {
            if let Self::Data(left) = *self {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(octets.len() - at);
                data(&octets[at..at + taken]);
                at += taken;
                let left = left - taken as u64;
                *self = if left == 0 { Self::DataCr } else { Self::Data(left) };
            } else {
                *self = self.step(octets[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn step(self, octet: u8) -> Result<Self, Malformed> {
        if matches!(self, Self::Size { length: MAX_LINE.., .. } | Self::Trailer(MAX_TRAILERS..)) {
            return Err(Malformed::Chunk);
        }
        let next = match (self, octet) {
            (Self::Size { size, digits: 1.., .. }, b'\r') => Self::SizeLf(size),
            // Extensions end with the line and are dropped. Quotes could hide an end of line from another reader.
            (Self::Size { size, digits: digits @ 1.., length }, b';') => {
                Self::Size { size, digits: digits.max(MAX_LINE), length: length + 1 }
            }
            (Self::Size { size, digits: digits @ MAX_LINE.., length }, b' '..=b'~') if octet != b'"' => {
                Self::Size { size, digits, length: length + 1 }
            }
            (Self::Size { size, digits: digits @ ..16, length }, _) => {
                let digit = char::from(octet).to_digit(16).ok_or(Malformed::Chunk)?;
                Self::Size { size: size << 4 | u64::from(digit), digits: digits + 1, length: length + 1 }
            }
            (Self::SizeLf(0), b'\n') => Self::Trailers(0),
            (Self::SizeLf(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::START,
            (Self::Trailers(_), b'\r') => Self::EndLf,
            (Self::Trailer(length), b'\r') => Self::TrailerLf(length + 1),
            (Self::Trailers(length), b'!'..=b'~') | (Self::Trailer(length), b'\t' | b' '..=b'~' | 0x80..) => {
                Self::Trailer(length + 1)
            }
            (Self::TrailerLf(length), b'\n') => Self::Trailers(length + 1),
            (Self::EndLf, b'\n') => Self::End,
            _ => return Err(Malformed::Chunk),
        };
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is left behind the body, whichever pieces it comes in.
    fn rest(body: &str, piece: usize) -> Result<Option<String>, Malformed> {
        let mut chunks = Chunks::START;
        let mut taken = 0;
        for part in body.as_bytes().chunks(piece) {
            let consumed = chunks.advance(part)?;
            taken += consumed;
            if consumed < part.len() {
                break;
            }
        }
        Ok((chunks == Chunks::End).then(|| body[taken..].to_owned()))
    }

    #[test]
    fn bodies_end_where_they_say() {
        let done = |left: &str| Ok(Some(left.to_owned()));
        for (body, expected) in [
            ("0\r\n\r\n", done("")),
            ("0\r\n\r\nGET", done("GET")),
            ("5\r\nhello\r\n0\r\n\r\nGET", done("GET")),
            ("A\r\n0123456789\r\n00\r\n\r\n", done("")),
            ("5;name=value\r\nhello\r\n0;x\r\n\r\n!", done("!")),
            ("0\r\nchecksum: 7\r\nb: c\r\n\r\nGET", done("GET")),
            ("5\r\nhel", Ok(None)),
            ("0\r\n", Ok(None)),
            ("5\nhello\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("5\r\nhello\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("5\r\nhello0\r\n\r\n", Err(Malformed::Chunk)),
            ("5 \r\nhello\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            (" 5\r\nhello\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("+5\r\nhello\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("-5\r\nhello\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("0x5\r\nhello\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("5_\r\nhello\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("\r\n", Err(Malformed::Chunk)),
            (";a\r\n", Err(Malformed::Chunk)),
            ("10000000000000000\r\n", Err(Malformed::Chunk)),
            ("5;a=\"\r\nhello\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("5;a\nb\r\nhello\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("5;a\rb\r\nhello\r\n0\r\n\r\n", Err(Malformed::Chunk)),
            ("0\r\n folded\r\n\r\n", Err(Malformed::Chunk)),
            ("0\r\na: b\n\r\n", Err(Malformed::Chunk)),
            ("0\n\n", Err(Malformed::Chunk)),
        ] {
            for piece in [1, 2, 3, 64] {
                assert_eq!(rest(body, piece), expected, "{body:?} by {piece}");
            }
        }
        assert_eq!(rest(&format!("5;{}\r\n", "a".repeat(300)), 64), Err(Malformed::Chunk));
        assert_eq!(rest(&format!("0\r\n{}", "a: b\r\n".repeat(2000)), 64), Err(Malformed::Chunk));
    }

    proptest! {
        #[test]
        fn no_octets_are_too_much(octets in proptest::collection::vec(any::<u8>(), 0..300), piece in 1_usize..9) {
            let mut chunks = Chunks::START;
            for part in octets.chunks(piece) {
                match chunks.advance(part) {
                    Ok(taken) => prop_assert!(taken == part.len() || chunks == Chunks::End),
                    Err(_) => break,
                }
            }
        }
    }
}
