use model::resource::{FrontDoor, IngressMode, Upstream};

use super::*;

fn read_one(text: &str) -> Result<Manifest, Mistake> {
    let documents: Vec<_> = split(text).collect();
    assert_eq!(documents.len(), 1, "{text}");
    read(&documents[0], &mut crate::nothing_named)
}

const CLUSTER: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: c1, labels: {env: prod}}
spec:
  tenant: acme
  zone: main
  controlPlane:
    kubeApiserver: {addresses: [\"127.0.0.1:6443\"]}
  nodes:
  - {name: n1, addresses: [192.0.2.11, \"2001:db8::11\"]}
";

const ZONE: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: Fleet.Example
  nameservers: [{name: ns1.fleet.example, addresses: [192.0.2.53]}]
  gateway: {addresses: [192.0.2.10]}
";

#[test]
fn defaults_are_those_of_the_contract() {
    let Value::Cluster(cluster) = read_one(CLUSTER).unwrap().value else { panic!("no cluster") };
    assert_eq!(cluster.id.as_str(), "c1");
    assert!(cluster.nodes[0].ready);
    assert_eq!(cluster.ingress, IngressMode::Nodes);
    assert_eq!(cluster.allowed_sources.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0.0.0.0/0", "::/0"]);
    assert_eq!(cluster.api_server, Upstream::Addresses(vec!["127.0.0.1:6443".parse().unwrap()]));
    assert_eq!(cluster.limits, model::resource::Limits::default());

    let Value::Zone(zone) = read_one(ZONE).unwrap().value else { panic!("no zone") };
    assert_eq!(zone.domain.to_string(), "fleet.example");
    assert_eq!((zone.ttl, zone.authoritative, zone.grace.as_secs()), (30, true, 60));
    assert_eq!((zone.api.to_string(), zone.apps.to_string()), ("api.{cluster}".into(), "*.{cluster}".into()));
    assert_eq!(zone.gateway, Some(FrontDoor::Addresses(vec!["192.0.2.10".parse().unwrap()])));
}

/// What is inside a cluster is never taken for what is outside, and the other way around.
#[test]
fn an_ingress_controller_is_inside_or_outside() {
    let list = |targets: &[model::inside::InnerTarget]| targets.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (ingress, outside, http, https) in [
        ("{https: [\"192.0.2.1:443\"], http: [\"[2001:db8::1]:80\"]}", 2, vec![], vec![]),
        ("{mode: nodes}", 0, vec![], vec![]),
        ("{mode: hub}", 0, vec![], vec![]),
        (
            "{mode: hub, https: [\"10.0.0.1:443\", \"Ingress.web.svc:8443\"]}",
            0,
            vec![],
            vec!["10.0.0.1:443", "ingress.web.svc:8443"],
        ),
        (
            "{mode: hub, service: {namespace: web, name: ingress}}",
            0,
            vec!["ingress.web.svc:80"],
            vec!["ingress.web.svc:443"],
        ),
        (
            "{mode: hub, service: {namespace: web, name: ingress, httpPort: 8080, httpsPort: 8443}}",
            0,
            vec!["ingress.web.svc:8080"],
            vec!["ingress.web.svc:8443"],
        ),
    ] {
        let text = format!("{CLUSTER}  ingress: {ingress}\n");
        let Value::Cluster(cluster) = read_one(&text).unwrap().value else { panic!("no cluster") };
        let controller = &cluster.controller;
        assert_eq!(controller.http.len() + controller.https.len(), outside, "{ingress}");
        assert_eq!(
            (list(&controller.inside.http), list(&controller.inside.https)),
            (http.into_iter().map(str::to_owned).collect(), https.into_iter().map(str::to_owned).collect()),
            "{ingress}"
        );
    }
    let text = format!(
        "{CLUSTER}  allowedSources: [10.0.0.0/8]\n  ingress: {{mode: hub, https: [\"a:1\"], limits: {{connections: 7}}}}\n"
    );
    let Value::Cluster(cluster) = read_one(&text).unwrap().value else { panic!("no cluster") };
    let inside = &cluster.controller.inside;
    assert_eq!((inside.limits.connections, cluster.limits.connections), (Some(7), None));
    assert_eq!(inside.allowed_sources.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0.0.0.0/0", "::/0"]);
}

#[test]
fn files_are_split_at_their_markers() {
    for (file, expected) in [
        ("a: 1\n", vec![(1, "a: 1\n")]),
        ("---\na: 1\n---\nb: 2", vec![(1, "---\na: 1\n"), (3, "---\nb: 2")]),
        ("# only a comment\n---\n---\n\n--- # two\nb: 2\n", vec![(5, "--- # two\nb: 2\n")]),
        ("a: |\n  text\n  ---\n  more\n", vec![(1, "a: |\n  text\n  ---\n  more\n")]),
        ("a: 1\n----\n", vec![(1, "a: 1\n----\n")]),
        ("a: 1\r\n---\r\nb: 2\r\n", vec![(1, "a: 1\r\n"), (2, "---\r\nb: 2\r\n")]),
        ("\u{feff}a: 1\n", vec![(1, "a: 1\n")]),
        ("", vec![]),
        ("...\n", vec![]),
    ] {
        let found: Vec<_> = split(file).map(|document| (document.first_line, document.text)).collect();
        assert_eq!(found, expected, "{file:?}");
    }
}

/// Each row: what is replaced in a good manifest, by what, and the mistake that is reported.
#[test]
fn mistakes_are_located_and_explained() {
    let mut wrong = Vec::new();
    for (good, from, to, line, column, reason) in [
        (CLUSTER, "tenant: acme", "tenant: acme\n  colour: red", 6, 3, "unknown field `colour`"),
        (CLUSTER, "{name: c1,", "{name: C1,", 3, 18, "\"C1\" is no DNS label"),
        (CLUSTER, "{name: c1,", "{nam: c1,", 3, 12, "unknown field `nam`"),
        (CLUSTER, "127.0.0.1:6443", "127.0.0.1", 8, 33, "is not an address with its port"),
        (CLUSTER, "192.0.2.11", "192.0.2.256", 10, 28, "\"192.0.2.256\" is not an IP address"),
        (CLUSTER, "zone: main", "zone: 7", 6, 9, "7"),
        (CLUSTER, "zone: main", "zone: main\n  allowedSources: [10.0.0.1/8]", 7, 20, "write 10.0.0.0/8"),
        (CLUSTER, "zone: main", "zone: main\n  location: {latitude: 52.5}", 7, 13, "together or not at all"),
        (CLUSTER, "zone: main", "zone: main\n  zone: other", 7, 3, "zone"),
        (CLUSTER, "spec:", "spec: [", 4, 7, "expected fields"),
        (CLUSTER, "kind: Cluster", "kind: Pod", 1, 1, "no kind is called \"Pod\""),
        (CLUSTER, "v1alpha1", "v1", 1, 1, "is of apiVersion fleetgate.dev/v1alpha1"),
        (CLUSTER, "{name: c1,", "{namespace: acme, name: c1,", 1, 1, "has no namespace"),
        (CLUSTER, "zone: main", "zone: main\n  location: {region: no}", 7, 22, "must be quoted"),
        (CLUSTER, "zone: main", "zone: main\n  allowedSources:", 7, 17, "write one, or leave the field out"),
        (CLUSTER, "zone: main", "zone:", 6, 7, "write one, or leave the field out"),
        (CLUSTER, "labels: {env: prod}", "labels: {env: \"a b\"}", 3, 36, "is no label value"),
        (CLUSTER, "\"127.0.0.1:6443\"", "", 8, 20, "either addresses or a service"),
        (CLUSTER, "zone: main", "zone: main\n  access: {kubeconfig: {}}", 7, 24, "either a secret or a file"),
        (ZONE, "domain: Fleet.Example", "domain: a..b", 5, 11, "empty label"),
        (ZONE, "domain: Fleet.Example", "ttl: 5", 7, 3, "missing field `domain`"),
        (ZONE, "gateway: {", "ttl: \"x\"\n  gateway: {", 7, 8, "whole number"),
        (ZONE, "gateway: {", "ttl: \"30\"\n  gateway: {", 7, 8, "whole number"),
        (ZONE, "gateway: {", "ttl: -1\n  gateway: {", 7, 8, "whole number"),
        (ZONE, "gateway: {", "dnssec: {enabled: \"true\"}\n  gateway: {", 7, 21, "bool"),
        (ZONE, "gateway: {", "gateway: {hostname: lb.example, ", 7, 12, "either addresses or a hostname"),
        (ZONE, "gateway: {", "names: {apps: \"{cluster}\"}\n  gateway: {", 7, 10, "must be a wildcard"),
        (ZONE, "gateway: {", "names: {api: \"api\"}\n  gateway: {", 7, 16, "exactly once"),
        (ZONE, "gateway: {", "withdrawal: {grace: 1 minute}\n  gateway: {", 7, 23, "no length of time"),
        (ZONE, "gateway: {", "publish: [route53]\n  gateway: {", 7, 13, "route53"),
    ] {
        assert!(good.contains(from), "{from}");
        let mistake = read_one(&good.replacen(from, to, 1)).expect_err(to);
        if !mistake.reason.contains(reason) || (mistake.line, mistake.column) != (line, column) {
            wrong.push(format!("{to}: expected {line}:{column}: ..{reason}.., found {mistake}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lines_count_from_the_top_of_the_file() {
    let file = format!("{ZONE}---\n{}", CLUSTER.replace("zone: main", "zone: [main]"));
    let mistakes: Vec<_> =
        split(&file).filter_map(|document| read(&document, &mut crate::nothing_named).err()).collect();
    assert_eq!(mistakes.len(), 1);
    assert_eq!(mistakes[0].line, 7 + 1 + 6, "{}", mistakes[0]);
}

#[test]
fn an_exported_object_is_taken() {
    let exported = CLUSTER.replace(
        "{name: c1,",
        "{uid: abc, resourceVersion: \"7\", generation: 1, creationTimestamp: \"2026-01-01T00:00:00Z\", name: c1,",
    ) + "status: {apiName: x}\n";
    assert!(read_one(&exported).is_ok());
}

#[test]
fn kinds_of_others_are_taken() {
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, namespace: acme}\nspec: {ingressClassName: fleetgate}";
    let Value::Ingress(ingress) = read_one(ingress).unwrap().value else { panic!("{ingress}") };
    assert_eq!((ingress.class, ingress.hindrance), ("fleetgate".parse().ok(), Some(Refusal::NothingToServe)));
    let class = "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: a}\nspec: {controller: fleetgate.dev/ingress}";
    assert!(matches!(read_one(class).unwrap().value, Value::IngressClass(IngressClass { ours: true, .. })));
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: acme}\nstringData: {a: b}";
    assert_eq!(read_one(secret).unwrap().value, Value::Other);
    let tls = format!("{secret}\ntype: kubernetes.io/tls");
    assert!(matches!(read_one(&tls).unwrap().value, Value::Certificate(Err(Refusal::BadCertificate { .. }))));
    let endpoint = "apiVersion: externaldns.k8s.io/v1alpha1\nkind: DNSEndpoint\nmetadata: {name: a, namespace: acme}\nspec: {endpoints: [{dnsName: a.b, recordTTL: 5, targets: [1.2.3.4]}]}";
    let Value::Records(claims) = read_one(endpoint).expect(endpoint).value else { panic!("{endpoint}") };
    assert_eq!(claims.endpoints.len(), 1);
}

#[test]
fn a_misspelt_field_of_an_ingress_is_found() {
    let text = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, namespace: acme}\nspec:\n  rules: []\n  ingresClassName: fleetgate\n";
    let mistake = read_one(text).unwrap_err();
    assert_eq!(mistake.to_string(), "6:3: unknown field `spec.ingresClassName`");
}

#[test]
fn secrets_are_not_shown() {
    let json = to_json("apiVersion: v1\nkind: Secret\ndata: {key: c2VjcmV0}\nstringData: {other: secret}").unwrap();
    let text = json.to_string();
    assert!(!text.contains("c2VjcmV0") && !text.contains("\"secret\""), "{text}");
}

#[test]
fn a_yaml_bomb_is_refused() {
    use std::fmt::Write as _;

    let mut bomb = String::from("apiVersion: v1\nkind: Secret\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let previous = level - 1;
        let aliases = vec![format!("*a{previous}"); 10].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    assert!(to_json(&bomb).is_err());
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,400}") {
        for document in split(&text) {
            let _ = read(&document, &mut crate::nothing_named);
        }
    }
}

#[test]
fn a_policy_is_read_with_its_authorities() {
    let policy = |spec: &str| {
        let text =
            format!("apiVersion: fleetgate.dev/v1alpha1\nkind: FederationPolicy\nmetadata: {{name: a}}\nspec:\n{spec}");
        read_one(&text).map(|manifest| match manifest.value {
            Value::FederationPolicy(policy) => FederationPolicy::clone(&policy),
            other => panic!("no policy: {other:?}"),
        })
    };
    let empty = policy("  entry: vip\n").unwrap();
    assert_eq!(empty, FederationPolicy::default());
    let (certificate, _) = crate::certificate::tests::pair("ca.test");
    let pem = certificate.replace('\n', "\n      ");
    let whole = policy(&format!(
        "  placement: {{clusterSelector: {{matchLabels: {{env: prod}}}}}}\n  entry: dns\n  steering: {{mode: weighted, weights: {{c1: 9, c2: 1}}}}\n  upstreamTLS:\n    ca: |\n      {pem}\n"
    ))
    .unwrap();
    assert_eq!((whole.entry, whole.selector["env"].as_str()), (model::ingress::EntryMode::Dns, "prod"));
    let model::ingress::Steering::Weighted(weights) = &whole.steering else { panic!("{whole:?}") };
    assert_eq!(weights.values().copied().collect::<Vec<_>>(), [9, 1]);
    let model::ingress::UpstreamTls::Verified { authorities } = &whole.upstream else { panic!("{whole:?}") };
    assert_eq!(authorities.len(), 1);
    for (spec, expected) in [
        ("  upstreamTLS: {verify: false}\n", model::ingress::UpstreamTls::Unverified),
        ("  upstreamTLS: {plainText: true}\n", model::ingress::UpstreamTls::Plain),
    ] {
        assert_eq!(policy(spec).unwrap().upstream, expected);
    }
    for (spec, reason) in [
        ("  upstreamTLS: {ca: no certificate}\n", "upstreamTLS.ca: there is no certificate in PEM form"),
        ("  steering: {weights: {C1: 1}}\n", "\"C1\" is no DNS label"),
    ] {
        let mistake = policy(spec).unwrap_err();
        assert!(mistake.reason.contains(reason), "{mistake}");
    }
}
