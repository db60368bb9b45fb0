use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// `connections/rate`, where `-` is no bound.
fn limits(text: &str) -> Limits {
    let (connections, rate) = text.split_once('/').unwrap();
    Limits { connections: connections.parse().ok(), new_connections_per_second: rate.parse().ok() }
}

fn route(cluster: &str, tenant: &str, own: &str, shared: &str) -> Route {
    Route {
        cluster: cluster.parse().unwrap(),
        tenant: tenant.parse().unwrap(),
        service: "kube-apiserver".into(),
        upstreams: vec!["10.0.0.7:6443".parse().unwrap()],
        inside: Vec::new(),
        allowed_sources: [].into(),
        proof: Arc::default(),
        limits: limits(own),
        tenant_limits: limits(shared),
    }
}

fn code(outcome: &Result<Place, Refusal>) -> &'static str {
    outcome.as_ref().map_or_else(Refusal::code, |_| "Place")
}

#[test]
fn the_first_bound_that_is_met_is_told() {
    for (own, shared, expected) in [
        ("-/-", "-/-", "Place Place Place"),
        ("2/-", "-/-", "Place Place ClusterConnections"),
        ("-/2", "-/-", "Place Place ClusterRate"),
        ("-/-", "2/-", "Place Place TenantConnections"),
        ("-/-", "-/2", "Place Place TenantRate"),
        ("2/2", "2/2", "Place Place ClusterConnections"),
        ("-/2", "2/2", "Place Place TenantConnections"),
        ("-/2", "-/2", "Place Place ClusterRate"),
        ("0/-", "-/-", "ClusterConnections ClusterConnections ClusterConnections"),
        ("-/-", "-/0", "TenantRate TenantRate TenantRate"),
    ] {
        let now = Instant::now();
        let admissions = Admissions::new(now);
        let route = route("c1", "acme", own, shared);
        let outcomes: Vec<_> = (0..3).map(|_| admissions.admit(&route, now)).collect();
        assert_eq!(outcomes.iter().map(code).collect::<Vec<_>>().join(" "), expected, "{own} {shared}");
    }
}

/// Applications that are flooded lock nobody out of the control plane; the tenant has both.
#[test]
fn a_control_plane_and_its_applications_have_bounds_of_their_own() {
    let now = Instant::now();
    let admissions = Admissions::new(now);
    let control = route("c1", "acme", "1/-", "3/-");
    let apps = Route {
        inside: vec!["ingress.svc:443".parse().unwrap()],
        upstreams: Vec::new(),
        ..route("c1", "acme", "2/-", "3/-")
    };
    let first: Vec<_> = (0..3).map(|_| admissions.admit(&apps, now)).collect();
    assert_eq!(first.iter().map(code).collect::<Vec<_>>(), ["Place", "Place", "ClusterConnections"]);
    assert_eq!(admissions.outlook(&control, now).cluster.open, 0);
    let second: Vec<_> = (0..2).map(|_| admissions.admit(&control, now)).collect();
    assert_eq!(second.iter().map(code).collect::<Vec<_>>(), ["Place", "ClusterConnections"]);
    assert_eq!((admissions.outlook(&apps, now).cluster.open, admissions.outlook(&apps, now).tenant.open), (2, 3));
    drop((first, second));
    assert_eq!(admissions.outlook(&apps, now).cluster.open, 0);
}

#[test]
fn refusals_name_who_met_what() {
    let now = Instant::now();
    let text = |own, shared| {
        let refusal = Admissions::new(now).admit(&route("c1", "acme", own, shared), now).unwrap_err();
        assert_eq!((refusal.blame(), refusal.alert()), (model::Blame::Client, None));
        refusal.to_string()
    };
    assert_eq!(text("0/-", "-/-"), "Cluster c1 has 0 connections and may not have more");
    assert_eq!(text("-/0", "-/-"), "Cluster c1 may have 0 new connections per second and has had them");
    assert!(text("-/-", "0/-").starts_with("Tenant acme has 0 connections"));
    assert!(text("-/-", "-/0").ends_with("has had them, this for Cluster c1"));
}

#[test]
fn who_is_refused_has_taken_nothing() {
    let now = Instant::now();
    let admissions = Admissions::new(now);
    let held = admissions.admit(&route("c1", "acme", "-/-", "-/-"), now).unwrap();
    for (own, shared) in [("1/9", "9/9"), ("9/9", "1/9"), ("9/0", "9/9"), ("9/2", "9/0")] {
        for _ in 0..5 {
            assert!(admissions.admit(&route("c1", "acme", own, shared), now).is_err());
        }
    }
    assert_eq!(admissions.open_of_cluster(&"c1".parse().unwrap()), 1);
    assert_eq!(admissions.open_of_tenant(&"acme".parse().unwrap()), 1);
    let whole: Vec<_> = (0..3).map(|_| admissions.admit(&route("c1", "acme", "-/2", "-/3"), now)).collect();
    assert_eq!(whole.iter().map(code).collect::<Vec<_>>(), ["Place", "Place", "ClusterRate"], "both tokens were there");
    drop((held, whole));
    assert_eq!(admissions.open_of_cluster(&"c1".parse().unwrap()), 0);
    assert_eq!(admissions.open_of_tenant(&"acme".parse().unwrap()), 0);
}

