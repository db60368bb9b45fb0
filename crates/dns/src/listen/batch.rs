//! Many datagrams with one system call: `recvmmsg` and `sendmmsg`, which no safe interface offers.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::ptr::null_mut;

use crate::query::Transport;

/// How many datagrams one call takes: with as many the cost of the call is gone, and all buffers stay in the cache.
const BATCH: u32 = 64;
/// A question with its OPT stays far below; what is longer is cut by the kernel and then malformed.
const REQUEST: usize = 4096;
const RESPONSE: usize = 1344;
/// One control message with an address and the number of an interface.
const CONTROL: usize = 64;

// An odd number of cache lines from one buffer to the next: else the beginnings of all, which is all that is mostly
// used, would compete for the same few places in the cache.
const _: () = assert!(size_of::<Buffers>() / 64 % 2 == 1 && RESPONSE >= Transport::Udp.max_response());

#[repr(C, align(64))]
struct Buffers {
    request: [u8; REQUEST],
    response: [u8; RESPONSE],
}

/// What else one datagram needs. The kernel writes into both through the pointers in [`Batch::incoming`].
struct Slot {
    peer: libc::sockaddr_in6,
    into: libc::iovec,
    from: libc::iovec,
    control: Control,
}

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

pub(super) struct Batch {
    /// Never touched while a call of the kernel uses them.
    slots: Box<[UnsafeCell<Slot>]>,
    buffers: Box<[UnsafeCell<Buffers>]>,
    /// Each points into the slot of its number.
    incoming: Box<[libc::mmsghdr]>,
    outgoing: Box<[libc::mmsghdr]>,
    received: usize,
    queued: usize,
    /// Requests come with the address that they were sent to, which their responses are to come from.
    with_addresses: bool,
}

// SAFETY: the pointers lead to memory that the batch itself owns.
unsafe impl Send for Batch {}

/// One request and room for its response.
pub(super) struct Exchange<'a> {
    pub(super) peer: IpAddr,
    pub(super) request: &'a [u8],
    pub(super) response: &'a mut [u8],
}

impl Batch {
    pub(super) fn new(with_addresses: bool) -> Self {
        // SAFETY: it consists of numbers, arrays of numbers and pointers, for which zeros are values.
        let slots: Box<[UnsafeCell<Slot>]> = (0..BATCH).map(|_| unsafe { zeroed() }).collect();
        // SAFETY: as above.
        let buffers: Box<[UnsafeCell<Buffers>]> = (0..BATCH).map(|_| unsafe { zeroed() }).collect();
        // SAFETY: as above.
        let outgoing = (0..BATCH).map(|_| unsafe { zeroed() }).collect();
        let pairs = slots.iter().zip(&buffers);
        let incoming = pairs.map(|(slot, buffers)| header_into(slot, buffers, with_addresses)).collect();
        Self { slots, buffers, incoming, outgoing, received: 0, queued: 0, with_addresses }
    }

    /// Waits for at least one datagram.
    pub(super) fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        for message in &mut self.incoming[..self.received] {
            // The kernel shortened them to what it wrote.
            message.msg_hdr.msg_namelen = PEER;
            message.msg_hdr.msg_controllen = if self.with_addresses { CONTROL as _ } else { 0 };
        }
        (self.received, self.queued) = (0, 0);
        // SAFETY: there are `BATCH` headers. Each points to buffers of the lengths it gives, in a slot of ours that
        // lives as long and that nobody else refers to: `exchange` borrows the batch.
        let received = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), self.incoming.as_mut_ptr(), BATCH, libc::MSG_WAITFORONE as _, null_mut())
        };
        self.received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        Ok(self.received)
    }

    /// The datagram of this number among those received; `None` where its sender has no address.
    pub(super) fn exchange(&mut self, number: usize) -> Option<Exchange<'_>> {
        let message = self.incoming[..self.received].get(number)?;
        // SAFETY: no call of the kernel is under way, and the batch is borrowed for as long as these are.
        let (slot, buffers) = unsafe { (&*self.slots[number].get(), &mut *self.buffers[number].get()) };
        let peer = address_of(&slot.peer)?;
        let length = (message.msg_len as usize).min(REQUEST);
        Some(Exchange { peer, request: &buffers.request[..length], response: &mut buffers.response })
    }

    /// Has the response in this slot sent with the others.
    pub(super) fn queue(&mut self, number: usize, length: usize) {
        let received = &self.incoming[number].msg_hdr;
        let slot = self.slots[number].get();
        // SAFETY: as in `exchange`. The buffer's place is only computed.
        let vector = unsafe {
            let base = (&raw mut (*self.buffers[number].get()).response).cast();
            (*slot).from = libc::iovec { iov_base: base, iov_len: length.min(RESPONSE) };
            if received.msg_controllen > 0 {
                leave_interface_open(&mut (*slot).control);
            }
            &raw mut (*slot).from
        };
        let message = &mut self.outgoing[self.queued].msg_hdr;
        message.msg_name = received.msg_name;
        message.msg_namelen = received.msg_namelen;
        message.msg_iov = vector;
        message.msg_iovlen = 1;
        message.msg_control = if received.msg_controllen > 0 { received.msg_control } else { null_mut() };
        message.msg_controllen = received.msg_controllen;
        self.queued += 1;
    }

    /// Sends what is queued. What cannot be sent is one client's bad luck: no route to it, a source port of 0; says how
    /// many those were.
    pub(super) fn send(&mut self, socket: &UdpSocket) -> usize {
        let (mut done, mut failed) = (0, 0);
        while done < self.queued {
            let rest = &mut self.outgoing[done..self.queued];
            // SAFETY: as many headers are given as there are; each was made by `queue` and points into our slots.
            let sent = unsafe {
                let count = u32::try_from(rest.len()).unwrap_or(1);
                libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), count, 0)
            };
            match usize::try_from(sent) {
                Ok(sent) if sent > 0 => done += sent,
                // It stopped before the first of the rest.
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => (done, failed) = (done + 1, failed + 1),
            }
        }
        self.queued = 0;
        failed
    }
}

