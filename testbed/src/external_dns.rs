//! The real ExternalDNS, which takes `DNSEndpoint`s from a cluster and keeps a DNS server's zone as they say.

use crate::bind::RunningBind;
use crate::installed::{NotBuilt, built, or_skip};
use crate::process::{Process, ProcessError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file that pins the version which `testbed/install` builds.
const GO_MOD: &str = include_str!("../external-dns/go.mod");

/// What it may do on a hub: read the `DNSEndpoint`s of the namespace `fleetgate-publish`, as the service account `external-dns`
/// there, and write to their status. As an installation has it; the namespace must be there already.
pub const EXTERNAL_DNS_RIGHTS: &str = "\
{apiVersion: v1, kind: ServiceAccount, metadata: {name: external-dns, namespace: fleetgate-publish}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: external-dns, namespace: fleetgate-publish}
rules:
- {apiGroups: [externaldns.k8s.io], resources: [dnsendpoints], verbs: [get, list, watch]}
- {apiGroups: [externaldns.k8s.io], resources: [dnsendpoints/status], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: external-dns, namespace: fleetgate-publish}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: external-dns}
subjects: [{kind: ServiceAccount, name: external-dns, namespace: fleetgate-publish}]
";

/// ExternalDNS for a test that cannot do without it: `None` means that the test should return.
///
/// The test then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn external_dns() -> Option<ExternalDns> {
    or_skip(ExternalDns::find())
}

/// The program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalDns {
    program: PathBuf,
}

/// How it knows what is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registry<'a> {
    /// All of the zone is. It deletes every address and alias that no `DNSEndpoint` has.
    Noop,
    /// What has a TXT record beside it, whose name begins with the prefix and which names the owner.
    Txt { owner: &'a str, prefix: &'a str },
}

impl ExternalDns {
    pub fn find() -> Result<Self, NotBuilt> {
        Ok(Self { program: built("external-dns", "EXTERNAL_DNS", GO_MOD, "sigs.k8s.io/external-dns")? })
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Starts it with the `DNSEndpoint`s of one namespace, and only those. It looks at them and at the zone every second, and
    /// tries again should one of the two be away. The kind must be defined already.
    pub fn start(
        &self,
        kubeconfig: &Path,
        namespace: &str,
        bind: &RunningBind,
        registry: Registry<'_>,
    ) -> Result<RunningExternalDns, ProcessError> {
        let mut command = self.command(kubeconfig, namespace, registry);
        command
            .args(["--provider=rfc2136", "--rfc2136-host=127.0.0.1", "--rfc2136-tsig-axfr"])
            .args([format!("--rfc2136-port={}", bind.address().port()), format!("--rfc2136-zone={}", bind.zone())])
            .args([&format!("--rfc2136-tsig-keyname={}", bind.key_name()), "--rfc2136-tsig-secret-alg=hmac-sha256"])
            // Every process of this machine may read arguments.
            .env("EXTERNAL_DNS_RFC2136_TSIG_SECRET", bind.key_secret())
            .arg(format!("--domain-filter={}", bind.zone()));
        Ok(RunningExternalDns { process: Process::start(&command)? })
    }

    /// The same with a webhook provider, such as ours. It ends when the provider is away.
    pub fn start_with_webhook(
        &self,
        kubeconfig: &Path,
        namespace: &str,
        provider: SocketAddr,
        registry: Registry<'_>,
    ) -> Result<RunningExternalDns, ProcessError> {
        let mut command = self.command(kubeconfig, namespace, registry);
        command.args(["--provider=webhook", &format!("--webhook-provider-url=http://{provider}")]);
        Ok(RunningExternalDns { process: Process::start(&command)? })
    }

    fn command(&self, kubeconfig: &Path, namespace: &str, registry: Registry<'_>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(kubeconfig).args(["--source=crd", &format!("--namespace={namespace}")]).args([
            "--interval=1s",
            "--policy=sync",
            "--metrics-address=127.0.0.1:0",
        ]);
        match registry {
            Registry::Noop => command.arg("--registry=noop"),
            Registry::Txt { owner, prefix } => {
                command.args(["--registry=txt", &format!("--txt-owner-id={owner}"), &format!("--txt-prefix={prefix}")])
            }
        };
        command
    }
}

/// Dropping it ends it.
pub struct RunningExternalDns {
    process: Process,
}

impl RunningExternalDns {
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
