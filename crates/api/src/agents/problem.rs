//! A no of the agents' door. Nothing in it is of another cluster than the one that asks.

use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use manifest::agents::Problem;

use super::home::HomeError;

#[derive(Debug)]
pub(super) struct No {
    status: StatusCode,
    pub(super) code: &'static str,
    reason: String,
    retry_after: Option<Duration>,
}

impl No {
    fn new(status: StatusCode, code: &'static str, reason: impl Into<String>) -> Self {
        Self { status, code, reason: reason.into(), retry_after: None }
    }

    pub(super) fn malformed(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Malformed", reason)
    }

    pub(super) fn too_large(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", reason)
    }

    pub(super) fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "TooSlow", "the body did not come in time")
    }

    pub(super) fn silent() -> Self {
        let reason = "no line of load has come for too long; one a second is expected";
        Self::new(StatusCode::REQUEST_TIMEOUT, "TooSlow", reason)
    }

    pub(super) fn replaced() -> Self {
        let reason = "another agent of this cluster reports its load now; only one of them is heard";
        Self::new(StatusCode::CONFLICT, "Replaced", reason)
    }

    pub(super) fn too_fast(wait: Duration) -> Self {
        let no =
            Self::new(StatusCode::TOO_MANY_REQUESTS, "TooFast", "too many requests; Retry-After says when to go on");
        Self { retry_after: Some(wait), ..no }
    }

    pub(super) fn busy() -> Self {
        let no = Self::new(StatusCode::SERVICE_UNAVAILABLE, "Busy", "too many requests of all agents; try again");
        Self { retry_after: Some(Duration::from_secs(1)), ..no }
    }

    pub(super) fn no_certificate() -> Self {
        let reason = "only /v1/enroll is for those without a client certificate of this hub";
        Self::new(StatusCode::UNAUTHORIZED, "NoCertificate", reason)
    }

    pub(super) fn not_an_agent() -> Self {
        let reason = "the certificate is none of an agent; fleetgate credential issue leads to one";
        Self::new(StatusCode::FORBIDDEN, "NotAnAgent", reason)
    }

    /// Whether the id or the secret is wrong is nobody's business.
    pub(super) fn bad_token() -> Self {
        let reason = "the token is wrong or was revoked; ask for a new one (fleetgate credential issue)";
        Self::new(StatusCode::UNAUTHORIZED, "BadToken", reason)
    }

    pub(super) fn token_expired() -> Self {
        let reason = "the token has expired; ask for a new one (fleetgate credential issue)";
        Self::new(StatusCode::UNAUTHORIZED, "TokenExpired", reason)
    }

    pub(super) fn expired() -> Self {
        let reason = "the client certificate has expired; connect with a new one";
        Self::new(StatusCode::UNAUTHORIZED, "CertificateExpired", reason)
    }

    pub(super) fn revoked() -> Self {
        Self::new(StatusCode::FORBIDDEN, "Revoked", "the credential behind this certificate was revoked")
    }

    pub(super) fn cluster_gone() -> Self {
        let reason = "the cluster that this credential was issued for is gone, was made anew, or is refused";
        Self::new(StatusCode::FORBIDDEN, "ClusterGone", reason)
    }

    pub(super) fn uninformed() -> Self {
        let reason = "the hub has just started and does not know its clusters yet; try again";
        let no = Self::new(StatusCode::SERVICE_UNAVAILABLE, "Unavailable", reason);
        Self { retry_after: Some(Duration::ZERO), ..no }
    }

    /// Whether this agent does not speak for the cluster any more.
    pub(super) fn is_out(&self) -> bool {
        self.status == StatusCode::FORBIDDEN
    }

    /// The same, or its certificate is over: of a control plane, which does not come by another one by itself.
    pub(super) fn is_final(&self) -> bool {
        self.is_out() || self.status == StatusCode::UNAUTHORIZED
    }

    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    pub(super) fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NoSuchPath", "nothing is at this path")
    }

    pub(super) fn wrong_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "WrongMethod", "this path takes another method")
    }

    pub(super) fn no_keys() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Unavailable", "the hub has no authority at the moment; try again")
    }
}

impl From<HomeError> for No {
    fn from(error: HomeError) -> Self {
        if let HomeError::Rejected(reason) = error {
            return Self::malformed(reason);
        }
        if !matches!(error, HomeError::HandingOver) {
            tracing::error!(error = &error as &dyn std::error::Error, "a request of an agent failed");
        }
        let no = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Unavailable",
            "the hub cannot be read or written at the moment; try again",
        );
        Self { retry_after: Some(Duration::from_secs(1)), ..no }
    }
}

impl From<No> for Response<Full<Bytes>> {
    fn from(No { status, code, reason, retry_after }: No) -> Self {
        let problem = serde_json::to_vec(&Problem { code: code.into(), reason }).expect("two texts are JSON");
        let mut response = json(problem);
        *response.status_mut() = status;
        if let Some(wait) = retry_after {
            // Whole seconds (RFC 9110 10.2.3), and never too early.
            let seconds = wait.as_secs().saturating_add(1);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

pub(super) fn json(body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
