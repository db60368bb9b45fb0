use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// How long addresses rest here, in nanoseconds.
const REST: u64 = 100;

/// A book and the home that writes down what it wants.
#[derive(Default)]
struct Desk {
    book: Book,
    home: BTreeMap<IpAddr, Allocation>,
    now: u64,
    quota: Option<u32>,
    /// Claims of this name may not have anything.
    forbidden: Option<&'static str>,
}

fn id(name: &str) -> ClaimId {
    ClaimId { namespace: "acme".parse().unwrap(), name: name.parse().unwrap() }
}

fn pool_of(name: &str, ranges: &[&str]) -> AddressPool {
    AddressPool {
        name: name.parse().unwrap(),
        ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
        reverse: None,
        quarantine: Duration::from_nanos(REST),
    }
}

fn since(moment: u64) -> Since {
    Since::at(Timestamp(moment))
}

impl Desk {
    fn pool(&mut self, name: &str, moment: u64, ranges: &[&str]) -> &mut Self {
        let fact = Fact::new(since(moment), pool_of(name, ranges));
        self.book.set_pool(&name.parse().unwrap(), (!ranges.is_empty()).then_some(fact));
        self
    }

    /// `any` is any address of the pool `public`; `v6` any IPv6 one; `pool/any` of another pool; else that very address.
    fn claim(&mut self, name: &str, moment: u64, wish: &str) -> &mut Self {
        let (pool, wish) = wish.split_once('/').unwrap_or(("public", wish));
        let address = wish.parse().ok();
        let family = if wish == "v6" { Family::V6 } else { address.map_or(Family::V4, Family::of) };
        let claim = AddressClaim { pool: pool.parse().unwrap(), family, cluster: None, ptr: None, address };
        self.book.set_claim(&id(name), Some(Fact::new(since(moment), claim)));
        self
    }

    fn gone(&mut self, name: &str) -> &mut Self {
        self.book.set_claim(&id(name), None);
        self
    }

    fn settle(&mut self) -> &mut Self {
        let (quota, forbidden) = (self.quota, self.forbidden);
        let rights = |id: &ClaimId, _: &AddressClaim| match quota {
            _ if Some(id.name.as_str()) == forbidden => Rights::No,
            Some(most) => Rights::UpTo(most),
            None => Rights::Any,
        };
        self.book.settle(Timestamp(self.now), &rights, &|_| Duration::ZERO);
        self
    }

    /// Has the home come to what is wanted, and say so.
    fn write(&mut self) -> &mut Self {
        self.settle();
        let wanted: BTreeMap<IpAddr, Allocation> =
            self.book.addresses().filter_map(|address| Some((address, self.book.wanted(address)?.clone()))).collect();
        let addresses: BTreeSet<IpAddr> = self.home.keys().chain(wanted.keys()).copied().collect();
        self.home = wanted;
        for address in addresses {
            self.book.set_address(address, self.home.get(&address).cloned());
        }
        self.settle()
    }

    fn at(&mut self, now: u64) -> &mut Self {
        self.now = now;
        self
    }

    #[track_caller]
    fn expect(&mut self, expected: &[(&str, &str)]) -> &mut Self {
        let told = |name: &str| match self.book.outcome(&id(name)).unwrap() {
            Outcome::Has(address) => address.to_string(),
            Outcome::Gets(address) => format!("gets {address}"),
            Outcome::No(no) => format!("{no:?}"),
        };
        let found: Vec<(&str, String)> = expected.iter().map(|(name, _)| (*name, told(name))).collect();
        let expected: Vec<(&str, String)> = expected.iter().map(|(name, told)| (*name, (*told).into())).collect();
        assert_eq!(found, expected);
        self
    }

    fn uses(&self, pool: &str) -> (usize, usize, u64) {
        let Use { given, resting, free_v4, .. } = self.book.use_of(&pool.parse().unwrap());
        (given, resting, free_v4)
    }
}

/// 192.0.2.1 to 192.0.2.6.
fn desk() -> Desk {
    let mut desk = Desk::default();
    desk.pool("public", 1, &["192.0.2.0/29"]);
    desk
}

