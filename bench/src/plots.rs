//! The drawings of `docs/benchmarks.md`, made from the tables of `bench/README.md`: figures stand in one place.

mod svg;
mod table;

use std::path::Path;

use anyhow::Context as _;

use svg::{Bar, Scale};
use table::Row;

/// What is drawn, by the name of the table.
const PLOTS: [Plot; 8] = [
    Plot {
        table: "dns",
        title: "DNS: ratio to others on the same core",
        scale: Scale::Ratio,
        rows: &[
            ("queries, to Knot", "queries against Knot"),
            ("queries, to NSD", "queries against NSD"),
            ("queries, to BIND", "queries against BIND"),
            ("queries, to PowerDNS", "queries against PowerDNS"),
            ("queries, to a bare echo", "queries against bare echo"),
            ("a million names: start, to Knot", "1,000,000 names against Knot 3.4.6, start"),
            ("a million names: memory, to Knot", "1,000,000 names against Knot 3.4.6, memory"),
            ("CPU per query, with updates to without", "CPU per query, updating"),
        ],
    },
    Plot {
        table: "ingress",
        title: "The door by cluster id: ratio to others on the same core",
        scale: Scale::Ratio,
        rows: &[
            ("new connections, to HAProxy with a map", "rate against HAProxy with a map"),
            ("new connections, to HAProxy with rules", "rate against a rule per cluster"),
            ("new connections, to Envoy", "rate against Envoy"),
            ("CPU per connection, to HAProxy", "CPU per connection against a map"),
            ("CPU per GiB, to HAProxy with splice", "CPU per GiB against splice"),
            ("CPU per GiB, to HAProxy without", "CPU per GiB against no splice"),
            ("memory per idle connection, to HAProxy", "memory per idle connection (goal"),
        ],
    },
    Plot {
        table: "http",
        title: "HTTP doors: ratio to others on the same core",
        scale: Scale::Ratio,
        rows: &[
            ("requests, to nginx", "requests against nginx"),
            ("requests, to HAProxy", "requests against HAProxy"),
            ("requests, to Envoy", "requests against Envoy"),
            ("requests, to Traefik", "requests against Traefik"),
            ("CPU per request, to nginx", "CPU per request against nginx"),
            ("p99 latency, to nginx", "p99 latency against nginx"),
            ("memory, to HAProxy", "memory against HAProxy"),
            ("HTTPS: requests, to nginx", "HTTPS: requests against nginx"),
            ("HTTPS: p99 latency, to nginx", "HTTPS: p99 latency against nginx"),
            ("HTTP/2: requests, to nginx", "HTTP/2: requests against nginx"),
            ("HTTP/2: CPU per request, to nginx", "HTTP/2: CPU per request against nginx"),
            ("HTTP/2: p99 latency, to nginx", "HTTP/2: p99 latency against nginx"),
        ],
    },
    Plot {
        table: "tunnel",
        title: "The tunnel: ratio to OpenSSH",
        scale: Scale::Ratio,
        rows: &[
            ("octets out of the cluster", "one stream out of the cluster, a second: fleetgate / OpenSSH"),
            ("octets into the cluster", "one stream into the cluster, a second: fleetgate / OpenSSH"),
            ("there and back", "one octet there and back: fleetgate / OpenSSH"),
            ("a new stream", "a new stream and its first answer: fleetgate / OpenSSH"),
            ("beside 1 that is not read, to without", "1 that nobody reads / without"),
            ("beside 100 that are not read, to without", "100 that nobody reads / without"),
        ],
    },
    Plot {
        table: "plan",
        title: "One change, planned and published: 100,000 clusters to 1,000",
        scale: Scale::Ratio,
        rows: &[
            ("a node goes or comes", "a node goes unready or ready, median of"),
            ("a clusterID changes", "a clusterID changes, median of"),
            ("a cluster goes", "a cluster goes, median of"),
            ("a cluster comes", "a cluster comes, median of"),
            ("a node changes, cold caches", "a node changes, cold caches, median of"),
        ],
    },
    Plot {
        table: "neighbours",
        title: "Beside a tenant at ten times its limit, to without it",
        scale: Scale::Ratio,
        rows: &[
            ("median latency", "median latency, beside : alone"),
            ("p99 latency", "p99 latency, beside : alone"),
            ("CPU per connection", "CPU per connection, beside : alone"),
            ("the same, with what refusing costs", "CPU per connection with all that the noisy one costs"),
        ],
    },
    Plot {
        table: "fleet",
        title: "A fleet of 10,000 clusters: share of the limit",
        scale: Scale::Share,
        rows: &[
            ("cold start, a file for each", "start to first answer, cold, 10000 clusters in as many files"),
            ("cold start, one file", "start to first answer, cold, 10000 clusters in one file"),
            ("after a kill, a file for each", "start to first answer, after a kill, 10000 clusters in as many files"),
            ("memory, a file for each", "memory once answered, cold, 10000 clusters in as many files"),
            ("saved to DNS, a file for each", "saved to answered by DNS, 10000 clusters in as many files"),
            ("saved to the door, a file for each", "saved to answered by the door, 10000 clusters in as many files"),
            ("saved to DNS, one file", "saved to answered by DNS, 10000 clusters in one file"),
        ],
    },
    Plot {
        table: "hub",
        title: "A hub: share of the limit",
        scale: Scale::Share,
        rows: &[
            ("a node to its answer, 10 clusters", "a node's state acknowledged to answered, 10 clusters"),
            ("a node to its answer, 1,000 clusters", "a node's state acknowledged to answered, 1000 clusters"),
            ("a core at rest, 1,000 clusters", "share of a core at rest, 1000 clusters"),
        ],
    },
];

