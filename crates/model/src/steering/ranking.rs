//! Members in the order in which they are tried. What decides is compared in one order for all modes ([`Key`]); where a
//! member's key first differs from the winner's is why it lost.

use std::cmp::Ordering;
use std::time::Duration;

use super::{Asked, Candidate, Known, Reason, Situation, Unhealthy, Whereabouts};
use crate::identity::ClusterName;
use crate::ingress::Steering;
use crate::network::Location;

/// So many members are ranked without an allocation: few services run in more clusters, and these take a kilobyte of stack.
const FEW: usize = 16;

/// A member by its number among those that were given, and why it stands where it does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    pub member: usize,
    pub reason: Reason,
}

/// All members, the one that is chosen first.
#[derive(Debug, Clone)]
pub struct Ranking {
    pub situation: Situation,
    mode: Mode,
    few: [Place; FEW],
    count: usize,
    /// All of them, where they are more than a few.
    many: Vec<Place>,
}

/// Ranks the members. The order in which they are given does not matter; that of their names is the cheapest.
#[allow(clippy::needless_pass_by_value)] // As iterators are given elsewhere.
pub fn order<'a, M>(asked: &Asked<'a>, members: M) -> Ranking
where
    M: Iterator<Item = Candidate<'a>> + Clone,
{
    let mut ranking = Ranking::of(asked, &members);
    let places = ranking.places_mut();
    if places.iter().all(|place| place.unhealthy.is_some()) {
        ranking.situation = if places.is_empty() { Situation::Usual } else { Situation::Panic };
    }
    let panic = ranking.situation == Situation::Panic;
    let places = ranking.places_mut();
    // Checks may be wrong about a member; who drained it is not. But rather there than nowhere.
    let spares_drained = places.iter().any(|place| place.unhealthy != Some(Unhealthy::Drained));
    let mut top = Class::Unhealthy;
    for place in &mut *places {
        let is_spared = spares_drained && place.unhealthy == Some(Unhealthy::Drained);
        place.key.class = place.class(panic && !is_spared);
        top = top.min(place.key.class);
    }
    let is_weighted = matches!(asked.steering, Steering::Weighted(_));
    if is_weighted {
        for place in &mut *places {
            place.key.score = race(asked.random, place.position, place.weight);
        }
    }
    let by_share = top == Class::Free && places.iter().any(|place| place.key.class == top && place.share > 0.0);
    if by_share || is_weighted {
        draw(places, top, by_share, asked.random);
    }
    if matches!(asked.steering, Steering::RoundRobin) {
        take_turns(places, top, asked.turn);
    }
    for place in &mut *places {
        place.key.last = mixed(asked.turn, place.position);
    }
    places.sort_unstable_by(|one, other| one.key.compare(&other.key));
    if by_share {
        ranking.mode = Mode::Shares;
    }
    if top == Class::Full && !panic {
        ranking.situation = Situation::AllFull;
    }
    ranking
}

/// Says what part each one of the best class has of the shares or weights. By shares one is drawn here, and the mode says who
/// comes next.
fn draw(places: &mut [Place], top: Class, by_share: bool, random: u64) {
    let (mut sum, mut best) = (0.0, None);
    for (at, place) in places.iter_mut().enumerate() {
        let weight = if by_share { place.share } else { place.weight };
        place.share = if place.key.class == top { weight } else { 0.0 };
        sum += place.share;
        if by_share && place.share > 0.0 {
            let time = race(random, place.position, place.share);
            if best.is_none_or(|(least, _)| time < least) {
                best = Some((time, at));
            }
        }
    }
    for (at, place) in places.iter_mut().enumerate() {
        place.share = if sum > 0.0 { place.share / sum } else { 0.0 };
        place.key.behind = best.is_some_and(|(_, drawn)| at != drawn);
    }
}

/// Those of the best class, by their names, beginning with whose turn it is. The others come in any order.
fn take_turns(places: &mut [Place], top: Class, turn: u64) {
    let count = places.iter().filter(|place| place.key.class == top).count() as u64;
    for at in 0..places.len() {
        let own = places[at];
        if own.key.class == top {
            let before = places.iter().filter(|place| place.key.class == top && place.position < own.position).count();
            places[at].key.score = float((before as u64 + count - turn % count) % count);
        }
    }
}

