//! Why a request is not carried, or a connection not served.

use std::net::IpAddr;

use http::StatusCode;
use model::inside::Denied;
use model::{Blame, ClusterName, DnsName};

use crate::authority::HostError;
use crate::head::Malformed;

/// Those who found everything full come back within so many seconds: a table or two later, before anybody gives up.
const SPREAD: u32 = 4;

/// Nothing in it is another tenant's: clients read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the request is malformed: {0}")]
    MalformedRequest(Malformed),
    #[error("{0}")]
    BadHost(HostError),
    #[error("the head of the request is longer than {0} octets")]
    HeadTooLarge(usize),
    #[error("the request has more than {0} header fields")]
    TooManyFields(usize),
    #[error("the head of the request did not come in time")]
    HeadTimeout,
    #[error("the method is not carried")]
    MethodNotCarried,
    #[error("nothing is served under this name and path")]
    NoRoute,
    #[error("the connection was made for another server name")]
    Misdirected,
    #[error("this client may not ask for it")]
    SourceNotAllowed,
    #[error("the body of the request is longer than {0} octets")]
    BodyTooLarge(u64),
    #[error("the body of the request came too slowly")]
    SlowBody,
    #[error("the client did not send all of its request")]
    BodyCut,
    #[error("the request has been here {0} times already")]
    Loop(u32),
    #[error("no cluster serves this at present")]
    NoMember,
    #[error("all clusters that serve this are full; come again in a moment")]
    AllFull,
    #[error("the cluster's ingress could not be reached")]
    Unreachable { cluster: ClusterName, why: String },
    #[error("the cluster's ingress could not be reached through the tunnel: {source}")]
    Inward { cluster: ClusterName, why: String, source: Denied },
    #[error("the cluster's ingress did not prove to be this host")]
    Untrusted { cluster: ClusterName, why: String },
    #[error("the cluster's ingress does not speak HTTP/2, which gRPC needs")]
    NoHttp2 { cluster: ClusterName },
    #[error("the cluster's ingress ended the connection without an answer")]
    NoAnswer { cluster: ClusterName, why: String },
    #[error("the cluster's ingress did not answer in time")]
    AnswerTimeout { cluster: ClusterName },
    #[error("too many requests are under way to this cluster")]
    UpstreamBusy { cluster: ClusterName },
    #[error("the door holds {0} connections and takes no more")]
    TooManyConnections(usize),
    #[error("the door holds {0} connections without a request, and this one had waited longest")]
    TooManyOpenings(usize),
    #[error("{from} has {limit} connections without a request, and this one had waited longest")]
    TooManyOpeningsOfSource { from: IpAddr, limit: usize },
    #[error("the client did not take what it had asked for")]
    Untaken,
    #[error("a trusted proxy has to send a PROXY header of its own first, and sent something else")]
    BadOuterHeader,
    #[error("the TLS hello names no server")]
    NoServerName,
    #[error("there is no certificate for {0}")]
    UnknownServerName(DnsName),
    #[error("the TLS handshake came to nothing")]
    HandshakeFailed,
    #[error("neither a handshake nor a request came in time")]
    OpeningTimeout,
}

