//! Hosts with networks of their own, for what needs real addresses and ports: they reach each other and nothing else.

use crate::installed::or_skip;
use crate::process::{Process, ProcessError, run_by, tied_to_parent};
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// All of it takes some 30 milliseconds; the rest is for a machine that is busy compiling.
const READY_WITHIN: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(10);

/// What the keeper of a host says once there is one.
const READY: &str = "the host is there";

/// Two hosts with a cable between them. Each has the given addresses, written with the length of the prefix that it
/// finds at the other end: `192.0.2.1/24`.
///
/// `None` means that the test should return. It then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn hosts(addresses: [&[&str]; 2]) -> Option<[Host; 2]> {
    or_skip(Host::pair(addresses))
}

/// A network namespace, with a loopback of its own; otherwise the same machine. No privilege is needed where the kernel
/// gives namespaces to everybody.
///
/// Nothing but its processes keeps it, so it is gone with them and with this, however the test ends.
pub struct Host {
    keeper: Process,
}

/// Why this machine has no such hosts.
#[derive(Debug, thiserror::Error)]
pub enum NoHost {
    #[error(
        "cannot make a network of the test's own, which takes unshare and ip (run `make test` or `testbed/install`) and \
         a kernel that permits it: {0}"
    )]
    Keeper(ProcessError),
    #[error("cannot run ip (run `make test` or `testbed/install`): {0}")]
    Ip(io::Error),
    #[error("`ip` could not do all of\n{wanted}\n{complaint}")]
    Refused { wanted: String, complaint: String },
    #[error("the cable was not up within {READY_WITHIN:?}: {0}")]
    Down(String),
}

impl Host {
    fn pair(addresses: [&[&str]; 2]) -> Result<[Self; 2], NoHost> {
        let mut unshare = Command::new("unshare");
        let first =
            Self::kept_by(|keeper| Process::start(&run_by(unshare.args(["--map-root-user", "--net"]), keeper)))?;
        // By the same user of the same user namespace, or the first could not put a cable into the second.
        let mut unshare = Command::new("unshare");
        let second = Self::kept_by(|keeper| first.start(&run_by(unshare.arg("--net"), keeper)))?;
        first.ip(&format!("link add cable type veth peer name cable netns {}", second.keeper.id()))?;
        let hosts = [first, second];
        for (host, addresses) in hosts.iter().zip(addresses) {
            let add = addresses.iter().map(|address| {
                // Nobody else can have it, and looking for somebody would keep it out of use for a second.
                let check = if address.contains(':') { "nodad" } else { "" };
                format!("address add {address} dev cable {check}\n")
            });
            let wanted: String = std::iter::once("link set cable up\n".to_owned()).chain(add).collect();
            host.ip(&wanted)?;
        }
        for host in &hosts {
            host.wait_for_cable()?;
        }
        Ok(hosts)
    }

    fn kept_by(start: impl FnOnce(&Command) -> Result<Process, ProcessError>) -> Result<Self, NoHost> {
        let script = format!("ip link set lo up && echo {READY} && exec sleep infinity");
        let keeper = start(Command::new("sh").args(["-c", &script])).and_then(|mut keeper| {
            keeper.wait_for_line(READY, READY_WITHIN)?;
            Ok(keeper)
        });
        Ok(Self { keeper: keeper.map_err(NoHost::Keeper)? })
    }

    /// As [`Process::start`], on this host.
    pub fn start(&self, command: &Command) -> Result<Process, ProcessError> {
        Process::start_as(command.get_program(), &self.entered_by(command))
    }

    /// As [`Command::output`], on this host.
    pub fn output(&self, command: &Command) -> io::Result<Output> {
        tied_to_parent(&self.entered_by(command)).output()
    }

    fn entered_by(&self, command: &Command) -> Command {
        let id = self.keeper.id().to_string();
        let mut nsenter = Command::new("nsenter");
        run_by(nsenter.args(["--target", &id, "--user", "--preserve-credentials", "--net", "--"]), command)
    }

    /// One line for each thing to do, without the word `ip`.
    fn ip(&self, wanted: &str) -> Result<(), NoHost> {
        let run = || {
            let mut ip = tied_to_parent(&self.entered_by(Command::new("ip").args(["-batch", "-"])));
            let mut ip = ip.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            // Dropped at the end of the line, so that ip sees the end of it.
            ip.stdin.take().expect("it was piped").write_all(wanted.as_bytes())?;
            ip.wait_with_output()
        };
        let output = run().map_err(NoHost::Ip)?;
        if output.status.success() {
            return Ok(());
        }
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(NoHost::Refused { wanted: wanted.to_owned(), complaint })
    }

    /// The kernel takes a moment after both ends are up, and drops what is sent before.
    fn wait_for_cable(&self) -> Result<(), NoHost> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let output = self.output(Command::new("ip").args(["link", "show", "dev", "cable"])).map_err(NoHost::Ip)?;
            let answer = String::from_utf8_lossy(&output.stdout);
            if answer.contains("state UP") {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(NoHost::Down(answer.into_owned()));
            }
            thread::sleep(POLL);
        }
    }
}
