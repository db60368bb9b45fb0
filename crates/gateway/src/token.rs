//! Which connection an event is for, and which of its two sockets.

/// A place in the table of connections that cannot be mistaken for its next holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) index: u32,
    /// Counts the holders of the place; 30 bits outlast every event that could still be under way.
    pub(crate) generation: u32,
}

impl Token {
    /// The most that `generation` can be.
    pub(crate) const GENERATIONS: u32 = (1 << 30) - 1;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Upstream,
}
