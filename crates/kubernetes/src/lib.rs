//! The hub as home: a Kubernetes API whose objects become facts, and onto which the plan is written back.
//!
//! Every process reads the hub the same way and plans by itself ([`home`]). The controller that leads ([`lease`])
//! also looks into the tenant clusters ([`tenants`]) and writes what was planned ([`apply`]). Controllers also tell the API
//! server which of tenants' objects to refuse ([`admission`]). What processes tell the leader every second, and what it answers,
//! goes from one to the other and not through the hub ([`peers`]). The leader also keeps what leads control planes to their
//! resolver ([`resolvers`]).
//!
//! In a tenant cluster an agent reads what is to be published of it, and says what became of that ([`sources`]).

pub mod admission;
pub mod agents;
pub mod apply;
pub mod client;
pub mod home;
mod index;
pub mod kubeconfig;
pub mod lease;
pub mod nodes;
pub mod orders;
pub mod peers;
pub mod resolvers;
pub mod resource;
pub mod seen;
pub mod sources;
pub mod tenants;
mod watch;

pub use home::{Home, Update};
pub use kube::Client;
