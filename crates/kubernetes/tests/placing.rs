//! Federated Ingresses of a hub are kept in real member clusters, and what becomes of them there reaches the plan.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod hub;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use hub::{Line, eventually};
use kubernetes::home::{Home, Settings, Writing};
use kubernetes::kubeconfig::Policy;
use kubernetes::resource::Roles;
use kubernetes::tenants::{self, FIELD_MANAGER, ORIGIN, Wish};
use kubernetes::{apply, lease};
use model::steering::{Known, Unhealthy};
use model::{ClusterName, Planned, Planner, Snapshot, Timestamp};
use serde_json::{Value, json};
use testbed::ApiServer;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const HUB: &str = "
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [192.0.2.53]}]
  gateway: {addresses: [192.0.2.10, '2001:db8::10']}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {}
---
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {name: chosen}
spec: {placement: {clusterSelector: {matchLabels: {serves: 'yes'}}}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {name: straight}
spec: {entry: dns}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: chosen}
spec: {controller: fleetgate.dev/ingress, parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: chosen}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: straight}
spec: {controller: fleetgate.dev/ingress, parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: straight}}
";

const SHOP: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: shop
  namespace: acme
  annotations:
    team: web
    fleetgate.dev/max-body: 1Mi
    override.fleetgate.dev/west: '{\"ingressClassName\": \"traefik\", \"annotations\": {\"team\": \"west\"}}'
