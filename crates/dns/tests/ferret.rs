//! Zones and queries with the answers of four other servers: ours must be that of one of them.
//!
//! The cases are dns-groot's Ferret suite, one JSON object to a line. `FERRET` names the file; without it the one that
//! lies beside the repository is taken, where there is one.

// The lint knows test functions, but not what they call.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dns::{Client, Index, Settings, Transport};
use domain::base::iana::Rtype;
use domain::base::{Message, MessageBuilder, Name, ToName};
use domain::rdata::{AllRecordData, ZoneRecordData};
use domain::zonefile::inplace::{Entry, Zonefile};
use model::snapshot::{Soa, ZoneChange};
use model::zone_file::Builder;
use model::{Changes, DnsName};
use serde::Deserialize;

/// Of all cases, in thousandths.
const BAR: usize = 995;

/// Where we do not follow any of the four: the case, and what we follow instead.
const OURS: [(u64, &str); 0] = [];

#[derive(Debug, Deserialize)]
struct Case {
    id: u64,
    zone: String,
    name: String,
    #[serde(rename = "type")]
    qtype: String,
    answers: Vec<Told>,
}

/// What one or several servers answered; or we.
#[derive(Debug, Deserialize)]
struct Told {
    #[serde(default)]
    #[allow(dead_code)] // Printed where a case differs.
    servers: Vec<String>,
    rcode: String,
    flags: Vec<String>,
    answer: Vec<String>,
    authority: Vec<String>,
    additional: Vec<String>,
}

#[test]
fn answers_are_those_of_another_server() {
    let Some(path) = cases() else {
        println!("skipped: FERRET is not set, and no cases lie beside the repository");
        return;
    };
    let text = std::fs::read_to_string(&path).unwrap();
    let cases: Vec<Case> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut alone = Vec::new();
    for case in &cases {
        let ours = ask(case);
        if !case.answers.iter().any(|theirs| agrees(case, &ours, theirs)) {
            alone.push((case, ours));
        }
    }
    let unknown: Vec<_> = alone.iter().filter(|(case, _)| !OURS.iter().any(|(id, _)| *id == case.id)).collect();
    assert!(unknown.is_empty(), "{} of {} differ: {unknown:#?}", unknown.len(), cases.len());
    let agreed = cases.len() - alone.len();
    println!("{agreed} of {} cases agree with another server", cases.len());
    assert!(agreed * 1000 >= cases.len() * BAR, "only {agreed} of {} cases agree", cases.len());
}

fn cases() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FERRET") {
        return Some(path.into());
    }
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/ferret/cases.jsonl");
    beside.exists().then_some(beside)
}

/// Code, authority, answers and authorities are the same; in a referral we give every address below the cut that they
/// give.
fn agrees(case: &Case, ours: &Told, theirs: &Told) -> bool {
    let set = |lines: &[String]| lines.iter().map(|line| normal(line)).collect::<BTreeSet<String>>();
    let authoritative = |told: &Told| told.flags.iter().any(|flag| flag == "AA");
    if ours.rcode != theirs.rcode
        || authoritative(ours) != authoritative(theirs)
        || set(&ours.answer) != set(&theirs.answer)
    {
        return false;
    }
    let apex = normal(case.zone.lines().next().unwrap()).split(' ').next().unwrap().to_owned();
    let apex_servers = format!("{apex} 500 IN NS ");
    // They may stand beside an answer, and need not.
    let authority = |told: &Told| {
        let mut lines = set(&told.authority);
        if !told.answer.is_empty() {
            lines.retain(|line| !line.starts_with(&apex_servers));
        }
        lines
    };
    if authority(ours) != authority(theirs) {
        return false;
    }
    let cuts: Vec<String> = theirs
        .authority
        .iter()
        .map(|line| normal(line))
        .filter(|line| line.contains(" IN NS ") && !line.starts_with(&apex_servers))
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    let given = set(&ours.additional);
    let is_below = |line: &String| {
        let owner = line.split(' ').next().unwrap();
        cuts.iter().any(|cut| owner == cut || owner.ends_with(&format!(".{cut}")))
    };
    set(&theirs.additional).into_iter().filter(is_below).all(|line| given.contains(&line))
}

