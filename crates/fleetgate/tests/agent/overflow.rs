//! Overflow on real processes: a gateway, three member clusters with an API server and an agent each, and pods that serve so many requests a
//! second and no more. What does not fit at home leaves, as planned; it comes back; and where nothing fits anywhere it is refused.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use testbed::{ApiServer, Kubernetes};

use crate::fixture::{Agent, Hub, PATIENCE, eventually};
use crate::load::own_address;

const HOST: &str = "www.c1.fleet.example";
/// Of each cluster.
const PODS: usize = 10;
/// Requests a second of one pod.
const RATE: u32 = 5;
/// What a cluster is filled to, by the default of 0.8.
const WANTED: f64 = 40.0;
/// How long a request waits for a pod before it is told that there is none.
const QUEUE: Duration = Duration::from_secs(2);

/// Where a cluster and its clients are, the clients by their addresses.
struct Place {
    cluster: &'static str,
    latitude: f64,
    longitude: f64,
    clients: &'static str,
}

/// Paris is next to Berlin, and Tokyo is not.
const PLACES: [Place; 3] = [
    Place { cluster: "c1", latitude: 52.5, longitude: 13.4, clients: "127.0.1.1" },
    Place { cluster: "c2", latitude: 48.8, longitude: 2.3, clients: "127.0.2.1" },
    Place { cluster: "c3", latitude: 35.7, longitude: 139.7, clients: "127.0.3.1" },
];

/// One request after the other, each a fifth of a second; that, and how many there were, stands on its page.
struct Pod {
    page: SocketAddr,
    served: Arc<AtomicU64>,
    /// When it has done all that it was given.
    free: Mutex<Instant>,
}

impl Pod {
    fn start(address: IpAddr) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let page = listener.local_addr().unwrap();
        let served = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&served);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || {
                    each_request(stream.unwrap(), |_| {
                        let served = counter.load(Ordering::SeqCst);
                        // Hundredths of a second, without rounding: it has one core, and is busy with one request at a time.
                        let busy = served * 100 / u64::from(RATE);
                        let page = format!(
                            "http_requests_total {served}\nprocess_cpu_seconds_total {}.{:02}\n",
                            busy / 100,
                            busy % 100
                        );
                        Some(("200 OK", page))
                    });
                });
            }
        });
        Self { page, served, free: Mutex::new(Instant::now()) }
    }

    /// Whether it served a request, and not before that was done.
    fn serve(&self) -> bool {
        let done = {
            let mut free = self.free.lock().unwrap();
            let (now, begin) = (Instant::now(), (*free).max(Instant::now()));
            if begin.saturating_duration_since(now) > QUEUE {
                return false;
            }
            *free = begin + Duration::from_secs(1) / RATE;
            *free
        };
        std::thread::sleep(done.saturating_duration_since(Instant::now()));
        self.served.fetch_add(1, Ordering::SeqCst);
        true
    }
}

/// A cluster: its API server, its pods, and an ingress controller in front of them that gives each its turn.
struct Member {
    api_server: ApiServer,
    ingress: SocketAddr,
}

impl Member {
    fn start(kubernetes: &Kubernetes, name: &'static str, address: IpAddr) -> Self {
        let pods: Vec<Arc<Pod>> = (0..PODS).map(|_| Arc::new(Pod::start(address))).collect();
        let api_server = ApiServer::start(kubernetes).unwrap();
        api_server.kubectl(&["create", "namespace", "acme"]).unwrap();
        api_server.kubectl_apply(&service(&pods)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ingress = listener.local_addr().unwrap();
        let turn = Arc::new(AtomicU64::new(0));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (pods, turn) = (pods.clone(), Arc::clone(&turn));
                std::thread::spawn(move || {
                    each_request(stream.unwrap(), |path| {
                        if path == "/healthz" {
                            return Some(("200 OK", String::new()));
                        }
                        let turn = usize::try_from(turn.fetch_add(1, Ordering::SeqCst)).unwrap();
                        let status = if pods[turn % PODS].serve() { "200 OK" } else { "503 No Pod" };
                        Some((status, name.to_owned()))
                    });
                });
            }
        });
        Self { api_server, ingress }
    }
}

/// Answers what comes on a connection, one after the other.
fn each_request(mut stream: TcpStream, answer: impl Fn(&str) -> Option<(&'static str, String)>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while let Some(Ok(first)) = lines.next() {
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let path = first.split(' ').nth(1).unwrap_or_default();
        let Some((status, body)) = answer(path) else { return };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
    }
}

