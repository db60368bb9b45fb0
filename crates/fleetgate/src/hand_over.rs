//! From one process to the next without a refused connection: the old one gives its listening sockets away.
//!
//! A server with a data folder waits there for its successor. One that is started with `--take-over` asks it: the old
//! one stops reading the folder and closes the database, sends its sockets and serves on from its last snapshot; the
//! new one opens the database, serves from the same sockets and says so; then the old one drains. Should the new one
//! end before that, the old one goes on as if nothing had been. The sockets' queues have no owner, so that nobody who
//! waits in them is lost.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recvmsg, sendmsg, socket_with,
};
use server::Bound;
use tokio::sync::mpsc::{self, Receiver};

/// In the data folder.
const FILE: &str = "hand-over.sock";
/// The number is that of this protocol: both sides must speak the same.
const REQUEST: &str = "take over 1";
const READY: &str = "ready";
/// More than there are kinds of sockets, on one machine with many cores.
const MAX_SOCKETS: usize = 128;
/// A line for each socket.
const MAX_MESSAGE: usize = 128 * MAX_SOCKETS;

/// Listening sockets, each with the flag that it belongs to and its address.
#[derive(Default)]
pub(crate) struct Sockets(Vec<(&'static str, SocketAddr, OwnedFd)>);

impl Sockets {
    pub(crate) fn add(&mut self, flag: &'static str, address: SocketAddr, socket: OwnedFd) {
        self.0.push((flag, address, socket));
    }
}

/// Where a successor asks.
pub(crate) struct Post(OwnedFd);

/// A process that wants to take over.
pub(crate) struct Successor(OwnedFd);

impl Post {
    /// Only one process can have the data folder; whatever stands at the path is left from an earlier one.
    pub(crate) fn open(data: &Path) -> io::Result<Self> {
        let path = data.join(FILE);
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let socket = seqpacket()?;
        bind(&socket, &SocketAddrUnix::new(&path)?)?;
        // Who may connect to it may have our sockets.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        listen(&socket, 1)?;
        Ok(Self(socket))
    }

    /// Waits for successors in a thread of its own, which nobody waits for.
    pub(crate) fn watch(self) -> io::Result<Receiver<Successor>> {
        // One at a time: while one takes over, another one waits to be heard.
        let (sender, successors) = mpsc::channel(1);
        std::thread::Builder::new().name("hand-over".into()).spawn(move || {
            loop {
                let sent = match self.next() {
                    Ok(successor) => sender.blocking_send(successor),
                    Err(error) => return tracing::error!(%error, "no process can take over from this one any more"),
                };
                if sent.is_err() {
                    return;
                }
            }
        })?;
        Ok(successors)
    }

    fn next(&self) -> io::Result<Successor> {
        loop {
            let successor = Successor(accept_with(&self.0, SocketFlags::CLOEXEC)?);
            match receive(&successor.0) {
                Ok((text, _)) if text == REQUEST => return Ok(successor),
                Ok((text, _)) => tracing::warn!(request = ?text, "somebody asked for something else than our sockets"),
                Err(error) => tracing::warn!(%error, "a successor asked for nothing"),
            }
        }
    }
}

impl Successor {
    pub(crate) fn give(&self, sockets: &Sockets) -> io::Result<()> {
        let lines: Vec<String> = sockets.0.iter().map(|(flag, address, _)| format!("{flag} {address}")).collect();
        let descriptors: Vec<_> = sockets.0.iter().map(|(_, _, socket)| socket.as_fd()).collect();
        send(&self.0, &lines.join("\n"), &descriptors)
    }

    /// Whether it serves now; otherwise it has ended.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(receive(&self.0), Ok((text, _)) if text == READY)
    }
}

/// What a predecessor gave us.
#[derive(Default)]
pub(crate) struct Inheritance {
    /// To say that we serve; closed without that, the predecessor goes on.
    predecessor: Option<OwnedFd>,
    sockets: BTreeMap<String, Vec<(SocketAddr, OwnedFd)>>,
}

impl Inheritance {
    /// Asks whoever serves from this data folder. Without anybody there is nothing to inherit.
    pub(crate) fn ask(data: &Path) -> io::Result<Self> {
        let socket = seqpacket()?;
        match connect(&socket, &SocketAddrUnix::new(data.join(FILE))?).map_err(io::Error::from) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error),
        }
        send(&socket, REQUEST, &[])?;
        let (text, descriptors) = receive(&socket)?;
        let mut sockets: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for (line, descriptor) in text.lines().zip(descriptors) {
            let (flag, address) = line.split_once(' ').ok_or(io::ErrorKind::InvalidData)?;
            let address = address.parse().map_err(|_| io::ErrorKind::InvalidData)?;
            sockets.entry(flag.into()).or_default().push((address, descriptor));
        }
        Ok(Self { predecessor: Some(socket), sockets })
    }

    pub(crate) fn has_predecessor(&self) -> bool {
        self.predecessor.is_some()
    }

    /// The sockets of a flag, if they are where this process is to listen.
    pub(crate) fn take(&mut self, flag: &str, wanted: SocketAddr) -> Vec<OwnedFd> {
        let serves = |address: SocketAddr| address == wanted || (wanted.port() == 0 && address.ip() == wanted.ip());
        let sockets = self.sockets.remove(flag).unwrap_or_default();
        sockets.into_iter().filter(|(address, _)| serves(*address)).map(|(_, socket)| socket).collect()
    }

    /// The listener of a flag: the predecessor's, or a new one.
    pub(crate) fn bound(&mut self, flag: &'static str, at: SocketAddr) -> anyhow::Result<Bound> {
        match self.take(flag, at).pop() {
            Some(socket) => Bound::adopt(flag, socket).with_context(|| format!("taking over {flag}")),
            None => Ok(Bound::bind(flag, at)?),
        }
    }

    /// Lets the predecessor end.
    pub(crate) fn announce_ready(self) -> io::Result<()> {
        self.predecessor.map_or(Ok(()), |predecessor| send(&predecessor, READY, &[]))
    }
}

