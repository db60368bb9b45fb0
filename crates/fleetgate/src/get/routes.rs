//! Every way in, as a table.

use serde_json::Value;

use crate::table;

/// Members and addresses that a line has room for; `-o json` has them all.
const ROOM: usize = 3;

pub(super) fn render(answer: &Value) -> String {
    let rows: Vec<Vec<String>> = list(&answer["items"]).map(row).collect();
    if rows.is_empty() {
        return "nothing found\n".into();
    }
    table::render(&["BY", "MATCH", "TENANT", "CLUSTER", "SERVICE", "TO", "LIMITS"], &rows)
}

fn row(item: &Value) -> Vec<String> {
    let text = |field: &str| item[field].as_str().unwrap_or("-").to_owned();
    let members: Vec<&Value> = list(&item["members"]).collect();
    let clusters = match item["cluster"].as_str() {
        Some(cluster) => cluster.to_owned(),
        None => some(members.iter().filter_map(|member| member["cluster"].as_str())),
    };
    vec![text("by"), pattern(item), text("tenant"), clusters, text("service"), to(item, &members), limits(item)]
}

/// `host/path`; an exact path has `=` before it, as it stands for no other.
fn pattern(item: &Value) -> String {
    let name = item["match"].as_str().unwrap_or("-");
    match (item["pathType"].as_str(), item["path"].as_str()) {
        (Some("Exact"), Some(path)) => format!("{name} ={path}"),
        (Some("Prefix"), Some(path)) => format!("{name}{path}"),
        (Some(_), _) => format!("{name} (default)"),
        (None, _) => name.to_owned(),
    }
}

fn to(item: &Value, members: &[&Value]) -> String {
    let of = |value: &Value, field: &str| list(&value[field]).filter_map(Value::as_str).map(str::to_owned).collect();
    let all = |field: &str| -> Vec<String> {
        let own: Vec<String> = of(item, field);
        let theirs = members.iter().flat_map(|member| -> Vec<String> { of(member, field) });
        own.into_iter().chain(theirs).collect()
    };
    let (direct, inside) = (all("upstreams"), all("inside"));
    let direct = (!direct.is_empty()).then(|| some(direct.iter().map(String::as_str)));
    let inside = (!inside.is_empty()).then(|| format!("tunnel: {}", some(inside.iter().map(String::as_str))));
    let told: Vec<String> = direct.into_iter().chain(inside).collect();
    if told.is_empty() { "-".into() } else { told.join("; ") }
}

fn limits(item: &Value) -> String {
    let limits = &item["limits"];
    let mut told = Vec::new();
    for whose in ["cluster", "tenant"] {
        let open = limits[whose]["connections"].as_u64().map(|most| format!("{most} open"));
        let new = limits[whose]["newConnectionsPerSecond"].as_u64().map(|most| format!("{most}/s"));
        let both: Vec<String> = open.into_iter().chain(new).collect();
        if !both.is_empty() {
            told.push(format!("{whose} {}", both.join(", ")));
        }
    }
    told.extend(limits["bodyOctets"].as_u64().map(|most| format!("bodies of {most} octets")));
    // Everybody is the usual case, and no limit.
    let sources: Vec<&str> = list(&item["allowedSources"]).filter_map(Value::as_str).collect();
    let is_everybody =
        !item["allowedSources"].is_array() || ["0.0.0.0/0", "::/0"].iter().all(|all| sources.contains(all));
    if !is_everybody {
        let ranges = if sources.is_empty() { "nobody".to_owned() } else { some(sources.into_iter()) };
        told.push(format!("from {ranges}"));
    }
    if item["proofRequired"] == true {
        told.push("proof".into());
    }
    if told.is_empty() { "-".into() } else { told.join("; ") }
}

/// The first few, and how many there are beside.
fn some<'a>(mut words: impl Iterator<Item = &'a str>) -> String {
    let shown: Vec<&str> = words.by_ref().take(ROOM).collect();
    match (shown.is_empty(), words.count()) {
        (true, _) => "-".into(),
        (false, 0) => shown.join(","),
        (false, more) => format!("{} and {more} more", shown.join(",")),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_says_what_is_limited_and_no_more_than_it_has_room_for() {
        let everybody = json!(["0.0.0.0/0", "::/0"]);
        for (item, expected) in [
            (json!({ "allowedSources": everybody, "limits": { "cluster": {}, "tenant": {} } }), "-"),
            (json!({ "allowedSources": null, "limits": { "bodyOctets": 1024 } }), "bodies of 1024 octets"),
            (json!({ "allowedSources": [] }), "from nobody"),
            (
                json!({
                    "allowedSources": ["10.0.0.0/8"],
                    "proofRequired": true,
                    "limits": { "cluster": { "connections": 5 }, "tenant": { "connections": 9, "newConnectionsPerSecond": 2 } },
                }),
                "cluster 5 open; tenant 9 open, 2/s; from 10.0.0.0/8; proof",
            ),
        ] {
            assert_eq!(limits(&item), expected, "{item}");
        }
        assert_eq!(some(["a", "b", "c"].into_iter()), "a,b,c");
        assert_eq!(some(["a", "b", "c", "d", "e"].into_iter()), "a,b,c and 2 more");
        assert_eq!(some(std::iter::empty()), "-");
    }

    #[test]
    fn a_path_says_what_else_it_stands_for() {
        for (item, expected) in [
            (json!({ "match": "c1" }), "c1"),
            (json!({ "match": "www.test", "pathType": "Prefix", "path": "/a" }), "www.test/a"),
            (json!({ "match": "www.test", "pathType": "Exact", "path": "/a" }), "www.test =/a"),
            (json!({ "match": "*.test", "pathType": "DefaultBackend", "path": null }), "*.test (default)"),
        ] {
            assert_eq!(pattern(&item), expected);
        }
    }
}
