//! What is planned comes to stand on a real hub, and stays.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod fleet;
mod hub;

use kubernetes::apply::PUBLISH_NAMESPACE;
use serde_json::{Value, json};

use fleet::{Fleet, TENANT, cluster, condition, zone};
use hub::{Line, eventually};

const BOTH: &str = "[authoritative, dnsEndpoint]";

#[tokio::test(flavor = "multi_thread")]
async fn statuses_are_written_once_and_stay() {
    let Some(mut fleet) = Fleet::start().await else { return };
    fleet.server.kubectl(&["create", "namespace", PUBLISH_NAMESPACE]).unwrap();
    fleet.put(&zone("main", BOTH));
    fleet.put(TENANT);
    fleet.put(&cluster("c1", "main", &["192.0.2.11", "192.0.2.12"]));
    fleet.put(&cluster("lost", "nowhere", &[]));
    // As whoever watches the nodes would write it.
    fleet.write_nodes("c1");
    let leader = fleet.lead().await;

    let zone = eventually("the zone's number", async || {
        let zone = fleet.get("zone/main")?;
        zone["status"]["serial"].is_number().then_some(zone)
    })
    .await;
    assert_eq!(zone["status"]["digest"].as_str().unwrap().len(), 32);
    // It comes last: all the rest is there.
    let c1 = fleet.get("cluster/c1").unwrap();
    assert_eq!(c1["status"]["apiName"], "api.c1.fleet.example");
    assert_eq!(c1["status"]["readyNodes"], 2);
    assert_eq!(condition(&c1, "Accepted")["status"], "True");
    assert_eq!(condition(&c1, "Reachable")["reason"], "Watched", "another's condition stays");
    assert_eq!(c1["status"]["nodes"][0]["name"], "seen", "so do the nodes that it saw");
    let lost = fleet.get("cluster/lost").unwrap();
    assert_eq!(condition(&lost, "Accepted")["reason"], "UnknownZone");
    assert_eq!(condition(&fleet.get("tenant/acme").unwrap(), "Accepted")["status"], "True");
    let managers = fleet.managers("cluster/c1");
    assert_eq!(managers.iter().filter(|manager| *manager == "fleetgate").count(), 1, "{managers:?}");
    assert!(managers.contains(&"fleetgate-nodes".into()), "{managers:?}");

    let table = fleet.server.kubectl(&["get", "clusters.fleetgate.dev"]).unwrap();
    println!("{table}");
    let row: Vec<_> = table.lines().find(|line| line.starts_with("c1")).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["c1", "acme", "api.c1.fleet.example", "2"], "{table}");

    // Somebody edits what is ours, and adds what is not.
    fleet.patch_status("cluster/c1", &json!({"status": {"readyNodes": 7, "apiName": null}}));
    eventually("the repair", async || {
        let c1 = fleet.get("cluster/c1")?;
        (c1["status"]["readyNodes"] == 2 && c1["status"]["apiName"] == "api.c1.fleet.example").then_some(())
    })
    .await;
    leader.stop().await;

    // Another process leads, sees everything anew, and finds it in order.
    let before = fleet.versions();
    let mut next = fleet.another().await;
    next.plan_what_is_there(&fleet);
    let leader = next.lead().await;
    leader.rounds(1).await;
    // The round that looked at everything is over when another one begins.
    let rounds = leader.metrics.rounds();
    next.look_at("tenant/acme");
    leader.rounds(rounds + 1).await;
    assert_eq!(leader.metrics.requests(), 0);
    assert_eq!(fleet.versions(), before);
    leader.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_handed_to_external_dns() {
    let Some(mut fleet) = Fleet::start().await else { return };
    fleet.put(&zone("main", BOTH));
    fleet.put(TENANT);
    fleet.put(&cluster("c1", "main", &["192.0.2.11", "2001:db8::11"]));
    let leader = fleet.lead().await;

    // The namespace is missing; the Cluster says so, and nothing else is held up.
    eventually("a complaint", async || fleet.events("c1").contains(&"PublishingNotPossible".into()).then_some(()))
        .await;
    assert!(fleet.get("zone/main").unwrap()["status"]["serial"].is_number());
    fleet.server.kubectl(&["create", "namespace", PUBLISH_NAMESPACE]).unwrap();
    let first = eventually("the DNSEndpoint", async || fleet.published("c1")).await;
    assert_eq!(
        endpoints(&first),
        [
            ("api.c1.fleet.example A 30".into(), vec!["192.0.2.10".into()]),
            ("*.c1.fleet.example A 30".into(), vec!["192.0.2.11".into()]),
            ("*.c1.fleet.example AAAA 30".into(), vec!["2001:db8::11".into()]),
        ]
    );
    let uid = &fleet.get("cluster/c1").unwrap()["metadata"]["uid"];
    assert_eq!(first["metadata"]["ownerReferences"][0]["uid"], *uid);
    assert_eq!(first["metadata"]["labels"]["fleetgate.dev/cluster"], "c1");

    // A node is replaced by another: nothing in the status changes.
    fleet.in_publish(&["label", "dnsendpoint/c1", "team=edge"]);
    fleet.put(&cluster("c1", "main", &["192.0.2.12", "2001:db8::11"]));
    let changed = eventually("the new node", async || {
        let there = fleet.published("c1")?;
        (endpoints(&there)[1].1 == ["192.0.2.12"]).then_some(there)
    })
    .await;
    assert_eq!(changed["metadata"]["labels"]["team"], "edge", "another's label stays");
    assert_eq!(changed["metadata"]["uid"], first["metadata"]["uid"]);

    // Somebody edits it, or deletes it.
    let edit = json!({"spec": {"endpoints": []}, "metadata": {"labels": {"fleetgate.dev/cluster": null}}});
    fleet.in_publish(&["patch", "dnsendpoint/c1", "--type=merge", "--patch", &edit.to_string()]);
    eventually("the repair", async || {
        let there = fleet.published("c1")?;
        (endpoints(&there) == endpoints(&changed) && there["metadata"]["labels"] == changed["metadata"]["labels"])
            .then_some(())
    })
    .await;
    fleet.in_publish(&["delete", "dnsendpoint/c1"]);
    eventually("a new one", async || fleet.published("c1")).await;

    // Somebody else's object in the same namespace is not ours to delete, the cluster's is.
    let foreign = json!({
        "apiVersion": "externaldns.k8s.io/v1alpha1", "kind": "DNSEndpoint",
        "metadata": {"name": "foreign", "namespace": PUBLISH_NAMESPACE}, "spec": {"endpoints": []},
    });
    fleet.server.kubectl_apply(&foreign.to_string()).unwrap();
    fleet.put(&cluster("c2", "main", &["192.0.2.21"]));
    eventually("the second", async || fleet.published("c2")).await;
    fleet.delete_cluster("c2");
    eventually("its end", async || fleet.published("c2").is_none().then_some(())).await;

    // The zone is not handed out any more.
    fleet.put(&zone("main", "[authoritative]"));
    eventually("the end of all", async || fleet.published("c1").is_none().then_some(())).await;
    assert!(fleet.published("foreign").is_some());
    leader.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_kinds_get_a_verdict_beside_them() {
    let Some(mut fleet) = Fleet::start().await else { return };
    let leader = fleet.lead().await;
    fleet.put(DNS_ENDPOINT);
    let verdict = eventually("a verdict", async || fleet.verdict("web")).await;
    assert_eq!(verdict["spec"]["object"]["kind"], "DNSEndpoint");
    assert_eq!(verdict["spec"]["parts"][0]["code"], "NoTenant");
    assert_eq!(verdict["spec"]["refused"], 1);
    let owners = |verdict: &Value| verdict["metadata"]["ownerReferences"].as_array().unwrap().len();
    assert_eq!(owners(&verdict), 1);

    // An Ingress of the same name shares it.
    fleet.put(INGRESS);
    let verdict = eventually("a shared verdict", async || {
        fleet.verdict("web").filter(|verdict| verdict["spec"]["beside"]["kind"] == "Ingress")
    })
    .await;
    assert_eq!(owners(&verdict), 2);
    assert_eq!(verdict["spec"]["parts"][1]["kind"], "Ingress");
    println!("{}", fleet.server.kubectl(&["get", "verdicts", "--namespace=acme"]).unwrap());

    fleet.delete_in_acme("dnsendpoint", "web");
    eventually("the Ingress' own", async || {
        fleet.verdict("web").filter(|verdict| verdict["spec"]["object"]["kind"] == "Ingress" && owners(verdict) == 1)
    })
    .await;
    fleet.delete_in_acme("ingress", "web");
    eventually("no verdict", async || fleet.verdict("web").is_none().then_some(())).await;
    leader.stop().await;
}

/// The hub's definition is another than ours: it takes nothing that we say of clusters.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_hub_rejects_is_told_and_holds_up_nothing() {
    let Some(mut fleet) = Fleet::start().await else { return };
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/apiName/maxLength";
    let narrow = json!([{"op": "add", "path": schema, "value": 20}]);
    let crd = "customresourcedefinitions/clusters.fleetgate.dev";
    fleet.server.kubectl(&["patch", crd, "--type=json", "--patch", &narrow.to_string()]).unwrap();
    fleet.put(&zone("main", "[authoritative]"));
    fleet.put(TENANT);
    fleet.put(&cluster("c1", "main", &["192.0.2.11"]));
    fleet.put(&cluster("a-name-that-is-longer", "main", &["192.0.2.21"]));
    let leader = fleet.lead().await;
    eventually("a complaint", async || {
        fleet.events("a-name-that-is-longer").contains(&"NotWritten".into()).then_some(())
    })
    .await;
    assert!(fleet.get("zone/main").unwrap()["status"]["serial"].is_number());
    assert_eq!(condition(&fleet.get("cluster/c1").unwrap(), "Accepted")["status"], "True");
    // It is not tried again soon, however often somebody touches the object.
    for number in 0..5 {
        let touched = format!("touched={number}");
        fleet
            .server
            .kubectl(&["label", "--overwrite", "clusters.fleetgate.dev", "a-name-that-is-longer", &touched])
            .unwrap();
    }
    assert_eq!(leader.metrics.written("Cluster", "rejected"), 1);

    // What is different may be taken, and is tried at once.
    fleet.put(&cluster("a-name-that-is-longer", "nowhere", &[]));
    eventually("a refusal", async || {
        let status = &fleet.get("cluster/a-name-that-is-longer")?["status"];
        (status["conditions"][0]["reason"] == "UnknownZone").then_some(())
    })
    .await;
    leader.stop().await;
}

