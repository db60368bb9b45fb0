//! Who we are to the hub: a key, the certificate for it, and whom we trust; and the file that outlives us.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use manifest::agents::{Bootstrap, Certificate};
use rcgen::{CertificateParams, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};

use super::LinkError;

/// A bootstrap file or a kept identity has some KiB: what is longer is another file.
const LARGEST_FILE: u64 = 256 << 10;
/// An authority and the one that follows it; more than this are a mistake.
const MOST_AUTHORITIES: usize = 16;

/// How we meet the hub: the name it must prove, whom we believe that, and our own certificate, if any.
#[derive(Clone)]
pub(super) struct Credential {
    pub(super) tls: Arc<ClientConfig>,
    pub(super) server_name: ServerName<'static>,
    /// As the Host header has it.
    pub(super) host: String,
}

/// A certificate of the hub's, ready to be used.
pub(super) struct Identity {
    pub(super) credential: Credential,
    kept: Kept,
}

/// As the file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    /// Of the token that it was bought with: another token may speak for another cluster.
    token_hash: String,
    key: String,
    certificate: String,
    ca: String,
    /// Unix seconds by the hub's clock; 0 where it did not say.
    #[serde(default)]
    valid_from: u64,
    /// Unix seconds.
    received: u64,
    expires: u64,
}

impl Identity {
    pub(super) fn expires(&self) -> u64 {
        self.kept.expires
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.kept.expires
    }

    /// `None` once two thirds of its time are over.
    pub(super) fn until_renewal(&self, now: u64) -> Option<Duration> {
        // A clock of ours that is behind the hub's would make it seem longer than it is.
        let time = self.kept.expires.saturating_sub(self.kept.received.max(self.kept.valid_from));
        let at = self.kept.received.saturating_add(time - time / 3);
        // A clock that was set back before the certificate came would never get there.
        if now < self.kept.received {
            return None;
        }
        at.checked_sub(now).filter(|wait| *wait > 0).map(Duration::from_secs)
    }
}

/// Where identities come from and go to.
pub(super) struct Store {
    bootstrap: PathBuf,
    file: Option<PathBuf>,
    latest: Mutex<Option<Kept>>,
}

