//! What the agents' door keeps in a folder's home: the private authority, the credentials, and what agents claim.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use manifest::dns_endpoint::{CLUSTER_LABEL, EndpointSpec};
use manifest::kept::{Authorities, ClaimChange, Credential, KEY_ANNOTATION, KeptClaims, Owner};
use model::{ClusterName, FactChange, ObjectName, ObjectRef, Timestamp};
use redb::{ReadableTable as _, TableDefinition};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::database::{Database, DatabaseError, Record, Table, key};
use crate::watch::Signal;

/// One entry, to [`Authorities`] in JSON.
pub(crate) const AUTHORITIES: Table = TableDefinition::new("authorities");
const ONLY: &str = "agents";
/// An id to a [`Credential`] in JSON.
pub(crate) const CREDENTIALS: Table = TableDefinition::new("credentials");
/// `DNSEndpoint/namespace/name` to a [`ClaimRow`] in JSON.
pub(crate) const CLAIMS: Table = TableDefinition::new("claims");
/// The latest `since` of a claim, in eight octets: a clock that is set back makes nobody senior.
const LATEST: &str = "latest";
pub(crate) const MOMENTS: Table = TableDefinition::new("moments");

/// One object that an agent claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRow {
    /// When it was first claimed, in nanoseconds since the Unix epoch.
    pub since: u64,
    pub cluster: String,
    pub uid: String,
    pub key: String,
    /// Counts its changes.
    pub generation: i64,
    pub endpoints: Vec<EndpointSpec>,
    /// When each of them was first claimed under this key: a new name in an old object is a new one.
    pub endpoints_since: Vec<u64>,
}

impl ClaimRow {
    pub fn since(&self) -> Timestamp {
        Timestamp(self.since)
    }

    /// What comes after `old`, which may have been there.
    fn next(old: Option<&Self>, owner: &Owner, key: String, endpoints: Vec<EndpointSpec>, now: u64) -> Self {
        let name = |endpoint: &EndpointSpec| (endpoint.dns_name.clone(), endpoint.record_type.clone());
        let before = old.into_iter().flat_map(|old| old.endpoints.iter().zip(&old.endpoints_since));
        let before: HashMap<_, u64> = before.map(|(endpoint, since)| (name(endpoint), *since)).collect();
        let since = |endpoint| before.get(&name(endpoint)).copied().unwrap_or(now);
        Self {
            since: old.map_or(now, |old| old.since),
            cluster: owner.cluster.as_str().into(),
            uid: String::from(&*owner.uid),
            key,
            generation: old.map_or(1, |old| old.generation + i64::from(old.endpoints != endpoints)),
            endpoints_since: endpoints.iter().map(since).collect(),
            endpoints,
        }
    }

    /// As a manifest would have it.
    pub(crate) fn record(&self, object: &ObjectRef) -> Record {
        let shown = json!({
            "apiVersion": object.kind.api_version(),
            "kind": object.kind.as_str(),
            "metadata": {
                "name": object.name.as_str(),
                "namespace": object.namespace.as_ref().map(ObjectName::as_str),
                "generation": self.generation,
                "labels": { CLUSTER_LABEL: self.cluster },
                "annotations": { KEY_ANNOTATION: self.key },
            },
            "spec": { "endpoints": self.endpoints },
        });
        let (file, line, beside) = (std::path::PathBuf::new(), 1, BTreeMap::new());
        Record { since: self.since, file, line, text: shown.to_string(), beside }
    }
}

/// Endpoints that are planned together: others' changes wait for no more than that. As many as an object may have.
const TOGETHER: usize = 1000;

/// Claims that changed; by object, so that there are never more than objects.
pub type ChangedClaims = BTreeMap<ObjectRef, Option<ClaimRow>>;

/// Claims that the home has not taken up yet, by namespace: each tenant's come in turn.
#[derive(Default)]
struct Waiting {
    changed: BTreeMap<Option<ObjectName>, ChangedClaims>,
    /// Whose turn it was last.
    last: Option<ObjectName>,
}

