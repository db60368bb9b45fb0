//! A planner with a clock, facts as lines of text, and its snapshot as lines of text.
//!
//! ```text
//! zone main fleet.example since=1 ttl=30 grace=60 share=1 released=1000 gateway=192.0.2.10 ns=ns1.fleet.example/192.0.2.53 external handout dnssec
//!     file=soa/7,@/NS/ns.test,www/A/192.0.2.1 (one line; relative to the domain; no file by default)
//! tenant acme connections=10 rate=5 namespace=acme domains=a.test,b.test allow=192.0.2.0/24 names=lb.test records=5 released=1000
//! cluster c1 labels=env:prod http=192.0.2.1:80 https=192.0.2.1:443 connections=10 rate=5 since=1 tenant=acme zone=main id=c1 sni=a.test,b.test nodes=192.0.2.1+2001:db8::1,!192.0.2.2 hub service
//!     inner-http=ingress.web.svc:80 inner-https=10.0.0.1:443 from=192.0.2.0/24 (with hub: everybody, with no limit)
//!     class=nginx access=reachable placed=acme/web:unready,acme/web2:missing cut (or ready, pending, foreign; nothing by default)
//!     access=unseen kept=192.0.2.1+2001:db8::1/1061 (what is kept until 1061 seconds)
//! records acme/web since=1 cluster=c1 www.c1.fleet.example/A/192.0.2.1+192.0.2.2 www.c1.fleet.example/TXT/some:text/60
//! pool public 198.51.100.0/29 since=1 ns=ns1.fleet.example domain=pool.example ttl=300 rest=3600 (no name servers by default)
//! claim acme/web public since=1 IPv6 cluster=c1 ptr=www.c1.fleet.example address=198.51.100.1
//! address 198.51.100.1 acme/web public until=1061
//! policy federated labels=env:prod dns plain (vip over verified TLS by default)
//! class federated policy=federated foreign
//! secret acme/shop-tls bad
//! ingress acme/web since=1 class=fleetgate default=service tls=shop-tls:shop.acme.test+*.acme.test wrong-annotation nothing overrides=c1:nginx
//!     shop.acme.test/cart@service shop.acme.test/exact! /without/a/host shop.acme.test/bad?
//! broken cluster c1
//! number main 1000 0123456789abcdef0123456789abcdef
//! gone cluster c1
//! ```
//! Whatever is left out has the value shown, but for lists, which are empty, and the bare words, which turn something
//! on; there are no limits unless they are given. `!` marks a node that is not ready.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use super::super::*;
use crate::address::{AddressClaim, AddressPool, ClaimId, Reverse};
use crate::digest::Digest;
use crate::fact::{Number, Since};
use crate::ingress::{
    Backend, Certificate, EntryMode, FederationPolicy, Ingress, IngressClass, Override, PathMatch, PathPart, PathRule,
    Port, Rule, Tls, UpstreamTls,
};
use crate::inside::Inside;
use crate::name::DnsName;
use crate::network::Location;
use crate::placement::{BackendState, IngressPlace, Placement, PlacementFault, Placements};
use crate::policy::{Applicant, RecordClaim, Refused};
use crate::pool::Family;
use crate::record::{Exchange, RecordData, Server, Strings};
use crate::resolver::ResolverPart;
use crate::resource::{
    Access, ControlPlaneService, Endpoint, FrontDoor, IngressController, IngressMode, Limits, Nameserver, Node, Quota,
    RecordClaims, Upstream as Listener,
};
use crate::snapshot::{Condition, NameRecords, PartStatus, Soa};
use crate::steering::Known;
use crate::zone_file::{Builder, ZoneFile};

/// One zone and two tenants: what most tables build upon.
pub(super) const GROUND: &str = "
    zone main fleet.example
    tenant acme
    tenant initech
";

pub(super) struct Fleet {
    pub(super) planner: Planner,
    pub(super) planned: Planned,
}

impl Fleet {
    pub(super) fn new() -> Self {
        let nothing = Planner::default().apply([], at(1000));
        Self { planner: Planner::default(), planned: nothing }
    }

    /// [`GROUND`] and more, as one plan at 1000 seconds.
    pub(super) fn grounded(more: &str) -> Self {
        let mut fleet = Self::new();
        fleet.plan(1000, &format!("{GROUND}\n{more}"));
        fleet
    }

