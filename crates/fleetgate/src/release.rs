//! `fleetgate release`: what is held may go.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use hyper::Method;
use model::identity::Kind;

use crate::admin::{self, AdminOptions};

#[derive(Debug, Args)]
pub(crate) struct ReleaseOptions {
    /// Of a zone or of a tenant
    #[arg(value_name = "KIND", value_enum)]
    kind: ReleaseKind,
    /// The name of the Zone or the Tenant
    #[arg(value_name = "NAME")]
    name: model::ObjectName,
    #[command(flatten)]
    access: AdminOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReleaseKind {
    /// All names in the zone, whosever they are
    Zone,
    /// All names of the tenant, in whichever zone
    Tenant,
}

pub(crate) fn run(ReleaseOptions { kind, name, access }: &ReleaseOptions) -> anyhow::Result<ExitCode> {
    let kind = match kind {
        ReleaseKind::Zone => Kind::Zone,
        ReleaseKind::Tenant => Kind::Tenant,
    };
    let answer = access.send(Method::POST, &format!("/v1/release/{}/{name}", kind.plural()), None);
    let answer = admin::advise_missing(answer, kind.plural())?;
    match answer["names"].as_u64().unwrap_or_default() {
        0 => println!("nothing of {kind} {name} is held"),
        1 => println!("1 name of {kind} {name} is let go"),
        names => println!("{names} names of {kind} {name} are let go"),
    }
    Ok(ExitCode::SUCCESS)
}
