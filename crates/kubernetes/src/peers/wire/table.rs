//! A table, as far as one edge needs it.

use std::sync::Arc;

use model::overflow::waterfall::{MAX_CLUSTERS, MAX_ORIGINS};
use model::overflow::{Basis, Cell, Destination, Origin, Out, Reason, Room, Row, Shed, Table};
use model::{ClusterName, ObjectName, Timestamp};
use serde::{Deserialize, Serialize};

use super::numbers::{rate, sent_rate, sent_share, within};
use super::{DestinationLine, age, before, name};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableLine<'a> {
    #[serde(borrow)]
    of: DestinationLine<'a>,
    age: f64,
    #[serde(borrow)]
    clusters: Vec<RoomLine<'a>>,
    #[serde(borrow)]
    rows: Vec<RowLine<'a>>,
}

/// The cluster, what it can take at the wanted utilisation and at all, what both follow from, and why it takes nothing.
#[derive(Serialize, Deserialize)]
struct RoomLine<'a>(&'a str, f64, f64, BasisLine, Option<OutLine>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowLine<'a> {
    edge: &'a str,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    home: Option<&'a str>,
    demand: f64,
    cells: Vec<CellLine>,
    shed: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<ShedLine>,
}

/// Ring, share, target, quota and reason.
#[derive(Serialize, Deserialize)]
struct CellLine(Option<u32>, f64, f64, f64, ReasonLine);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
enum BasisLine {
    Unknown,
    Declared,
    Measured,
    Disagreed { served: f64, counted: f64 },
    Silent { age: f64 },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum OutLine {
    Drained,
    Unreachable,
    Unhealthy,
    NoReadyPods,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
enum ReasonLine {
    Nearest,
    Overflow { full: usize, rate: f64 },
    InPlaceOf { lost: usize, out: OutLine },
    AllFull,
    Returning,
    NotNeeded,
    Full { rate: f64 },
    Out(OutLine),
    NoWay,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ShedLine {
    AllFull,
    AllOut,
}

impl<'a> TableLine<'a> {
    pub(super) fn of(
        destination: &'a Destination,
        table: &'a Table,
        concerns: impl Fn(&Row) -> bool,
        now: Timestamp,
    ) -> Self {
        let room = |(cluster, room): &'a (ClusterName, Room)| {
            let out = room.out.map(OutLine::of);
            RoomLine(cluster.as_str(), sent_rate(room.rate), sent_rate(room.most), BasisLine::of(room.basis, now), out)
        };
        Self {
            of: DestinationLine::of(destination),
            age: age(table.at, now),
            clusters: table.clusters.iter().map(room).collect(),
            rows: table.rows.iter().filter(|row| concerns(row)).map(RowLine::of).collect(),
        }
    }

    /// As whoever looks things up in it takes for granted: clusters and rows in order, a cell for each cluster.
    pub(super) fn read(self, now: Timestamp) -> Result<(Destination, Arc<Table>), String> {
        if self.clusters.len() > MAX_CLUSTERS || self.rows.len() > MAX_ORIGINS {
            return Err("a table is too large".to_owned());
        }
        let room = |RoomLine(cluster, at_wanted, most, basis, out): RoomLine<'_>| {
            let (at_wanted, most) = (rate(at_wanted)?, rate(most)?);
            let room = Room { rate: at_wanted, most, basis: basis.read(now)?, out: out.map(OutLine::read) };
            Ok::<_, String>((name::<ClusterName>(cluster)?, room))
        };
        let clusters = self.clusters.into_iter().map(room).collect::<Result<Vec<_>, _>>()?;
        let count = clusters.len();
        let rows = self.rows.into_iter().map(|row| row.read(count)).collect::<Result<Vec<_>, _>>()?;
        let in_order = clusters.is_sorted_by(|one, other| one.0 < other.0)
            && rows.is_sorted_by(|one, other| one.origin < other.origin);
        if !in_order {
            return Err("a table is not in order".to_owned());
        }
        Ok((self.of.read()?, Arc::new(Table { at: before(now, self.age)?, clusters, rows })))
    }
}

impl<'a> RowLine<'a> {
    fn of(row: &'a Row) -> Self {
        Self {
            edge: row.origin.edge.as_str(),
            home: row.origin.home.as_ref().map(ClusterName::as_str),
            demand: sent_rate(row.demand),
            cells: row.cells.iter().map(CellLine::of).collect(),
            shed: sent_share(row.shed),
            why: row.why_shed.map(|why| match why {
                Shed::AllFull => ShedLine::AllFull,
                Shed::AllOut => ShedLine::AllOut,
            }),
        }
    }

