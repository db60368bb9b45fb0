//! A fleet on a hub of a test's own, planned by the test and watched as a controller would.
#![allow(dead_code, clippy::unwrap_used)] // Each test uses a part of it, and a test that cannot go on panics.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kubernetes::apply::{self, Actual, Dirty, Metrics, OwnStatus, PUBLISH_NAMESPACE, Sides};
use kubernetes::lease;
use model::identity::Kind;
use model::{FactChange, ObjectRef, Planner, Since, Timestamp};
use serde_json::{Value, json};
use testbed::ApiServer;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::hub::{self, eventually};

pub(crate) const TENANT: &str = "
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {}
";

pub(crate) fn zone(name: &str, publish: &str) -> String {
    format!(
        "
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {{name: {name}}}
spec:
  domain: fleet.example
  nameservers: [{{name: ns1.fleet.example, addresses: [192.0.2.53]}}]
  gateway: {{addresses: [192.0.2.10]}}
  publish: {publish}
"
    )
}

pub(crate) fn cluster(name: &str, zone: &str, nodes: &[&str]) -> String {
    let nodes: Vec<_> =
        nodes.iter().enumerate().map(|(number, at)| json!({"name": format!("n{number}"), "addresses": [at]})).collect();
    format!(
        "
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec:
  tenant: acme
  zone: {zone}
  controlPlane: {{kubeApiserver: {{addresses: ['10.0.0.7:6443']}}}}
  nodes: {}
",
        json!(nodes)
    )
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|at| at["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {conditions:?}"))
}

pub(crate) struct Fleet {
    pub(crate) server: Arc<ApiServer>,
    client: Client,
    planner: Planner,
    sides: Sides,
    /// What was planned, for another to plan too.
    texts: Vec<String>,
}

impl Fleet {
    pub(crate) async fn start() -> Option<Self> {
        let server = hub::start()?;
        server.kubectl_apply(&manifest::crds::to_yaml()).unwrap();
        server.kubectl_apply(include_str!("../../../fleetgate/tests/dnsendpoint-crd.yaml")).unwrap();
        server.kubectl(&["wait", "--for=condition=Established", "customresourcedefinitions", "--all"]).unwrap();
        server.kubectl(&["create", "namespace", "acme"]).unwrap();
        let client = hub::client(&server).await;
        Some(Self::at(Arc::new(server), &client).await)
    }

    /// As another process would see the same hub.
    pub(crate) async fn another(&self) -> Self {
        Self::at(Arc::clone(&self.server), &self.client).await
    }

    /// As a process that sees the same hub through this line would; its writes take another.
    pub(crate) async fn another_behind(&self, line: &hub::Line) -> Self {
        Self::at(Arc::clone(&self.server), &hub::client_at(&self.server, line.address).await).await
    }

    async fn at(server: Arc<ApiServer>, watching: &Client) -> Self {
        let client = hub::client(&server).await;
        let planner = Planner::default();
        let plan = Arc::new(ArcSwap::from(Arc::clone(planner.snapshot())));
        let (hub, dirty) = (Arc::new(Actual::default()), Arc::new(Dirty::default()));
        let sides = Sides { plan, hub, dirty, failing: watch::channel(Arc::default()).1 };
        watch_all(watching, &sides).await;
        sides.hub.set_whole();
        Self { server, client, planner, sides, texts: Vec::new() }
    }

    /// Puts an object on the hub and plans it.
    pub(crate) fn put(&mut self, text: &str) {
        self.server.kubectl_apply(text).unwrap();
        self.plan_text(text);
    }

    /// Many at once, as kubectl takes a while to start.
    pub(crate) fn put_all(&mut self, texts: &[String]) {
        self.server.kubectl_apply(&texts.join("---")).unwrap();
        self.texts.extend_from_slice(texts);
        self.plan(texts.iter().map(|text| change(text)));
    }

    /// All objects of a kind, and who wrote them.
    pub(crate) fn list(&self, kind: &str) -> Vec<Value> {
        let list = self.json(&["get", kind, "--all-namespaces", "--show-managed-fields"]);
        list.map_or_else(Vec::new, |list| list["items"].as_array().unwrap().clone())
    }

    /// Plans an object that it has on its mind alone.
    pub(crate) fn plan_text(&mut self, text: &str) {
        self.texts.push(text.into());
        self.plan([change(text)]);
    }

    fn plan(&mut self, facts: impl IntoIterator<Item = FactChange>) {
        let planned = self.planner.apply(facts, now());
        self.sides.plan.store(planned.snapshot);
        self.sides.dirty.mark_planned(&planned.changes);
    }

