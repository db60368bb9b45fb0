//! A real HAProxy on either side: as the ingress of a member, and as the load balancer before us.

use std::fmt::Write as _;
use std::sync::Arc;

use model::ingress::UpstreamTls;
use web::Settings;

use crate::backend::Recorder;
use crate::fixture::{Authority, Front, Site, curl};

const DEFAULTS: &str = "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n";

/// Verified TLS with HTTP/2 to the member's ingress, which reads strictly as well and would refuse what is not plain.
#[test]
fn a_member_s_ingress_takes_what_we_send() {
    let Some(haproxy) = testbed::haproxy() else { return };
    let authority = Authority::new();
    let (recorder, echo) = (Recorder::start(), crate::streams::echo());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.pem");
    std::fs::write(&file, authority.issue_pem("shop.test")).unwrap();
    let ingress = haproxy
        .start(|[front]| {
            let mut text = DEFAULTS.to_owned();
            write!(text, "frontend f\n bind {front} ssl crt {} alpn h2,http/1.1 strict-sni\n", file.display()).unwrap();
            write!(text, " use_backend e if {{ path /chat }}\n default_backend b\n").unwrap();
            write!(text, "backend b\n server s {}\nbackend e\n server s {echo}\n", recorder.address).unwrap();
            text
        })
        .unwrap();
    let mut site = Site::new("shop.test", &ingress.addresses());
    site.upstream = UpstreamTls::Verified { authorities: Arc::new([authority.der()]) };
    let front = Front::start(site.table());
    let url = format!("http://{}/cart?x=1", front.http);
    let large = "x".repeat(200_000);
    let file = folder.path().join("large");
    std::fs::write(&file, &large).unwrap();
    let file = format!("@{}", file.display());
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        for more in [&[][..], &["-H", "transfer-encoding: chunked"]] {
            // HTTP/2 has no such field.
            if protocol != "--http1.1" && !more.is_empty() {
                continue;
            }
            let arguments = [protocol, "-H", "host: shop.test", "--data-binary", &file, &url];
            let (is_well, said) = curl(&[&arguments, more].concat());
            assert!(
                is_well && said == format!("/cart?x=1 {large}"),
                "{protocol} {more:?} {}",
                &said[..said.len().min(200)]
            );
        }
    }
    let seen = recorder.last();
    assert_eq!((seen.all("host"), seen.all("x-forwarded-for")), (vec!["shop.test"], vec!["127.0.0.1"]));

    let mut client = front.connect();
    client.say("GET /chat HTTP/1.1\r\nhost: shop.test\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nhello");
    assert_eq!(client.hear().unwrap().status, 101);
    assert_eq!(client.exactly(5), b"hello");
    drop(client);

    // When it is gone, that is told; when it is back, it is used again.
    drop(ingress);
    let mut client = front.connect();
    client.say("POST / HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(client.hear().unwrap().code(), Some("Unreachable"));
}

/// PROXY version 2 from a real sender, on both doors.
#[test]
fn a_load_balancer_names_the_client() {
    let Some(haproxy) = testbed::haproxy() else { return };
    let authority = Authority::new();
    let recorder = Recorder::start();
    let mut site = Site::new("shop.test", &[recorder.address]);
    site.certificate = Some(authority.issue("shop.test"));
    let trusted_proxies = Arc::new(["127.0.0.1/32".parse().unwrap()]);
    let outer_header = Some(crate::requests::outer as web::OuterHeader);
    let settings = Settings { threads: 1, trusted_proxies, outer_header, ..Settings::default() };
    let front = Front::with(site.table(), &settings);
    let balancer = haproxy
        .start(|[http, https]| {
            let tcp = DEFAULTS.replace("mode http", "mode tcp");
            let listen = |name: &str, at, to| {
                format!("listen {name}\n bind {at}\n server s {to} send-proxy-v2 source 127.0.0.1\n")
            };
            format!("{tcp}{}{}", listen("a", http, front.http), listen("b", https, front.https))
        })
        .unwrap();
    let [http, https] = balancer.addresses();
    let (resolve, url) =
        (format!("shop.test:{}:127.0.0.1", https.port()), format!("https://shop.test:{}/", https.port()));
    for arguments in [
        vec!["--interface", "127.0.0.9", "-H", "host: shop.test", &format!("http://{http}/")],
        vec!["--interface", "127.0.0.9", "-k", "--resolve", &resolve, &url],
    ] {
        let (is_well, said) = curl(&arguments);
        assert!(is_well && said == "/ ", "{said}");
        assert_eq!(recorder.last().all("x-forwarded-for"), ["127.0.0.9"]);
    }
}
