//! Who may ask: without a credential everything is read-only and for this machine alone, but for the two probes, which a
//! kubelet or a load balancer sends from elsewhere.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::objects::Failure;

const OPEN_TO_ALL: [&str; 2] = ["/healthz", "/readyz"];

pub(crate) async fn guard(ConnectInfo(peer): ConnectInfo<SocketAddr>, request: Request, next: Next) -> Response {
    if OPEN_TO_ALL.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    if !peer.ip().to_canonical().is_loopback() {
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
