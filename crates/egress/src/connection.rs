//! * One connection of a control plane: who it is, whether that still holds, where it wants to go, and there it goes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tunnel::{Identity, Role, Target};

use crate::NotAdmitted;
use crate::carry::{Carried, HOLD, carry};
use crate::guests::Place;
use crate::head::{self, ESTABLISHED, Request};
use crate::listen::Door;
use crate::refusal::Refusal;
use crate::socket;

/// Honest handshakes take three ways across the world.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long it is waited for whether somebody is still let in.
const ADMIT_WITHIN: Duration = Duration::from_secs(3);

pub(crate) async fn serve(door: Arc<Door>, stream: TcpStream, from: SocketAddr, stranger: OwnedSemaphorePermit) {
    let _counted = door.metrics.connection();
    let Some(tls) = door.gate.tls() else { return };
    socket::prepare(&stream);
    let handshake = timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(stream));
    let Some(Ok(Ok(mut client))) = door.end.run_until_cancelled(handshake).await else {
        _ = door.metrics.handshake_failures.inc();
        return;
    };
    let certificate = client.get_ref().1.peer_certificates().and_then(<[_]>::first);
    // The authority signs no others.
    let Some((identity, expires)) = certificate.and_then(Identity::of) else {
        _ = door.metrics.handshake_failures.inc();
        return;
    };
    let mut asked = None;
    let refusal = match decide(&door, &mut client, (&identity, expires), stranger, &mut asked).await {
        Ok((place, target, first)) => {
            door.metrics.count("Ok");
            return go(&door, client, place, target, first).await;
        }
        Err(refusal) => refusal,
    };
    door.metrics.count(refusal.label());
    audit(&identity, asked.as_ref(), &refusal, from);
    refusal.tell(&mut client).await;
}

/// Everything that may be refused, in this order. `asked` is what the client asked for, as far as it came to that.
async fn decide(
    door: &Door,
    client: &mut TlsStream<TcpStream>,
    (identity, expires): (&Identity, u64),
    stranger: OwnedSemaphorePermit,
    asked: &mut Option<Target>,
) -> Result<(Place, tunnel::Stream, Bytes), Refusal> {
    if identity.role != Role::ControlPlane {
        return Err(Refusal::NotAControlPlane);
    }
    let place = door.guests.enter(identity, expires)?;
    drop(stranger);
    let Request { target, rest } = head::read_request(client).await?;
    *asked = Some(target.clone());
    match timeout(ADMIT_WITHIN, door.gate.admit(identity, expires)).await {
        Ok(Ok(())) => {}
        Ok(Err(NotAdmitted::Out { code, reason })) => return Err(Refusal::NotAdmitted { code, reason }),
        Ok(Err(NotAdmitted::Unavailable)) | Err(_) => return Err(Refusal::Unavailable),
    }
    // Of the cluster that the certificate names, whatever the request says.
    let stream = door.hub.connect(&identity.cluster, &target, door.settings.dial_within).await;
    Ok((place, stream.map_err(Refusal::Tunnel)?, rest))
}

/// Says that it is connected, and carries until an end comes.
async fn go(door: &Door, mut client: TlsStream<TcpStream>, place: Place, target: tunnel::Stream, first: Bytes) {
    let carried = Carried::default();
    let carrying = async {
        client.write_all(ESTABLISHED).await?;
        client.flush().await?;
        carry(client, target, (first, Bytes::new()), HOLD, &carried).await
    };
    tokio::select! {
        // A peer that goes away is nothing to speak of.
        _ = carrying => {}
        () = place.cut.cancelled() => {}
        () = door.end.cancelled() => {}
    }
    door.metrics.carried(&carried);
}

fn audit(identity: &Identity, target: Option<&Target>, refusal: &Refusal, peer: SocketAddr) {
    tracing::warn!(
        target: "audit",
        event = "egress-refused",
        cluster = %identity.cluster,
        identity = %identity,
        destination = target.map(tracing::field::display),
        code = refusal.label(),
        reason = %refusal,
        %peer,
        "refused"
    );
}
