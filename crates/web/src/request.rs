//! One request, from its head to its answer. This file holds all the branching; it reads from top to bottom.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_TYPE, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version, request};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use model::routes::{Entry, Member};

use crate::authority::{self, Asked};
use crate::body::{Progress, RequestBody, ResponseBody, Terms, Unread};
use crate::choice::{Choice, EntryOutlook, InFlight, Outlook, Visitor, choose};
use crate::connection::Link;
use crate::decision;
use crate::exchange::Exchange;
use crate::head::{self, Framing, MAX_FIELDS};
use crate::headers::{self, Asker, HOPS, MAX_HOPS, REFUSAL, Said};
use crate::listen::{DoorKind, Worker};
use crate::refusal::Refusal;
use crate::tunnel;
use crate::upstream::{Lease, Need, Unsent};

/// Other members that are asked where the first cannot be: with more the client has given up.
pub(crate) const RETRIES: usize = 2;

pub(crate) async fn answer(worker: Arc<Worker>, link: Arc<Link>, request: Request<Incoming>) -> Response<ResponseBody> {
    let mut exchange = Exchange::begin(&link);
    let is_head = request.method() == Method::HEAD;
    let asks_tunnel = request.version() == Version::HTTP_11 && head::wants_upgrade(pairs(request.headers()));
    let answer = decide(&worker, &link, request, asks_tunnel, &mut exchange).await;
    if asks_tunnel {
        link.decide(matches!(answer, Ok(Answer::Tunnel(..))));
    }
    match answer {
        Ok(Answer::Member(response, lease)) => {
            exchange.answered(response.status());
            let idle = worker.settings.timeouts.stream;
            response.map(|incoming| ResponseBody::carried(incoming, lease, exchange, idle))
        }
        Ok(Answer::Redirect(location)) => {
            let mut response = own(StatusCode::PERMANENT_REDIRECT, "This is served over HTTPS.", is_head, exchange);
            response.headers_mut().insert(LOCATION, location);
            response
        }
        Ok(Answer::Tunnel(response, ends)) => {
            exchange.answered(response.status());
            exchange.switched();
            tunnel::carry(ends, exchange, worker.settings.timeouts.stream);
            // Whose end is the tunnel's.
            response.map(|()| ResponseBody::own(Bytes::new(), Exchange::begin(&link)))
        }
        Err(refusal) => refuse(&worker, &link, &refusal, is_head, exchange),
    }
}

enum Answer {
    Member(Response<Incoming>, Lease),
    Redirect(HeaderValue),
    Tunnel(Response<()>, tunnel::Ends),
}

async fn decide(
    worker: &Worker,
    link: &Link,
    mut request: Request<Incoming>,
    asks_tunnel: bool,
    exchange: &mut Exchange,
) -> Result<Answer, Refusal> {
    // What stands for a head that was refused; HTTP/2 has no such thing.
    if let Some(refusal) = link.begin() {
        return Err(refusal);
    }
    let client_end = asks_tunnel.then(|| hyper::upgrade::on(&mut request));
    let (parts, incoming) = request.into_parts();
    let unread = Unread::new(incoming, parts.version == Version::HTTP_2);
    let framing = check(&parts)?;

    let asked = authority::of(&parts.uri, &parts.headers)?;
    let path = parts.uri.path();
    if Exchange::is_logged() {
        exchange.log(link.client.ip(), &parts.method, &asked.text, path);
    }
    let (entry, outlook) = {
        let table = worker.table.load();
        let found = decision::find_entry(&table, &asked, path, link.tenant.as_ref(), Some(link.client.ip()))?;
        let entry = Arc::clone(found.entry);
        let outlook = worker.members.of(&entry, &table, Instant::now());
        (entry, outlook)
    };
    exchange.route(&outlook);

    let vouched = if link.is_trusted { Vouched::read(&parts.headers) } else { Vouched::default() };
    let said = vouched.said();
    let is_https = link.door == DoorKind::Https || said.proto.is_some_and(|said| headers::first_proto(said) == "https");
    if decision::is_redirected(&entry, is_https) {
        return Ok(Answer::Redirect(decision::redirect(worker.settings.redirect_port, &asked, &parts.uri)?));
    }
    let limit = entry.options.max_body;
    if let (Some(limit), Framing::Sized(length)) = (limit, framing)
        && length > limit
    {
        return Err(Refusal::BodyTooLarge(limit));
    }
    let hops = hops(&parts.headers)?;

    let is_grpc = is_grpc(&parts.headers);
    let need = match client_end {
        Some(_) => Need::Http1,
        None if is_grpc => Need::Http2,
        None => Need::Any,
    };
    let timeouts = &worker.settings.timeouts;
    let expects = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    let is_asked_first = parts.version == Version::HTTP_11 && parts.headers.get(EXPECT).is_some_and(expects);
    let terms = Terms {
        limit,
        idle: if is_grpc { timeouts.stream } else { timeouts.body },
        pace: (!is_grpc).then_some(worker.settings.limits.body_pace),
        conversation: timeouts.stream,
    };
    let hold = is_asked_first.then_some(timeouts.go_ahead);
    let (body, progress) = RequestBody::new(unread, terms, link.line.clone(), hold);
    exchange.body(&progress);
    let who = Asker { client: link.client.ip(), is_https: link.door == DoorKind::Https, host: &asked.text };
    let outbound = Outbound {
        client: link.client.ip(),
        asked: &asked,
        headers: outbound_headers(&parts.headers, who, said, hops),
        parts: &parts,
        asks_tunnel,
        is_asked_first: is_asked_first && !body.is_empty(),
    };
    let (response, lease, member) =
        forward(worker, &entry, &outlook, &outbound, need, body, &progress, exchange).await?;
    finish(response, lease, member, client_end)
}

