//! `kind: AddressPool`, `kind: AddressClaim`, and `kind: Address`, which says who has which.

use std::net::IpAddr;
use std::time::Duration;

use kube::CustomResource;
use model::address::{AddressClaim as ModelClaim, AddressName, AddressPool as ModelPool, Allocation, ClaimId, Reverse};
use model::name::MAX_NAME;
use model::{Cidr, ClusterName, DnsName, ObjectName, pool, reverse};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::{Line, List};
use crate::status::{AddressClaimStatus, AddressPoolStatus};
use crate::text::{Check, Moment, Namespace, Span, Text, checked, within};
use crate::zone::MAX_TTL;

/// The largest ranges: more is nobody's pool, and whole reverse trees would be ours to answer for.
const MIN_PREFIX_V4: u8 = 8;
const MIN_PREFIX_V6: u8 = 16;
/// All of them stand in the status of the pool, with their numbers; 256 are a /16 cut into /24.
const MAX_ZONES: usize = 256;
/// An IPv6 address with all its digits as a label: 39 characters behind their length.
const ADDRESS_LABEL: usize = 40;

/// Public addresses that tenants can claim, and who answers for their reverse zones.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "AddressPool",
    plural = "addresspools",
    category = "fleetgate",
    doc = "Public addresses that tenants can claim, and who answers for their reverse zones.",
    status = "AddressPoolStatus",
    printcolumn(name = "CIDRs", type_ = "string", json_path = ".spec.cidrs"),
    printcolumn(name = "Given", type_ = "integer", json_path = ".status.given"),
    printcolumn(name = "Resting", type_ = "integer", json_path = ".status.resting"),
    printcolumn(name = "Accepted", type_ = "string", json_path = ".status.conditions[?(@.type==\"Accepted\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.cidrs.all(c, !isCIDR(c) || cidr(c).prefixLength() >= (cidr(c).ip().family() == 4 ? 8 : 16))",
    "message": "a pool's ranges are /8 (IPv4) and /16 (IPv6) at most",
}]))]
pub struct AddressPoolSpec {
    /// The ranges, IPv4 and IPv6; the largest are /8 and /16. No other pool's may overlap with them. The first and the last
    /// address of an IPv4 range are never given (but of /31 and /32), nor is the first of an IPv6 range (but of /127 and /128).
    pub cidrs: List<Text<Cidr>, 64, 1>,
    /// The reverse zones of the ranges, 256 at most, which we answer for: one for each octet or nibble boundary, such as
    /// `100.51.198.in-addr.arpa` for 198.51.100.0/24. An IPv4 range smaller than /24 has a classless one (RFC 2317), such as
    /// `64-26.2.0.192.in-addr.arpa` for 192.0.2.64/26: whoever has the zone above it delegates it and adds a CNAME for each
    /// address, here `70.2.0.192.in-addr.arpa CNAME 70.64-26.2.0.192.in-addr.arpa`. IPv6 ranges smaller than /124 likewise.
    #[serde(default, deserialize_with = "checked")]
    pub reverse: ReverseSpec,
    /// How long an address rests after its claim is gone, before somebody else can have it: until nobody remembers any more
    /// what it was. Never shorter than the TTL of the reverse zones.
    #[serde(default = "default_quarantine")]
    pub quarantine: Text<Span>,
}

/// The reverse zones of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": r"!has(self.domain) || self.domain.contains('\\') || size(self.domain) <= (self.domain.endsWith('.') ? 214 : 213)",
    "message": "domain leaves no room for an address before it",
}]))]
pub struct ReverseSpec {
    /// Who answers for them, by names outside of them; the first one becomes the SOA's primary. Without any the pool has
    /// no reverse zones.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub nameservers: List<Text<DnsName>, 16>,
    /// Where the names of addresses lie whose claim gives none, or none that it may have: `198-51-100-7.<domain>`, or all eight
    /// groups of an IPv6 address. By default the domain of the first name server: `fleet.example` for `ns1.fleet.example`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Text<DnsName>>,
    /// The TTL of every record in them, and of negative answers, in seconds.
    #[serde(default = "default_ttl", deserialize_with = "within::<_, 0, MAX_TTL>")]
    #[schemars(range(min = 0, max = MAX_TTL))]
    pub ttl: u32,
}

/// A tenant's wish for one address of a pool; `status.address` is ours to give.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "AddressClaim",
    plural = "addressclaims",
    category = "fleetgate",
    doc = "A tenant's wish for one address of a pool; `status.address` is ours to give.",
    namespaced,
    status = "AddressClaimStatus",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "Accepted", type_ = "string", json_path = ".status.conditions[?(@.type==\"Accepted\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.address) || !isIP(self.address) || (ip(self.address).family() == 4) == (self.family == 'IPv4')",
    "message": "the address is not of the family",
}]))]
pub struct AddressClaimSpec {
    /// The `AddressPool` that the address comes from.
    pub pool: Text<ObjectName>,
    /// Which kind of address.
    pub family: Family,
    /// The cluster that uses the address; one of the tenant's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Text<ClusterName>>,
    /// The name that the address resolves to, by a PTR record; one of the tenant's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptr: Option<Text<DnsName>>,
    /// A wish for one particular address of the pool; any free one when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Text<IpAddr>>,
}

