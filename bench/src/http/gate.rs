//! Fleetgate's HTTP doors without their own way through HTTP/1.1, so that all requests go through hyper: in a process of their own, on a
//! table that is made up here.

use std::env;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use clap::Args;
use model::identity::Kind;
use model::ingress::{Backend, FederationPolicy, PathMatch, Port, UpstreamTls};
use model::network::Location;
use model::routes::{Entry, Host, HttpRoute, HttpTable, Member};
use model::{DnsName, ObjectRef};
use prometheus_client::registry::Registry;

use super::Sites;
use crate::cores;
use crate::proxies::{Proxy, free_address};

/// All of them are one tenant's: a connection stands for its server name's owner alone.
const TENANT: &str = "acme";

/// What the process is told.
#[derive(Debug, Clone, Args)]
pub struct Gate {
    /// Serves as a door for plain HTTP
    #[arg(long, hide = true)]
    door: Option<SocketAddr>,
    #[arg(long, hide = true, default_value_t = 0)]
    sites: usize,
    #[arg(long, hide = true, value_delimiter = ',')]
    backends: Vec<SocketAddr>,
}

pub fn start(sites: Sites<'_>) -> anyhow::Result<Proxy> {
    let door = free_address()?;
    let mut command = cores::pinned_proxy(&env::current_exe().context("finding this program")?);
    let backends: Vec<String> = sites.backends.iter().map(ToString::to_string).collect();
    command.args(["--door", &door.to_string(), "--sites", &sites.count.to_string(), "--backends", &backends.join(",")]);
    Proxy::start("fleetgate, hyper alone", door, &command)
}

impl Gate {
    pub fn is_wanted(&self) -> bool {
        self.door.is_some()
    }

    /// Until the process is ended.
    pub fn serve(&self) -> anyhow::Result<()> {
        let door = self.door.context("no door was named")?;
        let sites = Sites { count: self.sites, backends: &self.backends };
        let table = Arc::new(ArcSwap::from_pointee(table(sites)?));
        let listener = web::bind(door).with_context(|| format!("binding {door}"))?;
        let doors = web::Doors { http: vec![listener], ..web::Doors::default() };
        let settings = web::Settings { threads: 1, is_lean: false, checks: false, ..web::Settings::default() };
        let _running = web::start(settings, doors, &table, &web::Metrics::register(&mut Registry::default()))?;
        loop {
            std::thread::park();
        }
    }
}

fn table(sites: Sites<'_>) -> anyhow::Result<HttpTable> {
    let policy = Arc::new(FederationPolicy { upstream: UpstreamTls::Plain, ..FederationPolicy::default() });
    let hosts = sites.each().map(|(site, backend)| {
        let name = format!("h{}", site.0);
        let member = Member {
            cluster: name.parse()?,
            uid: name.as_str().into(),
            location: Location::default(),
            http: vec![sites.backends[backend].into()],
            https: Vec::new(),
        };
        let entry = Entry {
            object: ObjectRef { kind: Kind::Ingress, namespace: Some(TENANT.parse()?), name: name.parse()? },
            tenant: TENANT.parse()?,
            backend: Backend { service: "cart".parse()?, port: Port::Number(80) },
            options: Arc::default(),
            policy: Arc::clone(&policy),
            members: Arc::new([Arc::new(member)]),
            unready: Arc::new([]),
        };
        let routes = vec![HttpRoute { path: PathMatch::Prefix("/".into()), entry: Arc::new(entry) }];
        let host = Host::new(TENANT.parse()?, routes, None, None);
        anyhow::Ok((DnsName::parse(&site.name())?, host))
    });
    Ok(HttpTable::of(hosts.collect::<Result<Vec<_>, _>>()?))
}
