//! `fleetgate agent node-proxy`: a node's way to its API server.

use std::process::ExitCode;
use std::sync::Arc;

use agent::NodeProxy;
use anyhow::Context as _;
use prometheus_client::registry::Registry;
use store::Database;
use tokio_util::sync::CancellationToken;

use crate::arguments::NodeProxyOptions;
use crate::serve::{Signals, raise_descriptor_limit, serve_http};
use crate::telemetry;

pub(crate) fn run(options: &NodeProxyOptions) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&options.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        raise_descriptor_limit();
        let admin = options.admin.map(|at| api::Listener::bind(api::Interface::Admin, at)).transpose()?;
        let admin_address = admin.as_ref().map(api::Listener::address);

        let mut registry = Registry::default();
        let metrics = gateway::Metrics::register(&mut registry);
        // A node has no objects; what is left of the interface are its probes and metrics.
        let state =
            Arc::new(api::State::new(Arc::default(), Arc::default(), Arc::new(Database::in_memory()?), registry));
        let proxy = NodeProxy::start(
            agent::NodeProxyOptions {
                listen: options.listen,
                hubs: options.hub.clone(),
                cluster_id: options.cluster_id.clone(),
                proof: options.proof.clone(),
            },
            &metrics,
        )?;
        let stop_admin = CancellationToken::new();
        let admin = admin.map(|admin| serve_http(admin, Arc::clone(&state), stop_admin.clone())).transpose()?;
        state.set_informed();
        state.set_ready(true);
        tracing::info!(listen = %proxy.address, admin = admin_address.map(tracing::field::display), "ready");

        tracing::info!("{}: draining", signals.next().await);
        state.set_ready(false);
        let drain = options.end.drain;
        let drained = tokio::task::spawn_blocking(move || proxy.drain(drain));
        tokio::select! {
            _ = drained => {}
            signal = signals.next() => tracing::warn!("{signal} again: not waiting for connections"),
        }
        stop_admin.cancel();
        if let Some(thread) = admin
            && thread.join().is_err()
        {
            tracing::error!("the admin thread panicked");
        }
        tracing::info!("stopped");
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
