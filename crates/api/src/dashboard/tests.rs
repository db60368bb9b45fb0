//! Who is let in, what a browser is told, and that nothing anybody wrote is markup.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use prometheus_client::registry::Registry;
use store::{Database, RefusedFile};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::MOST_STREAMS;
use crate::AdminCredential;
use crate::listen::{Interface, Life};
use crate::state::{FolderState, State};

const CREDENTIAL: &str = "a-credential-of-more-than-32-characters";
const HERE: &str = "127.0.0.1:40000";
const ELSEWHERE: &str = "192.0.2.9:40000";

struct Site {
    state: Arc<State>,
    router: Router,
    shutdown: CancellationToken,
}

impl Site {
    fn new() -> Self {
        let database = Arc::new(Database::in_memory().unwrap());
        let state = Arc::new(State::new(Arc::default(), Arc::default(), database, Registry::default()));
        let shutdown = CancellationToken::new();
        let router = Interface::Admin.router(Arc::clone(&state), &shutdown);
        Self { state, router, shutdown }
    }

    fn with_credential() -> Self {
        let site = Self::new();
        site.state.admin_credential.set(AdminCredential::of(CREDENTIAL)).unwrap();
        site
    }

    async fn ask(&self, method: Method, path: &str, fields: &[(&str, &str)], body: &str) -> Response<Body> {
        self.ask_from(HERE, method, path, fields, body).await
    }

    async fn ask_from(
        &self,
        peer: &str,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost:9630");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let request = request.extension(ConnectInfo(peer.parse::<SocketAddr>().unwrap())).extension(Life::default());
        self.router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        read(self.ask(Method::GET, path, &[], "").await).await
    }

    /// The cookie and the word of somebody who logged in.
    async fn log_in(&self) -> (String, String) {
        let fields = [("origin", "http://localhost:9630")];
        let answer = self.ask(Method::POST, "/login", &fields, &format!("credential={CREDENTIAL}&next=/zones")).await;
        assert_eq!(
            (answer.status(), &answer.headers()[header::LOCATION]),
            (StatusCode::SEE_OTHER, &"/zones".parse().unwrap())
        );
        let cookie = answer.headers()[header::SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
        let (_, page) = read(self.ask(Method::GET, "/", &[("cookie", &cookie)], "").await).await;
        let word = page.split("name=\"word\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        (cookie, word)
    }
}

async fn read(answer: Response<Body>) -> (StatusCode, String) {
    let status = answer.status();
    let octets = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(octets.to_vec()).unwrap())
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).unwrap_or_else(|| panic!("{name} in {headers:?}")).to_str().unwrap()
}

