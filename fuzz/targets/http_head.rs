//! `web::lean`: heads of requests and responses on the short way, beside the strict reader that both ways have.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::fuzz_target;
use web::head::{self, Framing, MAX_FIELDS, MAX_HEAD};
use web::headers;
use web::lean::request::{self, Read, Told};
use web::lean::response::{self, Body};

/// A host that members are asked for, whatever the request says.
const HOST: &str = "shop.example:8080";

fuzz_target!(|input: &[u8]| {
    check_request(input);
    check_response(input);
});

/// What was decided about a request: where it ends, if it is usual.
type Verdict = Option<Result<(usize, Vec<u8>), ()>>;

fn read(octets: &[u8]) -> Verdict {
    match request::read(octets, &mut head::no_fields()) {
        Read::Part => None,
        Read::Unusual => Some(Err(())),
        Read::Usual(usual) => {
            let mut out = Vec::new();
            usual.write(HOST, &Told::new(IpAddr::V4(Ipv4Addr::LOCALHOST), false), &mut out);
            Some(Ok((usual.head + usual.body, out)))
        }
    }
}

fn check_request(octets: &[u8]) {
    let Some(decided) = fuzz::decided_at(octets, &None, read) else { return };
    let strict = head::read(octets);
    let Some(Ok((end, out))) = read(octets) else { return };
    assert!(decided <= end, "it takes no octet of what follows");
    let strict = strict.expect("what is usual is not refused").expect("all of it is there");
    assert!(!strict.upgrade && strict.framing != Framing::Chunked);

    if out.len() > MAX_HEAD || out.split(|octet| *octet == b'\n').count() > MAX_FIELDS + 1 {
        // With what we add it is too long for us.
        return;
    }
    // What a member gets is plain: the same reader takes it, and it says nothing that only a connection or a client may.
    let again = head::read(&out).expect("it is not refused").expect("all of it is there");
    assert_eq!((again.length, again.framing, again.upgrade), (out.len(), strict.framing, false));
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS + 8];
    let mut sent = httparse::Request::new(&mut fields);
    assert!(sent.parse(&out).is_ok_and(|status| status.is_complete()));
    for (name, value) in [("host", HOST), ("x-forwarded-for", "127.0.0.1"), ("fleetgate-hops", "1")] {
        let all = sent.headers.iter().filter(|field| field.name == name).map(|field| field.value);
        assert!(all.eq([value.as_bytes()]), "{name}");
    }
    assert!(sent.headers.iter().all(|field| !headers::is_of_connection(field.name)));
    assert_eq!(sent.headers.iter().filter(|field| headers::is_forwarding(field.name)).count(), 4);
}

fn check_response(octets: &[u8]) {
    let mut out = Vec::new();
    let Ok(Some(mut head)) = response::read(octets, false, true, &mut out) else { return };
    assert!(head.length <= octets.len());
    if head.status < 200 {
        return assert!(out.is_empty());
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS + 8];
    let mut parsed = httparse::Response::new(&mut fields);
    assert!(parsed.parse(&out).is_ok_and(|status| status == httparse::Status::Complete(out.len())));
    assert_eq!(parsed.code, Some(head.status));
    let is_chunked = parsed.headers.iter().any(|field| field.name == "transfer-encoding");
    assert_eq!(is_chunked, matches!(head.body, Body::Chunked(_) | Body::UntilClose));

    // Octet by octet or at once, the client gets the same octets of the same body.
    let rest = &octets[head.length..];
    let mut slowly = head.body;
    let (mut at_once, mut one_by_one) = (Vec::new(), Vec::new());
    let whole = head.body.carry(rest, &mut at_once);
    let parts: Result<Vec<_>, _> = rest.chunks(1).map(|octet| slowly.carry(octet, &mut one_by_one)).collect();
    match (whole, parts) {
        (Ok((taken, carried)), Ok(parts)) => {
            assert_eq!(parts.iter().map(|(taken, _)| taken).sum::<usize>(), taken);
            assert_eq!(parts.iter().map(|(_, carried)| carried).sum::<usize>(), carried);
            assert_eq!(head.body, slowly);
        }
        (Err(_), Err(_)) => {}
        (whole, parts) => panic!("{whole:?} at once, {parts:?} one by one"),
    }
}
