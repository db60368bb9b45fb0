//! What is said, line by line: JSON with types of its own, read strictly and within bounds.
//!
//! Times are told as ages, in seconds: no two clocks are ever compared.

mod numbers;
mod replicas;
mod table;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::identity::Kind;
use model::ingress::{Backend, Port};
use model::overflow::desk::{DNS_EDGE, MAX_ENTRIES};
use model::overflow::waterfall::MAX_CLUSTERS;
use model::overflow::{Destination, MemberSeen, Report, Seen, Sighting, Tables};
use model::{ClusterName, ObjectName, ObjectRef, Timestamp};
use serde::{Deserialize, Serialize};

use super::MAX_LINE;
use super::replicas::{Replica, Replicas};
use crate::home::now;
use numbers::{rate, rounded, sent_rate};

/// What may be reported in one line: as agents of some thousand clusters do in a second.
pub const MAX_REPORTS: usize = 20_000;
/// What the rest of a line may have, beside entries or reports.
const SLACK: usize = 4 << 10;
/// Round trips that are longer were none.
const LONGEST_TRIP: f64 = 60.0;
/// In a no.
const MAX_REASON: usize = 300;
/// A UID of Kubernetes has 36.
const MAX_UID: usize = 128;
/// What a port of a Service may be called (RFC 6335).
const MAX_PORT_NAME: usize = 15;

/// What a process says.
#[derive(Debug, Default)]
pub struct Said {
    pub sighting: Option<Sighting>,
    pub reports: Vec<ClusterReports>,
    /// Of itself, now and then.
    pub replica: Option<Replica>,
}

/// What agents of one cluster said of its services.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterReports {
    pub cluster: ClusterName,
    pub uid: Arc<str>,
    /// By namespace and name.
    pub services: Vec<(ObjectName, ObjectName, Report)>,
}

/// What the leader says.
#[derive(Debug)]
pub(super) enum Told {
    Tables(Tables),
    Replicas(Replicas),
    No { code: String, reason: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SaidLine<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    sighting: Option<SightingLine<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    reports: Vec<ReportsLine<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    replica: Option<replicas::ReplicaLine<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SightingLine<'a> {
    checks: bool,
    #[serde(borrow)]
    entries: Vec<EntryLine<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryLine<'a> {
    #[serde(borrow)]
    of: DestinationLine<'a>,
    came: f64,
    #[serde(borrow)]
    members: Vec<MemberLine<'a>>,
}

/// Cluster, what it is home of, what it answered, the round trip in seconds, whether it fails, whether it is ejected.
#[derive(Serialize, Deserialize)]
struct MemberLine<'a>(&'a str, f64, f64, Option<f64>, bool, bool);

