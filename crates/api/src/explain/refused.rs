//! Refused objects that want the very id or name: often the reason why nobody has it.
//!
//! A refused object contributes nothing to the snapshot, so that what it wants is read from its manifest.

use gateway::explain::Wanted;
use manifest::Document;
use model::identity::Kind;
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
    let mut refused: Vec<_> = refused.filter(|(object, _)| matches!(object.kind, Kind::Cluster | Kind::Zone)).collect();
    refused.sort_by_key(|(object, _)| (!is_named_in(&object.name, wants), *object));
    let mut shown = Vec::new();
    for (object, refusal) in refused.into_iter().take(MOST_READ) {
        if does_want(object, wants, database)? {
            let (kind, name) = (object.kind.as_str(), object.name.as_str());
            shown.push(json!({ "kind": kind, "name": name, "code": refusal.reason, "message": refusal.message }));
        }
        if shown.len() == MOST_SHOWN {
            break;
        }
    }
    Ok(shown.into())
}

fn does_want(object: &ObjectRef, wants: &Wanted, database: &Database) -> Result<bool, DatabaseError> {
    let Some(record) = database.get(object)? else { return Ok(false) };
    if object.kind == Kind::Cluster && !may_want(&object.name, &record.text, wants) {
        return Ok(false);
    }
    let Ok(manifest) = manifest::document::to_json(&record.text) else { return Ok(false) };
    let spec = &manifest["spec"];
    let name = match (object.kind, wants) {
        (Kind::Zone, Wanted::ServerName(name)) => {
            return Ok(parsed(&spec["domain"]).is_some_and(|domain| name.is_at_or_under(&domain)));
        }
        (Kind::Zone, Wanted::ClusterId { .. }) => return Ok(false),
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

/// Spares parsing nearly all of them: a Cluster is called by what contains its name, and wants else what it spells.
fn may_want(name: &ObjectName, text: &str, wants: &Wanted) -> bool {
    match wants {
        Wanted::ClusterId { id, .. } => {
            name.as_str().as_bytes() == id || std::str::from_utf8(id).is_ok_and(|id| text.contains(id))
        }
        Wanted::ServerName(asked) => {
            let asked = asked.to_string();
            asked.contains(name.as_str()) || text.to_ascii_lowercase().contains(&asked)
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
