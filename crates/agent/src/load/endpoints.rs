//! Which Services are reported of, and where their pods are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use kubernetes::sources::{Backends, Followed, Place, PodNews, Slice};
use manifest::agents::MAX_SERVICES;
use model::identity::is_label;

/// Scrapes of a service in a round: with more pods, so many of them speak for all.
const MOST_OF_ONE: usize = 500;
/// Scrapes in a round: some 20 ms each with 64 at once.
const MOST_OF_ALL: usize = 2000;

/// A Service, and where the pages of its pods are: `NAMESPACE/NAME[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub namespace: String,
    pub name: String,
    port: Option<Port>,
}

/// Where the pages of pods are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Port {
    /// Of the pods, whatever the Service says.
    Number(u16),
    /// Of the Service.
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a Service is written NAMESPACE/NAME, with the name or the number of a port behind a colon if need be: shop/web:metrics"
)]
pub struct ServiceError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a port is a number from 1 to 65535, or the name of one in the Service")]
pub struct PortError;

impl FromStr for Service {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let (place, port) = text.split_once(':').map_or((text, None), |(place, port)| (place, Some(port)));
        let (namespace, name) = place.split_once('/').ok_or(ServiceError)?;
        let port = port.map(str::parse).transpose().map_err(|PortError| ServiceError)?;
        if !is_label(namespace) || !is_label(name) {
            return Err(ServiceError);
        }
        Ok(Self { namespace: namespace.into(), name: name.into(), port })
    }
}

impl FromStr for Port {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        if text.bytes().all(|octet| octet.is_ascii_digit()) {
            return Ok(Self::Number(text.parse().ok().filter(|port| *port != 0).ok_or(PortError)?));
        }
        is_label(text).then(|| Self::Name(text.to_owned())).ok_or(PortError)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What is to be reported.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub services: Vec<Service>,
    /// And all that Ingresses of this class name.
    pub class: Option<String>,
    /// Where the pages of Services are that have no port of their own here.
    pub port: Option<Port>,
}

/// The slices of all namespaces that have been listed, and the Services of the Ingresses.
#[derive(Default)]
pub(super) struct Endpoints {
    slices: BTreeMap<usize, BTreeMap<Place, Slice>>,
    ingresses: BTreeMap<Place, BTreeSet<String>>,
}

/// The pods of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pods {
    pub(super) ready: usize,
    /// Those of them that have no port by the name of the one that is wanted.
    pub(super) portless: usize,
    /// The pages that are read of the others.
    pub(super) pages: Vec<SocketAddr>,
}

impl Endpoints {
    /// What cannot be read stays as it was.
    pub(super) fn hear(&mut self, news: PodNews, class: Option<&str>) {
        match news {
            PodNews::Slices(namespace, news) => self.hear_of_slices(namespace, news),
            PodNews::Ingresses(news) => self.hear_of_ingresses(news, class),
        }
    }

    fn hear_of_ingresses(&mut self, news: Followed<Backends>, class: Option<&str>) {
        match news {
            Followed::Listed(all) => {
                let of_class = all.into_iter().filter(|ingress| ingress.class.as_deref() == class);
                self.ingresses = of_class.map(|ingress| (ingress.place, ingress.services)).collect();
            }
            Followed::Changed(ingress) if ingress.class.as_deref() == class => {
                self.ingresses.insert(ingress.place, ingress.services);
            }
            Followed::Changed(Backends { place, .. }) | Followed::Gone(place) => {
                self.ingresses.remove(&place);
            }
            Followed::Away(_) | Followed::Absent => {}
        }
    }

    /// Those that were given, and then those that Ingresses name; no more than a line has room for.
    pub(super) fn services(&self, wanted: &Wanted) -> Vec<Service> {
        let mut services = wanted.services.clone();
        let mut known: BTreeSet<(String, String)> =
            services.iter().map(|service| (service.namespace.clone(), service.name.clone())).collect();
        for (place, names) in &self.ingresses {
            for name in names {
                if services.len() < MAX_SERVICES && known.insert((place.namespace.clone(), name.clone())) {
                    services.push(Service { namespace: place.namespace.clone(), name: name.clone(), port: None });
                }
            }
        }
        for service in &mut services {
            service.port = service.port.take().or_else(|| wanted.port.clone());
        }
        services
    }

    fn hear_of_slices(&mut self, namespace: usize, news: Followed<Slice>) {
        match news {
            Followed::Listed(slices) => {
                let slices = slices.into_iter().map(|slice| (slice.place.clone(), slice));
                self.slices.insert(namespace, slices.collect());
            }
            Followed::Changed(slice) => {
                self.slices.entry(namespace).or_default().insert(slice.place.clone(), slice);
            }
            Followed::Gone(place) => {
                self.slices.entry(namespace).or_default().remove(&place);
            }
            Followed::Away(_) | Followed::Absent => {}
        }
    }

