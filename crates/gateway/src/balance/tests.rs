use std::thread;
use std::time::Duration;

use model::resource::Limits;
use proptest::prelude::*;

use super::*;

fn address(number: usize) -> SocketAddr {
    format!("10.0.0.{number}:6443").parse().unwrap()
}

/// To the addresses 1 to `count`.
fn route(count: usize) -> Route {
    Route {
        cluster: "c1".parse().unwrap(),
        tenant: "acme".parse().unwrap(),
        service: "kube-apiserver".into(),
        upstreams: (1..=count).map(address).collect(),
        inside: Vec::new(),
        allowed_sources: [].into(),
        proof: Arc::default(),
        limits: Limits::default(),
        tenant_limits: Limits::default(),
    }
}

/// The numbers of the addresses, best first.
fn order(upstreams: &Upstreams, route: &Route, now: Instant) -> Vec<usize> {
    let order = upstreams.order(route, now);
    let number = |state: &Arc<UpstreamState>| (1..=9).find(|number| address(*number) == state.address()).unwrap();
    order.iter().map(number).collect()
}

fn fail(upstreams: &Upstreams, number: usize, times: usize, now: Instant) {
    for _ in 0..times {
        upstreams.state(address(number), now).attempt().failed(Errno::CONNREFUSED, now);
    }
}

#[test]
fn equals_take_turns() {
    let (upstreams, route, now) = (Upstreams::default(), route(3), Instant::now());
    let orders: Vec<_> = (0..4).map(|_| order(&upstreams, &route, now)).collect();
    assert_eq!(orders, [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]);
}

#[test]
fn the_turns_of_one_route_do_not_depend_on_another() {
    let (upstreams, one, now) = (Upstreams::default(), route(2), Instant::now());
    let other = Route { upstreams: vec![address(8), address(9)], ..route(2) };
    for expected in [1, 2, 1, 2] {
        assert_eq!(order(&upstreams, &one, now)[0], expected);
        assert_eq!(order(&upstreams, &other, now)[0], expected + 7);
    }
}

#[test]
fn the_least_loaded_is_first() {
    let (upstreams, route, now) = (Upstreams::default(), route(3), Instant::now());
    let mut held: Vec<Load> = (0..3).map(|_| upstreams.state(address(1), now).attempt()).collect();
    held.push(upstreams.state(address(2), now).attempt());
    assert_eq!(order(&upstreams, &route, now), [3, 2, 1]);
    held.extend((0..3).map(|_| upstreams.state(address(3), now).attempt()));
    assert_eq!(order(&upstreams, &route, now)[0], 2);
    drop(held);
    assert_eq!((1..=3).map(|number| upstreams.state(address(number), now).open()).sum::<u32>(), 0);
}

#[test]
fn what_stays_open_is_spread_evenly() {
    let (upstreams, route, now) = (Upstreams::default(), route(3), Instant::now());
    let held: Vec<_> = (0..300).map(|_| upstreams.order(&route, now)[0].attempt()).collect();
    for number in 1..=3 {
        assert_eq!(upstreams.state(address(number), now).open(), 100);
    }
    drop(held);
}

#[test]
fn the_ranks_of_bad_addresses() {
    #[derive(Clone, Copy)]
    enum Is {
        Good,
        Ejected,
        Unhealthy,
        Both,
    }
    use Is::{Both, Ejected, Good, Unhealthy};
    for (states, expected) in [
        ([Good, Good, Ejected], [1, 2, 3]),
        ([Ejected, Good, Good], [2, 3, 1]),
        ([Unhealthy, Ejected, Good], [3, 1, 2]),
        ([Both, Unhealthy, Good], [3, 2, 1]),
        // Where all are bad, all are tried.
        ([Ejected, Ejected, Ejected], [1, 2, 3]),
        ([Unhealthy, Unhealthy, Unhealthy], [1, 2, 3]),
        ([Both, Both, Ejected], [3, 1, 2]),
    ] {
        let (upstreams, route, now) = (Upstreams::default(), route(3), Instant::now());
        let mut held = Vec::new();
        for (number, state) in (1..).zip(states) {
            let known = upstreams.state(address(number), now);
            // Load never makes up for being bad.
            match state {
                Good => held.extend((0..9).map(|_| known.attempt())),
                Ejected => fail(&upstreams, number, 3, now),
                Unhealthy => known.set_health(Health::Unhealthy),
                Both => {
                    known.set_health(Health::Unhealthy);
                    fail(&upstreams, number, 3, now);
                }
            }
        }
        assert_eq!(order(&upstreams, &route, now), expected);
    }
}

#[test]
fn one_client_finds_out_whether_an_address_is_back() {
    let (upstreams, route, now) = (Upstreams::default(), route(3), Instant::now());
    fail(&upstreams, 1, 3, now);
    fail(&upstreams, 2, 3, now);
    let busy: Vec<_> = (0..5).map(|_| upstreams.state(address(3), now).attempt()).collect();
    assert_eq!(order(&upstreams, &route, now)[0], 3);
    let later = now + Duration::from_secs(1);
    assert_eq!(order(&upstreams, &route, later)[0], 1, "the first trial");
    assert_eq!(order(&upstreams, &route, later)[0], 2, "another client, the other trial");
    assert_eq!(order(&upstreams, &route, later)[0], 3, "nobody else");
    upstreams.state(address(2), now).attempt().connected();
    assert_eq!(order(&upstreams, &route, later)[0], 2);
    assert_eq!(upstreams.census(), Census { known: 3, unhealthy: 0, ejected: 1 });
    drop(busy);
}

