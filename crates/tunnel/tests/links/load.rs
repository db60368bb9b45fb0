//! Many streams at once, some of which nobody reads.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tunnel::{Hub, Stream, Target};

use crate::both_ends::{Agent, Door, SOON, cluster, inside, source};

/// Of a machine that has much else to do.
const LATE: Duration = Duration::from_mins(2);

/// How many octets a second all of these together get.
async fn throughput(hub: &Hub, target: &Target, streams: usize, each: u64) -> f64 {
    let began = Instant::now();
    let all = (0..streams).map(|_| {
        let (hub, target) = (hub.clone(), target.clone());
        tokio::spawn(async move {
            let mut stream = hub.connect(&cluster("c1"), &target, LATE).await.unwrap();
            stream.write_u64(each).await.unwrap();
            tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap()
        })
    });
    for stream in all.collect::<Vec<_>>() {
        assert_eq!(timeout(LATE, stream).await.unwrap().unwrap(), each);
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let octets = each as f64 * streams as f64;
    octets / began.elapsed().as_secs_f64()
}

/// Streams that are sent much and read nothing.
async fn stalled(hub: &Hub, target: &Target, count: usize) -> Vec<Stream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = hub.connect(&cluster("c1"), target, LATE).await.unwrap();
        stream.write_u64(1 << 30).await.unwrap();
        streams.push(stream);
    }
    streams
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_nobody_reads_do_not_hold_up_the_others() {
    const EACH: u64 = 96 << 10;
    let door = Door::open().await;
    let _agent = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    let target = inside(source().await);
    let _warm = throughput(&door.hub, &target, 100, EACH).await;
    let alone = throughput(&door.hub, &target, 1000, EACH).await;
    let mut one = stalled(&door.hub, &target, 1).await;
    let beside_one = throughput(&door.hub, &target, 999, EACH).await;
    let many = stalled(&door.hub, &target, 100).await;
    let beside_many = throughput(&door.hub, &target, 900, EACH).await;
    let mb = |rate: f64| (rate / 1e6).round();
    println!(
        "1,000 streams: {} MB/s; beside one stalled {}, beside 101 {}",
        mb(alone),
        mb(beside_one),
        mb(beside_many)
    );
    assert!(beside_one > alone / 4.0 && beside_many > alone / 4.0, "{alone} {beside_one} {beside_many}");
    // Some of them lost their streams for it, with a reason, once more than the budget stood unread; the link did not.
    let ends = many.into_iter().map(|mut stream| async move {
        let read = timeout(SOON, tokio::io::copy(&mut (&mut stream).take(4 << 20), &mut tokio::io::sink())).await;
        read.unwrap().err().map(|error| error.to_string())
    });
    let mut reasons = Vec::new();
    for end in ends {
        reasons.extend(end.await);
    }
    assert!(reasons.iter().all(|reason| reason.contains("its receiver took nothing")), "{reasons:?}");
    assert_eq!(door.hub.links().len(), 1);
    // One that had been stalled may go on where it was not the one to lose.
    let mut octets = [0; 1024];
    let _ = timeout(SOON, one[0].read_exact(&mut octets)).await.unwrap();
}

/// A hundred streams that hold more than the budget between them: the largest are ended, and told why.
#[tokio::test(flavor = "multi_thread")]
async fn who_holds_much_and_takes_nothing_is_ended_with_a_reason() {
    let door = Door::open().await;
    let _agent = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    let target = inside(source().await);
    let streams = stalled(&door.hub, &target, 100).await;
    // Each may leave 1 MiB unread, and 64 MiB are what all of them may.
    let mut ended = 0;
    let began = Instant::now();
    for mut stream in streams {
        let read = timeout(SOON, async {
            // Not before the budget was looked at.
            tokio::time::sleep_until((began + Duration::from_secs(4)).into()).await;
            stream.read_u8().await
        });
        ended += usize::from(read.await.unwrap().is_err());
    }
    println!("{ended} of 100 streams were ended");
    assert!((20..100).contains(&ended), "{ended}");
    assert_eq!(door.hub.links().len(), 1);
}
