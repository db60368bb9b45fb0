//! Many UDP messages with one system call, which is what makes a generator outrun the servers.

#![allow(unsafe_code)]

use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::{array, io, mem, ptr};

use libc::{c_int, c_uint, iovec, mmsghdr, msghdr, sockaddr_storage, socklen_t};

/// As many as servers that work in batches take at once.
pub const MESSAGES: usize = 64;
/// What our queries offer to take.
pub const OCTETS: usize = 1232;

/// Messages that were received, or that wait to be sent.
pub struct Batch {
    octets: Box<[[u8; OCTETS]]>,
    lengths: [usize; MESSAGES],
    /// Whom each came from and goes to; a connected socket knows.
    peers: Option<Box<[Peer]>>,
    count: usize,
}

#[derive(Clone, Copy)]
struct Peer {
    address: sockaddr_storage,
    length: socklen_t,
}

/// Whether to wait when there is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// For the first message, never for a second one.
    ForOne,
    No,
}

impl Batch {
    /// For a socket that is connected.
    pub fn connected() -> Self {
        Self { octets: vec![[0; OCTETS]; MESSAGES].into(), lengths: [0; MESSAGES], peers: None, count: 0 }
    }

    /// For a socket that anybody can send to: what is received can be changed and sent back.
    pub fn to_anybody() -> Self {
        // SAFETY: plain octets and numbers, for which zero is a value like any other.
        let nobody = Peer { address: unsafe { mem::zeroed() }, length: 0 };
        Self { peers: Some(vec![nobody; MESSAGES].into()), ..Self::connected() }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// One more message to send, as long as there are less than [`MESSAGES`]: the octets to write it to.
    pub fn push(&mut self, length: usize) -> &mut [u8] {
        self.lengths[self.count] = length;
        self.count += 1;
        &mut self.octets[self.count - 1][..length]
    }

    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.octets.iter().zip(self.lengths).take(self.count).map(|(octets, length)| &octets[..length])
    }

    /// All messages at full length, and how much of that is in use.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = (&mut [u8; OCTETS], &mut usize)> {
        self.octets.iter_mut().zip(&mut self.lengths).take(self.count)
    }

    /// Takes what is there, and forgets what was in the batch. Returns how many there are.
    pub fn receive(&mut self, socket: &UdpSocket, wait: Wait) -> io::Result<usize> {
        self.lengths = [OCTETS; MESSAGES];
        if let Some(peers) = &mut self.peers {
            peers.iter_mut().for_each(|peer| peer.length = SOCKADDR_LENGTH);
        }
        let flags = match wait {
            Wait::ForOne => libc::MSG_WAITFORONE,
            Wait::No => libc::MSG_DONTWAIT,
        };
        self.count = 0;
        let mut vectors = self.vectors();
        let mut headers = self.headers(&mut vectors);
        let most = c_uint::try_from(MESSAGES).expect("a batch is small");
        // SAFETY: `most` headers, each with one vector into octets of ours that nobody else uses meanwhile.
        let received =
            unsafe { libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), most, flags, ptr::null_mut()) };
        let received = counted(received)?;
        for (number, header) in headers.iter().take(received).enumerate() {
            self.lengths[number] = header.msg_len as usize;
            if let Some(peers) = &mut self.peers {
                peers[number].length = header.msg_hdr.msg_namelen;
            }
        }
        self.count = received;
        Ok(received)
    }

    /// Sends all messages.
    pub fn send(&mut self, socket: &UdpSocket) -> io::Result<()> {
        let count = self.count;
        let mut vectors = self.vectors();
        let mut headers = self.headers(&mut vectors);
        let mut sent = 0;
        while sent < count {
            let rest = &mut headers[sent..count];
            let most = c_uint::try_from(rest.len()).expect("a batch is small");
            // SAFETY: `most` headers, each with one vector to octets of ours, which are only read.
            let more = unsafe { libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), most, 0) };
            sent += counted(more)?;
        }
        Ok(())
    }

    fn vectors(&mut self) -> [iovec; MESSAGES] {
        let mut all = self.octets.iter_mut().zip(self.lengths);
        array::from_fn(|_| {
            let (octets, length) = all.next().expect("as many octets as messages");
            iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: length }
        })
    }

    /// They point to the vectors, which therefore have to stay where they are while these are used.
    fn headers(&mut self, vectors: &mut [iovec; MESSAGES]) -> [mmsghdr; MESSAGES] {
        array::from_fn(|number| {
            // SAFETY: numbers and pointers, for which zero is "none".
            let mut header: msghdr = unsafe { mem::zeroed() };
            header.msg_iov = &raw mut vectors[number];
            header.msg_iovlen = 1;
            if let Some(peers) = &mut self.peers {
                header.msg_name = (&raw mut peers[number].address).cast();
                header.msg_namelen = peers[number].length;
            }
            mmsghdr { msg_hdr: header, msg_len: 0 }
        })
    }
}

#[allow(clippy::cast_possible_truncation)] // 128
const SOCKADDR_LENGTH: socklen_t = size_of::<sockaddr_storage>() as socklen_t;

fn counted(result: c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_received_goes_back_to_who_sent_it() {
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        let clients = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for (number, client) in (1..).zip(&clients) {
            client.connect(here.local_addr().unwrap()).unwrap();
            let mut batch = Batch::connected();
            batch.push(number).fill(b'a');
            batch.push(number).fill(b'b');
            batch.send(client).unwrap();
        }
        let mut batch = Batch::to_anybody();
        assert_eq!(batch.receive(&here, Wait::ForOne).unwrap(), 6);
        for (octets, length) in batch.messages_mut() {
            octets[*length] = b'!';
            *length += 1;
        }
        batch.send(&here).unwrap();
        for (client, expected) in clients.iter().zip([["a!", "b!"], ["aa!", "bb!"], ["aaa!", "bbb!"]]) {
            let mut batch = Batch::connected();
            batch.receive(client, Wait::ForOne).unwrap();
            assert_eq!(batch.messages().collect::<Vec<_>>(), expected.map(str::as_bytes));
            assert_eq!(batch.receive(client, Wait::No).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert!(batch.is_empty());
        }
    }
}
