//! Which requests are of the usual kind, and what members get of them: read and written without I/O.
//!
//! The head is read by the same function as on hyper's path, and the same rules say which fields end here. What needs more
//! than that is not usual: it costs nothing to say so, as the other path reads the same octets again.

use crate::authority;
use crate::head::{self, Fields, Framing};
use crate::headers::{self, Asker, HOPS, Said};

/// Of a body that is sent on in one piece with its head: forms and small documents. Longer ones flow through hyper.
pub const MAX_BODY: usize = 32 << 10;
/// No octet of a host, or of an address.
const HERE: &str = "\u{1}";
/// Those whose bodies and answers have nothing special.
const METHODS: [(&str, bool); 7] = [
    ("GET", true),
    ("HEAD", true),
    ("PUT", true),
    ("DELETE", true),
    ("OPTIONS", true),
    ("POST", false),
    ("PATCH", false),
];

/// What was received so far.
pub enum Read<'fields, 'octets> {
    /// Not all of it.
    Part,
    /// For others to judge.
    Unusual,
    Usual(Usual<'fields, 'octets>),
}

/// A request of the usual kind, all of which is there.
pub struct Usual<'fields, 'octets> {
    pub method: &'octets str,
    /// A path that begins with a slash, and perhaps a query.
    pub target: &'octets str,
    /// As it was sent.
    pub host: &'octets str,
    fields: &'fields [httparse::Header<'octets>],
    /// Octets of the head, and of the body behind it.
    pub head: usize,
    pub body: usize,
    is_sized: bool,
    /// The client wants no other answer on this connection.
    pub is_last: bool,
    /// Asking twice does what asking once does.
    pub is_idempotent: bool,
}

pub fn read<'fields, 'octets>(received: &'octets [u8], fields: &'fields mut Fields<'octets>) -> Read<'fields, 'octets> {
    let (head, request) = match head::parse(received, fields) {
        Ok(Some(read)) => read,
        Ok(None) => return Read::Part,
        Err(_) => return Read::Unusual,
    };
    match usual(&head, request.method, request.path, request.version, request.headers) {
        Some(usual) if received.len() - usual.head < usual.body => Read::Part,
        Some(usual) => Read::Usual(usual),
        None => Read::Unusual,
    }
}

fn usual<'fields, 'octets>(
    head: &head::Head,
    method: Option<&'octets str>,
    target: Option<&'octets str>,
    version: Option<u8>,
    fields: &'fields [httparse::Header<'octets>],
) -> Option<Usual<'fields, 'octets>> {
    let (method, is_idempotent) = METHODS.into_iter().find(|(known, _)| Some(*known) == method)?;
    let target = target.filter(|target| target.starts_with('/') && target.bytes().all(is_plain))?;
    let (body, is_sized) = match head.framing {
        Framing::None => (0, false),
        Framing::Sized(length) => (usize::try_from(length).ok().filter(|length| *length <= MAX_BODY)?, true),
        Framing::Chunked => return None,
    };
    if head.upgrade || version != Some(1) {
        return None;
    }
    let (mut host, mut cookies, mut is_last) = (None, 0, false);
    for field in fields {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            4 if is("host") => {
                let text = std::str::from_utf8(field.value).ok()?;
                if host.replace(text).is_some() {
                    return None;
                }
            }
            6 if is("cookie") => cookies += 1,
            10 if is("connection") => {
                // Others name fields, or a protocol.
                let said = headers::tokens(field.value).try_fold(false, |last, token| {
                    let closes = token.eq_ignore_ascii_case(b"close");
                    (closes || token.eq_ignore_ascii_case(b"keep-alive")).then_some(last || closes)
                });
                is_last |= said?;
            }
            12 if is("content-type") && is_grpc(field.value) => return None,
            2 if is("te") => return None,
            6 | 7 | 16 if is("expect") || is("upgrade") || is("proxy-connection") => return None,
            _ if is(HOPS) => return None,
            _ => {}
        }
    }
    // HTTP/1 has one line of cookies; who sends several has them joined.
    if cookies > 1 {
        return None;
    }
    Some(Usual { method, target, host: host?, fields, head: head.length, body, is_sized, is_last, is_idempotent })
}

/// Octets of a path or a query (RFC 3986 3.3, 3.4) that every reader takes for what they are.
fn is_plain(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%?".contains(&octet)
}

fn is_grpc(value: &[u8]) -> bool {
    value.get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
}

impl Usual<'_, '_> {
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// The target without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Whether it says who the client is, which only a trusted proxy may.
    pub fn vouches(&self) -> bool {
        self.fields.iter().any(|field| headers::is_forwarding(field.name))
    }

