//! The way from control planes into their clusters: the door of this process, and `fleetgate egress` for those who come to it.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use agent::health::{Health, HealthListener};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use egress::client::{AUTHORITY, CERTIFICATE, Gateways, KEY};
use egress::config::{self, Transport};
use egress::rules::Rules;
use egress::{Gate, Metrics, Settings, proxy, sidecar};
use hyper::Method;
use model::{Cidr, ClusterName};
use prometheus_client::registry::Registry;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use server::Bound;
use tokio_util::sync::CancellationToken;
use tunnel::Target;

use crate::admin::{self, AdminOptions};
use crate::arguments::{EndOptions, LogOptions};
use crate::credential::parse_valid;
use crate::links::Links;
use crate::serve::{Signals, raise_descriptor_limit};
use crate::telemetry;

/// One that shakes hands leaves the other to what is carried.
const THREADS: usize = 2;

/// The door for control planes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct EgressOptions {
    /// The door for control planes: HTTP CONNECT over TLS, into their clusters through the tunnel
    #[arg(long, value_name = "ADDR", requires = "agents")]
    pub(crate) egress: Option<SocketAddr>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EgressCommand {
    /// Print what a cluster's kube-apiserver is given as --egress-selector-config-file
    Config(ConfigOptions),
    /// Make a key and a certificate for a cluster's control plane
    Credential(CredentialOptions),
    /// Beside an API server: CONNECT on a Unix socket, or on loopback as `HTTPS_PROXY`, and from there to the gateways
    Proxy(Box<ProxyOptions>),
    /// Beside what knows no proxy: carry connections into the cluster that the packet filter redirects here
    Sidecar(Box<SidecarOptions>),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigOptions {
    /// Whose API server it is
    #[arg(value_name = "CLUSTER")]
    cluster: ClusterName,
    /// The socket of `fleetgate egress proxy` in its pod
    #[arg(long, value_name = "PATH", default_value = "/run/fleetgate/egress.sock", conflicts_with = "url")]
    uds: PathBuf,
    /// Without a proxy: where the gateways' --egress is
    #[arg(long, value_name = "URL", requires = "credential", value_parser = parse_url)]
    url: Option<String>,
    /// The folder that `fleetgate egress credential` wrote, where the API server finds it
    #[arg(long, value_name = "DIR", requires = "url")]
    credential: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CredentialOptions {
    /// The cluster whose control plane it is for
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// Write ca.crt, tls.crt and tls.key into this folder, the key for its owner only
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How long it is good for; at most 365 days. kube-apiserver reads it at its start and never again
    #[arg(long, value_name = "TIME", default_value = "365d", value_parser = parse_valid)]
    valid: Duration,
    #[command(flatten)]
    access: AdminOptions,
}

/// How a side-car meets the gateways.
#[derive(Debug, Args)]
pub(crate) struct GatewayOptions {
    /// The gateways' --egress; may be given several times. Tried in this order, and kept to where it answered
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', env = "FLEETGATE_EGRESS")]
    gateway: Vec<Target>,
    /// The folder that `fleetgate egress credential` wrote; read again when it changes
    #[arg(long, value_name = "DIR", env = "FLEETGATE_EGRESS_CREDENTIAL")]
    credential: Option<PathBuf>,
    /// Metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDR", env = "FLEETGATE_HEALTH")]
    health: Option<SocketAddr>,
    #[command(flatten)]
    end: EndOptions,
    #[command(flatten)]
    log: LogOptions,
}

#[derive(Debug, Args)]
#[group(id = "doors", required = true, multiple = true, args = ["socket", "listen"])]
#[command(mut_arg("gateway", |gateway| gateway.required(true)))]
#[command(mut_arg("credential", |folder| folder.required(true)))]
pub(crate) struct ProxyOptions {
    /// The Unix socket for kube-apiserver; one that an earlier process left is replaced
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Who may connect to it: 600 is for its user alone, 660 for its group too
    #[arg(long, value_name = "OCTAL", default_value = "600", value_parser = parse_mode)]
    socket_mode: u32,
    /// Also on this loopback address, as `HTTPS_PROXY` for others in the pod
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    gateways: GatewayOptions,
}

#[derive(Debug, Args)]
#[command(mut_arg("gateway", |gateway| gateway.required_unless_present("print_rules")))]
#[command(mut_arg("credential", |folder| folder.required_unless_present("print_rules")))]
pub(crate) struct SidecarOptions {
    /// Where the packet filter redirects to; may be given several times, for both families
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8453", value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    /// Print the packet filter's rules, for `nft -f -` in the pod's network, and end
    #[arg(long, requires = "cidr")]
    print_rules: bool,
    /// The tenant's networks of Services and pods
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',', requires = "print_rules")]
    cidr: Vec<Cidr>,
    /// Addresses among them that are the hub's and not the tenant's
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',', requires = "print_rules")]
    except: Vec<Cidr>,
    /// The user that the side-car runs as, whose own connections are left alone; ours by default
    #[arg(long, value_name = "UID", requires = "print_rules")]
    uid: Option<u32>,
    #[command(flatten)]
    gateways: GatewayOptions,
}

