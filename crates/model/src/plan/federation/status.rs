//! What is said of an Ingress, part by part.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::merge::{Merged, Slot};
use super::placing::Placing;
use super::{Federation, State, World};
use crate::identity::{ClusterName, Kind, ObjectName, ObjectRef};
use crate::ingress::{EntryMode, OVERRIDE, Rule, Tls};
use crate::name::DnsName;
use crate::plan::records::Records;
use crate::policy::Refused;
use crate::record::RecordData;
use crate::refusal::Refusal;
use crate::snapshot::{Condition, Detail, EntryPoint, IngressPart, PublishedSet, Status};

/// Of one Ingress. They stand in its status, which people read; DNS has them all.
const MOST_ENTRY_POINTS: usize = 64;

/// What was merged already in this plan.
pub(super) struct Seen {
    pub(super) merged: HashMap<DnsName, Merged>,
    pub(super) everywhere: HashMap<ObjectName, Merged>,
}

impl Federation {
    /// `None` for what is gone, and for Ingresses that are not ours.
    pub(super) fn status(
        &self,
        object: &ObjectRef,
        records: &Records,
        world: &World<'_>,
        seen: &mut Seen,
    ) -> Option<Status> {
        if object.kind != Kind::Ingress {
            return self.plain_status(object, world);
        }
        let Some(state) = self.objects.get(object) else {
            return world.broken.get(object).map(Status::refused);
        };
        let Some(placing) = &state.placing else { return world.broken.get(object).map(Status::refused) };
        let status = match placing {
            Err(refusal) => Status::refused(refusal),
            Ok(placing) => {
                for host in state.ingress.hosts() {
                    if !seen.merged.contains_key(host) {
                        seen.merged.extend(self.merge_host(host, records).map(|all| (host.clone(), all)));
                    }
                }
                if state.ingress.is_everywhere() && !seen.everywhere.contains_key(&placing.tenant) {
                    let objects = self.everywhere_of(&placing.tenant);
                    let all = self.merge(None, &placing.tenant, &objects.iter().collect::<Vec<_>>());
                    seen.everywhere.insert(placing.tenant.clone(), all);
                }
                let own_clusters = world.clusters_of_tenant.get(&placing.tenant);
                let told = Told { federation: self, object, state, placing, records, seen, own_clusters };
                told.status()
            }
        };
        Some(status.of_generation(state.generation))
    }
}

/// All that a status is made of.
struct Told<'a> {
    federation: &'a Federation,
    object: &'a ObjectRef,
    state: &'a State,
    placing: &'a Placing,
    records: &'a Records,
    seen: &'a Seen,
    /// The clusters of the tenant.
    own_clusters: Option<&'a BTreeSet<ClusterName>>,
}

