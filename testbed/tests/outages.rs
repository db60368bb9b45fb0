//! An API server goes away and comes back: with all it had, without its history, or with nothing.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::io::{Read, Write};
use std::net::TcpStream;
use testbed::{ApiServer, KubectlError};

fn version_of(server: &ApiServer, config_map: &str) -> String {
    server.kubectl(&["get", "configmap", config_map, "--output=jsonpath={.metadata.resourceVersion}"]).unwrap()
}

fn refusal(answer: Result<String, KubectlError>) -> String {
    match answer {
        Err(KubectlError::Refused { stderr, .. }) => stderr,
        other => panic!("it should be refused, but: {other:?}"),
    }
}

#[test]
fn it_comes_back_where_it_was_with_what_it_had_and_tells_old_watches_that_they_are_gone() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let mut server = ApiServer::start(&kubernetes).unwrap();
    let address = server.address();
    server.kubectl(&["create", "configmap", "first"]).unwrap();
    let old = version_of(&server, "first");
    server.kubectl(&["create", "configmap", "second"]).unwrap();

    let mut connection = TcpStream::connect(address).unwrap();
    // Half of a TLS record: it waits for the rest.
    connection.write_all(&[22, 3, 1]).unwrap();

    server.stop().unwrap();
    assert!(matches!(connection.read(&mut [0; 1]), Ok(0) | Err(_)), "connections end");
    TcpStream::connect(address).unwrap_err();
    server.start_again().unwrap();

    assert_eq!(server.address(), address);
    assert_eq!(version_of(&server, "first"), old);
    let watch = format!("/api/v1/configmaps?watch=true&timeoutSeconds=5&resourceVersion={old}");
    let answer = server.kubectl(&["get", "--raw", &watch]).unwrap();
    assert!(answer.contains("\"code\":410"), "{answer}");
}

#[test]
fn what_is_compacted_is_gone_for_lists_too() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let mut server = ApiServer::start(&kubernetes).unwrap();
    server.kubectl(&["create", "configmap", "first"]).unwrap();
    let old = version_of(&server, "first");
    server.kubectl(&["create", "configmap", "second"]).unwrap();
    let list =
        format!("/api/v1/namespaces/default/configmaps?resourceVersion={old}&resourceVersionMatch=Exact&limit=1");
    let start_again = |server: &mut ApiServer| {
        server.stop().unwrap();
        server.start_again().unwrap();
    };
    start_again(&mut server);
    server.kubectl(&["get", "--raw", &list]).unwrap();

    server.compact().unwrap();
    start_again(&mut server);

    let stderr = refusal(server.kubectl(&["get", "--raw", &list]));
    assert!(stderr.contains("too old"), "{stderr}");
    server.kubectl(&["get", "configmap", "first"]).unwrap();
}

#[test]
fn a_wiped_one_comes_back_with_nothing() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let mut server = ApiServer::start(&kubernetes).unwrap();
    server.kubectl(&["create", "configmap", "first"]).unwrap();

    server.stop().unwrap();
    server.wipe().unwrap();
    server.start_again().unwrap();

    let stderr = refusal(server.kubectl(&["get", "configmap", "first"]));
    assert!(stderr.contains("NotFound"), "{stderr}");
}