    /// Plans what another has put there, with its numbers, all at once as it is listed.
    pub(crate) fn plan_what_is_there(&mut self, other: &Fleet) {
        let number = self.number();
        self.plan(other.texts.iter().map(|text| change(text)).chain([number]));
    }

    /// Plans with the zone's number as it is on the hub now.
    pub(crate) fn plan_number(&mut self) {
        let number = self.number();
        self.plan([number]);
    }

    fn number(&self) -> FactChange {
        let number = manifest::hub::number(&self.get("zone/main").unwrap());
        assert!(number.is_some());
        FactChange::Number("main".parse().unwrap(), number)
    }

    pub(crate) fn delete_cluster(&mut self, name: &str) {
        self.server.kubectl(&["delete", "clusters.fleetgate.dev", name]).unwrap();
        self.plan([FactChange::Cluster(name.parse().unwrap(), None)]);
    }

    pub(crate) fn delete_in_acme(&mut self, kind: &str, name: &str) {
        self.server.kubectl(&["delete", "--namespace=acme", kind, name]).unwrap();
        let (kind, namespace) = (Kind::find(kind).unwrap(), Some("acme".parse().unwrap()));
        self.plan([FactChange::gone(&ObjectRef { kind, namespace, name: name.parse().unwrap() })]);
    }

    /// What whoever watches the nodes of a cluster writes.
    pub(crate) fn write_nodes(&self, cluster: &str) {
        let status = json!({
            "apiVersion": "fleetgate.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": cluster},
            "status": {
                "nodes": [{"name": "seen", "addresses": ["192.0.2.99"], "ready": true}],
                "conditions": [{
                    "type": "Reachable", "status": "True", "reason": "Watched", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        });
        let apply = ["apply", "--server-side", "--subresource=status", "--field-manager=fleetgate-nodes", "-f", "-"];
        self.server.kubectl_with_input(&apply, &status.to_string()).unwrap();
    }

    pub(crate) fn get(&self, object: &str) -> Option<Value> {
        let (kind, name) = object.split_once('/').unwrap();
        self.json(&["get", &format!("{kind}s.fleetgate.dev"), name])
    }

    pub(crate) fn published(&self, name: &str) -> Option<Value> {
        self.json(&["get", "dnsendpoint", name, "--namespace", PUBLISH_NAMESPACE])
    }

    pub(crate) fn verdict(&self, name: &str) -> Option<Value> {
        self.json(&["get", "verdict", name, "--namespace=acme"])
    }

    fn json(&self, args: &[&str]) -> Option<Value> {
        let printed = self.server.kubectl(&[args, &["--ignore-not-found", "--output=json"]].concat()).unwrap();
        (!printed.is_empty()).then(|| serde_json::from_str(&printed).unwrap())
    }

    pub(crate) fn in_publish(&self, args: &[&str]) {
        self.server.kubectl(&[args, &["--namespace", PUBLISH_NAMESPACE]].concat()).unwrap();
    }

    pub(crate) fn patch_status(&self, object: &str, patch: &Value) {
        let (kind, name) = object.split_once('/').unwrap();
        let kind = format!("{kind}s.fleetgate.dev");
        let patch = ["patch", &kind, name, "--subresource=status", "--type=merge", "--patch", &patch.to_string()];
        self.server.kubectl(&patch).unwrap();
    }

    /// Who wrote the fields of an object.
    pub(crate) fn managers(&self, object: &str) -> Vec<String> {
        let (kind, name) = object.split_once('/').unwrap();
        let object = self.json(&["get", &format!("{kind}s.fleetgate.dev"), name, "--show-managed-fields"]).unwrap();
        let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
        entries.map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect()
    }

    /// The reasons of the events on a cluster-scoped object.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let Some(events) = self.json(&["get", "events.v1.events.k8s.io", "--namespace=default"]) else {
            return Vec::new();
        };
        let events = events["items"].as_array().unwrap().iter().filter(|event| event["regarding"]["name"] == name);
        events.map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    }

    /// The versions of everything that is written.
    pub(crate) fn versions(&self) -> Vec<Value> {
        let kinds = "zones.fleetgate.dev,tenants.fleetgate.dev,clusters.fleetgate.dev,dnsendpoints,verdicts";
        let all = self.json(&["get", kinds, "--all-namespaces"]).unwrap();
        all["items"].as_array().unwrap().iter().map(|object| object["metadata"]["resourceVersion"].clone()).collect()
    }

    /// Has the leader look at an object although nothing changed.
    pub(crate) fn look_at(&self, object: &str) {
        let (kind, name) = object.split_once('/').unwrap();
        let object = ObjectRef::cluster_scoped(Kind::find(kind).unwrap(), name.parse().unwrap());
        self.sides.dirty.mark_all([object]);
    }

    pub(crate) async fn lead(&self) -> Leader {
        self.lead_next().await
    }

