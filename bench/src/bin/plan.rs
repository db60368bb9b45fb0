//! From one changed fact to what data planes read, in fleets of 1,000 to 100,000 clusters.
//!
//! The cost of a change must follow the change and not the fleet: the median of the largest fleet is held against that
//! of the smallest. The fleets take turns, so that a busy moment of the machine hits all of them.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use arc_swap::ArcSwap;
use bench::fleet::{self, GATEWAY, Member};
use bench::{Bar, Random, Report, Row, Summary, Unit, question};
use clap::Parser;
use model::resource::Cluster;
use model::{ClusterId, FactChange, Planner, Snapshot, Timestamp};

const SIZES: [u32; 3] = [1_000, 10_000, 100_000];
/// Changes of one kind that a fleet makes before it is another one's turn.
const CHANGES_PER_TURN: usize = 100;
const WARM_UP_ROUNDS: usize = 2;
/// DESIGN: a hundred times the fleet may cost twice as much.
const RATIO_BAR: f64 = 2.0;
/// Larger than the caches of common servers; writing it over leaves nothing of the fleet in them.
const SWEEP: usize = 128 << 20;
/// One octet of each cache line is enough.
const CACHE_LINE: usize = 64;

#[derive(Parser)]
struct Options {
    /// Rounds that count; each makes 100 changes of every kind in every fleet
    #[arg(long, default_value_t = 25)]
    rounds: usize,
    /// Changes per fleet that find nothing of it in the caches, as in a server that does other work in between
    #[arg(long, default_value_t = 300)]
    cold: usize,
    /// Only the fleet of this size, for a profiler
    #[arg(long)]
    only: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Node,
    Id,
    Removed,
    Added,
}

impl Change {
    const ALL: [Self; 4] = [Self::Node, Self::Id, Self::Removed, Self::Added];

    fn label(self) -> &'static str {
        match self {
            Self::Node => "a node goes unready or ready",
            Self::Id => "a clusterID changes",
            Self::Removed => "a cluster goes",
            Self::Added => "a cluster comes",
        }
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    println!("load before: {}", bench::report::load());
    let sizes: Vec<u32> = SIZES.into_iter().filter(|size| options.only.is_none_or(|only| only == *size)).collect();
    let mut fleets = sizes.into_iter().map(Fleet::build).collect::<anyhow::Result<Vec<_>>>()?;
    let mut random = Random::seeded(1);
    for round in 0..WARM_UP_ROUNDS + options.rounds {
        for fleet in &mut fleets {
            fleet.round(&mut random)?;
            if round + 1 == WARM_UP_ROUNDS {
                fleet.taken = Default::default();
            }
        }
    }
    let mut sweep = vec![0_u8; SWEEP];
    for _ in 0..options.cold {
        for fleet in &mut fleets {
            fleet.cold_change(&mut random, &mut sweep)?;
        }
    }
    report(&fleets)
}

fn report(fleets: &[Fleet]) -> anyhow::Result<()> {
    let mut report = Report::new("plan");
    let kinds = Change::ALL.map(Change::label).into_iter().chain(["a node changes, cold caches"]);
    for (kind, label) in kinds.enumerate() {
        let mut medians = Vec::new();
        for fleet in fleets {
            let sample = fleet.taken.get(kind).unwrap_or(&fleet.taken_cold);
            let Some(figures) = Summary::of(sample) else { continue };
            medians.push(figures.median);
            let what = format!("{label}, {} clusters", fleet.size);
            report.add(Row { what, unit: Unit::Microseconds, figures, bar: None });
        }
        if let [first, .., last] = medians[..] {
            let what = format!("{label}, median of 100,000 : 1,000");
            report.add(Row {
                what,
                unit: Unit::Times,
                figures: Summary::single(last / first),
                bar: Some(Bar::AtMost(RATIO_BAR)),
            });
        }
    }
    report.finish()
}

/// What the control thread holds and publishes.
struct Fleet {
    size: u32,
    planner: Planner,
    snapshot: ArcSwap<Snapshot>,
    index: ArcSwap<dns::Index>,
    /// As their facts are now.
    clusters: Vec<Cluster>,
    now: Timestamp,
    /// Microseconds, by the kind of change.
    taken: [Vec<f64>; 4],
    taken_cold: Vec<f64>,
}

impl Fleet {
    fn build(size: u32) -> anyhow::Result<Self> {
        let clusters: Vec<_> = (0..size).map(|number| Member(number).cluster(api_server())).collect();
        let members = clusters.iter().zip(0..).map(|(cluster, number)| Member(number).fact(cluster.clone()));
        let facts = fleet::ground_facts().into_iter().chain(members).collect();
        let mut fleet = Self {
            size,
            planner: Planner::default(),
            snapshot: ArcSwap::default(),
            index: ArcSwap::default(),
            clusters,
            now: Timestamp(1_700_000_000_000_000_000),
            taken: Default::default(),
            taken_cold: Vec::new(),
        };
        let begun = Instant::now();
        fleet.publish(facts);
        println!("planned {size} clusters from nothing in {:.0?}", begun.elapsed());
        let snapshot = fleet.snapshot.load();
        ensure!(snapshot.cluster_count() == size as usize, "{} clusters refused", snapshot.refused_count());
        drop(snapshot);
        Ok(fleet)
    }

