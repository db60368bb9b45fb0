//! A real BIND with one zone, which takes the updates that are signed with its key and hands out all it has.

use crate::installed::{on_path, or_skip};
use crate::process::{Process, tied_to_parent};
use crate::start::{PORT_ATTEMPTS, StartError, cannot, free_port, random_token};
use crate::work_dir::WorkDir;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

/// It takes some 50 milliseconds; the rest is for a machine that is busy compiling.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// The name of the key, for the server and for who signs with it.
const KEY: &str = "testbed";

/// Outside of every zone, so that nothing in the zone is ours but its top.
const NAMESERVER: &str = "ns.testbed.invalid.";

/// BIND for a test that cannot do without it: `None` means that the test should return.
///
/// The test then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn bind() -> Option<Bind> {
    or_skip(Bind::find())
}

/// The program, `named`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    program: PathBuf,
}

/// This machine lacks the program, or dig to ask it.
#[derive(Debug, thiserror::Error)]
#[error("there is no {0} on this machine. Run `make test` or `testbed/install`.")]
pub struct MissingBind(&'static str);

impl Bind {
    pub fn find() -> Result<Self, MissingBind> {
        on_path("dig").ok_or(MissingBind("dig"))?;
        Ok(Self { program: on_path("named").ok_or(MissingBind("named"))? })
    }

    /// Starts it with a zone of this name, in which there is nothing but what every zone has.
    pub fn start(&self, zone: &str) -> Result<RunningBind, StartError> {
        let work_dir = WorkDir::create().map_err(cannot("make a temporary folder"))?;
        let secret = BASE64_STANDARD.encode(random_token().map_err(cannot("read random bytes"))?);
        let program = work_dir.path().join("named");
        // Under its own path some Debians allow it nothing but its own folders.
        fs::copy(&self.program, &program).map_err(cannot("copy named"))?;
        for _ in 0..PORT_ATTEMPTS {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().map_err(cannot("find a free port"))?));
            write_configuration(work_dir.path(), zone, address, &secret).map_err(cannot("write a configuration"))?;
            let mut named = Command::new(&program);
            // In the foreground, with one thread and its log on standard error.
            let mut process =
                Process::start(named.current_dir(work_dir.path()).args(["-g", "-n", "1", "-c", "named.conf"]))?;
            process.wait_for_line(" running", READY_WITHIN)?;
            // It says so and goes on without.
            if !process.log().contains("address in use") {
                return Ok(RunningBind { process, address, zone: zone.to_owned(), secret, work_dir });
            }
        }
        Err(StartError::PortsTaken)
    }
}

impl Bind {
    /// Starts it at this address with these zones, each a domain and its records in master-file form; the SOA and NS records are
    /// added, with a negative TTL of one second. The process is all there is of it.
    pub fn serve(&self, address: SocketAddr, zones: &[(&str, &str)]) -> Result<ServingBind, StartError> {
        let work_dir = WorkDir::create().map_err(cannot("make a temporary folder"))?;
        let program = work_dir.path().join("named");
        fs::copy(&self.program, &program).map_err(cannot("copy named"))?;
        let (ip, port) = (address.ip(), address.port());
        let mut configuration = format!(
            "controls {{ }};\noptions {{ directory \"{}\"; listen-on port {port} {{ {ip}; }}; listen-on-v6 {{ none; }}; \
             pid-file none; lock-file none; session-keyfile none; recursion no; dnssec-validation no; notify no; \
             minimal-responses yes; }};\n",
            work_dir.path().display()
        );
        for (number, (zone, records)) in zones.iter().enumerate() {
            let declared = format!("zone \"{zone}\" {{ type primary; file \"zone-{number}\"; }};\n");
            configuration.push_str(&declared);
            let head = format!(
                "$ORIGIN {zone}.\n@ 1 IN SOA {NAMESERVER} hostmaster 1 3600 600 86400 1\n@ 1 IN NS {NAMESERVER}\n"
            );
            let path = work_dir.path().join(format!("zone-{number}"));
            fs::write(path, head + records + "\n").map_err(cannot("write a zone"))?;
        }
        fs::write(work_dir.path().join("named.conf"), configuration).map_err(cannot("write a configuration"))?;
        let mut named = Command::new(&program);
        let mut process =
            Process::start(named.current_dir(work_dir.path()).args(["-g", "-n", "1", "-c", "named.conf"]))?;
        process.wait_for_line(" running", READY_WITHIN)?;
        if process.log().contains("address in use") {
            return Err(StartError::PortsTaken);
        }
        let is_whole = !process.log().contains("not loaded");
        assert!(is_whole, "a zone of the test's cannot be read: {}", process.log_tail());
        Ok(ServingBind { process, _work_dir: work_dir })
    }
}

