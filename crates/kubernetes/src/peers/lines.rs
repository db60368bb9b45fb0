//! Lines, however they are split, and a body that is sent line by line.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

/// What has come of a line.
#[derive(Default)]
pub(super) struct Begun(Vec<u8>);

/// It is longer than anybody has to say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Begun {
    /// The next whole line in what has come, and what comes after it; otherwise all of it is kept.
    pub(super) fn line<'a>(&mut self, data: &mut &'a [u8], most: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let rest: &'a [u8] = data;
        let end = rest.iter().position(|octet| *octet == b'\n');
        let more = &rest[..end.unwrap_or(rest.len())];
        if self.0.len() + more.len() > most {
            return Err(TooLong);
        }
        self.0.extend_from_slice(more);
        *data = &rest[end.map_or(rest.len(), |end| end + 1)..];
        Ok(end.map(|_| std::mem::take(&mut self.0)))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Ends when nobody has any more.
pub(super) struct Lines(pub(super) mpsc::Receiver<Bytes>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_they_are_split() {
        let text = b"one\n\ntwo words\nthree\nres";
        for size in 1..=text.len() {
            let (mut begun, mut lines) = (Begun::default(), Vec::new());
            for mut data in text.chunks(size) {
                while let Some(line) = begun.line(&mut data, 9).unwrap() {
                    lines.push(String::from_utf8(line).unwrap());
                }
                assert!(data.is_empty());
            }
            assert_eq!(lines, ["one", "", "two words", "three"], "{size}");
            assert_eq!(begun.len(), 3);
        }
    }

    #[test]
    fn a_line_has_a_bound() {
        for size in 1..=9 {
            let mut begun = Begun::default();
            let ended = b"123456789\n".chunks(size).find_map(|mut data| begun.line(&mut data, 8).err());
            assert_eq!(ended, Some(TooLong), "{size}");
        }
    }
}
