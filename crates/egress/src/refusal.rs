//! Why a connection into a cluster is not made, and how a client is told.

use std::time::Duration;

use model::Blame;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use tunnel::Refused;

use crate::head::{HEAD_WITHIN, MAX_HEAD};

/// A client that does not take its answer holds a place.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// What a client sent that was refused is read on for so long, and so much of it: a connection that is closed with unread octets is
/// reset, and the client never reads why.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_OCTETS: usize = 64 << 10;
/// kube-apiserver shows people nothing of a refusal but its status line, so the reason stands there; this much is read by anybody.
const MAX_PHRASE: usize = 300;

/// Nothing in it is another tenant's: control planes read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the head is malformed: {0}")]
    Malformed(&'static str),
    #[error("the head is longer than {MAX_HEAD} octets")]
    HeadTooLarge,
    #[error("the head did not come within {} s", HEAD_WITHIN.as_secs())]
    HeadTooSlow,
    #[error("only CONNECT is carried here; for plain HTTP go without the proxy, or use https")]
    MethodNotCarried,
    #[error("only HTTP/1.0 and HTTP/1.1 are spoken here")]
    Version,
    #[error("the target is not HOST:PORT, such as 10.10.0.1:443, [fd00::1]:443 or hook.shop.svc:443")]
    BadTarget,
    /// Nobody is left to be told.
    #[error("the client asked for nothing")]
    Silent,
    #[error("the connection broke: {0}")]
    Gone(String),
    #[error("the certificate is none of a control plane; fleetgate egress credential makes one")]
    NotAControlPlane,
    /// As those say who know the credentials.
    #[error("{reason}")]
    NotAdmitted { code: &'static str, reason: String },
    #[error("it cannot be told at the moment whether the credential is still good; try again")]
    Unavailable,
    #[error("this cluster has {0} connections through here and gets no more")]
    TooManyConnections(usize),
    #[error("this cluster makes new connections too fast; try again in {} s", .0.as_secs() + 1)]
    TooFast(Duration),
    /// As the tunnel says.
    #[error("{0}")]
    Tunnel(Refused),
    /// Of a side-car: as the gateway said.
    #[error("{reason}")]
    Passed { status: u16, code: String, reason: String },
    #[error("no gateway could be reached: {0}")]
    NoGateway(String),
    /// Of a transparent side-car.
    #[error("the connection was not redirected here: nobody connects to this address itself")]
    NotRedirected,
    #[error("the connection leads to a gateway itself; is the side-car's user exempt from the redirection?")]
    Loop,
}

impl Refusal {
    /// Fixed words: metric label, log field, header field of the answer.
    pub fn code(&self) -> &str {
        match self {
            Self::Passed { code, .. } => code,
            other => other.label(),
        }
    }

    /// The same, where nothing that a peer sent may stand.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "MalformedRequest",
            Self::HeadTooLarge => "HeadTooLarge",
            Self::HeadTooSlow => "HeadTimeout",
            Self::MethodNotCarried => "MethodNotCarried",
            Self::Version => "BadVersion",
            Self::BadTarget => "BadTarget",
            Self::Silent => "Silent",
            Self::Gone(_) => "Gone",
            Self::NotAControlPlane => "NotAControlPlane",
            Self::NotAdmitted { code, .. } => code,
            Self::Unavailable => "Unavailable",
            Self::TooManyConnections(_) => "TooManyConnections",
            Self::TooFast(_) => "TooFast",
            Self::Tunnel(refused) => refused.code(),
            Self::Passed { .. } => "Passed",
            Self::NoGateway(_) => "NoGateway",
            Self::NotRedirected => "NotRedirected",
            Self::Loop => "Loop",
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::Unavailable | Self::NoGateway(_) => Blame::Us,
            Self::Tunnel(refused) => refused.blame(),
            Self::Passed { status: 500.., .. } => Blame::Backend,
            _ => Blame::Client,
        }
    }

    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) | Self::BadTarget | Self::Silent | Self::Gone(_) => 400,
            Self::HeadTooLarge => 431,
            Self::HeadTooSlow => 408,
            Self::MethodNotCarried => 405,
            Self::Version => 505,
            Self::NotAControlPlane | Self::NotAdmitted { .. } | Self::NotRedirected | Self::Loop => 403,
            Self::TooManyConnections(_) | Self::TooFast(_) => 429,
            Self::Unavailable | Self::NoGateway(_) => 503,
            Self::Tunnel(refused) => refused.status(),
            Self::Passed { status, .. } => *status,
        }
    }

    /// Whether another gateway may have a better answer: this one did not speak of the target.
    pub(crate) fn is_of_the_gateway(&self) -> bool {
        self.status() == 503 || matches!(self.code(), "NoLink" | "LinkLost")
    }

    /// Whether anybody is left who could read an answer.
    fn is_told(&self) -> bool {
        !matches!(self, Self::Silent | Self::Gone(_))
    }

    /// Says so, and ends the client's connection behind it.
    pub(crate) async fn tell(&self, client: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
        if !self.is_told() {
            return;
        }
        let telling = async {
            client.write_all(self.answer().as_bytes()).await?;
            client.flush().await?;
            client.shutdown().await
        };
        if let Ok(Ok(())) = timeout(ANSWER_WITHIN, telling).await {
            linger(client).await;
        }
    }

    fn answer(&self) -> String {
        let (status, code, body) = (self.status(), plain(self.code()), plain(&self.to_string()));
        let mut more = String::new();
        if *self == Self::MethodNotCarried {
            more.push_str("Allow: CONNECT\r\n");
        }
        if let Self::TooFast(wait) = self {
            // Whole seconds (RFC 9110 10.2.3), and never too early.
            more = format!("Retry-After: {}\r\n", wait.as_secs() + 1);
        }
        format!(
            "HTTP/1.1 {status} {code}: {body}\r\nFleetgate-Refusal: {code}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             {more}Content-Length: {}\r\nConnection: close\r\n\r\n{body}\n",
            body.len() + 1
        )
    }
}

