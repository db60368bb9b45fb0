//! OpenSSH as it comes: a server of its own on loopback with keys that are thrown away, and `ssh -L` to it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use testbed::Process;

use super::PATIENCE;
use crate::server::free_address;

pub struct OpenSsh {
    /// What comes here is forwarded.
    pub address: SocketAddr,
    pub version: String,
    _server: Process,
    _client: Process,
}

impl OpenSsh {
    pub fn start(folder: &Path, target: SocketAddr) -> anyhow::Result<Self> {
        let sshd = find("sshd").context("finding sshd: run testbed/install")?;
        let folder = folder.join("ssh");
        fs::create_dir(&folder)?;
        for key in ["host", "own"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(key));
            ensure!(keygen.status().context("running ssh-keygen")?.success(), "ssh-keygen made no key");
        }
        // What Debian's service makes before it starts; only root's server wants it.
        let _ = fs::create_dir("/run/sshd");
        let (door, forwarded) = (free_address()?, free_address()?);
        let folder_text = folder.display();
        let config = format!(
            "ListenAddress {door}\nHostKey {folder_text}/host\nAuthorizedKeysFile {folder_text}/own.pub\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
        );
        fs::write(folder.join("config"), config)?;
        let mut server = Command::new(sshd);
        let mut server = Process::start(server.args(["-D", "-e", "-f"]).arg(folder.join("config")))?;
        let user = Command::new("id").arg("-un").output().context("asking who we are")?;
        let mut client = Command::new("ssh");
        client.args(["-N", "-F", "/dev/null", "-p", &door.port().to_string(), "-i"]).arg(folder.join("own"));
        client.args(["-L", &format!("{forwarded}:{target}")]);
        for option in [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "ExitOnForwardFailure=yes",
        ] {
            client.args(["-o", option]);
        }
        client.arg(format!("{}@{}", String::from_utf8_lossy(&user.stdout).trim(), door.ip()));
        until_open(door, &mut server)?;
        let mut client = Process::start(&client)?;
        until_open(forwarded, &mut client)?;
        let version = Command::new("ssh").arg("-V").output().context("running ssh")?;
        let version = String::from_utf8_lossy(&version.stderr).trim().to_owned();
        Ok(Self { address: forwarded, version, _server: server, _client: client })
    }
}

fn until_open(address: SocketAddr, process: &mut Process) -> anyhow::Result<()> {
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        process.check_running()?;
        ensure!(began.elapsed() < PATIENCE, "nobody listens on {address}:\n{}", process.log_tail());
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Servers are where only root's shell looks; sshd wants to be called by its whole path.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder: PathBuf| folder.join(program)).find(|found| found.is_file())
}
