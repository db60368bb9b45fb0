//! What the leader does for others when they ask: it signs, and it knows which credentials still count.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use manifest::agents::Certificate;
use model::{ClusterName, ObjectName};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::PATH;
use super::bearer;
use super::listen::Inner;
use super::refusal::Refusal;

/// A request for a P-256 key has some 500 octets.
pub(super) const MAX_CSR: usize = 8 << 10;
/// Identities that are asked about at once: a gateway with thousands of links asks a few times in 5 s.
pub const MAX_ASKED: usize = 4096;
/// As many, of some 150 octets each.
const MAX_ASKING: usize = 2 << 20;
/// For a body; it comes from within the cluster.
const WITHIN: Duration = Duration::from_secs(5);
/// Questions that are answered at once: 32 MiB at the very most.
pub(super) const AT_ONCE: usize = 16;

pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, DeskError>> + Send + 'a>>;

/// Done by the leader's process.
pub trait Desk: Send + Sync + 'static {
    /// A certificate for the key of this request, for a replica's doors for agents and control planes.
    fn sign<'a>(&'a self, csr: &'a str) -> Answer<'a, Certificate>;

    /// Whether each of these identities (`fleetgate://...`) still counts, or why not.
    fn admitted<'a>(&'a self, identities: &'a [String]) -> Answer<'a, Vec<Option<No>>>;

    /// A Service of a tenant's cluster, as JSON for whoever asks; none where there is none. Nothing is known of any where
    /// nobody looks them up.
    fn service<'a>(
        &'a self,
        _cluster: &'a ClusterName,
        _namespace: &'a ObjectName,
        _name: &'a ObjectName,
    ) -> Answer<'a, Option<Bytes>> {
        Box::pin(std::future::ready(Err(DeskError::Away("nobody looks up Services here".into()))))
    }
}

/// Why an identity does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct No {
    pub code: String,
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    /// It cannot be known or done right now; the reason is for the log.
    #[error("{0}")]
    Away(String),
    /// Whoever asks should ask for something else.
    #[error("{0}")]
    Wrong(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    pub(super) identities: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answered {
    /// One for each that was asked about.
    pub(super) answers: Vec<Option<No>>,
}

/// What can be asked for, beside the stream.
pub(super) enum Call {
    Certificate,
    Admitted,
    Service(ClusterName, ObjectName, ObjectName),
}

pub(super) const CERTIFICATE: &str = "/v1/peers/certificate";
pub(super) const ADMITTED: &str = "/v1/peers/admitted";
pub(super) const SERVICES: &str = "/v1/peers/services/";

impl Call {
    /// None for the stream itself.
    pub(super) fn of(request: &Request<Incoming>) -> Result<Option<Self>, Refusal> {
        let path = request.uri().path();
        let (call, method) = match path {
            PATH => (None, Method::POST),
            CERTIFICATE => (Some(Self::Certificate), Method::POST),
            ADMITTED => (Some(Self::Admitted), Method::POST),
            _ => (Some(Self::service(path).ok_or(Refusal::NoSuchPath)?), Method::GET),
        };
        if *request.method() == method { Ok(call) } else { Err(Refusal::NoSuchPath) }
    }

    fn service(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix(SERVICES)?.split('/');
        let (cluster, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        Some(Self::Service(cluster.parse().ok()?, namespace.parse().ok()?, name.parse().ok()?))
    }
}

impl Inner {
    /// One question, of an account that may ask it.
    pub(super) async fn answer(
        &self,
        call: Call,
        request: Request<Incoming>,
        from: SocketAddr,
    ) -> Result<Bytes, Refusal> {
        let token = bearer::token(request.headers().get(header::AUTHORIZATION)).ok_or(Refusal::NoToken)?.to_owned();
        let account = self.reviews.admit(&token, from.ip()).await?;
        if !matches!(call, Call::Service(..)) && !self.may_link(&account).await {
            return Err(Refusal::NoLinks);
        }
        let desk = Arc::clone(self.desk.as_ref().ok_or(Refusal::NoDesk)?);
        let _place = timeout(WITHIN, self.questions.acquire()).await.ok().and_then(Result::ok).ok_or(Refusal::Busy)?;
        match call {
            Call::Certificate => {
                let csr = read(request, MAX_CSR).await?;
                let csr = std::str::from_utf8(&csr).map_err(|_| Refusal::Malformed)?;
                tracing::info!(peer = %from, account = &*account, "a replica's certificate is asked for");
                Ok(to_json(&desk.sign(csr).await.map_err(told)?))
            }
            Call::Admitted => {
                let asked: Asked =
                    serde_json::from_slice(&read(request, MAX_ASKING).await?).map_err(|_| Refusal::Malformed)?;
                if asked.identities.len() > MAX_ASKED {
                    return Err(Refusal::TooLarge);
                }
                let answers = desk.admitted(&asked.identities).await.map_err(told)?;
                Ok(to_json(&Answered { answers }))
            }
            Call::Service(cluster, namespace, name) => {
                let found = desk.service(&cluster, &namespace, &name).await.map_err(told)?;
                found.ok_or(Refusal::NoSuchService)
            }
        }
    }
}

async fn read(request: Request<Incoming>, most: usize) -> Result<Bytes, Refusal> {
    let body = timeout(WITHIN, Limited::new(request.into_body(), most).collect()).await.map_err(|_| Refusal::Silent)?;
    Ok(body
        .map_err(
            |error| if error.is::<http_body_util::LengthLimitError>() { Refusal::TooLarge } else { Refusal::BrokenOff },
        )?
        .to_bytes())
}

fn told(error: DeskError) -> Refusal {
    match error {
        DeskError::Away(why) => {
            tracing::warn!(why, "a process is not answered what it asks");
            Refusal::DeskAway
        }
        DeskError::Wrong(why) => {
            tracing::info!(why, "a process asks for what cannot be");
            Refusal::Malformed
        }
    }
}

fn to_json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}