#[test]
fn a_tenant_has_one_bound_for_all_of_its_clusters_and_another_tenant_its_own() {
    let now = Instant::now();
    let admissions = Admissions::new(now);
    let admit = |cluster, tenant| admissions.admit(&route(cluster, tenant, "-/-", "2/-"), now);
    let held = [admit("c1", "acme"), admit("c2", "acme")];
    assert!(held.iter().all(Result::is_ok));
    assert_eq!(code(&admit("c3", "acme")), "TenantConnections");
    assert_eq!(code(&admit("c4", "initech")), "Place");
}

#[test]
fn a_bound_that_comes_later_counts_what_is_there() {
    let now = Instant::now();
    let admissions = Admissions::new(now);
    let mut held: Vec<_> = (0..5).map(|_| admissions.admit(&route("c1", "acme", "-/-", "-/-"), now).unwrap()).collect();
    let lowered = route("c1", "acme", "3/-", "-/-");
    while held.len() >= 3 {
        assert_eq!(code(&admissions.admit(&lowered, now)), "ClusterConnections", "{}", held.len());
        held.pop();
    }
    assert_eq!(code(&admissions.admit(&lowered, now)), "Place");
}

#[test]
fn a_cluster_that_changes_hands_takes_its_count_along() {
    let now = Instant::now();
    let admissions = Admissions::new(now);
    let old = admissions.admit(&route("c1", "acme", "2/-", "9/-"), now).unwrap();
    let new = admissions.admit(&route("c1", "initech", "2/-", "9/-"), now).unwrap();
    assert_eq!(code(&admissions.admit(&route("c1", "initech", "2/-", "9/-"), now)), "ClusterConnections");
    let open = |tenant: &str| admissions.open_of_tenant(&tenant.parse().unwrap());
    assert_eq!((open("acme"), open("initech")), (1, 1));
    drop(old);
    assert_eq!((open("acme"), open("initech")), (0, 1));
    drop(new);
    assert_eq!(admissions.open_of_cluster(&"c1".parse().unwrap()), 0);
}

#[test]
fn clusters_that_are_gone_are_forgotten_and_those_in_use_are_not() {
    let start = Instant::now();
    let admissions = Admissions::new(start);
    let kept = admissions.admit(&route("kept", "acme", "1/-", "-/-"), start).unwrap();
    for number in 0..20_000u32 {
        let name = format!("c{number}");
        let now = start + Duration::from_secs(2) * number;
        drop(admissions.admit(&route(&name, &name, "-/1", "-/1"), now).unwrap());
    }
    let accounts: usize = admissions.accounts.each().map(|shard| shard.values().count()).sum();
    let tenants: usize = admissions.tenants.each().map(|shard| shard.values().count()).sum();
    assert!(accounts < 2_000 && tenants < 3_000, "{accounts} {tenants}");
    assert_eq!(code(&admissions.admit(&route("kept", "acme", "1/-", "-/-"), start)), "ClusterConnections");
    drop(kept);
    assert_eq!(code(&admissions.admit(&route("kept", "acme", "1/-", "-/-"), start)), "Place");
}

#[test]
fn an_emptied_bucket_is_not_forgotten() {
    let now = Instant::now();
    let admissions = Admissions::new(now);
    let busy = route("busy", "acme", "-/1", "-/-");
    drop(admissions.admit(&busy, now).unwrap());
    for number in 0..10_000 {
        drop(admissions.admit(&route(&format!("c{number}"), "initech", "-/-", "-/-"), now).unwrap());
    }
    assert_eq!(code(&admissions.admit(&busy, now)), "ClusterRate");
}

#[test]
fn a_place_is_one_pointer() {
    assert_eq!(size_of::<Place>(), 8);
    assert_eq!(size_of::<Option<Place>>(), 8);
}

#[test]
fn threads_never_pass_a_bound_and_all_places_come_back() {
    let now = Instant::now();
    let admissions = Admissions::new(now);
    let routes = [route("c1", "acme", "3/-", "5/-"), route("c2", "acme", "4/-", "5/-")];
    let done = AtomicBool::new(false);
    let usage = admissions.account(&routes[0], 0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|number| {
                let (admissions, routes) = (&admissions, &routes);
                scope.spawn(move || {
                    let (mut held, mut got) = (Vec::new(), 0);
                    for turn in 0..20_000 {
                        held.extend(admissions.admit(&routes[(turn + number) % 2], now).ok());
                        got += held.len();
                        if turn % 3 == 0 {
                            held.clear();
                        }
                    }
                    got
                })
            })
            .collect();
        let (done, usage) = (&done, &usage);
        let watcher = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                assert!(usage.cluster.open() <= 3 && usage.tenant.open() <= 5);
            }
        });
        assert!(workers.into_iter().all(|worker| worker.join().unwrap() > 0));
        done.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
    assert_eq!(admissions.open_of_tenant(&"acme".parse().unwrap()), 0);
    assert_eq!(admissions.open_of_cluster(&"c2".parse().unwrap()), 0);
}

