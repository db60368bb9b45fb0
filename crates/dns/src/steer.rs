//! Names whose addresses are chosen query by query, among the clusters that serve an entry.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use domain::base::iana::Rtype;
use model::ClusterName;
use model::ingress::Steering;
use model::network::Location;
use model::snapshot::{RecordSet, SteeredName};
use model::steering::{
    self, Asked, Candidate, Known, MemberKey, Ranked, Ranking, Reason, Situation, Standings, Unhealthy, Whereabouts,
};

/// How long an answer that was chosen may be kept, in seconds: as long as some clients are still sent to a cluster that
/// failed. Resolvers ask for a busy name six times a minute then.
pub const STEERED_TTL: u32 = 10;
/// How many addresses such an answer has at most: clients try two or three, and eight of IPv6 fit into the smallest
/// response beside any name but the longest.
pub const MAX_ADDRESSES: usize = 8;
/// What is known of so many members is looked up once; as many are ranked without an allocation.
const FEW: usize = 16;

/// What choices are made by. All of it can be replaced at any time, and the next query is answered by the new.
#[derive(Debug, Clone, Default)]
pub struct Guides {
    /// Who is healthy, how far away in time, and how full.
    pub standings: Arc<ArcSwap<Standings>>,
    /// Where clients are. Without it nobody's place is known.
    pub places: Arc<ArcSwapOption<geo::Map>>,
}

/// Who a choice is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asker {
    /// The resolver itself, which says of nobody else.
    Resolver(IpAddr),
    /// An address of a network that the resolver asks for.
    Network(IpAddr),
    /// Somebody whose place is not to be used.
    Private,
}

/// A steered name in the index.
#[derive(Debug)]
pub(crate) struct Steered {
    steering: Steering,
    /// By the names of their clusters.
    members: Vec<Member>,
    ttl: u32,
}

#[derive(Debug)]
struct Member {
    cluster: ClusterName,
    key: MemberKey,
    location: Location,
    /// Known by the plan, and before what is known by the second.
    unready: Option<Unhealthy>,
    /// Addresses in wire form, one behind the other.
    v4: Vec<u8>,
    v6: Vec<u8>,
}

/// Which addresses a query is answered with.
#[derive(Debug)]
pub(crate) struct Choice<'a> {
    steered: &'a Steered,
    standings: Guard<Arc<Standings>>,
    ranking: Ranking,
    rtype: Rtype,
    random: u64,
    /// RFC 7871: all clients whose addresses share so many bits get the same choice.
    pub(crate) scope: u8,
}

/// A choice, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    pub rtype: Rtype,
    pub situation: Situation,
    /// Whether it matters where the client is.
    pub is_by_place: bool,
    /// As [`Choice::scope`].
    pub scope: u8,
    /// In the order in which they are ranked.
    pub members: Vec<ChosenMember>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChosenMember {
    pub cluster: ClusterName,
    pub location: Location,
    pub known: Known,
    pub reason: Reason,
    /// Of the type; none where it has no address of it.
    pub addresses: Vec<IpAddr>,
    /// Whether the client is told of them.
    pub is_told: bool,
}

