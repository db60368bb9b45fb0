//! What a tenant's API server says of its Services, for the time in which its own DNS cannot be asked.
//!
//! Names and answers are those of the Kubernetes DNS specification 1.1.0. Who is asked says what there is, and this module what
//! follows from it; what the specification leaves open is done as `CoreDNS` does it.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use model::{ClusterName, DnsName};

use crate::answer::{Answer, Record, RecordData};

/// As `CoreDNS` has it: what is known changes with every endpoint.
pub(crate) const TTL: u32 = 5;
/// An answer with more is of no use to anybody who asks for one.
const MOST_ENDPOINTS: usize = 200;

/// Who knows the Services of tenant clusters: a GET at the tenant's API server, or somebody who makes it.
pub trait Directory: Send + Sync {
    /// A Service and its endpoints. `Ok(None)` only where the API server said that there is none; whoever cannot tell gives an
    /// error.
    fn service<'a>(&'a self, cluster: &'a ClusterName, namespace: &'a str, name: &'a str) -> Looked<'a>;
}

/// What a [`Directory`] says, in a moment.
pub type Looked<'a> = Pin<Box<dyn Future<Output = Result<Option<Arc<ServiceView>>, DirectoryError>> + Send + 'a>>;

/// Why nobody can tell; for logs, never for who asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DirectoryError(pub String);

/// A Service, as far as DNS knows of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceView {
    /// None where it is headless.
    pub cluster_ips: Vec<IpAddr>,
    /// Of a Service of the type `ExternalName`.
    pub external_name: Option<DnsName>,
    pub ports: Vec<PortView>,
    /// Those that are ready, or all where the Service wants them published before that; of headless Services.
    pub endpoints: Vec<EndpointView>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortView {
    /// As it is called in the Service; empty where it has no name.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    pub port: u16,
}

/// One address of a headless Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointView {
    pub address: IpAddr,
    /// What the pod is called, where it has a name.
    pub hostname: Option<String>,
    /// Under the names that the Service gives them; the number may be another one here.
    pub ports: Vec<PortView>,
}

/// What a name of a cluster's domain asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Service {
        namespace: String,
        name: String,
        part: Part,
    },
    /// `dns-version`.
    Version,
    /// The domain itself and what stands between it and Services: there is something below, whatever that is.
    Between,
}

/// What of a Service is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// One endpoint of it, by the first label.
    Endpoint(String),
    /// `_port._protocol`.
    Port {
        name: String,
        protocol: String,
    },
    /// `_protocol`, below which ports are.
    Protocol,
}

/// What is meant by a name in a cluster's domain; `None` where a Service says nothing about it.
pub(crate) fn read(name: &DnsName, domain: &DnsName) -> Option<Asked> {
    if !name.is_at_or_under(domain) {
        return None;
    }
    let below = name.labels().count().checked_sub(domain.labels().count())?;
    let labels: Option<Vec<String>> =
        name.labels().take(below).map(|label| std::str::from_utf8(label).ok().map(str::to_ascii_lowercase)).collect();
    // From the domain downwards.
    let labels: Vec<String> = labels?.into_iter().rev().collect();
    let words: Vec<&str> = labels.iter().map(String::as_str).collect();
    let service = |namespace: &str, name: &str, part: Part| {
        // What is no label is no object either, and nobody has to be asked about it.
        let is_object = |text: &str| model::identity::is_label(text);
        (is_object(namespace) && is_object(name)).then(|| Asked::Service {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            part,
        })
    };
    match words.as_slice() {
        [] | ["svc"] | ["svc", _] => Some(Asked::Between),
        ["dns-version"] => Some(Asked::Version),
        ["svc", namespace, name] => service(namespace, name, Part::Whole),
        ["svc", namespace, name, last] => {
            let part = if last.starts_with('_') { Part::Protocol } else { Part::Endpoint((*last).to_owned()) };
            service(namespace, name, part)
        }
        ["svc", namespace, name, protocol, port] => {
            let (protocol, port) = (protocol.strip_prefix('_')?, port.strip_prefix('_')?);
            service(namespace, name, Part::Port { name: port.to_owned(), protocol: protocol.to_owned() })
        }
        _ => None,
    }
}

