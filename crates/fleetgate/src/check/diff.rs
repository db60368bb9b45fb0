//! What would resolve differently: set by set, before it is applied.

use std::collections::{BTreeMap, BTreeSet};

use model::listing::type_name;
use model::{DnsName, Snapshot};
use serde_json::Value;

use crate::admin::AdminOptions;
use crate::paint::Paint;

/// By name and type: the TTL, and what the records say.
pub(super) type Listing = BTreeMap<(DnsName, String), (u32, Vec<String>)>;

pub(super) fn of_snapshot(snapshot: &Snapshot) -> Listing {
    let listing = snapshot.listing().into_iter();
    listing.map(|((name, rtype), set)| ((name, type_name(rtype)), (set.ttl, set.records))).collect()
}

/// Of a running fleetgate.
pub(super) fn of_server(running: &AdminOptions) -> anyhow::Result<Listing> {
    let answer = running.ask("/v1/records")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let sets = answer["sets"].as_array().into_iter().flatten().filter_map(|set| {
        let name = DnsName::parse(set["name"].as_str()?).ok()?;
        let ttl = u32::try_from(set["ttl"].as_u64()?).ok()?;
        let records = set["records"].as_array()?.iter().map(text).collect();
        Some(((name, text(&set["type"])), (ttl, records)))
    });
    Ok(sets.collect())
}

/// What is new green, what is gone red, and what is another than before yellow.
pub(super) fn tell(before: &Listing, after: &Listing, paint: Paint) -> String {
    let steps = steps(before, after);
    let names: BTreeSet<&DnsName> = steps.iter().map(|step| step.name).collect();
    let count = match names.len() {
        0 => "nothing would resolve differently".to_owned(),
        1 => "1 name would resolve differently".to_owned(),
        count => format!("{count} names would resolve differently"),
    };
    let lines: Vec<String> = steps.iter().map(|step| step.tell(paint)).chain([count]).collect();
    lines.join("\n") + "\n"
}

/// One record that comes or goes.
struct Step<'a> {
    is_new: bool,
    /// Whether there is something of the same name and type before and after.
    is_change: bool,
    name: &'a DnsName,
    ttl: u32,
    rtype: &'a str,
    record: &'a str,
}

impl Step<'_> {
    /// `-` is gone and `+` is new; what only has another TTL is both.
    fn tell(&self, paint: Paint) -> String {
        let sign = if self.is_new { '+' } else { '-' };
        let line = format!("{sign} {} {} {} {}", self.name, self.ttl, self.rtype, self.record);
        match (self.is_change, self.is_new) {
            (true, _) => paint.yellow(&line),
            (false, true) => paint.green(&line),
            (false, false) => paint.red(&line),
        }
    }
}

fn steps<'a>(before: &'a Listing, after: &'a Listing) -> Vec<Step<'a>> {
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let mut steps = Vec::new();
    for key in keys {
        let (old, new) = (before.get(key), after.get(key));
        if old == new {
            continue;
        }
        let (name, rtype) = key;
        let is_change = old.is_some() && new.is_some();
        let same_ttl = old.map(|(ttl, _)| ttl) == new.map(|(ttl, _)| ttl);
        let mut side = |is_new: bool, side: Option<&'a (u32, Vec<String>)>, other: Option<&(u32, Vec<String>)>| {
            let Some((ttl, records)) = side else { return };
            let stays = |record: &&String| same_ttl && other.is_some_and(|(_, records)| records.contains(record));
            for record in records.iter().filter(|record| !stays(record)) {
                steps.push(Step { is_new, is_change, name, ttl: *ttl, rtype, record });
            }
        };
        side(false, old, new);
        side(true, new, old);
    }
    steps
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
        let plain = Paint { is_on: false };
        let told = tell(&before, &after, plain);
        assert_eq!(told, format!("{}\n4 names would resolve differently\n", expected.join("\n")));
        assert_eq!(tell(&after, &after, plain), "nothing would resolve differently\n");

        let colours = tell(&before, &after, Paint { is_on: true });
        let of_line = |number: usize| colours.lines().nth(number).map(|line| line[..5].to_owned()).unwrap();
        let (red, green, yellow) = ("\x1b[31m", "\x1b[32m", "\x1b[33m");
        assert_eq!([0, 1, 2, 3, 4, 5].map(of_line), [yellow, yellow, yellow, yellow, red, green]);
    }
}
