//! A Kubernetes API server of a test's own: one etcd and one kube-apiserver on loopback.
//!
//! There is no controller manager, scheduler or kubelet. Nothing makes endpoint slices, deletes
//! namespaces or collects garbage; a test that needs a Node creates the object itself.

use crate::certificates;
use crate::kubernetes::Kubernetes;
use crate::process::{Process, ProcessError, tied_to_parent};
use crate::start::{PORT_ATTEMPTS, StartError, cannot, free_port};
use crate::work_dir::WorkDir;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// It takes about 5 seconds on 2 idle cores. Tests start several at once, beside a compiler.
const READY_WITHIN: Duration = Duration::from_mins(2);

const POLL: Duration = Duration::from_millis(50);

/// A socket in the work folder. etcd insists on the shape of host and port, and takes all of it as
/// the name of the file. Sockets need no free ports, so nobody can take them from us.
const ETCD: &str = "unix://etcd:0";
const ETCD_PEER: &str = "unix://etcd-peer:0";

/// An API server that answers, with an admin to whom everything is allowed.
///
/// Dropping it ends both programs and removes their data.
pub struct ApiServer {
    // In this order: the server first, or it would log that its etcd is gone.
    server: Process,
    etcd: Process,
    access: Access,
    work_dir: WorkDir,
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

impl ApiServer {
    /// Returns once the server is ready and the `default` namespace exists.
    pub fn start(kubernetes: &Kubernetes) -> Result<Self, StartError> {
        Self::start_on(kubernetes, &[], free_port)
    }

    /// The same, with a certificate that is valid for these DNS names as well as on loopback.
    pub fn start_named(kubernetes: &Kubernetes, names: &[&str]) -> Result<Self, StartError> {
        Self::start_on(kubernetes, names, free_port)
    }

    /// `choose_port` is asked again each time its answer turns out to be taken.
    fn start_on(
        kubernetes: &Kubernetes,
        names: &[&str],
        mut choose_port: impl FnMut() -> io::Result<u16>,
    ) -> Result<Self, StartError> {
        let work_dir = WorkDir::create().map_err(cannot("make a temporary folder"))?;
        let folder = work_dir.path();
        certificates::write_into(folder, names).map_err(cannot("write certificates"))?;
        let token = random_token().map_err(cannot("read random bytes"))?;
        fs::write(folder.join("tokens.csv"), format!("{token},admin,admin,system:masters\n"))
            .map_err(cannot("write the admin's token"))?;

        let etcd = start_etcd(kubernetes, folder)?;
        for _ in 0..PORT_ATTEMPTS {
            let port = choose_port().map_err(cannot("find a free port"))?;
            let access = Access::write(kubernetes, folder, port, &token)?;
            let mut server = start_server(kubernetes, folder, port)?;
            match wait_until_ready(&mut server, &access) {
                Ok(()) => return Ok(Self { server, etcd, access, work_dir }),
                Err(error) if error.is_taken_port() => {}
                Err(error) => return Err(error),
            }
        }
        Err(StartError::PortsTaken)
    }

    pub fn address(&self) -> SocketAddr {
        self.access.address
    }

    /// The admin's kubeconfig: it holds the authority and the token, and refers to no other file.
    pub fn kubeconfig(&self) -> &str {
        &self.access.kubeconfig
    }

    /// The file that holds [`ApiServer::kubeconfig`].
    pub fn kubeconfig_path(&self) -> &Path {
        &self.access.kubeconfig_path
    }

    /// The certificate of the authority, its own, that vouches for this server and no other.
    pub fn authority_path(&self) -> PathBuf {
        self.work_dir.path().join(certificates::AUTHORITY)
    }

    /// A folder for the test's own files, which goes when the server does.
    pub fn work_dir(&self) -> &Path {
        self.work_dir.path()
    }

    /// The process numbers of kube-apiserver and etcd.
    pub fn process_ids(&self) -> [u32; 2] {
        [self.server.id(), self.etcd.id()]
    }

    /// What kube-apiserver has logged so far.
    pub fn log(&self) -> String {
        self.server.log()
    }

    /// Runs kubectl as admin and returns what it printed.
    pub fn kubectl(&self, args: &[&str]) -> Result<String, KubectlError> {
        self.access.kubectl(args, None)
    }

    /// The same, with a text for kubectl to read where `args` say `-f -`.
    pub fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<String, KubectlError> {
        self.access.kubectl(args, Some(input))
    }

