//! Names whose addresses are chosen, and the subnets that decide.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::steering::{Known, Standings, Unhealthy};
use proptest::prelude::*;

use super::*;
use crate::records::member_key;
use crate::steer::Guides;

/// Berlin, New York and Singapore; only the first two have IPv6.
const SHOPS: &str = "
    z 60 SOA 1 60
    plain.z 30 A 192.0.2.99
    geo.z 30 STEER geo
    geo.z 30 MEMBER berlin 52.5,13.4 192.0.2.1 2001:db8::1
    geo.z 30 MEMBER york 40.7,-74.0 192.0.2.2 2001:db8::2
    geo.z 30 MEMBER zingapore 1.3,103.8 192.0.2.3
    latency.z 30 STEER latency
    latency.z 30 MEMBER berlin - 192.0.2.1
    latency.z 30 MEMBER york - 192.0.2.2
    weighted.z 5 STEER weighted berlin=3 york=1
    weighted.z 5 MEMBER berlin - 192.0.2.1
    weighted.z 5 MEMBER york - 192.0.2.2
    weighted.z 5 MEMBER zingapore - 192.0.2.3
    failover.z 30 STEER failover york zingapore
    failover.z 30 MEMBER berlin - 192.0.2.1
    failover.z 30 MEMBER york - 192.0.2.2
    failover.z 30 MEMBER zingapore - 192.0.2.3
    all.z 30 STEER roundRobin
    all.z 30 MEMBER berlin - 192.0.2.1
    all.z 30 MEMBER york - 192.0.2.2 2001:db8::2
    all.z 30 MEMBER zingapore - 192.0.2.3
    many.z 30 STEER roundRobin
    many.z 30 MEMBER berlin - 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6
    many.z 30 MEMBER york - 10.0.1.1 10.0.1.2 10.0.1.3 10.0.1.4 10.0.1.5 10.0.1.6
    *.geo.z 30 STEER geo
    *.geo.z 30 MEMBER berlin 52.5,13.4 192.0.2.1
    *.geo.z 30 MEMBER york 40.7,-74.0 192.0.2.2
    shop.z 30 CNAME geo.z
    mail.z 30 MX 10 geo.z
";

/// Networks in Germany, with one in America inside, and in Malaysia.
const PLACES: &[u8] = b"
    203.0.113.0/24 50.1 8.7
    203.0.113.128/26 42.4 -71.1
    198.51.100.0/24 3.1 101.7
    2001:db8:a::/48 42.4 -71.1
    192.0.2.0/24 50.1 8.7
";

struct Fleet {
    index: Index,
    guides: Guides,
    settings: Settings,
}

impl Fleet {
    fn new() -> Self {
        let guides = Guides::default();
        guides.places.store(Some(Arc::new(geo::Map::parse(PLACES).unwrap())));
        let settings = Settings::default().with_identity("ns1").with_guides(guides.clone());
        Self { index: Index::default().apply(&changes(SHOPS)), guides, settings }
    }

    /// `CLUSTER WORD`, and everybody else is well.
    fn set(&self, standings: &[&str]) {
        let known = standings.iter().map(|text| {
            let (cluster, word) = text.split_once(' ').unwrap();
            let known = match word {
                "failed" => Known { unhealthy: Some(Unhealthy::FailedChecks), ..Known::default() },
                "full" => Known { full: true, ..Known::default() },
                _ => Known {
                    round_trip: Some(Duration::from_millis(word.strip_suffix("ms").unwrap().parse().unwrap())),
                    ..Known::default()
                },
            };
            (member_key(cluster), known)
        });
        self.guides.standings.store(Arc::new(known.collect::<Standings>()));
    }

    /// What is told, and the options of the answer.
    fn ask(&self, question: &str, options: &[(u16, &[u8])]) -> (String, Vec<(u16, Vec<u8>)>) {
        self.ask_from([192, 0, 2, 200].into(), question, options)
    }

