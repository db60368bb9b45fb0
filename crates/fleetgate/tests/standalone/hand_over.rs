//! A new process takes over from a running one, under load, and nobody notices.

use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use gateway::proxy_header::{Encoder, TLV_HYPERSHIFT_CLUSTER_ID};
use testbed::Process;

use crate::server::{BASE, Fleet, PATIENCE, Server, cluster, echo_backend, nowhere, read_line};

const ANY: &str = "127.0.0.1:0";

fn successor(fleet: &Fleet) -> std::process::Command {
    // Any port will do, and the old one's are taken.
    let mut command = fleet.command(ANY.parse().unwrap(), ANY.parse().unwrap());
    command.arg("--take-over");
    command
}

/// Connects, says where to go, and wants the greeting; whatever goes wrong is told.
fn visit(apiserver: SocketAddr) -> Result<String, std::io::Error> {
    let mut stream = std::net::TcpStream::connect(apiserver)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let header = Encoder::proxy("192.0.2.1:1".parse().unwrap(), "192.0.2.2:6443".parse().unwrap());
    stream.write_all(&header.tlv(TLV_HYPERSHIFT_CLUSTER_ID, b"c1").finish().unwrap())?;
    read_line(&mut stream)
}

/// One query for c1's API name, sent once: whatever is lost or refused is not asked again.
fn ask(dns: SocketAddr) {
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(dns).unwrap();
    socket.send(b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x03api\x02c1\x05fleet\x07example\0\0\x01\0\x01").unwrap();
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).expect("no query is lost");
    assert!(answer[..length].ends_with(&[192, 0, 2, 10]), "{:?}", &answer[..length]);
}

#[test]
fn nobody_is_refused_while_a_new_process_takes_over() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", echo_backend("c1"), 1))]);
    let mut old = fleet.serve();
    let (dns, apiserver, sni, admin) = (old.dns, old.apiserver, old.sni, old.admin);
    let mut lasting = old.by_id("c1");
    assert_eq!(read_line(&mut lasting).unwrap(), "c1");

    let (stop, visits) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut lasting = Some(lasting);
    thread::scope(|scope| {
        let visitors: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(visit(apiserver).expect("no connection is refused or cut"), "c1");
                        visits.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let asking = scope.spawn(|| {
            let mut answers = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                ask(dns);
                answers += 1;
                // Half of what one network is answered in a second: above, answers are rightly held back.
                thread::sleep(Duration::from_millis(2));
            }
            answers
        });
        for _ in 0..3 {
            let next = Server::start(&successor(&fleet));
            let same = (next.dns, next.apiserver, next.sni, next.admin);
            assert_eq!(same, (dns, apiserver, sni, admin), "the same sockets");
            // While the old one drains, its connections go on ...
            if let Some(mut lasting) = lasting.take() {
                lasting.write_all(b"still there\n").unwrap();
                assert_eq!(read_line(&mut lasting).unwrap(), "still there");
            }
            // ... and then it ends by itself.
            let status = old.process.wait_for_exit(PATIENCE).unwrap();
            assert!(status.success(), "{status}\n{}", old.process.log_tail());
            old = next;
        }
        stop.store(true, Ordering::Relaxed);
        for visitor in visitors {
            visitor.join().unwrap();
        }
        println!("{} queries, each sent once", asking.join().unwrap());
    });
    println!("{} connections while three processes took over", visits.load(Ordering::Relaxed));

    // The last one reads the folder and has the database.
    fleet.write("c2.yaml", &cluster("c2", echo_backend("c2"), 2));
    // It is on disk before it is served.
    old.until("c2 is served", |server| read_line(&mut server.by_id("c2")).is_ok_and(|said| said == "c2"));
    assert!(old.get(&["cluster", "c2"]).status.success());
    old.terminate();
    visit(apiserver).expect_err("nobody listens any more");
}

#[test]
fn a_successor_that_fails_changes_nothing() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", echo_backend("c1"), 1))]);
    let mut server = fleet.serve();
    // It has been given the sockets by the time it finds that it cannot have this address.
    let mut failing = fleet.command(ANY.parse().unwrap(), "192.0.2.1:0".parse().unwrap());
    let mut process = Process::start(failing.arg("--take-over")).unwrap();
    let status = process.wait_for_exit(PATIENCE).unwrap();
    assert!(!status.success(), "{}", process.log_tail());
    server.process.wait_for_line("has ended; going on", PATIENCE).unwrap();

    fleet.write("c2.yaml", &cluster("c2", nowhere(), 2));
    server.until("c2 is known", |server| server.get(&["cluster", "c2"]).status.success());
    assert_eq!(visit(server.apiserver).unwrap(), "c1");
    server.terminate();
}
