//! A program that runs beside a test and ends with it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

/// Short enough that no test is noticeably slower, long enough to leave the CPU to the program.
const POLL: Duration = Duration::from_millis(20);

/// Enough to hold a Go panic's first goroutine, which is the one that matters.
const LOG_TAIL_LINES: usize = 40;

/// A running program. What it writes, to either output, is its log.
///
/// It is killed when this is dropped, and by the kernel should this whole process be killed. If a
/// test panics, the end of the log is printed along with the test's own output.
pub struct Process {
    name: String,
    child: Child,
    log: File,
}

/// Its `Debug` is its `Display`: tests unwrap, and an escaped log is unreadable.
#[derive(thiserror::Error)]
pub enum ProcessError {
    #[error("this machine cannot start {name}: {source}")]
    NotStarted { name: String, source: io::Error },
    #[error("{name} ended by itself ({status}). The end of its log:\n{log}")]
    Ended { name: String, status: ExitStatus, log: String },
    #[error("{name} wrote no line with {wanted:?} within {within:?}. The end of its log:\n{log}")]
    Silent { name: String, wanted: String, within: Duration, log: String },
    #[error("{name} was still running after {within:?}. The end of its log:\n{log}")]
    StillRunning { name: String, within: Duration, log: String },
    #[error("this machine cannot {doing} {name}: {source}")]
    Machine { name: String, doing: &'static str, source: io::Error },
}

impl fmt::Debug for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Process {
    /// Starts the program with the arguments, variables and folder of `command`. Its standard input
    /// is empty; `stdin`, `stdout`, `stderr` and `env_clear` of `command` are not carried over.
    pub fn start(command: &Command) -> Result<Self, ProcessError> {
        Self::start_as(command.get_program(), command)
    }

    /// `program` is what errors name; the command may begin with others that become it.
    pub(crate) fn start_as(program: &OsStr, command: &Command) -> Result<Self, ProcessError> {
        let name = program.to_string_lossy().rsplit('/').next().unwrap_or_default().to_owned();
        let start = || {
            // Without a name in the file system nothing is left behind if we are killed.
            let log = tempfile::tempfile()?;
            let mut tied = tied_to_parent(command);
            // Clones share one offset, so the two outputs do not overwrite each other.
            tied.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
            Ok((spawn_from_lasting_thread(tied)?, log))
        };
        match start() {
            Ok((child, log)) => Ok(Self { name, child, log }),
            Err(source) => Err(ProcessError::NotStarted { name, source }),
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has written so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&read_from(&self.log, 0)).into_owned()
    }

    /// The last lines of [`Process::log`], for an error message.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Waits until it has written a whole line that contains `wanted`, and returns the first such
    /// line. Lines written before the call count.
    pub fn wait_for_line(&mut self, wanted: &str, within: Duration) -> Result<String, ProcessError> {
        let deadline = Instant::now() + within;
        let mut unread = Vec::new();
        let mut offset = 0;
        loop {
            // Asked before reading: what a program wrote just before it ended still counts.
            let ended = self.exit_status()?;
            let new = read_from(&self.log, offset);
            offset += new.len() as u64;
            unread.extend(new);
            while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = unread.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                if line.contains(wanted) {
                    return Ok(line.trim_end().to_owned());
                }
            }
            if let Some(status) = ended {
                return Err(self.ended(status));
            }
            if Instant::now() >= deadline {
                let (name, log) = (self.name.clone(), self.log_tail());
                return Err(ProcessError::Silent { name, wanted: wanted.to_owned(), within, log });
            }
            thread::sleep(POLL);
        }
    }

    /// Fails if it has ended.
    pub fn check_running(&mut self) -> Result<(), ProcessError> {
        match self.exit_status()? {
            None => Ok(()),
            Some(status) => Err(self.ended(status)),
        }
    }

    /// Waits until it ends by itself.
    pub fn wait_for_exit(&mut self, within: Duration) -> Result<ExitStatus, ProcessError> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.exit_status()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(ProcessError::StillRunning { name: self.name.clone(), within, log: self.log_tail() });
            }
            thread::sleep(POLL);
        }
    }

    /// Sends a signal by name, such as `TERM` or `HUP`.
    pub fn signal(&mut self, signal: &str) -> Result<(), ProcessError> {
        // A process that has ended may have given its number to another.
        self.check_running()?;
        // The shell's own kill: the standard library sends only KILL, and /bin/kill is optional.
        let id = self.id().to_string();
        let failed = match Command::new("sh").args(["-c", "kill -s \"$1\" \"$2\"", "sh", signal, &id]).status() {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => io::Error::other(format!("kill ended with {status}")),
            Err(error) => error,
        };
        Err(ProcessError::Machine { name: self.name.clone(), doing: "signal", source: failed })
    }

    /// Kills it and waits until it is gone.
    pub fn end(&mut self) {
        // Both fail only if it has ended and been waited for, which is what we want of them.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn exit_status(&mut self) -> Result<Option<ExitStatus>, ProcessError> {
        self.child.try_wait().map_err(|source| ProcessError::Machine {
            name: self.name.clone(),
            doing: "wait for",
            source,
        })
    }

    fn ended(&self, status: ExitStatus) -> ProcessError {
        ProcessError::Ended { name: self.name.clone(), status, log: self.log_tail() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the end of the log of {} ---\n{}\n---", self.name, self.log_tail());
        }
        self.end();
    }
}

/// The same command, run by util-linux's `setpriv`, which asks the kernel to kill it when its parent
/// dies and then becomes it: the process number stays the same.
pub(crate) fn tied_to_parent(command: &Command) -> Command {
    run_by(Command::new("setpriv").args(["--pdeathsig", "KILL", "--"]), command)
}

/// The same command behind the arguments of another, which becomes it.
pub(crate) fn run_by(runner: &Command, command: &Command) -> Command {
    let mut run = Command::new(runner.get_program());
    run.args(runner.get_args()).arg(command.get_program()).args(command.get_args());
    for (variable, value) in command.get_envs() {
        match value {
            Some(value) => run.env(variable, value),
            None => run.env_remove(variable),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        run.current_dir(folder);
    }
    run
}

/// To the kernel, the parent is the *thread* that spawned. A test's thread may end before the
/// process it started is done with, for example when a fixture is set up in a thread of its own.
/// So all are spawned from one thread that lasts as long as this process.
fn spawn_from_lasting_thread(command: Command) -> io::Result<Child> {
    type Request = (Command, Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<Mutex<Sender<Request>>> = LazyLock::new(|| {
        let (requests, queue) = channel::<Request>();
        thread::spawn(move || {
            for (mut command, answer) in queue {
                // The asker waits for the answer, so it is there to take it.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(requests)
    });

    let (answer, spawned) = channel();
    let requests = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    requests.send((command, answer)).expect("the spawning thread never ends");
    drop(requests);
    spawned.recv().expect("the spawning thread answers every request")
}

fn read_from(log: &File, mut offset: u64) -> Vec<u8> {
    let mut text = Vec::new();
    let mut chunk = [0; 16 * 1024];
    // A log that cannot be read is a log with nothing in it: it only ever explains other failures.
    while let Ok(length @ 1..) = log.read_at(&mut chunk, offset) {
        text.extend_from_slice(&chunk[..length]);
        offset += length as u64;
    }
    text
}
