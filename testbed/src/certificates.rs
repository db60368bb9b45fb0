//! The keys and certificates of one server, from an authority of its own.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::path::Path;
use std::{fs, io};

/// The authority's certificate, in the folder that is written into.
pub(crate) const AUTHORITY: &str = "ca.crt";

/// The authority for whom an API server passes requests on to others, and what it shows them.
pub(crate) const FRONT_PROXY: [&str; 3] = ["front-proxy-ca.crt", "front-proxy.crt", "front-proxy.key"];

/// Each call makes an authority of its own, so a client that trusts one server trusts no other.
pub(crate) fn write_into(folder: &Path, names: &[&str]) -> io::Result<()> {
    let names = [&["127.0.0.1", "localhost"], names].concat();
    let server = Certificate::for_server(&names)?;
    fs::write(folder.join(AUTHORITY), server.authority)?;
    fs::write(folder.join("server.crt"), server.certificate)?;
    fs::write(folder.join("server.key"), server.key)?;
    let client = Certificate::issue(&[], ExtendedKeyUsagePurpose::ClientAuth).map_err(io::Error::other)?;
    for (name, text) in FRONT_PROXY.iter().zip([client.authority, client.certificate, client.key]) {
        fs::write(folder.join(name), text)?;
    }

    // Kubernetes reads PKCS #8 EC keys for signing tokens but not for checking them; hence two files.
    let token_key = KeyPair::generate().map_err(io::Error::other)?;
    fs::write(folder.join("token-signing.key"), token_key.serialize_pem())?;
    fs::write(folder.join("token-checking.key"), token_key.public_key_pem())
}

/// A certificate, its key and the authority that vouches for it and for nothing else, as PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub authority: String,
    pub certificate: String,
    pub key: String,
}

impl Certificate {
    /// Of a server with these names or addresses.
    pub fn for_server(names: &[&str]) -> io::Result<Self> {
        Self::issue(names, ExtendedKeyUsagePurpose::ServerAuth).map_err(io::Error::other)
    }

    /// The authority as objects of Kubernetes have it.
    pub fn ca_bundle(&self) -> String {
        BASE64_STANDARD.encode(&self.authority)
    }

    fn issue(names: &[&str], purpose: ExtendedKeyUsagePurpose) -> Result<Self, rcgen::Error> {
        // The two names differ on purpose: with equal ones the certificate looks self-signed.
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "testbed authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "testbed server");
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &authority)?;
        Ok(Self { authority: authority.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
