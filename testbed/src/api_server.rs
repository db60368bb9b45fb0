//! A Kubernetes API server of a test's own: one etcd and one kube-apiserver on loopback.
//!
//! There is no scheduler or kubelet, and unless a test starts a [`ControllerManager`] nothing makes endpoint slices,
//! deletes namespaces or collects garbage; a test that needs a Node creates the object itself.
//!
//! [`ControllerManager`]: crate::ControllerManager

use crate::access::{Access, KubectlError};
use crate::certificates;
use crate::etcd::Etcd;
use crate::host::Host;
use crate::kubernetes::Kubernetes;
use crate::process::{Process, ProcessError};
use crate::start::{HeldPort, PORT_ATTEMPTS, StartError, cannot, free_port, random_token};
use crate::work_dir::WorkDir;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// It takes about 5 seconds on 2 idle cores. Tests start several at once, beside a compiler.
const READY_WITHIN: Duration = Duration::from_mins(2);

const POLL: Duration = Duration::from_millis(50);

/// An API server that answers, with an admin to whom everything is allowed.
///
/// Dropping it ends both programs and removes their data.
pub struct ApiServer {
    // In this order: the server first, or it would log that its etcd is gone.
    server: Process,
    etcd: Etcd,
    access: Access,
    /// While it is stopped.
    port: Option<HeldPort>,
    launch: Launch,
    work_dir: WorkDir,
}

/// How it is started, each time.
struct Launch {
    kubernetes: Kubernetes,
    host: Option<Host>,
    /// Beside those that all have.
    arguments: Vec<String>,
}

impl ApiServer {
    /// Who gives out the tokens of service accounts, and whom they are for.
    pub(crate) const TOKEN_ISSUER: &str = "https://kubernetes.default.svc";

    /// A host is the test's own, so that the usual port is free there.
    pub const PORT_ON_HOST: u16 = 6443;

    /// Returns once the server is ready and the `default` namespace exists.
    pub fn start(kubernetes: &Kubernetes) -> Result<Self, StartError> {
        Self::start_named(kubernetes, &[])
    }

    /// The same, with a certificate that is valid for these DNS names as well as on loopback.
    pub fn start_named(kubernetes: &Kubernetes, names: &[&str]) -> Result<Self, StartError> {
        Self::start_on(Launch { kubernetes: kubernetes.clone(), host: None, arguments: Vec::new() }, names, free_port)
    }

    /// The same on another host, at [`ApiServer::PORT_ON_HOST`] of all of its addresses, with arguments of the test's
    /// own. kubectl runs there too.
    pub fn start_on_host(
        kubernetes: &Kubernetes,
        host: &Host,
        names: &[&str],
        arguments: &[String],
    ) -> Result<Self, StartError> {
        let (kubernetes, host, arguments) = (kubernetes.clone(), Some(host.clone()), arguments.to_vec());
        Self::start_on(Launch { kubernetes, host, arguments }, names, || Ok(Self::PORT_ON_HOST))
    }

