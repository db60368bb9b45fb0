//! A backend on loopback that says back what it is told.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Enough for what the threads below do; there is one per connection.
const STACK: usize = 64 << 10;

/// Listens until this process ends.
pub fn start_echo() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection that gets no thread is closed, and its measurement fails.
            let _ = thread::Builder::new().stack_size(STACK).spawn(move || echo(stream));
        }
    });
    Ok(address)
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}
