//! What is written, for what is planned and what is there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manifest::address::AddressSpec;
use model::identity::Kind;
use model::overflow::Failing;
use model::{FactChange, ObjectName, ObjectRef, Planner, Since, Timestamp};
use serde_json::{Value, json};

use super::wanted::{Phase, Write, wanted};
use super::{Actual, OwnStatus, Task, address, of_phase, publish, verdict};

const ZONE: &str = "
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [192.0.2.53]}]
  gateway: {addresses: [192.0.2.10]}
  publish: [authoritative, dnsEndpoint]
";
const TENANT: &str = "{apiVersion: fleetgate.dev/v1alpha1, kind: Tenant, metadata: {name: acme}, spec: {}}";
const CLUSTER: &str = "
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: c1}
spec:
  tenant: acme
  zone: main
  controlPlane: {kubeApiserver: {addresses: ['10.0.0.7:6443']}}
  nodes: [{name: n1, addresses: [192.0.2.11]}]
";
const DNS_ENDPOINT: &str = "
    {apiVersion: externaldns.k8s.io/v1alpha1, kind: DNSEndpoint, metadata: {name: web, namespace: acme},
    spec: {endpoints: [{dnsName: a.test, recordType: A, targets: [192.0.2.1]}]}}";
const INGRESS: &str = "
    {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, namespace: acme},
    spec: {ingressClassName: fleetgate, rules: [{host: shop.c1.fleet.example, http: {paths: [
        {path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}},
    ]}}]}}";

/// A plan and a hub.
#[derive(Default)]
struct Both {
    planner: Planner,
    hub: Actual,
    failing: Failing,
    seconds: u64,
}

impl Both {
    fn of(texts: &[&str]) -> Self {
        let mut both = Self::default();
        for text in texts {
            both.plan(text);
            both.see(text);
        }
        both
    }

    fn plan(&mut self, text: &str) {
        self.plan_facts([change(text)]);
    }

    fn plan_facts(&mut self, facts: impl IntoIterator<Item = FactChange>) {
        self.seconds += 1;
        self.planner.apply(facts, Timestamp(self.seconds * 1_000_000_000));
    }

    /// The hub has it, without a status.
    fn see(&self, text: &str) {
        let object = read(text).object;
        let meta = ObjectMeta { uid: Some(format!("uid of {object}")), ..ObjectMeta::default() };
        let status = OwnStatus::read(object.kind, &Value::Null);
        self.hub.see(object, &meta, status);
    }

    fn set_status(&self, object: &ObjectRef, status: &Value) {
        let uid = self.hub.read().object(object).map(|seen| seen.uid.clone());
        let is_told = status.as_object().is_some_and(|status| !status.is_empty());
        let ours = json!([{"manager": super::MANAGER, "subresource": "status"}]);
        let managed_fields = is_told.then(|| serde_json::from_value(ours).unwrap());
        let meta = ObjectMeta { uid, managed_fields, ..ObjectMeta::default() };
        self.hub.see(object.clone(), &meta, OwnStatus::read(object.kind, status));
    }

    /// The hub has it, in its next version.
    fn see_address(&self, name: &ObjectName, spec: &AddressSpec) {
        let body = address::body(name, None, spec);
        let mut meta: ObjectMeta = serde_json::from_value(body["metadata"].clone()).unwrap();
        let version = self.hub.read().address(name).map_or(1, |seen| seen.version.parse::<u32>().unwrap() + 1);
        (meta.uid, meta.resource_version) = (Some("address".into()), Some(version.to_string()));
        self.hub.see_address(&meta, &body["spec"]);
    }

    /// What there is to write of an address.
    fn of_address(&self, name: &str) -> Vec<String> {
        self.wanted(&object(Kind::Address, name)).iter().map(in_words).collect()
    }

    fn wanted(&self, object: &ObjectRef) -> Vec<Write> {
        wanted(object, self.planner.snapshot(), &self.hub.read(), &self.failing)
    }