impl Waiting {
    fn take(&mut self) -> ChangedClaims {
        let (mut taken, mut endpoints) = (ChangedClaims::new(), 0);
        while endpoints < TOGETHER {
            let after = (Bound::Excluded(&self.last), Bound::Unbounded);
            let next = self.changed.range(after).next().or_else(|| self.changed.first_key_value());
            let Some(namespace) = next.map(|(namespace, _)| namespace.clone()) else { break };
            if let Some((object, row)) = self.changed.get_mut(&namespace).and_then(BTreeMap::pop_first) {
                endpoints += row.as_ref().map_or(1, |row| row.endpoints.len().max(1));
                taken.insert(object, row);
            }
            self.changed.retain(|_, changed| !changed.is_empty());
            self.last = namespace;
        }
        taken
    }
}

/// Between the agents' door, which writes, and the home, which is to hear of it.
#[derive(Default)]
pub(crate) struct Mailbox {
    waiting: Mutex<Waiting>,
    /// What somebody has said of an object, the last word on each.
    orders: Mutex<BTreeMap<ObjectRef, FactChange>>,
    home: Mutex<Option<Sender<Signal>>>,
}

impl Mailbox {
    fn post(&self, changes: impl IntoIterator<Item = (ObjectRef, Option<ClaimRow>)>) {
        {
            let mut waiting = lock(&self.waiting);
            for (object, row) in changes {
                waiting.changed.entry(object.namespace.clone()).or_default().insert(object, row);
            }
        }
        self.remind();
    }

    pub(crate) fn post_order(&self, object: ObjectRef, order: FactChange) {
        lock(&self.orders).insert(object, order);
        self.remind();
    }

    fn remind(&self) {
        if let Some(home) = &*lock(&self.home) {
            // Nobody is there any more when the process ends; the next one reads the table.
            let _ = home.send(Signal::Claims);
        }
    }
}

impl Database {
    pub fn authorities(&self) -> Result<Option<Authorities>, DatabaseError> {
        let found = self.read_with(AUTHORITIES, |table| Ok(table.get(ONLY)?.map(|value| value.value().to_vec())))?;
        found.map(|value| decode(ONLY, &value)).transpose()
    }

    /// Keeps `next` if what is kept is still `known`; says what is kept now.
    pub fn keep_authorities(
        &self,
        known: Option<&Authorities>,
        next: &Authorities,
    ) -> Result<Authorities, DatabaseError> {
        let kept = self.write_with(|transaction| {
            let mut table = transaction.open_table(AUTHORITIES)?;
            let kept = table.get(ONLY)?.map(|value| value.value().to_vec());
            if let Some(kept) = kept
                && known.is_none_or(|known| encode(known) != kept)
            {
                return Ok(Some(kept));
            }
            table.insert(ONLY, encode(next).as_slice())?;
            Ok(None)
        })?;
        kept.map_or_else(|| Ok(next.clone()), |kept| decode(ONLY, &kept))
    }

    pub fn credential(&self, id: &str) -> Result<Option<Credential>, DatabaseError> {
        let found = self.read_with(CREDENTIALS, |table| Ok(table.get(id)?.map(|value| value.value().to_vec())))?;
        found.map(|value| decode(id, &value)).transpose()
    }

    /// In the order of their ids.
    pub fn credentials(&self) -> Result<Vec<Credential>, DatabaseError> {
        let mut credentials = Vec::new();
        self.visit(CREDENTIALS, "", |id, value| {
            credentials.push(decode(id, value)?);
            Ok(())
        })?;
        Ok(credentials)
    }

    pub fn keep_credential(&self, credential: &Credential) -> Result<(), DatabaseError> {
        self.write_with(|transaction| {
            let mut table = transaction.open_table(CREDENTIALS)?;
            table.insert(credential.id.as_str(), encode(credential).as_slice())?;
            Ok(())
        })
    }

