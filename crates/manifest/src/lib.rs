//! Fleetgate's resources as people write them: serde and schema types, their defaults, and the way into model values.
//! No client and no file system; whoever has the text of a manifest, from a folder or from a hub, comes here with it.

pub mod address;
pub mod agents;
pub mod bounded;
pub mod certificate;
pub mod cluster;
pub mod crds;
pub mod dns_endpoint;
pub mod document;
pub mod federation;
mod foreign;
pub mod hub;
pub mod ingress;
pub mod kept;
pub mod labels;
pub mod named;
pub mod placed;
pub mod pod_dns;
pub mod reference;
pub mod status;
pub mod tenant;
pub mod text;
pub mod verdict;
pub mod zone;
pub mod zone_file;

pub use document::{Document, Manifest, Mistake, Value, read, split};
pub use named::{Missing, Named, Source, nothing_named};