impl Refusal {
    /// Fixed words: metric label, log field, response header, what `explain` prints.
    pub fn code(&self) -> &'static str {
        match self {
            Self::MalformedRequest(_) => "MalformedRequest",
            Self::BadHost(_) => "BadHost",
            Self::HeadTooLarge(_) => "HeadTooLarge",
            Self::TooManyFields(_) => "TooManyFields",
            Self::HeadTimeout => "HeadTimeout",
            Self::MethodNotCarried => "MethodNotCarried",
            Self::NoRoute => "NoRoute",
            Self::Misdirected => "Misdirected",
            Self::SourceNotAllowed => "SourceNotAllowed",
            Self::BodyTooLarge(_) => "BodyTooLarge",
            Self::SlowBody => "SlowBody",
            Self::BodyCut => "BodyCut",
            Self::Loop(_) => "Loop",
            Self::NoMember => "NoMember",
            Self::AllFull => "AllFull",
            Self::Unreachable { .. } => "Unreachable",
            Self::Inward { source, .. } => source.code(),
            Self::Untrusted { .. } => "Untrusted",
            Self::NoHttp2 { .. } => "NoHttp2",
            Self::NoAnswer { .. } => "NoAnswer",
            Self::AnswerTimeout { .. } => "AnswerTimeout",
            Self::UpstreamBusy { .. } => "UpstreamBusy",
            Self::TooManyConnections(_) => "TooManyConnections",
            Self::TooManyOpenings(_) => "TooManyOpenings",
            Self::TooManyOpeningsOfSource { .. } => "TooManyOpeningsOfSource",
            Self::Untaken => "Untaken",
            Self::BadOuterHeader => "BadOuterHeader",
            Self::NoServerName => "NoServerName",
            Self::UnknownServerName(_) => "UnknownServerName",
            Self::HandshakeFailed => "HandshakeFailed",
            Self::OpeningTimeout => "OpeningTimeout",
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::NoMember | Self::AllFull => Blame::Author,
            Self::Inward { source, .. } => source.blame(),
            Self::Unreachable { .. }
            | Self::Untrusted { .. }
            | Self::NoHttp2 { .. }
            | Self::NoAnswer { .. }
            | Self::AnswerTimeout { .. } => Blame::Backend,
            Self::UpstreamBusy { .. } | Self::TooManyConnections(_) => Blame::Us,
            _ => Blame::Client,
        }
    }

    /// What the client is told. Those of connections alone are never told: they end before there is a request.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::HeadTooLarge(_) | Self::TooManyFields(_) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::HeadTimeout | Self::SlowBody | Self::OpeningTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::MethodNotCarried => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Loop(_) => StatusCode::LOOP_DETECTED,
            Self::Unreachable { .. } | Self::Untrusted { .. } | Self::NoHttp2 { .. } | Self::NoAnswer { .. } => {
                StatusCode::BAD_GATEWAY
            }
            Self::SourceNotAllowed => StatusCode::FORBIDDEN,
            Self::NoMember | Self::AllFull | Self::UpstreamBusy { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::AnswerTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Inward { source, .. } => match source {
                Denied::NoTunnel | Denied::NoLink | Denied::TooMany => StatusCode::SERVICE_UNAVAILABLE,
                Denied::TimedOut => StatusCode::GATEWAY_TIMEOUT,
                Denied::Forbidden | Denied::UnknownName | Denied::Unreachable | Denied::LinkLost => {
                    StatusCode::BAD_GATEWAY
                }
            },
            Self::MalformedRequest(_)
            | Self::BadHost(_)
            | Self::BodyCut
            | Self::TooManyConnections(_)
            | Self::TooManyOpenings(_)
            | Self::TooManyOpeningsOfSource { .. }
            | Self::Untaken
            | Self::BadOuterHeader
            | Self::NoServerName
            | Self::UnknownServerName(_)
            | Self::HandshakeFailed => StatusCode::BAD_REQUEST,
        }
    }

    /// Seconds after which it is worth another try.
    pub fn retry_after(&self) -> Option<u32> {
        match self {
            Self::NoMember | Self::UpstreamBusy { .. } | Self::Inward { source: Denied::NoLink, .. } => Some(1),
            // Not all at once: whoever is refused together must not come back together.
            Self::AllFull => Some(fastrand::u32(1..=SPREAD)),
            _ => None,
        }
    }

    /// What only the log may know: a tenant's cluster is no business of its clients.
    pub fn detail(&self) -> Option<(&ClusterName, &str)> {
        match self {
            Self::Unreachable { cluster, why }
            | Self::Inward { cluster, why, .. }
            | Self::Untrusted { cluster, why }
            | Self::NoAnswer { cluster, why } => Some((cluster, why)),
            Self::NoHttp2 { cluster } | Self::AnswerTimeout { cluster } | Self::UpstreamBusy { cluster } => {
                Some((cluster, ""))
            }
            _ => None,
        }
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::MalformedRequest(malformed)
    }
}

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        Self::BadHost(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inward(cluster: &ClusterName, source: Denied) -> Refusal {
        Refusal::Inward { cluster: cluster.clone(), why: "ingress.svc:80 inside secret-name".to_owned(), source }
    }

    #[test]
    fn whose_fault_it_is_shows_in_the_status() {
        let cluster: ClusterName = "c1".parse().unwrap();
        for (refusal, status, blame) in [
            (Refusal::NoRoute, 404, Blame::Client),
            (Refusal::Misdirected, 421, Blame::Client),
            (Refusal::BodyTooLarge(1), 413, Blame::Client),
            (Refusal::TooManyFields(100), 431, Blame::Client),
            (Refusal::NoMember, 503, Blame::Author),
            (Refusal::AllFull, 503, Blame::Author),
            (Refusal::Unreachable { cluster: cluster.clone(), why: String::new() }, 502, Blame::Backend),
            (Refusal::SourceNotAllowed, 403, Blame::Client),
            (inward(&cluster, Denied::NoLink), 503, Blame::Backend),
            (inward(&cluster, Denied::Forbidden), 502, Blame::Author),
            (inward(&cluster, Denied::TimedOut), 504, Blame::Backend),
            (inward(&cluster, Denied::NoTunnel), 503, Blame::Us),
            (Refusal::AnswerTimeout { cluster: cluster.clone() }, 504, Blame::Backend),
            (Refusal::UpstreamBusy { cluster }, 503, Blame::Us),
        ] {
            assert_eq!((refusal.status().as_u16(), refusal.blame()), (status, blame), "{}", refusal.code());
            let is_client = refusal.blame() == Blame::Client;
            assert_eq!(refusal.status().is_client_error(), is_client, "{}", refusal.code());
        }
    }

    #[test]
    fn clients_never_read_of_clusters() {
        let cluster: ClusterName = "secret-name".parse().unwrap();
        let why = "10.0.0.7:443: refused".to_owned();
        for refusal in [
            Refusal::Unreachable { cluster: cluster.clone(), why: why.clone() },
            Refusal::Untrusted { cluster: cluster.clone(), why: why.clone() },
            Refusal::NoAnswer { cluster: cluster.clone(), why },
            inward(&cluster, Denied::NoLink),
            Refusal::UpstreamBusy { cluster },
        ] {
            let told = refusal.to_string();
            assert!(!told.contains("secret-name") && !told.contains("10.0.0.7"), "{told}");
        }
    }
}
