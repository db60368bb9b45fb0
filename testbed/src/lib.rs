//! Real programs for the tests to talk to.
//!
//! [`ApiServer`] is a Kubernetes API server of a test's own, [`HAProxy`] starts proxies, and
//! [`Process`] is any other program, such as `fleetgate` itself. All are gone when the test is,
//! however it ends: by returning, by panicking, or by being killed. Traffic stays on loopback, or
//! on the cable between two [`Host`]s.
//!
//! ```no_run
//! let Some(kubernetes) = testbed::kubernetes() else { return };
//! let cluster = testbed::ApiServer::start(&kubernetes).unwrap();
//! cluster.kubectl(&["create", "namespace", "shop"]).unwrap();
//! ```

mod api_server;
mod certificates;
mod haproxy;
mod host;
mod installed;
mod kubernetes;
mod process;
mod start;
mod work_dir;

pub use api_server::{ApiServer, KubectlError};
pub use haproxy::{HAProxy, MissingHAProxy, RunningHAProxy, haproxy};
pub use host::{Host, NoHost, hosts};
pub use installed::program;
pub use kubernetes::{Kubernetes, Missing, kubernetes};
pub use process::{Process, ProcessError};
pub use start::StartError;
pub use work_dir::WorkDir;
