//! `fleetgate credential`: what agents are started with.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use crate::admin::{self, AdminOptions};
use crate::arguments::{OutputFormat, parse_span};
use crate::paint::Paint;
use crate::table;

#[derive(Debug, Subcommand)]
pub(crate) enum CredentialCommand {
    /// Make one for a cluster's agents and print it; it is not shown again
    Issue(IssueOptions),
    /// Show all that were issued and not revoked
    List(ListOptions),
    /// Make one good for nothing, and the certificates that were bought with it
    Revoke(RevokeOptions),
}

#[derive(Debug, Args)]
pub(crate) struct IssueOptions {
    /// The cluster that agents speak for with it
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// How long agents may enrol with it; those that have enrolled go on until it is revoked
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_valid)]
    valid: Duration,
    /// Write it to a new file, for its owner only, instead of printing it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    access: AdminOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// How to print it
    #[arg(short, long, value_name = "FORM", value_enum, default_value = "table")]
    output: OutputFormat,
    #[command(flatten)]
    access: AdminOptions,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeOptions {
    /// As `fleetgate credential list` shows it
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    access: AdminOptions,
}

pub(crate) fn run(command: &CredentialCommand, paint: Paint) -> anyhow::Result<ExitCode> {
    match command {
        CredentialCommand::Issue(options) => issue(options),
        CredentialCommand::List(options) => list(options, paint),
        CredentialCommand::Revoke(options) => revoke(options),
    }
}

fn issue(IssueOptions { cluster, valid, output, access }: &IssueOptions) -> anyhow::Result<ExitCode> {
    // Before anything is issued that would then be lost.
    let file = output.as_deref().map(create).transpose()?;
    let wish = json!({ "cluster": cluster, "validSeconds": valid.as_secs() });
    let answer = access.send(Method::POST, "/v1/credentials", Some(&wish));
    let answer = admin::advise_missing(answer, "clusters").inspect_err(|_| {
        if let Some(path) = output {
            let _ = std::fs::remove_file(path);
        }
    })?;
    let bootstrap = format!("{:#}\n", answer["bootstrap"]);
    match (file, output) {
        (Some(mut file), Some(path)) => {
            file.write_all(bootstrap.as_bytes()).with_context(|| format!("writing {}", path.display()))?;
            eprintln!("credential {} is in {}", answer["id"].as_str().unwrap_or_default(), path.display());
        }
        _ => print!("{bootstrap}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn create(path: &Path) -> anyhow::Result<std::fs::File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.with_context(|| format!("making {}", path.display()))
}

fn list(ListOptions { output, access }: &ListOptions, paint: Paint) -> anyhow::Result<ExitCode> {
    let answer = access.send(Method::GET, "/v1/credentials", None)?;
    match output {
        OutputFormat::Json => println!("{answer:#}"),
        OutputFormat::Yaml => print!("{}", serde_saphyr::to_string(&answer).context("writing YAML")?),
        OutputFormat::Table => table::show(&to_table(&answer), paint),
    }
    Ok(ExitCode::SUCCESS)
}

fn to_table(answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let row = |item: &Value| ["id", "cluster", "holder", "issued", "expires"].map(|field| text(&item[field])).to_vec();
    let rows: Vec<Vec<String>> = answer["items"].as_array().into_iter().flatten().map(row).collect();
    table::render(&["ID", "CLUSTER", "HOLDER", "ISSUED", "EXPIRES"], &rows)
}

fn revoke(RevokeOptions { id, access }: &RevokeOptions) -> anyhow::Result<ExitCode> {
    let plain = !id.is_empty() && id.bytes().all(|octet| octet.is_ascii_alphanumeric());
    anyhow::ensure!(plain, "{id:?} is no id of a credential");
    access.send(Method::DELETE, &format!("/v1/credentials/{id}"), None)?;
    println!("credential {id} is revoked");
    Ok(ExitCode::SUCCESS)
}

/// Days too, which nothing else is counted in.
pub(crate) fn parse_valid(text: &str) -> Result<Duration, String> {
    match text.strip_suffix('d').map(str::parse::<u32>) {
        Some(Ok(days)) => Ok(Duration::from_hours(24) * days),
        _ => parse_span(text).map_err(|error| format!("{error}; or days, such as 30d")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_a_length_of_time_here() {
        for (text, expected) in
            [("30d", Some(30 * 86_400)), ("0d", Some(0)), ("2h", Some(7200)), ("d", None), ("1d2h", None)]
        {
            assert_eq!(parse_valid(text).ok().map(|valid| valid.as_secs()), expected, "{text}");
        }
    }
}
