//! Why a question has no answer. Nothing in these texts is another cluster's.

use crate::message::{Extended, Remark};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No agent of the cluster is linked.
    NoLink,
    /// The agent does not let the hub reach the cluster's DNS.
    Forbidden,
    /// Nobody answered in time.
    NoAnswer,
    /// Nobody could be asked.
    Network,
    /// Who was asked says that it cannot tell.
    Server,
    /// The answer is none.
    Garbled,
    /// The answer leads to the machine that asks, or to the hub.
    Misleading,
    /// Aliases lead to aliases without end.
    Aliases,
    /// The question has been here before.
    Loop,
    /// The cluster has too many questions under way.
    TooMany,
}

impl Failure {
    /// Fixed words, for metrics.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::NoLink => "NoLink",
            Self::Forbidden => "Forbidden",
            Self::NoAnswer => "NoAnswer",
            Self::Network => "Network",
            Self::Server => "ServerFailure",
            Self::Garbled => "GarbledAnswer",
            Self::Misleading => "MisleadingAnswer",
            Self::Aliases => "TooManyAliases",
            Self::Loop => "Loop",
            Self::TooMany => "TooManyQuestions",
        }
    }

    /// What who asked is told beside SERVFAIL.
    pub(crate) fn remark(self) -> Remark {
        let (code, text) = match self {
            Self::NoLink => {
                (Extended::NoReachableAuthority, "no agent of the cluster is linked, and nothing else knows the name")
            }
            Self::Forbidden => {
                (Extended::Prohibited, "the agent's --allow does not let the hub reach the cluster's DNS")
            }
            Self::NoAnswer => (Extended::NoReachableAuthority, "no DNS server answered in time"),
            Self::Network => (Extended::NetworkError, "no DNS server could be reached"),
            Self::Server => (Extended::NoReachableAuthority, "the DNS server that was asked could not tell"),
            Self::Garbled => (Extended::NetworkError, "the DNS server's answer cannot be used"),
            Self::Misleading => (
                Extended::Blocked,
                "the answer leads to the machine that asks, to its cloud's own services or to the hub",
            ),
            Self::Aliases => (Extended::Other, "aliases lead to aliases for too long"),
            Self::Loop => (Extended::Other, "the question came back to the resolver that had sent it: a loop"),
            Self::TooMany => (Extended::Other, "too many questions of this control plane are under way"),
        };
        Remark { code, text }
    }
}