    /// Whether there was one.
    pub fn drop_credential(&self, id: &str) -> Result<bool, DatabaseError> {
        self.write_with(|transaction| Ok(transaction.open_table(CREDENTIALS)?.remove(id)?.is_some()))
    }

    /// What agents of a cluster claim, in the order of the objects' names.
    pub fn claims(&self, owner: &Owner) -> Result<Vec<KeptClaims>, DatabaseError> {
        let mut claims = Vec::new();
        self.visit(CLAIMS, &prefix(owner), |place, value| {
            let row: ClaimRow = decode(place, value)?;
            let object = crate::database::object(place).ok_or_else(|| DatabaseError::Entry(place.into()))?;
            if row.uid == *owner.uid {
                claims.push(KeptClaims { name: object.name, key: row.key, endpoints: row.endpoints });
            }
            Ok(())
        })?;
        Ok(claims)
    }

    /// All or nothing. Returns once it is on disk, with the generation that each object has now: `None` where it is gone. The
    /// home is told.
    pub fn change_claims(
        &self,
        owner: &Owner,
        changes: Vec<ClaimChange>,
    ) -> Result<Vec<(ObjectRef, Option<i64>)>, DatabaseError> {
        let places: Vec<ObjectRef> = changes.iter().map(|change| owner.object(change.name.clone())).collect();
        let rows = self.write_with(|transaction| {
            let mut table = transaction.open_table(CLAIMS)?;
            let mut moments = transaction.open_table(MOMENTS)?;
            let now = moment(moments.get(LATEST)?.map(|latest| latest.value().to_vec()));
            moments.insert(LATEST, now.to_be_bytes().as_slice())?;
            let mut rows = Vec::with_capacity(changes.len());
            for (change, object) in changes.into_iter().zip(&places) {
                let place = key(object);
                // What cannot be read was not written by this program, and is written over.
                let old =
                    table.get(place.as_str())?.and_then(|old| serde_json::from_slice::<ClaimRow>(old.value()).ok());
                let old = old.filter(|old| old.uid == *owner.uid);
                let row =
                    change.endpoints.map(|endpoints| ClaimRow::next(old.as_ref(), owner, change.key, endpoints, now));
                match &row {
                    Some(row) => _ = table.insert(place.as_str(), encode(row).as_slice())?,
                    None => _ = table.remove(place.as_str())?,
                }
                rows.push(row);
            }
            Ok(rows)
        })?;
        let generations = rows.iter().map(|row| row.as_ref().map(|row| row.generation));
        let answer = places.iter().cloned().zip(generations).collect();
        self.mailbox.post(places.into_iter().zip(rows));
        Ok(answer)
    }

    /// Everything that agents claim.
    pub(crate) fn all_claims(&self) -> Result<BTreeMap<ObjectRef, ClaimRow>, DatabaseError> {
        let mut claims = BTreeMap::new();
        self.visit(CLAIMS, "", |place, value| {
            let object = crate::database::object(place).ok_or_else(|| DatabaseError::Entry(place.into()))?;
            claims.insert(object, decode(place, value)?);
            Ok(())
        })?;
        Ok(claims)
    }

    /// Takes away what agents claimed for clusters that are gone, and the credentials for these; says which objects went.
    pub(crate) fn forget_clusters(
        &self,
        is_gone: impl Fn(&ClusterName, &str) -> bool,
    ) -> Result<Vec<ObjectRef>, DatabaseError> {
        let gone = |cluster: &str, uid: &str| cluster.parse().is_ok_and(|cluster| is_gone(&cluster, uid));
        let claims = self.all_claims()?.into_iter().filter(|(_, row)| gone(&row.cluster, &row.uid));
        let claims: Vec<ObjectRef> = claims.map(|(object, _)| object).collect();
        let credentials = self.credentials()?.into_iter().filter(|kept| gone(&kept.cluster, &kept.uid));
        let credentials: Vec<String> = credentials.map(|kept| kept.id).collect();
        if claims.is_empty() && credentials.is_empty() {
            return Ok(claims);
        }
        self.write_with(|transaction| {
            let mut table = transaction.open_table(CLAIMS)?;
            for object in &claims {
                table.remove(key(object).as_str())?;
            }
            let mut table = transaction.open_table(CREDENTIALS)?;
            for id in &credentials {
                table.remove(id.as_str())?;
            }
            Ok(())
        })?;
        Ok(claims)
    }

