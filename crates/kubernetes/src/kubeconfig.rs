//! A kubeconfig that a tenant gave: where its API server is, and as whom to ask it. Untrusted.
//!
//! A kubeconfig can make a client run programs, read files, trust anybody and talk to anything that the client
//! reaches. So nothing is taken from it but what [`Server`] holds, and that is made from checked values alone: no
//! environment, no file and no credential of our own can get in. What would do more is refused rather than skipped,
//! wherever in the file it stands, because a file that needs it does not work without.
//!
//! | field | |
//! |---|---|
//! | `server` | `https`, a host and perhaps a path; see [`Policy`] for the host |
//! | `certificate-authority-data` | needed: there are no public authorities here to fall back on |
//! | `tls-server-name` | taken |
//! | `token`; `client-certificate-data` with `client-key-data` | taken; one of the two is needed |
//! | `username`, `password` | refused: Kubernetes has no such log-in since 1.19 |
//! | `exec`, `auth-provider` | refused: programs and other peoples' services |
//! | `certificate-authority`, `client-certificate`, `client-key`, `tokenFile` | refused: files of this machine |
//! | `insecure-skip-tls-verify: true` | refused: whoever is in between would get the token |
//! | `proxy-url` | refused: a way around the policy for hosts |
//! | `as`, `as-uid`, `as-groups`, `as-user-extra` | refused: give the credential of who is meant |
//!
//! A [`Refusal`] names the Secret, the key and the field. It has no room for anything that was in the file, so that
//! nothing of it gets into a status or a log.

mod file;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use http::{HeaderValue, Uri};
use k8s_openapi::ByteString;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as ValueError, StrDeserializer};

use file::{Cluster, File, User};
use model::reach::Reach;

/// A kubeconfig has some 10 KiB. A Secret may have a MiB, most of which could only be there to keep us busy.
pub const MOST_OCTETS: usize = 256 * 1024;

/// Where on the hub a kubeconfig stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretKey {
    pub namespace: String,
    pub name: String,
    pub key: String,
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} of Secret {}/{}", self.key, self.namespace, self.name)
    }
}

/// Where the controller goes on a tenant's word. Loopback is its own machine, and only tests have API servers there;
/// link-local, multicast, unspecified and metadata addresses are never an API server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    pub loopback: bool,
}

impl Policy {
    pub fn check(self, address: IpAddr) -> Result<(), Reach> {
        match Reach::of(address) {
            Reach::Ordinary => Ok(()),
            Reach::Loopback if self.loopback => Ok(()),
            elsewhere => Err(elsewhere),
        }
    }
}

/// An API server to ask, and as whom. Its `Debug` shows nothing of the credential.
pub struct Server {
    pub host: Host,
    pub port: u16,
    /// What stands before every path; empty for most.
    pub prefix: String,
    /// Host and port, for the request.
    pub authority: HeaderValue,
    /// The name that its certificate has to be valid for.
    pub name: ServerName<'static>,
    pub tls: Arc<ClientConfig>,
    /// Marked as sensitive.
    pub authorization: Option<HeaderValue>,
}

/// Names are looked up when connecting, and the [`Policy`] is asked again for what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    Address(IpAddr),
    Name(String),
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// Why a kubeconfig is not used; whoever wrote the Secret can mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the kubeconfig in {secret} {fault}")]
pub struct Refusal {
    pub secret: SecretKey,
    pub fault: Fault,
}

/// Made of fixed words and numbers, on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("has more than 256 KiB")]
    TooLarge,
    #[error("is not text in UTF-8")]
    NotText,
    #[error("cannot be read at line {line}, column {column}: no YAML, or a value of another type than the field has")]
    Unreadable { line: u64, column: u64 },
    #[error("has several YAML documents; give one")]
    SeveralDocuments,
    #[error("has two entries of one name in `{0}`")]
    Twice(&'static str),
    #[error("lacks `{0}`")]
    Missing(&'static str),
    #[error("has a `{field}` that names no entry of `{list}`")]
    Unknown { field: &'static str, list: &'static str },
    #[error("uses `{field}`, which is refused: {why}")]
    Refused { field: &'static str, why: &'static str },
    #[error("has a `{field}` that is not {expected}")]
    Malformed { field: &'static str, expected: &'static str },
    #[error("has a `{SERVER}` with a {0} address, to which the controller does not go")]
    Destination(Reach),
    #[error("has no credential: give `{TOKEN}`, or `{CERTIFICATE}` with `{KEY}`")]
    NoCredential,
    #[error("has a `{KEY}` that does not belong to `{CERTIFICATE}`, or is of a kind that is not supported")]
    KeyMismatch,
}

const SERVER: &str = "clusters[].cluster.server";
const AUTHORITY: &str = "clusters[].cluster.certificate-authority-data";
const SERVER_NAME: &str = "clusters[].cluster.tls-server-name";
const TOKEN: &str = "users[].user.token";
const CERTIFICATE: &str = "users[].user.client-certificate-data";
const KEY: &str = "users[].user.client-key-data";

/// Reads the octets of a Secret's key.
pub fn read(secret: &SecretKey, octets: &[u8], policy: Policy) -> Result<Server, Refusal> {
    server(octets, policy).map_err(|fault| Refusal { secret: secret.clone(), fault })
}

fn server(octets: &[u8], policy: Policy) -> Result<Server, Fault> {
    let file = File::parse(octets)?;
    file.check()?;
    let (cluster, user) = file.current()?;
    let address = address(cluster, policy)?;
    let name = match cluster.tls_server_name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => server_name(SERVER_NAME, name)?,
        None => match &address.host {
            Host::Address(address) => ServerName::from(*address),
            Host::Name(name) => server_name(SERVER, name)?,
        },
    };
    Ok(Server {
        host: address.host,
        port: address.port,
        prefix: address.prefix,
        authority: address.authority,
        name,
        tls: Arc::new(tls(cluster, user)?),
        authorization: authorization(user)?,
    })
}

