//! The server name of a TLS client's hello, read without I/O and without terminating TLS.
//!
//! A hello may come in any number of segments and be split over any number of records. [`HelloReader`] is shown
//! everything that came so far, again and again, and never looks at a finished record twice before the hello is whole.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use model::DnsName;

/// Everything that a hello may take, record headers included. The Go servers that most control planes consist of
/// refuse a longer hello themselves; post-quantum key shares and resumption tickets make some of several KiB.
pub const MAX_HELLO: usize = 64 * 1024;
/// RFC 8446 5.1: a plain-text fragment has at most 2^14 bytes. The 256 more of encrypted records do not apply here.
const MAX_FRAGMENT: usize = 1 << 14;

const RECORD_HEADER: usize = 5;
const RECORD_HANDSHAKE: u8 = 22;
const HANDSHAKE_HEADER: usize = 4;
const HANDSHAKE_CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const NAME_TYPE_HOST: u8 = 0;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// All right so far; ask again with more.
    Incomplete,
    ServerName(DnsName),
    NoServerName,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    #[error("the bytes do not begin with a TLS handshake")]
    NotTls,
    #[error("the ClientHello is longer than {MAX_HELLO} bytes")]
    TooLong,
    #[error("the ClientHello is malformed: {0}")]
    Malformed(&'static str),
}

/// How far a hello has been looked at.
#[derive(Debug, Clone, Default)]
pub struct HelloReader {
    /// Where the first unfinished record starts.
    scanned: usize,
    /// How many bytes of the handshake message the records before it hold.
    collected: usize,
    /// The first of those: type and length.
    head: [u8; HANDSHAKE_HEADER],
}

impl HelloReader {
    /// `received` is everything from the connection's first byte on.
    pub fn read(&mut self, received: &[u8]) -> Result<Hello, HelloError> {
        while let Some(fragment) = fragment_at(received, self.scanned)? {
            self.take_in(fragment);
            if self.head[0] != HANDSHAKE_CLIENT_HELLO {
                return Err(HelloError::Malformed("the first handshake message is another one"));
            }
            let Some(length) = self.message_length() else { continue };
            if length > MAX_HELLO {
                return Err(HelloError::TooLong);
            }
            if self.collected > length {
                // RFC 8446 5.1: nothing shares a record with the message that keys change after.
                return Err(HelloError::Malformed("more follows in the same record"));
            }
            if self.collected == length {
                return server_name(&message(&received[..self.scanned])[HANDSHAKE_HEADER..]);
            }
        }
        Ok(Hello::Incomplete)
    }

    fn take_in(&mut self, fragment: &[u8]) {
        if let Some(missing) = self.head.get_mut(self.collected..) {
            missing.iter_mut().zip(fragment).for_each(|(slot, octet)| *slot = *octet);
        }
        self.collected += fragment.len();
        self.scanned += RECORD_HEADER + fragment.len();
    }

    /// With the message's own header, once that is there.
    fn message_length(&self) -> Option<usize> {
        let [_, high, middle, low] = self.head.map(usize::from);
        (self.collected >= HANDSHAKE_HEADER).then_some(HANDSHAKE_HEADER + (high << 16 | middle << 8 | low))
    }
}

/// The fragment of the record that starts there, once all of it has come.
fn fragment_at(received: &[u8], start: usize) -> Result<Option<&[u8]>, HelloError> {
    if start + RECORD_HEADER > MAX_HELLO {
        return Err(HelloError::TooLong);
    }
    let record = received.get(start..).unwrap_or_default();
    // SSL 2 hellos and everything that is no TLS at all differ in these two bytes.
    let wrong_type = record.first().is_some_and(|kind| *kind != RECORD_HANDSHAKE);
    let wrong_version = record.get(1).is_some_and(|major| *major != 3);
    if wrong_type || wrong_version {
        let later = HelloError::Malformed("another record stands inside it");
        return Err(if start == 0 { HelloError::NotTls } else { later });
    }
    let Some((&[_, _, _, high, low], rest)) = record.split_first_chunk::<RECORD_HEADER>() else { return Ok(None) };
    match usize::from(u16::from_be_bytes([high, low])) {
        0 => Err(HelloError::Malformed("a record is empty")),
        length if length > MAX_FRAGMENT => Err(HelloError::Malformed("a record is longer than 16 KiB")),
        length if start + RECORD_HEADER + length > MAX_HELLO => Err(HelloError::TooLong),
        length => Ok(rest.get(..length)),
    }
}

