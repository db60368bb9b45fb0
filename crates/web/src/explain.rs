//! What would become of a request, told beforehand, and which rules decide.
//!
//! The steps are those of a request, in its order and by the same code: [`crate::decision`], and [`crate::choice`] for the
//! member. Nothing is taken, counted or remembered by asking.

#[cfg(test)]
mod tests;
mod url;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use model::ingress::{Certificate, PathMatch, Steering};
use model::inside::{Denied, Place};
use model::overflow::{Basis, Destination, Row, Shed, Table, UNLIMITED};
use model::routes::{Entry, HostRule, HttpTable, Member};
use model::steering::{Known, Reason, Situation};
use model::{Blame, Cidr, ClusterName, DnsName, ObjectName, ObjectRef};

use crate::certificates::Certificates;
use crate::choice::{self, Members, Preferred, Visitor};
use crate::decision;
use crate::inward::Inward;
use crate::listen::{DoorKind, StartError};
use crate::refusal::Refusal;
use crate::settings::Settings;
pub use url::{BadUrl, MAX_URL, Url};

/// What the doors know, for those who look on from outside.
pub struct Insight {
    pub(crate) table: Arc<ArcSwap<HttpTable>>,
    pub(crate) members: Arc<Members>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) places: Arc<ArcSwapOption<geo::Map>>,
    pub(crate) trusted_proxies: Arc<[Cidr]>,
    pub(crate) redirect_port: Option<u16>,
    pub(crate) inward: Option<Inward>,
    /// Whether anything can be known of members.
    pub(crate) is_checking: bool,
}

impl fmt::Debug for Insight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Insight").finish_non_exhaustive()
    }
}

/// A request that nobody makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub url: Url,
    /// What the TLS hello names, where that is another host than the URL's: browsers use connections again.
    pub server_name: Option<DnsName>,
    /// Where the client is; without it nobody's place is known.
    pub from: Option<IpAddr>,
}

#[derive(Debug)]
pub struct Explanation {
    pub door: DoorKind,
    /// Whether `from` has to speak for others, so that another address than its own counts.
    pub is_trusted_proxy: bool,
    /// Where TLS ends here; none over plain HTTP.
    pub tls: Option<Tls>,
    pub verdict: Verdict,
    /// What of which object decides.
    pub rule: String,
    /// What who asks may not expect.
    pub remarks: Vec<String>,
    /// The rules for the host, where there are some.
    pub host: Option<HostFound>,
    /// The rule for the path, where there is one; also where the request is refused for another reason.
    pub route: Option<RouteFound>,
    /// Whom it would go to.
    pub choice: Option<Choice>,
}

#[derive(Debug)]
pub struct Tls {
    pub server_name: Option<DnsName>,
    pub shown: Option<Shown>,
}

/// A certificate that clients see.
#[derive(Debug)]
pub struct Shown {
    pub tenant: ObjectName,
    /// Where it is from, as far as that is known.
    pub secret: Option<Arc<ObjectRef>>,
    pub certificate: Arc<Certificate>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to the first of the members.
    Forwarded,
    /// The same, though nothing good is known of any.
    Doubtful,
    /// It is answered with this way to HTTPS.
    Redirected(String),
    Refused(Refusal),
}

#[derive(Debug)]
pub struct HostFound {
    pub by: HostRule,
    /// The name or wildcard of the rules, or the suffix below which rules without a host count.
    pub place: DnsName,
    pub tenant: ObjectName,
    /// The Ingresses whose rules these are, each once.
    pub ingresses: Vec<ObjectRef>,
    /// How many paths there are.
    pub paths: usize,
}

#[derive(Debug)]
pub struct RouteFound {
    /// The default backend has none.
    pub path: Option<PathMatch>,
    pub entry: Arc<Entry>,
}

/// The members, and who of them is chosen.
#[derive(Debug)]
pub struct Choice {
    pub situation: Situation,
    /// Where the client is, as far as that is known and matters.
    pub place: Option<geo::Place>,
    /// Whether their health and their times are known here.
    pub is_informed: bool,
    /// Where the measured load has a say.
    pub overflow: Option<Overflow>,
    /// In the order in which they are tried.
    pub members: Vec<Prospect>,
}

