//! TLS of the door.

use std::sync::Arc;

use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};

/// With the door's own certificate, which is for [`crate::SERVER_NAME`], and the authorities that clients' must be of. TLS 1.2 too: what has
/// no egress selector may be older than 1.3.
pub fn server_config(roots: Arc<RootCertStore>, own: CertifiedKey) -> Result<ServerConfig, VerifierBuilderError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()?;
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&versions);
    let config = config.expect("ring has what both versions need").with_client_cert_verifier(verifier);
    let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Every connection shows its certificate anew.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
