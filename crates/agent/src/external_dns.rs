//! * A provider for ExternalDNS, by its webhook protocol: the records that it wants become claims at the hub.
//!
//! Any answer but a success or a 5xx ends the process of ExternalDNS, so that a refusal of the hub's policy is never one: in
//! `/adjustendpoints` what the hub would refuse is left out, and said elsewhere (log, metrics, `/refused`). Nothing is kept
//! here; what the hub has is asked for each time. `/records` shows all of it, refused claims too: ExternalDNS then deletes
//! what it was told to leave out, together with the TXT record that it has for it.

mod changes;
mod metrics;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use manifest::agents::{ClusterView, VerdictList};
use manifest::dns_endpoint::EndpointSpec;
use manifest::verdict::PartVerdict;
use serde::Serialize;
use serde_json::json;
use server::{BindError, Bound};
use tokio_util::sync::CancellationToken;

use crate::claims::{batches, halves};
use crate::health::{Health, MOST_SHOWN, Refused};
use crate::http;
use crate::link::{Link, LinkError, Pause, plain};
use changes::{Judged, Kept};
pub use metrics::ProviderMetrics;
use wire::Changes;

/// Compared as a string by ExternalDNS.
const MEDIA_TYPE: &str = "application/external.dns.webhook+json;version=1";
/// Of a request: some 100,000 endpoints.
const MAX_BODY: usize = 32 << 20;
/// ExternalDNS gives up after 15 s, and ends for that: an error that it hears of is better.
const WITHIN: Duration = Duration::from_secs(12);
/// A quota shows only once a record is there: one that was refused then is not created and deleted in turns, but tried again
/// after this.
const HOLD: Duration = Duration::from_mins(10);
/// Of how many that is remembered; some MiB.
const MOST_HELD: usize = 10_000;
/// A filter without any suffix lets everything through. This one lets nothing through (RFC 6761).
const NOTHING: &str = "nothing.invalid";

pub struct Provider {
    link: Arc<Link>,
    health: Arc<Health>,
    metrics: ProviderMetrics,
    /// One request with a body at a time: ExternalDNS sends no more, and each may be large.
    turn: tokio::sync::Mutex<()>,
    /// Whom the hub last took us for.
    cluster: Mutex<Option<ClusterView>>,
    refused: Mutex<Told>,
}

/// What was refused in the last round, and of what that has been logged.
#[derive(Default)]
struct Told {
    wished: Vec<Refused>,
    sent: Vec<Refused>,
    logged: BTreeSet<(String, String)>,
    /// What was sent and then refused, by its text, and until when it is not sent again.
    held: BTreeMap<String, (PartVerdict, Instant)>,
}

impl Told {
    fn hold(&mut self, endpoint: &EndpointSpec, verdict: &PartVerdict, now: Instant) {
        if self.held.len() >= MOST_HELD {
            self.held.retain(|_, (_, until)| now < *until);
        }
        if self.held.len() < MOST_HELD {
            self.held.insert(text(endpoint), (verdict.clone(), now + HOLD));
        }
    }

    fn held(&self, endpoint: &EndpointSpec, now: Instant) -> Option<PartVerdict> {
        self.held.get(&text(endpoint)).filter(|(_, until)| now < *until).map(|(verdict, _)| verdict.clone())
    }
}

fn text(endpoint: &EndpointSpec) -> String {
    serde_json::to_string(&changes::claimed(endpoint)).unwrap_or_default()
}

/// For ExternalDNS. It does not answer yet.
pub struct ProviderListener(Bound);

impl ProviderListener {
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Bound::bind("--listen", address).map(Self)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Answers until `stop`; ready once the hub has taken us for somebody.
    pub async fn serve(self, provider: Arc<Provider>, stop: CancellationToken) {
        let introduced = stop.run_until_cancelled(provider.introduce());
        let router = Router::new()
            .route("/", get(filter))
            .route("/records", get(records).post(apply))
            .route("/adjustendpoints", post(adjust))
            .with_state(Arc::clone(&provider));
        tokio::join!(introduced, http::serve(self.0, router, stop.clone()));
    }
}

impl Provider {
    pub fn new(link: Arc<Link>, health: Arc<Health>, metrics: ProviderMetrics) -> Self {
        let (turn, cluster, refused) = (tokio::sync::Mutex::default(), Mutex::default(), Mutex::default());
        Self { link, health, metrics, turn, cluster, refused }
    }

