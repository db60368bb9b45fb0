//! What the API server is told, for what it asks.

use std::time::{Duration, Instant};

use model::{FactChange, Planner, Since, Timestamp};

use super::*;

const FLEET: [&str; 6] = [
    "
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [192.0.2.53]}]
  gateway: {addresses: [192.0.2.10]}
",
    "{apiVersion: fleetgate.dev/v1alpha1, kind: Tenant, metadata: {name: acme}, spec: {}}",
    "{apiVersion: fleetgate.dev/v1alpha1, kind: Tenant, metadata: {name: initech}, spec: {domains: [x.fleet.example]}}",
    "
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: c1}
spec:
  tenant: acme
  zone: main
  controlPlane: {kubeApiserver: {addresses: ['10.0.0.7:6443']}}
  nodes: [{name: n1, addresses: [192.0.2.11]}]
",
    "
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: c2}
spec:
  tenant: acme
  zone: main
  controlPlane: {kubeApiserver: {addresses: ['10.0.0.8:6443']}}
  nodes: [{name: n1, addresses: [192.0.2.21]}]
",
    "
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: c3}
spec:
  tenant: initech
  zone: main
  controlPlane: {kubeApiserver: {addresses: ['10.0.0.9:6443']}}
  nodes: [{name: n1, addresses: [192.0.2.31]}]
",
];

fn snapshot() -> Snapshot {
    let mut planner = Planner::default();
    let change = |text: &&str| -> FactChange {
        let json = manifest::document::to_json(text).unwrap();
        let kind = Kind::find(json["kind"].as_str().unwrap()).unwrap();
        let read = manifest::hub::read(kind, json, &mut manifest::nothing_named).unwrap();
        read.into_fact(Since::default(), None)
    };
    planner.apply(FLEET.iter().map(change), Timestamp(1_000_000_000));
    planner.snapshot().as_ref().clone()
}

fn a(name: &str, target: &str) -> Value {
    json!({ "dnsName": name, "recordType": "A", "targets": [target] })
}

fn good() -> Value {
    a("www.c1.fleet.example", "192.0.2.11")
}

fn bad() -> Value {
    a("www.c3.fleet.example", "192.0.2.11")
}

fn records(endpoints: &[Value]) -> Value {
    json!({ "metadata": { "name": "web", "namespace": "acme" }, "spec": { "endpoints": endpoints } })
}

/// A review of `object` in acme's namespace, changed by `change`.
fn review(object: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u1",
            "kind": { "group": "externaldns.k8s.io", "version": "v1alpha1", "kind": "DNSEndpoint" },
            "resource": { "group": "externaldns.k8s.io", "version": "v1alpha1", "resource": "dnsendpoints" },
            "name": "web",
            "namespace": "acme",
            "operation": "CREATE",
            "userInfo": { "username": "somebody", "groups": ["system:masters"] },
            "object": object,
            "oldObject": null,
            "dryRun": false,
        },
    });
    change(&mut review["request"]);
    review
}

fn decide_paced(review: &Value, pace: impl FnOnce(&ObjectName, usize) -> Result<(), Refusal>) -> Decision {
    let body = review.to_string();
    Request::read(body.as_bytes()).unwrap().decide(&snapshot(), &["fleetgate-publish".to_owned()], pace)
}

fn decide(review: &Value) -> Decision {
    decide_paced(review, |_, _| Ok(()))
}

fn update(old: &Value, new: &Value) -> Decision {
    decide(&review(new, |request| {
        request["operation"] = "UPDATE".into();
        request["oldObject"] = old.clone();
    }))
}