    fn read(self, clusters: usize) -> Result<Row, String> {
        if self.cells.len() != clusters {
            return Err("a row has other cells than clusters".to_owned());
        }
        let home = self.home.map(name::<ClusterName>).transpose()?;
        let why_shed = self.why.map(|why| match why {
            ShedLine::AllFull => Shed::AllFull,
            ShedLine::AllOut => Shed::AllOut,
        });
        Ok(Row {
            origin: Origin { edge: name::<ObjectName>(self.edge)?, home },
            demand: rate(self.demand)?,
            cells: self.cells.into_iter().map(|cell| cell.read(clusters)).collect::<Result<_, _>>()?,
            shed: within(self.shed, 1.0)?,
            why_shed,
        })
    }
}

impl CellLine {
    fn of(cell: &Cell) -> Self {
        let (share, target) = (sent_share(cell.share), sent_share(cell.target));
        Self(cell.ring, share, target, sent_rate(cell.quota), ReasonLine::of(cell.reason))
    }

    fn read(self, clusters: usize) -> Result<Cell, String> {
        let Self(ring, share, target, quota, reason) = self;
        let (share, target, quota) = (within(share, 1.0)?, within(target, 1.0)?, rate(quota)?);
        Ok(Cell { ring, share, target, quota, reason: reason.read(clusters)? })
    }
}

impl BasisLine {
    fn of(basis: Basis, now: Timestamp) -> Self {
        match basis {
            Basis::Unknown => Self::Unknown,
            Basis::Declared => Self::Declared,
            Basis::Measured => Self::Measured,
            Basis::Disagreed { served, counted } => {
                Self::Disagreed { served: sent_rate(served), counted: sent_rate(counted) }
            }
            Basis::Silent { since } => Self::Silent { age: age(since, now) },
        }
    }

    fn read(self, now: Timestamp) -> Result<Basis, String> {
        Ok(match self {
            Self::Unknown => Basis::Unknown,
            Self::Declared => Basis::Declared,
            Self::Measured => Basis::Measured,
            Self::Disagreed { served, counted } => Basis::Disagreed { served: rate(served)?, counted: rate(counted)? },
            Self::Silent { age } => Basis::Silent { since: before(now, age)? },
        })
    }
}

impl OutLine {
    fn of(out: Out) -> Self {
        match out {
            Out::Drained => Self::Drained,
            Out::Unreachable => Self::Unreachable,
            Out::Unhealthy => Self::Unhealthy,
            Out::NoReadyPods => Self::NoReadyPods,
        }
    }

    fn read(self) -> Out {
        match self {
            Self::Drained => Out::Drained,
            Self::Unreachable => Out::Unreachable,
            Self::Unhealthy => Out::Unhealthy,
            Self::NoReadyPods => Out::NoReadyPods,
        }
    }
}

impl ReasonLine {
    fn of(reason: Reason) -> Self {
        match reason {
            Reason::Nearest => Self::Nearest,
            Reason::Overflow { full, rate } => Self::Overflow { full, rate: sent_rate(rate) },
            Reason::InPlaceOf { lost, out } => Self::InPlaceOf { lost, out: OutLine::of(out) },
            Reason::AllFull => Self::AllFull,
            Reason::Returning => Self::Returning,
            Reason::NotNeeded => Self::NotNeeded,
            Reason::Full { rate } => Self::Full { rate: sent_rate(rate) },
            Reason::Out(out) => Self::Out(OutLine::of(out)),
            Reason::NoWay => Self::NoWay,
        }
    }

    fn read(self, clusters: usize) -> Result<Reason, String> {
        let place = |place: usize| {
            if place < clusters { Ok(place) } else { Err("a reason names a cluster that is not there".to_owned()) }
        };
        Ok(match self {
            Self::Nearest => Reason::Nearest,
            Self::Overflow { full, rate: at } => Reason::Overflow { full: place(full)?, rate: rate(at)? },
            Self::InPlaceOf { lost, out } => Reason::InPlaceOf { lost: place(lost)?, out: out.read() },
            Self::AllFull => Reason::AllFull,
            Self::Returning => Reason::Returning,
            Self::NotNeeded => Reason::NotNeeded,
            Self::Full { rate: at } => Reason::Full { rate: rate(at)? },
            Self::Out(out) => Reason::Out(out.read()),
            Self::NoWay => Reason::NoWay,
        })
    }
}
