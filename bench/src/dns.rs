//! DNS side by side with Knot, NSD, BIND and PowerDNS: the same names, the same questions, one core each.

pub mod agreement;
pub mod batch;
pub mod echo;
pub mod load;
pub mod million;
pub mod names;
pub mod peers;
pub mod queries;
pub mod rates;
pub mod server;
pub mod updates;
