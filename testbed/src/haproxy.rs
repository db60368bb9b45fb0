//! A real HAProxy with a configuration of the test's own: the peer at either end of a door, and the one to be
//! measured against.

use crate::host::Host;
use crate::installed::{self, or_skip, path_variable};
use crate::process::{Process, tied_to_parent};
use crate::start::{PORT_ATTEMPTS, StartError, cannot, free_port};
use crate::work_dir::WorkDir;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{array, fs, thread};

/// The first with `set-proxy-v2-tlv-fmt` and `fc_pp_tlv`. `testbed/install` asks for the same.
const NEEDED: (u32, u32) = (2, 9);

/// Must agree with `testbed/install`, which fills it.
const IN_CACHE: &str = "haproxy-trixie/bin/haproxy";

/// It takes some 20 milliseconds; the rest is for a machine that is busy compiling.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// It answers such questions at once, or is not the one to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(10);

/// HAProxy for a test that cannot do without it: `None` means that the test should return.
///
/// The test then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn haproxy() -> Option<HAProxy> {
    or_skip(HAProxy::find())
}

/// The program, 2.9 or newer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HAProxy {
    program: PathBuf,
}

/// This machine lacks the program.
#[derive(Debug, thiserror::Error)]
#[error(
    "none of these is HAProxy {}.{} or newer: {looked_at:?}. Run `make test` or `testbed/install`, \
     or set HAPROXY to the path of one.",
    NEEDED.0, NEEDED.1
)]
pub struct MissingHAProxy {
    looked_at: Vec<PathBuf>,
}

impl HAProxy {
    /// What the user chose wins over what the machine has, and that over what we installed.
    pub fn find() -> Result<Self, MissingHAProxy> {
        let chosen = path_variable("HAPROXY");
        let on_path = installed::on_path("haproxy");
        let installed = installed::cache().map(|cache| cache.join(IN_CACHE));
        Self::find_among([chosen, on_path, installed].into_iter().flatten().collect())
    }

    fn find_among(programs: Vec<PathBuf>) -> Result<Self, MissingHAProxy> {
        match programs.iter().find(|program| version(program).is_some_and(|version| version >= NEEDED)) {
            Some(program) => Ok(Self { program: program.clone() }),
            None => Err(MissingHAProxy { looked_at: programs }),
        }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Starts it and returns once it listens. `configuration` is made from the free loopback addresses, as many as it
    /// asks for, that it is to `bind`; it is made anew should one of them be taken meanwhile.
    ///
    /// ```no_run
    /// let Some(haproxy) = testbed::haproxy() else { return };
    /// let running = haproxy.start(|[front]| format!("listen all\n mode tcp\n bind {front}\n")).unwrap();
    /// let [front] = running.addresses();
    /// ```
    pub fn start<const N: usize>(
        &self,
        configuration: impl Fn([SocketAddr; N]) -> String,
    ) -> Result<RunningHAProxy<N>, StartError> {
        self.start_on(configuration, free_port)
    }

    /// The same on a host of the test's own, where every port is free.
    pub fn start_on_host(&self, host: &Host, configuration: &str) -> Result<RunningHAProxy<0>, StartError> {
        let work_dir = WorkDir::create().map_err(cannot("make a temporary folder"))?;
        let socket = work_dir.path().join("socket");
        let mut process = host.start(&self.command(work_dir.path(), &socket, configuration)?)?;
        wait_until_ready(&mut process, &socket)?;
        Ok(RunningHAProxy { process, addresses: [], socket, _work_dir: work_dir })
    }

    fn start_on<const N: usize>(
        &self,
        configuration: impl Fn([SocketAddr; N]) -> String,
        mut choose_port: impl FnMut() -> io::Result<u16>,
    ) -> Result<RunningHAProxy<N>, StartError> {
        let work_dir = WorkDir::create().map_err(cannot("make a temporary folder"))?;
        for _ in 0..PORT_ATTEMPTS {
            let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
            for address in &mut addresses {
                address.set_port(choose_port().map_err(cannot("find a free port"))?);
            }
            let socket = work_dir.path().join("socket");
            let mut process = Process::start(&self.command(work_dir.path(), &socket, &configuration(addresses))?)?;
            match wait_until_ready(&mut process, &socket) {
                Ok(()) => return Ok(RunningHAProxy { process, addresses, socket, _work_dir: work_dir }),
                Err(error) if error.is_taken_port() => {}
                Err(error) => return Err(error),
            }
        }
        Err(StartError::PortsTaken)
    }

    fn command(&self, folder: &Path, socket: &Path, configuration: &str) -> Result<Command, StartError> {
        let ours = folder.join("testbed.cfg");
        let theirs = folder.join("haproxy.cfg");
        let text = format!("global\n    stats socket {} mode 600 level admin\n", socket.display());
        fs::write(&ours, text)
            .and_then(|()| fs::write(&theirs, configuration))
            .map_err(cannot("write a configuration"))?;
        let mut command = Command::new(&self.program);
        // In the foreground, or it would not be ours to end.
        command.arg("-db").arg("-f").arg(ours).arg("-f").arg(theirs);
        Ok(command)
    }
}

/// Dropping it ends it.
pub struct RunningHAProxy<const N: usize> {
    process: Process,
    addresses: [SocketAddr; N],
    socket: PathBuf,
    _work_dir: WorkDir,
}

impl<const N: usize> RunningHAProxy<N> {
    /// Those that its configuration was made from, in that order.
    pub fn addresses(&self) -> [SocketAddr; N] {
        self.addresses
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The answer to a command of HAProxy's Runtime API, such as `show stat`.
    pub fn ask(&self, command: &str) -> io::Result<String> {
        ask(&self.socket, command)
    }
}

/// It answers on its socket only after it has bound everything else. A connection to one of its addresses would say
/// less: another program may have taken that one.
fn wait_until_ready(process: &mut Process, socket: &Path) -> Result<(), StartError> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        process.check_running()?;
        let answer = match ask(socket, "show info") {
            Ok(answer) if answer.contains("Uptime") => return Ok(()),
            Ok(answer) => answer,
            Err(error) => error.to_string(),
        };
        if Instant::now() >= deadline {
            let (name, within) = ("haproxy", READY_WITHIN);
            return Err(StartError::NotReady { name, within, answer, log: process.log_tail() });
        }
        thread::sleep(POLL);
    }
}