/// What holds for every request, whoever it is for. HTTP/1 has been read strictly before.
fn check(parts: &request::Parts) -> Result<Framing, Refusal> {
    if parts.method == Method::CONNECT || parts.method == Method::TRACE {
        return Err(Refusal::MethodNotCarried);
    }
    if parts.headers.len() > MAX_FIELDS {
        return Err(Refusal::TooManyFields(MAX_FIELDS));
    }
    let version = match parts.version {
        Version::HTTP_2 => head::Version::Http2,
        Version::HTTP_11 => head::Version::Http11,
        _ => head::Version::Http10,
    };
    Ok(head::framing(version, pairs(&parts.headers))?)
}

/// Tries members until one answers, or none is left that may be tried.
#[allow(clippy::too_many_arguments)] // All of what is known of a request.
async fn forward<'a>(
    worker: &Worker,
    entry: &'a Entry,
    outlook: &EntryOutlook,
    outbound: &Outbound<'_>,
    need: Need,
    mut body: RequestBody,
    progress: &Arc<Progress>,
    exchange: &mut Exchange,
) -> Result<(Response<Incoming>, Lease, &'a Member), Refusal> {
    outlook.retries().save();
    let mut tried = Vec::new();
    let mut last = Refusal::NoMember;
    let mut is_fresh = false;
    let visitor = Visitor { address: outbound.client, places: &worker.settings.places };
    loop {
        let now = Instant::now();
        let (member, permit) = match choose(entry, outlook, &tried, &visitor, now) {
            Choice::Ask(member, permit) => (member, permit),
            Choice::Shed => {
                outlook.counts.shed();
                return Err(Refusal::AllFull);
            }
            Choice::Nobody => break,
        };
        let known = outlook.asked(entry, member, now);
        exchange.member(&member.cluster, InFlight::new(&known, permit, now));
        match attempt(worker, entry, member, &known, outbound, need, body, progress, is_fresh).await {
            Ok((response, lease)) => return Ok((response, lease, member)),
            Err(Failed { refusal, body: None }) => return Err(refusal),
            Err(Failed { refusal, body: Some(unsent) }) => (last, body) = (refusal, unsent),
        }
        // Nothing was sent that a member could have acted upon: another may be asked, if that is affordable.
        tried.push(member.cluster.clone());
        if tried.len() > RETRIES || !outlook.retries().spend() {
            break;
        }
        outlook.counts.retried();
        is_fresh = true;
    }
    Err(last)
}

struct Failed {
    refusal: Refusal,
    /// Given where the request may be sent again.
    body: Option<RequestBody>,
}