/// Reads what the client had sent before it knew.
async fn linger(client: &mut (impl AsyncRead + Unpin)) {
    let mut octets = [0; 1024];
    let mut left = LINGER_OCTETS;
    let reading = async {
        while let Ok(read @ 1..) = client.read(&mut octets).await {
            left = left.saturating_sub(read);
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(LINGER, reading).await;
}

/// On one line, printable, and not too long: it stands in a status line.
fn plain(text: &str) -> String {
    let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    text.chars().take(MAX_PHRASE).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kube-apiserver shows the status line and nothing else.
    #[test]
    fn an_answer_says_why_in_its_first_line() {
        let target: tunnel::Target = "169.254.169.254:80".parse().unwrap();
        let refusal = Refusal::Tunnel(target.check().unwrap_err());
        let answer = refusal.answer();
        let line = answer.lines().next().unwrap();
        assert!(line.starts_with("HTTP/1.1 403 TargetForbidden: ") && line.contains("169.254.169.254"), "{line}");
        assert!(answer.contains("\r\nFleetgate-Refusal: TargetForbidden\r\n"), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
        assert!(Refusal::MethodNotCarried.answer().contains("\r\nAllow: CONNECT\r\n"));
        assert!(Refusal::TooFast(Duration::from_millis(300)).answer().contains("\r\nRetry-After: 1\r\n"));
        let reason = format!("a\r\nSet-Cookie: x\u{7f}\u{e9}{}", "x".repeat(1000));
        let evil = Refusal::Passed { status: 502, code: "A\r\nB".into(), reason };
        let answer = evil.answer();
        assert!(answer.starts_with("HTTP/1.1 502 A??B: a??Set-Cookie: x??xxx"), "{answer}");
        assert_eq!(answer.matches("\r\n").count(), 6, "{answer}");
        assert!(answer.lines().next().unwrap().len() < 400);
    }
}
