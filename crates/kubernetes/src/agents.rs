//! What the agents' door keeps on a hub: the private authority and the credentials in Secrets of Fleetgate's namespace, and what
//! agents claim as `DNSEndpoint` objects of their tenant's.
//!
//! Any process with the door writes these, whoever leads: they are what agents say, not what is planned.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Client, Error};
use manifest::dns_endpoint::{CLUSTER_LABEL, DnsEndpointSpec};
use manifest::kept::{Authorities, ClaimChange, Credential, KEY_ANNOTATION, KeptClaims, Owner};
use model::ObjectRef;
use model::identity::Kind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::resource::Resource;

/// What the Secrets are for, so that nobody takes them for others.
pub const AUTHORITY_SECRET: &str = "fleetgate.dev/agents-authority";
pub const CREDENTIAL_SECRET: &str = "fleetgate.dev/agent-credential";
const AUTHORITY: &str = "fleetgate-agents-authority";
/// Before the id of a credential.
const CREDENTIAL: &str = "fleetgate-agent-";
/// The one field of either.
const FIELD: &str = "json";
/// Who owns the fields of what agents claim.
const MANAGER: &str = "fleetgate-agents";
/// An honest hub answers within milliseconds.
const WITHIN: Duration = Duration::from_secs(5);
/// Of one request of an agent: enough to keep the hub busy, few enough for its fair queues.
const AT_ONCE: usize = 16;
/// Ids that the watch does not show are those of tokens that were issued a moment ago, or made up.
const LOOKS: u32 = 100;
const LOOKS_TIME: Duration = Duration::from_secs(10);
/// Objects in one page of a list; an object may have 1.5 MiB.
const PAGE: u32 = 100;

#[derive(Debug, thiserror::Error)]
pub enum AgentsError {
    #[error("the hub did not answer in time")]
    Late,
    #[error("the hub has not been read yet")]
    Unread,
    #[error("the Secret {0} is not as we write it")]
    Malformed(String),
    /// In the hub's own words, which are about what was sent.
    #[error("the hub does not take it: {0}")]
    Rejected(String),
    #[error("the hub could not do it, or is away")]
    Hub(#[from] Error),
}

pub struct Agents {
    client: Client,
    namespace: String,
    /// By id, as the watch shows them; none until they have been listed.
    credentials: RwLock<Option<BTreeMap<String, Credential>>>,
    /// How many times the hub may still be asked for one that the watch does not show, and since when.
    looks: Mutex<(u32, Instant)>,
}

impl Agents {
    pub fn new(client: Client, namespace: String) -> Self {
        let looks = Mutex::new((LOOKS, Instant::now()));
        Self { client, namespace, credentials: RwLock::new(None), looks }
    }

    /// Follows the credentials, so that one that is revoked anywhere counts no more here.
    pub async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let only = watcher::Config::default().fields(&format!("type={CREDENTIAL_SECRET}"));
        let mut events = pin!(watch(self.secrets(), only).default_backoff());
        let mut listed = BTreeMap::new();
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            match event {
                Ok(Event::Init) => listed = BTreeMap::new(),
                Ok(Event::InitApply(secret)) => listed.extend(read_credential(&secret)),
                Ok(Event::InitDone) => *self.write() = Some(std::mem::take(&mut listed)),
                Ok(Event::Apply(secret)) => {
                    if let (Some(known), Some((id, credential))) = (self.write().as_mut(), read_credential(&secret)) {
                        known.insert(id, credential);
                    }
                }
                Ok(Event::Delete(secret)) => {
                    if let (Some(known), Some(id)) = (self.write().as_mut(), id_of(&secret)) {
                        known.remove(id);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the credentials of agents cannot be watched; those last seen count");
                }
            }
        }
    }

    pub async fn authorities(&self) -> Result<Option<Authorities>, AgentsError> {
        let secret = within(self.secrets().get_opt(AUTHORITY)).await?;
        secret.map(|secret| read(&secret)).transpose()
    }

