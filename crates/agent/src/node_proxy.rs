//! The node proxy: listens on the node, and carries what comes in to the hub's shared door behind a PROXY v2 header
//! that names the cluster.
//!
//! Connections are the gateway's (`gateway::serve_node`). What is here follows the surroundings: the hub's names are
//! looked up again and again, because load balancers that have only a name change their addresses, and the key is read
//! again when its file changes.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use gateway::{BindError, Door, DoorKind, Hub, Metrics, Serving, Settings, Timeouts};
use model::proof::{KeyError, MAX_KEY};
use model::{ClusterId, ProofKey};

use crate::place::Place;

/// While all is well: the shortest TTL that load balancers' names commonly have.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// After a connection that failed, and while no name could be looked up.
const LOOK_SOON: Duration = Duration::from_secs(1);
/// Packets cross the world and come back in 0.4 s: who has not answered by then is tried no longer while there are
/// others, so that a lost hub costs a connection less than a second.
const CONNECT: Duration = Duration::from_millis(500);
/// Three packets that are lost one after the other are no accident.
const ROUNDS: usize = 3;

#[derive(Debug, Clone)]
pub struct NodeProxyOptions {
    pub listen: SocketAddr,
    /// Tried by who has the fewest connections; those that cannot be reached come last.
    pub hubs: Vec<Place>,
    pub cluster_id: ClusterId,
    /// The file with the key for the proof that the cluster demands.
    pub proof: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeProxyError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("reading the key {path}")]
    Key { path: PathBuf, source: io::Error },
    #[error("the key {path} cannot be used")]
    BadKey { path: PathBuf, source: KeyError },
    #[error("starting the threads of the node proxy")]
    Threads(#[source] io::Error),
}

/// A node proxy that serves.
pub struct NodeProxy {
    pub address: SocketAddr,
    serving: Serving,
    hub: Arc<Hub>,
    stop: Sender<()>,
    follower: JoinHandle<()>,
}

impl NodeProxy {
    pub fn start(options: NodeProxyOptions, metrics: &Metrics) -> Result<Self, NodeProxyError> {
        let door = Door::bind(options.listen, DoorKind::Node)?;
        let address = door.address();
        let hub = Arc::new(Hub::new(options.cluster_id));
        let key = options.proof.map(KeyFile::open).transpose()?;
        if let Some(file) = &key {
            hub.set_key(file.key.clone());
        }
        let mut follower = Follower { hub: Arc::clone(&hub), places: options.hubs, key };
        // A node may start before its resolver: connections that come until then are refused, and the next look is soon.
        let found = follower.look_up();

        let timeouts = Timeouts { connect: CONNECT, ..Timeouts::default() };
        let settings = Settings { timeouts, rounds: ROUNDS, ..Settings::default() };
        let serving = gateway::serve_node(door, &hub, metrics, &settings).map_err(NodeProxyError::Threads)?;
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("hub-names".into());
        let follower = thread.spawn(move || follower.run(found, &stopped)).map_err(NodeProxyError::Threads)?;
        Ok(Self { address, serving, hub, stop, follower })
    }

    /// The addresses of the hub that are known now.
    pub fn hub_addresses(&self) -> Vec<SocketAddr> {
        self.hub.addresses()
    }

    /// Takes no more connections and gives those that are open this time to end.
    pub fn drain(self, within: Duration) {
        // Nobody listens any more only after a panic, which is told below.
        let _ = self.stop.send(());
        self.hub.tell_trouble();
        self.serving.drain(within);
        if self.follower.join().is_err() {
            tracing::error!("the thread that looks up the hub's names panicked");
        }
    }
}

/// Follows what can change around the proxy.
struct Follower {
    hub: Arc<Hub>,
    places: Vec<Place>,
    key: Option<KeyFile>,
}

impl Follower {
    fn run(mut self, mut found: bool, stop: &Receiver<()>) {
        // At least a moment between two looks, however many connections fail.
        while stop.recv_timeout(LOOK_SOON) == Err(RecvTimeoutError::Timeout) {
            self.hub.wait_for_trouble(if found { LOOK_AGAIN } else { Duration::ZERO });
            if stop.try_recv() != Err(TryRecvError::Empty) {
                return;
            }
            found = self.look_up();
            if let Some(key) = self.key.as_mut().and_then(KeyFile::changed) {
                tracing::info!("the key has changed");
                self.hub.set_key(key);
            }
        }
    }

    /// Whether any name gave an address. Those that gave none keep nothing, unless none did: then all stay as they were.
    fn look_up(&mut self) -> bool {
        let mut addresses = BTreeSet::new();
        for place in &self.places {
            match place.look_up() {
                Ok(found) => addresses.extend(found),
                Err(error) => tracing::warn!(hub = %place, %error, "the hub's name was not found"),
            }
        }
        let before: BTreeSet<SocketAddr> = self.hub.addresses().into_iter().collect();
        if addresses.is_empty() {
            return !before.is_empty();
        }
        if addresses != before {
            tracing::info!(addresses = ?addresses, "the hub is at");
            self.hub.set_addresses(addresses.into_iter().collect());
        }
        true
    }
}

/// A key and the file that it came from.
struct KeyFile {
    path: PathBuf,
    modified: Option<SystemTime>,
    key: ProofKey,
}

impl KeyFile {
    fn open(path: PathBuf) -> Result<Self, NodeProxyError> {
        let modified = modified(&path);
        let key = read_key(&path)?;
        Ok(Self { path, modified, key })
    }

    /// The new key, if there is one that can be used.
    fn changed(&mut self) -> Option<ProofKey> {
        let modified = modified(&self.path);
        if modified == self.modified {
            return None;
        }
        self.modified = modified;
        match read_key(&self.path) {
            Ok(key) if key != self.key => {
                self.key = key.clone();
                Some(key)
            }
            Ok(_) => None,
            Err(error) => {
                tracing::error!(%error, source = error_source(&error), "the last good key stays in use");
                None
            }
        }
    }
}

fn error_source(error: &NodeProxyError) -> Option<tracing::field::DisplayValue<&dyn std::error::Error>> {
    std::error::Error::source(error).map(tracing::field::display)
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

fn read_key(path: &Path) -> Result<ProofKey, NodeProxyError> {
    use std::io::Read as _;
    let failed = |source| NodeProxyError::Key { path: path.into(), source };
    let mut octets = Vec::new();
    // One more than a key may have, and its line end: what is longer is another file.
    let most = MAX_KEY as u64 + 2;
    std::fs::File::open(path).map_err(failed)?.take(most).read_to_end(&mut octets).map_err(failed)?;
    ProofKey::parse(&octets).map_err(|source| NodeProxyError::BadKey { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_changes_is_noticed_and_a_bad_one_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let write = |content: &str, second: u64| {
            std::fs::write(&path, content).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        };
        let text = "0123456789abcdef0123456789abcdef";
        write(text, 1);
        let mut file = KeyFile::open(path.clone()).unwrap();
        assert_eq!(file.changed(), None);
        write("short", 2);
        assert_eq!(file.changed(), None);
        let next = text.replace('0', "f");
        write(&next, 3);
        assert_eq!(file.changed(), Some(ProofKey::parse(next.as_bytes()).unwrap()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.changed(), None);
        assert!(matches!(KeyFile::open(path.clone()), Err(NodeProxyError::Key { .. })));
    }
}