spec:
  ingressClassName: chosen
  tls: [{hosts: [shop.east.fleet.example], secretName: shop-tls}]
  rules:
  - host: shop.east.fleet.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {name: http}}}}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_is_kept_in_its_members_and_what_it_needs_there_is_looked_at() {
    let Some(fleet) = Fleet::start().await else { return };
    let (east, west) = (member(), member());
    fleet.join("east", east.kubeconfig(), "nginx");
    fleet.hub.kubectl_apply(SHOP).unwrap();

    // As it is written, with the class of the cluster, and said whose it is.
    let copy = there(&east, "shop", |copy| copy["spec"]["ingressClassName"] == "nginx").await;
    let origin = fleet.hub_ingress("shop");
    let annotations = copy["metadata"]["annotations"].as_object().unwrap();
    assert_eq!((&annotations["team"], &annotations[ORIGIN]), (&json!("web"), &origin["metadata"]["uid"]));
    assert!(!annotations.keys().any(|name| name.contains("max-body") || name.contains("override")), "{copy}");
    assert_eq!(copy["metadata"]["labels"], json!({"app.kubernetes.io/managed-by": "fleetgate"}));
    assert_eq!((&copy["spec"]["rules"], &copy["spec"]["tls"]), (&origin["spec"]["rules"], &origin["spec"]["tls"]));

    // The Service is not there, which is said, and nobody is sent there.
    fleet.told("shop", "east", "NoService").await;
    assert_eq!(fleet.out("shop.east.fleet.example"), [("east".to_owned(), Unhealthy::NoReadyEndpoints)]);
    service(&east, "http");
    fleet.told("shop", "east", "NoReadyEndpoints").await;
    endpoint(&east, true);
    fleet.told("shop", "east", "").await;
    assert_eq!(fleet.out("shop.east.fleet.example"), []);
    let status = fleet.cluster("east")["status"].clone();
    let backends = json!([{"service": "shop", "port": "http", "found": true, "ready": true}]);
    let placed =
        json!([{"namespace": "acme", "name": "shop", "placed": true, "reason": "Placed", "backends": backends}]);
    assert_eq!(status["ingresses"], placed);
    assert_eq!(condition(&status, "IngressesPlaced"), ("True", "Placed"));
    endpoint(&east, false);
    fleet.told("shop", "east", "NoReadyEndpoints").await;
    endpoint(&east, true);
    service(&east, "https");
    fleet.told("shop", "east", "NoService").await;
    service(&east, "http");
    fleet.told("shop", "east", "").await;

    // Where clients meet it stands in its own status.
    let entry = json!([{"ip": "192.0.2.10"}, {"ip": "2001:db8::10"}]);
    assert_eq!(fleet.hub_ingress("shop")["status"]["loadBalancer"]["ingress"], entry);

    // What others change is put back, and what they add stays.
    let change = json!({
        "metadata": {"annotations": {"theirs": "stays", "team": "other"}},
        "spec": {"ingressClassName": "other", "rules": [{"host": "other.example"}]},
    });
    patch(&east, "shop", &change);
    let mended = there(&east, "shop", |copy| copy["spec"] == self::spec(&origin, "nginx")).await;
    let annotations = &mended["metadata"]["annotations"];
    assert_eq!((&annotations["theirs"], &annotations["team"]), (&json!("stays"), &json!("web")));
    patch(&east, "shop", &json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}));
    there(&east, "shop", |copy| copy["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "fleetgate").await;
    east.kubectl(&["delete", "ingress", "shop", "--namespace=acme"]).unwrap();
    there(&east, "shop", |copy| copy["spec"] == self::spec(&origin, "nginx")).await;

    // What is changed on the hub arrives; what is not wanted any more goes.
    fleet.patch_hub("shop", &json!({"metadata": {"annotations": {"team": null, "more": "x"}}}));
    let changed = there(&east, "shop", |copy| copy["metadata"]["annotations"]["more"] == "x").await;
    assert_eq!(changed["metadata"]["annotations"].get("team"), None);

    // A cluster that joins gets it, in its own way; one that is not selected any more loses it.
    fleet.join("west", west.kubeconfig(), "");
    let copy = there(&west, "shop", |copy| copy["spec"]["ingressClassName"] == "traefik").await;
    assert_eq!(copy["metadata"]["annotations"]["team"], "west");
    fleet.told("shop", "west", "NoService").await;
    fleet.hub.kubectl(&["label", "clusters.fleetgate.dev", "west", "serves-"]).unwrap();
    gone(&west, "shop").await;
    fleet.hub.kubectl(&["label", "clusters.fleetgate.dev", "west", "serves=yes"]).unwrap();
    there(&west, "shop", |_| true).await;
    fleet.hub.kubectl(&["delete", "clusters.fleetgate.dev", "west"]).unwrap();
    gone(&west, "shop").await;

    // Without a class the cluster's default takes it; sent straight there, clients meet the members themselves.
    fleet.patch_hub("shop", &json!({"spec": {"ingressClassName": "straight"}}));
    eventually("the members' addresses", async || {
        let status = fleet.hub_ingress("shop")["status"]["loadBalancer"]["ingress"].clone();
        (status == json!([{"ip": "192.0.2.101"}])).then_some(())
    })
    .await;
    // What is not ours to serve is not ours to keep or to speak of.
    fleet.patch_hub("shop", &json!({"spec": {"ingressClassName": "somebody-elses"}}));
    gone(&east, "shop").await;
    eventually("nothing is told", async || {
        fleet.hub_ingress("shop")["status"]["loadBalancer"].get("ingress").is_none().then_some(())
    })
    .await;
    fleet.hub.kubectl(&["delete", "ingress", "shop", "--namespace=acme"]).unwrap();
    fleet.until("east", |status| status.get("ingresses").is_none()).await;
    assert_eq!(condition(&fleet.cluster("east")["status"], "IngressesPlaced"), ("", ""));
    fleet.only_ours("east");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_in_a_member_is_left_alone_and_rights_that_lack_are_told() {
    let Some(fleet) = Fleet::start().await else { return };
    let east = member();
    service(&east, "http");
    endpoint(&east, true);
    let theirs = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "shop", "namespace": "acme", "labels": {"app.kubernetes.io/managed-by": "fleetgate"}},
        "spec": {"rules": [{"host": "theirs.example"}]},
    });
    east.kubectl_apply(&theirs.to_string()).unwrap();
    let before = ingress(&east, "shop").unwrap();
    fleet.join("east", east.kubeconfig(), "nginx");
    fleet.hub.kubectl_apply(SHOP).unwrap();
    fleet.told("shop", "east", "AlreadyThere").await;
    assert_eq!(ingress(&east, "shop").unwrap()["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    // It may serve all the same.
    assert_eq!(fleet.out("shop.east.fleet.example"), []);
    east.kubectl(&["delete", "ingress", "shop", "--namespace=acme"]).unwrap();
    there(&east, "shop", |copy| copy["spec"]["ingressClassName"] == "nginx").await;
    fleet.told("shop", "east", "").await;

    // A credential for nodes alone, as before there were federated Ingresses.
    let west = member();
    let rights = ["create", "clusterrole", "nodes", "--verb=get,list,watch", "--resource=nodes"];
    west.kubectl(&rights).unwrap();
    west.kubectl(&["create", "serviceaccount", "nodes"]).unwrap();
    let binding = ["create", "clusterrolebinding", "nodes", "--clusterrole=nodes", "--serviceaccount=default:nodes"];
    west.kubectl(&binding).unwrap();
    let token = west.kubectl(&["create", "token", "nodes"]).unwrap();
    let own = west.kubeconfig().lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
    fleet.join("west", &west.kubeconfig().replace(own, token.trim()), "nginx");
    fleet.told("shop", "west", "MayNotPlace").await;
    let status = fleet.cluster("west")["status"].clone();
    assert_eq!(condition(&status, "Reachable"), ("True", "Watching"));
    assert_eq!(condition(&status, "IngressesPlaced"), ("False", "Forbidden"));
    // Somebody may have placed it by hand.
    assert_eq!(fleet.out("shop.east.fleet.example"), []);
    let more = "--verb=get,list,watch,create,patch,delete";
    west.kubectl(&["create", "clusterrole", "ingresses", more, "--resource=ingresses.networking.k8s.io"]).unwrap();
    let slices = "--resource=services,endpointslices.discovery.k8s.io";
    west.kubectl(&["create", "clusterrole", "services", "--verb=get,list,watch", slices]).unwrap();
    for role in ["ingresses", "services"] {
        let role = format!("--clusterrole={role}");
        west.kubectl(&["create", "clusterrolebinding", &role[14..], &role, "--serviceaccount=default:nodes"]).unwrap();
    }
    there(&west, "shop", |_| true).await;
    fleet.told("shop", "west", "NoService").await;
    fleet.until("west", |status| condition(status, "IngressesPlaced") == ("True", "Placed")).await;

    // Refused as a whole, it is nowhere, and no address is told.
    assert!(!fleet.hub_ingress("shop")["status"]["loadBalancer"]["ingress"].is_null());
    fleet.hub.kubectl(&["delete", "federationpolicy", "chosen"]).unwrap();
    gone(&west, "shop").await;
    gone(&east, "shop").await;
    eventually("no address is told", async || {
        fleet.hub_ingress("shop")["status"]["loadBalancer"]["ingress"].is_null().then_some(())
    })
    .await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_while_a_member_is_away_goes_when_it_is_back() {
    let Some(mut fleet) = Fleet::start().await else { return };
    let east = member();
    let line = Line::to(east.address()).await;
    let own = format!("https://{}", east.address());
    assert!(east.kubeconfig().contains(&own));
    fleet.join("east", &east.kubeconfig().replace(&own, &format!("https://{}", line.address)), "nginx");
    fleet.hub.kubectl_apply(SHOP).unwrap();
    there(&east, "shop", |_| true).await;
    line.cut();
    fleet.told("shop", "east", "ClusterAway").await;
    // Nothing holds up the hub's object.
    fleet.hub.kubectl(&["delete", "ingress", "shop", "--namespace=acme", "--timeout=30s"]).unwrap();
    // Also where another leads when it is back.
    fleet.lead_anew().await;
    assert!(ingress(&east, "shop").is_some());
    line.mend();
    gone(&east, "shop").await;
    fleet.stop().await;
}

/// A hub, and a controller on it, in this process.
struct Fleet {
    hub: ApiServer,
    client: kube::Client,
    plan: Arc<ArcSwap<Snapshot>>,
    writing: Writing,
    desk: Arc<Mutex<Desk>>,
    control: thread::JoinHandle<()>,
    stop_control: CancellationToken,
    leader: Leader,
}

/// The wishes of each cluster, for whoever leads and for whoever leads next.
#[derive(Default)]
struct Desk {
    wishes: BTreeMap<ClusterName, Wish>,
    to: Option<UnboundedSender<Wish>>,
}

struct Leader {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Fleet {
    async fn start() -> Option<Self> {
        let hub = hub::start()?;
        hub.kubectl_apply(&manifest::crds::to_yaml()).unwrap();
        hub.kubectl(&["wait", "--for=condition=Established", "customresourcedefinitions", "--all"]).unwrap();
        for namespace in ["acme", "fleetgate-system"] {
            hub.kubectl(&["create", "namespace", namespace]).unwrap();
        }
        hub.kubectl_apply(HUB).unwrap();
        let client = hub::client(&hub).await;
        let (plan, writing, desk) =
            (Arc::<ArcSwap<Snapshot>>::default(), Writing::default(), Arc::<Mutex<Desk>>::default());
        let settings = Settings {
            roles: Roles::ALL,
            namespace: "fleetgate-system".into(),
            sources: vec!["fleetgate-system".into()],
            certificates: Vec::new(),
        };
        let (home, _) = Home::open(&client, settings, Vec::new(), Some(writing.clone()), Handle::current());
        let stop_control = home.stopper();
        let sides = (Arc::clone(&plan), writing.clone(), Arc::clone(&desk));
        let control = thread::spawn(move || control(home, &sides.0, &sides.1, &sides.2));
        let leader = Leader::start(&client, &plan, &writing, &desk).await;
        Some(Self { hub, client, plan, writing, desk, control, stop_control, leader })
    }

    async fn lead_anew(&mut self) {
        let next = Leader { stop: CancellationToken::new(), tasks: Vec::new() };
        std::mem::replace(&mut self.leader, next).stop().await;
        self.leader = Leader::start(&self.client, &self.plan, &self.writing, &self.desk).await;
    }

    async fn stop(self) {
        self.leader.stop().await;
        self.stop_control.cancel();
        tokio::task::spawn_blocking(|| self.control.join().unwrap()).await.unwrap();
    }

    /// A Cluster with its kubeconfig, and an ingress controller of this class.
    fn join(&self, name: &str, kubeconfig: &str, class: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "fleetgate-system"},
            "stringData": {"kubeconfig": kubeconfig},
        });
        self.hub.kubectl_apply(&secret.to_string()).unwrap();
        let mut cluster = json!({
            "apiVersion": "fleetgate.dev/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "labels": {"serves": "yes"}},
            "spec": {
                "tenant": "acme", "zone": "main",
                "controlPlane": {"kubeApiserver": {"addresses": ["192.0.2.100:6443"]}},
                "access": {"kubeconfig": {"secret": {"namespace": "fleetgate-system", "name": name}}},
                "ingress": {"https": ["192.0.2.101:443"]},
            },
        });
        if !class.is_empty() {
            cluster["spec"]["ingress"]["className"] = class.into();
        }
        self.hub.kubectl_apply(&cluster.to_string()).unwrap();
    }

    fn hub_ingress(&self, name: &str) -> Value {
        ingress(&self.hub, name).unwrap()
    }

    fn patch_hub(&self, name: &str, patch: &Value) {
        self::patch(&self.hub, name, patch);
    }

    fn cluster(&self, name: &str) -> Value {
        let args = ["get", "clusters.fleetgate.dev", name, "--output=json", "--show-managed-fields"];
        serde_json::from_str(&self.hub.kubectl(&args).unwrap()).unwrap()
    }

    async fn until(&self, cluster: &str, holds: impl Fn(&Value) -> bool) {
        eventually(cluster, async || holds(&self.cluster(cluster)["status"]).then_some(())).await;
    }

    /// Until the Verdict of an Ingress says so of a part; nothing is that all is well.
    async fn told(&self, name: &str, part: &str, code: &str) {
        let mut last = Value::Null;
        let told = eventually_or(async || {
            let args = ["get", "verdict", name, "--namespace=acme", "--ignore-not-found", "--output=json"];
            let text = self.hub.kubectl(&args).unwrap();
            last = serde_json::from_str(&text).unwrap_or_default();
            let parts = last["spec"]["parts"].as_array()?;
            let found = parts.iter().find(|at| at["part"] == part)?;
            (found.get("code").and_then(Value::as_str).unwrap_or_default() == code).then_some(())
        });
        let is_told = told.await;
        assert!(is_told, "{part} is not told {code:?}: {last:#}");
    }

    /// The members that nobody is sent to for a host.
    fn out(&self, host: &str) -> Vec<(String, Unhealthy)> {
        let plan = self.plan.load();
        let entry = plan.http().host(&host.parse().unwrap()).unwrap().entry("/").unwrap();
        let out = entry
            .members
            .iter()
            .filter_map(|member| Some((member.cluster.to_string(), entry.known(member, Known::default()).unhealthy?)));
        out.collect()
    }

    /// Our field managers have nothing of each other's.
    fn only_ours(&self, cluster: &str) {
        let object = self.cluster(cluster);
        let managers = object["metadata"]["managedFields"].as_array().unwrap();
        for (manager, expected) in [(FIELD_MANAGER, "f:nodes"), ("fleetgate", "f:apiName")] {
            let ours = managers.iter().find(|entry| entry["manager"] == manager).unwrap();
            let fields = ours["fieldsV1"]["f:status"].as_object().unwrap();
            assert!(fields.contains_key(expected), "{ours}");
            assert!(!fields.contains_key("f:ingresses"), "{ours}");
        }
    }
}

