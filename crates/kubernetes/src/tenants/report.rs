//! What is said of a cluster in its status, and when. Pure.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use manifest::placed::PlacedStatus;
use manifest::status::ClusterStatus;
use model::resource::Node;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Subject;
use super::away::Away;
use super::placed::Placed;
use crate::kubeconfig::Refusal;
use crate::nodes::NodeSet;

/// What is known of a cluster at one moment.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) subject: Arc<Subject>,
    pub(super) nodes: Arc<[Arc<Node>]>,
    /// Whether there are more nodes than these.
    pub(super) cut: bool,
    pub(super) contact: Contact,
    /// Of the federated Ingresses that are to be there.
    pub(super) placed: Placed,
}

#[derive(Debug, Clone)]
pub(super) enum Contact {
    Watching { since: Timestamp },
    Lost { since: Timestamp, at: Instant, cause: Away },
    BadKubeconfig { since: Timestamp, refusal: Refusal },
    NoKubeconfig { since: Timestamp, why: Arc<str> },
}

/// A condition, without what is the same in all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) holds: bool,
    pub(super) reason: String,
    pub(super) message: String,
    since: Timestamp,
}

/// What stands in the status of a Cluster, as far as it is ours.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    pub(super) uid: Arc<str>,
    pub(super) nodes: Arc<[Arc<Node>]>,
    pub(super) reachable: Option<Told>,
    pub(super) ingresses: Arc<[PlacedStatus]>,
    pub(super) more_ingresses: bool,
    pub(super) placed: Option<Told>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Due {
    Now(Report),
    /// Unless something happens before.
    At(Instant),
    /// The status says it already.
    Never,
}

impl Report {
    /// What an earlier leader wrote.
    pub(super) fn before(subject: &Subject) -> Self {
        Self {
            uid: Arc::clone(&subject.access.uid),
            nodes: subject.last.nodes.iter().cloned().collect::<NodeSet>().to_list(),
            reachable: subject.last.reachable.as_ref().map(Told::from),
            ingresses: subject.last.ingresses.clone().into(),
            more_ingresses: subject.last.more_ingresses,
            placed: subject.last.placed.as_ref().map(Told::from),
        }
    }

    /// What stands there of a cluster that nobody follows.
    pub(super) fn nothing(uid: Arc<str>) -> Self {
        let (ingresses, more_ingresses, placed) = (Arc::default(), false, None);
        Self { uid, nodes: Arc::default(), reachable: None, ingresses, more_ingresses, placed }
    }

    /// What to do after `self` was written. A connection that is lost is not worth a word before `patience` has passed:
    /// API servers restart.
    pub(super) fn due(&self, seen: &Seen, patience: Duration, now: Instant) -> Due {
        let told_away = self.reachable.as_ref().is_some_and(|before| !before.holds);
        if let Contact::Lost { at, cause, .. } = &seen.contact {
            let due = *at + patience;
            if !cause.is_refused() && !told_away && now < due {
                return Due::At(due);
            }
            // Nothing is known yet; the status keeps the reason that it has.
            if *cause == Away::NotYet && told_away && now < due {
                return Due::At(due);
            }
        }
        let reachable = Some(seen.reachable(self.reachable.as_ref()));
        let next = Self {
            uid: Arc::clone(&seen.subject.access.uid),
            nodes: Arc::clone(&seen.nodes),
            reachable,
            ingresses: Arc::clone(&seen.placed.ingresses),
            more_ingresses: seen.placed.is_cut,
            placed: seen.placed_told(self.placed.as_ref()),
        };
        if next == *self { Due::Never } else { Due::Now(next) }
    }

    /// For server-side apply onto this very version of the object.
    pub(super) fn patch(&self, name: &str, version: &str) -> Value {
        let nodes: Vec<Value> = self
            .nodes
            .iter()
            .map(|node| json!({"name": node.name, "addresses": node.addresses, "ready": node.ready}))
            .collect();
        let reachable = self.reachable.iter().map(|told| told.condition(ClusterStatus::REACHABLE));
        let placed = self.placed.iter().map(|told| told.condition(ClusterStatus::INGRESSES_PLACED));
        let conditions: Vec<Condition> = reachable.chain(placed).collect();
        let mut status = json!({"nodes": nodes, "conditions": conditions});
        if !self.ingresses.is_empty() {
            status["ingresses"] = json!(&*self.ingresses);
        }
        if self.more_ingresses {
            status["moreIngresses"] = true.into();
        }
        json!({
            "apiVersion": "fleetgate.dev/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name, "resourceVersion": version},
            // Of what is left out here, nothing is left there.
            "status": if conditions.is_empty() { json!({}) } else { status },
        })
    }
}