    /// What `fleetgate`'s control thread does with a change, without its log line.
    fn publish(&mut self, facts: Vec<FactChange>) {
        let before = Arc::clone(self.planner.snapshot());
        let planned = self.planner.apply(facts, self.now);
        self.snapshot.store(Arc::clone(&planned.snapshot));
        self.index.store(Arc::new(self.index.load().apply(&planned.changes)));
        // The last reader of the old values takes them down; here that is us.
        drop(before);
    }

    fn timed(&mut self, fact: FactChange) -> f64 {
        let facts = vec![fact];
        self.now = Timestamp(self.now.0 + 1_000_000);
        let begun = Instant::now();
        self.publish(facts);
        begun.elapsed().as_secs_f64() * 1e6
    }

    fn round(&mut self, random: &mut Random) -> anyhow::Result<()> {
        for number in random.distinct(CHANGES_PER_TURN, self.size) {
            self.make(Change::Node, number)?;
        }
        for number in random.distinct(CHANGES_PER_TURN, self.size) {
            self.make(Change::Id, number)?;
        }
        // Those that went come back after all have gone, when the caches have forgotten them.
        let leaving = random.distinct(CHANGES_PER_TURN, self.size);
        for kind in [Change::Removed, Change::Added] {
            for &number in &leaving {
                self.make(kind, number)?;
            }
        }
        Ok(())
    }

    fn make(&mut self, change: Change, number: u32) -> anyhow::Result<()> {
        let fact = self.fact(change, number)?;
        let micros = self.timed(fact);
        self.taken[change as usize].push(micros);
        self.check(number, change != Change::Removed).with_context(|| format!("{change:?} of cluster {number}"))
    }

    fn cold_change(&mut self, random: &mut Random, sweep: &mut [u8]) -> anyhow::Result<()> {
        let number = random.below(self.size);
        let fact = self.fact(Change::Node, number)?;
        for octet in sweep.iter_mut().step_by(CACHE_LINE) {
            *octet = octet.wrapping_add(1);
        }
        black_box(sweep);
        let micros = self.timed(fact);
        self.taken_cold.push(micros);
        self.check(number, true)
    }

    fn fact(&mut self, change: Change, number: u32) -> anyhow::Result<FactChange> {
        let cluster = &mut self.clusters[number as usize];
        match change {
            Change::Node => Arc::make_mut(&mut cluster.nodes)[0].ready ^= true,
            Change::Id => cluster.id = next_id(cluster)?,
            Change::Removed => return Ok(FactChange::Cluster(cluster.name.clone(), None)),
            Change::Added => {}
        }
        Ok(Member(number).fact(cluster.clone()))
    }

    /// Data planes read what was published.
    fn check(&self, number: u32, present: bool) -> anyhow::Result<()> {
        let (member, cluster) = (Member(number), &self.clusters[number as usize]);
        let ready = cluster.nodes.iter().zip(member.nodes()).filter(|(node, _)| node.ready);
        let ready: Vec<Ipv4Addr> = ready.map(|(_, address)| address).collect();
        let index = self.index.load();
        let settings = dns::Settings::default();
        for (name, addresses) in [(member.api_name(), vec![GATEWAY]), (member.app_name(), ready)] {
            let query = question::for_addresses(1, &name);
            let mut response = Vec::new();
            dns::answer(&index, &settings, &CLIENT, &query, &mut response).context("no answer")?;
            let answered = question::is_answered_by(&query, &response, &addresses);
            ensure!(answered == present, "{name} is{} answered", if answered { "" } else { " not" });
        }
        let snapshot = self.snapshot.load();
        let route = snapshot.route_by_id(cluster.id.as_str().as_bytes());
        ensure!(route.is_some_and(|route| route.cluster == cluster.name) == present, "wrong route for {}", cluster.id);
        let by_name = snapshot.route_by_server_name(&member.api_name());
        ensure!(by_name.is_some() == present, "wrong route for {}", member.api_name());
        Ok(())
    }
}

fn next_id(cluster: &Cluster) -> anyhow::Result<ClusterId> {
    let other = if cluster.id.as_str().ends_with("-b") { "a" } else { "b" };
    format!("{}-{other}", cluster.name).parse().context("making a cluster id")
}

const CLIENT: dns::Client =
    dns::Client { address: IpAddr::V4(Ipv4Addr::LOCALHOST), transport: dns::Transport::Udp, now: 0 };

/// Nobody connects to it here.
fn api_server() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 6443))
}
