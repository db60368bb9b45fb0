//! Peers that connect and then say nothing, or one octet a second, again and again; in processes of their own, because
//! one process has not enough descriptors for a crowd.

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use testbed::Process;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use crate::server::PATIENCE;
use crate::slow_peers::openings;

/// The peers of one process. Each of them is at both doors.
pub(crate) struct Peers {
    pub(crate) from: IpAddr,
    pub(crate) count: u32,
    /// By cluster id, and by server name.
    pub(crate) doors: [SocketAddr; 2],
}

/// How a process learns that it is one of peers, and of which: `FROM COUNT DOOR DOOR`.
const VARIABLE: &str = "FLEETGATE_TEST_PEERS";
const ALL_THERE: &str = "all peers are there";
/// Between one's coming and the next one's, so that their number is what is tried and not how fast a machine takes
/// connections.
const ARRIVAL: Duration = Duration::from_millis(3);
/// How long those who do say something take for an octet of it.
const OCTET: Duration = Duration::from_secs(1);
/// How long those who were cut off stay away, at least; who came late stays longer, lest they become one mass. The doors
/// stay full all the same.
const ABSENCE: Duration = Duration::from_secs(6);

impl Peers {
    /// Returns while they are still coming.
    pub(crate) fn start(&self) -> Process {
        let Self { from, count, doors: [by_id, by_name] } = self;
        let this_program = env::current_exe().unwrap();
        let mut command = with_descriptors(2 * count + 100, &this_program.to_string_lossy());
        command
            .args(["--exact", "peers::process_of_peers", "--ignored", "--nocapture"])
            .env(VARIABLE, format!("{from} {count} {by_id} {by_name}"));
        Process::start(&command).unwrap()
    }

    /// Returns when each of them has come once.
    pub(crate) fn wait_for_all(process: &mut Process) {
        process.wait_for_line(ALL_THERE, PATIENCE).unwrap();
    }

    fn from_environment() -> Option<Self> {
        let text = env::var(VARIABLE).ok()?;
        let words: Vec<&str> = text.split(' ').collect();
        let [from, count, by_id, by_name] = words[..] else { panic!("{text}") };
        let doors = [by_id, by_name].map(|door| door.parse().unwrap());
        Some(Self { from: from.parse().unwrap(), count: count.parse().unwrap(), doors })
    }

    async fn come(&self) {
        let (there, mut arrivals) = unbounded_channel();
        for number in 0..self.count {
            let lateness = ARRIVAL * number;
            for (door, opening) in self.doors.into_iter().zip(openings()) {
                let said = if number % 2 == 0 { Vec::new() } else { opening };
                let peer = Peer { from: self.from, door, said, lateness };
                tokio::spawn(peer.keep_coming(there.clone()));
            }
        }
        for _ in 0..2 * self.count {
            arrivals.recv().await;
        }
    }
}

#[test]
#[ignore = "is no test but a process of peers; tests that need some start it"]
fn process_of_peers() {
    let Some(peers) = Peers::from_environment() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        peers.come().await;
        println!("{ALL_THERE}");
        // Whoever started us ends us, much earlier than this.
        sleep(3 * PATIENCE).await;
    });
}

struct Peer {
    from: IpAddr,
    door: SocketAddr,
    /// Octet by octet; nothing by those who are silent.
    said: Vec<u8>,
    lateness: Duration,
}

impl Peer {
    async fn keep_coming(self, there: UnboundedSender<()>) {
        sleep(self.lateness).await;
        loop {
            if let Ok(stream) = self.connect().await {
                let _ = there.send(());
                // It has no other end than that we are cut off.
                let _ = self.dawdle(stream).await;
            }
            sleep(ABSENCE + self.lateness).await;
        }
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.from, 0).into())?;
        socket.connect(self.door).await
    }

    async fn dawdle(&self, mut stream: TcpStream) -> std::io::Result<u8> {
        for octet in &self.said {
            stream.write_all(&[*octet]).await?;
            if let Ok(ended) = timeout(OCTET, stream.read_u8()).await {
                return ended;
            }
        }
        stream.read_u8().await
    }
}

/// A program that may have this many descriptors, also on machines where it would not have them unasked.
pub(crate) fn with_descriptors(count: u32, program: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n \"$0\" && exec \"$@\"", &count.to_string(), program]);
    command
}
