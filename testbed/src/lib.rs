//! Real programs for the tests to talk to.
//!
//! [`ApiServer`] is a Kubernetes API server of a test's own, with Kubernetes' own controllers where it has a
//! [`ControllerManager`] and another's kinds where it has an [`ExtensionServer`]; [`ExternalDns`] takes records from it to a
//! [`Bind`]; [`CoreDns`] is the DNS inside of a cluster; [`HAProxy`] starts proxies, [`Helm`] renders charts, [`schemathesis()`] and
//! [`promtool()`] judge documents, and [`Process`] is any other program, such as `fleetgate` itself. All are gone when the test is, however it ends: by returning, by
//! panicking, or by being killed. Traffic stays on loopback, or on the cables between [`Host`]s, of which a [`Network`] has
//! many.
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
mod coredns;
mod dig;
mod etcd;
mod extension_server;
mod external_dns;
mod haproxy;
mod helm;
mod host;
mod installed;
mod kubernetes;
mod network;
mod own_network;
mod process;
mod promtool;
mod schemathesis;
mod service_account;
mod start;
mod work_dir;

pub use access::KubectlError;
pub use api_server::ApiServer;
pub use bind::{Bind, MissingBind, RunningBind, ServingBind, bind};
pub use certificates::Certificate;
pub use controller_manager::{
    ControllerManager, MissingControllerManager, RunningControllerManager, controller_manager,
};
pub use coredns::{CoreDns, RunningCoreDns, coredns};
pub use dig::dig;
pub use extension_server::{ExtensionServer, MissingExtensionServer, RunningExtensionServer, extension_server};
pub use external_dns::{EXTERNAL_DNS_RIGHTS, ExternalDns, Registry, RunningExternalDns, external_dns};
pub use haproxy::{HAProxy, MissingHAProxy, RunningHAProxy, haproxy};
pub use helm::{Helm, HelmError, helm};
pub use host::{Host, NoHost, hosts};
pub use installed::{NotBuilt, program};
pub use kubernetes::{Kubernetes, Missing, kubernetes};
pub use network::{Network, Outpost, network};
pub use own_network::{Machine, own_machine, own_network};
pub use process::{Process, ProcessError};
pub use promtool::promtool;
pub use schemathesis::schemathesis;
pub use start::StartError;
pub use work_dir::WorkDir;
