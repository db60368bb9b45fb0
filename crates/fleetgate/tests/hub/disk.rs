//! A disk that is full for a while: what could not be written serves on, and is written when there is room again.

use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::fixture::{Server, ZONE, data_folder, eventually, given_cluster, hub, wait_for_answer};

/// Above what the log takes, which is a file as well, and below the pages of the database.
const FULL: u64 = 64 << 10;

/// Lets files of the process grow up to this size; what is beyond cannot be written either.
fn limit_files(server: &Server, size: Option<u64>) {
    let pid = Pid::from_raw(server.process.id().try_into().unwrap());
    let before = prlimit(pid, Resource::Fsize, Rlimit { current: size, maximum: None }).unwrap();
    assert_eq!(before.maximum, None, "the limit could not be lifted again");
}

#[test]
fn what_a_full_disk_did_not_take_is_written_once_it_does() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let mut hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 1)).unwrap();
    let config = hub.kubeconfig_path().to_owned();
    let data = data_folder();
    let arguments = ["dns", "--dns", "127.0.0.1:0", "--data", data.path().to_str().unwrap()];
    // A write beyond the limit is an error for those who ignore the signal that comes with it, as on a full disk.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_fleetgate")]);
    let mut dns = Server::start_as(command, &config, &arguments);
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.1"]);

    limit_files(&dns, Some(FULL));
    hub.kubectl_apply(&given_cluster("c1", 2)).unwrap();
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.2"]);
    eventually("it is told", || dns.process.log().contains("the last good state is not on disk").then_some(()));
    limit_files(&dns, None);
    eventually("it is written", || dns.process.log().contains("the last good state is on disk again").then_some(()));

    // Without a moment to write anything more, and without a hub to ask.
    dns.process.signal("KILL").unwrap();
    dns.process.wait_for_exit(crate::fixture::PATIENCE).unwrap();
    hub.stop().unwrap();
    let dns = Server::start_informed(&config, &arguments);
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.2"]);
}