/// From what the hub shows to what is planned.
fn control(mut home: Home, plan: &ArcSwap<Snapshot>, writing: &Writing, desk: &Mutex<Desk>) {
    let mut planner = Planner::default();
    let mut wake: Option<Timestamp> = None;
    while let Some(update) = home.next(wake.map(|at| Instant::now() + at.as_unix().saturating_sub(now().as_unix()))) {
        let Planned { snapshot, changes, wake: next, .. } = planner.apply(update.facts, now());
        wake = next;
        plan.store(snapshot);
        writing.mark_planned(&changes);
        let mut desk = desk.lock().unwrap();
        for wish in update.wishes {
            desk.to.as_ref().map(|to| to.send(wish.clone()));
            match &wish {
                Wish::Follow(cluster, _) | Wish::Clear(cluster, _) => _ = desk.wishes.insert(cluster.clone(), wish),
                Wish::Leave(cluster) => _ = desk.wishes.remove(cluster),
            }
        }
        if update.complete {
            writing.actual.set_whole();
        }
    }
}

impl Leader {
    async fn start(
        client: &kube::Client,
        plan: &Arc<ArcSwap<Snapshot>>,
        writing: &Writing,
        desk: &Mutex<Desk>,
    ) -> Self {
        let stop = CancellationToken::new();
        let mut election = lease::contend(client.clone(), lease::Settings::new("default", "test"), stop.clone());
        let term = election.term.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        let (to, wishes) = unbounded_channel();
        {
            let mut desk = desk.lock().unwrap();
            for wish in desk.wishes.values() {
                to.send(wish.clone()).unwrap();
            }
            desk.to = Some(to);
        }
        let Writing { actual, dirty, originals, .. } = writing.clone();
        let settings = tenants::Settings {
            policy: Policy { loopback: true },
            patience: Duration::from_secs(1),
            watch: Duration::from_secs(5),
        };
        let wanted = Arc::default();
        let follow = tenants::follow(
            client.clone(),
            wishes,
            settings,
            tenants::Metrics::default(),
            Arc::clone(&wanted),
            term.lost().clone(),
        );
        let sides = tenants::Sides { plan: Arc::clone(plan), hub: Arc::clone(&actual), originals };
        let place = tenants::keep(sides, wanted, term.lost().clone());
        let sides =
            apply::Sides { plan: Arc::clone(plan), hub: actual, dirty, failing: watch::channel(Arc::default()).1 };
        let settings = apply::Settings { identity: "test".into() };
        let write = apply::run(client.clone(), sides, term, settings, apply::Metrics::default());
        let tasks = vec![tokio::spawn(follow), tokio::spawn(place), tokio::spawn(write), election.ended];
        Self { stop, tasks }
    }