/// The message that these whole records hold.
fn message(records: &[u8]) -> Cow<'_, [u8]> {
    let mut whole: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    let mut start = 0;
    while let Ok(Some(fragment)) = fragment_at(records, start) {
        start += RECORD_HEADER + fragment.len();
        if whole.is_empty() {
            whole = Cow::Borrowed(fragment);
        } else {
            whole.to_mut().extend_from_slice(fragment);
        }
    }
    whole
}

/// RFC 8446 4.1.2, and RFC 5246 7.4.1.2 where the extensions may be missing altogether.
fn server_name(body: &[u8]) -> Result<Hello, HelloError> {
    let mut hello = Cursor(body);
    hello.take(2 + 32, "it ends within version and random")?;
    hello.vector8("it ends within the session id")?;
    hello.vector16("it ends within the cipher suites")?;
    hello.vector8("it ends within the compression methods")?;
    if hello.is_empty() {
        return Ok(Hello::NoServerName);
    }
    let mut extensions = Cursor(hello.vector16("it ends within the extensions")?);
    if !hello.is_empty() {
        return Err(HelloError::Malformed("bytes follow the extensions"));
    }
    let mut found = None;
    while !extensions.is_empty() {
        let kind = extensions.u16("it ends within an extension")?;
        let value = extensions.vector16("it ends within an extension")?;
        // Two names could mean different clusters to us and to the server behind us.
        if kind == EXTENSION_SERVER_NAME && found.replace(value).is_some() {
            return Err(HelloError::Malformed("the server name extension stands twice"));
        }
    }
    found.map_or(Ok(Hello::NoServerName), host_name)
}

/// RFC 6066 3: a list with at most one name of each type.
fn host_name(extension: &[u8]) -> Result<Hello, HelloError> {
    const CUT: &str = "it ends within the server name";
    let mut extension = Cursor(extension);
    let mut names = Cursor(extension.vector16(CUT)?);
    if names.is_empty() || !extension.is_empty() {
        return Err(HelloError::Malformed("the server name list is empty or longer than its extension"));
    }
    let mut found = None;
    while !names.is_empty() {
        let kind = names.u8(CUT)?;
        let name = names.vector16(CUT)?;
        if kind == NAME_TYPE_HOST && found.replace(name).is_some() {
            return Err(HelloError::Malformed("there are two host names"));
        }
    }
    found.map_or(Ok(Hello::NoServerName), |octets| {
        let text = std::str::from_utf8(octets).ok().filter(|text| !text.contains('\\'));
        let name = text.and_then(|text| DnsName::parse(text).ok());
        name.map(Hello::ServerName).ok_or(HelloError::Malformed("the host name is no DNS name"))
    })
}

/// What is left to read; every step says what the message lacks when there is not enough.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize, lacking: &'static str) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(HelloError::Malformed(lacking))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self, lacking: &'static str) -> Result<u8, HelloError> {
        self.take(1, lacking).map(|octets| octets[0])
    }

    fn u16(&mut self, lacking: &'static str) -> Result<u16, HelloError> {
        self.take(2, lacking).map(|octets| u16::from_be_bytes([octets[0], octets[1]]))
    }

    fn vector8(&mut self, lacking: &'static str) -> Result<&'a [u8], HelloError> {
        let length = self.u8(lacking)?;
        self.take(length.into(), lacking)
    }

    fn vector16(&mut self, lacking: &'static str) -> Result<&'a [u8], HelloError> {
        let length = self.u16(lacking)?;
        self.take(length.into(), lacking)
    }
}