/// The Service `web`, with a slice for each pod: they share an address, and not a port.
fn service(pods: &[Arc<Pod>]) -> String {
    let mut text =
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: acme}\nspec: {ports: [{port: 80}]}\n"
            .to_owned();
    for (number, pod) in pods.iter().enumerate() {
        write!(
            text,
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: web-{number}, namespace: acme, labels: {{kubernetes.io/service-name: web}}}}\n\
             addressType: IPv4\nports: [{{name: http, port: {}}}]\n\
             endpoints: [{{addresses: [\"{}\"], conditions: {{ready: true}}}}]\n",
            pod.page.port(),
            pod.page.ip(),
        )
        .unwrap();
    }
    text
}

fn fleet(members: &[Member]) -> String {
    let mut text = format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {{name: main}}
spec:
  domain: fleet.example
  nameservers: [{{name: ns1.fleet.example, addresses: [127.0.0.1]}}]
  gateway: {{addresses: [192.0.2.10]}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {{name: acme}}
spec: {{}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {{name: overflowing}}
spec:
  upstreamTLS: {{plainText: true}}
  overflow: {{maxRatePerPod: {RATE}}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {{name: overflowing}}
spec:
  controller: fleetgate.dev/ingress
  parameters: {{apiGroup: fleetgate.dev, kind: FederationPolicy, name: overflowing}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: web, namespace: acme}}
spec:
  ingressClassName: overflowing
  rules:
  - host: {HOST}
    http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}
"
    );
    for (member, Place { cluster, latitude, longitude, .. }) in members.iter().zip(PLACES) {
        write!(
            text,
            "\
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {cluster}}}
spec:
  tenant: acme
  zone: main
  location: {{latitude: {latitude}, longitude: {longitude}}}
  controlPlane: {{kubeApiserver: {{addresses: [\"127.0.0.1:9\"]}}}}
  ingress: {{http: [\"{}\"]}}
",
            member.ingress
        )
        .unwrap();
    }
    text
}

/// What became of a request.
#[derive(Debug, Clone)]
struct Answer {
    after: Duration,
    home: &'static str,
    status: u16,
    /// Which cluster it was.
    by: String,
    retry_after: Option<u32>,
}

/// Clients of all places: as many requests a second as they are told, evenly, whether or not the ones before were answered.
struct Clients {
    begun: Instant,
    rates: Arc<[AtomicU64; 3]>,
    stop: Arc<AtomicBool>,
    answers: Arc<Mutex<Vec<Answer>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Clients {
    /// Enough for all that may be under way at once.
    const EACH: usize = 100;

    fn start(gateway: SocketAddr) -> Self {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let rates: Arc<[AtomicU64; 3]> = Arc::default();
        let begun = Instant::now();
        let mut threads = Vec::new();
        for (number, place) in PLACES.iter().enumerate() {
            let (send, due) = channel();
            let due = Arc::new(Mutex::new(due));
            for _ in 0..Self::EACH {
                let (due, answers) = (Arc::clone(&due), Arc::clone(&answers));
                let (home, address) = (place.cluster, place.clients.parse().unwrap());
                threads.push(std::thread::spawn(move || {
                    let mut connection = None;
                    let next = || due.lock().unwrap().recv();
                    while next().is_ok() {
                        let after = begun.elapsed();
                        let (status, by, retry_after) = ask(&mut connection, address, gateway);
                        answers.lock().unwrap().push(Answer { after, home, status, by, retry_after });
                    }
                }));
            }
            let (stop, rates) = (Arc::clone(&stop), Arc::clone(&rates));
            threads.push(std::thread::spawn(move || {
                let (mut last, mut owed) = (Instant::now(), 0.0);
                while !stop.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                    let rate = f64::from(u32::try_from(rates[number].load(Ordering::SeqCst)).unwrap());
                    owed += rate * std::mem::replace(&mut last, Instant::now()).elapsed().as_secs_f64();
                    while owed >= 1.0 {
                        owed -= 1.0;
                        send.send(()).unwrap();
                    }
                }
            }));
        }
        Self { begun, rates, stop, answers, threads }
    }

    /// Requests a second from now on, by place.
    fn come(&self, rates: [u64; 3]) {
        for (rate, now) in self.rates.iter().zip(rates) {
            rate.store(now, Ordering::SeqCst);
        }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Lets time pass, and tells what was asked for in it; those that came last have a while to be answered.
    fn after(&self, from: Duration, until: Duration) -> Vec<Answer> {
        std::thread::sleep((until + Duration::from_secs(2)).saturating_sub(self.now()));
        let answers = self.answers.lock().unwrap();
        answers.iter().filter(|answer| (from..until).contains(&answer.after)).cloned().collect()
    }

    fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

fn ask(connection: &mut Option<TcpStream>, from: IpAddr, gateway: SocketAddr) -> (u16, String, Option<u32>) {
    let stream = connection.get_or_insert_with(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
        socket.connect(&gateway.into()).unwrap();
        socket.set_tcp_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.into()
    });
    write!(stream, "GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n").unwrap();
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "closed: {}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&received);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        if body.len() == field("content-length").unwrap().parse::<usize>().unwrap() {
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            return (status, body.to_owned(), field("retry-after").map(|seconds| seconds.parse().unwrap()));
        }
    }
}

/// Of these, the part that was not answered at home, in percent.
fn remote<'a>(answers: impl Iterator<Item = &'a Answer> + Clone) -> f64 {
    let away = answers.clone().filter(|answer| answer.by != answer.home).count();
    percent(away, answers.count())
}

fn percent(part: usize, of: usize) -> f64 {
    100.0 * f64::from(u32::try_from(part).unwrap()) / f64::from(u32::try_from(of).unwrap())
}

fn failed(answers: &[Answer]) -> HashMap<(u16, &str), usize> {
    let mut failed = HashMap::new();
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        *failed.entry((answer.status, answer.by.as_str())).or_default() += 1;
    }
    failed
}

/// What is planned for the clients of c1: the share of each cluster in percent, and the basis of each.
fn planned(hub: &Hub) -> Option<([f64; 3], Vec<String>)> {
    let all: Value = serde_json::from_str(&hub.get("/v1/overflow?namespace=acme&ingress=web")).unwrap();
    let table = all["items"].as_array()?.first()?.clone();
    let row = table["rows"].as_array()?.iter().find(|row| row["home"] == "c1")?;
    let share = |number: usize| row["shares"][number]["share"].as_f64().unwrap() * 100.0;
    let basis = table["clusters"].as_array()?.iter().map(|cluster| cluster["basis"].as_str().unwrap().to_owned());
    Some(([0, 1, 2].map(share), basis.collect()))
}

/// What is told of a request from Berlin beforehand goes by the same table.
fn told_of_overflow(hub: &Hub) {
    let asked = format!("/v1/explain?url=http://{HOST}/&from={}", PLACES[0].clients);
    let told: Value = serde_json::from_str(&hub.get(&asked)).unwrap();
    let choice = &told["choice"];
    assert_eq!(choice["overflow"]["home"], "c1", "{told}");
    let members = choice["members"].as_array().unwrap().iter();
    let loads: HashMap<_, _> = members.map(|member| (member["cluster"].as_str().unwrap(), &member["load"])).collect();
    let share = |cluster| loads[cluster]["share"].as_f64().unwrap();
    assert!(share("c1") > 0.4 && share("c2") > 0.05 && share("c2") < share("c1"), "{told}");
    assert_eq!(loads["c1"]["reason"]["code"], "Nearest", "{told}");
    assert_eq!(loads["c2"]["reason"]["code"], "Overflow", "{told}");
    let why = loads["c2"]["reason"]["message"].as_str().unwrap();
    assert!(why.starts_with("overflow: c1 is full at "), "{why}");
}

#[test]
fn what_does_not_fit_at_home_leaves_and_comes_back_and_what_fits_nowhere_is_refused() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let Some(address) = own_address() else { return };
    let members = std::thread::scope(|scope| {
        let kubernetes = &kubernetes;
        let starting = PLACES.map(|place| scope.spawn(move || Member::start(kubernetes, place.cluster, address)));
        starting.map(|member| member.join().unwrap())
    });
    let places = tempfile::NamedTempFile::new().unwrap();
    let lines = PLACES.map(|place| format!("{}/32 {} {}\n", place.clients, place.latitude, place.longitude));
    std::fs::write(places.path(), lines.concat()).unwrap();
    let hub = Hub::serving(&fleet(&members), &["--http", "127.0.0.1:0", "--geo", places.path().to_str().unwrap()]);
    let agents = members.iter().zip(PLACES).map(|(member, place)| {
        let kubeconfig = member.api_server.kubeconfig_path().to_str().unwrap();
        let role = ["load", "--kubeconfig", kubeconfig, "--service", "acme/web", "--cpu-limit", "1"];
        let state = hub.state_folder().join(place.cluster);
        Agent::start_in(&state, &hub, &hub.issue_for(place.cluster), &role)
    });
    let agents: Vec<Agent> = agents.collect();
    eventually("all clusters report", || {
        let reports: Value = serde_json::from_str(&hub.get("/v1/load")).unwrap();
        let ready = reports["items"].as_array()?.iter().filter(|report| report["ready"] == PODS);
        (ready.count() == 3).then_some(())
    });

    // A fifth more comes to c1 than it can serve, and half as much again as it is meant to.
    let clients = Clients::start(hub.http.unwrap());
    let seconds = Duration::from_secs;
    clients.come([60, 5, 10]);
    let begun = clients.now();
    // What was planned in the time that is looked at.
    let plans = (6..18).map(|second| {
        std::thread::sleep((begun + seconds(second)).saturating_sub(clients.now()));
        planned(&hub).unwrap()
    });
    let plans: Vec<([f64; 3], Vec<String>)> = plans.collect();
    told_of_overflow(&hub);
    let answers = clients.after(begun, begun + seconds(18));
    assert_eq!(failed(&answers), HashMap::new(), "there is room: nothing may fail\n{}", hub.log_tail());
    let late: Vec<Answer> = answers.iter().filter(|answer| answer.after > begun + seconds(6)).cloned().collect();
    let of = |home: &'static str| late.iter().filter(move |answer| answer.home == home);
    let plan = 100.0 - plans.iter().map(|(shares, _)| shares[0]).sum::<f64>() / 12.0;
    let (left, wanted) = (remote(of("c1")), 100.0 * (1.0 - WANTED / 60.0));
    eprintln!("left c1: {left:.1} %, planned {plan:.1} %, wanted {wanted:.1} %; all: {:.1} %", remote(late.iter()));
    assert!(plans.iter().any(|(_, basis)| *basis == ["Measured"; 3]), "{plans:?}");
    assert!((left - plan).abs() < 4.0, "{left} % left c1, {plan} % were planned");
    // A machine that is busy with other things measures less well.
    assert!((plan - wanted).abs() < 8.0, "planned {plan} %, wanted {wanted} %");
    assert!(of("c1").filter(|answer| answer.by == "c3").count() < 10, "Paris is nearer");
    assert!(remote(of("c2").chain(of("c3"))) <= 2.0, "whoever fits at home stays");

    // The load drops.
    clients.come([20, 20, 20]);
    let dropped = clients.now();
    let answers = clients.after(dropped, dropped + seconds(33));
    assert_eq!(failed(&answers), HashMap::new());
    let late: Vec<Answer> = answers.into_iter().filter(|answer| answer.after > dropped + seconds(25)).collect();
    eprintln!("25 to 33 s after the load dropped: {:.1} % of all are away", remote(late.iter()));
    assert!(remote(late.iter()) <= 2.0, "{} % are still away", remote(late.iter()));

    // More than all of them serve.
    clients.come([100, 60, 60]);
    let full = clients.now();
    let answers = clients.after(full, full + seconds(12));
    clients.end();
    let late: Vec<Answer> = answers.into_iter().filter(|answer| answer.after > full + seconds(4)).collect();
    let served = late.iter().filter(|answer| answer.status == 200).count();
    let refused: Vec<&Answer> = late.iter().filter(|answer| answer.status != 200).collect();
    let a_second = f64::from(u32::try_from(served).unwrap()) / 8.0;
    eprintln!("of {} requests in 8 s {} were refused, {a_second:.1} a second were served", late.len(), refused.len());
    assert!(a_second > 0.85 * 150.0, "{a_second} a second were served, of 150\n{}", hub.log_tail());
    assert!(refused.iter().all(|answer| answer.status == 503), "{:?}", failed(&late));
    assert!(refused.iter().all(|answer| (1..=4).contains(&answer.retry_after.unwrap_or(0))), "{:?}", failed(&late));
    assert!(refused.len() * 5 > late.len(), "{} of {}", refused.len(), late.len());
    let metrics = hub.get("/metrics");
    for metric in [
        "fleetgate_web_shed_total{ingress=\"acme/web\"}",
        "fleetgate_web_member_share{ingress=\"acme/web\",cluster=\"c1\"}",
        "fleetgate_web_member_capacity{ingress=\"acme/web\",cluster=\"c1\",basis=\"Measured\"}",
        "fleetgate_web_refusals_total{door=\"http\",code=\"AllFull\"}",
    ] {
        assert!(metrics.contains(metric), "{metric}\n{metrics}");
    }
    for agent in agents {
        agent.terminate();
    }
}
