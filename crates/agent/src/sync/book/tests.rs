use manifest::agents::JudgedClaims;
use manifest::dns_endpoint::EndpointSpec;
use proptest::prelude::*;

use super::*;

fn place(namespace: &str, name: &str) -> Place {
    Place { namespace: namespace.into(), name: name.into() }
}

/// With one endpoint that leads to 192.0.2.`target`.
fn source(namespace: &str, name: &str, target: u8) -> Source {
    let endpoint = EndpointSpec {
        dns_name: format!("{name}.test"),
        record_type: "A".into(),
        targets: vec![format!("192.0.2.{target}")],
        ..EndpointSpec::default()
    };
    Source { place: place(namespace, name), uid: format!("uid-{name}"), generation: 1, endpoints: Ok(vec![endpoint]) }
}

fn listed(sources: Vec<Source>) -> News {
    News::Sources(0, Followed::Listed(sources))
}

/// What a hub has that got the claims of these.
fn hub(sources: &[Source]) -> ClaimList {
    let claims = sources.iter().flat_map(|source| keys::claims(&source.place, source.endpoints.as_ref().unwrap()));
    let judged = |claims: Claims| judged(&claims.key, &claims.endpoints);
    ClaimList { claims: claims.map(judged).collect() }
}

/// A hub whose digests are the name of the first target.
fn judged(key: &str, endpoints: &[EndpointSpec]) -> JudgedClaims {
    let digest = endpoints.first().and_then(|endpoint| endpoint.targets.first()).cloned().unwrap_or_default();
    JudgedClaims { key: key.into(), endpoints: endpoints.to_vec(), digest, verdicts: Vec::new() }
}

/// Of a source whose target is the first.
fn verdicts(revision: u64, of: &[(&str, &[PartVerdict])]) -> VerdictList {
    let verdict = |(key, verdicts): &(&str, &[PartVerdict])| ClaimVerdict {
        key: (*key).into(),
        digest: "192.0.2.1".into(),
        verdicts: verdicts.to_vec(),
    };
    VerdictList { revision, verdicts: of.iter().map(verdict).collect() }
}

fn published() -> PartVerdict {
    PartVerdict { part: "web.test A".into(), published: true, ..PartVerdict::default() }
}

fn refused() -> PartVerdict {
    PartVerdict { part: "web.test A".into(), code: "NotYours".into(), reason: "no".into(), ..PartVerdict::default() }
}

/// The keys that are set and deleted.
fn changes(book: &Book, now: Instant) -> (Vec<String>, Vec<String>) {
    let (set, delete) = book.changes(now);
    (set.into_iter().map(|claims| claims.key).collect(), delete)
}

#[test]
fn what_the_hub_lacks_is_set_and_what_it_has_too_much_of_is_deleted() {
    let now = Instant::now();
    let (web, api) = (source("shop", "web", 1), source("shop", "api", 1));
    let mut unreadable = source("shop", "web", 1);
    unreadable.endpoints = Err("spec.endpoints is no list".into());
    let mut empty = source("shop", "web", 1);
    empty.endpoints = Ok(Vec::new());
    let (key, other) = ("sync/shop/web", "sync/shop/api");
    // What the cluster lists, what the hub has, what is set and what is deleted.
    for (list, there, set, delete) in [
        (vec![web.clone()], vec![], vec![key], vec![]),
        (vec![web.clone()], vec![web.clone()], vec![], vec![]),
        (vec![source("shop", "web", 2)], vec![web.clone()], vec![key], vec![]),
        (vec![web.clone()], vec![web.clone(), api.clone()], vec![], vec![other]),
        (vec![web.clone(), api.clone()], vec![api.clone()], vec![key], vec![]),
        (vec![empty, api.clone()], vec![web.clone(), api.clone()], vec![], vec![key]),
        (vec![unreadable, api.clone()], vec![web.clone(), api.clone()], vec![], vec![]),
        (vec![], vec![web.clone()], vec![], vec![]),
    ] {
        let mut book = Book::new(&[None]);
        book.hear(listed(list), now);
        assert_eq!(changes(&book, now), (vec![], vec![]), "nothing is known of the hub");
        book.load(hub(&there));
        let expected = (set.into_iter().map(str::to_owned).collect(), delete.into_iter().map(str::to_owned).collect());
        assert_eq!(changes(&book, now), expected);
    }
}

