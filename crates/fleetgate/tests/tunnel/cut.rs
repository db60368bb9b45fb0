//! A tenant's network is cut off and comes back: its streams end soon, its names stay, and others notice nothing.

use std::fs;
use std::time::{Duration, Instant};

use testbed::Process;

use crate::fixture::{A, B, PATIENCE, World, dig, eventually};
use crate::tenant::{SHOP, Tenant, programs};

/// A dead link is noticed within 3 seconds; the rest is for a machine that is busy compiling.
const FAIL_WITHIN: Duration = Duration::from_secs(6);

/// What is promised: new streams work again within this.
const BACK_WITHIN: Duration = Duration::from_secs(3);

/// Streams that are open when the cable is cut.
const STREAMS: usize = 50;

/// Its answer is old after a second.
const BRIEF: &str = "brief.default.svc.cluster.local";

/// What allocators keep for later: a leak of 160 KiB per stream that is counted would be more.
const GROWTH_KIB: u64 = 16 * 1024;

/// The agent has a connection to the agents' door that rests for two minutes; those that were cut rest at the hub for as long.
/// Links that leak would be more, streams far more.
const RESTING: usize = 3;

#[test]
fn a_cut_link_fails_fast_comes_back_and_leaks_nothing() {
    let (Some(programs), Some(mut world)) = (programs(), World::start()) else { return };
    let [a, b] = [A, B].map(|place| Tenant::start(&mut world, &programs, place));
    // Once without counting: what is made once and kept is no leak.
    cut_and_mend(&a, &b);
    let before = usage(&world, &a);
    for _ in 0..2 {
        cut_and_mend(&a, &b);
    }
    let after = eventually("about as many descriptors as before", || {
        let after = usage(&world, &a);
        let mut pairs = after.iter().zip(&before);
        let same = pairs.all(|(after, before)| after.descriptors <= before.descriptors + RESTING);
        if same { Ok(after) } else { Err(format!("{before:?} became {after:?}")) }
    });
    println!("before: {before:?}\nafter:  {after:?}");
    for (after, before) in after.iter().zip(&before) {
        assert!(after.memory_kib < before.memory_kib + GROWTH_KIB, "{before:?} became {after:?}");
    }
}

fn cut_and_mend(a: &Tenant, b: &Tenant) {
    let shop = format!("{SHOP}:80");
    let open = |tenant: &Tenant| {
        let mut stream = tenant.connect(&shop).unwrap_or_else(|refused| panic!("{refused:?}"));
        assert_eq!(stream.ask().unwrap(), tenant.greeting());
        stream
    };
    let mut streams: Vec<_> = (0..STREAMS).map(|_| open(a)).collect();
    let mut others = open(b);
    let fresh = dig(a, &[BRIEF]);
    assert!(fresh.contains(SHOP) && !fresh.contains("EDE"), "{fresh}");

    a.inside.cut().unwrap();
    let cut = Instant::now();
    for stream in &mut streams {
        // Closed or reset, but not just silent.
        let end = stream.wait_for_end();
        assert!(!matches!(end, Ok(1..)), "{end:?}");
    }
    let ended = cut.elapsed();
    let asked = Instant::now();
    let refused = a.connect(&shop).err().expect("there is no way");
    let refused_in = asked.elapsed();
    println!("{STREAMS} streams ended {ended:?} after the cut; a new one got {refused:?} in {refused_in:?}");
    assert!(ended < FAIL_WITHIN && refused_in < FAIL_WITHIN);
    assert!(matches!(refused.status, 502..=504) && !refused.code.is_empty() && !refused.reason.is_empty());

    // Older than its TTL by now, and still the answer.
    let stale = eventually("a stale answer", || {
        let answer = dig(a, &[BRIEF]);
        if answer.contains("EDE: 3") { Ok(answer) } else { Err(answer) }
    });
    println!("a stale answer {:?} after the cut", cut.elapsed());
    assert!(stale.contains("status: NOERROR") && has_ttl(&stale, 30), "{stale}");
    assert_eq!(others.ask().unwrap(), b.greeting());
    open(b);

    a.inside.mend().unwrap();
    let mended = Instant::now();
    let mut stream = loop {
        match a.connect(&shop) {
            Ok(stream) => break stream,
            Err(refused) => assert!(mended.elapsed() < PATIENCE, "{refused:?}\n{}", a.agent.log_tail()),
        }
    };
    assert_eq!(stream.ask().unwrap(), a.greeting());
    let back = mended.elapsed();
    println!("streams work {back:?} after the cable was mended");
    assert!(back < BACK_WITHIN, "{back:?}");
    assert_eq!(others.ask().unwrap(), b.greeting());
    eventually("a fresh answer", || {
        let answer = dig(a, &[BRIEF]);
        if answer.contains(SHOP) && !answer.contains("EDE") { Ok(()) } else { Err(answer) }
    });
    println!("a fresh answer {:?} after the cable was mended", mended.elapsed());
}

/// Of the address, as dig prints it.
fn has_ttl(answer: &str, ttl: u32) -> bool {
    let line = answer.lines().find(|line| line.starts_with(BRIEF) && line.ends_with(SHOP));
    line.and_then(|line| line.split_whitespace().nth(1)) == Some(&ttl.to_string())
}

/// What a process holds.
#[derive(Debug, Clone)]
struct Usage {
    #[expect(dead_code, reason = "it is printed")]
    of: &'static str,
    descriptors: usize,
    memory_kib: u64,
}

fn usage(world: &World, a: &Tenant) -> [Usage; 2] {
    [("serve", &world.serve), ("agent", &a.agent)].map(|(of, process)| usage_of(of, process))
}

fn usage_of(of: &'static str, process: &Process) -> Usage {
    let folder = format!("/proc/{}", process.id());
    let descriptors = fs::read_dir(format!("{folder}/fd")).unwrap().count();
    let status = fs::read_to_string(format!("{folder}/status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let memory_kib = memory.trim().trim_end_matches(" kB").parse().unwrap();
    Usage { of, descriptors, memory_kib }
}
