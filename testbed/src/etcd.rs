//! The store of an API server, and what only it can be told: to forget.

use crate::host::Host;
use crate::kubernetes::Kubernetes;
use crate::process::{Process, ProcessError};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A socket in the work folder. etcd insists on the shape of host and port, and takes all of it as
/// the name of the file. Sockets need no free ports, so nobody can take them from us.
const ETCD: &str = "unix://etcd:0";
const ETCD_SOCKET: &str = "etcd:0";
/// On a host of the test's own: an API server that is told how to reach what goes to its etcd by no socket.
const ETCD_ON_HOST: &str = "http://127.0.0.1:2379";
const ETCD_PEER: &str = "unix://etcd-peer:0";

const DATA: &str = "etcd-data";

/// It answers at once; the rest is for a machine that is busy compiling.
const ANSWER_WITHIN: Duration = Duration::from_mins(1);

pub(crate) struct Etcd {
    process: Process,
    folder: PathBuf,
    host: Option<Host>,
}

impl Etcd {
    pub(crate) fn start(kubernetes: &Kubernetes, host: Option<&Host>, folder: &Path) -> Result<Self, ProcessError> {
        Ok(Self { process: run(kubernetes, host, folder)?, folder: folder.to_owned(), host: host.cloned() })
    }

    /// Where one with this host is found, by a program in its folder.
    pub(crate) fn url(host: Option<&Host>) -> &'static str {
        if host.is_some() { ETCD_ON_HOST } else { ETCD }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Starts again with nothing in it.
    pub(crate) fn wipe(&mut self, kubernetes: &Kubernetes) -> Result<(), ProcessError> {
        self.process.end();
        fs::remove_dir_all(self.folder.join(DATA)).map_err(|source| ProcessError::Machine {
            name: "etcd".to_owned(),
            doing: "remove the data of",
            source,
        })?;
        self.process = run(kubernetes, self.host.as_ref(), &self.folder)?;
        Ok(())
    }

    /// Forgets what everything was before its last change.
    pub(crate) fn compact(&self) -> io::Result<()> {
        // Any question is answered with the revision; this asks for the key that is one zero byte.
        let answer = self.ask("/v3/kv/range", r#"{"key": "AA=="}"#)?;
        let revision = answer
            .split_once(r#""revision":""#)
            .and_then(|(_, rest)| rest.split_once('"'))
            .ok_or_else(|| io::Error::other(format!("etcd says no revision: {answer}")))?
            .0;
        self.ask("/v3/kv/compaction", &format!(r#"{{"revision": "{revision}", "physical": true}}"#))?;
        Ok(())
    }

    fn ask(&self, path: &str, question: &str) -> io::Result<String> {
        let mut stream = UnixStream::connect(self.folder.join(ETCD_SOCKET))?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        write!(stream, "POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{question}", question.len())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.lines().next() {
            Some(status) if status.contains(" 200 ") => Ok(answer),
            _ => Err(io::Error::other(format!("etcd refuses {path}: {answer}"))),
        }
    }
}

fn run(kubernetes: &Kubernetes, host: Option<&Host>, folder: &Path) -> Result<Process, ProcessError> {
    let urls = if host.is_some() { format!("{ETCD},{ETCD_ON_HOST}") } else { ETCD.to_owned() };
    let mut etcd = Command::new(kubernetes.etcd());
    etcd.current_dir(folder)
        .args([&format!("--data-dir={DATA}"), "--log-level=warn"])
        // The data is not meant to outlive the test, let alone a power cut.
        .arg("--unsafe-no-fsync")
        .args([format!("--listen-client-urls={urls}"), format!("--advertise-client-urls={urls}")])
        .args([format!("--listen-peer-urls={ETCD_PEER}"), format!("--initial-advertise-peer-urls={ETCD_PEER}")])
        .arg(format!("--initial-cluster=default={ETCD_PEER}"));
    match host {
        Some(host) => host.start(&etcd),
        None => Process::start(&etcd),
    }
}
