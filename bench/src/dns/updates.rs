//! Names that change: how soon the answer does, and what it costs those who ask for others.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::Context as _;
use tempfile::TempDir;

use super::load::Check;
use super::queries::Queries;
use super::rates::Turn;
use super::server::Server;
use super::{names, peers};
use crate::fleet::{GATEWAY, Member};
use crate::statistics::ratios;
use crate::{Bar, Report, Row, Summary, Unit};

const EVERY: Duration = Duration::from_millis(10);
const COST_BAR: f64 = 1.05;
const CHANGE_BAR_MS: f64 = 5.0;
/// RFC 2544: addresses for benchmarks. Those of the cluster that changes count up from here.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// A fleet in one file, and one more cluster in a file of its own, which changes.
pub struct Changing {
    server: Server,
    clusters: u32,
    manifests: PathBuf,
    saved: u32,
    _folder: TempDir,
}

impl Changing {
    pub fn start(program: &Path, clusters: u32) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("making a folder")?;
        let manifests = folder.path().join("fleet");
        names::write_manifests(&manifests, clusters)?;
        let server = peers::fleetgate(program, &manifests, folder.path())?;
        let mut changing = Self { server, clusters, manifests, saved: 0, _folder: folder };
        let first = Member(0);
        changing.server.until_answered(0, &first.api_name(), &[GATEWAY])?;
        changing.save()?;
        changing.until_answered()?;
        Ok(changing)
    }

    /// From a saved file to the changed answer, while nobody else asks.
    pub fn measure_changes(&mut self, count: usize, report: &mut Report) -> anyhow::Result<()> {
        let mut took = Vec::new();
        for _ in 0..count {
            let saved = self.save()?;
            self.until_answered()?;
            took.push(saved.elapsed().as_secs_f64() * 1e3);
        }
        let figures = Summary::of(&took).context("nothing was changed")?;
        let what = format!("a changed node to the changed answer, {} clusters", self.clusters);
        report.add(Row { what, unit: Unit::Milliseconds, figures, bar: Some(Bar::MedianAtMost(CHANGE_BAR_MS)) });
        Ok(())
    }

    /// Turns with and without updates, one after the other.
    pub fn measure_cost(&mut self, pairs: usize, time: Duration, report: &mut Report) -> anyhow::Result<()> {
        let mut queries = Queries::new(self.clusters, 5)?;
        // The first one warms up.
        Turn::take(&self.server, &mut queries, time, Check::Answer)?;
        let (mut quiet, mut updating, mut updates) = (Figures::default(), Figures::default(), Vec::new());
        let mut added = Vec::new();
        for pair in 0..pairs {
            let calm = Turn::take(&self.server, &mut queries, time, Check::Answer)?;
            let before = self.saved;
            let busy = self.turn_with_updates(&mut queries, time)?;
            let count = f64::from(self.saved - before);
            added.push((busy.cpu.control - calm.cpu.control) / count * 1e6);
            updates.push(count / busy.outcome.elapsed.as_secs_f64());
            quiet.push(&calm);
            updating.push(&busy);
            if (pair + 1) % 5 == 0 {
                eprintln!("pair {} of {pairs} done", pair + 1);
            }
        }
        let mut add = |what: &str, unit, sample: &[f64], bar| {
            let figures = Summary::of(sample).context("nothing was measured")?;
            report.add(Row { what: what.into(), unit, figures, bar });
            anyhow::Ok(())
        };
        add("quiet: CPU per 100,000 queries", Unit::Seconds, &quiet.all, None)?;
        add("an update every 10 ms: CPU per 100,000 queries", Unit::Seconds, &updating.all, None)?;
        let (all, answering) = (ratios(&updating.all, &quiet.all), ratios(&updating.answering, &quiet.answering));
        add("CPU per query, updating : quiet", Unit::Times, &all, Some(Bar::MedianAtMost(COST_BAR)))?;
        // One quiet turn and the next, the larger by the smaller.
        let noise = quiet.all.windows(2).map(|pair| f64::max(pair[0] / pair[1], pair[1] / pair[0]));
        add("the noise of that, quiet : quiet", Unit::Times, &noise.collect::<Vec<_>>(), None)?;
        add("the same without the threads that take updates in", Unit::Times, &answering, None)?;
        add("CPU of these threads per update", Unit::Microseconds, &added, None)?;
        add("updates meanwhile", Unit::PerSecond, &updates, None)?;
        add("quiet: p99 of the answers' latency", Unit::Microseconds, &quiet.p99, None)?;
        add("an update every 10 ms: p99 of the answers' latency", Unit::Microseconds, &updating.p99, None)?;
        add("p99, updating : quiet", Unit::Times, &ratios(&updating.p99, &quiet.p99), None)
    }

    fn turn_with_updates(&mut self, queries: &mut Queries, time: Duration) -> anyhow::Result<Turn> {
        let ended = AtomicBool::new(false);
        let (manifests, member, mut saved) = (&self.manifests, self.member(), self.saved);
        let (server, stop) = (&self.server, &ended);
        let turn = thread::scope(|scope| {
            let saving = scope.spawn(move || {
                let mut due = Instant::now();
                while !stop.load(Ordering::Acquire) {
                    saved += 1;
                    save(manifests, member, saved)?;
                    due += EVERY;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                anyhow::Ok(saved)
            });
            let turn = Turn::take(server, queries, time, Check::Answer);
            ended.store(true, Ordering::Release);
            self.saved = saving.join().map_err(|_| anyhow::anyhow!("the updates panicked"))??;
            turn
        })?;
        // They were not merely saved.
        self.until_answered()?;
        Ok(turn)
    }

    /// Returns the moment before the file has its place.
    fn save(&mut self) -> anyhow::Result<Instant> {
        self.saved += 1;
        save(&self.manifests, self.member(), self.saved)
    }

    fn until_answered(&mut self) -> anyhow::Result<()> {
        let (member, nodes) = (self.member(), nodes(self.saved));
        let id = u16::try_from(self.saved % 0x1_0000).expect("a remainder is less than what divided");
        self.server.until_answered(id, &member.app_name(), &nodes)
    }

    /// Nobody asks for it but here.
    fn member(&self) -> Member {
        Member(self.clusters)
    }
}

#[derive(Default)]
struct Figures {
    /// Seconds per 100,000 queries, of all threads.
    all: Vec<f64>,
    /// Of those that do not take updates in.
    answering: Vec<f64>,
    p99: Vec<f64>,
}

impl Figures {
    fn push(&mut self, turn: &Turn) {
        self.all.push(turn.per_100k(turn.cpu.all));
        self.answering.push(turn.per_100k(turn.cpu.all - turn.cpu.control));
        self.p99.push(turn.outcome.p99_us());
    }
}

/// As editors do: a hidden new file, renamed into its place.
fn save(manifests: &Path, member: Member, number: u32) -> anyhow::Result<Instant> {
    let draft = manifests.join(".draft");
    fs::write(&draft, names::manifest(member, nodes(number))).context("writing a draft")?;
    let saved = Instant::now();
    fs::rename(&draft, manifests.join("changing.yaml")).context("renaming a draft")?;
    Ok(saved)
}

/// The addresses that it has when it was saved this often.
fn nodes(number: u32) -> [Ipv4Addr; 2] {
    let first = u32::from(FIRST_ADDRESS) + 2 * (number % 0xFFFF);
    [first, first + 1].map(Ipv4Addr::from)
}
