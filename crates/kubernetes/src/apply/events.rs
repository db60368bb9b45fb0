//! Events on objects: what changed, for people. Losing some is fine; flooding the hub is not.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use model::ObjectRef;
use model::identity::Kind;
use model::snapshot::Condition as Planned;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::metrics::Metrics;
use super::status::OwnStatus;
use super::write::Failure;
use crate::lease::Term;

/// An object that flaps says so once in a while, not each time.
const QUIET: Duration = Duration::from_mins(10);
/// Of how many objects and reasons that is remembered; beyond it nothing is told until some have passed.
const REMEMBERED: usize = 10_000;
/// How many wait to be sent. A fleet that is accepted all at once needs no event for each cluster.
const WAITING: usize = 256;
/// Ten per second are no load for a hub.
const PAUSE: Duration = Duration::from_millis(100);
/// An event that takes longer is lost.
const WITHIN: Duration = Duration::from_secs(1);
/// The API's own bound on a message.
const LONGEST_NOTE: usize = 1024;
/// Where events on objects without a namespace stand.
const DEFAULT_NAMESPACE: &str = "default";
const REPORTER: &str = "fleetgate.dev/controller";

/// What somebody should hear of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) is_warning: bool,
    /// A fixed word: a condition's reason.
    pub(super) reason: String,
    pub(super) message: String,
}

/// What a status says that the one before did not. Pure.
pub(super) fn notices(kind: Kind, before: Option<&OwnStatus>, after: &OwnStatus) -> Vec<Notice> {
    let mut notices = Vec::new();
    for (condition, good, good_message) in [
        (Planned::ACCEPTED, "Accepted", "the object is valid and clashes with nothing"),
        (Planned::PUBLISHED, "Published", "its names are in DNS"),
        (Planned::NODES_READY, "NodesReady", "its applications' name leads to ready nodes"),
    ] {
        let Some(now) = after.condition(condition) else { continue };
        let earlier = before.and_then(|before| before.condition(condition));
        let holds = now.status == "True";
        if earlier.is_some_and(|earlier| earlier.status == now.status && (holds || earlier.reason == now.reason)) {
            continue;
        }
        if !holds {
            notices.push(warning(now));
        } else if earlier.is_some() || (condition == Planned::ACCEPTED && matches!(kind, Kind::Zone | Kind::Cluster)) {
            let message = if now.message.is_empty() { good_message } else { &now.message };
            notices.push(Notice { is_warning: false, reason: good.into(), message: message.into() });
        }
    }
    // What is over is not said any more.
    let held = |status: &OwnStatus| status.condition(Planned::WITHDRAWALS_HELD).cloned();
    match (before.and_then(held), held(after)) {
        (None, Some(now)) => notices.push(Notice { reason: Planned::WITHDRAWALS_HELD.into(), ..warning(&now) }),
        (Some(_), None) => {
            let message = "nothing is held any more: it was asked for again, or somebody let it go".into();
            notices.push(Notice { is_warning: false, reason: "NothingHeld".into(), message });
        }
        _ => {}
    }
    notices
}

/// That a cluster cannot be reached, or can again.
pub(super) fn reachability(condition: &Condition) -> Notice {
    if condition.status == "True" {
        let message = "its nodes are watched again".into();
        return Notice { is_warning: false, reason: "Reachable".into(), message };
    }
    warning(condition)
}

fn warning(condition: &Condition) -> Notice {
    Notice { is_warning: true, reason: condition.reason.clone(), message: condition.message.clone() }
}

/// Lets through what has not been said for a while.
#[derive(Debug, Default)]
struct Said(HashMap<(ObjectRef, String), Last>);

#[derive(Debug)]
struct Last {
    at: Instant,
    kept_back: u32,
}

