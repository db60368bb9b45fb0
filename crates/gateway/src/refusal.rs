//! Why a connection is not carried.

use std::io;
use std::net::SocketAddr;

use model::{Blame, ClusterName, DnsName};

use crate::address::PeerAddr;
use crate::client_hello::HelloError;
use crate::proxy_header::HeaderError;

/// What is logged of an id that nobody has: as much as the longest id that somebody could have.
const SHOWN_ID: usize = model::identity::MAX_CLUSTER_ID;

#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("the client hung up before it had said where to go")]
    HungUp,
    #[error("the door requires a PROXY protocol version 2 header, and the client sent something else")]
    NoHeader,
    #[error("the PROXY header is bad: {0}")]
    BadHeader(HeaderError),
    #[error("the PROXY header had not come in time")]
    HeaderTimeout,
    #[error("the PROXY header selects no cluster")]
    NoClusterId,
    /// As it came, escaped and cut.
    #[error("no cluster has the id \"{0}\"")]
    UnknownClusterId(String),
    #[error("the client does not speak TLS")]
    NotTls,
    #[error("{0}")]
    BadHello(HelloError),
    #[error("the TLS hello had not come in time")]
    HelloTimeout,
    #[error("the client sent no server name")]
    NoServerName,
    #[error("no control plane answers to {0}")]
    UnknownServerName(DnsName),
    #[error("{peer} is not among the allowed sources of Cluster {cluster}")]
    SourceNotAllowed { peer: PeerAddr, cluster: ClusterName },
    #[error("no address of {service} of Cluster {cluster} could be reached, {last} the last: {source}")]
    Unreachable { cluster: ClusterName, service: String, last: SocketAddr, source: io::Error },
    #[error("the door holds {0} connections and takes no more")]
    TooManyConnections(usize),
}

impl Refusal {
    pub(crate) fn unknown_cluster_id(id: &[u8]) -> Self {
        Self::UnknownClusterId(id[..id.len().min(SHOWN_ID)].escape_ascii().to_string())
    }

    /// Fixed words: metric label, log field, what `explain` prints.
    pub fn code(&self) -> &'static str {
        match self {
            Self::HungUp => "HungUp",
            Self::NoHeader => "NoHeader",
            Self::BadHeader(_) => "BadHeader",
            Self::HeaderTimeout => "HeaderTimeout",
            Self::NoClusterId => "NoClusterId",
            Self::UnknownClusterId(_) => "UnknownClusterId",
            Self::NotTls => "NotTls",
            Self::BadHello(_) => "BadHello",
            Self::HelloTimeout => "HelloTimeout",
            Self::NoServerName => "NoServerName",
            Self::UnknownServerName(_) => "UnknownServerName",
            Self::SourceNotAllowed { .. } => "SourceNotAllowed",
            Self::Unreachable { .. } => "Unreachable",
            Self::TooManyConnections(_) => "TooManyConnections",
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::Unreachable { .. } => Blame::Backend,
            Self::TooManyConnections(_) => Blame::Us,
            _ => Blame::Client,
        }
    }

    /// The TLS alert that tells the client, where it is known to speak TLS and may know (RFC 8446 6.2).
    pub(crate) fn alert(&self) -> Option<u8> {
        const DECODE_ERROR: u8 = 50;
        const UNRECOGNIZED_NAME: u8 = 112;
        match self {
            Self::NoServerName | Self::UnknownServerName(_) => Some(UNRECOGNIZED_NAME),
            Self::BadHello(_) => Some(DECODE_ERROR),
            _ => None,
        }
    }
}

impl From<HeaderError> for Refusal {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::NotProxy => Self::NoHeader,
            other => Self::BadHeader(other),
        }
    }
}

impl From<HelloError> for Refusal {
    fn from(error: HelloError) -> Self {
        match error {
            HelloError::NotTls => Self::NotTls,
            other => Self::BadHello(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_nobody_has_are_shown_harmless_and_short() {
        let refusal = Refusal::unknown_cluster_id(b"a\n\"\xff");
        assert_eq!(refusal.to_string(), r#"no cluster has the id "a\n\"\xff""#);
        let Refusal::UnknownClusterId(shown) = Refusal::unknown_cluster_id(&[b'a'; 2000]) else { panic!() };
        assert_eq!(shown.len(), 128);
    }

    #[test]
    fn only_who_may_know_is_told_why() {
        let cluster: ClusterName = "c1".parse().unwrap();
        let peer = PeerAddr("192.0.2.7:1".parse().unwrap());
        for (refusal, alert) in [
            (Refusal::NoServerName, Some(112)),
            (Refusal::UnknownServerName(DnsName::parse("a.test").unwrap()), Some(112)),
            (Refusal::BadHello(HelloError::TooLong), Some(50)),
            (Refusal::NotTls, None),
            (Refusal::NoHeader, None),
            (Refusal::SourceNotAllowed { peer, cluster }, None),
        ] {
            assert_eq!(refusal.alert(), alert, "{}", refusal.code());
        }
    }
}