    /// Has this home be told of claims that change from now on.
    pub(crate) fn tell(&self, home: Sender<Signal>) {
        *lock(&self.mailbox.waiting) = Waiting::default();
        lock(&self.mailbox.orders).clear();
        *lock(&self.mailbox.home) = Some(home);
    }

    pub(crate) fn take_orders(&self) -> BTreeMap<ObjectRef, FactChange> {
        std::mem::take(&mut lock(&self.mailbox.orders))
    }

    /// Some of those that wait; of the others the home is told again.
    pub(crate) fn take_changed_claims(&self) -> ChangedClaims {
        let mut waiting = lock(&self.mailbox.waiting);
        let taken = waiting.take();
        if !waiting.changed.is_empty() {
            self.mailbox.remind();
        }
        taken
    }
}

/// All objects of a cluster's agents begin with this, and nobody else's: a cluster's name has no dot.
fn prefix(owner: &Owner) -> String {
    format!("{}/{}/{}.", model::identity::Kind::DnsEndpoint, owner.namespace, owner.cluster)
}

fn moment(latest: Option<Vec<u8>>) -> u64 {
    let latest = latest.and_then(|latest| latest.try_into().ok()).map_or(0, u64::from_be_bytes);
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix(since_epoch).0.max(latest)
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("it is made of texts and numbers")
}

