//! What is near, by the policy's mode.
//!
//! | mode | homes | then |
//! |---|---|---|
//! | `geo` | the member nearest to the client | the others by their distance from that one, whose neighbour the client is |
//! | `geo` without a place, `latency` | none | by the rings of the round trip from the edge |
//! | `failover` | none | in order |
//! | `weighted`, `roundRobin` | the one that was drawn, or whose turn it is | the others alike |
//!
//! A home is a ring of its own, so that nothing leaves it before it is full. That keeps each mode's promise: weights and turns hold exactly until
//! somebody is full, and a client that has a place is served by the nearest.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Seen;
use crate::identity::ClusterName;
use crate::ingress::Steering;
use crate::network::Location;
use crate::overflow::table::{Out, Room};
use crate::overflow::waterfall::ring;
use crate::routes::{Entry, Member};

/// Behind all that were measured.
const UNMEASURED: u32 = 8;
/// Light goes there and back through 100 km of fibre in a millisecond.
const KM_PER_MS: f64 = 100.0;

/// The homes that clients of an entry may have.
pub(super) fn homes(entry: &Entry) -> Vec<Option<ClusterName>> {
    let each = || entry.members.iter().map(|member| Some(member.cluster.clone()));
    match &entry.policy.steering {
        Steering::Geo => each().chain([None]).collect(),
        Steering::Latency | Steering::Failover(_) => vec![None],
        Steering::Weighted(_) | Steering::RoundRobin => each().collect(),
    }
}

/// How far each member is, for an edge's clients of one home; without those that the edge cannot send to.
pub(super) fn rings(
    entry: &Entry,
    home: Option<&ClusterName>,
    seen: &Seen,
    rooms: &BTreeMap<ClusterName, Room>,
) -> BTreeMap<ClusterName, u32> {
    let at_home = home.and_then(|home| entry.members.iter().find(|member| member.cluster == *home));
    let has_way = |member: &Member| {
        let is_agreed = rooms.get(&member.cluster).is_some_and(|room| room.out == Some(Out::Unhealthy));
        let seen = seen.member(&member.cluster);
        is_agreed || !seen.is_some_and(|seen| seen.failing || seen.ejected)
    };
    let reached = entry.members.iter().filter(|member| has_way(member) && takes_part(entry, member, rooms));
    let ring = |(position, member): (usize, &std::sync::Arc<Member>)| {
        let ring = match (&entry.policy.steering, at_home) {
            (_, Some(home)) if home.cluster == member.cluster => 0,
            (Steering::Geo, Some(home)) => 1 + apart(&home.location, &member.location),
            (Steering::Geo | Steering::Latency, _) => {
                seen.member(&member.cluster).and_then(|seen| seen.round_trip).map_or(UNMEASURED, ring)
            }
            (Steering::Failover(order), _) => {
                let listed = order.iter().position(|listed| *listed == member.cluster);
                u32::try_from(listed.unwrap_or(order.len() + position)).unwrap_or(u32::MAX)
            }
            (Steering::Weighted(_) | Steering::RoundRobin, _) => 1,
        };
        (member.cluster.clone(), ring)
    };
    reached.enumerate().map(ring).collect()
}

/// A member without a weight gets nothing, as long as one that has a weight is there.
fn takes_part(entry: &Entry, member: &Member, rooms: &BTreeMap<ClusterName, Room>) -> bool {
    let Steering::Weighted(weights) = &entry.policy.steering else { return true };
    let counts = |cluster: &ClusterName| weights.get(cluster).is_some_and(|weight| *weight > 0);
    counts(&member.cluster) || !rooms.iter().any(|(cluster, room)| counts(cluster) && room.out.is_none())
}

/// The ring of the round trip that a distance takes at best; who has no place is farther than anybody who has.
fn apart(home: &Location, member: &Location) -> u32 {
    if let (Some(home), Some(member)) = (&home.coordinates, &member.coordinates) {
        let round_trip = home.distance_km(member) / KM_PER_MS / 1e3;
        return ring(Duration::try_from_secs_f64(round_trip).unwrap_or(Duration::MAX));
    }
    UNMEASURED + u32::from(home.region != member.region)
}
