//! Why a tenant cluster cannot be read. Fixed words and numbers: nothing that its server says is repeated.

use std::io;

use model::reach::Reach;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Away {
    #[error("its API server has not answered yet")]
    NotYet,
    #[error("the name of its API server has no address")]
    NoAddress,
    #[error("the name of its API server leads to a {0} address, to which the controller does not go")]
    Destination(Reach),
    #[error("its API server refuses connections")]
    Refused,
    #[error("there is no way to its API server")]
    NoRoute,
    #[error("its API server does not answer in time")]
    TimedOut,
    #[error(
        "its API server has a certificate that does not come from `certificate-authority-data`, or is for another name"
    )]
    Certificate,
    #[error("its API server and the controller do not agree on TLS")]
    Tls,
    #[error("the connection to its API server broke")]
    Broken,
    #[error("its API server does not accept the credential (401)")]
    Unauthorized,
    #[error("the credential may not list and watch nodes (403)")]
    Forbidden,
    #[error("what it was watched from is gone (410)")]
    Gone,
    #[error("its API server leads elsewhere ({0}), and redirects are not followed")]
    Redirect(u16),
    #[error("its API server answers with status {0}")]
    Status(u16),
    #[error("what answers is no API server: {0}")]
    Malformed(&'static str),
    #[error("its API server sends more than {0}")]
    TooMuch(&'static str),
}

impl Away {
    /// Whether somebody has to do something about the credential.
    pub(super) fn is_refused(self) -> bool {
        matches!(self, Self::Unauthorized | Self::Forbidden)
    }

    pub(super) fn of_status(status: u16) -> Self {
        match status {
            300..=399 => Self::Redirect(status),
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            410 => Self::Gone,
            _ => Self::Status(status),
        }
    }

    pub(super) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::NoRoute,
        }
    }

    pub(super) fn of_handshake(error: &io::Error) -> Self {
        match error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(_)) => Self::Certificate,
            Some(_) => Self::Tls,
            None => Self::Broken,
        }
    }

    /// A metric's label: few, whatever servers do.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::NotYet | Self::TimedOut => "timed_out",
            Self::NoAddress | Self::Destination(_) => "address",
            Self::Refused | Self::NoRoute => "connect",
            Self::Certificate | Self::Tls => "tls",
            Self::Broken => "broken",
            Self::Unauthorized | Self::Forbidden => "unauthorized",
            Self::Gone => "gone",
            Self::Redirect(_) | Self::Status(_) => "status",
            Self::Malformed(_) | Self::TooMuch(_) => "malformed",
        }
    }
}
