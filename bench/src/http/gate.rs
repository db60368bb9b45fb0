//! Fleetgate's HTTP doors in a process of their own, on a table that is made up here: an Ingress, a policy and a member
//! cluster for each host.

use std::env;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use clap::Args;
use model::identity::Kind;
use model::ingress::{Backend, Certificate, FederationPolicy, PathMatch, Port, UpstreamTls};
use model::network::Location;
use model::routes::{Entry, Host, HttpRoute, HttpTable, Member};
use model::{Digest, DnsName, ObjectRef};
use prometheus_client::registry::Registry;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Sites;
use super::peers::Pem;
use crate::cores;
use crate::proxies::{Proxy, free_address};

/// All of them are one tenant's: a connection stands for its server name's owner alone.
const TENANT: &str = "acme";

/// What the process is told.
#[derive(Debug, Clone, Args)]
pub struct Gate {
    /// Serves as Fleetgate's door for plain HTTP, or for HTTPS where there is a certificate
    #[arg(long, hide = true)]
    door: Option<SocketAddr>,
    #[arg(long, hide = true, default_value_t = 0)]
    sites: usize,
    #[arg(long, hide = true, value_delimiter = ',')]
    backends: Vec<SocketAddr>,
    #[arg(long, hide = true, requires = "key")]
    certificate: Option<std::path::PathBuf>,
    #[arg(long, hide = true)]
    key: Option<std::path::PathBuf>,
    #[arg(long, hide = true)]
    without_lean: bool,
}

/// Which way requests of the usual kind go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Lean,
    Hyper,
}

/// On plain HTTP, or on TLS.
pub fn start(way: Way, sites: Sites<'_>, tls: Option<&Pem>) -> anyhow::Result<Proxy> {
    let door = free_address()?;
    let mut command = cores::pinned_proxy(&env::current_exe().context("finding this program")?);
    let backends: Vec<String> = sites.backends.iter().map(ToString::to_string).collect();
    command.args(["--door", &door.to_string(), "--sites", &sites.count.to_string(), "--backends", &backends.join(",")]);
    if let Some(Pem { certificate, key }) = tls {
        command.arg("--certificate").arg(certificate).arg("--key").arg(key);
    }
    if way == Way::Hyper {
        command.arg("--without-lean");
    }
    let name = if way == Way::Lean { "fleetgate" } else { "fleetgate, hyper alone" };
    Proxy::start(name, door, &command)
}

impl Gate {
    pub fn is_wanted(&self) -> bool {
        self.door.is_some()
    }

    /// Until the process is ended.
    pub fn serve(&self) -> anyhow::Result<()> {
        let door = self.door.context("no door was named")?;
        let certificate = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some(Arc::new(read(certificate, key)?)),
            _ => None,
        };
        let is_tls = certificate.is_some();
        let sites = Sites { count: self.sites, backends: &self.backends };
        let table = Arc::new(ArcSwap::from_pointee(table(sites, certificate.as_ref())?));
        let listener = vec![web::bind(door).with_context(|| format!("binding {door}"))?];
        let doors = if is_tls {
            web::Doors { https: listener, ..web::Doors::default() }
        } else {
            web::Doors { http: listener, ..web::Doors::default() }
        };
        let settings = web::Settings { threads: 1, is_lean: !self.without_lean, ..web::Settings::default() };
        let _running = web::start(settings, doors, &table, &web::Metrics::register(&mut Registry::default()))?;
        loop {
            std::thread::park();
        }
    }
}

fn read(certificate: &Path, key: &Path) -> anyhow::Result<Certificate> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let chain = chain.iter().map(|certificate| certificate.to_vec()).collect();
    Ok(Certificate { chain, key: key.secret_der().to_vec(), digest: Digest::default() })
}

fn table(sites: Sites<'_>, certificate: Option<&Arc<Certificate>>) -> anyhow::Result<HttpTable> {
    let policy = Arc::new(FederationPolicy { upstream: UpstreamTls::Plain, ..FederationPolicy::default() });
    let hosts = sites.each().map(|(site, backend)| {
        let name = format!("h{}", site.0);
        let member = Member {
            cluster: name.parse()?,
            uid: name.as_str().into(),
            location: Location::default(),
            http: vec![sites.backends[backend]],
            https: Vec::new(),
        };
        let entry = Entry {
            object: ObjectRef { kind: Kind::Ingress, namespace: Some(TENANT.parse()?), name: name.parse()? },
            tenant: TENANT.parse()?,
            backend: Backend { service: "cart".parse()?, port: Port::Number(80) },
            options: Arc::default(),
            policy: Arc::clone(&policy),
            members: Arc::new([Arc::new(member)]),
        };
        let routes = vec![HttpRoute { path: PathMatch::Prefix("/".into()), entry: Arc::new(entry) }];
        let host = Host::new(TENANT.parse()?, routes, None, certificate.map(Arc::clone));
        anyhow::Ok((DnsName::parse(&site.name())?, host))
    });
    Ok(HttpTable::of(hosts.collect::<Result<Vec<_>, _>>()?))
}