/// Namespace and name of the Ingress, the Service and its port.
#[derive(Serialize, Deserialize)]
struct DestinationLine<'a>(&'a str, &'a str, &'a str, #[serde(borrow)] PortLine<'a>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PortLine<'a> {
    Number(u16),
    Name(&'a str),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportsLine<'a> {
    cluster: &'a str,
    uid: &'a str,
    /// Namespace, name, requests per second, utilisation, ready pods.
    #[serde(borrow)]
    services: Vec<(&'a str, &'a str, f64, f64, u32)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
enum ToldLine<'a> {
    #[serde(borrow)]
    Tables(TablesLine<'a>),
    #[serde(borrow)]
    Replicas(Vec<replicas::ListedLine<'a>>),
    No {
        code: String,
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TablesLine<'a> {
    age: f64,
    #[serde(borrow)]
    of: Vec<table::TableLine<'a>>,
}

/// A line of what there is to say. What would make it too long is left out.
pub(super) fn say(sighting: Option<&Sighting>, reports: &[ClusterReports], replica: Option<&Replica>) -> Bytes {
    let mut line = LineWriter::default();
    line.text("{");
    if let Some(replica) = replica {
        // First, as others cannot do without: it has some 1 MiB at most.
        line.text(r#""replica":"#);
        line.list(std::iter::once(replicas::ReplicaLine::of(replica)), MAX_LINE / 2);
    }
    if let Some(Sighting { checks, entries }) = sighting {
        line.comma();
        line.text(if *checks {
            r#""sighting":{"checks":true,"entries":["#
        } else {
            r#""sighting":{"checks":false,"entries":["#
        });
        line.list(
            entries.iter().take(MAX_ENTRIES).map(|(destination, seen)| EntryLine::of(destination, seen)),
            MAX_LINE / 2,
        );
        line.text("]}");
    }
    if !reports.is_empty() {
        line.comma();
        line.text(r#""reports":["#);
        line.list(reports.iter().map(ReportsLine::of), MAX_LINE - SLACK);
        line.text("]");
    }
    line.text("}\n");
    line.end("what was seen here")
}

/// What somebody said, or what is wrong with it.
pub(super) fn said(line: &[u8]) -> Result<Said, String> {
    let SaidLine { sighting, reports, replica } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let sighting = sighting.map(SightingLine::read).transpose()?;
    if reports.iter().map(|reports| reports.services.len()).sum::<usize>() > MAX_REPORTS {
        return Err(format!("more than {MAX_REPORTS} reports"));
    }
    let reports = reports.into_iter().map(ReportsLine::read).collect::<Result<_, _>>()?;
    Ok(Said { sighting, reports, replica: replica.map(replicas::ReplicaLine::read).transpose()? })
}

/// A line of tables for one edge: its own rows and those that DNS answers by. What would make it too long is left out.
pub(super) fn tables(tables: &Tables, edge: &ObjectName) -> Bytes {
    let now = now();
    let mut line = LineWriter::default();
    line.text(&format!(r#"{{"tables":{{"age":{},"of":["#, age(tables.at, now)));
    let concerns = |row: &model::overflow::Row| row.origin.edge == *edge || row.origin.edge.as_str() == DNS_EDGE;
    let of = tables.by_destination.iter();
    line.list(of.map(|(destination, table)| table::TableLine::of(destination, table, concerns, now)), MAX_LINE - SLACK);
    line.text("]}}\n");
    line.end("tables")
}

/// A line of who carries what.
pub(super) fn replicas(Replicas(all): &Replicas) -> Bytes {
    let mut line = LineWriter::default();
    line.text(r#"{"replicas":["#);
    line.list(all.iter().map(|(peer, replica)| replicas::ListedLine::of(peer, replica)), MAX_LINE - SLACK);
    line.text("]}\n");
    line.end("replicas")
}

pub(super) fn no(code: &str, reason: &str) -> Bytes {
    let line = serde_json::json!({ "no": { "code": code, "reason": reason } });
    format!("{line}\n").into()
}

/// What the leader said, or what is wrong with it.
pub(super) fn told(line: &[u8]) -> Result<Told, String> {
    let now = now();
    match serde_json::from_slice(line).map_err(|error| error.to_string())? {
        ToldLine::Tables(TablesLine { age, of }) => {
            let by_destination = of.into_iter().map(|table| table.read(now)).collect::<Result<_, _>>()?;
            Ok(Told::Tables(Tables { at: before(now, age)?, by_destination }))
        }
        ToldLine::Replicas(all) => replicas::read(all).map(Told::Replicas),
        ToldLine::No { code, reason } => {
            let plain = |text: &str| text.chars().filter(|char| !char.is_control()).take(MAX_REASON).collect();
            Ok(Told::No { code: plain(&code), reason: plain(&reason) })
        }
    }
}

impl<'a> EntryLine<'a> {
    fn of(destination: &'a Destination, seen: &'a Seen) -> Self {
        let member = |(cluster, seen): &'a (ClusterName, MemberSeen)| {
            let trip = seen.round_trip.map(|trip| rounded(trip.as_secs_f64().min(LONGEST_TRIP)));
            let (home_of, answered) = (sent_rate(seen.home_of), sent_rate(seen.answered));
            MemberLine(cluster.as_str(), home_of, answered, trip, seen.failing, seen.ejected)
        };
        let members = seen.members.iter().take(MAX_CLUSTERS).map(member).collect();
        Self { of: DestinationLine::of(destination), came: sent_rate(seen.came), members }
    }

    fn read(self) -> Result<(Destination, Seen), String> {
        if self.members.len() > MAX_CLUSTERS {
            return Err(format!("more than {MAX_CLUSTERS} members"));
        }
        let member = |MemberLine(cluster, home_of, answered, trip, failing, ejected): MemberLine<'_>| {
            let trip = trip.map(|trip| numbers::within(trip, LONGEST_TRIP)).transpose()?;
            let (home_of, answered, round_trip) = (rate(home_of)?, rate(answered)?, trip.map(Duration::from_secs_f64));
            let seen = MemberSeen { home_of, answered, round_trip, failing, ejected };
            Ok::<_, String>((name(cluster)?, seen))
        };
        let members = self.members.into_iter().map(member).collect::<Result<_, _>>()?;
        Ok((self.of.read()?, Seen { came: rate(self.came)?, members }))
    }
}

impl SightingLine<'_> {
    fn read(self) -> Result<Sighting, String> {
        if self.entries.len() > MAX_ENTRIES {
            return Err(format!("more than {MAX_ENTRIES} entries"));
        }
        let entries = self.entries.into_iter().map(EntryLine::read).collect::<Result<_, _>>()?;
        Ok(Sighting { checks: self.checks, entries })
    }
}

impl<'a> DestinationLine<'a> {
    fn of(Destination { ingress, backend }: &'a Destination) -> Self {
        let port = match &backend.port {
            Port::Number(number) => PortLine::Number(*number),
            Port::Name(name) => PortLine::Name(name),
        };
        let namespace = ingress.namespace.as_ref().map_or("", ObjectName::as_str);
        Self(namespace, ingress.name.as_str(), backend.service.as_str(), port)
    }

    fn read(self) -> Result<Destination, String> {
        let Self(namespace, ingress, service, port) = self;
        let port = match port {
            PortLine::Number(number) => Port::Number(number),
            PortLine::Name(name) if name.len() <= MAX_PORT_NAME => Port::Name(name.into()),
            PortLine::Name(_) => return Err(format!("a port's name has at most {MAX_PORT_NAME} characters")),
        };
        let ingress = ObjectRef { kind: Kind::Ingress, namespace: Some(name(namespace)?), name: name(ingress)? };
        Ok(Destination { ingress, backend: Backend { service: name(service)?, port } })
    }
}

impl<'a> ReportsLine<'a> {
    fn of(reports: &'a ClusterReports) -> Self {
        let service = |(namespace, name, report): &'a (ObjectName, ObjectName, Report)| {
            (
                namespace.as_str(),
                name.as_str(),
                sent_rate(report.served()),
                rounded(report.utilization()),
                report.ready(),
            )
        };
        let services = reports.services.iter().map(service).collect();
        Self { cluster: reports.cluster.as_str(), uid: &reports.uid, services }
    }

    fn read(self) -> Result<ClusterReports, String> {
        if self.uid.len() > MAX_UID {
            return Err(format!("a UID has at most {MAX_UID} characters"));
        }
        let service = |(namespace, service, served, utilization, ready)| {
            let report = Report::check(served, utilization, ready).map_err(|bad| bad.to_string())?;
            Ok::<_, String>((name(namespace)?, name(service)?, report))
        };
        let services = self.services.into_iter().map(service).collect::<Result<_, _>>()?;
        Ok(ClusterReports { cluster: name(self.cluster)?, uid: self.uid.into(), services })
    }
}

fn name<T: std::str::FromStr<Err = model::identity::IdentityError>>(text: &str) -> Result<T, String> {
    // It is not repeated: it may be anything.
    text.parse().map_err(|_| "a name is none".to_owned())
}

/// In seconds.
fn age(at: Timestamp, now: Timestamp) -> f64 {
    rounded(now.as_unix().saturating_sub(at.as_unix()).as_secs_f64())
}

fn before(now: Timestamp, age: f64) -> Result<Timestamp, String> {
    /// Whatever is older is simply old.
    const LONG_AGO: f64 = 1e9;
    let age = Duration::from_secs_f64(numbers::within(age.min(LONG_AGO), LONG_AGO)?);
    Ok(Timestamp::from_unix(now.as_unix().saturating_sub(age)))
}

/// A line that is written piece by piece, as far as there is room.
#[derive(Default)]
struct LineWriter {
    text: Vec<u8>,
    left_out: usize,
}

impl LineWriter {
    fn text(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    /// Before the next of a line's parts.
    fn comma(&mut self) {
        if self.text.len() > 1 {
            self.text.push(b',');
        }
    }

    /// Up to that length of the whole line.
    fn list(&mut self, items: impl Iterator<Item = impl Serialize>, most: usize) {
        let mut first = true;
        for item in items {
            let length = self.text.len();
            if !first {
                self.text.push(b',');
            }
            if serde_json::to_writer(&mut self.text, &item).is_err() || self.text.len() > most {
                self.text.truncate(length);
                self.left_out += 1;
                continue;
            }
            first = false;
        }
    }

    fn end(self, what: &'static str) -> Bytes {
        if self.left_out > 0 {
            tracing::warn!(left_out = self.left_out, "a line to another process has no room for all {what}");
        }
        self.text.into()
    }
}

#[cfg(test)]
mod tests;
