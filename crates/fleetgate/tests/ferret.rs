//! Zones and queries with the answers of four other servers: ours must be that of one of them.
//!
//! The cases are dns-groot's Ferret suite, one JSON object to a line. `FERRET` names the file. Every case
//! is a Zone with a zone file, served by the real binary; zones that are equal to or under one another go into
//! different folders.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

#[path = "standalone/server.rs"]
#[expect(dead_code, reason = "shared with the tests of `standalone`, which use all of it")]
mod server;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

use domain::base::iana::Rtype;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::AllRecordData;
use model::DnsName;
use serde::Deserialize;

use server::{Fleet, connect};

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
    let Some(path) = std::env::var_os("FERRET") else {
        println!("skipped: FERRET names no file with cases");
        return;
    };
    let text = std::fs::read_to_string(&path).unwrap();
    let cases: Vec<Case> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut alone = Vec::new();
    let batches = apart(&cases);
    for batch in &batches {
        for (case, ours) in batch.iter().zip(serve_and_ask(batch)) {
            if !case.answers.iter().any(|theirs| agrees(case, &ours, theirs)) {
                alone.push((*case, ours));
            }
        }
    }
    let unknown: Vec<_> = alone.iter().filter(|(case, _)| !OURS.iter().any(|(id, _)| *id == case.id)).collect();
    assert!(unknown.is_empty(), "{} of {} differ: {unknown:#?}", unknown.len(), cases.len());
    let agreed = cases.len() - alone.len();
    println!("{agreed} of {} cases, in {} folders, agree with another server", cases.len(), batches.len());
    assert!(agreed * 1000 >= cases.len() * BAR, "only {agreed} of {} cases agree", cases.len());
}

impl Case {
    fn apex(&self) -> DnsName {
        DnsName::parse(self.zone.split_whitespace().next().unwrap()).unwrap()
    }
}

/// In as few groups as a greedy hand finds: within one, no zone hides another.
fn apart(cases: &[Case]) -> Vec<Vec<&Case>> {
    let mut batches: Vec<Vec<&Case>> = Vec::new();
    for case in cases {
        let apex = case.apex();
        let free = |batch: &&mut Vec<&Case>| {
            batch.iter().all(|other| {
                let other = other.apex();
                !apex.is_at_or_under(&other) && !other.is_at_or_under(&apex)
            })
        };
        match batches.iter_mut().find(free) {
            Some(batch) => batch.push(case),
            None => batches.push(vec![case]),
        }
    }
    batches
}

fn serve_and_ask(batch: &[&Case]) -> Vec<Told> {
    let fleet = Fleet::new(&[]);
    for case in batch {
        let (id, apex) = (case.id, case.apex());
        fleet.write(&format!("z{id}.zone"), &case.zone);
        let zone = format!(
            "apiVersion: fleetgate.dev/v1alpha1\nkind: Zone\nmetadata: {{name: z{id}}}\n\
             spec: {{domain: \"{apex}\", zoneFile: {{file: z{id}.zone}}}}\n"
        );
        fleet.write(&format!("z{id}.yaml"), &zone);
    }
    let server = fleet.serve();
    let (_, refusals) = server.http("/v1/refusals", &server.admin.to_string());
    let told = batch.iter().map(|case| ask(server.dns, case, &refusals)).collect();
    server.terminate();
    told
}

fn ask(server: SocketAddr, case: &Case, refusals: &str) -> Told {
    let mut request = MessageBuilder::new_stream_vec().question();
    let name: Name<Vec<u8>> = case.name.parse().unwrap();
    request.push((name, case.qtype.parse::<Rtype>().unwrap())).unwrap();
    let mut stream = connect(server);
    stream.write_all(request.finish().as_stream_slice()).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap_or_else(|error| panic!("{case:?}: {error}; {refusals}"));
    let mut response = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut response).unwrap();
    tell(&response)
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
