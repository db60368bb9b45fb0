//! Overflow: how much of a service's traffic goes to which cluster, by the load measured where it is served.
//!
//! Agents report what a service serves in their cluster and how busy it is; [`Capacity`] makes of that what the cluster can take.
//! [`pour`] lets the demand of all edges run into the capacities, nearest first, and gives one [`Table`] that all edges share:
//! shares for each, and what to refuse where everything is full. Between two tables a [`Guard`] at each edge holds back what would
//! pile up. [`desk`] has what edges and agents tell, and makes the tables of all services once a second. `docs/overflow.md` has the formulae and what they do in a simulation.

pub mod capacity;
pub mod desk;
pub mod guard;
pub mod table;
pub mod waterfall;

use std::time::Duration;

use crate::fact::Timestamp;

pub use capacity::{BadReport, Capacity, Limits, Report, utilization};
pub use desk::{Desk, Destination, Failing, MemberSeen, Seen, Sighting, Tables, TooManyEdges};
pub use guard::{Choice, Guard, Permit, RetryBudget};
pub use table::{Basis, Cell, Origin, Out, Reason, Room, Row, Shed, Table};
pub use waterfall::{Edge, TooLarge, pour, ring};

/// Requests per second that are more than any cluster serves. What nobody has declared or measured counts as this much, so that only
/// distance and health matter; a plain number, as sums and shares of infinities are none.
pub const UNLIMITED: f64 = 1e9;

fn seconds_between(earlier: Timestamp, later: Timestamp) -> f64 {
    Duration::from_nanos(later.0.saturating_sub(earlier.0)).as_secs_f64()
}
