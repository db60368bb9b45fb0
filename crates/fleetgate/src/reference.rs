//! `fleetgate reference`: the pages of `docs/reference`, from the definitions of the kinds and from the command line itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, Args, Command, CommandFactory as _};
use manifest::reference::{NOTICE, pages};

use crate::advice::Advise as _;
use crate::arguments::Arguments;

#[derive(Debug, Args)]
pub(crate) struct ReferenceOptions {
    /// Write the pages here
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Take examples from here
    #[arg(long, value_name = "DIR", default_value = "examples")]
    examples: PathBuf,
}

pub(crate) fn run(options: &ReferenceOptions) -> anyhow::Result<ExitCode> {
    let examples = read_examples(&options.examples)
        .with_context(|| format!("reading {}", options.examples.display()))
        .advise(|| "run it where the sources are, or say where they have examples with --examples DIR".into())?;
    fs::create_dir_all(&options.out).with_context(|| format!("making {}", options.out.display()))?;
    let pages = pages(&examples);
    let mut index = format!(
        "{NOTICE}\n# Reference\n\nWhat stands in an object, field by field, and what can be said to the program. A folder takes the same objects as a hub; \
         `fleetgate crds` prints the definitions for one.\n\n| page | what it is |\n|---|---|\n"
    );
    for page in &pages {
        _ = writeln!(index, "| [{}]({}) | {} |", page.title, page.file, page.about);
    }
    index.push_str(
        "| [command line](command-line.md) | All subcommands, their flags, environment variables and defaults |\n",
    );
    let others = [("README.md", index), ("command-line.md", command_line())];
    let of_kinds = pages.iter().map(|page| (page.file.as_str(), &page.text));
    for (file, text) in of_kinds.chain(others.iter().map(|(file, text)| (*file, text))) {
        let path = options.out.join(file);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// By their paths as seen from the sources, in order: the page is the same wherever it is made.
fn read_examples(folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut folders = vec![folder.to_owned()];
    let mut files = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                files.insert(path);
            }
        }
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path)?;
        Ok((format!("examples/{}", path.strip_prefix(folder)?.display()), text))
    };
    files.into_iter().map(read).collect()
}

fn command_line() -> String {
    let mut command = Arguments::command().term_width(0);
    command.build();
    let mut page = format!("{NOTICE}\n# Command line\n\n{}\n\n", about(&command));
    page.push_str("Flags that have an environment variable take it where they are not given. `fleetgate COMMAND --help` says the same at a terminal.\n\n");
    let globals: Vec<&Arg> = command.get_arguments().filter(|arg| arg.is_global_set()).collect();
    page.push_str("Everywhere:\n\n");
    add_flags(&mut page, &globals);
    for sub in command.get_subcommands() {
        add_command(&mut page, "fleetgate", sub);
    }
    page
}

fn add_command(page: &mut String, parent: &str, command: &Command) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    let shown =
        |arg: &&Arg| !arg.is_hide_set() && !arg.is_global_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    let arguments: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    _ = write!(page, "## {name}\n\n{}\n\n", about(command));
    let usage = command.clone().render_usage().to_string();
    _ = write!(page, "```\n{}\n```\n\n", usage.trim_start_matches("Usage: ").trim());
    let mut headings: Vec<Option<&str>> = Vec::new();
    for heading in arguments.iter().map(|arg| arg.get_help_heading()) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    // Those that stand under no heading come first, as in the help.
    headings.sort_by_key(Option::is_some);
    for heading in headings {
        let flags: Vec<&Arg> = arguments.iter().copied().filter(|arg| arg.get_help_heading() == heading).collect();
        if let Some(heading) = heading {
            _ = write!(page, "{heading}:\n\n");
        }
        add_flags(page, &flags);
    }
    command.get_subcommands().for_each(|sub| add_command(page, &name, sub));
}

fn add_flags(page: &mut String, flags: &[&Arg]) {
    if flags.is_empty() {
        return;
    }
    page.push_str("| | default | variable | what it says |\n|---|---|---|---|\n");
    for flag in flags {
        let default: Vec<String> =
            flag.get_default_values().iter().map(|value| format!("`{}`", value.display())).collect();
        let takes = flag.get_action().takes_values();
        let default: Vec<String> = default.into_iter().filter(|_| takes).collect();
        let default = if flag.is_required_set() { "required".to_owned() } else { default.join(", ") };
        let variable = flag.get_env().map(|name| format!("`{}`", name.display())).unwrap_or_default();
        let cells = [how(flag), default, variable, what(flag)];
        _ = writeln!(page, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    page.push('\n');
}

/// As it is typed.
fn how(flag: &Arg) -> String {
    let values =
        flag.get_value_names().map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    let values = values.filter(|_| flag.get_action().takes_values());
    let short = flag.get_short().map(|short| format!("-{short}"));
    let names = short.into_iter().chain(flag.get_long().map(|long| format!("--{long}"))).collect::<Vec<_>>().join(", ");
    match (names.is_empty(), values) {
        (true, values) => format!("`{}`", values.unwrap_or_default()),
        (false, Some(values)) => format!("`{names} {values}`"),
        (false, None) => format!("`{names}`"),
    }
}

fn what(flag: &Arg) -> String {
    let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
    let values = flag.get_possible_values();
    let is_switch = !flag.get_action().takes_values();
    let words = values.iter().filter(|value| !is_switch && !value.is_hide_set()).map(|value| {
        let about = value.get_help().map(|help| format!(" ({})", lower_first(&help.to_string()))).unwrap_or_default();
        format!("`{}`{about}", value.get_name())
    });
    let words: Vec<String> = words.collect();
    let words = if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) };
    format!("{}{words}", help.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn lower_first(text: &str) -> String {
    let is_name = text.chars().nth(1).is_some_and(char::is_uppercase) || text.starts_with("DNS");
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !is_name => first.to_lowercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let text = about.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.ends_with('.') { text } else { format!("{text}.") }
}
