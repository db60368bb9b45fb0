//! What an agent is started with: `fleetgate.ID.SECRET`. Only a digest of the secret is kept.

use std::fmt::Write as _;
use std::time::Duration;

use manifest::kept::{Credential, Holder};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use tunnel::{Identity, Role};

const SCHEME: &str = "fleetgate";
/// 64 bits tell credentials apart; nobody has to guess them.
const ID_OCTETS: usize = 8;
const SECRET_OCTETS: usize = 32;
/// No token is longer.
const MAX_TOKEN: usize = SCHEME.len() + 2 + 2 * (ID_OCTETS + SECRET_OCTETS);

/// A token as it comes from an agent.
pub(super) struct Token<'a> {
    pub(super) id: &'a str,
    secret: &'a str,
}

impl<'a> Token<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        if text.len() > MAX_TOKEN {
            return None;
        }
        let (id, secret) = text.strip_prefix(SCHEME)?.strip_prefix('.')?.split_once('.')?;
        (is_hex(id, ID_OCTETS) && is_hex(secret, SECRET_OCTETS)).then_some(Self { id, secret })
    }

    /// Whether it is this one's secret; takes as long whether it is or not.
    pub(super) fn opens(&self, credential: &Credential) -> bool {
        is_same(hash(self.secret).as_bytes(), credential.digest.as_bytes())
    }
}

/// A new credential, and the token that it is for.
pub(super) fn issue(identity: (&str, &str), now: u64, valid: Duration) -> (Credential, String) {
    let (id, secret) = (random::<ID_OCTETS>(), random::<SECRET_OCTETS>());
    let token = format!("{SCHEME}.{id}.{secret}");
    (make(identity, Holder::Agent, (id, hash(&secret)), now, valid), token)
}

/// One without a token: no secret has an empty digest.
pub(super) fn of_control_plane(identity: (&str, &str), now: u64, valid: Duration) -> Credential {
    make(identity, Holder::ControlPlane, (random::<ID_OCTETS>(), String::new()), now, valid)
}

fn make(
    (cluster, uid): (&str, &str),
    holder: Holder,
    (id, digest): (String, String),
    now: u64,
    valid: Duration,
) -> Credential {
    let expires = now.saturating_add(valid.as_secs());
    Credential { id, cluster: cluster.into(), uid: uid.into(), holder, digest, issued: now, expires }
}

/// Whether a certificate's identity is the one that this credential was issued to.
pub(super) fn is_of(credential: &Credential, identity: &Identity) -> bool {
    let holder = match identity.role {
        Role::Agent => Holder::Agent,
        Role::ControlPlane => Holder::ControlPlane,
    };
    credential.holder == holder && credential.cluster == identity.cluster.as_str() && credential.uid == *identity.uid
}

/// A secret has 256 random bits: nobody finds it from its digest, however fast that is made.
fn hash(secret: &str) -> String {
    to_hex(digest(&SHA256, secret.as_bytes()).as_ref())
}

/// Where the first difference is does not show in the time that it takes.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let key = ring::hmac::Key::generate(ring::hmac::HMAC_SHA256, &SystemRandom::new());
    let key = key.expect("the operating system has random octets");
    // Under a key that nobody knows, what is compared says nothing of what was sent.
    ring::hmac::verify(&key, one, ring::hmac::sign(&key, other).as_ref()).is_ok()
}

pub(crate) fn random<const OCTETS: usize>() -> String {
    let mut octets = [0; OCTETS];
    SystemRandom::new().fill(&mut octets).expect("the operating system has random octets");
    to_hex(&octets)
}

pub(crate) fn to_hex(octets: &[u8]) -> String {
    octets.iter().fold(String::with_capacity(2 * octets.len()), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

/// Nobody is asked for anything else: on a hub it is a part of a name.
pub(super) fn is_id(text: &str) -> bool {
    is_hex(text, ID_OCTETS)
}

fn is_hex(text: &str, octets: usize) -> bool {
    text.len() == 2 * octets && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_its_own_credential_alone() {
        let day = Duration::from_hours(24);
        let ((one, token), (other, _)) = (issue(("c1", "u"), 100, day), issue(("c1", "u"), 100, day));
        assert_eq!((one.issued, one.expires), (100, 100 + 24 * 3600));
        let parsed = Token::parse(&token).unwrap();
        assert_eq!(parsed.id, one.id);
        assert!(parsed.opens(&one) && !parsed.opens(&other));
        let secret = token.rsplit_once('.').unwrap().1;
        assert!(!format!("{one:?}").contains(secret), "the secret is not kept");
        let guess = format!("fleetgate.{}.{}", one.id, "0".repeat(64));
        assert!(!Token::parse(&guess).unwrap().opens(&one));
    }

    /// Whose certificate is an agent's stands upon an agent's credential, and the other way round.
    #[test]
    fn a_credential_is_for_its_own_kind() {
        let day = Duration::from_hours(24);
        let ((agents, token), planes) = (issue(("c1", "u"), 0, day), of_control_plane(("c1", "u"), 0, day));
        let identity = |role, cluster: &str, uid: &str| Identity {
            role,
            cluster: cluster.parse().unwrap(),
            uid: uid.into(),
            credential: "x".into(),
        };
        for (role, cluster, uid, agent, plane) in [
            (Role::Agent, "c1", "u", true, false),
            (Role::ControlPlane, "c1", "u", false, true),
            (Role::ControlPlane, "c2", "u", false, false),
            (Role::ControlPlane, "c1", "v", false, false),
        ] {
            let identity = identity(role, cluster, uid);
            assert_eq!((is_of(&agents, &identity), is_of(&planes, &identity)), (agent, plane), "{identity}");
        }
        assert!(!Token::parse(&token).unwrap().opens(&planes), "no token opens one that has none");
    }

    #[test]
    fn what_is_no_token_is_none() {
        let (_, token) = issue(("c1", "u"), 0, Duration::ZERO);
        for wrong in [
            "",
            "fleetgate",
            "fleetgate..",
            &token[..token.len() - 1],
            &token.to_uppercase(),
            &format!("{token}0"),
            &format!(" {token}"),
            &token.replace("fleetgate.", "other."),
            &token.replacen('.', "\0", 1),
            &"fleetgate.".repeat(1 << 16),
        ] {
            assert!(Token::parse(wrong).is_none(), "{wrong:.100}");
        }
    }

    #[test]
    fn texts_are_compared_whole() {
        for (one, other, same) in [("", "", true), ("a", "a", true), ("a", "b", false), ("a", "aa", false)] {
            assert_eq!(is_same(one.as_bytes(), other.as_bytes()), same, "{one} {other}");
        }
    }
}
