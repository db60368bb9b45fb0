//! Hosts with networks of their own, for what needs real addresses and ports: they reach each other and nothing else.

use crate::installed::{self, or_skip};
use crate::process::{Process, ProcessError, run_by, tied_to_parent};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, thread};

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
/// Nothing but its processes keeps it, so it is gone with them and with this, however the test ends. Clones are the same
/// host.
#[derive(Clone)]
pub struct Host {
    keeper: Arc<Process>,
    /// Whether it sees other files than the rest of the machine: a resolv.conf of its own.
    own_files: bool,
}

/// Why this machine has no such hosts.
#[derive(Debug, thiserror::Error)]
pub enum NoHost {
    #[error(
        "cannot make a network of the test's own, which takes unshare and ip (run `make test` or `testbed/install`) and \
         a kernel that permits it: {0}"
    )]
    Keeper(ProcessError),
    #[error("cannot run {program} (run `make test` or `testbed/install`): {source}")]
    Program { program: &'static str, source: io::Error },
    #[error("`{program}` could not do all of\n{wanted}\n{complaint}")]
    Refused { program: &'static str, wanted: String, complaint: String },
    #[error("the cable was not up within {READY_WITHIN:?}: {0}")]
    Down(String),
    #[error("cannot write a resolv.conf of the test's own: {0}")]
    ResolvConf(io::Error),
}

impl Host {
    fn pair(addresses: [&[&str]; 2]) -> Result<[Self; 2], NoHost> {
        let first = Self::alone(None)?;
        let second = first.another(None)?;
        first.join(["cable", "cable"], &second, addresses)?;
        Ok([first, second])
    }

    /// One that no cable leads to. With a resolv.conf it has that file in place of the machine's.
    pub(crate) fn alone(resolv_conf: Option<&Path>) -> Result<Self, NoHost> {
        Self::kept_by(&["--map-root-user", "--net"], resolv_conf, Process::start)
    }

    /// By the same user of the same user namespace, or one could not put a cable into the other.
    pub(crate) fn another(&self, resolv_conf: Option<&Path>) -> Result<Self, NoHost> {
        Self::kept_by(&["--net"], resolv_conf, |command| self.start(command))
    }

    fn kept_by(
        unshare: &[&str],
        resolv_conf: Option<&Path>,
        start: impl FnOnce(&Command) -> Result<Process, ProcessError>,
    ) -> Result<Self, NoHost> {
        let mut runner = Command::new("unshare");
        runner.args(unshare);
        let mut script = format!("ip link set lo up && echo {READY} && exec sleep infinity");
        if resolv_conf.is_some() {
            runner.arg("--mount");
            script = format!("mount --bind \"$1\" /etc/resolv.conf && {script}");
        }
        let mut keeper = Command::new("sh");
        keeper.args(["-c", &script, "sh"]).args(resolv_conf);
        let keeper = start(&run_by(&runner, &keeper)).and_then(|mut keeper| {
            keeper.wait_for_line(READY, READY_WITHIN)?;
            Ok(keeper)
        });
        Ok(Self { keeper: Arc::new(keeper.map_err(NoHost::Keeper)?), own_files: resolv_conf.is_some() })
    }

    /// A cable, by what it is called here and there, with the addresses here and there. Returns once it carries.
    pub(crate) fn join(&self, cables: [&str; 2], other: &Self, addresses: [&[&str]; 2]) -> Result<(), NoHost> {
        let [here, there] = cables;
        self.ip(&format!("link add {here} type veth peer name {there} netns {}", other.keeper.id()))?;
        let ends = [(self, here), (other, there)];
        for ((host, cable), addresses) in ends.iter().zip(addresses) {
            let add = addresses.iter().map(|address| {
                // Nobody else can have it, and looking for somebody would keep it out of use for a second.
                let check = if address.contains(':') { "nodad" } else { "" };
                format!("address add {address} dev {cable} {check}\n")
            });
            let wanted: String = std::iter::once(format!("link set {cable} up\n")).chain(add).collect();
            host.ip(&wanted)?;
        }
        ends.iter().try_for_each(|(host, cable)| host.wait_for_cable(cable))
    }

    /// As [`Process::start`], on this host.
    pub fn start(&self, command: &Command) -> Result<Process, ProcessError> {
        Process::start_as(command.get_program(), &self.entered_by(command))
    }

    /// As [`Command::output`], on this host.
    pub fn output(&self, command: &Command) -> io::Result<Output> {
        tied_to_parent(&self.entered_by(command)).output()
    }

    pub(crate) fn entered_by(&self, command: &Command) -> Command {
        let id = self.keeper.id().to_string();
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--target", &id, "--user", "--preserve-credentials", "--net"]);
        if self.own_files {
            nsenter.arg("--mount");
            // Among other files one is at their root, unless one says where.
            let folder = command.get_current_dir().map(Path::to_owned).or_else(|| env::current_dir().ok());
            let mut option = OsString::from("--wdns=");
            option.push(folder.unwrap_or_else(|| "/".into()));
            nsenter.arg(option);
        }
        run_by(nsenter.arg("--"), command)
    }

    /// Addresses, routes and cables: one line for each thing to do, without the word `ip`.
    pub fn ip(&self, wanted: &str) -> Result<(), NoHost> {
        self.tell("ip", &["-batch", "-"], wanted)
    }

    /// Where packets are led, in the language of nftables.
    pub fn nft(&self, wanted: &str) -> Result<(), NoHost> {
        self.tell("nft", &["--file", "-"], wanted)
    }

    fn tell(&self, program: &'static str, arguments: &[&str], wanted: &str) -> Result<(), NoHost> {
        let path = installed::on_path(program).unwrap_or_else(|| program.into());
        let run = || {
            let mut told = tied_to_parent(&self.entered_by(Command::new(path).args(arguments)));
            let mut told = told.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            // Dropped at the end of the line, so that it sees the end of it.
            told.stdin.take().expect("it was piped").write_all(wanted.as_bytes())?;
            told.wait_with_output()
        };
        let output = run().map_err(|source| NoHost::Program { program, source })?;
        if output.status.success() {
            return Ok(());
        }
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(NoHost::Refused { program, wanted: wanted.to_owned(), complaint })
    }

    /// The kernel takes a moment after both ends are up, and drops what is sent before.
    pub(crate) fn wait_for_cable(&self, cable: &str) -> Result<(), NoHost> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let output = self
                .output(Command::new("ip").args(["link", "show", "dev", cable]))
                .map_err(|source| NoHost::Program { program: "ip", source })?;
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