#[test]
fn threads_share_one_rate() {
    let now = Instant::now();
    let admissions = Admissions::new(now);
    let route = route("c1", "acme", "-/100", "-/1000");
    let admitted: usize = thread::scope(|scope| {
        let worker = || (0..1000).filter(|_| admissions.admit(&route, now).is_ok()).count();
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
}

proptest! {
    /// Steps of two clusters of one tenant: enter one of them, or give one of the places back.
    #[test]
    fn what_is_open_never_exceeds_any_bound(
        steps in prop::collection::vec((0..3usize, any::<prop::sample::Index>()), 1..200),
        own in 0..5u32,
        shared in 0..8u32,
    ) {
        let now = Instant::now();
        let admissions = Admissions::new(now);
        let route = |name| route(name, "acme", &format!("{own}/-"), &format!("{shared}/-"));
        let routes = [route("c1"), route("c2")];
        let mut held: Vec<(usize, Place)> = Vec::new();
        for (step, which) in steps {
            if step < 2 {
                let of_cluster = held.iter().filter(|(of, _)| *of == step).count();
                let free = of_cluster < own as usize && held.len() < shared as usize;
                let place = admissions.admit(&routes[step], now);
                prop_assert_eq!(place.is_ok(), free);
                held.extend(place.ok().map(|place| (step, place)));
            } else if !held.is_empty() {
                drop(held.swap_remove(which.index(held.len())));
            }
            for (number, route) in routes.iter().enumerate() {
                let expected = held.iter().filter(|(of, _)| *of == number).count();
                prop_assert_eq!(admissions.open_of_cluster(&route.cluster) as usize, expected);
            }
            prop_assert_eq!(admissions.open_of_tenant(&routes[0].tenant) as usize, held.len());
        }
    }

    /// Two clusters, the second of which changes hands now and then; bounds that are there or not.
    #[test]
    fn what_is_told_beforehand_is_what_comes(
        steps in prop::collection::vec((0..3usize, 0..300u64, any::<prop::sample::Index>()), 1..100),
        own in "(-|[0-4])/(-|[0-4])",
        shared in "(-|[0-6])/(-|[0-6])",
    ) {
        let mut now = Instant::now();
        let admissions = Admissions::new(now);
        let routes = [("c1", "acme"), ("c2", "acme"), ("c2", "other")].map(|(cluster, tenant)| {
            route(cluster, tenant, &own, &shared)
        });
        let mut held = Vec::new();
        for (which, later, gives_back) in steps {
            now += Duration::from_millis(later);
            let told = admissions.outlook(&routes[which], now);
            prop_assert_eq!(told.cluster.open, admissions.open_of_cluster(&routes[which].cluster));
            prop_assert_eq!(told.tenant.open, admissions.open_of_tenant(&routes[which].tenant));
            let comes = admissions.admit(&routes[which], now);
            prop_assert_eq!(told.refusal.as_ref().map_or("Place", Refusal::code), code(&comes));
            prop_assert_eq!(told.refusal.map(|refusal| refusal.to_string()), comes.as_ref().err().map(ToString::to_string));
            held.extend(comes);
            if later % 3 == 0 && !held.is_empty() {
                drop(held.swap_remove(gives_back.index(held.len())));
            }
        }
    }

    /// Over any span, the rate times the span and one bucket on top.
    #[test]
    fn no_span_has_more_than_its_rate_and_one_burst(
        rate in 1..50u32,
        gaps in prop::collection::vec(0..400u64, 1..120),
    ) {
        let start = Instant::now();
        let admissions = Admissions::new(start);
        let route = route("c1", "acme", &format!("-/{rate}"), "-/-");
        let (mut at, mut admitted) = (Duration::ZERO, Vec::new());
        for gap in gaps {
            at += Duration::from_millis(gap);
            for _ in 0..=rate / 2 {
                admitted.extend(admissions.admit(&route, start + at).ok().map(|_| at));
            }
        }
        for (position, from) in admitted.iter().enumerate() {
            for (count, until) in admitted[position..].iter().enumerate() {
                let allowed = f64::from(rate) * (1.0 + until.as_secs_f64() - from.as_secs_f64());
                #[allow(clippy::cast_precision_loss)]
                let count = (count + 1) as f64;
                prop_assert!(count <= allowed + 1e-6, "{count} > {allowed}");
            }
        }
    }
}
