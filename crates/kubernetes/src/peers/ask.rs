//! A process' questions to the leader, wherever the Lease says that it is: each over a connection of its own.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use manifest::agents::Certificate;
use model::{ClusterName, ObjectName};
use tokio::sync::watch;
use tokio::time::timeout;

use super::connect::{LinkError, refusal, secure};
use super::desk::{ADMITTED, Answered, Asked, CERTIFICATE, MAX_ASKED, No, SERVICES};
use super::meeting::Meeting;
use super::{Bearer, Fingerprint};

/// All of it. Whoever dials into a cluster waits for 5 s.
const WITHIN: Duration = Duration::from_secs(4);
/// Some thousand endpoints, or as many answers as can be asked for.
const MAX_ANSWER: usize = 4 << 20;

/// Cheap to clone.
#[derive(Clone)]
pub struct Asks {
    /// Where the leader is met.
    pub meeting: watch::Receiver<Option<Meeting>>,
    /// Where we ourselves are met, if so: nobody asks itself.
    pub own: Option<Fingerprint>,
    pub bearer: Option<Bearer>,
}

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody leads, or it does not answer: what was known may count on.
    #[error("no leader answers: {0}")]
    Away(String),
    #[error("the leader says no: {code}: {reason}")]
    Refused { code: String, reason: String },
}

impl Asks {
    /// A certificate for the key of this request, and the authorities to trust.
    pub async fn sign(&self, csr: String) -> Result<Certificate, AskError> {
        let answer = self.ask(Method::POST, CERTIFICATE, csr.into()).await?;
        serde_json::from_slice(&answer).map_err(|error| garbled(&error))
    }

    /// Which of these identities still count, one answer for each; at most [`MAX_ASKED`].
    pub async fn admitted(&self, identities: Vec<String>) -> Result<Vec<Option<No>>, AskError> {
        debug_assert!(identities.len() <= MAX_ASKED);
        let count = identities.len();
        let asked = serde_json::to_vec(&Asked { identities }).map_err(|error| garbled(&error))?;
        let answer = self.ask(Method::POST, ADMITTED, asked.into()).await?;
        let Answered { answers } = serde_json::from_slice(&answer).map_err(|error| garbled(&error))?;
        if answers.len() != count {
            return Err(AskError::Away("it answered something else".into()));
        }
        Ok(answers)
    }

    /// A Service of a tenant's cluster, as the leader's desk writes it.
    pub async fn service(
        &self,
        cluster: &ClusterName,
        namespace: &ObjectName,
        name: &ObjectName,
    ) -> Result<Option<Bytes>, AskError> {
        match self.ask(Method::GET, &format!("{SERVICES}{cluster}/{namespace}/{name}"), Bytes::new()).await {
            Ok(found) => Ok(Some(found)),
            Err(AskError::Refused { code, .. }) if code == "NoSuchService" => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, AskError> {
        let late = |_| AskError::Away("no answer in time".into());
        timeout(WITHIN, self.try_ask(method, path, body)).await.map_err(late)?
    }

    async fn try_ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, AskError> {
        let at = *self.meeting.borrow();
        let at = at.filter(|at| Some(at.certificate) != self.own);
        let at = at.ok_or_else(|| AskError::Away("no leader says where it is met".into()))?;
        let bearer = self
            .bearer
            .as_ref()
            .ok_or_else(|| AskError::Away("this process has no token of a service account".into()))?;
        let token = bearer.header().map_err(|error| AskError::Away(error.to_string()))?;
        let stream = secure(at).await.map_err(|error| away(&error))?;
        let broken = |error: hyper::Error| AskError::Away(crate::watch::chain(&error));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Ends with the answer.
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, HeaderValue::from_static("fleetgate-peers"))
            .header(header::AUTHORIZATION, token)
            .header(header::CONNECTION, HeaderValue::from_static("close"))
            .body(Full::new(body))
            .map_err(|error| AskError::Away(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::SERVICE_UNAVAILABLE => return Err(away(&refusal(response).await)),
            _ => {
                return Err(match refusal(response).await {
                    LinkError::Refused { code, reason } => AskError::Refused { code, reason },
                    error => away(&error),
                });
            }
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        Ok(body.map_err(|error| AskError::Away(error.to_string()))?.to_bytes())
    }
}

fn away(error: &LinkError) -> AskError {
    AskError::Away(error.to_string())
}

fn garbled(error: &serde_json::Error) -> AskError {
    AskError::Away(format!("what it answers is not understood: {error}"))
}