    pub(super) fn plan(&mut self, seconds: u64, lines: &str) -> &Planned {
        self.planned = self.planner.apply(facts(lines), at(seconds));
        &self.planned
    }

    /// `Valid`, or the refusal's code and its message.
    pub(super) fn verdict(&self, kind: Kind, name: &str) -> String {
        let condition = self.condition(kind, name, Condition::ACCEPTED);
        let parts = [condition.reason, condition.message.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }

    pub(super) fn condition(&self, kind: Kind, name: &str, condition: &str) -> Condition {
        let object = ObjectRef::cluster_scoped(kind, name.parse().unwrap());
        let status = self.planned.snapshot.status(&object).unwrap_or_else(|| panic!("{object} has no status"));
        let found = status.conditions.iter().find(|found| found.kind == condition);
        found.unwrap_or_else(|| panic!("{object} has no condition {condition}")).clone()
    }

    pub(super) fn accepted_clusters(&self) -> Vec<String> {
        let mut names: Vec<_> = self.planned.snapshot.clusters.keys().map(ToString::to_string).collect();
        names.sort();
        names
    }

    /// The names that a cluster contributes.
    pub(super) fn names(&self, cluster: &str) -> Vec<String> {
        let part = self.planned.snapshot.cluster(&cluster.parse().unwrap());
        part.map_or_else(Vec::new, |part| part.names.iter().flat_map(lines).collect())
    }

    /// Which cluster and service a cluster id leads to.
    pub(super) fn by_id(&self, id: &str) -> Option<String> {
        let route = self.planned.snapshot.route_by_id(id.as_bytes())?;
        Some(format!("{} {}", route.cluster, route.service))
    }

    /// Which cluster and service a server name leads to.
    pub(super) fn by_server_name(&self, name: &str) -> Option<String> {
        let route = self.planned.snapshot.route_by_server_name(&parse(name))?;
        Some(format!("{} {}", route.cluster, route.service))
    }

    /// Which cluster, service and target inside a server name leads to by an `apps` wildcard.
    pub(super) fn by_apps(&self, name: &str) -> Option<String> {
        let route = self.planned.snapshot.route_by_apps(&parse(name))?;
        let targets: Vec<_> = route.inside.iter().map(ToString::to_string).collect();
        Some(format!("{} {} {}", route.cluster, route.service, targets.join(",")))
    }

    /// What a claim of records came to: for each endpoint `published`, or the refusal's code and the field at fault.
    pub(super) fn parts(&self, object: &str) -> Vec<String> {
        let status = self.planned.snapshot.status(&records_object(object));
        let status = status.unwrap_or_else(|| panic!("{object} has no status"));
        let Detail::Records { parts, .. } = &status.detail else { panic!("{object} has {:?}", status.detail) };
        let told = |part: &PartStatus| match &part.outcome {
            Ok(_) => "published".to_owned(),
            Err(refused) => format!("{} {}", refused.refusal.code(), refused.field),
        };
        parts.iter().map(told).collect()
    }

    /// Why the first endpoint is refused.
    pub(super) fn reason(&self, object: &str) -> String {
        let status = self.planned.snapshot.status(&records_object(object)).unwrap();
        let Detail::Records { parts, .. } = &status.detail else { panic!("{object} has {:?}", status.detail) };
        parts[0].outcome.as_ref().unwrap_err().refusal.to_string()
    }

    /// What would become of a tenant's endpoints.
    pub(super) fn judge(&self, tenant: &str, words: &[String]) -> Vec<Result<(), Refused>> {
        let claims: Vec<_> = words.iter().map(|word| endpoint(word).claim).collect();
        self.planned.snapshot.judge(&Applicant { tenant: parse(tenant), cluster: None }, &claims)
    }

    /// What stands at a name that a tenant claimed.
    pub(super) fn claimed(&self, name: &str) -> Vec<String> {
        self.planned.snapshot.tenant_name(&parse(name)).map_or_else(Vec::new, |held| lines(&held.records))
    }

    /// Where a request goes: the Ingress, the service and the members; `!` marks one that is known not to serve.
    pub(super) fn request(&self, url: &str) -> Option<String> {
        let (host, path) = url.split_once('/').unwrap();
        let host = self.planned.snapshot.http().host(&parse(host))?;
        let entry = host.entry(&format!("/{path}"))?;
        let members = entry.members.iter().map(|member| {
            let is_out = entry.known(member, Known::default()).unhealthy.is_some();
            format!("{}{}", if is_out { "!" } else { "" }, member.cluster)
        });
        let members: Vec<_> = members.collect();
        assert_eq!(entry.tenant, host.tenant);
        Some(format!("{} {} {}", entry.object.name, entry.backend.service, members.join(",")))
    }

    /// What an Ingress came to: the refusal of all of it, or each part with its refusal.
    pub(super) fn ingress(&self, name: &str) -> Vec<String> {
        let Some(status) = self.planned.snapshot.status(&object(Kind::Ingress, name)) else { return Vec::new() };
        if let Some(refusal) = status.refusal() {
            return vec![format!("{}: {}", refusal.reason, refusal.message)];
        }
        let told = |(part, outcome): (&str, Result<(), &Refused>)| match outcome {
            Ok(()) => part.to_owned(),
            Err(refused) => format!("{part}: {} {}", refused.refusal.code(), refused.field).trim_end().to_owned(),
        };
        status.detail.parts().into_iter().map(told).collect()
    }

    pub(super) fn serial(&self, zone: &str) -> u32 {
        self.planned.snapshot.zone(&parse(zone)).unwrap().soa.serial
    }
}

pub(super) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix(Duration::from_secs(seconds))
}

