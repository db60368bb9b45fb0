use serde_json::{Value, json};

use super::*;

fn ingress(spec: &Value, annotations: &Value) -> ModelIngress {
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "name": "web", "namespace": "acme", "annotations": annotations },
        "spec": spec,
    });
    read(&serde_json::from_value(object).unwrap())
}

/// The code of a refusal and the field at fault.
fn told<T: std::fmt::Debug>(outcome: &Result<T, Refused>) -> String {
    match outcome {
        Ok(good) => format!("{good:?}"),
        Err(refused) => format!("{} {}", refused.refusal.code(), refused.field),
    }
}

fn service() -> Value {
    json!({ "service": { "name": "shop", "port": { "number": 80 } } })
}

#[test]
fn paths_are_taken_or_refused_at_their_field() {
    let at = "rules[0].http.paths[1]";
    let long = format!("/{}", "a".repeat(1024));
    for (path, path_type, expected) in [
        (Some("/"), "Prefix", "Prefix(\"/\")".to_owned()),
        (Some("/a/b/"), "Exact", "Exact(\"/a/b/\")".into()),
        (Some("/a%20b"), "Prefix", "Prefix(\"/a%20b\")".into()),
        (Some("/a"), "ImplementationSpecific", "Prefix(\"/a\")".into()),
        (Some(""), "ImplementationSpecific", "Prefix(\"/\")".into()),
        (None, "ImplementationSpecific", "Prefix(\"/\")".into()),
        (None, "Prefix", format!("BadPath {at}.path")),
        (Some("a"), "Prefix", format!("BadPath {at}.path")),
        (Some("//"), "Prefix", format!("BadPath {at}.path")),
        (Some("/a//b"), "Exact", format!("BadPath {at}.path")),
        (Some("/a/./b"), "Exact", format!("BadPath {at}.path")),
        (Some("/a/../b"), "Exact", format!("BadPath {at}.path")),
        (Some("/a/.."), "Exact", format!("BadPath {at}.path")),
        (Some("/a/."), "Exact", format!("BadPath {at}.path")),
        (Some("/a%2fb"), "Prefix", format!("BadPath {at}.path")),
        (Some("/a%2Fb"), "Prefix", format!("BadPath {at}.path")),
        (Some("/a?b"), "Prefix", format!("BadPath {at}.path")),
        (Some("/a b"), "Prefix", format!("BadPath {at}.path")),
        (Some("/ü"), "Prefix", format!("BadPath {at}.path")),
        (Some("/a\n"), "Prefix", format!("BadPath {at}.path")),
        (Some(&long), "Prefix", format!("BadPath {at}.path")),
        (Some("/a"), "", format!("BadPath {at}.pathType")),
        (Some("/a"), "prefix", format!("BadPath {at}.pathType")),
    ] {
        let mut wrong = json!({ "pathType": path_type, "backend": service() });
        if let Some(path) = path {
            wrong["path"] = path.into();
        }
        if path_type.is_empty() {
            wrong.as_object_mut().unwrap().remove("pathType");
        }
        let good = json!({ "path": "/good", "pathType": "Exact", "backend": service() });
        let spec = json!({ "rules": [{ "host": "shop.test", "http": { "paths": [good, wrong] } }] });
        let read = ingress(&spec, &json!({}));
        let paths = &read.rules[0].paths;
        assert!(paths[0].rule.is_ok(), "its neighbour is good");
        assert_eq!(told(&paths[1].rule.as_ref().map(|rule| &rule.path).map_err(Clone::clone)), expected, "{path:?}");
        assert!(!paths[1].written.contains('\n'));
    }
}

#[test]
fn hosts_are_kubernetes_own() {
    for (host, expected) in [
        (json!("shop.acme.test"), "Some(shop.acme.test)"),
        (json!("*.acme.test"), "Some(*.acme.test)"),
        (json!(null), "None"),
        (json!(""), "None"),
        (json!("*"), "BadName rules[0].host"),
        (json!("192.0.2.1"), "BadName rules[0].host"),
        (json!("2001:db8::1"), "BadName rules[0].host"),
        (json!("a.*.test"), "BadName rules[0].host"),
        (json!("a*.test"), "BadName rules[0].host"),
        (json!("Shop.test"), "BadName rules[0].host"),
        (json!("a_b.test"), "BadName rules[0].host"),
        (json!("shop.test:443"), "BadName rules[0].host"),
        (json!("shop.test."), "BadName rules[0].host"),
        (json!("a..test"), "BadName rules[0].host"),
        (json!("x".repeat(70)), "BadName rules[0].host"),
    ] {
        let path = json!({ "path": "/", "pathType": "Prefix", "backend": service() });
        let read = ingress(&json!({ "rules": [{ "host": host, "http": { "paths": [path] } }] }), &json!({}));
        assert_eq!(told(&read.rules[0].host), expected, "{host}");
        assert!(read.rules[0].paths[0].rule.is_ok() && read.hindrance.is_none());
    }
}

