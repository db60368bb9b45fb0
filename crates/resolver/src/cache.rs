//! What was answered of late, of one cluster.
//!
//! Bounded by octets. Where there is no more room, the oldest goes that nobody has asked for since the last round: a flood of
//! names that are asked for once drives out nothing that is in use. Every cluster has room of its own, so that nobody drives
//! out anything of others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;

use crate::failure::Failure;
use crate::message::{Kind, Response};

/// RFC 8767 5: how long after its time something may still be told when nobody better is there.
const STALE: Duration = Duration::from_hours(1);
/// RFC 8767 5: how long nobody is asked again, once that has failed, while there is something to tell.
const RECHECK: Duration = Duration::from_secs(5);
/// RFC 9520 3.2: a failure holds for a second at least.
const FAILURE: Duration = Duration::from_secs(1);
/// Of an entry, beside its octets: two references to its key, and its place in both collections.
const OVERHEAD: usize = 160;

pub(crate) struct Cache {
    entries: HashMap<Arc<[u8]>, Entry, RandomState>,
    /// All keys, each once.
    order: VecDeque<Arc<[u8]>>,
    octets: usize,
    most: usize,
}

struct Entry {
    content: Content,
    stored: Instant,
    /// Since the last round.
    used: bool,
}

enum Content {
    Answer {
        response: Arc<Response>,
        /// Until when nobody is asked, as that has just failed.
        recheck: Option<Instant>,
    },
    Failure(Failure),
}

pub(crate) enum Found {
    /// With its age in seconds.
    Fresh(Arc<Response>, u32),
    /// Its time is over; somebody may know better, or was just asked and does not.
    Stale {
        response: Arc<Response>,
        may_ask: bool,
    },
    /// It has just failed.
    Failure(Failure),
    Nothing,
}

impl Cache {
    pub(crate) fn new(most: usize) -> Self {
        Self { entries: HashMap::default(), order: VecDeque::new(), octets: 0, most }
    }

    pub(crate) fn get(&mut self, key: &[u8], now: Instant) -> Found {
        let Some(entry) = self.entries.get_mut(key) else { return Found::Nothing };
        entry.used = true;
        let age = now.saturating_duration_since(entry.stored);
        match &entry.content {
            Content::Answer { response, .. } if age < Duration::from_secs(response.ttl.into()) => {
                Found::Fresh(Arc::clone(response), u32::try_from(age.as_secs()).unwrap_or(u32::MAX))
            }
            Content::Answer { response, recheck } if is_good_stale(response, age) => {
                Found::Stale { response: Arc::clone(response), may_ask: recheck.is_none_or(|at| at <= now) }
            }
            Content::Failure(failure) if age < FAILURE => Found::Failure(*failure),
            _ => Found::Nothing,
        }
    }

    pub(crate) fn insert(&mut self, key: &[u8], response: Arc<Response>, now: Instant) {
        self.put(key, Content::Answer { response, recheck: None }, now);
    }

    /// What is stale stays, and is told for a while without asking again.
    pub(crate) fn fail(&mut self, key: &[u8], failure: Failure, now: Instant) {
        if let Some(Entry { content: Content::Answer { response, recheck }, stored, .. }) = self.entries.get_mut(key)
            && is_good_stale(response, now.saturating_duration_since(*stored))
        {
            *recheck = Some(now + RECHECK);
            return;
        }
        self.put(key, Content::Failure(failure), now);
    }

    pub(crate) fn set_most(&mut self, most: usize) {
        self.most = most;
        self.shrink();
    }

    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn put(&mut self, key: &[u8], content: Content, now: Instant) {
        let entry = Entry { content, stored: now, used: false };
        let size = entry.size(key);
        // What would take a quarter of all the room is asked for again.
        if size > self.most / 4 {
            return;
        }
        self.octets += size;
        if let Some(place) = self.entries.get_mut(key) {
            let old = std::mem::replace(place, entry);
            self.octets -= old.size(key);
        } else {
            let key: Arc<[u8]> = key.into();
            self.order.push_back(Arc::clone(&key));
            self.entries.insert(key, entry);
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.octets > self.most
            && let Some(key) = self.order.pop_front()
        {
            match self.entries.get_mut(&key) {
                Some(entry) if entry.used => {
                    entry.used = false;
                    self.order.push_back(key);
                }
                Some(entry) => {
                    self.octets -= entry.size(&key);
                    self.entries.remove(&key);
                }
                None => {}
            }
        }
    }
}

/// That there is nothing is never told after its time: what was missing may have come.
fn is_good_stale(response: &Response, age: Duration) -> bool {
    let ttl = Duration::from_secs(response.ttl.into());
    response.kind == Kind::Positive && response.ttl > 0 && age < ttl + STALE
}

impl Entry {
    fn size(&self, key: &[u8]) -> usize {
        let content = match &self.content {
            Content::Answer { response, .. } => response.size(),
            Content::Failure(_) => 0,
        };
        OVERHEAD + key.len() + content
    }
}

#[cfg(test)]
mod tests {
    use domain::base::iana::Rtype;
    use proptest::prelude::*;

