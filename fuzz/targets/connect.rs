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
    for field in &*request.headers {
        assert!(!field.name.eq_ignore_ascii_case("transfer-encoding"), "no body is announced");
        assert!(!field.name.eq_ignore_ascii_case("content-length") || field.value == b"0", "nor a length of one");
    }
});
