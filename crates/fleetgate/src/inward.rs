//! What comes through the doors and goes into clusters, through the tunnel.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use gateway::{Counts, Inbound};
use model::ClusterName;
use model::inside::{Denied, Inner, InnerTarget};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use tunnel::{Hub, Refused, Stream, Target};
use web::inward::{InnerStream, Reaching};

/// For the doors that pass connections through: what they give away is carried by this runtime. As many at once as the doors let
/// in, each for as long as its connection lasts.
pub(crate) fn of_gateway(hub: &Hub, runtime: &Handle) -> gateway::Inward {
    let (carrying, counting, runtime) = (hub.clone(), hub.clone(), runtime.clone());
    gateway::Inward::new(
        move |inbound| {
            let hub = carrying.clone();
            runtime.spawn(async move {
                let cluster = inbound.cluster.clone();
                if let Err(error) = carry(&hub, inbound).await {
                    tracing::debug!(%cluster, %error, "a connection through the tunnel broke");
                }
            });
        },
        move |cluster| counting.ways(cluster),
    )
}

/// For requests.
pub(crate) fn of_web(hub: &Hub, runtime: &Handle) -> web::Inward {
    let (connecting, counting, runtime) = (hub.clone(), hub.clone(), runtime.clone());
    web::Inward::new(
        move |inner: &Inner, within: Duration| -> Reaching {
            let (hub, inner) = (connecting.clone(), inner.clone());
            // What a link does meanwhile must not end with the thread that asked.
            let connected = runtime.spawn(async move { connect(&hub, &inner.cluster, &inner.target, within).await });
            let connected = AbortOnDropHandle::new(connected);
            Box::pin(async move {
                let stream = connected.await.unwrap_or(Err(Denied::LinkLost))?;
                Ok(Box::new(stream) as Box<dyn InnerStream>)
            })
        },
        move |cluster| counting.ways(cluster),
    )
}

/// One connection of a door's, from the dial to its end.
async fn carry(hub: &Hub, inbound: Inbound) -> io::Result<()> {
    let Inbound { cluster, target, within, client, first, word, counts } = inbound;
    let mut word = UnixStream::from_std(word)?;
    let mut stream = match connect(hub, &cluster, &target, within).await {
        Ok(stream) => stream,
        Err(denied) => return word.write_all(&[denied.octet()]).await,
    };
    word.write_all(&[0]).await?;
    if word.read(&mut [0]).await? == 0 {
        // It came too late.
        return Ok(());
    }
    let mut client = Counted { client: TcpStream::from_std(client)?, counts };
    let carrying = async {
        stream.write_all(&first).await?;
        client.counts.to_upstream(first.len() as u64);
        tunnel::carry(&stream, &mut client).await
    };
    tokio::select! {
        carried = carrying => {
            if carried.is_err() {
                // Not to be taken for an orderly end.
                let _ = sockopt::set_socket_linger(&client.client, Some(Duration::ZERO));
            }
            carried
        }
        // The door ends it.
        _ = word.read_u8() => Ok(()),
    }
}

/// A client of a door's, of whose octets the door hears.
struct Counted {
    client: TcpStream,
    counts: Counts,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.client).poll_read(context, into))?;
        self.counts.to_upstream((into.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.client).poll_write(context, octets))?;
        self.counts.to_client(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_shutdown(context)
    }
}

async fn connect(hub: &Hub, cluster: &ClusterName, target: &InnerTarget, within: Duration) -> Result<Stream, Denied> {
    // Both are read as strictly; the other reader has the last word.
    let target: Target = target.to_string().parse().map_err(|_| Denied::Forbidden)?;
    hub.connect(cluster, &target, within).await.map_err(|refused| denied(&refused))
}

fn denied(refused: &Refused) -> Denied {
    match refused {
        Refused::NoLink => Denied::NoLink,
        Refused::Forbidden(_) | Refused::Malformed(_) => Denied::Forbidden,
        Refused::UnknownName(_) => Denied::UnknownName,
        Refused::Unreachable(_) => Denied::Unreachable,
        Refused::TimedOut => Denied::TimedOut,
        Refused::LinkLost | Refused::Garbled(_) => Denied::LinkLost,
        Refused::TooMany => Denied::TooMany,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads of it in the log of a door finds the same word where the tunnel tells of it.
    #[test]
    fn a_refusal_keeps_its_code() {
        let why = String::new;
        for refused in [
            Refused::NoLink,
            Refused::Forbidden(why()),
            Refused::UnknownName(why()),
            Refused::Unreachable(why()),
            Refused::TimedOut,
            Refused::LinkLost,
            Refused::TooMany,
        ] {
            assert_eq!(denied(&refused).code(), refused.code());
        }
    }

    /// What a manifest takes, the tunnel takes.
    #[test]
    fn targets_are_read_alike() {
        for text in
            ["ingress.web.svc:443", "10.0.0.1:80", "[fd00::1]:443", "a_b.svc:1", "ingress.web.svc.cluster.local.:443"]
        {
            let target: InnerTarget = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            let read: Target = target.to_string().parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(read.port, target.port);
        }
    }
}
