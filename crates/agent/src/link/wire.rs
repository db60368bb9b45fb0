//! One request to the hub and its answer: HTTP/1.1 over TLS 1.3, with a bound on everything.

use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::set_tcp_user_timeout;
use rustls::{AlertDescription, ClientConfig};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::LinkError;
use super::error::plain;
use super::identity::Credential;
use crate::place::Place;

/// TCP and TLS with one address: packets cross the world in a tenth of it.
const CONNECT: Duration = Duration::from_secs(3);
/// In milliseconds. Lines of load are not answered one by one: without, a hub that vanished would be sent lines for a quarter of an hour.
const UNACKNOWLEDGED: u32 = 10_000;
/// The question for news waits on one, all others are asked one after the other on a second.
const MOST_IDLE: usize = 2;
/// Addresses that are tried: those of a load balancer in each of a few zones.
const MOST_ADDRESSES: usize = 16;

pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: Cow<'static, str>,
    pub(super) body: Bytes,
    /// Of the answer, in octets.
    pub(super) limit: usize,
    /// From the first address that is tried to the last octet of the answer.
    pub(super) patience: Duration,
}

impl Call {
    pub(super) fn get(path: impl Into<Cow<'static, str>>, limit: usize, patience: Duration) -> Self {
        Self { method: Method::GET, path: path.into(), body: Bytes::new(), limit, patience }
    }
}

pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Vec<u8>,
}

type Sender = SendRequest<Full<Bytes>>;

/// A body that is sent line by line, and ends when nobody has any more.
pub(super) struct Lines(mpsc::Receiver<Bytes>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

/// The connections to the hub.
pub(super) struct Wire {
    hubs: Vec<Place>,
    idle: Mutex<Vec<(Arc<ClientConfig>, Sender)>>,
}

impl Wire {
    pub(super) fn new(hubs: Vec<Place>) -> Self {
        Self { hubs, idle: Mutex::default() }
    }

    pub(super) fn hubs(&self) -> &[Place] {
        &self.hubs
    }

    pub(super) async fn exchange(&self, credential: &Credential, call: &Call) -> Result<Answer, LinkError> {
        let late = |_| LinkError::Away(format!("no answer within {} s", call.patience.as_secs()));
        timeout(call.patience, self.try_exchange(credential, call)).await.map_err(late)?
    }

    /// Everything that is said to the hub may be said twice: a connection that ended while nobody used it costs nothing.
    async fn try_exchange(&self, credential: &Credential, call: &Call) -> Result<Answer, LinkError> {
        while let Some(mut sender) = self.take_idle(&credential.tls) {
            if sender.ready().await.is_ok()
                && let Ok(response) = sender
                    .send_request(request(credential, &call.method, &call.path, Full::new(call.body.clone()))?)
                    .await
            {
                return self.finish(credential, call, sender, response).await;
            }
        }
        let mut sender = self.connect(credential).await?;
        let response = sender
            .send_request(request(credential, &call.method, &call.path, Full::new(call.body.clone()))?)
            .await
            .map_err(|error| broken(&error))?;
        self.finish(credential, call, sender, response).await
    }

    /// A request on a connection of its own, whose body is what is sent on the channel; and what is answered, whenever that is.
    pub(super) async fn open(
        &self,
        credential: &Credential,
        path: &'static str,
        limit: usize,
    ) -> Result<(mpsc::Sender<Bytes>, impl Future<Output = Result<Answer, LinkError>> + use<>), LinkError> {
        let mut sender: SendRequest<Lines> = self.connect(credential).await?;
        let (lines, sent) = mpsc::channel(1);
        let request = request(credential, &Method::POST, path, Lines(sent))?;
        let answer = async move {
            let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
            read(response, limit).await
        };
        Ok((lines, answer))
    }

    async fn finish(
        &self,
        credential: &Credential,
        call: &Call,
        sender: Sender,
        response: Response<Incoming>,
    ) -> Result<Answer, LinkError> {
        let answer = read(response, call.limit).await?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(tls, sender)| Arc::ptr_eq(tls, &credential.tls) && !sender.is_closed());
        if idle.len() < MOST_IDLE {
            idle.push((Arc::clone(&credential.tls), sender));
        }
        Ok(answer)
    }

    fn take_idle(&self, tls: &Arc<ClientConfig>) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // What was opened as somebody else is nobody's any more.
        idle.retain(|(of, sender)| Arc::ptr_eq(of, tls) && !sender.is_closed());
        idle.pop().map(|(_, sender)| sender)
    }

    /// To the first address that answers, of the first hub that has one.
    async fn connect<B>(&self, credential: &Credential) -> Result<SendRequest<B>, LinkError>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let mut last = LinkError::Away("it has no address".into());
        for hub in &self.hubs {
            let addresses = match hub.addresses().await {
                Ok(addresses) => addresses,
                Err(error) => {
                    last = LinkError::Away(format!("{hub}: {error}"));
                    continue;
                }
            };
            for address in addresses.into_iter().take(MOST_ADDRESSES) {
                match timeout(CONNECT, connect(address, credential)).await {
                    Ok(Ok(sender)) => return Ok(sender),
                    Ok(Err(LinkError::Away(why))) => last = LinkError::Away(format!("{hub} at {address}: {why}")),
                    Ok(Err(error)) => last = error,
                    Err(_) => last = LinkError::Away(format!("{hub} at {address}: no connection in time")),
                }
            }
        }
        Err(last)
    }
}

