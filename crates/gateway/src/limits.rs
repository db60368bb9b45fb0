//! How much of the doors a cluster and a tenant may take: connections open at once, and new ones per second.
//!
//! One [`Admissions`] for all doors and threads. It knows nobody's bounds: they come with the route of the connection
//! at hand, so that a new snapshot needs no word to it and a lowered bound counts those that are open already.
//! Everything is counted, bounded or not: a bound that comes later finds the true number.
//!
//! [`openings`] bounds those that have not said yet where they want to go, whom no cluster's bound can cover.

mod bucket;
pub mod openings;
mod outlook;
pub(crate) mod shards;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use model::resource::Limits;
use model::snapshot::Route;
use model::{ClusterName, ObjectName};

use crate::refusal::Refusal;
use bucket::Bucket;
pub use outlook::{Fullness, Outlook};
use shards::Shards;

/// Who holds how much. Bounded by what is in use: whoever holds nothing and has a full bucket is like one that never
/// came, and is forgotten when the table grows.
#[derive(Debug)]
pub struct Admissions {
    /// What buckets count time from.
    start: Instant,
    accounts: Shards<ClusterName, Arc<Account>>,
    /// Of what comes by `apps` wildcards, which must not lock anybody out of a control plane.
    apps: Shards<ClusterName, Arc<Account>>,
    tenants: Shards<ObjectName, Arc<Usage>>,
}

/// The right to one connection, given back when it is dropped.
#[derive(Debug)]
#[must_use = "a place is given back when it is dropped"]
pub struct Place(Arc<Account>);

/// A cluster and the tenant that it belongs to, found by one look.
#[derive(Debug)]
struct Account {
    cluster: Arc<Usage>,
    tenant: Arc<Usage>,
    tenant_name: ObjectName,
}

#[derive(Debug, Default)]
struct Usage {
    open: AtomicU32,
    bucket: Bucket,
}

impl Admissions {
    pub fn new(start: Instant) -> Self {
        Self { start, accounts: Shards::default(), apps: Shards::default(), tenants: Shards::default() }
    }

    /// Lets one more connection in, or says whose bound it met: the cluster's before its tenant's, what is open before
    /// what is new. A refused one has taken nothing, neither a place nor a token.
    pub fn admit(&self, route: &Route, now: Instant) -> Result<Place, Refusal> {
        let now = self.since_start(now);
        let account = self.account(route, now);
        let (own, shared) = (route.limits, route.tenant_limits);

        if let Err(limit) = account.cluster.enter(own) {
            return Err(Refusal::ClusterConnections { cluster: route.cluster.clone(), limit });
        }
        if let Err(limit) = account.tenant.enter(shared) {
            account.cluster.leave();
            let (tenant, cluster) = (route.tenant.clone(), route.cluster.clone());
            return Err(Refusal::TenantConnections { tenant, cluster, limit });
        }
        // From here on both are given back by its drop.
        let place = Place(account);
        if let Err(limit) = place.0.cluster.take_token(own, now) {
            return Err(Refusal::ClusterRate { cluster: route.cluster.clone(), limit });
        }
        if let Err(limit) = place.0.tenant.take_token(shared, now) {
            place.0.cluster.return_token(own);
            let (tenant, cluster) = (route.tenant.clone(), route.cluster.clone());
            return Err(Refusal::TenantRate { tenant, cluster, limit });
        }
        Ok(place)
    }

    /// Connections to the cluster's control plane that are open now.
    pub fn open_of_cluster(&self, name: &ClusterName) -> u32 {
        self.accounts.lock(name).get(name).map_or(0, |account| account.cluster.open())
    }

    /// Connections of the tenant that are open now.
    pub fn open_of_tenant(&self, name: &ObjectName) -> u32 {
        self.tenants.lock(name).get(name).map_or(0, |usage| usage.open())
    }

    fn accounts(&self, route: &Route) -> &Shards<ClusterName, Arc<Account>> {
        if route.is_inside() { &self.apps } else { &self.accounts }
    }

    fn account(&self, route: &Route, now: u64) -> Arc<Account> {
        let mut accounts = self.accounts(route).lock(&route.cluster);
        let known = accounts.get(&route.cluster);
        if let Some(account) = known.filter(|account| account.tenant_name == route.tenant) {
            return Arc::clone(account);
        }
        // A cluster that changed hands takes its count along; its old connections stay with the tenant they came for.
        let cluster = known.map_or_else(Arc::default, |account| Arc::clone(&account.cluster));
        let tenant = self.tenant(&route.tenant, now);
        let account = Arc::new(Account { cluster, tenant, tenant_name: route.tenant.clone() });
        accounts.insert(route.cluster.clone(), Arc::clone(&account), |account| {
            // An old account of a cluster that changed hands holds the same usage.
            Arc::strong_count(account) == 1 && is_spent(&account.cluster, now)
        });
        account
    }

    fn tenant(&self, name: &ObjectName, now: u64) -> Arc<Usage> {
        let mut tenants = self.tenants.lock(name);
        if let Some(usage) = tenants.get(name) {
            return Arc::clone(usage);
        }
        let usage = Arc::<Usage>::default();
        tenants.insert(name.clone(), Arc::clone(&usage), |usage| is_spent(usage, now));
        usage
    }

    fn since_start(&self, now: Instant) -> u64 {
        // 2^64 nanoseconds are 584 years.
        u64::try_from(now.saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Whether only the table knows it, and it is like a new one. Nobody can come to know it meanwhile: that takes the lock
/// under which this is asked.
fn is_spent(usage: &Arc<Usage>, now: u64) -> bool {
    Arc::strong_count(usage) == 1 && usage.bucket.is_full(now)
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.cluster.leave();
        self.0.tenant.leave();
    }
}

impl Usage {
    /// Exact under any interleaving: nobody counts himself in and looks afterwards.
    fn enter(&self, limits: Limits) -> Result<(), u32> {
        let Some(limit) = limits.connections else {
            self.open.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let one_more = |open| if open < limit { Some(open + 1) } else { None };
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).map_or(Err(limit), |_| Ok(()))
    }

    fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    fn take_token(&self, limits: Limits, now: u64) -> Result<(), u32> {
        match limits.new_connections_per_second {
            Some(rate) if !self.bucket.take(rate, now) => Err(rate),
            _ => Ok(()),
        }
    }

    fn return_token(&self, limits: Limits) {
        if let Some(rate) = limits.new_connections_per_second {
            self.bucket.give_back(rate);
        }
    }
}
