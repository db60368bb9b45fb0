//! Real programs for the tests to talk to.
//!
//! [`ApiServer`] is a Kubernetes API server of a test's own, with Kubernetes' own controllers where it has a
//! [`ControllerManager`]; [`ExternalDns`] takes records from it to a [`Bind`]; [`HAProxy`] starts proxies, [`Helm`] renders
//! charts, and [`Process`] is any other program, such as `fleetgate` itself. All are gone when the test is, however it
//! ends: by returning, by panicking, or by being killed. Traffic stays on loopback, or on the cable between two [`Host`]s.
//!
//! ```no_run
//! let Some(kubernetes) = testbed::kubernetes() else { return };
//! let cluster = testbed::ApiServer::start(&kubernetes).unwrap();
//! cluster.kubectl(&["create", "namespace", "shop"]).unwrap();
//! ```

mod access;
mod api_server;
mod bind;
mod certificates;
mod controller_manager;
mod etcd;
mod external_dns;
mod haproxy;
mod helm;
mod host;
mod installed;
mod kubernetes;
mod process;
mod service_account;
mod start;
mod work_dir;

pub use access::KubectlError;
pub use api_server::ApiServer;
pub use bind::{Bind, MissingBind, RunningBind, bind};
pub use controller_manager::{
    ControllerManager, MissingControllerManager, RunningControllerManager, controller_manager,
};
pub use external_dns::{EXTERNAL_DNS_RIGHTS, ExternalDns, Registry, RunningExternalDns, external_dns};
pub use haproxy::{HAProxy, MissingHAProxy, RunningHAProxy, haproxy};
pub use helm::{Helm, HelmError, helm};
pub use host::{Host, NoHost, hosts};
pub use installed::{NotBuilt, program};
pub use kubernetes::{Kubernetes, Missing, kubernetes};
pub use process::{Process, ProcessError};
pub use start::StartError;
pub use work_dir::WorkDir;
