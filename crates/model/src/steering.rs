//! Which member of an entry a client is sent to, and why: for requests, for DNS answers and for `explain` alike.
//!
//! All members are ranked ([`order`]): the first is the choice, the others are what to try next.

mod ranking;
mod standing;

use std::fmt;
use std::time::Duration;

use crate::identity::ClusterName;
use crate::ingress::Steering;
use crate::network::{Coordinates, Location};
pub use ranking::{Ranked, Ranking, order};
pub use standing::{MemberKey, Shares, Standings};

/// What a choice follows from, the members aside.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub steering: &'a Steering,
    pub client: Whereabouts<'a>,
    /// Rises by one from choice to choice, where members take turns.
    pub turn: u64,
    /// Any number, none likelier than others.
    pub random: u64,
}

/// Where somebody is, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Whereabouts<'a> {
    pub coordinates: Option<Coordinates>,
    pub region: Option<&'a str>,
    pub provider: Option<&'a str>,
}

impl<'a> From<&'a Location> for Whereabouts<'a> {
    fn from(Location { region, provider, coordinates }: &'a Location) -> Self {
        Self { coordinates: *coordinates, region: region.as_deref(), provider: provider.as_deref() }
    }
}

/// A member that may be chosen.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    pub cluster: &'a ClusterName,
    pub location: &'a Location,
    pub known: Known,
}

/// What is known of a member now. Of whom nothing is known counts as healthy.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Known {
    pub unhealthy: Option<Unhealthy>,
    /// As it was measured from where the choice is made.
    pub round_trip: Option<Duration>,
    /// The share of what arrives here that the overflow table sends to it. Where any member has one, they decide.
    pub share: Option<f64>,
    /// It has no room for more.
    pub full: bool,
}

/// Why a member is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unhealthy {
    FailedChecks,
    /// Its answers to real requests were errors.
    Ejected,
    Drained,
    NoReadyEndpoints,
    /// The Ingress has not come there yet.
    NotPlaced,
}

impl Unhealthy {
    /// For metrics and people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FailedChecks => "failed checks",
            Self::Ejected => "ejected",
            Self::Drained => "drained",
            Self::NoReadyEndpoints => "no ready endpoints",
            Self::NotPlaced => "not placed yet",
        }
    }
}

/// What all members have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Situation {
    Usual,
    /// None has room.
    AllFull,
    /// None is healthy. Rather than sending nobody anywhere, all count as healthy, as it may be the checks that fail; but for those that
    /// somebody drained, while there are others.
    Panic,
}

/// Why a member was chosen, or was not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// The overflow table sends it this share.
    Share {
        share: f64,
    },
    Nearest {
        km: f64,
    },
    /// Distances are not known.
    SameRegion,
    Fastest {
        rtt: Duration,
    },
    /// It was drawn.
    Weighted {
        share: f64,
    },
    /// Its place in the order, from 1.
    Order {
        n: u32,
    },
    Turn,
    /// Another one was drawn.
    NotDrawn {
        share: f64,
    },
    /// The overflow table sends it nothing, or it has no weight.
    NoShare,
    Farther {
        km: f64,
    },
    /// It has no coordinates, where others have.
    Unplaced,
    OtherRegion,
    OtherProvider,
    Slower {
        rtt: Duration,
    },
    Unmeasured,
    Later {
        n: u32,
    },
    OtherTurn,
    Full,
    Unhealthy(Unhealthy),
}

impl Reason {
    /// A fixed word for metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Share { .. } => "Share",
            Self::Nearest { .. } => "Nearest",
            Self::SameRegion => "SameRegion",
            Self::Fastest { .. } => "Fastest",
            Self::Weighted { .. } => "Weighted",
            Self::Order { .. } => "Order",
            Self::Turn => "Turn",
            Self::NotDrawn { .. } => "NotDrawn",
            Self::NoShare => "NoShare",
            Self::Farther { .. } => "Farther",
            Self::Unplaced => "Unplaced",
            Self::OtherRegion => "OtherRegion",
            Self::OtherProvider => "OtherProvider",
            Self::Slower { .. } => "Slower",
            Self::Unmeasured => "Unmeasured",
            Self::Later { .. } => "Later",
            Self::OtherTurn => "OtherTurn",
            Self::Full => "Full",
            Self::Unhealthy(_) => "Unhealthy",
        }
    }
}

/// For people.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |rtt: &Duration| rtt.as_secs_f64() * 1e3;
        match self {
            Self::Share { share } => write!(f, "drawn: has {:.1} % by the measured load", share * 100.0),
            Self::Nearest { km } => write!(f, "nearest: {km:.0} km"),
            Self::SameRegion => write!(f, "in the client's region"),
            Self::Fastest { rtt } => write!(f, "fastest: {:.1} ms", ms(rtt)),
            Self::Weighted { share } => write!(f, "drawn: its weight is {:.1} %", share * 100.0),
            Self::Order { n } => write!(f, "number {n} in the order"),
            Self::Turn => write!(f, "its turn"),
            Self::NotDrawn { share } => write!(f, "not drawn: has {:.1} %", share * 100.0),
            Self::NoShare => write!(f, "has no share"),
            Self::Farther { km } => write!(f, "farther: {km:.0} km"),
            Self::Unplaced => write!(f, "has no coordinates"),
            Self::OtherRegion => write!(f, "in another region"),
            Self::OtherProvider => write!(f, "at another provider"),
            Self::Slower { rtt } => write!(f, "slower: {:.1} ms", ms(rtt)),
            Self::Unmeasured => write!(f, "no round trip is known"),
            Self::Later { n } => write!(f, "later: number {n} in the order"),
            Self::OtherTurn => write!(f, "not its turn"),
            Self::Full => write!(f, "full"),
            Self::Unhealthy(why) => write!(f, "unhealthy: {}", why.as_str()),
        }
    }
}

#[cfg(test)]
mod tests;