impl Ranking {
    /// In the order in which they are given, with all that each has by itself.
    fn of<'a, M>(asked: &Asked<'a>, members: &M) -> Self
    where
        M: Iterator<Item = Candidate<'a>> + Clone,
    {
        let mut ranking = Self {
            situation: Situation::Usual,
            mode: Mode::of(asked),
            few: [Place::NONE; FEW],
            count: 0,
            many: Vec::new(),
        };
        let (mut last, mut sorted) = (None, true);
        for (number, member) in members.clone().enumerate() {
            sorted &= last.is_none_or(|last: &ClusterName| last < member.cluster);
            last = Some(member.cluster);
            ranking.push(Place::of(asked, number, &member));
        }
        if !sorted {
            for (place, member) in ranking.places_mut().iter_mut().zip(members.clone()) {
                place.position = members.clone().filter(|other| other.cluster < member.cluster).count() as u64;
            }
        }
        // Behind those that are listed, by name.
        if let Steering::Failover(order) = asked.steering {
            for place in ranking.places_mut().iter_mut().filter(|place| place.key.score.is_infinite()) {
                place.key.score = small(order.len()) + float(place.position);
            }
        }
        ranking
    }

    fn push(&mut self, place: Place) {
        if let Some(free) = self.few.get_mut(self.count) {
            *free = place;
        } else {
            if self.many.is_empty() {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(place);
        }
        self.count += 1;
    }

    fn places(&self) -> &[Place] {
        if self.many.is_empty() { &self.few[..self.count] } else { &self.many }
    }

    fn places_mut(&mut self) -> &mut [Place] {
        if self.many.is_empty() { &mut self.few[..self.count] } else { &mut self.many }
    }

    /// The members by their numbers, in the order in which they are to be tried.
    pub fn members(&self) -> impl Iterator<Item = usize> {
        self.places().iter().map(|place| place.number)
    }

    /// Those of them that are as good as the first: healthy, and with room where any has.
    pub fn eligible(&self) -> impl Iterator<Item = usize> {
        let top = self.places().first().map(|place| place.key.class);
        self.places().iter().take_while(move |place| Some(place.key.class) == top).map(|place| place.number)
    }

    /// And those that only lack room: whom a client can be sent to that cannot be sent to any of the first, as by an address
    /// of its own family.
    pub fn usable(&self) -> impl Iterator<Item = usize> {
        let worst = self.places().first().map(|place| place.key.class.max(Class::Full));
        self.places().iter().take_while(move |place| Some(place.key.class) <= worst).map(|place| place.number)
    }

    /// The same as [`Ranking::members`], and why.
    pub fn reasons(&self) -> impl Iterator<Item = Ranked> {
        let (winner, losers) = self.places().split_first().map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
        winner.into_iter().flat_map(move |winner| {
            let won = Ranked { member: winner.number, reason: winner.won(self.mode) };
            let lost = move |place: &Place| Ranked { member: place.number, reason: place.lost_to(winner, self.mode) };
            std::iter::once(won).chain(losers.iter().map(lost))
        })
    }
}

/// What decides, the first of its parts before the others.
#[derive(Debug, Clone, Copy)]
struct Key {
    class: Class,
    /// Another one was drawn.
    behind: bool,
    /// By the mode: kilometres, the outcome of a draw, a place in an order; the lower, the better.
    score: f64,
    /// 2 for another region than the client's, 1 for another provider.
    apart: u8,
    /// The round trip; infinite where it is not known, or does not matter.
    seconds: f64,
    /// Among equals no member is always the first.
    last: u64,
}

impl Key {
    const NONE: Self = Self { class: Class::Free, behind: false, score: 0.0, apart: 0, seconds: 0.0, last: 0 };

