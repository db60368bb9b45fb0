//! What the bounds would say of one more connection. Looking takes nothing: no place, no token, no room in the tables.

use std::time::Instant;

use model::resource::Limits;
use model::snapshot::Route;

use super::{Account, Admissions, Usage};
use crate::refusal::Refusal;

/// How full a cluster and its tenant are, and whether one more would be let in.
#[derive(Debug)]
pub struct Outlook {
    pub cluster: Fullness,
    pub tenant: Fullness,
    /// The bound that [`Admissions::admit`] would meet first.
    pub refusal: Option<Refusal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fullness {
    /// Connections that are open now.
    pub open: u32,
    /// How many more may come at once before the rate is met; `None` without a bound.
    pub new_left: Option<u32>,
    pub limits: Limits,
}

impl Admissions {
    pub fn outlook(&self, route: &Route, now: Instant) -> Outlook {
        let now = self.since_start(now);
        let account = self.accounts(route).lock(&route.cluster).get(&route.cluster).cloned();
        // One whose tenant is another now only shares the cluster's count with it; `account` makes the same of it.
        let tenant = match &account {
            Some(account) if account.tenant_name == route.tenant => Some(account.tenant.clone()),
            _ => self.tenants.lock(&route.tenant).get(&route.tenant).cloned(),
        };
        let cluster = account.as_deref().map(|Account { cluster, .. }| &**cluster);
        let cluster = Fullness::of(cluster, route.limits, now);
        let tenant = Fullness::of(tenant.as_deref(), route.tenant_limits, now);
        let refusal = first_met(route, cluster, tenant);
        Outlook { cluster, tenant, refusal }
    }
}

/// In the order of [`Admissions::admit`]; a property holds them together.
fn first_met(route: &Route, of_cluster: Fullness, of_tenant: Fullness) -> Option<Refusal> {
    let (cluster, tenant) = (route.cluster.clone(), route.tenant.clone());
    if let Some(limit) = of_cluster.met_connections() {
        return Some(Refusal::ClusterConnections { cluster, limit });
    }
    if let Some(limit) = of_tenant.met_connections() {
        return Some(Refusal::TenantConnections { tenant, cluster, limit });
    }
    if let Some(limit) = of_cluster.met_rate() {
        return Some(Refusal::ClusterRate { cluster, limit });
    }
    of_tenant.met_rate().map(|limit| Refusal::TenantRate { tenant, cluster, limit })
}

impl Fullness {
    /// Who is not in the table is like one that never came.
    fn of(usage: Option<&Usage>, limits: Limits, now: u64) -> Self {
        let fresh = Usage::default();
        let usage = usage.unwrap_or(&fresh);
        let new_left = limits.new_connections_per_second.map(|rate| usage.bucket.left(rate, now));
        Self { open: usage.open(), new_left, limits }
    }

    fn met_connections(&self) -> Option<u32> {
        self.limits.connections.filter(|limit| self.open >= *limit)
    }

    fn met_rate(&self) -> Option<u32> {
        self.limits.new_connections_per_second.filter(|_| self.new_left == Some(0))
    }
}