/// What the measured load says of requests like this one.
#[derive(Debug, Clone, PartialEq)]
pub struct Overflow {
    /// Where they belong by the mode alone; none where that is nobody in particular.
    pub home: Option<ClusterName>,
    /// How many come here in a second.
    pub demand: f64,
    /// The part that is refused.
    pub shed: f64,
}

/// What it says of a member.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The part of such requests that it gets.
    pub share: f64,
    /// Why: a fixed word, and a sentence.
    pub code: &'static str,
    pub text: String,
    /// Requests per second that it can take of all edges; none where that is not known.
    pub rate: Option<f64>,
    pub basis: Basis,
}

#[derive(Debug)]
pub struct Prospect {
    pub member: Arc<Member>,
    pub reason: Reason,
    pub known: Known,
    /// Requests that it has and has not answered yet.
    pub in_flight: u32,
    /// Where it is asked. Without any it is passed over.
    pub addresses: Vec<Place>,
    /// Of one that is reached through the tunnel: by how many ways it is reached now.
    pub links: Option<usize>,
    pub load: Option<Load>,
}

impl Insight {
    /// Of a process that has no such doors: what they would do is known, what they would find out is not.
    pub fn without_doors(table: &Arc<ArcSwap<HttpTable>>) -> Result<Self, StartError> {
        let settings = Settings { checks: false, ..Settings::default() };
        let (members, certificates) = (Members::new(Instant::now()), Certificates::new().map_err(StartError::Tls)?);
        Ok(Self::new(table, &Arc::new(members), &Arc::new(certificates), &settings))
    }

    pub(crate) fn new(
        table: &Arc<ArcSwap<HttpTable>>,
        members: &Arc<Members>,
        certificates: &Arc<Certificates>,
        settings: &Settings,
    ) -> Self {
        Self {
            table: Arc::clone(table),
            members: Arc::clone(members),
            certificates: Arc::clone(certificates),
            places: Arc::clone(&settings.places),
            trusted_proxies: Arc::clone(&settings.trusted_proxies),
            redirect_port: settings.redirect_port,
            inward: settings.inward.clone(),
            is_checking: settings.checks || settings.threads > 0,
        }
    }

    pub fn explain(&self, question: &Question, now: Instant) -> Explanation {
        let Question { url, server_name, from } = question;
        let table = self.table.load();
        let door = if url.is_https { DoorKind::Https } else { DoorKind::Http };
        let name = server_name.as_ref().or(url.asked.name.as_ref());
        let secured = url.is_https.then(|| decision::secure(&table, &self.certificates, name));
        let shown = secured.as_ref().and_then(|secured| secured.as_ref().ok()).map(|(host, _)| *host);
        let tls = url.is_https.then(|| Tls {
            server_name: name.cloned(),
            shown: shown.and_then(|host| {
                let certificate = Arc::clone(host.certificate.as_ref()?);
                Some(Shown { tenant: host.tenant.clone(), secret: host.secret.clone(), certificate })
            }),
        });
        let found = decision::find_entry(&table, &url.asked, url.path(), shown.map(|host| &host.tenant), *from);
        let refusal = secured.and_then(Result::err).or_else(|| found.as_ref().err().cloned());
        // What it would have met, whatever it was refused for.
        let found = found.or_else(|_| decision::find_entry(&table, &url.asked, url.path(), None, None)).ok();
        let choice = found.as_ref().map(|found| self.choose(found.entry, *from, now));
        let verdict = match (refusal, &found, &choice) {
            (Some(refusal), ..) => Verdict::Refused(refusal),
            (None, Some(found), Some(choice)) => self.judge(url, found.entry, choice),
            (None, ..) => Verdict::Refused(Refusal::NoRoute),
        };
        let host = url.asked.name.as_ref().and_then(|name| HostFound::look_up(&table, name));
        let rule = rule(&verdict, url, shown.map(|shown| &shown.tenant), host.as_ref(), found.as_ref());
        Explanation {
            door,
            is_trusted_proxy: from.is_some_and(|from| self.trusted_proxies.iter().any(|range| range.contains(from))),
            tls,
            verdict,
            rule,
            remarks: remarks(&table, url),
            host,
            route: found.map(|found| RouteFound { path: found.path.cloned(), entry: Arc::clone(found.entry) }),
            choice,
        }
    }