impl Said {
    /// How often it was kept back since it was last said, if it may be said now.
    fn admit(&mut self, object: &ObjectRef, reason: &str, now: Instant) -> Option<u32> {
        let key = (object.clone(), reason.to_owned());
        let mut kept_back = 0;
        if let Some(last) = self.0.get_mut(&key) {
            if now < last.at + QUIET {
                last.kept_back = last.kept_back.saturating_add(1);
                return None;
            }
            kept_back = last.kept_back;
        } else if self.0.len() >= REMEMBERED {
            self.0.retain(|_, last| now < last.at + QUIET);
            if self.0.len() >= REMEMBERED {
                return None;
            }
        }
        self.0.insert(key, Last { at: now, kept_back: 0 });
        Some(kept_back)
    }
}

/// Where notices go; sent by a task of their own, so that no round waits for them.
#[derive(Debug)]
pub(super) struct Events {
    said: Said,
    waiting: mpsc::Sender<Event>,
    identity: String,
}

impl Events {
    /// The task ends with the value.
    pub(super) fn start(client: Client, term: Term, identity: String, metrics: Metrics) -> (Self, JoinHandle<()>) {
        let (waiting, queue) = mpsc::channel(WAITING);
        let sending = tokio::spawn(send_all(client, term, metrics, queue));
        (Self { said: Said::default(), waiting, identity }, sending)
    }

    pub(super) fn tell(&mut self, object: &ObjectRef, uid: &str, notice: &Notice) {
        let Some(kept_back) = self.said.admit(object, &notice.reason, Instant::now()) else { return };
        // Full: the hub is slow or has more important things to hear.
        let _ = self.waiting.try_send(event(object, uid, notice, kept_back, &self.identity));
    }
}

async fn send_all(client: Client, term: Term, metrics: Metrics, mut queue: mpsc::Receiver<Event>) {
    while let Some(Some(event)) = term.lost().run_until_cancelled(queue.recv()).await {
        if !term.holds_for(WITHIN) {
            continue;
        }
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let outcome = match timeout(WITHIN, events.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => "ok",
            Ok(Err(error)) => {
                let failure = Failure::of(error);
                tracing::debug!(error = &failure as &dyn std::error::Error, "an Event was not taken");
                failure.outcome()
            }
            Err(_) => Failure::Late.outcome(),
        };
        metrics.count("Event", outcome);
        tokio::time::sleep(PAUSE).await;
    }
}

