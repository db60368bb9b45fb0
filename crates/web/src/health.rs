//! Whether members are well, asked from here: one check for each Ingress and cluster, as its policy says.
//!
//! What comes of it stands with what requests found out by themselves (`choice.rs`), and is published for DNS, which sends
//! clients to members by the same rules.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use model::ingress::{Backend, EntryMode, HealthCheck};
use model::routes::{Entry, HttpTable, Member};
use model::steering::{MemberKey, Standings};
use model::{DnsName, ObjectRef};
use tokio::task::JoinSet;

use crate::body::RequestBody;
use crate::choice::Members;
use crate::metrics::Metrics;
use crate::upstream::{Need, Upstream};

/// How often it is looked at what is due: checks are seconds apart.
const TICK: Duration = Duration::from_millis(250);
/// How often what requests found out is told to DNS; what a check found out is told at once.
const PUBLISH: Duration = Duration::from_secs(1);
/// Checks under way. Each is a socket for as long as the policy lets it wait, which is seconds.
const AT_ONCE: usize = 256;
/// Of what a member says beside its status; whoever says more is asked on another connection next time.
const MAX_BODY: usize = 64 << 10;
/// Stands for any host of a wildcard.
const ANY_HOST: &str = "fleetgate-check";

/// Which check it is: the same for all backends of an Ingress.
type Key = (ObjectRef, Arc<str>);

/// A check, from one time to the next.
struct Checked {
    state: State,
    /// Not before the last one has ended.
    due: Instant,
}

/// What the last checks came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    is_well: bool,
    /// How often the last ones in a row said the opposite.
    against: u32,
}

impl State {
    /// Well until checks say otherwise: those who begin send nobody away.
    const FIRST: Self = Self { is_well: true, against: 0 };

    fn after(self, succeeded: bool, check: &HealthCheck) -> Self {
        if succeeded == self.is_well {
            return Self { against: 0, ..self };
        }
        let against = self.against + 1;
        let needed = if self.is_well { check.unhealthy } else { check.healthy };
        if against >= needed { Self { is_well: succeeded, against: 0 } } else { Self { against, ..self } }
    }
}

/// What is checked, and for which backends it counts; at least one.
struct Target {
    entries: Vec<Arc<Entry>>,
    member: Arc<Member>,
    standing: MemberKey,
    host: String,
}

impl Target {
    fn check(&self) -> &HealthCheck {
        &self.entries[0].policy.health
    }
}

/// Of one process.
pub(crate) struct Health {
    pub(crate) table: Arc<ArcSwap<HttpTable>>,
    pub(crate) members: Arc<Members>,
    pub(crate) upstream: Upstream,
    pub(crate) standings: Arc<ArcSwap<Standings>>,
    pub(crate) metrics: Metrics,
}

impl Health {
    /// Never ends by itself.
    pub(crate) async fn run(self) {
        let this = Arc::new(self);
        let mut table = this.table.load_full();
        let has_tunnel = this.upstream.has_tunnel();
        let mut targets = targets(&table, has_tunnel);
        let mut checked: HashMap<Key, Checked> = HashMap::new();
        let mut under_way: JoinSet<(Key, Option<Duration>)> = JoinSet::new();
        let mut publish_at = Instant::now();
        loop {
            let now_table = this.table.load_full();
            if !Arc::ptr_eq(&table, &now_table) {
                table = now_table;
                targets = self::targets(&table, has_tunnel);
                checked.retain(|key, _| targets.contains_key(key));
                publish_at = Instant::now();
            }
            this.begin(&targets, &mut checked, &mut under_way);
            let tick = tokio::time::sleep(TICK);
            tokio::pin!(tick);
            loop {
                let (key, took) = tokio::select! {
                    () = &mut tick => break,
                    Some(Ok(ended)) = under_way.join_next(), if !under_way.is_empty() => ended,
                };
                let (Some(checked), Some(target)) = (checked.get_mut(&key), targets.get(&key)) else { continue };
                let before = checked.state;
                checked.state = before.after(took.is_some(), target.check());
                if let Some(took) = took {
                    this.checked(&table, target, took);
                }
                if before.is_well != checked.state.is_well {
                    let (cluster, well) = (&target.member.cluster, checked.state.is_well);
                    tracing::info!(ingress = %key.0, %cluster, well, "the checks of a member say otherwise");
                    publish_at = Instant::now();
                    break;
                }
            }
            if publish_at <= Instant::now() {
                publish_at = Instant::now() + PUBLISH;
                this.publish(&table, &targets, &checked);
            }
        }
    }

    /// Those that are due.
    fn begin(
        self: &Arc<Self>,
        targets: &HashMap<Key, Target>,
        checked: &mut HashMap<Key, Checked>,
        under_way: &mut JoinSet<(Key, Option<Duration>)>,
    ) {
        let now = Instant::now();
        for (key, target) in targets {
            let check = target.check();
            // Not all at once, when a process begins or hosts come in a mass.
            let first = || now + check.interval.mul_f64(fastrand::f64());
            let checked = checked.entry(key.clone()).or_insert_with(|| Checked { state: State::FIRST, due: first() });
            if now < checked.due {
                continue;
            }
            if under_way.len() >= AT_ONCE {
                return;
            }
            checked.due = now + check.interval.max(check.timeout);
            let (this, key, timeout) = (Arc::clone(self), key.clone(), check.timeout);
            let (entry, member) = (Arc::clone(&target.entries[0]), Arc::clone(&target.member));
            let host = target.host.clone();
            under_way.spawn(async move {
                let begun = Instant::now();
                let well = tokio::time::timeout(timeout, this.is_well(&entry, &member, &host)).await;
                (key, well.unwrap_or(false).then(|| begun.elapsed()))
            });
        }
    }