#[test]
fn an_object_passes_if_anything_of_it_would_be_served() {
    const FOREIGN: &str = "spec.endpoints[0].dnsName: NotYours: www.c3.fleet.example is neither below one of your clusters \
                           nor below one of your domains";
    let target = |number| {
        format!(
            "spec.endpoints[{number}].targets[0]: TargetNotAllowed: 192.0.2.31 is neither an address of your nodes, nor one \
             that you claimed, nor within your Tenant's `targets.allow`"
        )
    };
    let not_mine = || a("a.c1.fleet.example", "192.0.2.31");
    for (endpoints, outcome, warnings) in [
        (vec![], Outcome::Allowed, vec![]),
        (vec![good()], Outcome::Allowed, vec![]),
        (vec![bad()], Outcome::Refused(FOREIGN.into()), vec![]),
        (vec![not_mine()], Outcome::Refused(target(0)), vec![]),
        (vec![bad(), not_mine()], Outcome::Refused(format!("{FOREIGN}; {}", target(1))), vec![]),
        (vec![bad(), good(), not_mine()], Outcome::Allowed, vec![FOREIGN.to_owned(), target(2)]),
        (
            vec![json!({ "dnsName": "b.c1.fleet.example", "recordType": "NS", "targets": ["a.test"] })],
            Outcome::Refused(
                "spec.endpoints[0].recordType: TypeNotAllowed: records of type \"NS\" cannot be had; there are A, AAAA, \
                 CAA, CNAME, MX, SRV and TXT"
                    .into(),
            ),
            vec![],
        ),
    ] {
        assert_eq!(decide(&review(&records(&endpoints), |_| {})), Decision { outcome, warnings, patch: None }, "{endpoints:?}");
    }
}

#[test]
fn a_wildcard_comes_with_a_word_about_search_paths() {
    let decision = decide(&review(&records(&[a("*.dev.c1.fleet.example", "192.0.2.11")]), |_| {}));
    assert_eq!(decision.outcome, Outcome::Allowed);
    let [warning] = &decision.warnings[..] else { panic!("{decision:?}") };
    assert!(warning.starts_with("spec.endpoints[0].dnsName: Wildcard: keep its domain out of the search paths"));
    assert!(warning.ends_with("ndots:5 would take names of the internet for names below dev.c1.fleet.example"));
    assert!(warning.len() <= LONGEST);
}

#[test]
fn what_is_not_a_tenants_wish_is_not_judged() {
    type Change = fn(&mut Value);
    let rows: [(&str, Change); 8] = [
        ("nobody's namespace", |request| request["namespace"] = "kube-system".into()),
        ("no name of a namespace", |request| request["namespace"] = "A B".into()),
        ("no namespace", |request| request["namespace"] = Value::Null),
        ("our own namespace", |request| request["namespace"] = "fleetgate-publish".into()),
        ("a deletion", |request| request["operation"] = "DELETE".into()),
        ("its status", |request| request["subResource"] = "status".into()),
        ("another kind", |request| request["resource"]["resource"] = "verdicts".into()),
        ("another group", |request| request["resource"]["group"] = "".into()),
    ];
    for (what, change) in rows {
        let decision =
            decide_paced(&review(&records(&[bad()]), change), |_, _| panic!("{what} is no change of a tenant's"));
        assert_eq!(decision, Outcome::NotOurs.into(), "{what}");
    }
}

#[test]
fn an_update_that_asks_for_nothing_new_always_passes() {
    let with_finalizer = |mut object: Value| {
        object["metadata"]["finalizers"] = json!(["x.test/y"]);
        object
    };
    let malformed = json!({ "metadata": {}, "spec": { "endpoints": 7 } });
    let other = || a("b.c3.fleet.example", "192.0.2.11");
    for (old, new, passes) in [
        (records(&[bad()]), with_finalizer(records(&[bad()])), true),
        (records(&[bad(), other(), good()]), records(&[other(), bad()]), true),
        (records(&[bad()]), records(&[]), true),
        (malformed.clone(), with_finalizer(malformed.clone()), true),
        (records(&[bad()]), records(&[bad(), other()]), false),
        (records(&[bad()]), records(&[other()]), false),
        (malformed, records(&[bad()]), false),
    ] {
        let decision = update(&old, &new);
        assert_eq!(decision == Outcome::NothingNew.into(), passes, "{old} to {new}: {decision:?}");
        assert_eq!(matches!(decision.outcome, Outcome::Refused(_)), !passes, "{old} to {new}: {decision:?}");
    }
    // Something good beside it.
    assert_eq!(update(&records(&[bad()]), &records(&[bad(), good()])).outcome, Outcome::Allowed);
}