struct Address {
    host: Host,
    port: u16,
    prefix: String,
    authority: HeaderValue,
}

fn address(cluster: &Cluster, policy: Policy) -> Result<Address, Fault> {
    let text = cluster.server.as_deref().filter(|server| !server.is_empty()).ok_or(Fault::Missing(SERVER))?;
    let malformed = Fault::Malformed { field: SERVER, expected: "of the form https://host:port" };
    let uri: Uri = text.parse().map_err(|_| malformed)?;
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") => {
            return Err(Fault::Refused { field: SERVER, why: "plain HTTP shows the credential to everybody" });
        }
        _ => return Err(malformed),
    }
    let authority = uri.authority().ok_or(malformed)?;
    if authority.as_str().contains('@') || uri.query().is_some() {
        return Err(malformed);
    }
    let port = match authority.port() {
        Some(port) => port.as_str().parse().ok().filter(|port| *port != 0).ok_or(malformed)?,
        None => 443,
    };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let host = match bare.parse::<IpAddr>() {
        Ok(address) => {
            policy.check(address).map_err(Fault::Destination)?;
            Host::Address(address)
        }
        Err(_) if bare.is_empty() || bare.len() != host.len() => return Err(malformed),
        Err(_) => Host::Name(bare.to_owned()),
    };
    let authority = HeaderValue::from_str(authority.as_str()).map_err(|_| malformed)?;
    Ok(Address { host, port, prefix: uri.path().trim_end_matches('/').to_owned(), authority })
}

fn server_name(field: &'static str, name: &str) -> Result<ServerName<'static>, Fault> {
    let name = ServerName::try_from(name.to_owned());
    name.map_err(|_| Fault::Malformed { field, expected: "a DNS name or an address" })
}

fn tls(cluster: &Cluster, user: &User) -> Result<ClientConfig, Fault> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let provider = PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider()));

    let authority = cluster.certificate_authority_data.as_deref().filter(|data| !data.is_empty());
    let malformed = Fault::Malformed { field: AUTHORITY, expected: "certificates in PEM, in base64" };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority.ok_or(Fault::Missing(AUTHORITY))?).ok_or(malformed)? {
        roots.add(certificate).map_err(|_| malformed)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .expect("ring has what TLS 1.2 and 1.3 need")
        .with_root_certificates(roots);

    let certificate = user.client_certificate_data.as_deref().filter(|data| !data.is_empty());
    let key = user.client_key_data.as_deref().filter(|data| !data.is_empty());
    let mut tls = match (certificate, key) {
        (None, None) => builder.with_no_client_auth(),
        (None, Some(_)) => return Err(Fault::Missing(CERTIFICATE)),
        (Some(_), None) => return Err(Fault::Missing(KEY)),
        (Some(certificate), Some(key)) => {
            let expected = "certificates in PEM, in base64";
            let chain = certificates(certificate).ok_or(Fault::Malformed { field: CERTIFICATE, expected })?;
            let key = decode(key).and_then(|pem| PrivateKeyDer::from_pem_slice(&pem).ok());
            let key = key.ok_or(Fault::Malformed { field: KEY, expected: "a private key in PEM, in base64" })?;
            builder.with_client_auth_cert(chain, key).map_err(|_| Fault::KeyMismatch)?
        }
    };
    // One connection lasts for hours, and there are thousands of these: not worth the memory.
    tls.resumption = Resumption::disabled();
    Ok(tls)
}

/// At least one.
fn certificates(base64: &str) -> Option<Vec<CertificateDer<'static>>> {
    let pem = decode(base64)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().ok()?;
    (!certificates.is_empty()).then_some(certificates)
}

/// Line breaks do not count, as for kubectl.
fn decode(base64: &str) -> Option<Vec<u8>> {
    let base64: String = base64.chars().filter(|character| !character.is_ascii_whitespace()).collect();
    let decoder: StrDeserializer<'_, ValueError> = base64.as_str().into_deserializer();
    ByteString::deserialize(decoder).ok().map(|decoded| decoded.0)
}

fn authorization(user: &User) -> Result<Option<HeaderValue>, Fault> {
    let Some(token) = user.token.as_deref().filter(|token| !token.is_empty()) else {
        let has_certificate = user.client_certificate_data.as_deref().is_some_and(|data| !data.is_empty());
        return if has_certificate { Ok(None) } else { Err(Fault::NoCredential) };
    };
    let header = HeaderValue::try_from(format!("Bearer {token}"));
    let mut header =
        header.map_err(|_| Fault::Malformed { field: TOKEN, expected: "one line of visible characters" })?;
    header.set_sensitive(true);
    Ok(Some(header))
}

#[cfg(test)]
mod tests;