#[allow(clippy::too_many_arguments)]
async fn attempt(
    worker: &Worker,
    entry: &Entry,
    member: &Member,
    known: &Outlook,
    outbound: &Outbound<'_>,
    need: Need,
    mut body: RequestBody,
    progress: &Arc<Progress>,
    mut is_fresh: bool,
) -> Result<(Response<Incoming>, Lease), Failed> {
    loop {
        let host = outbound.asked.without_port();
        let mut lease = match worker.upstream.lease(entry, member, host, need, is_fresh).await {
            Ok(lease) => lease,
            Err(refusal) => {
                // That we are busy says nothing about it.
                if !matches!(refusal, Refusal::UpstreamBusy { .. }) {
                    known.failed(Instant::now());
                }
                return Err(Failed { refusal, body: Some(body) });
            }
        };
        let can_repeat = body.is_empty() && outbound.parts.method.is_idempotent();
        let request = outbound.request(&lease, body, progress);
        let sent = Instant::now();
        let late = async {
            progress.ended().await;
            tokio::time::sleep(entry.options.request_timeout).await;
        };
        let response = tokio::select! {
            response = lease.send(request) => response,
            () = late => {
                known.failed(Instant::now());
                return Err(Failed { refusal: Refusal::AnswerTimeout { cluster: member.cluster.clone() }, body: None });
            }
        };
        let Unsent { error, request } = match response {
            Ok(response) => {
                progress.responded();
                let is_well = !matches!(response.status().as_u16(), 502..=504);
                known.answered(sent.elapsed(), is_well, Instant::now());
                return Ok((response, lease));
            }
            Err(unsent) => unsent,
        };
        // The client's fault, if its body was.
        if let Some(refusal) = progress.refusal() {
            return Err(Failed { refusal, body: None });
        }
        // Never sent, or of no consequence.
        let left = request.map(Request::into_body).or(can_repeat.then_some(RequestBody::Empty));
        match left {
            // One that rested may end just as it is used, which says nothing about the member: once more, on a new one.
            Some(left) if lease.is_pooled() => (body, is_fresh) = (left, true),
            left => {
                known.failed(Instant::now());
                let refusal = Refusal::NoAnswer { cluster: member.cluster.clone(), why: error.to_string() };
                return Err(Failed { refusal, body: left });
            }
        }
    }
}

/// A request as a member gets it.
struct Outbound<'a> {
    client: IpAddr,
    parts: &'a request::Parts,
    asked: &'a Asked,
    headers: HeaderMap,
    asks_tunnel: bool,
    /// The client waits for a word before it sends its body.
    is_asked_first: bool,
}

impl Outbound<'_> {
    fn request(&self, lease: &Lease, body: RequestBody, progress: &Arc<Progress>) -> Request<RequestBody> {
        let has_open_end = body.size_hint().exact().is_none();
        let mut request = Request::new(body);
        *request.method_mut() = self.parts.method.clone();
        *request.headers_mut() = self.headers.clone();
        let path = self.parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        if lease.is_http2() {
            *request.version_mut() = Version::HTTP_2;
            let scheme = if lease.is_tls() { "https" } else { "http" };
            let target = Uri::builder().scheme(scheme).authority(self.asked.text.as_str()).path_and_query(path);
            // Every part of it was read before.
            *request.uri_mut() = target.build().unwrap_or_default();
            progress.go_ahead();
            return request;
        }
        *request.uri_mut() = Uri::from(path);
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(&self.asked.text) {
            headers.insert(HOST, host);
        }
        if let (true, Some(protocol)) = (self.asks_tunnel, self.parts.headers.get(UPGRADE)) {
            headers.insert(UPGRADE, protocol.clone());
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        if has_open_end {
            // Without it, hyper takes the bodies of GET and HEAD for none.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if self.is_asked_first {
            headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
            let progress = Arc::clone(progress);
            hyper::ext::on_informational(&mut request, move |word| {
                if word.status() == StatusCode::CONTINUE {
                    progress.go_ahead();
                }
            });
        }
        request
    }
}

fn outbound_headers(inbound: &HeaderMap, asker: Asker<'_>, said: Said<'_>, hops: u32) -> HeaderMap {
    let named: Vec<&[u8]> = inbound.get_all(CONNECTION).iter().map(HeaderValue::as_bytes).collect();
    let mut outbound = HeaderMap::with_capacity(inbound.len() + 8);
    let mut cookies: Option<Vec<u8>> = None;
    for (name, value) in inbound {
        if headers::ends_here(name.as_str(), &named) {
            continue;
        }
        if name == COOKIE {
            // RFC 9113 8.2.3: HTTP/2 may send them one by one, HTTP/1 has one line.
            match &mut cookies {
                Some(all) => all.extend([b"; ", value.as_bytes()].concat()),
                all => *all = Some(value.as_bytes().to_vec()),
            }
            continue;
        }
        outbound.append(name.clone(), value.clone());
    }
    let mut set = |name: HeaderName, value: &[u8]| {
        // Made of values that were headers before, or of addresses.
        if let Ok(value) = HeaderValue::from_bytes(value) {
            outbound.insert(name, value);
        }
    };
    if let Some(cookies) = cookies {
        set(COOKIE, &cookies);
    }
    let wants_trailers = inbound.get_all(TE).iter().flat_map(|value| headers::tokens(value.as_bytes()));
    if wants_trailers.into_iter().any(|token| token.eq_ignore_ascii_case(b"trailers")) {
        set(TE, b"trailers");
    }
    for (name, value) in headers::forwarded(asker, said) {
        set(HeaderName::from_static(name), value.as_bytes());
    }
    set(HeaderName::from_static(HOPS), (hops + 1).to_string().as_bytes());
    outbound
}

