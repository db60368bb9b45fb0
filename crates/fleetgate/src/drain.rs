//! `fleetgate drain`: federated traffic goes elsewhere while a cluster is looked after.

use std::process::ExitCode;

use clap::Args;
use hyper::Method;

use crate::admin::{self, AdminOptions};

#[derive(Debug, Args)]
pub(crate) struct DrainOptions {
    /// The cluster. Its API server, its own names and what is established stay as they are
    #[arg(value_name = "CLUSTER")]
    cluster: model::ClusterName,
    /// Have the traffic back
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    access: AdminOptions,
}

pub(crate) fn run(DrainOptions { cluster, undo, access }: &DrainOptions) -> anyhow::Result<ExitCode> {
    let method = if *undo { Method::DELETE } else { Method::POST };
    let answer = access.send(method, &format!("/v1/drain/{cluster}"), None);
    let answer = admin::advise_missing(answer, "clusters")?;
    match answer["drained"].as_str() {
        Some(since) => println!("Cluster {cluster} is drained since {since}: requests and DNS answers lead to others"),
        None => println!("Cluster {cluster} is not drained: requests and DNS answers lead there again"),
    }
    Ok(ExitCode::SUCCESS)
}