    fn ask_from(&self, address: IpAddr, question: &str, options: &[(u16, &[u8])]) -> (String, Vec<(u16, Vec<u8>)>) {
        let mut request = query(question);
        let push = |opt: &mut domain::base::message_builder::OptBuilder<'_, Vec<u8>>| {
            options.iter().try_for_each(|(code, value)| {
                opt.push(&UnknownOptData::new(OptionCode::from_int(*code), *value).unwrap())
            })
        };
        if !options.is_empty() {
            request.opt(push).unwrap();
        }
        let request = request.finish();
        let client = Client { address, transport: Transport::Udp, now: 1_700_000_000 };
        let mut out = Vec::new();
        super::super::answer(&self.index, &self.settings, &client, &request, &mut out).unwrap();
        (tell(&out), options_of(&out))
    }

    /// The addresses, in their order.
    fn addresses(&self, question: &str) -> Vec<String> {
        addresses(&self.ask(question, &[]).0)
    }
}

fn options_of(response: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let message = Message::from_slice(response).unwrap();
    let Some(opt) = message.opt() else { return Vec::new() };
    let option = |option: UnknownOptData<&[u8]>| (option.code().to_int(), option.as_slice().to_vec());
    opt.opt().iter::<UnknownOptData<_>>().map(|found| option(found.unwrap())).collect()
}

fn addresses(told: &str) -> Vec<String> {
    let answers = told.lines().filter_map(|line| line.strip_prefix("answer "));
    answers.map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
}

/// `ADDRESS/PREFIX` as an option.
fn subnet(text: &str) -> Vec<u8> {
    let (address, source) = text.split_once('/').unwrap();
    let source: u8 = source.parse().unwrap();
    let (family, octets) = match address.parse().unwrap() {
        IpAddr::V4(address) => (1, address.octets().to_vec()),
        IpAddr::V6(address) => (2, address.octets().to_vec()),
    };
    [&[0, family, source, 0], &octets[..source.div_ceil(8).into()]].concat()
}

/// Of those whose home is Berlin a quarter goes to New York, as does whoever belongs there; also where only some are well.
#[test]
fn what_does_not_fit_at_home_is_told_of_another_member() {
    let fleet = Fleet::new();
    let key = member_key;
    let shares = [
        (key("berlin"), [(key("berlin"), 0.75), (key("york"), 0.25), (key("zingapore"), 0.0)].into()),
        (key("york"), [(key("york"), 1.0)].into()),
    ];
    let told = |client: &str| {
        let mut told = BTreeMap::new();
        for _ in 0..400 {
            let (answer, _) = fleet.ask_from(client.parse().unwrap(), "geo.z A", &[]);
            *told.entry(addresses(&answer).concat()).or_insert(0) += 1;
        }
        told
    };
    let failed = |cluster: &str| {
        let known = Known { unhealthy: Some(Unhealthy::FailedChecks), ..Known::default() };
        (key(cluster), known)
    };
    let set = |known: Vec<_>| {
        fleet.guides.standings.store(Arc::new(Standings::of_all(known, shares.clone().into_iter().collect())));
    };
    set(Vec::new());
    let german = told("203.0.113.1");
    assert!((60..=140).contains(&german["192.0.2.2"]) && german.len() == 2, "{german:?}");
    assert_eq!(told("203.0.113.129"), BTreeMap::from([("192.0.2.2".to_owned(), 400)]));
    assert_eq!(told("198.51.100.1"), BTreeMap::from([("192.0.2.3".to_owned(), 400)]), "of whom nothing is said");
    set(vec![failed("york")]);
    assert_eq!(told("203.0.113.1"), BTreeMap::from([("192.0.2.1".to_owned(), 400)]));
    set(vec![failed("berlin"), failed("york"), failed("zingapore")]);
    assert_eq!(told("203.0.113.1"), BTreeMap::from([("192.0.2.1".to_owned(), 400)]), "nobody is well: the nearest");
}

