//! Asking a running fleetgate through its `--admin`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// A fleet of ten thousand clusters is listed in a second; a server that takes this long is not well.
const PATIENCE: Duration = Duration::from_secs(30);

/// What `GET path` answers; an error has the server's own words.
pub(crate) fn ask(admin: SocketAddr, path: &str) -> anyhow::Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, fetch(admin, path)).await });
    answer.map_err(|_| anyhow::anyhow!("{admin} did not answer within {PATIENCE:?}"))?
}

async fn fetch(admin: SocketAddr, path: &str) -> anyhow::Result<Value> {
    let unreachable = || format!("asking {admin}; is a fleetgate running with `--admin {admin}`?");
    let stream = TcpStream::connect(admin).await.with_context(unreachable)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, admin.to_string()).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await.with_context(unreachable)?;
    let status = response.status();
    let body = response.into_body().collect().await.with_context(unreachable)?.to_bytes();
    let answer: Value = serde_json::from_slice(&body).with_context(|| format!("{admin} answered no JSON"))?;
    match status {
        StatusCode::OK => Ok(answer),
        _ => bail!("{}", answer["error"]["message"].as_str().unwrap_or("the server refused")),
    }
}
