//! How a leader is known for the one that the Lease names: a certificate that lasts as long as its process, and nothing else.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, PeerIncompatible, ServerConfig,
    SignatureScheme,
};

use super::meeting::Fingerprint;

/// In the certificate, and asked for: nobody looks at it.
const NAME: &str = "fleetgate-peers";
/// Longer than any process runs. It is the fingerprint that counts, and that stands in the Lease only while we lead.
const LIFE: Duration = Duration::from_hours(10 * 365 * 24);
/// For clocks that are behind ours, should anybody look.
const SKEW: Duration = Duration::from_hours(1);
const PROTOCOL: &[u8] = b"http/1.1";

/// A certificate and its key, which are nowhere but here.
#[derive(Clone)]
pub struct Identity {
    pub fingerprint: Fingerprint,
    pub(super) tls: Arc<ServerConfig>,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("making the certificate of --peers")]
    Made(#[from] rcgen::Error),
    #[error("using the certificate of --peers")]
    Used(#[from] Error),
}

impl Identity {
    pub fn new() -> Result<Self, IdentityError> {
        let mut params = CertificateParams::new([NAME.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, NAME);
        let now = SystemTime::now();
        (params.not_before, params.not_after) = ((now - SKEW).into(), (now + LIFE).into());
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let fingerprint = Fingerprint::of(&certificate);
        let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
        let mut config = config.with_no_client_auth().with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Each stream is one handshake, and none is resumed.
        config.send_tls13_tickets = 0;
        Ok(Self { fingerprint, tls: Arc::new(config) })
    }
}

impl std::fmt::Debug for Identity {
    /// Never the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

/// Speaks to whoever has the key of that certificate, and to nobody else.
pub(super) fn pinned_to(fingerprint: Fingerprint) -> Result<ClientConfig, Error> {
    let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    let pinned = Pinned { fingerprint, provider: provider() };
    let mut config = config.dangerous().with_custom_certificate_verifier(Arc::new(pinned)).with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.enable_sni = false;
    Ok(config)
}

pub(super) fn server_name() -> Result<ServerName<'static>, Error> {
    ServerName::try_from(NAME).map_err(|_| Error::General(format!("{NAME} is no name")))
}

/// Neither names nor times nor authorities matter: the Lease names this one certificate.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug, thiserror::Error)]
#[error("it is another certificate than the Lease names")]
pub(super) struct Another;

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if Fingerprint::of(certificate) == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::Other(OtherError(Arc::new(Another))).into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
    }

    /// That it has the key.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
