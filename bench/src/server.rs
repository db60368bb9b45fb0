//! A real `fleetgate serve` in a process of its own, asked from outside.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, ensure};
use gateway::proxy_header::{Encoder, TLV_CLUSTER_ID};
use model::DnsName;
use testbed::Process;

use crate::question;

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two questions: the resolution of what is measured. Short beside the bars, long beside an answer.
const PAUSE: Duration = Duration::from_micros(250);
/// A query that came before anybody served waits in the socket; one that was lost is asked again after this.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// One port in a few is taken by what ran before; this many in a row are not.
const PORT_TRIES: usize = 16;
/// What the log says when every door is open.
const READY: &str = "\"ready\"";

pub struct Server {
    process: Process,
    pub dns: SocketAddr,
    pub started: Instant,
}

impl Server {
    /// Returns while it is still starting.
    pub fn start(program: &Path, fleet: &Path, data: &Path) -> anyhow::Result<Self> {
        Self::start_with(program, fleet, data, &[])
    }

    /// With more arguments.
    pub fn start_with(program: &Path, fleet: &Path, data: &Path, more: &[&str]) -> anyhow::Result<Self> {
        let dns = free_address().context("finding a free port")?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--fleet").arg(fleet).arg("--data").arg(data).args(["--dns", &dns.to_string()]);
        for door in ["--apiserver", "--sni", "--admin"] {
            command.args([door, "127.0.0.1:0"]);
        }
        command.args(["--log-format", "json"]).args(more);
        let started = Instant::now();
        Ok(Self { process: Process::start(&command)?, dns, started })
    }

    /// The door by cluster id, once it is open.
    pub fn apiserver_door(&mut self) -> anyhow::Result<SocketAddr> {
        let [door] = self.doors(["apiserver"])?;
        Ok(door)
    }

    /// Where some doors are, once all are open; to be asked once.
    pub fn doors<const N: usize>(&mut self, names: [&str; N]) -> anyhow::Result<[SocketAddr; N]> {
        let line = self.process.wait_for_line(READY, PATIENCE)?;
        let line: serde_json::Value = serde_json::from_str(&line).context("reading the log line of a server")?;
        let fields = line.get("fields").unwrap_or(&line);
        let mut doors = [self.dns; N];
        for (door, name) in doors.iter_mut().zip(names) {
            let found = fields.get(name).and_then(serde_json::Value::as_str);
            let found = found.with_context(|| format!("the log names no door {name}"))?;
            *door = found.parse().with_context(|| format!("reading the address of {name}"))?;
        }
        Ok(doors)
    }

    /// A line of `/proc/PID/status` that counts memory, in megabytes of 10^6 octets.
    pub fn memory(&self, line: &str) -> anyhow::Result<f64> {
        memory_of(self.process.id(), line)
    }

    /// Ends it in good order, once it is ready: before that it does not listen for signals yet and would be killed.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.process.wait_for_line(READY, PATIENCE)?;
        self.process.signal("TERM")?;
        let status = self.process.wait_for_exit(PATIENCE)?;
        ensure!(status.success(), "fleetgate ended with {status}");
        Ok(())
    }

    /// Asks until the answer is this one.
    pub fn until_answered(&mut self, id: u16, name: &DnsName, addresses: &[Ipv4Addr]) -> anyhow::Result<()> {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).context("opening a socket")?;
        socket.connect(self.dns).context("connecting to DNS")?;
        socket.set_read_timeout(Some(ASK_AGAIN)).context("setting a time-out")?;
        let query = question::for_addresses(id, name);
        let mut response = [0; 1500];
        self.until(&format!("{name} to be answered"), || {
            // Fails while nobody listens there yet.
            let asked = socket.send(&query).and_then(|_| socket.recv(&mut response));
            asked.is_ok_and(|length| question::is_answered_by(&query, &response[..length], addresses))
        })
    }

    /// Knocks until the door leads to the cluster.
    pub fn until_connected(&mut self, door: SocketAddr, id: &str) -> anyhow::Result<()> {
        self.until(&format!("the door to lead to {id}"), || {
            Connection::open(door, id).and_then(|mut connection| connection.echoes(b"hello")).unwrap_or(false)
        })
    }

    fn until(&mut self, what: &str, mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            self.process.check_running()?;
            ensure!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}:\n{}", self.process.log_tail());
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// A connection to a control plane.
pub struct Connection(TcpStream);

impl Connection {
    pub fn open(door: SocketAddr, id: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(door)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let client = stream.local_addr()?;
        let header = Encoder::proxy(client, door).tlv(TLV_CLUSTER_ID, id.as_bytes()).finish();
        let mut connection = Self(stream);
        connection.0.write_all(&header.map_err(io::Error::other)?)?;
        Ok(connection)
    }

    pub fn echoes(&mut self, words: &[u8]) -> io::Result<bool> {
        self.0.write_all(words)?;
        let mut heard = vec![0; words.len()];
        self.0.read_exact(&mut heard)?;
        Ok(heard == words)
    }
}

/// Free for UDP and TCP a moment ago. The server's own choice would be known from its log only once it is ready, and
/// that is what is measured.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    let find = || {
        let udp = UdpSocket::bind(("127.0.0.1", 0))?;
        let address = udp.local_addr()?;
        TcpListener::bind(address).map(|_| address)
    };
    // The kernel picks by UDP alone; a connection that ended lately may still hold the same port for TCP.
    (0..PORT_TRIES).map(|_| find()).find(Result::is_ok).unwrap_or_else(find)
}

/// A line of `/proc/PID/status` that counts memory, in megabytes of 10^6 octets.
pub(crate) fn memory_of(process: u32, line: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).context("reading its status")?;
    let value = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kibibytes: u32 = value
        .and_then(|value| value.trim().strip_suffix(" kB")?.parse().ok())
        .with_context(|| format!("its status has no {line}"))?;
    Ok(f64::from(kibibytes) * 1024.0 / 1e6)
}
