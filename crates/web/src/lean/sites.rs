//! Hosts as clients write them, and where their requests go: what was looked up once need not be again, until there is
//! another table.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use model::ObjectName;
use model::routes::{Entry, Host, HostRule, HttpTable};

use super::request;
use crate::choice::{EntryOutlook, Members};

/// Of one thread: several times what a busy gateway is asked for in a minute. When there are more, it begins anew.
const MAX_SITES: usize = 16 << 10;
/// Entries of one host that are remembered; others are looked up each time.
const MAX_ENTRIES: usize = 64;
/// How long an outlook is not asked for again: those that nobody asks for are forgotten after minutes.
const FRESH: Duration = Duration::from_secs(10);

/// Of one thread: nobody else takes the lock.
#[derive(Default)]
pub(super) struct Sites(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Held, so that no other table is where this one was.
    table: Option<Arc<HttpTable>>,
    by_host: HashMap<Box<str>, Site>,
}

struct Site {
    host: Arc<Host>,
    /// Whether it is by an `apps` wildcard, whose TLS does not end here.
    is_apps: bool,
    /// What members are asked for.
    text: Arc<str>,
    entries: Vec<(Arc<Entry>, Arc<EntryOutlook>, Instant)>,
}

/// Where a request goes.
pub(super) struct Found {
    pub(super) text: Arc<str>,
    pub(super) entry: Arc<Entry>,
    pub(super) outlook: Arc<EntryOutlook>,
}

impl Sites {
    /// None is for others to judge: nothing is served there, or not to this connection's tenant.
    pub(super) fn find(
        &self,
        host: &str,
        path: &str,
        (tenant, client): (Option<&ObjectName>, IpAddr),
        table: &Arc<HttpTable>,
        members: &Members,
        now: Instant,
    ) -> Option<Found> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.table.as_ref().is_some_and(|old| Arc::ptr_eq(old, table)) {
            known.by_host.clear();
            known.table = Some(Arc::clone(table));
        }
        if !known.by_host.contains_key(host) {
            let site = Site::look_up(host, table)?;
            if known.by_host.len() >= MAX_SITES {
                known.by_host.clear();
            }
            known.by_host.insert(host.into(), site);
        }
        let site = known.by_host.get_mut(host)?;
        if tenant.is_some_and(|tenant| site.is_apps || *tenant != site.host.tenant) || !site.host.admits(client) {
            return None;
        }
        let entry = site.host.entry(path)?;
        let outlook = match site.entries.iter_mut().find(|(known, ..)| Arc::ptr_eq(known, entry)) {
            Some((_, outlook, since)) if now.saturating_duration_since(*since) < FRESH => Arc::clone(outlook),
            Some((_, outlook, since)) => {
                *since = now;
                *outlook = members.of(entry, table, now);
                Arc::clone(outlook)
            }
            None => {
                let outlook = members.of(entry, table, now);
                if site.entries.len() < MAX_ENTRIES {
                    site.entries.push((Arc::clone(entry), Arc::clone(&outlook), now));
                }
                outlook
            }
        };
        Some(Found { text: Arc::clone(&site.text), entry: Arc::clone(entry), outlook })
    }
}

impl Site {
    fn look_up(host: &str, table: &HttpTable) -> Option<Self> {
        let asked = request::asked(host)?;
        let found = table.find(asked.name.as_ref()?)?;
        let (host, is_apps) = (Arc::clone(found.host), found.by == HostRule::Apps);
        Some(Self { host, is_apps, text: asked.text.into(), entries: Vec::new() })
    }
}
