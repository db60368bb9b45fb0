//! Why a connection is not carried.

use std::io;
use std::net::{IpAddr, SocketAddr};

use model::inside::{Denied, InnerTarget};
use model::{Blame, ClusterName, DnsName, ObjectName};

use crate::client_hello::HelloError;
use crate::limits::openings::Source;
use crate::outer_header::OuterHeaderError;
use crate::proof::{Malformed, ProofError, ReplayError, VALID_FOR};
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
    #[error("Cluster {0} requires a proof, and the PROXY header has none")]
    ProofMissing(ClusterName),
    #[error("the proof for Cluster {cluster} is malformed: {source}")]
    ProofMalformed { cluster: ClusterName, source: Malformed },
    #[error("no key of Cluster {0} made the proof")]
    ProofWrongKey(ClusterName),
    #[error("the proof for Cluster {cluster} is {age} s old; it was valid for {VALID_FOR} s")]
    ProofExpired { cluster: ClusterName, age: u64 },
    #[error("the proof for Cluster {cluster} is from {ahead} s ahead; clocks may differ by {VALID_FOR} s")]
    ProofFromTheFuture { cluster: ClusterName, ahead: u64 },
    #[error("the proof for Cluster {0} has been used already")]
    ProofReplayed(ClusterName),
    #[error("too many proofs were used of late to remember this one for Cluster {0}")]
    ProofMemoryFull(ClusterName),
    #[error("a trusted proxy has to send a PROXY header of its own first, and sent something else")]
    OuterHeaderMissing,
    #[error("the trusted proxy's own PROXY header is bad: {0}")]
    BadOuterHeader(OuterHeaderError),
    #[error("the client does not speak TLS")]
    NotTls,
    #[error("{0}")]
    BadHello(HelloError),
    #[error("the TLS hello had not come in time")]
    HelloTimeout,
    #[error("the client sent no server name")]
    NoServerName,
    #[error("no control plane or application answers to {0}")]
    UnknownServerName(DnsName),
    #[error("{client} is not among the allowed sources of Cluster {cluster}")]
    SourceNotAllowed { client: IpAddr, cluster: ClusterName },
    #[error("no address of {service} of Cluster {cluster} could be reached, {last} the last: {source}")]
    Unreachable { cluster: ClusterName, service: String, last: SocketAddr, source: io::Error },
    #[error("{target} inside Cluster {cluster} could not be reached through the tunnel: {source}")]
    Inward { cluster: ClusterName, target: InnerTarget, source: Denied },
    #[error("the door holds {0} connections and takes no more")]
    TooManyConnections(usize),
    #[error("the door holds {0} connections that have not said where to go, and this one had waited longest")]
    TooManyOpenings(u32),
    #[error("{from} has {limit} connections that have not said where to go, and this one had waited longest")]
    TooManyOpeningsOfSource { from: Source, limit: u32 },
    #[error("Cluster {cluster} has {limit} connections and may not have more")]
    ClusterConnections { cluster: ClusterName, limit: u32 },
    #[error("Cluster {cluster} may have {limit} new connections per second and has had them")]
    ClusterRate { cluster: ClusterName, limit: u32 },
    #[error("Tenant {tenant} has {limit} connections and may not have more, not for Cluster {cluster} either")]
    TenantConnections { tenant: ObjectName, cluster: ClusterName, limit: u32 },
    #[error("Tenant {tenant} may have {limit} new connections per second and has had them, this for Cluster {cluster}")]
    TenantRate { tenant: ObjectName, cluster: ClusterName, limit: u32 },
}

impl Refusal {
    pub(crate) fn unknown_cluster_id(id: &[u8]) -> Self {
        Self::UnknownClusterId(id[..id.len().min(SHOWN_ID)].escape_ascii().to_string())
    }

    pub fn bad_proof(cluster: &ClusterName, error: ProofError) -> Self {
        let cluster = cluster.clone();
        match error {
            ProofError::Malformed(source) => Self::ProofMalformed { cluster, source },
            ProofError::WrongKey => Self::ProofWrongKey(cluster),
            ProofError::Expired { age } => Self::ProofExpired { cluster, age },
            ProofError::FromTheFuture { ahead } => Self::ProofFromTheFuture { cluster, ahead },
        }
    }

