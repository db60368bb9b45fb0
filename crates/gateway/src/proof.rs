//! The keyed selector: a proof, in a TLV beside the cluster's id, that the sender holds a key of that cluster.
//!
//! A cluster's id is no secret, so that alone it lets anybody knock at any cluster. A proof is the version octet 1, the
//! time of signing in Unix seconds (8 octets, big-endian), a nonce of 16 octets, and the HMAC-SHA256 over all of these
//! and the cluster's id. It does not cover what follows on the connection, which TLS protects.
//!
//! [`check`] says whether a proof is genuine and fresh, [`Replays::take`] whether it comes for the first time. A proof
//! counts after both.

mod replays;
#[cfg(test)]
mod tests;

use std::time::{SystemTime, UNIX_EPOCH};

use model::ProofKey;
use ring::hmac;

pub use replays::{Limits, ReplayError, Replays};

/// Of a whole proof.
pub const LENGTH: usize = SIGNED + TAG;
/// For how many seconds a proof is good after it was signed, and by how many it may lie ahead of our clock. A proof is
/// sent right after it is made: a minute is there for clocks that differ, to either side alike.
pub const VALID_FOR: u64 = 60;
/// Long enough that random ones never meet: of 2^32 the chance is one in 2^65.
pub const NONCE: usize = 16;

const VERSION: u8 = 1;
const TIME: usize = 8;
/// Version, time and nonce: the part before the tag.
const SIGNED: usize = 1 + TIME + NONCE;
/// Of SHA-256.
const TAG: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    #[error("the proof is malformed: {0}")]
    Malformed(Malformed),
    #[error("no key of the cluster made the proof")]
    WrongKey,
    #[error("the proof is {age} s old; it was valid for {VALID_FOR} s")]
    Expired { age: u64 },
    #[error("the proof is from {ahead} s ahead; clocks may differ by {VALID_FOR} s")]
    FromTheFuture { ahead: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("it has {0} bytes instead of {LENGTH}")]
    Length(usize),
    #[error("version {0} is not known")]
    Version(u8),
}

/// The nonce of a proof that [`check`] found genuine and fresh, and nothing else: so only who holds a key can make
/// [`Replays`] remember anything.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a proof counts once its nonce has been taken"]
pub struct Nonce<'a> {
    cluster_id: &'a [u8],
    octets: [u8; NONCE],
    /// Unix seconds.
    signed_at: u64,
}

/// A proof for one connection. The nonce must be random and used once; `cluster_id` is as the header has it.
///
/// ```
/// use std::time::SystemTime;
/// use gateway::proof::{self, Replays};
/// use model::ProofKey;
///
/// let key = ProofKey::parse(b"0123456789abcdef0123456789abcdef\n").unwrap();
/// let now = SystemTime::now();
/// let octets = proof::sign(&key, b"c1", now, &[7; proof::NONCE]);
/// let nonce = proof::check(&octets, b"c1", &[key], now).unwrap();
/// assert_eq!(Replays::default().take(nonce, now), Ok(()));
/// ```
pub fn sign(key: &ProofKey, cluster_id: &[u8], now: SystemTime, nonce: &[u8; NONCE]) -> [u8; LENGTH] {
    let mut octets = [0; LENGTH];
    let (signed, tag) = octets.split_at_mut(SIGNED);
    signed[0] = VERSION;
    signed[1..=TIME].copy_from_slice(&unix_seconds(now).to_be_bytes());
    signed[1 + TIME..].copy_from_slice(nonce);
    tag.copy_from_slice(hmac::sign(&hmac_key(key), &message(signed, cluster_id)).as_ref());
    octets
}

/// Any of `keys` may have made it: there are two while one replaces the other. Without keys no proof is good.
pub fn check<'a>(
    octets: &[u8],
    cluster_id: &'a [u8],
    keys: &[ProofKey],
    now: SystemTime,
) -> Result<Nonce<'a>, ProofError> {
    let whole: &[u8; LENGTH] = octets.try_into().map_err(|_| ProofError::Malformed(Malformed::Length(octets.len())))?;
    let (signed, tag) = whole.split_at(SIGNED);
    let (version, mut time, mut nonce) = (signed[0], [0; TIME], [0; NONCE]);
    time.copy_from_slice(&signed[1..=TIME]);
    nonce.copy_from_slice(&signed[1 + TIME..]);
    let time = u64::from_be_bytes(time);
    if version != VERSION {
        return Err(ProofError::Malformed(Malformed::Version(version)));
    }
    // Before the time is looked at: then "expired" says that a clock is wrong or a proof old, and not that somebody
    // wrote down any number.
    let message = message(signed, cluster_id);
    // ring compares in constant time; which of the keys it was may show.
    if !keys.iter().any(|key| hmac::verify(&hmac_key(key), &message, tag).is_ok()) {
        return Err(ProofError::WrongKey);
    }
    let now = unix_seconds(now);
    let (age, ahead) = (now.saturating_sub(time), time.saturating_sub(now));
    if age > VALID_FOR {
        return Err(ProofError::Expired { age });
    }
    if ahead > VALID_FOR {
        return Err(ProofError::FromTheFuture { ahead });
    }
    Ok(Nonce { cluster_id, octets: nonce, signed_at: time })
}

/// Two blocks of the hash per key: nothing beside a connection's system calls, and no secret state to keep.
fn hmac_key(key: &ProofKey) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.octets())
}

/// What the tag is over. All but the last part have a fixed length, so that no two pairs read the same.
fn message(signed: &[u8], cluster_id: &[u8]) -> Vec<u8> {
    [signed, cluster_id].concat()
}

/// A clock before 1970 is not set at all; every proof is from the future to it.
fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
