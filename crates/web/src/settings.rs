//! How the doors are served; every number says why it is that one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use model::overflow::Tables;
use model::steering::Standings;
use model::{Cidr, ObjectName};

use crate::inward::Inward;

#[derive(Debug, Clone)]
pub struct Settings {
    /// A runtime of its own each; none where there are no doors, and members are checked for others alone.
    pub threads: usize,
    /// Whose word about the client counts.
    pub trusted_proxies: Arc<[Cidr]>,
    /// Reads what trusted proxies put in front of everything; without it nothing is expected of them.
    pub outer_header: Option<OuterHeader>,
    /// Where clients are; without it nobody's place is known.
    pub places: Arc<ArcSwapOption<geo::Map>>,
    /// What is known of members is published here.
    pub standings: Arc<ArcSwap<Standings>>,
    /// What this process is called in the tables of the overflow, where it is an edge; without a name it counts for nobody and goes by no table.
    pub edge: Option<ObjectName>,
    /// Those tables, a new one every second. What stays the same for ten counts no more.
    pub tables: Arc<ArcSwap<Tables>>,
    /// Where clients are sent that come without TLS and should not; the usual port, if none.
    pub redirect_port: Option<u16>,
    /// The way into clusters, where this process has one.
    pub inward: Option<Inward>,
    /// Whether members are checked, as their policies say.
    pub checks: bool,
    /// Whether HTTP/1.1 of the usual kind goes the short way, past hyper. Both ways do the same.
    pub is_lean: bool,
    pub timeouts: Timeouts,
    pub limits: Limits,
}

/// A reader of the PROXY protocol, which is the gateway's: it is given all that was received so far.
pub type OuterHeader = fn(&[u8]) -> Outer;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outer {
    /// All right so far; ask again with more.
    Incomplete,
    /// So many octets. Without a client the proxy speaks for itself.
    Complete {
        client: Option<SocketAddr>,
        length: usize,
    },
    Malformed,
}

#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a handshake and the first head together. Browsers connect ahead of need and wait for no more than that.
    pub opening: Duration,
    /// For a later head, from its first octet. Heads come in one piece, or two.
    pub head: Duration,
    /// Between requests. Browsers keep connections for a minute or two; so does nginx.
    pub idle: Duration,
    /// Without an octet of a body that we wait for.
    pub body: Duration,
    /// Without an octet either way, of a response, a stream or a tunnel. Who waits longer for an event sends pings.
    pub stream: Duration,
    /// Without the other side taking anything of what is sent to it. nginx waits as long; players that pause ask again.
    pub untaken: Duration,
    /// For a connection to a member, TLS included: as long as the other doors give an address.
    pub connect: Duration,
    /// How long a body is held back for a member that was asked whether it wants it; curl waits as long.
    pub go_ahead: Duration,
    /// How long a connection to a member rests before it is closed: less than the members' own time, which is 60 s and
    /// more, so that we do not send into a closing one.
    pub pooled: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            opening: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            body: Duration::from_secs(30),
            stream: Duration::from_hours(1),
            untaken: Duration::from_mins(1),
            connect: Duration::from_secs(3),
            go_ahead: Duration::from_secs(1),
            pooled: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Per door: with their connections to members two full doors take the 65,536 descriptors that a process commonly may have.
    pub connections: usize,
    /// Per door, without a request yet: a quarter of its room. The oldest goes.
    pub openings: usize,
    /// Of those from one IPv4 address or IPv6 /64: many clients may share one, and one must not take everybody's place.
    pub openings_per_source: usize,
    /// Octets a second of a body, on average, after the time that `timeouts.body` grants at first: a modem's pace.
    pub body_pace: u64,
    /// At once on a connection of HTTP/2: what RFC 9113 6.5.2 recommends at least, and Envoy and nginx come near.
    pub streams: u32,
    /// Streams reset by the client before they were answered, waiting to be forgotten; honest clients have a few.
    pub resets: usize,
    /// Octets of HTTP/2 bodies received and not given on, per stream and per connection: 1 MiB in flight over 40 ms is 200 Mbit/s.
    pub stream_window: u32,
    pub connection_window: u32,
    /// Connections to one address of a member, of all threads together.
    pub upstream_per_address: usize,
    /// Connections to members in all: as many as a full door has.
    pub upstream_total: usize,
    /// Requests at once on one HTTP/2 connection to a member; the usual limit of servers.
    pub upstream_streams: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16 * 1024,
            openings: 4096,
            openings_per_source: 1024,
            body_pace: 500,
            streams: 100,
            resets: 50,
            stream_window: 256 << 10,
            connection_window: 1 << 20,
            upstream_per_address: 2048,
            upstream_total: 16 * 1024,
            upstream_streams: 100,
        }
    }
}

impl Default for Settings {
    /// One thread per core.
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            trusted_proxies: Arc::default(),
            outer_header: None,
            places: Arc::default(),
            standings: Arc::default(),
            edge: None,
            tables: Arc::default(),
            redirect_port: None,
            inward: None,
            checks: true,
            is_lean: true,
            timeouts: Timeouts::default(),
            limits: Limits::default(),
        }
    }
}
