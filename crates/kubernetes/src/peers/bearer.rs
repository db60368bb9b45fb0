//! Who a process is to others of the hub: the token of its service account.

use std::fmt;
use std::io;
use std::path::PathBuf;

use http::HeaderValue;
use kube::config::AuthInfo;
use secrecy::{ExposeSecret as _, SecretString};

/// Kubernetes' own are some hundred octets; more is no header.
const MAX_TOKEN: usize = 8 << 10;

/// A token, or where it lies and is renewed by the kubelet.
#[derive(Clone)]
pub struct Bearer(Source);

#[derive(Clone)]
enum Source {
    Text(SecretString),
    File(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum BearerError {
    #[error("the service account's token in {path} cannot be read")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the service account's token is empty, or no token")]
    NoToken,
}

impl Bearer {
    /// Nothing where the hub knows us by something else, or takes us for somebody else.
    pub(crate) fn of(known_by: &AuthInfo) -> Option<Self> {
        if known_by.impersonate.is_some() {
            return None;
        }
        match (&known_by.token, &known_by.token_file) {
            (Some(token), _) => Some(Self(Source::Text(token.clone()))),
            (None, Some(path)) => Some(Self(Source::File(path.into()))),
            (None, None) => None,
        }
    }

    /// As it is now.
    pub(super) fn header(&self) -> Result<HeaderValue, BearerError> {
        let read;
        let token = match &self.0 {
            Source::Text(token) => token.expose_secret(),
            Source::File(path) => {
                let unreadable = |source| BearerError::Unreadable { path: path.clone(), source };
                read = std::fs::read_to_string(path).map_err(unreadable)?;
                &read
            }
        };
        let token = token.trim();
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(BearerError::NoToken);
        }
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| BearerError::NoToken)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// What a header says, if it is a token.
pub(super) fn token(header: Option<&HeaderValue>) -> Option<&str> {
    let token = header?.to_str().ok()?.strip_prefix("Bearer ")?;
    (!token.is_empty() && token.len() <= MAX_TOKEN).then_some(token)
}

/// Never a token.
impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Text(_) => f.write_str("a token"),
            Source::File(path) => write!(f, "the token in {}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: Option<&str>, file: Option<&str>, acts_as: Option<&str>) -> AuthInfo {
        AuthInfo {
            token: text.map(SecretString::from),
            token_file: file.map(Into::into),
            impersonate: acts_as.map(Into::into),
            ..AuthInfo::default()
        }
    }

    #[test]
    fn only_a_token_of_our_own_tells_who_we_are() {
        assert!(Bearer::of(&info(None, None, None)).is_none());
        assert!(Bearer::of(&info(Some("t"), None, Some("other"))).is_none());
        let said = |bearer: &Bearer| bearer.header().map(|header| header.to_str().unwrap().to_owned());
        assert_eq!(said(&Bearer::of(&info(Some("t\n"), None, None)).unwrap()).unwrap(), "Bearer t");
        for wrong in ["", " \n", "a\nb", &"x".repeat(MAX_TOKEN + 1)] {
            assert!(said(&Bearer::of(&info(Some(wrong), None, None)).unwrap()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_in_a_file_is_read_anew_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let bearer = Bearer::of(&info(None, path.to_str(), None)).unwrap();
        assert!(bearer.header().is_err());
        for text in ["first", "second"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(token(Some(&bearer.header().unwrap())), Some(text));
        }
        assert!(!format!("{bearer:?}").contains("second"));
    }
}
