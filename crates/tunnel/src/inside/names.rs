//! Names as the cluster knows them: by the system's resolver, or by the cluster's own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use domain::base::iana::{Class, Rcode};
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa};
use model::DnsName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::refused::Refused;

/// More are not tried: a headless Service may have thousands.
const MAX_ADDRESSES: usize = 16;
/// A question that got lost is asked again: the cluster's resolver is near.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// What a datagram may have without EDNS (RFC 1035 4.2.1) is the least; servers may send more.
const MAX_ANSWER: usize = 4096;

/// How names are looked up.
#[derive(Debug, Clone)]
pub struct Names {
    /// Without, the system's resolver is asked.
    server: Option<SocketAddr>,
    cluster_domain: DnsName,
    svc: DnsName,
}

impl Names {
    pub fn new(server: Option<SocketAddr>, cluster_domain: DnsName) -> Self {
        Self { server, cluster_domain, svc: DnsName::parse("svc").expect("it is a name") }
    }

    /// API servers ask for Services as `NAME.NAMESPACE.svc`, which is short for a name in the cluster's domain.
    pub(super) fn full(&self, name: &DnsName) -> DnsName {
        if !name.is_at_or_under(&self.svc) {
            return name.clone();
        }
        self.cluster_domain.prepend(&name.to_string()).unwrap_or_else(|_| name.clone())
    }

    /// All of its addresses, at least one.
    pub(super) async fn look_up(&self, name: &DnsName) -> Result<Vec<IpAddr>, Refused> {
        let found = match self.server {
            Some(server) => ask(server, name).await,
            None => ask_system(name).await,
        };
        let mut found = found.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Refused::UnknownName(name.to_string()),
            _ => Refused::UnknownName(format!("{name}: {error}")),
        })?;
        found.truncate(MAX_ADDRESSES);
        if found.is_empty() { Err(Refused::UnknownName(name.to_string())) } else { Ok(found) }
    }
}

async fn ask_system(name: &DnsName) -> io::Result<Vec<IpAddr>> {
    // Absolute, so that no search list is tried. The file of hosts knows no final dot, though.
    let text = name.to_string();
    let absolute = if text.contains('.') { format!("{text}.") } else { text };
    let found = tokio::net::lookup_host((absolute, 0)).await;
    // The system's words are about errors of its library.
    let found = found.map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
    let mut addresses = Vec::new();
    for address in found {
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    Ok(addresses)
}

async fn ask(server: SocketAddr, name: &DnsName) -> io::Result<Vec<IpAddr>> {
    let name = Name::from_octets(name.as_wire().to_vec()).map_err(io::Error::other)?;
    let (v4, v6) = tokio::join!(ask_for(server, &name, Rtype::A), ask_for(server, &name, Rtype::AAAA));
    match (v4, v6) {
        (Ok(mut v4), Ok(v6)) => {
            v4.extend(v6);
            Ok(v4)
        }
        // A server that does not answer one of them has answered the other.
        (Ok(found), Err(_)) | (Err(_), Ok(found)) if !found.is_empty() => Ok(found),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

async fn ask_for(server: SocketAddr, name: &Name<Vec<u8>>, rtype: Rtype) -> io::Result<Vec<IpAddr>> {
    let id = fastrand::u16(..);
    let question = question(id, name, rtype)?;
    let any: SocketAddr = if server.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    let mut answer = vec![0; MAX_ANSWER];
    loop {
        socket.send(&question).await?;
        let heard = timeout(ASK_AGAIN, async {
            loop {
                let length = socket.recv(&mut answer).await?;
                if let Some(heard) = read(&answer[..length], id, name, rtype) {
                    return heard;
                }
            }
        });
        match heard.await {
            Ok(Ok(Heard::Addresses(addresses))) => return Ok(addresses),
            Ok(Ok(Heard::Truncated)) => return ask_by_tcp(server, &question, (id, name, rtype)).await,
            Ok(Err(error)) => return Err(error),
            // Whoever asked has a deadline.
            Err(_) => {}
        }
    }
}

async fn ask_by_tcp(
    server: SocketAddr,
    question: &[u8],
    (id, name, rtype): (u16, &Name<Vec<u8>>, Rtype),
) -> io::Result<Vec<IpAddr>> {
    let mut stream = TcpStream::connect(server).await?;
    // RFC 1035 4.2.2: two octets say how long it is.
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], question].concat()).await?;
    let mut answer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut answer).await?;
    match read(&answer, id, name, rtype) {
        Some(Ok(Heard::Addresses(addresses))) => Ok(addresses),
        Some(Err(error)) => Err(error),
        Some(Ok(Heard::Truncated)) | None => Err(io::Error::other("the resolver's answer cannot be used")),
    }
}

fn question(id: u16, name: &Name<Vec<u8>>, rtype: Rtype) -> io::Result<Vec<u8>> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(id);
    message.header_mut().set_rd(true);
    let mut message = message.question();
    message.push((name, rtype)).map_err(io::Error::other)?;
    Ok(message.finish())
}

enum Heard {
    Addresses(Vec<IpAddr>),
    Truncated,
}

/// `None` where it is no answer to the question.
fn read(octets: &[u8], id: u16, name: &Name<Vec<u8>>, rtype: Rtype) -> Option<io::Result<Heard>> {
    let message = Message::from_octets(octets).ok()?;
    let header = message.header();
    let asked = message.sole_question().ok()?;
    if header.id() != id
        || !header.qr()
        || asked.qname() != name
        || asked.qtype() != rtype
        || asked.qclass() != Class::IN
    {
        return None;
    }
    match header.rcode() {
        Rcode::NOERROR | Rcode::NXDOMAIN => {}
        rcode => return Some(Err(io::Error::other(format!("the resolver answered {rcode}")))),
    }
    if header.tc() {
        return Some(Ok(Heard::Truncated));
    }
    let mut addresses = Vec::new();
    // Whatever aliases lead there: the resolver has followed them.
    for record in message.answer().ok()?.flatten().take(4 * MAX_ADDRESSES) {
        if let Ok(Some(v4)) = record.to_record::<A>() {
            addresses.push(IpAddr::V4(v4.data().addr()));
        } else if let Ok(Some(v6)) = record.to_record::<Aaaa>() {
            addresses.push(IpAddr::V6(v6.data().addr()));
        }
    }
    Some(Ok(Heard::Addresses(addresses)))
}