fn ask(socket: &Path, command: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    writeln!(stream, "{command}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// `None` for what is not there or not HAProxy.
fn version(program: &Path) -> Option<(u32, u32)> {
    let output = tied_to_parent(Command::new(program).arg("-v")).output().ok()?;
    version_in(&String::from_utf8_lossy(&output.stdout))
}

/// Major and minor.
fn version_in(output: &str) -> Option<(u32, u32)> {
    let mut numbers = output.strip_prefix("HAProxy version ")?.split(|letter: char| !letter.is_ascii_digit());
    let [major, minor] = array::from_fn(|_| numbers.next().and_then(|number| number.parse().ok()));
    Some((major?, minor?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn versions_are_read_and_compared_as_numbers() {
        for (output, expected, is_enough) in [
            ("HAProxy version 2.8.16 2026/01/01 - https://haproxy.org/", Some((2, 8)), false),
            ("HAProxy version 2.9.0-1 2023/12/05 - https://haproxy.org/", Some((2, 9)), true),
            ("HAProxy version 3.0.11-1+deb13u3 2026/05/20 - https://haproxy.org/", Some((3, 0)), true),
            ("HAProxy version 2.10-dev1 2026/01/01 - https://haproxy.org/", Some((2, 10)), true),
            ("HA-Proxy version 1.8.8 2018/04/19", None, false),
            ("", None, false),
        ] {
            let version = version_in(output);
            assert_eq!(version, expected, "{output}");
            assert_eq!(version.is_some_and(|version| version >= NEEDED), is_enough, "{output}");
        }
    }

    #[test]
    fn what_is_missing_says_where_it_looked_and_what_to_run() {
        let message = HAProxy::find_among(vec!["/nowhere".into()]).unwrap_err().to_string();
        assert!(message.contains("/nowhere") && message.contains("2.9") && message.contains("testbed/install"));
    }

    #[test]
    fn a_port_that_is_taken_meanwhile_is_given_up_for_another() {
        let Some(haproxy) = crate::haproxy() else { return };
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        let mut asked = 0;
        let choose = || {
            asked += 1;
            if asked == 1 { Ok(taken_port) } else { free_port() }
        };
        let configuration =
            |[front]: [SocketAddr; 1]| format!("listen all\n mode tcp\n timeout client 1m\n bind {front}\n");
        let running = haproxy.start_on(configuration, choose).unwrap();
        assert_ne!(running.addresses()[0].port(), taken_port);
        assert_eq!(asked, 2);
    }
}