    /// What there is to write of everything, in a word each.
    fn all(&self) -> Vec<String> {
        let mut objects = self.hub.everything();
        objects.sort();
        objects.dedup();
        objects.iter().flat_map(|object| self.wanted(object)).map(|write| in_words(&write)).collect()
    }

    /// Does what a hub would.
    fn write_all(&self) {
        for write in self.hub.everything().iter().flat_map(|object| self.wanted(object)) {
            let seen = |body: &Value, uid: &str| {
                let mut meta: ObjectMeta = serde_json::from_value(body["metadata"].clone()).unwrap();
                meta.uid = Some(uid.into());
                meta
            };
            match &write {
                Write::Status { object, status, .. } => self.set_status(object, &status.to_json()),
                Write::Publish { endpoint } => {
                    let body = publish::body(endpoint);
                    self.hub.see_published(&seen(&body, "endpoint"), &body["spec"]);
                }
                Write::Judge { place, verdict } => {
                    let body = verdict::body(place, verdict);
                    self.hub.see_verdict(&seen(&body, "verdict"), &body["spec"]);
                }
                Write::Withdraw { name, .. } => self.hub.write().forget_published(name),
                Write::DropVerdict { place, .. } => self.hub.write().forget_verdict(place),
                Write::Allocate { name, spec } | Write::Reallocate { name, spec, .. } => self.see_address(name, spec),
                Write::Free { name, .. } => self.hub.write().forget_address(name),
            }
        }
    }
}

fn change(text: &str) -> FactChange {
    read(text).into_fact(Since::default(), None)
}

fn read(text: &str) -> manifest::Manifest {
    let json = manifest::document::to_json(text).unwrap();
    let kind = Kind::find(json["kind"].as_str().unwrap()).unwrap();
    manifest::hub::read(kind, json, &mut manifest::nothing_named).unwrap()
}

fn in_words(write: &Write) -> String {
    match write {
        Write::Status { object, .. } => format!("status of {object}"),
        Write::Publish { endpoint } => format!("publish {}", endpoint.name),
        Write::Withdraw { name, uid } => format!("withdraw {name} ({uid})"),
        Write::Judge { place, .. } => format!("judge {}/{}", place.0, place.1),
        Write::DropVerdict { place, uid } => format!("drop {}/{} ({uid})", place.0, place.1),
        Write::Allocate { name, spec } => format!("allocate {name} to {}", spec.claim.name.0),
        Write::Reallocate { name, version, spec, .. } => {
            format!("{} {name} ({version})", if spec.released_until.is_some() { "release" } else { "give back" })
        }
        Write::Free { name, version, .. } => format!("free {name} ({version})"),
    }
}

fn object(kind: Kind, name: &str) -> ObjectRef {
    ObjectRef::cluster_scoped(kind, name.parse().unwrap())
}

fn c1() -> ObjectRef {
    object(Kind::Cluster, "c1")
}

/// The status that the hub has of `c1` when everything is in order.
fn good_status(both: &Both) -> Value {
    both.hub.read().object(&c1()).unwrap().status.as_ref().unwrap().to_json()
}

#[test]
fn what_is_missing_is_written_and_then_nothing() {
    let both = Both::of(&[ZONE, TENANT, CLUSTER, DNS_ENDPOINT]);
    let expected =
        ["status of Zone main", "status of Tenant acme", "status of Cluster c1", "publish c1", "judge acme/web"];
    assert_eq!(both.all(), expected);
    both.write_all();
    assert_eq!(both.all(), [""; 0]);
}

#[test]
fn another_leader_finds_everything_in_order() {
    let first = Both::of(&[ZONE, TENANT, CLUSTER, DNS_ENDPOINT]);
    first.write_all();
    // It plans later, so that its own dates are others.
    let mut next = Both { hub: first.hub, seconds: 1000, ..Both::default() };
    let number = first
        .planner
        .snapshot()
        .zone(&"main".parse().unwrap())
        .map(|part| model::Number { serial: part.soa.serial, digest: part.digest });
    // All at once: a zone without its clusters would be other content, and need another number.
    let facts = [ZONE, TENANT, CLUSTER, DNS_ENDPOINT].map(change);
    next.plan_facts(facts.into_iter().chain([FactChange::Number("main".parse().unwrap(), number)]));
    assert_eq!(next.all(), [""; 0]);
}

