use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;

fn source(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file)).expect(file)
}

/// Paths of pages for people are nobody's to describe.
fn is_described(path: &str) -> bool {
    path.starts_with("/v1/") || ["/healthz", "/readyz", "/metrics", "/openapi.json"].contains(&path)
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let routes = source("listen.rs");
    let mut served = BTreeSet::new();
    for route in routes.split(".route(\"").skip(1) {
        let (path, rest) = route.split_once('"').unwrap();
        // Up to the next call of the router: `get(a).post(b)`.
        let methods = rest.split("\n            ").next().unwrap();
        for method in ["get", "post", "put", "patch", "delete"] {
            if [", ", "."].iter().any(|before| methods.contains(&format!("{before}{method}("))) {
                served.insert((path.to_owned(), method.to_owned()));
            }
        }
    }
    served.retain(|(path, _)| is_described(path));
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let described: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(|method| (path.clone(), method.clone())))
        .collect();
    assert_eq!(served, described);
    assert!(served.len() >= 20, "{served:?}");
}

/// Codes that handlers give stand with some operation; each stays as it is.
#[test]
fn every_code_is_described() {
    let document = to_text();
    let files = [
        "access.rs",
        "credentials.rs",
        "explain.rs",
        "explain/request.rs",
        "extract.rs",
        "objects.rs",
        "release.rs",
        "resolver.rs",
    ];
    let mut seen = BTreeSet::new();
    for file in files {
        let code = source(file);
        let code = code.split("#[cfg(test)]").next().unwrap();
        for start in ["Failure::new(", "bad(", "=> (StatusCode::", "(StatusCode::", "let code = if"] {
            for call in code.split(start).skip(1) {
                // The first text of a call is its code, and codes are single words.
                let word = call.split('"').nth(1).unwrap_or_default();
                let near = call.split('"').next().unwrap_or_default().len() < 100;
                if near && word.starts_with(|c: char| c.is_ascii_uppercase()) && word.chars().all(char::is_alphanumeric)
                {
                    seen.insert(word.to_owned());
                }
            }
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
    // Of no operation: of paths and methods that there are not.
    for code in seen.iter().filter(|code| !["NoSuchPath", "WrongMethod"].contains(&code.as_str())) {
        assert!(document.contains(&format!("`{code}`")), "no operation says that it fails with {code}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let text = document.to_string();
    let mut seen = 0;
    for reference in text.split("\"#/").skip(1) {
        let target = format!("/{}", reference.split('"').next().unwrap());
        assert!(document.pointer(&target).is_some(), "{target}");
        seen += 1;
    }
    assert!(seen > 100, "{seen}");
}

/// Whoever makes a client from it needs names that differ, and people a sentence for each field.
#[test]
fn operations_have_names_of_their_own_and_fields_a_description() {
    let document = document();
    let mut ids = BTreeSet::new();
    for methods in document["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values() {
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{operation}");
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(parameter["description"].is_string() && !parameter["example"].is_null(), "{parameter}");
            }
        }
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    // What is Kubernetes' is described there.
    for (name, schema) in
        schemas.iter().filter(|(name, schema)| !name.contains('.') && schema["properties"].is_object())
    {
        for (field, rules) in schema["properties"].as_object().unwrap() {
            let is_plain = ["apiVersion", "kind", "metadata", "spec", "status"].contains(&field.as_str());
            let is_told = rules["description"].is_string() || rules["$ref"].is_string();
            assert!(is_told || is_plain || ["ObjectMeta", "Secret"].contains(&name.as_str()), "{name}.{field}");
        }
    }
}