/// A line per record set.
pub(super) fn lines(name: &NameRecords) -> Vec<String> {
    let data = |data: &RecordData| format!("{} {}", data.type_name(), data.to_text().join(" "));
    name.records.iter().map(|set| format!("{} {} {}", name.name, set.ttl, data(&set.data))).collect()
}

pub(super) fn facts(lines: &str) -> Vec<FactChange> {
    lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(fact).collect()
}

fn fact(line: &str) -> FactChange {
    let words: Vec<&str> = line.split_whitespace().collect();
    match *words.as_slice() {
        ["zone", name, domain, ref settings @ ..] => {
            let settings = Settings(settings);
            FactChange::Zone(parse(name), Some(settings.fact(zone(name, domain, &settings))))
        }
        ["tenant", name, ref settings @ ..] => {
            let settings = Settings(settings);
            FactChange::Tenant(parse(name), Some(settings.fact(tenant(name, &settings))))
        }
        ["cluster", name, ref settings @ ..] => {
            let settings = Settings(settings);
            FactChange::Cluster(parse(name), Some(settings.fact(cluster(name, &settings))))
        }
        ["records", name, ref settings @ ..] => {
            let settings = Settings(settings);
            FactChange::Records(records_object(name), Some(settings.fact(claims(&settings))))
        }
        ["gone", "records", name] => FactChange::Records(records_object(name), None),
        ["policy", name, ref settings @ ..] => {
            let settings = Settings(settings);
            FactChange::FederationPolicy(parse(name), Some(settings.fact(Arc::new(policy(&settings)))))
        }
        ["class", name, ref settings @ ..] => {
            let settings = Settings(settings);
            let (ours, policy) = (!settings.has("foreign"), settings.get("policy").map(parse));
            let class = IngressClass { ours, policy, hindrance: None };
            FactChange::IngressClass(parse(name), Some(settings.fact(class)))
        }
        ["secret", name, ref settings @ ..] => {
            let object = object(Kind::Secret, name);
            let bad = Refusal::BadCertificate { name: object.name.clone(), reason: "a test says so".into() };
            let digest = Digest::of_text(line.as_bytes());
            let certificate = Arc::new(Certificate { chain: Vec::new(), key: Vec::new(), digest });
            let found = if Settings(settings).has("bad") { Err(bad) } else { Ok(certificate) };
            FactChange::Certificate(object, Some(found))
        }
        ["ingress", name, ref settings @ ..] => {
            let settings = Settings(settings);
            FactChange::Ingress(object(Kind::Ingress, name), Some(settings.fact(ingress(&settings))))
        }
        ["gone", "ingress", name] => FactChange::gone(&object(Kind::Ingress, name)),
        ["gone", "secret", name] => FactChange::gone(&object(Kind::Secret, name)),
        ["gone", "class", name] => FactChange::IngressClass(parse(name), None),
        ["pool", name, ranges, ref settings @ ..] => {
            let settings = Settings(settings);
            FactChange::AddressPool(parse(name), Some(settings.fact(pool(name, ranges, &settings))))
        }
        ["claim", id, pool, ref settings @ ..] => {
            let settings = Settings(settings);
            let claim = AddressClaim {
                pool: parse(pool),
                family: if settings.has("IPv6") { Family::V6 } else { Family::V4 },
                cluster: settings.get("cluster").map(parse),
                ptr: settings.get("ptr").map(parse),
                address: settings.get("address").map(parse),
            };
            FactChange::AddressClaim(claim_id(id), Some(settings.fact(claim)))
        }
        ["address", address, claim, pool, ref settings @ ..] => {
            let released_until = Settings(settings).get("until").map(|until| at(parse(until)));
            let claim = claim_id(claim);
            let allocation = Allocation { pool: parse(pool), claim, uid: "1".into(), released_until };
            FactChange::Address(parse(address), Some(allocation))
        }
        ["gone", "claim", id] => FactChange::AddressClaim(claim_id(id), None),
        ["gone", "address", address] => FactChange::Address(parse(address), None),
        ["broken", kind, name] => {
            let kind = Kind::find(kind).unwrap_or_else(|| panic!("no kind: {kind}"));
            let refusal = Refusal::Malformed { reason: "a test says so".into() };
            FactChange::Broken(ObjectRef::cluster_scoped(kind, parse(name)), refusal)
        }
        ["number", name, serial, digest] => {
            let number = Number { serial: parse(serial), digest: parse(digest) };
            FactChange::Number(parse(name), Some(number))
        }
        ["gone", "zone", name] => FactChange::Zone(parse(name), None),
        ["gone", "tenant", name] => FactChange::Tenant(parse(name), None),
        ["gone", "cluster", name] => FactChange::Cluster(parse(name), None),
        ["gone", "pool", name] => FactChange::AddressPool(parse(name), None),
        ["gone", "policy", name] => FactChange::FederationPolicy(parse(name), None),
        _ => panic!("no fact: {line}"),
    }
}