    fn compare(&self, other: &Self) -> Ordering {
        let classes = (self.class, self.behind).cmp(&(other.class, other.behind));
        classes
            .then_with(|| self.score.total_cmp(&other.score))
            .then_with(|| self.apart.cmp(&other.apart))
            .then_with(|| self.seconds.total_cmp(&other.seconds))
            .then_with(|| self.last.cmp(&other.last))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Free,
    Full,
    /// Where weights decide and it has none: better than one that is broken.
    Weightless,
    Unhealthy,
}

/// What a share or weight is worth that came from elsewhere.
fn share(known: &Known) -> f64 {
    known.share.filter(|share| share.is_finite() && *share > 0.0).unwrap_or_default()
}

fn seconds(known: &Known) -> f64 {
    known.round_trip.map_or(f64::INFINITY, |rtt| rtt.as_secs_f64())
}

/// Infinite where only the client's place is known; all are alike where that is not.
fn distance(client: &Whereabouts<'_>, member: &Location) -> f64 {
    let Some(client) = client.coordinates else { return 0.0 };
    member.coordinates.map_or(f64::INFINITY, |member| client.distance_km(&member))
}

fn apart(client: &Whereabouts<'_>, member: &Location) -> u8 {
    let differs = |client: Option<&str>, member: &Option<String>| client.is_some() && client != member.as_deref();
    u8::from(differs(client.region, &member.region)) << 1 | u8::from(differs(client.provider, &member.provider))
}

/// Each member runs a time that falls with its weight, and the first to arrive is drawn: it is each one with the
/// probability of its share, the others follow alike, and who is out changes nothing between the rest (exponential
/// clocks).
fn race(random: u64, position: u64, weight: f64) -> f64 {
    if weight <= 0.0 {
        return f64::INFINITY;
    }
    // 53 bits, as many as a float has; never 0, whose logarithm is infinite.
    let chance = (float(mixed(random, position) >> 11) + 0.5) / float(1 << 53);
    -chance.ln() / weight
}

/// A number that looks like any other for each position (the last step of `SplitMix64`).
fn mixed(number: u64, position: u64) -> u64 {
    let mut mixed = number.wrapping_add((position + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Numbers of at most 53 bits.
fn float(number: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let float = number as f64;
    float
}

fn small(number: usize) -> f64 {
    float(number as u64)
}

/// What decided: [`Steering`] without its tables, or the overflow table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Shares,
    Geo { placed: bool, in_region: bool },
    Latency,
    Weighted,
    Failover,
    RoundRobin,
}

impl Mode {
    fn of(asked: &Asked<'_>) -> Self {
        let client = &asked.client;
        match asked.steering {
            Steering::Geo => Self::Geo { placed: client.coordinates.is_some(), in_region: client.region.is_some() },
            Steering::Latency => Self::Latency,
            Steering::Weighted(_) => Self::Weighted,
            Steering::Failover(_) => Self::Failover,
            Steering::RoundRobin => Self::RoundRobin,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Place {
    key: Key,
    number: usize,
    /// Its place among all by their names, so that chance does not depend on the order in which they come.
    position: u64,
    /// The overflow table's; then its part of what is drawn by, where something is.
    share: f64,
    /// Where weights decide.
    weight: f64,
    full: bool,
    unhealthy: Option<Unhealthy>,
}

impl Place {
    const NONE: Self =
        Self { key: Key::NONE, number: 0, position: 0, share: 0.0, weight: 1.0, full: false, unhealthy: None };

    fn of(asked: &Asked<'_>, number: usize, member: &Candidate<'_>) -> Self {
        let known = &member.known;
        let (mut key, mut weight) = (Key { seconds: f64::INFINITY, ..Key::NONE }, 1.0);
        match asked.steering {
            Steering::Geo => {
                key.score = distance(&asked.client, member.location);
                key.apart = apart(&asked.client, member.location);
                key.seconds = seconds(known);
            }
            Steering::Latency => key.seconds = seconds(known),
            Steering::Weighted(weights) => weight = weights.get(member.cluster).copied().map_or(0.0, f64::from),
            Steering::Failover(order) => {
                let listed = order.iter().position(|listed| listed == member.cluster);
                key.score = listed.map_or(f64::INFINITY, small);
            }
            Steering::RoundRobin => {}
        }
        let Known { full, unhealthy, .. } = *known;
        Self { key, number, position: number as u64, share: share(known), weight, full, unhealthy }
    }

    fn class(&self, panic: bool) -> Class {
        if self.unhealthy.is_some() && !panic {
            Class::Unhealthy
        } else if self.weight <= 0.0 {
            Class::Weightless
        } else if self.full {
            Class::Full
        } else {
            Class::Free
        }
    }

    fn won(&self, mode: Mode) -> Reason {
        let Key { score, apart, .. } = self.key;
        match mode {
            Mode::Shares => Reason::Share { share: self.share },
            Mode::Weighted if self.share > 0.0 => Reason::Weighted { share: self.share },
            // Nobody who has a weight is healthy.
            Mode::Weighted => Reason::NoShare,
            Mode::Geo { placed: true, .. } if score.is_finite() => Reason::Nearest { km: score },
            Mode::Geo { in_region: true, .. } if apart < 2 => Reason::SameRegion,
            Mode::Geo { .. } | Mode::Latency => self.rtt().map_or(Reason::Turn, |rtt| Reason::Fastest { rtt }),
            Mode::Failover => Reason::Order { n: self.place_in_order() },
            Mode::RoundRobin => Reason::Turn,
        }
    }

    fn lost_to(&self, winner: &Self, mode: Mode) -> Reason {
        let (own, better) = (&self.key, &winner.key);
        if own.class != better.class {
            return match (own.class, self.unhealthy) {
                (Class::Unhealthy, Some(why)) => Reason::Unhealthy(why),
                (Class::Weightless, _) => Reason::NoShare,
                _ => Reason::Full,
            };
        }
        if matches!(mode, Mode::Shares | Mode::Weighted) && winner.share > 0.0 {
            return if self.share > 0.0 { Reason::NotDrawn { share: self.share } } else { Reason::NoShare };
        }
        if own.score.total_cmp(&better.score).is_ne() {
            return match mode {
                Mode::Geo { .. } if own.score.is_finite() => Reason::Farther { km: own.score },
                Mode::Geo { .. } => Reason::Unplaced,
                Mode::Failover => Reason::Later { n: self.place_in_order() },
                Mode::Shares | Mode::Weighted | Mode::Latency | Mode::RoundRobin => Reason::OtherTurn,
            };
        }
        if own.apart != better.apart {
            let other_region = own.apart ^ better.apart >= 2;
            return if other_region { Reason::OtherRegion } else { Reason::OtherProvider };
        }
        if own.seconds.total_cmp(&better.seconds).is_ne() {
            return self.rtt().map_or(Reason::Unmeasured, |rtt| Reason::Slower { rtt });
        }
        Reason::OtherTurn
    }

    fn rtt(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.key.seconds).ok()
    }

    fn place_in_order(&self) -> u32 {
        // A list of clusters and a number among the members: small.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let place = self.key.score as u32;
        place.saturating_add(1)
    }
}