#[test]
fn nothing_is_deleted_for_a_list_that_failed_or_is_suddenly_empty() {
    let now = Instant::now();
    let web = source("shop", "web", 1);
    let key = vec!["sync/shop/web".to_owned()];
    let mut book = Book::new(&[None]);
    book.load(hub(std::slice::from_ref(&web)));
    book.hear(News::Sources(0, Followed::Away("no".into())), now);
    book.hear(News::Sources(0, Followed::Absent), now);
    assert_eq!(changes(&book, now + DOUBT * 2), (vec![], vec![]), "it was never listed");

    book.hear(listed(vec![]), now);
    assert_eq!(book.doubted(now), 1);
    assert_eq!(changes(&book, now + DOUBT / 2), (vec![], vec![]));
    book.hear(listed(vec![]), now + DOUBT / 2);
    assert_eq!(changes(&book, now + DOUBT), (vec![], key.clone()), "doubt does not begin anew with each list");
    assert_eq!(book.doubted(now + DOUBT), 0);

    book.hear(listed(vec![web.clone()]), now);
    book.hear(News::Sources(0, Followed::Gone(web.place.clone())), now);
    assert_eq!(changes(&book, now), (vec![], key.clone()), "the cluster said that it was deleted");
    book.hear(listed(vec![]), now);
    assert_eq!(changes(&book, now), (vec![], key), "and an empty list takes nothing of that back");
}

#[test]
fn other_namespaces_and_other_agents_are_left_alone() {
    let now = Instant::now();
    let mut there = hub(&[source("shop", "web", 1), source("other", "web", 1)]);
    there.claims.push(judged("external-dns/3f", &[]));
    let mut book = Book::new(&[Some("shop".into()), Some("bank".into())]);
    book.load(there);
    book.hear(listed(vec![source("shop", "new", 1)]), now);
    assert!(!book.is_listed(), "the second namespace was not");
    book.hear(News::Sources(1, Followed::Listed(vec![])), now);
    assert!(book.is_listed());
    assert_eq!(changes(&book, now + DOUBT * 2), (vec!["sync/shop/new".into()], vec!["sync/shop/web".into()]));
}

#[test]
fn a_verdict_is_said_once_and_only_of_what_was_judged() {
    let now = Instant::now();
    let mut book = Book::new(&[None]);
    book.hear(listed(vec![source("shop", "web", 1)]), now);
    book.hear(News::Verdicts(0, Followed::Listed(vec![])), now);
    book.load(ClaimList::default());
    let (set, delete) = book.changes(now);
    book.sent(&ClaimChanges { set, delete }, verdicts(1, &[("sync/shop/web", &[])]));
    assert_eq!(book.sayings(9), [], "nobody has come to it yet");
    assert!(book.judged(verdicts(2, &[("external-dns/00", &[]), ("sync/shop/web", &[refused()])])));
    let said = book.sayings(9);
    assert_eq!((said.len(), said[0].spec.refused, said[0].as_event), (1, 1, false));
    assert_eq!(said[0].spec.parts, [refused()]);
    book.said(said[0].clone());
    assert!(book.judged(verdicts(3, &[("sync/shop/web", &[refused()])])));
    assert_eq!(book.sayings(9), [], "it is said already");
    assert_eq!(book.counts(), (1, 0, 1));
    assert_eq!(book.refused(9)[0].source, "shop/web");

    // The object changes: what was said of it is old, and so is a verdict that comes before the claim was sent.
    book.hear(News::Sources(0, Followed::Changed(source("shop", "web", 2))), now);
    assert_eq!(book.sayings(9), []);
    book.judged(verdicts(4, &[("sync/shop/web", &[published()])]));
    assert_eq!(book.sayings(9), []);
    let (set, delete) = book.changes(now);
    book.sent(&ClaimChanges { set, delete }, verdicts(5, &[("sync/shop/web", &[published()])]));
    let said = book.sayings(9);
    assert_eq!((said[0].spec.published, said[0].was_refused), (1, true));
    book.said(said[0].clone());

    // Somebody deletes the Verdict, or spoils it, or makes the object anew.
    book.hear(News::Verdicts(0, Followed::Gone(place("shop", "web"))), now);
    assert_eq!(book.sayings(9).len(), 1);
    let spoilt = Written { place: place("shop", "web"), owner: "uid-web".into(), spec: VerdictSpec::default() };
    book.hear(News::Verdicts(0, Followed::Changed(spoilt)), now);
    let said = book.sayings(9);
    book.said(said[0].clone());
    book.hear(News::Sources(0, Followed::Changed(Source { uid: "another".into(), ..source("shop", "web", 2) })), now);
    assert_eq!(book.sayings(9).len(), 1);

    assert!(!book.judged(verdicts(6, &[])), "the hub has lost it");
}

