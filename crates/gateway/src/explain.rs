//! What would become of a connection, told beforehand, and which rule decides.
//!
//! The steps are those of a connection, in its order and by the same code: [`crate::decision`], the limits, the choice of
//! an address. Nothing is taken, counted or remembered by asking.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use model::inside::Denied;
use model::snapshot::Route;
use model::{Blame, Cidr, DnsName, Snapshot};

use crate::balance::Prospect;
use crate::decision::{self, Selector};
use crate::hub::AGENTS;
use crate::insight::Insight;
use crate::limits::Outlook;
use crate::listen::DoorKind;
use crate::metrics::ESTABLISHED;
use crate::refusal::Refusal;

/// A connection that nobody makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub wants: Wanted,
    /// The address that `allowedSources` goes by; `None` stands for any that is allowed.
    pub from: Option<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    ClusterId {
        id: Vec<u8>,
        /// Whether a good proof comes with it.
        proof: bool,
    },
    ServerName(DnsName),
}

#[derive(Debug)]
pub struct Explanation {
    pub door: DoorKind,
    /// Whether this process has such a door.
    pub is_served: bool,
    /// Whether `from` has to speak for others, so that another address than its own counts.
    pub is_trusted_proxy: bool,
    pub verdict: Verdict,
    /// The field of the object that decides.
    pub rule: String,
    /// Where it goes, or would if it were let in; `None` where nobody has the id or name.
    pub way: Option<Way>,
}

#[derive(Debug)]
pub enum Verdict {
    /// It is let in and finds an address that nothing speaks against.
    Established,
    /// It is let in and every address is tried, though nothing good is known of any.
    Doubtful,
    /// It is handed to `--https`, which has a certificate for the name and ends TLS here.
    Terminated,
    Refused(Refusal),
}

/// A route, and how it stands there at the moment.
#[derive(Debug)]
pub struct Way {
    pub route: Arc<Route>,
    /// The first range that `from` is in.
    pub allowed_by: Option<Cidr>,
    /// Whether the proof that comes is looked at.
    pub checks_proof: bool,
    pub limits: Outlook,
    /// In the order in which they are tried.
    pub upstreams: Vec<Prospect>,
    /// Of what goes through the tunnel: by how many ways the cluster is reached now.
    pub links: Option<usize>,
}

impl Insight {
    pub fn explain(&self, question: &Question, now: Instant) -> Explanation {
        let snapshot = self.snapshot.load();
        let selector = question.wants.selector();
        let door = question.wants.door();
        let (way, verdict) = match decision::find_route(&snapshot, &selector, self.agents.as_ref()) {
            _ if self.hands_over(&snapshot, &question.wants) => (None, Verdict::Terminated),
            Ok(route) => {
                let (way, refusal) = self.follow(route, &selector, question.from, now);
                let is_reachable = way.links.is_some() || way.upstreams.iter().any(Prospect::is_good);
                let verdict = match refusal {
                    Some(refusal) => Verdict::Refused(refusal),
                    None if is_reachable => Verdict::Established,
                    None => Verdict::Doubtful,
                };
                (Some(way), verdict)
            }
            Err(refusal) => (None, Verdict::Refused(refusal)),
        };
        let rule = rule(&verdict, way.as_ref().map(|way| &*way.route), &question.wants, &snapshot);
        let is_trusted_proxy =
            question.from.is_some_and(|from| self.trusted_proxies.iter().any(|range| range.contains(from)));
        Explanation { door, is_served: self.undecided(door).is_some(), is_trusted_proxy, verdict, rule, way }
    }

    fn hands_over(&self, snapshot: &Snapshot, wants: &Wanted) -> bool {
        matches!(wants, Wanted::ServerName(name) if self.terminates && decision::is_terminated(snapshot, name))
    }

    /// The way that a route offers, and what stops a connection on it first.
    fn follow(
        &self,
        route: &Arc<Route>,
        selector: &Selector<'_>,
        from: Option<IpAddr>,
        now: Instant,
    ) -> (Way, Option<Refusal>) {
        let source = from.map_or(Ok(()), |from| decision::check_source(route, from));
        let proof = decision::due_proof(route, selector);
        let mut limits = self.admissions.outlook(route, now);
        let way = Way {
            route: Arc::clone(route),
            allowed_by: from.and_then(|from| route.allowed_sources.iter().find(|range| range.contains(from)).copied()),
            checks_proof: matches!(proof, Ok(Some(_))),
            upstreams: self.upstreams.outlook(route, now),
            limits: Outlook { refusal: None, ..limits },
            links: route.is_inside().then(|| self.inward.as_ref().map_or(0, |inward| inward.links(&route.cluster))),
        };
        let refusal = source.err().or(proof.err()).or(limits.refusal.take());
        let refusal = refusal.or_else(|| self.missing_link(route, way.links?));
        (way, refusal)
    }

    /// Why nothing goes through the tunnel to a cluster.
    fn missing_link(&self, route: &Route, links: usize) -> Option<Refusal> {
        let source = match (&self.inward, links) {
            (None, _) => Denied::NoTunnel,
            (Some(_), 0) => Denied::NoLink,
            _ => return None,
        };
        Some(Refusal::Inward { cluster: route.cluster.clone(), target: route.inside.first()?.clone(), source })
    }
}

