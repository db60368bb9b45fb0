//! What servers do that no API server of a test bed can be made to do.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use super::away::Away;
use super::link::Link;
use super::watch::{Query, Watched as OfKind};
use crate::kubeconfig::{self, Policy, SecretKey, Server};
use crate::nodes::NodeSet;
use model::reach::Reach;

type Watched = OfKind<NodeSet>;

const LOOPBACK: Policy = Policy { loopback: true };

#[tokio::test]
async fn after_a_410_the_nodes_stay_until_the_new_list_is_complete() {
    let gone = json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410}});
    let mut scripted = Scripted::start(vec![
        whole(&list("5", None, &["n1"])),
        watch(&[gone]),
        whole(&list("9", Some("more"), &["n2"])),
        whole(&list("9", None, &["n3"])),
        watch(&[]),
    ])
    .await;
    let mut watched = Watched::default();
    let mut told = Vec::new();
    let mut link = scripted.link().await;
    assert_eq!(follow(&mut watched, &mut link, &mut told).await, Err(Away::Gone));
    drop(link);
    let mut link = scripted.link().await;
    assert_eq!(follow(&mut watched, &mut link, &mut told).await, Ok(()));
    assert_eq!(told, [vec!["n1"], vec!["n2", "n3"]]);

    let first = scripted.requested().await;
    assert!(first.starts_with("GET /prefix/api/v1/nodes?&limit=50 HTTP/1.1\r\n"), "{first}");
    assert!(first.contains("authorization: Bearer t0ken\r\n"), "{first}");
    let second = scripted.requested().await;
    assert!(second.contains("watch=true") && second.contains("resourceVersion=5"), "{second}");
    assert!(second.contains("timeoutSeconds=5") && second.contains("allowWatchBookmarks=true"), "{second}");
    scripted.requested().await;
    let fourth = scripted.requested().await;
    assert!(fourth.contains("continue=more"), "{fourth}");
}

#[tokio::test]
async fn a_broken_watch_goes_on_where_it_was() {
    let event = |kind: &str, version: &str| json!({"type": kind, "object": node("n2", version)});
    let mut broken = watch(&[event("ADDED", "6")]);
    broken.truncate(broken.len() - 5);
    let mut scripted =
        Scripted::start(vec![whole(&list("5", None, &["n1"])), broken, watch(&[event("DELETED", "7")]), watch(&[])])
            .await;
    let mut watched = Watched::default();
    let mut told = Vec::new();
    let mut link = scripted.link().await;
    assert_eq!(follow(&mut watched, &mut link, &mut told).await, Err(Away::Broken));
    drop(link);
    let mut link = scripted.link().await;
    assert_eq!(follow(&mut watched, &mut link, &mut told).await, Ok(()));
    assert_eq!(told, [vec!["n1"], vec!["n1", "n2"], vec!["n1", "n2"], vec!["n1"]]);
    // Ended as agreed: the same connection takes the next one.
    assert_eq!(follow(&mut watched, &mut link, &mut told).await, Ok(()));
    for version in ["limit", "resourceVersion=5", "resourceVersion=6", "resourceVersion=7"] {
        let request = scripted.requested().await;
        assert!(request.contains(version), "{version}: {request}");
    }
}

#[tokio::test]
async fn answers_that_are_none() {
    let status = |line: &str| format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n").into_bytes();
    let cases = [
        (status("302 Found\r\nLocation: https://192.0.2.1/"), Away::Redirect(302)),
        (status("401 Unauthorized"), Away::Unauthorized),
        (status("403 Forbidden"), Away::Forbidden),
        (status("503 Service Unavailable"), Away::Status(503)),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), Away::Malformed("it speaks no HTTP")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec(), Away::Broken),
        (Vec::new(), Away::Broken),
        (whole("<html>"), Away::Malformed("it sends no list")),
        (whole("{}"), Away::Malformed("it sends no list")),
        (whole(&list("", None, &[])), Away::Malformed("it does not say where its list ends")),
        (whole(&list("1 2", None, &[])), Away::Malformed("it does not say where its list ends")),
        (whole(&" ".repeat(9 << 20)), Away::TooMuch("8 MiB in one page")),
    ];
    for (answer, away) in cases {
        let mut scripted = Scripted::start(vec![answer]).await;
        let mut link = scripted.link().await;
        assert_eq!(follow(&mut Watched::default(), &mut link, &mut Vec::new()).await, Err(away));
        assert!(scripted.requested().await.starts_with("GET /prefix/api/v1/nodes"));
        assert!(scripted.requests.try_recv().is_err(), "one request for {away}");
    }
}