fn decode<T: DeserializeOwned>(place: &str, value: &[u8]) -> Result<T, DatabaseError> {
    serde_json::from_slice(value).map_err(|_| DatabaseError::Entry(place.into()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use manifest::kept::Authority;

    use super::*;

    fn owner(uid: &str) -> Owner {
        Owner { cluster: "c1".parse().unwrap(), uid: uid.into(), namespace: "acme".parse().unwrap() }
    }

    fn change(name: &str, endpoints: Option<&[&str]>) -> ClaimChange {
        let endpoint = |name: &&str| EndpointSpec { dns_name: (*name).into(), ..EndpointSpec::default() };
        let endpoints = endpoints.map(|names| names.iter().map(endpoint).collect());
        ClaimChange { name: name.parse().unwrap(), key: format!("key/{name}"), endpoints }
    }

    #[test]
    fn the_first_authority_stays_whoever_comes_second() {
        let authority = |made| Authorities(vec![Authority { made, certificate: "c".into(), key: "k".into() }]);
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path()).unwrap();
        assert_eq!(database.authorities().unwrap(), None);
        assert_eq!(database.keep_authorities(None, &authority(1)).unwrap(), authority(1));
        assert_eq!(database.keep_authorities(None, &authority(2)).unwrap(), authority(1));
        assert_eq!(database.keep_authorities(Some(&authority(3)), &authority(2)).unwrap(), authority(1));
        assert_eq!(database.keep_authorities(Some(&authority(1)), &authority(2)).unwrap(), authority(2));
        drop(database);
        let database = Database::open(folder.path()).unwrap();
        assert_eq!(database.authorities().unwrap(), Some(authority(2)));
        assert!(!format!("{:?}", authority(1)).contains("k\""), "keys are never shown");
    }

    #[test]
    fn claims_count_their_changes_and_keep_their_seniority() {
        let database = Database::in_memory().unwrap();
        let (one, other) = (owner("u1"), owner("u2"));
        let generation = |changed: Vec<(ObjectRef, Option<i64>)>| changed[0].1;
        let set = |owner: &Owner, names: &[&str]| {
            generation(database.change_claims(owner, vec![change("c1.aa", Some(names))]).unwrap())
        };
        assert_eq!(set(&one, &["a"]), Some(1));
        let object = one.object("c1.aa".parse().unwrap());
        let since = database.all_claims().unwrap()[&object].since;
        assert_eq!(set(&one, &["a"]), Some(1), "the same again is no change");
        assert_eq!(set(&one, &["a", "b"]), Some(2));
        let row = database.all_claims().unwrap()[&object].clone();
        assert_eq!((row.since, row.endpoints.len()), (since, 2));
        assert!(row.endpoints_since[0] == since && row.endpoints_since[1] > since, "{row:?}");
        assert_eq!(database.claims(&other).unwrap(), [], "a cluster of the same name is another one");
        assert_eq!(set(&other, &["a"]), Some(1));
        assert!(database.all_claims().unwrap()[&object].since > since, "and not its heir");
        assert_eq!(database.take_changed_claims().len(), 1);
        assert_eq!(generation(database.change_claims(&other, vec![change("c1.aa", None)]).unwrap()), None);
        assert_eq!(database.take_changed_claims(), ChangedClaims::from([(object.clone(), None)]));
        assert_eq!(database.claims(&other).unwrap(), []);
    }

    /// A tenant that changes everything at once is not the only one.
    #[test]
    fn tenants_claims_are_taken_in_turn_and_a_few_at_a_time() {
        let database = Database::in_memory().unwrap();
        let (sender, reminders) = std::sync::mpsc::channel();
        database.tell(sender);
        let names: Vec<String> = (0..TOGETHER / 2).map(|number| format!("r{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let large: Vec<ClaimChange> = (0..5).map(|number| change(&format!("c1.{number}"), Some(&names))).collect();
        database.change_claims(&owner("u1"), large).unwrap();
        let other = Owner { cluster: "c2".parse().unwrap(), namespace: "rival".parse().unwrap(), uid: "u2".into() };
        database.change_claims(&other, vec![change("c2.a", Some(&["a"])), change("c2.b", None)]).unwrap();
        let taken = || -> Vec<String> {
            database.take_changed_claims().keys().map(|object| object.name.as_str().to_owned()).collect()
        };
        assert_eq!(taken(), ["c1.0", "c1.1", "c2.a"]);
        // What changes again while it waits waits once.
        database.change_claims(&owner("u1"), vec![change("c1.2", None)]).unwrap();
        assert_eq!(taken(), ["c1.2", "c1.3", "c1.4", "c2.b"]);
        assert_eq!(taken(), [] as [String; 0]);
        // By each of the three changes, and where something was left.
        assert_eq!(reminders.try_iter().count(), 4);
    }

    #[test]
    fn what_a_cluster_leaves_goes_with_it() {
        let database = Database::in_memory().unwrap();
        database
            .change_claims(&owner("u1"), vec![change("c1.aa", Some(&["a"])), change("c1.bb", Some(&["b"]))])
            .unwrap();
        let credential = |id: &str, uid: &str| Credential {
            id: id.into(),
            cluster: "c1".into(),
            uid: uid.into(),
            holder: manifest::kept::Holder::Agent,
            digest: String::new(),
            issued: 0,
            expires: 0,
        };
        database.keep_credential(&credential("x", "u1")).unwrap();
        database.keep_credential(&credential("y", "u2")).unwrap();
        assert_eq!(database.forget_clusters(|_, uid| uid == "u1").unwrap().len(), 2);
        assert_eq!(database.credentials().unwrap(), [credential("y", "u2")]);
        assert_eq!(database.claims(&owner("u1")).unwrap(), []);
        assert!(database.drop_credential("y").unwrap());
        assert!(!database.drop_credential("y").unwrap());
    }
}
