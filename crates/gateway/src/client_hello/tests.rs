use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn vector16(content: &[u8]) -> Vec<u8> {
    [u16::try_from(content.len()).unwrap().to_be_bytes().as_slice(), content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [kind.to_be_bytes().to_vec(), vector16(content)].concat()
}

fn name_entry(kind: u8, name: &[u8]) -> Vec<u8> {
    [vec![kind], vector16(name)].concat()
}

fn server_name_extension(name: &str) -> Vec<u8> {
    extension(0, &vector16(&name_entry(0, name.as_bytes())))
}

/// Everything before the extensions.
fn body_start() -> Vec<u8> {
    [[3, 3].as_slice(), &[7; 32], &[4, 1, 2, 3, 4], &[0, 2, 0x13, 0x01], &[1, 0]].concat()
}

fn body(extensions: &[Vec<u8>]) -> Vec<u8> {
    [body_start(), vector16(&extensions.concat())].concat()
}

fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind], &length[1..], body].concat()
}

/// The message in records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|fragment| [vec![22, 3, 1], vector16(fragment)].concat()).collect()
}

fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
    records(&handshake(1, &body(extensions)), MAX_FRAGMENT)
}

fn read(bytes: &[u8]) -> Result<Hello, HelloError> {
    HelloReader::default().read(bytes)
}

fn name(text: &str) -> Hello {
    Hello::ServerName(DnsName::parse(text).unwrap())
}

#[test]
fn the_server_name_is_found() {
    let padding = |length| extension(21, &vec![0; length]);
    for (what, extensions, expected) in [
        ("alone", vec![server_name_extension("api.c1.fleet.example")], name("api.c1.fleet.example")),
        ("any case", vec![server_name_extension("API.C1.Fleet.Example")], name("api.c1.fleet.example")),
        ("a final dot", vec![server_name_extension("a.test.")], name("a.test")),
        ("last", vec![padding(100), extension(0x6a6a, &[]), server_name_extension("a.test")], name("a.test")),
        (
            "behind post-quantum key shares",
            vec![extension(51, &[1; 4096]), server_name_extension("a.test")],
            name("a.test"),
        ),
        ("in a very long hello", vec![padding(60_000), server_name_extension("a.test")], name("a.test")),
        (
            "beside a type to come",
            vec![extension(0, &vector16(&[name_entry(9, b"x"), name_entry(0, b"a.test")].concat()))],
            name("a.test"),
        ),
        ("only a type to come", vec![extension(0, &vector16(&name_entry(9, b"x")))], Hello::NoServerName),
        ("none", vec![padding(5)], Hello::NoServerName),
        ("no extension", vec![], Hello::NoServerName),
    ] {
        assert_eq!(read(&hello(&extensions)), Ok(expected), "{what}");
    }
    assert_eq!(read(&records(&handshake(1, &body_start()), 100)), Ok(Hello::NoServerName), "no room for extensions");
}

#[test]
fn what_follows_the_hello_is_not_looked_at() {
    let early_data = [23, 3, 3, 0, 1, 0];
    let bytes = [hello(&[server_name_extension("a.test")]).as_slice(), &early_data, &vec![0; 100_000]].concat();
    assert_eq!(read(&bytes), Ok(name("a.test")));
}

#[test]
fn hellos_split_over_records_are_put_together() {
    let message = handshake(1, &body(&[extension(51, &[1; 2000]), server_name_extension("a.test")]));
    for size in [1, 2, 3, 4, 5, 100, 1000, message.len() - 1] {
        assert_eq!(read(&records(&message, size)), Ok(name("a.test")), "records of {size}");
    }
}

#[test]
fn what_is_no_tls_is_known_by_its_first_bytes() {
    for (what, bytes) in [
        ("HTTP", b"G".as_slice()),
        ("a PROXY header", b"\r"),
        ("an SSL 2 hello", &[0x80, 0x2e, 1, 3, 1]),
        ("an alert", &[21, 3, 3, 0, 2, 2, 40]),
        ("a version nobody has", &[22, 4]),
    ] {
        assert_eq!(read(bytes), Err(HelloError::NotTls), "{what}");
    }
}