/// Who asks for whom, and what is told with which scope.
#[test]
fn the_nearest_is_told_with_the_scope_that_it_holds_for() {
    let fleet = Fleet::new();
    for (question, asks_for, expected, scope) in [
        ("geo.z A", "203.0.113.0/24", "192.0.2.1", 25),
        ("geo.z A", "203.0.113.7/32", "192.0.2.1", 25),
        ("geo.z A", "203.0.113.128/26", "192.0.2.2", 26),
        ("geo.z A", "203.0.113.192/26", "192.0.2.1", 26),
        ("geo.z A", "198.51.100.0/24", "192.0.2.3", 24),
        // Less than is needed to know better: the scope says how much would be.
        ("geo.z A", "203.0.0.0/16", "any", 18),
        ("geo.z A", "2001:db8:a::/56", "192.0.2.2", 48),
        ("geo.z AAAA", "2001:db8:a::/56", "2001:db8::2", 48),
        // IPv4 in IPv6's clothes.
        ("geo.z A", "::ffff:203.0.113.128/128", "192.0.2.2", 122),
        // Only what is there in the family.
        ("geo.z AAAA", "198.51.100.0/24", "2001:db8::1", 24),
        ("x.geo.z A", "203.0.113.128/26", "192.0.2.2", 26),
        // Whose place is not known, or not to be used, gets any: but who has no place is some network, too.
        ("geo.z A", "10.0.0.0/8", "any", 1),
        ("geo.z A", "0.0.0.0/0", "any", 0),
        ("geo.z A", "::/0", "any", 0),
        // Nobody's place matters.
        ("failover.z A", "203.0.113.128/26", "192.0.2.2", 0),
        ("latency.z A", "203.0.113.128/26", "any", 0),
        ("plain.z A", "203.0.113.128/26", "192.0.2.99", 0),
        ("nothing.z A", "203.0.113.128/26", "", 0),
        ("geo.z TXT", "203.0.113.128/26", "", 0),
        ("other.test A", "203.0.113.128/26", "", 0),
    ] {
        let sent = subnet(asks_for);
        let (told, options) = fleet.ask(question, &[(8, &sent)]);
        let mut echo = sent.clone();
        echo[3] = scope;
        let options: Vec<_> = options.into_iter().filter(|(code, _)| *code == 8).collect();
        assert_eq!(options, [(8, echo)], "{question} for {asks_for}:\n{told}");
        match expected {
            "any" => assert_eq!(addresses(&told).len(), 1, "{question} for {asks_for}:\n{told}"),
            "" => assert_eq!(addresses(&told), [""; 0], "{question} for {asks_for}:\n{told}"),
            _ => assert_eq!(addresses(&told), [expected], "{question} for {asks_for}"),
        }
    }
    // An alias leads there, too.
    let (told, options) = fleet.ask("shop.z A", &[(8, &subnet("203.0.113.128/26"))]);
    assert_eq!(told, "NOERROR aa\nanswer shop.z 30 CNAME geo.z\nanswer geo.z 10 A 192.0.2.2\n");
    assert_eq!(options[0].1[3], 26);
}

