//! What is held although nobody asks for it any more, what rests after it was given up, and what somebody has let go or had drained.

use std::collections::BTreeMap;

use manifest::dns_endpoint::EndpointSpec;
use model::identity::Kind;
use model::resource::{Endpoint, HeldClaims, Place, Resting};
use model::{ClusterName, DnsName, FactChange, ObjectName, ObjectRef, Since, Timestamp};
use redb::{ReadableTable as _, TableDefinition};
use serde::{Deserialize, Serialize};

use crate::database::{Database, DatabaseError, Table, key, object};

/// `DNSEndpoint/namespace/name` to a [`HeldRow`] in JSON.
pub(crate) const HELD: Table = TableDefinition::new("held");
/// `name/` or `subtree/` and a name, to a [`RestingRow`] in JSON.
pub(crate) const RESTING: Table = TableDefinition::new("resting");
/// `Zone//name` or `Tenant//name` to the moment until which everything may go, in eight octets.
pub(crate) const RELEASES: Table = TableDefinition::new("releases");
/// `Cluster//name` to the moment since which no federated traffic goes there, in eight octets.
pub(crate) const DRAINS: Table = TableDefinition::new("drains");

const NAME: &str = "name/";
const SUBTREE: &str = "subtree/";

/// Moments are nanoseconds since the Unix epoch.
#[derive(Serialize, Deserialize)]
struct HeldRow {
    tenant: String,
    since: u64,
    held_since: u64,
    cluster: Option<String>,
    endpoints: Vec<EndpointSpec>,
    endpoints_since: Vec<Option<u64>>,
}

#[derive(Serialize, Deserialize)]
struct RestingRow {
    tenant: String,
    cluster: Option<String>,
    until: u64,
}

impl Database {
    /// Returns once it is on disk.
    pub fn remember_held(
        &self,
        held: &[(ObjectRef, Option<HeldClaims>)],
        resting: &[(Place, Option<Resting>)],
    ) -> Result<(), DatabaseError> {
        self.write_with(|transaction| {
            let mut table = transaction.open_table(HELD)?;
            for (object, claims) in held {
                match claims {
                    Some(claims) => {
                        _ = table.insert(key(object).as_str(), encode(&HeldRow::from(claims)).as_slice())?;
                    }
                    None => _ = table.remove(key(object).as_str())?,
                }
            }
            let mut table = transaction.open_table(RESTING)?;
            for (place, resting) in resting {
                let key = match place {
                    Place::Name(name) => format!("{NAME}{name}"),
                    Place::Subtree(name) => format!("{SUBTREE}{name}"),
                };
                match resting {
                    Some(resting) => _ = table.insert(key.as_str(), encode(&RestingRow::from(resting)).as_slice())?,
                    None => _ = table.remove(key.as_str())?,
                }
            }
            Ok(())
        })
    }

    /// Lets go what was held of a Zone or a Tenant until then. Returns once it is on disk; the home is told.
    pub fn release(&self, object: &ObjectRef, until: Timestamp) -> Result<(), DatabaseError> {
        let until = self.write_with(|transaction| {
            let mut table = transaction.open_table(RELEASES)?;
            let known = table.get(key(object).as_str())?.and_then(|value| moment(value.value()));
            let until = known.map_or(until, |known| known.max(until));
            table.insert(key(object).as_str(), until.0.to_be_bytes().as_slice())?;
            Ok(until)
        })?;
        self.mailbox.post_order(object.clone(), FactChange::Released(object.clone(), until));
        Ok(())
    }

    /// Has no federated traffic sent to a cluster since then, or sends it there again. Returns once it is on disk; the home is
    /// told.
    pub fn drain(&self, cluster: &ClusterName, since: Option<Timestamp>) -> Result<(), DatabaseError> {
        let object = ObjectRef::cluster_scoped(Kind::Cluster, cluster.into());
        self.write_with(|transaction| {
            let mut table = transaction.open_table(DRAINS)?;
            match since {
                Some(since) => _ = table.insert(key(&object).as_str(), since.0.to_be_bytes().as_slice())?,
                None => _ = table.remove(key(&object).as_str())?,
            }
            Ok(())
        })?;
        self.mailbox.post_order(object, FactChange::Drained(cluster.clone(), since));
        Ok(())
    }

    /// What an earlier process held, had rest and was told to let go or to drain.
    pub(crate) fn recall_held(&self) -> Result<Vec<FactChange>, DatabaseError> {
        let wrong = |place: &str| DatabaseError::Entry(place.into());
        let mut facts = Vec::new();
        self.visit(RELEASES, "", |place, value| {
            let read = || Some(FactChange::Released(object(place)?, moment(value)?));
            facts.push(read().ok_or_else(|| wrong(place))?);
            Ok(())
        })?;
        self.visit(DRAINS, "", |place, value| {
            let cluster = || object(place)?.name.as_str().parse().ok();
            let read = || Some(FactChange::Drained(cluster()?, Some(moment(value)?)));
            facts.push(read().ok_or_else(|| wrong(place))?);
            Ok(())
        })?;
        let mut held: BTreeMap<ObjectName, Vec<HeldClaims>> = BTreeMap::new();
        self.visit(HELD, "", |place, value| {
            let read = || serde_json::from_slice::<HeldRow>(value).ok()?.into_model(object(place)?);
            let claims = read().ok_or_else(|| wrong(place))?;
            held.entry(claims.tenant.clone()).or_default().push(claims);
            Ok(())
        })?;
        facts.extend(held.into_iter().map(|(tenant, held)| FactChange::Held(tenant, held)));
        let mut resting = Vec::new();
        self.visit(RESTING, "", |place, value| {
            resting.push(rest(place, value).ok_or_else(|| wrong(place))?);
            Ok(())
        })?;
        facts.push(FactChange::Resting(resting));
        Ok(facts)
    }
}

