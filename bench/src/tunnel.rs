//! Ways into a cluster, and what is asked for through them.

mod inside;
mod openssh;
mod real;

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

pub use inside::Inside;
pub use openssh::OpenSsh;
pub use real::Tunnel;

/// By its wildcard, a cluster's ingress controller has all names below it.
const NAME: &str = "web.c1.fleet.example";
const PIECE: usize = 256 << 10;
/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_mins(1);
/// Of the thousand streams, so many threads are enough to have them all open.
const STACK: usize = 64 << 10;

/// What can be asked of the other end.
#[derive(Clone, Copy)]
enum Wish {
    /// To be sent so many octets.
    Down = b'd' as isize,
    /// To take so many, and say so.
    Up = b'u' as isize,
    /// To have every octet back.
    Echo = b'e' as isize,
}

/// Somewhere to connect to that leads inside.
pub struct Carrier {
    pub name: &'static str,
    pub address: SocketAddr,
}

impl Carrier {
    /// All of them begin with a hello of TLS, by which a door may tell where to go; the other end skips it.
    fn open(&self, wish: Wish, octets: u64) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&[&hello()?[..], &[wish as u8], &octets.to_be_bytes()].concat())?;
        Ok(stream)
    }

    /// From the first octet to the last: opening it is another figure.
    pub fn down(&self, octets: u64) -> io::Result<Duration> {
        let mut stream = self.open(Wish::Down, octets)?;
        let mut piece = vec![0; PIECE];
        stream.read_exact(&mut piece[..1])?;
        let began = Instant::now();
        let mut left = octets - 1;
        while left > 0 {
            match stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => left -= read as u64,
            }
        }
        Ok(began.elapsed())
    }

    pub fn up(&self, octets: u64) -> io::Result<Duration> {
        let mut stream = self.open(Wish::Up, octets)?;
        let piece = vec![7; PIECE];
        stream.read_exact(&mut [0])?;
        let began = Instant::now();
        let mut left = octets;
        while left > 0 {
            let now = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            stream.write_all(&piece[..now])?;
            left -= now as u64;
        }
        stream.read_exact(&mut [0])?;
        Ok(began.elapsed())
    }

    /// From the connection to the first answer; and then each octet by itself.
    pub fn there_and_back(&self, count: usize) -> io::Result<(Duration, Vec<Duration>)> {
        let began = Instant::now();
        let mut stream = self.open(Wish::Echo, 0)?;
        let mut octet = [7];
        stream.read_exact(&mut octet)?;
        let opening = began.elapsed();
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            stream.write_all(&octet)?;
            stream.read_exact(&mut octet)?;
            times.push(began.elapsed());
        }
        Ok((opening, times))
    }

    /// Streams that are sent more than anybody holds, and are not read; once they are full.
    pub fn stalled(&self, count: usize) -> io::Result<Vec<TcpStream>> {
        let streams: Vec<TcpStream> = (0..count).map(|_| self.open(Wish::Down, 1 << 40)).collect::<Result<_, _>>()?;
        if count > 0 {
            // Windows and buffers are full, and it has been noticed, by then.
            thread::sleep(Duration::from_secs(3));
        }
        Ok(streams)
    }

    /// So many at once, each of which is sent so much; how much came in all.
    pub fn many(&self, count: usize, each: u64) -> io::Result<u64> {
        thread::scope(|scope| {
            let streams: Vec<_> = (0..count)
                .map(|_| {
                    let read = || {
                        let mut stream = self.open(Wish::Down, each)?;
                        io::copy(&mut stream, &mut io::sink())
                    };
                    thread::Builder::new().stack_size(STACK).spawn_scoped(scope, read)
                })
                .collect::<Result<_, _>>()?;
            streams.into_iter().map(|stream| stream.join().unwrap_or(Err(io::ErrorKind::Other.into()))).sum()
        })
    }
}

fn hello() -> io::Result<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let config = config.map_err(io::Error::other)?;
    let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut octets = Vec::new();
    connection.write_tls(&mut octets)?;
    Ok(octets)
}
