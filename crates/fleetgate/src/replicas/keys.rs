//! A gateway's certificate for agents and control planes: the key is made here, and the leader signs for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::{ArcSwap, ArcSwapOption};
use kubernetes::peers::Asks;
use manifest::agents::Certificate;
use model::{DnsName, Snapshot};
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// A certificate lasts for a month: a leader may be away for long. Authorities that are new are known within this.
const RENEWAL: Duration = Duration::from_hours(1);
/// How often it is looked whether there are other zones, and so other names.
const LOOK: Duration = Duration::from_secs(5);
/// Where there were: the leader may not have known them all at the first time.
const SOON: Duration = Duration::from_secs(10);
/// Attempts that come to nothing.
const AGAIN: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(30);

/// With what doors for agents and control planes meet them. Both demand certificates of the hub's authority.
pub(crate) struct DoorKeys {
    pub(super) links: Arc<ServerConfig>,
    pub(super) egress: Arc<ServerConfig>,
}

/// The keys of the moment. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Keyring(Arc<Inner>);

#[derive(Default)]
struct Inner {
    keys: ArcSwapOption<DoorKeys>,
    has_keys: Notify,
}

impl Keyring {
    /// None before a leader has signed.
    pub(crate) fn keys(&self) -> Option<Arc<DoorKeys>> {
        self.0.keys.load_full()
    }

    /// Once there are some.
    pub(crate) async fn ready(&self) {
        loop {
            // Registered before the look, so that nothing is missed.
            let notified = self.0.has_keys.notified();
            if self.0.keys.load().is_some() {
                return;
            }
            notified.await;
        }
    }

    /// Asks again and again; never ends by itself.
    pub(crate) async fn keep(self, asks: Asks, snapshot: Arc<ArcSwap<Snapshot>>) {
        let mut pause = AGAIN;
        let mut last = zones(&snapshot.load());
        loop {
            let asked_for = zones(&snapshot.load());
            let renew_at = match DoorKeys::ask(&asks).await {
                Ok(keys) => {
                    self.0.keys.store(Some(Arc::new(keys)));
                    self.0.has_keys.notify_waiters();
                    pause = AGAIN;
                    Instant::now() + if asked_for == last { RENEWAL } else { SOON }
                }
                Err(error) => {
                    let error = error.as_ref() as &dyn std::error::Error;
                    tracing::warn!(error, "the certificate for agents and control planes is as it was");
                    let at = Instant::now() + pause;
                    pause = (pause * 2).min(LATER);
                    at
                }
            };
            last = asked_for;
            loop {
                let left = renew_at.saturating_duration_since(Instant::now());
                sleep(LOOK.min(left)).await;
                if left <= LOOK || (self.0.keys.load().is_some() && zones(&snapshot.load()) != last) {
                    break;
                }
            }
        }
    }
}

fn zones(snapshot: &Snapshot) -> BTreeSet<DnsName> {
    snapshot.zones().map(|zone| zone.apex.clone()).collect()
}

impl DoorKeys {
    async fn ask(asks: &Asks) -> anyhow::Result<Self> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).context("making a key")?;
        let csr = CertificateParams::default().serialize_request(&key).and_then(|csr| csr.pem());
        let signed = asks.sign(csr.context("making a request for a certificate")?).await?;
        Self::read(&signed, &key)
    }

    fn read(Certificate { certificate, ca, .. }: &Certificate, key: &KeyPair) -> anyhow::Result<Self> {
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let own = CertifiedKey::from_der(chain.context("reading the certificate")?, key, &provider());
        let own = own.context("using the certificate")?;
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(root.context("reading an authority")?).context("trusting an authority")?;
        }
        let roots = Arc::new(roots);
        let egress = egress::server_config(Arc::clone(&roots), own.clone()).context("trusting the authorities")?;
        Ok(Self { links: Arc::new(for_links(roots, own)?), egress: Arc::new(egress) })
    }
}

fn for_links(roots: Arc<RootCertStore>, own: CertifiedKey) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()?;
    let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
    let config = config.with_client_cert_verifier(verifier);
    let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
    config.alpn_protocols = vec![tunnel::ALPN.to_vec()];
    // Every connection shows its certificate anew.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_leader_signs_has_to_be_for_the_key() {
        let [key, other] = [(); 2].map(|()| KeyPair::generate().unwrap());
        let own = CertificateParams::new(["x".to_owned()]).unwrap().self_signed(&key).unwrap().pem();
        let signed = |certificate: &str, ca: &str| Certificate {
            certificate: certificate.into(),
            ca: ca.into(),
            valid_from: 0,
            expires: 1,
        };
        assert!(DoorKeys::read(&signed(&own, &own), &key).is_ok());
        assert!(DoorKeys::read(&signed(&own, &own), &other).is_err(), "another key");
        assert!(DoorKeys::read(&signed("", &own), &key).is_err());
        assert!(DoorKeys::read(&signed(&own, ""), &key).is_err(), "nobody is trusted");
    }
}
