//! What comes through the doors and goes into clusters, through the tunnel.

use std::time::Duration;

use gateway::Inbound;
use model::ClusterName;
use model::inside::{Denied, Inner, InnerTarget};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
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
async fn carry(hub: &Hub, inbound: Inbound) -> std::io::Result<()> {
    let Inbound { cluster, target, within, stream } = inbound;
    let mut socket = UnixStream::from_std(stream)?;
    match connect(hub, &cluster, &target, within).await {
        Ok(stream) => {
            socket.write_all(&[0]).await?;
            tunnel::carry(&stream, &mut socket).await
        }
        Err(denied) => socket.write_all(&[denied.octet()]).await,
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
