//! The head of what a client asks a proxy for, and of what a proxy answers (RFC 9112, RFC 9110 9.3.6).
//!
//! Only `CONNECT host:port` is asked for here, and heads are read strictly: what means two things to two readers is refused.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;
use tunnel::Target;

use crate::refusal::Refusal;

/// kube-apiserver sends some 80 octets, others some hundred.
pub(crate) const MAX_HEAD: usize = 8 << 10;
/// Honest clients send it in one packet; who is slower holds a place of its cluster's.
pub(crate) const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// All that is said before a target's own octets.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
/// What one read takes: heads are small, and what follows is carried on as it is.
const PIECE: usize = 1 << 10;

/// Who is asked for, and what the client sent behind the head already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) target: Target,
    pub(crate) rest: Bytes,
}

/// What a proxy said, and what came behind its head already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The words of its status line: ours say there what the matter is.
    pub(crate) phrase: String,
    /// The code in its header field, where it has one.
    pub(crate) code: Option<String>,
    pub(crate) rest: Bytes,
}

/// Reads a client's head, and not an octet more than came with it.
pub(crate) async fn read_request(client: &mut (impl AsyncRead + Unpin)) -> Result<Request, Refusal> {
    let (head, rest) = read(client, HEAD_WITHIN).await?;
    Ok(Request { target: parse_request(&head)?, rest })
}

/// Reads what a proxy answers.
pub(crate) async fn read_answer(proxy: &mut (impl AsyncRead + Unpin), within: Duration) -> Result<Answer, Refusal> {
    let (head, rest) = read(proxy, within).await?;
    let Answer { status, phrase, code, .. } = parse_answer(&head)?;
    Ok(Answer { status, phrase, code, rest })
}

/// A head with the empty line at its end, and what came with it.
async fn read(peer: &mut (impl AsyncRead + Unpin), within: Duration) -> Result<(Bytes, Bytes), Refusal> {
    let mut octets = BytesMut::with_capacity(PIECE);
    let reading = async {
        loop {
            let seen = octets.len();
            if octets.capacity() - seen < PIECE {
                octets.reserve(PIECE);
            }
            match peer.read_buf(&mut octets).await {
                Ok(0) if seen == 0 => return Err(Refusal::Silent),
                Ok(0) => return Err(Refusal::Malformed("it broke off")),
                Ok(_) => {}
                Err(error) => return Err(Refusal::Gone(error.to_string())),
            }
            if let Some(end) = end_of_head(&octets, seen) {
                if end > MAX_HEAD {
                    return Err(Refusal::HeadTooLarge);
                }
                return Ok(end);
            }
            // What cannot become a head is refused before it is all there: TLS where there is none, another protocol.
            if octets[seen..].iter().any(|octet| is_control(*octet)) {
                return Err(Refusal::Malformed("it has control characters"));
            }
            if octets.len() > MAX_HEAD {
                return Err(Refusal::HeadTooLarge);
            }
        }
    };
    let end = timeout(within, reading).await.map_err(|_| Refusal::HeadTooSlow)??;
    let head = octets.split_to(end).freeze();
    Ok((head, octets.freeze()))
}

/// Looks at what is new, and at the three octets before it.
fn end_of_head(octets: &[u8], seen: usize) -> Option<usize> {
    let from = seen.saturating_sub(3);
    octets[from..].windows(4).position(|end| end == b"\r\n\r\n").map(|at| from + at + 4)
}

fn is_control(octet: u8) -> bool {
    octet.is_ascii_control() && !matches!(octet, b'\r' | b'\n' | b'\t')
}

/// Whom a whole head asks for, from its first octet to the empty line.
pub fn parse_request(head: &[u8]) -> Result<Target, Refusal> {
    let mut lines = Lines::new(head)?;
    let line = lines.next().unwrap_or_default();
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refusal::Malformed("its first line is not `CONNECT host:port HTTP/1.1`"));
    };
    if !is_token(method) {
        return Err(Refusal::Malformed("its method is no word"));
    }
    let is_old = match version {
        "HTTP/1.1" => false,
        "HTTP/1.0" => true,
        _ if version.starts_with("HTTP/") => return Err(Refusal::Version),
        _ => return Err(Refusal::Malformed("its first line is not `CONNECT host:port HTTP/1.1`")),
    };
    if method != "CONNECT" {
        return Err(Refusal::MethodNotCarried);
    }
    let mut hosts = 0;
    for line in lines {
        let (name, value) = field(line)?;
        match name.to_ascii_lowercase().as_str() {
            // RFC 9110 9.3.6: a CONNECT has no content; a reader that believes there is some would take the tunnel's first octets for it.
            "content-length" if value != "0" => return Err(Refusal::Malformed("a CONNECT has no body")),
            "transfer-encoding" => return Err(Refusal::Malformed("a CONNECT has no body")),
            "host" => hosts += 1,
            _ => {}
        }
    }
    // RFC 9112 3.2. What it says does not matter: kube-apiserver sends 127.0.0.1.
    if hosts > 1 || (hosts == 0 && !is_old) {
        return Err(Refusal::Malformed("it has no Host, or several"));
    }
    target.parse().map_err(|_| Refusal::BadTarget)
}

fn parse_answer(head: &[u8]) -> Result<Answer, Refusal> {
    let mut lines = Lines::new(head)?;
    let line = lines.next().unwrap_or_default();
    let malformed = Refusal::Malformed("its first line is no status");
    let rest = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 ")).ok_or(malformed.clone())?;
    let (status, phrase) = rest.split_once(' ').unwrap_or((rest, ""));
    let is_status = status.len() == 3 && status.bytes().all(|digit| digit.is_ascii_digit());
    let status = status.parse().ok().filter(|status| is_status && *status >= 100).ok_or(malformed)?;
    let mut code = None;
    for line in lines {
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case("fleetgate-refusal") {
            code = Some(value.to_owned());
        }
    }
    Ok(Answer { status, phrase: phrase.to_owned(), code, rest: Bytes::new() })
}

fn field(line: &str) -> Result<(&str, &str), Refusal> {
    let (name, value) = line.split_once(':').ok_or(Refusal::Malformed("a line of it is no header field"))?;
    // RFC 9112 5.1 and 5.2: no space before the colon, and no line that goes on with the one before.
    if !is_token(name) {
        return Err(Refusal::Malformed("a line of it is no header field"));
    }
    Ok((name, value.trim_matches([' ', '\t'])))
}

fn is_token(text: &str) -> bool {
    let is_part = |octet: u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet);
    !text.is_empty() && text.bytes().all(is_part)
}

/// The lines of a head, without the empty one.
struct Lines<'a>(std::str::Split<'a, &'static str>);

impl<'a> Lines<'a> {
    fn new(head: &'a [u8]) -> Result<Self, Refusal> {
        let text = head.strip_suffix(b"\r\n\r\n").and_then(|head| std::str::from_utf8(head).ok());
        let text = text.ok_or(Refusal::Malformed("it is no text"))?;
        if text.bytes().any(is_control) {
            return Err(Refusal::Malformed("it has control characters"));
        }
        let lines = text.split("\r\n");
        // RFC 9112 2.2: a CR or LF alone is a line's end to some readers, and none to others.
        if lines.clone().any(|line| line.contains(['\r', '\n'])) {
            return Err(Refusal::Malformed("a line of it does not end with CR LF"));
        }
        Ok(Self(lines))
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }
}

#[cfg(test)]
mod tests;
