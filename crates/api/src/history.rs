//! What has changed of late, for whoever was paged: `GET /v1/history`.
//!
//! It is told from one plan to the next by this very process, and is gone with it; the log has the same for longer.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use manifest::text::Text;
use model::identity::Kind;
use model::snapshot::Changes;
use model::{ObjectName, ObjectRef, Snapshot, Timestamp, history};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::extract::Query;
use crate::objects::{self, Failure};
use crate::state::State;

/// Some hundred octets each: a megabyte in all.
const MOST: usize = 4096;
/// One that flaps does not push out what is known of the others.
const MOST_OF_ONE: usize = 64;
/// Of one plan: a changed Zone changes every cluster of it, which is one piece of news.
const MOST_OF_A_PLAN: usize = 256;
/// Messages name what was found in the way, which may be long.
const LONGEST: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub at: Timestamp,
    pub object: ObjectRef,
    pub what: String,
}

/// The last changes, the oldest first; bounded as a whole and for each object.
#[derive(Default)]
pub struct History {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    changes: VecDeque<Change>,
    counts: HashMap<ObjectRef, usize>,
}

impl History {
    /// Takes in what a plan changed. The first one, which finds everything, is no news.
    pub fn record(&self, before: &Snapshot, after: &Snapshot, changes: &Changes, now: Timestamp) {
        if before.revision == 0 {
            return;
        }
        let (told, _) = history::differences(before, after, changes, MOST_OF_A_PLAN);
        let mut kept = self.lock();
        for (object, mut what) in told {
            if what.len() > LONGEST {
                what.truncate(what.floor_char_boundary(LONGEST));
                what.push('…');
            }
            kept.push(Change { at: now, object, what });
        }
    }

    /// Of one object, the newest first.
    pub fn of(&self, object: &ObjectRef) -> Vec<Change> {
        self.lock().changes.iter().rev().filter(|change| change.object == *object).cloned().collect()
    }

    /// Of all, the newest first.
    pub fn recent(&self, most: usize) -> Vec<Change> {
        self.lock().changes.iter().rev().take(most).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn push(&mut self, change: Change) {
        let count = self.counts.entry(change.object.clone()).or_default();
        *count += 1;
        let oldest = if *count > MOST_OF_ONE {
            self.changes.iter().position(|other| other.object == change.object)
        } else {
            (self.changes.len() >= MOST).then_some(0)
        };
        self.changes.push_back(change);
        if let Some(gone) = oldest.and_then(|at| self.changes.remove(at))
            && let Some(count) = self.counts.get_mut(&gone.object)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&gone.object);
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    kind: Option<String>,
    namespace: Option<Text<ObjectName>>,
    name: Option<Text<ObjectName>>,
}

pub(crate) async fn list(
    Shared(state): Shared<Arc<State>>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, Failure> {
    let kind = asked.kind.as_deref().map(objects::find_kind).transpose()?;
    if asked.name.is_some() && kind.is_none() {
        return Err(Failure::new(StatusCode::BAD_REQUEST, "KindMissing", "name: say of which kind, too"));
    }
    let is_wanted = |object: &ObjectRef| {
        kind.is_none_or(|kind: Kind| object.kind == kind)
            && asked.name.as_ref().is_none_or(|name| object.name == name.0)
            && asked.namespace.as_ref().is_none_or(|namespace| object.namespace.as_ref() == Some(&namespace.0))
    };
    let changes = state.history.recent(MOST).into_iter().filter(|change| is_wanted(&change.object));
    Ok(Json(json!({ "items": changes.map(|change| change.to_json()).collect::<Vec<_>>() })))
}

impl Change {
    fn to_json(&self) -> Value {
        json!({
            "at": self.at.to_string(),
            "kind": self.object.kind.as_str(),
            "namespace": self.object.namespace.as_ref().map(ObjectName::as_str),
            "name": self.object.name.as_str(),
            "what": self.what,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_flaps_leaves_room_for_the_others() {
        let history = History::default();
        let object = |name: &str| ObjectRef::cluster_scoped(Kind::Cluster, name.parse().unwrap());
        let change =
            |name: &str, at: usize| Change { at: Timestamp(at as u64), object: object(name), what: at.to_string() };
        history.lock().push(change("calm", 0));
        for at in 1..=10 * MOST {
            history.lock().push(change("flaps", at));
        }
        assert_eq!(history.of(&object("calm")).len(), 1);
        let flaps = history.of(&object("flaps"));
        assert_eq!((flaps.len(), flaps[0].at), (MOST_OF_ONE, Timestamp(10 * MOST as u64)));
        for at in 0..2 * MOST {
            history.lock().push(change(&format!("c{at}"), at));
        }
        let kept = history.lock();
        assert_eq!((kept.changes.len(), kept.counts.len()), (MOST, MOST), "the oldest have made room");
        assert_eq!(kept.changes[0].what, MOST.to_string());
    }
}