    /// A request that leads somewhere.
    fn judge(&self, url: &Url, entry: &Entry, choice: &Choice) -> Verdict {
        if decision::is_redirected(entry, url.is_https) {
            let location = decision::redirect(self.redirect_port, &url.asked, &url.target);
            return match location {
                Ok(location) => Verdict::Redirected(String::from_utf8_lossy(location.as_bytes()).into_owned()),
                Err(refusal) => Verdict::Refused(refusal),
            };
        }
        match choice.chosen() {
            None if choice.overflow.is_some() => Verdict::Refused(Refusal::AllFull),
            None => Verdict::Refused(Refusal::NoMember),
            Some(chosen) if chosen.links == Some(0) => {
                let source = if self.inward.is_some() { Denied::NoLink } else { Denied::NoTunnel };
                let why = chosen.addresses.first().map(ToString::to_string).unwrap_or_default();
                Verdict::Refused(Refusal::Inward { cluster: chosen.member.cluster.clone(), why, source })
            }
            Some(_) if choice.situation == Situation::Panic => Verdict::Doubtful,
            Some(_) => Verdict::Forwarded,
        }
    }

    fn choose(&self, entry: &Arc<Entry>, from: Option<IpAddr>, now: Instant) -> Choice {
        let outlook = self.members.find(&Destination::from(&**entry));
        let plan = outlook.as_ref().and_then(|outlook| outlook.plans.fresh(now));
        let known = |member: &Member| {
            let seen_here = outlook.as_ref().map(|outlook| outlook.expected(member, plan.as_deref(), now));
            entry.known(member, seen_here.unwrap_or_default())
        };
        let visitor = from.map(|address| Visitor { address, places: &self.places });
        let turn = outlook.as_ref().map_or(0, |outlook| outlook.turn());
        let Preferred { ranking, home } = choice::rank(entry, known, visitor.as_ref(), turn);
        let row = choice::ways(plan.as_deref(), &ranking, home).and(plan.as_ref());
        let row = row.and_then(|plan| plan.row(home.map(|home| &home.cluster)));
        // Where all are out, it is the mode's say after all.
        let row = row.filter(|(_, row)| row.why_shed != Some(Shed::AllOut));
        let ranked = ranking.reasons().filter_map(|ranked| Some((entry.members.get(ranked.member)?, ranked.reason)));
        let members = ranked.map(|(member, reason)| Prospect {
            member: Arc::clone(member),
            reason,
            known: known(member),
            in_flight: outlook.as_ref().and_then(|outlook| outlook.of(member)).map_or(0, |known| known.in_flight()),
            addresses: choice::places(entry, member).to_vec(),
            links: member.is_inside().then(|| self.inward.as_ref().map_or(0, |inward| inward.links(&member.cluster))),
            load: row.and_then(|(table, row)| Load::look_up(table, row, &member.cluster)),
        });
        let by_place = matches!(entry.policy.steering, Steering::Geo);
        let places = self.places.load();
        let located = places.as_ref().zip(from.filter(|_| by_place));
        Choice {
            situation: ranking.situation,
            place: located.and_then(|(places, from)| places.locate(from).place.cloned()),
            is_informed: self.is_checking,
            overflow: row.map(|(_, row)| Overflow {
                home: row.origin.home.clone(),
                demand: row.demand,
                shed: row.shed,
            }),
            members: members.collect(),
        }
    }
}