#[test]
fn clients_do_not_try_what_the_checks_know_to_be_away() {
    let (upstreams, route, now) = (Upstreams::default(), route(2), Instant::now());
    fail(&upstreams, 1, 3, now);
    upstreams.state(address(1), now).set_health(Health::Unhealthy);
    let later = now + Duration::from_mins(1);
    assert_eq!(order(&upstreams, &route, later)[0], 2);
    upstreams.state(address(1), now).set_health(Health::Healthy);
    assert_eq!(order(&upstreams, &route, later)[0], 1);
}

#[test]
fn a_lack_of_ours_is_not_held_against_an_address() {
    let (upstreams, now) = (Upstreams::default(), Instant::now());
    for error in [Errno::MFILE, Errno::ADDRNOTAVAIL, Errno::NOMEM, Errno::PERM] {
        upstreams.state(address(1), now).attempt().failed(error, now);
    }
    assert!(!upstreams.state(address(1), now).is_ejected());
    for error in [Errno::CONNREFUSED, Errno::TIMEDOUT, Errno::HOSTUNREACH] {
        upstreams.state(address(1), now).attempt().failed(error, now);
    }
    assert!(upstreams.state(address(1), now).is_ejected());
}

#[test]
fn addresses_that_are_gone_are_forgotten_and_those_in_use_are_not() {
    let (upstreams, now) = (Upstreams::default(), Instant::now());
    let held = upstreams.state(address(1), now).attempt();
    upstreams.state(address(2), now).set_health(Health::Unhealthy);
    for number in 0..20_000u32 {
        let address = SocketAddr::from((std::net::Ipv4Addr::from_bits(number), 1));
        let now = now + Duration::from_secs(1) * number;
        let load = upstreams.state(address, now).attempt();
        if number % 2 == 0 { load.connected() } else { load.failed(Errno::TIMEDOUT, now) }
    }
    let census = upstreams.census();
    assert!(census.known < 2_000, "{census:?}");
    assert_eq!(census.unhealthy, 1);
    assert_eq!(upstreams.state(address(1), now).open(), 1);
    drop(held);
}

#[test]
fn looking_puts_nothing_into_the_table() {
    let (upstreams, now) = (Upstreams::default(), Instant::now());
    let told = upstreams.outlook(&route(2), now);
    let unknown = |number| Prospect { address: address(number), health: Health::Unknown, ejected: false, open: 0 };
    assert_eq!(told, [unknown(1), unknown(2)]);
    assert_eq!(upstreams.census(), Census::default());
    let _held = upstreams.state(address(1), now).attempt();
    fail(&upstreams, 2, 3, now);
    let told = upstreams.outlook(&route(2), now);
    assert_eq!(told, [Prospect { open: 1, ..unknown(1) }, Prospect { ejected: true, ..unknown(2) }]);
    assert_eq!(told.iter().map(Prospect::is_good).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_load_is_one_pointer() {
    assert_eq!(size_of::<Option<Load>>(), 8);
}

#[test]
fn threads_spread_what_they_hold_and_give_it_all_back() {
    let (upstreams, route, now) = (Upstreams::default(), route(4), Instant::now());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut held = Vec::new();
                for turn in 0..5_000 {
                    let load = upstreams.order(&route, now)[0].attempt();
                    if turn % 7 == 0 {
                        load.failed(Errno::CONNREFUSED, now);
                    } else {
                        load.connected();
                        held.push(load);
                    }
                    if turn % 50 == 0 {
                        held.clear();
                    }
                }
            });
        }
    });
    for number in 1..=4 {
        assert_eq!(upstreams.state(address(number), now).open(), 0);
    }
}

proptest! {
    /// Whatever happened: every address is there once, and a good one comes before a bad one.
    #[test]
    fn an_order_has_every_address_once_and_good_ones_first(
        steps in prop::collection::vec((1..5usize, 0..6u8, 0..2_000u64), 0..60),
    ) {
        let (upstreams, route) = (Upstreams::default(), route(4));
        let mut now = Instant::now();
        let mut held = Vec::new();
        for (number, what, later) in steps {
            now += Duration::from_millis(later);
            let state = upstreams.state(address(number), now);
            match what {
                0 | 1 => state.attempt().failed(Errno::TIMEDOUT, now),
                2 => state.set_health(Health::Unhealthy),
                3 => state.set_health(Health::Healthy),
                4 => held.push(state.attempt()),
                _ => state.attempt().connected(),
            }
            let told = upstreams.outlook(&route, now);
            prop_assert_eq!(&upstreams.outlook(&route, now), &told, "looking changes nothing");
            let order = upstreams.order(&route, now);
            let ordered: Vec<_> = order.iter().map(|state| state.address()).collect();
            prop_assert_eq!(told.iter().map(|prospect| prospect.address).collect::<Vec<_>>(), ordered);
            let mut addresses: Vec<_> = order.iter().map(|state| state.address()).collect();
            addresses.sort();
            prop_assert_eq!(addresses, route.upstreams.clone());
            // A trial may come first, and is ejected for all others from then on.
            let is_bad = |state: &Arc<UpstreamState>| state.health() == Health::Unhealthy || state.is_ejected();
            prop_assert!(order[1..].is_sorted_by_key(is_bad));
        }
    }
}
