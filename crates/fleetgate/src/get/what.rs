//! What can be asked for.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use model::identity::Kind;

/// A kind of objects, or what is no object and can be asked for all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Objects(Kind),
    Names,
    Routes,
    Refusals,
}

/// What people ask for first stands first.
const ALL: [What; 14] = [
    What::Objects(Kind::Cluster),
    What::Objects(Kind::Zone),
    What::Objects(Kind::Tenant),
    What::Names,
    What::Routes,
    What::Refusals,
    What::Objects(Kind::AddressPool),
    What::Objects(Kind::AddressClaim),
    What::Objects(Kind::Address),
    What::Objects(Kind::FederationPolicy),
    What::Objects(Kind::DnsEndpoint),
    What::Objects(Kind::Ingress),
    What::Objects(Kind::IngressClass),
    What::Objects(Kind::Secret),
];

impl What {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Objects(kind) => kind.plural(),
            Self::Names => "names",
            Self::Routes => "routes",
            Self::Refusals => "refusals",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Names => "Everything that is in DNS, set by set",
            Self::Routes => "Every way in, and where it leads",
            Self::Refusals => "Everything that is refused, and why",
            Self::Objects(kind) => match kind {
                Kind::Cluster => "Tenant clusters, their API names and ready nodes",
                Kind::Zone => "DNS zones, and under which serial they are served",
                Kind::Tenant => "Who owns clusters",
                Kind::AddressPool => "Ranges that addresses are given from",
                Kind::AddressClaim => "Addresses that tenants asked for, in their namespaces",
                Kind::Address => "Addresses that are given",
                Kind::FederationPolicy => "How Ingresses of a class are placed and steered",
                Kind::DnsEndpoint => "Records that tenants publish, in their namespaces",
                Kind::Ingress => "Federated Ingresses, in tenants' namespaces",
                Kind::IngressClass => "Classes of Ingresses",
                Kind::Secret => "Certificates and keys of tenants, without what is secret",
            },
        }
    }

    pub(crate) fn is_namespaced(self) -> bool {
        matches!(self, Self::Objects(kind) if kind.is_namespaced())
    }
}

impl ValueEnum for What {
    fn value_variants<'a>() -> &'a [Self] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let singular = match self {
            // Its case does not count.
            Self::Objects(kind) => kind.as_str(),
            Self::Names => "name",
            Self::Routes => "route",
            Self::Refusals => "refusal",
        };
        Some(PossibleValue::new(self.word()).alias(singular).help(self.about()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_can_be_asked_for_as_people_write_it() {
        for kind in Kind::ALL {
            for word in [kind.as_str(), kind.plural()] {
                assert_eq!(What::from_str(word, true), Ok(What::Objects(kind)), "{word}");
            }
        }
        assert_eq!(What::from_str("Route", true), Ok(What::Routes));
        assert!(What::from_str("pods", true).is_err());
    }
}
