//! A folder of 10,000 clusters and the real binary: how soon it answers, what memory it takes, and how soon a saved
//! file is live while connections are open.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bench::fleet::{self, GATEWAY, Member};
use bench::server::{Connection, Server};
use bench::{Bar, Report, Row, Summary, Unit, backend};
use clap::Parser;
use tempfile::TempDir;

const START_BAR_MS: f64 = 2_000.0;
const MEMORY_BAR_MB: f64 = 200.0;
const EDIT_BAR_MS: f64 = 50.0;
const SMALL_FLEET: u32 = 3;
/// As many as stay open while the folder is edited.
const CONNECTIONS: u32 = 100;

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    program: bench::Program,
    /// Clusters of the large fleet
    #[arg(long, default_value_t = 10_000)]
    clusters: u32,
    /// Starts of each kind
    #[arg(long, default_value_t = 5)]
    starts: u16,
    /// Edits that DNS is asked about, and as many again that the door is asked about
    #[arg(long, default_value_t = 100)]
    edits: u16,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let program = options.program.find()?;
    println!("load before: {}", bench::report::load());

    let api_server = backend::start_echo().context("starting a backend")?;
    let mut report = Report::new("fleet");
    for layout in Layout::ALL {
        let folder = Folder::write(layout, options.clusters, api_server)?;
        measure_starts(&program, &folder, options.starts, &mut report)?;
    }
    for (layout, clusters) in [
        (Layout::FilePerCluster, SMALL_FLEET),
        (Layout::FilePerCluster, options.clusters),
        (Layout::OneFile, SMALL_FLEET),
        (Layout::OneFile, options.clusters),
    ] {
        let folder = Folder::write(layout, clusters, api_server)?;
        measure_edits(&program, folder, options.edits, &mut report)?;
    }
    report.finish()
}

fn measure_starts(program: &Path, folder: &Folder, starts: u16, report: &mut Report) -> anyhow::Result<()> {
    let mut taken: BTreeMap<&str, [Vec<f64>; 3]> = BTreeMap::new();
    for start in 0..starts {
        let data = tempfile::tempdir().context("making a data folder")?;
        for (kind, clean_end) in [("1 cold", true), ("2 warm", false), ("3 after a kill", true)] {
            let mut server = Server::start(program, folder.path(), data.path())?;
            // The last of the fleet: nothing is left to read when it answers.
            let last = Member(folder.clusters - 1);
            server.until_answered(start, &last.app_name(), &last.nodes())?;
            let millis = server.started.elapsed().as_secs_f64() * 1e3;
            let figures = [millis, server.memory("VmRSS")?, server.memory("VmHWM")?];
            for (sample, figure) in taken.entry(kind).or_default().iter_mut().zip(figures) {
                sample.push(figure);
            }
            if clean_end {
                server.stop()?;
            }
        }
    }
    for (kind, samples) in taken {
        let kind = &kind[2..];
        let columns = [
            ("start to first answer", Unit::Milliseconds, Some(Bar::AtMost(START_BAR_MS))),
            ("memory once answered", Unit::Megabytes, Some(Bar::AtMost(MEMORY_BAR_MB))),
            ("peak memory until then", Unit::Megabytes, None),
        ];
        for ((label, unit, bar), sample) in columns.into_iter().zip(&samples) {
            let what = format!("{label}, {kind}, {folder}");
            report.add(Row { what, unit, figures: Summary::of(sample).context("no starts")?, bar });
        }
    }
    Ok(())
}

