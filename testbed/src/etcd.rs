//! The store of an API server, and what only it can be told: to forget.

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
pub(crate) const ETCD: &str = "unix://etcd:0";
const ETCD_SOCKET: &str = "etcd:0";
const ETCD_PEER: &str = "unix://etcd-peer:0";

const DATA: &str = "etcd-data";

/// It answers at once; the rest is for a machine that is busy compiling.
const ANSWER_WITHIN: Duration = Duration::from_mins(1);

pub(crate) struct Etcd {
    process: Process,
    folder: PathBuf,
}

impl Etcd {
    pub(crate) fn start(kubernetes: &Kubernetes, folder: &Path) -> Result<Self, ProcessError> {
        Ok(Self { process: run(kubernetes, folder)?, folder: folder.to_owned() })
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
        self.process = run(kubernetes, &self.folder)?;
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

fn run(kubernetes: &Kubernetes, folder: &Path) -> Result<Process, ProcessError> {
    let mut etcd = Command::new(kubernetes.etcd());
    etcd.current_dir(folder)
        .args([&format!("--data-dir={DATA}"), "--log-level=warn"])
        // The data is not meant to outlive the test, let alone a power cut.
        .arg("--unsafe-no-fsync")
        .args([format!("--listen-client-urls={ETCD}"), format!("--advertise-client-urls={ETCD}")])
        .args([format!("--listen-peer-urls={ETCD_PEER}"), format!("--initial-advertise-peer-urls={ETCD_PEER}")])
        .arg(format!("--initial-cluster=default={ETCD_PEER}"));
    Process::start(&etcd)
}