impl From<&HeldClaims> for HeldRow {
    fn from(claims: &HeldClaims) -> Self {
        let readable = claims.endpoints.iter().filter(|endpoint| endpoint.claim.is_ok());
        Self {
            tenant: claims.tenant.to_string(),
            since: claims.since.moment.0,
            held_since: claims.held_since.0,
            cluster: claims.cluster.as_ref().map(ToString::to_string),
            endpoints: readable.clone().filter_map(|at| at.claim.as_ref().ok().map(EndpointSpec::from)).collect(),
            endpoints_since: readable.map(|endpoint| endpoint.since.map(|since| since.0)).collect(),
        }
    }
}

impl HeldRow {
    fn into_model(self, object: ObjectRef) -> Option<HeldClaims> {
        let since = self.endpoints_since.iter().copied().chain(std::iter::repeat(None));
        let endpoints = self.endpoints.iter().zip(since);
        let endpoint =
            |(spec, since): (&EndpointSpec, Option<u64>)| Endpoint { since: since.map(Timestamp), ..spec.to_model() };
        Some(HeldClaims {
            object,
            tenant: self.tenant.parse().ok()?,
            since: Since::at(Timestamp(self.since)),
            held_since: Timestamp(self.held_since),
            cluster: self.cluster.map(|cluster| cluster.parse()).transpose().ok()?,
            endpoints: endpoints.map(endpoint).collect(),
        })
    }
}

impl From<&Resting> for RestingRow {
    fn from(Resting { tenant, cluster, until }: &Resting) -> Self {
        Self { tenant: tenant.to_string(), cluster: cluster.as_ref().map(ToString::to_string), until: until.0 }
    }
}

fn rest(place: &str, value: &[u8]) -> Option<(Place, Resting)> {
    let RestingRow { tenant, cluster, until } = serde_json::from_slice(value).ok()?;
    let name = |text: &str| DnsName::parse(text).ok();
    let place = match place.strip_prefix(NAME) {
        Some(text) => Place::Name(name(text)?),
        None => Place::Subtree(name(place.strip_prefix(SUBTREE)?)?),
    };
    let resting = Resting { tenant: tenant.parse().ok()?, cluster: cluster.map(Into::into), until: Timestamp(until) };
    Some((place, resting))
}

fn moment(value: &[u8]) -> Option<Timestamp> {
    Some(Timestamp(u64::from_be_bytes(value.try_into().ok()?)))
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("it is made of texts and numbers")
}

#[cfg(test)]
mod tests {
    use model::identity::Kind;

    use super::*;

    #[test]
    fn what_was_held_and_rests_is_known_after_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Database::open(folder.path()).unwrap();
        let spec = |name: &str, rtype: &str, target: &str, ttl| EndpointSpec {
            dns_name: name.into(),
            record_type: rtype.into(),
            targets: vec![target.into()],
            record_ttl: ttl,
            ..EndpointSpec::default()
        };
        let specs = [
            spec("www.c1.fleet.example", "A", "192.0.2.1", 60),
            spec("*.c1.fleet.example", "TXT", "\"a \\\"b\\\"\" \"c\"", 0),
            spec("mail.c1.fleet.example", "MX", "10 a.example", 0),
            spec("srv.c1.fleet.example", "SRV", "1 2 3 a.example", 0),
            spec("ca.c1.fleet.example", "CAA", "0 issue \"ca.example\"", 0),
            spec("alias.c1.fleet.example", "CNAME", "a.example", 0),
        ];
        let object = |name: &str| ObjectRef {
            kind: Kind::DnsEndpoint,
            namespace: Some("acme".parse().unwrap()),
            name: name.parse().unwrap(),
        };
        let claims = |name: &str| HeldClaims {
            object: object(name),
            tenant: "acme".parse().unwrap(),
            since: Since::at(Timestamp(3)),
            held_since: Timestamp(7),
            cluster: Some("c1".parse().unwrap()),
            endpoints: specs.iter().map(|spec| Endpoint { since: Some(Timestamp(5)), ..spec.to_model() }).collect(),
        };
        assert!(claims("a").endpoints.iter().all(|endpoint| endpoint.claim.is_ok()));
        let name = DnsName::parse("c1.fleet.example").unwrap();
        let resting = |cluster: Option<&str>| Resting {
            tenant: "acme".parse().unwrap(),
            cluster: cluster.map(Into::into),
            until: Timestamp(9),
        };
        let places = [
            (Place::Name(name.clone()), Some(resting(None))),
            (Place::Subtree(name.clone()), Some(resting(Some("uid")))),
        ];
        let both = [(object("a"), Some(claims("a"))), (object("b"), Some(claims("b")))];
        open().remember_held(&both, &places).unwrap();
        open().remember_held(&[(object("b"), None)], &[(Place::Name(name.clone()), None)]).unwrap();
        let zone = ObjectRef::cluster_scoped(Kind::Zone, "main".parse().unwrap());
        open().release(&zone, Timestamp(11)).unwrap();
        open().release(&zone, Timestamp(10)).unwrap();
        for (cluster, since) in [("c1", Some(13)), ("c2", Some(14)), ("c1", None)] {
            open().drain(&cluster.parse().unwrap(), since.map(Timestamp)).unwrap();
        }
        let expected = [
            FactChange::Released(zone, Timestamp(11)),
            FactChange::Drained("c2".parse().unwrap(), Some(Timestamp(14))),
            FactChange::Held("acme".parse().unwrap(), vec![claims("a")]),
            FactChange::Resting(vec![(Place::Subtree(name), resting(Some("uid")))]),
        ];
        assert_eq!(open().recall_held().unwrap(), expected);
    }
}