    /// The head as a member gets it, for the host as [`authority::read`] has it.
    pub fn write(&self, host: &str, told: &Told, out: &mut Vec<u8>) {
        out.reserve(self.head + 256);
        for part in [self.method, " ", self.target, " HTTP/1.1\r\nhost: ", host, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        for field in self.fields {
            // Connection names none that could end here: see above.
            if !headers::ends_here(field.name, &[]) {
                write_field(field, out);
            }
        }
        if self.is_sized {
            out.extend_from_slice(b"content-length: ");
            write_number(self.body as u64, out);
            out.extend_from_slice(b"\r\n");
        }
        told.write(host, out);
        out.extend_from_slice(b"\r\n");
    }
}

/// In lower case, as hyper writes them.
pub(super) fn write_field(field: &httparse::Header<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(field.name.as_bytes());
    out[start..].make_ascii_lowercase();
    out.extend_from_slice(b": ");
    out.extend_from_slice(field.value);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn write_number(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(left % 10).unwrap_or_default();
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The fields that tell a member who asks: the same for all requests of a connection, but for the host.
pub struct Told {
    pieces: Vec<Vec<u8>>,
}

impl Told {
    pub fn new(client: std::net::IpAddr, is_https: bool) -> Self {
        let mut text = String::new();
        for (name, value) in headers::forwarded(Asker { client, is_https, host: HERE }, Said::default()) {
            text.extend([name, ": ", &value, "\r\n"]);
        }
        text.extend([HOPS, ": 1\r\n"]);
        Self { pieces: text.split(HERE).map(|piece| piece.as_bytes().to_vec()).collect() }
    }

    fn write(&self, host: &str, out: &mut Vec<u8>) {
        for (number, piece) in self.pieces.iter().enumerate() {
            if number > 0 {
                out.extend_from_slice(host.as_bytes());
            }
            out.extend_from_slice(piece);
        }
    }
}

/// The host in the form that members get, and its name.
pub(super) fn asked(host: &str) -> Option<authority::Asked> {
    authority::read(host).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(octets: &str) -> Option<String> {
        let mut fields = head::no_fields();
        let Read::Usual(usual) = read(octets.as_bytes(), &mut fields) else { return None };
        let mut out = Vec::new();
        let told = Told::new("192.0.2.7".parse().unwrap(), false);
        usual.write(&asked(usual.host)?.text, &told, &mut out);
        out.extend_from_slice(&octets.as_bytes()[usual.head..usual.head + usual.body]);
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn members_get_what_is_theirs_and_who_asks() {
        let sent = "POST /a?b=c HTTP/1.1\r\nHost: Shop.test:80\r\nConnection: keep-alive\r\nX-Forwarded-For: 198.51.100.1\r\n\
                    X-Mine: 1\r\nKeep-Alive: 5\r\nContent-Length: 3\r\n\r\nabcGET /next";
        let expected = "POST /a?b=c HTTP/1.1\r\nhost: shop.test:80\r\nx-mine: 1\r\ncontent-length: 3\r\n\
                        forwarded: for=192.0.2.7;host=\"shop.test:80\";proto=http\r\nx-forwarded-for: 192.0.2.7\r\n\
                        x-forwarded-proto: http\r\nx-forwarded-host: shop.test:80\r\nfleetgate-hops: 1\r\n\r\nabc";
        assert_eq!(written(sent).as_deref(), Some(expected));
    }

    #[test]
    fn what_needs_more_is_left_to_others() {
        let usual = "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n";
        assert!(written(usual).is_some());
        for unusual in [
            "GET / HTTP/1.0\r\nhost: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a.test\r\nhost: a.test\r\n\r\n",
            "GET http://a.test/ HTTP/1.1\r\nhost: a.test\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nhost: a.test\r\n\r\n",
            "GET /{a} HTTP/1.1\r\nhost: a.test\r\n\r\n",
            "TRACE / HTTP/1.1\r\nhost: a.test\r\n\r\n",
            "BREW / HTTP/1.1\r\nhost: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a.test\r\nupgrade: h2c\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: x-mine\r\nx-mine: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a.test\r\nte: trailers\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a.test\r\nfleetgate-hops: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a.test\r\ncookie: a\r\ncookie: b\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a.test\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\na",
            "POST / HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-type: application/grpc+proto\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 99999\r\n\r\n",
            "GET / HTTP/1.1\nhost: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a b\r\n\r\n",
        ] {
            assert_eq!(written(unusual), None, "{unusual}");
        }
        for end in 0..usual.len() {
            assert!(matches!(read(&usual.as_bytes()[..end], &mut head::no_fields()), Read::Part), "{end}");
        }
    }

    #[test]
    fn numbers_as_they_are_written() {
        for number in [0, 7, 10, 4096, u64::MAX] {
            let mut out = Vec::new();
            write_number(number, &mut out);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}