#[tokio::test]
async fn browsers_are_told_what_they_must_not_do() {
    let site = Site::new();
    for path in ["/", "/clusters", "/clusters/none", "/login", "/zones?page=x"] {
        let answer = site.ask(Method::GET, path, &[], "").await;
        let headers = answer.headers();
        let policy = field(headers, "content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(field(headers, "x-content-type-options"), "nosniff");
        assert_eq!(field(headers, "referrer-policy"), "same-origin");
        assert_eq!(field(headers, "cache-control"), "no-store");
        let (_, page) = read(answer).await;
        assert!(!page.contains(" style=\"") && !page.contains("<style") && !page.contains(" onclick"), "{page}");
    }
    for file in ["style.css", "live.js", "icon.svg"] {
        let (_, page) = site.get("/").await;
        let path = page.split('"').find(|text| text.starts_with(&format!("/assets/{file}?"))).unwrap().to_owned();
        let answer = site.ask(Method::GET, &path, &[], "").await;
        assert_eq!((answer.status(), field(answer.headers(), "x-content-type-options")), (StatusCode::OK, "nosniff"));
        let tag = field(answer.headers(), "etag").to_owned();
        let again = site.ask(Method::GET, &path, &[("if-none-match", &tag)], "").await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }
    assert_eq!(site.get("/assets/other.js").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_anybody_wrote_is_text() {
    let site = Site::new();
    let attack = "\"><script>alert(1)</script>";
    let mistake = manifest::document::Mistake { line: 1, column: 2, reason: format!("spec: {attack}") };
    let refused = vec![RefusedFile { file: format!("{attack}.yaml").into(), mistakes: vec![mistake] }];
    site.state.folder.store(Arc::new(FolderState { refused, error: None }));
    let sent = "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for path in [
        "/refusals".to_owned(),
        format!("/refusals?q={sent}&code={sent}"),
        format!("/clusters?q={sent}&state={sent}&at={sent}"),
        format!("/records?q={sent}"),
        format!("/explain?what={sent}&from={sent}"),
        format!("/clusters/{sent}"),
        format!("/login?next={sent}"),
        format!("/tenants?page={sent}"),
    ] {
        let (_, page) = site.get(&path).await;
        assert!(!page.contains("<script>") && page.matches("<script").count() == 1, "{path}: {page}");
    }
    let (_, page) = site.get("/refusals").await;
    assert!(page.contains("spec: &quot;&gt;&lt;script&gt;"), "{page}");
}

#[tokio::test]
async fn a_form_needs_a_session_its_word_and_a_page_of_ours() {
    let site = Site::with_credential();
    let (cookie, word) = site.log_in().await;
    let (_, others_word) = site.log_in().await;
    let own = "http://localhost:9630";
    let good = format!("word={word}");
    let session = ("cookie", cookie.as_str());
    for (fields, body, code) in [
        (vec![("origin", own)], good.as_str(), "NoSession"),
        (vec![("origin", own), ("cookie", "fleetgate_session=0000")], &good, "NoSession"),
        (vec![("origin", own), session], "word=", "ForeignForm"),
        (vec![("origin", own), session], "other=1", "ForeignForm"),
        (vec![("origin", own), session], &format!("word={others_word}"), "ForeignForm"),
        (vec![("origin", "https://evil.example"), session], &good, "ForeignOrigin"),
        (vec![("origin", "http://localhost:1"), session], &good, "ForeignOrigin"),
        (vec![("origin", "null"), session], &good, "ForeignOrigin"),
        (vec![session], &good, "ForeignOrigin"),
        (vec![("origin", own), ("sec-fetch-site", "cross-site"), session], &good, "ForeignOrigin"),
        (vec![("sec-fetch-site", "same-site"), session], &good, "ForeignOrigin"),
        // All is as it should be, and there is no such object.
        (vec![("origin", own), ("sec-fetch-site", "same-origin"), session], &good, "NoSuchObject"),
    ] {
        for path in ["/clusters/c1/drain", "/clusters/c1/undrain", "/zones/z/release", "/tenants/t/release"] {
            let (status, page) = read(site.ask(Method::POST, path, &fields, body).await).await;
            let expected = if code == "NoSuchObject" { StatusCode::NOT_FOUND } else { StatusCode::FORBIDDEN };
            assert_eq!(status, expected, "{path} {fields:?} {body}");
            assert!(page.contains(&format!(" {code}</h1>")), "{path} {fields:?} {body}: {page}");
        }
    }
    // A cookie is no credential for what programs change by, with whatever else a browser sends.
    for (method, path) in
        [(Method::POST, "/v1/release/zone/z"), (Method::POST, "/v1/drain/c1"), (Method::DELETE, "/v1/drain/c1")]
    {
        let fields = [("origin", own), ("sec-fetch-site", "same-origin"), session];
        let (status, text) = read(site.ask(method, path, &fields, &good).await).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert!(text.contains("NoCredential"), "{text}");
    }

    // Out again, by a form as well.
    let fields = [("origin", own), session];
    assert_eq!(site.ask(Method::POST, "/logout", &fields, "word=").await.status(), StatusCode::FORBIDDEN);
    assert_eq!(site.ask(Method::POST, "/logout", &fields, &good).await.status(), StatusCode::SEE_OTHER);
    let (_, page) = read(site.ask(Method::POST, "/zones/z/release", &fields, &good).await).await;
    assert!(page.contains("NoSession"), "{page}");
}

#[tokio::test]
async fn wrong_credentials_are_few() {
    let site = Site::with_credential();
    let origin = [("origin", "http://localhost:9630")];
    let foreign = site.ask(Method::POST, "/login", &[("origin", "http://evil.example")], "credential=x").await;
    assert!(read(foreign).await.1.contains("ForeignOrigin"));
    for attempt in 0..10 {
        let answer = site.ask(Method::POST, "/login", &origin, "credential=guess").await;
        assert_eq!(
            (answer.status(), answer.headers().get(header::SET_COOKIE)),
            (StatusCode::FORBIDDEN, None),
            "{attempt}"
        );
    }
    let answer = site.ask(Method::POST, "/login", &origin, &format!("credential={CREDENTIAL}")).await;
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    let answer = Site::new().ask(Method::POST, "/login", &origin, "credential=").await;
    assert!(read(answer).await.1.contains("runs without an admin credential"));
}

#[tokio::test]
async fn other_machines_see_pages_once_they_have_logged_in() {
    let site = Site::with_credential();
    let (cookie, _) = site.log_in().await;
    let host = ("host", "admin.example");
    for (path, fields, status) in [
        ("/", vec![], 403),
        ("/live/", vec![], 403),
        ("/clusters", vec![host], 403),
        ("/login", vec![], 200),
        ("/", vec![("cookie", cookie.as_str())], 200),
        ("/explain", vec![("cookie", cookie.as_str())], 200),
        ("/v1/objects/zones", vec![("cookie", cookie.as_str())], 403),
        ("/metrics", vec![("cookie", cookie.as_str())], 403),
        ("/healthz", vec![], 200),
    ] {
        let answer = site.ask_from(ELSEWHERE, Method::GET, path, &fields, "").await;
        assert_eq!(answer.status().as_u16(), status, "{path} {fields:?}");
    }
    let without = Site::new();
    for path in ["/", "/login", "/assets/style.css"] {
        let answer = without.ask_from(ELSEWHERE, Method::GET, path, &[], "").await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
    }
    // Pages of strangers that resolve to this machine.
    let request = Request::builder().uri("/").header(header::HOST, "rebound.example");
    let request = request.extension(ConnectInfo(HERE.parse::<SocketAddr>().unwrap())).body(Body::empty()).unwrap();
    assert_eq!(without.router.clone().oneshot(request).await.unwrap().status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn streams_are_bounded_and_end_with_the_process() {
    let site = Site::new();
    let mut streams = Vec::new();
    for _ in 0..MOST_STREAMS {
        let answer = site.ask(Method::GET, "/live/clusters?q=x", &[], "").await;
        assert_eq!((answer.status(), field(answer.headers(), "content-type")), (StatusCode::OK, "text/event-stream"));
        streams.push(answer.into_body());
    }
    let (status, text) = site.get("/live/").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("TooManyStreams"), "{text}");
    streams.pop();
    let mut stream = site.ask(Method::GET, "/live/", &[], "").await.into_body();
    let first = stream.frame().await.unwrap().unwrap().into_data().unwrap();
    let first = String::from_utf8(first.to_vec()).unwrap();
    assert!(first.starts_with("event: regions\ndata: {\"") && first.contains("\"tiles\":\"<ul class="), "{first}");
    streams.push(stream);
    assert_eq!(site.get("/live/nothing").await.0, StatusCode::NOT_FOUND);

    site.shutdown.cancel();
    for mut stream in streams {
        while stream.frame().await.is_some() {}
    }
    assert_eq!(site.ask(Method::GET, "/live/", &[], "").await.status(), StatusCode::OK, "places come back");
}