#[allow(clippy::cast_possible_truncation)] // 28 octets.
const PEER: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;

fn header_into(slot: &UnsafeCell<Slot>, buffers: &UnsafeCell<Buffers>, with_addresses: bool) -> libc::mmsghdr {
    let slot = slot.get();
    // SAFETY: zeros are a value of it; the pointers are made without reading what they lead to.
    unsafe {
        let mut message: libc::mmsghdr = zeroed();
        let base = (&raw mut (*buffers.get()).request).cast();
        (&raw mut (*slot).into).write(libc::iovec { iov_base: base, iov_len: REQUEST });
        message.msg_hdr.msg_name = (&raw mut (*slot).peer).cast();
        message.msg_hdr.msg_namelen = PEER;
        message.msg_hdr.msg_iov = &raw mut (*slot).into;
        message.msg_hdr.msg_iovlen = 1;
        if with_addresses {
            message.msg_hdr.msg_control = (&raw mut (*slot).control).cast();
            message.msg_hdr.msg_controllen = CONTROL as _;
        }
        message
    }
}

/// The kernel said which address and interface a request came in by. The response leaves from the same address, by
/// whatever interface leads to the client.
fn leave_interface_open(control: &mut Control) {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    // `in_pktinfo` begins with the interface, `in6_pktinfo` ends with it behind the address.
    const LEVEL: usize = size_of::<libc::size_t>();
    let level = control.0[LEVEL..].first_chunk().map(|level| i32::from_ne_bytes(*level));
    let interface = match level {
        Some(libc::IPPROTO_IP) => HEADER,
        // RFC 4007 6: a link-local address means nothing without its interface.
        Some(libc::IPPROTO_IPV6) if control.0[HEADER..].starts_with(&[0xfe, 0x80]) => return,
        Some(libc::IPPROTO_IPV6) => HEADER + 16,
        _ => return,
    };
    control.0[interface..interface + 4].fill(0);
}

/// What `IP_PKTINFO` and its like need, before the socket is used with addresses.
pub(super) fn ask_for_addresses(socket: &UdpSocket, v6: bool) -> io::Result<()> {
    let (level, option) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) } else { (libc::IPPROTO_IP, libc::IP_PKTINFO) };
    let on: libc::c_int = 1;
    #[allow(clippy::cast_possible_truncation)] // 4 octets.
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is a `c_int`, and lives through the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An IPv4 client of an IPv6 socket is an IPv4 client.
fn address_of(peer: &libc::sockaddr_in6) -> Option<IpAddr> {
    match i32::from(peer.sin6_family) {
        libc::AF_INET => {
            // SAFETY: the kernel wrote a `sockaddr_in`, which is shorter and no more aligned.
            let peer = unsafe { &*(&raw const *peer).cast::<libc::sockaddr_in>() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(peer.sin_addr.s_addr))))
        }
        libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(peer.sin6_addr.s6_addr)).to_canonical()),
        _ => None,
    }
}