    /// As many at once: it takes less time than one after the other.
    pub fn start_many(kubernetes: &Kubernetes, number: usize) -> Result<Vec<Self>, StartError> {
        thread::scope(|scope| {
            let starts: Vec<_> = (0..number).map(|_| scope.spawn(|| Self::start(kubernetes))).collect();
            starts.into_iter().map(|start| start.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }

    /// `choose_port` is asked again each time its answer turns out to be taken.
    fn start_on(
        launch: Launch,
        names: &[&str],
        mut choose_port: impl FnMut() -> io::Result<u16>,
    ) -> Result<Self, StartError> {
        let work_dir = WorkDir::create().map_err(cannot("make a temporary folder"))?;
        let folder = work_dir.path();
        certificates::write_into(folder, names).map_err(cannot("write certificates"))?;
        let token = random_token().map_err(cannot("read random bytes"))?;
        fs::write(folder.join("tokens.csv"), format!("{token},admin,admin,system:masters\n"))
            .map_err(cannot("write the admin's token"))?;

        let etcd = Etcd::start(&launch.kubernetes, launch.host.as_ref(), folder)?;
        for _ in 0..PORT_ATTEMPTS {
            let port = choose_port().map_err(cannot("find a free port"))?;
            let access = Access::write(&launch.kubernetes, launch.host.as_ref(), folder, port, &token)?;
            let mut server = launch.start(folder, port)?;
            match wait_until_ready(&mut server, &access) {
                Ok(()) => return Ok(Self { server, etcd, access, port: None, launch, work_dir }),
                Err(error) if error.is_taken_port() => {}
                Err(error) => return Err(error),
            }
        }
        Err(StartError::PortsTaken)
    }

    /// Kills it, as a power cut would. Its address refuses connections until it is started again, and nobody else gets it.
    pub fn stop(&mut self) -> Result<(), StartError> {
        self.server.end();
        self.port = Some(HeldPort::hold(self.access.address).map_err(cannot("keep the API server's port"))?);
        Ok(())
    }

    /// Starts it where it was, with what it had. It remembers no events from before: a watch from an older version of
    /// anything is told 410 Gone.
    pub fn start_again(&mut self) -> Result<(), StartError> {
        self.server = self.launch.start(self.work_dir.path(), self.access.address.port())?;
        wait_until_ready(&mut self.server, &self.access)?;
        self.port = None;
        Ok(())
    }

    /// For one that is stopped: it will start again with nothing in it, and count versions from the beginning.
    pub fn wipe(&mut self) -> Result<(), StartError> {
        Ok(self.etcd.wipe(&self.launch.kubernetes)?)
    }

    /// Has etcd forget what everything was before its last change, as Kubernetes asks every five minutes. Kubernetes has
    /// a memory of its own beside: once it was stopped and started again, a list of an older version is told 410 Gone.
    pub fn compact(&self) -> io::Result<()> {
        self.etcd.compact()
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

    /// The same with another token.
    pub fn kubeconfig_with_token(&self, token: &str) -> String {
        self.access.kubeconfig_with(token)
    }

    /// A kubeconfig of somebody to whom only that is allowed which was granted: the admin who acts as this user.
    pub fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> String {
        self.access.kubeconfig_as(user, groups)
    }

    /// The admin's kubeconfig for who reaches it by another address, where it is known by this name.
    pub fn kubeconfig_at(&self, address: SocketAddr, name: &str) -> String {
        self.access.kubeconfig_at(address, name)
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

impl Launch {
    fn start(&self, folder: &Path, port: u16) -> Result<Process, ProcessError> {
        let bind = if self.host.is_some() { "0.0.0.0" } else { "127.0.0.1" };
        let [front_proxies, front_proxy, front_proxy_key] = certificates::FRONT_PROXY;
        let mut server = Command::new(self.kubernetes.kube_apiserver());
        server
            .current_dir(folder)
            .arg(format!("--etcd-servers={}", Etcd::url(self.host.as_ref())))
            .args([format!("--bind-address={bind}"), format!("--secure-port={port}")])
            // By default it looks for an address of this machine and does not start if there is none. It
            // only publishes this one, or would, if it were to keep the endpoints of its own Service.
            .args(["--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none"])
            .args(["--tls-cert-file=server.crt", "--tls-private-key-file=server.key", "--token-auth-file=tokens.csv"])
            .args([
                "--service-account-signing-key-file=token-signing.key",
                "--service-account-key-file=token-checking.key",
            ])
            .arg(format!("--service-account-issuer={}", ApiServer::TOKEN_ISSUER))
            .arg("--service-cluster-ip-range=10.10.0.0/16")
            .arg("--authorization-mode=RBAC")
            // It waits for service accounts that the absent controller manager would make.
            .arg("--disable-admission-plugins=ServiceAccount")
            // How an extension API server knows on whose behalf it is asked.
            .arg(format!("--requestheader-client-ca-file={front_proxies}"))
            .args(["--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group"])
            .arg("--requestheader-extra-headers-prefix=X-Remote-Extra-")
            .arg(format!("--proxy-client-cert-file={front_proxy}"))
            .arg(format!("--proxy-client-key-file={front_proxy_key}"))
            .args(&self.arguments);
        match &self.host {
            Some(host) => host.start(&server),
            None => Process::start(&server),
        }
    }
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
    if access.host.is_none() {
        TcpStream::connect(access.address).map_err(|error| format!("{}: {error}", access.address))?;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_port_that_is_taken_meanwhile_is_given_up_for_another() {
        let Some(kubernetes) = crate::kubernetes() else { return };
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        let mut asked = 0;
        let launch = Launch { kubernetes, host: None, arguments: Vec::new() };
        let server = ApiServer::start_on(launch, &[], || {
            asked += 1;
            if asked == 1 { Ok(taken_port) } else { free_port() }
        })
        .unwrap();
        assert_eq!(asked, 2);
        assert_ne!(server.address().port(), taken_port);
    }
}
