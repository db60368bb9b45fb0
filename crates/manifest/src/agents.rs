//! What agents and the hub say to each other at the agents' door, as JSON over HTTPS.
//!
//! | call | who may | what it does |
//! |---|---|---|
//! | `POST /v1/enroll` | a bootstrap token | [`EnrollRequest`] to [`Certificate`] |
//! | `POST /v1/renew` | a client certificate | [`RenewRequest`] to [`Certificate`] |
//! | `GET /v1/cluster` | a client certificate | [`ClusterView`]: who it speaks for, and what it may claim |
//! | `GET /v1/claims` | a client certificate | [`ClaimList`]: what it claims, with the verdicts |
//! | `POST /v1/claims` | a client certificate | [`ClaimChanges`] to [`VerdictList`] of what was changed, once that is safely kept |
//! | `POST /v1/judge` | a client certificate | [`JudgeRequest`] to [`Judgement`]: what would become of them; changes nothing |
//! | `GET /v1/verdicts?after=N` | a client certificate | [`VerdictList`] of all claims, as soon as its revision is above `N`, within 30 s at the latest |
//! | `POST /v1/load` | a client certificate | [`LoadLine`] after [`LoadLine`] as long as it lasts, to [`LoadSummary`] |
//!
//! A refused record is no refused request: whatever the policy says stands in verdicts. Statuses: 400 what cannot be read,
//! 401 no or no good credential (a revoked token too), 403 a certificate whose credential was revoked or whose cluster is
//! gone, 408 too slow, 409 a newer stream of the same cluster, 413 too large, 429 too fast (with `Retry-After`), 503 the home cannot be written right now, or is not yet known. Every error
//! is a [`Problem`]. HTTP/1.1 over TLS 1.3; a certificate of another authority, or an expired one, does not get past the
//! handshake. A connection ends with the certificate that it was made with.
//!
//! Requests are read strictly: what the hub does not know it does not drop in silence. Answers are read leniently, as a hub may
//! be newer than its agents.

use serde::{Deserialize, Serialize};

use crate::dns_endpoint::EndpointSpec;
use crate::verdict::PartVerdict;

mod load;
mod told;

pub use load::{LoadLine, LoadSummary, MAX_LINE, MAX_SERVICES, ServiceLoad};

/// A request is refused above this: some 10,000 endpoints.
pub const MAX_BODY: usize = 8 << 20;
/// Endpoints of one object: an object of a hub holds 1.5 MiB.
pub const MAX_ENDPOINTS: usize = 1000;
/// How many objects of claims one cluster may have.
pub const MAX_OBJECTS: usize = 10_000;
/// How many endpoints all of them may have together, and one request for a judgement.
pub const MAX_TOTAL: usize = 20_000;
/// How long a key may be.
pub const MAX_KEY: usize = 253;

/// What `fleetgate credential issue` prints, and an agent is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bootstrap {
    /// `fleetgate.` and an id and a secret, separated by dots. Only a hash of the secret is kept.
    pub token: String,
    /// The name in the door's certificate, `agents.<domain>`.
    pub server_name: String,
    /// The hub's private authority, in PEM form.
    pub ca: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnrollRequest {
    pub token: String,
    /// A certificate signing request in PEM form; only its key counts.
    pub csr: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewRequest {
    /// A certificate signing request in PEM form; only its key counts.
    pub csr: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// In PEM form, the agent's own first.
    pub certificate: String,
    /// All authorities to trust from now on: before a change of authority, both.
    pub ca: String,
    /// Unix seconds by the hub's clock, a little before it was signed: how long it lasts does not depend on anybody's clock.
    #[serde(default)]
    pub valid_from: u64,
    /// Unix seconds. To be renewed when two thirds of its time are over.
    pub expires: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    pub cluster: String,
    /// The suffixes at or under which it may claim names; the door may still refuse names there.
    pub suffixes: Vec<String>,
}

/// The claims of one source object, under a key of the agent's own choice: 1 to 253 of `a-z0-9./-`. `sync/NAMESPACE/NAME` is
/// the sync agent's, `external-dns/...` the webhook provider's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Claims {
    pub key: String,
    pub endpoints: Vec<EndpointSpec>,
}

/// Each key is replaced whole or deleted; what is not named stays. In a folder all of it is kept or nothing; a hub keeps one
/// object after the other, so that after an error all of it is to be sent again. The same again is no change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimChanges {
    #[serde(default)]
    pub set: Vec<Claims>,
    #[serde(default)]
    pub delete: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimList {
    pub claims: Vec<JudgedClaims>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JudgedClaims {
    pub key: String,
    #[serde(deserialize_with = "told::endpoints")]
    pub endpoints: Vec<EndpointSpec>,
    /// What the endpoints are recognised by. How it is made is the hub's affair: it is the same in [`ClaimVerdict`] as long as they
    /// are.
    #[serde(default)]
    pub digest: String,
    /// One for each endpoint, in their order; none while nobody has come to them yet.
    pub verdicts: Vec<PartVerdict>,
}

/// What became of claims, by key, in the order of the endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictList {
    /// Rises whenever a verdict of this cluster may be another one. Another process begins anew: any other number than
    /// the one last seen is news.
    pub revision: u64,
    pub verdicts: Vec<ClaimVerdict>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimVerdict {
    pub key: String,
    /// Of the endpoints that the verdicts are about, and that are kept.
    #[serde(default)]
    pub digest: String,
    pub verdicts: Vec<PartVerdict>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JudgeRequest {
    pub endpoints: Vec<EndpointSpec>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judgement {
    /// One for each endpoint, in their order.
    pub verdicts: Vec<PartVerdict>,
}

/// Why a request was not served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A fixed word.
    pub code: String,
    pub reason: String,
}
