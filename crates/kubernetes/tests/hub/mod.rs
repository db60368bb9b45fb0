//! An API server of a test's own, and the line to it, which can be cut.
#![allow(dead_code, clippy::unwrap_used)] // Each test uses a part of it, and a test that cannot go on panics.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use testbed::ApiServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

/// The machine may be busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

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
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Open,
    /// What is sent arrives, but later.
    Held,
    Cut,
}

impl Line {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, seen) = watch::channel(State::Open);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, target, seen.clone()));
            }
        });
        Self { address, state }
    }

    pub(crate) fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    pub(crate) fn hold(&self) {
        self.state.send_replace(State::Held);
    }

    pub(crate) fn mend(&self) {
        self.state.send_replace(State::Open);
    }
}

async fn carry(near: TcpStream, target: SocketAddr, mut state: watch::Receiver<State>) {
    if *state.borrow() == State::Cut {
        return;
    }
    let Ok(far) = TcpStream::connect(target).await else { return };
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = pump(near_in, far_out, state.clone()) => {}
        () = pump(far_in, near_out, state.clone()) => {}
        _ = state.wait_for(|state| *state == State::Cut) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<State>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if state.wait_for(|state| *state == State::Open).await.is_err() || to.write_all(&buffer[..count]).await.is_err()
        {
            return;
        }
    }
}
