use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// 2023-11-14 22:13:20 UTC, 20 s into a generation.
const T: u64 = 1_700_000_000;
const ID: &[u8] = b"c1";

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn key(fill: u8) -> ProofKey {
    ProofKey::parse(&[fill; 32]).unwrap()
}

fn nonce(number: u64) -> [u8; NONCE] {
    let mut octets = [0; NONCE];
    octets[..8].copy_from_slice(&number.to_be_bytes());
    octets
}

/// Signs, checks and takes, all at once.
fn take(replays: &Replays, id: &[u8], number: u64, signed: u64, now: u64) -> Result<(), ReplayError> {
    let octets = sign(&key(1), id, at(signed), &nonce(number));
    replays.take(check(&octets, id, &[key(1)], at(now)).unwrap(), at(now))
}

/// The tag was made with another implementation of HMAC.
#[test]
fn a_proof_has_these_octets() {
    let secret: Vec<u8> = (0..32).collect();
    let nonce: [u8; NONCE] = std::array::from_fn(|place| 0xA0 + u8::try_from(place).unwrap());
    let octets = sign(&ProofKey::parse(&secret).unwrap(), ID, at(T), &nonce);
    let text: Vec<String> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    assert_eq!(
        text.concat(),
        [
            "01",
            "000000006553f100",
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
            "fdde27712da4ed828343214e2445d31be504bc0af2d847d1b9420774bb1b84b6",
        ]
        .concat()
    );
}

#[test]
fn a_proof_is_good_for_a_minute_to_either_side() {
    let octets = sign(&key(1), ID, at(T), &nonce(1));
    let good = Nonce { cluster_id: ID, octets: nonce(1), signed_at: T };
    for (now, error) in [
        (at(T), None),
        (at(T + 60), None),
        (at(T + 60) + Duration::from_millis(999), None),
        (at(T + 61), Some(ProofError::Expired { age: 61 })),
        (at(T + 86_400), Some(ProofError::Expired { age: 86_400 })),
        (at(T - 60), None),
        (at(T - 61), Some(ProofError::FromTheFuture { ahead: 61 })),
        (at(T - 61) + Duration::from_millis(999), Some(ProofError::FromTheFuture { ahead: 61 })),
        (UNIX_EPOCH - Duration::from_secs(1), Some(ProofError::FromTheFuture { ahead: T })),
    ] {
        let outcome = check(&octets, ID, &[key(1)], now);
        assert_eq!(outcome.as_ref().err(), error.as_ref(), "{now:?}");
        assert!(outcome.is_err() || outcome.as_ref() == Ok(&good), "{now:?}");
    }
}

#[test]
fn keys_and_clusters_are_told_apart() {
    let octets = sign(&key(1), ID, at(T), &nonce(1));
    for (what, id, keys, good) in [
        ("the key", ID, vec![key(1)], true),
        ("the old one of a rotation", ID, vec![key(1), key(2)], true),
        ("the new one of a rotation", ID, vec![key(2), key(1)], true),
        ("another key", ID, vec![key(2)], false),
        ("two others", ID, vec![key(2), key(3)], false),
        ("no keys", ID, vec![], false),
        ("another cluster", b"c2", vec![key(1)], false),
        ("another cluster's id in other letters", b"C1", vec![key(1)], false),
        ("a longer id", b"c10", vec![key(1)], false),
        ("a shorter id", b"c", vec![key(1)], false),
    ] {
        let outcome = check(&octets, id, &keys, at(T));
        assert_eq!(outcome.err(), (!good).then_some(ProofError::WrongKey), "{what}");
    }
}

#[test]
fn what_is_no_proof_is_refused() {
    let octets = sign(&key(1), ID, at(T), &nonce(1));
    let mut later = octets;
    later[0] = 2;
    for (what, octets, malformed) in [
        ("nothing", vec![], Malformed::Length(0)),
        ("too short", octets[..56].to_vec(), Malformed::Length(56)),
        ("too long", [octets.as_slice(), &[0]].concat(), Malformed::Length(58)),
        ("version 2", later.to_vec(), Malformed::Version(2)),
    ] {
        assert_eq!(check(&octets, ID, &[key(1)], at(T)), Err(ProofError::Malformed(malformed)), "{what}");
    }
}

#[test]
fn a_stale_proof_with_a_wrong_key_says_nothing_of_the_time() {
    let octets = sign(&key(2), ID, at(T), &nonce(1));
    assert_eq!(check(&octets, ID, &[key(1)], at(T + 3600)), Err(ProofError::WrongKey));
}

#[test]
fn a_nonce_is_taken_once_as_long_as_its_proof_is_good() {
    // From every second of a generation, dated as far back and ahead as may be.
    for now in T..T + 60 {
        for signed in [now - 60, now - 1, now, now + 1, now + 60] {
            let replays = Replays::default();
            assert_eq!(take(&replays, ID, 1, signed, now), Ok(()));
            for again in now..=signed + 60 {
                // Others come meanwhile, and old generations go.
                assert_eq!(take(&replays, ID, again, again, again), Ok(()));
                assert_eq!(take(&replays, ID, 1, signed, again), Err(ReplayError::Replayed), "{now} {signed} {again}");
            }
        }
    }
}

