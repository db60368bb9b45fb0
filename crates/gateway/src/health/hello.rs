//! The TLS hello of a check, and what counts as an answer to it.

use model::DnsName;

const RECORD_ALERT: u8 = 21;
const RECORD_HANDSHAKE: u8 = 22;

/// What stands in the place of 32 random bytes: no key ever follows from it, and it tells who looks at the wire what
/// this is.
const RANDOM: &[u8; 32] = b"fleetgate looks whether you live";

/// The three of TLS 1.3, and for TLS 1.2 ECDHE with AES-GCM, for either kind of certificate.
const CIPHER_SUITES: [u16; 7] = [0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030];
/// X25519, P-256 and P-384.
const GROUPS: [u16; 3] = [0x001d, 0x0017, 0x0018];
/// ECDSA, Ed25519, RSA-PSS and, for TLS 1.2, RSA-PKCS1.
const SIGNATURES: [u16; 9] = [0x0403, 0x0503, 0x0603, 0x0807, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501];
const VERSIONS: [u16; 2] = [0x0304, 0x0303];

/// A TLS server answers with a part of the handshake, or with an alert where it does not like the name or the rest.
pub(super) fn is_answer(first: u8) -> bool {
    matches!(first, RECORD_HANDSHAKE | RECORD_ALERT)
}

/// One record. It offers no key share, which asks the server to retry (RFC 8446 4.2.8): one of TLS 1.3 neither computes
/// nor signs anything for a check.
pub(super) fn client_hello(name: &DnsName) -> Vec<u8> {
    let name = name.to_string();
    let extensions = [
        // server_name (RFC 6066 3): a list of one host name
        extension(0, &vector16(&[&[0], vector16(name.as_bytes()).as_slice()].concat())),
        // ec_point_formats (RFC 8422 5.1.2): uncompressed
        extension(11, &vector8(&[0])),
        // supported_groups
        extension(10, &vector16(&numbers(&GROUPS))),
        // signature_algorithms
        extension(13, &vector16(&numbers(&SIGNATURES))),
        // supported_versions
        extension(43, &vector8(&numbers(&VERSIONS))),
        // key_share: none
        extension(51, &vector16(&[])),
    ];
    let body = [
        &[3, 3],
        RANDOM.as_slice(),
        &vector8(&[]),
        &vector16(&numbers(&CIPHER_SUITES)),
        // No compression.
        &vector8(&[0]),
        &vector16(&extensions.concat()),
    ];
    // Type 1, and a length of three bytes.
    let message = [&[1, 0], vector16(&body.concat()).as_slice()].concat();
    // RFC 8446 5.1: the first record may say TLS 1.0, for servers that look at it.
    [&[RECORD_HANDSHAKE, 3, 1], vector16(&message).as_slice()].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [kind.to_be_bytes().as_slice(), &vector16(content)].concat()
}

fn numbers(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

fn vector8(content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("written here, and short");
    [&[length], content].concat()
}

fn vector16(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a name and a few lists");
    [length.to_be_bytes().as_slice(), content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_hello::{Hello, HelloReader};

    #[test]
    fn our_own_reader_finds_the_name() {
        let long = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61));
        for name in ["api.c1.fleet.example", "a", &long] {
            let name = DnsName::parse(name).unwrap();
            assert_eq!(HelloReader::default().read(&client_hello(&name)), Ok(Hello::ServerName(name)));
        }
    }

    #[test]
    fn only_a_handshake_or_an_alert_is_an_answer() {
        assert!(is_answer(22) && is_answer(21));
        assert!(![b'H', 0, 20, 23, 0xff].into_iter().any(is_answer));
    }
}
