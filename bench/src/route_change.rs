//! One more cluster while others' connections keep coming: how soon the door leads there, and who pays for it.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::fleet::Member;
use crate::load::{self, Headers};
use crate::proxies::haproxy::Reloading;
use crate::proxies::{Clusters, Proxy, fleetgate};
use crate::stream::{self, Source};

/// About a fourth of what one core can do, so that there is room for the change.
const CONNECTIONS_PER_SECOND: f64 = 2000.0;
/// Between two knocks with the new id: the resolution.
const KNOCK: Duration = Duration::from_millis(1);
/// After a change, until what it set in motion has ended.
const SETTLE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy, and how it learns of a cluster.
pub enum Subject {
    /// A manifest is saved in this folder.
    Fleetgate(Proxy, PathBuf),
    /// Its map and configuration are written anew, and it reloads.
    HAProxy(Reloading),
}

/// What the changes of one subject came to.
#[derive(Default)]
pub struct Figures {
    /// From asking for each change until a connection came through, in milliseconds.
    pub took: Vec<f64>,
    /// Of others, while the routes changed.
    pub connections: u64,
    pub lost: u64,
    /// One that was opened before each change and rests.
    pub resting: Vec<TcpStream>,
}

impl Subject {
    pub fn fleetgate(program: &Path, folder: &Path, clusters: Clusters<'_>) -> anyhow::Result<Self> {
        Ok(Self::Fleetgate(fleetgate::start(program, folder, clusters)?, folder.into()))
    }

    pub fn haproxy(program: &Path, folder: &Path, clusters: Clusters<'_>) -> anyhow::Result<Self> {
        Ok(Self::HAProxy(Reloading::start(program, folder, clusters)?))
    }

    /// Adds one cluster after the other to those that are there, under load.
    pub fn change(&mut self, clusters: &mut Clusters<'_>, count: u32, figures: &mut Figures) -> anyhow::Result<()> {
        let door = self.door();
        let others = &Headers::new((0..clusters.count).map(|number| Member(number).name()), door)?;
        let ended = &AtomicBool::new(false);
        let outcome = thread::scope(|scope| {
            let source = Source { headers: others, per_second: CONNECTIONS_PER_SECOND, seed: 1 };
            let load = scope.spawn(move || stream::run(door, &source, || !ended.load(Ordering::Acquire)));
            let changed = (0..count).try_for_each(|_| {
                thread::sleep(SETTLE);
                figures.resting.extend(load::resting(door, others, 1)?);
                clusters.count += 1;
                figures.took.push(self.add_last(*clusters)?.as_secs_f64() * 1e3);
                anyhow::Ok(())
            });
            thread::sleep(SETTLE);
            ended.store(true, Ordering::Release);
            changed.and(load.join().map_err(|_| anyhow::anyhow!("the load panicked"))?)
        })?;
        figures.connections += outcome.begun();
        figures.lost += outcome.lost();
        Ok(())
    }

    /// How long until the door led to it.
    fn add_last(&mut self, clusters: Clusters<'_>) -> anyhow::Result<Duration> {
        let wanted = Headers::new([clusters.last().name()], self.door())?;
        ensure!(!load::is_answered(self.door(), &wanted), "the door leads to {:?} already", clusters.last());
        let asked = match self {
            Self::Fleetgate(_, folder) => fleetgate::save_last(folder, clusters)?,
            Self::HAProxy(haproxy) => haproxy.reload(clusters)?,
        };
        while !load::is_answered(self.door(), &wanted) {
            ensure!(asked.elapsed() < PATIENCE, "{} does not learn of a cluster", self.name());
            thread::sleep(KNOCK);
        }
        Ok(asked.elapsed())
    }

    pub fn name(&self) -> &'static str {
        self.newest().name
    }

    fn door(&self) -> SocketAddr {
        self.newest().door
    }

    fn newest(&self) -> &Proxy {
        match self {
            Self::Fleetgate(proxy, _) => proxy,
            Self::HAProxy(haproxy) => haproxy.newest(),
        }
    }

    /// How many processes it has, and what memory is theirs, in megabytes of 10^6 octets.
    pub fn processes(&mut self) -> anyhow::Result<(u32, f64)> {
        let generations = match self {
            Self::Fleetgate(proxy, _) => std::slice::from_mut(proxy),
            Self::HAProxy(haproxy) => &mut haproxy.generations,
        };
        let (mut count, mut bytes) = (0, 0.0);
        for proxy in generations.iter_mut().filter_map(|proxy| proxy.is_running().then_some(proxy)) {
            count += 1;
            bytes += proxy.own_memory().context("reading the memory of a process")?;
        }
        Ok((count, bytes / 1e6))
    }
}
