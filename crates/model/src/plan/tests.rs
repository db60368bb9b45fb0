//! The plan, told as text: facts go in a line each, and what came of them is read back as lines.

mod accepted;
mod addresses;
mod brake;
mod federation;
mod fleet;
mod gate;
mod history;
mod hub;
mod inside;
mod properties;
mod records;
mod refused;
mod serials;
mod standing;
mod withdrawal;
mod zone_files;
mod zones;
