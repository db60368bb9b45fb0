//! Events go in a line each, and the facts that came of them are read back.

use super::*;
use crate::resource::watched;
use serde_json::{Value as Json, json};

const NOW: Timestamp = Timestamp(1_000_000_000_000_000_000);

fn index(roles: Roles) -> Index {
    let sources = ["fleetgate-system".to_owned()];
    Index::new(roles, sources[0].clone(), watched(roles, &sources[0], &sources, &["acme".to_owned()]))
}

fn seen(resource: Resource, object: Json) -> Seen {
    Seen::of(resource, serde_json::from_value(object).unwrap()).unwrap()
}

fn zone(name: &str) -> Seen {
    let domain = format!("{name}.example");
    let metadata = json!({ "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1 });
    let servers = json!([{ "name": format!("ns.{domain}"), "addresses": ["192.0.2.53"] }]);
    seen(Resource::Zone, json!({ "metadata": metadata, "spec": { "domain": domain, "nameservers": servers } }))
}

fn cluster(name: &str, spec: &Json) -> Seen {
    let mut all = json!({
        "tenant": "acme", "zone": "main",
        "controlPlane": { "kubeApiserver": { "addresses": ["10.0.0.7:6443"] } },
    });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let metadata = json!({ "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1 });
    seen(Resource::Cluster, json!({ "metadata": metadata, "spec": all }))
}

fn service(namespace: &str, balancer: &Json) -> Seen {
    let name = if namespace == "acme" { "api" } else { GATEWAY_SERVICE };
    seen(
        Resource::Service,
        json!({
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "ports": [{ "name": "https", "port": 443 }] },
            "status": { "loadBalancer": balancer },
        }),
    )
}

fn slice(addresses: &Json) -> Seen {
    seen(
        Resource::EndpointSlice,
        json!({
            "metadata": { "name": "api-1", "namespace": "acme", "labels": { "kubernetes.io/service-name": "api" } },
            "ports": [{ "name": "https", "port": 6443 }],
            "endpoints": [{ "addresses": addresses }],
        }),
    )
}

fn secret(name: &str, data: &Json) -> Seen {
    seen(Resource::Secret, json!({ "metadata": { "name": name, "namespace": "fleetgate-system" }, "data": data }))
}

fn number(index: &Index, resource: Resource) -> usize {
    index.watched.iter().position(|watched| watched.resource == resource).unwrap()
}

/// What came of changes, in a few words each.
fn facts(index: &mut Index, changes: Vec<Seen>) -> Vec<String> {
    let mut news = News::default();
    for change in changes {
        index.change(change, &mut news);
    }
    told(index, news)
}

fn told(index: &mut Index, mut news: News) -> Vec<String> {
    index.settle(&mut news);
    let tell = |fact: FactChange| match fact {
        FactChange::Zone(name, fact) => match fact {
            Some(fact) => format!("zone {name} {:?}", fact.value.gateway),
            None => format!("no zone {name}"),
        },
        FactChange::Cluster(name, fact) => match fact.map(|fact| fact.value) {
            Some(cluster) => {
                let closed = cluster.closed.map_or_else(String::new, |refusal| format!(" {}", refusal.code()));
                format!("cluster {name} {:?}{closed}", cluster.api_server)
            }
            None => format!("no cluster {name}"),
        },
        FactChange::Broken(object, refusal) => format!("broken {object}: {refusal}"),
        other => format!("{other:?}"),
    };
    news.facts.into_iter().map(tell).collect()
}

#[test]
fn an_empty_list_is_doubted_for_an_hour() {
    let mut index = index(Roles::ALL);
    facts(&mut index, vec![zone("main"), zone("other")]);
    let watch = number(&index, Resource::Zone);
    let mut news = News::default();
    index.list(watch, Vec::new(), NOW, &mut news);
    assert_eq!(told(&mut index, news), [""; 0]);
    let end = NOW.saturating_add(Duration::from_hours(1));
    assert_eq!(index.wake(), Some(end));

    // One of them is shown after all; the other one is believed to be gone in the end.
    assert_eq!(facts(&mut index, vec![zone("main")]), [""; 0]);
    for (at, expected) in [(Timestamp(end.0 - 1), &[][..]), (end, &["no zone other"])] {
        let mut news = News::default();
        index.believe(at, &mut news);
        assert_eq!(told(&mut index, news), expected);
    }
    assert_eq!(index.wake(), None);
}

#[test]
fn a_list_that_lacks_one_is_believed_at_once() {
    let mut index = index(Roles::ALL);
    facts(&mut index, vec![zone("main"), zone("other")]);
    let watch = number(&index, Resource::Zone);
    let mut news = News::default();
    index.list(watch, vec![zone("main")], NOW, &mut news);
    assert_eq!(told(&mut index, news), ["no zone other"]);
}

#[test]
fn a_cluster_follows_the_endpoints_of_its_service_and_keeps_the_last() {
    let mut index = index(Roles::ALL);
    let by_service = json!({ "controlPlane": { "kubeApiserver": {
        "service": { "namespace": "acme", "name": "api", "port": 443 },
    }}});
    for (change, expected) in [
        (cluster("c1", &by_service), &["cluster c1 Addresses([]) NoEndpoints"][..]),
        (service("acme", &json!({})), &["cluster c1 Addresses([]) NoEndpoints"]),
        (slice(&json!(["10.1.0.1"])), &["cluster c1 Addresses([10.1.0.1:6443])"]),
        (slice(&json!(["10.1.0.2", "10.1.0.3"])), &["cluster c1 Addresses([10.1.0.2:6443, 10.1.0.3:6443])"]),
        (slice(&json!([])), &["cluster c1 Addresses([10.1.0.2:6443, 10.1.0.3:6443])"]),
        // Of somebody else's.
        (service("fleetgate-system", &json!({})), &[]),
    ] {
        let key = change.key.clone();
        assert_eq!(facts(&mut index, vec![change]), expected, "{key}");
    }
}

#[test]
fn a_zone_without_a_gateway_takes_the_load_balancers() {
    let mut index = index(Roles { dns: true, ..Roles::default() });
    for (change, expected) in [
        (zone("main"), "zone main None"),
        (
            service("fleetgate-system", &json!({ "ingress": [{ "ip": "192.0.2.10" }, { "ip": "2001:db8::10" }] })),
            "zone main Some(Addresses([192.0.2.10, 2001:db8::10]))",
        ),
    ] {
        assert_eq!(facts(&mut index, vec![change]), [expected]);
    }
}

/// Whoever may not read Secrets still comes to the same names.
#[test]
fn a_proof_that_cannot_be_read_closes_the_door_alone() {
    let proof = json!({ "proof": { "required": true, "keys": [
        { "secret": { "namespace": "fleetgate-system", "name": "c1-proof" } },
    ]}});
    let key = json!({ "key": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" });
    for (roles, closed) in [
        (Roles { gateway: true, ..Roles::default() }, "cluster c1 Addresses([10.0.0.7:6443])"),
        (Roles { dns: true, ..Roles::default() }, "cluster c1 Addresses([10.0.0.7:6443]) Unreadable"),
    ] {
        let mut index = index(roles);
        assert_eq!(
            facts(&mut index, vec![cluster("c1", &proof)]),
            ["cluster c1 Addresses([10.0.0.7:6443]) Unreadable"]
        );
        assert_eq!(facts(&mut index, vec![secret("c1-proof", &key)]), [closed]);
    }
}

/// Names follow from Ingresses, which everybody reads; certificates are for those who serve with them, or say whether they can.
#[test]
fn ingresses_are_everybodys_and_certificates_the_doors() {
    for (roles, reads) in [
        (Roles { dns: true, ..Roles::default() }, false),
        (Roles { gateway: true, ..Roles::default() }, true),
        (Roles { controller: true, ..Roles::default() }, true),
    ] {
        let index = index(roles);
        for resource in [Resource::Ingress, Resource::IngressClass, Resource::FederationPolicy] {
            assert!(index.watched.iter().any(|watched| watched.resource == resource), "{roles:?}");
        }
        let certificates: Vec<_> =
            index.watched.iter().filter(|watched| watched.resource == Resource::Certificate).collect();
        assert_eq!(certificates.len(), usize::from(reads), "{roles:?}");
        for watched in certificates {
            assert_eq!(watched.namespace.as_deref(), Some("acme"));
            assert_eq!(watched.fields.as_deref(), Some("type=kubernetes.io/tls"));
        }
    }
    let everywhere = watched(Roles::ALL, "fleetgate-system", &[], &["acme".into(), "*".into()]);
    let certificates: Vec<_> = everywhere.iter().filter(|watched| watched.resource == Resource::Certificate).collect();
    assert_eq!((certificates.len(), certificates[0].namespace.as_deref()), (1, None));

    let mut index = index(Roles::ALL);
    let metadata = json!({
        "name": "web", "namespace": "acme", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": { "fleetgate.dev/redirect-to-https": "true", "kubectl.kubernetes.io/last-applied": "{}" },
    });
    let spec = json!({ "ingressClassName": "fleetgate", "rules": [{ "host": "a.test" }] });
    let ingress =
        seen(Resource::Ingress, json!({ "metadata": metadata, "spec": spec, "status": { "loadBalancer": {} } }));
    assert!(!ingress.text.contains("last-applied") && !ingress.text.contains("loadBalancer"), "{}", ingress.text);
    let told = facts(&mut index, vec![ingress]);
    assert!(told[0].starts_with("Ingress(") && told[0].contains("redirect_to_https: true"), "{told:?}");

    let metadata = json!({ "name": "tls", "namespace": "acme", "uid": "u" });
    let secret = |kind: &str| {
        let data = json!({ "tls.crt": "c2VjcmV0", "tls.key": "c2VjcmV0" });
        seen(Resource::Certificate, json!({ "metadata": metadata, "type": kind, "data": data }))
    };
    let told = facts(&mut index, vec![secret("kubernetes.io/tls")]);
    assert!(told[0].starts_with("Certificate(") && told[0].contains("there is no certificate in PEM form"), "{told:?}");
    let told = facts(&mut index, vec![secret("Opaque")]);
    assert!(told[0].starts_with("Other("), "{told:?}");
}

#[test]
fn what_cannot_be_read_is_refused_and_holds_nobody_up() {
    let mut index = index(Roles::ALL);
    let told = facts(&mut index, vec![cluster("bad", &json!({ "zone": 7 })), cluster("good", &json!({}))]);
    assert_eq!(told[0], "no cluster bad");
    assert!(told[1].starts_with("broken Cluster bad: it cannot be read: spec.zone"), "{}", told[1]);
    assert_eq!(told[2..], ["cluster good Addresses([10.0.0.7:6443])"]);
}

#[test]
fn a_controller_follows_clusters_whose_kubeconfig_it_may_read() {
    let mut index = index(Roles::ALL);
    let access = json!({ "access": { "kubeconfig": { "secret": { "namespace": "fleetgate-system", "name": "c1" } } } });
    let wish = |index: &mut Index, change: Seen| {
        let mut news = News::default();
        index.change(change, &mut news);
        index.settle(&mut news);
        let tell = |wish: &Wish| match wish {
            Wish::Follow(_, subject) => match &subject.access.kubeconfig {
                Ok(octets) => format!("{} {} octets", subject.access.secret.key, octets.len()),
                Err(reason) => reason.to_string(),
            },
            Wish::Clear(name, uid) => format!("clear {name} {uid}"),
            Wish::Leave(name) => format!("leave {name}"),
        };
        news.wishes.iter().map(tell).collect::<Vec<_>>()
    };
    let missing = wish(&mut index, cluster("c1", &access));
    assert!(missing[0].starts_with("Secret fleetgate-system/c1 has no kubeconfig: there is none"), "{missing:?}");
    assert_eq!(wish(&mut index, secret("c1", &json!({ "value": "aHVzaA==" }))), ["value 4 octets"]);
    // What was said of it is to be taken back first.
    let metadata = json!({ "name": "c1", "uid": "u1", "generation": 2 });
    let spec = json!({ "tenant": "acme", "zone": "main", "controlPlane": { "kubeApiserver": { "addresses": ["10.0.0.7:6443"] } } });
    let status = json!({ "nodes": [{ "name": "n1", "addresses": ["192.0.2.1"], "ready": true }] });
    let said = seen(Resource::Cluster, json!({ "metadata": metadata, "spec": spec, "status": status }));
    assert_eq!(wish(&mut index, said), ["clear c1 u1"]);
    assert_eq!(wish(&mut index, cluster("c1", &json!({}))), ["leave c1"]);
}
