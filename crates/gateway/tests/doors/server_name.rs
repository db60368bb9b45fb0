use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway::{DoorKind, Timeouts};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{AlertDescription, ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::fleet::{Fleet, Member, Settings, expect_closed, nobody, snapshot, soon};

/// A control plane with a certificate of its own, which greets with its name.
struct TlsBackend {
    address: SocketAddr,
    certificate: CertificateDer<'static>,
}

async fn tls_backend(name: &'static str) -> TlsBackend {
    let host = format!("api.{name}.fleet.example");
    let made = rcgen::generate_simple_self_signed([host]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let _ = stream.write_all(name.as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    TlsBackend { address, certificate }
}

struct TlsFleet {
    fleet: Fleet,
    backends: Vec<TlsBackend>,
}

impl TlsFleet {
    async fn start() -> Self {
        let backends = vec![tls_backend("c1").await, tls_backend("c2").await];
        let members = ["c1", "c2"].into_iter().zip(&backends).map(|(name, backend)| Member::new(name, backend.address));
        Self { fleet: Fleet::start(DoorKind::ServerName, snapshot(members)), backends }
    }

    async fn tls(&self, name: &'static str, enable_sni: bool) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.backends.iter().map(|backend| backend.certificate.clone()));
        let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.enable_sni = enable_sni;
        let stream = self.fleet.connect().await;
        soon(TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name).unwrap(), stream)).await
    }
}

#[tokio::test]
async fn a_server_name_leads_to_the_right_certificate() {
    let fleet = TlsFleet::start().await;
    for (name, backend) in [("api.c1.fleet.example", 0), ("api.c2.fleet.example", 1), ("API.C1.Fleet.Example", 0)] {
        let mut stream = fleet.tls(name, true).await.unwrap();
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
        assert_eq!(shown, fleet.backends[backend].certificate, "{name}");
        let mut greeting = String::new();
        soon(stream.read_to_string(&mut greeting)).await.unwrap();
        assert_eq!(greeting, ["c1", "c2"][backend]);
    }
    assert_eq!(fleet.fleet.outcomes("sni", "Established"), 3);
}

#[tokio::test]
async fn without_a_known_name_the_client_is_told_so() {
    let fleet = TlsFleet::start().await;
    for (name, enable_sni, outcome) in [
        ("api.c3.fleet.example", true, "UnknownServerName"),
        ("c1.fleet.example", true, "UnknownServerName"),
        ("api.c1.fleet.example", false, "NoServerName"),
    ] {
        let before = fleet.fleet.outcomes("sni", outcome);
        let error = fleet.tls(name, enable_sni).await.unwrap_err();
        let reported = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
        assert_eq!(reported, Some(&rustls::Error::AlertReceived(AlertDescription::UnrecognisedName)), "{name}");
        assert_eq!(fleet.fleet.outcomes("sni", outcome), before + 1, "{name}");
    }
}

#[tokio::test]
async fn what_is_no_tls_is_closed_without_a_word() {
    let fleet = Fleet::start(DoorKind::ServerName, snapshot([Member::new("c1", nobody())]));
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &[0x80, 0x2e, 1, 3, 1]] {
        let mut client = fleet.connect().await;
        client.write_all(bytes).await.unwrap();
        expect_closed(&mut client).await;
    }
    assert_eq!(fleet.outcomes("sni", "NotTls"), 2);
}

#[tokio::test]
async fn a_malformed_hello_gets_a_decode_error() {
    let fleet = Fleet::start(DoorKind::ServerName, snapshot([Member::new("c1", nobody())]));
    let mut client = fleet.connect().await;
    client.write_all(&[22, 3, 1, 0, 4, 1, 0, 0, 0]).await.unwrap();
    let mut answer = Vec::new();
    soon(client.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 50]);
}

#[tokio::test]
async fn a_hello_must_come_in_time() {
    let timeouts = Timeouts { opening: Duration::from_millis(100), ..Timeouts::default() };
    let settings = Settings { timeouts, ..Settings::default() };
    let fleet = Fleet::start_with(DoorKind::ServerName, snapshot([Member::new("c1", nobody())]), &settings);
    let mut client = fleet.connect().await;
    client.write_all(&[22, 3]).await.unwrap();
    expect_closed(&mut client).await;
    assert_eq!(fleet.outcomes("sni", "HelloTimeout"), 1);
}

/// A hello in records of one byte and in segments of one record reaches the server as it was sent.
#[tokio::test]
async fn a_hello_in_crumbs_is_passed_on_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = Member::new("c1", listener.local_addr().unwrap());
    let fleet = Fleet::start(DoorKind::ServerName, snapshot([member]));
    let crumbs = hello_in_crumbs("api.c1.fleet.example");
    let mut client = fleet.connect().await;
    client.set_nodelay(true).unwrap();
    for record in crumbs.chunks(6) {
        client.write_all(record).await.unwrap();
        tokio::task::yield_now().await;
    }
    client.shutdown().await.unwrap();
    let (mut upstream, _) = soon(listener.accept()).await.unwrap();
    let mut received = Vec::new();
    soon(upstream.read_to_end(&mut received)).await.unwrap();
    assert!(received == crumbs);
}

fn hello_in_crumbs(name: &'static str) -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client = rustls::ClientConnection::new(Arc::new(config), ServerName::try_from(name).unwrap()).unwrap();
    let mut record = Vec::new();
    client.write_tls(&mut record).unwrap();
    record[5..].iter().flat_map(|octet| [22, 3, 1, 0, 1, *octet]).collect()
}
