use manifest::agents::JudgedClaims;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn endpoint(name: &str, kind: &str, target: &str) -> EndpointSpec {
    EndpointSpec {
        dns_name: name.into(),
        record_type: kind.into(),
        targets: vec![target.into()],
        record_ttl: 60,
        ..EndpointSpec::default()
    }
}

fn changes(create: &[EndpointSpec], update: &[(EndpointSpec, EndpointSpec)], delete: &[EndpointSpec]) -> Changes {
    let (old, new): (Vec<_>, Vec<_>) = update.iter().cloned().unzip();
    let text = json!({ "create": create, "updateOld": old, "updateNew": new, "delete": delete }).to_string();
    serde_json::from_str(&text).unwrap()
}

/// A hub with these.
fn list(keys: &BTreeMap<String, Vec<EndpointSpec>>) -> ClaimList {
    let judged = |(key, endpoints): (&String, &Vec<EndpointSpec>)| JudgedClaims {
        key: key.clone(),
        endpoints: endpoints.clone(),
        digest: String::new(),
        verdicts: Vec::new(),
    };
    ClaimList { claims: keys.iter().map(judged).collect() }
}

fn send(keys: &mut BTreeMap<String, Vec<EndpointSpec>>, changes: Changes) {
    let applied = Kept::of(list(keys)).apply(changes);
    for key in applied.delete {
        assert!(keys.remove(&key).is_some(), "{key} was not there");
    }
    keys.extend(applied.set.into_iter().map(|claims| (claims.key, claims.endpoints)));
}

#[test]
fn one_change_rewrites_one_key() {
    let (web, api) = (endpoint("web.test", "A", "192.0.2.1"), endpoint("api.test", "A", "192.0.2.1"));
    let text = endpoint("web.test", "TXT", "\"heritage=external-dns\"");
    assert_ne!(key(&web), key(&api));
    let mut keys = BTreeMap::new();
    send(&mut keys, changes(&[web.clone(), text.clone(), api.clone()], &[], &[]));
    assert_eq!(keys.len(), 2, "the two of one name stand together");

    let other = endpoint("web.test", "A", "192.0.2.2");
    let applied = Kept::of(list(&keys)).apply(changes(&[], &[(web.clone(), other.clone())], &[]));
    assert_eq!((applied.set.len(), applied.delete.len()), (1, 0));
    assert_eq!(applied.set[0].endpoints, [other.clone(), text.clone()]);
    send(&mut keys, changes(&[], &[(web.clone(), other.clone())], &[]));
    let applied = Kept::of(list(&keys)).apply(changes(&[], &[], std::slice::from_ref(&api)));
    assert_eq!((applied.set.len(), applied.delete), (0, vec![key(&api)]));
    let again = Kept::of(list(&keys)).apply(changes(&[], &[(web, other)], &[]));
    assert_eq!(again, Applied::default(), "what is there already is no change");
}

#[test]
fn names_are_compared_as_dns_compares_them() {
    let mut keys = BTreeMap::new();
    send(&mut keys, changes(&[endpoint("Web.Test.", "a", "192.0.2.1")], &[], &[]));
    let gone = Kept::of(list(&keys)).apply(changes(&[], &[], &[endpoint("web.test", "A", "192.0.2.1")]));
    assert_eq!(gone.delete.len(), 1);
}

