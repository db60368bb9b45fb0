use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn door(total: u32, per_source: u32) -> Arc<Openings> {
    let exempt = vec!["10.9.0.0/16".parse().unwrap()];
    Arc::new(Openings::new(OpeningLimits { total, per_source, exempt }))
}

/// Enters, lets whoever has to go leave, and says who that was and why.
struct Thread {
    undecided: Undecided<u32>,
    places: BTreeMap<u32, OpeningPlace>,
}

impl Thread {
    fn of(door: &Arc<Openings>) -> Self {
        Self { undecided: Undecided::new(Arc::clone(door)), places: BTreeMap::new() }
    }

    fn enter(&mut self, who: u32, peer: IpAddr) -> String {
        match self.undecided.enter(who, peer) {
            Entered::Freely(place) => {
                self.places.insert(who, place);
                String::new()
            }
            Entered::InsteadOf { place, oldest, refusal } => {
                self.places.insert(who, place);
                self.leave(oldest);
                format!("{oldest} {}", refusal.code())
            }
        }
    }

    fn leave(&mut self, who: u32) {
        self.undecided.leave(self.places.remove(&who).unwrap());
    }
}

#[test]
fn the_oldest_goes_where_a_bound_is_met() {
    let (source, all) = ("TooManyOpeningsOfSource", "TooManyOpenings");
    let mut thread = Thread::of(&door(5, 2));
    for (who, peer, displaced) in [
        (1, "192.0.2.1", String::new()),
        (2, "192.0.2.2", String::new()),
        (3, "192.0.2.2", String::new()),
        // Its own source's oldest, though another's is older.
        (4, "192.0.2.2", format!("2 {source}")),
        (5, "::ffff:192.0.2.2", format!("3 {source}")),
        (6, "2001:db8::1", String::new()),
        (7, "2001:db8:0:0:ffff::1", String::new()),
        // Five are there.
        (8, "2001:db8:0:1::1", format!("1 {all}")),
        (9, "2001:db8::2", format!("6 {source}")),
        // A load balancer is never one source too many, but part of the total.
        (10, "10.9.0.1", format!("4 {all}")),
        (11, "10.9.0.1", format!("5 {all}")),
        (12, "10.9.0.1", format!("7 {all}")),
        (13, "10.9.0.1", format!("8 {all}")),
    ] {
        assert_eq!(thread.enter(who, ip(peer)), displaced, "{who} from {peer}");
    }
}

#[test]
fn who_has_spoken_is_not_in_the_way() {
    let door = door(2, 2);
    let mut thread = Thread::of(&door);
    for who in 0..10_000 {
        assert_eq!(thread.enter(who, ip("192.0.2.1")), "");
        thread.leave(who);
    }
    assert_eq!(door.count(), 0);
    assert_eq!(door.by_source.each().map(|shard| shard.values().count()).sum::<usize>(), 0);
}

#[test]
fn nine_thousand_silent_peers_leave_room_for_an_honest_one() {
    let door = Arc::new(Openings::new(OpeningLimits::default()));
    let mut threads = [Thread::of(&door), Thread::of(&door)];
    let mut honest_were_let_go = 0;
    for silent in 0..9_000u32 {
        threads[silent as usize % 2].enter(silent, ip("127.0.0.1"));
        if silent % 100 == 99 {
            // Its bytes come only after a hundred more.
            threads[0].enter(100_000 + silent, ip("127.0.0.1"));
            if silent > 100 {
                let before = 100_000 + silent - 100;
                if threads[0].places.contains_key(&before) {
                    threads[0].leave(before);
                } else {
                    honest_were_let_go += 1;
                }
            }
        }
    }
    assert_eq!(honest_were_let_go, 0);
    assert!(door.count() <= PER_SOURCE + 2, "{}", door.count());
}

#[test]
fn a_thread_can_only_let_its_own_go() {
    let door = door(3, 2);
    let (mut one, mut other) = (Thread::of(&door), Thread::of(&door));
    assert_eq!(one.enter(1, ip("192.0.2.1")), "");
    assert_eq!(one.enter(2, ip("192.0.2.1")), "");
    assert_eq!(other.enter(1, ip("192.0.2.1")), "", "one more per thread");
    assert_eq!(other.enter(2, ip("192.0.2.1")), "1 TooManyOpeningsOfSource");
    assert_eq!(other.enter(3, ip("192.0.2.2")), "2 TooManyOpenings");
    drop(one);
    assert_eq!(door.count(), 1, "a thread that ends takes its own along");
}

#[test]
fn sources_are_told_apart_and_shown() {
    for (peer, shown) in [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("0.0.0.0", "0.0.0.0"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
    ] {
        assert_eq!(Source::of(ip(peer)).to_string(), shown);
    }
}

proptest! {
    #[test]
    fn no_bound_is_passed_by_more_than_one_per_thread(
        steps in prop::collection::vec((0..3usize, 0..4u8, prop::bool::weighted(0.3)), 1..200),
        (total, per_source) in (1..8u32, 1..6u32),
    ) {
        let door = door(total, per_source);
        let mut threads = [Thread::of(&door), Thread::of(&door), Thread::of(&door)];
        for (who, (thread, peer, leaves)) in steps.into_iter().enumerate() {
            let thread = &mut threads[thread];
            if let Some(first) = thread.places.keys().next().copied().filter(|_| leaves) {
                thread.leave(first);
            } else {
                thread.enter(u32::try_from(who).unwrap(), IpAddr::from([192, 0, 2, peer]));
            }
            prop_assert!(door.count() <= total + 2);
            let held: usize = threads.iter().map(|thread| thread.places.len()).sum();
            prop_assert_eq!(door.count() as usize, held);
            for shard in door.by_source.each() {
                prop_assert!(shard.values().all(|count| (1..=per_source + 2).contains(count)));
            }
        }
        drop(threads);
        prop_assert_eq!(door.count(), 0);
    }
}