impl Store {
    /// Fails when the bootstrap file cannot be used, or the folder not be written: better now than at the first renewal.
    pub(super) fn open(bootstrap: PathBuf, state: Option<(PathBuf, &'static str)>) -> Result<Self, LinkError> {
        let file = state.map(|(folder, name)| {
            let mut builder = fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(&folder);
            let probe = folder.join(format!("{name}.new"));
            let written = made.and_then(|()| private_file(&probe)).and_then(|_| fs::remove_file(&probe));
            written.map_err(|error| LinkError::State { path: folder.clone(), reason: error.to_string() })?;
            Ok(folder.join(format!("{name}.json")))
        });
        let store = Self { bootstrap, file: file.transpose()?, latest: Mutex::default() };
        store.newcomer()?;
        Ok(store)
    }

    /// The token, and how to meet the hub without a certificate of our own.
    pub(super) fn newcomer(&self) -> Result<(String, Credential), LinkError> {
        let bootstrap = self.read_bootstrap()?;
        let mut ca = bootstrap.ca.clone();
        // The authority may have changed since the file was made, and may have been told to us.
        if let Some(kept) = self.read_kept().filter(|kept| kept.token_hash == hash(&bootstrap.token)) {
            ca.push('\n');
            ca.push_str(&kept.ca);
        }
        let credential = self.credential(&bootstrap, &ca, None)?;
        Ok((bootstrap.token, credential))
    }

    /// From what the hub answered.
    pub(super) fn identity(&self, key: &str, answer: &Certificate, now: u64) -> Result<Identity, LinkError> {
        let bootstrap = self.read_bootstrap()?;
        let Certificate { certificate, ca, valid_from, expires } = answer.clone();
        if expires <= now {
            let reason = "the certificate is over already: one of the two clocks is wrong";
            return Err(LinkError::Garbled(reason.into()));
        }
        let token_hash = hash(&bootstrap.token);
        let kept = Kept { token_hash, key: key.to_owned(), certificate, ca, valid_from, received: now, expires };
        self.build(&bootstrap, kept).map_err(|error| LinkError::Garbled(error.to_string()))
    }

    fn build(&self, bootstrap: &Bootstrap, kept: Kept) -> Result<Identity, LinkError> {
        let credential = self.credential(bootstrap, &kept.ca, Some((&kept.certificate, &kept.key)))?;
        Ok(Identity { credential, kept })
    }

    /// What an earlier process left, unless it is over or was bought with another token.
    pub(super) fn recall(&self, now: u64) -> Option<Identity> {
        let bootstrap = self.read_bootstrap().ok()?;
        let kept = self.read_kept().filter(|kept| kept.token_hash == hash(&bootstrap.token))?;
        let identity = self.build(&bootstrap, kept).ok()?;
        (!identity.is_over(now)).then_some(identity)
    }

    /// Whole or not at all. A disk that is full costs an enrolment after the next start, nothing more.
    pub(super) fn keep(&self, identity: &Identity) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity.kept.clone());
        let Some(file) = &self.file else { return };
        let new = file.with_extension("new");
        let write = || {
            let mut content = private_file(&new)?;
            content.write_all(&serde_json::to_vec(&identity.kept)?)?;
            content.sync_all()?;
            fs::rename(&new, file)
        };
        if let Err(error) = write() {
            tracing::error!(%error, file = %file.display(), "the certificate could not be kept: a restart enrols anew");
        }
    }

    fn read_bootstrap(&self) -> Result<Bootstrap, LinkError> {
        let unusable = |reason: String| LinkError::Bootstrap { path: self.bootstrap.clone(), reason };
        let text = read_bounded(&self.bootstrap).map_err(|error| unusable(error.to_string()))?;
        // The parser's words may repeat what it read, and that is a secret.
        serde_json::from_slice(&text).map_err(|error| {
            unusable(format!("it is no bootstrap file (line {}, column {})", error.line(), error.column()))
        })
    }

    fn read_kept(&self) -> Option<Kept> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        latest.or_else(|| serde_json::from_slice(&read_bounded(self.file.as_deref()?).ok()?).ok())
    }

    fn credential(&self, bootstrap: &Bootstrap, ca: &str, own: Option<(&str, &str)>) -> Result<Credential, LinkError> {
        let unusable = |reason: &str| LinkError::Bootstrap { path: self.bootstrap.clone(), reason: reason.into() };
        let server_name = ServerName::try_from(bootstrap.server_name.clone())
            .map_err(|_| unusable("serverName is neither a name nor an address"))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("ring has what TLS 1.3 needs")
            .with_root_certificates(authorities(ca).ok_or_else(|| unusable("ca has no certificates in PEM form"))?);
        let mut tls = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
                let chain = chain.ok().filter(|chain| !chain.is_empty());
                let chain = chain.ok_or_else(|| LinkError::Garbled("the certificate is not in PEM form".into()))?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
                let key = key.map_err(|_| LinkError::Garbled("the kept key is not in PEM form".into()))?;
                let built = builder.with_client_auth_cert(chain, key);
                built.map_err(|_| LinkError::Garbled("the certificate does not belong to our key".into()))?
            }
        };
        // Whoever has a new certificate shows it: an earlier session would speak for the old one.
        tls.resumption = Resumption::disabled();
        let host = match &server_name {
            ServerName::IpAddress(rustls::pki_types::IpAddr::V6(_)) => format!("[{}]", bootstrap.server_name),
            _ => bootstrap.server_name.clone(),
        };
        Ok(Credential { tls: Arc::new(tls), server_name, host })
    }
}

/// A new key in PEM form, and the request for a certificate of it.
pub(super) fn key_and_request() -> Result<(String, String), LinkError> {
    let make = || {
        let key = KeyPair::generate()?;
        let request = CertificateParams::default().serialize_request(&key)?.pem()?;
        Ok::<_, rcgen::Error>((key.serialize_pem(), request))
    };
    make().map_err(|error| LinkError::Key(error.to_string()))
}

fn authorities(pem: &str) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()).take(MOST_AUTHORITIES) {
        roots.add(certificate.ok()?).ok()?;
    }
    (!roots.is_empty()).then_some(roots)
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())))
}

fn hash(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

pub(crate) fn hex(octets: &[u8]) -> String {
    use std::fmt::Write as _;
    octets.iter().fold(String::with_capacity(octets.len() * 2), |mut text, octet| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{octet:02x}");
        text
    })
}

/// For its owner alone, from the first octet on.
fn private_file(path: &Path) -> io::Result<fs::File> {
    // One that is there from an earlier attempt may have other rights.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    fs::File::open(path)?.take(LARGEST_FILE + 1).read_to_end(&mut octets)?;
    if octets.len() as u64 > LARGEST_FILE {
        return Err(io::Error::other("it is too large"));
    }
    Ok(octets)
}

#[cfg(test)]
mod tests;
