//! `resolver`: a question of a control plane's, and a server's answer to one; both are told on.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| resolver::read_any(input));