struct Settings<'a>(&'a [&'a str]);

impl<'a> Settings<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }

    fn list(&self, key: &str) -> impl Iterator<Item = &'a str> {
        self.get(key).into_iter().flat_map(|values| values.split(','))
    }

    fn limits(&self) -> Limits {
        Limits {
            connections: self.get("connections").map(parse),
            new_connections_per_second: self.get("rate").map(parse),
        }
    }

    fn fact<T>(&self, value: T) -> Fact<T> {
        let since = Since::at(at(parse(self.get("since").unwrap_or("1"))));
        Fact { since, generation: self.get("generation").map(parse), value }
    }
}

fn zone(name: &str, domain: &str, settings: &Settings<'_>) -> Zone {
    let nameserver = |text: &str| {
        let (name, given) = text.split_once('/').unwrap_or((text, ""));
        Nameserver { name: parse(name), addresses: addresses(given) }
    };
    let default_server = format!("ns1.{domain}/192.0.2.53");
    let nameservers = match settings.get("ns") {
        Some("none") => Vec::new(),
        Some(servers) => servers.split(',').map(nameserver).collect(),
        None => vec![nameserver(&default_server)],
    };
    let gateway = match settings.get("gateway").unwrap_or("192.0.2.10") {
        "none" => None,
        text if text.split('+').all(|part| part.parse::<IpAddr>().is_ok()) => {
            Some(FrontDoor::Addresses(addresses(text)))
        }
        hostname => Some(FrontDoor::Hostname(parse(hostname))),
    };
    Zone {
        name: parse(name),
        domain: parse(domain),
        nameservers,
        ttl: parse(settings.get("ttl").unwrap_or("30")),
        api: parse(settings.get("api").unwrap_or("api.{cluster}")),
        apps: parse(settings.get("apps").unwrap_or("*.{cluster}")),
        gateway,
        zone_file: settings.get("file").map(|records| Arc::new(zone_file(domain, records))),
        authoritative: !settings.has("external"),
        hand_out: settings.has("handout"),
        grace: Duration::from_secs(parse(settings.get("grace").unwrap_or("60"))),
        max_share: parse(settings.get("share").unwrap_or("1")),
        released: settings.get("released").map(|seconds| at(parse(seconds))),
        hindrance: settings.has("dnssec").then_some(Refusal::NotYet("spec.dnssec")),
    }
}

