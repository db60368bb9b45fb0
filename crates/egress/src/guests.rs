//! Who is in, and how many of each: places are shared out so that no cluster can take those of another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::ClusterName;
use model::policy::rate::{Buckets, Rate};
use tokio_util::sync::CancellationToken;
use tunnel::Identity;

use crate::refusal::Refusal;

/// Connections at once: some 60 KiB each with their TLS, a GiB in all. Nobody gets here unless hundreds of clusters have all that is theirs.
const MAX_CONNECTIONS: usize = 16_384;
/// What every cluster has to itself, whatever others take: enough for its webhooks and aggregated APIs.
const OWN: usize = 16;
/// What they share beyond that.
const SHARED: usize = 8192;
/// Of one cluster: an API server holds one to each kubelet that somebody looks into, and some to each webhook.
const PER_CLUSTER: usize = 2048;
/// New ones of a cluster: an API server that starts opens hundreds, and one that runs a few in a second.
const NEW: Rate = Rate { burst: 1000, spacing: std::time::Duration::from_millis(5) };
/// Fleets have thousands.
const MAX_CLUSTERS: usize = 65_536;

/// Of the shared places a cluster gets a new one while it has fewer than there are free ones: one that takes all it can get leaves half of
/// them, two at once leave a third, and so on.
pub(crate) struct Guests {
    start: Instant,
    inner: Mutex<Inner>,
}

struct Inner {
    taken: usize,
    /// Of those that are shared.
    shared: usize,
    clusters: HashMap<ClusterName, usize>,
    /// Told when one is not admitted any more, with how many connections it has.
    identities: HashMap<Identity, (CancellationToken, u64, usize)>,
    rates: Buckets<ClusterName>,
}

/// A place of somebody's, given back with the value.
pub(crate) struct Place {
    guests: Arc<Guests>,
    identity: Identity,
    /// Ends the connection.
    pub(crate) cut: CancellationToken,
}

impl Guests {
    pub(crate) fn new() -> Self {
        let inner = Inner {
            taken: 0,
            shared: 0,
            clusters: HashMap::new(),
            identities: HashMap::new(),
            rates: Buckets::new(NEW, MAX_CLUSTERS),
        };
        Self { start: Instant::now(), inner: Mutex::new(inner) }
    }

    /// `expires`: of the certificate, in Unix seconds.
    pub(crate) fn enter(self: &Arc<Self>, identity: &Identity, expires: u64) -> Result<Place, Refusal> {
        let mut inner = self.lock();
        let now = self.start.elapsed();
        inner.rates.take(&identity.cluster, 1, now).map_err(Refusal::TooFast)?;
        let has = inner.clusters.get(&identity.cluster).copied().unwrap_or(0);
        let is_shared = has >= OWN;
        let is_greedy = is_shared && has - OWN >= SHARED - inner.shared;
        if has >= PER_CLUSTER || is_greedy || inner.taken >= MAX_CONNECTIONS {
            return Err(Refusal::TooManyConnections(has));
        }
        inner.taken += 1;
        inner.shared += usize::from(is_shared);
        *inner.clusters.entry(identity.cluster.clone()).or_default() += 1;
        let known = inner.identities.entry(identity.clone());
        let (cut, until, many) = known.or_insert_with(|| (CancellationToken::new(), expires, 0));
        // A certificate that is shown later may last longer: the connections of both end when neither is good.
        *until = expires.max(*until);
        *many += 1;
        let cut = cut.clone();
        drop(inner);
        Ok(Place { guests: Arc::clone(self), identity: identity.clone(), cut })
    }

    /// Everybody who is in, with the end of the certificate.
    pub(crate) fn identities(&self) -> Vec<(Identity, u64)> {
        self.lock().identities.iter().map(|(identity, (_, expires, _))| (identity.clone(), *expires)).collect()
    }

    /// Ends all connections of somebody's; says how many.
    pub(crate) fn cut(&self, identity: &Identity) -> usize {
        let mut inner = self.lock();
        // Who comes again is looked at anew.
        let Some((cut, _, many)) = inner.identities.remove(identity) else { return 0 };
        cut.cancel();
        many
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.guests.lock();
        inner.taken -= 1;
        let has = inner.clusters.get(&self.identity.cluster).copied().unwrap_or(0);
        inner.shared -= usize::from(has > OWN);
        if has > 1 {
            inner.clusters.insert(self.identity.cluster.clone(), has - 1);
        } else {
            inner.clusters.remove(&self.identity.cluster);
        }
        // One that was cut is none of those that came in since.
        if self.cut.is_cancelled() {
            return;
        }
        if let Some((_, _, many)) = inner.identities.get_mut(&self.identity) {
            *many -= 1;
            if *many == 0 {
                inner.identities.remove(&self.identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tunnel::Role;

    use super::*;

    fn identity(cluster: usize, credential: &str) -> Identity {
        let cluster = format!("c{cluster}").parse().unwrap();
        Identity { role: Role::ControlPlane, cluster, uid: "u".into(), credential: credential.into() }
    }

    fn greedy(guests: &Arc<Guests>, cluster: usize) -> Vec<Place> {
        // So fast that the rate would end it: many moments' worth.
        let mut places = Vec::new();
        loop {
            match guests.enter(&identity(cluster, "x"), u64::MAX) {
                Ok(place) => places.push(place),
                Err(Refusal::TooFast(_)) => guests.lock().rates = Buckets::new(NEW, MAX_CLUSTERS),
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::TooManyConnections(places.len()));
                    return places;
                }
            }
        }
    }

    #[test]
    fn whoever_comes_next_always_finds_a_place() {
        let guests = Arc::new(Guests::new());
        let mut held: Vec<Vec<Place>> = Vec::new();
        for cluster in 0..64 {
            let got = greedy(&guests, cluster);
            assert!((OWN..=PER_CLUSTER).contains(&got.len()), "{cluster}: {}", got.len());
            held.push(got);
        }
        assert_eq!(held[0].len(), PER_CLUSTER);
        assert!(held[1].len() > SHARED / 8 && guests.lock().shared <= SHARED);
        held.clear();
        let inner = guests.lock();
        assert_eq!((inner.taken, inner.shared, inner.clusters.len(), inner.identities.len()), (0, 0, 0, 0));
    }

    #[test]
    fn new_ones_come_at_their_rate_and_one_clusters_haste_costs_no_other() {
        let guests = Arc::new(Guests::new());
        let mut through = 0;
        while guests.enter(&identity(1, "x"), u64::MAX).is_ok() {
            through += 1;
            assert!(through < 10_000);
        }
        assert!(through >= 1000, "{through}");
        assert!(guests.enter(&identity(2, "x"), u64::MAX).is_ok());
    }

    #[test]
    fn a_cut_ends_one_credentials_connections_and_no_others() {
        let guests = Arc::new(Guests::new());
        let (one, other) = (identity(1, "one"), identity(1, "other"));
        let places = [guests.enter(&one, 5).unwrap(), guests.enter(&one, 9).unwrap(), guests.enter(&other, 7).unwrap()];
        let mut known = guests.identities();
        known.sort_by_key(|(_, expires)| *expires);
        assert_eq!(known, [(other.clone(), 7), (one.clone(), 9)]);
        assert_eq!(guests.cut(&one), 2);
        assert_eq!(places.each_ref().map(|place| place.cut.is_cancelled()), [true, true, false]);
        let again = guests.enter(&one, 9).unwrap();
        drop(places);
        assert!(!again.cut.is_cancelled());
        assert_eq!(guests.identities(), [(one, 9)], "those that were cut do not count for who came since");
        assert_eq!(guests.cut(&other), 0);
    }
}
