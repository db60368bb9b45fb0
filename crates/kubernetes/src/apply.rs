//! To come.

pub const MANAGER: &str = "fleetgate";
