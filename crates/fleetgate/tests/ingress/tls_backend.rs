//! A control plane that speaks TLS with a certificate of its own and answers every request with its name.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

pub(crate) struct TlsBackend {
    pub(crate) address: SocketAddr,
    folder: TempDir,
}

impl TlsBackend {
    /// Serves until the test ends.
    pub(crate) fn start(name: &'static str, server_name: &str) -> Self {
        let certified = rcgen::generate_simple_self_signed([server_name.to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![certified.cert.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let backend = Self { address: listener.local_addr().unwrap(), folder };
        fs::write(backend.authority(), certified.cert.pem()).unwrap();

        let config = Arc::new(config);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let config = Arc::clone(&config);
                // A client that does not like us hangs up, which is its right.
                thread::spawn(move || answer(stream?, config, name));
            }
        });
        backend
    }

    /// The only certificate that vouches for it: its own.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }
}

fn answer(stream: TcpStream, config: Arc<ServerConfig>, name: &str) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&chunk[..count]),
        }
    }
    write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{name}")?;
    stream.conn.send_close_notify();
    stream.flush()
}