/// `soa/SERIAL` and `OWNER/TYPE/DATA`, by commas.
pub(super) fn zone_file(domain: &str, records: &str) -> ZoneFile {
    let apex: DnsName = parse(domain);
    let mut builder = Builder::new(apex.clone());
    for record in records.split(',') {
        let pushed = match *record.split('/').collect::<Vec<_>>().as_slice() {
            ["soa", serial] => {
                let (primary, mailbox) = (parse("primary.test"), parse("mailbox.test"));
                let (refresh, retry, expire) = (1, 2, 3);
                let serial = parse(serial);
                let soa = Soa { ttl: 5, primary, mailbox, serial, refresh, retry, expire, minimum: 4 };
                builder.at(apex.as_wire()).and_then(|()| builder.set_soa(soa))
            }
            [owner, rtype, data] => {
                let owner = if owner == "@" { apex.clone() } else { apex.prepend(owner).unwrap() };
                let name = || parse::<DnsName>(data).as_wire().to_vec();
                let (rtype, data) = match rtype {
                    "A" => (1, parse::<std::net::Ipv4Addr>(data).octets().to_vec()),
                    "NS" => (2, name()),
                    "CNAME" => (5, name()),
                    "TXT" => (16, data.as_bytes().to_vec()),
                    "DNAME" => (39, name()),
                    _ => panic!("no record: {record}"),
                };
                builder.at(owner.as_wire()).and_then(|()| builder.push(rtype, 5, &data, 0))
            }
            _ => panic!("no record: {record}"),
        };
        pushed.unwrap();
    }
    builder.finish().unwrap()
}

fn tenant(name: &str, settings: &Settings<'_>) -> Tenant {
    Tenant {
        name: parse(name),
        namespace: parse(settings.get("namespace").unwrap_or(name)),
        domains: settings.list("domains").map(parse).collect(),
        allowed_names: settings.get("names").map(|names| names.split(',').map(parse).collect()),
        allowed_targets: settings.list("allow").map(parse).collect(),
        quota: Quota {
            records: settings.get("records").map(parse),
            addresses: settings.get("addresses").map(parse),
            ..Quota::default()
        },
        released: settings.get("released").map(|seconds| at(parse(seconds))),
        limits: settings.limits(),
    }
}

fn pool(name: &str, ranges: &str, settings: &Settings<'_>) -> AddressPool {
    let nameservers: Vec<DnsName> = settings.list("ns").map(parse).collect();
    let (domain, ttl) = (settings.get("domain").unwrap_or("pool.example"), settings.get("ttl").unwrap_or("300"));
    let reverse = Reverse { nameservers, domain: parse(domain), ttl: parse(ttl) };
    AddressPool {
        name: parse(name),
        ranges: ranges.split(',').map(parse).collect(),
        reverse: (!reverse.nameservers.is_empty()).then_some(reverse),
        quarantine: Duration::from_secs(parse(settings.get("rest").unwrap_or("3600"))),
    }
}

pub(super) fn claim_id(text: &str) -> ClaimId {
    let (namespace, name) = text.split_once('/').unwrap_or_else(|| panic!("no namespace: {text}"));
    ClaimId { namespace: parse(namespace), name: parse(name) }
}

fn records_object(name: &str) -> ObjectRef {
    object(Kind::DnsEndpoint, name)
}

pub(super) fn object(kind: Kind, name: &str) -> ObjectRef {
    let (namespace, name) = name.split_once('/').unwrap_or_else(|| panic!("no namespace: {name}"));
    ObjectRef { kind, namespace: Some(parse(namespace)), name: parse(name) }
}

fn labels(settings: &Settings<'_>) -> BTreeMap<String, String> {
    let pair = |text: &str| text.split_once(':').map(|(key, value)| (key.to_owned(), value.to_owned()));
    settings.list("labels").filter_map(pair).collect()
}

fn policy(settings: &Settings<'_>) -> FederationPolicy {
    FederationPolicy {
        selector: labels(settings),
        entry: if settings.has("dns") { EntryMode::Dns } else { EntryMode::Vip },
        upstream: if settings.has("plain") { UpstreamTls::Plain } else { UpstreamTls::default() },
        ..FederationPolicy::default()
    }
}

