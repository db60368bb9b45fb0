//! Clusters on a map of the world. The land is dots, one for every 2.5 degrees; clusters that are near each other are one mark,
//! so that a large fleet is no larger a page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use maud::{Markup, html};
use model::network::Coordinates;

use super::health::Health;
use super::summary::ClusterRow;
use super::table::{counted, grouped};

/// Which fields of 2.5 by 2.5 degrees are mostly land (`#`), from 82.5 degrees north and 180 degrees west on: sampled from the
/// GLOBE elevation model of NOAA, which is in the public domain, by the package global-land-mask.
const LAND: &str = include_str!("land.txt");
const DEGREES: f64 = 2.5;
const NORTH: f64 = 82.5;
/// In fields.
const WIDTH: f64 = 144.0;
const HEIGHT: f64 = 56.0;

/// More would be a larger page: each is some 300 octets.
const MOST_MARKS: usize = 160;
/// The sides of the squares whose clusters are one mark, in fields. The last has fewer squares than there are marks at most.
const GRIDS: [u16; 5] = [1, 2, 4, 8, 16];
/// Marks that are nearer to each other would hide each other, and are one; in fields.
const NEAR: f64 = 3.4;
/// That a mark names.
const REGIONS: usize = 3;

/// A square of the grid, by its number from the west and from the north.
type Square = (u16, u16);

/// All clusters of one square, or of several that are near each other.
#[derive(Debug, Clone, Default)]
pub(super) struct Mark {
    squares: Vec<Square>,
    count: [usize; Health::ALL.len()],
    x: f64,
    y: f64,
    /// A few of the regions that they are in.
    regions: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Map {
    grid: u16,
    /// The worst last, so that nothing is drawn upon them.
    marks: Vec<Mark>,
    pub(super) unplaced: usize,
}

impl Map {
    pub(super) fn of(clusters: &[ClusterRow]) -> Self {
        let placed: Vec<_> = clusters.iter().filter_map(|row| Some((row, row.coordinates?))).collect();
        let unplaced = clusters.len() - placed.len();
        let squares = |grid: u16| {
            let mut marks: BTreeMap<Square, Mark> = BTreeMap::new();
            for (row, coordinates) in &placed {
                let square = square(coordinates, grid);
                marks.entry(square).or_insert_with(|| Mark::at(square)).add(row, coordinates);
                if marks.len() > MOST_MARKS {
                    return None;
                }
            }
            Some((grid, marks))
        };
        let (grid, marks) = GRIDS.into_iter().find_map(squares).unwrap_or_default();
        let mut marks = apart(marks.into_values().collect());
        marks.sort_by_key(|mark| (mark.worst(), mark.all()));
        Self { grid, marks, unplaced }
    }

    /// Whether a cluster is at the mark that a query calls so.
    pub(super) fn is_at(&self, row: &ClusterRow, key: &str) -> bool {
        let Some(square) = row.coordinates.map(|coordinates| square(&coordinates, self.grid)) else { return false };
        let mark = self.marks.iter().find(|mark| mark.squares.contains(&square));
        mark.is_some_and(|mark| self.key(mark) == key)
    }

    pub(super) fn render(&self) -> Markup {
        let all: usize = self.marks.iter().map(Mark::all).sum();
        html! {
            svg.world viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(format!("{} on a map of the world", counted(all, "cluster"))) {
                path.land d=(LAND_DOTS.as_str()) {}
                @for mark in &self.marks { (mark.render(&self.key(mark))) }
            }
        }
    }

    /// What a query calls a mark.
    fn key(&self, mark: &Mark) -> String {
        let (x, y) = mark.squares.first().copied().unwrap_or_default();
        format!("{}.{x}.{y}", self.grid)
    }
}

/// Joins marks until none is near another: one that was joined is elsewhere than before.
fn apart(mut marks: Vec<Mark>) -> Vec<Mark> {
    loop {
        let before = marks.len();
        let mut apart: Vec<Mark> = Vec::new();
        for mark in marks {
            match apart.iter_mut().find(|other| other.is_near(&mark)) {
                Some(other) => other.join(mark),
                None => apart.push(mark),
            }
        }
        if apart.len() == before {
            return apart;
        }
        marks = apart;
    }
}

impl Mark {
    fn at(square: Square) -> Self {
        Self { squares: vec![square], ..Self::default() }
    }

    fn is_near(&self, other: &Self) -> bool {
        (self.x - other.x).hypot(self.y - other.y) < NEAR
    }

    fn join(&mut self, other: Self) {
        let part = float(other.all()) / float(self.all() + other.all());
        self.x += (other.x - self.x) * part;
        self.y += (other.y - self.y) * part;
        self.squares.extend(other.squares);
        for (count, more) in self.count.iter_mut().zip(other.count) {
            *count += more;
        }
        for region in other.regions {
            self.add_region(&region);
        }
    }

    fn add_region(&mut self, region: &str) {
        if self.regions.len() < REGIONS && !self.regions.iter().any(|known| known == region) {
            self.regions.push(region.to_owned());
        }
    }

    fn add(&mut self, row: &ClusterRow, coordinates: &Coordinates) {
        let before = float(self.all());
        let (x, y) = position(coordinates);
        // The middle of all that are here.
        self.x += (x - self.x) / (before + 1.0);
        self.y += (y - self.y) / (before + 1.0);
        self.count[row.health as usize] += 1;
        if let Some(region) = &row.region {
            self.add_region(region);
        }
    }

    fn all(&self) -> usize {
        self.count.iter().sum()
    }

