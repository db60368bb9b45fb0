//! * From what the hub showed to facts: synchronous, without I/O, and the same whatever way a state was come to.
//!
//! Objects that the plan knows are read again when they change, or when something changes that they name: a Secret, a
//! `ConfigMap`, a Service with its endpoints.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use manifest::Value;
use manifest::named::{Missing, Source, secret_value};
use manifest::status::ClusterStatus;
use model::identity::Kind;
use model::resource::{FrontDoor, Upstream};
use model::{ClusterName, FactChange, ObjectRef, Refusal, Since, Timestamp};
use serde::Deserialize;

use crate::kubeconfig::SecretKey;
use crate::resource::{Resource, Roles, Watched};
use crate::seen::{Key, Seen, SlimService, SlimSlice, creation};
use crate::tenants::{Access, Last, Subject, Wish};

/// How long objects stay that an empty list lacks. A hub that lost its storage, or whose API server answers before it
/// has any, shows nothing at all: nobody's names go because of that. Long enough for somebody to be woken up and mend it.
const DOUBT: Duration = Duration::from_hours(1);
/// The Service whose load balancer is the front door of zones that name none.
const GATEWAY_SERVICE: &str = "fleetgate-gateway";
/// What a kubeconfig is called in Secrets: ours, and Cluster API's. Else the only key there is.
const KUBECONFIG_KEYS: [&str; 2] = ["kubeconfig", "value"];

pub(crate) struct Index {
    roles: Roles,
    namespace: String,
    watched: Vec<Watched>,
    /// Which of them have been listed since the start.
    listed: HashSet<usize>,
    texts: BTreeMap<Key, Box<str>>,
    /// What an empty list lacked, and when that is believed.
    doubted: BTreeMap<Key, Timestamp>,
    /// Objects of the plan's to be read again.
    dirty: BTreeSet<Key>,
    /// What each object of the plan's names, and the other way around.
    names: HashMap<Key, BTreeSet<Key>>,
    named_by: HashMap<Key, BTreeSet<Key>>,
    slices_of: HashMap<Key, BTreeSet<Key>>,
    /// The last addresses of a control plane: they stay while its Service has none at all.
    last_endpoints: HashMap<(Key, u16), Vec<SocketAddr>>,
}

/// What changed.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) facts: Vec<FactChange>,
    /// To be kept as the last good state: what stands at each key now.
    pub(crate) saves: BTreeMap<Key, Option<Box<str>>>,
    /// For whoever follows the tenant clusters.
    pub(crate) wishes: Vec<Wish>,
    /// Objects that are not there any more.
    pub(crate) gone: Vec<Key>,
}

impl Index {
    pub(crate) fn new(roles: Roles, namespace: String, watched: Vec<Watched>) -> Self {
        Self {
            roles,
            namespace,
            watched,
            listed: HashSet::new(),
            texts: BTreeMap::new(),
            doubted: BTreeMap::new(),
            dirty: BTreeSet::new(),
            names: HashMap::new(),
            named_by: HashMap::new(),
            slices_of: HashMap::new(),
            last_endpoints: HashMap::new(),
        }
    }

    /// Whether everything has been listed since the start.
    pub(crate) fn is_complete(&self) -> bool {
        self.listed.len() == self.watched.len()
    }

    /// Takes over the last good state of an earlier process.
    pub(crate) fn recall(&mut self, known: impl IntoIterator<Item = (Key, Box<str>)>) {
        let mut news = News::default();
        for (key, text) in known {
            self.put(key, text, &mut news);
        }
    }

    pub(crate) fn list(&mut self, number: usize, objects: Vec<Seen>, now: Timestamp, news: &mut News) {
        self.listed.insert(number);
        let watched = &self.watched[number];
        let here = |key: &&Key| {
            key.resource == watched.resource && (watched.namespace.is_none() || key.namespace == watched.namespace)
        };
        let first = Key { resource: watched.resource, namespace: None, name: String::new() };
        let held = self.texts.range(first..).map(|(key, _)| key).take_while(|key| key.resource == watched.resource);
        let there: HashSet<&Key> = objects.iter().map(|seen| &seen.key).collect();
        let lacking: Vec<Key> = held.filter(here).filter(|key| !there.contains(key)).cloned().collect();
        if objects.is_empty() && !lacking.is_empty() {
            tracing::error!(
                objects = lacking.len(),
                "the hub lists no {} any more, where there were some: what is known of them keeps serving for {} minutes",
                watched.resource.as_str(),
                DOUBT.as_secs() / 60
            );
            for key in lacking {
                self.doubted.entry(key).or_insert_with(|| now.saturating_add(DOUBT));
            }
            return;
        }
        for key in lacking {
            self.remove(&key, news);
        }
        for seen in objects {
            self.change(seen, news);
        }
    }