fn ingress(settings: &Settings<'_>) -> Ingress {
    let backend = |service: &str| Backend { service: parse(service), port: Port::Number(80) };
    let paths = settings.0.iter().filter(|word| word.contains('/'));
    let rules = paths.enumerate().map(|(number, word)| {
        let (host, path) = word.split_once('/').unwrap();
        let (path, service) = path.split_once('@').unwrap_or((path, "web"));
        let written: Arc<str> = format!("/{}", path.trim_end_matches(['!', '?'])).into();
        let matching = if path.ends_with('!') { PathMatch::Exact } else { PathMatch::Prefix };
        let bad = || Refused::new(Refusal::BadPath { reason: "a test says so".into() }, "path");
        let good = PathRule { path: matching(Arc::clone(&written)), backend: backend(service) };
        let rule = if path.ends_with('?') { Err(bad()) } else { Ok(good) };
        Rule {
            field: format!("rules[{number}]").into(),
            host: Ok((!host.is_empty()).then(|| parse(host))),
            paths: vec![PathPart { written, rule }],
        }
    });
    let tls = settings.get("tls").map(|text| text.split_once(':').unwrap_or((text, "")));
    let tls = tls.map(|(secret, hosts)| Tls {
        field: "tls[0]".into(),
        hosts: hosts.split('+').filter(|host| !host.is_empty()).map(parse).collect(),
        secret: Ok(parse(secret)),
    });
    let wrong = Refused::new(Refusal::BadAnnotation { reason: "a test says so".into() }, "annotations");
    Ingress {
        class: Some(parse(settings.get("class").unwrap_or("fleetgate"))),
        default_backend: settings.get("default").map(|service| Ok(backend(service))),
        rules: rules.collect(),
        tls: tls.into_iter().collect(),
        options: Arc::default(),
        overrides: settings.list("overrides").map(override_of).collect(),
        wrong_annotations: settings.has("wrong-annotation").then(|| ("a/b".into(), wrong)).into_iter().collect(),
        hindrance: settings.has("nothing").then_some(Refusal::NothingToServe),
    }
}

fn claims(settings: &Settings<'_>) -> RecordClaims {
    let is_setting = |word: &str| ["since=", "cluster=", "generation="].iter().any(|key| word.starts_with(key));
    let endpoints = settings.0.iter().filter(|word| !is_setting(word));
    RecordClaims {
        cluster: settings.get("cluster").map(parse),
        endpoints: endpoints.map(|word| endpoint(word)).collect(),
        ..RecordClaims::default()
    }
}

/// `NAME/TYPE/VALUE+VALUE/TTL`, with `:` for spaces, and pictures for what would end a line.
fn endpoint(word: &str) -> Endpoint {
    let mut parts = word.split('/');
    let (name, rtype, values) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let numbers = |value: &str| value.split(':').map(str::to_owned).collect::<Vec<_>>();
    let values = values.split('+');
    let data = match rtype {
        "A" => RecordData::A(values.map(parse).collect()),
        "AAAA" => RecordData::Aaaa(values.map(parse).collect()),
        "CNAME" => RecordData::Cname(values.map(parse).next().unwrap()),
        "NS" => RecordData::Ns(values.map(parse).collect()),
        "PTR" => RecordData::Ptr(values.map(parse).next().unwrap()),
        "TXT" => RecordData::Txt(
            values
                .map(|text| Strings::of_text(text.replace(':', " ").replace('␊', "\n").replace('␀', "\0").as_bytes()))
                .collect(),
        ),
        "MX" => {
            let exchange = |words: Vec<String>| Exchange { preference: parse(&words[0]), host: parse(&words[1]) };
            RecordData::Mx(values.map(numbers).map(exchange).collect())
        }
        "SRV" => {
            let server = |words: Vec<String>| Server {
                priority: parse(&words[0]),
                weight: parse(&words[1]),
                port: parse(&words[2]),
                host: parse(&words[3]),
            };
            RecordData::Srv(values.map(numbers).map(server).collect())
        }
        _ => panic!("no type: {rtype}"),
    };
    let claim = RecordClaim { name: parse(name), ttl: parts.next().map(parse), data };
    Endpoint { part: format!("{name} {rtype}").into(), since: None, claim: Ok(claim) }
}

