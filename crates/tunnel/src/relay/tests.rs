use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::server::{Asked, Inside, serve};
use crate::{Greeting, Hello, Hub, Identity, Metrics, Refused, Role};

const PATIENCE: Duration = Duration::from_secs(10);

/// What is inside a cluster: whatever is asked for says which cluster it is in, and then echoes.
struct Place(&'static str);

impl Inside for Place {
    type Socket = DuplexStream;

    async fn dial(&self, _: &Asked) -> Result<DuplexStream, Refused> {
        let (ours, mut theirs) = duplex(1 << 16);
        let name = self.0;
        tokio::spawn(async move {
            theirs.write_all(name.as_bytes()).await?;
            let (mut from, mut to) = tokio::io::split(theirs);
            tokio::io::copy(&mut from, &mut to).await?;
            to.shutdown().await
        });
        Ok(ours)
    }

    async fn exchange(&self, _: &Asked, datagram: Bytes) -> Result<Bytes, Refused> {
        Ok([self.0.as_bytes(), &datagram].concat().into())
    }

    fn hello(&self, _: Hello) -> Greeting {
        Greeting { agent: "agent".into() }
    }
}

/// One process of a hub.
struct Process {
    hub: Hub,
    keys: Arc<Keys>,
    table: Table,
    tell: watch::Sender<Arc<HashSet<Fingerprint>>>,
    address: SocketAddr,
    stop: CancellationToken,
    ends: CancellationToken,
}

impl Process {
    async fn start(name: &str) -> Self {
        let hub = Hub::new(name, Metrics::default());
        let keys = Arc::new(Keys::new().unwrap());
        let (tell, known) = watch::channel(Arc::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, ends) = (CancellationToken::new(), CancellationToken::new());
        let door = Door::new(hub.clone(), &keys, known, Metrics::default()).unwrap();
        tokio::spawn(door.serve(listener, stop.clone(), ends.clone()));
        let table = Table::new(hub.clone(), Arc::clone(&keys), Metrics::default(), Handle::current());
        Self { hub, keys, table, tell, address, stop, ends }
    }

    /// A link of the cluster's agent; ends with the token.
    async fn link(&self, cluster: &'static str) -> CancellationToken {
        let (hubs, agents) = duplex(1 << 20);
        let ends = CancellationToken::new();
        let identity =
            Identity { role: Role::Agent, cluster: cluster.parse().unwrap(), uid: "u".into(), credential: "c".into() };
        tokio::spawn(async move {
            let metrics = Metrics::default();
            serve(agents, Arc::new(Place(cluster)), &metrics, std::future::pending(), std::future::pending()).await
        });
        let (hub, ended) = (self.hub.clone(), ends.clone());
        tokio::spawn(async move { hub.serve_link(hubs, identity, ended.cancelled()).await });
        let mut changed = self.hub.changed();
        let is_there = || self.hub.clusters().iter().any(|name| name.as_str() == cluster);
        while !is_there() {
            tokio::time::timeout(PATIENCE, changed.changed()).await.unwrap().unwrap();
        }
        ends
    }

    fn listed(&self) -> Listed {
        Listed { address: self.address, certificate: self.keys.fingerprint(), clusters: self.hub.clusters() }
    }

    fn told(&mut self, listed: &[Listed]) {
        self.tell.send_replace(Arc::new(listed.iter().map(|listed| listed.certificate).collect()));
        self.table.set(listed.to_vec());
    }

    async fn stream(&self, cluster: &str) -> Result<crate::Stream, Refused> {
        let target = "10.0.0.1:80".parse().unwrap();
        self.hub.connect(&cluster.parse().unwrap(), &target, Duration::from_secs(5)).await
    }

    /// What a stream to it leads to; what is sent comes back, and then the end.
    async fn reaches(&self, cluster: &str) -> Result<String, Refused> {
        let mut stream = self.stream(cluster).await?;
        stream.write_all(b"!").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut heard)).await.unwrap().unwrap();
        Ok(heard)
    }
}

fn tell_all(processes: &mut [&mut Process]) {
    let all: Vec<Listed> = processes.iter().map(|process| process.listed()).collect();
    for process in processes {
        process.told(&all);
    }
}

#[tokio::test]
async fn a_process_without_a_link_asks_one_that_has() {
    let (mut one, mut two, mut three) =
        (Process::start("1").await, Process::start("2").await, Process::start("3").await);
    let _a = one.link("a").await;
    let (b, _b) = (two.link("b").await, three.link("b").await);
    tell_all(&mut [&mut one, &mut two, &mut three]);
    for process in [&one, &two, &three] {
        for cluster in ["a", "b"] {
            assert_eq!(process.reaches(cluster).await.as_deref(), Ok(&*format!("{cluster}!")));
            let target = "10.0.0.1:53".parse().unwrap();
            let cluster: ClusterName = cluster.parse().unwrap();
            let answer = process.hub.exchange(&cluster, &target, Bytes::from_static(b"?"), PATIENCE).await;
            assert_eq!(answer.as_deref(), Ok(format!("{cluster}?").as_bytes()));
        }
        assert_eq!(process.reaches("c").await, Err(Refused::NoLink));
    }
    // The table is older than the loss of a link: another one is asked.
    b.cancel();
    for _ in 0..8 {
        assert_eq!(one.reaches("b").await.as_deref(), Ok("b!"));
    }
    // A target that nobody may reach is not asked for, nor are others asked after a no.
    let metadata = "169.254.169.254:80".parse().unwrap();
    let refused = two.hub.connect(&"a".parse().unwrap(), &metadata, PATIENCE).await.err();
    assert!(matches!(refused, Some(Refused::Forbidden(_))), "{refused:?}");
}