/// What is answered for the names that need nobody to be asked.
pub(crate) fn plain(asked: &Asked, name: &DnsName) -> Option<Answer> {
    match asked {
        Asked::Version => Some(Answer::of(vec![Record::new(name, TTL, RecordData::Text("1.1.0".to_owned()))])),
        Asked::Between => Some(Answer::no_data()),
        Asked::Service { .. } => None,
    }
}

/// The Service of the API server itself, which every cluster has: at the first address of its Services.
pub(crate) fn api_server(services: &[model::Cidr]) -> Option<ServiceView> {
    let first = |range: &model::Cidr| match range.network() {
        IpAddr::V4(network) => IpAddr::from((u32::from(network) | 1).to_be_bytes()),
        IpAddr::V6(network) => IpAddr::from((u128::from(network) | 1).to_be_bytes()),
    };
    let https = PortView { name: "https".to_owned(), protocol: "TCP".to_owned(), port: 443 };
    let cluster_ips: Vec<_> = services.iter().map(first).collect();
    (!cluster_ips.is_empty()).then(|| ServiceView { cluster_ips, ports: vec![https], ..ServiceView::default() })
}

/// What a Service has under one of its names; all types, of which the asker takes what it wants.
pub(crate) fn records(view: &ServiceView, namespace: &str, service: &str, part: &Part, domain: &DnsName) -> Answer {
    let Ok(whole) = domain.prepend(&format!("{service}.{namespace}.svc")) else { return Answer::no_such_name() };
    if let Some(target) = &view.external_name {
        return match part {
            Part::Whole => Answer::of(vec![Record::new(&whole, TTL, RecordData::Alias(target.clone()))]),
            _ => Answer::no_such_name(),
        };
    }
    let is_headless = view.cluster_ips.is_empty();
    let endpoints = || view.endpoints.iter().take(MOST_ENDPOINTS);
    match part {
        Part::Whole if is_headless => {
            let mut addresses: Vec<IpAddr> = endpoints().map(|endpoint| endpoint.address).collect();
            addresses.sort_unstable();
            addresses.dedup();
            // 2.4.1: without a ready endpoint there is no such name.
            Answer::of_some(addresses.into_iter().map(|address| Record::new(&whole, TTL, address.into())).collect())
        }
        Part::Whole => {
            let addresses = view.cluster_ips.iter();
            Answer::of(addresses.map(|address| Record::new(&whole, TTL, (*address).into())).collect())
        }
        Part::Endpoint(label) => {
            let found = endpoints().filter(|endpoint| is_headless && endpoint_label(endpoint) == *label);
            let Ok(name) = whole.prepend(label) else { return Answer::no_such_name() };
            Answer::of_some(found.map(|endpoint| Record::new(&name, TTL, endpoint.address.into())).collect())
        }
        Part::Port { name: wanted, protocol } => {
            let Ok(name) = whole.prepend(&format!("_{wanted}._{protocol}")) else { return Answer::no_such_name() };
            let is_asked = |view: &&PortView| {
                !view.name.is_empty()
                    && view.name.eq_ignore_ascii_case(wanted)
                    && view.protocol.eq_ignore_ascii_case(protocol)
            };
            if !is_headless {
                let ports = view.ports.iter().filter(is_asked);
                let records = ports.map(|found| Record::new(&name, TTL, RecordData::server(found.port, &whole)));
                return Answer::of_some(records.collect());
            }
            let mut records = Vec::new();
            for endpoint in endpoints() {
                let Ok(target) = whole.prepend(&endpoint_label(endpoint)) else { continue };
                let ports = endpoint.ports.iter().filter(is_asked);
                records.extend(ports.map(|found| Record::new(&name, TTL, RecordData::server(found.port, &target))));
            }
            Answer::of_some(records)
        }
        Part::Protocol => Answer::no_data(),
    }
}

/// 2.4.1: its hostname, or else a label that is its own; `CoreDNS` makes it of the address.
fn endpoint_label(endpoint: &EndpointView) -> String {
    let of_address = || endpoint.address.to_string().replace(['.', ':'], "-");
    endpoint.hostname.as_ref().map_or_else(of_address, |name| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
