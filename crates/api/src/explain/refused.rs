//! Refused objects that want the very id or name: often the reason why nobody has it.
//!
//! A refused object contributes nothing to the snapshot, so that what it wants is read from its manifest.

use gateway::explain::Wanted;
use manifest::Document;
use model::identity::Kind;
use model::policy::Refused;
use model::resource::Zone;
use model::{ClusterName, DnsName, ObjectName, ObjectRef, Snapshot};
use serde_json::{Value, json};
use store::{Database, DatabaseError};

/// The thread answers others too, and a look into the database takes some 10 us. Those whose name is in the question
/// come first.
const MOST_READ: usize = 1000;
/// Enough to see what is going on.
const MOST_SHOWN: usize = 10;

pub(super) fn who_wants(wants: &Wanted, snapshot: &Snapshot, database: &Database) -> Result<Value, DatabaseError> {
    let refused = snapshot.statuses().filter_map(|(object, status)| Some((object, status.refusal()?)));
    let kinds = |object: &ObjectRef| matches!(object.kind, Kind::Cluster | Kind::Zone | Kind::Ingress);
    let mut refused: Vec<_> = refused.filter(|(object, _)| kinds(object)).collect();
    refused.sort_by_key(|(object, _)| (!is_named_in(&object.name, wants), *object));
    let mut shown = refused_parts(wants, snapshot);
    for (object, refusal) in refused.into_iter().take(MOST_READ) {
        if does_want(object, wants, database)? {
            shown.push(show(object, refusal.reason, &refusal.message));
        }
        if shown.len() >= MOST_SHOWN {
            break;
        }
    }
    Ok(shown.into())
}

fn show(object: &ObjectRef, code: &str, message: &str) -> Value {
    let mut shown =
        json!({ "kind": object.kind.as_str(), "name": object.name.as_str(), "code": code, "message": message });
    if let Some(namespace) = &object.namespace {
        shown["namespace"] = namespace.as_str().into();
    }
    shown
}

/// Rules of Ingresses for the host, of which others may be served.
fn refused_parts(wants: &Wanted, snapshot: &Snapshot) -> Vec<Value> {
    let Wanted::ServerName(name) = wants else { return Vec::new() };
    let mut found: Vec<(&ObjectRef, &str, &Refused)> = Vec::new();
    for (object, status) in snapshot.statuses().filter(|(object, _)| object.kind == Kind::Ingress) {
        for (part, outcome) in status.detail.parts() {
            let host = part.split('/').next().and_then(|host| DnsName::parse(host).ok());
            // Clusters, certificates and annotations are parts, too.
            if let Err(refused) = outcome
                && refused.field.starts_with("rules[")
                && host.is_some_and(|host| stands_for(&host, name))
            {
                found.push((object, part, refused));
            }
        }
    }
    found.sort_by_key(|(object, part, _)| (*object, *part));
    let shown = found
        .into_iter()
        .take(MOST_SHOWN)
        .map(|(object, part, Refused { refusal, .. })| show(object, refusal.code(), &format!("{part}: {refusal}")));
    shown.collect()
}

/// Whether a host of a rule is for a name.
fn stands_for(host: &DnsName, name: &DnsName) -> bool {
    host == name || host.is_wildcard() && host.parent() == name.parent()
}

fn does_want(object: &ObjectRef, wants: &Wanted, database: &Database) -> Result<bool, DatabaseError> {
    let Some(record) = database.get(object)? else { return Ok(false) };
    if object.kind != Kind::Zone && !may_want(&object.name, &record.text, wants) {
        return Ok(false);
    }
    let Ok(manifest) = manifest::document::to_json(&record.text) else { return Ok(false) };
    let spec = &manifest["spec"];
    let name = match (object.kind, wants) {
        (Kind::Zone, Wanted::ServerName(name)) => {
            return Ok(parsed(&spec["domain"]).is_some_and(|domain| name.is_at_or_under(&domain)));
        }
        (Kind::Ingress, Wanted::ServerName(name)) => {
            let mut hosts = spec["rules"].as_array().into_iter().flatten().filter_map(|rule| parsed(&rule["host"]));
            return Ok(hosts.any(|host| stands_for(&host, name)));
        }
        (Kind::Zone | Kind::Ingress, Wanted::ClusterId { .. }) => return Ok(false),
        (_, Wanted::ClusterId { id, .. }) => {
            let own = spec["clusterID"].as_str().unwrap_or(object.name.as_str());
            return Ok(own.as_bytes() == id);
        }
        (_, Wanted::ServerName(name)) => name,
    };
    let mut services = spec["controlPlane"]["services"].as_array().into_iter().flatten();
    if services.any(|service| parsed(&service["sni"]).as_ref() == Some(name)) {
        return Ok(true);
    }
    let zone = spec["zone"].as_str().and_then(|zone| zone.parse().ok());
    let zone = zone.map(|zone| read_zone(zone, database)).transpose()?.flatten();
    // Without its Zone nobody knows what it would be called; its own name would be a part of that.
    Ok(zone.map_or_else(|| is_named_in(&object.name, wants), |zone| would_be_called(object, &zone, name)))
}

/// Spares parsing nearly all of them: a Cluster is called by what contains its name, and wants else what it spells; so does an
/// Ingress, or it spells a wildcard.
fn may_want(name: &ObjectName, text: &str, wants: &Wanted) -> bool {
    match wants {
        Wanted::ClusterId { id, .. } => {
            name.as_str().as_bytes() == id || std::str::from_utf8(id).is_ok_and(|id| text.contains(id))
        }
        Wanted::ServerName(asked) => {
            let asked = asked.to_string();
            let text = text.to_ascii_lowercase();
            asked.contains(name.as_str()) || text.contains(&asked) || text.contains("*.")
        }
    }
}

fn would_be_called(object: &ObjectRef, zone: &Zone, name: &DnsName) -> bool {
    let Ok(cluster) = object.name.as_str().parse::<ClusterName>() else { return false };
    let is_api = zone.api.expand(&cluster, &zone.domain).is_ok_and(|api| api == *name);
    let is_apps = zone.apps.expand(&cluster, &zone.domain).is_ok_and(|apps| {
        apps == *name || apps.is_wildcard() && apps.parent().is_some_and(|base| name.is_at_or_under(&base))
    });
    is_api || is_apps
}

fn read_zone(name: ObjectName, database: &Database) -> Result<Option<Zone>, DatabaseError> {
    let Some(record) = database.get(&ObjectRef::cluster_scoped(Kind::Zone, name))? else { return Ok(None) };
    let document = Document { first_line: 1, text: &record.text };
    match manifest::read(&document, &mut manifest::nothing_named) {
        Ok(manifest::Manifest { value: manifest::Value::Zone(zone), .. }) => Ok(Some(zone)),
        _ => Ok(None),
    }
}

/// Whether the object's name is the id that is asked for, or a label of the name.
fn is_named_in(name: &ObjectName, wants: &Wanted) -> bool {
    match wants {
        Wanted::ClusterId { id, .. } => name.as_str().as_bytes() == id,
        Wanted::ServerName(asked) => asked.labels().any(|label| label == name.as_str().as_bytes()),
    }
}

fn parsed(value: &Value) -> Option<DnsName> {
    DnsName::parse(value.as_str()?).ok()
}