/// Who believes somebody else to have a link is told no, even where that one knows a third.
#[tokio::test]
async fn nothing_is_relayed_twice() {
    let (mut one, mut two, mut three) =
        (Process::start("1").await, Process::start("2").await, Process::start("3").await);
    let _a = one.link("a").await;
    tell_all(&mut [&mut one, &mut two, &mut three]);
    let wrong = [Listed { clusters: vec!["a".parse().unwrap()], ..two.listed() }, three.listed()];
    three.told(&wrong);
    assert_eq!(two.reaches("a").await.as_deref(), Ok("a!"));
    assert_eq!(three.reaches("a").await, Err(Refused::NoLink));
}

#[tokio::test]
async fn nobody_relays_who_is_not_in_the_table() {
    let (mut one, mut two, mut stranger) =
        (Process::start("1").await, Process::start("2").await, Process::start("3").await);
    let _a = one.link("a").await;
    tell_all(&mut [&mut one, &mut two]);
    stranger.told(&[one.listed()]);
    assert_eq!(stranger.reaches("a").await, Err(Refused::LinkLost), "the door does not know it");
    // At the other end: whoever answers has to be the one that was listed.
    two.told(&[Listed { certificate: stranger.keys.fingerprint(), ..one.listed() }]);
    assert_eq!(two.reaches("a").await, Err(Refused::LinkLost));
    tell_all(&mut [&mut one, &mut two]);
    let mut stream = two.stream("a").await.unwrap();

    // One that goes from the table begins nothing more, and what it has goes on.
    let only = [one.listed()];
    one.told(&only);
    let refused = loop {
        match two.reaches("a").await {
            Err(refused) => break refused,
            Ok(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(refused, Refused::LinkLost);
    stream.write_all(b"!").await.unwrap();
    let mut heard = [0; 2];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(&heard, b"a!");
    one.ends.cancel();
    assert!(stream.read(&mut heard).await.is_err(), "until the process ends");
    one.stop.cancel();
}

/// Without a header for it there is no cluster: a relay door has none by itself.
#[tokio::test]
async fn a_relay_is_told_for_whom_it_is() {
    let (one, mut two) = (Process::start("1").await, Process::start("2").await);
    let _a = one.link("a").await;
    one.tell.send_replace(Arc::new([two.keys.fingerprint()].into()));
    two.told(&[one.listed()]);
    let tls = tokio_rustls::TlsConnector::from(Arc::new(two.keys.client(one.keys.fingerprint()).unwrap()));
    let stream = tokio::net::TcpStream::connect(one.address).await.unwrap();
    let stream = tls.connect(tls::server_name().unwrap(), stream).await.unwrap();
    let (line, driver) = crate::Line::open(stream, &Metrics::default()).await.unwrap();
    tokio::spawn(driver.run(std::future::pending(), || 1));
    let target = "10.0.0.1:80".parse().unwrap();
    let refused = line.connect(None, &target, PATIENCE).await.err();
    assert!(matches!(refused, Some(Refused::Malformed(_))), "{refused:?}");
    assert!(line.connect(Some(&"a".parse().unwrap()), &target, PATIENCE).await.is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever tables come one after the other: relays are those of the last, without ourselves, and each knows the last
    /// list of its clusters.
    #[test]
    fn relays_are_those_of_the_last_table(tables in vec(vec((0_u16..5, 0_u8..3, 0_usize..4), 0..6), 1..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let keys = Arc::new(Keys::new().unwrap());
        let hub = Hub::new("own", Metrics::default());
        let mut table = Table::new(hub.clone(), Arc::clone(&keys), Metrics::default(), runtime.handle().clone());
        let cluster = |number: usize| format!("c{number}").parse::<ClusterName>().unwrap();
        for listed in tables {
            let listed: std::collections::BTreeMap<_, _> =
                listed.into_iter().map(|(port, certificate, clusters)| ((port, certificate), clusters)).collect();
            let all = listed.iter().map(|(&(port, certificate), &clusters)| Listed {
                address: SocketAddr::from(([192, 0, 2, 1], 1 + port)),
                certificate: if certificate == 0 { keys.fingerprint() } else { [certificate; 32] },
                clusters: (0..clusters).map(cluster).collect(),
            });
            table.set(all.collect());
            let others: Vec<usize> = listed.iter().filter(|((_, certificate), _)| *certificate != 0).map(|(_, clusters)| *clusters).collect();
            prop_assert_eq!(hub.relays(), others.len());
            for number in 0..4 {
                let having = others.iter().filter(|clusters| number < **clusters).count();
                prop_assert_eq!(hub.relays_to(&cluster(number)).len(), having);
            }
        }
    }
}
