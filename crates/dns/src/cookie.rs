//! DNS cookies (RFC 7873) in the form that servers share (RFC 9018): a client that shows one we gave it is no forged
//! source address.

use std::fmt;
use std::hash::Hasher as _;
use std::net::IpAddr;

use ring::rand::{SecureRandom as _, SystemRandom};
use siphasher::sip::SipHasher24;

/// The client's 8 octets and our 16.
pub(crate) const COOKIE: usize = 24;
/// RFC 9018 4.2: version 1, three reserved octets, the time and the hash.
const VERSION: [u8; 4] = [1, 0, 0, 0];
/// RFC 9018 4.3: how old a cookie may be, how far ahead its clock, and from when on it is renewed.
const MAX_AGE: u32 = 3600;
const MAX_AHEAD: u32 = 300;
const RENEW_AFTER: u32 = 1800;

/// The secrets that cookies are made and checked with. While a secret is being changed, cookies of the old one still
/// count (RFC 9018 5).
#[derive(Clone)]
pub struct CookieKeys {
    current: [u8; 16],
    previous: Option<[u8; 16]>,
}

/// What became of the cookie that a client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cookie {
    /// It shows that the client gets what is sent to its address.
    pub(crate) valid: bool,
    /// What goes back.
    pub(crate) octets: [u8; COOKIE],
}

impl CookieKeys {
    pub fn new(current: [u8; 16], previous: Option<[u8; 16]>) -> Self {
        Self { current, previous }
    }

    /// Known to this process only.
    pub fn random() -> Self {
        let mut current = [0; 16];
        SystemRandom::new().fill(&mut current).expect("the operating system gives random octets");
        Self { current, previous: None }
    }

    /// `sent` is the client's part, and ours where it has one; `now` are Unix seconds, which wrap (RFC 1982).
    pub(crate) fn check(&self, sent: &[u8], client: IpAddr, now: u32) -> Option<Cookie> {
        let (&of_client, of_server) = sent.split_first_chunk::<8>()?;
        if let Some(octets) = sent.first_chunk::<COOKIE>()
            && of_server.len() == 16
            && let [v0, v1, v2, v3, t0, t1, t2, t3, hash @ ..] = of_server
            && [*v0, *v1, *v2, *v3] == VERSION
        {
            let time = u32::from_be_bytes([*t0, *t1, *t2, *t3]);
            let age = now.wrapping_sub(time);
            let ahead = time.wrapping_sub(now);
            let made_with = |key: &[u8; 16]| hash_of(key, of_client, time, client) == *hash;
            let of_current = made_with(&self.current);
            let valid =
                (age <= MAX_AGE || ahead <= MAX_AHEAD) && (of_current || self.previous.as_ref().is_some_and(made_with));
            if valid && of_current && (age <= RENEW_AFTER || ahead <= MAX_AHEAD) {
                return Some(Cookie { valid, octets: *octets });
            }
            return Some(Cookie { valid, octets: self.make(of_client, client, now) });
        }
        Some(Cookie { valid: false, octets: self.make(of_client, client, now) })
    }

    fn make(&self, of_client: [u8; 8], client: IpAddr, now: u32) -> [u8; COOKIE] {
        let mut octets = [0; COOKIE];
        octets[..8].copy_from_slice(&of_client);
        octets[8..12].copy_from_slice(&VERSION);
        octets[12..16].copy_from_slice(&now.to_be_bytes());
        octets[16..].copy_from_slice(&hash_of(&self.current, of_client, now, client));
        octets
    }
}

fn hash_of(key: &[u8; 16], of_client: [u8; 8], time: u32, client: IpAddr) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(&of_client);
    hasher.write(&VERSION);
    hasher.write(&time.to_be_bytes());
    match client {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
    // RFC 9018 4.4: its octets as SipHash gives them, the lowest first.
    hasher.finish().to_le_bytes()
}

/// Secrets are not for logs.
impl fmt::Debug for CookieKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieKeys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets<const N: usize>(hex: &str) -> [u8; N] {
        let mut octets = [0; N];
        for (octet, pair) in octets.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *octet = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
        octets
    }

    /// RFC 9018 appendix A: what other servers make of the same secret.
    #[test]
    fn cookies_are_those_of_the_standard() {
        let key = octets("e5e973e5a6b2a43f48e7dc849e37bfcf");
        let keys = CookieKeys::new(key, None);
        let client = "198.51.100.100".parse().unwrap();
        let sent: [u8; 8] = octets("2464c4abcf10c957");
        let made = keys.check(&sent, client, 1_559_731_985).unwrap();
        assert!(!made.valid);
        assert_eq!(made.octets, octets("2464c4abcf10c957010000005cf79f111f8130c3eee29480"));

        // A.2: the same client again, later than half an hour: a new one.
        let client = "203.0.113.203".parse().unwrap();
        let sent: [u8; 24] = octets("fc93fc62807ddb860100000057f6b8b25e5dbd3e8be7d4b6"); // not ours
        assert!(!keys.check(&sent, client, 1_559_727_985).unwrap().valid);

        // A.4: an IPv6 client while secrets are changed.
        let keys = CookieKeys::new(
            octets("445536bcd2513298075a5d379663c962"),
            Some(octets("dd3bdf9344b678b185a6f5cb60fca715")),
        );
        let client = "2001:db8:220:1:59de:d0f4:8769:82b8".parse().unwrap();
        let sent: [u8; 24] = octets("22681ab97d52c298010000005cf7c57926556bd0934c72f8");
        let renewed = keys.check(&sent, client, 1_559_741_961).unwrap();
        assert!(renewed.valid);
        assert_eq!(renewed.octets, octets("22681ab97d52c298010000005cf7c609a6bb79d16625507a"));
    }

    #[test]
    fn only_ones_own_and_fresh_cookies_count() {
        let keys = CookieKeys::random();
        let (client, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let now = 1_000_000;
        let mine = keys.check(&[7; 8], client, now).unwrap().octets;
        for (what, from, at, valid, same) in [
            ("at once", client, now, true, true),
            ("after half an hour", client, now + RENEW_AFTER, true, true),
            ("after an hour", client, now + MAX_AGE, true, false),
            ("too late", client, now + MAX_AGE + 1, false, false),
            ("from a server whose clock is ahead", client, now - MAX_AHEAD, true, true),
            ("from the future", client, now - MAX_AHEAD - 1, false, false),
            ("from somebody else", other, now, false, false),
        ] {
            let checked = keys.check(&mine, from, at).unwrap();
            assert_eq!((checked.valid, checked.octets == mine), (valid, same), "{what}");
        }
        assert!(!CookieKeys::random().check(&mine, client, now).unwrap().valid);
        assert!(!keys.check(&[mine.as_slice(), &[0; 8]].concat(), client, now).unwrap().valid);
    }
}