/// One address that was given to a claim. Written by us and by nobody else, beforehand: its name is the address, so that of
/// two who would give the same one only the first is let.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "Address",
    plural = "addresses",
    category = "fleetgate",
    doc = "One address that was given to a claim. Written by us and by nobody else, beforehand: its name is the address (IPv6 with all digits, and - between the groups), so that of two who would give the same one only the first is let.",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.claim.namespace"),
    printcolumn(name = "Claim", type_ = "string", json_path = ".spec.claim.name"),
    printcolumn(name = "Resting until", type_ = "string", json_path = ".spec.releasedUntil"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressSpec {
    /// The `AddressPool` that it came from.
    pub pool: Text<ObjectName>,
    /// Who has it, or had it last.
    pub claim: ClaimRefSpec,
    /// The claim is gone; until then nobody else gets the address, and afterwards this object goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_until: Option<Text<Moment>>,
}

/// An `AddressClaim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimRefSpec {
    /// The namespace that the claim is in.
    pub namespace: Text<Namespace>,
    /// The name of the claim.
    pub name: Text<ObjectName>,
    /// Its UID: a claim that was deleted and made anew has another.
    pub uid: Text<Line<128>>,
}

/// `IPv4` or `IPv6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Family {
    IPv4,
    IPv6,
}

fn default_ttl() -> u32 {
    300
}

fn default_quarantine() -> Text<Span> {
    Text(Span(Duration::from_hours(1)))
}

impl Default for ReverseSpec {
    fn default() -> Self {
        Self { nameservers: List::default(), domain: None, ttl: default_ttl() }
    }
}

impl Check for AddressPoolSpec {
    fn check(&self) -> Result<(), String> {
        let shortest = |range: &Cidr| if range.network().is_ipv4() { MIN_PREFIX_V4 } else { MIN_PREFIX_V6 };
        match self.cidrs.iter().find(|range| range.0.prefix_len() < shortest(&range.0)) {
            Some(range) => Err(format!("{} is too large for a pool; give a /{} at most", range.0, shortest(&range.0))),
            None if !self.reverse.nameservers.is_empty() && self.zone_count() > MAX_ZONES => {
                Err(format!("the pool has more than {MAX_ZONES} reverse zones; make several of it"))
            }
            None => Ok(()),
        }
    }
}

impl Check for ReverseSpec {
    fn check(&self) -> Result<(), String> {
        match self.domain() {
            Some(domain) if domain.as_wire().len() + ADDRESS_LABEL > MAX_NAME => {
                Err("reverse.domain leaves no room for an address before it; give a shorter one".into())
            }
            _ => Ok(()),
        }
    }
}

impl Check for AddressClaimSpec {
    fn check(&self) -> Result<(), String> {
        match &self.address {
            Some(address) if address.0.is_ipv4() != (self.family == Family::IPv4) => {
                Err(format!("address {} is not of family {:?}", address.0, self.family))
            }
            _ => Ok(()),
        }
    }
}

impl Check for AddressSpec {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl AddressPoolSpec {
    fn zone_count(&self) -> usize {
        self.cidrs.iter().map(|range| reverse::zones_of(&range.0).len()).sum()
    }

    pub fn into_model(self, name: ObjectName) -> ModelPool {
        let Self { cidrs, reverse, quarantine } = self;
        ModelPool { name, ranges: Text::list(&cidrs), reverse: reverse.into_model(), quarantine: quarantine.0.0 }
    }
}

impl ReverseSpec {
    /// The first name server's where none is given; one of a single label has none but itself.
    fn domain(&self) -> Option<DnsName> {
        let of_server = |server: &DnsName| server.parent().filter(|parent| !parent.is_root()).unwrap_or(server.clone());
        let given = self.domain.as_ref().map(|domain| domain.0.clone());
        given.or_else(|| self.nameservers.first().map(|server| of_server(&server.0)))
    }

