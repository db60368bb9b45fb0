//! Control planes: their credentials, and the door for them (`--egress`), which asks here who is let in.
//!
//! What serves a tenant's API on the hub's side has no token to enrol with: kube-apiserver reads its certificate once. So the operator
//! has one signed, for as long as a credential may be valid, and every connection is checked against the credential as an
//! agent's requests are.

use std::sync::Arc;
use std::time::Duration;

use egress::{Admitting, Gate, NotAdmitted};
use manifest::agents::Certificate;
use manifest::kept::{Credential, Holder};
use rustls::ServerConfig;
use tunnel::{Identity, Role};

use super::authority::MAX_VALID;
use super::request::admit_still;
use super::{CredentialError, Door, MAX_CREDENTIALS, credentials, standing, unix_now};

impl Door {
    /// A certificate for a cluster's control plane. Its key has never been here.
    pub async fn issue_to_control_plane(
        &self,
        cluster: &str,
        csr: &str,
        valid: Duration,
    ) -> Result<(Credential, Certificate), CredentialError> {
        if valid < Duration::from_secs(1) || valid > MAX_VALID {
            return Err(CredentialError::Valid);
        }
        let unknown = || CredentialError::NoSuchCluster(cluster.to_owned());
        let name = cluster.parse().map_err(|_| unknown())?;
        let standing = standing::of(&self.snapshot.load(), &name).ok_or_else(unknown)?;
        let keys = self.keys.load_full().ok_or(CredentialError::NoAuthority)?;
        let (uid, now) = (&standing.owner.uid, unix_now());
        // One that has expired is good for nothing, whoever still has it.
        let counts = |kept: &&Credential| {
            kept.holder == Holder::ControlPlane && kept.cluster == cluster && kept.uid == **uid && now < kept.expires
        };
        if self.home.credentials().await?.iter().filter(counts).count() >= MAX_CREDENTIALS {
            return Err(CredentialError::TooMany(cluster.to_owned()));
        }
        let credential = credentials::of_control_plane((cluster, uid), now, valid);
        let identity = Identity {
            role: Role::ControlPlane,
            cluster: name,
            uid: Arc::clone(uid),
            credential: credential.id.as_str().into(),
        };
        let certificate = keys.signer.sign_control_plane(csr, &identity, now, valid)?;
        self.home.issue(credential.clone()).await?;
        super::tell_issued(&credential);
        Ok((credential, certificate))
    }
}

impl Gate for Door {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.keys.load().as_ref().map(|keys| Arc::clone(&keys.egress))
    }

    fn admit<'a>(&'a self, identity: &'a Identity, expires: u64) -> Admitting<'a> {
        Box::pin(async move {
            let admitted = admit_still(self, identity, expires).await;
            admitted.map(drop).map_err(|no| {
                if no.is_final() {
                    NotAdmitted::Out { code: no.code, reason: no.reason().to_owned() }
                } else {
                    NotAdmitted::Unavailable
                }
            })
        })
    }
}