struct Plot {
    table: &'static str,
    title: &'static str,
    scale: Scale,
    /// What it is called, and how the row of the table begins.
    rows: &'static [(&'static str, &'static str)],
}

/// Every drawing by the name of its file.
pub fn draw(readme: &str) -> anyhow::Result<Vec<(String, String)>> {
    PLOTS.iter().map(|plot| Ok((format!("{}.svg", plot.table), plot.draw(readme)?))).collect()
}

/// Where they stand, and what they are made from, as seen from the sources.
pub const FOLDER: &str = "docs/benchmarks";
pub const FIGURES: &str = "bench/README.md";

pub fn write(sources: &Path) -> anyhow::Result<()> {
    let figures = sources.join(FIGURES);
    let readme = std::fs::read_to_string(&figures).with_context(|| format!("reading {}", figures.display()))?;
    let folder = sources.join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    for (file, drawing) in draw(&readme)? {
        std::fs::write(folder.join(file), drawing)?;
    }
    Ok(())
}

impl Plot {
    fn draw(&self, readme: &str) -> anyhow::Result<String> {
        let rows =
            table::find(readme, self.table).with_context(|| format!("{FIGURES} has no table of {}", self.table))?;
        let bars = self.rows.iter().map(|(label, start)| {
            let mut found = rows.iter().filter(|row| row.label.starts_with(start));
            let row = found.next().with_context(|| format!("the table of {} has no row {start}", self.table))?;
            self.bar(label, row).with_context(|| format!("the row {start} of {}", self.table))
        });
        let bars: Vec<Bar> = bars.collect::<anyhow::Result<_>>()?;
        Ok(svg::draw(self.title, self.scale, &bars))
    }

    fn bar(&self, label: &str, row: &Row) -> anyhow::Result<Bar> {
        let more_is_better = is_more_better(label, row);
        let mut bar = Bar {
            label: label.to_owned(),
            value: row.median.number,
            limit: row.bar.as_ref().map(|(_, limit)| limit.number),
            more_is_better,
            is_met: row.is_met,
            figure: format!("{:.2}", row.median.number),
            asked: String::new(),
        };
        if self.scale == Scale::Share {
            let (_, limit) = row.bar.as_ref().context("there is no limit to show a share of")?;
            // As bars are held: against the p99, of few values against the largest.
            let held = row.p99.as_ref().or(row.max.as_ref()).unwrap_or(&row.median);
            (bar.value, bar.limit) = (held.number / limit.number, None);
            bar.figure = format!("{} of {}", held.text, limit.text);
            return Ok(bar);
        }
        // The bar may only be the least of what was wished for; the label has the rest.
        let goal = row.label.split_once("(goal").map(|(_, goal)| goal.trim_matches([')', ':', ' ']));
        if let Some(limit) = bar.limit {
            let goal = goal.map(|goal| format!(", goal {goal}")).unwrap_or_default();
            bar.asked = format!(" ({} {limit:.2}{goal})", if more_is_better { "≥" } else { "≤" });
        } else if goal == Some("ahead") {
            (bar.limit, bar.asked) = (Some(1.0), " (goal: ahead)".into());
            bar.is_met = Some(if more_is_better { bar.value > 1.0 } else { bar.value < 1.0 });
        }
        Ok(bar)
    }
}

/// By the bar; where there is none, by what is counted.
fn is_more_better(label: &str, row: &Row) -> bool {
    match &row.bar {
        Some((is_least, _)) => *is_least,
        None => label.contains("requests") || label.contains("queries"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the widest of the usual fonts a letter of this size takes some 7.5 on average, with the arrow behind the label.
    #[test]
    fn labels_have_room() {
        for (label, _) in PLOTS.iter().flat_map(|plot| plot.rows) {
            let letters = u32::try_from(label.chars().count() + 3).unwrap();
            assert!(f64::from(letters) * 7.5 < svg::LEFT, "{label}");
        }
    }

    #[test]
    fn drawings_are_those_of_the_figures() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let readme = std::fs::read_to_string(sources.join(FIGURES)).unwrap();
        for (file, drawing) in draw(&readme).unwrap() {
            let kept = std::fs::read_to_string(sources.join(FOLDER).join(&file)).unwrap_or_default();
            assert!(kept == drawing, "{FOLDER}/{file} is not what {FIGURES} says: run `make plots`");
        }
    }
}