async fn connect<B>(address: SocketAddr, credential: &Credential) -> Result<SendRequest<B>, LinkError>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let away = |error: io::Error| LinkError::Away(error.to_string());
    let stream = TcpStream::connect(address).await.map_err(away)?;
    stream.set_nodelay(true).map_err(away)?;
    set_tcp_user_timeout(&stream, UNACKNOWLEDGED).map_err(|error| away(error.into()))?;
    let connector = TlsConnector::from(Arc::clone(&credential.tls));
    let name = credential.server_name.clone();
    let stream = connector.connect(name, stream).await.map_err(|error| broken(&error))?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    // Its end is told to whoever sends on it.
    tokio::spawn(connection);
    Ok(sender)
}

fn request<B>(credential: &Credential, method: &Method, path: &str, body: B) -> Result<Request<B>, LinkError> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, &credential.host)
        .header(header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(|error| LinkError::Garbled(error.to_string()))
}

async fn read(response: Response<Incoming>, limit: usize) -> Result<Answer, LinkError> {
    let status = response.status();
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|value| value.parse().ok()).map(Duration::from_secs);
    let body = Limited::new(response.into_body(), limit).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            LinkError::Garbled(format!("it is longer than {} MiB", limit >> 20))
        } else {
            broken(&*error)
        }
    })?;
    Ok(Answer { status, retry_after, body: body.to_bytes().into() })
}

/// Whether an alert says that our certificate is not good enough.
fn is_about_us(alert: AlertDescription) -> bool {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked, CertificateUnknown,
        DecryptError, UnknownCA, UnsupportedCertificate,
    };
    matches!(
        alert,
        AccessDenied
            | BadCertificate
            | CertificateExpired
            | CertificateRequired
            | CertificateRevoked
            | CertificateUnknown
            | DecryptError
            | UnknownCA
            | UnsupportedCertificate
    )
}

/// What ended a connection, by what TLS says of it.
pub(crate) fn broken(error: &(dyn Error + 'static)) -> LinkError {
    let mut cause = Some(error);
    let mut text = plain(&error.to_string());
    while let Some(error) = cause {
        // An io::Error shows what it wraps only this way.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls = error.downcast_ref::<rustls::Error>().or_else(|| inner.and_then(|inner| inner.downcast_ref()));
        match tls {
            // In TLS 1.3 the hub's no to our certificate comes after our side of the handshake is done.
            Some(rustls::Error::AlertReceived(alert)) if is_about_us(*alert) => {
                let reason = format!("it ended the connection: {alert:?}");
                return LinkError::NotAdmitted { code: "CertificateRefused".into(), reason };
            }
            Some(rustls::Error::InvalidCertificate(why)) => return LinkError::Stranger(format!("{why:?}")),
            Some(error) => return LinkError::Away(plain(&error.to_string())),
            None => {}
        }
        text = plain(&error.to_string());
        cause = error.source();
    }
    LinkError::Away(text)
}
