//! What the Ingresses that share a host come to: of two that want the same path, or give a certificate, the senior counts.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Federation, State, secret};
use crate::identity::{ObjectName, ObjectRef};
use crate::ingress::{Backend, Certificate, PathMatch};
use crate::name::DnsName;
use crate::plan::records::Records;
use crate::plan::records::hosts::HostClaim;
use crate::refusal::Refusal;
use crate::routes::{Entry, Host, HttpRoute};

/// Of one host: every request is compared with each in turn.
const MOST_ROUTES: usize = 1000;

/// What is served at a host, and what that means for each part of each Ingress.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) host: Host,
    pub(super) outcomes: HashMap<(ObjectRef, Slot), Result<(), Refusal>>,
}

/// A part of an Ingress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    /// The rule by its number, and the path in it.
    Path(usize, usize),
    Default,
    Tls(usize),
}

impl Federation {
    /// `None` where nobody has the host.
    pub(super) fn merge_host(&self, host: &DnsName, records: &Records) -> Option<Merged> {
        let line = records.hosts.line(host).iter().filter(|claim| claim.verdict.is_ok());
        let holder = line.clone().next()?;
        Some(self.merge(Some(host), &holder.tenant, &line.map(HostClaim::object).collect::<Vec<_>>()))
    }

    /// Of the host, or of every host that is not named; `objects` are placed, all of one tenant, senior first.
    pub(super) fn merge(&self, host: Option<&DnsName>, tenant: &ObjectName, objects: &[&ObjectRef]) -> Merged {
        let mut merging = Merging { host, ..Merging::default() };
        for object in objects {
            if let Some(state) = self.objects.get(*object) {
                merging.add_paths(object, state);
                self.add_certificates(&mut merging, object, state);
            }
        }
        let Merging { routes, default, certificate, outcomes, .. } = merging;
        let (secret, certificate) = certificate.map(|(_, secret, certificate)| (Arc::new(secret), certificate)).unzip();
        let mut host = Host::new(tenant.clone(), routes, default.map(|(_, entry)| entry), certificate);
        host.secret = secret;
        Merged { host, outcomes }
    }

    fn add_certificates<'a>(&'a self, merging: &mut Merging<'a>, object: &'a ObjectRef, state: &'a State) {
        for (number, tls) in state.ingress.tls.iter().enumerate() {
            let is_for = merging.host.map_or(tls.hosts.is_empty(), |host| tls.covers(host));
            let Some(name) = tls.secret.as_ref().ok().filter(|_| is_for) else { continue };
            let secret = secret(object, name);
            let outcome = match (self.certificates.get(&secret), &merging.certificate) {
                (None, _) => Err(Refusal::UnknownSecret { name: name.clone() }),
                (Some(Err(refusal)), _) => Err(refusal.clone()),
                (Some(Ok(_)), Some((_, first, _))) if *first == secret => Ok(()),
                (Some(Ok(_)), Some((holder, ..))) => {
                    Err(Refusal::CertificateHeld { host: merging.host.cloned(), holder: (*holder).clone() })
                }
                (Some(Ok(certificate)), None) => {
                    merging.certificate = Some((object, secret, Arc::clone(certificate)));
                    Ok(())
                }
            };
            merging.outcomes.insert((object.clone(), Slot::Tls(number)), outcome);
        }
    }
}

/// Of an Ingress that is placed.
fn entry_of(object: &ObjectRef, state: &State, backend: &Backend) -> Option<Entry> {
    let Some(Ok(placing)) = &state.placing else { return None };
    Some(Entry {
        object: object.clone(),
        tenant: placing.tenant.clone(),
        backend: backend.clone(),
        options: Arc::clone(&state.ingress.options),
        policy: Arc::clone(&placing.policy),
        members: Arc::clone(&placing.members),
        unready: placing.unready.get(backend).map_or_else(|| Arc::new([]) as Arc<[_]>, Arc::clone),
    })
}

#[derive(Default)]
struct Merging<'a> {
    host: Option<&'a DnsName>,
    routes: Vec<HttpRoute>,
    taken: HashMap<&'a PathMatch, &'a ObjectRef>,
    default: Option<(&'a ObjectRef, Arc<Entry>)>,
    /// Whose it is, and the Secret that it is in.
    certificate: Option<(&'a ObjectRef, ObjectRef, Arc<Certificate>)>,
    outcomes: HashMap<(ObjectRef, Slot), Result<(), Refusal>>,
}

impl<'a> Merging<'a> {
    fn add_paths(&mut self, object: &'a ObjectRef, state: &'a State) {
        let host = self.host;
        let mut entries: HashMap<&Backend, Arc<Entry>> = HashMap::new();
        let mut entry = |backend: &'a Backend| -> Option<Arc<Entry>> {
            if let Some(entry) = entries.get(backend) {
                return Some(Arc::clone(entry));
            }
            let entry = Arc::new(entry_of(object, state, backend)?);
            entries.insert(backend, Arc::clone(&entry));
            Some(entry)
        };
        for (number, rule) in state.ingress.rules.iter().enumerate() {
            if rule.host.as_ref().ok().map(Option::as_ref) != Some(host) {
                continue;
            }
            for (at, part) in rule.paths.iter().enumerate() {
                let Ok(rule) = &part.rule else { continue };
                let outcome = match self.taken.get(&rule.path) {
                    Some(holder) => {
                        let (host, path) = (host.cloned(), rule.path.as_str().to_owned());
                        Err(if *holder == object {
                            Refusal::RouteTwice { host, path }
                        } else {
                            Refusal::RouteHeld { host, path, holder: (*holder).clone() }
                        })
                    }
                    None if self.routes.len() == MOST_ROUTES => {
                        Err(Refusal::SetTooLarge { what: "paths of one host", most: MOST_ROUTES })
                    }
                    None => {
                        self.taken.insert(&rule.path, object);
                        let route = entry(&rule.backend).map(|entry| HttpRoute { path: rule.path.clone(), entry });
                        self.routes.extend(route);
                        Ok(())
                    }
                };
                self.outcomes.insert((object.clone(), Slot::Path(number, at)), outcome);
            }
        }
        let hosts = state.ingress.hosts();
        let is_default_here = host.map_or(hosts.is_empty(), |host| hosts.contains(host));
        if let Some(Ok(backend)) = state.ingress.default_backend.as_ref().filter(|_| is_default_here) {
            let outcome = if let Some((holder, _)) = &self.default {
                let (path, holder) = ("the default backend".to_owned(), (*holder).clone());
                Err(Refusal::RouteHeld { host: host.cloned(), path, holder })
            } else {
                self.default = entry(backend).map(|entry| (object, entry));
                Ok(())
            };
            self.outcomes.insert((object.clone(), Slot::Default), outcome);
        }
    }
}