    /// Keeps `next` if what is kept is still `known`; says what is kept now. Of two processes that make the first one, the
    /// second takes the other's.
    pub async fn keep_authorities(
        &self,
        known: Option<&Authorities>,
        next: &Authorities,
    ) -> Result<Authorities, AgentsError> {
        let secrets = self.secrets();
        let mut secret = self.secret(AUTHORITY, AUTHORITY_SECRET, next);
        let written = match known {
            None => within(secrets.create(&PostParams::default(), &secret)).await,
            Some(known) => {
                let kept = within(secrets.get(AUTHORITY)).await?;
                let current: Authorities = read(&kept)?;
                if current != *known {
                    return Ok(current);
                }
                secret.metadata.resource_version = kept.metadata.resource_version;
                within(secrets.replace(AUTHORITY, &PostParams::default(), &secret)).await
            }
        };
        match written {
            Ok(secret) => read(&secret),
            Err(AgentsError::Hub(Error::Api(status))) if status.code == 409 => {
                read(&within(secrets.get(AUTHORITY)).await?)
            }
            Err(error) => Err(error),
        }
    }

    /// As the watch shows it. One that it does not show may be too new for it.
    pub async fn credential(&self, id: &str) -> Result<Option<Credential>, AgentsError> {
        match self.known(id)? {
            None if self.may_look() => self.confirm(id).await,
            known => Ok(known),
        }
    }

    /// As the hub has it now.
    pub async fn confirm(&self, id: &str) -> Result<Option<Credential>, AgentsError> {
        let secret = within(self.secrets().get_opt(&format!("{CREDENTIAL}{id}"))).await?;
        Ok(secret.as_ref().and_then(read_credential).map(|(_, credential)| credential))
    }

    /// Anybody can make up ids: the hub is not asked for each.
    fn may_look(&self) -> bool {
        let (left, since) = &mut *self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if since.elapsed() >= LOOKS_TIME {
            (*left, *since) = (LOOKS, Instant::now());
        }
        *left = left.saturating_sub(1);
        *left > 0
    }

    fn known(&self, id: &str) -> Result<Option<Credential>, AgentsError> {
        let known = self.credentials.read().unwrap_or_else(PoisonError::into_inner);
        Ok(known.as_ref().ok_or(AgentsError::Unread)?.get(id).cloned())
    }

    pub fn credentials(&self) -> Result<Vec<Credential>, AgentsError> {
        let known = self.credentials.read().unwrap_or_else(PoisonError::into_inner);
        Ok(known.as_ref().ok_or(AgentsError::Unread)?.values().cloned().collect())
    }

    /// Goes with its cluster.
    pub async fn issue(&self, credential: &Credential) -> Result<(), AgentsError> {
        let mut secret = self.secret(&format!("{CREDENTIAL}{}", credential.id), CREDENTIAL_SECRET, credential);
        let labels = BTreeMap::from([(CLUSTER_LABEL.to_owned(), credential.cluster.clone())]);
        secret.metadata.labels = Some(labels);
        secret.metadata.owner_references = Some(vec![owner_reference(&credential.cluster, &credential.uid)]);
        within(self.secrets().create(&PostParams::default(), &secret)).await?;
        if let Some(known) = self.write().as_mut() {
            known.insert(credential.id.clone(), credential.clone());
        }
        Ok(())
    }

    /// Whether there was one.
    pub async fn revoke(&self, id: &str) -> Result<bool, AgentsError> {
        let name = format!("{CREDENTIAL}{id}");
        let secrets = self.secrets();
        // Nothing else is deleted, whatever the id.
        if within(secrets.get_opt(&name)).await?.is_none_or(|secret| read_credential(&secret).is_none()) {
            return Ok(false);
        }
        let deleted = within(secrets.delete(&name, &DeleteParams::default())).await;
        if let Some(known) = self.write().as_mut() {
            known.remove(id);
        }
        match deleted {
            Err(error) if !is_gone(&error) => Err(error),
            _ => Ok(true),
        }
    }

