//! The admission webhooks. The validating one: tenants are told no by the API server itself, before an object is written of which
//! nothing would be served. The mutating one: pods of control planes are made to ask their resolver ([`pods`]).
//!
//! Every controller answers ([`listen`]), from the published snapshot alone ([`review`]). The leader keeps the certificate
//! ([`certificate`]) and has the API server ask ([`register`]). What passes is judged again by the plan: this door is a
//! courtesy to tenants and spares the hub work, and nothing rests on it.

mod certificate;
mod listen;
mod metrics;
mod pods;
mod register;
mod review;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::Uri;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use model::policy::rate::{self, Buckets, CHANGES};
use model::{ObjectName, Snapshot};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::apply::PUBLISH_NAMESPACE;
use crate::lease::Term;
use certificate::{Kept, Live};
pub use listen::Listener;
use metrics::Metrics;
pub use pods::Pods;
pub use register::CONFIGURATION;

/// The Secret that holds the certificates, in our own namespace.
pub const SECRET: &str = "fleetgate-admission";
/// The Service in front of the controllers, where nothing else is said.
pub const SERVICE: &str = "fleetgate-admission";
/// Where reviews are posted, with a token after it.
const PATH: &str = "/admit/";
/// How often what stands on the hub is looked at.
const POLL: Duration = Duration::from_secs(2);
/// Tenants that are remembered: as many as changed something within the last 20 s.
const MOST_TENANTS: usize = 16_384;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Where Fleetgate itself is installed.
    pub namespace: String,
    pub place: Place,
    pub failure_policy: FailurePolicy,
    /// Where pods of control planes are to ask a resolver.
    pub pods: Option<Pods>,
}

/// Where the API server finds us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Behind a Service of our own namespace, on port 443.
    Service(String),
    Url {
        /// Without a slash at its end.
        base: String,
        host: String,
    },
}

impl Place {
    pub fn url(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{text} is no URL: {error}"))?;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        // The API server takes no other.
        if uri.scheme_str() != Some("https") || host.is_empty() || uri.query().is_some() {
            return Err(format!("{text} is no https:// URL without a query"));
        }
        Ok(Self::Url { base: text.trim_end_matches('/').to_owned(), host: host.to_owned() })
    }
}

/// What the API server does while nobody of us answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailurePolicy {
    /// Refuses.
    #[default]
    Fail,
    /// Lets everything pass; the plan still judges.
    Ignore,
}

impl FailurePolicy {
    fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// The webhook of this process. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Admission {
    settings: Arc<Settings>,
    /// Those that the certificate is for.
    names: Arc<[String]>,
    /// The namespaces that are not judged.
    ours: Arc<[String]>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    live: Arc<Live>,
    rates: Arc<Mutex<Buckets<ObjectName>>>,
    /// What the rates count from.
    start: Instant,
    metrics: Metrics,
}

impl Admission {
    pub fn new(settings: Settings, snapshot: Arc<ArcSwap<Snapshot>>, registry: &mut Registry) -> Self {
        let names = match &settings.place {
            Place::Service(name) => vec![format!("{name}.{}.svc", settings.namespace)],
            Place::Url { host, .. } => vec![host.clone()],
        };
        Self {
            names: names.into(),
            ours: [settings.namespace.clone(), PUBLISH_NAMESPACE.to_owned()].into(),
            settings: Arc::new(settings),
            snapshot,
            live: Arc::default(),
            rates: Arc::new(Mutex::new(Buckets::new(CHANGES, MOST_TENANTS))),
            start: Instant::now(),
            metrics: Metrics::register(registry),
        }
    }

    /// Answers until `stop`; `informed` says whether the snapshot is of a fleet that is known.
    pub async fn serve(
        self,
        listener: Listener,
        informed: impl Fn() -> bool + Send + Sync + 'static,
        stop: CancellationToken,
    ) {
        listener.serve(self, Arc::new(informed), stop).await;
    }

    /// Keeps the certificate and the registration, until the term is lost.
    pub async fn lead(&self, client: Client, term: Term) {
        register::keep(self, client, term).await;
    }

    /// Has the certificate that stands on the hub served. Never ends.
    pub async fn follow(self, client: Client) {
        let secrets: Api<Secret> = Api::namespaced(client, &self.settings.namespace);
        let mut told = None;
        loop {
            let trouble = match tokio::time::timeout(POLL, secrets.get_opt(SECRET)).await {
                Ok(Ok(Some(secret))) => match Kept::read(&secret.data.unwrap_or_default()) {
                    Ok(kept) => {
                        self.serve_with(&kept);
                        None
                    }
                    Err(unusable) => Some(unusable.to_string()),
                },
                // The leader will make one; what is served is good meanwhile.
                Ok(Ok(None)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the hub did not answer in time".to_owned()),
            };
            if trouble.is_some() && trouble != told {
                tracing::warn!(secret = SECRET, error = trouble, "the webhook's certificate cannot be read");
            }
            told = trouble;
            tokio::time::sleep(POLL).await;
        }
    }

    fn serve_with(&self, kept: &Kept) {
        if self.live.take(kept) {
            self.metrics.certificates.inc();
            tracing::info!("--admission serves a new certificate");
        }
    }

    /// `None` if it is too early to say.
    fn review(&self, review: &review::Request<'_>) -> Option<serde_json::Value> {
        let begun = Instant::now();
        if let Some(pods) = self.settings.pods.as_ref().filter(|_| review.is_pod()) {
            let decision = pods.decide(review)?;
            self.metrics.count(decision.outcome.as_str(), begun.elapsed());
            return Some(review.answer(decision));
        }
        let snapshot = self.snapshot.load();
        let decision = review.decide(&snapshot, &self.ours, |tenant, endpoints| {
            let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = rates.take(tenant, rate::cost(endpoints), self.start.elapsed());
            taken.map_err(|wait| rates.too_fast(wait))
        });
        let outcome = decision.outcome.as_str();
        let answer = review.answer(decision);
        self.metrics.count(outcome, begun.elapsed());
        Some(answer)
    }
}

fn path(token: &str) -> String {
    format!("{PATH}{token}")
}
