//! `gateway::client_hello`: the server name of a hello, beside what rustls reads of it.
//!
//! The first byte of an input says what its bytes stand for and how many cuts follow, each of two bytes. The cuts are
//! where a message is split over records, and where the records are split over segments.
#![no_main]

use std::io::Read as _;
use std::net::IpAddr;

use gateway::client_hello::{Hello, HelloError, HelloReader, MAX_HELLO};
use libfuzzer_sys::fuzz_target;
use rustls::server::Acceptor;

type Verdict = Result<Hello, HelloError>;

const UNDECIDED: Verdict = Ok(Hello::Incomplete);
/// RFC 8446 5.1.
const MAX_FRAGMENT: usize = 1 << 14;

fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else { return };
    let (cuts, rest) = rest.split_at((usize::from(first & 0x0f) * 2).min(rest.len() & !1));
    let cuts: Vec<usize> = cuts.chunks_exact(2).map(|cut| usize::from(u16::from_be_bytes([cut[0], cut[1]]))).collect();
    // The deeper it lies, the fewer lengths the fuzzer has to keep right.
    match first >> 6 {
        0 => check(rest, &cuts),
        1 => check_message(rest, &cuts),
        2 => check_message(&body_with(rest), &cuts),
        _ => check_message(&body_with(&[&[0, 0], vector16(rest).as_slice()].concat()), &cuts),
    }
});

/// A hello as a client might have it, with these extensions after the one without which rustls would not go on.
fn body_with(extensions: &[u8]) -> Vec<u8> {
    const SIGNATURE_ALGORITHMS: [u8; 8] = [0, 13, 0, 4, 0, 2, 4, 3];
    let extensions = vector16(&[&SIGNATURE_ALGORITHMS, extensions].concat());
    [[3, 3].as_slice(), &[7; 32], &[0], &[0, 2, 0x13, 0x01], &[1, 0], &extensions].concat()
}

/// A vector of at most 2^16 - 1 bytes; the rest is left off.
fn vector16(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), &content[..length.into()]].concat()
}

/// The same hello in as few records as possible and in as many as the cuts make means the same.
fn check_message(body: &[u8], cuts: &[usize]) {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1], &length[1..], body].concat();
    let whole = in_records(&message, &[]);
    let split = in_records(&message, cuts);
    let verdicts = [&whole, &split].map(|bytes| {
        check(bytes, cuts);
        read(bytes)
    });
    if split.len() <= MAX_HELLO {
        assert_eq!(verdicts[0], verdicts[1], "split over records");
        assert_ne!(verdicts[0], UNDECIDED, "all of it is there");
    }
}

fn in_records(message: &[u8], cuts: &[usize]) -> Vec<u8> {
    pieces(message.len(), cuts)
        .flat_map(|(start, end)| message[start..end].chunks(MAX_FRAGMENT))
        .flat_map(|fragment| [&[22, 3, 1], vector16(fragment).as_slice()].concat())
        .collect()
}

/// From cut to cut; none is empty.
fn pieces(length: usize, cuts: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (length + 1)).chain([0, length]).collect();
    ends.sort_unstable();
    ends.dedup();
    (1..ends.len()).map(move |at| (ends[at - 1], ends[at]))
}

fn read(bytes: &[u8]) -> Verdict {
    HelloReader::default().read(bytes)
}

fn check(bytes: &[u8], cuts: &[usize]) {
    let whole = read(bytes);
    assert!(whole != UNDECIDED || bytes.len() < MAX_HELLO, "what is held for an unknown peer is bounded");

    // One reader that remembers what it saw, byte by byte ...
    let mut reader = HelloReader::default();
    let mut decided = None;
    for end in 0..=bytes.len() {
        let verdict = reader.read(&bytes[..end]);
        if verdict != UNDECIDED {
            assert_eq!(verdict, whole, "after {end} bytes, one by one");
            decided = Some(end);
            break;
        }
    }
    assert_eq!(decided.is_none(), whole == UNDECIDED);
    // ... and in the segments of the input.
    let mut reader = HelloReader::default();
    for (_, end) in pieces(bytes.len(), cuts) {
        let verdict = reader.read(&bytes[..end]);
        assert_eq!(verdict, if decided.is_some_and(|at| at <= end) { whole.clone() } else { UNDECIDED });
        if verdict != UNDECIDED {
            break;
        }
    }
    // What came before the decision leaves room for any rest, and what came after it changes nothing.
    let Some(decided) = decided else { return };
    assert!(decided <= MAX_HELLO, "decided after {decided} bytes");
    assert_eq!(read(&[&bytes[..decided], &[0xff; 9]].concat()), whole);
    check_against_rustls(&bytes[..decided], &whole);
}

/// Whatever a server behind us takes, it must not be another name than the one that we routed by.
fn check_against_rustls(bytes: &[u8], ours: &Verdict) {
    let mut acceptor = Acceptor::default();
    let mut stream = bytes;
    let accepted = loop {
        match acceptor.read_tls(&mut stream.by_ref()) {
            Ok(1..) => {}
            Ok(0) | Err(_) => break None,
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => break Some(accepted),
            Err(_) => break None,
        }
    };
    let Some(accepted) = accepted else { return };
    let hello = accepted.client_hello();
    let theirs = hello.server_name().map(|name| name.trim_end_matches('.').to_ascii_lowercase());
    match (ours, theirs) {
        (Ok(Hello::ServerName(ours)), Some(theirs)) => assert_eq!(ours.to_string(), theirs),
        // RFC 6066 3: an address is no host name; no control plane has one for a name either.
        (Ok(Hello::ServerName(ours)), None) => assert!(ours.to_string().parse::<IpAddr>().is_ok(), "{ours}"),
        (Ok(Hello::NoServerName), theirs) => assert_eq!(theirs, None),
        (Ok(Hello::Incomplete), _) => panic!("rustls needs no more of it"),
        // RFC 6066 3: names of types to come have a length, too, and something may follow; rustls stops at one.
        (Err(HelloError::Malformed(reason)), _) if reason.contains("name") => {}
        (Err(error), theirs) => panic!("{error}, where rustls sees {theirs:?}"),
    }
}
