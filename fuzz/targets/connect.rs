//! `egress::parse_request`: whom a control plane asks for, beside another reader of heads.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(target) = egress::parse_request(bytes) else { return };
    // More fields than a head of 8 KiB is likely to have; the other reader has no room for all.
    let mut fields = [httparse::EMPTY_HEADER; 512];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(status) => assert_eq!(status, httparse::Status::Complete(bytes.len()), "to the same end"),
        Err(httparse::Error::TooManyHeaders) => return,
        Err(error) => panic!("{error}"),
    }
    assert_eq!(request.method, Some("CONNECT"));
    let shown = target.to_string();
    let path = request.path.expect("it has been read").to_ascii_lowercase();
    assert_eq!(path.parse(), Ok(target.clone()), "{path}");
    assert_eq!(shown.parse(), Ok(target), "{shown}");
    let is = |name: &str| request.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
    assert!(is("transfer-encoding").next().is_none() && is("content-length").all(|field| field.value == b"0"));
});