#[test]
fn backends_are_services_with_one_port() {
    for (backend, expected) in [
        (json!({ "service": { "name": "a", "port": { "number": 80 } } }), "Number(80)"),
        (json!({ "service": { "name": "a", "port": { "name": "http" } } }), "Name(\"http\")"),
        (
            json!({ "service": { "name": "a", "port": { "name": "http", "number": 80 } } }),
            "BadBackend defaultBackend.service.port",
        ),
        (json!({ "service": { "name": "a", "port": {} } }), "BadBackend defaultBackend.service.port"),
        (json!({ "service": { "name": "a" } }), "BadBackend defaultBackend.service.port"),
        (json!({ "service": { "name": "a", "port": { "number": 65536 } } }), "BadBackend defaultBackend.service.port"),
        (json!({ "service": { "name": "a", "port": { "number": -1 } } }), "BadBackend defaultBackend.service.port"),
        (json!({ "service": { "name": "A", "port": { "number": 80 } } }), "BadBackend defaultBackend.service.name"),
        (json!({}), "BadBackend defaultBackend.service"),
        (json!({ "resource": { "kind": "Bucket", "name": "b" } }), "FieldNotSupported defaultBackend.resource"),
    ] {
        let read = ingress(&json!({ "defaultBackend": backend }), &json!({}));
        let found = read.default_backend.unwrap().map(|backend| backend.port);
        assert_eq!(told(&found), expected, "{backend}");
    }
    for spec in [json!({}), json!({ "rules": [] }), json!(null)] {
        assert_eq!(ingress(&spec, &json!({})).hindrance, Some(Refusal::NothingToServe), "{spec}");
    }
}

#[test]
fn annotations_of_ours_are_options_or_refused() {
    let defaults = RouteOptions::default();
    for (name, value, expected) in [
        (REDIRECT, "true", Some(RouteOptions { redirect_to_https: true, ..defaults.clone() })),
        (REDIRECT, "false", Some(defaults.clone())),
        (REDIRECT, "yes", None),
        (TIMEOUT, "90s", Some(RouteOptions { request_timeout: Duration::from_secs(90), ..defaults.clone() })),
        (TIMEOUT, "0s", None),
        (TIMEOUT, "2h", None),
        (TIMEOUT, "60", None),
        (MAX_BODY, "10Mi", Some(RouteOptions { max_body: Some(10 << 20), ..defaults.clone() })),
        (MAX_BODY, "5k", Some(RouteOptions { max_body: Some(5000), ..defaults.clone() })),
        (MAX_BODY, "0", Some(RouteOptions { max_body: Some(0), ..defaults.clone() })),
        (MAX_BODY, "-1", None),
        (MAX_BODY, "+1", None),
        (MAX_BODY, "1.5Gi", None),
        (MAX_BODY, "99999999999999999999G", None),
        (MAX_BODY, "Mi", None),
        ("fleetgate.dev/redirect", "true", None),
        ("nginx.ingress.kubernetes.io/rewrite-target", "/", Some(defaults.clone())),
    ] {
        let read = ingress(&json!({ "defaultBackend": service() }), &json!({ name: value }));
        if let Some(expected) = expected {
            assert_eq!((&*read.options, read.wrong_annotations.len()), (&expected, 0), "{name} {value}");
            continue;
        }
        let [(part, refused)] = &read.wrong_annotations[..] else { panic!("{name}: {value} is taken") };
        assert_eq!((&**part, refused.refusal.code(), &*read.options), (name, "BadAnnotation", &defaults));
        assert_eq!(refused.field, format!("metadata.annotations[{name}]"));
    }
}

