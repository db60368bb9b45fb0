//! A way to the leader: one connection, one request, and its answer as it comes.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::bearer::{Bearer, BearerError};
use super::certificate::{Another, pinned_to, server_name};
use super::lines::Lines;
use super::meeting::Meeting;
use super::{EDGE, PATH, Peer, ROLE, SILENCE, wire};

/// TCP and TLS and the head of an answer, within a cluster; a token may have to be reviewed for it.
const CONNECT: Duration = Duration::from_secs(8);
/// Of a no.
const MAX_NO: usize = 4 << 10;

/// Why there is no stream, or not any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("the leader at {} is not reached: {why}", at.address)]
    Away { at: Meeting, why: String },
    #[error("whoever answers at {0} is not the leader: it has another certificate than the Lease names")]
    Stranger(std::net::SocketAddr),
    #[error("the leader says no: {code}: {reason}")]
    Refused { code: String, reason: String },
    #[error(transparent)]
    Bearer(#[from] BearerError),
    #[error("the leader said nothing for {} s", SILENCE.as_secs())]
    Silent,
    #[error("the leader took nothing for {} s", SILENCE.as_secs())]
    Slow,
    #[error("what the leader says is not understood: {0}")]
    Garbled(String),
    #[error("the leader ended the stream")]
    Ended,
}

impl LinkError {
    /// Fixed: a metric's label.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Away { .. } => "Away",
            Self::Stranger(_) => "Stranger",
            Self::Refused { .. } => "Refused",
            Self::Bearer(_) => "NoToken",
            Self::Silent => "Silent",
            Self::Slow => "Slow",
            Self::Garbled(_) => "Garbled",
            Self::Ended => "Ended",
        }
    }

    /// Whether it is of no use to try again soon.
    pub(super) fn is_no(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code != "NotLeading" && code != "Replaced")
            || matches!(self, Self::Stranger(_) | Self::Bearer(_) | Self::Garbled(_))
    }
}

/// What is said goes into the channel; what is answered comes out of the body. The connection goes with the body and the task.
pub(super) async fn open(
    at: Meeting,
    me: &Peer,
    bearer: &Bearer,
) -> Result<(mpsc::Sender<Bytes>, Incoming), LinkError> {
    let late = |_| LinkError::Away { at, why: "no answer in time".to_owned() };
    timeout(CONNECT, try_open(at, me, bearer)).await.map_err(late)?
}

async fn try_open(at: Meeting, me: &Peer, bearer: &Bearer) -> Result<(mpsc::Sender<Bytes>, Incoming), LinkError> {
    let token = bearer.header()?;
    let stream = secure(at).await?;
    let broken = |error: hyper::Error| LinkError::Away { at, why: crate::watch::chain(&error) };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // Ends with both bodies, and its end is told to whoever reads and writes them.
    tokio::spawn(connection);
    let (lines, sent) = mpsc::channel(1);
    let request = Request::post(PATH)
        .header(header::HOST, HeaderValue::from_static("fleetgate-peers"))
        .header(header::AUTHORIZATION, token)
        .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(EDGE, me.name.as_str())
        .header(ROLE, me.role.as_str())
        .body(Lines(sent))
        .map_err(|error| LinkError::Garbled(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(broken)?;
    if response.status().is_success() {
        return Ok((lines, response.into_body()));
    }
    Err(refusal(response).await)
}

/// A connection to whoever has the certificate that the Lease names.
pub(super) async fn secure(at: Meeting) -> Result<TlsStream<TcpStream>, LinkError> {
    let away = |error: io::Error| LinkError::Away { at, why: error.to_string() };
    let stream = TcpStream::connect(at.address).await.map_err(away)?;
    stream.set_nodelay(true).map_err(away)?;
    // Lines are not answered one by one.
    #[cfg(target_os = "linux")]
    SockRef::from(&stream).set_tcp_user_timeout(Some(SILENCE)).map_err(away)?;
    let tls = |error: rustls::Error| LinkError::Away { at, why: error.to_string() };
    let connector = TlsConnector::from(Arc::new(pinned_to(at.certificate).map_err(tls)?));
    let connected = connector.connect(server_name().map_err(tls)?, stream).await;
    connected.map_err(|error| if is_another(&error) { LinkError::Stranger(at.address) } else { away(error) })
}

pub(super) async fn refusal(response: Response<Incoming>) -> LinkError {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_NO).collect().await;
    let told = body.ok().and_then(|body| wire::told(body.to_bytes().trim_ascii()).ok());
    match told {
        Some(wire::Told::No { code, reason }) => LinkError::Refused { code, reason },
        _ => LinkError::Refused { code: "Unexplained".into(), reason: format!("it answered {}", status.as_u16()) },
    }
}

/// Whether TLS came to nothing as it was another certificate.
fn is_another(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other))) = tls else { return false };
    (&*other.0 as &(dyn Error + 'static)).is::<Another>()
}