/// The hub may answer for what it had a moment ago, with as many endpoints.
#[test]
fn a_verdict_of_other_content_says_nothing() {
    let now = Instant::now();
    let mut book = Book::new(&[None]);
    book.hear(listed(vec![source("shop", "web", 2)]), now);
    book.hear(News::Verdicts(0, Followed::Listed(vec![])), now);
    book.load(hub(&[source("shop", "web", 2)]));
    let earlier = verdicts(1, &[("sync/shop/web", &[published()])]);
    assert!(!book.judged(earlier.clone()), "the hub is read again");
    assert_eq!((book.sayings(9), book.counts()), (vec![], (1, 0, 0)));
    let mut present = earlier;
    "192.0.2.2".clone_into(&mut present.verdicts[0].digest);
    assert!(book.judged(present));
    assert_eq!(book.sayings(9).len(), 1);
    // A hub that knows no digests yet.
    let mut old = hub(&[source("shop", "web", 2)]);
    old.claims[0].digest.clear();
    book.load(old);
    let mut verdict = verdicts(2, &[("sync/shop/web", &[refused()])]);
    verdict.verdicts[0].digest.clear();
    assert!(book.judged(verdict));
    assert_eq!(book.counts(), (1, 0, 1));
}

#[test]
fn without_the_kind_verdict_it_is_told_by_events() {
    let now = Instant::now();
    let mut book = Book::new(&[None]);
    book.hear(listed(vec![source("shop", "web", 1)]), now);
    let mut there = hub(&[source("shop", "web", 1)]);
    there.claims[0].verdicts = vec![refused()];
    book.load(there);
    assert_eq!(book.sayings(9), [], "it is not known yet whether there are Verdicts");
    book.hear(News::Verdicts(0, Followed::Absent), now);
    let said = book.sayings(9);
    assert!(said[0].as_event);
    book.said(said[0].clone());
    book.hear(News::Verdicts(0, Followed::Absent), now);
    assert_eq!(book.sayings(9), [], "it was told");
    book.hear(News::Verdicts(0, Followed::Listed(vec![])), now);
    assert!(!book.sayings(9)[0].as_event, "the kind was installed");
}

