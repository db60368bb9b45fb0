//! What who runs the server may choose.

use crate::cookie::CookieKeys;
use crate::limit::RateLimit;
use crate::steer::Guides;

/// An identifier this long names any machine, and leaves room in the smallest answer.
const MAX_TEXT: usize = 128;

#[derive(Debug, Clone)]
pub struct Settings {
    version: Option<Box<str>>,
    identity: Option<Box<str>>,
    pub(crate) cookies: Option<CookieKeys>,
    pub(crate) rate_limit: RateLimit,
    pub(crate) guides: Guides,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: None,
            identity: None,
            cookies: Some(CookieKeys::random()),
            rate_limit: RateLimit::default(),
            guides: Guides::default(),
        }
    }
}

impl Settings {
    /// What `version.bind` and `version.server` (CHAOS) answer; without it they are refused.
    #[must_use]
    pub fn with_version(mut self, version: &str) -> Self {
        self.version = Some(cut(version));
        self
    }

    /// What `id.server` and `hostname.bind` (CHAOS, RFC 4892) and the NSID option (RFC 5001) answer; without it they are
    /// refused and left out.
    #[must_use]
    pub fn with_identity(mut self, identity: &str) -> Self {
        self.identity = Some(cut(identity));
        self
    }

    /// Several servers behind one address must share theirs (RFC 9018 5); without any, cookies are ignored.
    #[must_use]
    pub fn with_cookies(mut self, keys: Option<CookieKeys>) -> Self {
        self.cookies = keys;
        self
    }

    #[must_use]
    pub fn with_rate_limit(mut self, limit: RateLimit) -> Self {
        self.rate_limit = limit;
        self
    }

    /// What steered names are answered by; whoever keeps a copy can change it at any time.
    #[must_use]
    pub fn with_guides(mut self, guides: Guides) -> Self {
        self.guides = guides;
        self
    }

    pub(crate) fn nsid(&self) -> Option<&[u8]> {
        self.identity.as_ref().map(|text| text.as_bytes())
    }

    /// The text for a name of the CHAOS class, in lower case and wire form.
    pub(crate) fn chaos_text(&self, name: &[u8]) -> Option<&[u8]> {
        let text = match name {
            b"\x07version\x04bind\0" | b"\x07version\x06server\0" => &self.version,
            b"\x02id\x06server\0" | b"\x08hostname\x04bind\0" => &self.identity,
            _ => &None,
        };
        text.as_ref().map(|text| text.as_bytes())
    }
}

fn cut(text: &str) -> Box<str> {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text[..end].into()
}
