//! What an agent says of its cluster's services, as lines of JSON in the body of one request that lasts.

use serde::{Deserialize, Serialize};

/// How long a line may be: the most services, with the longest names and numbers.
pub const MAX_LINE: usize = 256 << 10;
/// Services in one line, and of one cluster in all.
pub const MAX_SERVICES: usize = 1000;

/// One line, and what there is to say of a second. What is not named stays as it was last said, for a minute.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoadLine {
    pub services: Vec<ServiceLoad>,
}

/// Whose it is nobody has to say: the certificate speaks for one cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceLoad {
    pub namespace: String,
    pub name: String,
    /// Requests per second that were answered. JSON has no word for what is no number: it comes as `null`.
    pub served: Option<f64>,
    /// How close the pods are to a limit of theirs, on average; 1 is at it.
    pub utilization: Option<f64>,
    /// Pods that take requests.
    pub ready: i64,
}

/// The answer, when the agent has ended the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadSummary {
    /// Lines that were read.
    pub lines: u64,
    /// Reports that were taken.
    pub reports: u64,
    /// Reports that were not, and lines that came too fast.
    pub dropped: u64,
}