/// Whether the hub has to be written to when its status of `c1` was edited like this.
fn is_repaired(edit: impl FnOnce(&mut Value)) -> bool {
    let both = Both::of(&[ZONE, TENANT, CLUSTER]);
    both.write_all();
    let mut status = good_status(&both);
    edit(&mut status);
    both.set_status(&c1(), &status);
    let all = both.all();
    assert!(all.is_empty() || all == ["status of Cluster c1"], "{all:?}");
    !all.is_empty()
}

#[test]
fn what_is_ours_is_repaired() {
    assert!(is_repaired(|status| status["readyNodes"] = 5.into()));
    assert!(is_repaired(|status| _ = status.as_object_mut().unwrap().remove("apiName")));
    assert!(is_repaired(|status| _ = status["conditions"].as_array_mut().unwrap().pop()));
    assert!(is_repaired(|status| status["conditions"][0]["reason"] = "Because".into()));
    assert!(is_repaired(|status| *status = json!({})));
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let add = |kind: &'static str| {
        let at = "2026-01-01T00:00:00Z";
        let condition =
            json!({"type": kind, "status": "False", "reason": "R", "message": "", "lastTransitionTime": at});
        move |status: &mut Value| status["conditions"].as_array_mut().unwrap().insert(0, condition)
    };
    assert!(!is_repaired(add("Reachable")));
    assert!(!is_repaired(add("Audited")));
    assert!(!is_repaired(|status| status["nodes"] = json!([{"name": "n", "ready": true}])));
    assert!(!is_repaired(|status| status["conditions"].as_array_mut().unwrap().reverse()));
    assert!(!is_repaired(|status| status["conditions"][0]["lastTransitionTime"] = "2020-01-01T00:00:00Z".into()));
}

#[test]
fn conditions_that_are_not_planned_any_more_go() {
    let mut both = Both::of(&[ZONE, TENANT, CLUSTER]);
    both.write_all();
    both.plan_facts([FactChange::Tenant("acme".parse().unwrap(), None)]);
    let writes = both.wanted(&c1());
    let Write::Status { status, .. } = &writes[0] else { panic!("{writes:?}") };
    let kinds: Vec<_> =
        status.to_json()["conditions"].as_array().unwrap().iter().map(|at| at["type"].clone()).collect();
    assert_eq!(kinds, ["Accepted"]);
    assert_eq!(in_words(&writes[1]), "withdraw c1 (endpoint)");
}

