//! What is said on a link beside the streams themselves, and the bounds of HTTP/2 that both ends keep.

use std::time::Duration;

use bytes::{Buf as _, Bytes};
use h2::RecvStream;
use http::HeaderName;
use serde::{Deserialize, Serialize};
use socket2::SockRef;
use tokio::net::TcpStream;

/// What a TLS connection to the agents' door is for.
pub const ALPN: &[u8] = b"fleetgate-tunnel/1";
/// Of a dial, where nobody says otherwise.
pub const DIAL_WITHIN: Duration = Duration::from_secs(5);

/// Of TCP.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// In the kernel: two frames.
const UNSENT: u32 = 128 << 10;

/// The code of a refusal; the body has the reason.
pub(crate) const REFUSAL: HeaderName = HeaderName::from_static("fleetgate-refusal");
/// How long the asker still waits, in milliseconds.
pub(crate) const WITHIN: HeaderName = HeaderName::from_static("fleetgate-within");
/// Between replicas: whose stream it is.
pub(crate) const CLUSTER: HeaderName = HeaderName::from_static("fleetgate-cluster");
/// RFC 9297 3.4.
pub(crate) const CAPSULES: HeaderName = HeaderName::from_static("capsule-protocol");
pub(crate) const HELLO: &str = "/v1/hello";
/// RFC 9298 3.
pub(crate) const UDP: &str = "/.well-known/masque/udp/";

/// What a receiver may leave unread of one stream: at 100 ms across the world it is 10 MB/s, in a data centre far more than a
/// TCP connection carries.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
/// And of all streams of a link. What stands unread is looked at long before (`stream::BUDGET`); this is the hard bound.
pub(crate) const LINK_WINDOW: u32 = 256 << 20;
/// Larger frames save system calls; a small one of another stream waits for at most one.
pub(crate) const MAX_FRAME: u32 = 64 << 10;
/// Of one stream, that HTTP/2 has taken and not sent yet: enough to fill a frame while another one is written.
pub(crate) const SEND_BUFFER: usize = 256 << 10;
/// Of one link: each is a descriptor of the agent's.
pub(crate) const MAX_STREAMS: u32 = 4096;
/// Names and a few numbers.
pub(crate) const MAX_HEAD: u32 = 16 << 10;
/// A greeting or the reason of a refusal.
pub(crate) const MAX_TEXT: usize = 4 << 10;

/// The hub says who it is, first of all and whenever that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Which of the hub's processes this is.
    pub replica: String,
    /// How many of them take links.
    pub replicas: usize,
    /// Whether it is about to end: what it carries may go on for a while, and another link is wanted in place of this one.
    #[serde(default)]
    pub leaving: bool,
}

/// And the agent answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub agent: String,
}

/// Of a link's socket: small frames go at once, what is not sent yet stays with us, where a ping may overtake it, and a
/// peer that acknowledges nothing is given up not long after it is known to be silent.
pub fn tune(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let socket = SockRef::from(socket);
    let _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
}

/// A short body.
pub(crate) async fn read_text(body: &mut RecvStream) -> Result<Bytes, h2::Error> {
    let mut text = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        let _ = body.flow_control().release_capacity(chunk.len());
        let room = MAX_TEXT - text.len();
        text.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.remaining() > room {
            break;
        }
    }
    Ok(text.into())
}
