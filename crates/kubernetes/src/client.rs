//! How the hub's API is reached: from a pod by its service account, else by a kubeconfig of the operator's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A connection is there in milliseconds or not at all.
const CONNECT: Duration = Duration::from_secs(5);
/// Of one request and its answer; watches have a time of their own.
const WRITE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("reading the kubeconfig {path}: {source}")]
    Kubeconfig { path: PathBuf, source: kube::config::KubeconfigError },
    #[error("no --kubeconfig was given, this is no pod, and there is no kubeconfig either: {0}")]
    Nowhere(kube::config::InferConfigError),
    #[error("the hub cannot be reached with this configuration: {0}")]
    Unusable(kube::Error),
}

/// Also gives the namespace that the configuration is for, if it says so. Reaches for nothing yet.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let wrong = |source| ClientError::Kubeconfig { path: path.into(), source };
            let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(wrong)?
        }
        None => Config::infer().await.map_err(ClientError::Nowhere)?,
    };
    config.connect_timeout = Some(CONNECT);
    config.write_timeout = Some(WRITE);
    // Whoever asks has a pause of its own, and knows what is worth asking again.
    config.default_retry = false;
    Client::try_from(config).map_err(ClientError::Unusable)
}