impl Explanation {
    /// In words for people.
    pub fn reason(&self) -> String {
        let (service, cluster) = match &self.way {
            Some(way) => (&*way.route.service, way.route.cluster.as_str()),
            None => ("", ""),
        };
        match &self.verdict {
            Verdict::Established if service == AGENTS => "it is carried to the agents' door".into(),
            Verdict::Established if let Some(way) = self.way.as_ref().filter(|way| way.route.is_inside()) => {
                let (links, targets) = (way.links.unwrap_or_default(), &way.route.inside);
                let target = targets.first().map(ToString::to_string).unwrap_or_default();
                let links = if links == 1 { "one link".to_owned() } else { format!("{links} links") };
                format!("it is carried through the tunnel to {target} inside Cluster {cluster}, which has {links}")
            }
            Verdict::Established => format!("it is carried to {service} of Cluster {cluster}"),
            Verdict::Doubtful => {
                format!("no address of {service} of Cluster {cluster} is known to answer; all are tried nevertheless")
            }
            Verdict::Terminated => "it is handed to --https, which has a certificate for the name".into(),
            Verdict::Refused(refusal) => refusal.to_string(),
        }
    }
}

impl Wanted {
    fn selector(&self) -> Selector<'_> {
        match self {
            Self::ClusterId { id, proof } => Selector::ClusterId { id, proof: proof.then_some(&[]) },
            Self::ServerName(name) => Selector::ServerName(name.clone()),
        }
    }

    pub fn door(&self) -> DoorKind {
        match self {
            Self::ClusterId { .. } => DoorKind::ClusterId,
            Self::ServerName(_) => DoorKind::ServerName,
        }
    }
}

impl Verdict {
    /// As metrics would count the connection.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Established => ESTABLISHED,
            Self::Doubtful => "Unreachable",
            Self::Terminated => "Terminated",
            Self::Refused(refusal) => refusal.code(),
        }
    }

    pub fn blame(&self) -> Option<Blame> {
        match self {
            Self::Established | Self::Terminated => None,
            Self::Doubtful => Some(Blame::Backend),
            Self::Refused(refusal) => Some(refusal.blame()),
        }
    }
}

/// Which field of which object the verdict comes from.
fn rule(verdict: &Verdict, route: Option<&Route>, wants: &Wanted, snapshot: &Snapshot) -> String {
    let Some(route) = route else {
        return match (verdict, wants) {
            (_, Wanted::ClusterId { .. }) => "no Cluster that is served has this clusterID".into(),
            (Verdict::Terminated, Wanted::ServerName(_)) => "the certificate of an Ingress' host".into(),
            (_, Wanted::ServerName(name)) if decision::is_terminated(snapshot, name) => {
                "no Cluster that is served has this API name or services.sni; as an Ingress' host it is served by --https"
                    .into()
            }
            (_, Wanted::ServerName(_)) => {
                "no Cluster that is served has this API name or services.sni, or an apps wildcard for it".into()
            }
        };
    };
    let (cluster, tenant) = (&route.cluster, &route.tenant);
    let of_apps = if route.is_inside() { "ingress." } else { "" };
    match verdict {
        Verdict::Established | Verdict::Terminated => chosen_by(route, wants, snapshot),
        Verdict::Doubtful => format!("controlPlane of Cluster {cluster}: no address of {} is good", route.service),
        Verdict::Refused(refusal) => match refusal {
            Refusal::SourceNotAllowed { .. } => format!("{of_apps}allowedSources of Cluster {cluster}"),
            Refusal::ProofMissing(_) => format!("proof.required of Cluster {cluster}"),
            Refusal::Inward { .. } => format!("the apps wildcard of Cluster {cluster}, by the tunnel"),
            Refusal::ClusterConnections { .. } => format!("{of_apps}limits.connections of Cluster {cluster}"),
            Refusal::ClusterRate { .. } => format!("{of_apps}limits.newConnectionsPerSecond of Cluster {cluster}"),
            Refusal::TenantConnections { .. } => format!("limits.connections of Tenant {tenant}"),
            Refusal::TenantRate { .. } => format!("limits.newConnectionsPerSecond of Tenant {tenant}"),
            // Nothing else stops a connection that nobody makes.
            other => other.code().into(),
        },
    }
}

fn chosen_by(route: &Route, wants: &Wanted, snapshot: &Snapshot) -> String {
    let cluster = &route.cluster;
    let Wanted::ServerName(name) = wants else { return format!("clusterID of Cluster {cluster}") };
    if route.is_inside() {
        return format!("the apps wildcard of Cluster {cluster}, by the tunnel");
    }
    if &*route.service == AGENTS {
        return "the name of the agents' door in its zone".into();
    }
    let api_server = snapshot.cluster(cluster).and_then(|part| part.routes.first());
    if api_server.is_some_and(|(api_name, _)| api_name == name) {
        return format!("the API name of Cluster {cluster}");
    }
    format!("sni of service {} of Cluster {cluster}", route.service)
}
