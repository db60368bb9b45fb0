//! A no of the admin interface: whatever is wrong, the body is the same.

use std::io::{Read as _, Write as _};

use serde_json::Value;

use crate::agents::{fleet, serve};
use crate::server::{Server, connect};

struct No {
    status: u16,
    head: String,
    error: Value,
}

/// With the admin credential, which is asked for before anything is looked at.
fn ask(server: &Server, credential: &str, line: &str, headers: &str, body: &str) -> No {
    let mut stream = connect(server.admin);
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n");
    write!(stream, "{head}authorization: Bearer {credential}\r\n\r\n").unwrap();
    // Who refuses a body need not read it.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{line}: {answer:?}"));
    let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{line}: {error}: {answer}"));
    assert!(head.contains("content-type: application/json"), "{line}: {answer}");
    assert_eq!(body.as_object().unwrap().len(), 1, "{line}: {answer}");
    No { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head: head.into(), error: body["error"].clone() }
}

#[test]
fn every_no_has_the_same_body() {
    let fleet = fleet();
    let server = serve(&fleet);
    let credential = std::fs::read_to_string(fleet.root().join("admin")).unwrap();
    let (json, long) = ("content-type: application/json\r\n", "x".repeat((2 << 20) + 1));
    let (long_name, long_id) = (format!("GET /v1/objects/zones/{}", "a".repeat(60_000)), "c".repeat(200));
    for (line, headers, body, status, code) in [
        ("GET /v2/objects/zones", "", "", 404, "NoSuchPath"),
        ("GET /v1/objects/zones/", "", "", 404, "NoSuchPath"),
        ("GET /v1/objects/%ff", "", "", 400, "BadPath"),
        ("GET /v1/objects/zones/%C3%28", "", "", 400, "BadPath"),
        ("DELETE /v1/credentials/%80", "", "", 400, "BadPath"),
        ("POST /v1/release/zones/%fe", "", "", 400, "BadPath"),
        ("GET /v1/objects/nonsense", "", "", 404, "NoSuchKind"),
        ("GET /v1/objects/zones/a%00b", "", "", 404, "NoSuchObject"),
        ("GET /v1/objects/zones/..%2f..%2fetc", "", "", 404, "NoSuchObject"),
        (&long_name, "", "", 404, "NoSuchObject"),
        ("GET /v1/objects/secrets/tls", "", "", 400, "NamespaceMissing"),
        ("GET /v1/objects/zones/acme/main", "", "", 400, "NoNamespace"),
        ("GET /v1/objects/zones?namespace=a&namespace=b", "", "", 400, "BadQuery"),
        ("GET /v1/objects/zones?namespace=UPPER", "", "", 400, "BadQuery"),
        ("GET /v1/objects/zones?nonsense=1", "", "", 400, "BadQuery"),
        ("GET /v1/objects/zones/main?namespace=acme", "", "", 400, "BadQuery"),
        ("GET /v1/records?limit=1", "", "", 400, "BadQuery"),
        ("GET /v1/load?cluster=%00", "", "", 400, "BadQuery"),
        ("GET /v1/explain?name=a&nonsense=1", "", "", 400, "BadQuery"),
        ("GET /v1/explain?tlv=a&proof=maybe", "", "", 400, "BadQuery"),
        (&format!("GET /v1/explain?tlv={long_id}"), "", "", 400, "BadClusterId"),
        ("GET /openapi.json?pretty", "", "", 400, "BadQuery"),
        ("GET /v1/resolver", "", "", 404, "NoResolver"),
        ("POST /v1/credentials", "", "{}", 415, "NotJson"),
        ("POST /v1/credentials", json, "", 400, "Malformed"),
        ("POST /v1/credentials", json, "{\"cluster\":\"c1\"}", 400, "Malformed"),
        ("POST /v1/credentials", json, "{\"cluster\":\"c1\",\"validSeconds\":-1}", 400, "Malformed"),
        ("POST /v1/credentials", json, "{\"cluster\":\"c1\",\"validSeconds\":0}", 400, "Malformed"),
        ("POST /v1/credentials", json, &long, 413, "TooLarge"),
        ("POST /v1/credentials?cluster=c1", json, "{}", 400, "BadQuery"),
        ("DELETE /v1/credentials/..", "", "", 404, "NoSuchCredential"),
        ("POST /v1/release/clusters/c1", "", "", 400, "NotReleasable"),
        ("POST /v1/release/zones/nowhere", "", "", 404, "NoSuchObject"),
    ] {
        let no = ask(&server, &credential, line, headers, body);
        let told = (no.status, no.error["code"].as_str().unwrap());
        assert_eq!(told, (status, code), "{line:.100}: {}", no.error);
        assert!(no.error["message"].as_str().is_some_and(|message| !message.is_empty()), "{line:.100}");
    }
    for (line, allowed) in [
        ("PUT /v1/credentials", "allow: GET,HEAD,POST"),
        ("PATCH /v1/credentials/0123456789abcdef", "allow: DELETE"),
        ("TRACE /healthz", "allow: GET,HEAD"),
        ("DELETE /openapi.json", "allow: GET,HEAD"),
    ] {
        let no = ask(&server, &credential, line, "", "");
        assert_eq!((no.status, &no.error["code"]), (405, &"WrongMethod".into()), "{line}: {}", no.error);
        assert!(no.head.lines().any(|header| header == allowed), "{line}: {}", no.head);
    }
    // Without the credential nobody learns that much.
    let no = ask(&server, "wrong", "PUT /v1/credentials", "", "");
    assert_eq!((no.status, &no.error["code"]), (403, &"NoCredential".into()), "{}", no.error);
    server.terminate();
}