    async fn introduce(&self) {
        let mut pause = Pause::default();
        loop {
            match self.ask_cluster().await {
                Ok(view) => {
                    tracing::info!(cluster = view.cluster, suffixes = ?view.suffixes, "the hub knows us");
                    return self.health.set_ready(true);
                }
                Err(error) => {
                    let wait = pause.after(&error);
                    tracing::warn!(%error, again_in = ?wait, "the hub has not taken us for anybody yet");
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    async fn ask_cluster(&self) -> Result<ClusterView, LinkError> {
        let view = self.link.cluster().await?;
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner) = Some(view.clone());
        Ok(view)
    }

    /// What ExternalDNS is to look at. While the hub is away, what it last said.
    async fn filter(&self) -> Result<Response, Failure> {
        let view = match self.ask_cluster().await {
            Ok(view) => view,
            Err(error) => {
                let last = self.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone();
                last.ok_or(Failure::Hub(error))?
            }
        };
        let include = if view.suffixes.is_empty() { vec![NOTHING.to_owned()] } else { view.suffixes };
        Ok(answer(&json!({ "include": include })))
    }

    async fn records(&self) -> Result<Response, Failure> {
        let kept = Kept::of(self.link.claims().await?);
        self.metrics.records(kept.len());
        Ok(answer(&kept.endpoints()))
    }

    /// Leaves out what the hub refuses, or would refuse.
    async fn adjust(&self, request: Request) -> Result<Response, Failure> {
        let _turn = self.turn.lock().await;
        let wished = wire::endpoints(&read(request).await?).map_err(Failure::Malformed)?;
        let kept = Kept::of(self.link.claims().await?);
        let (mut verdicts, asked) = self.known(&wished, &kept);
        let mut judged = self.link.judge(&asked).await?.into_iter();
        for (endpoint, verdict) in wished.iter().zip(&mut verdicts) {
            if verdict.is_none() && kept.judged(endpoint) == Judged::Unknown {
                *verdict = judged.next().filter(|verdict| !verdict.published);
            }
        }
        let refused =
            wished.iter().zip(&verdicts).filter_map(|(endpoint, verdict)| refusal(endpoint, verdict.as_ref()?));
        self.tell(refused.collect(), Some(Vec::new()));
        let good: Vec<_> = wished.into_iter().zip(verdicts).filter(|(_, verdict)| verdict.is_none()).collect();
        Ok(answer(&good.into_iter().map(|(endpoint, _)| endpoint).collect::<Vec<_>>()))
    }

    /// What is known already to be refused, and what the hub is to be asked about.
    fn known(&self, wished: &[EndpointSpec], kept: &Kept) -> (Vec<Option<PartVerdict>>, Vec<EndpointSpec>) {
        let mut verdicts: Vec<Option<PartVerdict>> = Vec::with_capacity(wished.len());
        let mut asked = Vec::new();
        let now = Instant::now();
        let mut told = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        for endpoint in wished {
            verdicts.push(match kept.judged(endpoint) {
                // It is there: what became of it says more than what might.
                Judged::Refused(verdict) => {
                    told.hold(endpoint, verdict, now);
                    Some(verdict.clone())
                }
                Judged::Kept => None,
                Judged::Unknown => {
                    let held = told.held(endpoint, now);
                    if held.is_none() {
                        asked.push(changes::claimed(endpoint));
                    }
                    held
                }
            });
        }
        (verdicts, asked)
    }

    /// Every good record is kept, whatever else is asked for.
    async fn apply(&self, request: Request) -> Result<Response, Failure> {
        let _turn = self.turn.lock().await;
        let wished = Changes::parse(&read(request).await?).map_err(Failure::Malformed)?;
        let kept = Kept::of(self.link.claims().await?);
        let applied = kept.apply(wished);
        let mut refused: Vec<Refused> = applied.dropped;
        let mut waiting = batches(applied.set.clone(), applied.delete);
        waiting.reverse();
        while let Some(changes) = waiting.pop() {
            match self.link.change(&changes).await {
                Ok(VerdictList { verdicts, .. }) => {
                    tracing::info!(set = changes.set.len(), deleted = changes.delete.len(), "claims were sent");
                    for judged in verdicts {
                        let Some(claims) = changes.set.iter().find(|claims| claims.key == judged.key) else { continue };
                        let parts = claims.endpoints.iter().zip(&judged.verdicts);
                        refused.extend(parts.filter_map(|(endpoint, verdict)| refusal(endpoint, verdict)));
                    }
                }
                // One key is at fault; the others are not to suffer for it.
                Err(error @ LinkError::Refused { .. }) => match halves(changes) {
                    Ok([first, second]) => waiting.extend([second, first]),
                    Err(one) => {
                        tracing::error!(%error, "the hub does not take some of the records");
                        let endpoints = one.set.iter().flat_map(|claims| &claims.endpoints);
                        refused.extend(endpoints.map(|endpoint| rejection(endpoint, &error)));
                    }
                },
                Err(error) => return Err(error.into()),
            }
        }
        let wished = self.refused.lock().unwrap_or_else(PoisonError::into_inner).wished.clone();
        self.tell(wished, Some(refused));
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// In the log once, in the metrics each time, and at `/refused` as long as it holds.
    fn tell(&self, wished: Vec<Refused>, sent: Option<Vec<Refused>>) {
        let mut told = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        told.wished = wished;
        if let Some(sent) = sent {
            told.sent = sent;
        }
        let all: Vec<Refused> = told.wished.iter().chain(&told.sent).cloned().collect();
        let mut logged = BTreeSet::new();
        for refused in all.iter().take(MOST_SHOWN) {
            let this = (refused.record.clone(), refused.code.clone());
            if !told.logged.contains(&this) && logged.insert(this) {
                let Refused { record, code, reason, field, .. } = refused;
                tracing::warn!(record, code, field, "the hub does not publish this record: {reason}");
                self.metrics.refused(code);
            }
        }
        logged.extend(all.iter().take(MOST_SHOWN).map(|refused| (refused.record.clone(), refused.code.clone())));
        told.logged = logged;
        self.metrics.refused_now(all.len());
        self.health.set_refused(all.len(), all);
    }
}

/// `None` for what is published, or not judged yet.
fn refusal(endpoint: &EndpointSpec, verdict: &PartVerdict) -> Option<Refused> {
    (!verdict.published).then(|| Refused {
        source: endpoint.labels.get("resource").cloned().unwrap_or_default(),
        record: record(endpoint),
        code: plain(&verdict.code),
        reason: plain(&verdict.reason),
        field: plain(&verdict.field),
    })
}

fn rejection(endpoint: &EndpointSpec, error: &LinkError) -> Refused {
    let (code, reason) = match error {
        LinkError::Refused { code, reason } => (code.clone(), reason.clone()),
        error => (error.code().to_owned(), error.to_string()),
    };
    Refused { source: String::new(), record: record(endpoint), code, reason, field: String::new() }
}

/// Its name and type.
fn record(endpoint: &EndpointSpec) -> String {
    plain(&format!("{} {}", endpoint.dns_name, endpoint.record_type))
}

/// Why ExternalDNS gets no answer.
enum Failure {
    /// A soft error: it tries again in its next round.
    Hub(LinkError),
    Late,
    Malformed(String),
    TooLarge,
    /// A web page, of whoever runs ExternalDNS on their own machine, cannot send our media type.
    MediaType,
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        Self::Hub(error)
    }
}

impl Failure {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Hub(error) => error.code(),
            Self::Late => "late",
            Self::Malformed(_) => "malformed",
            Self::TooLarge => "tooLarge",
            Self::MediaType => "mediaType",
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Hub(error) => error.to_string(),
            Self::Late => format!("the hub took longer than {} s", WITHIN.as_secs()),
            Self::Malformed(why) => format!("the body is not what ExternalDNS sends: {why}"),
            Self::TooLarge => format!("the body is longer than {} MiB", MAX_BODY >> 20),
            Self::MediaType => format!("the content type is not {MEDIA_TYPE}"),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Hub(_) | Self::Late => StatusCode::SERVICE_UNAVAILABLE,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        };
        let mut response = (status, format!("{}\n", self.text())).into_response();
        if let Self::Hub(error) = &self
            && let Some(wait) = error.retry_after()
        {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
        }
        response
    }
}

fn answer(value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("texts and numbers have a JSON form");
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], Body::from(body)).into_response()
}