#[test]
fn an_agents_object_speaks_for_its_cluster() {
    let labelled = |cluster: &str, endpoint| {
        let mut object = records(&[endpoint]);
        object["metadata"]["labels"] = json!({ "fleetgate.dev/cluster": cluster });
        decide(&review(&object, |_| {})).outcome
    };
    assert_eq!(labelled("c1", good()), Outcome::Allowed);
    let Outcome::Refused(told) = labelled("c2", good()) else { panic!() };
    assert!(told.starts_with("spec.endpoints[0].dnsName: OtherCluster: "), "{told}");
    let Outcome::Malformed(told) = labelled("C 1", good()) else { panic!() };
    assert!(told.starts_with("Malformed: metadata.labels[fleetgate.dev/cluster]: "), "{told}");
}

#[test]
fn what_cannot_be_read_is_told_with_its_place() {
    let endpoint = |endpoint: Value| json!({ "metadata": {}, "spec": { "endpoints": [good(), endpoint] } });
    for (object, told) in [
        (json!({ "metadata": {} }), "spec: is missing"),
        (json!({ "metadata": {}, "spec": 7 }), "spec: invalid type: integer `7`"),
        (json!({ "metadata": {}, "spec": { "endpoints": "x" } }), "spec.endpoints: invalid type: string \"x\""),
        (json!({ "metadata": {}, "spec": { "records": [] } }), "spec.records: unknown field `records`"),
        (endpoint(json!({ "dnsName": 7 })), "spec.endpoints[1].dnsName: invalid type: integer `7`"),
        (endpoint(json!({ "targets": ["a", {}] })), "spec.endpoints[1].targets[1]: invalid type: map"),
        (endpoint(json!({ "ttl": 5 })), "spec.endpoints[1].ttl: unknown field `ttl`"),
        (endpoint(json!({ "recordTTL": 1e300 })), "spec.endpoints[1].recordTTL: "),
        (json!([]), "invalid"),
        (json!({ "metadata": { "labels": { "a": 1 } }, "spec": {} }), "metadata.labels.a: invalid type: integer"),
    ] {
        let decision = decide(&review(&object, |_| {}));
        let Outcome::Malformed(message) = &decision.outcome else { panic!("{object}: {decision:?}") };
        assert!(message.starts_with("Malformed: ") && message.contains(told), "{object}: {message}");
        assert!(message.len() <= LONGEST);
    }
}

#[test]
fn many_refusals_are_told_in_short() {
    let mut endpoints = vec![bad(); 50];
    let Outcome::Refused(message) = decide(&review(&records(&endpoints), |_| {})).outcome else { panic!() };
    assert!(message.contains("spec.endpoints[19].") && !message.contains("spec.endpoints[20]."), "{message}");
    assert!(message.ends_with("; and 30 more"), "{message}");

    endpoints.push(good());
    endpoints[0]["dnsName"] = format!("{}.example", ["ü"; 150].concat()).into();
    let decision = decide(&review(&records(&endpoints), |_| {}));
    assert_eq!((decision.outcome, decision.warnings.len()), (Outcome::Allowed, MOST + 1));
    assert_eq!(decision.warnings[MOST], "and 30 more");
    assert!(decision.warnings.iter().all(|warning| warning.len() <= LONGEST));
}

#[test]
fn haste_is_answered_with_when_to_come_again() {
    let too_fast = || Err(Refusal::TooFast { per_second: 50, seconds: 3 });
    let paced = review(&records(&[good()]), |_| {});
    let decision = decide_paced(&paced, |tenant, endpoints| {
        assert_eq!(endpoints, 1);
        assert_eq!(tenant.as_str(), "acme");
        too_fast()
    });
    let body = paced.to_string();
    let answer = Request::read(body.as_bytes()).unwrap().answer(decision);
    let message = "TooFast: your changes come faster than 50 per second; try again in 3 s";
    let status =
        json!({ "code": 429, "reason": "TooManyRequests", "message": message, "details": { "retryAfterSeconds": 3 } });
    assert_eq!(answer["response"], json!({ "uid": "u1", "allowed": false, "status": status }));

    // What changes nothing counts for nothing.
    let dry = review(&records(&[good()]), |request| request["dryRun"] = true.into());
    assert_eq!(decide_paced(&dry, |_, _| too_fast()).outcome, Outcome::Allowed);
    let same = review(&records(&[good()]), |request| {
        request["operation"] = "UPDATE".into();
        request["oldObject"] = records(&[good()]);
    });
    assert_eq!(decide_paced(&same, |_, _| too_fast()).outcome, Outcome::NothingNew);
}

