//! What the door does for other processes of its hub, which have no authority: it signs for their doors. Whose credential
//! counts they ask by the same `egress::Gate` as the door for control planes.

use manifest::agents::Certificate;
use model::Snapshot;

use super::authority::RequestError;
use super::{Door, unix_now};

/// Names in one certificate: an operator has a handful of zones.
const MAX_NAMES: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum NotSigned {
    #[error("the agents' door has no authority yet")]
    NoAuthority,
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl Door {
    /// For the key of a gateway's request: a certificate for the agents' door of all zones, and for egress.
    pub fn sign_gateway(&self, csr: &str) -> Result<Certificate, NotSigned> {
        let keys = self.keys.load_full().ok_or(NotSigned::NoAuthority)?;
        let snapshot = self.snapshot.load();
        let doors = snapshot.zones().filter_map(|zone| Snapshot::agents_door(&zone.apex));
        let mut names: Vec<String> = doors.map(|name| name.to_string()).take(MAX_NAMES).collect();
        names.push(egress::SERVER_NAME.to_owned());
        Ok(keys.signer.sign_gateway(csr, &names, unix_now())?)
    }
}
