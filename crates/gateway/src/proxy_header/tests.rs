use proptest::prelude::*;

use super::*;

const ID: &[u8; 36] = b"3F2B0c1d-5a6e-4f70-8192-a3b4c5d6e7f8";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

/// A PROXY header over IPv4 with these octets after its addresses.
fn with_tail(tail: &[u8]) -> Vec<u8> {
    let mut header = hex("0d0a0d0a000d0a515549540a 21 11 0000 a9fea901 ac140001 9848 192b");
    header.extend(tail);
    let length = u16::try_from(header.len() - 16).unwrap();
    header[14..16].copy_from_slice(&length.to_be_bytes());
    header
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind], u16::try_from(value.len()).unwrap().to_be_bytes().as_slice(), value].concat()
}

fn complete(bytes: &[u8]) -> Header<'_> {
    match parse(bytes) {
        Ok(Parsed::Complete { header, length }) if length == bytes.len() => header,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hypershifts_header_is_read() {
    let v4 = [hex("0d0a0d0a000d0a515549540a 21 11 0033 a9fea901 ac140001 9848 192b 20 0024"), ID.to_vec()].concat();
    assert_eq!(v4.len(), 67);
    assert_eq!(
        complete(&v4),
        Header {
            client: Some(ClientAddr("169.254.169.1:38984".parse().unwrap())),
            destination: Some("172.20.0.1:6443".parse().unwrap()),
            cluster_id: Some(ID),
            proof: None,
        }
    );

    let addresses = "fe800000000000000000000000000001 fd000000000000000000000000000001 9848 192b";
    let v6 = [hex("0d0a0d0a000d0a515549540a 21 21 004b"), hex(addresses), hex("20 0024"), ID.to_vec()].concat();
    assert_eq!(v6.len(), 91);
    assert_eq!(
        complete(&v6),
        Header {
            client: Some(ClientAddr("[fe80::1]:38984".parse().unwrap())),
            destination: Some("[fd00::1]:6443".parse().unwrap()),
            cluster_id: Some(ID),
            proof: None,
        }
    );
}

#[test]
fn what_follows_the_header_is_not_part_of_it() {
    let header = with_tail(&tlv(0x20, b"c1"));
    let bytes = [header.as_slice(), b"\x16\x03\x01"].concat();
    let Ok(Parsed::Complete { length, .. }) = parse(&bytes) else { panic!("complete") };
    assert_eq!(length, header.len());
}

#[test]
fn good_tails_give_the_cluster_id() {
    let noop = tlv(0x04, b"padding");
    for (what, tail, id) in [
        ("no TLV", vec![], None),
        ("ours", tlv(0xE0, b"c1"), Some(b"c1".as_slice())),
        ("HyperShift's", tlv(0x20, b"c1"), Some(b"c1")),
        ("exact octets", tlv(0xE0, b"C1 \0"), Some(b"C1 \0")),
        ("an empty one", tlv(0xE0, b""), Some(b"")),
        (
            "among others",
            [noop.clone(), tlv(0xEA, b"aws"), tlv(0x20, b"c1"), tlv(0xEE, b"azure")].concat(),
            Some(b"c1"),
        ),
        ("an empty NOOP", tlv(0x04, b""), None),
        ("the longest authority", tlv(0x02, &[b'a'; 255]), None),
        ("the longest unique id", tlv(0x05, &[0; 128]), None),
    ] {
        assert_eq!(complete(&with_tail(&tail)).cluster_id, id, "{what}");
    }
}

#[test]
fn the_proof_is_handed_on_as_it_came() {
    for (what, tail, proof) in [
        ("none", tlv(0xE0, b"c1"), None),
        ("before the selector", [tlv(0xE1, b"any"), tlv(0xE0, b"c1")].concat(), Some(b"any".as_slice())),
        ("behind it", [tlv(0x20, b"c1"), tlv(0xE1, b"any")].concat(), Some(b"any")),
        ("an empty one", [tlv(0xE0, b"c1"), tlv(0xE1, b"")].concat(), Some(b"")),
    ] {
        let bytes = with_tail(&tail);
        let header = complete(&bytes);
        assert_eq!((header.cluster_id, header.proof), (Some(b"c1".as_slice()), proof), "{what}");
    }
    let octets = [7; crate::proof::LENGTH];
    let (client, destination) = ("192.0.2.7:1".parse().unwrap(), "192.0.2.8:2".parse().unwrap());
    let bytes = Encoder::proxy(client, destination).proof(&octets).finish().unwrap();
    assert_eq!(complete(&bytes).proof, Some(octets.as_slice()));
}

#[test]
fn bad_tails_are_refused() {
    let good = tlv(0x20, b"c1");
    for (what, tail, error) in [
        ("TLV past the end", vec![0x20, 0, 3, b'c', b'1'], HeaderError::TlvPastEnd(0x20)),
        ("overlong TLV", vec![0x20, 0xFF, 0xFF, b'c', b'1'], HeaderError::TlvPastEnd(0x20)),
        ("one trailing byte", [good.as_slice(), &[0]].concat(), HeaderError::TrailingBytes(1)),
        ("two trailing bytes", [good.as_slice(), &[4, 0]].concat(), HeaderError::TrailingBytes(2)),
        ("same TLV twice", [good.clone(), good.clone()].concat(), HeaderError::DuplicateClusterId),
        ("one of each", [good, tlv(0xE0, b"c1")].concat(), HeaderError::DuplicateClusterId),
        ("two proofs", [tlv(0xE1, b"a"), tlv(0xE1, b"a")].concat(), HeaderError::DuplicateProof),
        ("long authority", tlv(0x02, &[b'a'; 256]), HeaderError::LongAuthority(256)),
        ("long unique id", tlv(0x05, &[0; 129]), HeaderError::LongUniqueId(129)),
        ("short checksum", tlv(0x03, &[0; 3]), HeaderError::ChecksumLength(3)),
        ("long checksum", tlv(0x03, &[0; 5]), HeaderError::ChecksumLength(5)),
        ("wrong checksum", tlv(0x03, &[0; 4]), HeaderError::Checksum),
        ("two checksums", [tlv(0x03, &[0; 4]), tlv(0x03, &[0; 4])].concat(), HeaderError::DuplicateChecksum),
    ] {
        assert_eq!(parse(&with_tail(&tail)), Err(error), "{what}");
    }
}

#[test]
fn bad_fixed_parts_are_refused_as_soon_as_they_are_seen() {
    let signature = "0d0a0d0a000d0a515549540a";
    for (what, bytes, error) in [
        ("first byte", "16".into(), HeaderError::NotProxy),
        ("fifth byte", "0d0a0d0a01".into(), HeaderError::NotProxy),
        ("version 1", "50".into(), HeaderError::NotProxy),
        ("version 3", format!("{signature} 31"), HeaderError::Version(3)),
        ("command 2", format!("{signature} 22"), HeaderError::Command(2)),
        ("family 4", format!("{signature} 21 41"), HeaderError::Family(0x41)),
        ("transport 3", format!("{signature} 21 13"), HeaderError::Family(0x13)),
        ("INET without transport", format!("{signature} 21 10"), HeaderError::Family(0x10)),
        ("too long", format!("{signature} 21 11 07f1"), HeaderError::TooLong(2049)),
        ("LOCAL and too long", format!("{signature} 20 00 ffff"), HeaderError::TooLong(65551)),
        ("INET", format!("{signature} 21 11 000b"), HeaderError::ShortAddresses { length: 11, needed: 12 }),
        ("INET6", format!("{signature} 21 21 0023"), HeaderError::ShortAddresses { length: 35, needed: 36 }),
        ("UNIX", format!("{signature} 21 31 00d7"), HeaderError::ShortAddresses { length: 215, needed: 216 }),
    ] {
        let bytes = hex(&bytes);
        assert_eq!(parse(&bytes), Err(error), "{what}");
        assert_eq!(parse(&bytes[..bytes.len() - 1]), Ok(Parsed::Incomplete), "{what}, one byte less");
    }
}

#[test]
fn the_longest_header_fits() {
    let fill = MAX_HEADER - 16 - 12 - 3;
    assert_eq!(complete(&with_tail(&tlv(0x04, &vec![0; fill]))).cluster_id, None);
    assert_eq!(parse(&with_tail(&tlv(0x04, &vec![0; fill + 1]))), Err(HeaderError::TooLong(2049)));
}

#[test]
fn local_skips_everything_it_carries() {
    let signature = "0d0a0d0a000d0a515549540a";
    for (what, rest) in [
        ("nothing", "20 00 0000"),
        ("addresses", "20 11 000c a9fea901 ac140001 9848 192b"),
        ("a selector", "20 00 0005 20 0002 6331"),
        ("a family that nobody knows", "20 ff 0001 00"),
    ] {
        assert_eq!(complete(&hex(&format!("{signature} {rest}"))), Header::default(), "{what}");
    }
}

#[test]
fn families_without_ip_addresses_still_carry_tlvs() {
    let signature = hex("0d0a0d0a000d0a515549540a");
    let unspecified = [signature.clone(), hex("21 00 0005 e0 0002 6331")].concat();
    let unix = [signature, hex("21 31 00dd"), vec![0; 216], hex("e0 0002 6331")].concat();
    for bytes in [unspecified, unix] {
        assert_eq!(complete(&bytes), Header { cluster_id: Some(b"c1"), ..Header::default() });
    }
}

#[test]
fn every_flipped_bit_breaks_the_checksum() {
    let (client, destination) = ("192.0.2.7:40000".parse().unwrap(), "172.20.0.1:6443".parse().unwrap());
    let header = Encoder::proxy(client, destination).tlv(TLV_CLUSTER_ID, b"c1").finish_with_checksum().unwrap();
    assert_eq!(complete(&header).cluster_id, Some(b"c1".as_slice()));
    // From the first address on: what is before it is refused for other reasons.
    for at in 16..28 {
        let mut broken = header.clone();
        broken[at] ^= 1;
        assert_eq!(parse(&broken), Err(HeaderError::Checksum), "byte {at}");
    }
}

#[test]
fn a_mixed_pair_of_addresses_is_written_as_ipv6() {
    let client = "192.0.2.7:1".parse().unwrap();
    let destination = "[2001:db8::1]:2".parse().unwrap();
    let bytes = Encoder::proxy(client, destination).finish().unwrap();
    let header = complete(&bytes);
    assert_eq!(header.client, Some(ClientAddr("[::ffff:192.0.2.7]:1".parse().unwrap())));
    assert_eq!(header.destination, Some(destination));
}

#[test]
fn nothing_too_long_is_written() {
    for length in [MAX_HEADER, 70_000] {
        assert_eq!(Encoder::local().tlv(0x04, &vec![0; length]).finish(), Err(HeaderError::TooLong(16 + 3 + length)));
    }
}

/// Something close enough to a header to get past its first bytes.
fn nearly_a_header() -> impl Strategy<Value = Vec<u8>> {
    let tlvs = proptest::collection::vec(
        (
            prop::sample::select(vec![0x02, 0x03, 0x04, 0x05, 0x20, 0xE0, 0xE1]),
            proptest::collection::vec(0u8.., 0..300),
        ),
        0..5,
    );
    (tlvs, any::<bool>(), proptest::option::of((0usize..400, 0u8..)), proptest::collection::vec(0u8.., 0..40)).prop_map(
        |(tlvs, v6, flip, rest)| {
            let client = if v6 { "[2001:db8::7]:40000" } else { "192.0.2.7:40000" };
            let start = Encoder::proxy(client.parse().unwrap(), "172.20.0.1:6443".parse().unwrap());
            let all = tlvs.iter().fold(start, |encoder, (kind, value)| encoder.tlv(*kind, value));
            let mut bytes = all.finish().unwrap();
            if let Some((at, value)) = flip.filter(|(at, _)| *at < bytes.len()) {
                bytes[at] = value;
            }
            bytes.extend(rest);
            bytes
        },
    )
}

fn assert_splits_do_not_matter(bytes: &[u8]) {
    let whole = parse(bytes);
    for end in 0..bytes.len() {
        let part = parse(&bytes[..end]);
        assert!(part == Ok(Parsed::Incomplete) || part == whole, "{end} of {bytes:?}: {part:?}, then {whole:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_any_split(bytes in proptest::collection::vec(0u8.., 0..100)) {
        assert_splits_do_not_matter(&bytes);
    }

    #[test]
    fn any_header_any_split(bytes in nearly_a_header()) {
        assert_splits_do_not_matter(&bytes);
    }

    #[test]
    fn what_is_written_is_read(
        client: std::net::SocketAddrV4, destination: std::net::SocketAddrV4,
        id in proptest::collection::vec(0u8.., 0..128), checksum: bool,
    ) {
        let encoder = Encoder::proxy(client.into(), destination.into()).tlv(TLV_CLUSTER_ID, &id);
        let bytes = if checksum { encoder.finish_with_checksum() } else { encoder.finish() }.unwrap();
        let header = complete(&bytes);
        prop_assert_eq!(header.client, Some(ClientAddr(client.into())));
        prop_assert_eq!(header.destination, Some(destination.into()));
        prop_assert_eq!(header.cluster_id, Some(id.as_slice()));
    }
}
