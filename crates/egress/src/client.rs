//! The other end of the door: how a side-car gets into its cluster through whichever gateway answers.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tunnel::{Host, Target};

use crate::SERVER_NAME;
use crate::head::{self, Answer};
use crate::refusal::Refusal;
use crate::socket;

/// The files of a credential, as `fleetgate egress credential` writes them.
pub const AUTHORITY: &str = "ca.crt";
pub const CERTIFICATE: &str = "tls.crt";
pub const KEY: &str = "tls.key";
/// Each has a few KiB: what is longer is another file.
const LARGEST_FILE: u64 = 256 << 10;
/// An authority and the one that follows it; more than this are a mistake.
const MOST_AUTHORITIES: usize = 16;
/// Name, TCP and TLS with one gateway: packets cross a region in a hundredth of it, and the next one is tried soon.
const MEET_WITHIN: Duration = Duration::from_millis(1500);
/// What a gateway and the agent behind it may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// With all gateways: clients give up by then.
const ALL_WITHIN: Duration = Duration::from_secs(20);
/// A credential that was renewed may wait so long; connections come by hundreds a second.
const LOOK: Duration = Duration::from_secs(1);
/// Addresses of one gateway that are tried.
const MOST_ADDRESSES: usize = 8;
/// Addresses of gateways that are remembered, to know a loop by.
const MOST_KNOWN: usize = 64;

/// Why a folder is no credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    #[error("reading {}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error("{} holds no {what} in PEM form", path.display())]
    Content { path: PathBuf, what: &'static str },
    #[error("the key in {} is not that of the certificate", .0.display())]
    Mismatch(PathBuf),
}

/// The gateways in their order, and who we are to them.
pub struct Gateways {
    places: Vec<Target>,
    folder: PathBuf,
    kept: Mutex<Kept>,
    /// The one that answered last.
    preferred: AtomicUsize,
    /// Where connections went; the newest last.
    known: Mutex<VecDeque<SocketAddr>>,
}

struct Kept {
    seen: Seen,
    looked: Instant,
    tls: Arc<ClientConfig>,
}

/// By what a changed file is known: which one it is, how long, and since when.
type Seen = [Option<(u64, u64, i64, i64)>; 3];

/// A connection that leads to the target, and what came from there with the answer.
pub(crate) type Connected = (TlsStream<TcpStream>, Bytes);

impl Gateways {
    /// Fails where the credential cannot be used: better now than at the first connection.
    pub fn open(places: Vec<Target>, folder: PathBuf) -> Result<Self, CredentialError> {
        let seen = look(&folder);
        let kept = Mutex::new(Kept { seen, looked: Instant::now(), tls: Arc::new(load(&folder)?) });
        Ok(Self { places, folder, kept, preferred: AtomicUsize::new(0), known: Mutex::default() })
    }

    /// Through the gateway that answered last, or else the next one that does.
    pub(crate) async fn connect(&self, target: &Target) -> Result<Connected, Refusal> {
        let tls = self.tls();
        let deadline = Instant::now() + ALL_WITHIN;
        let first = self.preferred.load(Ordering::Relaxed);
        let mut last = Refusal::NoGateway("none is given".to_owned());
        for number in 0..self.places.len() {
            let number = (first + number) % self.places.len();
            let gateway = &self.places[number];
            match timeout_at(deadline, self.ask(gateway, &tls, target)).await {
                Ok(Ok(connected)) => {
                    self.preferred.store(number, Ordering::Relaxed);
                    return Ok(connected);
                }
                Ok(Err(refusal)) if refusal.is_of_the_gateway() => {
                    tracing::debug!(%gateway, %refusal, "trying the next gateway");
                    last = refusal;
                }
                Ok(Err(refusal)) => {
                    self.preferred.store(number, Ordering::Relaxed);
                    return Err(refusal);
                }
                Err(_) => break,
            }
        }
        Err(last)
    }