/// One line of presentation form, comparable: lower case but for texts.
fn normal(line: &str) -> String {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let line = fields.join(" ");
    if fields.get(3) == Some(&"TXT") {
        line.replace('"', "")
    } else {
        line.to_lowercase().replace(" in ", " IN ").replace(" ns ", " NS ")
    }
}

fn ask(case: &Case) -> Told {
    let index = Index::default().apply(&serve(&case.zone));
    let mut request = MessageBuilder::new_vec().question();
    let name: Name<Vec<u8>> = case.name.parse().unwrap();
    request.push((name, case.qtype.parse::<Rtype>().unwrap())).unwrap();
    let request = request.finish();
    let client = Client { address: IpAddr::V4(Ipv4Addr::LOCALHOST), transport: Transport::Tcp, now: 0 };
    let mut response = Vec::new();
    dns::answer(&index, &Settings::default(), &client, &request, &mut response).unwrap();
    tell(&response)
}

/// The one zone of a case.
fn serve(text: &str) -> Changes {
    let (mut soa, mut builder) = (None, None);
    let mut zonefile = Zonefile::from(text.as_bytes());
    zonefile.set_origin(Name::root());
    let mut records = Vec::new();
    while let Some(entry) = zonefile.next_entry().unwrap() {
        let Entry::Record(record) = entry else { panic!("no includes here") };
        let (owner, ttl) = (dns_name(record.owner()), record.ttl().as_secs());
        if let ZoneRecordData::Soa(data) = record.data() {
            let number = |ttl: domain::base::Ttl| ttl.as_secs();
            builder = Some(Builder::new(owner.clone()));
            soa = Some(Soa {
                ttl,
                primary: dns_name(data.mname()),
                mailbox: dns_name(data.rname()),
                serial: data.serial().into_int(),
                refresh: number(data.refresh()),
                retry: number(data.retry()),
                expire: number(data.expire()),
                minimum: number(data.minimum()),
            });
        } else {
            let mut data = Vec::new();
            domain::base::rdata::ComposeRecordData::compose_rdata(record.data(), &mut data).unwrap();
            records.push((owner, record.rtype().to_int(), ttl, data));
        }
    }
    let (soa, mut builder) = (soa.unwrap(), builder.unwrap());
    for (owner, rtype, ttl, data) in records {
        builder.push(&owner, rtype, ttl, &data).unwrap();
    }
    let file = builder.finish().unwrap();
    let apex = file.apex().clone();
    Changes { zones: vec![ZoneChange::Serve { apex, soa, file: Some(Arc::new(file)) }], ..Changes::default() }
}

fn dns_name(name: &impl ToName) -> DnsName {
    DnsName::from_wire(name.to_vec().as_slice()).unwrap()
}

fn tell(response: &[u8]) -> Told {
    let message = Message::from_slice(response).unwrap();
    let (_, answer, authority, additional) = message.sections().unwrap();
    let lines = |section: domain::base::message::RecordSection<'_, [u8]>| {
        let records = section.map(|record| record.unwrap().into_any_record::<AllRecordData<_, _>>().unwrap());
        records
            .map(|record| {
                format!("{}. {} IN {} {}", record.owner(), record.ttl().as_secs(), record.rtype(), record.data())
            })
            .collect()
    };
    let aa = message.header().aa().then(|| "AA".to_owned());
    Told {
        servers: vec!["ours".into()],
        rcode: message.header().rcode().to_string(),
        flags: aa.into_iter().collect(),
        answer: lines(answer),
        authority: lines(authority),
        additional: lines(additional),
    }
}