impl Seen {
    /// Since when: since it last changed between true and false, whoever wrote that.
    fn reachable(&self, before: Option<&Told>) -> Told {
        let secret = &self.subject.access.secret;
        let (holds, reason, message, since) = match &self.contact {
            Contact::Watching { since } => {
                let message = if self.cut {
                    "its nodes are being watched; it has more than fit, and the first by name count"
                } else {
                    "its nodes are being watched"
                };
                (true, "Watching", message.to_owned(), since)
            }
            Contact::Lost { since, cause, .. } => {
                let (reason, advice) = match cause {
                    Away::Unauthorized => ("Unauthorized", format!("put a valid one into {secret}")),
                    Away::Forbidden => {
                        ("Unauthorized", format!("grant it that in the cluster, or put another one into {secret}"))
                    }
                    Away::Certificate => ("Unreachable", format!("correct it in {secret}")),
                    _ => {
                        let advice = format!("check that it runs, and that `server` in {secret} leads to it");
                        ("Unreachable", advice)
                    }
                };
                (false, reason, format!("{cause}; {advice}. The nodes last seen are kept."), since)
            }
            Contact::BadKubeconfig { since, refusal } => (false, "BadKubeconfig", refusal.to_string(), since),
            Contact::NoKubeconfig { since, why } => (false, "NoKubeconfig", why.to_string(), since),
        };
        let since = before.filter(|before| before.holds == holds).map_or(*since, |before| before.since);
        Told { holds, reason: reason.to_owned(), message, since }
    }

    /// What an earlier leader said stays until it is known better.
    fn placed_told(&self, before: Option<&Told>) -> Option<Told> {
        let Some((holds, reason, message)) = &self.placed.told else {
            return before.filter(|_| !self.placed.ingresses.is_empty()).cloned();
        };
        let since = before.filter(|before| before.holds == *holds).map_or_else(now, |before| before.since);
        Some(Told { holds: *holds, reason: (*reason).to_owned(), message: message.clone(), since })
    }
}

impl From<&Condition> for Told {
    fn from(condition: &Condition) -> Self {
        Self {
            holds: condition.status == "True",
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: condition.last_transition_time.0,
        }
    }
}

impl Told {
    fn condition(&self, kind: &str) -> Condition {
        Condition {
            type_: kind.to_owned(),
            status: if self.holds { "True" } else { "False" }.to_owned(),
            reason: self.reason.clone(),
            message: self.message.clone(),
            last_transition_time: Time(self.since),
            observed_generation: None,
        }
    }
}

