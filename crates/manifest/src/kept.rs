//! What a home keeps for the agents' door: the private authority, the credentials, and what agents claim.

use std::fmt;
use std::sync::Arc;

use model::identity::Kind;
use model::{ClusterName, ObjectName, ObjectRef};
use serde::{Deserialize, Serialize};

use crate::dns_endpoint::EndpointSpec;

/// On an object that an agent claimed, beside the label of its cluster: the key that the agent knows it by.
pub const KEY_ANNOTATION: &str = "fleetgate.dev/agent-key";

/// All authorities that are trusted or will be, the oldest first; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Authorities(pub Vec<Authority>);

/// One private authority with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Authority {
    /// Unix seconds.
    pub made: u64,
    /// In PEM form.
    pub certificate: String,
    /// In PEM form.
    pub key: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority(made {}, ..)", self.made)
    }
}

/// Who holds a credential, and so at which door it is good for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holder {
    /// What runs in the tenant's cluster: it enrols with a token.
    #[default]
    Agent,
    /// What serves the tenant's API on the hub's side: it has a certificate from the beginning, and no token.
    ControlPlane,
}

impl Holder {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::ControlPlane => "control-plane",
        }
    }

    // serde gives a reference.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_agent(&self) -> bool {
        *self == Self::Agent
    }
}

/// What an agent may enrol with, without the secret itself; or what a control plane's certificate stands upon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credential {
    /// Public: it stands in certificates and in logs.
    pub id: String,
    pub cluster: String,
    /// A cluster that is deleted and made anew has another one.
    pub uid: String,
    /// Absent for agents, as it was before there were others.
    #[serde(default, skip_serializing_if = "Holder::is_agent")]
    pub holder: Holder,
    /// SHA-256 of the secret, in hexadecimal digits; nothing where there is no secret.
    pub digest: String,
    /// Unix seconds.
    pub issued: u64,
    /// Unix seconds; nobody enrols with it after that.
    pub expires: u64,
}

/// On whose behalf claims are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub cluster: ClusterName,
    pub uid: Arc<str>,
    /// The tenant's.
    pub namespace: ObjectName,
}

impl Owner {
    pub fn object(&self, name: ObjectName) -> ObjectRef {
        ObjectRef { kind: Kind::DnsEndpoint, namespace: Some(self.namespace.clone()), name }
    }
}

/// One object of claims is to be as it says here, or gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimChange {
    pub name: ObjectName,
    pub key: String,
    /// `None`: it is to be gone.
    pub endpoints: Option<Vec<EndpointSpec>>,
}

/// One object of claims as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptClaims {
    pub name: ObjectName,
    pub key: String,
    pub endpoints: Vec<EndpointSpec>,
}
