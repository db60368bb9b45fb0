//! A client's connection, made to cost as little as it can: requests are rendered beforehand, and of a response only
//! what tells its status and its end is read.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::backends::{BODY, MIRROR, ends};
use super::{PATH, Site, frames};

const USER_AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64) bench/1.0";
const PATIENCE: Duration = Duration::from_secs(30);

/// What clients speak.
#[derive(Debug, Clone)]
pub enum Speaks {
    Http1,
    Https1(Tls),
    /// Over TLS, so many requests at once on each connection.
    Http2(Tls, usize),
}

/// How clients set up TLS.
#[derive(Debug, Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// That trusts this certificate alone, and asks for a protocol.
    pub fn new(certificate: CertificateDer<'static>, protocol: &[u8]) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

impl Speaks {
    pub(super) fn at_once(&self) -> usize {
        match self {
            Self::Http1 | Self::Https1(_) => 1,
            Self::Http2(_, streams) => *streams,
        }
    }

    pub(super) fn requests(&self, count: usize) -> Vec<Vec<u8>> {
        let render = |number| match self {
            Self::Http1 | Self::Https1(_) => request(Site(number), PATH),
            Self::Http2(..) => frames::request(Site(number), USER_AGENT),
        };
        (0..count).map(render).collect()
    }
}

pub(super) struct Connection {
    pub(super) socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Of responses that are not complete.
    received: Vec<u8>,
    /// The stream of the next request, on HTTP/2.
    next_stream: Option<u32>,
    /// What is asked for: its stream, and since when.
    under_way: Vec<(u32, Instant)>,
}

impl Connection {
    /// Waits until it can be used.
    pub(super) fn open(door: SocketAddr, speaks: &Speaks) -> anyhow::Result<Self> {
        let mut socket = TcpStream::connect(door).with_context(|| format!("connecting to {door}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let tls = match speaks {
            Speaks::Http1 => None,
            Speaks::Https1(Tls(config)) | Speaks::Http2(Tls(config), _) => {
                let name = ServerName::try_from(Site(0).name())?;
                let mut tls = ClientConnection::new(Arc::clone(config), name)?;
                while tls.is_handshaking() {
                    tls.complete_io(&mut socket).context("in a TLS handshake")?;
                }
                ensure!(tls.alpn_protocol().is_some(), "the proxy speaks no {:?}", config.alpn_protocols);
                Some(Box::new(tls))
            }
        };
        socket.set_nonblocking(true)?;
        let next_stream = matches!(speaks, Speaks::Http2(..)).then_some(1);
        let mut connection = Self { socket, tls, received: Vec::new(), next_stream, under_way: Vec::new() };
        if next_stream.is_some() {
            connection.send(&frames::preface())?;
        }
        Ok(connection)
    }

    pub(super) fn ask(&mut self, request: &mut [u8], since: Instant) -> anyhow::Result<()> {
        let mut stream = 0;
        if let Some(next) = &mut self.next_stream {
            stream = *next;
            *next += 2;
            frames::set_stream(request, stream);
        }
        self.under_way.push((stream, since));
        self.send(request)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// A few hundred octets at a time always fit into the socket.
    fn send(&mut self, octets: &[u8]) -> anyhow::Result<()> {
        let sent = match &mut self.tls {
            None => self.socket.write(octets),
            Some(tls) => {
                tls.writer().write_all(octets)?;
                while tls.wants_write() {
                    tls.write_tls(&mut self.socket)?;
                }
                Ok(octets.len())
            }
        };
        ensure!(sent.context("sending a request")? == octets.len(), "a request was not sent in one piece");
        Ok(())
    }

    /// Reads what is there; `answered` is called with the beginning of every request that was answered in full.
    pub(super) fn take(&mut self, mut answered: impl FnMut(Instant)) -> anyhow::Result<()> {
        let mut buffer = [0; 16 << 10];
        let count = match self.receive(&mut buffer) {
            Ok(0) => bail!("the proxy closed a connection"),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("receiving a response"),
        };
        if self.next_stream.is_some() {
            self.received.extend_from_slice(&buffer[..count]);
            let mut replies = Vec::new();
            let under_way = &mut self.under_way;
            frames::take(&mut self.received, &mut replies, |stream| {
                if let Some(at) = under_way.iter().position(|(known, _)| *known == stream) {
                    answered(under_way.swap_remove(at).1);
                }
            })?;
            return if replies.is_empty() { Ok(()) } else { self.send(&replies) };
        }
        // The usual: one response, and all of it.
        let whole = self.received.is_empty() && length(&buffer[..count])? == Some(count);
        if !whole {
            self.received.extend_from_slice(&buffer[..count]);
            if length(&self.received)?.is_none_or(|length| length > self.received.len()) {
                return Ok(());
            }
            self.received.clear();
        }
        self.under_way.drain(..).for_each(|(_, since)| answered(since));
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(buffer) };
        let mut taken = 0;
        loop {
            match tls.reader().read(&mut buffer[taken..]) {
                Ok(0) if taken == 0 => return Ok(0),
                Ok(count) if count > 0 => taken += count,
                _ if taken > 0 => return Ok(taken),
                _ => {
                    if tls.read_tls(&mut self.socket)? == 0 {
                        return Ok(0);
                    }
                    tls.process_new_packets().map_err(io::Error::other)?;
                }
            }
        }
    }
}

/// Of the response that begins here, if its head is there.
fn length(octets: &[u8]) -> anyhow::Result<Option<usize>> {
    let Some(head) = ends(octets) else { return Ok(None) };
    let is_well = octets.starts_with(b"HTTP/1.1 200 ");
    ensure!(is_well, "a response is not 200: {}", String::from_utf8_lossy(&octets[..head]));
    Ok(Some(head + BODY))
}

/// What reaches the backend of a site, as it came there.
pub(super) fn ask_for_mirror(connection: &mut Connection, site: Site) -> anyhow::Result<()> {
    connection.send(&request(site, MIRROR))
}

/// The head that was mirrored, once all of it is there; empty where the proxy itself answered.
pub(super) fn mirrored(connection: &mut Connection) -> anyhow::Result<Option<String>> {
    let mut buffer = [0; 16 << 10];
    match connection.receive(&mut buffer) {
        Ok(count) => connection.received.extend_from_slice(&buffer[..count]),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let Some(head) = ends(&connection.received) else { return Ok(None) };
    if !connection.received.starts_with(b"HTTP/1.1 200 ") {
        return Ok(Some(String::new()));
    }
    let body = &connection.received[head..];
    let Some(end) = ends(body) else { return Ok(None) };
    let text = String::from_utf8_lossy(&body[..end]).into_owned();
    connection.received.clear();
    Ok(Some(text))
}

fn request(site: Site, path: &str) -> Vec<u8> {
    let host = site.name();
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {USER_AGENT}\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\n\r\n"
    )
    .into_bytes()
}