fn event(object: &ObjectRef, uid: &str, notice: &Notice, kept_back: u32, identity: &str) -> Event {
    let namespace = object.namespace.as_ref().map(ToString::to_string);
    let mut note = notice.message.clone();
    if kept_back > 0 {
        // Writing to a text cannot fail.
        let _ = write!(note, " (and {kept_back} times more in between)");
    }
    note.truncate(note.floor_char_boundary(LONGEST_NOTE));
    let now = Timestamp::now();
    // Names are at most 253 characters, and none has anything but letters and digits before a dot.
    let name = &object.name.as_str()[..object.name.as_str().len().min(200)];
    let name = name.trim_end_matches(['-', '.']);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: Some(namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.into())),
            ..ObjectMeta::default()
        },
        regarding: Some(ObjectReference {
            api_version: Some(object.kind.api_version().into()),
            kind: Some(object.kind.as_str().into()),
            name: Some(object.name.to_string()),
            namespace,
            uid: Some(uid.into()),
            ..ObjectReference::default()
        }),
        type_: Some(if notice.is_warning { "Warning" } else { "Normal" }.into()),
        reason: Some(notice.reason.clone()),
        note: Some(note),
        action: Some("Plan".into()),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(REPORTER.into()),
        reporting_instance: Some(identity.into()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(conditions: &[(&str, bool, &str)]) -> OwnStatus {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, holds, reason)| {
                let status = if *holds { "True" } else { "False" };
                json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        OwnStatus::read(Kind::Cluster, &json!({ "conditions": conditions })).unwrap()
    }

    #[test]
    fn what_flips_is_told() {
        let accepted = ("Accepted", true, "Valid");
        let refused = ("Accepted", false, "UnknownZone");
        let ready = ("NodesReady", true, "Ready");
        let grace = ("NodesReady", false, "Grace");
        let withdrawn = ("NodesReady", false, "NoReadyNode");
        let held = ("WithdrawalsHeld", true, "TooManyAtOnce");
        for (before, after, expected) in [
            (None, vec![accepted, ready], vec!["Accepted"]),
            (None, vec![refused], vec!["!UnknownZone"]),
            (Some(vec![accepted, ready]), vec![accepted, ready], vec![]),
            (Some(vec![refused]), vec![refused], vec![]),
            (Some(vec![refused]), vec![("Accepted", false, "NameTaken")], vec!["!NameTaken"]),
            (Some(vec![refused]), vec![accepted, ready], vec!["Accepted"]),
            (Some(vec![accepted, ready]), vec![refused], vec!["!UnknownZone"]),
            (Some(vec![accepted, ready]), vec![accepted, grace], vec!["!Grace"]),
            (Some(vec![accepted, grace]), vec![accepted, withdrawn], vec!["!NoReadyNode"]),
            (Some(vec![accepted, withdrawn]), vec![accepted, ready], vec!["NodesReady"]),
            (Some(vec![accepted, ready]), vec![accepted, ("NodesReady", true, "Other")], vec![]),
            (Some(vec![accepted, grace]), vec![accepted, ("NodesReady", false, "Held")], vec!["!Held"]),
            (Some(vec![accepted]), vec![accepted, held], vec!["!WithdrawalsHeld"]),
            (Some(vec![accepted, held]), vec![accepted, held], vec![]),
            (Some(vec![accepted, held]), vec![accepted], vec!["NothingHeld"]),
        ] {
            let told = notices(Kind::Cluster, before.as_deref().map(status).as_ref(), &status(&after));
            let told: Vec<_> =
                told.iter().map(|told| format!("{}{}", if told.is_warning { "!" } else { "" }, told.reason)).collect();
            assert_eq!(told, expected, "{before:?} {after:?}");
        }
        assert!(notices(Kind::Tenant, None, &status(&[accepted])).is_empty(), "a tenant that is accepted is no news");
    }

    #[test]
    fn an_object_that_flaps_says_so_once_in_a_while() {
        let (mut said, start) = (Said::default(), Instant::now());
        let object = |name: &str| ObjectRef::cluster_scoped(Kind::Cluster, name.parse().unwrap());
        for (seconds, name, reason, expected) in [
            (0, "c1", "Grace", Some(0)),
            (1, "c1", "Grace", None),
            (1, "c1", "NodesReady", Some(0)),
            (1, "c2", "Grace", Some(0)),
            (599, "c1", "Grace", None),
            (600, "c1", "Grace", Some(2)),
            (601, "c1", "Grace", None),
        ] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(said.admit(&object(name), reason, now), expected, "{name} {reason} at {seconds}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut said, start) = (Said::default(), Instant::now());
        let object = |number: usize| ObjectRef::cluster_scoped(Kind::Cluster, format!("c{number}").parse().unwrap());
        for number in 0..REMEMBERED {
            assert!(said.admit(&object(number), "Grace", start).is_some());
        }
        assert_eq!(said.admit(&object(REMEMBERED), "Grace", start), None);
        assert_eq!(said.admit(&object(REMEMBERED), "Grace", start + QUIET), Some(0));
        assert_eq!(said.0.len(), 1);
    }

    #[test]
    fn an_event_keeps_to_the_bounds_of_its_kind() {
        let object = ObjectRef::cluster_scoped(Kind::Zone, "z".repeat(253).parse().unwrap());
        let notice = Notice { is_warning: true, reason: "R".into(), message: "ü".repeat(600) };
        let event = event(&object, "uid", &notice, 3, "me");
        assert!(event.note.unwrap().len() <= LONGEST_NOTE);
        assert!(event.metadata.name.unwrap().len() <= 253);
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    }
}
