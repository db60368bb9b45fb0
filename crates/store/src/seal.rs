//! Secrets on disk are sealed: who has the volume but not the key has nothing.

use std::fmt;
use std::path::Path;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};

/// AES-256.
const KEY_LENGTH: usize = 32;

pub struct SealKey {
    key: LessSafeKey,
    random: SystemRandom,
}

#[derive(Debug, thiserror::Error)]
pub enum SealKeyError {
    #[error("reading the data key {path}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{path} holds no data key: it must be {KEY_LENGTH} octets, or as many in hexadecimal digits")]
    Malformed { path: String },
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

impl SealKey {
    pub fn read(path: &Path) -> Result<Self, SealKeyError> {
        let name = || path.display().to_string();
        let octets = std::fs::read(path).map_err(|source| SealKeyError::Unreadable { path: name(), source })?;
        Self::parse(&octets).ok_or_else(|| SealKeyError::Malformed { path: name() })
    }

    fn parse(octets: &[u8]) -> Option<Self> {
        let key = match octets {
            raw if raw.len() == KEY_LENGTH => raw.to_vec(),
            text => from_hex(text.trim_ascii())?,
        };
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).ok()?);
        Some(Self { key, random: SystemRandom::new() })
    }

    /// `place` is where it is going to stand: moved elsewhere, it opens no more.
    pub fn seal(&self, place: &str, content: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        // Random ones of 96 bits: safe for 2^32 of them under one key (NIST SP 800-38D 8.3), a change a second for a century.
        self.random.fill(&mut nonce).expect("the operating system has random octets");
        let mut sealed = content.to_vec();
        let with = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(with, Aad::from(place.as_bytes()), &mut sealed)
            .expect("a manifest is shorter than 64 GiB");
        [&nonce[..], &sealed].concat()
    }

    /// `None` where it was sealed with another key, for another place, or has been changed.
    pub fn open(&self, place: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, content) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut content = content.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key.open_in_place(nonce, Aad::from(place.as_bytes()), &mut content).ok()?.len();
        content.truncate(length);
        Some(content)
    }
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() != 2 * KEY_LENGTH {
        return None;
    }
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_and_the_place_open_it() {
        let key = SealKey::parse(&[7; 32]).unwrap();
        let sealed = key.seal("secrets/a/b", b"hush");
        assert!(!sealed.windows(4).any(|window| window == b"hush"));
        assert_ne!(sealed, key.seal("secrets/a/b", b"hush"), "never the same twice");
        assert_eq!(key.open("secrets/a/b", &sealed).as_deref(), Some(&b"hush"[..]));
        assert_eq!(key.open("secrets/a/c", &sealed), None);
        assert_eq!(SealKey::parse(&[8; 32]).unwrap().open("secrets/a/b", &sealed), None);
        for octet in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[octet] ^= 1;
            assert_eq!(key.open("secrets/a/b", &changed), None);
        }
        assert_eq!(key.open("secrets/a/b", &[]), None);
    }

    #[test]
    fn a_key_is_octets_or_hexadecimal_digits() {
        let digits = "07".repeat(32);
        let sealed = SealKey::parse(&[7; 32]).unwrap().seal("x", b"y");
        for text in [digits.clone(), format!("{digits}\n")] {
            assert_eq!(SealKey::parse(text.as_bytes()).unwrap().open("x", &sealed).as_deref(), Some(&b"y"[..]));
        }
        for text in ["", "07", &"zz".repeat(32), &"0".repeat(63)] {
            assert!(SealKey::parse(text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
