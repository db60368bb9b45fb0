//! `--http` and `--https`, and what has members checked for DNS alone.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;

use crate::control::Published;
use crate::hand_over::Inheritance;
use crate::job::Job;
use crate::overflow::Overflow;
use crate::serve::Addresses;

/// A listener for HTTP.
pub(crate) struct WebDoor {
    pub(crate) kind: web::DoorKind,
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl WebDoor {
    pub(crate) fn open(at: SocketAddr, kind: web::DoorKind, inheritance: &mut Inheritance) -> anyhow::Result<Self> {
        let listener = match inheritance.take(kind.flag(), at).pop() {
            Some(listener) => TcpListener::from(listener),
            None => web::bind(at).with_context(|| format!("binding {} on {at}", kind.flag()))?,
        };
        let address = listener.local_addr().with_context(|| format!("the address of {}", kind.flag()))?;
        Ok(Self { kind, listener, address })
    }
}

/// None where neither requests nor DNS ask for members. DNS alone has them checked.
#[allow(clippy::too_many_arguments)] // All that the doors are made of.
pub(crate) fn serve(
    http: Option<WebDoor>,
    https: Option<WebDoor>,
    job: &Job,
    addresses: &Addresses,
    published: &Published,
    guides: &dns::Guides,
    (overflow, inward): (&Overflow, web::Inward),
    metrics: &web::Metrics,
) -> Result<Option<web::Running>, web::StartError> {
    let has_doors = job.doors.http.is_some() || job.doors.https.is_some();
    if !has_doors && job.answers.dns.is_none() {
        return Ok(None);
    }
    let settings = web::Settings {
        threads: if has_doors { web::Settings::default().threads } else { 0 },
        trusted_proxies: job.doors.trusted_proxies.clone().into(),
        outer_header: Some(outer_header),
        places: Arc::clone(&guides.places),
        standings: Arc::clone(&guides.standings),
        edge: Some(overflow.edge.clone()),
        tables: Arc::clone(&overflow.tables),
        inward: Some(inward),
        checks: !job.members.no_checks,
        redirect_port: job.doors.https_port.or_else(|| addresses.https.map(|address| address.port())),
        ..web::Settings::default()
    };
    let listeners = |door: Option<WebDoor>| door.into_iter().map(|door| door.listener).collect();
    let doors = web::Doors { http: listeners(http), https: listeners(https) };
    web::start(settings, doors, &published.http, metrics).map(Some)
}

/// Load balancers speak the same way in front of all doors.
fn outer_header(received: &[u8]) -> web::Outer {
    use gateway::outer_header::{Parsed, parse};
    match parse(received) {
        Ok(Parsed::Incomplete) => web::Outer::Incomplete,
        Ok(Parsed::Complete { client, length }) => {
            web::Outer::Complete { client: client.map(|client| client.0), length }
        }
        Err(_) => web::Outer::Malformed,
    }
}

/// What the door by server name does not pass through.
pub(crate) fn terminate(desk: web::Desk) -> gateway::Terminate {
    gateway::Terminate::new(move |gateway::Terminated { stream, received, client }| {
        if !desk.give(web::Given { stream, received, client }) {
            tracing::debug!(%client, "no thread has room for a connection to --https");
        }
    })
}