#[test]
fn answers_have_the_form_that_the_api_server_reads() {
    let body = review(&records(&[]), |_| {}).to_string();
    let request = Request::read(body.as_bytes()).unwrap();
    let answer = |outcome, warnings: &[&str]| {
        let warnings = warnings.iter().map(|warning| (*warning).to_owned()).collect();
        request.answer(Decision { outcome, warnings, patch: None })
    };
    let whole =
        |response| json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
    let allowed = whole(json!({ "uid": "u1", "allowed": true }));
    for outcome in [Outcome::NotOurs, Outcome::NothingNew, Outcome::Allowed] {
        assert_eq!(answer(outcome, &[]), allowed);
    }
    assert_eq!(answer(Outcome::Allowed, &["a"]), whole(json!({ "uid": "u1", "allowed": true, "warnings": ["a"] })));
    for (outcome, code, reason) in
        [(Outcome::Refused("why".into()), 403, "Forbidden"), (Outcome::Malformed("why".into()), 422, "Invalid")]
    {
        let status = json!({ "code": code, "reason": reason, "message": "why" });
        assert_eq!(answer(outcome, &[]), whole(json!({ "uid": "u1", "allowed": false, "status": status })));
    }
}

#[test]
fn other_things_than_reviews_are_not_taken() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let mut nested = review(&records(&[]), |_| {}).to_string();
    nested = nested.replace("\"dryRun\":false", &format!("\"dryRun\":{deep}"));
    for body in [
        "",
        "null",
        "{}",
        "\0",
        "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\"}",
        &review(&records(&[]), |_| {}).to_string().replace("k8s.io/v1\"", "k8s.io/v1beta1\""),
        &review(&records(&[]), |_| {}).to_string().replace("AdmissionReview", "Pod"),
        &deep,
        &nested,
    ] {
        assert!(Request::read(body.as_bytes()).is_err(), "{}", &body[..body.len().min(200)]);
    }
    // Deep JSON in the object is the object's fault.
    let text = review(&records(&[]), |_| {}).to_string();
    let text = text.replace("\"endpoints\":[]", &format!("\"endpoints\":{deep}"));
    let request = Request::read(text.as_bytes()).unwrap();
    let decision = request.decide(&snapshot(), &[], |_, _| Ok(()));
    assert!(matches!(decision.outcome, Outcome::Malformed(_)), "{decision:?}");
}

/// Bounds that are an order of magnitude above what it takes unoptimised on a busy machine.
#[test]
fn a_review_is_answered_in_milliseconds() {
    let snapshot = snapshot();
    for (count, bound) in [(1, 5), (100, 50), (5000, 2500)] {
        let endpoints: Vec<Value> = (0..count).map(|n| a(&format!("w{n}.c1.fleet.example"), "192.0.2.11")).collect();
        let body = review(&records(&endpoints), |_| {}).to_string();
        let took = (0..10).map(|_| {
            let begun = Instant::now();
            let request = Request::read(body.as_bytes()).unwrap();
            let decision = request.decide(&snapshot, &[], |_, _| Ok(()));
            let _ = request.answer(decision).to_string();
            begun.elapsed()
        });
        let fastest = took.min().unwrap();
        println!("{count} endpoints, {} octets: {fastest:?}", body.len());
        assert!(fastest < Duration::from_millis(bound), "{count} endpoints: {fastest:?}");
    }
}

proptest::proptest! {
    #[test]
    fn any_octets_are_a_review_or_not(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = Request::read(&body);
    }

    /// Whatever stands in an object, a tenant is told nothing that is long or has more than one line.
    #[test]
    fn any_endpoints_are_answered(name in ".{0,80}", rtype in "A|AAAA|CNAME|TXT|.{0,5}", target in ".{0,80}", ttl: i64) {
        let endpoint = json!({ "dnsName": name, "recordType": rtype, "targets": [target], "recordTTL": ttl });
        let decision = decide(&review(&records(&[endpoint, good()]), |_| {}));
        proptest::prop_assert_eq!(&decision.outcome, &Outcome::Allowed);
        for warning in &decision.warnings {
            proptest::prop_assert!(warning.len() <= LONGEST && !warning.contains(['\n', '\0']), "{:?}", warning);
        }
    }
}