    fn into_model(self) -> Option<Reverse> {
        let domain = self.domain().filter(|_| !self.nameservers.is_empty())?;
        let mut nameservers = Text::list(&self.nameservers);
        let mut seen = Vec::new();
        nameservers.retain(|name| {
            let new = !seen.contains(name);
            seen.push(name.clone());
            new
        });
        Some(Reverse { nameservers, domain, ttl: self.ttl })
    }
}

impl AddressClaimSpec {
    pub fn into_model(self) -> ModelClaim {
        ModelClaim {
            pool: self.pool.0,
            family: self.family.into(),
            cluster: self.cluster.map(|cluster| cluster.0),
            ptr: self.ptr.map(|ptr| ptr.0),
            address: self.address.map(|address| address.0),
        }
    }
}

impl AddressSpec {
    pub fn into_model(self) -> Allocation {
        Allocation {
            pool: self.pool.0,
            claim: ClaimId { namespace: self.claim.namespace.0.0, name: self.claim.name.0 },
            uid: self.claim.uid.0.0.into(),
            released_until: self.released_until.map(|until| until.0.0),
        }
    }
}

impl From<&Allocation> for AddressSpec {
    fn from(allocation: &Allocation) -> Self {
        let ClaimId { namespace, name } = &allocation.claim;
        Self {
            pool: Text(allocation.pool.clone()),
            claim: ClaimRefSpec {
                namespace: Text(Namespace(namespace.clone())),
                name: Text(name.clone()),
                uid: Text(Line(allocation.uid.to_string())),
            },
            released_until: allocation.released_until.map(|until| Text(Moment(until))),
        }
    }
}

/// The address that an `Address` object's name stands for.
pub fn of_name(name: &ObjectName) -> Result<IpAddr, String> {
    let parsed = name.as_str().parse::<AddressName>();
    parsed.map(|name| name.0).map_err(|wrong| wrong.to_string())
}

impl From<Family> for pool::Family {
    fn from(family: Family) -> Self {
        match family {
            Family::IPv4 => Self::V4,
            Family::IPv6 => Self::V6,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Timestamp;
    use serde_json::json;

    use super::*;

    fn pool(spec: serde_json::Value) -> Result<ModelPool, String> {
        let spec: AddressPoolSpec = serde_json::from_value(spec).map_err(|wrong| wrong.to_string())?;
        spec.check()?;
        Ok(spec.into_model("public".parse().unwrap()))
    }

    #[test]
    fn a_pool_has_a_domain_for_names_that_nobody_gives() {
        for (reverse, expected) in [
            (json!({"nameservers": ["ns1.fleet.example"]}), Some("fleet.example")),
            (json!({"nameservers": ["ns1.fleet.example"], "domain": "a.test"}), Some("a.test")),
            (json!({"nameservers": ["ns1"]}), Some("ns1")),
            (json!({"domain": "a.test"}), None),
            (json!({}), None),
        ] {
            let pool = pool(json!({"cidrs": ["192.0.2.0/24"], "reverse": reverse})).unwrap();
            assert_eq!(pool.reverse.map(|reverse| reverse.domain.to_string()).as_deref(), expected, "{reverse}");
        }
    }

    #[test]
    fn defaults_of_a_pool() {
        let pool = pool(json!({
            "cidrs": ["192.0.2.0/24", "2001:db8::/64"],
            "reverse": {"nameservers": ["ns1.a", "NS1.A.", "ns2.a"]},
        }))
        .unwrap();
        assert_eq!((pool.ranges.len(), pool.quarantine), (2, Duration::from_hours(1)));
        let reverse = pool.reverse.unwrap();
        assert_eq!((reverse.nameservers.len(), reverse.ttl), (2, 300));
    }

    #[test]
    fn pools_have_bounds() {
        let long =
            [["a"; 20].concat(), ["b"; 60].concat(), ["c"; 60].concat(), ["d"; 70].concat()[..63].into()].join(".");
        for (spec, expected) in [
            (json!({"cidrs": ["8.0.0.0/7"]}), "8.0.0.0/7 is too large for a pool; give a /8 at most"),
            (
                json!({"cidrs": ["10.0.0.0/9", "11.0.0.0/9", "12.0.0.0/16"], "reverse": {"nameservers": ["ns.a"]}}),
                "more than 256 reverse zones",
            ),
            (json!({"cidrs": ["192.0.2.0/24", "2000::/15"]}), "2000::/15 is too large for a pool; give a /16 at most"),
            (
                json!({"cidrs": ["10.0.0.0/8"], "reverse": {"nameservers": ["ns.a"], "domain": long.clone() + ".eeeeeee"}}),
                "leaves no room",
            ),
        ] {
            let wrong = pool(spec).unwrap_err();
            assert!(wrong.contains(expected), "{wrong}");
        }
        assert_eq!(long.len(), 206);
        pool(json!({"cidrs": ["10.0.0.0/8"], "reverse": {"nameservers": ["ns.a"], "domain": long + ".eeeeee"}}))
            .unwrap();
    }

    #[test]
    fn an_allocation_is_what_was_written() {
        let written = json!({
            "pool": "public",
            "claim": {"namespace": "acme", "name": "web", "uid": "5b9c1f8e-3a51-4d35-8d59-6f1e4c1c2b11"},
            "releasedUntil": "2026-01-31T12:00:00.5Z",
        });
        let spec: AddressSpec = serde_json::from_value(written.clone()).unwrap();
        let allocation = spec.clone().into_model();
        assert_eq!(allocation.released_until, Some(Timestamp(1_769_860_800_500_000_000)));
        assert_eq!(serde_json::to_value(AddressSpec::from(&allocation)).unwrap(), written);
        assert_eq!(of_name(&"198.51.100.7".parse().unwrap()), Ok("198.51.100.7".parse().unwrap()));
        assert!(of_name(&"web".parse().unwrap()).unwrap_err().contains("is no address"));
    }
}
