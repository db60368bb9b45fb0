//! The pages of all pods, within one second.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::page::{Metrics, PageError, Sample};

/// All pages of a round are read by then: the next one begins after a second.
const WITHIN: Duration = Duration::from_millis(800);
/// Pages that are read at once: so many sockets that begin, and so many MiB at the very most.
const AT_ONCE: usize = 64;
/// Pages have some 10 to 100 KiB.
const MAX_PAGE: usize = 1 << 20;
/// A head has a few hundred octets.
const MAX_HEAD: usize = 16 << 10;

/// Why there is nothing to compute with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScrapeError {
    #[error("its Service has no port of the name that was given")]
    NoPort,
    #[error("it did not answer in time")]
    TooSlow,
    #[error("it cannot be reached, or broke off")]
    Away,
    #[error("it answered {0}")]
    Status(u16),
    #[error("the page is longer than {} MiB", MAX_PAGE >> 20)]
    TooLarge,
    #[error(transparent)]
    Page(#[from] PageError),
}

impl ScrapeError {
    /// A fixed word, for metrics and people.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::NoPort => "NoPort",
            Self::TooSlow => "TooSlow",
            Self::Away => "Away",
            Self::Status(_) => "Status",
            Self::TooLarge => "TooLarge",
            Self::Page(PageError::BadLine(_)) => "BadPage",
            Self::Page(PageError::NoSuchMetric(_)) => "NoSuchMetric",
        }
    }
}

type Sender = SendRequest<Empty<Bytes>>;
/// What a page says, and when it was read.
pub(super) type Scraped = Result<(Sample, Instant), ScrapeError>;

/// Keeps a connection to each pod.
pub(super) struct Scraper {
    path: Arc<str>,
    metrics: Arc<Metrics>,
    idle: HashMap<SocketAddr, Sender>,
}

impl Scraper {
    pub(super) fn new(path: &str, metrics: Metrics) -> Self {
        Self { path: path.into(), metrics: Arc::new(metrics), idle: HashMap::new() }
    }

    /// One round. Connections to pods that are not among these are closed.
    pub(super) async fn round(&mut self, pods: impl Iterator<Item = SocketAddr>) -> HashMap<SocketAddr, Scraped> {
        let deadline = tokio::time::Instant::now() + WITHIN;
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut idle = std::mem::take(&mut self.idle);
        let mut under_way = JoinSet::new();
        for pod in pods {
            let (path, metrics, places) = (Arc::clone(&self.path), Arc::clone(&self.metrics), Arc::clone(&places));
            let kept = idle.remove(&pod);
            under_way.spawn(async move {
                let scraping = async {
                    // It is never closed.
                    let _place = places.acquire().await;
                    scrape(pod, &path, kept, &metrics).await
                };
                match timeout_at(deadline, scraping).await {
                    Ok(Ok((scraped, sender))) => (pod, scraped, sender),
                    Ok(Err(error)) => (pod, Err(error), None),
                    Err(_) => (pod, Err(ScrapeError::TooSlow), None),
                }
            });
        }
        let mut round = HashMap::new();
        while let Some(done) = under_way.join_next().await {
            let Ok((pod, scraped, sender)) = done else { continue };
            round.insert(pod, scraped);
            if let Some(sender) = sender {
                self.idle.insert(pod, sender);
            }
        }
        round
    }
}

/// With the connection, if it can be used again.
async fn scrape(
    pod: SocketAddr,
    path: &str,
    kept: Option<Sender>,
    metrics: &Metrics,
) -> Result<(Scraped, Option<Sender>), ScrapeError> {
    let answer = match kept {
        Some(sender) => get(sender, pod, path).await,
        None => Err(ScrapeError::Away),
    };
    // One that was closed meanwhile says nothing about the pod.
    let (page, sender) = match answer {
        Err(ScrapeError::Away) => get(connect(pod).await?, pod, path).await?,
        answer => answer?,
    };
    let at = Instant::now();
    let scraped = metrics.read(&page).map(|sample| (sample, at)).map_err(ScrapeError::Page);
    Ok((scraped, (!sender.is_closed()).then_some(sender)))
}

async fn connect(pod: SocketAddr) -> Result<Sender, ScrapeError> {
    let stream = TcpStream::connect(pod).await.map_err(|_| ScrapeError::Away)?;
    // A request is one small write.
    let _ = stream.set_nodelay(true);
    let mut http = http1::Builder::new();
    http.max_buf_size(MAX_HEAD);
    let (sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(|_| ScrapeError::Away)?;
    // Its end is told to whoever sends on it.
    tokio::spawn(connection);
    Ok(sender)
}

async fn get(mut sender: Sender, pod: SocketAddr, path: &str) -> Result<(Bytes, Sender), ScrapeError> {
    let request = Request::get(path)
        .header(header::HOST, pod.to_string())
        .header(header::ACCEPT, "text/plain;version=0.0.4")
        .body(Empty::new())
        .map_err(|_| ScrapeError::Away)?;
    sender.ready().await.map_err(|_| ScrapeError::Away)?;
    let response = sender.send_request(request).await.map_err(|_| ScrapeError::Away)?;
    if response.status() != StatusCode::OK {
        return Err(ScrapeError::Status(response.status().as_u16()));
    }
    let page = Limited::new(response.into_body(), MAX_PAGE)
        .collect()
        .await
        .map_err(|error| if error.is::<LengthLimitError>() { ScrapeError::TooLarge } else { ScrapeError::Away })?;
    Ok((page.to_bytes(), sender))
}