impl Told<'_> {
    fn status(&self) -> Status {
        let parts: Vec<IngressPart> = [self.annotations(), self.paths(), self.default(), self.tls(), self.members()]
            .into_iter()
            .flatten()
            .collect();
        let members: Vec<_> = self.placing.members.iter().map(|member| member.cluster.clone()).collect();
        let placed = match members.len() {
            0 => Condition::new(Condition::PLACED, false, "NoMember", "no cluster of yours serves it"),
            count => Condition::new(Condition::PLACED, true, "Placed", format!("{count} clusters serve it")),
        };
        let published = self.published_condition(&parts);
        let detail = Detail::Ingress {
            members,
            parts,
            published: self.published(),
            copies: self.placing.copies.clone(),
            entry_points: self.entry_points(),
        };
        Status::accepted([published, placed], detail)
    }

    fn published_condition(&self, parts: &[IngressPart]) -> Condition {
        let good = parts.iter().filter(|part| part.outcome.is_ok()).count();
        let unnamed = self.own_claims().find(|claim| claim.ask.placed.is_some() && claim.ask.sets.is_empty());
        if let Some(claim) = unnamed {
            let message =
                format!("{good} of {} parts; nothing is known that {} could lead to", parts.len(), claim.ask.host);
            return Condition::new(Condition::PUBLISHED, false, "NoGateway", message);
        }
        let (all, message) = (good == parts.len(), format!("{good} of {} parts", parts.len()));
        Condition::new(Condition::PUBLISHED, all, if all { "AllPublished" } else { "SomeRefused" }, message)
    }

    /// Its claims to hosts that it has.
    fn own_claims(&self) -> impl Iterator<Item = &crate::plan::records::hosts::HostClaim> {
        let hosts = self.placing.hosts.keys();
        let claims =
            hosts.flat_map(|host| self.records.hosts.line(host).iter().filter(|claim| claim.object() == self.object));
        claims.filter(|claim| claim.verdict.is_ok())
    }

    /// Of several Ingresses that share a host, the senior has the name.
    fn published(&self) -> Vec<PublishedSet> {
        let first = |host: &DnsName| {
            let mut line = self.records.hosts.line(host).iter();
            line.find(|claim| claim.verdict.is_ok()).is_some_and(|claim| claim.object() == self.object)
        };
        let claims = self.own_claims().filter(|claim| first(&claim.ask.host));
        let sets = claims.filter_map(|claim| Some((claim, claim.ask.placed.as_ref()?)));
        let published = sets.flat_map(|(claim, placed)| {
            claim.ask.sets.iter().map(|set| PublishedSet {
                name: claim.ask.host.clone(),
                set: set.clone(),
                hand_out: placed.hand_out,
            })
        });
        published.collect()
    }

    /// By our gateways where DNS leads to them, or straight to the members.
    fn entry_points(&self) -> Vec<EntryPoint> {
        let mut points: BTreeSet<EntryPoint> = match self.placing.policy.entry {
            EntryMode::Dns => self.placing.live_addresses().map(EntryPoint::Address).collect(),
            EntryMode::Vip => {
                let sets = self.own_claims().flat_map(|claim| &claim.ask.sets);
                sets.flat_map(|set| match &set.data {
                    RecordData::A(addresses) => addresses.iter().map(|at| EntryPoint::Address((*at).into())).collect(),
                    RecordData::Aaaa(addresses) => {
                        addresses.iter().map(|at| EntryPoint::Address((*at).into())).collect()
                    }
                    RecordData::Cname(name) => vec![EntryPoint::Name(name.clone())],
                    _ => Vec::new(),
                })
                .collect()
            }
        };
        while points.len() > MOST_ENTRY_POINTS {
            points.pop_last();
        }
        points.into_iter().collect()
    }

    fn annotations(&self) -> Vec<IngressPart> {
        let wrong = self.state.ingress.wrong_annotations.iter();
        let wrong = wrong.map(|(name, refused)| (Arc::clone(name), refused.clone()));
        let own = |name: &ClusterName| self.own_clusters.is_some_and(|own| own.contains(name));
        let nowhere = self.state.ingress.overrides.keys().filter(|name| !own(name)).map(|name| {
            let annotation = format!("{OVERRIDE}{name}");
            let field = format!("metadata.annotations[{annotation}]");
            (annotation.into(), Refused::new(Refusal::NotYourCluster(name.clone()), field))
        });
        wrong.chain(nowhere).map(|(part, refused)| IngressPart { part, outcome: Err(refused) }).collect()
    }

    fn paths(&self) -> Vec<IngressPart> {
        let mut parts = Vec::new();
        for (number, rule) in self.state.ingress.rules.iter().enumerate() {
            let host = match &rule.host {
                Ok(Some(host)) => host.to_string(),
                Ok(None) => "*".to_owned(),
                Err(_) => rule.field.to_string(),
            };
            let of_rule = self.host(rule);
            if rule.paths.is_empty() {
                let outcome = of_rule.as_ref().map_err(Clone::clone).and_then(|_| self.has_default(rule));
                parts.push(IngressPart { part: host.into(), outcome });
                continue;
            }
            for (at, path) in rule.paths.iter().enumerate() {
                let part = format!("{host}{}", path.written).into();
                let outcome = match (&path.rule, &of_rule) {
                    (Err(refused), _) | (_, Err(refused)) => Err(refused.clone()),
                    (Ok(_), Ok(merged)) => {
                        let field = format!("{}.http.paths[{at}].path", rule.field);
                        self.outcome(merged, Slot::Path(number, at)).map_err(|refusal| Refused::new(refusal, field))
                    }
                };
                parts.push(IngressPart { part, outcome });
            }
        }
        parts
    }

    /// A rule without paths is all the default backend's.
    fn has_default(&self, rule: &Rule) -> Result<(), Refused> {
        if matches!(self.state.ingress.default_backend, Some(Ok(_))) {
            return Ok(());
        }
        let reason = "the rule has no paths, and there is no default backend".to_owned();
        Err(Refused::new(Refusal::BadBackend { reason }, format!("{}.http", rule.field)))
    }

    /// What is served at the host of a rule, if that is the Ingress' to say.
    fn host(&self, rule: &Rule) -> Result<&Merged, Refused> {
        let host = rule.host.as_ref().map_err(Clone::clone)?;
        let at_host = |refusal| Refused::new(refusal, format!("{}.host", rule.field));
        let Some(host) = host else { return self.everywhere().map_err(at_host) };
        if let Some(Err(refusal)) = self.placing.hosts.get(host) {
            return Err(at_host(refusal.clone()));
        }
        let line = self.records.hosts.line(host);
        let mine = line.iter().find(|claim| claim.object() == self.object).map(|claim| &claim.verdict);
        match (mine, self.seen.merged.get(host)) {
            (Some(Err(refusal)), _) => Err(at_host(refusal.clone())),
            (_, Some(merged)) => Ok(merged),
            // Whoever has a host has had it merged.
            (_, None) => Err(at_host(Refusal::NameHeld { name: host.clone(), holder: None })),
        }
    }

    /// Of the hosts that nobody names, as far as the Ingress serves those.
    fn everywhere(&self) -> Result<&Merged, Refusal> {
        let tenant = &self.placing.tenant;
        let mut suffixes = self.federation.everywhere.get(tenant).into_iter().flat_map(BTreeMap::values);
        let has_own = self.state.ingress.is_everywhere() && suffixes.any(|is_alone| *is_alone);
        self.seen.everywhere.get(tenant).filter(|_| has_own).ok_or(Refusal::NoHostOfYourOwn)
    }

    fn outcome(&self, merged: &Merged, slot: Slot) -> Result<(), Refusal> {
        merged.outcomes.get(&(self.object.clone(), slot)).cloned().unwrap_or(Ok(()))
    }

    /// Good where it is at one host.
    fn default(&self) -> Vec<IngressPart> {
        let outcome = match &self.state.ingress.default_backend {
            None => return Vec::new(),
            Some(Err(refused)) => Err(refused.clone()),
            Some(Ok(_)) => {
                let refused = |refusal| Refused::new(refusal, "defaultBackend");
                let outcomes = self.everywhere_served().map(|merged| match merged {
                    Ok(merged) => self.outcome(merged, Slot::Default).map_err(refused),
                    Err(refused) => Err(refused),
                });
                let reason = || "none of the rules has a host that can be used".to_owned();
                first_good(outcomes).unwrap_or_else(|| Err(refused(Refusal::BadBackend { reason: reason() })))
            }
        };
        vec![IngressPart { part: "defaultBackend".into(), outcome }]
    }

    /// What is served at each of its hosts; everywhere, if it names none.
    fn everywhere_served(&self) -> impl Iterator<Item = Result<&Merged, Refused>> {
        let is_nameless = self.placing.hosts.is_empty() && self.state.ingress.is_everywhere();
        let nameless = is_nameless.then(|| self.everywhere().map_err(|why| Refused::new(why, "defaultBackend")));
        let rules =
            self.state.ingress.rules.iter().filter(move |rule| !is_nameless && matches!(rule.host, Ok(Some(_))));
        nameless.into_iter().chain(rules.map(|rule| self.host(rule)))
    }

    fn tls(&self) -> Vec<IngressPart> {
        let entries = self.state.ingress.tls.iter().enumerate();
        entries
            .map(|(number, tls)| IngressPart { part: Arc::clone(&tls.field), outcome: self.certificate(number, tls) })
            .collect()
    }

    /// Good where it is at one host.
    fn certificate(&self, number: usize, tls: &Tls) -> Result<(), Refused> {
        tls.secret.as_ref().map_err(Clone::clone)?;
        let refused = |refusal| Refused::new(refusal, format!("{}.secretName", tls.field));
        let of_rule = |rule: &Rule| match &rule.host {
            Ok(Some(host)) => tls.covers(host),
            Ok(None) => tls.hosts.is_empty(),
            Err(_) => false,
        };
        let rules = self.state.ingress.rules.iter().filter(|rule| of_rule(rule)).map(|rule| self.host(rule));
        let is_nameless = self.state.ingress.rules.is_empty() && self.state.ingress.is_everywhere();
        let nameless = is_nameless && tls.hosts.is_empty();
        let nameless = nameless.then(|| self.everywhere().map_err(refused));
        let outcomes = rules
            .chain(nameless)
            .map(|merged| merged.and_then(|merged| self.outcome(merged, Slot::Tls(number)).map_err(refused)));
        let unused = || Refused::new(Refusal::HostNotInRules, format!("{}.hosts", tls.field));
        first_good(outcomes).unwrap_or_else(|| Err(unused()))
    }

    fn members(&self) -> Vec<IngressPart> {
        let clusters = self.placing.clusters.iter();
        clusters
            .map(|(name, reached)| IngressPart {
                part: name.as_str().into(),
                outcome: reached.clone().map_err(|refusal| Refused::new(refusal, "")),
            })
            .collect()
    }
}

/// A good one, if there is any; else the first.
fn first_good(mut outcomes: impl Iterator<Item = Result<(), Refused>>) -> Option<Result<(), Refused>> {
    let first = outcomes.next()?;
    Some(if first.is_ok() || outcomes.any(|outcome| outcome.is_ok()) { Ok(()) } else { first })
}
