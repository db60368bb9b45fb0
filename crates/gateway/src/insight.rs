//! What the doors know, for those who look on from outside.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use model::Snapshot;

/// Shares with the doors what they decide by. Looking changes nothing, and no door waits for it.
pub struct Insight {
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
}

impl fmt::Debug for Insight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Insight").finish_non_exhaustive()
    }
}