/// To the second, as Kubernetes keeps times: what is read back equals what was written.
pub(super) fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::{Access, Last};
    use super::*;
    use crate::kubeconfig::{Fault, SecretKey};

    const PATIENCE: Duration = Duration::from_secs(10);

    fn node(name: &str, ready: bool) -> Node {
        Node { name: name.into(), addresses: vec!["192.0.2.1".parse().unwrap()], ready }
    }

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn subject(last: Last) -> Arc<Subject> {
        let secret = SecretKey { namespace: "fleetgate-system".into(), name: "c1".into(), key: "kubeconfig".into() };
        Arc::new(Subject { access: Access { uid: "u1".into(), secret, kubeconfig: Err("unused".into()) }, last })
    }

    fn seen(nodes: &[Node], contact: Contact) -> Seen {
        let nodes = nodes.iter().cloned().collect::<NodeSet>().to_list();
        Seen { subject: subject(Last::default()), nodes, cut: false, contact, placed: Placed::default() }
    }

    fn nothing() -> Report {
        Report::before(&subject(Last::default()))
    }

    fn written(report: &Report, seen: &Seen, now: Instant) -> Report {
        match report.due(seen, PATIENCE, now) {
            Due::Now(report) => report,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_list_is_written_at_once_and_only_once() {
        let now = Instant::now();
        let watching = seen(&[node("n2", false), node("n1", true)], Contact::Watching { since: time(0) });
        let report = written(&nothing(), &watching, now);
        assert_eq!(
            report.patch("c1", "7"),
            json!({
                "apiVersion": "fleetgate.dev/v1alpha1", "kind": "Cluster",
                "metadata": {"name": "c1", "resourceVersion": "7"},
                "status": {
                    "nodes": [
                        {"name": "n1", "addresses": ["192.0.2.1"], "ready": true},
                        {"name": "n2", "addresses": ["192.0.2.1"], "ready": false},
                    ],
                    "conditions": [{
                        "type": "Reachable", "status": "True", "reason": "Watching",
                        "message": "its nodes are being watched",
                        "lastTransitionTime": time(0).to_string(),
                    }],
                },
            })
        );
        let later = seen(&[node("n1", true), node("n2", false)], Contact::Watching { since: time(60) });
        assert_eq!(report.due(&later, PATIENCE, now), Due::Never);
        let changed = seen(&[node("n1", false), node("n2", false)], Contact::Watching { since: time(60) });
        let changed = written(&report, &changed, now);
        assert_eq!(changed.reachable, report.reachable, "since when does not move");
    }

    #[test]
    fn a_lost_connection_is_told_after_a_while_and_the_nodes_stay() {
        let now = Instant::now();
        let nodes = [node("n1", true)];
        let report = written(&nothing(), &seen(&nodes, Contact::Watching { since: time(0) }), now);
        let lost = |cause| seen(&nodes, Contact::Lost { since: time(5), at: now, cause });
        let due = now + PATIENCE;
        assert_eq!(report.due(&lost(Away::Broken), PATIENCE, now), Due::At(due));
        let away = written(&report, &lost(Away::Refused), due);
        assert_eq!(away.nodes, report.nodes);
        let reachable = away.reachable.clone().unwrap();
        assert_eq!((reachable.holds, reachable.reason.as_str(), reachable.since), (false, "Unreachable", time(5)));
        assert!(reachable.message.contains("key kubeconfig of Secret fleetgate-system/c1"), "{}", reachable.message);
        // Another cause is news, but no new beginning.
        let other = written(&away, &lost(Away::TimedOut), due).reachable.unwrap();
        assert_eq!((other.since, other.message == reachable.message), (time(5), false));
        // Back before anybody was told: nothing to tell.
        assert_eq!(report.due(&seen(&nodes, Contact::Watching { since: time(9) }), PATIENCE, due), Due::Never);
    }

    #[test]
    fn what_somebody_has_to_mend_is_told_at_once() {
        let now = Instant::now();
        let refusal = Refusal { secret: subject(Last::default()).access.secret.clone(), fault: Fault::NoCredential };
        for (contact, reason) in [
            (Contact::Lost { since: time(0), at: now, cause: Away::Unauthorized }, "Unauthorized"),
            (Contact::Lost { since: time(0), at: now, cause: Away::Forbidden }, "Unauthorized"),
            (Contact::BadKubeconfig { since: time(0), refusal }, "BadKubeconfig"),
            (Contact::NoKubeconfig { since: time(0), why: "no such Secret".into() }, "NoKubeconfig"),
        ] {
            let reachable = written(&nothing(), &seen(&[], contact), now).reachable.unwrap();
            assert_eq!((reachable.holds, reachable.reason.as_str()), (false, reason));
        }
    }

    #[test]
    fn a_new_leader_takes_over_what_the_old_one_wrote() {
        let now = Instant::now();
        let nodes = [node("n1", true), node("n2", true)];
        let old = written(&nothing(), &seen(&nodes, Contact::Watching { since: time(0) }), now);
        let reachable = old.reachable.as_ref().map(|told| told.condition(ClusterStatus::REACHABLE));
        let last = Last { nodes: vec![nodes[1].clone(), nodes[0].clone()], reachable, ..Last::default() };
        let report = Report::before(&subject(last));
        assert_eq!(report, old);
        assert_eq!(report.due(&seen(&nodes, Contact::Watching { since: time(99) }), PATIENCE, now), Due::Never);
        let trying = seen(&nodes, Contact::Lost { since: time(99), at: now, cause: Away::NotYet });
        assert_eq!(report.due(&trying, PATIENCE, now), Due::At(now + PATIENCE));
    }

    #[test]
    fn a_new_leader_does_not_blur_why_a_cluster_is_away() {
        let now = Instant::now();
        let old =
            written(&nothing(), &seen(&[], Contact::Lost { since: time(0), at: now, cause: Away::Forbidden }), now);
        let trying = seen(&[], Contact::Lost { since: time(99), at: now, cause: Away::NotYet });
        assert_eq!(old.due(&trying, PATIENCE, now), Due::At(now + PATIENCE));
        let still = seen(&[], Contact::Lost { since: time(99), at: now, cause: Away::Forbidden });
        assert_eq!(old.due(&still, PATIENCE, now), Due::Never);
    }
}
