//! A crowd that says nothing, or next to nothing, does not hinder those who have something to say.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway::proxy_header::{Encoder, TLV_HYPERSHIFT_CLUSTER_ID};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::fixture::api_name;
use crate::peers::{Peers, with_descriptors};
use crate::server::{BASE, Fleet, PATIENCE, Server, cluster, connect, echo_backend, read_line};

/// As metrics call them, by cluster id and by server name.
const DOORS: [&str; 2] = ["apiserver", "sni"];
/// One process each. From the honest client's own address come more than one source may have undecided; of the others
/// none has too many, but all of them together have.
const SOURCES: [[u8; 4]; 9] = [
    [127, 0, 0, 1],
    [127, 0, 0, 1],
    [127, 0, 0, 1],
    [127, 0, 0, 1],
    [127, 0, 0, 2],
    [127, 0, 0, 3],
    [127, 0, 0, 4],
    [127, 0, 0, 5],
    [127, 0, 0, 6],
];
const PEERS_PER_SOURCE: u32 = 1000;
/// Few enough that nobody has to go for another.
const STRAGGLERS: u32 = 100;
/// Through each door, at least.
const HONEST_CONNECTIONS: u64 = 100;
/// Where a client would think of giving up. Milliseconds are expected.
const PROMPT: Duration = Duration::from_secs(5);
/// ARCHITECTURE.md has the number; threads may each pass it by one, and honest ones come and go.
const MAX_OPEN: u64 = 4096 + 64;
/// For both doors full of undecided connections.
const DESCRIPTORS: u32 = 12_000;
/// Of everything. So many connections with a few octets each take some MiB; with a buffer each it would be 512.
const MAX_RESIDENT_KIB: u64 = 128 * 1024;

#[test]
fn nine_thousand_slow_peers_do_not_hinder_honest_clients() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", echo_backend("c1"), 1))]);
    let mut server = serve(&fleet);
    let doors = [server.apiserver, server.sni];
    let peers = |source: [u8; 4], count| Peers { from: Ipv4Addr::from(source).into(), count, doors };

    let mut crowd = SOURCES.map(|source| peers(source, PEERS_PER_SOURCE).start());
    crowd.iter_mut().for_each(Peers::wait_for_all);
    let everybody = u64::from(PEERS_PER_SOURCE) * SOURCES.len() as u64;
    server.until("the doors know of everybody", |server| server.seen_by_each_door() >= everybody);

    // For as long as it takes some of them to be cut off and to come again.
    let mut took = Vec::new();
    let begun = Instant::now();
    for honest in 1.. {
        took.extend(talk_through_each_door(&server, honest));
        assert!(DOORS.iter().all(|door| server.open(door) <= MAX_OPEN), "{:?}", DOORS.map(|door| server.open(door)));
        if honest >= HONEST_CONNECTIONS && server.seen_by_each_door() >= everybody + everybody / 4 {
            assert_crowded_out(&server, honest);
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the crowd does not come again");
    }
    took.sort_unstable();
    let (half, all, resident) = (took[took.len() / 2], took[took.len() - 1], server.peak_resident_kib());
    println!("{} honest connections: half within {half:?}, all within {all:?}; {resident} KiB", took.len());
    assert!(resident < MAX_RESIDENT_KIB, "{resident} KiB");

    // Where there is room for all, all have the same time, in however many pieces they speak.
    drop(crowd);
    server.until("the crowd is gone", |server| DOORS.iter().all(|door| server.open(door) == 0));
    let before = server.timeouts();
    let stragglers = peers([127, 0, 0, 7], STRAGGLERS).start();
    server.until("the stragglers' time is up", |server| {
        before.iter().zip(server.timeouts()).all(|(before, after)| after >= before + u64::from(STRAGGLERS))
    });
    drop(stragglers);
    server.terminate();
}

fn serve(fleet: &Fleet) -> Server {
    let mut command = with_descriptors(DESCRIPTORS, env!("CARGO_BIN_EXE_fleetgate"));
    command.args(["serve", "--log-format", "json", "--fleet"]).arg(fleet.folder());
    for door in ["--dns", "--apiserver", "--sni", "--admin"] {
        command.args([door, "127.0.0.1:0"]);
    }
    Server::start(&command)
}

/// What a client of c1 says first at each door.
pub(crate) fn openings() -> [Vec<u8>; 2] {
    let header = Encoder::proxy("192.0.2.1:1".parse().unwrap(), "192.0.2.2:6443".parse().unwrap());
    let header = header.tlv(TLV_HYPERSHIFT_CLUSTER_ID, b"c1").finish().unwrap();

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    let mut client = ClientConnection::new(config, api_name("c1").try_into().unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    [header, hello]
}

/// How long it took through each.
fn talk_through_each_door(server: &Server, honest: u64) -> [Duration; 2] {
    let [header, hello] = openings();
    // The header stays behind; the hello is the control plane's.
    [(server.apiserver, &header, &[][..]), (server.sni, &hello, &hello)].map(|(door, opening, passed_on)| {
        let begun = Instant::now();
        let talked = talk(connect(door), opening, passed_on);
        let took = begun.elapsed();
        assert!(talked.is_ok() && took < PROMPT, "{door}, honest connection {honest}: {talked:?} after {took:?}");
        took
    })
}

fn talk(mut stream: TcpStream, opening: &[u8], passed_on: &[u8]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PROMPT))?;
    stream.write_all(&[opening, b"anybody there?\n"].concat())?;
    assert_eq!(read_line(&mut stream)?, "c1");
    let mut echoed = vec![0; passed_on.len()];
    stream.read_exact(&mut echoed)?;
    assert_eq!(echoed, passed_on);
    assert_eq!(read_line(&mut stream)?, "anybody there?");
    Ok(())
}

/// Somebody had to go: of a source with too many one of its own, else who had waited longest. Nobody else.
fn assert_crowded_out(server: &Server, honest: u64) {
    for door in DOORS {
        assert_eq!(server.established(door), honest, "{door}");
        for refusal in ["TooManyOpenings", "TooManyOpeningsOfSource"] {
            assert!(server.outcomes(door, refusal) > 0, "{door}: {refusal}");
        }
        assert_eq!(server.outcomes(door, "TooManyConnections"), 0, "{door}");
        assert_eq!(server.metric("fleetgate_gateway_accept_errors_total", &format!("door=\"{door}\"")), 0, "{door}");
    }
}

impl Server {
    /// How many connections a door has now.
    fn open(&self, door: &str) -> u64 {
        self.metric("fleetgate_gateway_open_connections", &format!("door=\"{door}\""))
    }

    /// How many connections have come through the door that saw fewer.
    fn seen_by_each_door(&self) -> u64 {
        DOORS.map(|door| self.met(door) + self.open(door)).into_iter().min().unwrap()
    }

    /// How many connections each door has ended because their time was up.
    fn timeouts(&self) -> [u64; 2] {
        [self.outcomes("apiserver", "HeaderTimeout"), self.outcomes("sni", "HelloTimeout")]
    }

    fn peak_resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
        peak.unwrap().trim().parse().unwrap()
    }
}
