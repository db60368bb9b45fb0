//! What the snapshot of the moment says of a cluster and of what its agents claim.

use std::sync::Arc;

use manifest::dns_endpoint::{self, EndpointSpec};
use manifest::kept::Owner;
use manifest::verdict::{self, PartVerdict};
use model::policy::Applicant;
use model::snapshot::Detail;
use model::{ClusterName, Digest, DnsName, ObjectName, ObjectRef, Snapshot};
use ring::digest::{SHA256, digest};

use super::credentials::to_hex;

/// Octets of the key's digest that an object's name has: two keys of one cluster never meet by chance.
const NAME_OCTETS: usize = 8;

/// A cluster that is accepted, and whose tenant is.
pub(super) struct Standing {
    pub(super) owner: Owner,
    pub(super) applicant: Applicant,
    /// The zone that it is in.
    pub(super) apex: DnsName,
}

pub(super) fn of(snapshot: &Snapshot, cluster: &ClusterName) -> Option<Standing> {
    let part = snapshot.cluster(cluster)?;
    let tenant = snapshot.ground().tenant(&part.holding.tenant)?;
    let owner =
        Owner { cluster: cluster.clone(), uid: Arc::clone(&part.holding.uid), namespace: tenant.namespace.clone() };
    let applicant = Applicant { tenant: tenant.name.clone(), cluster: Some(cluster.clone()) };
    Some(Standing { owner, applicant, apex: part.apex.clone() })
}

/// The names at or under which an agent may claim something.
pub(super) fn suffixes(snapshot: &Snapshot, standing: &Standing) -> Vec<String> {
    snapshot.ground().suffixes(&standing.applicant).iter().map(ToString::to_string).collect()
}

/// What an object asks for, as far as verdicts speak of it.
pub(super) struct Content {
    pub(super) digest: Digest,
    /// What its endpoints are called.
    parts: Vec<String>,
}

impl Content {
    pub(super) fn of(endpoints: &[EndpointSpec]) -> Self {
        Self { digest: dns_endpoint::digest(endpoints), parts: endpoints.iter().map(EndpointSpec::part).collect() }
    }
}

/// What became of an object with this content, endpoint by endpoint; none while nobody has come to that.
pub(super) fn verdicts(snapshot: &Snapshot, object: &ObjectRef, content: &Content) -> Vec<PartVerdict> {
    let Some(status) = snapshot.status(object) else { return Vec::new() };
    let mut verdicts = verdict::parts(status);
    if let Detail::Records { digest, .. } = &status.detail {
        if *digest != content.digest {
            return Vec::new();
        }
        // Names that are held come behind.
        verdicts.truncate(content.parts.len());
        return verdicts;
    }
    // Of all of it at once: then that is what became of each.
    let of_each = |part: &String| verdicts.first().map(|all| PartVerdict { part: part.clone(), ..all.clone() });
    content.parts.iter().filter_map(of_each).collect()
}

/// What would become of endpoints.
pub(super) fn judge(snapshot: &Snapshot, standing: &Standing, endpoints: &[EndpointSpec]) -> Vec<PartVerdict> {
    let claims: Vec<_> = endpoints.iter().map(EndpointSpec::claim).collect();
    let judged = snapshot.judge(&standing.applicant, &claims);
    endpoints.iter().zip(&judged).map(|(endpoint, outcome)| PartVerdict::new(&endpoint.part(), outcome)).collect()
}

/// Whether the plan has come to an object with this content, or to its end.
pub(super) fn is_judged(
    snapshot: &Snapshot,
    object: &ObjectRef,
    content: Option<&Content>,
    generation: Option<i64>,
) -> bool {
    match (snapshot.status(object), content) {
        (None, None) => true,
        (Some(status), Some(content)) => match &status.detail {
            // An object that was deleted and made anew counts its generations anew.
            Detail::Records { digest, .. } => *digest == content.digest,
            _ => status.generation >= generation,
        },
        _ => false,
    }
}

/// The name of the object that keeps what is claimed under a key.
pub(super) fn object_name(cluster: &ClusterName, key: &str) -> ObjectName {
    let digest = digest(&SHA256, key.as_bytes());
    let name = format!("{cluster}.{}", to_hex(&digest.as_ref()[..NAME_OCTETS]));
    name.parse().expect("a cluster's name, a dot and digits are an object's name")
}

/// The cluster that an object of claims is kept for.
pub(super) fn cluster_of(object: &ObjectName) -> Option<ClusterName> {
    let (cluster, digest) = object.as_str().split_once('.')?;
    if digest.len() == 2 * NAME_OCTETS { cluster.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objects_name_tells_the_cluster_and_hides_the_key() {
        let cluster: ClusterName = "c1".parse().unwrap();
        let name = object_name(&cluster, "sync/default/web");
        assert_eq!(name.as_str().len(), "c1.".len() + 16);
        assert_ne!(name, object_name(&cluster, "sync/default/web2"));
        assert_eq!(cluster_of(&name), Some(cluster));
        assert_eq!(cluster_of(&"plain".parse().unwrap()), None);
        let longest: ClusterName = "c".repeat(63).parse().unwrap();
        assert_eq!(cluster_of(&object_name(&longest, "")), Some(longest));
    }
}