    /// Whether it is an address that connections of ours went to.
    pub(crate) fn is_one(&self, address: SocketAddr) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&address)
    }

    async fn ask(&self, gateway: &Target, tls: &Arc<ClientConfig>, target: &Target) -> Result<Connected, Refusal> {
        let away = |why: String| Refusal::NoGateway(format!("{gateway}: {why}"));
        let late = |_| away(format!("no answer within {MEET_WITHIN:?}"));
        let mut stream = timeout(MEET_WITHIN, self.meet(gateway, tls)).await.map_err(late)?.map_err(away)?;
        let question = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        let asking = async {
            stream.write_all(question.as_bytes()).await?;
            stream.flush().await
        };
        asking.await.map_err(|error| away(error.to_string()))?;
        // In TLS 1.3 the gateway's no to our certificate comes only now, as the end of the connection.
        let answer = head::read_answer(&mut stream, ANSWER_WITHIN).await.map_err(|refusal| away(refusal.to_string()));
        let Answer { status, phrase, code, rest } = answer?;
        if status == 200 {
            return Ok((stream, rest));
        }
        let code = code.unwrap_or_else(|| "GatewayRefused".to_owned());
        // Ours say their code first.
        let reason = phrase.strip_prefix(&format!("{code}: ")).unwrap_or(&phrase).to_owned();
        // What is no error is no answer to a CONNECT either.
        let status = if (400..600).contains(&status) { status } else { 502 };
        Err(Refusal::Passed { status, code, reason })
    }

    async fn meet(&self, gateway: &Target, tls: &Arc<ClientConfig>) -> Result<TlsStream<TcpStream>, String> {
        let mut last = "it has no address".to_owned();
        for address in addresses(gateway).await.map_err(|error| error.to_string())? {
            self.remember(address);
            let stream = match TcpStream::connect(address).await {
                Ok(stream) => stream,
                Err(error) => {
                    last = error.to_string();
                    continue;
                }
            };
            socket::prepare(&stream);
            let name = ServerName::try_from(SERVER_NAME).map_err(|error| error.to_string())?;
            match TlsConnector::from(Arc::clone(tls)).connect(name, stream).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error.to_string(),
            }
        }
        Err(last)
    }

    fn remember(&self, address: SocketAddr) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(&address) {
            if known.len() == MOST_KNOWN {
                known.pop_front();
            }
            known.push_back(address);
        }
    }

    /// With the files as they were a moment ago; one that cannot be used leaves things as they were.
    fn tls(&self) -> Arc<ClientConfig> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.looked.elapsed() < LOOK {
            return Arc::clone(&kept.tls);
        }
        kept.looked = Instant::now();
        let seen = look(&self.folder);
        if kept.seen != seen {
            kept.seen = seen;
            match load(&self.folder) {
                Ok(tls) => {
                    kept.tls = Arc::new(tls);
                    tracing::info!(folder = %self.folder.display(), "the credential has changed");
                }
                Err(error) => tracing::error!(%error, "the credential stays as it was"),
            }
        }
        Arc::clone(&kept.tls)
    }
}

async fn addresses(gateway: &Target) -> io::Result<Vec<SocketAddr>> {
    match &gateway.host {
        Host::Address(address) => Ok(vec![SocketAddr::new(canonical(*address), gateway.port)]),
        Host::Name(name) => Ok(lookup_host((name.to_string(), gateway.port)).await?.take(MOST_ADDRESSES).collect()),
    }
}

fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

fn look(folder: &Path) -> Seen {
    [AUTHORITY, CERTIFICATE, KEY].map(|name| {
        let found = fs::metadata(folder.join(name)).ok()?;
        Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
    })
}

fn load(folder: &Path) -> Result<ClientConfig, CredentialError> {
    let content = |path: &Path, what| CredentialError::Content { path: path.to_owned(), what };
    let authority = folder.join(AUTHORITY);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&read(&authority)?).take(MOST_AUTHORITIES) {
        let certificate = certificate.map_err(|_| content(&authority, "certificates"))?;
        roots.add(certificate).map_err(|_| content(&authority, "certificates"))?;
    }
    if roots.is_empty() {
        return Err(content(&authority, "certificates"));
    }
    let own = folder.join(CERTIFICATE);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(&own)?).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| content(&own, "certificate"))?;
    let key_file = folder.join(KEY);
    let key = PrivateKeyDer::from_pem_slice(&read(&key_file)?).map_err(|_| content(&key_file, "private key"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let config = config.expect("ring has what TLS 1.3 needs").with_root_certificates(roots);
    let config = config.with_client_auth_cert(chain, key);
    let mut config = config.map_err(|_| CredentialError::Mismatch(folder.to_owned()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // An earlier session would speak for the certificate before.
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn read(path: &Path) -> Result<Vec<u8>, CredentialError> {
    let unreadable = |reason: String| CredentialError::File { path: path.to_owned(), reason };
    let mut octets = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    file.take(LARGEST_FILE + 1).read_to_end(&mut octets).map_err(|error| unreadable(error.to_string()))?;
    if octets.len() as u64 > LARGEST_FILE {
        return Err(unreadable("it is too large".to_owned()));
    }
    Ok(octets)
}
