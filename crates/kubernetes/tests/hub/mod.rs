//! An API server of a test's own, and the line to it, which can be cut.
#![allow(dead_code, clippy::unwrap_used)] // Each test uses a part of it, and a test that cannot go on panics.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use testbed::ApiServer;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

/// The machine may be busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn start() -> Option<ApiServer> {
    Some(ApiServer::start(&testbed::kubernetes()?).unwrap())
}

pub(crate) async fn client(server: &ApiServer) -> Client {
    client_at(server, server.address()).await
}

pub(crate) async fn client_at(server: &ApiServer, address: SocketAddr) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(server.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.cluster_url = format!("https://{address}").parse().unwrap();
    Client::try_from(config).unwrap()
}

/// Asks again and again until there is an answer.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A relay in front of an API server.
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Line {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, state) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, target, state.clone()));
            }
        });
        Self { address, open }
    }

    pub(crate) fn cut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn mend(&self) {
        self.open.send_replace(true);
    }
}

async fn carry(mut near: TcpStream, target: SocketAddr, mut open: watch::Receiver<bool>) {
    if !*open.borrow_and_update() {
        return;
    }
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        _ = open.changed() => {}
    }
}
