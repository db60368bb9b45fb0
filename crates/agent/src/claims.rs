//! Claims as they are sent to the hub: how they are told apart, and how much goes into one request.

use manifest::agents::{ClaimChanges, Claims, MAX_BODY};
use manifest::dns_endpoint::EndpointSpec;
use ring::digest::{SHA256, digest};

use crate::link::json_size;

/// Of a request, in octets: half of what the hub takes.
const LARGEST: usize = MAX_BODY / 2;
/// Keys in one request: all of it is kept or nothing, and a hub writes an object for each.
const MOST_KEYS: usize = 256;
/// Of one key's endpoints, in octets: an object of a hub holds 1.5 MiB, and its bookkeeping takes a part of that.
pub(crate) const LARGEST_OBJECT: usize = 768 << 10;

/// What stands under a key, to be compared.
pub(crate) type Digest = [u8; 32];

pub(crate) fn digest_of(endpoints: &[EndpointSpec]) -> Digest {
    // Without labels, which are ExternalDNS' notes: a hub need not keep them.
    let plain: Vec<EndpointSpec> = endpoints.iter().map(without_labels).collect();
    let text = serde_json::to_vec(&plain).unwrap_or_default();
    digest(&SHA256, &text).as_ref().try_into().unwrap_or_default()
}

pub(crate) fn without_labels(endpoint: &EndpointSpec) -> EndpointSpec {
    EndpointSpec { labels: std::collections::BTreeMap::new(), ..endpoint.clone() }
}

/// As few requests as the bounds allow, each of which can be kept by itself.
pub(crate) fn batches(set: Vec<Claims>, delete: Vec<String>) -> Vec<ClaimChanges> {
    let mut batches = Vec::new();
    let (mut batch, mut size) = (ClaimChanges::default(), 0);
    let mut flush = |batch: &mut ClaimChanges, size: &mut usize| {
        *size = 0;
        batches.push(std::mem::take(batch));
    };
    // What goes makes room, for a quota's sake.
    for key in delete {
        if count(&batch) >= MOST_KEYS {
            flush(&mut batch, &mut size);
        }
        size += json_size(&key);
        batch.delete.push(key);
    }
    for claims in set {
        let more = json_size(&claims);
        if count(&batch) >= MOST_KEYS || (count(&batch) > 0 && size + more > LARGEST) {
            flush(&mut batch, &mut size);
        }
        size += more;
        batch.set.push(claims);
    }
    if count(&batch) > 0 {
        batches.push(batch);
    }
    batches
}

/// Two requests instead of one that was refused; `None` if it is about one key only.
pub(crate) fn halves(changes: ClaimChanges) -> Result<[ClaimChanges; 2], ClaimChanges> {
    if count(&changes) < 2 {
        return Err(changes);
    }
    let ClaimChanges { mut set, mut delete } = changes;
    let half = usize::midpoint(set.len(), delete.len());
    let second = if delete.len() > half {
        ClaimChanges { delete: delete.split_off(half), set: std::mem::take(&mut set) }
    } else {
        ClaimChanges { set: set.split_off(half - delete.len()), delete: Vec::new() }
    };
    Ok([ClaimChanges { set, delete }, second])
}

pub(crate) fn count(changes: &ClaimChanges) -> usize {
    changes.set.len() + changes.delete.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claims(number: usize, size: usize) -> Claims {
        let endpoint = EndpointSpec { dns_name: "x".repeat(size), ..EndpointSpec::default() };
        Claims { key: format!("sync/a/{number}"), endpoints: vec![endpoint] }
    }

    #[test]
    fn labels_make_no_difference() {
        let plain = EndpointSpec { dns_name: "a.test".into(), ..EndpointSpec::default() };
        let labels = [("owner".to_owned(), "x".to_owned())].into();
        let labelled = EndpointSpec { labels, ..plain.clone() };
        assert_eq!(digest_of(std::slice::from_ref(&plain)), digest_of(&[labelled]));
        assert_ne!(digest_of(std::slice::from_ref(&plain)), digest_of(&[plain.clone(), plain.clone()]));
    }

    proptest! {
        #[test]
        fn batches_and_halves_lose_nothing_and_keep_to_the_bounds(
            sizes in proptest::collection::vec(0..LARGEST / 3, 0..8), small in 0..600_usize, gone in 0..600_usize,
        ) {
            let sizes = sizes.into_iter().chain(std::iter::repeat_n(1, small));
            let set: Vec<Claims> = sizes.enumerate().map(|(number, size)| claims(number, size)).collect();
            let delete: Vec<String> = (0..gone).map(|number| format!("sync/b/{number}")).collect();
            let batches = batches(set.clone(), delete.clone());
            prop_assert_eq!(batches.iter().flat_map(|batch| batch.set.clone()).collect::<Vec<_>>(), set);
            prop_assert_eq!(batches.iter().flat_map(|batch| batch.delete.clone()).collect::<Vec<_>>(), delete);
            for batch in batches {
                prop_assert!((1..=MOST_KEYS).contains(&count(&batch)));
                prop_assert!(json_size(&batch) <= MAX_BODY);
                match halves(batch.clone()) {
                    Err(whole) => prop_assert!(count(&whole) == 1 && whole == batch),
                    Ok([first, second]) => {
                        prop_assert!(count(&first) > 0 && count(&second) > 0);
                        prop_assert_eq!([first.set, second.set].concat(), batch.set);
                        prop_assert_eq!([first.delete, second.delete].concat(), batch.delete);
                    }
                }
            }
        }
    }
}
