//! What many streams leave behind. In a process of its own: descriptors and memory are the whole process'.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../links/both_ends.rs"]
mod both_ends;

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use both_ends::{Agent, Door, cluster, echo, eventually, inside};

/// Of a machine that has much else to do.
const LATE: Duration = Duration::from_mins(10);

async fn many_streams(count: usize) {
    const AT_ONCE: usize = 64;
    let door = Door::open().await;
    let _agent = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    let target = inside(echo().await);
    let some = async |count: usize| {
        let workers = (0..AT_ONCE).map(|worker| {
            let (hub, target) = (door.hub.clone(), target.clone());
            tokio::spawn(async move {
                for number in 0..count / AT_ONCE {
                    let mut stream = hub.connect(&cluster("c1"), &target, LATE).await.unwrap();
                    stream.write_all(b"x").await.unwrap();
                    let mut octet = [0];
                    stream.read_exact(&mut octet).await.unwrap();
                    // Some are ended in order, some are broken off.
                    if (number + worker) % 2 == 0 {
                        stream.shutdown().await.unwrap();
                        assert_eq!(stream.read(&mut octet).await.unwrap(), 0);
                    }
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            timeout(LATE, worker).await.unwrap().unwrap();
        }
    };
    let idle = async || {
        eventually(|| door.hub.links().iter().all(|link| link.streams == 0)).await;
    };
    some(AT_ONCE * 20).await;
    idle().await;
    let before = (descriptors(), resident());
    let began = Instant::now();
    some(count).await;
    let took = began.elapsed();
    idle().await;
    // What the targets have of them ends a moment later.
    eventually(|| descriptors() <= before.0 + 4).await;
    let after = (descriptors(), resident());
    println!(
        "{count} streams in {took:.1?}: descriptors {} before, {} after; resident {} KiB before, {} after",
        before.0, after.0, before.1, after.1
    );
    // 100,000 streams that left 100 octets each would be 10 MiB.
    assert!(after.1 < before.1 + (8 << 10), "{before:?} {after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_streams_leave_nothing() {
    many_streams(10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute without optimisation; make bench-tunnel runs it"]
async fn a_hundred_thousand_streams_leave_nothing() {
    many_streams(100_000).await;
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// In KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
