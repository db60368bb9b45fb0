//! Why somebody is not heard, or not any more.

use http::StatusCode;

/// The leader's no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "there is POST {0} here, {0}/certificate, {0}/admitted and {0}/services; another version speaks another language",
        super::PATH
    )]
    NoSuchPath,
    #[error("it has to be said who comes: {} and {}", super::EDGE, super::ROLE)]
    Unnamed,
    #[error("the token of a service account has to say who comes")]
    NoToken,
    #[error("the hub's API server does not know this token")]
    BadToken,
    #[error("this account is none of --peers-accounts in the leader's namespace")]
    NotAllowed,
    #[error("this account is none of --peers-link-accounts: it can neither take links of agents nor ask about them")]
    NoLinks,
    #[error("this controller has no --agents: it has no authority that could sign")]
    NoDesk,
    #[error("this cannot be answered right now; the leader's log says why")]
    DeskAway,
    #[error("there is no such Service")]
    NoSuchService,
    #[error("too many wrong tokens came from there")]
    TooManyTries,
    #[error("the hub's API server could not be asked about the token")]
    HubAway,
    #[error("this controller does not lead")]
    NotLeading,
    #[error("{} peers are heard already", super::MAX_PEERS)]
    TooManyPeers,
    #[error("lines that are this long wait for others, and others are not done")]
    Busy,
    #[error("another stream of the same name has begun")]
    Replaced,
    #[error("nothing was said for {} s", super::SILENCE.as_secs())]
    Silent,
    #[error("what is answered was not read for {} s", super::SILENCE.as_secs())]
    Slow,
    #[error("a line has at most {} octets", super::MAX_LINE)]
    TooLarge,
    #[error("a line is not as it should be")]
    Malformed,
    #[error("lines come once a second")]
    TooFast,
    #[error("the stream broke off")]
    BrokenOff,
}

impl Refusal {
    /// Fixed: a metric's label, a log's field.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::NoSuchPath => "NoSuchPath",
            Self::Unnamed => "Unnamed",
            Self::NoToken => "NoToken",
            Self::BadToken => "BadToken",
            Self::NotAllowed => "NotAllowed",
            Self::NoLinks => "NoLinks",
            Self::NoDesk => "NoDesk",
            Self::DeskAway => "DeskAway",
            Self::NoSuchService => "NoSuchService",
            Self::TooManyTries => "TooManyTries",
            Self::HubAway => "HubAway",
            Self::NotLeading => "NotLeading",
            Self::TooManyPeers => "TooManyPeers",
            Self::Busy => "Busy",
            Self::Replaced => "Replaced",
            Self::Silent => "Silent",
            Self::Slow => "Slow",
            Self::TooLarge => "TooLarge",
            Self::Malformed => "Malformed",
            Self::TooFast => "TooFast",
            Self::BrokenOff => "BrokenOff",
        }
    }

    /// For those that come before a stream has begun.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::NoSuchPath | Self::NoSuchService => StatusCode::NOT_FOUND,
            Self::NoToken | Self::BadToken => StatusCode::UNAUTHORIZED,
            Self::NotAllowed | Self::NoLinks => StatusCode::FORBIDDEN,
            Self::TooManyTries => StatusCode::TOO_MANY_REQUESTS,
            Self::HubAway | Self::NotLeading | Self::TooManyPeers | Self::Busy | Self::NoDesk | Self::DeskAway => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::BAD_REQUEST,
        }
    }
}
