//! A DNS server in processes of its own, pinned to one core.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use model::DnsName;
use testbed::Process;

use crate::question;

/// The slowest of them reads a million names in some ten seconds.
const PATIENCE: Duration = Duration::from_mins(2);
/// Between two questions: the resolution of what is measured.
const PAUSE: Duration = Duration::from_micros(250);
/// A query that was lost is asked again after this.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// To end in good order; NSD has processes that it has to end.
const END: Duration = Duration::from_secs(10);

/// How the names of Fleetgate's threads begin that take updates in.
const CONTROL: [&str; 2] = ["control", "notify"];

/// Processor time, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu {
    pub all: f64,
    /// The part of the threads that take updates in.
    pub control: f64,
}

pub struct Server {
    pub name: String,
    pub address: SocketAddr,
    pub started: Instant,
    process: Process,
}

impl Server {
    /// Returns while it is still starting.
    pub fn start(name: impl Into<String>, address: SocketAddr, command: &Command) -> anyhow::Result<Self> {
        let started = Instant::now();
        Ok(Self { name: name.into(), address, started, process: Process::start(command)? })
    }

    /// Asks until the answer is this one.
    pub fn until_answered(&mut self, id: u16, name: &DnsName, addresses: &[std::net::Ipv4Addr]) -> anyhow::Result<()> {
        let query = question::for_addresses(id, name);
        self.until(&format!("{name} to be answered"), &query, |response| {
            question::is_answered_by(&query, response, addresses)
        })
    }

    /// Asks until there is an answer, whatever it is.
    pub fn until_awake(&mut self) -> anyhow::Result<()> {
        self.until("an answer", &question::for_addresses(0, &DnsName::root()), |_| true)
    }

    fn until(&mut self, what: &str, query: &[u8], done: impl Fn(&[u8]) -> bool) -> anyhow::Result<()> {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).context("opening a socket")?;
        socket.connect(self.address).context("connecting to a server")?;
        socket.set_read_timeout(Some(ASK_AGAIN)).context("setting a time-out")?;
        let mut response = [0; 1500];
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Fails while nobody listens there yet.
            let asked = socket.send(query).and_then(|_| socket.recv(&mut response));
            if asked.is_ok_and(|length| done(&response[..length])) {
                return Ok(());
            }
            self.process.check_running()?;
            let (name, log) = (&self.name, || self.process.log_tail());
            ensure!(Instant::now() < deadline, "waited {PATIENCE:?} for {what} by {name}:\n{}", log());
            std::thread::sleep(PAUSE);
        }
    }

    /// The processor time that the threads of all its processes have used.
    pub fn cpu(&self) -> anyhow::Result<Cpu> {
        let mut cpu = Cpu::default();
        for process in self.processes()? {
            for thread in fs::read_dir(format!("/proc/{process}/task"))? {
                let thread = thread?.path();
                // The same times as in `stat`, which counts in hundredths of a second: too coarse.
                let read = |file| fs::read_to_string(thread.join(file));
                let (Ok(times), Ok(name)) = (read("schedstat"), read("comm")) else { continue };
                let spent = times.split(' ').next().and_then(|field| field.parse::<f64>().ok());
                let seconds = spent.context("reading its times")? / 1e9;
                cpu.all += seconds;
                if CONTROL.iter().any(|control| name.starts_with(control)) {
                    cpu.control += seconds;
                }
            }
        }
        Ok(cpu)
    }

    /// Of its first process: a line of `/proc/PID/status` that counts memory, in megabytes of 10^6 octets.
    pub fn memory(&self, line: &str) -> anyhow::Result<f64> {
        crate::server::memory_of(self.process.id(), line)
    }

    /// It, its children and theirs.
    fn processes(&self) -> anyhow::Result<Vec<u32>> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for entry in fs::read_dir("/proc").context("reading /proc")?.flatten() {
            let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // Gone meanwhile, perhaps.
            let Some(parent) = parent_of(process) else { continue };
            children.entry(parent).or_default().push(process);
        }
        let mut found = vec![self.process.id()];
        let mut next = 0;
        while let Some(process) = found.get(next) {
            found.extend(children.get(process).into_iter().flatten().copied().collect::<Vec<_>>());
            next += 1;
        }
        Ok(found)
    }
}

/// Told to end before it is killed: a killed one would leave children behind.
impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which is not for here to tell.
        if self.process.signal("TERM").is_ok() {
            let _ = self.process.wait_for_exit(END);
        }
    }
}

/// `NUMBER (NAME) STATE PARENT ...`, where the name may hold anything.
fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
