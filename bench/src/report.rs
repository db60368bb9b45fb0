//! Figures beside their bars: a table to read and JSON to keep, with the machine that they were taken on.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::statistics::Summary;

/// What one benchmark measured.
pub struct Report {
    /// Also the name of its JSON file.
    name: &'static str,
    machine: Machine,
    rows: Vec<Row>,
    notes: Vec<String>,
}

pub struct Row {
    pub what: String,
    pub unit: Unit,
    pub figures: Summary,
    pub bar: Option<Bar>,
}

/// What is asked of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bar {
    /// Held against [`Summary::judged`].
    AtMost(f64),
    /// Held against the median: of ratios of two runs, each of which the machine may have disturbed.
    MedianAtMost(f64),
    /// Held against the median.
    AtLeast(f64),
}

impl Bar {
    fn value(self) -> f64 {
        match self {
            Self::AtMost(value) | Self::MedianAtMost(value) | Self::AtLeast(value) => value,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Microseconds,
    Milliseconds,
    Megabytes,
    Times,
    Seconds,
    PerSecond,
    Bytes,
    Count,
}

/// Enough to judge whether two reports can be compared.
struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    rustc: String,
}

impl Report {
    pub fn new(name: &'static str) -> Self {
        Self { name, machine: Machine::this(), rows: Vec::new(), notes: Vec::new() }
    }

    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// What must be known beside the table, above all what is not in it.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Prints the table and writes the JSON file.
    pub fn finish(&self) -> anyhow::Result<()> {
        println!("{self}");
        let path = target_folder()?.join("bench").join(self.name).with_extension("json");
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let text = serde_json::to_string_pretty(&self.to_json()).context("writing the report as JSON")?;
        fs::write(&path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
        println!("written to {}", path.display());
        Ok(())
    }

    fn to_json(&self) -> Value {
        let Machine { cpu, cores, kernel, rustc } = &self.machine;
        json!({
            "benchmark": self.name,
            "machine": {"cpu": cpu, "cores": cores, "kernel": kernel, "rustc": rustc, "loadAtEnd": load()},
            "rows": self.rows.iter().map(Row::to_json).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

/// Markdown, so that it can stand in a document as it is.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cpu, cores, kernel, rustc } = &self.machine;
        writeln!(f, "\n{cpu}, {cores} cores, Linux {kernel}, {rustc}; load at the end {}\n", load())?;
        let heads = ["", "n", "median", "p99", "max", "bar", "met"].map(String::from);
        let cells: Vec<[String; 7]> = std::iter::once(heads).chain(self.rows.iter().map(Row::cells)).collect();
        let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let widths: [usize; 7] = std::array::from_fn(width);
        for (number, row) in cells.iter().enumerate() {
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                if column == 0 { write!(f, "| {cell:<width$} |")? } else { write!(f, " {cell:>width$} |")? }
            }
            writeln!(f)?;
            if number == 0 {
                for (column, width) in widths.into_iter().enumerate() {
                    let (open, close) = if column == 0 { ("|", "-|") } else { ("", ":|") };
                    write!(f, "{open}-{:-<width$}{close}", "")?;
                }
                writeln!(f)?;
            }
        }
        if !self.notes.is_empty() {
            writeln!(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "- {note}"))
    }
}

impl Row {
    /// `None` where nothing is asked of it.
    pub fn is_met(&self) -> Option<bool> {
        self.bar.map(|bar| match bar {
            Bar::AtMost(most) => self.figures.judged() <= most,
            Bar::MedianAtMost(most) => self.figures.median <= most,
            Bar::AtLeast(least) => self.figures.median >= least,
        })
    }

    fn cells(&self) -> [String; 7] {
        let Summary { n, median, p99, max } = self.figures;
        let show = |value: f64| self.unit.show(value);
        let many = n > 1;
        [
            self.what.clone(),
            n.to_string(),
            show(median),
            p99.map(show).unwrap_or_default(),
            if many { show(max) } else { String::new() },
            match self.bar {
                Some(Bar::AtMost(most) | Bar::MedianAtMost(most)) => format!("<= {}", show(most)),
                Some(Bar::AtLeast(least)) => format!(">= {}", show(least)),
                None => String::new(),
            },
            self.is_met().map_or("", |met| if met { "yes" } else { "NO" }).into(),
        ]
    }

    fn to_json(&self) -> Value {
        let Summary { n, median, p99, max } = self.figures;
        json!({
            "what": self.what, "unit": self.unit.symbol(), "n": n, "median": median, "p99": p99, "max": max,
            "bar": self.bar.map(Bar::value), "met": self.is_met(),
        })
    }
}

impl Unit {
    fn symbol(self) -> &'static str {
        match self {
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
            Self::Megabytes => "MB",
            Self::Times => "x",
            Self::Seconds => "s",
            Self::PerSecond => "/s",
            Self::Bytes => "B",
            Self::Count => "",
        }
    }

    fn show(self, value: f64) -> String {
        let digits = match self {
            Self::Megabytes | Self::PerSecond | Self::Bytes | Self::Count => 0,
            Self::Microseconds | Self::Milliseconds => 1,
            Self::Times => 2,
            Self::Seconds => 3,
        };
        format!("{value:.digits$} {}", self.symbol()).trim_end().into()
    }
}

impl Machine {
    fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let rustc = Command::new("rustc").arg("--version").output();
        Self {
            cpu: model.map_or("unknown CPU", |(_, model)| model.trim()).into(),
            // Not those that this process is pinned to.
            cores: cpus.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            rustc: rustc.map_or_else(
                |_| "unknown rustc".into(),
                // The name and the version, without the commit and the day.
                |output| String::from_utf8_lossy(&output.stdout).split(' ').take(2).collect::<Vec<_>>().join(" "),
            ),
        }
    }
}

/// The load averages: a machine that others use too gives other figures.
pub fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Benchmarks run from `target/PROFILE/`.
fn target_folder() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("finding this program")?;
    let target = program.ancestors().nth(2).context("this program is not in a target folder")?;
    Ok(target.into())
}