    /// Contends at once; the leader is there when everybody before it is gone.
    pub(crate) fn lead_next(&self) -> impl Future<Output = Leader> + use<> {
        let stop = CancellationToken::new();
        let settings = lease::Settings::new("default", "test");
        let mut election = lease::contend(self.client.clone(), settings, stop.clone());
        let (client, sides) = (self.client.clone(), self.sides.clone());
        async move {
            let term = election.term.wait_for(Option::is_some).await.unwrap().clone().unwrap();
            let metrics = Metrics::default();
            let settings = apply::Settings { identity: "test".into() };
            let running = tokio::spawn(apply::run(client, sides, term, settings, metrics.clone()));
            Leader { stop, election: election.ended, running, metrics }
        }
    }
}

pub(crate) struct Leader {
    stop: CancellationToken,
    election: JoinHandle<()>,
    running: JoinHandle<()>,
    pub(crate) metrics: Metrics,
}

impl Leader {
    pub(crate) async fn rounds(&self, count: u64) {
        eventually("a round", async || (self.metrics.rounds() >= count).then_some(())).await;
    }

    /// As if its process was killed: the Lease is not given back.
    pub(crate) fn vanish(self) {
        self.running.abort();
        self.election.abort();
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap();
        self.election.await.unwrap();
    }
}

fn change(text: &str) -> FactChange {
    let json = manifest::document::to_json(text).unwrap();
    let kind = Kind::find(json["kind"].as_str().unwrap()).unwrap();
    let manifest = manifest::hub::read(kind, json, &mut manifest::nothing_named).unwrap();
    manifest.into_fact(Since::default(), None)
}

/// Tells what the hub has, from now on; returns when everything has been told once.
async fn watch_all(client: &Client, sides: &Sides) {
    let kinds = [Kind::Zone, Kind::Tenant, Kind::Cluster, Kind::DnsEndpoint, Kind::Ingress];
    let kinds = kinds.into_iter().map(Some).chain([None]);
    let mut started = Vec::new();
    for kind in kinds {
        let (listed, is_listed) = tokio::sync::oneshot::channel();
        tokio::spawn(watch_one(client.clone(), sides.clone(), kind, listed));
        started.push(is_listed);
    }
    for is_listed in started {
        tokio::time::timeout(hub::PATIENCE, is_listed).await.unwrap().unwrap();
    }
}

/// `None` is for verdicts.
async fn watch_one(client: Client, sides: Sides, kind: Option<Kind>, listed: tokio::sync::oneshot::Sender<()>) {
    let (api_version, name, plural) = match kind {
        Some(kind) => (kind.api_version(), kind.as_str(), kind.plural()),
        None => (Kind::Cluster.api_version(), "Verdict", "verdicts"),
    };
    let (group, version) = api_version.split_once('/').unwrap();
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural);
    let objects: Api<DynamicObject> = Api::all_with(client, &resource);
    let mut events = watcher(objects, watcher::Config::default()).default_backoff().boxed();
    let mut listed = Some(listed);
    let hub = &sides.hub;
    while let Some(event) = events.next().await {
        // The hub is away when a test ends.
        let Ok(event) = event else { continue };
        let marked = match event {
            Event::Init => None,
            Event::InitDone => {
                listed.take().map(|listed| listed.send(()));
                None
            }
            Event::Apply(object) | Event::InitApply(object) => see(hub, kind, &object),
            Event::Delete(object) => match kind {
                None => hub.gone_verdict(&object.metadata),
                Some(kind) if is_published(kind, &object) => hub.gone_published(&object.metadata),
                Some(kind) => hub.gone(&reference(kind, &object)),
            },
        };
        sides.dirty.mark_all(marked);
    }
}

fn see(hub: &Actual, kind: Option<Kind>, object: &DynamicObject) -> Option<ObjectRef> {
    let (meta, data) = (&object.metadata, &object.data);
    match kind {
        None => hub.see_verdict(meta, &data["spec"]),
        Some(kind) if is_published(kind, object) => hub.see_published(meta, &data["spec"]),
        Some(kind) => hub.see(reference(kind, object), meta, OwnStatus::read(kind, &data["status"])),
    }
}

fn is_published(kind: Kind, object: &DynamicObject) -> bool {
    kind == Kind::DnsEndpoint && object.metadata.namespace.as_deref() == Some(PUBLISH_NAMESPACE)
}

fn reference(kind: Kind, object: &DynamicObject) -> ObjectRef {
    let namespace = object.metadata.namespace.as_ref().map(|namespace| namespace.parse().unwrap());
    ObjectRef { kind, namespace, name: object.metadata.name.as_ref().unwrap().parse().unwrap() }
}

fn now() -> Timestamp {
    Timestamp::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}