/// What the client gets of a member's response.
fn finish(
    mut response: Response<Incoming>,
    lease: Lease,
    member: &Member,
    client_end: Option<OnUpgrade>,
) -> Result<Answer, Refusal> {
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let protocol = response.headers().get(UPGRADE).cloned();
    let named: Vec<Bytes> =
        response.headers().get_all(CONNECTION).iter().map(|value| Bytes::copy_from_slice(value.as_bytes())).collect();
    let named: Vec<&[u8]> = named.iter().map(|value| &**value).collect();
    let mut fit = HeaderMap::with_capacity(response.headers().len());
    for (name, value) in response.headers() {
        if !headers::ends_here_in_response(name.as_str(), &named) {
            fit.append(name.clone(), value.clone());
        }
    }
    if !switched {
        *response.headers_mut() = fit;
        *response.version_mut() = Version::default();
        return Ok(Answer::Member(response, lease));
    }
    let (Some(client), Some(protocol)) = (client_end, protocol) else {
        let why = "it changed to a protocol that nobody had asked for".to_owned();
        return Err(Refusal::NoAnswer { cluster: member.cluster.clone(), why });
    };
    let member = hyper::upgrade::on(&mut response);
    fit.insert(UPGRADE, protocol);
    fit.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    let mut switching = Response::new(());
    *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *switching.headers_mut() = fit;
    Ok(Answer::Tunnel(switching, tunnel::Ends { client, member, lease }))
}

fn refuse(
    worker: &Worker,
    link: &Link,
    refusal: &Refusal,
    is_head: bool,
    mut exchange: Exchange,
) -> Response<ResponseBody> {
    worker.metrics_of(link.door).refused(refusal);
    let (code, detail) = (refusal.code(), refusal.detail());
    let (cluster, why) = detail.map_or((None, ""), |(cluster, why)| (Some(tracing::field::display(cluster)), why));
    tracing::debug!(client = %link.client, cluster, code, blame = refusal.blame().as_str(), reason = %refusal, why, "request refused");
    exchange.refused(refusal.status(), code);
    let mut response = own(refusal.status(), &refusal.to_string(), is_head, exchange);
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static(REFUSAL), HeaderValue::from_static(code));
    if let Some(seconds) = refusal.retry_after() {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if refusal.status() == StatusCode::METHOD_NOT_ALLOWED {
        // RFC 9110 15.5.6 asks for it; which ones the member takes is its own matter.
        headers.insert(http::header::ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    }
    response
}

fn own(status: StatusCode, text: &str, is_head: bool, mut exchange: Exchange) -> Response<ResponseBody> {
    exchange.answered(status);
    let text = if is_head { Bytes::new() } else { Bytes::from(format!("{text}\n")) };
    let mut response = Response::new(ResponseBody::own(text, exchange));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// How often the request has been here.
fn hops(headers: &HeaderMap) -> Result<u32, Refusal> {
    let said = headers.get(HOPS).and_then(|value| value.to_str().ok()?.parse().ok());
    match said.unwrap_or(0) {
        hops if hops >= MAX_HOPS => Err(Refusal::Loop(hops)),
        hops => Ok(hops),
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let is = |value: &HeaderValue| {
        value.as_bytes().get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
    };
    headers.get(CONTENT_TYPE).is_some_and(is)
}

/// What a trusted proxy says of its client; a field in several lines is one list.
#[derive(Default)]
struct Vouched([Option<String>; 4]);

impl Vouched {
    fn read(headers: &HeaderMap) -> Self {
        let joined = |name: &str| {
            let lines: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
            (!lines.is_empty()).then(|| lines.join(", "))
        };
        Self(["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"].map(joined))
    }

    fn said(&self) -> Said<'_> {
        let [forwarded, for_, proto, host] = self.0.each_ref().map(Option::as_deref);
        Said { forwarded, for_, proto, host }
    }
}

fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}
