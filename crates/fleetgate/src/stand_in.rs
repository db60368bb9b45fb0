//! Small TLS servers that stand in for API servers in the demo: each has a certificate for its cluster's name and says
//! which cluster was reached.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A request to look at fits; nothing reads more.
const MAX_REQUEST: usize = 8 * 1024;
/// Longer than anybody takes to type `openssl s_client` and a line.
const PATIENCE: Duration = Duration::from_mins(1);

/// The certificate authority of one demo.
pub(crate) struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Fleetgate demo");
        let certificate = params.self_signed(&key)?;
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        std::fs::write(path, self.certificate.pem()).with_context(|| format!("writing {}", path.display()))
    }

    fn server_config(&self, name: &str) -> anyhow::Result<ServerConfig> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer)?;
        let private_key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], private_key)?)
    }
}

/// Listens on a free loopback port until the process ends.
pub(crate) async fn start(authority: &Authority, cluster: &str, name: &str) -> anyhow::Result<SocketAddr> {
    let acceptor = TlsAcceptor::from(Arc::new(authority.server_config(name)?));
    let listener = TcpListener::bind("127.0.0.1:0").await.context("binding a stand-in")?;
    let address = listener.local_addr()?;
    let body = format!("You reached the stand-in for the API server of {cluster}, which is called {name}.\n");
    let answer: Arc<str> = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into();
    tokio::spawn(async move {
        loop {
            // A connection that could not be accepted is the client's to make again.
            let Ok((stream, _)) = listener.accept().await else { continue };
            let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
            tokio::spawn(tokio::time::timeout(PATIENCE, async move { greet(stream, &acceptor, &answer).await }));
        }
    });
    Ok(address)
}

async fn greet(stream: TcpStream, acceptor: &TlsAcceptor, answer: &str) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut request = Vec::new();
    while !request.windows(4).any(|octets| octets == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        if stream.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}