#[test]
fn what_the_hub_does_not_take_is_said_and_not_sent_again() {
    let now = Instant::now();
    let mut book = Book::new(&[None]);
    book.hear(listed(vec![source("shop", "web", 1)]), now);
    book.hear(News::Verdicts(0, Followed::Listed(vec![])), now);
    book.load(ClaimList::default());
    let (set, delete) = book.changes(now);
    book.reject(&ClaimChanges { set, delete }, "TooMany", "too many objects");
    assert_eq!(changes(&book, now), (vec![], vec![]));
    let said = book.sayings(9);
    assert_eq!((said[0].spec.parts[0].part.as_str(), said[0].spec.parts[0].code.as_str()), ("*", "TooMany"));
    book.hear(News::Sources(0, Followed::Changed(source("shop", "web", 2))), now);
    assert_eq!(changes(&book, now).0, ["sync/shop/web"], "it has changed");
}

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    Change(u8, u8),
    Delete(u8),
    /// The watch was away, and lists anew; what was missed, no event tells.
    Missed(u8),
    Send,
    /// The agent ends and starts anew.
    Restart,
    /// The hub loses what it had.
    Lost,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u8, 0..3_u8).prop_map(|(object, target)| Step::Change(object, target)),
        2 => (0..6_u8).prop_map(Step::Delete),
        1 => (0..6_u8).prop_map(Step::Missed),
        3 => Just(Step::Send),
        1 => Just(Step::Restart),
        1 => Just(Step::Lost),
    ]
}

proptest! {
    /// Whatever happens, in the end the hub has what the cluster has, and asking again changes nothing.
    #[test]
    fn both_sides_agree_in_the_end(steps in proptest::collection::vec(step(), 0..40)) {
        let now = Instant::now();
        // One that is never touched: no list is ever empty.
        let stays = source("shop", "stays", 1);
        let mut cluster: BTreeMap<Place, Source> = [(stays.place.clone(), stays)].into();
        let mut there: BTreeMap<String, Vec<EndpointSpec>> = BTreeMap::new();
        let list = |cluster: &BTreeMap<Place, Source>| listed(cluster.values().cloned().collect());
        let claims = |there: &BTreeMap<String, Vec<EndpointSpec>>| ClaimList {
            claims: there.iter().map(|(key, endpoints)| judged(key, endpoints)).collect(),
        };
        let send = |book: &mut Book, there: &mut BTreeMap<String, Vec<EndpointSpec>>| {
            if !book.knows_hub() {
                book.load(claims(there));
            }
            let (set, delete) = book.changes(now);
            for key in &delete {
                there.remove(key);
            }
            there.extend(set.iter().map(|claims| (claims.key.clone(), claims.endpoints.clone())));
            book.sent(&ClaimChanges { set, delete }, VerdictList::default());
        };
        let mut book = Book::new(&[None]);
        book.hear(list(&cluster), now);
        for step in steps.into_iter().chain([Step::Lost, Step::Send]) {
            match step {
                Step::Change(object, target) => {
                    let source = source("shop", &format!("o{object}"), target);
                    cluster.insert(source.place.clone(), source.clone());
                    book.hear(News::Sources(0, Followed::Changed(source)), now);
                }
                Step::Delete(object) => {
                    let place = place("shop", &format!("o{object}"));
                    if cluster.remove(&place).is_some() {
                        book.hear(News::Sources(0, Followed::Gone(place)), now);
                    }
                }
                Step::Missed(object) => {
                    cluster.remove(&place("shop", &format!("o{object}")));
                    book.hear(News::Sources(0, Followed::Away("no".into())), now);
                    book.hear(list(&cluster), now);
                }
                Step::Send => send(&mut book, &mut there),
                Step::Restart => {
                    book = Book::new(&[None]);
                    book.hear(list(&cluster), now);
                }
                Step::Lost => {
                    there.clear();
                    // As the verdicts of all claims show.
                    if !book.judged(VerdictList::default()) {
                        book.forget_hub();
                    }
                }
            }
        }
        let wanted: BTreeMap<String, Vec<EndpointSpec>> = cluster.values()
            .flat_map(|source| keys::claims(&source.place, source.endpoints.as_ref().unwrap()))
            .map(|claims| (claims.key, claims.endpoints)).collect();
        prop_assert_eq!(&there, &wanted);
        prop_assert_eq!(book.changes(now), (Vec::new(), Vec::new()));
    }
}
