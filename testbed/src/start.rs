//! What the programs that we start have in common: why one did not, and the ports they are given.

use crate::access::KubectlError;
use crate::process::ProcessError;
use socket2::{Domain, Socket, Type};
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;
use std::{fmt, io};

/// Two programs that pick the same free port at the same time are rare; five times in a row means
/// that something else is wrong.
pub(crate) const PORT_ATTEMPTS: usize = 5;

/// Its `Debug` is its `Display`: tests unwrap, and an escaped log is unreadable.
#[derive(thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("this machine cannot {doing}: {source}")]
    Machine { doing: &'static str, source: io::Error },
    #[error("every port that was free a moment ago was taken, {PORT_ATTEMPTS} times in a row")]
    PortsTaken,
    #[error("{name} was not ready within {within:?}: {answer}\nThe end of its log:\n{log}")]
    NotReady { name: &'static str, within: Duration, answer: String, log: String },
    #[error("kubectl could not write the kubeconfig: {0}")]
    Kubeconfig(KubectlError),
}

impl StartError {
    pub(crate) fn is_taken_port(&self) -> bool {
        // Go writes it small, C large.
        matches!(self, Self::Process(ProcessError::Ended { log, .. }) if log.contains("ddress already in use"))
    }
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Free at this moment; by the time it is used, another program may have it.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Keeps a port for the program that had it and will have it again. It is bound but not listened on: connections are
/// refused, nobody is given the port as a free one, and who asks for it by number gets it all the same.
pub(crate) struct HeldPort {
    _socket: Socket,
}

impl HeldPort {
    pub(crate) fn hold(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        // Of both, or the second could not bind it: Go's listeners always do.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        Ok(Self { _socket: socket })
    }
}

pub(crate) fn cannot(doing: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Machine { doing, source }
}

/// Loopback is open to everybody on the machine, so the token is not one that can be read here.
pub(crate) fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