impl Load {
    fn look_up(table: &Table, row: &Row, cluster: &ClusterName) -> Option<Self> {
        let place = table.place(cluster)?;
        let (cell, (_, room)) = (row.cells.get(place)?, table.clusters.get(place)?);
        Some(Self {
            share: cell.share,
            code: cell.reason.code(),
            text: table.explain(cell),
            rate: (room.out.is_some() || room.rate < UNLIMITED).then_some(room.rate),
            basis: room.basis,
        })
    }
}

impl Choice {
    /// The first that can be asked; where the measured load has a say, the one that gets most of such requests. None where all of
    /// them are refused, or where there is nobody.
    pub fn chosen(&self) -> Option<&Prospect> {
        let mut left = self.members.iter().filter(|prospect| !prospect.addresses.is_empty());
        if self.overflow.is_none() {
            // One without a link is tried, and the next one at once.
            let first = left.next()?;
            if first.links != Some(0) {
                return Some(first);
            }
            return left.find(|prospect| prospect.links != Some(0)).or(Some(first));
        }
        let share = |prospect: &Prospect| prospect.load.as_ref().map_or(0.0, |load| load.share);
        let left = left.filter(|prospect| prospect.known.unhealthy.is_none() && share(prospect) > 0.0);
        // Of equals the first.
        left.reduce(|best, next| if share(next) > share(best) { next } else { best })
    }
}

impl HostFound {
    fn look_up(table: &HttpTable, name: &DnsName) -> Option<Self> {
        let found = table.find(name)?;
        let entries = found.host.routes().iter().map(|route| &route.entry).chain(found.host.default());
        let mut ingresses: Vec<ObjectRef> = Vec::new();
        for entry in entries {
            // In the order of their routes, not by name; there are a few.
            if !ingresses.contains(&entry.object) {
                ingresses.push(entry.object.clone());
            }
        }
        let (tenant, paths) = (found.host.tenant.clone(), found.host.routes().len());
        Some(Self { by: found.by, place: found.place.clone(), tenant, ingresses, paths })
    }
}

/// In words for people.
impl fmt::Display for HostFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            HostRule::Name | HostRule::Wildcard => write!(f, "host {}", self.place),
            HostRule::AnyHost => write!(f, "the rules without a host, below {}", self.place),
            HostRule::Apps => write!(f, "the apps wildcard *.{}", self.place),
        }
    }
}

/// What of which object the verdict comes from.
fn rule(
    verdict: &Verdict,
    url: &Url,
    shown: Option<&ObjectName>,
    host: Option<&HostFound>,
    found: Option<&decision::Found<'_>>,
) -> String {
    let (Some(name), path) = (&url.asked.name, url.path()) else {
        return "an address is nobody's host".into();
    };
    match (verdict, host, found) {
        (verdict, Some(HostFound { by: HostRule::Apps, .. }), Some(found)) => {
            let cluster = &found.entry.object.name;
            match verdict {
                Verdict::Refused(Refusal::NoServerName | Refusal::UnknownServerName(_) | Refusal::Misdirected) => {
                    format!("the apps wildcard of Cluster {cluster}: TLS ends in the cluster, and comes by --sni")
                }
                Verdict::Refused(Refusal::SourceNotAllowed) => format!("ingress.allowedSources of Cluster {cluster}"),
                _ => format!("the apps wildcard of Cluster {cluster}, by the tunnel"),
            }
        }
        (Verdict::Refused(Refusal::NoServerName | Refusal::UnknownServerName(_)), Some(host), _) => {
            format!("{host} has no certificate that can be used")
        }
        (_, None, _) => format!("no Ingress that is served has the host {name}"),
        (Verdict::Refused(Refusal::Misdirected), Some(host), _) => {
            let shown = shown.map_or("another tenant", ObjectName::as_str);
            format!("the certificate is of Tenant {shown}, the host of Tenant {}", host.tenant)
        }
        (_, Some(host), None) => {
            format!("none of the {} paths of {host} has {path}, and there is no default backend", host.paths)
        }
        (verdict, Some(host), Some(found)) => {
            let object = &found.entry.object;
            let way = match (verdict, found.path) {
                (Verdict::Redirected(_), _) => "annotation fleetgate.dev/redirect-to-https".to_owned(),
                (Verdict::Refused(Refusal::NoMember), _) => "no cluster serves it".to_owned(),
                (Verdict::Refused(Refusal::AllFull), _) => "all clusters are full, by the measured load".to_owned(),
                (_, Some(PathMatch::Exact(path))) => format!("{host}, path {path} (Exact)"),
                (_, Some(PathMatch::Prefix(path))) => format!("{host}, path {path} (Prefix)"),
                (_, None) => format!("{host}, defaultBackend"),
            };
            format!("{object}: {way}")
        }
    }
}