/// A leader ends in the middle of its work, and another has the rest to do.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_a_leader_vanishes() {
    const CLUSTERS: usize = 100;
    let Some(mut fleet) = Fleet::start().await else { return };
    fleet.server.kubectl(&["create", "namespace", PUBLISH_NAMESPACE]).unwrap();
    fleet.put(&zone("main", BOTH));
    fleet.put(TENANT);
    let clusters: Vec<_> =
        (0..CLUSTERS).map(|number| cluster(&format!("c{number}"), "main", &["192.0.2.11"])).collect();
    fleet.put_all(&clusters);
    let first = fleet.lead().await;
    let second = fleet.lead_next();
    eventually("some writes", async || (first.metrics.written("Cluster", "ok") > 10).then_some(())).await;
    first.vanish();

    let second = second.await;
    let (statuses, endpoints) = eventually("all", async || {
        let statuses = fleet.list("clusters.fleetgate.dev");
        let endpoints = fleet.list("dnsendpoints");
        let all = statuses.iter().all(|cluster| cluster["status"]["state"] == "Ready");
        (all && endpoints.len() == CLUSTERS).then_some((statuses, endpoints))
    })
    .await;
    for object in statuses.iter().chain(&endpoints) {
        let ours = object["metadata"]["managedFields"].as_array().unwrap().iter();
        assert_eq!(ours.filter(|entry| entry["manager"] == "fleetgate").count(), 1, "{object}");
    }
    // Nothing is written that the first had written already.
    assert!(second.metrics.written("Cluster", "ok") < CLUSTERS as u64);
    second.stop().await;
}