/// Keeps the boundaries of messages, so that none has to be searched for.
fn seqpacket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

fn send(socket: &OwnedFd, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// An empty message is the end.
fn receive(socket: &OwnedFd) -> io::Result<(String, Vec<OwnedFd>)> {
    let mut space = vec![MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut octets = vec![0; MAX_MESSAGE];
    let message = recvmsg(socket, &mut [IoSliceMut::new(&mut octets)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    octets.truncate(message.bytes);
    let text = String::from_utf8(octets).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((text, descriptors))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn listener() -> (SocketAddr, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (listener.local_addr().unwrap(), listener.into())
    }

    #[test]
    fn a_successor_gets_the_sockets_that_it_wants() {
        let data = tempfile::tempdir().unwrap();
        assert!(!Inheritance::ask(data.path()).unwrap().has_predecessor());
        let (post, mut sockets) = (Post::open(data.path()).unwrap(), Sockets::default());
        let [(sni, first), (apiserver, second), (admin, third)] = std::array::from_fn(|_| listener());
        sockets.add("--sni", sni, first);
        sockets.add("--apiserver", apiserver, second);
        sockets.add("--admin", admin, third);
        let old = std::thread::spawn(move || {
            let successor = post.next().unwrap();
            successor.give(&sockets).unwrap();
            // Somebody who ends without a word is no successor.
            let gone = post.next().unwrap();
            gone.give(&sockets).unwrap();
            (successor.is_ready(), gone.is_ready())
        });
        let mut inheritance = Inheritance::ask(data.path()).unwrap();
        drop(Inheritance::ask(data.path()).unwrap());
        let [taken] = <[OwnedFd; 1]>::try_from(inheritance.take("--sni", sni)).unwrap();
        assert_eq!(TcpListener::from(taken).local_addr().unwrap(), sni);
        assert_eq!(inheritance.take("--sni", sni).len(), 0, "it was taken already");
        assert_eq!(inheritance.take("--apiserver", "127.0.0.1:0".parse().unwrap()).len(), 1, "any port will do");
        assert_eq!(inheritance.take("--admin", sni).len(), 0, "it is somewhere else");
        inheritance.announce_ready().unwrap();
        assert_eq!(old.join().unwrap(), (true, false));
    }

    #[test]
    fn only_the_owner_may_ask() {
        let data = tempfile::tempdir().unwrap();
        let _post = Post::open(data.path()).unwrap();
        let mode = std::fs::metadata(data.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let _again = Post::open(data.path()).unwrap();
    }
}
