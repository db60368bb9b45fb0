//! Who may ask: without a credential everything is read-only and for this machine alone, but for the two probes, which a
//! kubelet or a load balancer sends from elsewhere. Who has logged in to the dashboard may see its pages from anywhere.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State as Shared};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::agents::is_same;
use crate::dashboard::{self, Board};
use crate::objects::Failure;
use crate::state::State;

const OPEN_TO_ALL: [&str; 2] = ["/healthz", "/readyz"];

/// As many as nobody guesses, however they were made up.
const LEAST: usize = 32;
/// A file that is far larger is another one.
const MOST: usize = 4096;

/// What a request must carry that is to change something: `Authorization: Bearer ...`.
pub struct AdminCredential(Box<str>);

#[derive(Debug, thiserror::Error)]
pub enum AdminCredentialError {
    #[error("reading the admin credential {path}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path} holds no admin credential: it must be a text of {LEAST} to {MOST} visible characters in one line")]
    Malformed { path: PathBuf },
}

impl fmt::Debug for AdminCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminCredential(..)")
    }
}

impl AdminCredential {
    pub fn read(path: &Path) -> Result<Self, AdminCredentialError> {
        let failed = |source| AdminCredentialError::Unreadable { path: path.into(), source };
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let text = text.trim_ascii();
        if !(LEAST..=MOST).contains(&text.len()) || !text.bytes().all(|octet| octet.is_ascii_graphic()) {
            return Err(AdminCredentialError::Malformed { path: path.into() });
        }
        Ok(Self(text.into()))
    }

    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        Self(text.into())
    }

    /// Whether it is what somebody typed.
    pub(crate) fn is(&self, typed: &str) -> bool {
        is_same(typed.as_bytes(), self.0.as_bytes())
    }

    /// The header that shows it.
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    fn is_shown(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        shown.is_some_and(|shown| is_same(shown, self.bearer().as_bytes()))
    }
}

pub(crate) async fn guard(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Shared((state, board)): Shared<(Arc<State>, Arc<Board>)>,
    mut request: Request,
    next: Next,
) -> Response {
    if OPEN_TO_ALL.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let is_page = dashboard::has(request.uri().path());
    // For pages alone: browsers send cookies by themselves, and what programs change by is no form that a page of ours wrote.
    if let Some(session) = board.session(request.headers()).filter(|_| is_page) {
        request.extensions_mut().insert(session);
        return next.run(request).await;
    }
    if state.admin_credential.get().is_some_and(|credential| credential.is_shown(request.headers())) {
        return next.run(request).await;
    }
    // Pages say themselves that a form needs a session.
    if !is_page && !matches!(*request.method(), Method::GET | Method::HEAD) {
        let reason = match state.admin_credential.get() {
            Some(_) => "this changes something: it needs the admin credential (--admin-credential FILE)",
            None => "this changes something, which needs a fleetgate that runs with --admin-credential FILE",
        };
        return Failure::new(StatusCode::FORBIDDEN, "NoCredential", reason).into_response();
    }
    let can_log_in = is_page && state.admin_credential.get().is_some();
    if can_log_in && dashboard::is_for_strangers(request.uri().path()) {
        return next.run(request).await;
    }
    if !peer.ip().to_canonical().is_loopback() {
        if can_log_in {
            let reason = "pages are for this machine, and for others once they have logged in";
            return dashboard::refusal(None, &Failure::new(StatusCode::FORBIDDEN, "NotLoopback", reason));
        }
        let reason = "only /healthz and /readyz are answered to other machines";
        return Failure::new(StatusCode::FORBIDDEN, "NotLoopback", reason).into_response();
    }
    // A web page that was made to resolve to this machine would come with its own name: not for it.
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_none_or(is_local_host) {
        let reason = "the Host header names neither localhost nor a loopback address";
        return Failure::new(StatusCode::FORBIDDEN, "ForeignHost", reason).into_response();
    }
    next.run(request).await
}

fn is_local_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in ["localhost", "LOCALHOST:9630", "127.0.0.1", "127.0.0.1:80", "127.1.2.3:1", "[::1]", "[::1]:9630"] {
            assert!(is_local_host(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "[::2]:1"] {
            assert!(!is_local_host(host), "{host}");
        }
    }
}
