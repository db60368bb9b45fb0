//! How a test reaches an API server: kubeconfigs, and kubectl.

use crate::certificates;
use crate::host::Host;
use crate::kubernetes::Kubernetes;
use crate::process::tied_to_parent;
use crate::start::{StartError, cannot};
use std::fmt;
use std::fs;
use std::io::{self, Seek, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// How to reach one server as its admin.
pub(crate) struct Access {
    pub(crate) address: SocketAddr,
    /// The admin's.
    token: String,
    pub(crate) kubeconfig: String,
    pub(crate) kubeconfig_path: PathBuf,
    kubectl: PathBuf,
    /// kubectl remembers what a server offers, by port; another server may have had ours before.
    kubectl_cache: PathBuf,
    /// Where the server runs, if not on this machine's own loopback.
    pub(crate) host: Option<Host>,
}

impl Access {
    pub(crate) fn write(
        kubernetes: &Kubernetes,
        host: Option<&Host>,
        folder: &Path,
        port: u16,
        token: &str,
    ) -> Result<Self, StartError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let kubeconfig_path = folder.join("kubeconfig");
        let authority = folder.join(certificates::AUTHORITY);
        let with_reference = format!(
            "apiVersion: v1\n\
             kind: Config\n\
             current-context: testbed\n\
             contexts: [{{name: testbed, context: {{cluster: testbed, user: admin}}}}]\n\
             users: [{{name: admin, user: {{token: {token}}}}}]\n\
             clusters: [{{name: testbed, cluster: {{server: 'https://{address}', certificate-authority: '{}'}}}}]\n",
            authority.display()
        );
        fs::write(&kubeconfig_path, with_reference).map_err(cannot("write the kubeconfig"))?;
        let mut access = Self {
            address,
            token: token.to_owned(),
            kubeconfig: String::new(),
            kubeconfig_path,
            kubectl: kubernetes.kubectl(),
            kubectl_cache: folder.join("kubectl-cache"),
            host: host.cloned(),
        };
        access.kubeconfig =
            access.kubectl(&["config", "view", "--flatten", "--raw"], None).map_err(StartError::Kubeconfig)?;
        fs::write(&access.kubeconfig_path, &access.kubeconfig).map_err(cannot("write the kubeconfig"))?;
        Ok(access)
    }

    /// The admin's kubeconfig with another's token.
    pub(crate) fn kubeconfig_with(&self, token: &str) -> String {
        self.kubeconfig.replace(&self.token, token)
    }

    pub(crate) fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> String {
        let token = format!("token: {}", self.token);
        let groups = groups.join(", ");
        self.kubeconfig.replace(&token, &format!("{token}\n    as: {user}\n    as-groups: [{groups}]"))
    }

    /// The admin's kubeconfig, for who reaches the server elsewhere and under another name.
    pub(crate) fn kubeconfig_at(&self, address: SocketAddr, name: &str) -> String {
        let own = format!("server: https://{}", self.address);
        self.kubeconfig.replace(&own, &format!("server: https://{address}\n    tls-server-name: {name}"))
    }

    pub(crate) fn kubectl(&self, args: &[&str], input: Option<&str>) -> Result<String, KubectlError> {
        let mut kubectl = Command::new(&self.kubectl);
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig_path).arg("--cache-dir").arg(&self.kubectl_cache).args(args);
        // Not what the person at this machine likes kubectl to do.
        kubectl.env("KUBERC", "off");

        if let Some(host) = &self.host {
            kubectl = host.entered_by(&kubectl);
        }
        let mut kubectl = tied_to_parent(&kubectl);
        let output = stdin_of(input)
            .and_then(|stdin| kubectl.stdin(stdin).output())
            .map_err(|source| KubectlError::NotRun { args: args.join(" "), source })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        Err(KubectlError::Refused { args: args.join(" "), status: output.status, stderr })
    }
}

/// A file rather than a pipe: nobody has to write while kubectl already prints.
fn stdin_of(input: Option<&str>) -> io::Result<Stdio> {
    let Some(input) = input else { return Ok(Stdio::null()) };
    let mut file = tempfile::tempfile()?;
    file.write_all(input.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// Its `Debug` is its `Display`, as for [`StartError`].
#[derive(thiserror::Error)]
pub enum KubectlError {
    #[error("this machine cannot run kubectl {args}: {source}")]
    NotRun { args: String, source: io::Error },
    /// kubectl said no, mostly because the API server did.
    #[error("kubectl {args} ended with {status}: {stderr}")]
    Refused { args: String, status: ExitStatus, stderr: String },
}

impl fmt::Debug for KubectlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