    pub async fn claims(&self, owner: &Owner) -> Result<Vec<KeptClaims>, AgentsError> {
        let endpoints = self.endpoints(owner);
        let mut list = ListParams::default().labels(&format!("{CLUSTER_LABEL}={}", owner.cluster)).limit(PAGE);
        let mut claims = Vec::new();
        loop {
            let page = within(endpoints.list(&list)).await?;
            claims.extend(page.items.into_iter().filter_map(|object| read_claims(object, owner)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => list = list.continue_token(&token),
                None => return Ok(claims),
            }
        }
    }

    /// One object after the other; what comes before an error is kept.
    pub async fn change(
        &self,
        owner: &Owner,
        changes: Vec<ClaimChange>,
    ) -> Result<Vec<(ObjectRef, Option<i64>)>, AgentsError> {
        let endpoints = self.endpoints(owner);
        let changes = stream::iter(changes).map(|change| self.change_one(&endpoints, owner, change));
        changes.buffered(AT_ONCE).try_collect().await
    }

    async fn change_one(
        &self,
        endpoints: &Api<DynamicObject>,
        owner: &Owner,
        change: ClaimChange,
    ) -> Result<(ObjectRef, Option<i64>), AgentsError> {
        let name = change.name.as_str().to_owned();
        let object = owner.object(change.name);
        let Some(claimed) = change.endpoints else {
            return match within(endpoints.delete(&name, &DeleteParams::default())).await {
                Err(error) if !is_gone(&error) => Err(error),
                _ => Ok((object, None)),
            };
        };
        let body = json!({
            "apiVersion": Kind::DnsEndpoint.api_version(),
            "kind": Kind::DnsEndpoint.as_str(),
            "metadata": {
                "name": name,
                "namespace": owner.namespace.as_str(),
                "labels": { CLUSTER_LABEL: owner.cluster.as_str() },
                "annotations": { KEY_ANNOTATION: change.key },
                "ownerReferences": [owner_reference(owner.cluster.as_str(), &owner.uid)],
            },
            "spec": { "endpoints": claimed },
        });
        let apply = PatchParams::apply(MANAGER).force();
        let applied = within(endpoints.patch(&name, &apply, &Patch::Apply(body))).await;
        let applied = applied.map_err(|error| match error {
            AgentsError::Hub(Error::Api(status)) if matches!(status.code, 400 | 413 | 422) => {
                AgentsError::Rejected(status.message)
            }
            error => error,
        })?;
        Ok((object, applied.metadata.generation))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn endpoints(&self, owner: &Owner) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), owner.namespace.as_str(), &Resource::DnsEndpoint.api())
    }

    fn secret(&self, name: &str, kind: &str, content: &impl Serialize) -> Secret {
        let content = serde_json::to_vec(content).expect("it is made of texts and numbers");
        Secret {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            type_: Some(kind.into()),
            data: Some(BTreeMap::from([(FIELD.to_owned(), ByteString(content))])),
            ..Secret::default()
        }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Option<BTreeMap<String, Credential>>> {
        self.credentials.write().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn within<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, AgentsError> {
    Ok(timeout(WITHIN, request).await.map_err(|_| AgentsError::Late)??)
}

fn is_gone(error: &AgentsError) -> bool {
    matches!(error, AgentsError::Hub(Error::Api(status)) if status.code == 404)
}

fn owner_reference(cluster: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: Kind::Cluster.api_version().into(),
        kind: Kind::Cluster.as_str().into(),
        name: cluster.into(),
        uid: uid.into(),
        ..OwnerReference::default()
    }
}

fn read<T: DeserializeOwned>(secret: &Secret) -> Result<T, AgentsError> {
    let content = secret.data.as_ref().and_then(|data| data.get(FIELD));
    let content = content.and_then(|ByteString(content)| serde_json::from_slice(content).ok());
    content.ok_or_else(|| AgentsError::Malformed(secret.metadata.name.clone().unwrap_or_default()))
}

fn id_of(secret: &Secret) -> Option<&str> {
    secret.metadata.name.as_deref()?.strip_prefix(CREDENTIAL)
}

/// One whose name and content differ is none.
fn read_credential(secret: &Secret) -> Option<(String, Credential)> {
    let id = id_of(secret)?;
    let credential: Credential = read(secret).ok()?;
    let is_one = secret.type_.as_deref() == Some(CREDENTIAL_SECRET) && credential.id == id;
    is_one.then(|| (id.to_owned(), credential))
}

/// What this very cluster's agents claimed.
fn read_claims(object: DynamicObject, owner: &Owner) -> Option<KeptClaims> {
    let DynamicObject { metadata, mut data, .. } = object;
    let owners = metadata.owner_references.unwrap_or_default();
    if !owners.iter().any(|reference| reference.uid == *owner.uid) {
        return None;
    }
    let key = metadata.annotations?.remove(KEY_ANNOTATION)?;
    let spec = data.get_mut("spec").map(Value::take).unwrap_or_default();
    let spec: DnsEndpointSpec = serde_json::from_value(spec).ok()?;
    Some(KeptClaims { name: metadata.name?.parse().ok()?, key, endpoints: spec.endpoints })
}
