//! HAProxy is real, takes the configuration it is given, and is gone with its test.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use testbed::{ProcessError, StartError};

fn answer_of(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    io::read_to_string(stream)
}

#[test]
fn every_address_is_served_as_configured_until_it_is_dropped() {
    let Some(haproxy) = testbed::haproxy() else { return };
    let mut running = haproxy
        .start(|[east, west]| {
            format!(
                "\
defaults
    mode http
    timeout client 1m
frontend east
    bind {east}
    http-request return status 200 content-type text/plain string this-is-east
frontend west
    bind {west}
    http-request return status 200 content-type text/plain string this-is-west
"
            )
        })
        .unwrap();
    let [east, west] = running.addresses();
    assert!(answer_of(east).unwrap().ends_with("this-is-east"));
    assert!(answer_of(west).unwrap().ends_with("this-is-west"));
    assert!(running.ask("show stat").unwrap().contains("east,FRONTEND"));

    let id = running.process().id();
    drop(running);
    assert!(!Path::new(&format!("/proc/{id}")).exists(), "process {id} is still there");
}

#[test]
fn a_configuration_that_it_refuses_is_an_error_with_its_reason() {
    let Some(haproxy) = testbed::haproxy() else { return };
    match haproxy.start(|[front]| format!("listen all\n    bind {front}\n    no-such-keyword\n")) {
        Err(StartError::Process(ProcessError::Ended { log, .. })) => assert!(log.contains("no-such-keyword"), "{log}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it should not start"),
    }
}
