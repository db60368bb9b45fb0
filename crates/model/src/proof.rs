//! What a cluster's nodes share with the gateways, so that nobody else can name the cluster.

use std::fmt;
use std::sync::Arc;

/// RFC 2104 3: a key shorter than the hash's output, 32 octets, weakens the HMAC. Written in hexadecimal digits that is
/// still 128 bits of chance.
pub const MIN_KEY: usize = 32;
/// Nothing is gained beyond 64 octets, a block of the hash; a file longer than this is another one, named by mistake.
pub const MAX_KEY: usize = 1024;

/// The keyed selector of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proof {
    /// Connections that select the cluster by its id and prove nothing are refused.
    pub required: bool,
    /// Each is valid by itself; two are there while one replaces the other.
    pub keys: Vec<ProofKey>,
}

/// One key; clones share it.
#[derive(Clone, PartialEq, Eq)]
pub struct ProofKey(Arc<[u8]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key has {0} bytes; at least {MIN_KEY} are needed")]
    TooShort(usize),
    #[error("the key has {0} bytes; at most {MAX_KEY} are accepted")]
    TooLong(usize),
    #[error("the key has several lines; a key is one line of text, or binary")]
    SeveralLines,
}

impl ProofKey {
    /// From the content of a file or Secret.
    ///
    /// A line of printable ASCII, such as `openssl rand -hex 32` prints, is the key as it stands: it is not decoded, so
    /// that both sides need to agree on nothing else, and the line ends behind it, which editors and `echo` add, do not
    /// count. Anything that is not text counts octet by octet.
    pub fn parse(content: &[u8]) -> Result<Self, KeyError> {
        let octets = secret_in(content)?;
        match octets.len() {
            length if length < MIN_KEY => Err(KeyError::TooShort(length)),
            length if length > MAX_KEY => Err(KeyError::TooLong(length)),
            _ => Ok(Self(octets.into())),
        }
    }

    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProofKey(..)")
    }
}

fn secret_in(content: &[u8]) -> Result<&[u8], KeyError> {
    let is_line_end = |octet: &u8| matches!(octet, b'\r' | b'\n');
    let is_printable = |octet: &u8| matches!(octet, b' '..=b'~' | b'\t');
    if !content.iter().all(|octet| is_printable(octet) || is_line_end(octet)) {
        return Ok(content);
    }
    let end = content.iter().rposition(|octet| !is_line_end(octet)).map_or(0, |last| last + 1);
    let line = &content[..end];
    // Most likely two keys, the old and the new; taken for one they would lock everybody out.
    if line.iter().any(is_line_end) { Err(KeyError::SeveralLines) } else { Ok(line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8; 32] = b"0123456789abcdef 0123456789ABCDE";

    #[test]
    fn a_line_of_text_loses_its_end_and_nothing_else() {
        for (what, end) in [("none", ""), ("LF", "\n"), ("CRLF", "\r\n"), ("an empty line", "\n\n")] {
            assert_eq!(secret_in(&[TEXT, end.as_bytes()].concat()), Ok(TEXT.as_slice()), "{what}");
        }
        let spaces = [TEXT.as_slice(), b" \t\n"].concat();
        assert_eq!(secret_in(&spaces), Ok(&spaces[..34]));
    }

    #[test]
    fn binary_keys_keep_an_octet_that_looks_like_a_line_end() {
        let binary = [&[0x80; 31], b"\n".as_slice()].concat();
        assert_eq!(secret_in(&binary), Ok(binary.as_slice()));
    }

    #[test]
    fn bad_keys_are_refused() {
        for (what, content, error) in [
            ("nothing", vec![], KeyError::TooShort(0)),
            ("line ends alone", b"\r\n\n".to_vec(), KeyError::TooShort(0)),
            ("short text", [&TEXT[1..], b"\n"].concat(), KeyError::TooShort(31)),
            ("short binary", vec![0; 31], KeyError::TooShort(31)),
            ("a long file", vec![0; 1025], KeyError::TooLong(1025)),
            ("two keys", [TEXT.as_slice(), b"\n", TEXT].concat(), KeyError::SeveralLines),
        ] {
            assert_eq!(ProofKey::parse(&content).err(), Some(error), "{what}");
        }
        for content in [vec![0; 32], vec![0; 1024]] {
            assert!(ProofKey::parse(&content).is_ok());
        }
    }

    #[test]
    fn a_key_is_never_printed() {
        let key = ProofKey::parse(TEXT).unwrap();
        assert_eq!(format!("{key:?} {:?}", Some(&key)), "ProofKey(..) Some(ProofKey(..))");
    }
}
