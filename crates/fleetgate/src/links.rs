//! The links that agents have dialled to this process: one registry for all that use them, and the threads that carry.

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tunnel::Hub;

/// What agents send as requests is read here too: one that reads a large body leaves the other to the rest.
const LEAST_THREADS: usize = 2;

/// Made before anything that uses it; ends after everything that does.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) hub: Hub,
    /// Ends them all.
    pub(crate) stop: CancellationToken,
    /// Where links are served. Who carries something over one does it here, too: what comes from a link is at its other end
    /// without another thread being woken.
    pub(crate) runtime: Handle,
    /// Ends the threads.
    end: CancellationToken,
}

impl Links {
    /// `host` is what people know this process by. Another process of the same host is another replica: agents want a
    /// link to the one that comes when they still have one to the one that goes.
    pub(crate) fn new(host: &str, registry: &mut Registry) -> anyhow::Result<Self> {
        let replica = format!("{host}/{}", std::process::id());
        let hub = Hub::new(&replica, tunnel::Metrics::register(registry));
        let threads =
            std::thread::available_parallelism().map_or(LEAST_THREADS, |cores| cores.get().max(LEAST_THREADS));
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(threads).thread_name("links").enable_all().build();
        let runtime = runtime.context("starting the threads of links")?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let until = end.clone();
        // It may not end within another runtime.
        let thread = std::thread::Builder::new().name("links".into());
        let holding = move || {
            runtime.block_on(until.cancelled());
            runtime.shutdown_background();
        };
        thread.spawn(holding).context("starting the threads of links")?;
        Ok(Self { hub, stop: CancellationToken::new(), runtime: handle, end })
    }

    /// After everything that runs there.
    pub(crate) fn end(self) {
        self.end.cancel();
    }
}
