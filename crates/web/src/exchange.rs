//! What is written down of a request and its response, when both are over.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use http::{Method, StatusCode};
use model::ClusterName;

use crate::body::Progress;
use crate::choice::{EntryOutlook, InFlight};
use crate::connection::Link;

/// One line each, for those who ask for it.
const ACCESS: &str = "access";

/// Counted and logged when it is dropped, which is when the last octet of the response was sent, or could not be.
pub(crate) struct Exchange {
    link: Arc<Link>,
    /// Among those of its connection.
    number: u64,
    start: Instant,
    status: StatusCode,
    route: Option<Arc<EntryOutlook>>,
    in_flight: Option<InFlight>,
    request: Option<Arc<Progress>>,
    /// Beside what `request` counts.
    received: u64,
    sent: u64,
    is_broken: bool,
    refusal: Option<&'static str>,
    /// Where somebody wants the log.
    access: Option<Box<Access>>,
}

#[derive(Debug)]
struct Access {
    client: IpAddr,
    method: Method,
    host: String,
    path: String,
    member: Option<ClusterName>,
}

impl Exchange {
    pub(crate) fn begin(link: &Arc<Link>) -> Self {
        Self::begun_at(link, Instant::now())
    }

    /// One whose head came a while ago.
    pub(crate) fn begun_at(link: &Arc<Link>, start: Instant) -> Self {
        link.active.fetch_add(1, Ordering::Relaxed);
        Self {
            link: Arc::clone(link),
            number: link.requests.fetch_add(1, Ordering::Relaxed),
            start,
            status: StatusCode::OK,
            route: None,
            in_flight: None,
            request: None,
            received: 0,
            sent: 0,
            is_broken: false,
            refusal: None,
            access: None,
        }
    }

    pub(crate) fn is_logged() -> bool {
        tracing::enabled!(target: ACCESS, tracing::Level::INFO)
    }

    pub(crate) fn log(&mut self, client: IpAddr, method: &Method, host: &str, path: &str) {
        let (method, host, path) = (method.clone(), host.to_owned(), path.to_owned());
        self.access = Some(Box::new(Access { client, method, host, path, member: None }));
    }

    pub(crate) fn route(&mut self, route: &Arc<EntryOutlook>) {
        self.route = Some(Arc::clone(route));
    }

    pub(crate) fn body(&mut self, progress: &Arc<Progress>) {
        self.request = Some(Arc::clone(progress));
    }

    pub(crate) fn received(&mut self, octets: usize) {
        self.received += octets as u64;
    }

    pub(crate) fn request_body(&self) -> Option<Arc<Progress>> {
        self.request.clone()
    }

    /// A member has it.
    pub(crate) fn member(&mut self, cluster: &ClusterName, in_flight: InFlight) {
        self.in_flight = Some(in_flight);
        if let Some(access) = &mut self.access {
            access.member = Some(cluster.clone());
        }
    }

    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = status;
    }

    /// It is no request any more, but another protocol.
    pub(crate) fn switched(&mut self) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.answered();
        }
    }

    pub(crate) fn refused(&mut self, status: StatusCode, code: &'static str) {
        (self.status, self.refusal) = (status, Some(code));
    }

    pub(crate) fn sent(&mut self, octets: usize) {
        self.sent += octets as u64;
    }

    /// Whether a piece of the response waits for the client.
    pub(crate) fn hand(&self, is_waiting: bool) {
        self.link.hand(self.number, is_waiting);
    }

    pub(crate) fn broke(&mut self) {
        self.is_broken = true;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.link.active.fetch_sub(1, Ordering::Relaxed);
        self.link.hand(self.number, false);
        self.link.ended();
        let took = self.start.elapsed();
        if let Some(in_flight) = self.in_flight.as_mut().filter(|_| self.refusal.is_none() && !self.is_broken) {
            in_flight.answered();
        }
        if let Some(route) = &self.route {
            route.counts.count(self.link.protocol, self.status, took);
        }
        if let Some(Access { client, method, host, path, member }) = self.access.as_deref() {
            tracing::info!(
                target: ACCESS,
                %client,
                %host,
                %method,
                path = %path.escape_debug(),
                status = self.status.as_u16(),
                refusal = self.refusal,
                member = member.as_ref().map(tracing::field::display),
                protocol = self.link.protocol.label(),
                received = self.received + self.request.as_ref().map_or(0, |body| body.received()),
                sent = self.sent,
                broken = self.is_broken,
                micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
                "request"
            );
        }
    }
}
