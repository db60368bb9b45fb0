//! A hub and agents of it in this process, with a connection of TLS 1.3 between them, and what agents find inside.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Rtype, ToName as _, Ttl};
use domain::rdata::A;
use model::{ClusterName, DnsName};
use prometheus_client::registry::Registry;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;
use tunnel::inside::{AllowList, Dialler, Names};
use tunnel::{ALPN, Hub, Identity, Metrics, Role, Target};

/// For what should take milliseconds, on a machine that has much else to do.
pub(crate) const SOON: Duration = Duration::from_secs(20);

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
}

fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(issuer.der().clone()).unwrap();
        Authority { issuer, roots: Arc::new(roots) }
    })
}

fn certified(names: Vec<SanType>) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = names;
    let certificate = params.signed_by(&key, &authority().issuer).unwrap();
    (vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
}

/// A hub whose door takes links by their certificates, as the agents' door does.
pub(crate) struct Door {
    pub(crate) hub: Hub,
    pub(crate) address: SocketAddr,
}

impl Door {
    pub(crate) async fn open() -> Self {
        let hub = Hub::new("hub-1", Metrics::register(&mut Registry::default()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&authority().roots), Arc::clone(&provider));
        let (chain, key) = certified(vec![SanType::DnsName("hub.test".try_into().unwrap())]);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let accepting = hub.clone();
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            while let Ok((stream, _)) = listener.accept().await {
                tunnel::tune(&stream);
                let (acceptor, hub) = (acceptor.clone(), accepting.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let certificate = &stream.get_ref().1.peer_certificates().unwrap()[0];
                    let (identity, _) = Identity::of(certificate).unwrap();
                    hub.serve_link(stream, identity, std::future::pending()).await;
                });
            }
        });
        Self { hub, address }
    }

    /// Waits until so many links are up.
    pub(crate) async fn has_links(&self, count: usize) {
        eventually(|| self.hub.links().len() == count).await;
    }
}

/// An agent of a cluster, with one link.
pub(crate) struct Agent {
    pub(crate) serving: JoinHandle<&'static str>,
    pub(crate) drain: CancellationToken,
}

impl Agent {
    /// Finds everything in `*.inside.test` on loopback, and may reach what is there.
    pub(crate) async fn link(cluster: &str, door: SocketAddr) -> Self {
        Self::link_with(cluster, door, dialler(cluster, &["inside.test", "127.0.0.0/8"]).await).await
    }

    pub(crate) async fn link_with(cluster: &str, door: SocketAddr, dialler: Arc<Dialler>) -> Self {
        let identity = Identity {
            role: Role::Agent,
            cluster: cluster.parse().unwrap(),
            uid: "u-1".into(),
            credential: "0123456789abcdef".into(),
        };
        let (chain, key) = certified(vec![SanType::URI(identity.to_string().try_into().unwrap())]);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(Arc::clone(&authority().roots))
            .with_client_auth_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let stream = TcpStream::connect(door).await.unwrap();
        tunnel::tune(&stream);
        let name = ServerName::try_from("hub.test").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let drain = CancellationToken::new();
        let (inside, _) = dialler.on_link();
        let (metrics, draining) = (Metrics::register(&mut Registry::default()), drain.clone());
        let serving = tokio::spawn(async move {
            tunnel::server::serve(stream, inside, &metrics, draining.cancelled(), std::future::pending()).await
        });
        Self { serving, drain }
    }
}

/// Who may reach what, in a cluster whose DNS has `*.inside.test`.
pub(crate) async fn dialler(name: &str, allow: &[&str]) -> Arc<Dialler> {
    let allow = allow.iter().map(|rule| rule.parse().unwrap()).collect();
    let domain = DnsName::parse("cluster.test").unwrap();
    Dialler::new(name.to_owned(), AllowList::new(allow, &domain), Names::new(Some(name_server().await), domain))
}

/// A name server: `metadata.inside.test` leads where it must not, names with `unknown` are, all others are this machine.
async fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut octets = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut octets).await {
            let question = Message::from_octets(&octets[..length]).unwrap();
            let asked = question.sole_question().unwrap();
            let name = asked.qname().to_name::<Vec<u8>>().to_string();
            let rcode = if name.contains("unknown") { Rcode::NXDOMAIN } else { Rcode::NOERROR };
            let mut answer = MessageBuilder::new_vec().start_answer(&question, rcode).unwrap();
            if asked.qtype() == Rtype::A && rcode == Rcode::NOERROR {
                let found =
                    if name.starts_with("metadata") { Ipv4Addr::new(169, 254, 169, 254) } else { Ipv4Addr::LOCALHOST };
                answer.push((asked.qname(), Ttl::ZERO, A::new(found))).unwrap();
            }
            let _ = socket.send_to(&answer.finish(), from).await;
        }
    });
    address
}

pub(crate) fn cluster(name: &str) -> ClusterName {
    name.parse().unwrap()
}

/// Something that listens on loopback, as the hub asks for it.
pub(crate) fn inside(address: SocketAddr) -> Target {
    format!("target.inside.test:{}", address.port()).parse().unwrap()
}

/// A server inside the cluster, each connection of which is treated so.
pub(crate) async fn listen<F>(treat: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(treat(stream));
        }
    });
    address
}

/// Sends back what comes, as it comes.
pub(crate) async fn echo() -> SocketAddr {
    listen(|mut stream| async move {
        let (mut from, mut to) = stream.split();
        tokio::io::copy(&mut from, &mut to).await?;
        to.shutdown().await
    })
    .await
}

/// Sends so many octets once it is asked to by eight that say how many.
pub(crate) async fn source() -> SocketAddr {
    listen(|mut stream| async move {
        let mut left = stream.read_u64().await?;
        let piece = vec![7; 64 << 10];
        while left > 0 {
            let now = piece.len().min(usize::try_from(left).unwrap());
            stream.write_all(&piece[..now]).await?;
            left -= now as u64;
        }
        stream.shutdown().await
    })
    .await
}

pub(crate) async fn eventually(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.expect("it never came to be so");
}