fn cluster(name: &str, settings: &Settings<'_>) -> Cluster {
    let services = settings.list("sni").enumerate().map(|(position, sni)| ControlPlaneService {
        name: format!("service-{position}").into(),
        sni: parse::<DnsName>(sni),
        addresses: vec![parse("10.0.0.8:8091")],
    });
    let nodes = settings.list("nodes").enumerate().map(|(position, text)| Node {
        name: format!("n{position}"),
        addresses: addresses(text.trim_start_matches('!')),
        ready: !text.starts_with('!'),
    });
    let listener = Listener::Addresses(vec![parse("10.0.0.7:6443")]);
    let hub_service = Listener::Service { namespace: parse("hub"), name: parse(name), port: 6443 };
    Cluster {
        name: parse(name),
        labels: labels(settings),
        tenant: parse(settings.get("tenant").unwrap_or("acme")),
        zone: parse(settings.get("zone").unwrap_or("main")),
        id: parse(settings.get("id").unwrap_or(name)),
        location: Location::default(),
        api_server: if settings.has("service") { hub_service } else { listener },
        services: services.collect(),
        nodes: nodes.collect(),
        access: settings.get("access").map(|text| access(text, settings)),
        ingress: if settings.has("hub") { IngressMode::Hub } else { IngressMode::Nodes },
        controller: IngressController {
            class: settings.get("class").map(Into::into),
            http: settings.list("http").map(parse).collect(),
            https: settings.list("https").map(parse).collect(),
            inside: Arc::new(Inside {
                http: settings.list("inner-http").map(parse).collect(),
                https: settings.list("inner-https").map(parse).collect(),
                allowed_sources: [parse(settings.get("from").unwrap_or("0.0.0.0/0"))].into(),
                limits: Limits::default(),
            }),
        },
        allowed_sources: [parse("0.0.0.0/0")].into(),
        proof: Arc::default(),
        limits: settings.limits(),
        resolver: ResolverPart::default(),
        kept: settings.get("kept").map(|text| kept_set(name, text)),
        drained: settings.get("drained").map(|seconds| at(parse(seconds))),
        hindrance: settings.has("proof").then_some(Refusal::NotYet("spec.proof")),
        closed: None,
    }
}

fn access(text: &str, settings: &Settings<'_>) -> Access {
    let reachable = match text {
        "unseen" => None,
        "reachable" => Some(true),
        "unreachable" => Some(false),
        _ => panic!("no access: {text}"),
    };
    let ingresses = settings.list("placed").map(placement).collect();
    let placements = Arc::new(Placements { ingresses, is_cut: settings.has("cut") });
    Access { namespace: parse("fleetgate-system"), name: parse("kubeconfig"), reachable, placements }
}

/// `NAMESPACE/NAME:STATE`; the state is that of every backend.
fn placement(text: &str) -> (IngressPlace, Placement) {
    let (place, word) = text.split_once(':').unwrap_or_else(|| panic!("no placement: {text}"));
    let (namespace, name) = place.split_once('/').unwrap_or_else(|| panic!("no place: {text}"));
    let (fault, is_found, is_ready) = match word {
        "ready" => (None, true, Some(true)),
        "unready" => (None, true, Some(false)),
        "missing" => (None, false, None),
        "pending" => (Some(PlacementFault::Pending), true, Some(true)),
        "foreign" => (Some(PlacementFault::AlreadyThere), true, Some(true)),
        _ => panic!("no placement: {text}"),
    };
    let state = BackendState { is_found: Some(is_found), is_ready };
    let backend = |service: &str| Backend { service: parse(service), port: Port::Number(80) };
    let backends = ["web", "b", "d"].map(|service| (backend(service), state)).into_iter().collect();
    ((parse(namespace), parse(name)), Placement { is_there: fault.is_none(), fault, backends })
}

/// `CLUSTER:CLASS`
fn override_of(text: &str) -> (ClusterName, Arc<Override>) {
    let (cluster, class) = text.split_once(':').unwrap_or_else(|| panic!("no override: {text}"));
    let annotations = BTreeMap::from([("class".to_owned(), class.to_owned())]);
    (parse(cluster), Arc::new(Override { class: Some(parse(class)), annotations }))
}

/// `ADDRESSES/SECONDS`
fn kept_set(cluster: &str, text: &str) -> KeptSet {
    let (given, until) = text.split_once('/').unwrap_or_else(|| panic!("no kept set: {text}"));
    let name = parse(&format!("*.{cluster}.fleet.example"));
    KeptSet { name, addresses: addresses(given), until: at(parse(until)) }
}

fn addresses(text: &str) -> Vec<IpAddr> {
    text.split('+').filter(|part| !part.is_empty()).map(parse).collect()
}

fn parse<T: FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error:?}"))
}