    async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// A cluster of acme's.
fn member() -> ApiServer {
    let server = hub::start().unwrap();
    server.kubectl(&["create", "namespace", "acme"]).unwrap();
    server
}

fn ingress(server: &ApiServer, name: &str) -> Option<Value> {
    let args = ["get", "ingress", name, "--namespace=acme", "--ignore-not-found", "--output=json"];
    serde_json::from_str(&server.kubectl(&args).unwrap()).ok()
}

fn patch(server: &ApiServer, name: &str, patch: &Value) {
    server.kubectl(&["patch", "ingress", name, "--namespace=acme", "--type=merge", "-p", &patch.to_string()]).unwrap();
}

async fn there(server: &ApiServer, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let mut last = None;
    let found = eventually_or(async || {
        last = ingress(server, name);
        last.as_ref().is_some_and(&holds).then_some(())
    });
    let is_found = found.await;
    assert!(is_found, "{name} is not there as it should be: {last:#?}");
    last.unwrap()
}

async fn gone(server: &ApiServer, name: &str) {
    eventually("an Ingress goes", async || ingress(server, name).is_none().then_some(())).await;
}

/// As [`eventually`], for those who have more to say when it does not come to it.
async fn eventually_or(mut ask: impl AsyncFnMut() -> Option<()>) -> bool {
    let deadline = Instant::now() + hub::PATIENCE;
    while ask().await.is_none() {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    true
}

/// What is to be in a member of what stands on the hub.
fn spec(origin: &Value, class: &str) -> Value {
    let mut spec = origin["spec"].clone();
    spec["ingressClassName"] = class.into();
    spec
}

fn service(server: &ApiServer, port: &str) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "namespace": "acme"},
        "spec": {"ports": [{"name": port, "port": 80}]},
    });
    server.kubectl_apply(&service.to_string()).unwrap();
}

fn endpoint(server: &ApiServer, ready: bool) {
    let labels = json!({"kubernetes.io/service-name": "shop"});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "shop-1", "namespace": "acme", "labels": labels}, "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": ready}}],
    });
    server.kubectl_apply(&slice.to_string()).unwrap();
}

/// Status and reason.
fn condition<'a>(status: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let text = |condition: &'a Value, field: &str| condition[field].as_str().unwrap_or_default();
    let found = conditions.find(|condition| condition["type"] == kind);
    found.map_or(("", ""), |condition| (text(condition, "status"), text(condition, "reason")))
}

fn now() -> Timestamp {
    Timestamp::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).unwrap())
}
