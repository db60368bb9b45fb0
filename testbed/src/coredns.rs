//! A real CoreDNS: the DNS of a tenant's cluster.

use crate::host::Host;
use crate::installed::{NotBuilt, built, or_skip};
use crate::process::Process;
use crate::start::{StartError, cannot};
use crate::work_dir::WorkDir;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The file that pins the version which `testbed/install` builds.
const GO_MOD: &str = include_str!("../coredns/go.mod");

/// It takes a tenth of a second; the rest is for a machine that is busy compiling.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// CoreDNS for a test that cannot do without it: `None` means that the test should return.
///
/// The test then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn coredns() -> Option<CoreDns> {
    or_skip(CoreDns::find())
}

/// The program, with the plugins `bind`, `errors`, `file` and `log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreDns {
    program: PathBuf,
}

impl CoreDns {
    /// What the user chose wins over what we built.
    pub fn find() -> Result<Self, NotBuilt> {
        Ok(Self { program: built("coredns", "COREDNS", GO_MOD, "github.com/coredns/coredns")? })
    }

    /// Answers for one zone, whose records are given as in a zone file, and logs every question. Returns once it listens.
    pub fn start_on_host(
        &self,
        host: &Host,
        address: SocketAddr,
        zone: &str,
        records: &str,
    ) -> Result<RunningCoreDns, StartError> {
        let work_dir = WorkDir::create().map_err(cannot("make a temporary folder"))?;
        let folder = work_dir.path();
        let (ip, port) = (address.ip(), address.port());
        let corefile = format!("{zone}:{port} {{\n bind {ip}\n errors\n log\n file zone {zone}\n}}\n");
        // As Kubernetes' own plugin has it: answers for 30 seconds, and absence for no longer than 5.
        let apex = "$TTL 30\n@ SOA ns.dns hostmaster 1 7200 1800 86400 5\n@ NS ns.dns\n";
        fs::write(folder.join("Corefile"), corefile)
            .and_then(|()| fs::write(folder.join("zone"), format!("{apex}ns.dns A {ip}\n{records}")))
            .map_err(cannot("write a configuration"))?;
        let mut process = host.start(Command::new(&self.program).current_dir(folder))?;
        // Said once all of it listens.
        process.wait_for_line("CoreDNS-", READY_WITHIN)?;
        Ok(RunningCoreDns { process, _work_dir: work_dir })
    }
}

/// Dropping it ends it.
pub struct RunningCoreDns {
    process: Process,
    _work_dir: WorkDir,
}

impl RunningCoreDns {
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// How many questions for a name it has answered.
    pub fn asked(&self, name: &str) -> usize {
        let name = format!(" {name}. ");
        self.process.log().lines().filter(|line| line.contains(&name)).count()
    }
}
