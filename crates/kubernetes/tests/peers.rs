//! The stream between a hub's processes, against a real API server.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod hub;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use kubernetes::lease::{self, Election};
use kubernetes::peers::{
    Answer, AskError, Asks, Bearer, ClusterReports, Desk, DeskError, Door, Fingerprint, Hears, Identity, Link,
    Listener, Meeting, Metrics, No, Peer, Replica, Replicas, Role, Settings, Speaks,
};
use kubernetes::{client, peers};
use manifest::agents::Certificate;
use model::overflow::{Report, Sighting, Tables};
use model::{ClusterName, ObjectName, Timestamp};
use prometheus_client::registry::Registry;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use testbed::ApiServer;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use hub::{PATIENCE, eventually};

const NAMESPACE: &str = "fleetgate-system";
const ACCOUNTS: [&str; 3] = ["fleetgate-controller", "fleetgate-dns", "fleetgate-gateway"];

/// With accounts of ours, one that is not, and one of the right name in another namespace. Those may do what the chart lets them.
const HUB: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: fleetgate-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: elsewhere}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: fleetgate-controller, namespace: fleetgate-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: fleetgate-gateway, namespace: fleetgate-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: fleetgate-dns, namespace: fleetgate-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: fleetgate-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: fleetgate-gateway, namespace: elsewhere}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: controller}
rules:
- {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, watch, create, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: controller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: controller}
subjects: [{kind: ServiceAccount, name: fleetgate-controller, namespace: fleetgate-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gateway, namespace: fleetgate-system}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [fleetgate-controller], verbs: [get, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: gateway, namespace: fleetgate-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: gateway}
subjects:
- {kind: ServiceAccount, name: fleetgate-gateway, namespace: fleetgate-system}
- {kind: ServiceAccount, name: fleetgate-dns, namespace: fleetgate-system}
";

fn start() -> Option<ApiServer> {
    let server = hub::start()?;
    server.kubectl_apply(HUB).unwrap();
    Some(server)
}

fn token(server: &ApiServer, namespace: &str, account: &str) -> String {
    server.service_account_token(namespace, account, Duration::from_hours(1)).unwrap()
}

async fn connect(server: &ApiServer, account: &str) -> (Client, Option<Bearer>) {
    let path: PathBuf = server.work_dir().join(format!("{account}.kubeconfig"));
    let token = token(server, NAMESPACE, account);
    std::fs::write(&path, server.kubeconfig_with_token(&token)).unwrap();
    client::connect_with_token(Some(&path)).await.unwrap()
}

/// What a leader hears.
struct Heard {
    edges: Mutex<BTreeMap<ObjectName, usize>>,
    reports: Mutex<Vec<ClusterReports>>,
    tables: watch::Sender<Arc<Tables>>,
}

impl Hears for Heard {
    fn see(&self, edge: &ObjectName, _: Sighting) {
        *self.edges.lock().unwrap().entry(edge.clone()).or_default() += 1;
    }

    fn report(&self, reports: Vec<ClusterReports>) {
        self.reports.lock().unwrap().extend(reports);
    }

    fn tables(&self) -> watch::Receiver<Arc<Tables>> {
        self.tables.subscribe()
    }
}

impl Heard {
    fn count(&self, edge: &str) -> usize {
        self.edges.lock().unwrap().get(&edge.parse::<ObjectName>().unwrap()).copied().unwrap_or_default()
    }

    fn tell(&self) {
        let at = Timestamp::from_unix(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap());
        self.tables.send_replace(Arc::new(Tables { at, by_destination: HashMap::new() }));
    }
}

/// A leader's desk that signs anything but nothing, and knows one credential.
struct Table;

impl Desk for Table {
    fn sign<'a>(&'a self, csr: &'a str) -> Answer<'a, Certificate> {
        let signed = match csr {
            "wrong" => Err(DeskError::Wrong("no request".into())),
            "later" => Err(DeskError::Away("no authority".into())),
            csr => Ok(Certificate { certificate: format!("signed {csr}"), ca: "ca".into(), valid_from: 1, expires: 2 }),
        };
        Box::pin(std::future::ready(signed))
    }

    fn admitted<'a>(&'a self, identities: &'a [String]) -> Answer<'a, Vec<Option<No>>> {
        let no = || No { code: "Revoked".into(), reason: "it was revoked".into() };
        let answers = identities.iter().map(|identity| (identity != "good").then(no)).collect();
        Box::pin(std::future::ready(Ok(answers)))
    }

    fn service<'a>(
        &'a self,
        cluster: &'a ClusterName,
        namespace: &'a ObjectName,
        name: &'a ObjectName,
    ) -> Answer<'a, Option<bytes::Bytes>> {
        let found = (name.as_str() == "web").then(|| format!("{cluster} {namespace}").into());
        Box::pin(std::future::ready(Ok(found)))
    }
}