fn measure_edits(program: &Path, mut folder: Folder, edits: u16, report: &mut Report) -> anyhow::Result<()> {
    let label = folder.to_string();
    let data = tempfile::tempdir().context("making a data folder")?;
    let mut server = Server::start(program, folder.path(), data.path())?;
    let first = Member(0);
    server.until_answered(0, &first.api_name(), &[GATEWAY])?;
    let door = server.apiserver_door()?;
    let mut connections = (0..CONNECTIONS)
        .map(|number| Connection::open(door, &Member(number % folder.clusters).name()))
        .collect::<Result<Vec<_>, _>>()
        .context("opening connections")?;
    check_connections(&mut connections).context("before the edits")?;

    let (mut names, mut routes) = (Vec::new(), Vec::new());
    for edit in 0..edits {
        let (member, saved) = folder.add()?;
        server.until_answered(edit, &member.app_name(), &member.nodes())?;
        names.push(saved.elapsed().as_secs_f64() * 1e3);

        let (member, saved) = folder.add()?;
        server.until_connected(door, &member.name())?;
        routes.push(saved.elapsed().as_secs_f64() * 1e3);
    }
    check_connections(&mut connections).context("after the edits")?;
    let memory = server.memory("VmRSS")?;

    for (asked, sample) in [("DNS", names), ("the door", routes)] {
        let what = format!("saved to answered by {asked}, {label}");
        let figures = Summary::of(&sample).context("no edits")?;
        report.add(Row { what, unit: Unit::Milliseconds, figures, bar: Some(Bar::AtMost(EDIT_BAR_MS)) });
    }
    let what = format!("memory after the edits, {label}");
    report.add(Row {
        what,
        unit: Unit::Megabytes,
        figures: Summary::single(memory),
        bar: Some(Bar::AtMost(MEMORY_BAR_MB)),
    });
    Ok(())
}

fn check_connections(connections: &mut [Connection]) -> anyhow::Result<()> {
    for (number, connection) in connections.iter_mut().enumerate() {
        let words = format!("connection {number}");
        let echoed = connection.echoes(words.as_bytes()).with_context(|| format!("{words} is broken"))?;
        ensure!(echoed, "{words} heard something else");
    }
    println!("{} connections are open and echo", connections.len());
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    FilePerCluster,
    OneFile,
}

impl Layout {
    const ALL: [Self; 2] = [Self::FilePerCluster, Self::OneFile];
}

/// A folder of manifests on disk.
struct Folder {
    root: TempDir,
    layout: Layout,
    clusters: u32,
    api_server: SocketAddr,
    /// The text of the one file.
    whole: String,
}

impl std::fmt::Display for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.layout {
            Layout::FilePerCluster => write!(f, "{} clusters in as many files", self.clusters),
            Layout::OneFile => write!(f, "{} clusters in one file", self.clusters),
        }
    }
}

impl Folder {
    fn write(layout: Layout, clusters: u32, api_server: SocketAddr) -> anyhow::Result<Self> {
        let root = tempfile::tempdir().context("making a folder")?;
        let mut whole = fleet::ground_manifest();
        if layout == Layout::OneFile {
            whole.push_str(&fleet::manifests((0..clusters).map(Member), api_server));
        }
        fs::write(root.path().join("fleet.yaml"), &whole).context("writing fleet.yaml")?;
        let folder = Self { root, layout, clusters, api_server, whole };
        if layout == Layout::FilePerCluster {
            for member in (0..clusters).map(Member) {
                fs::write(folder.file_of(member), member.manifest(api_server)).context("writing a manifest")?;
            }
        }
        Ok(folder)
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    fn file_of(&self, member: Member) -> PathBuf {
        self.path().join(member.name()).with_extension("yaml")
    }

    /// Saves one more cluster, as editors do: a new file beside the old one, renamed into its place. Returns the
    /// moment before the rename, when nothing but the name is missing.
    fn add(&mut self) -> anyhow::Result<(Member, Instant)> {
        let member = Member(self.clusters);
        self.clusters += 1;
        let manifest = member.manifest(self.api_server);
        let (file, text) = match self.layout {
            Layout::FilePerCluster => (self.file_of(member), &manifest),
            Layout::OneFile => {
                self.whole.push_str("---\n");
                self.whole.push_str(&manifest);
                (self.path().join("fleet.yaml"), &self.whole)
            }
        };
        let draft = self.path().join(".draft");
        fs::write(&draft, text).context("writing a draft")?;
        let saved = Instant::now();
        fs::rename(&draft, file).context("renaming a draft")?;
        Ok((member, saved))
    }
}
