//! `tunnel::capsule` and `tunnel::Target`: datagrams in a stream however they are cut, and where somebody wants to go.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tunnel::Target;
use tunnel::capsule::{self, CapsuleError, Capsules};

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let whole = read(bytes, bytes.len());
    assert_eq!(read(bytes, usize::from(cut)), whole, "however it is cut");
    for datagram in &whole.0 {
        assert_eq!(read(&capsule::of(datagram), 7), (vec![datagram.clone()], None), "what is read is written so");
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(target) = text.parse::<Target>()
    {
        let shown = target.to_string();
        assert_eq!(shown.parse(), Ok(target), "{shown}");
        assert!(shown.len() <= 261 && !shown.contains(|c: char| c.is_whitespace() || c == '/' || c == '@'), "{shown}");
    }
});

fn read(bytes: &[u8], cut: usize) -> (Vec<Vec<u8>>, Option<CapsuleError>) {
    let mut capsules = Capsules::default();
    let mut found = Vec::new();
    for piece in bytes.chunks(cut.max(1)) {
        capsules.push(piece);
        loop {
            match capsules.take() {
                Ok(Some(datagram)) => found.push(datagram.to_vec()),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}