    use super::*;
    use crate::answer::{Answer, Record, RecordData};
    use crate::message::Key;

    fn key(name: &str) -> Key {
        Key::new(&name.parse().unwrap(), Rtype::TXT, 1)
    }

    fn answer(name: &str, ttl: u32, length: usize) -> Arc<Response> {
        let text = RecordData::Text("x".repeat(length));
        let answer = Answer::of(vec![Record::new(&name.parse().unwrap(), ttl, text)]);
        respond(name, &answer)
    }

    fn respond(name: &str, answer: &Answer) -> Arc<Response> {
        let octets = answer.to_message(&name.parse().unwrap(), Rtype::TXT, &"test".parse().unwrap(), 20).unwrap();
        Response::own(&octets, &key(name)).unwrap()
    }

    fn told(cache: &mut Cache, name: &str, now: Instant) -> String {
        match cache.get(key(name).as_slice(), now) {
            Found::Fresh(_, age) => format!("fresh {age}"),
            Found::Stale { may_ask: true, .. } => "stale, ask".into(),
            Found::Stale { .. } => "stale".into(),
            Found::Failure(_) => "failure".into(),
            Found::Nothing => "nothing".into(),
        }
    }

    #[test]
    fn answers_age() {
        let (mut cache, start) = (Cache::new(1 << 20), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        cache.insert(key("a.test").as_slice(), answer("a.test", 60, 10), start);
        for (seconds, expected) in
            [(0, "fresh 0"), (59, "fresh 59"), (60, "stale, ask"), (3659, "stale, ask"), (3660, "nothing")]
        {
            assert_eq!(told(&mut cache, "a.test", at(seconds)), expected, "{seconds}");
        }
        // Once that has failed, it is told without asking.
        cache.fail(key("a.test").as_slice(), Failure::NoAnswer, at(61));
        assert_eq!(told(&mut cache, "a.test", at(62)), "stale");
        assert_eq!(told(&mut cache, "a.test", at(66)), "stale, ask");
        cache.insert(key("a.test").as_slice(), answer("a.test", 60, 10), at(70));
        assert_eq!(told(&mut cache, "a.test", at(71)), "fresh 1");
    }

    #[test]
    fn a_no_is_never_told_after_its_time() {
        let (mut cache, start) = (Cache::new(1 << 20), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for (name, no) in [("a.test", Answer::no_such_name()), ("b.test", Answer::no_data())] {
            cache.insert(key(name).as_slice(), respond(name, &no), start);
            assert_eq!(told(&mut cache, name, at(19)), "fresh 19");
            assert_eq!(told(&mut cache, name, at(20)), "nothing");
            cache.fail(key(name).as_slice(), Failure::NoAnswer, at(21));
            assert_eq!(told(&mut cache, name, at(21)), "failure");
            assert_eq!(told(&mut cache, name, at(22)), "nothing");
        }
        // What is there no more is not told as stale either, once somebody said so.
        cache.insert(key("c.test").as_slice(), answer("c.test", 10, 1), start);
        cache.insert(key("c.test").as_slice(), respond("c.test", &Answer::no_such_name()), at(12));
        assert_eq!(told(&mut cache, "c.test", at(40)), "nothing");
        // Nor what was never to be kept.
        cache.insert(key("d.test").as_slice(), answer("d.test", 0, 1), start);
        assert_eq!(told(&mut cache, "d.test", start), "nothing");
    }

    #[test]
    fn what_is_in_use_stays() {
        let (mut cache, now) = (Cache::new(20 << 10), Instant::now());
        cache.insert(key("used.test").as_slice(), answer("used.test", 60, 10), now);
        for number in 0..1000 {
            assert_eq!(told(&mut cache, "used.test", now), "fresh 0", "{number}");
            let name = format!("n{number}.test");
            cache.insert(key(&name).as_slice(), answer(&name, 60, 10), now);
        }
        assert!(cache.octets() <= 20 << 10 && cache.len() > 10, "{} {}", cache.octets(), cache.len());
        assert_eq!(told(&mut cache, "n1.test", now), "nothing");
        cache.set_most(1 << 10);
        assert!(cache.octets() <= 1 << 10);
    }

    proptest! {
        /// Whatever happens, what is counted is what is there, and no more than there is room for.
        #[test]
        fn the_bound_holds(steps in prop::collection::vec((0_u8..40, 0_usize..200, any::<bool>(), any::<bool>()), 1..200)) {
            let (mut cache, now) = (Cache::new(8 << 10), Instant::now());
            for (name, length, fails, asks) in steps {
                let name = format!("n{name}.test");
                if fails {
                    cache.fail(key(&name).as_slice(), Failure::NoAnswer, now);
                } else {
                    cache.insert(key(&name).as_slice(), answer(&name, 60, length), now);
                }
                if asks {
                    cache.get(key(&name).as_slice(), now);
                }
                prop_assert!(cache.octets <= cache.most);
                prop_assert_eq!(cache.octets, cache.entries.iter().map(|(key, entry)| entry.size(key)).sum::<usize>());
                prop_assert_eq!(cache.order.len(), cache.entries.len());
            }
        }
    }
}