#[test]
fn what_is_otherwise_in_a_cluster_is_read_or_refused() {
    let long = format!(r#"{{"annotations": {{"a": "{}"}}}}"#, "x".repeat(LONGEST_OVERRIDE));
    for (cluster, value, expected) in [
        ("c1", r#"{"ingressClassName": "nginx", "annotations": {"a/b": "c"}}"#, Ok((Some("nginx"), 1))),
        ("c1", r#"{"annotations": {}}"#, Ok((None, 0))),
        ("c1", "{}", Ok((None, 0))),
        ("c1", "", Err("EOF")),
        ("c1", "{", Err("EOF")),
        ("c1", "[]", Err("invalid")),
        ("c1", r#"{"className": "nginx"}"#, Err("unknown field")),
        ("c1", r#"{"ingressClassName": "no class"}"#, Err("no class")),
        ("c1", r#"{"annotations": {"a": 1}}"#, Err("string")),
        ("c1", r#"{"annotations": {"fleetgate.dev/origin": "u"}}"#, Err("not for others")),
        ("c1", &long, Err("16384 octets")),
        ("C_1", "{}", Err("no name of a cluster")),
    ] {
        let name = format!("{OVERRIDE}{cluster}");
        let read = ingress(&json!({ "defaultBackend": service() }), &json!({ &name: value }));
        match expected {
            Ok((class, annotations)) => {
                let other = &read.overrides[&cluster.parse().unwrap()];
                let class_there = other.class.as_ref().map(ObjectName::as_str);
                assert_eq!((class_there, other.annotations.len()), (class, annotations), "{value}");
                assert_eq!(read.wrong_annotations, [], "{value}");
            }
            Err(reason) => {
                let [(part, refused)] = &read.wrong_annotations[..] else { panic!("{value} is taken") };
                assert_eq!((&**part, refused.refusal.code(), read.overrides.len()), (&*name, "BadAnnotation", 0));
                assert!(refused.refusal.to_string().contains(reason), "{value}: {}", refused.refusal);
            }
        }
    }
}

#[test]
fn certificates_are_asked_for_by_the_names_of_secrets() {
    for (entry, expected) in [
        (json!({ "hosts": ["shop.test", "*.shop.test"], "secretName": "tls" }), "tls"),
        (json!({ "secretName": "tls" }), "tls"),
        (json!({ "hosts": ["shop.test"] }), "UnknownSecret tls[0].secretName"),
        (json!({ "hosts": ["shop.test"], "secretName": "other/tls" }), "UnknownSecret tls[0].secretName"),
        (json!({ "hosts": ["shop.test", "*"], "secretName": "tls" }), "BadName tls[0].hosts[1]"),
        (json!({ "hosts": vec!["shop.test"; 257], "secretName": "tls" }), "SetTooLarge tls[0]"),
    ] {
        let read = ingress(&json!({ "defaultBackend": service(), "tls": [entry] }), &json!({}));
        assert_eq!(told(&read.tls[0].secret), expected, "{entry}");
    }
}

#[test]
fn an_ingress_has_a_bound() {
    let path = |number: usize| json!({ "path": format!("/{number}"), "pathType": "Exact", "backend": service() });
    let paths: Vec<_> = (0..600).map(path).collect();
    let rule = json!({ "host": "shop.test", "http": { "paths": paths } });
    let read = ingress(&json!({ "rules": [rule, rule] }), &json!({}));
    let good = read.rules.iter().flat_map(|rule| &rule.paths).filter(|path| path.rule.is_ok()).count();
    assert_eq!(good, MOST_PATHS);
    assert_eq!(
        told(&read.rules[1].paths[400].rule.as_ref().map_err(Clone::clone)),
        "SetTooLarge rules[1].http.paths[400]"
    );
    let rules = vec![json!({ "host": "shop.test" }); 1001];
    let read = ingress(&json!({ "rules": rules }), &json!({}));
    assert_eq!(told(&read.rules[1000].host), "SetTooLarge rules[1000]");
}

#[test]
fn classes_are_ours_by_their_controller() {
    let ours =
        json!({ "apiGroup": "fleetgate.dev", "kind": "FederationPolicy", "name": "default", "scope": "Cluster" });
    let mut other_group = ours.clone();
    other_group["apiGroup"] = "example.com".into();
    for (controller, parameters, is_ours, policy, is_good) in [
        (CONTROLLER, json!(null), true, None, true),
        (CONTROLLER, ours.clone(), true, Some("default"), true),
        (CONTROLLER, other_group, true, None, false),
        ("k8s.io/ingress-nginx", ours, false, None, true),
    ] {
        let class = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": { "name": "a" },
            "spec": { "controller": controller, "parameters": parameters },
        });
        let class = read_class(&serde_json::from_value(class).unwrap());
        let found = (class.ours, class.policy.as_ref().map(ObjectName::as_str), class.hindrance.is_none());
        assert_eq!(found, (is_ours, policy, is_good), "{controller} {parameters}");
    }
}

proptest::proptest! {
    #[test]
    fn whatever_is_written_is_told_in_one_line(
        host in ".{0,40}", path in ".{0,40}", path_type in "Exact|Prefix|.{0,9}", name in "[a-z.]{0,9}", value in ".{0,20}",
    ) {
        let path = json!({ "path": path, "pathType": path_type, "backend": service() });
        let annotations = json!({ format!("{OURS}{name}"): value });
        let read = ingress(&json!({ "rules": [{ "host": host, "http": { "paths": [path] } }] }), &annotations);
        let refusals = [read.rules[0].host.as_ref().err(), read.rules[0].paths[0].rule.as_ref().err()];
        let refusals = refusals.into_iter().flatten().chain(read.wrong_annotations.iter().map(|(_, refused)| refused));
        for refused in refusals {
            let told = format!("{} {}", refused.refusal, refused.field);
            proptest::prop_assert!(!told.contains(['\n', '\r']) && told.len() < 2000, "{:?}", told);
        }
    }
}
