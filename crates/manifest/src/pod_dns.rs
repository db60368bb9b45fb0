//! What makes pods of a control plane ask the control planes' resolver: `dnsPolicy: None`, and this `dnsConfig`.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{PodDNSConfig, PodDNSConfigOption};
use model::{DnsName, ObjectName};

/// The label by which a pod asks for it: its value is the name of the Cluster whose control plane it belongs to.
pub const CONTROL_PLANE_LABEL: &str = "fleetgate.dev/control-plane";
/// The `dnsPolicy` beside it.
pub const POLICY: &str = "None";
const NDOTS: &str = "ndots";
/// The name of a webhook's Service, `name.namespace.svc`, is looked up below the search paths first; the name of a host on the
/// internet with three dots or more is not. With Kubernetes' 5 every such name would be asked for three times in vain.
const DOTS: &str = "3";
/// The API's own bounds on search paths: how many, and of how many characters together.
const MOST_SEARCHES: usize = 32;
const LONGEST_SEARCHES: usize = 2048;

/// Of one cluster.
#[derive(Debug, Clone, Copy)]
pub struct PodDns<'a> {
    /// Where the resolver answers as this cluster.
    pub address: IpAddr,
    /// Where on the hub its control plane runs.
    pub namespace: Option<&'a ObjectName>,
    /// What the hub's own Services are under.
    pub hub_domain: &'a DnsName,
    /// What the cluster's Services are under.
    pub domain: &'a DnsName,
}

impl PodDns<'_> {
    pub fn config(&self) -> PodDNSConfig {
        let option = PodDNSConfigOption { name: Some(NDOTS.into()), value: Some(DOTS.into()) };
        PodDNSConfig {
            nameservers: Some(vec![self.address.to_string()]),
            searches: Some(self.searches()),
            options: Some(vec![option]),
        }
    }

    /// The same beside what a pod has said itself. Its name servers go: of several, any is asked, and the others know nothing of
    /// the cluster. Its search paths come after ours, and its options win.
    pub fn beside(&self, own: PodDNSConfig) -> PodDNSConfig {
        let PodDNSConfig { nameservers, searches, options } = self.config();
        let mut searches = searches.unwrap_or_default();
        for path in own.searches.into_iter().flatten() {
            let length = searches.iter().map(|path| path.len() + 1).sum::<usize>() + path.len();
            if !searches.contains(&path) && searches.len() < MOST_SEARCHES && length <= LONGEST_SEARCHES {
                searches.push(path);
            }
        }
        let own: Vec<PodDNSConfigOption> = own.options.unwrap_or_default();
        let is_own = |option: &PodDNSConfigOption| own.iter().any(|own| own.name == option.name);
        let ours = options.into_iter().flatten().filter(|option| !is_own(option));
        let options: Vec<_> = ours.chain(own.iter().cloned()).collect();
        PodDNSConfig { nameservers, searches: Some(searches), options: Some(options) }
    }

    /// As the kubelet has them. The control plane's own namespace comes first: what it needs to start must not wait for a
    /// cluster that is away.
    fn searches(&self) -> Vec<String> {
        let hub = self.namespace.map(|namespace| format!("{namespace}.svc.{}", self.hub_domain));
        hub.into_iter().chain([format!("svc.{}", self.domain), self.domain.to_string()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(nameservers: &[&str], searches: &[&str], options: &[(&str, &str)]) -> PodDNSConfig {
        let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
        let option = |(name, value): &(&str, &str)| PodDNSConfigOption {
            name: Some((*name).to_owned()),
            value: Some((*value).to_owned()),
        };
        PodDNSConfig {
            nameservers: texts(nameservers),
            searches: texts(searches),
            options: Some(options.iter().map(option).collect()),
        }
    }

    #[test]
    fn what_a_pod_says_itself_comes_after_ours_but_for_its_options() {
        let (hub_domain, domain) = ("hub.local".parse().unwrap(), "cluster.local".parse().unwrap());
        let namespace = "cluster-c1".parse().unwrap();
        let address = "10.96.0.53".parse().unwrap();
        let dns = PodDns { address, namespace: Some(&namespace), hub_domain: &hub_domain, domain: &domain };
        let ours = ["cluster-c1.svc.hub.local", "svc.cluster.local", "cluster.local"];
        assert_eq!(dns.config(), own(&["10.96.0.53"], &ours, &[("ndots", "3")]));
        assert_eq!(dns.beside(PodDNSConfig::default()), dns.config());
        let said = own(&["10.0.0.10"], &["cluster.local", "corp.example"], &[("ndots", "5"), ("timeout", "1")]);
        let all = [&ours[..], &["corp.example"]].concat();
        assert_eq!(dns.beside(said), own(&["10.96.0.53"], &all, &[("ndots", "5"), ("timeout", "1")]));
        // Nowhere on the hub: no names there.
        let dns = PodDns { namespace: None, ..dns };
        assert_eq!(dns.config(), own(&["10.96.0.53"], &["svc.cluster.local", "cluster.local"], &[("ndots", "3")]));
    }

    #[test]
    fn search_paths_stay_within_what_the_api_takes() {
        let domain = "cluster.local".parse().unwrap();
        let dns = PodDns { address: [10, 0, 0, 1].into(), namespace: None, hub_domain: &domain, domain: &domain };
        let many: Vec<String> = (0..100).map(|number| format!("d{number}.example")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(dns.beside(own(&[], &many, &[])).searches.unwrap().len(), MOST_SEARCHES);
        let long: Vec<String> = (0..20).map(|number| format!("d{number}.{}.example", "x".repeat(200))).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let searches = dns.beside(own(&[], &long, &[])).searches.unwrap();
        assert!(searches.join(" ").len() <= LONGEST_SEARCHES && searches.len() > 8);
    }
}