#[test]
fn a_date_changes_with_its_condition_alone() {
    let mut both = Both::of(&[ZONE, TENANT, CLUSTER]);
    both.write_all();
    let mut status = good_status(&both);
    for condition in status["conditions"].as_array_mut().unwrap() {
        condition["lastTransitionTime"] = "2020-01-01T00:00:00Z".into();
    }
    both.set_status(&c1(), &status);
    both.plan(&CLUSTER.replace("192.0.2.11]", "192.0.2.11], ready: false"));
    both.write_all();
    let old: Vec<_> = good_status(&both)["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|condition| condition["lastTransitionTime"] == "2020-01-01T00:00:00Z")
        .map(|condition| condition["type"].clone())
        .collect();
    assert_eq!(old, ["Accepted", "DoorOpen", "Published"]);
}

/// Each row: the zone's number on the hub, beside the planned one, and whether that is written.
#[test]
fn a_number_is_given_only_after_the_last_one() {
    let both = Both::of(&[ZONE, TENANT, CLUSTER]);
    both.write_all();
    let zone = ObjectRef::cluster_scoped(Kind::Zone, "main".parse().unwrap());
    let planned = both.hub.read().object(&zone).unwrap().status.as_ref().unwrap().to_json();
    let (serial, digest) = (planned["serial"].as_u64().unwrap(), planned["digest"].as_str().unwrap());
    let other = "0".repeat(32);
    for (last, of, written) in [
        (serial, digest, false),
        (serial - 1, other.as_str(), true),
        (serial - 1, digest, true),
        // The plan has not heard of these yet.
        (serial, &other, false),
        (serial + 1, &other, false),
        (serial + 1, digest, false),
        // The plan never will.
        (serial, "what somebody wrote", true),
    ] {
        let mut status = planned.clone();
        (status["serial"], status["digest"]) = (last.into(), of.into());
        both.set_status(&zone, &status);
        assert_eq!(!both.wanted(&zone).is_empty(), written, "{last} of {of}, beside {serial} of {digest}");
    }
}

#[test]
fn nothing_is_deleted_before_the_plan_has_come_to_it() {
    let withdrawal = ["withdraw c1 (endpoint)"];
    let endpoint = |ours: bool| {
        let labels = if ours { json!({"app.kubernetes.io/managed-by": "fleetgate"}) } else { json!({}) };
        json!({"name": "c1", "namespace": "fleetgate-publish", "uid": "endpoint", "labels": labels})
    };
    let put = |both: &Both, ours| {
        let meta: ObjectMeta = serde_json::from_value(endpoint(ours)).unwrap();
        both.hub.see_published(&meta, &json!({"endpoints": []}));
    };
    let only_on_hub = Both::default();
    only_on_hub.see(CLUSTER);
    put(&only_on_hub, true);
    assert_eq!(only_on_hub.all(), [""; 0], "not planned yet");

    let gone = Both::default();
    put(&gone, true);
    assert_eq!(gone.all(), withdrawal, "the Cluster is gone");
    put(&gone, false);
    assert_eq!(gone.all(), [""; 0], "not ours");

    let refused = Both::of(&[CLUSTER]);
    put(&refused, true);
    assert_eq!(refused.wanted(&c1()).iter().map(in_words).collect::<Vec<_>>()[1..], withdrawal, "refused");

    let mut kept = Both::of(&[ZONE, TENANT, CLUSTER]);
    kept.write_all();
    kept.plan(&ZONE.replace(", dnsEndpoint", ""));
    assert_eq!(
        kept.wanted(&c1()).iter().map(in_words).collect::<Vec<_>>().last().unwrap(),
        withdrawal[0],
        "not handed out"
    );

    // The hub has deleted the Cluster, and the plan has not heard of it.
    let both = Both::of(&[ZONE, TENANT, CLUSTER]);
    both.write_all();
    both.hub.gone(&c1());
    assert_eq!(both.all(), [""; 0]);
}

#[test]
fn a_cluster_made_anew_gets_its_names_anew() {
    let both = Both::of(&[ZONE, TENANT, CLUSTER]);
    both.write_all();
    both.hub.see(c1(), &ObjectMeta { uid: Some("another".into()), ..ObjectMeta::default() }, None);
    assert_eq!(both.all(), ["status of Cluster c1", "publish c1"]);
}

/// A write that a round leaves out is not made up for: the object is taken for settled.
#[test]
fn a_round_sends_every_write_of_an_object() {
    let own = DNS_ENDPOINT.replace("a.test", "a.c1.fleet.example").replace("192.0.2.1]", "192.0.2.11]");
    let both = Both::of(&[ZONE, TENANT, CLUSTER, &own]);
    let object = ObjectRef { namespace: Some("acme".parse().unwrap()), ..object(Kind::DnsEndpoint, "web") };
    let task = Task { writes: both.wanted(&object), object, failure: None };
    let sent: Vec<_> = [Phase::Statuses, Phase::Beside, Phase::Zones]
        .into_iter()
        .flat_map(|phase| of_phase(std::slice::from_ref(&task), phase))
        .map(|(_, write)| write)
        .collect();
    assert_eq!(sent, task.writes);
    let [Write::Publish { .. }, Write::Judge { .. }] = &sent[..] else { panic!("{sent:?}") };
}

#[test]
fn objects_of_one_name_share_a_verdict() {
    let acme = |kind| {
        let (namespace, name): (ObjectName, ObjectName) = ("acme".parse().unwrap(), "web".parse().unwrap());
        ObjectRef { kind, namespace: Some(namespace), name }
    };
    let mut both = Both::of(&[DNS_ENDPOINT]);
    both.write_all();
    assert_eq!(both.all(), [""; 0]);
    both.plan(INGRESS);
    both.see(INGRESS);
    // Whichever of them is looked at.
    assert_eq!(both.wanted(&acme(Kind::DnsEndpoint)), both.wanted(&acme(Kind::Ingress)));
    let [Write::Judge { verdict, .. }] = &both.wanted(&acme(Kind::Ingress))[..] else { panic!() };
    let body = verdict::body(&("acme".parse().unwrap(), "web".parse().unwrap()), verdict);
    assert_eq!(body["spec"]["object"]["kind"], "DNSEndpoint");
    assert_eq!(body["spec"]["beside"]["kind"], "Ingress");
    assert_eq!(body["spec"]["refused"], 2);
    let kinds: Vec<_> = body["spec"]["parts"].as_array().unwrap().iter().map(|part| &part["kind"]).collect();
    assert_eq!(kinds, ["DNSEndpoint", "Ingress"]);
    both.write_all();
    assert_eq!(both.all(), [""; 0]);

    for (kind, left) in [(Kind::DnsEndpoint, "judge acme/web"), (Kind::Ingress, "drop acme/web (verdict)")] {
        both.plan_facts([FactChange::gone(&acme(kind))]);
        both.hub.gone(&acme(kind));
        assert_eq!(both.wanted(&acme(kind)).iter().map(in_words).collect::<Vec<_>>(), [left]);
        both.write_all();
    }
    assert_eq!(both.all(), [""; 0]);
}

/// What most of those who check a member say stands beside the member's name until they say otherwise.
#[test]
fn members_that_fail_are_told_in_the_verdict() {
    let cluster = CLUSTER.replace("  nodes:", "  ingress: {https: ['192.0.2.12:443']}\n  nodes:");
    let mut both = Both::of(&[ZONE, TENANT, &cluster, INGRESS]);
    both.write_all();
    assert_eq!(both.all(), [""; 0]);
    let object = read(INGRESS).object;
    let told = |both: &Both| {
        let [Write::Judge { place, verdict }] = &both.wanted(&object)[..] else { panic!() };
        let part = verdict::body(place, verdict)["spec"]["parts"][1].clone();
        [part["part"].clone(), part["code"].clone()]
    };
    both.failing.insert(object.clone(), ["c1".parse().unwrap(), "c9".parse().unwrap()].into());
    assert_eq!(told(&both), ["c1", "FailedChecks"]);
    both.write_all();
    assert_eq!(both.all(), [""; 0], "once");
    both.failing.clear();
    assert_eq!(told(&both), [json!("c1"), Value::Null]);
}

/// The name of an Ingress' host is handed out as other names are; what others serve is none of our business.
#[test]
fn an_ingress_is_judged_and_its_names_handed_out_while_it_is_ours() {
    let mut both = Both::of(&[ZONE, TENANT, CLUSTER, INGRESS]);
    let object = read(INGRESS).object;
    let writes = both.wanted(&object);
    let [Write::Publish { endpoint }, Write::Judge { verdict, place }, Write::Status { status, .. }] = &writes[..]
    else {
        panic!("{writes:?}")
    };
    assert_eq!(status.to_json(), json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}}));
    let endpoint = publish::body(endpoint);
    assert_eq!(endpoint["metadata"]["name"], "acme.web.ingress");
    let endpoints = &endpoint["spec"]["endpoints"];
    assert_eq!(
        (&endpoints[0]["dnsName"], &endpoints[0]["targets"][0]),
        (&json!("shop.c1.fleet.example"), &json!("192.0.2.10"))
    );
    let parts = verdict::body(place, verdict)["spec"]["parts"].clone();
    let told =
        |part: &Value| format!("{} {}", part["part"].as_str().unwrap(), part["code"].as_str().unwrap_or("published"));
    let told: Vec<_> = parts.as_array().unwrap().iter().map(told).collect();
    assert_eq!(told, ["shop.c1.fleet.example/ published", "c1 NoIngressAddress"]);
    both.write_all();
    assert_eq!(both.all(), [""; 0]);

    let foreign = INGRESS.replace("ingressClassName: fleetgate", "ingressClassName: nginx");
    both.plan(&foreign);
    let writes: Vec<_> = both.wanted(&object).iter().map(in_words).collect();
    assert_eq!(
        writes,
        ["withdraw acme.web.ingress (endpoint)", "drop acme/web (verdict)", "status of Ingress acme/web"]
    );
    both.write_all();
    assert_eq!(both.all(), [""; 0]);
}