pub(crate) fn run(command: &EgressCommand) -> anyhow::Result<ExitCode> {
    match command {
        EgressCommand::Config(options) => {
            print!("{}", to_config(options));
            Ok(ExitCode::SUCCESS)
        }
        EgressCommand::Credential(options) => make_credential(options),
        EgressCommand::Proxy(options) => run_proxy(options),
        EgressCommand::Sidecar(options) => run_sidecar(options),
    }
}

fn to_config(ConfigOptions { cluster, uds, url, credential }: &ConfigOptions) -> String {
    let transport = match url.clone().zip(credential.clone()) {
        Some((url, folder)) => Transport::Tcp { url, folder },
        None => Transport::Socket(uds.clone()),
    };
    config::to_yaml(cluster.as_str(), &transport)
}

/// The key stays on this machine.
fn make_credential(CredentialOptions { cluster, out, valid, access }: &CredentialOptions) -> anyhow::Result<ExitCode> {
    // Before anything is issued that would then be lost.
    DirBuilder::new().recursive(true).mode(0o700).create(out).with_context(|| format!("making {}", out.display()))?;
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).context("making a key")?;
    let csr = CertificateParams::default().serialize_request(&key).and_then(|csr| csr.pem());
    let csr = csr.context("making a request for a certificate")?;
    let wish = json!({ "cluster": cluster, "validSeconds": valid.as_secs(), "csr": csr });
    let answer = access.send(Method::POST, "/v1/credentials/control-plane", Some(&wish));
    let answer = admin::advise_missing(answer, "clusters")?;
    let text = |name: &str| answer[name].as_str().with_context(|| format!("the answer has no {name}"));
    let id = text("id")?;
    // The key first: a certificate without it is of no use to anybody.
    write(&out.join(KEY), &key.serialize_pem(), 0o600)?;
    write(&out.join(CERTIFICATE), text("certificate")?, 0o644)?;
    write(&out.join(AUTHORITY), text("ca")?, 0o644)?;
    eprintln!("credential {id} of {cluster} is in {}, valid until {}", out.display(), text("expires")?);
    Ok(ExitCode::SUCCESS)
}

/// Whole or not at all: whoever reads the folder meanwhile finds the one before.
fn write(path: &Path, content: &str, mode: u32) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    let writing = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new)?;
        // One that was left by an earlier attempt may have other rights.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    writing().with_context(|| format!("writing {}", path.display()))
}

