//! What must hold for any octets, any changes and any zones.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Changes;
use model::snapshot::{NameChange, RecordData, RecordSet, ZoneChange};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::records::{name, soa};

/// A zone and one inside it, both small enough that random names meet each other.
const APEXES: [&str; 2] = ["z", "a.z"];

proptest! {
    #[test]
    fn any_octets_get_at_most_one_answer_with_their_id(octets in vec(any::<u8>(), 0..600), tcp: bool) {
        check_any(&octets, tcp)?;
    }

    /// Most random octets fail at once; a broken query gets further.
    #[test]
    fn broken_queries_too(
        hits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        missing in 0usize..10,
        tcp: bool,
    ) {
        let mut octets = with_opt("x.c1.fleet.example A", 0, 1232, true).finish();
        for (place, octet) in hits {
            let place = place.index(octets.len());
            octets[place] = octet;
        }
        octets.truncate(octets.len() - missing);
        check_any(&octets, tcp)?;
    }

    #[test]
    fn steps_lead_to_the_same_index_as_their_result(steps in vec(steps(), 0..12)) {
        let mut index = Index::default();
        let mut state = State::default();
        for step in &steps {
            index = index.apply(step);
            state.apply(step);
        }
        let at_once = Index::default().apply(&state.changes());
        for asked in all_names() {
            prop_assert_eq!(lookup(&index, &asked, "A"), lookup(&at_once, &asked, "A"), "{}", asked);
        }
    }

    #[test]
    fn answers_are_those_of_the_slow_lookup(
        steps in vec(steps(), 1..4),
        qtype in prop::sample::select(vec!["A", "CNAME", "NS", "SOA"]),
    ) {
        let mut state = State::default();
        for step in &steps {
            state.apply(step);
        }
        let index = Index::default().apply(&state.changes());
        for asked in all_names() {
            let slow = state.slow_lookup(&asked, qtype);
            prop_assert_eq!(lookup(&index, &asked, qtype), slow, "{} {} in {:#?}", asked, qtype, state);
        }
    }
}

fn check_any(octets: &[u8], tcp: bool) -> Result<(), TestCaseError> {
    let index = Index::default().apply(&changes(FLEET));
    let mut out = Vec::new();
    let transport = if tcp { Transport::Tcp } else { Transport::Udp };
    let outcome = answer_over(&index, octets, transport, &mut out);
    prop_assert_eq!(outcome.is_some(), !out.is_empty());
    if outcome.is_some() {
        let message = Message::from_slice(&out).unwrap();
        prop_assert_eq!(&out[..2], &octets[..2]);
        prop_assert!(message.header().qr());
        prop_assert!(message.iter().all(|record| record.is_ok()));
        prop_assert!(tcp || out.len() <= PAYLOAD_SIZE.into());
    }
    Ok(())
}

/// Code, authority and the lines of the answer.
type Answer = (String, bool, Vec<String>);

fn lookup(index: &Index, asked: &DnsName, qtype: &str) -> Answer {
    let mut out = Vec::new();
    answer_over(index, &query(&format!("{asked} {qtype}")).finish(), Transport::Tcp, &mut out).unwrap();
    let told = tell(&out);
    let answers = told.lines().filter_map(|line| line.strip_prefix("answer ")).map(str::to_owned).collect();
    let message = Message::from_slice(&out).unwrap();
    (message.header().rcode().to_string(), message.header().aa(), answers)
}

/// What is served, in the plainest form.
#[derive(Debug, Default)]
struct State(BTreeMap<DnsName, BTreeMap<DnsName, Arc<[RecordSet]>>>);

impl State {
    fn apply(&mut self, step: &Changes) {
        for change in &step.zones {
            match change {
                ZoneChange::Withdraw { apex } => _ = self.0.remove(apex),
                ZoneChange::Serve { apex, .. } => _ = self.0.entry(apex.clone()).or_default(),
            }
        }
        for change in &step.names {
            let Some(names) = self.0.get_mut(&change.apex) else { continue };
            if change.records.is_empty() {
                names.remove(&change.name);
            } else {
                names.insert(change.name.clone(), Arc::clone(&change.records));
            }
        }
    }

    fn changes(&self) -> Changes {
        let zones =
            self.0.keys().map(|apex| ZoneChange::Serve { apex: apex.clone(), soa: soa(apex, 30, 1, 30), file: None });
        let names = self.0.iter().flat_map(|(apex, names)| {
            names.iter().map(|(name, records)| NameChange {
                apex: apex.clone(),
                name: name.clone(),
                records: Arc::clone(records),
            })
        });
        Changes { zones: zones.collect(), names: names.collect(), ..Changes::default() }
    }

