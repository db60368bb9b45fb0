//! Under which keys the endpoints of a `DNSEndpoint` stand at the hub.

use kubernetes::sources::Place;
use manifest::agents::{Claims, MAX_ENDPOINTS};
use manifest::dns_endpoint::EndpointSpec;
use ring::digest::{SHA256, digest};

use crate::claims::LARGEST_OBJECT;
use crate::link::{hex, json_size};

/// What is ours at the hub.
pub(super) const PREFIX: &str = "sync/";
/// A key has 253 octets at most, and the number of a part needs some.
const LONGEST: usize = 240;

/// `sync/NAMESPACE/NAME`. No name begins with a hyphen: a long one is told by its digest.
pub(super) fn base(place: &Place) -> String {
    let Place { namespace, name } = place;
    let whole = format!("{PREFIX}{namespace}/{name}");
    if whole.len() <= LONGEST {
        return whole;
    }
    format!("{PREFIX}{namespace}/-{}", &hex(digest(&SHA256, name.as_bytes()).as_ref())[..32])
}

/// The key without the number of its part: an object with more endpoints than a hub's object holds has several.
pub(super) fn base_of(key: &str) -> &str {
    let end = key.match_indices('/').nth(2).map_or(key.len(), |(at, _)| at);
    &key[..end]
}

pub(super) fn namespace_of(key: &str) -> Option<&str> {
    key.strip_prefix(PREFIX)?.split('/').next()
}

/// All endpoints, in their order. Labels are notes of ExternalDNS' and stay here.
pub(super) fn claims(place: &Place, endpoints: &[EndpointSpec]) -> Vec<Claims> {
    let base = base(place);
    let mut parts: Vec<Claims> = Vec::new();
    let mut size = 0;
    for endpoint in endpoints {
        let more = json_size(endpoint);
        let full = |part: &Claims| part.endpoints.len() >= MAX_ENDPOINTS || size + more > LARGEST_OBJECT;
        if parts.last().is_none_or(full) {
            let key = if parts.is_empty() { base.clone() } else { format!("{base}/{}", parts.len()) };
            parts.push(Claims { key, endpoints: Vec::new() });
            size = 0;
        }
        size += more;
        if let Some(part) = parts.last_mut() {
            part.endpoints.push(endpoint.clone());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(namespace: &str, name: &str) -> Place {
        Place { namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn keys_keep_to_what_the_hub_takes_and_tell_objects_apart() {
        let long = "x".repeat(253);
        let other = format!("{}y", "x".repeat(252));
        for (place, expected) in [
            (place("shop", "web"), Some("sync/shop/web")),
            (place("shop", "web.example"), Some("sync/shop/web.example")),
            (place(&"n".repeat(63), &long), None),
        ] {
            let key = base(&place);
            assert!(key.len() <= LONGEST && expected.is_none_or(|expected| key == expected), "{key}");
            assert!(
                key.bytes()
                    .all(|octet| octet.is_ascii_lowercase() || octet.is_ascii_digit() || b"./-".contains(&octet))
            );
            assert_eq!(namespace_of(&key), Some(&*place.namespace));
            assert_eq!(base_of(&format!("{key}/12")), key);
            assert_eq!(base_of(&key), key);
        }
        assert_ne!(base(&place("shop", &long)), base(&place("shop", &other)));
    }

    #[test]
    fn an_object_with_many_endpoints_has_several_keys() {
        let endpoint = |number: usize, size: usize| EndpointSpec {
            dns_name: number.to_string(),
            targets: vec!["x".repeat(size)],
            ..EndpointSpec::default()
        };
        for (count, size, expected) in
            [(0, 1, vec![]), (1000, 1, vec![1000]), (2001, 1, vec![1000, 1000, 1]), (4, LARGEST_OBJECT / 3, vec![2, 2])]
        {
            let endpoints: Vec<_> = (0..count).map(|number| endpoint(number, size)).collect();
            let parts = claims(&place("shop", "web"), &endpoints);
            assert_eq!(parts.iter().map(|part| part.endpoints.len()).collect::<Vec<_>>(), expected);
            assert_eq!(parts.iter().flat_map(|part| part.endpoints.clone()).collect::<Vec<_>>(), endpoints);
            let keys: Vec<_> = parts.iter().map(|part| part.key.as_str()).collect();
            assert_eq!(keys, ["sync/shop/web", "sync/shop/web/1", "sync/shop/web/2"][..parts.len()]);
        }
    }
}
