//! What HyperShift's nodes put on the wire, octet by octet.

use std::io::Write as _;

use crate::fixture::cluster_with_id;
use crate::server::{BASE, Fleet, Server, connect, echo_backend, read_line};

const LOWER: &str = "1f0e2d3c-4b5a-4978-8695-a4b3c2d1e0ff";
/// The same UUID to whoever reads it as one; another cluster to us, who compare octets.
const UPPER: &str = "1F0E2D3C-4B5A-4978-8695-A4B3C2D1E0FF";
/// Nobody's.
const MIXED: &str = "1F0E2D3C-4b5a-4978-8695-a4b3c2d1e0ff";

const SIGNATURE: [u8; 12] = [0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a];
/// Version 2, PROXY.
const PROXY: u8 = 0x21;
/// The TLV's type and the length of a UUID.
const TLV: [u8; 3] = [0x20, 0x00, 0x24];

/// From 169.254.169.1:38984 to 172.20.0.1:6443, the address that the API server has on every node.
fn over_ipv4(id: &str) -> Vec<u8> {
    let addresses = [0xa9, 0xfe, 0xa9, 0x01, 0xac, 0x14, 0x00, 0x01, 0x98, 0x48, 0x19, 0x2b];
    let header = [&SIGNATURE, [PROXY, 0x11, 0x00, 0x33].as_slice(), &addresses, &TLV, id.as_bytes()].concat();
    assert_eq!(header.len(), 67);
    header
}

/// From `[fe80::1]:38984` to `[fd00::1]:6443`.
fn over_ipv6(id: &str) -> Vec<u8> {
    let mut addresses = [0; 36];
    addresses[..2].copy_from_slice(&[0xfe, 0x80]);
    addresses[15] = 1;
    addresses[16] = 0xfd;
    addresses[31] = 1;
    addresses[32..].copy_from_slice(&[0x98, 0x48, 0x19, 0x2b]);
    let header = [&SIGNATURE, [PROXY, 0x21, 0x00, 0x4b].as_slice(), &addresses, &TLV, id.as_bytes()].concat();
    assert_eq!(header.len(), 91);
    header
}

/// The greeting of the control plane that is reached, and that the header stays behind.
fn reached_with(server: &Server, header: &[u8]) -> std::io::Result<String> {
    let mut stream = connect(server.apiserver);
    stream.write_all(&[header, b"first\n"].concat())?;
    let name = read_line(&mut stream)?;
    assert_eq!(read_line(&mut stream)?, "first");
    Ok(name)
}

#[test]
fn the_golden_header_selects_by_exact_octets() {
    let fleet = Fleet::new(&[
        ("base.yaml", BASE),
        ("c1.yaml", &cluster_with_id("c1", LOWER, echo_backend("lower"))),
        ("c2.yaml", &cluster_with_id("c2", UPPER, echo_backend("upper"))),
    ]);
    let server = fleet.serve();
    for header in [over_ipv4, over_ipv6] {
        assert_eq!(reached_with(&server, &header(LOWER)).unwrap(), "lower");
        assert_eq!(reached_with(&server, &header(UPPER)).unwrap(), "upper");
        reached_with(&server, &header(MIXED)).unwrap_err();
    }
    assert_eq!(server.established("apiserver"), 4);
    assert_eq!(server.outcomes("apiserver", "UnknownClusterId"), 2);
    server.terminate();
}
