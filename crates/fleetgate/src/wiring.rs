//! How control planes of a hub are led to their resolver: what a controller is told of it, and what it hands to whoever keeps it.
//! And how a resolver in another process asks the leader about Services of tenant clusters.

use std::sync::Arc;

use arc_swap::ArcSwap;
use clap::Args;
use kubernetes::admission;
use kubernetes::home::Writing;
use kubernetes::peers::{Asks, DeskError};
use kubernetes::resolvers::{self, Sides};
use kubernetes::tenants::{self, ServiceView};
use model::resolver::Ports;
use model::{ClusterName, DnsName, ObjectName, Snapshot};
use resolver::{Directory, DirectoryError, Looked};
use tokio::sync::Semaphore;

use crate::arguments::FailurePolicy;
use crate::job::Job;
use crate::resolver::{Prepared, of_tenant};

/// Services that are looked up for others at once. A tenant's API server may take two seconds for each, and what else is asked of the
/// leader must not wait behind that.
const AT_ONCE: usize = 8;
/// Room for ten thousand clusters, below the ports that a system gives away by itself.
const DEFAULT_PORTS: &str = "20000-29999";

/// How the leader leads control planes to the resolver.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct WiringOptions {
    /// Lead control planes to the resolver: give every Cluster a port of it and a Service that leads there. NAME is the headless
    /// Service of the resolver's pods. With --admission, pods that are labelled as a control plane's ask it
    #[arg(long, value_name = "NAME", env = "FLEETGATE_RESOLVER_SERVICE")]
    pub(crate) resolver_service: Option<ObjectName>,
    /// Where that Service is; in --namespace by default
    #[arg(long, value_name = "NS", requires = "resolver_service", env = "FLEETGATE_RESOLVER_NAMESPACE")]
    pub(crate) resolver_namespace: Option<ObjectName>,
    /// The resolver's ports, of which every Cluster has one: as --resolver of the resolver's pods says
    #[arg(long, value_name = "FIRST-LAST", default_value = DEFAULT_PORTS, env = "FLEETGATE_RESOLVER_PORTS")]
    pub(crate) resolver_ports: Option<Ports>,
    /// What the API server does with pods that are labelled as a control plane's while nobody answers
    #[arg(long, value_name = "WORD", value_enum, default_value_t, requires = "admission")]
    pub(crate) admission_pods_failure_policy: FailurePolicy,
}

/// What the hub's own Services are under.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct HubDomainOptions {
    /// The domain of the hub's own Services
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local", env = "FLEETGATE_RESOLVER_HUB_DOMAIN")]
    pub(crate) resolver_hub_domain: Option<DnsName>,
}

/// What a controller has to do there.
#[derive(Clone)]
pub(crate) struct Wiring {
    settings: resolvers::Settings,
    metrics: resolvers::Metrics,
}

impl WiringOptions {
    /// `namespace` is where Fleetgate is installed.
    pub(crate) fn settings(&self, namespace: &str) -> anyhow::Result<Option<resolvers::Settings>> {
        let Some(service) = self.resolver_service.clone() else { return Ok(None) };
        let namespace: ObjectName = namespace.parse()?;
        let pods = (self.resolver_namespace.clone().unwrap_or_else(|| namespace.clone()), service);
        let ports = self.resolver_ports.clone().map_or_else(|| DEFAULT_PORTS.parse(), Ok)?;
        Ok(Some(resolvers::Settings { namespace, pods, ports }))
    }

    /// What the API server is told about pods, where control planes have a resolver.
    pub(crate) fn pods(&self, domain: &HubDomainOptions, writing: &Writing) -> Option<admission::Pods> {
        self.resolver_service.as_ref()?;
        let hub_domain = domain.resolver_hub_domain.clone();
        Some(admission::Pods {
            planes: Arc::clone(&writing.planes),
            hub: Arc::clone(&writing.actual),
            hub_domain: hub_domain.unwrap_or_else(|| model::resolver::ClusterDns::default().domain),
            failure_policy: self.admission_pods_failure_policy.into(),
        })
    }
}

impl Wiring {
    pub(crate) fn new(settings: resolvers::Settings, metrics: resolvers::Metrics) -> Self {
        Self { settings, metrics }
    }

    /// Until the term is lost.
    pub(crate) async fn lead(self, client: kubernetes::Client, sides: Sides, term: kubernetes::lease::Term) {
        resolvers::keep(client, sides, term, self.settings, self.metrics).await;
    }
}

/// What the leader tells others of Services.
pub(crate) struct Counter {
    directory: tenants::Directory,
    places: Semaphore,
}

impl Counter {
    pub(crate) fn new(directory: tenants::Directory) -> Self {
        Self { directory, places: Semaphore::new(AT_ONCE) }
    }

    /// As JSON; none where there is none.
    pub(crate) async fn service(
        &self,
        cluster: &ClusterName,
        namespace: &ObjectName,
        name: &ObjectName,
    ) -> Result<Option<Vec<u8>>, DeskError> {
        let busy = |_| DeskError::Away("too many Services are looked up at once".into());
        let _place = self.places.try_acquire().map_err(busy)?;
        let found = self.directory.service(cluster, namespace.as_str(), name.as_str()).await;
        let found = found.map_err(|error| DeskError::Away(format!("a Service of Cluster {cluster}: {error}")))?;
        let json = |view: Arc<ServiceView>| serde_json::to_vec(&*view);
        found.map(json).transpose().map_err(|error| DeskError::Away(error.to_string()))
    }
}

/// The leader knows Services, wherever it is.
pub(crate) struct AskedLeader(pub(crate) Asks);

impl Directory for AskedLeader {
    fn service<'a>(&'a self, cluster: &'a ClusterName, namespace: &'a str, name: &'a str) -> Looked<'a> {
        Box::pin(async move {
            let (Ok(namespace), Ok(name)) = (namespace.parse(), name.parse()) else { return Ok(None) };
            let found = self.0.service(cluster, &namespace, &name).await;
            let Some(octets) = found.map_err(|error| DirectoryError(error.to_string()))? else { return Ok(None) };
            let view: ServiceView = serde_json::from_slice(&octets).map_err(|error| {
                DirectoryError(format!("what the leader says of a Service is not understood: {error}"))
            })?;
            Ok(Some(Arc::new(of_tenant(&view))))
        })
    }
}

/// Has a resolver with one address for all know which pod is of which control plane, where the home is a hub. Within a tokio runtime.
pub(crate) fn follow_pods(
    job: &Job,
    client: Option<&kubernetes::Client>,
    resolver: Option<&Prepared>,
    snapshot: &Arc<ArcSwap<Snapshot>>,
) {
    let (Some(client), Some(resolver), Some(_)) = (client, resolver, job.resolver.resolver_shared) else { return };
    let pods = Arc::clone(&resolver.pods);
    // Ends with the runtime.
    tokio::spawn(resolvers::follow_pods(client.clone(), Arc::clone(snapshot), move |known| {
        pods.store(Arc::new(known));
    }));
}
