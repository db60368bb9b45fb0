//! Backends: what stands behind a member's ingress, or is one. None of it is ours.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};

use http::{Request, Response};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::ingress::Certificate;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Keeps everything that it gets, request by request, and answers each with its path and body.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Recorded>>>,
    streams: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    /// As it came.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// What stood behind a chunked body.
    pub(crate) trailers: String,
    /// The number of its connection.
    pub(crate) connection: usize,
}

impl Recorded {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }
}

impl Recorder {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        let streams = Arc::new(Mutex::new(Some(Vec::new())));
        let open = Arc::clone(&streams);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (kept, stream) = (Arc::clone(&kept), stream.unwrap());
                match open.lock().unwrap().as_mut() {
                    Some(open) => open.push(stream.try_clone().unwrap()),
                    None => return,
                }
                std::thread::spawn(move || record(stream, number, &kept));
            }
        });
        Self { address, requests, streams }
    }

    /// Ends at once, as a process that is killed: all connections, and the listener.
    pub(crate) fn kill(&self) {
        for stream in self.streams.lock().unwrap().take().unwrap() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        // Which lets the listener go.
        drop(TcpStream::connect(self.address));
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn last(&self) -> Recorded {
        self.requests().pop().unwrap()
    }
}

fn record(stream: TcpStream, connection: usize, kept: &Mutex<Vec<Recorded>>) -> Option<()> {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                // What nobody could answer is kept as well.
                if !head.is_empty() {
                    kept.lock().unwrap().push(Recorded { head, body: Vec::new(), trailers: String::new(), connection });
                }
                return None;
            }
        }
        let mut request = Recorded { head, body: Vec::new(), trailers: String::new(), connection };
        if let Some(length) = request.header("content-length") {
            request.body = vec![0; length.parse().unwrap()];
            reader.read_exact(&mut request.body).ok()?;
        } else if request.header("transfer-encoding").is_some() {
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).ok()?;
                let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
                if size == 0 {
                    while !format!("\r\n{}", request.trailers).ends_with("\r\n\r\n") {
                        reader.read_line(&mut request.trailers).ok()?;
                    }
                    break;
                }
                let mut chunk = vec![0; size + 2];
                reader.read_exact(&mut chunk).ok()?;
                chunk.truncate(size);
                request.body.extend(chunk);
            }
        }
        let body = [request.path().as_bytes(), b" ", &request.body].concat();
        kept.lock().unwrap().push(request);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        writer.write_all(&[head.as_bytes(), &body].concat()).ok()?;
    }
}

/// Says the same to everybody who connects, whatever they say first; without answers it reads and hangs up.
pub(crate) fn scripted(answers: &'static [&'static [u8]]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut buffer = vec![0; 64 << 10];
                if answers.is_empty() {
                    let _ = stream.read(&mut buffer);
                    return;
                }
                for answer in answers {
                    if stream.read(&mut buffer).unwrap_or(0) == 0 {
                        return;
                    }
                    let _ = stream.write_all(answer);
                }
                // Until the other end is done: an end with octets unread would be a reset.
                while stream.read(&mut buffer).unwrap_or(0) > 0 {}
            });
        }
    });
    address
}

pub(crate) type Body = http_body_util::combinators::BoxBody<Bytes, hyper::Error>;

pub(crate) fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// A server of hyper's; with a certificate it speaks TLS, and HTTP/2 where `alpn` says so.
pub(crate) fn serve<F, R>(tls: Option<(&Certificate, &[&str])>, answer: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    let acceptor = tls.map(|(certificate, protocols)| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificate.chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let key = PrivateKeyDer::try_from(certificate.key.clone()).unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    runtime().spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request| {
                    let answer = answer.clone();
                    async move { Ok::<_, Infallible>(answer(request).await) }
                });
                let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let http1 = hyper::server::conn::http1::Builder::new();
                let Some(acceptor) = acceptor else {
                    let mut first = [0; 3];
                    let _ = stream.peek(&mut first).await;
                    let stream = TokioIo::new(stream);
                    if first == *b"PRI" {
                        let _ = http2.serve_connection(stream, service).await;
                    } else {
                        let _ = http1.serve_connection(stream, service).with_upgrades().await;
                    }
                    return;
                };
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let stream = TokioIo::new(stream);
                if is_http2 {
                    let _ = http2.serve_connection(stream, service).await;
                } else {
                    let _ = http1.serve_connection(stream, service).with_upgrades().await;
                }
            });
        }
    });
    address
}

pub(crate) fn text(text: impl Into<Bytes>) -> Body {
    use http_body_util::BodyExt as _;
    http_body_util::Full::new(text.into()).map_err(|never| match never {}).boxed()
}
