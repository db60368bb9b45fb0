//! The way to a control plane.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};
use socket2::{SockRef, TcpKeepalive};

/// Shorter than the idle time-outs of common load balancers and NATs (four minutes and more), with a few tries.
pub(crate) const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_mins(1)).with_interval(Duration::from_secs(15));

/// A socket that does not take it still carries bytes.
pub(crate) fn keep_alive(socket: &OwnedFd) {
    if let Err(error) = SockRef::from(socket).set_tcp_keepalive(&KEEPALIVE) {
        tracing::debug!(%error, "keep-alive not set");
    }
}

/// Begins to connect and does not wait for it.
pub(crate) fn begin_connect(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    // API traffic is small messages that somebody waits for.
    sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}