#[test]
fn a_nonce_that_is_dated_anew_is_the_same_nonce() {
    let replays = Replays::default();
    assert_eq!(take(&replays, ID, 1, T, T), Ok(()));
    assert_eq!(take(&replays, ID, 1, T + 60, T + 60), Err(ReplayError::Replayed));
}

#[test]
fn a_clock_set_back_a_little_makes_no_replay() {
    let replays = Replays::default();
    assert_eq!(take(&replays, ID, 1, T, T), Ok(()));
    assert_eq!(take(&replays, ID, 2, T + 120, T + 120), Ok(()));
    assert_eq!(take(&replays, ID, 1, T, T + 60), Err(ReplayError::Replayed));
}

#[test]
fn clusters_do_not_spend_each_others_nonces() {
    let replays = Replays::default();
    assert_eq!(take(&replays, b"c1", 1, T, T), Ok(()));
    assert_eq!(take(&replays, b"c2", 1, T, T), Ok(()));
    assert_eq!(replays.held(), 2);
}

#[test]
fn one_of_many_threads_wins() {
    const THREADS: usize = 8;
    const NONCES: u64 = 200;
    let replays = Replays::default();
    let start = std::sync::Barrier::new(THREADS);
    let run = || {
        start.wait();
        (0..NONCES).filter(|number| take(&replays, ID, *number, T, T).is_ok()).collect::<Vec<u64>>()
    };
    let won: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(won.len(), 200, "each of them once");
    assert_eq!(won.into_iter().collect::<BTreeSet<u64>>(), (0..NONCES).collect());
    assert_eq!(replays.held(), 200);
}

#[test]
fn memory_is_bounded_per_cluster_and_in_all() {
    let replays = Replays::new(Limits { per_cluster: 3, total: 5 });
    for number in 0..3 {
        assert_eq!(take(&replays, b"noisy", number, T, T), Ok(()));
    }
    assert_eq!(take(&replays, b"noisy", 3, T, T), Err(ReplayError::Full));
    assert_eq!(take(&replays, b"noisy", 4, T + 60, T), Err(ReplayError::Full), "of whatever time");
    assert_eq!(take(&replays, b"noisy", 0, T, T), Err(ReplayError::Replayed), "and what is known stays known");

    assert_eq!(take(&replays, b"quiet", 0, T, T), Ok(()), "one cluster's flood is not another's");
    assert_eq!(take(&replays, b"third", 0, T, T), Ok(()));
    assert_eq!(take(&replays, b"third", 1, T, T), Err(ReplayError::Full), "full for all");
    assert_eq!(take(&replays, b"fourth", 0, T, T), Err(ReplayError::Full));
    assert_eq!(replays.held(), 5);
}

#[test]
fn what_cannot_be_replayed_makes_room() {
    let replays = Replays::new(Limits { per_cluster: 2, total: 3 });
    // T is 20 s into its generation, which stays for the two after it.
    let gone = T - 20 + 180;
    for (id, number) in [(b"c1", 0), (b"c1", 1), (b"c2", 0)] {
        assert_eq!(take(&replays, id, number, T, T), Ok(()));
    }
    assert_eq!(take(&replays, b"c2", 1, gone - 1, gone - 1), Err(ReplayError::Full));
    assert_eq!(take(&replays, b"c2", 1, gone, gone), Ok(()));
    assert_eq!(replays.held(), 1, "the cluster that does not come again is forgotten too");
}

proptest! {
    #[test]
    fn any_bytes_are_no_proof(octets in proptest::collection::vec(0u8.., 0..120), id in proptest::collection::vec(0u8.., 0..40)) {
        prop_assert!(check(&octets, &id, &[key(1)], at(T)).is_err());
    }

    #[test]
    fn any_flipped_bit_is_seen(place in 0..LENGTH, bit in 0u8..8, number: u64) {
        let mut octets = sign(&key(1), ID, at(T), &nonce(number));
        octets[place] ^= 1 << bit;
        let expected = match place {
            0 => ProofError::Malformed(Malformed::Version(octets[0])),
            _ => ProofError::WrongKey,
        };
        prop_assert_eq!(check(&octets, ID, &[key(1)], at(T)), Err(expected));
    }

    #[test]
    fn any_time_that_is_signed_is_judged(signed in 0..1_u64 << 40, now in 0..1_u64 << 40) {
        let octets = sign(&key(1), ID, at(signed), &nonce(1));
        prop_assert_eq!(check(&octets, ID, &[key(1)], at(now)).is_ok(), signed.abs_diff(now) <= VALID_FOR);
    }
}
