//! How processes of a hub know each other: by the fingerprint of a certificate that lasts as long as its process.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, ServerConfig,
    SignatureScheme,
};

use super::{ALPN, Fingerprint, Known};

/// In the certificate, and asked for: nobody looks at it.
const NAME: &str = "fleetgate-relay";
/// Longer than any process runs. It is the fingerprint that counts.
const LIFE: Duration = Duration::from_hours(10 * 365 * 24);
/// For clocks that are behind ours, should anybody look.
const SKEW: Duration = Duration::from_hours(1);

/// A certificate and its key, which are nowhere but here.
pub struct Keys {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    fingerprint: Fingerprint,
}

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("making the certificate of --relay")]
    Made(#[from] rcgen::Error),
    #[error("using the certificate of --relay")]
    Used(#[from] Error),
}

impl Keys {
    pub fn new() -> Result<Self, KeysError> {
        let mut params = CertificateParams::new([NAME.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, NAME);
        let now = SystemTime::now();
        (params.not_before, params.not_after) = ((now - SKEW).into(), (now + LIFE).into());
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.der().clone();
        let fingerprint = fingerprint(&certificate);
        Ok(Self { certificate, key: key.serialize_der().into(), fingerprint })
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Takes whoever is known at that moment, and nobody without a certificate.
    pub(super) fn server(&self, known: Known) -> Result<ServerConfig, Error> {
        let verifier = Arc::new(OneOf { known, provider: provider() });
        let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
        let config = config.with_client_cert_verifier(verifier);
        let mut config = config.with_single_cert(vec![self.certificate.clone()], self.key())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Every connection shows its certificate anew.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// Speaks to whoever has the key of that certificate, and to nobody else.
    pub(super) fn client(&self, to: Fingerprint) -> Result<ClientConfig, Error> {
        let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
        let pinned = Arc::new(Pinned { to, provider: provider() });
        let config = config.dangerous().with_custom_certificate_verifier(pinned);
        let mut config = config.with_client_auth_cert(vec![self.certificate.clone()], self.key())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        config.enable_sni = false;
        Ok(config)
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key().into()
    }
}

impl std::fmt::Debug for Keys {
    /// Never the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

pub(super) fn fingerprint(certificate: &[u8]) -> Fingerprint {
    let mut octets = [0; 32];
    octets.copy_from_slice(digest(&SHA256, certificate).as_ref());
    octets
}

pub(super) fn server_name() -> Result<ServerName<'static>, Error> {
    ServerName::try_from(NAME).map_err(|_| Error::General(format!("{NAME} is no name")))
}

/// Neither names nor times nor authorities matter: everybody is told of this one certificate.
#[derive(Debug)]
struct Pinned {
    to: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if fingerprint(certificate) == self.to {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
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

#[derive(Debug)]
struct OneOf {
    known: Known,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for OneOf {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.known.borrow().contains(&fingerprint(certificate)) {
            return Ok(ClientCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
    }

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
