//! A real extension API server, Kubernetes' own sample of one: what a tenant registers by an `APIService`.

use crate::certificates::Certificate;
use crate::etcd::Etcd;
use crate::host::Host;
use crate::installed::{or_skip, path_variable};
use crate::kubernetes::{Kubernetes, cache_folder};
use crate::process::Process;
use crate::start::{StartError, cannot};
use crate::work_dir::WorkDir;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// It takes about 3 seconds on 2 idle cores.
const READY_WITHIN: Duration = Duration::from_mins(2);

/// The extension API server for a test that cannot do without it: `None` means that the test should return.
///
/// The test then counts as passed, so this says loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn extension_server() -> Option<ExtensionServer> {
    or_skip(ExtensionServer::find())
}

/// The program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionServer {
    program: PathBuf,
}

/// This machine lacks the program.
#[derive(Debug, thiserror::Error)]
#[error("there is no sample-apiserver on this machine. Run `make test` or `testbed/install`.")]
pub struct MissingExtensionServer(());

impl ExtensionServer {
    /// The group and version that it serves. It has Flunders and Fischers.
    pub const GROUP_VERSION: [&str; 2] = ["wardle.example.com", "v1alpha1"];

    /// What the user chose wins over what we built; envtest's assets come without it.
    pub fn find() -> Result<Self, MissingExtensionServer> {
        let folders = [path_variable("KUBEBUILDER_ASSETS"), cache_folder()];
        let programs = folders.into_iter().flatten().map(|folder| folder.join("sample-apiserver"));
        let program = programs.into_iter().find(|program| program.is_file()).ok_or(MissingExtensionServer(()))?;
        Ok(Self { program })
    }

    /// What the tenant registers it with, in the namespace `default`: a Service at an address of the cluster's, whose
    /// certificate is for `wardle.default.svc`, and the `APIService`.
    pub fn registration(address: &str, certificate: &Certificate) -> String {
        let [group, version] = Self::GROUP_VERSION;
        let authority = certificate.ca_bundle();
        format!(
            "apiVersion: v1
kind: Service
metadata: {{name: wardle, namespace: default}}
spec: {{clusterIP: {address}, ports: [{{name: https, port: 443}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: wardle, namespace: default, labels: {{kubernetes.io/service-name: wardle}}}}
addressType: IPv4
ports: [{{name: https, port: 443}}]
endpoints: [{{addresses: [10.20.0.50], conditions: {{ready: true}}}}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: {version}.{group}}}
spec:
  group: {group}
  version: {version}
  groupPriorityMinimum: 1000
  versionPriority: 15
  caBundle: {authority}
  service: {{namespace: default, name: wardle}}
"
        )
    }

    /// With an etcd of its own. `kubeconfig` leads from the host to the API server that it extends, of which it learns
    /// whom to believe. Returns once it listens.
    pub fn start_on_host(
        &self,
        kubernetes: &Kubernetes,
        host: &Host,
        address: SocketAddr,
        certificate: &Certificate,
        kubeconfig: &str,
    ) -> Result<RunningExtensionServer, StartError> {
        let work_dir = WorkDir::create().map_err(cannot("make a temporary folder"))?;
        let folder = work_dir.path();
        let files =
            [("kubeconfig", kubeconfig), ("server.crt", &certificate.certificate), ("server.key", &certificate.key)];
        for (name, text) in files {
            fs::write(folder.join(name), text).map_err(cannot("write a configuration"))?;
        }
        let etcd = Etcd::start(kubernetes, None, folder)?;
        let mut command = Command::new(&self.program);
        command
            .current_dir(folder)
            .arg(format!("--etcd-servers={}", Etcd::url(None)))
            .args([format!("--bind-address={}", address.ip()), format!("--secure-port={}", address.port())])
            .args(["--tls-cert-file=server.crt", "--tls-private-key-file=server.key"])
            .args(["--kubeconfig=kubeconfig", "--authentication-kubeconfig=kubeconfig"])
            .arg("--authorization-kubeconfig=kubeconfig")
            // It would watch the flows of the API server that it extends.
            .arg("--enable-priority-and-fairness=false");
        let mut process = host.start(&command)?;
        process.wait_for_line("Serving securely on", READY_WITHIN)?;
        Ok(RunningExtensionServer { process, _etcd: etcd, _work_dir: work_dir })
    }
}

/// Dropping it ends it, and its etcd.
pub struct RunningExtensionServer {
    process: Process,
    _etcd: Etcd,
    _work_dir: WorkDir,
}

impl RunningExtensionServer {
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
