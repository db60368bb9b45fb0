//! A fleet of any size: one zone, a hundred tenants, clusters of two nodes each. As manifests, and as the facts that
//! reading them gives, so that all benchmarks measure with the same fleet.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use manifest::{Document, Value};
use model::resource::Cluster;
use model::{DnsName, Fact, FactChange, Since, Timestamp};

pub const DOMAIN: &str = "fleet.example";
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const TENANTS: u32 = 100;
/// Node addresses count up from here: room for eight million clusters.
const FIRST_NODE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);

/// One cluster of the fleet, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Member(pub u32);

impl Member {
    pub fn name(self) -> String {
        format!("c{:06}", self.0)
    }

    /// Points at the gateway.
    pub fn api_name(self) -> DnsName {
        parse_name(&format!("api.{}.{DOMAIN}", self.name()))
    }

    /// A name of one of its applications, which points at its nodes.
    pub fn app_name(self) -> DnsName {
        parse_name(&format!("shop.{}.{DOMAIN}", self.name()))
    }

    pub fn nodes(self) -> [Ipv4Addr; 2] {
        let first = u32::from(FIRST_NODE) + 2 * self.0;
        [first, first + 1].map(Ipv4Addr::from)
    }

    pub fn manifest(self, api_server: SocketAddr) -> String {
        self.manifest_of(&format!("t{:02}", self.0 % TENANTS), api_server)
    }

    /// The same as a cluster of this tenant's.
    pub fn manifest_of(self, tenant: &str, api_server: SocketAddr) -> String {
        let (name, [n1, n2]) = (self.name(), self.nodes());
        format!(
            "\
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec:
  tenant: {tenant}
  zone: main
  location: {{region: eu-west}}
  controlPlane:
    kubeApiserver: {{addresses: [\"{api_server}\"]}}
  nodes:
  - {{name: {name}-n1, addresses: [{n1}], ready: true}}
  - {{name: {name}-n2, addresses: [{n2}], ready: true}}
"
        )
    }

    /// What its manifest means.
    pub fn cluster(self, api_server: SocketAddr) -> Cluster {
        let text = self.manifest(api_server);
        let read = manifest::read(&Document { first_line: 1, text: &text }, &mut manifest::nothing_named)
            .expect("the fleet's manifests are valid");
        let Value::Cluster(cluster) = read.value else { panic!("a cluster's manifest is a cluster") };
        *cluster
    }

    /// The fact that it is there, first seen in the order of the numbers.
    pub fn fact(self, cluster: Cluster) -> FactChange {
        let since = Since::at(Timestamp(1 + u64::from(self.0)));
        FactChange::Cluster(cluster.name.clone(), Some(Fact::new(since, cluster)))
    }
}

/// The zone and the tenants.
pub fn ground_manifest() -> String {
    let mut text = format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {{name: main}}
spec:
  domain: {DOMAIN}
  nameservers: [{{name: ns1.{DOMAIN}, addresses: [127.0.0.1]}}]
  gateway: {{addresses: [{GATEWAY}]}}
"
    );
    for tenant in 0..TENANTS {
        let document = format!(
            "---\napiVersion: fleetgate.dev/v1alpha1\nkind: Tenant\nmetadata: {{name: t{tenant:02}}}\nspec: {{}}\n"
        );
        text.push_str(&document);
    }
    text
}

/// What [`ground_manifest`] means.
pub fn ground_facts() -> Vec<FactChange> {
    let text = ground_manifest();
    let since = Since::at(Timestamp(0));
    let fact = |document: Document<'_>| {
        let read = manifest::read(&document, &mut manifest::nothing_named).expect("the fleet's manifests are valid");
        read.into_fact(since.clone(), None)
    };
    manifest::split(&text).map(fact).collect()
}

/// The manifests of many clusters in one file.
pub fn manifests(members: impl Iterator<Item = Member>, api_server: SocketAddr) -> String {
    members.fold(String::new(), |mut text, member| {
        // Writing to a String cannot fail.
        let _ = write!(text, "---\n{}", member.manifest(api_server));
        text
    })
}

fn parse_name(text: &str) -> DnsName {
    DnsName::parse(text).expect("the fleet's names are names")
}