/// A leader that has not seen the last number of the one before it would give the same number to other content.
#[tokio::test(flavor = "multi_thread")]
async fn no_number_is_given_over_one_that_was_not_seen() {
    let Some(mut fleet) = Fleet::start().await else { return };
    fleet.put(&zone("main", "[authoritative]"));
    fleet.put(TENANT);
    fleet.put(&cluster("c1", "main", &["192.0.2.11"]));
    let first = fleet.lead().await;
    let number = |zone: &Value| Some((zone["status"]["serial"].as_u64()?, zone["status"]["digest"].clone()));
    let begun = eventually("a number", async || number(&fleet.get("zone/main")?)).await;
    let line = Line::to(fleet.server.address()).await;
    let mut next = fleet.another_behind(&line).await;
    next.plan_what_is_there(&fleet);
    line.hold();
    fleet.put(&cluster("c1", "main", &["192.0.2.12"]));
    let given =
        eventually("the next one", async || number(&fleet.get("zone/main")?).filter(|given| *given != begun)).await;
    first.stop().await;

    // It plans something else, and goes on from the first number.
    next.plan_text(&cluster("c1", "main", &["192.0.2.13"]));
    let second = next.lead().await;
    eventually("a conflict", async || (second.metrics.written("Zone", "conflict") > 0).then_some(())).await;
    assert_eq!(second.metrics.written("Zone", "ok"), 0);
    assert_eq!(number(&fleet.get("zone/main").unwrap()), Some(given.clone()));

    line.mend();
    next.plan_number();
    let last =
        eventually("its own number", async || number(&fleet.get("zone/main")?).filter(|last| *last != given)).await;
    assert!(last.0 > given.0 && last.1 != given.1, "{last:?} after {given:?}");
    second.stop().await;
}

const DNS_ENDPOINT: &str = "
apiVersion: externaldns.k8s.io/v1alpha1
kind: DNSEndpoint
metadata: {name: web, namespace: acme}
spec: {endpoints: [{dnsName: web.c1.fleet.example, recordType: A, targets: [192.0.2.1]}]}
";

const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: acme}
spec:
  ingressClassName: fleetgate
  defaultBackend: {service: {name: web, port: {number: 80}}}
";

/// Name, type and TTL, and the targets.
fn endpoints(object: &Value) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let endpoints = object["spec"]["endpoints"].as_array().unwrap().iter();
    endpoints
        .map(|at| {
            let what = [&at["dnsName"], &at["recordType"], &at["recordTTL"]].map(text).join(" ");
            (what, at["targets"].as_array().unwrap().iter().map(text).collect())
        })
        .collect()
}
