//! TLS towards clients: which certificate a server name gets, from the table as it is at that moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::Digest;
use model::ingress::Certificate;
use rustls::ServerConfig;
use rustls::crypto::ring::{Ticketer, default_provider, sign};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;

/// Some 5 KiB each with a chain of three. Older ones are read anew when somebody asks for them.
const KEYS: usize = 4096;
/// Sessions of clients of TLS 1.2 that take no tickets, some 200 octets each.
const SESSIONS: usize = 4096;

/// All handshakes share the tickets' keys and the sessions.
#[derive(Debug)]
pub(crate) struct Certificates {
    base: ServerConfig,
    keys: Mutex<Keys>,
}

/// Two generations: what was used since the newer began moves into it, and the older is dropped as a whole.
#[derive(Debug, Default)]
struct Keys {
    newer: HashMap<Digest, Arc<CertifiedKey>>,
    older: HashMap<Digest, Arc<CertifiedKey>>,
}

impl Certificates {
    pub(crate) fn new() -> Result<Self, rustls::Error> {
        let provider = Arc::new(default_provider());
        let mut base = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Nobody));
        base.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Its keys change by themselves, every six hours.
        base.ticketer = Ticketer::new()?;
        base.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        Ok(Self { base, keys: Mutex::default() })
    }

    /// For one handshake; none where the key cannot be used.
    pub(crate) fn config(&self, certificate: &Certificate) -> Option<Arc<ServerConfig>> {
        let key = self.key(certificate)?;
        let mut config = self.base.clone();
        config.cert_resolver = Arc::new(Only(key));
        Some(Arc::new(config))
    }

    fn key(&self, certificate: &Certificate) -> Option<Arc<CertifiedKey>> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = keys.newer.get(&certificate.digest) {
            return Some(Arc::clone(known));
        }
        let key = match keys.older.get(&certificate.digest) {
            Some(known) => Arc::clone(known),
            None => Arc::new(read(certificate)?),
        };
        if keys.newer.len() >= KEYS {
            keys.older = std::mem::take(&mut keys.newer);
        }
        keys.newer.insert(certificate.digest, Arc::clone(&key));
        Some(key)
    }
}

fn read(certificate: &Certificate) -> Option<CertifiedKey> {
    let key = PrivateKeyDer::try_from(certificate.key.clone()).ok()?;
    let key = sign::any_supported_type(&key).ok()?;
    let chain = certificate.chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
    Some(CertifiedKey::new(chain, key))
}

#[derive(Debug)]
struct Only(Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Nobody;

impl ResolvesServerCert for Nobody {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}
