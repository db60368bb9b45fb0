//! Which page a path and a query are.

use axum::extract::Query;
use axum::http::{StatusCode, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Look;
use super::frame::Page;
use super::pages::{
    cluster, clusters, explain, fleet, ingress, ingresses, records, refusals, tenant, tenants, zone, zones,
};
use crate::objects::Failure;

#[derive(Debug, Clone)]
pub(super) enum View {
    Fleet,
    Clusters(clusters::Filter),
    Cluster(String, Done),
    Zones(Search),
    Zone(String, Done),
    Records(records::Filter),
    Tenants(Search),
    Tenant(String, Done),
    Ingresses(Search),
    Ingress(String, String),
    Refusals(refusals::Filter),
    Explain(explain::Asked),
}

/// What was done just now, as the page of an action is told.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Done {
    #[serde(default)]
    done: String,
}

impl Done {
    /// In our own words: a query is whatever somebody wrote.
    pub(super) fn words(&self) -> Option<&'static str> {
        match self.done.as_str() {
            "drained" => Some("Drained: federated ingresses send nothing there any more."),
            "undrained" => Some("Not drained any more: federated ingresses may send there again."),
            "released" => Some("Released: names that nobody asks for go now."),
            _ => None,
        }
    }
}

/// A text to look for, and which page of what is found.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Search {
    #[serde(default)]
    pub(super) q: String,
    #[serde(default)]
    pub(super) page: usize,
}

impl View {
    pub(super) fn read(uri: &Uri) -> Result<Self, Failure> {
        let path: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        Ok(match path.as_slice() {
            [""] => Self::Fleet,
            ["clusters"] => Self::Clusters(query(uri)?),
            ["clusters", name] => Self::Cluster((*name).to_owned(), query(uri)?),
            ["zones"] => Self::Zones(query(uri)?),
            ["zones", name] => Self::Zone((*name).to_owned(), query(uri)?),
            ["records"] => Self::Records(query(uri)?),
            ["tenants"] => Self::Tenants(query(uri)?),
            ["tenants", name] => Self::Tenant((*name).to_owned(), query(uri)?),
            ["ingresses"] => Self::Ingresses(query(uri)?),
            ["ingresses", namespace, name] => Self::Ingress((*namespace).to_owned(), (*name).to_owned()),
            ["refusals"] => Self::Refusals(query(uri)?),
            ["explain"] => Self::Explain(query(uri)?),
            _ => return Err(missing(format!("nothing is at {}", uri.path()))),
        })
    }

    pub(super) fn render(&self, look: &Look) -> Result<Page, Failure> {
        match self {
            Self::Fleet => Ok(fleet::page(look)),
            Self::Clusters(filter) => Ok(clusters::page(look, filter)),
            Self::Cluster(name, done) => cluster::page(look, name, done),
            Self::Zones(search) => Ok(zones::page(look, search)),
            Self::Zone(name, done) => zone::page(look, name, done),
            Self::Records(filter) => Ok(records::page(look, filter)),
            Self::Tenants(search) => Ok(tenants::page(look, search)),
            Self::Tenant(name, done) => tenant::page(look, name, done),
            Self::Ingresses(search) => Ok(ingresses::page(look, search)),
            Self::Ingress(namespace, name) => ingress::page(look, namespace, name),
            Self::Refusals(filter) => Ok(refusals::page(look, filter)),
            Self::Explain(asked) => Ok(explain::page(look, asked)),
        }
    }

    /// Whether it shows what changes without the fleet.
    pub(super) fn has_traffic(&self) -> bool {
        matches!(self, Self::Fleet | Self::Cluster(..) | Self::Ingress(..) | Self::Tenant(..))
    }
}

fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Failure> {
    let query = Query::try_from_uri(uri);
    query
        .map(|Query(query)| query)
        .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, "BadQuery", error.body_text()))
}

pub(super) fn missing(reason: String) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "NoSuchPage", reason)
}
