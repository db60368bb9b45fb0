//! What is inside the cluster: it does what it is asked for behind a hello of TLS.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::{PIECE, STACK};

/// Ends with the process.
pub struct Inside {
    pub address: SocketAddr,
}

impl Inside {
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Who hangs up has what it wanted.
                let serve = move || _ = serve(stream);
                let _ = thread::Builder::new().stack_size(STACK).spawn(serve);
            }
        });
        Ok(Self { address })
    }
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // RFC 8446 5.1: a record says how long it is.
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let mut hello = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    stream.read_exact(&mut hello)?;
    let mut wish = [0; 9];
    stream.read_exact(&mut wish)?;
    let [kind, count @ ..] = wish;
    let mut left = u64::from_be_bytes(count);
    let mut piece = vec![7; PIECE];
    match kind {
        b'd' => {
            while left > 0 {
                let now = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                stream.write_all(&piece[..now])?;
                left -= now as u64;
            }
        }
        b'u' => {
            stream.write_all(&[0])?;
            while left > 0 {
                match stream.read(&mut piece)? {
                    0 => return Ok(()),
                    read => left = left.saturating_sub(read as u64),
                }
            }
            stream.write_all(&[0])?;
        }
        _ => {
            let mut octet = [7];
            loop {
                stream.write_all(&octet)?;
                stream.read_exact(&mut octet)?;
            }
        }
    }
    Ok(())
}
