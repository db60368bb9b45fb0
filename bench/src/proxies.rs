//! The proxies that are measured, each with the same clusters and pinned to one core.

pub mod envoy;
pub mod fleetgate;
pub mod haproxy;

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use testbed::Process;

use crate::fleet::Member;

const PATIENCE: Duration = Duration::from_mins(1);

/// A proxy that is running.
pub struct Proxy {
    pub name: &'static str,
    pub door: SocketAddr,
    process: Process,
}

/// The clusters that a proxy is told about: as many as there are to be, from the first on, and their control planes,
/// which they share in turn.
#[derive(Debug, Clone, Copy)]
pub struct Clusters<'a> {
    pub count: u32,
    pub backends: &'a [SocketAddr],
}

impl Clusters<'_> {
    fn members(self) -> impl Iterator<Item = (Member, SocketAddr)> {
        (0..self.count).map(move |number| (Member(number), self.backend_of(Member(number))))
    }

    pub fn last(self) -> Member {
        Member(self.count - 1)
    }

    fn backend_of(self, member: Member) -> SocketAddr {
        self.backends[member.0 as usize % self.backends.len()]
    }
}

impl Proxy {
    pub(crate) fn start(name: &'static str, door: SocketAddr, command: &Command) -> anyhow::Result<Self> {
        let mut proxy = Self { name, door, process: Process::start(command)? };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(door).is_err() {
            proxy.process.check_running()?;
            ensure!(Instant::now() < deadline, "{name} does not listen:\n{}", proxy.process.log_tail());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(proxy)
    }

    pub fn is_running(&mut self) -> bool {
        self.process.check_running().is_ok()
    }

    /// The processor time that its threads have used, in seconds.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let mut nanoseconds = 0.0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            // The same times as in `stat`, which counts in hundredths of a second: too coarse for some.
            let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            let spent = text.split(' ').next().and_then(|field| field.parse::<f64>().ok());
            nanoseconds += spent.context("reading its times")?;
        }
        Ok(nanoseconds / 1e9)
    }

    /// The memory that is its own, in bytes.
    pub fn own_memory(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("its status has no RssAnon")?;
        let kibibytes: u32 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(f64::from(kibibytes) * 1024.0)
    }
}

pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