const POOL: &str = "{apiVersion: fleetgate.dev/v1alpha1, kind: AddressPool, metadata: {name: public},
    spec: {cidrs: [192.0.2.0/29], quarantine: 10s}}";
const CLAIM: &str = "{apiVersion: fleetgate.dev/v1alpha1, kind: AddressClaim, metadata: {name: web, namespace: acme},
    spec: {pool: public, family: IPv4}}";

/// An address is written only in the place of what the plan was made from.
#[test]
fn addresses_are_given_released_and_freed_one_step_at_a_time() {
    let mut both = Both::of(&[TENANT, POOL, CLAIM]);
    let name: ObjectName = "192.0.2.1".parse().unwrap();
    assert_eq!(both.of_address("192.0.2.1"), ["allocate 192.0.2.1 to web"]);
    let spec = match both.wanted(&object(Kind::Address, "192.0.2.1")).remove(0) {
        Write::Allocate { spec, .. } => spec,
        other => panic!("{other:?}"),
    };
    // It is on the hub, and the plan has not heard of it yet.
    both.see_address(&name, &spec);
    assert_eq!(both.of_address("192.0.2.1"), [""; 0]);
    let known = |spec: &AddressSpec| FactChange::Address("192.0.2.1".parse().unwrap(), Some(spec.clone().into_model()));
    both.plan_facts([known(&spec)]);
    assert_eq!(both.of_address("192.0.2.1"), [""; 0]);
    both.plan_facts([FactChange::gone(&read(CLAIM).object)]);
    assert_eq!(both.of_address("192.0.2.1"), ["release 192.0.2.1 (1)"]);
    // Somebody else was there meanwhile: nothing of ours fits any more.
    let mut other = spec.clone();
    other.claim.uid.0.0 = "another".into();
    both.see_address(&name, &other);
    assert_eq!(both.of_address("192.0.2.1"), [""; 0]);
    both.plan_facts([known(&other)]);
    let write = both.wanted(&object(Kind::Address, "192.0.2.1")).remove(0);
    assert_eq!(in_words(&write), "release 192.0.2.1 (2)");
    let Write::Reallocate { spec: released, .. } = write else { panic!("{write:?}") };
    both.see_address(&name, &released);
    both.plan_facts([known(&released)]);
    assert_eq!(both.of_address("192.0.2.1"), [""; 0]);
    both.seconds += 10;
    both.plan_facts([]);
    assert_eq!(both.of_address("192.0.2.1"), ["free 192.0.2.1 (3)"]);
}

/// What cannot be read is neither given nor deleted.
#[test]
fn an_address_that_somebody_wrote_is_left_alone() {
    let both = Both::of(&[TENANT, POOL, CLAIM]);
    let meta = ObjectMeta { name: Some("192.0.2.1".into()), uid: Some("u".into()), ..ObjectMeta::default() };
    both.hub.see_address(&meta, &json!({"what": "ever"}));
    assert_eq!(both.of_address("192.0.2.1"), [""; 0]);
}