    pub fn spent_proof(cluster: &ClusterName, error: ReplayError) -> Self {
        match error {
            ReplayError::Replayed => Self::ProofReplayed(cluster.clone()),
            ReplayError::Full => Self::ProofMemoryFull(cluster.clone()),
        }
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
            Self::ProofMissing(_) => "ProofMissing",
            Self::ProofMalformed { .. } => "ProofMalformed",
            Self::ProofWrongKey(_) => "ProofWrongKey",
            Self::ProofExpired { .. } => "ProofExpired",
            Self::ProofFromTheFuture { .. } => "ProofFromTheFuture",
            Self::ProofReplayed(_) => "ProofReplayed",
            Self::ProofMemoryFull(_) => "ProofMemoryFull",
            Self::OuterHeaderMissing => "OuterHeaderMissing",
            Self::BadOuterHeader(_) => "BadOuterHeader",
            Self::NotTls => "NotTls",
            Self::BadHello(_) => "BadHello",
            Self::HelloTimeout => "HelloTimeout",
            Self::NoServerName => "NoServerName",
            Self::UnknownServerName(_) => "UnknownServerName",
            Self::SourceNotAllowed { .. } => "SourceNotAllowed",
            Self::Unreachable { .. } => "Unreachable",
            Self::Inward { source, .. } => source.code(),
            Self::TooManyConnections(_) => "TooManyConnections",
            Self::TooManyOpenings(_) => "TooManyOpenings",
            Self::TooManyOpeningsOfSource { .. } => "TooManyOpeningsOfSource",
            Self::ClusterConnections { .. } => "ClusterConnections",
            Self::ClusterRate { .. } => "ClusterRate",
            Self::TenantConnections { .. } => "TenantConnections",
            Self::TenantRate { .. } => "TenantRate",
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::Unreachable { .. } => Blame::Backend,
            Self::Inward { source, .. } => source.blame(),
            Self::TooManyConnections(_) | Self::ProofMemoryFull(_) => Blame::Us,
            _ => Blame::Client,
        }
    }

    /// Whose connection it would have been, where that is known: its cluster counts it.
    pub fn cluster(&self) -> Option<&ClusterName> {
        match self {
            Self::ProofMissing(cluster)
            | Self::ProofMalformed { cluster, .. }
            | Self::ProofWrongKey(cluster)
            | Self::ProofExpired { cluster, .. }
            | Self::ProofFromTheFuture { cluster, .. }
            | Self::ProofReplayed(cluster)
            | Self::ProofMemoryFull(cluster)
            | Self::SourceNotAllowed { cluster, .. }
            | Self::Unreachable { cluster, .. }
            | Self::Inward { cluster, .. }
            | Self::ClusterConnections { cluster, .. }
            | Self::ClusterRate { cluster, .. }
            | Self::TenantConnections { cluster, .. }
            | Self::TenantRate { cluster, .. } => Some(cluster),
            Self::HungUp
            | Self::NoHeader
            | Self::BadHeader(_)
            | Self::HeaderTimeout
            | Self::NoClusterId
            | Self::UnknownClusterId(_)
            | Self::OuterHeaderMissing
            | Self::BadOuterHeader(_)
            | Self::NotTls
            | Self::BadHello(_)
            | Self::HelloTimeout
            | Self::NoServerName
            | Self::UnknownServerName(_)
            | Self::TooManyConnections(_)
            | Self::TooManyOpenings(_)
            | Self::TooManyOpeningsOfSource { .. } => None,
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

impl From<OuterHeaderError> for Refusal {
    fn from(error: OuterHeaderError) -> Self {
        match error {
            OuterHeaderError::NotProxy => Self::OuterHeaderMissing,
            other => Self::BadOuterHeader(other),
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
    fn what_is_wrong_with_a_proof_has_a_code_each() {
        let cluster: ClusterName = "c1".parse().unwrap();
        let bad = |error| Refusal::bad_proof(&cluster, error);
        for (refusal, code, blame) in [
            (Refusal::ProofMissing(cluster.clone()), "ProofMissing", Blame::Client),
            (bad(ProofError::Malformed(Malformed::Length(3))), "ProofMalformed", Blame::Client),
            (bad(ProofError::WrongKey), "ProofWrongKey", Blame::Client),
            (bad(ProofError::Expired { age: 61 }), "ProofExpired", Blame::Client),
            (bad(ProofError::FromTheFuture { ahead: 61 }), "ProofFromTheFuture", Blame::Client),
            (Refusal::spent_proof(&cluster, ReplayError::Replayed), "ProofReplayed", Blame::Client),
            (Refusal::spent_proof(&cluster, ReplayError::Full), "ProofMemoryFull", Blame::Us),
            (OuterHeaderError::NotProxy.into(), "OuterHeaderMissing", Blame::Client),
            (OuterHeaderError::Unended.into(), "BadOuterHeader", Blame::Client),
        ] {
            assert_eq!((refusal.code(), refusal.blame()), (code, blame));
            assert_eq!(refusal.alert(), None, "{code}");
        }
    }

    #[test]
    fn only_who_may_know_is_told_why() {
        let cluster: ClusterName = "c1".parse().unwrap();
        let client = "192.0.2.7".parse().unwrap();
        for (refusal, alert) in [
            (Refusal::NoServerName, Some(112)),
            (Refusal::UnknownServerName(DnsName::parse("a.test").unwrap()), Some(112)),
            (Refusal::BadHello(HelloError::TooLong), Some(50)),
            (Refusal::NotTls, None),
            (Refusal::NoHeader, None),
            (Refusal::SourceNotAllowed { client, cluster }, None),
        ] {
            assert_eq!(refusal.alert(), alert, "{}", refusal.code());
        }
    }
}
