//! The resolver for the control planes of a hub: one process, or a few, instead of two pods for each cluster.
//!
//! Every cluster has a port of its own, and a question that comes there is the cluster's: no name and no option of a question
//! says for whom it is. [`Resolver`] is what others use; `question` holds the path of one question, [`route`] who is asked,
//! `cache` what is known, and [`directory`] what there is to tell before a cluster has a node.

mod answer;
mod cache;
pub mod directory;
mod failure;
mod listen;
mod message;
mod metrics;
mod question;
mod resolver;
pub mod route;
mod servers;
mod settings;
mod tenancy;

pub use directory::{Directory, DirectoryError, EndpointView, Looked, PortView, ServiceView};
#[doc(hidden)]
pub use message::read_any;
pub use metrics::Metrics;
pub use resolver::{ClusterView, Pods, Resolver, Wanted};
pub use settings::{Settings, SettingsError};
