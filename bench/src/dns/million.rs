//! A million names from one zone file, beside Knot: how soon they are answered, and what memory they take.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use anyhow::Context as _;

use super::names;
use super::peers::{self, Found, Peer};
use super::server::Server;
use crate::fleet::{DOMAIN, GATEWAY, Member};
use crate::statistics::ratios;
use crate::{Bar, Report, Row, Summary, Unit};

/// Two names each.
const CLUSTERS: u32 = 500_000;
const BAR: f64 = 0.5;
/// After the first answer, for what was needed only to load.
const SETTLE: Duration = Duration::from_millis(500);
const ZONE_FILE: &str = "big.zone";

/// What the starts of one server came to: seconds, megabytes, and megabytes at most.
#[derive(Default)]
struct Figures([Vec<f64>; 3]);

const COLUMNS: [(&str, Unit); 3] = [
    ("start to first answer", Unit::Seconds),
    ("memory then", Unit::Megabytes),
    ("peak memory until then", Unit::Megabytes),
];

pub fn measure(program: &Path, found: &[Found], starts: usize, report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("making a folder")?;
    let ours = match refusal(program)? {
        None => true,
        Some(reason) => {
            report.note(format!("1,000,000 names by Fleetgate are NOT MEASURED: {reason}"));
            false
        }
    };
    let knot = found.iter().find(|found| found.peer == Peer::Knot);
    if knot.is_none() {
        report.note("1,000,000 names are NOT COMPARED: there is no Knot");
    }
    let fleet = folder.path().join("fleet");
    write_fleet(&fleet, CLUSTERS)?;
    let (mut of_ours, mut of_knot) = (Figures::default(), Figures::default());
    for start in 0..starts {
        let folder = folder.path().join(format!("start-{start}"));
        if let Some(knot) = knot {
            of_knot.take(knot.start(&folder.join("knot"), &fleet.join(ZONE_FILE))?)?;
        }
        if ours {
            of_ours.take(peers::fleetgate(program, &fleet, &folder)?)?;
        }
        eprintln!("start {} of {starts} with a million names done", start + 1);
    }
    let mut add = |what: String, unit, sample: &[f64], bar| {
        // Not measured, which the notes say.
        if let Some(figures) = Summary::of(sample) {
            report.add(Row { what, unit, figures, bar });
        }
    };
    let knot_name = knot.map_or(Peer::Knot.name(), |knot| &knot.name);
    for (name, figures) in [("fleetgate", &of_ours), (knot_name, &of_knot)] {
        for ((what, unit), sample) in COLUMNS.into_iter().zip(&figures.0) {
            add(format!("{name}: 1,000,000 names, {what}"), unit, sample, None);
        }
    }
    for ((what, _), (ours, knot)) in COLUMNS.into_iter().zip(of_ours.0.iter().zip(&of_knot.0)) {
        let what = format!("1,000,000 names against {knot_name}, {what}");
        add(what, Unit::Times, &ratios(ours, knot), Some(Bar::MedianAtMost(BAR)));
    }
    Ok(())
}

impl Figures {
    fn take(&mut self, mut server: Server) -> anyhow::Result<()> {
        let last = Member(CLUSTERS - 1);
        server.until_answered(0, &last.app_name(), &last.nodes())?;
        let seconds = server.started.elapsed().as_secs_f64();
        server.until_answered(1, &Member(0).api_name(), &[GATEWAY])?;
        thread::sleep(SETTLE);
        let figures = [seconds, server.memory("VmRSS")?, server.memory("VmHWM")?];
        self.0.iter_mut().zip(figures).for_each(|(sample, figure)| sample.push(figure));
        Ok(())
    }
}

/// A folder with one Zone, all of whose names are in the zone file beside it.
fn write_fleet(folder: &Path, clusters: u32) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let zone = format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {{name: main}}
spec:
  domain: {DOMAIN}
  zoneFile: {{file: {ZONE_FILE}}}
"
    );
    fs::write(folder.join("zone.yaml"), zone)?;
    names::write_master_file(&folder.join(ZONE_FILE), clusters)
}

/// Why Fleetgate does not take a zone file, if it does not: told by itself, of a small one.
fn refusal(program: &Path) -> anyhow::Result<Option<String>> {
    let folder = tempfile::tempdir().context("making a folder")?;
    write_fleet(folder.path(), 1)?;
    let output = Command::new(program).arg("check").arg("--fleet").arg(folder.path()).output();
    let output = output.context("checking a folder with a zone file")?;
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let text = text.replace(&folder.path().display().to_string(), ".");
    Ok((!output.status.success()).then(|| text.split_whitespace().collect::<Vec<_>>().join(" ")))
}
