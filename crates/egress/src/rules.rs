//! The rules of the packet filter that lead a pod's connections to its side-car.

use std::fmt::Write as _;

use model::Cidr;

/// What is redirected where.
#[derive(Debug, Clone)]
pub struct Rules<'a> {
    /// The tenant's networks of Services and pods.
    pub networks: &'a [Cidr],
    /// Addresses among them that are not the tenant's, such as the gateway's.
    pub except: &'a [Cidr],
    /// The side-car's.
    pub port: u16,
    /// The side-car's user, whose own connections are left alone.
    pub user: u32,
}

impl Rules<'_> {
    /// For `nft -f -`. Loaded again it replaces what was there.
    pub fn to_nft(&self) -> String {
        let mut text = String::from(
            "# The connections of this pod into its tenant's networks go through the side-car (nft -f -).\n\
             table inet fleetgate_egress\n\
             delete table inet fleetgate_egress\n\
             table inet fleetgate_egress {\n    chain output {\n        type nat hook output priority -100; policy accept;\n",
        );
        // Writing to a text cannot fail.
        let _ = writeln!(text, "        meta skuid {} accept", self.user);
        for (networks, verdict) in
            [(self.except, "accept".to_owned()), (self.networks, format!("redirect to :{}", self.port))]
        {
            for (family, is_v4) in [("ip", true), ("ip6", false)] {
                let of_it = networks.iter().filter(|network| network.network().is_ipv4() == is_v4);
                let set: Vec<String> = of_it.map(ToString::to_string).collect();
                if !set.is_empty() {
                    let _ =
                        writeln!(text, "        meta l4proto tcp {family} daddr {{ {} }} {verdict}", set.join(", "));
                }
            }
        }
        text.push_str("    }\n}\n");
        text
    }
}
