//! Queries per second on one core, and what they cost: all servers by turns.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::load::{self, Check, Outcome};
use super::peers::{self, Found, Peer};
use super::queries::Queries;
use super::server::{Cpu, Server};
use super::{agreement, names};
use crate::fleet::Member;
use crate::statistics::ratios;
use crate::{Bar, Report, Row, Summary, Unit};

const PEERS_BAR: f64 = 1.35;
const ECHO_BAR: f64 = 0.85;
/// Before the first round.
const WARM_UP: Duration = Duration::from_secs(1);
/// A server that used less of its core than this was waiting for queries, or for somebody else to be done.
const BUSY: f64 = 0.9;
/// More than this share lost, and the figures are of something else.
const LOST: f64 = 0.001;

pub struct Plan {
    pub clusters: u32,
    pub rounds: usize,
    pub time: Duration,
}

/// Who has a turn, and what its turns came to.
struct Entry {
    server: Server,
    /// `None` for Fleetgate and the echo.
    peer: Option<Peer>,
    check: Check,
    per_second: Vec<f64>,
    cpu_per_100k: Vec<f64>,
    /// The share of its core that it used.
    busy: Vec<f64>,
    answered: u64,
    lost: u64,
}

pub fn measure(program: &Path, found: &[Found], plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("making a folder")?;
    let (fleet, zone) = (folder.path().join("fleet"), folder.path().join("fleet.zone"));
    names::write_manifests(&fleet, plan.clusters)?;
    names::write_master_file(&zone, plan.clusters)?;
    let mut queries = Queries::new(plan.clusters, 4)?;

    let mut entries = vec![Entry::new(peers::fleetgate(program, &fleet, folder.path())?, None, Check::Answer)];
    for peer in found {
        let server = peer.start(&folder.path().join(peer.peer.name()), &zone)?;
        entries.push(Entry::new(server, Some(peer.peer), Check::Answer));
    }
    let last = Member(plan.clusters - 1);
    let mut lengths = Vec::new();
    for Entry { server, .. } in &mut entries {
        server.until_answered(0, &last.app_name(), &last.nodes())?;
        let length = agreement::check(server.address, &mut queries);
        lengths.push(length.with_context(|| format!("{} does not answer as it should", server.name))?);
    }
    println!("all servers agree; Fleetgate's answers have {:.1} B on average", lengths[0]);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let mut echo = peers::echo(lengths[0].round() as usize)?;
    echo.until_awake()?;
    entries.push(Entry::new(echo, None, Check::Id));

    for entry in &mut entries {
        load::run(entry.server.address, &mut queries, WARM_UP, entry.check)
            .with_context(|| format!("warming {} up", entry.server.name))?;
    }
    for round in 0..plan.rounds {
        // Each time another one begins: what the one before left in the caches falls to all.
        for place in 0..entries.len() {
            let number = (round + place) % entries.len();
            entries[number].turn(&mut queries, plan.time)?;
        }
        eprintln!("round {} of {} done", round + 1, plan.rounds);
    }
    tell(&entries, report)
}

impl Entry {
    fn new(server: Server, peer: Option<Peer>, check: Check) -> Self {
        let (per_second, cpu_per_100k, busy) = (Vec::new(), Vec::new(), Vec::new());
        Self { server, peer, check, per_second, cpu_per_100k, busy, answered: 0, lost: 0 }
    }

    fn turn(&mut self, queries: &mut Queries, time: Duration) -> anyhow::Result<()> {
        let turn = Turn::take(&self.server, queries, time, self.check)?;
        self.per_second.push(turn.outcome.per_second());
        self.cpu_per_100k.push(turn.per_100k(turn.cpu.all));
        self.busy.push(turn.cpu.all / turn.outcome.elapsed.as_secs_f64());
        self.answered += turn.outcome.answered;
        self.lost += turn.outcome.lost;
        Ok(())
    }
}

/// A load, and the processor time that the server used meanwhile.
pub(super) struct Turn {
    pub(super) outcome: Outcome,
    pub(super) cpu: Cpu,
}

impl Turn {
    pub(super) fn take(server: &Server, queries: &mut Queries, time: Duration, check: Check) -> anyhow::Result<Self> {
        let before = server.cpu()?;
        let outcome = load::run(server.address, queries, time, check);
        let outcome = outcome.with_context(|| format!("asking {}", server.name))?;
        let after = server.cpu()?;
        Ok(Self { outcome, cpu: Cpu { all: after.all - before.all, control: after.control - before.control } })
    }

    /// So many seconds per 100,000 of the queries.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn per_100k(&self, seconds: f64) -> f64 {
        seconds / self.outcome.answered as f64 * 1e5
    }
}

fn tell(entries: &[Entry], report: &mut Report) -> anyhow::Result<()> {
    let summary = |sample: &[f64]| Summary::of(sample).context("nothing was measured");
    for entry in entries {
        let name = &entry.server.name;
        for (what, unit, sample) in [
            ("queries on one core", Unit::PerSecond, &entry.per_second),
            ("CPU per 100,000 queries", Unit::Seconds, &entry.cpu_per_100k),
        ] {
            report.add(Row { what: format!("{name}: {what}"), unit, figures: summary(sample)?, bar: None });
        }
        let busy = summary(&entry.busy)?.median;
        if busy < BUSY {
            let share = busy * 100.0;
            report.note(format!(
                "{name} had only {share:.0} % of its core: the load, or who else works here, was the limit"
            ));
        }
        #[allow(clippy::cast_precision_loss)]
        let lost = entry.lost as f64 / (entry.answered + entry.lost).max(1) as f64;
        if lost > LOST {
            report.note(format!("{name} did not answer {:.2} % of its queries", lost * 100.0));
        }
    }
    let [ours, others @ ..] = entries else { anyhow::bail!("nothing was measured") };
    for other in others {
        let bar = match other.peer {
            Some(Peer::Knot | Peer::Nsd) => Some(Bar::AtLeast(PEERS_BAR)),
            Some(Peer::Bind | Peer::PowerDns) => None,
            None => Some(Bar::AtLeast(ECHO_BAR)),
        };
        let figures = summary(&ratios(&ours.per_second, &other.per_second))?;
        report.add(Row { what: format!("queries against {}", other.server.name), unit: Unit::Times, figures, bar });
    }
    Ok(())
}
