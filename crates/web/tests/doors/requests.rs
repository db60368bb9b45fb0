//! What becomes of ordinary requests, mostly as curl makes them.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use model::ingress::{PathMatch, RouteOptions};
use model::routes::{Host, HttpRoute, HttpTable};
use web::{Outer, Settings};

use crate::backend::{Recorder, scripted, serve, text};
use crate::fixture::{Authority, Front, Site, curl, table};

#[test]
fn requests_reach_the_member_of_their_host_and_path() {
    let (shop, blog) = (Recorder::start(), Recorder::start());
    let front =
        Front::start(table([Site::new("shop.test", &[shop.address]), Site::new("*.blog.test", &[blog.address])]));
    let base = format!("http://{}", front.http);
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        for (host, path, expected) in [
            ("shop.test", "/cart?id=1", "/cart?id=1 "),
            ("SHOP.test:8080", "/a%2Fb//c/../d", "/a%2Fb//c/../d "),
            ("my.blog.test", "/", "/ "),
            ("blog.test", "/", "nothing is served under this name and path\n"),
            ("a.b.blog.test", "/", "nothing is served under this name and path\n"),
            ("192.0.2.1", "/", "nothing is served under this name and path\n"),
        ] {
            let url = format!("{base}{path}");
            let host = format!("host: {host}");
            let (_, said) = curl(&[protocol, "--path-as-is", "-H", &host, &url]);
            assert_eq!(said, expected, "{protocol} {host} {path}");
        }
        let (_, said) = curl(&[protocol, "-H", "host: shop.test", "-d", "hello", &base]);
        assert_eq!(said, "/ hello", "{protocol}");
    }
    assert_eq!(front.metric(r#"fleetgate_web_requests_total{ingress="acme/web",code="2xx",protocol="http/2"}"#), 4);
    assert_eq!(front.metric(r#"fleetgate_web_refusals_total{door="http",code="NoRoute"}"#), 6);
    assert_eq!(front.metric(r#"fleetgate_web_request_duration_seconds_count{ingress="acme/web"}"#), 8);
}

#[test]
fn members_hear_who_asks_from_us_alone() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    let url = format!("http://{}/", front.http);
    let pretended = [
        "-H",
        "x-forwarded-for: 203.0.113.1",
        "-H",
        "forwarded: for=203.0.113.1",
        "-H",
        "x-forwarded-proto: https",
        "-H",
        "x_forwarded_host: evil.test",
        "-H",
        "x-real-ip: 203.0.113.1",
        "-H",
        "x-forwarded-prefix: /admin",
    ];
    let ours = [
        "-H",
        "host: shop.test",
        "-H",
        "connection: x-mine, close",
        "-H",
        "x-mine: secret",
        "-H",
        "proxy-connection: x",
        "-H",
        "keep-alive: 5",
        "-H",
        "te: gzip, trailers",
        "-H",
        "x-kept: yes",
    ];
    curl(&[&pretended[..], &ours, &[&url]].concat());
    let seen = recorder.last();
    assert_eq!(seen.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen.all("x-forwarded-proto"), ["http"]);
    assert_eq!(seen.all("x-forwarded-host"), ["shop.test"]);
    assert_eq!(seen.all("forwarded"), ["for=127.0.0.1;host=\"shop.test\";proto=http"]);
    assert_eq!(seen.all("te"), ["trailers"]);
    assert_eq!(seen.all("x-kept"), ["yes"]);
    assert_eq!(seen.all("fleetgate-hops"), ["1"]);
    for gone in [
        "x_forwarded_host",
        "x-real-ip",
        "x-forwarded-prefix",
        "x-mine",
        "connection",
        "proxy-connection",
        "keep-alive",
        "via",
    ] {
        assert_eq!(seen.header(gone), None, "{gone} in {}", seen.head);
    }
    // Cookies that came one by one.
    curl(&["--http2-prior-knowledge", "-H", "host: shop.test", "-H", "cookie: a=1", "-H", "cookie: b=2", &url]);
    assert_eq!(recorder.last().all("cookie"), ["a=1; b=2"]);
}

#[test]
fn trusted_proxies_speak_for_their_clients() {
    let recorder = Recorder::start();
    let mut site = Site::new("shop.test", &[recorder.address]);
    site.options = RouteOptions { redirect_to_https: true, ..RouteOptions::default() };
    let trusted_proxies = Arc::new(["127.0.0.0/8".parse().unwrap()]);
    let front = Front::with(site.table(), &Settings { threads: 1, trusted_proxies, ..Settings::default() });
    let url = format!("http://{}/", front.http);
    let mut arguments =
        vec!["-H", "host: shop.test", "-H", "x-forwarded-for: 203.0.113.1", "-H", "x-forwarded-proto: https", &url];
    curl(&arguments);
    let seen = recorder.last();
    assert_eq!(seen.all("x-forwarded-for"), ["203.0.113.1, 127.0.0.1"]);
    assert_eq!(seen.all("x-forwarded-proto"), ["https"]);
    arguments[5] = "x-forwarded-proto: http";
    arguments.extend(["-o", "/dev/null", "-w", "%{http_code}"]);
    assert_eq!(curl(&arguments).1, "308");
}

/// As the binary puts the two together.
pub(crate) fn outer(received: &[u8]) -> Outer {
    match gateway::outer_header::parse(received) {
        Ok(gateway::outer_header::Parsed::Incomplete) => Outer::Incomplete,
        Ok(gateway::outer_header::Parsed::Complete { client, length }) => {
            Outer::Complete { client: client.map(|client| client.0), length }
        }
        Err(_) => Outer::Malformed,
    }
}

/// Load balancers name their clients by the PROXY protocol, on both doors; what such a client says of itself counts for nothing.
#[test]
fn load_balancers_name_their_clients_first() {
    let authority = Authority::new();
    let recorder = Recorder::start();
    let mut site = Site::new("shop.test", &[recorder.address]);
    site.certificate = Some(authority.issue("shop.test"));
    let trusted_proxies = Arc::new(["127.0.0.0/8".parse().unwrap()]);
    let settings = Settings { threads: 1, trusted_proxies, outer_header: Some(outer), ..Settings::default() };
    let front = Front::with(site.table(), &settings);
    let request = "GET / HTTP/1.1\r\nhost: shop.test\r\nx-forwarded-for: 192.0.2.99\r\n\r\n";
    let mut client = front.connect();
    client.say("PROXY TCP4 203.0.113.7 ");
    client.say(format!("127.0.0.1 4000 80\r\n{request}{request}"));
    assert_eq!(client.hear().unwrap().status, 200);
    assert_eq!(recorder.last().all("x-forwarded-for"), ["203.0.113.7"]);
    assert_eq!(client.hear().unwrap().status, 200);
    let port = front.https.port();
    for more in ["--http1.1", "--http2"] {
        let (url, resolve) = (format!("https://shop.test:{port}/"), format!("shop.test:{port}:127.0.0.1"));
        let (is_well, said) = curl(&["-k", more, "--haproxy-protocol", "--resolve", &resolve, &url]);
        assert!(is_well && said == "/ ", "{said}");
        assert_eq!(recorder.last().all("x-forwarded-for"), ["127.0.0.1"]);
    }
    // Without it nothing is said.
    let mut client = front.connect();
    client.say(request);
    assert!(client.hear().is_none());
    front.wait_for_metric(r#"fleetgate_web_refusals_total{door="http",code="BadOuterHeader"}"#, 1);
}

#[test]
fn plain_requests_are_sent_to_https_where_that_is_asked_for() {
    let authority = Authority::new();
    let recorder = Recorder::start();
    let mut site = Site::new("shop.test", &[recorder.address]);
    site.options.redirect_to_https = true;
    site.certificate = Some(authority.issue("shop.test"));
    let settings = Settings { threads: 1, redirect_port: Some(8443), ..Settings::default() };
    let table = site.table();
    let front = Front::with(table.clone(), &settings);
    let mut client = front.connect();
    client.say("POST /cart?x=1 HTTP/1.1\r\nhost: shop.test:8080\r\ncontent-length: 0\r\n\r\n");
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.header("location")), (308, Some("https://shop.test:8443/cart?x=1")));
    let settings = Settings { redirect_port: Some(443), ..settings };
    let usual = Front::with(table, &settings);
    let mut client = usual.connect();
    client.say("GET /cart HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    assert_eq!(client.hear().unwrap().header("location"), Some("https://shop.test/cart"), "the usual port is not told");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, authority.pem()).unwrap();
    let resolve = format!("shop.test:{}:127.0.0.1", front.https.port());
    let url = format!("https://shop.test:{}/cart", front.https.port());
    let (_, said) = curl(&["--cacert", file.to_str().unwrap(), "--resolve", &resolve, &url]);
    assert_eq!(said, "/cart ");
    assert_eq!(recorder.last().all("x-forwarded-proto"), ["https"]);
}

#[test]
fn answers_pass_without_what_belongs_to_the_connection() {
    let member = scripted(&[b"HTTP/1.1 200 OK\r\nconnection: x-mine, keep-alive\r\nx-mine: 1\r\nkeep-alive: timeout=5\r\n\
        fleetgate-refusal: Pretended\r\nproxy-authenticate: x\r\nset-cookie: a=1\r\nset-cookie: b=2\r\ntransfer-encoding: chunked\r\n\r\n\
        5\r\nhello\r\n0\r\n\r\n"]);
    let front = Front::start(Site::new("shop.test", &[member]).table());
    let mut client = front.connect();
    client.say("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    for gone in ["connection", "x-mine", "keep-alive", "fleetgate-refusal", "proxy-authenticate"] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
    assert_eq!(answer.head.matches("set-cookie: ").count(), 2);
}

#[test]
fn bodies_and_heads_have_limits() {
    let recorder = Recorder::start();
    let mut site = Site::new("shop.test", &[recorder.address]);
    site.options.max_body = Some(1000);
    let front = Front::start(site.table());
    let url = format!("http://{}/", front.http);
    let (fits, exceeds) = ("x".repeat(1000), "x".repeat(1001));
    let many: Vec<String> = (0..120).map(|number| format!("x-{number}: y")).collect();
    let long = format!("x-long: {}", "y".repeat(40 << 10));
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        let status = |arguments: &[&str]| {
            let common = [protocol, "-H", "host: shop.test", "-o", "/dev/null", "-w", "%{http_code}", &url];
            curl(&[&common, arguments].concat()).1
        };
        assert_eq!(status(&["-d", &fits]), "200", "{protocol}");
        assert_eq!(status(&["-d", &exceeds]), "413", "{protocol}");
        assert_eq!(status(&["-H", &long]), "431", "{protocol}");
        let many: Vec<&str> = many.iter().flat_map(|field| ["-H", field]).collect();
        assert_eq!(status(&many), "431", "{protocol}");
    }
    // Nobody is asked for what nobody wants.
    let mut client = front.connect();
    client.say("POST / HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 1001\r\nexpect: 100-continue\r\n\r\n");
    assert_eq!(client.hear().unwrap().status, 413, "and no 100 before it");
    assert_eq!(client.rest(), b"");
    // Without a length nobody knows beforehand.
    let mut client = front.connect();
    let chunk = format!("3e8\r\n{fits}\r\n");
    client.say(format!(
        "POST / HTTP/1.1\r\nhost: shop.test\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"
    ));
    assert_eq!(client.hear().unwrap().code(), Some("BodyTooLarge"));
    assert_eq!(recorder.requests().iter().filter(|request| !request.body.is_empty()).count(), 2);
}

#[test]
fn what_goes_in_a_circle_ends() {
    // A member that is we ourselves.
    let front = Front::start(HttpTable::default());
    front.table.store(Arc::new(Site::new("shop.test", &[front.http]).table()));
    let mut client = front.connect();
    client.say("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    assert_eq!(client.hear().unwrap().status, 508);
    assert_eq!(front.metric(r#"fleetgate_web_refusals_total{door="http",code="Loop"}"#), 1);
}

#[test]
fn members_are_asked_whether_they_want_a_body() {
    let eager = scripted(&[b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"]);
    let unwilling = scripted(&[b"HTTP/1.1 417 Expectation Failed\r\ncontent-length: 2\r\n\r\nno"]);
    let silent = serve(None, |request| async move {
        assert_eq!(request.headers()["expect"], "100-continue");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        http::Response::new(text(body))
    });
    let sites = [("eager.test", eager), ("unwilling.test", unwilling), ("silent.test", silent)];
    let front = Front::start(table(sites.map(|(host, address)| Site::new(host, &[address]))));
    let head =
        |host: &str| format!("POST / HTTP/1.1\r\nhost: {host}\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n");

    let mut client = front.connect();
    client.say(head("eager.test"));
    assert_eq!(client.hear().unwrap().status, 100, "the member's word");
    client.say("hello");
    assert_eq!(client.hear().unwrap().body, "ok");

    let mut client = front.connect();
    client.say(head("unwilling.test"));
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (417, "no"), "without a 100 before it");
    assert_eq!(client.rest(), b"", "the body was not read, so that nothing can follow");

    let mut client = front.connect();
    client.say(head("silent.test"));
    assert_eq!(client.hear().unwrap().status, 100);
    client.say("hello");
    assert_eq!(client.hear().unwrap().body, "hello");
}

/// Routes by path, with their own members; the rest of the table is the model's.
#[test]
fn paths_lead_to_entries_of_their_own() {
    let (first, second) = (Recorder::start(), Recorder::start());
    let of = |recorder: &Recorder| {
        let table = Site::new("shop.test", &[recorder.address]).table();
        let host = Arc::clone(table.host(&model::DnsName::parse("shop.test").unwrap()).unwrap());
        Arc::clone(host.entry("/").unwrap())
    };
    let routes = vec![
        HttpRoute { path: PathMatch::Prefix("/".into()), entry: of(&first) },
        HttpRoute { path: PathMatch::Exact("/cart".into()), entry: of(&second) },
    ];
    let host = Host::new("acme".parse().unwrap(), routes, None, None);
    let front = Front::start(HttpTable::of([(model::DnsName::parse("shop.test").unwrap(), host)]));
    let mut client = front.connect();
    for path in ["/", "/cart", "/cart?x", "/cart/"] {
        client.say(format!("GET {path} HTTP/1.1\r\nhost: shop.test\r\n\r\n"));
        assert_eq!(client.hear().unwrap().status, 200);
    }
    let paths =
        |recorder: &Recorder| recorder.requests().iter().map(|request| request.path().to_owned()).collect::<Vec<_>>();
    assert_eq!(
        (paths(&first), paths(&second)),
        (vec!["/".into(), "/cart/".into()], vec!["/cart".into(), "/cart?x".into()])
    );
}

#[test]
fn head_and_errors_of_members_pass_as_they_are() {
    let member = serve(None, |request| async move {
        let mut response = http::Response::new(text(if request.uri() == "/gone" { "gone" } else { "hello" }));
        if request.uri() == "/gone" {
            *response.status_mut() = http::StatusCode::GONE;
        }
        response
    });
    let front = Front::start(Site::new("shop.test", &[member]).table());
    let mut client = front.connect();
    client.say(
        "HEAD / HTTP/1.1\r\nhost: shop.test\r\n\r\nGET /gone HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n",
    );
    let said = String::from_utf8(client.rest()).unwrap();
    let (head, rest) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-length: 5"), "{said}");
    assert!(rest.starts_with("HTTP/1.1 410") && rest.ends_with("\r\n\r\ngone"), "{said}");
}
