//! What the doors say of a connection that nobody makes.

use gateway::balance::{Health, Prospect};
use gateway::explain::{Explanation, Question, Verdict, Wanted, Way};
use gateway::limits::Fullness;
use serde_json::{Value, json};

pub(super) fn to_json(explanation: &Explanation, question: &Question) -> Value {
    let verdict = &explanation.verdict;
    let mut shown = json!({
        "door": explanation.door.label(),
        "served": explanation.is_served,
        "trustedProxy": explanation.is_trusted_proxy,
        "verdict": match verdict {
            Verdict::Established => "Established",
            Verdict::Doubtful => "Doubtful",
            Verdict::Terminated => "Terminated",
            Verdict::Refused(_) => "Refused",
        },
        "code": verdict.code(),
        "blame": verdict.blame().map(model::Blame::as_str),
        "reason": explanation.reason(),
        "rule": explanation.rule,
    });
    if let Some(way) = &explanation.way {
        show_way(&mut shown, way, question);
    }
    shown
}

fn show_way(shown: &mut Value, way: &Way, question: &Question) {
    let route = &way.route;
    shown["cluster"] = route.cluster.as_str().into();
    shown["tenant"] = route.tenant.as_str().into();
    shown["service"] = (*route.service).into();
    shown["source"] = json!({
        "allowed": question.from.map(|_| way.allowed_by.is_some()),
        "allowedBy": way.allowed_by.map(|range| range.to_string()),
        "allowedSources": route.allowed_sources.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    if let Wanted::ClusterId { .. } = question.wants {
        // How many keys there are helps to see where a rotation stands; what they are is nobody's business.
        let keys = route.proof.keys.len();
        shown["proof"] = json!({ "required": route.proof.required, "keys": keys, "checked": way.checks_proof });
    }
    shown["limits"] = json!({ "cluster": fullness(way.limits.cluster), "tenant": fullness(way.limits.tenant) });
    shown["upstreams"] = way.upstreams.iter().map(upstream).collect();
    if let Some(links) = way.links {
        let targets: Vec<String> = route.inside.iter().map(ToString::to_string).collect();
        shown["tunnel"] = json!({ "targets": targets, "links": links });
    }
}

fn fullness(fullness: Fullness) -> Value {
    json!({
        "open": fullness.open,
        "connections": fullness.limits.connections,
        "newLeft": fullness.new_left,
        "newConnectionsPerSecond": fullness.limits.new_connections_per_second,
    })
}

fn upstream(upstream: &Prospect) -> Value {
    json!({
        "address": upstream.address.to_string(),
        "health": match upstream.health {
            Health::Unknown => "Unknown",
            Health::Healthy => "Healthy",
            Health::Unhealthy => "Unhealthy",
        },
        "ejected": upstream.ejected,
        "open": upstream.open,
    })
}
