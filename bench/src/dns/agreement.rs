//! Whether a server gives the answers that all are to give. Who answers less, or more, would do another job.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use domain::base::{Message, ParsedRecord};
use domain::rdata::AllRecordData;

use super::names::TTL;
use super::queries::{Queries, Question};

/// Of the queries of the load, from the first on: some hundred of each kind.
const SAMPLE: u16 = 500;
/// An idle server on loopback answers within one.
const PATIENCE: Duration = Duration::from_secs(5);

/// An answer, down to what can differ between servers that do the same: the order, the way names are compressed, and
/// what the SOA says.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    rcode: String,
    authoritative: bool,
    truncated: bool,
    /// Owner, TTL, type and data.
    answers: Vec<String>,
    /// Of these only the types.
    authority: Vec<String>,
    additional: Vec<String>,
}

/// Asks it a sample of the load. Returns how long its answers are on average.
pub fn check(server: SocketAddr, queries: &mut Queries) -> anyhow::Result<f64> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).context("opening a socket")?;
    socket.connect(server).context("connecting to a server")?;
    socket.set_read_timeout(Some(PATIENCE)).context("setting a time-out")?;
    let mut total = 0;
    for id in 0..SAMPLE {
        let mut query = vec![0; queries.length(id)];
        queries.write(id, &mut query);
        socket.send(&query)?;
        let mut response = [0; 1500];
        let length = socket.recv(&mut response).context("waiting for an answer")?;
        let question = queries.get(id).question;
        compare(&query, &response[..length], question).with_context(|| format!("asked for {question:?}"))?;
        total += u32::try_from(length)?;
    }
    Ok(f64::from(total) / f64::from(SAMPLE))
}

fn compare(query: &[u8], response: &[u8], question: Question) -> anyhow::Result<()> {
    let query = Message::from_octets(query)?;
    let response = Message::from_octets(response)?;
    ensure!(response.is_answer(&query), "the answer is to another question");
    let (given, due) = (Answer::read(&response)?, Answer::due(&query, question)?);
    ensure!(given == due, "the answer is {given:#?}\nand not {due:#?}");
    Ok(())
}

impl Answer {
    fn read(message: &Message<&[u8]>) -> anyhow::Result<Self> {
        let header = message.header();
        let (_, answer, authority, additional) = message.sections()?;
        let kind = |record: Result<ParsedRecord<'_, &[u8]>, _>| Ok(record?.rtype().to_string());
        let mut answers = answer.map(|record| show(&record?)).collect::<anyhow::Result<Vec<_>>>()?;
        answers.sort_unstable();
        Ok(Self {
            rcode: header.rcode().to_string(),
            authoritative: header.aa(),
            truncated: header.tc(),
            answers,
            authority: authority.map(kind).collect::<anyhow::Result<_>>()?,
            additional: additional.map(kind).collect::<anyhow::Result<_>>()?,
        })
    }

    fn due(query: &Message<&[u8]>, question: Question) -> anyhow::Result<Self> {
        let asked = query.sole_question()?;
        let missing = question == Question::Missing;
        let mut answers: Vec<_> = question.data().iter().map(|data| line(asked.qname(), asked.qtype(), data)).collect();
        answers.sort_unstable();
        Ok(Self {
            rcode: if missing { "NXDOMAIN" } else { "NOERROR" }.into(),
            authoritative: true,
            truncated: false,
            answers,
            authority: if missing { vec!["SOA".into()] } else { Vec::new() },
            additional: vec!["OPT".into()],
        })
    }
}

fn show(record: &ParsedRecord<'_, &[u8]>) -> anyhow::Result<String> {
    ensure!(record.ttl().as_secs() == TTL, "the TTL is {}", record.ttl().as_secs());
    let data = record.to_record::<AllRecordData<_, _>>()?.context("a record of no type")?;
    Ok(line(record.owner(), record.rtype(), data.data()))
}

fn line(owner: impl std::fmt::Display, kind: impl std::fmt::Display, data: impl std::fmt::Display) -> String {
    format!("{owner} {kind} {data}").to_lowercase()
}