#[test]
fn what_is_there_is_judged_by_its_verdict_and_the_rest_is_asked_about() {
    let (web, api) = (endpoint("web.test", "A", "192.0.2.1"), endpoint("web.test", "AAAA", "2001:db8::A"));
    let refused = PartVerdict { code: "NotYours".into(), ..PartVerdict::default() };
    let claims = JudgedClaims {
        key: key(&web),
        endpoints: vec![web.clone(), api.clone()],
        digest: String::new(),
        verdicts: vec![PartVerdict { published: true, ..PartVerdict::default() }, refused.clone()],
    };
    let kept = Kept::of(ClaimList { claims: vec![claims.clone()] });
    let other = EndpointSpec { record_ttl: 61, ..web.clone() };
    let labelled = EndpointSpec { labels: [("owner".into(), "x".into())].into(), ..web.clone() };
    for (asked, expected) in [
        (&web, Judged::Kept),
        (&labelled, Judged::Kept),
        (&endpoint("web.test", "AAAA", "2001:DB8::a"), Judged::Refused(&refused)),
        (&other, Judged::Unknown),
        (&endpoint("web.test", "A", "192.0.2.2"), Judged::Unknown),
        (&endpoint("new.test", "A", "192.0.2.1"), Judged::Unknown),
    ] {
        let asked = EndpointSpec { record_ttl: if *asked == other { 61 } else { 60 }, ..asked.clone() };
        assert_eq!(kept.judged(&asked), expected, "{asked:?}");
    }
    let unjudged = Kept::of(ClaimList { claims: vec![JudgedClaims { verdicts: vec![], ..claims }] });
    assert_eq!(unjudged.judged(&api), Judged::Kept);
}

#[test]
fn what_there_is_no_room_for_does_not_hurt_the_others() {
    let many: Vec<_> = (0..=MAX_ENDPOINTS).map(|number| endpoint("web.test", &format!("TYPE{number}"), "x")).collect();
    let applied = Kept::default().apply(changes(&many, &[], &[]));
    assert_eq!((applied.set[0].endpoints.len(), applied.dropped.len()), (MAX_ENDPOINTS, 1));
    assert_eq!(applied.dropped[0].record, format!("web.test TYPE{MAX_ENDPOINTS}"));

    let large = endpoint("web.test", "TXT", &"x".repeat(LARGEST_OBJECT));
    let small = endpoint("web.test", "A", "192.0.2.1");
    let applied = Kept::default().apply(changes(&[large, small.clone()], &[], &[]));
    assert_eq!(applied.set[0].endpoints, [small]);
    assert_eq!(applied.dropped.len(), 1);
}

proptest! {
    /// ExternalDNS gets back what it asked for, however it came to it, and asking for the same again changes nothing.
    #[test]
    fn records_are_what_was_asked_for(
        rounds in proptest::collection::vec(proptest::collection::btree_map((0..20_u8, 0..3_usize), 0..4_u8, 0..12), 1..8),
    ) {
        let endpoint = |(name, kind): (u8, usize), target: u8| {
            endpoint(&format!("n{name}.test"), ["A", "AAAA", "TXT"][kind], &format!("192.0.2.{target}"))
        };
        let mut keys = BTreeMap::new();
        let mut before: BTreeMap<(u8, usize), u8> = BTreeMap::new();
        for wished in rounds {
            let create: Vec<_> = wished.iter().filter(|(at, _)| !before.contains_key(at))
                .map(|(at, target)| endpoint(*at, *target)).collect();
            let update: Vec<_> = wished.iter().filter_map(|(at, target)| {
                let old = *before.get(at).filter(|old| *old != target)?;
                Some((endpoint(*at, old), endpoint(*at, *target)))
            }).collect();
            let delete: Vec<_> = before.iter().filter(|(at, _)| !wished.contains_key(at))
                .map(|(at, target)| endpoint(*at, *target)).collect();
            let asked = changes(&create, &update, &delete);
            send(&mut keys, asked.clone());
            let kept = Kept::of(list(&keys));
            let mut records: Vec<EndpointSpec> = kept.endpoints().into_iter().cloned().collect();
            let mut expected: Vec<EndpointSpec> = wished.iter().map(|(at, target)| endpoint(*at, *target)).collect();
            records.sort_by_key(identity);
            expected.sort_by_key(identity);
            prop_assert_eq!(records, expected);
            prop_assert_eq!(kept.apply(asked), Applied::default());
            prop_assert!(keys.keys().all(|key| key.len() == PREFIX.len() + 2));
            before = wished;
        }
    }
}