#[test]
fn a_claim_has_its_address_once_it_is_written_down() {
    let mut desk = desk();
    desk.claim("b", 3, "any").claim("a", 2, "any").settle();
    desk.expect(&[("a", "gets 192.0.2.1"), ("b", "gets 192.0.2.2")]);
    assert_eq!(desk.book.owner("192.0.2.1".parse().unwrap()), None);
    desk.write().expect(&[("a", "192.0.2.1"), ("b", "192.0.2.2")]);
    assert_eq!(desk.book.owner("192.0.2.1".parse().unwrap()), Some(&id("a")));
    assert_eq!(desk.uses("public"), (2, 0, 4));
}

#[test]
fn wishes_are_granted_or_refused() {
    let mut desk = desk();
    desk.pool("other", 1, &["2001:db8::/64"]);
    desk.claim("a", 2, "192.0.2.4").claim("b", 3, "192.0.2.4").claim("c", 4, "192.0.2.7").claim("d", 5, "v6");
    desk.claim("e", 6, "other/v6").claim("f", 7, "nowhere/any").claim("g", 8, "any").write().expect(&[
        ("a", "192.0.2.4"),
        ("b", "Taken(192.0.2.4)"),
        ("c", "NotInPool(192.0.2.7)"),
        ("d", "Exhausted(V6)"),
        ("e", "2001:db8::1"),
        ("f", "UnknownPool"),
        // The first above all that are taken.
        ("g", "192.0.2.5"),
    ]);
}

#[test]
fn an_address_rests_before_another_claim_gets_it() {
    let mut desk = desk();
    desk.claim("a", 2, "192.0.2.4").write().claim("b", 3, "192.0.2.4").write();
    desk.expect(&[("b", "Taken(192.0.2.4)")]);
    desk.at(50).gone("a").settle().expect(&[("b", "Rests(192.0.2.4, Timestamp(150))")]);
    assert_eq!((desk.uses("public"), desk.book.wake()), ((0, 1, 5), Some(Timestamp(150))));
    desk.write().at(149).write().expect(&[("b", "Rests(192.0.2.4, Timestamp(150))")]);
    // Nobody gets it before the home has forgotten it.
    desk.at(150).settle().expect(&[("b", "Rests(192.0.2.4, Timestamp(150))")]);
    assert_eq!(desk.book.wanted("192.0.2.4".parse().unwrap()), None);
    desk.write().settle().expect(&[("b", "gets 192.0.2.4")]);
    desk.write().expect(&[("b", "192.0.2.4")]);
    assert_eq!(desk.uses("public"), (1, 0, 5));
}

#[test]
fn a_claim_that_comes_back_gets_its_address_back() {
    let mut desk = desk();
    desk.claim("a", 2, "any").claim("b", 3, "any").write().gone("a").write();
    desk.at(10).claim("a", 9, "any").settle().expect(&[("a", "gets 192.0.2.1")]);
    desk.write().expect(&[("a", "192.0.2.1")]);
    let allocation = &desk.home[&"192.0.2.1".parse().unwrap()];
    assert_eq!((&*allocation.uid, allocation.released_until), ("9", None));
    assert_eq!(desk.book.wake(), None);
}

#[test]
fn a_claim_that_asks_for_something_else_lets_its_address_rest() {
    let mut desk = desk();
    desk.claim("a", 2, "any").write().expect(&[("a", "192.0.2.1")]);
    desk.claim("a", 2, "192.0.2.6").write().expect(&[("a", "192.0.2.6")]);
    assert_eq!(desk.uses("public"), (1, 1, 4));
    // Having any is what it has.
    desk.claim("a", 2, "any").write().expect(&[("a", "192.0.2.6")]);
}

