//! The quota table that all edges of a service share: plain values, to be sent and shown as they are.

use std::fmt;

use crate::fact::Timestamp;
use crate::identity::{ClusterName, ObjectName};

/// What a cluster can take of a service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Room {
    /// Requests per second at the utilisation that the policy wants.
    pub rate: f64,
    /// Requests per second that it takes at all; between the two it is only filled when everybody else is full as well.
    pub most: f64,
    /// What both follow from.
    pub basis: Basis,
    /// Why it takes nothing, if so.
    pub out: Option<Out>,
}

/// What a capacity follows from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Basis {
    /// Nothing is declared and nothing was measured: it counts as unlimited.
    Unknown,
    /// The declared rate; nothing was measured yet.
    Declared,
    Measured,
    /// The agent reported another rate than the edges counted: the declared rate, if there is one, takes over.
    Disagreed {
        served: f64,
        counted: f64,
    },
    /// Reports have stopped: the declared rate, if there is one, takes over.
    Silent {
        since: Timestamp,
    },
}

/// Why a cluster gets nothing at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    /// Somebody took it out.
    Drained,
    /// No edge reaches it.
    Unreachable,
    /// Its health checks fail.
    Unhealthy,
    NoReadyPods,
}

/// Whose traffic a row is of: what comes to an edge and belongs to one cluster, its home, by the policy's mode alone; or what belongs to
/// none in particular, as rings say who is nearest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    pub edge: ObjectName,
    pub home: Option<ClusterName>,
}

impl From<ObjectName> for Origin {
    fn from(edge: ObjectName) -> Self {
        Self { edge, home: None }
    }
}

/// Where the traffic of a service goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// When it was made.
    pub at: Timestamp,
    /// By name; the cells of each row are in the same order.
    pub clusters: Vec<(ClusterName, Room)>,
    /// By their origins.
    pub rows: Vec<Row>,
}

/// What becomes of the traffic of one origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub origin: Origin,
    /// Requests per second that come from it.
    pub demand: f64,
    pub cells: Vec<Cell>,
    /// The share to be refused with 503.
    pub shed: f64,
    pub why_shed: Option<Shed>,
}

/// What one edge sends to one cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// How far it is: a smaller ring is nearer. None where the edge cannot send there.
    pub ring: Option<u32>,
    /// Of the edge's traffic, between 0 and 1. Shares and what is shed are 1 together.
    pub share: f64,
    /// Where the share moves to.
    pub target: f64,
    /// Requests per second that the edge may send there, all of the cluster's room being given to some edge: what it is meant to
    /// send, and its part of what nobody is meant to.
    pub quota: f64,
    pub reason: Reason,
}

/// Why a cluster gets its share of an edge's traffic, or none. Clusters are given by their place in the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// Nothing is nearer.
    Nearest,
    /// A nearer one is full, at this rate.
    Overflow { full: usize, rate: f64 },
    /// A nearer one is out.
    InPlaceOf { lost: usize, out: Out },
    /// All are full, and it takes its part above the wanted utilisation.
    AllFull,
    /// There is room nearer again, and traffic moves there.
    Returning,
    /// It gets nothing: there is room nearer.
    NotNeeded,
    /// It gets nothing: what is nearer to it fills it, at this rate.
    Full { rate: f64 },
    /// It gets nothing: it is out.
    Out(Out),
    /// It gets nothing: the edge cannot send there.
    NoWay,
}

/// Why an edge refuses a part of its traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shed {
    /// All that it can send to is full.
    AllFull,
    /// It can send to nobody.
    AllOut,
}

impl Table {
    pub fn row(&self, origin: &Origin) -> Option<&Row> {
        let at = self.rows.binary_search_by(|row| row.origin.cmp(origin)).ok()?;
        self.rows.get(at)
    }

    /// Those of one edge.
    pub fn rows_of<'a>(&'a self, edge: &'a ObjectName) -> impl Iterator<Item = &'a Row> {
        let first = self.rows.partition_point(|row| row.origin.edge < *edge);
        self.rows[first..].iter().take_while(move |row| row.origin.edge == *edge)
    }

    /// The place of a cluster.
    pub fn place(&self, cluster: &ClusterName) -> Option<usize> {
        self.clusters.binary_search_by(|(name, _)| name.cmp(cluster)).ok()
    }

    /// Why a cluster gets what it gets, in words for an operator or the tenant that owns all of these clusters.
    pub fn explain(&self, cell: &Cell) -> String {
        let name = |place: usize| self.clusters.get(place).map_or("?", |(name, _)| name.as_str());
        match cell.reason {
            Reason::Nearest => "nearest".to_owned(),
            Reason::Overflow { full, rate } => format!("overflow: {} is full at {rate:.0} requests/s", name(full)),
            Reason::InPlaceOf { lost, out } => format!("in place of {}, which {out}", name(lost)),
            Reason::AllFull => "all clusters are full: filled above the wanted utilization".to_owned(),
            Reason::Returning => "there is room nearer again; traffic is moving there".to_owned(),
            Reason::NotNeeded => "not needed: there is room nearer".to_owned(),
            Reason::Full { rate } => format!("full at {rate:.0} requests/s"),
            Reason::Out(out) => out.to_string(),
            Reason::NoWay => "this gateway cannot send there".to_owned(),
        }
    }
}

impl Reason {
    /// Fixed: a metric's label, a log's field.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Nearest => "Nearest",
            Self::Overflow { .. } => "Overflow",
            Self::InPlaceOf { .. } => "InPlaceOf",
            Self::AllFull => "AllFull",
            Self::Returning => "Returning",
            Self::NotNeeded => "NotNeeded",
            Self::Full { .. } => "Full",
            Self::Out(_) => "Out",
            Self::NoWay => "NoWay",
        }
    }
}

impl Basis {
    /// Fixed: a metric's label, a field of JSON.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Declared => "Declared",
            Self::Measured => "Measured",
            Self::Disagreed { .. } => "Disagreed",
            Self::Silent { .. } => "Silent",
        }
    }
}

impl Out {
    /// Fixed, too.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Drained => "Drained",
            Self::Unreachable => "Unreachable",
            Self::Unhealthy => "Unhealthy",
            Self::NoReadyPods => "NoReadyPods",
        }
    }
}

/// Goes on after the name of the cluster.
impl fmt::Display for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drained => "is drained",
            Self::Unreachable => "is unreachable",
            Self::Unhealthy => "is unhealthy",
            Self::NoReadyPods => "has no ready pods",
        })
    }
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("nothing is declared and nothing was measured: taken as unlimited"),
            Self::Declared => f.write_str("as declared; nothing was measured yet"),
            Self::Measured => f.write_str("as measured"),
            Self::Disagreed { served, counted } => {
                write!(f, "as declared: {served:.0} requests/s are reported, {counted:.0} were counted")
            }
            Self::Silent { since } => write!(f, "no reports since {since}: moving to what is declared"),
        }
    }
}
