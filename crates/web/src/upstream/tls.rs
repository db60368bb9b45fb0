//! Which TLS members have to speak, by the policy of their entry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use model::ingress::{FederationPolicy, UpstreamTls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring::default_provider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Policies are a few; each has some KiB. When there are more, all are made anew.
const MAX_POLICIES: usize = 1024;

/// How a connection is secured; connections that differ in it are never mixed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Security {
    Plain,
    /// The number of what is trusted, and the name that was asked for.
    Tls(u64, Arc<str>),
}

impl Security {
    pub(super) fn server_name(&self) -> Option<&str> {
        match self {
            Self::Plain => None,
            Self::Tls(_, name) => Some(name),
        }
    }
}

/// Which protocols a member is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Both,
    Http1,
    Http2,
}

/// What is trusted, for all threads.
pub(crate) struct Trust {
    provider: Arc<CryptoProvider>,
    /// Read when somebody is to be trusted by it: many processes have no such policy.
    machine: OnceLock<Arc<RootCertStore>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    next: u64,
    by_tls: HashMap<UpstreamTls, Arc<Configs>>,
    /// By the address of a policy that is held, so that it stays its own: authorities are long to compare.
    by_policy: HashMap<usize, (Arc<FederationPolicy>, Arc<Configs>)>,
}

struct Configs {
    number: u64,
    both: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl Trust {
    pub(crate) fn new() -> Self {
        Self { provider: Arc::new(default_provider()), machine: OnceLock::new(), known: Mutex::default() }
    }

    /// The authorities that the machine trusts.
    fn machine(&self) -> Arc<RootCertStore> {
        let read = || {
            let mut machine = RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs();
            machine.add_parsable_certificates(found.certs);
            for error in found.errors {
                tracing::warn!(%error, "some authorities of the machine cannot be read");
            }
            Arc::new(machine)
        };
        Arc::clone(self.machine.get_or_init(read))
    }

    pub(super) fn security(&self, policy: &Arc<FederationPolicy>, host: &str) -> Security {
        match self.configs(policy) {
            Some(configs) => Security::Tls(configs.number, host.into()),
            None => Security::Plain,
        }
    }

    /// None is plain text.
    pub(super) fn config(&self, policy: &Arc<FederationPolicy>, offer: Offer) -> Option<Arc<ClientConfig>> {
        let configs = self.configs(policy)?;
        let config = match offer {
            Offer::Both => &configs.both,
            Offer::Http1 => &configs.http1,
            Offer::Http2 => &configs.http2,
        };
        Some(Arc::clone(config))
    }

    fn configs(&self, policy: &Arc<FederationPolicy>) -> Option<Arc<Configs>> {
        if policy.upstream == UpstreamTls::Plain {
            return None;
        }
        let mut known = self.lock();
        let address = Arc::as_ptr(policy).addr();
        if let Some((_, configs)) = known.by_policy.get(&address) {
            return Some(Arc::clone(configs));
        }
        if known.by_policy.len() >= MAX_POLICIES {
            known.by_policy.clear();
        }
        if known.by_tls.len() >= MAX_POLICIES {
            known.by_tls.clear();
        }
        let shared = known.by_tls.get(&policy.upstream).map(Arc::clone);
        let configs = if let Some(configs) = shared {
            configs
        } else {
            known.next += 1;
            let configs = Arc::new(self.read(&policy.upstream, known.next)?);
            known.by_tls.insert(policy.upstream.clone(), Arc::clone(&configs));
            configs
        };
        known.by_policy.insert(address, (Arc::clone(policy), Arc::clone(&configs)));
        Some(configs)
    }

    fn read(&self, tls: &UpstreamTls, number: u64) -> Option<Configs> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12]).ok()?;
        let config = match tls {
            UpstreamTls::Plain => return None,
            UpstreamTls::Unverified => {
                let anybody = Anybody(self.provider.signature_verification_algorithms);
                builder.dangerous().with_custom_certificate_verifier(Arc::new(anybody)).with_no_client_auth()
            }
            UpstreamTls::Verified { authorities } if authorities.is_empty() => {
                builder.with_root_certificates(self.machine()).with_no_client_auth()
            }
            UpstreamTls::Verified { authorities } => {
                let mut roots = RootCertStore::empty();
                // One that cannot be read vouches for nobody.
                roots.add_parsable_certificates(authorities.iter().map(|der| CertificateDer::from(der.as_slice())));
                builder.with_root_certificates(roots).with_no_client_auth()
            }
        };
        let offering = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Some(Configs {
            number,
            both: offering(&[b"h2", b"http/1.1"]),
            http1: offering(&[b"http/1.1"]),
            http2: offering(&[b"h2"]),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes any certificate: only where a policy asks for that.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