#[tokio::test]
async fn lists_and_lines_without_end_are_given_up() {
    let scripted = Scripted::start(vec![whole(&list("5", Some("more"), &["n1"])); 250]).await;
    let mut link = scripted.link().await;
    let ended = follow(&mut Watched::default(), &mut link, &mut Vec::new()).await;
    assert_eq!(ended, Err(Away::TooMuch("200 pages in one list")));

    let endless = json!({"type": "ADDED", "object": {"padding": " ".repeat(3 << 20)}});
    let scripted = Scripted::start(vec![whole(&list("5", None, &["n1"])), watch(&[endless])]).await;
    let mut link = scripted.link().await;
    let mut watched = Watched::default();
    let ended = follow(&mut watched, &mut link, &mut Vec::new()).await;
    assert_eq!(ended, Err(Away::TooMuch("2 MiB for one object")));
    assert_eq!(watched.kept.to_list().len(), 1);
}

#[tokio::test]
async fn names_are_held_to_the_policy_when_they_are_looked_up() {
    let scripted = Scripted::start(Vec::new()).await;
    let server = scripted.server("localhost");
    let refused = Link::open(Arc::clone(&server), Policy::default()).await;
    assert_eq!(refused.err(), Some(Away::Destination(Reach::Loopback)));
    Link::open(server, LOOPBACK).await.map_err(|away| away.to_string()).unwrap();
}

#[tokio::test]
async fn certificates_of_others_are_not_trusted() {
    let scripted = Scripted::start(Vec::new()).await;
    let mut other = Scripted::start(Vec::new()).await;
    other.port = scripted.port;
    let refused = Link::open(other.server("127.0.0.1"), LOOPBACK).await;
    assert_eq!(refused.err(), Some(Away::Certificate));
}

async fn follow(watched: &mut Watched, link: &mut Link, told: &mut Vec<Vec<String>>) -> Result<(), Away> {
    let tell = |nodes: &NodeSet| told.push(nodes.to_list().iter().map(|node| node.name.clone()).collect());
    watched.follow(link, &Query::nodes(), 5..=5, tell).await
}

fn node(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version}, "status": {}})
}

fn list(version: &str, more: Option<&str>, names: &[&str]) -> String {
    let items: Vec<Value> = names.iter().map(|name| node(name, "1")).collect();
    json!({"kind": "NodeList", "metadata": {"resourceVersion": version, "continue": more}, "items": items}).to_string()
}

fn whole(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn watch(events: &[Value]) -> Vec<u8> {
    let lines = events.iter().map(|event| format!("{event}\n"));
    let chunks: Vec<String> = lines.map(|line| format!("{:x}\r\n{line}\r\n", line.len())).collect();
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    format!("{head}{}0\r\n\r\n", chunks.concat()).into_bytes()
}

/// A TLS server that gives the same answers whatever it is asked. After one that is not a whole answer it hangs up.
struct Scripted {
    port: u16,
    authority: String,
    requests: UnboundedReceiver<String>,
    _task: AbortOnDropHandle<()>,
}

impl Scripted {
    async fn start(answers: Vec<Vec<u8>>) -> Self {
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, requests) = unbounded_channel();
        let task = tokio::spawn(async move {
            let mut answers = answers.into_iter();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                while let Some(request) = request(&mut stream).await {
                    // Nobody listens to the end of every test.
                    let _ = asked.send(request);
                    let Some(answer) = answers.next() else { return };
                    if stream.write_all(&answer).await.is_err() || !is_whole(&answer) {
                        break;
                    }
                }
                let _ = stream.shutdown().await;
            }
        });
        Self { port, authority: certificate.pem(), requests, _task: AbortOnDropHandle::new(task) }
    }

    fn server(&self, host: &str) -> Arc<Server> {
        let authority = serde_json::to_value(k8s_openapi::ByteString(self.authority.clone().into_bytes())).unwrap();
        let kubeconfig = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://{host}:{}/prefix/", self.port), "certificate-authority-data": authority,
            }}],
            "users": [{"name": "u", "user": {"token": "t0ken"}}],
        });
        let secret = SecretKey { namespace: "s".into(), name: "c".into(), key: "kubeconfig".into() };
        Arc::new(kubeconfig::read(&secret, kubeconfig.to_string().as_bytes(), LOOPBACK).unwrap())
    }

    async fn link(&self) -> Link {
        Link::open(self.server("127.0.0.1"), LOOPBACK).await.map_err(|away| away.to_string()).unwrap()
    }

    async fn requested(&mut self) -> String {
        self.requests.recv().await.unwrap()
    }
}

async fn request(stream: &mut TlsStream<TcpStream>) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// Whether another request may follow.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    text.starts_with("HTTP/1.1 200 OK") && (text.ends_with("0\r\n\r\n") || text.ends_with('}'))
}