    /// Applies manifests, server-side, as our own controllers do.
    pub fn kubectl_apply(&self, yaml: &str) -> Result<String, KubectlError> {
        self.kubectl_with_input(&["apply", "--server-side", "-f", "-"], yaml)
    }
}

/// How to reach one server as its admin.
struct Access {
    address: SocketAddr,
    kubeconfig: String,
    kubeconfig_path: PathBuf,
    kubectl: PathBuf,
    /// kubectl remembers what a server offers, by port; another server may have had ours before.
    kubectl_cache: PathBuf,
}

impl Access {
    fn write(kubernetes: &Kubernetes, folder: &Path, port: u16, token: &str) -> Result<Self, StartError> {
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
            kubeconfig: String::new(),
            kubeconfig_path,
            kubectl: kubernetes.kubectl(),
            kubectl_cache: folder.join("kubectl-cache"),
        };
        access.kubeconfig =
            access.kubectl(&["config", "view", "--flatten", "--raw"], None).map_err(StartError::Kubeconfig)?;
        fs::write(&access.kubeconfig_path, &access.kubeconfig).map_err(cannot("write the kubeconfig"))?;
        Ok(access)
    }

    fn kubectl(&self, args: &[&str], input: Option<&str>) -> Result<String, KubectlError> {
        let mut kubectl = Command::new(&self.kubectl);
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig_path).arg("--cache-dir").arg(&self.kubectl_cache).args(args);
        // Not what the person at this machine likes kubectl to do.
        kubectl.env("KUBERC", "off");

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

fn start_etcd(kubernetes: &Kubernetes, folder: &Path) -> Result<Process, ProcessError> {
    let mut etcd = Command::new(kubernetes.etcd());
    etcd.current_dir(folder)
        .args(["--data-dir=etcd-data", "--log-level=warn"])
        // The data is not meant to outlive the test, let alone a power cut.
        .arg("--unsafe-no-fsync")
        .args([format!("--listen-client-urls={ETCD}"), format!("--advertise-client-urls={ETCD}")])
        .args([format!("--listen-peer-urls={ETCD_PEER}"), format!("--initial-advertise-peer-urls={ETCD_PEER}")])
        .arg(format!("--initial-cluster=default={ETCD_PEER}"));
    Process::start(&etcd)
}

fn start_server(kubernetes: &Kubernetes, folder: &Path, port: u16) -> Result<Process, ProcessError> {
    let mut server = Command::new(kubernetes.kube_apiserver());
    server
        .current_dir(folder)
        .arg(format!("--etcd-servers={ETCD}"))
        .args(["--bind-address=127.0.0.1", &format!("--secure-port={port}")])
        // By default it looks for an address of this machine and does not start if there is none. It
        // only publishes this one, or would, if it were to keep the endpoints of its own Service.
        .args(["--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none"])
        .args(["--tls-cert-file=server.crt", "--tls-private-key-file=server.key", "--token-auth-file=tokens.csv"])
        .args(["--service-account-signing-key-file=token-signing.key", "--service-account-key-file=token-checking.key"])
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg("--service-cluster-ip-range=10.10.0.0/16")
        .arg("--authorization-mode=RBAC")
        // It waits for service accounts that the absent controller manager would make.
        .arg("--disable-admission-plugins=ServiceAccount");
    Process::start(&server)
}

fn wait_until_ready(server: &mut Process, access: &Access) -> Result<(), StartError> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        server.check_running()?;
        let answer = match is_ready(access) {
            Ok(()) => return Ok(()),
            Err(answer) => answer,
        };
        if Instant::now() >= deadline {
            let (name, within) = ("kube-apiserver", READY_WITHIN);
            return Err(StartError::NotReady { name, within, answer, log: server.log_tail() });
        }
        thread::sleep(POLL);
    }
}

fn is_ready(access: &Access) -> Result<(), String> {
    // Most of the wait is for the port to open, and this is much cheaper than running kubectl.
    TcpStream::connect(access.address).map_err(|error| format!("{}: {error}", access.address))?;
    // Should another program have taken the port, it may never answer; then look at ours again soon.
    let ask = |question: &[&str]| {
        let answer = access.kubectl(&[question, &["--request-timeout=2s"]].concat(), None);
        answer.map_err(|error| error.to_string())
    };
    ask(&["get", "--raw", "/readyz"])?;
    // Made by a controller in the server that /readyz does not wait for, and tests rely on it.
    ask(&["get", "namespace", "default"])?;
    Ok(())
}

/// Loopback is open to everybody on the machine, so the token is not one that can be read here.
fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_port_that_is_taken_meanwhile_is_given_up_for_another() {
        let Some(kubernetes) = crate::kubernetes() else { return };
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        let mut asked = 0;
        let server = ApiServer::start_on(&kubernetes, &[], || {
            asked += 1;
            if asked == 1 { Ok(taken_port) } else { free_port() }
        })
        .unwrap();
        assert_eq!(asked, 2);
        assert_ne!(server.address().port(), taken_port);
    }
}
