//! What must hold for any octets, any changes and any zones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Changes;
use model::snapshot::{NameChange, RecordData, RecordSet, ZoneChange};
use model::zone_file::{Builder, ZoneFile};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::records::{name, soa};

/// A zone, one inside it, one inside that, and another; all small enough that random names meet each other.
const APEXES: [&str; 4] = ["z", "a.z", "*.a.z", "y"];
const LABELS: [&str; 3] = ["a", "b", "*"];

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

    /// However the index came to be: the answers are those of the plain words of the standards.
    #[test]
    fn answers_are_those_of_the_slow_lookup(
        steps in vec(step(), 1..8),
        qtype in prop::sample::select(vec!["A", "CNAME", "NS", "SOA", "DS", "DNAME", "MX"]),
    ) {
        let mut index = Index::default();
        let mut state = State::default();
        for step in &steps {
            index = index.apply(step);
            state.apply(step);
        }
        for asked in all_names() {
            let slow = state.slow_lookup(&asked, qtype);
            prop_assert_eq!(lookup(&index, &asked, qtype), slow, "{} {} in {:#?}", asked, qtype, state);
        }
    }
}

fn check_any(octets: &[u8], tcp: bool) -> Result<(), TestCaseError> {
    static INDEX: LazyLock<Index> = LazyLock::new(|| Index::default().apply(&changes(FLEET)));
    let mut out = Vec::new();
    let transport = if tcp { Transport::Tcp } else { Transport::Udp };
    let outcome = answer_over(&INDEX, octets, transport, &mut out);
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

/// The head, and the records of answer, authority and additional section.
type Answer = (String, [BTreeSet<String>; 3]);

fn lookup(index: &Index, asked: &DnsName, qtype: &str) -> Answer {
    let mut out = Vec::new();
    answer_over(index, &query(&format!("{asked} {qtype}")).finish(), Transport::Tcp, &mut out).unwrap();
    let told = tell(&out);
    let section =
        |section: &str| told.lines().filter_map(|line| line.strip_prefix(section)).map(str::to_owned).collect();
    (told.lines().next().unwrap().to_owned(), ["answer ", "authority ", "additional "].map(section))
}

/// What is served, in the plainest form: for each apex the plan's names and the file's, with type and data.
#[derive(Debug, Default)]
struct State(BTreeMap<DnsName, [Names; 2]>);
type Names = BTreeMap<DnsName, Vec<(String, String)>>;

impl State {
    fn apply(&mut self, step: &Changes) {
        for change in &step.zones {
            match change {
                ZoneChange::Withdraw { apex } => _ = self.0.remove(apex),
                ZoneChange::Serve { apex, file, .. } => {
                    self.0.entry(apex.clone()).or_default()[1] = file.as_deref().map(in_file).unwrap_or_default();
                }
            }
        }
        for change in &step.names {
            let Some([names, _]) = self.0.get_mut(&change.apex) else { continue };
            names.remove(&change.name);
            if !change.records.is_empty() {
                names.insert(change.name.clone(), change.records.iter().flat_map(lines).collect());
            }
        }
    }

    /// By the words of RFC 1034 4.3.2, RFC 4592 and RFC 6672 3.2, with nothing but a list of names.
    fn slow_lookup(&self, asked: &DnsName, qtype: &str) -> Answer {
        let (mut answers, mut seen, mut name) = (BTreeSet::new(), Vec::new(), asked.clone());
        let (none, mut home) = (BTreeSet::new, None);
        loop {
            let of_parent = |apex: &DnsName| {
                let above = apex.parent().filter(|_| qtype == "DS" && *apex == name)?;
                ancestors(&above).find(|above| self.0.contains_key(above))
            };
            let Some(apex) = ancestors(&name).find(|above| self.0.contains_key(above)) else {
                let head = if seen.is_empty() { "REFUSED" } else { "NOERROR aa" };
                return (head.to_owned(), [answers, none(), none()]);
            };
            let (apex, is_apex) = of_parent(&apex).map_or((apex, false), |parent| (parent, true));
            // What lies in another zone is asked for there.
            if *home.get_or_insert_with(|| apex.clone()) != apex {
                return ("NOERROR aa".to_owned(), [answers, none(), none()]);
            }
            let zone = &self.0[&apex];
            let all = || zone.iter().flatten();
            let of = |owner: &DnsName, kind: &str| -> Vec<&String> {
                let records = all().filter(|(name, _)| *name == owner).flat_map(|(_, records)| records);
                records.filter(|(found, _)| found == kind).map(|(_, data)| data).collect()
            };
            let exists = |owner: &DnsName| *owner == apex || all().any(|(name, _)| name.is_at_or_under(owner));
            let addresses = |targets: Vec<&String>| -> BTreeSet<String> {
                let targets = targets.iter().map(|data| data.rsplit(' ').next().unwrap());
                let lines = targets.flat_map(|target| {
                    of(&DnsName::parse(target).unwrap(), "A")
                        .into_iter()
                        .map(move |data| format!("{target} 30 A {data}"))
                });
                lines.collect()
            };
            let record = |owner: &DnsName, kind: &str, data: &str| format!("{owner} 30 {kind} {data}");
            let soa = || BTreeSet::from([record(&apex, "SOA", "#1")]);
            seen.push(name.clone());

            let mut way: Vec<DnsName> = ancestors(&name).take_while(|above| above.is_at_or_under(&apex)).collect();
            way.reverse();
            let target = if let Some(cut) = way.iter().find(|above| {
                (**above != apex && !of(above, "NS").is_empty() && !(**above == name && qtype == "DS"))
                    || (**above != name && !of(above, "DNAME").is_empty())
            }) {
                let servers = of(cut, "NS");
                if *cut != apex && !servers.is_empty() {
                    let authority = servers.iter().map(|data| record(cut, "NS", data)).collect();
                    let head = if answers.is_empty() { "NOERROR" } else { "NOERROR aa" };
                    return (head.to_owned(), [answers, authority, addresses(servers)]);
                }
                let target = of(cut, "DNAME")[0];
                answers.insert(record(cut, "DNAME", target));
                let front = name.to_string();
                let front = front.strip_suffix(&cut.to_string()).unwrap();
                let new = DnsName::parse(&format!("{front}{target}")).unwrap();
                answers.insert(record(&name, "CNAME", &new.to_string()));
                if qtype == "CNAME" || DnsName::parse(target).unwrap().is_at_or_under(cut) {
                    return ("NOERROR aa".to_owned(), [answers, none(), none()]);
                }
                new
            } else {
                let encloser = ancestors(&name).find(|above| exists(above)).unwrap();
                let source = if encloser == name { name.clone() } else { encloser.prepend("*").unwrap() };
                if is_apex && encloser != name {
                    return ("NOERROR aa".to_owned(), [answers, soa(), none()]);
                }
                if !exists(&source) {
                    return ("NXDOMAIN aa".to_owned(), [answers, soa(), none()]);
                }
                if qtype == "SOA" && name == apex {
                    answers.extend(soa());
                    return ("NOERROR aa".to_owned(), [answers, none(), none()]);
                }
                let matching = of(&source, qtype);
                if !matching.is_empty() {
                    answers.extend(matching.iter().map(|data| record(&name, qtype, data)));
                    let added = if ["NS", "MX"].contains(&qtype) { addresses(matching) } else { none() };
                    return ("NOERROR aa".to_owned(), [answers, none(), added]);
                }
                let Some(target) = of(&source, "CNAME").first().copied() else {
                    return ("NOERROR aa".to_owned(), [answers, soa(), none()]);
                };
                answers.insert(record(&name, "CNAME", target));
                DnsName::parse(target).unwrap()
            };
            if seen.contains(&target) || seen.len() == MAX_CHAIN {
                return ("NOERROR aa".to_owned(), [answers, none(), none()]);
            }
            name = target;
        }
    }
}

fn ancestors(name: &DnsName) -> impl Iterator<Item = DnsName> + use<> {
    std::iter::successors(Some(name.clone()), DnsName::parent)
}

/// Type and data of each record.
fn lines(set: &RecordSet) -> Vec<(String, String)> {
    set.data.to_text().into_iter().map(|data| (set.data.type_name().to_owned(), data)).collect()
}

fn in_file(file: &ZoneFile) -> Names {
    let target = |data: &[u8]| DnsName::from_wire(data).unwrap().to_string();
    let line = |rtype: u16, data: &[u8]| match Rtype::from_int(rtype) {
        Rtype::A => ("A".to_owned(), std::net::Ipv4Addr::from(<[u8; 4]>::try_from(data).unwrap()).to_string()),
        Rtype::MX => ("MX".to_owned(), format!("{} {}", data[1], target(&data[2..]))),
        kind => (kind.to_string(), target(data)),
    };
    let names = file.names().map(|name| {
        let sets = name.sets.map(|number| file.set(number));
        let lines = sets.flat_map(|set| set.records().map(move |data| line(set.rtype, data)).collect::<Vec<_>>());
        (DnsName::from_wire(name.wire).unwrap(), lines.collect())
    });
    names.collect()
}

/// Up to four labels of three kinds below two names.
fn all_names() -> Vec<DnsName> {
    let mut names = vec![name("z"), name("y")];
    let mut last = names.clone();
    for _ in 0..4 {
        last = last.iter().flat_map(|above| LABELS.map(|label| above.prepend(label).unwrap())).collect();
        names.extend(last.iter().cloned());
    }
    names
}

fn step() -> impl Strategy<Value = Changes> {
    let serve = apex()
        .prop_flat_map(|apex| (Just(apex.clone()), prop::option::of(file(apex))))
        .prop_map(|(apex, file)| ZoneChange::Serve { soa: soa(&apex, 30, 1, 30), apex, file: file.map(Arc::new) });
    let zone = prop_oneof![6 => serve, 1 => apex().prop_map(|apex| ZoneChange::Withdraw { apex })];
    let change = (apex(), labels(prop::sample::select(vec![0, 2])), planned()).prop_map(|(apex, labels, records)| {
        NameChange { name: below(&apex, &labels), apex, records: records.into(), steered: None }
    });
    let names = vec(change, 0..10);
    (vec(zone, 0..3), names).prop_map(|(zones, names)| Changes { zones, names, ..Changes::default() })
}

/// A file has names one or three labels below the apex, the plan those between: no name has records of both.
fn file(apex: DnsName) -> impl Strategy<Value = ZoneFile> {
    let target = || prop::sample::select(all_names()).prop_map(|name| name.as_wire().to_vec());
    let records = prop_oneof![
        3 => any::<[u8; 4]>().prop_map(|octets| vec![(1, octets.to_vec())]),
        2 => target().prop_map(|target| vec![(5, target)]),
        2 => (target(), target()).prop_map(|(one, two)| vec![(2, one), (2, two)]),
        2 => (target(), any::<[u8; 4]>()).prop_map(|(target, octets)| vec![(39, target), (1, octets.to_vec())]),
        1 => target().prop_map(|target| vec![(15, [vec![0, 7], target].concat())]),
    ];
    btree_map(labels(prop::sample::select(vec![1, 3])), records, 0..8).prop_map(move |names| {
        let mut builder = Builder::new(apex.clone());
        for (labels, records) in names {
            builder.at(below(&apex, &labels).as_wire()).unwrap();
            for (rtype, data) in records {
                builder.push(rtype, 30, &data, 0).unwrap();
            }
        }
        builder.finish().unwrap()
    })
}

fn planned() -> impl Strategy<Value = Vec<RecordSet>> {
    let target = || prop::sample::select(all_names());
    let address = any::<[u8; 4]>().prop_map(|octets| RecordData::A(vec![octets.into()]));
    let data = prop_oneof![
        4 => address.prop_map(|data| vec![data]),
        2 => target().prop_map(|target| vec![RecordData::Cname(target)]),
        2 => target().prop_map(|server| vec![RecordData::Ns(vec![server])]),
        3 => Just(Vec::new()),
    ];
    data.prop_map(|sets| sets.into_iter().map(|data| RecordSet { ttl: 30, data }).collect())
}

fn apex() -> impl Strategy<Value = DnsName> {
    prop::sample::select(APEXES.map(name).to_vec())
}

fn labels(count: impl Strategy<Value = usize>) -> impl Strategy<Value = Vec<&'static str>> {
    count.prop_flat_map(|count| vec(prop::sample::select(LABELS.to_vec()), count))
}

fn below(apex: &DnsName, labels: &[&str]) -> DnsName {
    labels.iter().fold(apex.clone(), |above, label| above.prepend(label).unwrap())
}
