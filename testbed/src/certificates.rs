//! The keys and certificates of one API server, valid on loopback and for the names it is given.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::path::Path;
use std::{fs, io};

/// The authority's certificate, in the folder that is written into.
pub(crate) const AUTHORITY: &str = "ca.crt";

/// Each call makes an authority of its own, so a client that trusts one server trusts no other.
pub(crate) fn write_into(folder: &Path, names: &[&str]) -> io::Result<()> {
    let (authority, certificate, server_key) = issue(names).map_err(io::Error::other)?;
    fs::write(folder.join(AUTHORITY), authority)?;
    fs::write(folder.join("server.crt"), certificate)?;
    fs::write(folder.join("server.key"), server_key)?;

    // Kubernetes reads PKCS #8 EC keys for signing tokens but not for checking them; hence two files.
    let token_key = KeyPair::generate().map_err(io::Error::other)?;
    fs::write(folder.join("token-signing.key"), token_key.serialize_pem())?;
    fs::write(folder.join("token-checking.key"), token_key.public_key_pem())
}

/// The authority, the server's certificate and the server's key, as PEM.
fn issue(names: &[&str]) -> Result<(String, String, String), rcgen::Error> {
    // The two names differ on purpose: with equal ones the server's certificate looks self-signed.
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "testbed authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    let names = ["127.0.0.1", "localhost"].iter().chain(names).map(|name| (*name).to_owned());
    let mut params = CertificateParams::new(names.collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, "testbed API server");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?;
    Ok((authority.pem(), certificate.pem(), key.serialize_pem()))
}
