//! What the gate lets through, and when: a replica is a planner, its gate, and a name server that follows what passes.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::*;
use super::fleet::{GROUND, facts};
use super::properties::{Served, ServedZone, follow, served_by};
use crate::digest::Digest;
use crate::gate::{Gate, PATIENCE};
use crate::snapshot::{RecordData, Soa};

#[derive(Default)]
struct Replica {
    planner: Planner,
    gate: Gate,
    served: Served,
}

impl Replica {
    fn plan(&mut self, facts: impl IntoIterator<Item = FactChange>, now: Timestamp) -> Changes {
        let planned = self.planner.apply(facts, now);
        let released = self.gate.pass(&planned, now);
        follow(&mut self.served, &released);
        released
    }

    /// What the hub would hear from it if it was the leader.
    fn number(&self, zone: &ObjectName) -> Option<Number> {
        let part = self.planner.snapshot().zone(zone)?;
        Some(Number { serial: part.soa.serial, digest: part.digest })
    }

    fn shown(&self, apex: &str) -> Option<(u32, Digest)> {
        let zone = self.served.get(&apex.parse().unwrap())?;
        Some((zone.0.serial, digest(zone)))
    }
}

/// Of what is really served.
fn digest((soa, file, names): &ServedZone) -> Digest {
    let mut digest = Digest::of_soa(soa, file.as_ref().and_then(|file| Some(file.soa()?.serial)));
    if let Some(file) = file {
        digest += file.digest();
    }
    for (name, records) in names {
        digest += Digest::of_name(&crate::snapshot::NameRecords::plain(name.clone(), Arc::clone(records)));
    }
    digest
}

fn millis(millis: u64) -> Timestamp {
    Timestamp::from_unix(Duration::from_millis(millis))
}

fn main() -> ObjectName {
    "main".parse().unwrap()
}

/// `SERIAL ADDRESS`, the latter where `*.c1` leads to.
fn told(replica: &Replica) -> String {
    let Some((soa, _, names)) = replica.served.get(&"fleet.example".parse().unwrap()) else { return "nothing".into() };
    let addresses = names.get(&"*.c1.fleet.example".parse().unwrap());
    let addresses = addresses.into_iter().flat_map(|sets| sets.iter()).map(|set| match &set.data {
        RecordData::A(addresses) => format!(" {}", addresses[0]),
        other => panic!("{other:?}"),
    });
    format!("{}{}", soa.serial, addresses.collect::<String>())
}

/// Runs lines of `MILLIS plan FACTS`, `MILLIS number SERIAL PLAN` (the number of what the plan with that place came to) and
/// `MILLIS wake`; each has behind `->` what is served then, and when the gate wants to be asked next.
fn run(script: &str) {
    let mut replica = Replica::default();
    let mut digests = Vec::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (event, expected) = line.split_once(" -> ").unwrap();
        let (now, event) = event.split_once(' ').unwrap();
        let now = millis(now.parse().unwrap());
        match event.split_once(' ') {
            Some(("plan", lines)) => {
                replica.plan(facts(&lines.replace("GROUND", GROUND).replace(';', "\n")), now);
                digests.push(replica.number(&main()).map(|number| number.digest));
            }
            Some(("number", number)) => {
                let (serial, place) = number.split_once(' ').unwrap();
                let digest = digests[place.parse::<usize>().unwrap()].unwrap();
                let number = Number { serial: serial.parse().unwrap(), digest };
                replica.plan([FactChange::Number(main(), Some(number))], now);
            }
            _ => _ = replica.plan([], now),
        }
        let wake = replica.gate.wake().map_or("-".into(), |at| at.as_unix().as_millis().to_string());
        assert_eq!(format!("{}, {wake}", told(&replica)), expected, "{line}");
    }
}