#[test]
fn what_was_given_stays_whatever_becomes_of_quota_rights_and_pool() {
    let mut desk = desk();
    desk.claim("a", 2, "any").claim("b", 3, "any").write();
    desk.quota = Some(1);
    desk.forbidden = Some("a");
    desk.book.ask_namespace(&"acme".parse().unwrap());
    desk.claim("c", 4, "any").write();
    desk.expect(&[("a", "192.0.2.1"), ("b", "192.0.2.2"), ("c", "Quota(1)")]);
    desk.pool("public", 1, &[]).write();
    desk.expect(&[("a", "192.0.2.1"), ("b", "192.0.2.2"), ("c", "UnknownPool")]);
    desk.pool("public", 1, &["192.0.2.0/29"]).write();
    desk.quota = None;
    desk.book.ask_namespace(&"acme".parse().unwrap());
    desk.write().expect(&[("a", "192.0.2.1"), ("b", "192.0.2.2"), ("c", "192.0.2.3")]);
}

#[test]
fn those_who_wait_move_up_by_seniority() {
    let mut desk = Desk::default();
    desk.pool("public", 1, &["192.0.2.0/30"]);
    for (name, moment) in [("e", 6), ("d", 5), ("c", 4), ("b", 3), ("a", 2)] {
        desk.claim(name, moment, "any");
    }
    desk.write();
    desk.expect(&[("a", "192.0.2.1"), ("b", "192.0.2.2"), ("c", "Exhausted(V4)"), ("d", "Exhausted(V4)")]);
    desk.gone("a").write().at(REST).write().write();
    desk.expect(&[("b", "192.0.2.2"), ("c", "192.0.2.1"), ("d", "Exhausted(V4)")]);
    desk.pool("public", 1, &["192.0.2.0/30", "192.0.2.5/32"]).write();
    desk.expect(&[("c", "192.0.2.1"), ("d", "192.0.2.5"), ("e", "Exhausted(V4)")]);
}

#[test]
fn quota_that_is_freed_goes_to_the_next() {
    let mut desk = desk();
    desk.quota = Some(2);
    desk.claim("a", 2, "any").claim("b", 3, "any").claim("d", 5, "any").claim("c", 4, "any").write();
    desk.expect(&[("a", "192.0.2.1"), ("b", "192.0.2.2"), ("c", "Quota(2)"), ("d", "Quota(2)")]);
    desk.gone("a").write().expect(&[("b", "192.0.2.2"), ("c", "192.0.2.3"), ("d", "Quota(2)")]);
}

#[test]
fn whoever_lost_the_race_asks_for_another_address() {
    let mut desk = desk();
    desk.claim("a", 2, "any").settle().expect(&[("a", "gets 192.0.2.1")]);
    let other = Allocation { pool: "public".parse().unwrap(), claim: id("z"), uid: "u".into(), released_until: None };
    desk.home.insert("192.0.2.1".parse().unwrap(), other.clone());
    desk.book.set_address("192.0.2.1".parse().unwrap(), Some(other));
    desk.claim("z", 9, "any").write().expect(&[("a", "192.0.2.2"), ("z", "192.0.2.1")]);
}

#[test]
fn two_addresses_of_one_claim_become_one() {
    let mut desk = desk();
    let own = |uid: &str| Allocation {
        pool: "public".parse().unwrap(),
        claim: id("a"),
        uid: uid.into(),
        released_until: None,
    };
    for (address, uid) in [("192.0.2.5", "2"), ("192.0.2.3", "2")] {
        desk.home.insert(address.parse().unwrap(), own(uid));
        desk.book.set_address(address.parse().unwrap(), Some(own(uid)));
    }
    desk.claim("a", 2, "any").write().expect(&[("a", "192.0.2.3")]);
    assert_eq!(desk.uses("public"), (1, 1, 4));
}

#[test]
fn what_was_deleted_by_hand_is_written_down_again() {
    let mut desk = desk();
    desk.claim("a", 2, "any").claim("b", 3, "any").write();
    desk.home.remove(&"192.0.2.1".parse().unwrap());
    desk.book.set_address("192.0.2.1".parse().unwrap(), None);
    desk.settle().expect(&[("a", "gets 192.0.2.1")]);
    desk.write().expect(&[("a", "192.0.2.1"), ("b", "192.0.2.2")]);
}

