//! Leadership against a real API server.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod hub;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use kubernetes::lease::{self, Election, NAME, Settings};
use serde_json::json;
use testbed::ApiServer;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use hub::{Line, eventually};

struct Contender {
    election: Election,
    stop: CancellationToken,
}

impl Contender {
    fn start(client: Client, name: &str) -> Self {
        let stop = CancellationToken::new();
        Self { election: lease::contend(client, Settings::new("default", name), stop.clone()), stop }
    }

    fn leads(&self) -> bool {
        let term = self.election.term.borrow();
        term.as_ref().is_some_and(|term| term.holds_for(Duration::ZERO))
    }

    fn epoch(&self) -> i32 {
        self.election.term.borrow().as_ref().unwrap().epoch
    }
}

/// Waits until one of them leads, and holds all to there never being two. Asks often: it costs nothing.
async fn leader(contenders: &[&Contender]) -> usize {
    let deadline = Instant::now() + hub::PATIENCE;
    loop {
        let leaders: Vec<_> = (0..contenders.len()).filter(|place| contenders[*place].leads()).collect();
        assert!(leaders.len() <= 1, "{leaders:?} lead at once");
        if let [leader] = leaders[..] {
            return leader;
        }
        assert!(Instant::now() < deadline, "nobody leads");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for the next time that somebody writes to the Lease.
async fn until_renewed(server: &ApiServer) {
    let leases: Api<Lease> = Api::namespaced(hub::client(server).await, "default");
    let version = async || leases.get(NAME).await.unwrap().metadata.resource_version;
    let before = version().await;
    eventually("a renewal", async || (version().await != before).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_follows_a_leader_that_vanishes_within_five_seconds() {
    let Some(server) = hub::start() else { return };
    let (first, second) = (hub::client(&server).await, hub::client(&server).await);
    let both = [Contender::start(first, "first"), Contender::start(second, "second")];
    let leading = leader(&[&both[0], &both[1]]).await;
    assert_eq!(both[leading].epoch(), 0);
    // For some renewals.
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        assert_eq!(leader(&[&both[0], &both[1]]).await, leading);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    both[leading].election.ended.abort();
    let gone = Instant::now();
    assert_eq!(leader(&[&both[1 - leading]]).await, 0);
    let taken = gone.elapsed();
    assert!(taken < Duration::from_secs(5), "{taken:?}");
    assert!(taken > Duration::from_millis(1500), "{taken:?}: the lease was not out yet");
    assert_eq!(both[1 - leading].epoch(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_given_back_once_nobody_writes_any_more() {
    let Some(server) = hub::start() else { return };
    let first = Contender::start(hub::client(&server).await, "first");
    leader(&[&first]).await;
    let second = Contender::start(hub::client(&server).await, "second");

    let writing = first.election.term.borrow().clone().unwrap();
    first.stop.cancel();
    writing.lost().cancelled().await;
    assert!(!writing.holds_for(Duration::ZERO));
    // Still busy with its last write, for longer than the second waits between two looks at a Lease that is free.
    let until = Instant::now() + Duration::from_millis(700);
    while Instant::now() < until {
        assert!(!second.leads());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    drop(writing);
    let stopped = Instant::now();
    assert_eq!(leader(&[&first, &second]).await, 1);
    assert!(stopped.elapsed() < Duration::from_millis(1500), "{:?}", stopped.elapsed());
    first.election.ended.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_its_hub_steps_down_before_another_leads() {
    let Some(server) = hub::start() else { return };
    let line = Line::to(server.address()).await;
    let cut_off = Contender::start(hub::client_at(&server, line.address).await, "cut-off");
    leader(&[&cut_off]).await;
    let other = Contender::start(hub::client(&server).await, "other");
    until_renewed(&server).await;

    let term = cut_off.election.term.borrow().clone().unwrap();
    line.cut();
    let cut = Instant::now();
    term.lost().cancelled().await;
    assert!(!other.leads(), "two at once");
    assert!(cut.elapsed() < Duration::from_millis(2600), "{:?}", cut.elapsed());
    drop(term);
    assert_eq!(leader(&[&cut_off, &other]).await, 1);
    assert!(cut.elapsed() < Duration::from_secs(5), "{:?}", cut.elapsed());

    // It comes back and finds another in its place.
    line.mend();
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert_eq!(leader(&[&cut_off, &other]).await, 1);
    }
}

/// Lines that are cut, or deliver late what was sent long ago, to three who all want to lead.
#[tokio::test(flavor = "multi_thread")]
async fn never_two_lead_whatever_becomes_of_their_lines() {
    let Some(server) = hub::start() else { return };
    let (mut lines, mut contenders) = (Vec::new(), Vec::new());
    for name in ["first", "second", "third"] {
        let line = Line::to(server.address()).await;
        contenders.push(Contender::start(hub::client_at(&server, line.address).await, name));
        lines.push(line);
    }
    let all: Vec<_> = contenders.iter().collect();
    let mut luck = fastrand::Rng::with_seed(7);
    let (until, mut next, mut led) = (Instant::now() + Duration::from_secs(40), Instant::now(), [0; 3]);
    let mut last = None;
    while Instant::now() < until {
        let leaders: Vec<_> = (0..all.len()).filter(|place| all[*place].leads()).collect();
        assert!(leaders.len() <= 1, "{leaders:?} lead at once");
        if let Some(leader) = leaders.first().filter(|leader| Some(**leader) != last) {
            led[*leader] += 1;
            last = Some(*leader);
        }
        if Instant::now() >= next {
            next = Instant::now() + Duration::from_millis(luck.u64(200..4000));
            // Whoever leads has the most to lose.
            let line = &lines[last.filter(|_| luck.bool()).unwrap_or_else(|| luck.usize(0..3))];
            [Line::cut, Line::hold, Line::mend, Line::mend][luck.usize(0..4)](line);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(led.iter().sum::<i32>() > 2, "hardly anybody led: {led:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_outlives_a_short_outage_and_strange_hands() {
    let Some(server) = hub::start() else { return };
    let line = Line::to(server.address()).await;
    let only = Contender::start(hub::client_at(&server, line.address).await, "only");
    leader(&[&only]).await;
    let term = only.election.term.borrow().clone().unwrap();
    for _ in 0..3 {
        line.cut();
        // So long is it away; a term outlives twice as much.
        tokio::time::sleep(Duration::from_millis(600)).await;
        line.mend();
        until_renewed(&server).await;
    }
    assert!(term.holds_for(Duration::ZERO));

    // A label makes the next renewal fail, as the version is another one.
    let leases: Api<Lease> = Api::namespaced(hub::client(&server).await, "default");
    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "edge"}}}));
    let version = leases.patch(NAME, &PatchParams::default(), &label).await.unwrap().metadata.resource_version;
    eventually("a renewal", async || {
        let lease = leases.get(NAME).await.unwrap();
        (lease.metadata.resource_version != version).then_some(())
    })
    .await;
    assert!(term.holds_for(Duration::ZERO));
    assert_eq!(leases.get(NAME).await.unwrap().metadata.labels.unwrap()["team"], "edge");

    // Deleted, it is lost; and nobody takes a new one before the old leader must have noticed.
    let other = Contender::start(hub::client(&server).await, "other");
    leases.delete(NAME, &DeleteParams::default()).await.unwrap();
    let deleted = Instant::now();
    term.lost().cancelled().await;
    assert!(deleted.elapsed() < Duration::from_millis(2600), "{:?}", deleted.elapsed());
    assert!(!other.leads());
    drop(term);
    leader(&[&only, &other]).await;
}
