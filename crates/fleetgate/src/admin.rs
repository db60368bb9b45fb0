//! Asking a running fleetgate through its `--admin`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::AdminCredential;
use clap::Args;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::arguments::DEFAULT_ADMIN;
use crate::waiting;

/// A fleet of ten thousand clusters is listed in a second; a server that takes this long is not well.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a running fleetgate is told to change something.
#[derive(Debug, Args)]
pub(crate) struct AdminOptions {
    /// Where the running fleetgate's --admin is
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADMIN, env = "FLEETGATE_ADMIN")]
    admin: SocketAddr,
    /// The file that the running fleetgate was given as its --admin-credential
    #[arg(long, value_name = "FILE", env = "FLEETGATE_ADMIN_CREDENTIAL")]
    admin_credential: Option<PathBuf>,
}

impl AdminOptions {
    pub(crate) fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let credential = self.admin_credential.as_deref().map(AdminCredential::read).transpose()?;
        send(self.admin, method, path, body, credential.as_ref())
    }
}

/// What `GET path` answers; an error has the server's own words.
pub(crate) fn ask(admin: SocketAddr, path: &str) -> anyhow::Result<Value> {
    send(admin, Method::GET, path, None, None)
}

/// What a request answers; an error has the server's own words.
pub(crate) fn send(
    admin: SocketAddr,
    method: Method,
    path: &str,
    body: Option<&Value>,
    credential: Option<&AdminCredential>,
) -> anyhow::Result<Value> {
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, admin.to_string());
    if let Some(credential) = credential {
        request = request.header(header::AUTHORIZATION, credential.bearer());
    }
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::from(body.map(Value::to_string).unwrap_or_default()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        let waiting = format!("waiting for {admin}");
        tokio::time::timeout(PATIENCE, waiting::shown(&waiting, fetch(admin, request))).await
    });
    answer.map_err(|_| anyhow::anyhow!("{admin} did not answer within {PATIENCE:?}"))?
}

async fn fetch(admin: SocketAddr, request: Request<Full<Bytes>>) -> anyhow::Result<Value> {
    let unreachable = || format!("asking {admin}; is a fleetgate running with `--admin {admin}`?");
    let stream = TcpStream::connect(admin).await.with_context(unreachable)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await.with_context(unreachable)?;
    let status = response.status();
    let body = response.into_body().collect().await.with_context(unreachable)?.to_bytes();
    let answer: Value = serde_json::from_slice(&body).with_context(|| format!("{admin} answered no JSON"))?;
    match status {
        StatusCode::OK => Ok(answer),
        _ => bail!("{}", answer["error"]["message"].as_str().unwrap_or("the server refused")),
    }
}
