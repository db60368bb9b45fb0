//! Sockets as they should be for what is carried here.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// A peer that vanished is noticed within a minute, and one that rests is left alone.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMES: u32 = 3;

/// What fails here would only be slower.
pub(crate) fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE_AFTER);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE_EVERY);
    let _ = sockopt::set_tcp_keepcnt(stream, KEEPALIVE_TIMES);
}

/// Has it end by a reset: whoever is at the other end must not take it for an orderly end.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}
