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
    let survey = Survey::of(asked, &members);
    let mut ranking = Ranking::empty(&survey);
    let mut before = 0;
    for (number, member) in members.clone().enumerate() {
        let class = survey.class(&member);
        let position = survey.position(number, member.cluster, &members);
        let rank = if survey.sorted { before } else { survey.rank(member.cluster, &members) };
        before += u64::from(class == survey.top);
        let weight = survey.weight(&member);
        let score = match asked.steering {
            Steering::Geo => distance(&asked.client, member.location),
            Steering::Latency => 0.0,
            Steering::Weighted(_) => race(asked.random, position, weight),
            Steering::Failover(order) => {
                let listed = order.iter().position(|listed| listed == member.cluster);
                // Those that are not listed come behind those that are, by name.
                listed.map_or_else(|| small(order.len()) + float(position), small)
            }
            // Those that cannot have a turn come in any order.
            Steering::RoundRobin if class != survey.top => 0.0,
            Steering::RoundRobin => float((rank + survey.in_turn - asked.turn % survey.in_turn) % survey.in_turn),
        };
        let (apart, seconds) = match asked.steering {
            Steering::Geo => (apart(&asked.client, member.location), seconds(&member.known)),
            Steering::Latency => (0, seconds(&member.known)),
            _ => (0, f64::INFINITY),
        };
        let drawn = survey.drawn == Some(number);
        let key = Key {
            class,
            behind: survey.drawn.is_some() && !drawn,
            score,
            apart,
            seconds,
            last: mixed(asked.turn, position),
        };
        ranking.push(Place { key, number, share: weight / survey.weights, unhealthy: member.known.unhealthy });
    }
    ranking.places_mut().sort_unstable_by(|one, other| one.key.compare(&other.key));
    ranking
}

impl Ranking {
    fn empty(survey: &Survey<'_>) -> Self {
        let many = if survey.count > FEW { Vec::with_capacity(survey.count) } else { Vec::new() };
        let mode = Mode::of(survey);
        Self { situation: survey.situation, mode, few: [Place::NONE; FEW], count: 0, many }
    }

    fn push(&mut self, place: Place) {
        match self.few.get_mut(self.count) {
            Some(free) if self.many.capacity() == 0 => *free = place,
            _ => self.many.push(place),
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

/// What has to be known of all members before one can be ranked.
struct Survey<'a> {
    asked: &'a Asked<'a>,
    situation: Situation,
    count: usize,
    /// They come in the order of their names.
    sorted: bool,
    /// The best class that a member has, and how many have it.
    top: Class,
    in_turn: u64,
    /// The overflow table has a word.
    by_share: bool,
    /// Whom the overflow table's shares chose, by its number.
    drawn: Option<usize>,
    /// Of all in the best class.
    weights: f64,
}

impl<'a> Survey<'a> {
    fn of<'m, M>(asked: &'a Asked<'a>, members: &M) -> Self
    where
        M: Iterator<Item = Candidate<'m>> + Clone,
    {
        let mut survey = Self {
            asked,
            situation: Situation::Panic,
            count: 0,
            sorted: true,
            top: Class::Unhealthy,
            in_turn: 1,
            by_share: false,
            drawn: None,
            weights: 0.0,
        };
        let mut last: Option<&ClusterName> = None;
        for member in members.clone() {
            survey.count += 1;
            survey.sorted &= last.is_none_or(|last| last < member.cluster);
            last = Some(member.cluster);
            if member.known.unhealthy.is_none() {
                survey.situation = Situation::Usual;
            }
        }
        for member in members.clone() {
            let class = survey.class(&member);
            if class < survey.top {
                (survey.top, survey.in_turn) = (class, 0);
            }
            survey.in_turn += u64::from(class == survey.top);
            survey.by_share |= class == Class::Free && share(&member.known) > 0.0;
        }
        if survey.count == 0 {
            survey.situation = Situation::Usual;
        }
        if survey.top == Class::Full && survey.situation == Situation::Usual {
            survey.situation = Situation::AllFull;
        }
        survey.draw(members);
        survey
    }

    /// Weighs those that can be drawn; by the overflow table's shares one is drawn here, by weights in the ranking itself.
    fn draw<'m, M>(&mut self, members: &M)
    where
        M: Iterator<Item = Candidate<'m>> + Clone,
    {
        if !self.by_share && !matches!(self.asked.steering, Steering::Weighted(_)) {
            self.weights = 1.0;
            return;
        }
        let mut least = f64::INFINITY;
        for (number, member) in members.clone().enumerate() {
            let weight = self.weight(&member);
            self.weights += weight;
            if self.by_share && weight > 0.0 {
                let score = race(self.asked.random, self.position(number, member.cluster, members), weight);
                if score < least {
                    (least, self.drawn) = (score, Some(number));
                }
            }
        }
        // Without any there is nothing to divide.
        self.weights = if self.weights > 0.0 { self.weights } else { 1.0 };
    }

    fn class(&self, member: &Candidate<'_>) -> Class {
        if member.known.unhealthy.is_some() && self.situation != Situation::Panic {
            return Class::Unhealthy;
        }
        match self.asked.steering {
            Steering::Weighted(weights) if weights.get(member.cluster).is_none_or(|weight| *weight == 0) => {
                Class::Weightless
            }
            _ if member.known.full => Class::Full,
            _ => Class::Free,
        }
    }

    /// What it is drawn by.
    fn weight(&self, member: &Candidate<'_>) -> f64 {
        if self.class(member) != self.top {
            return 0.0;
        }
        match self.asked.steering {
            _ if self.by_share => share(&member.known),
            Steering::Weighted(weights) => weights.get(member.cluster).copied().map_or(0.0, f64::from),
            _ => 0.0,
        }
    }

    /// Its place among all by their names, so that chance does not depend on the order in which they come.
    fn position<'m, M>(&self, number: usize, cluster: &ClusterName, members: &M) -> u64
    where
        M: Iterator<Item = Candidate<'m>> + Clone,
    {
        if self.sorted {
            return number as u64;
        }
        members.clone().filter(|other| other.cluster < cluster).count() as u64
    }

    /// The same among those of the best class.
    fn rank<'m, M>(&self, cluster: &ClusterName, members: &M) -> u64
    where
        M: Iterator<Item = Candidate<'m>> + Clone,
    {
        members.clone().filter(|other| other.cluster < cluster && self.class(other) == self.top).count() as u64
    }
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
    fn of(survey: &Survey<'_>) -> Self {
        let client = &survey.asked.client;
        match survey.asked.steering {
            _ if survey.by_share => Self::Shares,
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
    /// Of what is drawn by, where something is.
    share: f64,
    unhealthy: Option<Unhealthy>,
}

impl Place {
    const NONE: Self = Self { key: Key::NONE, number: 0, share: 0.0, unhealthy: None };

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
        if winner.share > 0.0 {
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