/// Clients and rules differ in what they take for the same path.
fn remarks(table: &HttpTable, url: &Url) -> Vec<String> {
    let mut remarks = Vec::new();
    let path = url.path();
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        remarks
            .push("browsers and curl resolve . and .. before they send a path; this one is taken as it stands".into());
    }
    let host = url.asked.name.as_ref().and_then(|name| table.host(name));
    if let (Some(host), Some(decoded)) = (host, decoded(path))
        && host.find(path).map(|(rule, _)| rule) != host.find(&decoded).map(|(rule, _)| rule)
    {
        remarks.push(format!(
            "paths are compared as they are sent: decoded, it would be {decoded}, which another rule has"
        ));
    }
    remarks
}

/// Without percent-encoding (RFC 3986 2.1); none where there is none, or no text behind it.
fn decoded(path: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, behind @ ..] = rest {
        let escaped = behind.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = escaped.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        if let Some(octet) = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            octets.push(octet);
            rest = &behind[2..];
        } else {
            octets.push(*first);
            rest = behind;
        }
    }
    String::from_utf8(octets).ok().filter(|decoded| decoded != path)
}

impl Explanation {
    /// In words for people.
    pub fn reason(&self) -> String {
        let cluster =
            || self.choice.as_ref().and_then(Choice::chosen).map_or("", |chosen| chosen.member.cluster.as_str());
        match &self.verdict {
            Verdict::Forwarded if self.choice.as_ref().is_some_and(|choice| choice.overflow.is_some()) => {
                format!("it is likely forwarded to the ingress of Cluster {}, by the measured load", cluster())
            }
            Verdict::Forwarded => {
                let links = self.choice.as_ref().and_then(Choice::chosen).and_then(|chosen| chosen.links);
                let way = match links {
                    None => String::new(),
                    Some(1) => ", through the tunnel by one link".to_owned(),
                    Some(links) => format!(", through the tunnel by {links} links"),
                };
                format!("it is forwarded to the ingress of Cluster {}{way}", cluster())
            }
            Verdict::Doubtful => {
                format!(
                    "no cluster is known to be well, so that all count as well; Cluster {} is tried first",
                    cluster()
                )
            }
            Verdict::Redirected(location) => format!("it is answered with the way to {location}"),
            Verdict::Refused(refusal) => refusal.to_string(),
        }
    }
}

impl Verdict {
    /// A fixed word: what metrics and the response's header would say of a refusal.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Forwarded => "Forwarded",
            Self::Doubtful => "Doubtful",
            Self::Redirected(_) => "Redirected",
            Self::Refused(refusal) => refusal.code(),
        }
    }

    pub fn blame(&self) -> Option<Blame> {
        match self {
            Self::Forwarded | Self::Redirected(_) => None,
            Self::Doubtful => Some(Blame::Backend),
            Self::Refused(refusal) => Some(refusal.blame()),
        }
    }

    /// What the client is told, where that is ours to say; those who are refused before there is a request are told nothing.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Redirected(_) => Some(http::StatusCode::PERMANENT_REDIRECT.as_u16()),
            Self::Forwarded | Self::Doubtful | Self::Refused(Refusal::NoServerName | Refusal::UnknownServerName(_)) => {
                None
            }
            Self::Refused(refusal) => Some(refusal.status().as_u16()),
        }
    }
}
