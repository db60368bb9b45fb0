//! The listener of `--admission`: HTTPS for the API server, and nobody else.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use rustls::ServerConfig;
use rustls::server::ResolvesServerCert;
use server::{BindError, Bound};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::certificate::provider;
use super::review::Request;
use super::{Admission, PATH};

const FLAG: &str = "--admission";
/// The API server takes requests of 3 MiB, and etcd objects of 1.5 MiB, of which a review has two.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// Bodies that are held at once, in KiB: a controller has a GiB to live in.
const MAX_BODIES: usize = 128 * 1024;
/// Each API server keeps as many as it has writes under way, some hundred at most. Above, the next one waits.
const MAX_CONNECTIONS: usize = 1024;
/// For the handshake, and again for a body. The API server waits for 5 s.
const WITHIN: Duration = Duration::from_secs(5);
/// Until the head of the next request. The API server closes connections that it has not used for 90 s; were we faster, it
/// might use one that is just being closed, and a tenant would be told that we are not there.
const IDLE: Duration = Duration::from_mins(2);

/// Whether the fleet is known.
pub(super) type Informed = Arc<dyn Fn() -> bool + Send + Sync>;

/// It does not answer yet.
pub struct Listener(Bound);

impl Listener {
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Bound::bind(FLAG, address).map(Self)
    }

    /// The address with the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Answers until `stop`, within a tokio runtime.
    pub(super) async fn serve(self, admission: Admission, informed: Informed, stop: CancellationToken) {
        let Some(listener) = self.0.listen() else { return };
        let tls = match tls(Arc::clone(&admission.live) as _) {
            Ok(tls) => tls,
            Err(error) => return tracing::error!(%error, "--admission cannot speak TLS"),
        };
        let door = Door { admission, tls, informed, bodies: Arc::new(Semaphore::new(MAX_BODIES)) };
        server::accept(listener, FLAG, MAX_CONNECTIONS, &stop, |stream, _| door.clone().answer(stream, stop.clone()))
            .await;
    }
}

fn tls(certificates: Arc<dyn ResolvesServerCert>) -> Result<TlsAcceptor, rustls::Error> {
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}

#[derive(Clone)]
struct Door {
    admission: Admission,
    tls: TlsAcceptor,
    informed: Informed,
    bodies: Arc<Semaphore>,
}

impl Door {
    /// All requests of one connection. Who goes away, or speaks no TLS or no HTTP, is nothing to speak of.
    async fn answer(self, stream: TcpStream, stop: CancellationToken) {
        let handshake = stop.run_until_cancelled(timeout(WITHIN, self.tls.accept(stream)));
        let Some(Ok(Ok(stream))) = handshake.await else { return };
        let service = service_fn(|request| async { Ok::<_, Infallible>(self.decide(request).await) });
        server::converse(&server::http(IDLE), stream, service, stop.cancelled()).await;
    }

    async fn decide(&self, request: http::Request<Incoming>) -> Response<Full<Bytes>> {
        let known = self.admission.live.kept().map(|kept| super::path(&kept.token));
        if known.as_deref() != Some(request.uri().path()) {
            return refuse(StatusCode::NOT_FOUND, &format!("there is {PATH} and a token here, and nothing else"));
        }
        if request.method() != Method::POST {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "AdmissionReviews are posted");
        }
        // Half a fleet is no fleet: without it everybody would be nobody's tenant, and everything would pass.
        if !(self.informed)() {
            return too_early();
        }
        let announced = request.body().size_hint().upper().and_then(|size| usize::try_from(size).ok());
        if announced.is_some_and(|size| size > MAX_BODY) {
            return too_large();
        }
        let kibibytes = u32::try_from(announced.unwrap_or(MAX_BODY) / 1024 + 1).unwrap_or(u32::MAX);
        let read = async {
            let room = self.bodies.acquire_many(kibibytes).await;
            let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
            (room, body)
        };
        let Ok((_room, body)) = timeout(WITHIN, read).await else {
            return refuse(StatusCode::REQUEST_TIMEOUT, "the review did not come in time");
        };
        let body = match body {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => return too_large(),
            Err(_) => return refuse(StatusCode::BAD_REQUEST, "the review did not come whole"),
        };
        let begun = Instant::now();
        let answer = match Request::read(&body) {
            Ok(review) => match self.admission.review(&review) {
                Some(answer) => answer,
                None => return too_early(),
            },
            Err(reason) => {
                self.admission.metrics.count("noReview", begun.elapsed());
                let shown: String = reason.chars().take(300).collect();
                return refuse(StatusCode::BAD_REQUEST, &format!("this is no AdmissionReview: {shown}"));
            }
        };
        let mut response = Response::new(Full::from(answer.to_string()));
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        response
    }
}

fn too_early() -> Response<Full<Bytes>> {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "the fleet is not known yet; ask again in a moment")
}

fn too_large() -> Response<Full<Bytes>> {
    refuse(StatusCode::PAYLOAD_TOO_LARGE, &format!("a review has at most {MAX_BODY} octets"))
}

/// Whoever asks for something else does not keep its place.
fn refuse(status: StatusCode, reason: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{reason}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    response
}