/// Who is told, by chance or not, is who is said to be told, each with the reason.
#[test]
fn what_is_explained_is_what_is_answered() {
    let fleet = Fleet::new();
    fleet.set(&["york failed"]);
    let client = Client { address: [203, 0, 113, 7].into(), transport: Transport::Udp, now: 0 };
    for (question, expected) in [
        ("geo.z A", "berlin Nearest told, zingapore Farther, york Unhealthy"),
        ("geo.z AAAA", "berlin Nearest told, zingapore Farther, york Unhealthy"),
        ("shop.z A", "berlin Nearest told, zingapore Farther, york Unhealthy"),
        ("failover.z A", "zingapore Order told, berlin Later, york Unhealthy"),
        ("weighted.z A", "berlin Weighted told, zingapore NoShare, york Unhealthy"),
        ("latency.z A", ""),
        ("all.z A", ""),
        ("all.z AAAA", ""),
        ("many.z A", ""),
        ("plain.z A", "nothing was chosen"),
        ("nothing.z A", "nothing was chosen"),
    ] {
        for _ in 0..50 {
            let mut out = Vec::new();
            let request = query(question).finish();
            let (_, chosen) = explain(&fleet.index, &fleet.settings, &client, &request, &mut out).unwrap();
            let mut told = addresses(&tell(&out));
            // But for the alias.
            told.retain(|data| data.parse::<IpAddr>().is_ok());
            let Some(choice) = chosen.first() else {
                assert_eq!(expected, "nothing was chosen", "{question}");
                continue;
            };
            let whose = choice.members.iter().filter(|member| member.is_told).flat_map(|member| &member.addresses);
            let whose: BTreeSet<String> = whose.map(ToString::to_string).collect();
            assert!(told.iter().all(|address| whose.contains(address)), "{question}: {told:?} {choice:?}");
            assert_eq!(told.len(), whose.len().min(crate::steer::MAX_ADDRESSES), "{question}: {told:?} {choice:?}");
            if !expected.is_empty() {
                let members = choice.members.iter().map(|member| {
                    let told = if member.is_told { " told" } else { "" };
                    format!("{} {}{told}", member.cluster, member.reason.code())
                });
                assert_eq!(members.collect::<Vec<_>>().join(", "), expected, "{question}");
            }
        }
    }
}

/// What the hub found of a member's backends is known by the plan alone, and the reason for it is no riddle.
#[test]
fn a_member_that_is_not_ready_is_explained_as_such() {
    let fleet = Fleet::new();
    let mut changes = changes(SHOPS);
    let steered = changes.names.iter_mut().filter_map(|change| change.steered.as_mut());
    for member in steered.flat_map(|steered| &mut Arc::make_mut(steered).members) {
        member.unready = (member.cluster.as_str() == "york").then_some(Unhealthy::NoReadyEndpoints);
    }
    let index = Index::default().apply(&changes);
    let client = Client { address: [203, 0, 113, 7].into(), transport: Transport::Udp, now: 0 };
    let (_, chosen) = explain(&index, &fleet.settings, &client, &query("geo.z A").finish(), &mut Vec::new()).unwrap();
    let members = chosen[0].members.iter();
    let known: Vec<_> = members.map(|member| (member.cluster.as_str(), member.known.unhealthy)).collect();
    let expected = [("berlin", None), ("zingapore", None), ("york", Some(Unhealthy::NoReadyEndpoints))];
    assert_eq!(known, expected);
}

#[test]
fn without_a_subnet_the_resolver_counts() {
    let fleet = Fleet::new();
    for (resolver, expected) in
        [("203.0.113.7", "192.0.2.1"), ("203.0.113.130", "192.0.2.2"), ("2001:db8:a::7", "192.0.2.2")]
    {
        let (told, options) = fleet.ask_from(resolver.parse().unwrap(), "geo.z A", &[(3, b"")]);
        assert_eq!(told, format!("NOERROR aa\nanswer geo.z 10 A {expected}\n"));
        assert_eq!(options, [(3, b"ns1".to_vec())], "no subnet was sent");
    }
    // Who sends one that is not to be used is not located by its own address either.
    let told: BTreeSet<_> = (0..200).flat_map(|_| addresses(&fleet.ask("geo.z A", &[(8, &[0, 0, 0, 0])]).0)).collect();
    assert_eq!(told.len(), 3);
}