#[test]
fn malformed_hellos_are_refused() {
    let a = server_name_extension("a.test");
    let whole = handshake(1, &body(std::slice::from_ref(&a)));
    let twice_in_list = vector16(&[name_entry(0, b"a.test"), name_entry(0, b"b.test")].concat());
    let longer_list = [vector16(&name_entry(0, b"a.test")), vec![0]].concat();
    let cut_list = vector16(&[0, 0, 9, b'a']);
    let first_part = |size: usize| records(&whole[..size], size);
    for (what, bytes) in [
        ("a ServerHello", records(&handshake(2, &body(std::slice::from_ref(&a))), 100)),
        ("two extensions", hello(&[a.clone(), server_name_extension("b.test")])),
        ("two host names", hello(&[extension(0, &twice_in_list)])),
        ("an empty list", hello(&[extension(0, &vector16(&[]))])),
        ("an empty extension", hello(&[extension(0, &[])])),
        ("a list longer than itself", hello(&[extension(0, &longer_list)])),
        ("a cut list", hello(&[extension(0, &cut_list)])),
        ("an empty name", hello(&[server_name_extension("")])),
        ("an escape", hello(&[server_name_extension("a\\046b.test")])),
        ("a space", hello(&[server_name_extension("a b.test")])),
        ("a zero", hello(&[server_name_extension("a\0.test")])),
        ("no UTF-8", hello(&[extension(0, &vector16(&name_entry(0, &[0xff])))])),
        ("an empty body", records(&handshake(1, &[]), 100)),
        ("bytes after the extensions", records(&handshake(1, &[body(&[]), vec![0]].concat()), 100)),
        ("a cut extension", records(&handshake(1, &[body_start(), vector16(&[0, 0, 0])].concat()), 100)),
        ("another message in the record", records(&[whole.clone(), whole.clone()].concat(), MAX_FRAGMENT)),
        ("an empty record", [first_part(10), vec![22, 3, 1, 0, 0]].concat()),
        ("a long record", vec![22, 3, 1, 0x40, 0x01]),
        ("another record inside", [first_part(10), vec![21, 3, 3, 0, 2, 2, 40]].concat()),
    ] {
        assert!(matches!(read(&bytes), Err(HelloError::Malformed(_))), "{what}: {:?}", read(&bytes));
    }
}

#[test]
fn hellos_are_bounded() {
    assert_eq!(read(&records(&[1, 1, 0, 0], 4)), Err(HelloError::TooLong), "the message says so");
    let long = handshake(1, &body(&[extension(21, &vec![0; 65_000])]));
    assert_eq!(read(&records(&long, 1)), Err(HelloError::TooLong), "the records add up");
    assert!(matches!(read(&records(&long, MAX_FRAGMENT)), Ok(Hello::NoServerName)));
    // Whatever is incomplete leaves room for what is missing, so that a buffer of the bound is enough.
    let one_by_one = records(&long, 1);
    let mut reader = HelloReader::default();
    let told_at = (0..one_by_one.len()).find(|end| reader.read(&one_by_one[..*end]).is_err()).unwrap();
    assert!(told_at <= MAX_HELLO, "{told_at}");
}

#[test]
fn a_real_clients_hello_is_read() {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let server = "API.c1.fleet.example".try_into().unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), server).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    assert_eq!(read(&bytes), Ok(name("api.c1.fleet.example")));
}

/// A reader that is shown the bytes piece by piece comes to what one that sees them at once comes to.
fn assert_splits_do_not_matter(bytes: &[u8], cuts: impl IntoIterator<Item = usize>) {
    let whole = read(bytes);
    let mut reader = HelloReader::default();
    let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([bytes.len()]).collect();
    cuts.sort_unstable();
    for end in cuts {
        match reader.read(&bytes[..end]) {
            Ok(Hello::Incomplete) => {}
            decided => {
                assert_eq!(decided, whole, "{end} of {bytes:?}");
                return;
            }
        }
    }
    assert_eq!(whole, Ok(Hello::Incomplete));
}

/// Something close enough to a hello to get past its first bytes.
fn nearly_a_hello() -> impl Strategy<Value = Vec<u8>> {
    let extensions = proptest::collection::vec((0u16..3, proptest::collection::vec(0u8..4, 0..12)), 0..4);
    (extensions, any::<bool>(), 1usize..200, proptest::option::of((0usize..300, 0u8..)), 0usize..40).prop_map(
        |(extensions, named, size, flip, rest)| {
            let mut extensions: Vec<_> = extensions.iter().map(|(kind, value)| extension(*kind, value)).collect();
            if named {
                extensions.push(server_name_extension("a.test"));
            }
            let mut bytes = records(&handshake(1, &body(&extensions)), size);
            if let Some((at, value)) = flip.filter(|(at, _)| *at < bytes.len()) {
                bytes[at] = value;
            }
            bytes.resize(bytes.len() + rest, 0x17);
            bytes
        },
    )
}

proptest! {
    #[test]
    fn any_bytes_any_split(bytes in proptest::collection::vec(0u8.., 0..200)) {
        assert_splits_do_not_matter(&bytes, 0..bytes.len());
    }

    #[test]
    fn any_hello_byte_by_byte(bytes in nearly_a_hello()) {
        assert_splits_do_not_matter(&bytes, 0..bytes.len());
    }

    #[test]
    fn any_hello_any_split(bytes in nearly_a_hello(), cuts in proptest::collection::vec(0usize..1000, 0..5)) {
        assert_splits_do_not_matter(&bytes, cuts);
    }
}
