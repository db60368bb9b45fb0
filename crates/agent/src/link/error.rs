//! What can go wrong between an agent and the hub, and whose move it is.

use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;
use manifest::agents::Problem;

/// Of a text of the hub's, in characters: more is no explanation.
const LONGEST_REASON: usize = 500;
/// A hub that asks for more is not waited for any longer.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// Cheap to clone: an answer may be told to several who asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("the bootstrap file {path} cannot be used: {reason}; `fleetgate credential issue` on the hub prints one")]
    Bootstrap { path: PathBuf, reason: String },
    #[error("the state folder {path} cannot be used: {reason}")]
    State { path: PathBuf, reason: String },
    #[error("no key could be made: {0}")]
    Key(String),
    #[error("the hub cannot be reached: {0}")]
    Away(String),
    #[error("who answers is not the hub that the bootstrap file names: {0}")]
    Stranger(String),
    #[error("the hub does not take our credential: {reason} ({code}); its operator can issue a new bootstrap file")]
    NotAdmitted { code: String, reason: String },
    #[error("the hub cannot do it right now: {reason} ({code})")]
    Busy { code: String, reason: String, retry_after: Option<Duration> },
    #[error("the hub refuses the request: {reason} ({code})")]
    Refused { code: String, reason: String },
    #[error("the hub's answer cannot be used: {0}")]
    Garbled(String),
}

impl LinkError {
    pub(super) fn of(status: StatusCode, problem: &Problem, retry_after: Option<Duration>) -> Self {
        let (code, reason) = (plain(&problem.code), plain(&problem.reason));
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::NotAdmitted { code, reason },
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Self::Busy { code, reason, retry_after },
            status if status.is_server_error() => Self::Busy { code, reason, retry_after },
            _ => Self::Refused { code, reason },
        }
    }

    /// A fixed word, for metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bootstrap { .. } => "bootstrap",
            Self::State { .. } => "state",
            Self::Key(_) => "key",
            Self::Away(_) => "away",
            Self::Stranger(_) => "stranger",
            Self::NotAdmitted { .. } => "notAdmitted",
            Self::Busy { .. } => "busy",
            Self::Refused { .. } => "refused",
            Self::Garbled(_) => "garbled",
        }
    }

    /// Whether another certificate might help: ours is not taken, or the hub shows one of an authority that we have not
    /// heard of, but that the bootstrap file may name by now.
    pub(crate) fn is_not_admitted(&self) -> bool {
        matches!(self, Self::NotAdmitted { .. } | Self::Stranger(_))
    }

    /// Whether the hub says that the same request would be refused again.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// What the hub asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => retry_after.map(|wait| wait.min(LONGEST_WAIT)),
            _ => None,
        }
    }
}

/// A text from the network, fit for a line of a log.
pub(crate) fn plain(text: &str) -> String {
    text.chars().take(LONGEST_REASON).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_whose_move_it_is() {
        let problem = Problem { code: "Code".into(), reason: "a\nreason".into() };
        for (status, retry_after, code, waits) in [
            (400, None, "refused", None),
            (401, None, "notAdmitted", None),
            (403, None, "notAdmitted", None),
            (408, None, "busy", None),
            (413, None, "refused", None),
            (429, Some(7), "busy", Some(7)),
            (503, Some(100_000), "busy", Some(300)),
            (500, None, "busy", None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = LinkError::of(status, &problem, retry_after.map(Duration::from_secs));
            assert_eq!((error.code(), error.retry_after()), (code, waits.map(Duration::from_secs)), "{status}");
            assert!(error.to_string().contains("a reason (Code)"), "{error}");
        }
    }
}
