//! A link at the agents' door: the same admission as a request's, at first and then every few seconds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tunnel::{Identity, MAX_LINKS_PER_CLUSTER};

use super::problem::No;
use super::request::admit_still;
use super::{Door, Slot, unix_now};

/// How soon somebody whose credential was revoked is out.
const LOOK: Duration = Duration::from_secs(5);

/// Until it ends. Who is not let in hears nothing but the end: agents ask `/v1/cluster` for the reason.
pub(super) async fn serve(
    door: &Door,
    stream: TlsStream<TcpStream>,
    address: SocketAddr,
    identity: Option<(Identity, u64)>,
) {
    let Some((identity, expires)) = identity else { return refused(address, None, &No::no_certificate()) };
    let Some((hub, stop)) = &door.hub else { return };
    let admitted = match door.rates.take(&identity.cluster) {
        Ok(()) => admit_still(door, &identity, expires).await.map(drop),
        Err(wait) => Err(No::too_fast(wait)),
    };
    if let Err(no) = admitted {
        return refused(address, Some(&identity), &no);
    }
    let (Some(_seat), Ok(_place)) = (Seat::take(door.slot(&identity.cluster)), door.links.try_acquire()) else {
        return refused(address, Some(&identity), &No::busy());
    };
    tunnel::tune(stream.get_ref().0);
    let ends = async {
        tokio::select! {
            no = until_out(door, &identity, expires) => refused(address, Some(&identity), &no),
            () = stop.cancelled() => {}
        }
    };
    hub.serve_link(stream, identity.clone(), ends).await;
}

/// While nobody can say, what was admitted stays: at most until its certificate ends.
async fn until_out(door: &Door, identity: &Identity, expires: u64) -> No {
    loop {
        let left = Duration::from_secs(expires.saturating_sub(unix_now()));
        tokio::time::sleep(LOOK.min(left)).await;
        match timeout(LOOK, admit_still(door, identity, expires)).await {
            Ok(Err(no)) if no.is_out() || unix_now() >= expires => return no,
            _ if unix_now() >= expires => return No::expired(),
            _ => {}
        }
    }
}

pub(super) fn refused(peer: SocketAddr, identity: Option<&Identity>, no: &No) {
    let cluster = identity.map(|identity| tracing::field::display(&identity.cluster));
    let credential = identity.map(|identity| &*identity.credential);
    tracing::info!(target: "audit", event = "link", cluster, credential, %peer, code = no.code, "refused");
}

/// One of a cluster's links.
struct Seat(Arc<Slot>);

impl Seat {
    fn take(slot: Arc<Slot>) -> Option<Self> {
        let seat = Self(slot);
        // Counted in any case, and given back with the value.
        (seat.0.links.fetch_add(1, Ordering::AcqRel) < MAX_LINKS_PER_CLUSTER).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.links.fetch_sub(1, Ordering::AcqRel);
    }
}