#[test]
fn the_later_of_two_pools_that_overlap_is_refused() {
    let mut desk = desk();
    for (ranges, overlaps) in [
        (&["192.0.2.4/30"][..], true),
        (&["192.0.2.0/24"], true),
        (&["198.51.100.0/24", "192.0.2.6/32"], true),
        (&["192.0.2.8/29", "192.0.2.8/30"], false),
    ] {
        desk.pool("later", 2, ranges).claim("a", 3, "later/any").settle();
        let (_, overlap) = desk.book.pool(&"later".parse().unwrap()).unwrap();
        assert_eq!(overlap.is_some(), overlaps, "{ranges:?}");
        desk.expect(&[("a", if overlaps { "RefusedPool" } else { "gets 192.0.2.9" })]);
    }
    desk.pool("later", 0, &["192.0.2.0/24"]).settle();
    assert!(desk.book.pool(&"public".parse().unwrap()).unwrap().1.is_some());
}

/// Controllers that come to things late, and a home where each write is atomic and only taken from whoever knows what it
/// replaces.
struct Hub {
    books: Vec<Book>,
    home: BTreeMap<IpAddr, Allocation>,
    /// What happened, and how far each controller has come.
    log: Vec<Event>,
    read: Vec<usize>,
    now: u64,
}

#[derive(Debug, Clone)]
enum Event {
    Claim(ClaimId, Option<Fact<AddressClaim>>),
    Address(IpAddr, Option<Allocation>),
}

#[derive(Debug, Clone)]
enum Act {
    Claim(&'static str, &'static str),
    Gone(&'static str),
    /// A controller comes to the next so many events.
    Read(usize, usize),
    /// A controller writes so many of the things that it wants.
    Write(usize, usize),
    Wait(u64),
}

impl Hub {
    fn new(controllers: usize) -> Self {
        let mut hub = Self {
            books: std::iter::repeat_with(Book::default).take(controllers).collect(),
            home: BTreeMap::new(),
            log: Vec::new(),
            read: vec![0; controllers],
            now: 10,
        };
        let fact = Fact::new(since(1), pool_of("public", &["192.0.2.0/29"]));
        for book in &mut hub.books {
            book.set_pool(&"public".parse().unwrap(), Some(fact.clone()));
        }
        hub
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Claim(name, wish) => {
                let mut desk = Desk::default();
                desk.claim(name, self.now, wish);
                let state = desk.book.claims.remove(&id(name)).unwrap();
                let since = self.log.iter().rev().find_map(|event| match event {
                    Event::Claim(known, fact) if *known == id(name) => {
                        Some(fact.as_ref().map(|fact| fact.since.clone()))
                    }
                    _ => None,
                });
                let fact = Fact::new(since.flatten().unwrap_or(state.since), state.claim);
                self.log.push(Event::Claim(id(name), Some(fact)));
            }
            Act::Gone(name) => self.log.push(Event::Claim(id(name), None)),
            Act::Read(who, count) => self.read(who, count),
            Act::Write(who, count) => self.write(who, count),
            Act::Wait(span) => self.now += span,
        }
    }

    fn read(&mut self, who: usize, count: usize) {
        let events = self.log[self.read[who]..].iter().take(count);
        for event in events.clone().cloned() {
            match event {
                Event::Claim(id, fact) => self.books[who].set_claim(&id, fact),
                Event::Address(address, actual) => self.books[who].set_address(address, actual),
            }
            self.read[who] += 1;
        }
        self.books[who].settle(Timestamp(self.now), &|_, _| Rights::Any, &|_| Duration::ZERO);
    }

    fn write(&mut self, who: usize, count: usize) {
        let book = &mut self.books[who];
        book.settle(Timestamp(self.now), &|_, _| Rights::Any, &|_| Duration::ZERO);
        let differing: Vec<(IpAddr, Entry)> = book
            .entries
            .iter()
            .filter(|(_, entry)| entry.actual != entry.wanted)
            .map(|(at, entry)| (*at, entry.clone()))
            .collect();
        for (address, Entry { actual, wanted }) in differing.into_iter().take(count) {
            if self.home.get(&address) != actual.as_ref() {
                continue;
            }
            match &wanted {
                Some(wanted) => _ = self.home.insert(address, wanted.clone()),
                None => _ = self.home.remove(&address),
            }
            self.log.push(Event::Address(address, wanted));
        }
    }