#[test]
fn health_decides_without_another_index() {
    let fleet = Fleet::new();
    let answer = |name: &str, address: &str| format!("NOERROR aa\nanswer {name} 10 A {address}\n");
    for (standings, question, expected) in [
        (&[][..], "geo.z A", answer("geo.z", "192.0.2.1")),
        (&["berlin failed"], "geo.z A", answer("geo.z", "192.0.2.2")),
        (&["berlin full"], "geo.z A", answer("geo.z", "192.0.2.2")),
        (&["berlin full", "york failed"], "geo.z A", answer("geo.z", "192.0.2.3")),
        (&["berlin full", "york full", "zingapore failed"], "geo.z A", answer("geo.z", "192.0.2.1")),
        // Better a full one than none of the family; but none rather than one that is out.
        (&["berlin full", "york failed"], "geo.z AAAA", "NOERROR aa\nanswer geo.z 10 AAAA 2001:db8::1\n".into()),
        (&["berlin failed", "york failed"], "geo.z AAAA", "NOERROR aa\nauthority z 10 SOA #1\n".into()),
        // All are out: it may be those who check.
        (&["berlin failed", "york failed", "zingapore failed"], "geo.z A", answer("geo.z", "192.0.2.1")),
        (&["berlin 20ms", "york 10ms"], "latency.z A", answer("latency.z", "192.0.2.2")),
        (&["berlin 20ms"], "latency.z A", answer("latency.z", "192.0.2.1")),
        (&[], "failover.z A", answer("failover.z", "192.0.2.2")),
        (&["york failed"], "failover.z A", answer("failover.z", "192.0.2.3")),
        (&["york failed", "zingapore failed"], "failover.z A", answer("failover.z", "192.0.2.1")),
        (&["berlin failed", "zingapore failed"], "all.z A", answer("all.z", "192.0.2.2")),
        (&["york failed"], "all.z AAAA", "NOERROR aa\nauthority z 10 SOA #1\n".into()),
        // RFC 8482: one set, chosen as if it were asked for.
        (&["berlin failed"], "geo.z ANY", answer("geo.z", "192.0.2.2")),
        // No type that it never has: that is for as long as the zone says.
        (&[], "geo.z MX", "NOERROR aa\nauthority z 60 SOA #1\n".into()),
        // What stands beside other answers cannot be chosen for anybody.
        (&[], "mail.z MX", "NOERROR aa\nanswer mail.z 30 MX 10 geo.z\n".into()),
    ] {
        fleet.set(standings);
        assert_eq!(fleet.ask(question, &[]).0, expected, "{question} with {standings:?}");
    }
}

#[test]
fn weights_are_kept_and_the_zones_ttl_counts_where_it_is_shorter() {
    let fleet = Fleet::new();
    assert!(fleet.ask("weighted.z A", &[]).0.contains("weighted.z 5 A"));
    let mut counted: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..4000 {
        *counted.entry(fleet.addresses("weighted.z A").join(" ")).or_default() += 1;
    }
    // 3,000 of 4,000 are off by 140 once in 3 million times.
    assert!(counted.len() == 2 && (2860..3140).contains(&counted["192.0.2.1"]), "{counted:?}");
    fleet.set(&["berlin failed"]);
    assert_eq!(fleet.addresses("weighted.z A"), ["192.0.2.2"]);
    fleet.set(&["berlin failed", "york failed"]);
    assert_eq!(fleet.addresses("weighted.z A"), ["192.0.2.3"]);
}

