//! `fleetgate explain URL`: what is told of a request before anybody makes it, and that it is what happens then.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::members::{Fixture, HOST, ingress};
use crate::server::Server;

/// Where clients are: near the first member, near the second, and nobody knows.
const EU: &str = "203.0.113.7";
const JP: &str = "198.51.100.7";
const NOWHERE: &str = "192.0.2.7";

/// Beside the entries of the fixture: one that is redirected, whose Secret is not there; a class of failover; and one that is refused.
fn fixture() -> Fixture {
    let policy = "\
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {name: order}
spec:
  steering: {mode: failover, order: [c2, c1]}
  upstreamTLS: {plainText: true}
  health: {interval: 1s, timeout: 1s, unhealthy: 1, healthy: 1}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: order}
spec:
  controller: fleetgate.dev/ingress
  parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: order}
";
    let entry = |name: &str, class: &str, host: &str, annotations: &str, path: &str, more: &str| {
        format!(
            "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: {name}, namespace: acme{annotations}}}
spec:
  ingressClassName: {class}
{more}  rules:
  - host: {host}
    http: {{paths: [{{path: {path}, pathType: Exact, backend: {{service: {{name: {name}, port: {{name: http}}}}}}}}]}}
"
        )
    };
    let redirect = ", annotations: {fleetgate.dev/redirect-to-https: 'true'}";
    Fixture::with(&[
        ("order.yaml", policy),
        ("failover.yaml", &entry("failover", "order", "order.c1.fleet.example", "", "/", "")),
        (
            "moved.yaml",
            &entry("moved", "vip", "moved.c1.fleet.example", redirect, "/a", "  tls: [{secretName: lost}]\n"),
        ),
        ("stolen.yaml", &entry("stolen", "vip", "www.elsewhere.test", "", "/", "")),
    ])
}

