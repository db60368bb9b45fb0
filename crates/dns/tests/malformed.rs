//! Packets that are no queries. Alone in its process, whose memory it watches.

// The lint knows test functions, but not what they call.
#![allow(clippy::unwrap_used)]

use dns::Settings;

mod records;
mod serving;

use serving::{Server, question};

#[test]
fn a_hundred_thousand_malformed_packets_leave_nothing_behind() {
    let server = Server::start("127.0.0.1:0", Settings::default());
    let client = server.client("127.0.0.1:0");
    let question = question(1);
    // A fixed start: what fails once fails again.
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 33).unwrap()
    };
    let resident = |when: &str| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        println!("{when}: {kilobytes} KiB resident");
        kilobytes
    };
    let mut send = |count: usize| {
        for _ in 0..count {
            let mut packet = question.clone();
            packet.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\x80\0\0\x04\0\x0a\0\x08");
            packet[11] = 1;
            for _ in 0..next() % 6 {
                let place = next() % packet.len();
                packet[place] = u8::try_from(next() % 256).unwrap();
            }
            packet.truncate(next() % (packet.len() + 1));
            client.send(&packet).unwrap();
        }
    };
    send(20_000);
    let before = resident("after 20,000");
    send(80_000);
    let after = resident("after 100,000");
    assert!(after < before + 4096, "{before} KiB became {after} KiB");
    server.must_answer(&server.client("127.0.0.1:0"));
    assert!(server.recent.queries().len() <= 3 * 1024);
}
