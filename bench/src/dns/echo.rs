//! The ceiling: a server that knows nothing, and sends every query back at the length of an answer.

use std::net::{SocketAddr, UdpSocket};

use anyhow::Context as _;

use super::batch::{Batch, OCTETS, Wait};

/// Until it is ended.
pub fn serve(address: SocketAddr, length: usize) -> anyhow::Result<()> {
    let length = length.min(OCTETS);
    let socket = UdpSocket::bind(address).with_context(|| format!("binding an echo to {address}"))?;
    let mut batch = Batch::to_anybody();
    loop {
        batch.receive(&socket, Wait::ForOne).context("receiving")?;
        for (octets, used) in batch.messages_mut() {
            // Now it is an answer.
            octets[2] |= 0x80;
            *used = length;
        }
        batch.send(&socket).context("sending")?;
    }
}