/// A controller that contends and, while it leads, hears.
struct Controller {
    address: SocketAddr,
    door: Door,
    heard: Arc<Heard>,
    registry: Registry,
    stop: CancellationToken,
    stop_door: CancellationToken,
    leading: tokio::task::JoinHandle<()>,
    election_ended: Option<tokio::task::JoinHandle<()>>,
}

impl Controller {
    async fn start(server: &ApiServer, name: &str) -> Self {
        let (client, _) = connect(server, "fleetgate-controller").await;
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address();
        let identity = Identity::new().unwrap();
        let meeting = Meeting { address, certificate: identity.fingerprint };
        let tables = watch::channel(Arc::default()).0;
        let heard = Arc::new(Heard { edges: Mutex::default(), reports: Mutex::default(), tables });
        let settings = Settings {
            namespace: NAMESPACE.into(),
            accounts: ACCOUNTS.map(Into::into).into(),
            link_accounts: vec!["fleetgate-gateway".into()],
        };
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let door =
            Door::new(settings, identity, client.clone(), (Arc::clone(&heard) as _, Some(Arc::new(Table))), metrics);
        let (stop, stop_door) = (CancellationToken::new(), CancellationToken::new());
        tokio::spawn(door.clone().serve(listener, stop_door.clone()));
        let lease = lease::Settings { meeting: Some(meeting), ..lease::Settings::new(NAMESPACE, name) };
        let Election { mut term, ended } = lease::contend(client, lease, stop.clone());
        let leads = door.clone();
        let leading = tokio::spawn(async move {
            loop {
                let held = term.borrow_and_update().clone();
                match held {
                    Some(held) => leads.lead(held).await,
                    None => {
                        if term.changed().await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Self { address, door, heard, registry, stop, stop_door, leading, election_ended: Some(ended) }
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// As a process that ends does.
    async fn stop(&mut self) {
        self.stop.cancel();
        self.election_ended.take().unwrap().await.unwrap();
    }

    /// As one that vanishes.
    async fn vanish(&mut self) {
        self.leading.abort();
        let _ = (&mut self.leading).await;
        self.election_ended.take().unwrap().abort();
        self.stop_door.cancel();
    }
}

/// What a gateway has to say, and what it was told.
#[derive(Default)]
struct Voice {
    reports: Mutex<Vec<ClusterReports>>,
    told: Mutex<usize>,
    carries: Mutex<Option<Replica>>,
    replicas: Mutex<Option<Replicas>>,
}

impl Speaks for Voice {
    fn sighting(&self) -> Option<Sighting> {
        Some(Sighting::default())
    }

    fn reports(&self) -> Vec<ClusterReports> {
        std::mem::take(&mut self.reports.lock().unwrap())
    }

    fn take(&self, _: Tables) {
        *self.told.lock().unwrap() += 1;
    }

    fn replica(&self) -> Option<Replica> {
        self.carries.lock().unwrap().clone()
    }

    fn take_replicas(&self, replicas: Replicas) {
        *self.replicas.lock().unwrap() = Some(replicas);
    }
}

/// A process that follows the Lease, as this account.
struct Process {
    voice: Arc<Voice>,
    registry: Registry,
    stop: CancellationToken,
}

impl Process {
    async fn start(server: &ApiServer, account: &str, name: &str, role: Role) -> Self {
        let (client, bearer) = connect(server, account).await;
        let (tell, meeting) = watch::channel(None);
        let stop = CancellationToken::new();
        let following = stop.clone();
        tokio::spawn(async move {
            following.run_until_cancelled(peers::follow(client, NAMESPACE, tell)).await;
        });
        Self::speak(bearer, meeting, name, role, stop)
    }

    fn speak(
        bearer: Option<Bearer>,
        meeting: watch::Receiver<Option<Meeting>>,
        name: &str,
        role: Role,
        stop: CancellationToken,
    ) -> Self {
        let voice = Arc::new(Voice::default());
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let me = Peer { name: name.parse().unwrap(), role };
        let link = Link { meeting, own: None, me, bearer, speaks: Arc::clone(&voice) as _, metrics };
        tokio::spawn(link.run(stop.clone()));
        Self { voice, registry, stop }
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_heard_and_told_and_finds_the_next_leader_at_once() {
    let Some(server) = start() else { return };
    let mut first = Controller::start(&server, "first").await;
    let gateway = Process::start(&server, "fleetgate-gateway", "gw-0", Role::Gateway).await;
    eventually("the gateway is heard", async || (first.heard.count("gw-0") > 1).then_some(())).await;
    let told = *gateway.voice.told.lock().unwrap();
    first.heard.tell();
    eventually("it is told", async || (*gateway.voice.told.lock().unwrap() > told).then_some(())).await;
    assert!(gateway.metrics().contains("fleetgate_peers_linked 1"), "{}", gateway.metrics());
    assert!(gateway.metrics().contains("fleetgate_peers_tables_age_seconds"), "{}", gateway.metrics());
    assert!(first.metrics().contains("fleetgate_peers_connected{role=\"gateway\"} 1"), "{}", first.metrics());

    // A controller that follows hears nobody.
    let mut second = Controller::start(&server, "second").await;
    let status = Raw::open(second.address, &token(&server, NAMESPACE, "fleetgate-gateway"), "x").await.status;
    assert_eq!(status, (503, "NotLeading".to_owned()));

    first.stop().await;
    assert!(first.door.peers().is_empty(), "streams have ended before the Lease is free");
    let free = Instant::now();
    eventually("the next leader hears it", async || (second.heard.count("gw-0") > 0).then_some(())).await;
    let moved = free.elapsed();
    assert!(moved < Duration::from_secs(5), "{moved:?}");
    println!("moved to the next leader within {moved:?}");

    let mut third = Controller::start(&server, "third").await;
    second.vanish().await;
    let gone = Instant::now();
    eventually("one that follows a leader that vanished hears it", async || {
        (third.heard.count("gw-0") > 0).then_some(())
    })
    .await;
    println!("found the leader after one that vanished within {:?}", gone.elapsed());
    let lease =
        server.kubectl(&["get", "lease", "-n", NAMESPACE, lease::NAME, "-o", "jsonpath={.metadata.annotations}"]);
    assert!(lease.unwrap().contains(&third.address.to_string()));
    third.stop().await;
    let lease =
        server.kubectl(&["get", "lease", "-n", NAMESPACE, lease::NAME, "-o", "jsonpath={.metadata.annotations}"]);
    assert!(!lease.unwrap().contains("fleetgate.dev/peers"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_accounts_of_ours_are_heard_and_only_controllers_report() {
    let Some(server) = start() else { return };
    let leader = Controller::start(&server, "leader").await;
    let good = token(&server, NAMESPACE, "fleetgate-gateway");
    eventually("it leads", async || (Raw::open(leader.address, &good, "gw-0").await.status.0 == 200).then_some(()))
        .await;
    for (token, expected) in [
        (token(&server, NAMESPACE, "stranger"), (403, "NotAllowed")),
        (token(&server, "elsewhere", "fleetgate-gateway"), (403, "NotAllowed")),
        ("not-a-token".to_owned(), (401, "BadToken")),
        (String::new(), (401, "NoToken")),
        (server.expiring_token(NAMESPACE, "fleetgate-gateway", Duration::ZERO).unwrap(), (401, "BadToken")),
    ] {
        let (status, code) = Raw::open(leader.address, &token, "gw-1").await.status;
        assert_eq!((status, &*code), expected);
        assert!(leader.metrics().contains(&format!("code=\"{code}\"")), "{code}: {}", leader.metrics());
    }
    let (status, code) = Raw::open(leader.address, &good, "Not_a_name").await.status;
    assert_eq!((status, &*code), (400, "Unnamed"));

    let reports = vec![ClusterReports {
        cluster: "c1".parse().unwrap(),
        uid: "u".into(),
        services: vec![("shop".parse().unwrap(), "web".parse().unwrap(), Report::check(12.5, 0.5, 3).unwrap())],
    }];
    let follower = Process::start(&server, "fleetgate-controller", "c-1", Role::Controller).await;
    *follower.voice.reports.lock().unwrap() = reports.clone();
    eventually("reports are passed on", async || (*leader.heard.reports.lock().unwrap() == reports).then_some(()))
        .await;
    // Whatever it calls itself, it is not the account that has the agents' door.
    let mut liar = Raw::open(leader.address, &good, "c-2").await;
    liar.line(r#"{"reports":[{"cluster":"c1","uid":"u","services":[["shop","web",1,0.5,3]]}]}"#).await;
    assert_eq!(liar.no().await, "NotAllowed");
    assert_eq!(leader.heard.reports.lock().unwrap().len(), 1);

    // Wrong tokens are told from one that guesses.
    let mut last = String::new();
    for _ in 0..20 {
        last = Raw::open(leader.address, "a-guess", "gw-1").await.status.1;
    }
    assert_eq!(last, "TooManyTries");
    assert_eq!(Raw::open(leader.address, &good, "gw-0").await.status.0, 200, "known ones are still heard");
}

fn carries(number: u8, clusters: &[&str]) -> Replica {
    Replica {
        address: Some(SocketAddr::from(([192, 0, 2, number], 9636))),
        certificate: Fingerprint::of(&[number]),
        takes_links: true,
        clusters: clusters.iter().map(|name| name.parse().unwrap()).collect(),
    }
}

/// Who is in the table that a process has, and what they carry.
fn told(process: &Process) -> Vec<(String, Vec<String>)> {
    let told = process.voice.replicas.lock().unwrap();
    let of = |(peer, replica): &(Peer, Arc<Replica>)| {
        (peer.name.to_string(), replica.clusters.iter().map(ToString::to_string).collect())
    };
    told.iter().flat_map(|told| told.0.iter().map(of)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_is_told_who_carries_what_and_a_new_leader_is_quiet_first() {
    let Some(server) = start() else { return };
    let mut first = Controller::start(&server, "first").await;
    let one = Process::start(&server, "fleetgate-gateway", "gw-1", Role::Gateway).await;
    let two = Process::start(&server, "fleetgate-gateway", "gw-2", Role::Gateway).await;
    let dns = Process::start(&server, "fleetgate-dns", "dns", Role::Dns).await;
    *one.voice.carries.lock().unwrap() = Some(carries(1, &["a", "b"]));
    *two.voice.carries.lock().unwrap() = Some(carries(2, &[]));
    let asks = Replica { address: None, takes_links: false, ..carries(3, &[]) };
    *dns.voice.carries.lock().unwrap() = Some(asks.clone());
    let own = Peer { name: "first".parse().unwrap(), role: Role::All };
    eventually("the first leads", async || (first.door.peers().len() == 3).then_some(())).await;
    first.door.carry(&own, Some(carries(4, &["c"])));
    let named = |list: &[(&str, &[&str])]| -> Vec<(String, Vec<String>)> {
        list.iter()
            .map(|(name, clusters)| ((*name).into(), clusters.iter().map(|&name| name.into()).collect()))
            .collect()
    };
    let all = named(&[("dns", &[]), ("first", &["c"]), ("gw-1", &["a", "b"]), ("gw-2", &[])]);
    for process in [&one, &two, &dns] {
        eventually("it is told", async || (told(process) == all).then_some(())).await;
    }
    let replicas = first.door.replicas().borrow().clone().unwrap();
    assert_eq!((replicas.taking_links(), &*replicas.0[0].1), (3, &asks));

    *two.voice.carries.lock().unwrap() = Some(carries(2, &["b"]));
    let changed = named(&[("dns", &[]), ("first", &["c"]), ("gw-1", &["a", "b"]), ("gw-2", &["b"])]);
    let since = Instant::now();
    eventually("the others hear of a link", async || (told(&one) == changed).then_some(())).await;
    println!("a new link was told to others within {:?}", since.elapsed());
    // A dns process has no links, whatever it says.
    let mut liar = Raw::open(first.address, &token(&server, NAMESPACE, "fleetgate-dns"), "liar").await;
    let certificate = Fingerprint::of(b"liar");
    liar.line(&format!(r#"{{"replica":{{"certificate":"{certificate}","links":false,"clusters":["a"]}}}}"#)).await;
    assert_eq!(liar.no().await, "NoLinks");
    drop(two);
    eventually("one that is gone is told of no more", async || {
        (told(&one) == named(&[("dns", &[]), ("first", &["c"]), ("gw-1", &["a", "b"])])).then_some(())
    })
    .await;

    // What the next one says first is what all have said to it.
    let second = Controller::start(&server, "second").await;
    first.stop().await;
    assert!(first.door.replicas().borrow().is_none());
    let known = told(&dns);
    eventually("the next leader tells", async || {
        let now = told(&dns);
        assert!(now == known || now == named(&[("dns", &[]), ("gw-1", &["a", "b"])]), "{now:?}");
        (now != known).then_some(())
    })
    .await;
    drop(second);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_answers_what_gateways_ask() {
    let Some(server) = start() else { return };
    let leader = Controller::start(&server, "leader").await;
    let meeting = Meeting { address: leader.address, certificate: leader.door.fingerprint() };
    let (_tell, meeting) = watch::channel(Some(meeting));
    let asks = async |account: &str| {
        let bearer = connect(&server, account).await.1;
        Asks { meeting: meeting.clone(), own: None, bearer }
    };
    let gateway = asks("fleetgate-gateway").await;
    let signed = eventually("it leads", async || gateway.sign("request".into()).await.ok()).await;
    assert_eq!((&*signed.certificate, &*signed.ca, signed.expires), ("signed request", "ca", 2));
    let code = |error: AskError| match error {
        AskError::Refused { code, .. } => code,
        AskError::Away(why) => format!("away: {why}"),
    };
    assert_eq!(gateway.sign("wrong".into()).await.map_err(code).unwrap_err(), "Malformed");
    assert_eq!(gateway.sign("x".repeat(9 << 10)).await.map_err(code).unwrap_err(), "TooLarge");
    assert!(gateway.sign("later".into()).await.map_err(code).unwrap_err().starts_with("away:"));
    let answers = gateway.admitted(vec!["good".into(), "bad".into()]).await.unwrap();
    assert_eq!((&answers[0], answers[1].as_ref().map(|no| &*no.code)), (&None, Some("Revoked")));
    let names = |name: &str| ("c1".parse().unwrap(), "shop".parse().unwrap(), name.parse().unwrap());
    let (cluster, namespace, web) = names("web");
    let found = gateway.service(&cluster, &namespace, &web).await.unwrap();
    assert_eq!(found.as_deref(), Some(&b"c1 shop"[..]));
    assert_eq!(gateway.service(&cluster, &namespace, &names("none").2).await.unwrap(), None);

    let dns = asks("fleetgate-dns").await;
    assert_eq!(dns.sign("request".into()).await.map_err(code).unwrap_err(), "NoLinks");
    assert_eq!(dns.admitted(vec!["good".into()]).await.map_err(code).unwrap_err(), "NoLinks");
    assert!(dns.service(&cluster, &namespace, &web).await.unwrap().is_some());
    let stranger = asks("stranger").await;
    assert_eq!(stranger.service(&cluster, &namespace, &web).await.map_err(code).unwrap_err(), "NotAllowed");
    let (_tell, nowhere) = watch::channel(None);
    let away = Asks { meeting: nowhere, ..gateway };
    assert!(matches!(away.sign("request".into()).await, Err(AskError::Away(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_than_the_lease_names_is_told_a_token() {
    let Some(server) = start() else { return };
    let leader = Controller::start(&server, "leader").await;
    let (_, bearer) = connect(&server, "fleetgate-gateway").await;
    let stop = CancellationToken::new();
    let certificate = Identity::new().unwrap().fingerprint;
    let (_tell, wrong) = watch::channel(Some(Meeting { address: leader.address, certificate }));
    let gateway = Process::speak(bearer.clone(), wrong, "gw-0", Role::Gateway, stop.clone());
    eventually("it is noticed", async || gateway.metrics().contains("code=\"Stranger\"").then_some(())).await;
    assert_eq!(leader.heard.count("gw-0"), 0);

    let right = Meeting { address: leader.address, certificate: leader.door.fingerprint() };
    let (_tell, right) = watch::channel(Some(right));
    let _gateway = Process::speak(bearer, right, "gw-0", Role::Gateway, stop.clone());
    eventually("the right one is spoken to", async || (leader.heard.count("gw-0") > 0).then_some(())).await;

    // Known by a certificate, nobody has a token to show.
    let (_tell, right) = watch::channel(Some(Meeting { address: leader.address, certificate }));
    let none = Process::speak(None, right, "gw-1", Role::Gateway, stop);
    eventually("that is noticed", async || none.metrics().contains("code=\"NoToken\"").then_some(())).await;
    assert!(none.metrics().contains("fleetgate_peers_linked 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_silent_or_says_too_much_is_not_heard_any_more() {
    let Some(server) = start() else { return };
    let leader = Controller::start(&server, "leader").await;
    let token = token(&server, NAMESPACE, "fleetgate-gateway");
    eventually("it leads", async || (Raw::open(leader.address, &token, "gw-0").await.status.0 == 200).then_some(()))
        .await;

    let mut silent = Raw::open(leader.address, &token, "silent").await;
    let since = Instant::now();

    let mut long = Raw::open(leader.address, &token, "long").await;
    let piece = "x".repeat(1 << 20);
    for _ in 0..9 {
        // It may have been cut off already.
        if !long.piece(&piece).await {
            break;
        }
    }
    assert_eq!(long.no().await, "TooLarge");

    for (line, code) in [("{]", "Malformed"), (r#"{"tables":{}}"#, "Malformed")] {
        let mut wrong = Raw::open(leader.address, &token, "wrong").await;
        wrong.line(line).await;
        assert_eq!(wrong.no().await, code);
    }

    let mut fast = Raw::open(leader.address, &token, "fast").await;
    for _ in 0..200 {
        if !fast.piece("{}\n").await {
            break;
        }
    }
    assert_eq!(fast.no().await, "TooFast");

    let mut before = Raw::open(leader.address, &token, "same").await;
    let after = Raw::open(leader.address, &token, "same").await;
    assert_eq!((before.no().await, after.status.0), ("Replaced".to_owned(), 200));

    assert_eq!(silent.no().await, "Silent");
    let waited = since.elapsed();
    assert!((Duration::from_secs(14)..Duration::from_secs(30)).contains(&waited), "{waited:?}");
    drop(after);
    eventually("their places are free", async || leader.door.peers().is_empty().then_some(())).await;
    assert!(leader.metrics().contains("fleetgate_peers_connected{role=\"gateway\"} 0"), "{}", leader.metrics());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_and_fifty_six_are_heard_and_the_next_is_told_so() {
    let Some(server) = start() else { return };
    let leader = Controller::start(&server, "leader").await;
    let token = token(&server, NAMESPACE, "fleetgate-gateway");
    eventually("it leads", async || (Raw::open(leader.address, &token, "gw-0").await.status.0 == 200).then_some(()))
        .await;
    eventually("its place is free", async || leader.door.peers().is_empty().then_some(())).await;
    let mut heard = Vec::new();
    let speaking = CancellationToken::new();
    for number in 0..256 {
        let mut peer = Raw::open(leader.address, &token, &format!("gw-{number}")).await;
        assert_eq!(peer.status.0, 200, "{number}");
        let speaking = speaking.clone();
        heard.push(tokio::spawn(async move {
            while !speaking.is_cancelled() {
                peer.piece("{}\n").await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }));
    }
    let (status, code) = Raw::open(leader.address, &token, "gw-256").await.status;
    assert_eq!((status, &*code), (503, "TooManyPeers"));
    assert_eq!(leader.door.peers().len(), 256);
    speaking.cancel();
    for peer in heard {
        peer.await.unwrap();
    }
    eventually("there is a place again", async || {
        (Raw::open(leader.address, &token, "gw-256").await.status.0 == 200).then_some(())
    })
    .await;
}

/// A stream by hand.
struct Raw {
    stream: BufReader<TlsStream<TcpStream>>,
    /// And the code of the no, if it is one.
    status: (u16, String),
}

impl Raw {
    async fn open(address: SocketAddr, token: &str, name: &str) -> Self {
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let config = config.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Anybody)).with_no_client_auth();
        let stream = TcpStream::connect(address).await.unwrap();
        let name_of = ServerName::try_from("anybody").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name_of, stream).await.unwrap();
        let mut stream = BufReader::new(stream);
        let authorization = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let head = format!(
            "POST /v1/peers HTTP/1.1\r\nHost: leader\r\nfleetgate-edge: {name}\r\nfleetgate-role: gateway\r\n{authorization}\
             Transfer-Encoding: chunked\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut line = String::new();
        timeout(PATIENCE, stream.read_line(&mut line)).await.unwrap().unwrap();
        let status: u16 = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut raw = Self { stream, status: (status, String::new()) };
        if status != 200 {
            raw.status.1 = raw.no().await;
        }
        raw
    }

    async fn line(&mut self, line: &str) {
        assert!(self.piece(&format!("{line}\n")).await);
    }

    /// Whether it went out.
    async fn piece(&mut self, piece: &str) -> bool {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        self.stream.write_all(chunk.as_bytes()).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// The code of the no that comes, whatever comes before it.
    async fn no(&mut self) -> String {
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        let read = async {
            while let Ok(count @ 1..) = self.stream.read(&mut piece).await {
                text.extend_from_slice(&piece[..count]);
            }
        };
        timeout(PATIENCE, read).await.expect("the stream ends");
        let text = String::from_utf8_lossy(&text).into_owned();
        let code = text.split("\"no\":{\"code\":\"").nth(1).unwrap_or_else(|| panic!("no no in {text:?}"));
        code.split('"').next().unwrap().to_owned()
    }
}

/// Takes anybody for anybody.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