    /// Whether it answers as somebody who is well.
    async fn is_well(&self, entry: &Entry, member: &Member, host: &str) -> bool {
        let Ok(mut lease) = self.upstream.lease(entry, member, host, Need::Any, false).await else { return false };
        let Ok(path) = entry.policy.health.path.parse::<Uri>() else { return false };
        let mut request = Request::new(RequestBody::Empty);
        *request.method_mut() = Method::GET;
        if lease.is_http2() {
            let scheme = if lease.is_tls() { "https" } else { "http" };
            let Ok(uri) = format!("{scheme}://{host}{path}").parse() else { return false };
            *request.uri_mut() = uri;
        } else {
            *request.uri_mut() = path;
            let Ok(host) = host.parse() else { return false };
            request.headers_mut().insert(header::HOST, host);
        }
        let agent = header::HeaderValue::from_static("fleetgate-health");
        request.headers_mut().insert(header::USER_AGENT, agent);
        let Ok(response) = lease.send(request).await else { return false };
        let status = response.status();
        if Limited::new(response.into_body(), MAX_BODY).collect().await.is_ok() {
            lease.give_back(None);
        }
        status.is_success() || status.is_redirection()
    }

    /// How far away it is, where requests have not said so.
    fn checked(&self, table: &HttpTable, target: &Target, took: Duration) {
        let now = Instant::now();
        for entry in &target.entries {
            self.members.of(entry, table, now).asked(entry, &target.member, now).checked(took);
        }
    }

    /// Tells requests, DNS and whoever watches.
    fn publish(&self, table: &HttpTable, targets: &HashMap<Key, Target>, checked: &HashMap<Key, Checked>) {
        let now = Instant::now();
        let (mut standings, mut out) = (Vec::new(), BTreeSet::new());
        let mut shares = HashMap::new();
        for (key, target) in targets {
            let fails = checked.get(key).is_some_and(|checked| !checked.state.is_well);
            for entry in &target.entries {
                let outlook = self.members.of(entry, table, now);
                outlook.asked(entry, &target.member, now).set_failing(fails);
                let plan = outlook.plans.fresh(now);
                // Requests are not sent where we see it failing, whatever the others see; DNS speaks for all.
                let known = entry.known(&target.member, outlook.known(&target.member, now));
                let agreed = outlook.agreed(&target.member, now);
                if let Some(reason) = agreed.unhealthy.or(known.unhealthy) {
                    out.insert((outlook.ingress.clone(), target.member.cluster.to_string(), reason.as_str()));
                }
                standings.push((target.standing, agreed));
                if let Some(plan) = plan.filter(|_| entry.policy.entry == EntryMode::Dns) {
                    shares.extend(plan.dns_shares(entry, &target.member));
                }
            }
        }
        self.metrics.show_out(out);
        // Of several backends of an Ingress the one that is out counts: its name leads to all of them.
        standings.sort_by_key(|(key, known)| (*key, known.unhealthy.is_some()));
        self.standings.store(Arc::new(Standings::of_all(standings, shares)));
    }
}

/// Every Ingress and cluster of the table, each with all of its backends. Rules without a host have none to ask for, and
/// nothing is known of what is inside clusters where there is no way there.
fn targets(table: &HttpTable, has_tunnel: bool) -> HashMap<Key, Target> {
    let mut targets: HashMap<Key, Target> = HashMap::new();
    let mut seen: HashSet<(ObjectRef, Backend)> = HashSet::new();
    for (pattern, host) in table.hosts() {
        let entries = host.routes().iter().map(|route| &route.entry).chain(host.default());
        for entry in entries {
            if !seen.insert((entry.object.clone(), entry.backend.clone())) {
                continue;
            }
            for member in entry.members.iter().filter(|member| has_tunnel || !member.is_inside()) {
                let key = (entry.object.clone(), Arc::clone(&member.uid));
                let target = targets.entry(key).or_insert_with(|| Target {
                    entries: Vec::new(),
                    member: Arc::clone(member),
                    standing: MemberKey::of(&entry.object, &member.uid),
                    host: asked_for(pattern),
                });
                target.entries.push(Arc::clone(entry));
            }
        }
    }
    targets
}

fn asked_for(pattern: &DnsName) -> String {
    let any = || pattern.parent()?.prepend(ANY_HOST).ok();
    let host = if pattern.is_wildcard() { any() } else { None };
    host.as_ref().unwrap_or(pattern).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_out_after_some_failures_in_a_row_and_back_after_some_successes() {
        let check = HealthCheck { unhealthy: 3, healthy: 2, ..HealthCheck::default() };
        let mut state = State::FIRST;
        let told: String = "..x.xx.xxx..x...xxx"
            .chars()
            .map(|outcome| {
                state = state.after(outcome == '.', &check);
                if state.is_well { '.' } else { 'x' }
            })
            .collect();
        assert_eq!(told, ".........xx.......x");
    }

    #[test]
    fn a_wildcard_is_asked_for_by_a_host_of_its_own() {
        for (pattern, host) in [("shop.test", "shop.test"), ("*.shop.test", "fleetgate-check.shop.test")] {
            assert_eq!(asked_for(&DnsName::parse(pattern).unwrap()), host);
        }
    }
}