    /// What looks worst is the shape: one of many that is down must be seen.
    fn worst(&self) -> Health {
        let there = Health::ALL.into_iter().filter(|health| self.count[*health as usize] > 0);
        there.max().unwrap_or(Health::Ready)
    }

    fn title(&self) -> String {
        let each = Health::ALL.into_iter().map(|health| (self.count[health as usize], health));
        let each = each.filter(|(count, _)| *count > 0);
        let each: Vec<_> = each.map(|(count, health)| format!("{} {}", grouped(count), health.key())).collect();
        let regions = if self.regions.is_empty() { String::new() } else { format!(" in {}", self.regions.join(", ")) };
        format!("{}{regions}: {}", counted(self.all(), "cluster"), each.join(", "))
    }

    fn render(&self, key: &str) -> Markup {
        let (all, worst, title) = (self.all(), self.worst(), self.title());
        // A hundred are twice as large as one.
        let scale = 0.30 + 0.15 * float(all).log10().min(3.0);
        html! {
            a.mark.(worst.key()) href=(format!("/clusters?at={key}")) aria-label=(title) {
                title { (title) }
                g transform=(format!("translate({:.1} {:.1})", self.x, self.y)) {
                    path transform=(format!("scale({scale:.2})")) d=(worst.shape()) {}
                    @if all > 1 { text x=(format!("{:.1}", 5.0 * scale + 0.4)) y="0.7" { (grouped(all)) } }
                }
            }
        }
    }
}

/// Lines of no length with round ends, which a pattern of dashes makes dots of: a run of land is one line.
static LAND_DOTS: LazyLock<String> = LazyLock::new(|| {
    let mut path = String::new();
    for (row, fields) in LAND.lines().enumerate() {
        let fields = fields.as_bytes();
        let mut at = 0;
        while at < fields.len() {
            let run = fields[at..].iter().take_while(|field| **field == b'#').count();
            if run > 0 {
                // Writing to a text never fails.
                let _ = write!(path, "M{at}.5 {row}.5h{}.1", run - 1);
            }
            at += run.max(1);
        }
    }
    path
});

fn position(coordinates: &Coordinates) -> (f64, f64) {
    let x = (coordinates.longitude() + 180.0) / DEGREES;
    let y = (NORTH - coordinates.latitude()) / DEGREES;
    (x.clamp(0.0, WIDTH), y.clamp(0.0, HEIGHT))
}

fn square(coordinates: &Coordinates, grid: u16) -> Square {
    let (x, y) = position(coordinates);
    // Both are small and positive.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let field = |at: f64| at as u16 / grid.max(1);
    (field(x), field(y))
}

#[allow(clippy::cast_precision_loss)] // Clusters are no quadrillion.
fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: usize, latitude: f64, longitude: f64, health: Health) -> ClusterRow {
        ClusterRow {
            coordinates: Some(Coordinates::new(latitude, longitude).unwrap()),
            health,
            ..ClusterRow::of_name(&format!("c{number}"))
        }
    }

    #[test]
    fn a_large_fleet_is_a_few_marks() {
        let rows: Vec<_> = (0..10_000)
            .map(|n| {
                let n_ = float(n);
                row(n, (n_ * 7.3) % 170.0 - 85.0, (n_ * 13.7) % 360.0 - 180.0, Health::Ready)
            })
            .collect();
        let map = Map::of(&rows);
        assert!(!map.marks.is_empty() && map.marks.len() <= MOST_MARKS, "{}", map.marks.len());
        assert_eq!(map.marks.iter().map(Mark::all).sum::<usize>(), 10_000);
        let size = map.render().0.len();
        assert!(size < 80_000, "{size}");
        // Whoever follows a mark finds its clusters.
        let mark = &map.marks[0];
        let key = map.key(mark);
        assert_eq!(rows.iter().filter(|row| map.is_at(row, &key)).count(), mark.all());
    }

    #[test]
    fn of_clusters_at_one_place_the_worst_is_shown() {
        let rows = [row(1, 52.5, 13.4, Health::Ready), row(2, 50.1, 8.7, Health::Down)];
        let map = Map::of(&rows);
        let drawn = map.render().0;
        assert!(drawn.contains("2 clusters: 1 ready, 1 down") && drawn.contains(Health::Down.shape()), "{drawn}");
        let key = map.key(&map.marks[0]);
        assert!(rows.iter().all(|row| map.is_at(row, &key)));
        let mut lost = ClusterRow::of_name("c3");
        lost.coordinates = None;
        assert_eq!(Map::of(&[lost]).unplaced, 1);
    }

    #[test]
    fn the_land_is_where_it_should_be() {
        let is_land = |latitude: f64, longitude: f64| {
            let (x, y) = square(&Coordinates::new(latitude, longitude).unwrap(), 1);
            LAND.lines().nth(y.into()).unwrap().as_bytes()[usize::from(x)] == b'#'
        };
        for (latitude, longitude) in [(52.5, 13.4), (40.0, -100.0), (-25.0, 135.0), (20.0, 78.0), (0.0, 25.0)] {
            assert!(is_land(latitude, longitude), "{latitude} {longitude}");
        }
        for (latitude, longitude) in [(0.0, -30.0), (30.0, -150.0), (-30.0, 80.0)] {
            assert!(!is_land(latitude, longitude), "{latitude} {longitude}");
        }
        assert!(LAND.lines().count() == 56 && LAND.lines().all(|line| line.len() == 144));
        assert!(LAND_DOTS.len() < 8_000, "{}", LAND_DOTS.len());
    }
}