#[test]
fn who_takes_turns_is_told_with_all_that_are_well() {
    let fleet = Fleet::new();
    let mut first: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..3000 {
        let mut found = fleet.addresses("all.z A");
        *first.entry(found[0].clone()).or_default() += 1;
        found.sort_unstable();
        assert_eq!(found, ["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
    }
    assert!(first.len() == 3 && first.values().all(|count| (850..1150).contains(count)), "{first:?}");
    fleet.set(&["york failed"]);
    let mut found = fleet.addresses("all.z A");
    found.sort_unstable();
    assert_eq!(found, ["192.0.2.1", "192.0.2.3"]);

    // Not more than clients can use, but each of them some time.
    fleet.set(&[]);
    let mut all = BTreeSet::new();
    for _ in 0..300 {
        let found = fleet.addresses("many.z A");
        assert_eq!(found.len(), 8);
        all.extend(found);
    }
    assert_eq!(all.len(), 12);
}

#[test]
fn a_subnet_changes_nothing_but_the_choice() {
    let fleet = Fleet::new();
    let sent = subnet("203.0.113.128/26");
    let cookie = |options: &[(u16, Vec<u8>)]| options.iter().find(|(code, _)| *code == 10).unwrap().1.clone();
    let (_, with) = fleet.ask("geo.z A", &[(10, b"12345678"), (8, &sent)]);
    let (_, without) = fleet.ask("geo.z A", &[(10, b"12345678")]);
    assert_eq!(cookie(&with), cookie(&without));
    assert_eq!(with.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [10, 8]);

    // Who is put off gets it back as well.
    let mut request = query("geo.z A");
    request.opt(|opt| opt.push(&UnknownOptData::new(OptionCode::CLIENT_SUBNET, &sent[..]).unwrap())).unwrap();
    let client = Client { address: IpAddr::from([192, 0, 2, 7]), transport: Transport::Udp, now: 1 };
    let mut out = vec![0; PAYLOAD_SIZE.into()];
    let written = put_off(&fleet.settings, &client, &request.finish(), &mut out);
    assert_eq!(options_of(&out[..written]), [(8, sent)]);
}

/// RFC 7871 6: what is not exact is FORMERR, on every name.
#[test]
fn malformed_subnets_are_refused() {
    let fleet = Fleet::new();
    let good = subnet("203.0.113.0/24");
    for question in ["geo.z A", "plain.z A", "nothing.z A", "other.test A"] {
        for options in [
            &[(8, &[][..])][..],
            &[(8, &[0, 1, 24])],
            &[(8, &[0, 1, 24, 0, 203, 0])],
            &[(8, &[0, 1, 24, 24, 203, 0, 113])],
            &[(8, &[0, 1, 23, 0, 203, 0, 113])],
            &[(8, &[0, 9, 0, 0])],
            // Two.
            &[(8, &good), (8, &good)],
        ] {
            assert_eq!(fleet.ask(question, options).0, "FORMERR\n", "{question} with {options:?}");
        }
    }
}

/// What RFC 7871 6 allows, by another reading than the parser's.
fn is_well_formed(octets: &[u8]) -> bool {
    let [f0, f1, source, 0, address @ ..] = octets else { return false };
    let bits: Vec<bool> = address.iter().flat_map(|octet| (0..8).map(move |bit| octet << bit & 0x80 != 0)).collect();
    let source = usize::from(*source);
    let longest = match (f0, f1) {
        (0, 0) => 0,
        (0, 1) => 32,
        (0, 2) => 128,
        _ => return false,
    };
    source <= longest && bits.len() >= source && bits.len() < source + 8 && !bits[source..].contains(&true)
}

proptest! {
    #[test]
    fn any_octets_are_refused_or_come_back(
        octets in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..24),
            // Nearly right ones.
            (0..3_u8, 0..=130_u8, any::<[u8; 17]>(), -1..2_isize, any::<bool>()).prop_map(
                |(family, source, mut address, more, clean)| {
                    if clean {
                        for bit in usize::from(source)..17 * 8 {
                            address[bit / 8] &= !(0x80 >> (bit % 8));
                        }
                    }
                    let length = usize::from(source.div_ceil(8)).saturating_add_signed(more).min(17);
                    [&[0, family, source, 0], &address[..length]].concat()
                },
            ),
        ],
        question in prop::sample::select(vec!["geo.z A", "all.z AAAA", "plain.z A", "nothing.z A", "other.test A"]),
    ) {
        thread_local! {
            static FLEET: Fleet = Fleet::new();
        }
        let (told, options) = FLEET.with(|fleet| fleet.ask(question, &[(8, &octets)]));
        if is_well_formed(&octets) {
            let (_, echo) = options.iter().find(|(code, _)| *code == 8).unwrap();
            prop_assert_eq!(&echo[..3], &octets[..3]);
            prop_assert_eq!(&echo[4..], &octets[4..]);
            let longest = if octets[1] == 1 { 32 } else { 128 };
            prop_assert!(echo[3] <= longest && (octets[2] > 0 || echo[3] == 0));
            prop_assert!(question == "geo.z A" || echo[3] == 0);
            prop_assert!(!told.starts_with("FORMERR"));
        } else {
            prop_assert_eq!(told, "FORMERR\n");
            prop_assert!(options.is_empty());
        }
    }
}
