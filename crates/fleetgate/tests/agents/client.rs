//! An agent as far as the door can tell: TLS with a certificate, and plain HTTP/1.1 in it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

/// Long enough for the slowest machine: reached only by a test that fails.
const PATIENCE: Duration = Duration::from_mins(2);

/// What an agent shows: a certificate in PEM form, and its key.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) certificate: String,
    pub(crate) key: Vec<u8>,
}

pub(crate) struct Agent {
    pub(crate) stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

/// What `fleetgate credential issue` printed, and where the door is.
#[derive(Clone)]
pub(crate) struct Bootstrap {
    pub(crate) door: SocketAddr,
    pub(crate) token: String,
    pub(crate) server_name: String,
    pub(crate) ca: String,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The status and the code of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        (self.status, self.code())
    }
}

impl Bootstrap {
    /// From what was printed, for the door at an address.
    pub(crate) fn read(printed: &[u8], door: SocketAddr) -> Self {
        let issued: Value = serde_json::from_slice(printed).unwrap();
        let text = |field: &str| issued[field].as_str().expect(field).to_owned();
        Self { door, token: text("token"), server_name: text("serverName"), ca: text("ca") }
    }

    /// As it was printed.
    #[allow(dead_code)] // Not every test starts an agent with it.
    pub(crate) fn to_json(&self) -> String {
        json!({ "token": self.token, "serverName": self.server_name, "ca": self.ca }).to_string()
    }

    pub(crate) fn id(&self) -> &str {
        self.token.split('.').nth(1).unwrap()
    }

    pub(crate) fn connect(&self, shown: Option<&Shown>) -> std::io::Result<Agent> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.ca.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let config = match shown {
            None => config.with_no_client_auth(),
            Some(Shown { certificate, key }) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap).collect();
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.clone()));
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from(self.server_name.clone()).unwrap();
        let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = TcpStream::connect(self.door)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        connection.complete_io(&mut stream)?;
        Ok(Agent { stream: BufReader::new(StreamOwned::new(connection, stream)) })
    }

    /// Buys a certificate with the token.
    pub(crate) fn enroll(&self) -> (Answer, Vec<u8>) {
        let (csr, key) = csr();
        let mut stranger = self.connect(None).unwrap();
        (stranger.send("POST", "/v1/enroll", &json!({ "token": self.token, "csr": csr }).to_string()), key)
    }

    pub(crate) fn enrolled(&self) -> Shown {
        let (answer, key) = self.enroll();
        assert_eq!(answer.status, 200, "{}", answer.text);
        Shown { certificate: answer.json()["certificate"].as_str().unwrap().to_owned(), key }
    }

    /// A connection of an agent that has enrolled.
    pub(crate) fn agent(&self) -> Agent {
        self.connect(Some(&self.enrolled())).unwrap()
    }
}

pub(crate) fn csr() -> (String, Vec<u8>) {
    let key = KeyPair::generate().unwrap();
    let csr = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    (csr, key.serialize_der())
}

impl Agent {
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, "")
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &body.to_string())
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, body: &str) -> Answer {
        self.try_send(method, path, body.as_bytes()).unwrap()
    }

    pub(crate) fn try_send(&mut self, method: &str, path: &str, body: &[u8]) -> std::io::Result<Answer> {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: agents\r\ncontent-length: {length}\r\n\r\n");
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes())?;
        // A server that says no before the end of a body reads no more of it, and still has said so.
        let sent = stream.write_all(body).and_then(|()| stream.flush());
        self.receive().map_err(|error| sent.err().unwrap_or(error))
    }

    pub(crate) fn receive(&mut self) -> std::io::Result<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut text = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.stream.read_exact(&mut text)?;
        Ok(Answer { status, head, text: String::from_utf8(text).unwrap() })
    }
}
