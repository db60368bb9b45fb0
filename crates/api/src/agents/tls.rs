//! TLS of the agents' door: its own certificate, made as it is asked for, and the authorities that agents' must be of.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use manifest::kept::Authorities;
use model::{DnsName, Snapshot};
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

use super::authority::{AuthorityError, DOOR_RENEWAL, Signer};
use super::unix_now;

/// What the door signs and serves with; replaced whole when the authorities change.
pub(super) struct Keys {
    pub(super) kept: Authorities,
    pub(super) signer: Arc<Signer>,
    pub(super) config: Arc<ServerConfig>,
    /// Of the door for control planes.
    pub(super) egress: Arc<ServerConfig>,
    /// When another of the authorities may sign.
    pub(super) made: u64,
}

impl Keys {
    pub(super) fn new(
        kept: Authorities,
        snapshot: Arc<ArcSwap<Snapshot>>,
        address: IpAddr,
        (now, takes_links): (u64, bool),
    ) -> Result<Self, AuthorityError> {
        let signer = Arc::new(Signer::load(&kept, now)?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&signer.roots), Arc::clone(&provider));
        // Who comes without a certificate may enrol, and nothing else.
        let verifier = verifier.allow_unauthenticated().build().map_err(|_| AuthorityError::Unreadable)?;
        let own = OwnCertificates { snapshot, signer: Arc::clone(&signer), address, made: Mutex::default() };
        let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
        let config = config.expect("the provider knows TLS 1.3").with_client_cert_verifier(verifier);
        let mut config = config.with_cert_resolver(Arc::new(own));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if takes_links {
            config.alpn_protocols.push(tunnel::ALPN.to_vec());
        }
        // Every connection shows its certificate anew.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        // These keys are made anew every hour, and with them this certificate.
        let addresses = Some(address).filter(|address| !address.is_unspecified());
        let own_of_egress = signer.sign_door(&[egress::SERVER_NAME.to_owned()], addresses.as_slice(), now)?;
        let egress = egress::server_config(Arc::clone(&signer.roots), own_of_egress);
        let egress = Arc::new(egress.map_err(|_| AuthorityError::Unreadable)?);
        Ok(Self { kept, signer, config: Arc::new(config), egress, made: now })
    }
}

/// One for each zone, under the door's name there. Without any zone, one for this machine.
struct OwnCertificates {
    snapshot: Arc<ArcSwap<Snapshot>>,
    signer: Arc<Signer>,
    address: IpAddr,
    /// By name, and since when; never more than there are zones.
    made: Mutex<HashMap<String, (u64, Arc<CertifiedKey>)>>,
}

impl fmt::Debug for OwnCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnCertificates(..)")
    }
}

impl ResolvesServerCert for OwnCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let snapshot = self.snapshot.load();
        let name = hello.server_name().and_then(|name| DnsName::parse(name).ok());
        let name = match name {
            Some(name) if snapshot.is_agents_door(&name) => Some(name.to_string()),
            _ if snapshot.zone_count() == 0 => None,
            _ => return None,
        };
        self.certificate(name.as_deref(), &snapshot, unix_now())
    }
}

impl OwnCertificates {
    fn certificate(&self, name: Option<&str>, snapshot: &Snapshot, now: u64) -> Option<Arc<CertifiedKey>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let place = name.unwrap_or("localhost");
        if let Some((since, certificate)) = made.get(place)
            && now < since.saturating_add(DOOR_RENEWAL)
        {
            return Some(Arc::clone(certificate));
        }
        let addresses = if name.is_none() { &[self.address][..] } else { &[] };
        let certificate = self.signer.sign_door(&[place.to_owned()], addresses, now);
        let certificate =
            certificate.inspect_err(|error| tracing::error!(%error, "the agents' door has no certificate"));
        let certificate = Arc::new(certificate.ok()?);
        if made.len() > snapshot.zone_count() {
            // Zones went.
            made.clear();
        }
        made.insert(place.to_owned(), (now, Arc::clone(&certificate)));
        Some(certificate)
    }
}

#[cfg(test)]
mod tests {
    use super::super::authority::due;
    use super::*;

    #[test]
    fn the_doors_certificate_is_renewed_before_its_end() {
        let now = 1_800_000_000;
        let signer = Arc::new(Signer::load(&due(None, now).unwrap().unwrap(), now).unwrap());
        let snapshot = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
        let address = IpAddr::from([127, 0, 0, 1]);
        let own = OwnCertificates { snapshot, signer, address, made: Mutex::default() };
        let at = |now| own.certificate(None, &own.snapshot.load(), now).unwrap();
        let first = at(now);
        assert!(Arc::ptr_eq(&first, &at(now + DOOR_RENEWAL - 1)));
        assert!(!Arc::ptr_eq(&first, &at(now + DOOR_RENEWAL)));
    }
}