    /// Everybody reads all and the first writes, until nothing happens any more.
    fn rest(&mut self) {
        for _ in 0..100 {
            for who in 0..self.books.len() {
                self.read(who, usize::MAX);
            }
            let before = self.log.len();
            self.write(0, usize::MAX);
            if self.log.len() == before {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    fn has(&self, who: usize) -> BTreeMap<ClaimId, IpAddr> {
        let has = self.books[who].claims.iter().filter_map(|(id, state)| match state.outcome {
            Some(Outcome::Has(address)) => Some((id.clone(), address)),
            _ => None,
        });
        has.collect()
    }
}

fn any_act() -> impl Strategy<Value = Act> {
    let names = || select(vec!["a", "b", "c", "d", "e", "f", "g", "h"]);
    let wishes = select(vec!["any", "any", "192.0.2.2", "192.0.2.5", "v6", "other/any"]);
    prop_oneof![
        3 => (names(), wishes).prop_map(|(name, wish)| Act::Claim(name, wish)),
        2 => names().prop_map(Act::Gone),
        4 => (0usize..2, 1usize..6).prop_map(|(who, count)| Act::Read(who, count)),
        4 => (0usize..2, 1usize..6).prop_map(|(who, count)| Act::Write(who, count)),
        1 => (1u64..150).prop_map(Act::Wait),
    ]
}

proptest! {
    #[test]
    fn two_controllers_never_give_an_address_twice(acts in prop::collection::vec(any_act(), 1..80)) {
        let mut hub = Hub::new(2);
        let mut released: BTreeMap<IpAddr, (ClaimId, u64)> = BTreeMap::new();
        for act in &acts {
            let before = hub.home.clone();
            hub.act(act);
            for who in 0..2 {
                let has = hub.has(who);
                let addresses: BTreeSet<&IpAddr> = has.values().collect();
                prop_assert_eq!(addresses.len(), has.len(), "{:?}", has);
            }
            // Nobody but its last owner has an address that has to rest.
            for (address, allocation) in &hub.home {
                if let Some(until) = allocation.released_until {
                    released.insert(*address, (allocation.claim.clone(), until.0));
                } else if let Some((last, until)) = released.get(address) {
                    prop_assert!(allocation.claim == *last || *until <= hub.now, "{} before {}", address, until);
                }
            }
            // What is written down passes from one claim to another by way of nobody.
            for (address, allocation) in before {
                if let Some(now) = hub.home.get(&address) {
                    prop_assert_eq!(&now.claim, &allocation.claim);
                }
            }
        }
        hub.rest();
        // Both see the same, and it is what the home has.
        prop_assert_eq!(hub.has(0), hub.has(1));
        let held: BTreeMap<ClaimId, IpAddr> = hub.home.iter()
            .filter(|(_, allocation)| !allocation.rests())
            .map(|(address, allocation)| (allocation.claim.clone(), *address))
            .collect();
        prop_assert_eq!(hub.has(0), held.clone());
        prop_assert_eq!(hub.home.values().filter(|allocation| !allocation.rests()).count(), held.len());
        // One that knows nothing but what is there comes to the same.
        let mut anew = Hub::new(1);
        (anew.home, anew.now) = (hub.home.clone(), hub.now);
        anew.log = hub.home.iter().map(|(address, allocation)| Event::Address(*address, Some(allocation.clone()))).collect();
        let claims = hub.books[0].claims.iter();
        anew.log.extend(claims.map(|(id, state)| Event::Claim(id.clone(), Some(Fact::new(state.since.clone(), state.claim.clone())))));
        anew.rest();
        prop_assert_eq!(anew.has(0), held);
        prop_assert_eq!(anew.books[0].use_of(&"public".parse().unwrap()), hub.books[0].use_of(&"public".parse().unwrap()));
        // Once everything has rested, whoever wants any address has one or there is none left.
        hub.now += 2 * REST;
        hub.rest();
        let wants = hub.books[0].claims.values().filter(|state| matches!(state.outcome, Some(Outcome::No(No::Exhausted(Family::V4))))).count();
        prop_assert!(wants == 0 || hub.has(0).len() == 6, "{} want, {:?}", wants, hub.has(0));
    }
}
