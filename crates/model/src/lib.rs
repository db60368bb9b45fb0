//! The pure middle of Fleetgate. Facts go in, a [`Snapshot`] and the [`Changes`] towards it come out; nothing here
//! reads a clock, a socket or a file, and nothing logs.
//!
//! [`plan`] is the path that everything takes; the other modules are the values it speaks of.

pub mod address;
pub mod allocation;
pub mod claim;
pub mod digest;
pub mod fact;
pub mod gate;
pub mod history;
pub mod identity;
pub mod ingress;
pub mod inside;
pub mod listing;
pub mod name;
pub mod network;
pub mod overflow;
pub mod placement;
pub mod plan;
pub mod policy;
pub mod pool;
pub mod proof;
pub mod reach;
pub mod record;
pub mod refusal;
pub mod resolver;
pub mod resource;
pub mod reverse;
pub mod routes;
pub mod serial;
pub mod snapshot;
pub mod steering;
pub mod zone_file;

pub use digest::Digest;
pub use fact::{Fact, FactChange, Number, Since, Timestamp};
pub use gate::Gate;
pub use identity::{ClusterId, ClusterName, ObjectName, ObjectRef};
pub use name::DnsName;
pub use network::{Cidr, Location};
pub use plan::{Planned, Planner};
pub use proof::{Proof, ProofKey};
pub use refusal::{Blame, Refusal};
pub use serial::SerialFloor;
pub use snapshot::{Changes, KeptSet, Snapshot};