/// A BIND that was given its address and zones. Dropping it ends it.
pub struct ServingBind {
    process: Process,
    _work_dir: WorkDir,
}

impl ServingBind {
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn write_configuration(folder: &Path, zone: &str, address: SocketAddr, secret: &str) -> io::Result<()> {
    let key = format!("key \"{KEY}\" {{ algorithm hmac-sha256; secret \"{secret}\"; }};\n");
    fs::write(folder.join("key"), &key)?;
    let port = address.port();
    let configuration = format!(
        "{key}\
         controls {{ }};\n\
         options {{\n\
             directory \"{}\";\n\
             listen-on port {port} {{ 127.0.0.1; }};\n\
             listen-on-v6 {{ none; }};\n\
             pid-file none;\n\
             lock-file none;\n\
             session-keyfile none;\n\
             recursion no;\n\
             dnssec-validation no;\n\
             notify no;\n\
         }};\n\
         zone \"{zone}\" {{\n\
             type primary;\n\
             file \"zone\";\n\
             allow-update {{ key \"{KEY}\"; }};\n\
             allow-transfer {{ key \"{KEY}\"; }};\n\
         }};\n",
        folder.display()
    );
    fs::write(folder.join("named.conf"), configuration)?;
    let records = format!(
        "$ORIGIN {zone}.\n\
         @ 60 IN SOA {NAMESERVER} hostmaster 1 3600 600 86400 1\n\
         @ 60 IN NS {NAMESERVER}\n"
    );
    fs::write(folder.join("zone"), records)
}

/// Dropping it ends it.
pub struct RunningBind {
    process: Process,
    address: SocketAddr,
    zone: String,
    secret: String,
    work_dir: WorkDir,
}

impl RunningBind {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn zone(&self) -> &str {
        &self.zone
    }

    pub fn key_name(&self) -> &'static str {
        KEY
    }

    /// Base64, for `hmac-sha256`.
    pub fn key_secret(&self) -> &str {
        &self.secret
    }

    /// The file with the key that `dig -k` and `nsupdate -k` read.
    pub fn key_path(&self) -> PathBuf {
        self.work_dir.path().join("key")
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What it answers to a question, in order: the data alone, as `dig +short` prints it.
    pub fn answers(&self, name: &str, record_type: &str) -> io::Result<Vec<String>> {
        self.dig(&["+short", name, record_type])
    }

    /// Everything in the zone but what every zone has, in order: name, TTL, class, type and data, one space
    /// between them.
    pub fn records(&self) -> io::Result<Vec<String>> {
        let key_path = self.key_path();
        let key = key_path.to_str().expect("temporary folders have readable names");
        let lines = self.dig(&["-k", key, "+noall", "+answer", &self.zone, "AXFR"])?;
        let records = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        Ok(records.filter(|line| !line.contains(NAMESERVER) && !line.contains(" ANY TSIG ")).collect())
    }

    /// Asks it, and returns the lines of the answer, sorted: their order means nothing.
    fn dig(&self, args: &[&str]) -> io::Result<Vec<String>> {
        let mut dig = Command::new("dig");
        dig.args(["@127.0.0.1", "-p", &self.address.port().to_string(), "+tries=1", "+time=30"]).args(args);
        let output = tied_to_parent(&dig).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(io::Error::other(format!("dig ended with {}: {text}", output.status)));
        }
        let mut lines: Vec<_> =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with(';')).map(str::to_owned).collect();
        lines.sort_unstable();
        Ok(lines)
    }
}
