//! A server on real sockets, for tests.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use dns::{Index, Listeners, Metrics, Recent, Settings};
use prometheus_client::registry::Registry;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::records;

/// So long that only a hang exceeds it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const FLEET: &str = "
    fleet.example 30 SOA 7
    fleet.example 30 NS ns1.fleet.example
    api.c1.fleet.example 30 A 192.0.2.10
    geo.fleet.example 30 STEER geo
    geo.fleet.example 30 MEMBER c1 52.5,13.4 192.0.2.1
    geo.fleet.example 30 MEMBER c2 40.7,-74.0 192.0.2.2
";

pub(crate) struct Server {
    runtime: Runtime,
    pub(crate) address: SocketAddr,
    pub(crate) recent: Recent,
    shutdown: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(address: &str, settings: Settings) -> Self {
        let runtime = Runtime::new().unwrap();
        let index = Arc::new(ArcSwap::from_pointee(Index::default().apply(&records::changes(FLEET))));
        let metrics = Metrics::register(&mut Registry::default(), &index);
        let listeners = runtime.block_on(async { Listeners::bind(address.parse().unwrap()) }).unwrap();
        let address = listeners.address();
        let recent = Recent::default();
        let serving = listeners.start(index, settings, metrics, recent.clone()).unwrap();
        let shutdown = CancellationToken::new();
        let task = Some(runtime.spawn(serving.run(shutdown.clone())));
        Self { runtime, address, recent, shutdown, task }
    }

    pub(crate) fn client(&self, from: &str) -> UdpSocket {
        let socket = UdpSocket::bind(from).unwrap();
        socket.connect(self.address).unwrap();
        socket
    }

    /// Asks until there is an answer: what was sent before may fill the queue.
    pub(crate) fn must_answer(&self, client: &UdpSocket) {
        let deadline = Instant::now() + PATIENCE;
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut response = [0; 512];
        while Instant::now() < deadline {
            client.send(&question(77)).unwrap();
            if client.recv(&mut response).is_ok_and(|length| length > 12) && response[..2] == [0, 77] {
                assert_eq!(response[6..8], [0, 1], "one answer");
                return;
            }
        }
        panic!("no answer from {}", self.address);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(task) = self.task.take() {
            let ended = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, task).await });
            assert!(std::thread::panicking() || ended.unwrap().is_ok());
        }
    }
}

/// For the address of `api.c1.fleet.example`.
pub(crate) fn question(id: u8) -> Vec<u8> {
    let mut message = vec![0, id, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(records::name("api.c1.fleet.example").as_wire());
    message.extend_from_slice(&[0, 1, 0, 1]);
    message
}