impl Steered {
    pub(crate) fn new(name: &SteeredName, records: &[RecordSet]) -> Self {
        let octets = |addresses: &[IpAddr], v6: bool| -> Vec<u8> {
            let octets = addresses.iter().filter(|address| address.is_ipv6() == v6).map(|address| match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            });
            octets.flatten().collect()
        };
        let members = name.members.iter().map(|member| Member {
            cluster: member.cluster.clone(),
            key: member.key,
            location: member.location.clone(),
            unready: member.unready,
            v4: octets(&member.addresses, false),
            v6: octets(&member.addresses, true),
        });
        let ttl = records.iter().map(|set| set.ttl).fold(STEERED_TTL, u32::min);
        Self { steering: name.steering.clone(), members: members.collect(), ttl }
    }

    pub(crate) fn ttl(&self) -> u32 {
        self.ttl
    }

    /// Chance is our own: neither names nor ids nor addresses of queries, which others choose, decide about it.
    pub(crate) fn choose(&self, guides: &Guides, asker: Asker, rtype: Rtype) -> Choice<'_> {
        let random = fastrand::u64(..);
        let places = matches!(self.steering, Steering::Geo).then(|| guides.places.load());
        let places = places.as_ref().and_then(|places| places.as_ref());
        let address = match asker {
            Asker::Resolver(address) | Asker::Network(address) => Some(address),
            Asker::Private => None,
        };
        let located = places.zip(address).map(|(places, address)| (places.locate(address), address));
        let client = located.and_then(|(located, _)| located.place).map(Whereabouts::from).unwrap_or_default();
        let scope = match (asker, located) {
            (Asker::Network(_), Some((located, address))) => located.prefix_len + mapped_bits(address),
            _ => 0,
        };
        let standings = guides.standings.load();
        let mut few = [Known::default(); FEW];
        for (known, member) in few.iter_mut().zip(&self.members) {
            *known = member.known(&standings);
        }
        // Turns are drawn: counted ones would fall in step with clients that ask for A and AAAA by turns.
        let choice = Asked { steering: &self.steering, client, turn: random, random };
        let ranking = self.rank(&choice, &few, &standings);
        // Whom the mode sends there, and what of it does not fit: the measured load says.
        let first = ranking.members().next().and_then(|number| self.members.get(number));
        let shares = first.and_then(|first| standings.shares(first.key)).unwrap_or_default();
        if shares.is_empty() || ranking.situation == Situation::Panic {
            return Choice { steered: self, standings, ranking, rtype, random, scope };
        }
        for (known, member) in few.iter_mut().zip(&self.members) {
            known.share = shares.iter().find_map(|(key, share)| (*key == member.key).then_some(*share));
        }
        // Not the chance by which the first was drawn, where it was.
        let choice = Asked { random: random.rotate_left(32), ..choice };
        let ranking = self.rank(&choice, &few, &standings);
        Choice { steered: self, standings, ranking, rtype, random, scope }
    }

    fn rank(&self, choice: &Asked<'_>, few: &[Known; FEW], standings: &Standings) -> Ranking {
        let members = self.members.iter().enumerate().map(|(number, member)| Candidate {
            cluster: &member.cluster,
            location: &member.location,
            known: few.get(number).copied().unwrap_or_else(|| member.known(standings)),
        });
        steering::order(choice, members)
    }
}

impl Member {
    fn known(&self, standings: &Standings) -> Known {
        let known = standings.of(self.key);
        Known { unhealthy: self.unready.or(known.unhealthy), ..known }
    }
}

/// From its wire form.
fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(octets).map(IpAddr::from).ok())
}

/// How many bits stand before an IPv4 address that is written as one of IPv6, as which it is looked up.
fn mapped_bits(address: IpAddr) -> u8 {
    if address.is_ipv6() && address.to_canonical().is_ipv4() { 96 } else { 0 }
}

impl<'a> Choice<'a> {
    /// In wire form: all of the one member that was chosen; of every member where they take turns, beginning with the one
    /// whose turn it is. None where no member that is in order has an address of the type.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &'a [u8]> {
        self.members().flat_map(|member| self.rotated(member)).take(MAX_ADDRESSES)
    }

    /// Whose addresses these are.
    fn members(&self) -> impl Iterator<Item = usize> {
        let has = |member: &usize| !self.octets(*member).is_empty();
        let all = matches!(self.steered.steering, Steering::RoundRobin);
        let first = self.ranking.eligible().find(has).or_else(|| self.ranking.usable().find(has));
        // The members behind the first that are as good.
        let others = self.ranking.eligible().filter(move |_| all).filter(move |member| Some(*member) != first);
        first.into_iter().chain(others)
    }

    /// The choice with its reasons.
    pub(crate) fn told(&self) -> Chosen {
        let told: Vec<usize> = self.members().collect();
        let ranked =
            self.ranking.reasons().filter_map(|ranked| Some((self.steered.members.get(ranked.member)?, ranked)));
        let members = ranked.map(|(member, Ranked { member: number, reason })| ChosenMember {
            cluster: member.cluster.clone(),
            location: member.location.clone(),
            known: member.known(&self.standings),
            reason,
            addresses: self.rotated(number).filter_map(address).collect(),
            is_told: told.contains(&number) && !self.octets(number).is_empty(),
        });
        Chosen {
            rtype: self.rtype,
            situation: self.ranking.situation,
            is_by_place: matches!(self.steered.steering, Steering::Geo),
            scope: self.scope,
            members: members.collect(),
        }
    }

    fn octets(&self, member: usize) -> &'a [u8] {
        match self.steered.members.get(member) {
            Some(member) if self.rtype == Rtype::A => &member.v4,
            Some(member) => &member.v6,
            None => &[],
        }
    }

    fn rotated(&self, member: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let octets = self.octets(member);
        let length = if self.rtype == Rtype::A { 4 } else { 16 };
        let count = octets.len() / length;
        // Any of them.
        #[allow(clippy::cast_possible_truncation)]
        let begin = (self.random >> 32) as usize % count.max(1) * length;
        let (before, behind) = octets.split_at(begin);
        behind.chunks_exact(length).chain(before.chunks_exact(length))
    }
}
