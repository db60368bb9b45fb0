//! What would resolve differently: set by set, before it is applied.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use model::listing::type_name;
use model::{DnsName, Snapshot};
use serde_json::Value;

use crate::admin;

/// By name and type: the TTL, and what the records say.
pub(super) type Listing = BTreeMap<(DnsName, String), (u32, Vec<String>)>;

pub(super) fn of_snapshot(snapshot: &Snapshot) -> Listing {
    let listing = snapshot.listing().into_iter();
    listing.map(|((name, rtype), set)| ((name, type_name(rtype)), (set.ttl, set.records))).collect()
}

/// Of a running fleetgate.
pub(super) fn of_server(admin: SocketAddr) -> anyhow::Result<Listing> {
    let answer = admin::ask(admin, "/v1/records")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let sets = answer["sets"].as_array().into_iter().flatten().filter_map(|set| {
        let name = DnsName::parse(set["name"].as_str()?).ok()?;
        let ttl = u32::try_from(set["ttl"].as_u64()?).ok()?;
        let records = set["records"].as_array()?.iter().map(text).collect();
        Some(((name, text(&set["type"])), (ttl, records)))
    });
    Ok(sets.collect())
}

pub(super) fn print(before: &Listing, after: &Listing) {
    let lines = lines(before, after);
    for line in &lines {
        println!("{line}");
    }
    let names: std::collections::BTreeSet<_> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    match names.len() {
        0 => println!("nothing would resolve differently"),
        1 => println!("1 name would resolve differently"),
        count => println!("{count} names would resolve differently"),
    }
}

/// `-` is gone and `+` is new; what only has another TTL is both.
fn lines(before: &Listing, after: &Listing) -> Vec<String> {
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let mut lines = Vec::new();
    for key in keys {
        let (old, new) = (before.get(key), after.get(key));
        if old == new {
            continue;
        }
        let (name, rtype) = key;
        let same_ttl = old.map(|(ttl, _)| ttl) == new.map(|(ttl, _)| ttl);
        let mut side = |sign: char, side: Option<&(u32, Vec<String>)>, other: Option<&(u32, Vec<String>)>| {
            let Some((ttl, records)) = side else { return };
            let stays = |record: &&String| same_ttl && other.is_some_and(|(_, records)| records.contains(record));
            for record in records.iter().filter(|record| !stays(record)) {
                lines.push(format!("{sign} {name} {ttl} {rtype} {record}"));
            }
        };
        side('-', old, new);
        side('+', new, old);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(sets: &[(&str, &str, u32, &[&str])]) -> Listing {
        let set = |(name, rtype, ttl, records): &(&str, &str, u32, &[&str])| {
            let records = records.iter().map(|record| (*record).to_owned()).collect();
            ((name.parse().unwrap(), (*rtype).to_owned()), (*ttl, records))
        };
        sets.iter().map(set).collect()
    }

    #[test]
    fn only_what_differs_is_told() {
        let before = listing(&[
            ("a.test", "A", 30, &["192.0.2.1", "192.0.2.2"]),
            ("b.test", "A", 30, &["192.0.2.1"]),
            ("c.test", "A", 30, &["192.0.2.1"]),
            ("d.test", "TXT", 30, &["x"]),
        ]);
        let after = listing(&[
            ("a.test", "A", 30, &["192.0.2.2", "192.0.2.3"]),
            ("b.test", "A", 60, &["192.0.2.1"]),
            ("c.test", "A", 30, &["192.0.2.1"]),
            ("e.test", "TXT", 30, &["x"]),
        ]);
        let expected = [
            "- a.test 30 A 192.0.2.1",
            "+ a.test 30 A 192.0.2.3",
            "- b.test 30 A 192.0.2.1",
            "+ b.test 60 A 192.0.2.1",
            "- d.test 30 TXT x",
            "+ e.test 30 TXT x",
        ];
        assert_eq!(lines(&before, &after), expected);
        assert_eq!(lines(&after, &after), [""; 0]);
    }
}
