//! Asking a running fleetgate through its `--admin`.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use api::AdminCredential;
use clap::Args;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::advice::Advise as _;
use crate::arguments::DEFAULT_ADMIN;
use crate::waiting::Waiting;

/// A fleet of ten thousand clusters is listed in a second; a server that takes this long is not well.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a running fleetgate is asked, or told to change something.
#[derive(Debug, Args)]
pub(crate) struct AdminOptions {
    /// Where the running fleetgate's --admin is
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADMIN, env = "FLEETGATE_ADMIN")]
    pub(crate) admin: SocketAddr,
    /// The file that the running fleetgate was given as its --admin-credential: to change something, or to ask from another machine
    #[arg(long, value_name = "FILE", env = "FLEETGATE_ADMIN_CREDENTIAL")]
    admin_credential: Option<PathBuf>,
}

/// A no of the server's, in its own words.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: String,
    message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

impl AdminOptions {
    /// What `GET path` answers.
    pub(crate) fn ask(&self, path: &str) -> anyhow::Result<Value> {
        self.send(Method::GET, path, None)
    }

    /// What a request answers.
    pub(crate) fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let _waiting = Waiting::on(format!("waiting for {}", self.admin));
        self.exchange(method, path, body)
    }

    /// All `items` of a list that is answered page by page; `path` has a query already.
    pub(crate) fn ask_pages(&self, path: &str) -> anyhow::Result<Value> {
        let waiting = Waiting::on(format!("waiting for {}", self.admin));
        let mut items = Vec::new();
        let mut mark = None::<String>;
        loop {
            let next = mark.map(|mark| format!("&continue={}", encode(&mark))).unwrap_or_default();
            let mut page = self.exchange(Method::GET, &format!("{path}{next}"), None)?;
            let more = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
            let is_empty = more.is_empty();
            items.extend(more);
            let (done, remaining) = (items.len() as u64, page["remaining"].as_u64().unwrap_or_default());
            waiting.advance(done, done + remaining);
            mark = page["continue"].as_str().filter(|_| !is_empty).map(str::to_owned);
            if mark.is_none() {
                return Ok(serde_json::json!({ "items": items }));
            }
        }
    }

    fn exchange(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let admin = self.admin;
        let credential = self.admin_credential.as_deref().map(AdminCredential::read).transpose()?;
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, admin.to_string());
        if let Some(credential) = &credential {
            request = request.header(header::AUTHORIZATION, credential.bearer());
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::from(body.map(Value::to_string).unwrap_or_default()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answered = runtime.block_on(async { tokio::time::timeout(PATIENCE, fetch(admin, request)).await });
        let late = |_| anyhow!("{admin} did not answer within {PATIENCE:?}");
        let (status, answer) = answered
            .map_err(late)
            .advise(|| format!("see whether it is well: its log, and http://{admin}/healthz"))??;
        if status == StatusCode::OK {
            return Ok(answer);
        }
        let text = |field: &str| answer["error"][field].as_str().map(str::to_owned);
        let code = text("code").unwrap_or_else(|| status.as_u16().to_string());
        let message = text("message").unwrap_or_else(|| format!("{admin} refused with {status}"));
        match self.advice(&code, &message) {
            Some(advice) => Err(Refused { code, message }).advise(|| advice),
            None => Err(Refused { code, message }.into()),
        }
    }

    /// What to do about a refusal that says nothing of the object.
    fn advice(&self, code: &str, message: &str) -> Option<String> {
        let admin = self.admin;
        let advice = match (code, &self.admin_credential) {
            ("NoCredential", _) if message.contains("needs a fleetgate that runs with") => {
                "start it again with --admin-credential FILE, and give the same file here".into()
            }
            ("NoCredential" | "NotLoopback" | "ForeignHost", Some(file)) => {
                format!("{} is not the file that the running fleetgate was started with", file.display())
            }
            ("NoCredential", None) => {
                "give the file that it was started with: --admin-credential FILE, or FLEETGATE_ADMIN_CREDENTIAL".into()
            }
            ("NotLoopback" | "ForeignHost", None) => {
                "ask on the machine itself, or with --admin-credential FILE (FLEETGATE_ADMIN_CREDENTIAL)".into()
            }
            ("NoSuchPath", _) => format!("{admin} is the address of its --metrics, or it is older than this program"),
            ("NotReady" | "HandingOver", _) => "it takes a moment: ask again".into(),
            _ => return None,
        };
        Some(advice)
    }
}

async fn fetch(admin: SocketAddr, request: Request<Full<Bytes>>) -> anyhow::Result<(StatusCode, Value)> {
    let asking = || format!("asking {admin}");
    let no_admin =
        || format!("is {admin} the --admin of a fleetgate? Say where that is with --admin or FLEETGATE_ADMIN");
    let stream = match TcpStream::connect(admin).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            let advice = format!(
                "nobody listens there: start one with `fleetgate serve --fleet DIR --admin {admin}` or look at \
                 `fleetgate demo`, or say where yours is with --admin or FLEETGATE_ADMIN"
            );
            return Err(error).with_context(asking).advise(|| advice);
        }
        connected => connected.with_context(asking).advise(no_admin)?,
    };
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.with_context(asking).advise(no_admin)?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await.with_context(asking).advise(no_admin)?;
    let status = response.status();
    let body = response.into_body().collect().await.with_context(asking).advise(no_admin)?.to_bytes();
    let answer = serde_json::from_slice(&body).with_context(|| format!("{admin} answered no JSON")).advise(no_admin)?;
    Ok((status, answer))
}

/// Where an object is not there, those that are can be listed.
pub(crate) fn advise_missing<T>(answer: anyhow::Result<T>, list: &str) -> anyhow::Result<T> {
    let is_missing = |no: &Refused| matches!(no.code.as_str(), "NoSuchObject" | "NoSuchCluster");
    match answer {
        Err(error) if error.downcast_ref().is_some_and(is_missing) => {
            Err(error).advise(|| format!("`fleetgate get {list}` lists those that there are"))
        }
        answer => answer,
    }
}

/// RFC 3986 2.1, for all but what never needs it.
pub(crate) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut encoded, octet| {
        match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => encoded.push(octet.into()),
            _ => write!(encoded, "%{octet:02X}").expect("a String takes any text"),
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_asked_for_arrives_as_it_was_written() {
        for (asked, sent) in [("c1", "c1"), ("a b&tlv=c2#?%", "a%20b%26tlv%3Dc2%23%3F%25"), ("ü\n", "%C3%BC%0A")] {
            assert_eq!(encode(asked), sent);
        }
    }
}