    pub(crate) fn change(&mut self, seen: Seen, news: &mut News) {
        self.doubted.remove(&seen.key);
        self.put(seen.key, seen.text.into(), news);
    }

    pub(crate) fn remove(&mut self, key: &Key, news: &mut News) {
        self.doubted.remove(key);
        let Some(text) = self.texts.remove(key) else { return };
        news.gone.push(key.clone());
        if key.is_ours() {
            return;
        }
        if let Some(service) = service_of(key, &text) {
            self.leave_service(&service, key);
        }
        self.touch(key);
        news.saves.insert(key.clone(), None);
    }

    /// When something is to be believed that was doubted.
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        self.doubted.values().min().copied()
    }

    /// Drops what has been doubted for long enough.
    pub(crate) fn believe(&mut self, now: Timestamp, news: &mut News) {
        let gone: Vec<Key> = self.doubted.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.remove(&key, news);
        }
    }

    fn put(&mut self, key: Key, text: Box<str>, news: &mut News) {
        if self.texts.get(&key) == Some(&text) {
            return;
        }
        let before = self.texts.insert(key.clone(), text.clone());
        if key.is_ours() {
            return;
        }
        if let Some(service) = before.and_then(|before| service_of(&key, &before)) {
            self.leave_service(&service, &key);
        }
        if let Some(service) = service_of(&key, &text) {
            self.touch(&service);
            self.slices_of.entry(service).or_default().insert(key.clone());
        }
        self.touch(&key);
        news.saves.insert(key, Some(text));
    }

    /// A slice is not among its Service's any more.
    fn leave_service(&mut self, service: &Key, slice: &Key) {
        if let Some(slices) = self.slices_of.get_mut(service) {
            slices.remove(slice);
            if slices.is_empty() {
                self.slices_of.remove(service);
            }
        }
        self.touch(service);
    }

    /// Has those be read again that a change of this concerns.
    fn touch(&mut self, key: &Key) {
        match key.resource {
            // Its Service is told of it.
            Resource::EndpointSlice => {}
            Resource::Service | Resource::Secret | Resource::ConfigMap => {
                self.dirty.extend(self.named_by.get(key).into_iter().flatten().cloned());
            }
            _ => _ = self.dirty.insert(key.clone()),
        }
    }

    /// Reads again what has to be.
    pub(crate) fn settle(&mut self, news: &mut News) {
        for key in std::mem::take(&mut self.dirty) {
            let Some(object) = key.object() else {
                tracing::warn!(%key, "its name is none that Fleetgate could use; left out");
                continue;
            };
            let named_before = self.forget_names(&key);
            if let Some(text) = self.texts.get(&key).cloned() {
                self.read(&key, &object, &text, news);
            } else {
                if object.kind == Kind::Cluster {
                    news.wishes.extend(cluster_name(&object).map(Wish::Leave));
                }
                news.facts.push(FactChange::gone(&object));
            }
            for source in named_before.iter().filter(|source| !self.named_by.contains_key(*source)) {
                self.last_endpoints.retain(|(service, _), _| service != source);
            }
        }
    }

    fn read(&mut self, key: &Key, object: &ObjectRef, text: &str, news: &mut News) {
        let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        let mut named = BTreeSet::new();
        let manifest = manifest::hub::read(object.kind, value.clone(), &mut |source| self.find(&source, &mut named));
        let (since, generation) = (since(&value), value["metadata"]["generation"].as_i64());
        if let Some(reason) = manifest::hub::unread_annotation(&value) {
            tracing::warn!(%object, "nothing is let go: {reason}");
        }
        let mut numbers = Vec::new();
        match manifest {
            Err(reason) => {
                let refusal = Refusal::Malformed { reason };
                news.facts.extend([FactChange::gone(object), FactChange::Broken(object.clone(), refusal)]);
            }
            Ok(mut manifest) => {
                match &mut manifest.value {
                    Value::Zone(zone) => {
                        if zone.gateway.is_none() {
                            let service = Key::new(Resource::Service, Some(&self.namespace), GATEWAY_SERVICE);
                            zone.gateway = self.front_door(&service);
                            named.insert(service);
                        }
                        let number = manifest::hub::number(&value);
                        numbers.extend(number.map(|number| FactChange::Number(object.name.clone(), Some(number))));
                    }
                    Value::Cluster(cluster) => {
                        if let Upstream::Service { namespace, name, port } = &cluster.api_server {
                            let service = Key::new(Resource::Service, Some(namespace.as_str()), name.as_str());
                            let endpoints = self.endpoints(&service, *port);
                            named.insert(service);
                            cluster.resolve(endpoints);
                        }
                        if self.roles.controller {
                            news.wishes.push(self.wish(&cluster.name, &value, &mut named));
                        }
                    }
                    Value::AddressPool(_) => {
                        let of_zones = manifest::hub::reverse_numbers(&value).into_iter();
                        numbers.extend(of_zones.map(|(apex, number)| FactChange::ReverseNumber(apex, number)));
                    }
                    Value::Tenant(_) => {
                        let (held, resting) = manifest::hub::withdrawals(&object.name, &value);
                        numbers.push(FactChange::Held(object.name.clone(), held));
                        numbers.extend((!resting.is_empty()).then_some(FactChange::Resting(resting)));
                    }
                    Value::Records(_)
                    | Value::AddressClaim(_)
                    | Value::Address(..)
                    | Value::Ingress(_)
                    | Value::IngressClass(_)
                    | Value::FederationPolicy(_)
                    | Value::Certificate(_)
                    | Value::Other => {}
                }
                news.facts.push(manifest.into_fact(since, generation));
            }
        }
        news.facts.append(&mut numbers);
        self.remember_names(key, named);
    }

    /// What an object names.
    fn find(&self, source: &Source<'_>, named: &mut BTreeSet<Key>) -> Result<Arc<Vec<u8>>, Missing> {
        match source {
            // Files are refused before anybody looks for them.
            Source::File(_) => Err(Missing("a hub has no files".into())),
            Source::Secret { namespace, name } => {
                let key = Key::new(Resource::Secret, Some(namespace.as_str()), name.as_str());
                named.insert(key.clone());
                let secret = self.secret(&key).map_err(Missing)?;
                secret_value(&secret).map(|octets| Arc::new(octets.to_vec()))
            }
            Source::ConfigMap { namespace, name, key: entry } => {
                let key = Key::new(Resource::ConfigMap, Some(namespace.as_str()), name.as_str());
                named.insert(key.clone());
                self.config_map(&key, entry).map(Arc::new).map_err(Missing)
            }
        }
    }

    fn secret(&self, key: &Key) -> Result<Secret, String> {
        parsed(self.text(key)?).ok_or_else(|| "it cannot be read".to_owned())
    }

    fn config_map(&self, key: &Key, entry: &str) -> Result<Vec<u8>, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Slim {
            data: Option<BTreeMap<String, String>>,
            binary_data: Option<BTreeMap<String, ByteString>>,
        }
        let slim: Slim = parsed(self.text(key)?).ok_or("it cannot be read")?;
        let text = slim.data.and_then(|mut data| data.remove(entry)).map(String::into_bytes);
        let binary = slim.binary_data.and_then(|mut data| data.remove(entry)).map(|octets| octets.0);
        text.or(binary).ok_or_else(|| format!("it has no key {entry:?}"))
    }

    fn text(&self, key: &Key) -> Result<&str, String> {
        let followed = |watched: &&Watched| {
            watched.resource == key.resource && (watched.namespace.is_none() || watched.namespace == key.namespace)
        };
        if !self.watched.iter().any(|watched| followed(&watched)) {
            let namespace = key.namespace.as_deref().unwrap_or_default();
            return Err(format!("{} of namespace {namespace} are not read here; see --sources", key.resource.as_str()));
        }
        self.texts.get(key).map(AsRef::as_ref).ok_or_else(|| "there is none".to_owned())
    }

    /// Where a Service's load balancer takes connections.
    fn front_door(&self, service: &Key) -> Option<FrontDoor> {
        let SlimService { addresses, hostnames, .. } = parsed(self.texts.get(service)?)?;
        let addresses: Vec<IpAddr> = addresses.iter().filter_map(|address| address.parse().ok()).collect();
        if !addresses.is_empty() {
            return Some(FrontDoor::Addresses(addresses));
        }
        hostnames.iter().find_map(|name| name.parse().ok()).map(FrontDoor::Hostname)
    }

    /// The addresses behind a port of a Service: those that are ready; else the others; else the last ones known.
    fn endpoints(&mut self, service: &Key, port: u16) -> Vec<SocketAddr> {
        let mut found = self.current_endpoints(service, port);
        let place = (service.clone(), port);
        if found.is_empty() {
            return self.last_endpoints.get(&place).cloned().unwrap_or_default();
        }
        found.sort_unstable();
        found.dedup();
        self.last_endpoints.insert(place, found.clone());
        found
    }

    fn current_endpoints(&self, service: &Key, port: u16) -> Vec<SocketAddr> {
        let Some(slim) = self.texts.get(service).and_then(|text| parsed::<SlimService>(text)) else {
            return Vec::new();
        };
        let Some(of_service) = slim.ports.into_iter().find(|candidate| candidate.port == port) else {
            return Vec::new();
        };
        let slices = self.slices_of.get(service).into_iter().flatten();
        let slices: Vec<SlimSlice> = slices.filter_map(|key| parsed(self.texts.get(key)?)).collect();
        let addresses = |which: fn(&SlimSlice) -> &Vec<String>| -> Vec<SocketAddr> {
            let of_slice = |slice: &SlimSlice| {
                let port = slice.ports.iter().find(|candidate| candidate.name == of_service.name)?.port;
                let addresses = which(slice).iter().filter_map(move |address| address.parse::<IpAddr>().ok());
                Some(addresses.map(move |address| SocketAddr::new(address, port)).collect::<Vec<_>>())
            };
            slices.iter().filter_map(of_slice).flatten().collect()
        };
        let ready = addresses(|slice| &slice.ready);
        if ready.is_empty() { addresses(|slice| &slice.unready) } else { ready }
    }

    /// How the tenant cluster is to be followed, if at all.
    fn wish(&self, cluster: &ClusterName, object: &serde_json::Value, named: &mut BTreeSet<Key>) -> Wish {
        let secret = &object["spec"]["access"]["kubeconfig"]["secret"];
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().into();
        let last = Last::from(&ClusterStatus::deserialize(&object["status"]).unwrap_or_default());
        let (Some(namespace), Some(name)) = (secret["namespace"].as_str(), secret["name"].as_str()) else {
            let nothing_said = last == Last::default();
            return if nothing_said { Wish::Leave(cluster.clone()) } else { Wish::Clear(cluster.clone(), uid) };
        };
        let key = Key::new(Resource::Secret, Some(namespace), name);
        let found = self.secret(&key).and_then(kubeconfig);
        named.insert(key);
        let (entry, kubeconfig) = match found {
            Ok((entry, octets)) => (entry, Ok(Arc::from(octets))),
            Err(reason) => {
                let told =
                    format!("Secret {namespace}/{name} has no kubeconfig: {reason}; put one under the key kubeconfig");
                (KUBECONFIG_KEYS[0].to_owned(), Err(told.into()))
            }
        };
        let secret = SecretKey { namespace: namespace.to_owned(), name: name.to_owned(), key: entry };
        Wish::Follow(cluster.clone(), Arc::new(Subject { access: Access { uid, secret, kubeconfig }, last }))
    }

    fn remember_names(&mut self, key: &Key, named: BTreeSet<Key>) {
        for source in &named {
            self.named_by.entry(source.clone()).or_default().insert(key.clone());
        }
        if !named.is_empty() {
            self.names.insert(key.clone(), named);
        }
    }

    fn forget_names(&mut self, key: &Key) -> BTreeSet<Key> {
        let named = self.names.remove(key).unwrap_or_default();
        for source in &named {
            if let Some(by) = self.named_by.get_mut(source) {
                by.remove(key);
                if by.is_empty() {
                    self.named_by.remove(source);
                }
            }
        }
        named
    }
}

/// The kubeconfig in a Secret, and the key that it stands under.
fn kubeconfig(secret: Secret) -> Result<(String, Vec<u8>), String> {
    let mut data = secret.data.unwrap_or_default();
    let found = KUBECONFIG_KEYS.into_iter().find_map(|wanted| data.remove_entry(wanted));
    let only = if data.len() == 1 { data.pop_first() } else { None };
    let (entry, octets) = found.or(only).ok_or_else(|| format!("it has no key {:?}", KUBECONFIG_KEYS[0]))?;
    Ok((entry, octets.0))
}

/// The Service whose endpoints a slice holds.
fn service_of(key: &Key, text: &str) -> Option<Key> {
    if key.resource != Resource::EndpointSlice {
        return None;
    }
    let SlimSlice { service, .. } = parsed(text)?;
    Some(Key::new(Resource::Service, key.namespace.as_deref(), &service))
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

fn cluster_name(object: &ObjectRef) -> Option<ClusterName> {
    object.name.as_str().parse().ok()
}

/// Who was first: the creation, then the UID.
fn since(object: &serde_json::Value) -> Since {
    Since { moment: creation(object), tie: object["metadata"]["uid"].as_str().map(Arc::from) }
}

#[cfg(test)]
mod tests;