#[test]
fn changes_wait_for_their_number() {
    run("
        5000 plan GROUND; cluster c1 nodes=192.0.2.1 -> nothing, 6000
        5100 number 70 0 -> 70 192.0.2.1, -
        5200 plan cluster c1 nodes=192.0.2.2 -> 70 192.0.2.1, 6200
        5300 plan cluster c1 nodes=192.0.2.3 -> 70 192.0.2.1, 6200
        5400 number 71 1 -> 71 192.0.2.2, 6300
        5500 number 75 2 -> 75 192.0.2.3, -
        5600 plan cluster c1 nodes=192.0.2.4 -> 75 192.0.2.3, 6600
        5700 plan cluster c1 nodes=192.0.2.5 -> 75 192.0.2.3, 6600
        5800 number 76 4 -> 76 192.0.2.5, -
    ");
}

#[test]
fn a_number_that_is_known_already_lets_its_content_pass_at_once() {
    run("
        5000 plan GROUND; cluster c1 nodes=192.0.2.1 -> nothing, 6000
        5001 number 70 0 -> 70 192.0.2.1, -
        5002 plan cluster c1 nodes=192.0.2.2 -> 70 192.0.2.1, 6002
        5003 plan cluster c1 nodes=192.0.2.1 -> 70 192.0.2.1, -
        5004 number 71 1 -> 70 192.0.2.1, -
        5005 number 72 0 -> 72 192.0.2.1, -
    ");
}

/// What nobody has numbered yet is a day older than the plan's guess, which is the clock's: 5 seconds, here before the epoch.
#[test]
fn nothing_waits_longer_than_a_second() {
    run("
        5000 plan GROUND; cluster c1 nodes=192.0.2.1 -> nothing, 6000
        5999 wake -> nothing, 6000
        6000 wake -> 4294880901 192.0.2.1, -
        6100 number 70 0 -> 70 192.0.2.1, -
        6200 plan cluster c1 nodes=192.0.2.2 -> 70 192.0.2.1, 7200
        7100 plan cluster c1 nodes=192.0.2.3 -> 70 192.0.2.1, 7200
        7200 wake -> 70 192.0.2.3, -
        7300 number 71 1 -> 70 192.0.2.3, -
        7400 number 72 2 -> 72 192.0.2.3, -
    ");
}

#[test]
fn what_is_withdrawn_is_withdrawn_at_once() {
    run("
        5000 plan GROUND; cluster c1 nodes=192.0.2.1 -> nothing, 6000
        5001 number 70 0 -> 70 192.0.2.1, -
        5002 plan cluster c1 nodes=192.0.2.2 -> 70 192.0.2.1, 6002
        5003 plan gone zone main -> nothing, -
        5004 plan zone main fleet.example -> nothing, 6004
        5005 number 72 3 -> 72 192.0.2.2, -
    ");
}

/// A leader's guess is not worth a step: only the number is.
#[test]
fn a_new_guess_of_the_serial_is_no_change() {
    run("
        5000 plan GROUND; cluster c1 nodes=192.0.2.1 -> nothing, 6000
        5001 number 70 0 -> 70 192.0.2.1, -
        5002 plan cluster c1 nodes=192.0.2.2 -> 70 192.0.2.1, 6002
        5003 plan cluster c1 nodes=192.0.2.3 -> 70 192.0.2.1, 6002
        5500 number 90 1 -> 90 192.0.2.2, 6003
        6003 wake -> 90 192.0.2.3, -
        6004 number 95 1 -> 90 192.0.2.3, -
        6005 number 96 2 -> 96 192.0.2.3, -
    ");
}

#[test]
fn zones_do_not_wait_for_each_other() {
    let mut replica = Replica::default();
    replica
        .plan(facts(&format!("{GROUND}\n zone other other.test\n cluster c1\n cluster o1 zone=other")), millis(5000));
    let other: ObjectName = "other".parse().unwrap();
    let number = replica.number(&other);
    let released = replica.plan([FactChange::Number(other, number)], millis(5001));
    assert!(replica.shown("other.test").is_some() && replica.shown("fleet.example").is_none());
    assert!(released.names.iter().all(|change| change.apex == "other.test".parse().unwrap()), "{released:?}");
}

/// What happens next to a replica.
#[derive(Debug, Clone)]
enum Event {
    /// So many of the changes that it has not seen come in one batch.
    Facts(usize),
    /// So many of the numbers that the leader wrote.
    Numbers(usize),
    /// Time passes, in milliseconds.
    Time(u64),
}

fn changes() -> impl Strategy<Value = Vec<String>> {
    let cluster = (select(vec!["c1", "c2"]), select(vec!["main", "main", "other"]), 1..4u8)
        .prop_map(|(name, zone, node)| format!("cluster {name} zone={zone} nodes=192.0.2.{node}"));
    let zone = select(vec![
        "zone main fleet.example",
        "zone main fleet.example ttl=31",
        "zone main fleet.example external handout",
        "zone other other.test",
        "zone other other.test file=soa/7,@/NS/ns.test",
        "gone zone other",
        "gone cluster c1",
    ]);
    vec(prop_oneof![4 => cluster, 1 => zone.prop_map(str::to_owned)], 1..15)
}

fn events(longest: u64) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (1..4usize).prop_map(Event::Facts),
        (1..4usize).prop_map(Event::Numbers),
        (0..=longest).prop_map(Event::Time),
    ];
    vec(event, 0..40)
}

/// What the leader writes as it plans change by change: at each turn the numbers that are new.
fn lead(lines: &[String]) -> (Planner, Vec<FactChange>) {
    let mut leader = Planner::default();
    let mut written = BTreeMap::new();
    let mut numbers = Vec::new();
    for line in std::iter::once(GROUND).chain(lines.iter().map(String::as_str)) {
        let planned = leader.apply(facts(line), millis(4_000_000));
        for (name, part) in &planned.snapshot.zones {
            let number = Number { serial: part.soa.serial, digest: part.digest };
            if written.insert(name.clone(), number) != Some(number) {
                numbers.push(FactChange::Number(name.clone(), Some(number)));
            }
        }
    }
    (leader, numbers)
}

/// Each pair of serial and digest that was shown, by apex.
type Shown = BTreeSet<(String, u32, u128)>;

/// A replica that hears of changes and numbers as they come, and in the end of all that is left and, as after a new list,
/// of the last numbers once more: those of a Zone that was made anew may have come before it went.
fn replay(lines: &[String], numbers: &[FactChange], events: &[Event]) -> (Replica, Shown, bool) {
    let mut replica = Replica::default();
    let mut lines: VecDeque<FactChange> = facts(GROUND).into_iter().chain(facts(&lines.join("\n"))).collect();
    let mut last_of = BTreeMap::new();
    for number in numbers {
        let FactChange::Number(zone, _) = number else { panic!("{number:?}") };
        last_of.insert(zone, number.clone());
    }
    let mut numbers: VecDeque<FactChange> = numbers.iter().cloned().collect();
    let (mut now, mut shown, mut late) = (5_000_000, Shown::new(), false);
    let last = [Event::Facts(usize::MAX), Event::Numbers(usize::MAX)];
    for event in events.iter().chain(&last) {
        let take = |from: &mut VecDeque<FactChange>, count: usize| from.drain(..count.min(from.len())).collect();
        let batch: Vec<_> = match event {
            Event::Facts(count) => take(&mut lines, *count),
            Event::Numbers(count) => take(&mut numbers, *count),
            Event::Time(passed) => {
                now += passed;
                Vec::new()
            }
        };
        late |= replica.gate.wake().is_some_and(|wake| millis(now) >= wake);
        replica.plan(batch, millis(now));
        assert!(
            replica.gate.wake().is_none_or(|wake| wake > millis(now) && wake <= millis(now).saturating_add(PATIENCE))
        );
        shown.extend(pairs(&replica.served));
    }
    replica.plan(last_of.into_values(), millis(now));
    shown.extend(pairs(&replica.served));
    (replica, shown, late)
}

fn pairs(served: &Served) -> impl Iterator<Item = (String, u32, u128)> + '_ {
    served.iter().map(|(apex, zone)| (apex.to_string(), zone.0.serial, digest(zone).0))
}

fn without_serial(served: Served) -> Served {
    let unnumbered = |(soa, file, names)| (Soa { serial: 0, ..soa }, file, names);
    served.into_iter().map(|(apex, zone)| (apex, unnumbered(zone))).collect()
}

proptest! {
    /// Whoever did not have to wait too long only ever shows what the leader numbered, under the leader's serial; so any two
    /// of them show the same serial for the same content.
    #[test]
    fn what_is_shown_in_time_is_what_the_leader_numbered(lines in changes(), events in events(60)) {
        let (leader, numbers) = lead(&lines);
        let (replica, shown, late) = replay(&lines, &numbers, &events);
        prop_assume!(!late);
        let written: Shown = numbers.iter().map(|fact| match fact {
            FactChange::Number(zone, Some(number)) => {
                let apex = if zone.as_str() == "main" { "fleet.example" } else { "other.test" };
                (apex.to_owned(), number.serial, number.digest.0)
            }
            other => panic!("{other:?}"),
        }).collect();
        prop_assert!(shown.is_subset(&written), "{:?} beside {:?}", shown, written);
        prop_assert_eq!(replica.served, served_by(leader.snapshot()));
        prop_assert_eq!(replica.gate.wake(), None);
    }

    /// However late numbers come: in the end everything planned is served, under the leader's serial.
    #[test]
    fn nothing_is_lost(lines in changes(), events in events(3000), heard in any::<bool>()) {
        let (leader, numbers) = lead(&lines);
        let (mut replica, ..) = replay(&lines, if heard { &numbers } else { &[] }, &events);
        if heard {
            prop_assert_eq!(&replica.served, &served_by(leader.snapshot()));
        }
        replica.plan([], millis(9_000_000));
        let planned = served_by(replica.planner.snapshot());
        prop_assert_eq!(without_serial(replica.served), without_serial(planned));
        prop_assert_eq!(replica.gate.wake(), None);
    }

    /// Steps pass in the order in which they came: what is shown was planned, and later than what was shown before.
    #[test]
    fn nothing_overtakes(lines in changes(), events in events(1500)) {
        let (_, numbers) = lead(&lines);
        let mut replica = Replica::default();
        let (mut planned, mut at) = (Vec::new(), 0);
        let mut lines: VecDeque<_> = facts(GROUND).into_iter().chain(facts(&lines.join("\n"))).collect();
        let mut numbers: VecDeque<_> = numbers.into_iter().collect();
        let mut now = 5_000_000;
        for event in events {
            let batch: Vec<_> = match event {
                Event::Facts(count) => lines.drain(..count.min(lines.len())).collect(),
                Event::Numbers(count) => numbers.drain(..count.min(numbers.len())).collect(),
                Event::Time(passed) => {
                    now += passed;
                    Vec::new()
                }
            };
            replica.plan(batch, millis(now));
            let content = |served: Served| without_serial(served).remove(&"fleet.example".parse().unwrap());
            planned.push(content(served_by(replica.planner.snapshot())));
            let shown = content(replica.served.clone());
            if let Some(further) = planned[at..].iter().position(|content| *content == shown) {
                at += further;
            } else {
                prop_assert!(at == 0 && shown.is_none(), "{:#?} was not planned, or is older than before", shown);
            }
        }
    }
}
