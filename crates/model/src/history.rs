//! What a plan changed, in sentences for people: of whom, what, and where it is known why.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::net::IpAddr;
use std::sync::Arc;

use crate::identity::{ClusterName, Kind, ObjectRef};
use crate::resource::Node;
use crate::snapshot::{Changes, ClusterPart, Condition, NameRecords, Route, Snapshot, Status};

/// So many of a list are told, and how many more there are: a sentence is for reading.
const TOLD: usize = 4;

/// The differences that one plan made, by object: those of clusters, and conditions that hold or do not hold any more. Of the first
/// `most` objects, and how many others there are.
pub fn differences(
    before: &Snapshot,
    after: &Snapshot,
    changes: &Changes,
    most: usize,
) -> (Vec<(ObjectRef, String)>, usize) {
    let clusters = changes.clusters.iter().map(|name| ObjectRef::cluster_scoped(Kind::Cluster, name.into()));
    let objects: BTreeSet<ObjectRef> = clusters.chain(changes.statuses.iter().cloned()).collect();
    let mut told = Vec::new();
    for object in objects.iter().take(most) {
        let mut sentences = Vec::new();
        if let Some(name) = cluster_name(object) {
            let parts = (before.cluster(&name), after.cluster(&name));
            if let (Some(before), Some(after)) = parts {
                cluster(before, after, &mut sentences);
            }
        }
        conditions(before.status(object), after.status(object), &mut sentences);
        told.extend(sentences.into_iter().map(|sentence| (object.clone(), sentence)));
    }
    (told, objects.len().saturating_sub(most))
}

fn cluster_name(object: &ObjectRef) -> Option<ClusterName> {
    (object.kind == Kind::Cluster).then(|| object.name.as_str().parse().ok()).flatten()
}

fn cluster(before: &ClusterPart, after: &ClusterPart, sentences: &mut Vec<String>) {
    nodes(&before.nodes, &after.nodes, sentences);
    for name in &after.names {
        match before.names.iter().find(|other| other.name == name.name) {
            Some(other) => addresses(other, name, sentences),
            None => sentences.push(format!("{} is published: {}", name.name, list(&name.addresses()))),
        }
    }
    for name in before.names.iter().filter(|name| !after.names.iter().any(|other| other.name == name.name)) {
        sentences.push(format!("{} is withdrawn", name.name));
    }
    for (name, route) in &after.routes {
        match before.routes.iter().find(|(other, _)| other == name) {
            Some((_, other)) => rerouted(other, route, sentences),
            None => sentences.push(format!("{name} leads to {} at {}", route.service, list(&route.upstreams))),
        }
    }
    for (name, _) in before.routes.iter().filter(|(name, _)| !after.routes.iter().any(|(other, _)| other == name)) {
        sentences.push(format!("no connection is let through to {name} any more"));
    }
    if before.id != after.id {
        sentences.push(format!("its id is {} and was {}", after.id, before.id));
    }
    if before.location != after.location {
        sentences.push("its location is another".to_owned());
    }
}

/// Nodes are told of by their names: one that is called as before is the same.
fn nodes(before: &[Node], after: &[Node], sentences: &mut Vec<String>) {
    let find = |nodes: &[Node], name: &str| nodes.iter().position(|node| node.name == name);
    let mut lists: [Vec<&str>; 4] = Default::default();
    let [ready, unready, new, gone] = &mut lists;
    for node in after {
        match find(before, &node.name).map(|at| before[at].ready) {
            None => new.push(&node.name),
            Some(false) if node.ready => ready.push(&node.name),
            Some(true) if !node.ready => unready.push(&node.name),
            Some(_) => {}
        }
    }
    gone.extend(before.iter().filter(|node| find(after, &node.name).is_none()).map(|node| node.name.as_str()));
    let says = ["ready", "not ready any more", "new", "gone"];
    for (names, says) in lists.iter().zip(says).filter(|(names, _)| !names.is_empty()) {
        let (noun, verb) = if names.len() == 1 { ("node", "is") } else { ("nodes", "are") };
        sentences.push(format!("{noun} {} {verb} {says}", list(names)));
    }
}

fn addresses(before: &NameRecords, after: &NameRecords, sentences: &mut Vec<String>) {
    let (old, new): (BTreeSet<IpAddr>, BTreeSet<IpAddr>) =
        (before.addresses().into_iter().collect(), after.addresses().into_iter().collect());
    if old != new {
        let (come, gone): (Vec<_>, Vec<_>) = (new.difference(&old).collect(), old.difference(&new).collect());
        let noun = if new.len() == 1 { "address" } else { "addresses" };
        let mut sentence = format!("{} leads to {} {noun}", after.name, new.len());
        for (word, changed) in [("with", come), ("without", gone)].iter().filter(|(_, changed)| !changed.is_empty()) {
            let _ = write!(sentence, ", {word} {}", list(changed));
        }
        sentences.push(sentence);
    } else if before.records != after.records {
        sentences.push(format!("the records of {} are others", after.name));
    }
}

fn rerouted(before: &Route, after: &Route, sentences: &mut Vec<String>) {
    let service = &after.service;
    if before.upstreams != after.upstreams {
        sentences.push(format!("{service} is at {}, and was at {}", list(&after.upstreams), list(&before.upstreams)));
    }
    if before.allowed_sources != after.allowed_sources {
        sentences.push(format!("{service} is open to {}", list(&after.allowed_sources)));
    }
    if (before.limits, before.tenant_limits) != (after.limits, after.tenant_limits) {
        sentences.push(format!("the limits of {service} are others"));
    }
    if before.proof != after.proof {
        sentences.push(format!("the proof that {service} wants, or its keys, are others"));
    }
}

fn conditions(before: Option<&Arc<Status>>, after: Option<&Arc<Status>>, sentences: &mut Vec<String>) {
    let of = |status: Option<&Arc<Status>>| status.map(|status| status.conditions.clone()).unwrap_or_default();
    let (old, new) = (of(before), of(after));
    if before.is_none() && after.is_some_and(|status| status.refusal().is_none()) {
        sentences.push("it is there".to_owned());
    }
    if before.is_some() && after.is_none() {
        sentences.push("it is gone".to_owned());
        return;
    }
    for condition in &new {
        let last = old.iter().find(|other| other.kind == condition.kind);
        let is_same = last.is_some_and(|last| (last.holds, last.reason) == (condition.holds, condition.reason));
        // What is as it should be is no news of an object that has just come.
        if !is_same && (last.is_some() || !condition.is_well()) {
            sentences.push(sentence(condition));
        }
    }
    for condition in old.iter().filter(|condition| !new.iter().any(|other| other.kind == condition.kind)) {
        sentences.push(format!("{} is over", condition.kind));
    }
}

fn sentence(condition: &Condition) -> String {
    let not = if condition.holds { "" } else { "not " };
    match condition.message.as_str() {
        "" => format!("{not}{} ({})", condition.kind, condition.reason),
        message => format!("{not}{} ({}): {message}", condition.kind, condition.reason),
    }
}

fn list(items: &[impl Display]) -> String {
    if items.is_empty() {
        return "nothing".to_owned();
    }
    let told: Vec<String> = items.iter().take(TOLD).map(ToString::to_string).collect();
    match items.len().saturating_sub(TOLD) {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}
