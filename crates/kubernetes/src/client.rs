//! How the hub's API is reached: from a pod by its service account, else by a kubeconfig of the operator's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use crate::peers::Bearer;

/// A connection is there in milliseconds or not at all.
const CONNECT: Duration = Duration::from_secs(5);
/// A watch is silent for minutes. A hub that is gone without a word is noticed after this and [`PROBES`] times
/// [`BETWEEN`]: within half a minute.
const SILENCE: Duration = Duration::from_secs(15);
const BETWEEN: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// As long for what was sent and is not acknowledged, where the system can count it; it would try for a quarter of an hour.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("reading the kubeconfig {path}: {source}")]
    Kubeconfig { path: PathBuf, source: kube::config::KubeconfigError },
    #[error("no --kubeconfig was given, this is no pod, and there is no kubeconfig either: {0}")]
    Nowhere(kube::config::InferConfigError),
    #[error("the hub cannot be reached with this configuration: {0}")]
    Unusable(kube::Error),
}

/// Reaches for nothing yet.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    build(&configuration(kubeconfig).await?).map_err(ClientError::Unusable)
}

/// The same, and the token that says who we are to others, where it is one.
pub async fn connect_with_token(kubeconfig: Option<&Path>) -> Result<(Client, Option<Bearer>), ClientError> {
    let config = configuration(kubeconfig).await?;
    let bearer = Bearer::of(&config.auth_info);
    Ok((build(&config).map_err(ClientError::Unusable)?, bearer))
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, ClientError> {
    Ok(match kubeconfig {
        Some(path) => {
            let wrong = |source| ClientError::Kubeconfig { path: path.into(), source };
            let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(wrong)?
        }
        None => Config::infer().await.map_err(ClientError::Nowhere)?,
    })
}

/// As kube builds it, but for three things: what is written goes out at once (kube leaves Nagle's algorithm on, for which the
/// body of a request may wait); a hub that vanished is noticed although nobody limits how long an answer takes, as a watch
/// is one; and nothing is asked again that failed: whoever asks has a pause of its own, and knows what is worth it.
fn build(config: &Config) -> Result<Client, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(SILENCE));
    connector.set_keepalive_interval(Some(BETWEEN));
    connector.set_keepalive_retries(Some(PROBES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let requests = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(requests);
    Ok(Client::new(service, config.default_namespace.clone()))
}
