//! `fleetgate check`: says what `serve` would refuse, without serving.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report};
use model::identity::Kind;
use model::policy::Refused;
use model::snapshot::{Condition, Detail, Status};
use model::{FactChange, ObjectRef, Planner, Snapshot, Timestamp};
use store::{Database, Home, RefusedFile};

use crate::advice::{self, Advise as _};
use crate::arguments::CheckOptions;
use crate::paint::Paint;
use crate::table;
use crate::waiting::Waiting;

mod diff;

pub(crate) fn run(options: &CheckOptions, paint: Paint) -> anyhow::Result<ExitCode> {
    let Planned { database, refused, snapshot } = plan(&options.fleet)?;
    let mut problems = 0_usize;
    for refused in &refused {
        problems += refused.mistakes.len();
        print_mistakes(&options.fleet, refused, paint);
    }
    let places: BTreeMap<ObjectRef, (PathBuf, usize)> =
        database.load()?.into_iter().map(|(object, record)| (object, (record.file, record.line))).collect();
    let mut objects: Vec<_> = snapshot.statuses().collect();
    objects.sort_by_key(|(object, _)| *object);
    for (object, status) in &objects {
        if let Some(refusal) = status.refusal() {
            problems += 1;
            print_report(&clash(&options.fleet, object, status, refusal, &places), paint);
        }
        for (number, (part, outcome)) in status.detail.parts().into_iter().enumerate() {
            let Err(Refused { refusal, field }) = outcome else { continue };
            problems += 1;
            let at = place(&options.fleet, object, &places);
            let part = match (&status.detail, field.as_str()) {
                (Detail::Records { .. }, field) => format!("spec.endpoints[{number}].{field}"),
                (_, "") => part.to_owned(),
                (_, field) if field.starts_with("metadata.") => field.to_owned(),
                (_, field) => format!("spec.{field}"),
            };
            let message = format!("{at}: {object}: {part}: {refusal}");
            print_report(&Report::new(MietteDiagnostic::new(message).with_code(refusal.code())), paint);
        }
    }
    if options.diff {
        let before = match &options.against {
            Some(folder) => diff::of_snapshot(&plan(folder)?.snapshot),
            None => diff::of_server(&options.running)?,
        };
        table::write(&diff::tell(&before, &diff::of_snapshot(&snapshot), paint));
    }

    let count = |kind: Kind| objects.iter().filter(|(object, _)| object.kind == kind).count();
    let (zones, tenants, clusters) = (count(Kind::Zone), count(Kind::Tenant), count(Kind::Cluster));
    let verdict = match problems {
        0 => paint.green("all in order"),
        1 => paint.red("1 problem"),
        problems => paint.red(&format!("{problems} problems")),
    };
    println!("{clusters} clusters, {tenants} tenants, {zones} zones: {verdict}");
    Ok(if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Planned {
    database: Arc<Database>,
    refused: Vec<RefusedFile>,
    snapshot: Arc<Snapshot>,
}

/// The very path that `serve` takes, with nothing to remember: without a database nobody was first.
fn plan(fleet: &Path) -> anyhow::Result<Planned> {
    let _waiting = Waiting::on(format!("reading {}", fleet.display()));
    let database = Arc::new(Database::in_memory()?);
    let (_home, update) = Home::open(fleet, Arc::clone(&database), None).advise(|| advice::of_folder(fleet))?;
    let mut planner = Planner::default();
    let mut outcome = planner.apply(update.facts, Timestamp::default());
    // As if the server had written down who has which address; what depends on that is judged then.
    while !outcome.addresses.is_empty() {
        let written = outcome.addresses.into_iter();
        let written = written.map(|(address, allocation)| FactChange::Address(address, allocation));
        outcome = planner.apply(written.collect::<Vec<_>>(), Timestamp::default());
    }
    Ok(Planned { database, refused: update.refused, snapshot: outcome.snapshot })
}

fn print_mistakes(fleet: &Path, refused: &RefusedFile, paint: Paint) {
    let path = fleet.join(&refused.file);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    for mistake in &refused.mistakes {
        let message = format!("{}:{mistake}", path.display());
        let at = offset(&text, mistake.line, mistake.column);
        let label = LabeledSpan::at_offset(at, "here");
        // A file that cannot be read as text has nothing to point into.
        let labels = if text.is_empty() { Vec::new() } else { vec![label] };
        let diagnostic = MietteDiagnostic::new(message).with_labels(labels);
        let source = NamedSource::new(path.to_string_lossy(), text.clone());
        print_report(&Report::new(diagnostic).with_source_code(source), paint);
    }
}

/// Where a line and a column, both counted from 1, are in the text.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let end = text.len().saturating_sub(1);
    let wanted = text[start.min(text.len())..].chars().take(column - 1).map(char::len_utf8).sum::<usize>() + start;
    (0..=wanted.min(end)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Why an object is refused, and by whom it is beaten, if that is why.
fn clash(
    fleet: &Path,
    object: &ObjectRef,
    status: &Status,
    refusal: &Condition,
    places: &BTreeMap<ObjectRef, (PathBuf, usize)>,
) -> Report {
    let place = |object: &ObjectRef| place(fleet, object, places);
    let (at, code) = (place(object), refusal.reason);
    Report::new(match &status.lost_to {
        None => MietteDiagnostic::new(format!("{at}: {object}: {}", refusal.message)).with_code(code),
        Some(other) => {
            // Without the server's database nobody can tell; both are named, neither is taken for the first.
            let message = format!("{at}: {object} and {other} ({}) clash: {}", place(other), refusal.message);
            let message = message.replace(", which was first", "");
            let help = "only one of them is served: the one that the server saw first";
            MietteDiagnostic::new(message).with_code(code).with_help(help)
        }
    })
}

fn place(fleet: &Path, object: &ObjectRef, places: &BTreeMap<ObjectRef, (PathBuf, usize)>) -> String {
    match places.get(object) {
        Some((file, line)) => format!("{}:{line}", fleet.join(file).display()),
        None => fleet.display().to_string(),
    }
}

fn print_report(report: &Report, paint: Paint) {
    let theme = if paint.is_on { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
    let mut rendered = String::new();
    let handler = GraphicalReportHandler::new_themed(theme).with_links(false).without_cause_chain();
    // A width would break paths and reasons in two where nobody can search for them.
    let handler = handler.with_width(usize::MAX);
    match handler.render_report(&mut rendered, report.as_ref()) {
        Ok(()) => println!("{}", rendered.trim_end()),
        Err(_) => println!("{report}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_stay_inside_the_text() {
        let text = "a: 1\nbü: 2\n";
        for (line, column, expected) in
            [(1, 1, 0), (1, 4, 3), (2, 1, 5), (2, 3, 8), (2, 99, 11), (9, 9, 11), (1, 99, 11)]
        {
            assert_eq!(offset(text, line, column).min(11), expected.min(text.len() - 1), "{line}:{column}");
        }
        assert_eq!(offset("", 1, 1), 0);
    }
}
