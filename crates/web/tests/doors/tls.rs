//! TLS on both sides.

use std::path::PathBuf;
use std::sync::Arc;

use model::ingress::UpstreamTls;
use tempfile::TempDir;

use crate::backend::{Recorder, serve, text};
use crate::fixture::{Authority, Front, Site, curl, table};

fn file_of(authority: &Authority) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, authority.pem()).unwrap();
    (folder, file)
}

fn secure(host: &'static str, tenant: &'static str, recorder: &Recorder, authority: &Authority) -> Site {
    let mut site = Site::new(host, &[recorder.address]);
    (site.tenant, site.certificate) = (tenant, Some(authority.issue(host)));
    site
}

#[test]
fn certificates_are_chosen_by_server_name_and_change_live() {
    let authority = Authority::new();
    let (_folder, file) = file_of(&authority);
    let recorder = Recorder::start();
    let sites =
        || [secure("shop.test", "acme", &recorder, &authority), secure("*.blog.test", "acme", &recorder, &authority)];
    let front = Front::start(table(sites()));
    let port = front.https.port();
    let ask = |host: &str, more: &[&str]| {
        let (url, resolve) = (format!("https://{host}:{port}/"), format!("{host}:{port}:127.0.0.1"));
        let format = "\n%{http_version} %{certs}";
        let common = ["--cacert", file.to_str().unwrap(), "--resolve", &resolve, "-w", format, &url];
        curl(&[&common, more].concat())
    };
    for (more, version) in
        [(&[][..], "2"), (&["--http1.1"], "1.1"), (&["--tls-max", "1.2"], "2"), (&["--tlsv1.3"], "2")]
    {
        let (is_well, said) = ask("shop.test", more);
        assert!(is_well && said.starts_with(&format!("/ \n{version}")), "{more:?} {said}");
    }
    assert!(ask("my.blog.test", &[]).0);
    // Names without a certificate are told so by the alert that says it, and counted.
    let (is_well, said) = ask("other.test", &[]);
    assert!(!is_well && said.contains("unrecognized name"), "{said}");
    assert_eq!(front.metric(r#"fleetgate_web_refusals_total{door="https",code="UnknownServerName"}"#), 1);
    let (is_well, said) = curl(&["-k", &format!("https://127.0.0.1:{port}/")]);
    assert!(!is_well && said.contains("unrecognized name"), "{said}");
    assert_eq!(front.metric(r#"fleetgate_web_refusals_total{door="https",code="NoServerName"}"#), 1);
    let (is_well, said) = ask("shop.test", &["--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0"]);
    assert!(!is_well, "{said}");

    let shown = || {
        let openssl = format!(
            "openssl s_client -connect 127.0.0.1:{port} -servername shop.test </dev/null 2>/dev/null | openssl x509 -noout -serial"
        );
        let output = std::process::Command::new("sh").args(["-c", &openssl]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let before = shown();
    assert!(before.starts_with("serial="), "{before}");
    assert_eq!(shown(), before);
    front.table.store(Arc::new(table(sites())));
    assert_ne!(shown(), before, "the next handshake has the next certificate");
    front.table.store(Arc::new(Site::new("shop.test", &[recorder.address]).table()));
    assert_eq!(shown(), "", "and none where there is none any more");
}

#[test]
fn sessions_are_resumed() {
    let authority = Authority::new();
    let recorder = Recorder::start();
    let front = Front::start(secure("shop.test", "acme", &recorder, &authority).table());
    for version in ["-tls1_2", "-tls1_3"] {
        let folder = tempfile::tempdir().unwrap();
        let session = folder.path().join("session");
        let run = |flag: &str| {
            // Tickets of TLS 1.3 come with the first answer.
            let request = "printf 'GET / HTTP/1.1\\r\\nhost: shop.test\\r\\nconnection: close\\r\\n\\r\\n'";
            let openssl = format!(
                "{request} | openssl s_client {version} -connect {} -servername shop.test {flag} {} -ign_eof 2>&1",
                front.https,
                session.display()
            );
            let output = std::process::Command::new("sh").args(["-c", &openssl]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let first = run("-sess_out");
        assert!(first.contains("\nNew, TLSv"), "{version} {first}");
        let second = run("-sess_in");
        assert!(second.contains("\nReused, TLSv"), "{version} {second}");
    }
}

/// A connection stands for the owner of its server name: others' hosts are not served on it.
#[test]
fn requests_for_another_tenant_than_the_certificate_s_are_misdirected() {
    let authority = Authority::new();
    let (_folder, file) = file_of(&authority);
    let recorder = Recorder::start();
    let front = Front::start(table([
        secure("shop.test", "acme", &recorder, &authority),
        secure("pay.test", "acme", &recorder, &authority),
        secure("evil.test", "mallory", &recorder, &authority),
    ]));
    let port = front.https.port();
    let (url, resolve) = (format!("https://shop.test:{port}/"), format!("shop.test:{port}:127.0.0.1"));
    for protocol in ["--http1.1", "--http2"] {
        for (host, status) in [("shop.test", "200"), ("pay.test", "200"), ("evil.test", "421"), ("nobody.test", "404")]
        {
            let host = format!("host: {host}");
            let arguments = [protocol, "--cacert", file.to_str().unwrap(), "--resolve", &resolve, "-H", &host];
            let (_, said) = curl(&[&arguments[..], &["-o", "/dev/null", "-w", "%{http_code}", &url]].concat());
            assert_eq!(said, status, "{protocol} {host}");
        }
    }
    assert_eq!(recorder.requests().len(), 4);
}

#[test]
fn members_have_to_prove_to_be_the_host() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let certificate = ours.issue("shop.test");
    let of = |protocols: &'static [&'static str]| {
        serve(Some((&certificate, protocols)), |request| async move {
            http::Response::new(text(format!("{:?} {}", request.version(), request.uri())))
        })
    };
    let verified = |authority: &Authority| UpstreamTls::Verified { authorities: Arc::new([authority.der()]) };
    for (host, protocols, upstream, status, body) in [
        ("shop.test", &["h2", "http/1.1"][..], verified(&ours), 200, "HTTP/2.0 https://shop.test/x"),
        ("shop.test", &["http/1.1"], verified(&ours), 200, "HTTP/1.1 /x"),
        ("shop.test", &[], verified(&ours), 200, "HTTP/1.1 /x"),
        ("shop.test", &["h2"], verified(&theirs), 502, "Untrusted"),
        ("other.test", &["h2"], verified(&ours), 502, "Untrusted"),
        // The machine's authorities do not know ours.
        ("shop.test", &["h2"], UpstreamTls::default(), 502, "Untrusted"),
        ("other.test", &["http/1.1"], UpstreamTls::Unverified, 200, "HTTP/1.1 /x"),
    ] {
        let mut site = Site::new(host, &[of(protocols)]);
        site.upstream = upstream.clone();
        let front = Front::start(site.table());
        let mut client = front.connect();
        for _ in 0..2 {
            client.say(format!("GET /x HTTP/1.1\r\nhost: {host}\r\n\r\n"));
            let answer = client.hear().unwrap();
            let said = answer.code().unwrap_or(&answer.body);
            assert_eq!((answer.status, said), (status, body), "{host} {protocols:?} {upstream:?}");
        }
        if status == 200 {
            assert_eq!(front.metric("fleetgate_web_upstream_connects_total"), 1, "one connection for both");
        }
    }
}