    /// Of each: none for a Service without any slice. It may be that nobody has come to it yet, or that it is gone; one that
    /// has no pods has an empty one.
    pub(super) fn pods(&self, services: &[Service]) -> Vec<Option<Pods>> {
        let mut slices: HashMap<(&str, &str), Vec<&Slice>> = HashMap::new();
        for slice in self.slices.values().flat_map(BTreeMap::values) {
            slices.entry((&slice.place.namespace, &slice.service)).or_default().push(slice);
        }
        let of =
            |service: &Service| Some(service.pods(slices.get(&(&*service.namespace, &*service.name))?, services.len()));
        services.iter().map(of).collect()
    }
}

impl Service {
    /// `services` are those that share what can be read in a second.
    fn pods(&self, slices: &[&Slice], services: usize) -> Pods {
        // A pod with addresses of both families is in slices of both. Pods of one node may share its address, at ports of their own.
        let mut families: [BTreeMap<IpAddr, BTreeSet<u16>>; 2] = Default::default();
        for slice in slices {
            let port = self.port_in(slice);
            for address in &slice.ready {
                families[usize::from(address.is_ipv6())].entry(*address).or_default().extend(port);
            }
        }
        let count =
            |family: &BTreeMap<IpAddr, BTreeSet<u16>>| family.values().map(|ports| ports.len().max(1)).sum::<usize>();
        let [four, six] = families;
        let pods = if count(&six) > count(&four) { six } else { four };
        let most = MOST_OF_ONE.min(MOST_OF_ALL / services.max(1)).max(1);
        let at = |(address, ports): (&IpAddr, &BTreeSet<u16>)| {
            let address = *address;
            ports.clone().into_iter().map(move |port| SocketAddr::new(address, port))
        };
        let portless = pods.values().filter(|ports| ports.is_empty()).count();
        Pods { ready: count(&pods), portless, pages: sample(pods.iter().flat_map(at).collect(), most) }
    }

    /// Where the page is, at the pods of a slice: the first port where nothing else was said.
    fn port_in(&self, slice: &Slice) -> Option<u16> {
        match &self.port {
            Some(Port::Number(number)) => Some(*number),
            Some(Port::Name(wanted)) => slice.ports.iter().find(|(name, _)| name == wanted).map(|(_, port)| *port),
            None => slice.ports.first().map(|(_, port)| *port),
        }
    }
}

/// The same ones as long as they are there, as rates follow from two pages of one pod; and not those of one node, whose addresses are neighbours.
fn sample(pages: BTreeSet<SocketAddr>, most: usize) -> Vec<SocketAddr> {
    let mut pages: Vec<SocketAddr> = pages.into_iter().collect();
    if pages.len() > most {
        pages.sort_by_cached_key(|page| scattered(*page));
        pages.truncate(most);
    }
    pages
}