fn run_proxy(options: &ProxyOptions) -> anyhow::Result<ExitCode> {
    let socket = options.socket.as_deref().map(|path| (path, options.socket_mode));
    run_beside(&options.gateways, async |gateways, metrics, stop, drain| {
        let listeners = proxy::Listeners::open(socket, options.listen)?;
        let listen = listeners.address().map(tracing::field::display);
        tracing::info!(socket = socket.map(|(path, _)| tracing::field::display(path.display())), listen, "ready");
        listeners.serve(gateways, metrics, stop, drain).await;
        Ok(())
    })
}

fn run_sidecar(options: &SidecarOptions) -> anyhow::Result<ExitCode> {
    let SidecarOptions { listen, print_rules, cidr, except, uid, gateways } = options;
    if *print_rules {
        let port = listen.first().map(SocketAddr::port).context("--listen is empty")?;
        let user = uid.unwrap_or_else(|| rustix::process::getuid().as_raw());
        print!("{}", Rules { networks: cidr, except, port, user }.to_nft());
        return Ok(ExitCode::SUCCESS);
    }
    run_beside(gateways, async |gateways, metrics, stop, drain| {
        let listeners = sidecar::Listeners::open(listen)?;
        let addresses: Vec<String> = listeners.addresses().iter().map(ToString::to_string).collect();
        tracing::info!(listen = addresses.join(","), "ready");
        listeners.serve(gateways, metrics, stop, drain).await;
        Ok(())
    })
}

/// Until a signal comes and what is carried has ended.
fn run_beside(
    options: &GatewayOptions,
    work: impl AsyncFnOnce(Arc<Gateways>, Metrics, CancellationToken, Duration) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&options.log)?;
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime.context("starting the runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let folder = options.credential.clone().context("--credential is missing")?;
        let gateways = Arc::new(Gateways::open(options.gateway.clone(), folder)?);
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let health = Arc::new(Health::new(registry));
        let (stop, stop_probes) = (CancellationToken::new(), CancellationToken::new());
        if let Some(at) = options.health {
            let probes = HealthListener::bind(at)?;
            tracing::info!(health = %probes.address(), "started");
            tokio::spawn(probes.serve(Arc::clone(&health), stop_probes.clone()));
        }
        health.set_ready(true);
        let mut working = std::pin::pin!(work(gateways, metrics, stop.clone(), options.end.drain));
        tokio::select! {
            done = &mut working => return done,
            signal = signals.next() => tracing::info!("{signal}: draining"),
        }
        health.set_ready(false);
        stop.cancel();
        tokio::select! {
            done = working => done?,
            signal = signals.next() => tracing::warn!("{signal} again: not waiting for connections"),
        }
        tracing::info!("stopped");
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// Where links are served: what a control plane sends is on its link without another thread being woken.
pub(crate) fn serve(
    listener: Bound,
    gate: Arc<dyn Gate>,
    links: &Links,
    metrics: Metrics,
    drain: Duration,
) -> anyhow::Result<Running> {
    let thread = std::thread::Builder::new().name("egress".into());
    let (hub, runtime, stop) = (links.hub.clone(), links.runtime.clone(), CancellationToken::new());
    let serving = egress::serve(listener, gate, hub, (Settings::default(), metrics), stop.clone(), drain);
    let thread = thread.spawn(move || runtime.block_on(serving)).context("starting the thread of --egress")?;
    Ok(Running { stop, thread })
}

/// The door while it is open.
pub(crate) struct Running {
    stop: CancellationToken,
    thread: JoinHandle<()>,
}

impl Running {
    /// Takes nobody in any more, and returns when what is carried has ended or had its time.
    pub(crate) fn drain(self) {
        self.stop.cancel();
        if self.thread.join().is_err() {
            tracing::error!("the thread of --egress panicked");
        }
    }
}

fn parse_url(text: &str) -> Result<String, String> {
    let place = text.strip_prefix("https://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    match place.map(str::parse::<Target>) {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("a URL is https://HOST:PORT here".to_owned()),
    }
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "rights are three octal digits, such as 600 or 660".to_owned())
}