    /// By the words of RFC 1034 4.3.2 and RFC 4592, with nothing but a list of names.
    fn slow_lookup(&self, asked: &DnsName, qtype: &str) -> Answer {
        let mut answers = Vec::new();
        let mut asked = asked.clone();
        let mut seen = Vec::new();
        let ends = |code: &str, authoritative, answers| (code.to_owned(), authoritative, answers);
        loop {
            seen.push(asked.clone());
            let Some(apex) = ancestors(&asked).find(|above| self.0.contains_key(above)) else {
                return ends(if answers.is_empty() { "REFUSED" } else { "NOERROR" }, !answers.is_empty(), answers);
            };
            let names = &self.0[&apex];
            let records = |name: &DnsName| names.get(name).map_or(&[][..], AsRef::as_ref);
            let exists = |name: &DnsName| *name == apex || names.keys().any(|other| other.is_at_or_under(name));
            let has_servers = |name: &DnsName| records(name).iter().any(|set| matches!(set.data, RecordData::Ns(_)));
            if ancestors(&asked).any(|above| above != apex && above.is_at_or_under(&apex) && has_servers(&above)) {
                return ends("NOERROR", !answers.is_empty(), answers);
            }
            let source = if exists(&asked) {
                asked.clone()
            } else {
                let encloser = ancestors(&asked).find(|above| exists(above)).unwrap();
                encloser.prepend("*").unwrap()
            };
            if !exists(&source) {
                return ends("NXDOMAIN", true, answers);
            }
            if qtype == "SOA" && asked == apex {
                answers.push(format!("{asked} 30 SOA #1"));
                return ends("NOERROR", true, answers);
            }
            let matching: Vec<String> = records(&source)
                .iter()
                .flat_map(lines)
                .filter(|(kind, _)| *kind == qtype)
                .map(|(_, line)| line)
                .collect();
            if !matching.is_empty() {
                answers.extend(matching.iter().map(|line| format!("{asked} {line}")));
                return ends("NOERROR", true, answers);
            }
            let Some((set, target)) = records(&source).iter().find_map(as_alias) else {
                return ends("NOERROR", true, answers);
            };
            answers.extend(lines(set).iter().map(|(_, line)| format!("{asked} {line}")));
            if seen.contains(target) || answers.len() == MAX_CHAIN {
                return ends("NOERROR", true, answers);
            }
            asked = target.clone();
        }
    }
}

fn ancestors(name: &DnsName) -> impl Iterator<Item = DnsName> {
    std::iter::successors(Some(name.clone()), DnsName::parent)
}

fn as_alias(set: &RecordSet) -> Option<(&RecordSet, &DnsName)> {
    match &set.data {
        RecordData::Cname(target) => Some((set, target)),
        _ => None,
    }
}

fn lines(set: &RecordSet) -> Vec<(&'static str, String)> {
    let line = |kind, data: String| (kind, format!("{} {kind} {data}", set.ttl));
    match &set.data {
        RecordData::A(addresses) => addresses.iter().map(|address| line("A", address.to_string())).collect(),
        RecordData::Aaaa(addresses) => addresses.iter().map(|address| line("AAAA", address.to_string())).collect(),
        RecordData::Cname(target) => vec![line("CNAME", target.to_string())],
        RecordData::Ns(servers) => servers.iter().map(|server| line("NS", server.to_string())).collect(),
    }
}

/// Up to four labels of three kinds below the root, all of them.
fn all_names() -> Vec<DnsName> {
    let mut names = vec![name("z"), name("y")];
    let mut last = names.clone();
    for _ in 0..4 {
        last = last.iter().flat_map(|above| ["a", "b", "*"].map(|label| above.prepend(label).unwrap())).collect();
        names.extend(last.iter().cloned());
    }
    names
}

fn steps() -> impl Strategy<Value = Changes> {
    let apex = || prop::sample::select(APEXES.map(name).to_vec());
    let zone = prop_oneof![
        4 => apex().prop_map(|apex| ZoneChange::Serve { soa: soa(&apex, 30, 1, 30), apex, file: None }),
        1 => apex().prop_map(|apex| ZoneChange::Withdraw { apex }),
    ];
    (vec(zone, 0..3), vec(name_change(), 0..10)).prop_map(|(zones, names)| Changes {
        zones,
        names,
        ..Changes::default()
    })
}

fn name_change() -> impl Strategy<Value = NameChange> {
    let apex = prop::sample::select(APEXES.map(name).to_vec());
    let labels = vec(prop::sample::select(vec!["a", "b", "*"]), 0..4);
    (apex, labels, records()).prop_map(|(apex, labels, records)| {
        let name = labels.iter().fold(apex.clone(), |above, label| above.prepend(label).unwrap());
        NameChange { apex, name, records: records.into() }
    })
}

fn records() -> impl Strategy<Value = Vec<RecordSet>> {
    let target = prop::sample::select(all_names());
    let address = any::<[u8; 4]>().prop_map(|octets| RecordData::A(vec![octets.into()]));
    let data = prop_oneof![
        4 => address.prop_map(|data| vec![data]),
        2 => target.prop_map(|target| vec![RecordData::Cname(target)]),
        1 => Just(vec![RecordData::Ns(vec![name("ns.other")])]),
        3 => Just(Vec::new()),
    ];
    data.prop_map(|sets| sets.into_iter().map(|data| RecordSet { ttl: 30, data }).collect())
}