async fn read(request: Request) -> Result<Bytes, Failure> {
    let media_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !["application/external.dns.webhook+json", "application/json"].contains(&essence) {
        return Err(Failure::MediaType);
    }
    axum::body::to_bytes(request.into_body(), MAX_BODY).await.map_err(|_| Failure::TooLarge)
}

/// In time, counted, and with a line in the log when it went wrong.
async fn within(
    provider: &Provider,
    call: &'static str,
    answer: impl Future<Output = Result<Response, Failure>>,
) -> Response {
    let answer = tokio::time::timeout(WITHIN, answer).await.unwrap_or(Err(Failure::Late));
    provider.metrics.answered(call, answer.as_ref().err().map_or("ok", Failure::outcome));
    answer.unwrap_or_else(|failure| {
        tracing::warn!(call, error = failure.text(), "ExternalDNS gets an error");
        failure.into_response()
    })
}

async fn filter(State(provider): State<Arc<Provider>>) -> Response {
    within(&provider, "filter", provider.filter()).await
}

async fn records(State(provider): State<Arc<Provider>>) -> Response {
    within(&provider, "records", provider.records()).await
}

async fn adjust(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    within(&provider, "adjust", provider.adjust(request)).await
}

async fn apply(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    within(&provider, "apply", provider.apply(request)).await
}
