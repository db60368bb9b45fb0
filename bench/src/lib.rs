//! What the benchmarks share: a fleet to measure with, the statistics, and the report with its bars.

pub mod backend;
pub mod cores;
pub mod dns;
pub mod fleet;
pub mod http;
pub mod hub;
pub mod load;
pub mod plots;
pub mod program;
pub mod proxies;
pub mod question;
pub mod random;
pub mod report;
pub mod route_change;
pub mod server;
pub mod statistics;
pub mod stream;
pub mod tunnel;

pub use program::Program;
pub use random::Random;
pub use report::{Bar, Report, Row, Unit};
pub use statistics::Summary;