/// FNV-1a: an order that has nothing to do with the addresses', and is the same in every process.
fn scattered(page: SocketAddr) -> u64 {
    let octets = match page.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    octets
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, octet| (hash ^ u64::from(*octet)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, service: &str, ready: &[&str], ports: &[(&str, u16)]) -> Slice {
        Slice {
            place: Place { namespace: "shop".into(), name: name.into() },
            service: service.into(),
            ready: ready.iter().map(|address| address.parse().unwrap()).collect(),
            ports: ports.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect(),
        }
    }

    fn service(text: &str) -> Service {
        text.parse().unwrap()
    }

    fn of(endpoints: &Endpoints, text: &str) -> Option<Pods> {
        endpoints.pods(&[service(text)]).pop().unwrap()
    }

    fn pages(pages: &[&str]) -> Vec<SocketAddr> {
        pages.iter().map(|page| page.parse().unwrap()).collect()
    }

    #[test]
    fn a_service_is_written_with_or_without_a_port() {
        assert_eq!(service("shop/web").port, None);
        assert_eq!(service("shop/web:9090").port, Some(Port::Number(9090)));
        assert_eq!(service("shop/web:metrics").port, Some(Port::Name("metrics".into())));
        for wrong in
            ["", "web", "/web", "shop/", "shop/web:", "shop/web:0", "shop/web:99999", "Shop/web", "shop/w.b", "a/b/c"]
        {
            assert_eq!(wrong.parse::<Service>(), Err(ServiceError), "{wrong}");
        }
    }

    #[test]
    fn pods_are_counted_once_and_found_at_their_port() {
        let mut endpoints = Endpoints::default();
        assert_eq!(of(&endpoints, "shop/web"), None, "nobody has listed them yet");
        endpoints.hear_of_slices(
            0,
            Followed::Listed(vec![
                slice("web-1", "web", &["10.0.0.1", "10.0.0.2"], &[("http", 80), ("metrics", 9090)]),
                slice("web-2", "web", &["10.0.0.2", "10.0.0.3"], &[("http", 80)]),
                slice("web-6", "web", &["2001:db8::1"], &[("http", 80)]),
                slice("node-1", "node", &["10.0.0.9"], &[("http", 80)]),
                slice("node-2", "node", &["10.0.0.9"], &[("http", 81)]),
                slice("api-1", "api", &[], &[]),
            ]),
        );
        let pods = |text| of(&endpoints, text).unwrap();
        assert_eq!(
            pods("shop/web"),
            Pods { ready: 3, portless: 0, pages: pages(&["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]) }
        );
        assert_eq!(
            pods("shop/web:metrics"),
            Pods { ready: 3, portless: 1, pages: pages(&["10.0.0.1:9090", "10.0.0.2:9090"]) }
        );
        assert_eq!(pods("shop/web:1").pages, pages(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]));
        assert_eq!(pods("shop/node").pages, pages(&["10.0.0.9:80", "10.0.0.9:81"]));
        assert_eq!(pods("shop/api"), Pods { ready: 0, portless: 0, pages: vec![] });
        assert_eq!(of(&endpoints, "shop/other"), None);
        assert_eq!(of(&endpoints, "blog/web"), None);
        endpoints.hear_of_slices(0, Followed::Away("gone".into()));
        endpoints.hear_of_slices(0, Followed::Gone(Place { namespace: "shop".into(), name: "web-1".into() }));
        assert_eq!(of(&endpoints, "shop/web").unwrap().ready, 2);
    }

    #[test]
    fn a_sample_speaks_for_many_and_stays_the_same() {
        let addresses: Vec<String> = (0..2000).map(|n| format!("10.0.{}.{}", n / 250, n % 250)).collect();
        let mut ready: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let sampled = |ready: &[&str], services| {
            let mut endpoints = Endpoints::default();
            endpoints.hear_of_slices(0, Followed::Listed(vec![slice("web-1", "web", ready, &[("", 80)])]));
            endpoints.pods(&vec![service("shop/web"); services]).pop().unwrap().unwrap()
        };
        let first = sampled(&ready, 1);
        assert_eq!((first.ready, first.pages.len()), (2000, 500));
        assert_eq!(sampled(&ready, 1000).pages.len(), 2, "many services share what can be read in a second");
        ready.remove(1000);
        let second = sampled(&ready, 1);
        let stayed = second.pages.iter().filter(|page| first.pages.contains(page)).count();
        assert!(stayed >= 499, "{stayed}");
    }
    #[test]
    fn ingresses_of_the_class_name_services_beside_those_that_were_given() {
        let ingress = |namespace: &str, name: &str, class: Option<&str>, services: &[&str]| Backends {
            place: Place { namespace: namespace.into(), name: name.into() },
            class: class.map(str::to_owned),
            services: services.iter().map(|&service| service.to_owned()).collect(),
        };
        let class = Some("nginx");
        let mut endpoints = Endpoints::default();
        let wanted = Wanted {
            services: vec![service("shop/web:1")],
            class: class.map(str::to_owned),
            port: "metrics".parse().ok(),
        };
        let mut hear = |news| {
            endpoints.hear(PodNews::Ingresses(news), class);
            let services = endpoints.services(&wanted);
            assert_eq!(services[0], service("shop/web:1"));
            assert!(services[1..].iter().all(|service| service.port == Some(Port::Name("metrics".into()))));
            services[1..].iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let listed = vec![
            ingress("shop", "a", class, &["web", "api"]),
            ingress("blog", "a", class, &["web"]),
            ingress("shop", "b", class, &["api"]),
            ingress("shop", "c", Some("other"), &["others"]),
            ingress("shop", "d", None, &["nobodys"]),
        ];
        assert_eq!(hear(Followed::Listed(listed)), ["blog/web", "shop/api"]);
        assert_eq!(hear(Followed::Away(String::new())), ["blog/web", "shop/api"]);
        assert_eq!(hear(Followed::Changed(ingress("blog", "a", Some("other"), &["web"]))), ["shop/api"]);
        assert_eq!(hear(Followed::Gone(Place { namespace: "shop".into(), name: "a".into() })), ["shop/api"]);
        assert_eq!(hear(Followed::Gone(Place { namespace: "shop".into(), name: "b".into() })), [""; 0]);
        let many: Vec<String> = (0..2000).map(|number| format!("s{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(hear(Followed::Changed(ingress("shop", "a", class, &many))).len(), MAX_SERVICES - 1);
    }
}
