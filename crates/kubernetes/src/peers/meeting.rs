//! Where the leader is met: as annotations of its Lease, which everybody follows.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::{Client, Error};
use ring::digest::{SHA256, digest};
use tokio::sync::watch;

use crate::lease;
use crate::watch::{FIRST_PAUSE, LONGEST_PAUSE, WATCH_FOR, chain};

const ADDRESS: &str = "fleetgate.dev/peers";
const CERTIFICATE: &str = "fleetgate.dev/peers-certificate";

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// Where somebody is met, and by which certificate it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meeting {
    pub address: SocketAddr,
    pub certificate: Fingerprint,
}

impl Meeting {
    /// What the holder of a Lease says there; nothing where nobody holds it.
    pub fn of(lease: &Lease) -> Option<Self> {
        lease::record::holder(lease)?;
        let annotations = lease.metadata.annotations.as_ref()?;
        let address = annotations.get(ADDRESS)?.parse().ok()?;
        let certificate = annotations.get(CERTIFICATE)?.parse().ok()?;
        Some(Self { address, certificate })
    }

    /// Leaves other annotations as they are.
    pub(crate) fn mark(this: Option<&Self>, lease: &mut Lease) {
        let annotations = lease.metadata.annotations.get_or_insert_default();
        match this {
            Some(Self { address, certificate }) => {
                annotations.insert(ADDRESS.into(), address.to_string());
                annotations.insert(CERTIFICATE.into(), certificate.to_string());
            }
            None => annotations.retain(|name, _| name != ADDRESS && name != CERTIFICATE),
        }
        if annotations.is_empty() {
            lease.metadata.annotations = None;
        }
    }
}

impl Fingerprint {
    pub fn of(certificate: &[u8]) -> Self {
        let mut octets = [0; 32];
        octets.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(octets)
    }

    pub fn octets(&self) -> [u8; 32] {
        self.0
    }
}

impl From<[u8; 32]> for Fingerprint {
    fn from(octets: [u8; 32]) -> Self {
        Self(octets)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint has 64 hexadecimal digits in lower case")]
pub struct NoFingerprint;

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let digit = |octet: u8| match octet {
            b'0'..=b'9' => Some(octet - b'0'),
            b'a'..=b'f' => Some(octet - b'a' + 10),
            _ => None,
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(NoFingerprint);
        }
        let mut octets = [0; 32];
        for (octet, [high, low]) in octets.iter_mut().zip(pairs) {
            *octet = digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low).ok_or(NoFingerprint)?;
        }
        Ok(Self(octets))
    }
}

/// Follows the one Lease, by its name, and tells where its holder is met. Never ends by itself.
pub async fn follow(client: Client, namespace: &str, tell: watch::Sender<Option<Meeting>>) {
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    let mut pause = FIRST_PAUSE;
    loop {
        match read_on(&leases, &tell, &mut pause).await {
            // The watch had its time.
            Ok(()) => {}
            Err(error) => {
                // Where the leader was met last is where it most likely still is.
                tracing::warn!(error = chain(&error), "the leader's Lease cannot be followed; trying again");
                tokio::time::sleep(shortened(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// From the Lease as it is to the end of a watch.
async fn read_on(
    leases: &Api<Lease>,
    tell: &watch::Sender<Option<Meeting>>,
    pause: &mut Duration,
) -> Result<(), Error> {
    let lease = leases.get_opt(lease::NAME).await?;
    let version = lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
    set(tell, lease.as_ref());
    let wanted = WatchParams::default().fields(&format!("metadata.name={}", lease::NAME)).timeout(WATCH_FOR);
    // From "0" the hub begins with what there is.
    let mut events = std::pin::pin!(leases.watch(&wanted, version.as_deref().unwrap_or("0")).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => set(tell, Some(&lease)),
            WatchEvent::Deleted(_) => set(tell, None),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(Error::Api(status)),
        }
        *pause = FIRST_PAUSE;
    }
    Ok(())
}

/// It is renewed every second, and met in the same place.
fn set(tell: &watch::Sender<Option<Meeting>>, lease: Option<&Lease>) {
    let meeting = lease.and_then(Meeting::of);
    tell.send_if_modified(|known| {
        let changed = *known != meeting;
        *known = meeting;
        changed
    });
}

/// By up to a half, so that not all come at once.
pub(super) fn shortened(pause: Duration) -> Duration {
    pause.mul_f64(1.0 - fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> Lease {
        let mut lease = Lease::default();
        lease.spec.get_or_insert_default().holder_identity = Some(holder.into());
        lease
    }

    #[test]
    fn what_a_holder_marks_is_read_again() {
        for address in ["192.0.2.7:9634", "[2001:db8::7]:9634"] {
            let meeting = Meeting { address: address.parse().unwrap(), certificate: Fingerprint::of(b"x") };
            let mut lease = held_by("c-0");
            lease.metadata.annotations.get_or_insert_default().insert("of/others".into(), "stays".into());
            Meeting::mark(Some(&meeting), &mut lease);
            assert_eq!(Meeting::of(&lease), Some(meeting));
            assert_eq!(lease.metadata.annotations.as_ref().unwrap()[ADDRESS], address);

            let mut free = lease.clone();
            free.spec = held_by("").spec;
            assert_eq!(Meeting::of(&free), None, "nobody holds it");
            Meeting::mark(None, &mut lease);
            assert_eq!(Meeting::of(&lease), None);
            assert_eq!(lease.metadata.annotations.unwrap().len(), 1);
        }
    }

    #[test]
    fn what_somebody_else_wrote_there_is_nothing() {
        let meeting = Meeting { address: "192.0.2.7:9634".parse().unwrap(), certificate: Fingerprint::of(b"x") };
        for (name, value) in [
            (ADDRESS, "192.0.2.7"),
            (ADDRESS, "leader.example:9634"),
            (ADDRESS, ""),
            (CERTIFICATE, ""),
            (CERTIFICATE, "ab"),
            (CERTIFICATE, &"G".repeat(64)),
            (CERTIFICATE, &"a".repeat(65)),
            (CERTIFICATE, &"é".repeat(32)),
        ] {
            let mut lease = held_by("c-0");
            Meeting::mark(Some(&meeting), &mut lease);
            lease.metadata.annotations.as_mut().unwrap().insert(name.into(), value.into());
            assert_eq!(Meeting::of(&lease), None, "{name}: {value}");
        }
    }
}