fn explain(server: &Server, url: &str, arguments: &[&str]) -> Value {
    let output = server.explain(&[&[url], arguments, &["-o", "json"]].concat());
    assert!(output.status.success(), "explain {url} {arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Clusters in their order, each with the code of its reason.
fn ranked(choice: &Value) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let members = choice["members"].as_array().unwrap().iter();
    members.map(|member| (word(&member["cluster"]), word(&member["reason"]["code"]))).collect()
}

fn pairs<const N: usize>(expected: [(&str, &str); N]) -> Vec<(String, String)> {
    expected.map(|(cluster, code)| (cluster.to_owned(), code.to_owned())).to_vec()
}

fn addresses(told: &Value) -> Vec<String> {
    let records = told["dns"]["records"].as_array().unwrap().iter();
    records.map(|record| record["data"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn requests_are_told_from_the_name_to_the_cluster() {
    let fixture = fixture();
    let server = &fixture.server;
    let url = format!("https://{HOST}/cart");
    let told = explain(server, &url, &["--from", EU]);
    assert_eq!(told["asked"], json!({ "url": url, "serverName": null, "from": EU }));
    assert_eq!(
        told["verdict"],
        json!({
            "kind": "Forwarded",
            "code": "Forwarded",
            "blame": null,
            "status": null,
            "location": null,
            "reason": "it is forwarded to the ingress of Cluster c1",
            "rule": format!("Ingress acme/vip: host {HOST}, path / (Prefix)"),
        })
    );
    let record = json!({ "name": HOST, "ttl": 30, "type": "A", "data": "192.0.2.10", "from": "Ingress acme/vip" });
    assert_eq!(told["dns"]["records"], json!([record]));
    assert_eq!((&told["dns"]["clientSubnet"], &told["dns"]["steered"]), (&json!("203.0.113.0/24"), &json!([])));
    let gateway = &told["gateway"];
    let at = ["door", "served", "address", "sharedWithSni", "tls"].map(|field| gateway[field].clone());
    assert_eq!(json!(at), json!(["https", true, server.sni.to_string(), true, "Terminated"]));
    let certificate = &gateway["certificate"];
    let shown = ["secret", "tenant", "names"].map(|field| certificate[field].clone());
    assert_eq!(json!(shown), json!(["Secret acme/web-tls", "acme", [HOST]]));
    assert_eq!(
        told["route"],
        json!({
            "ingress": "Ingress acme/vip",
            "tenant": "acme",
            "host": HOST,
            "hostRule": "Name",
            "pathType": "Prefix",
            "path": "/",
            "service": "web",
            "port": 80,
            "entry": "vip",
            "steering": "geo",
            "redirectToHttps": false,
        })
    );
    let choice = &told["choice"];
    assert_eq!(json!([choice["by"], choice["situation"], choice["informed"]]), json!(["gateway", "Usual", true]));
    assert_eq!(choice["client"], json!({ "latitude": 48.8, "longitude": 2.3, "region": "eu" }));
    assert_eq!(ranked(choice), pairs([("c1", "Nearest"), ("c2", "Farther")]));
    assert_eq!((&choice["members"][0]["chosen"], &choice["members"][1]["chosen"]), (&json!(true), &json!(false)));
    assert!(choice["members"][1]["distanceKm"].as_f64().unwrap() > 9000.0, "{choice}");
    assert_eq!(fixture.asked("https"), "near");

    // The same from elsewhere, without TLS, as others write it, and from where nobody knows.
    let told = explain(server, &url, &["--from", JP]);
    assert_eq!(ranked(&told["choice"]), pairs([("c2", "Nearest"), ("c1", "Farther")]));
    let told = explain(server, &format!("HTTP://{}:8080/C%61rt?x#y", HOST.to_uppercase()), &["--from", JP]);
    assert_eq!(ranked(&told["choice"]), pairs([("c2", "Nearest"), ("c1", "Farther")]));
    assert_eq!((&told["gateway"]["door"], &told["gateway"]["tls"]), (&json!("http"), &json!("None")));
    assert!(told["remarks"][0].as_str().unwrap().contains("clients of port 8080 need something"), "{told}");
    let told = explain(server, &url, &["--from", NOWHERE]);
    assert_eq!(told["choice"]["client"], Value::Null);
    fixture.server.terminate();
}

#[test]
fn a_name_that_leads_straight_to_members_is_told_as_dns_chooses() {
    let fixture = fixture();
    let server = &fixture.server;
    for (from, address, order) in [
        (EU, "127.0.0.1", [("c1", "Nearest"), ("c2", "Farther")]),
        (JP, "127.0.0.2", [("c2", "Nearest"), ("c1", "Farther")]),
    ] {
        let told = explain(server, "https://dns.c1.fleet.example/", &["--from", from]);
        assert_eq!((addresses(&told), &told["dns"]["records"][0]["ttl"]), (vec![address.to_owned()], &json!(10)));
        assert_eq!((&told["verdict"]["kind"], &told["gateway"]), (&json!("Straight"), &Value::Null), "{told}");
        assert_eq!((&told["choice"]["by"], &told["route"]["entry"]), (&json!("dns"), &json!("dns")));
        assert_eq!(ranked(&told["choice"]), pairs(order));
        let subnet = format!("+subnet={from}/24");
        assert_eq!(server.dig(&["+short", &subnet, "dns.c1.fleet.example", "A"]).trim(), address);
        // The same for the name alone.
        assert_eq!(
            ranked(&explain(server, "dns.c1.fleet.example", &["--from", from])["dns"]["steered"][0]),
            pairs(order)
        );
    }
    fixture.server.terminate();
}

#[test]
fn a_member_that_is_dead_is_named_with_the_reason() {
    let mut fixture = fixture();
    let order = |server: &Server| explain(server, "http://order.c1.fleet.example/", &[]);
    let told = order(&fixture.server);
    assert_eq!(ranked(&told["choice"]), pairs([("c2", "Order"), ("c1", "Later")]), "{told}");

    fixture.far.is_down.store(true, Ordering::SeqCst);
    fixture.server.until("c2 is out", |server| order(server)["choice"]["members"][0]["cluster"] == "c1");
    let told = order(&fixture.server);
    assert_eq!(ranked(&told["choice"]), pairs([("c1", "Order"), ("c2", "Unhealthy")]));
    let [first, second] = [0, 1].map(|place| told["choice"]["members"][place].clone());
    assert_eq!((&first["reason"]["message"], &first["chosen"]), (&json!("number 2 in the order"), &json!(true)));
    assert_eq!(
        (&second["reason"]["message"], &second["unhealthy"]),
        (&json!("unhealthy: failed checks"), &json!("failed checks"))
    );
    // DNS goes by the same, once its own Ingress was checked.
    let straight = |server: &Server| explain(server, "https://dns.c1.fleet.example/", &["--from", JP]);
    fixture.server.until("DNS leaves c2 out", |server| addresses(&straight(server)) == ["127.0.0.1"]);
    let told = straight(&fixture.server);
    assert_eq!(ranked(&told["choice"]), pairs([("c1", "Nearest"), ("c2", "Unhealthy")]));

    fixture.near.is_down.store(true, Ordering::SeqCst);
    fixture.server.until("all are out", |server| order(server)["verdict"]["kind"] == "Doubtful");
    let told = order(&fixture.server);
    assert_eq!(json!([told["choice"]["situation"], told["verdict"]["blame"]]), json!(["Panic", "backend"]));
    fixture.server.terminate();
}

#[test]
fn what_is_not_forwarded_is_told_with_the_rule() {
    let fixture = fixture();
    let server = &fixture.server;
    let https = server.https.unwrap().port();
    for (url, arguments, kind, code, status, rule) in [
        (
            "http://moved.c1.fleet.example/a",
            [].as_slice(),
            "Redirected",
            "Redirected",
            json!(308),
            "Ingress acme/moved: annotation fleetgate.dev/redirect-to-https",
        ),
        (
            "http://moved.c1.fleet.example/b",
            &[],
            "Refused",
            "NoRoute",
            json!(404),
            "none of the 1 paths of host moved.c1.fleet.example has /b, and there is no default backend",
        ),
        (
            "https://moved.c1.fleet.example/a",
            &[],
            "Refused",
            "UnknownServerName",
            json!(null),
            "host moved.c1.fleet.example has no certificate that can be used",
        ),
        (
            "http://nobody.c1.fleet.example/",
            &[],
            "Refused",
            "NoRoute",
            json!(404),
            "no Ingress that is served has the host nobody.c1.fleet.example",
        ),
        ("http://192.0.2.9/", &[], "Refused", "NoRoute", json!(404), "an address is nobody's host"),
        (
            "https://www.c1.fleet.example/",
            &["--server-name", "nobody.test"],
            "Refused",
            "UnknownServerName",
            json!(null),
            "host www.c1.fleet.example has no certificate that can be used",
        ),
        (
            "https://api.c1.fleet.example/",
            &[],
            "PassedThrough",
            "Established",
            json!(null),
            "the API name of Cluster c1",
        ),
    ] {
        let told = explain(server, url, arguments);
        let verdict = &told["verdict"];
        assert_eq!((&verdict["kind"], &verdict["code"]), (&json!(kind), &json!(code)), "{url}: {told}");
        assert_eq!((&verdict["status"], &verdict["rule"]), (&status, &json!(rule)), "{url}");
    }

    let moved = explain(server, "http://moved.c1.fleet.example/a?b=c", &[]);
    let location = format!("https://moved.c1.fleet.example:{https}/a?b=c");
    assert_eq!(moved["verdict"]["location"], location);
    let head = Server::http_at(server.http.unwrap(), "/a?b=c", "moved.c1.fleet.example").0;
    assert_eq!(head, 308, "as it is told");
    let secured = explain(server, "https://moved.c1.fleet.example/a", &[]);
    let why = secured["gateway"]["noCertificate"][0].as_str().unwrap();
    assert!(why.starts_with("tls[0] of Ingress acme/moved: UnknownSecret: "), "{why}");

    let nobody = explain(server, "http://nobody.c1.fleet.example/", &[]);
    assert_eq!(
        nobody["owner"],
        json!({
            "zone": "main",
            "suffix": "c1.fleet.example",
            "cluster": "c1",
            "tenants": ["acme"],
            "controlPlaneOf": null,
            "reservedBy": null,
        })
    );
    assert_eq!(json!([nobody["route"], nobody["choice"], nobody["refused"]]), json!([null, null, []]));
    let stolen = explain(server, "http://www.elsewhere.test/", &[]);
    assert_eq!(json!([stolen["owner"]["zone"], stolen["owner"]["tenants"]]), json!([null, []]));
    let refused = &stolen["refused"][0];
    let who = ["kind", "namespace", "name"].map(|field| refused[field].clone());
    assert_eq!(json!(who), json!(["Ingress", "acme", "stolen"]), "{stolen}");

    let api = explain(server, "https://api.c1.fleet.example/", &["--from", EU]);
    assert_eq!(json!([api["gateway"]["door"], api["gateway"]["tls"]]), json!(["sni", "PassedThrough"]));
    assert_eq!(json!([api["connection"]["cluster"], api["route"]]), json!(["c1", null]));
    // By the name alone the door says that it hands the host on.
    let connection = &explain(server, HOST, &[])["connection"];
    assert_eq!(
        json!([connection["verdict"], connection["code"], connection["blame"]]),
        json!(["Terminated", "Terminated", null])
    );
    assert_eq!(connection["reason"], "it is handed to --https, which has a certificate for the name");
    fixture.server.terminate();
}

/// What `check` would refuse is what `explain` says is refused, with the same codes and words.
#[test]
fn check_and_explain_agree_about_what_is_refused() {
    let fixture = fixture();
    let checked = String::from_utf8(fixture.fleet.check().stdout).unwrap();
    let stolen = explain(&fixture.server, "http://www.elsewhere.test/", &[])["refused"][0].clone();
    let moved = explain(&fixture.server, "https://moved.c1.fleet.example/a", &[]);
    let why = moved["gateway"]["noCertificate"][0].as_str().unwrap();
    let (_, why) = why.split_once(": ").unwrap();
    let (code, message) = why.split_once(": ").unwrap();
    let (_, said) = stolen["message"].as_str().unwrap().split_once(": ").unwrap();
    for (object, code, message) in
        [("Ingress acme/stolen", stolen["code"].as_str().unwrap(), said), ("Ingress acme/moved", code, message)]
    {
        let told = format!("{object}: spec.");
        assert!(checked.lines().any(|line| line.contains(&told) && line.contains(message)), "{message}: {checked}");
        assert!(checked.lines().any(|line| line.trim() == code), "{code}: {checked}");
    }
    fixture.server.terminate();
}

#[test]
fn people_are_told_in_words_of_a_request() {
    let fixture = fixture();
    let server = &fixture.server;
    let words = |arguments: &[&str]| String::from_utf8(server.explain(arguments).stdout).unwrap();
    let told = words(&[&format!("https://{HOST}:{}/cart", server.sni.port()), "--from", EU]);
    let at = |cluster: &str| {
        let member = if cluster == "c1" { &fixture.near } else { &fixture.far };
        member.address.to_string()
    };
    // Round trips differ from run to run.
    let told: Vec<String> = told
        .lines()
        .map(|line| line.split("; ").filter(|fact| !fact.starts_with("answers in")).collect::<Vec<_>>().join("; "))
        .collect();
    let certificate = told.iter().find(|line| line.starts_with("certificate")).unwrap();
    assert!(
        certificate.starts_with("certificate Secret acme/web-tls, of Tenant acme, for www.c1.fleet.example, until ")
    );
    let rest: Vec<&str> = told.iter().filter(|line| *line != certificate).map(String::as_str).collect();
    let expected = [
        format!("request     https://{HOST}:{}/cart from 203.0.113.7", server.sni.port()),
        "verdict     Forwarded".to_owned(),
        "            it is forwarded to the ingress of Cluster c1".to_owned(),
        format!("rule        Ingress acme/vip: host {HOST}, path / (Prefix)"),
        "DNS         NOERROR from Zone main".to_owned(),
        format!("            {HOST} 30 A 192.0.2.10 (Ingress acme/vip)"),
        format!("gateway     --https at {}, shared with --sni: TLS ends here", server.sni),
        "route       Ingress acme/vip of Tenant acme: Service web, port 80".to_owned(),
        "            entry vip, steering geo".to_owned(),
        "client      at 48.8, 2.3, region eu".to_owned(),
        format!("cluster     c1: nearest: 883 km; at {}", at("c1")),
        format!("others      c2: farther: 9719 km; at {}", at("c2")),
    ];
    assert_eq!(rest, expected.each_ref().map(String::as_str));

    let told = words(&["https://dns.c1.fleet.example/", "--from", JP]);
    assert!(told.contains("DNS         NOERROR from Zone main, for 198.51.100.0/24\n"), "{told}");
    assert!(told.contains("verdict     Straight\n"), "{told}");
    let told = words(&["dns.c1.fleet.example", "--from", JP]);
    assert!(told.contains("            A of c2 (nearest: 397 km), not c1 (farther: 8818 km)"), "{told}");

    let told = words(&["http://nobody.c1.fleet.example/"]);
    assert!(
        told.contains("\nowner       in Zone main; Tenant acme may have it, below c1.fleet.example of Cluster c1\n"),
        "{told}"
    );
    assert!(told.contains("verdict     refused with NoRoute (404), blame: client\n"), "{told}");
    fixture.server.terminate();
}

#[test]
fn urls_that_make_no_sense_are_told_so() {
    let fixture = Fixture::with(&[("more.yaml", &ingress("more", "more.c1.fleet.example", ""))]);
    let server = &fixture.server;
    let long = format!("https://{HOST}/{}", "a".repeat(9000));
    for (arguments, expected) in [
        (
            ["ftp://www.c1.fleet.example/"].as_slice(),
            "ftp:// is nothing that is served here: begin it with https:// or http://",
        ),
        (&["https://"], "url: it names no host"),
        (&["https://me@www.c1.fleet.example/"], "leave out the user before the @"),
        (&["https://sch\u{f6}n.test/"], "letters beyond ASCII as xn--"),
        (&["https://www.c1.fleet.example:99999/"], "is no host with an optional port"),
        (&["https://www.c1.fleet.example/a b"], "spaces and what is beyond ASCII with %"),
        (&[long.as_str()], "8192 are the most that is explained"),
        (&["www.c1.fleet.example/cart"], "give the host name alone, or a whole URL"),
        (&["https://www.c1.fleet.example/", "--proof"], "cannot be used with"),
        (&["https://www.c1.fleet.example/", "--tlv", "c1"], "cannot be used with"),
        (&["http://www.c1.fleet.example/", "--server-name", "a.test"], "only https:// has a TLS hello"),
        (&["www.c1.fleet.example", "--server-name", "a.test"], "it comes beside a URL only"),
    ] {
        let output = server.explain(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    for (query, code) in [
        ("?url=https://a.test/&name=a.test", "AskedTwice"),
        ("?url=https://a.test/&tlv=a", "AskedTwice"),
        ("?url=https://a.test/&proof=true", "ProofWithName"),
        ("?url=https://a.test/&serverName=a..b", "BadName"),
        ("?url=nonsense", "BadUrl"),
        ("?url=https://a.test/&from=x", "BadAddress"),
    ] {
        let (status, body) = server.http(&format!("/v1/explain{query}"), "localhost");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["error"]["code"]), (400, &json!(code)), "{query}: {body}");
    }
    fixture.server.terminate();
}
