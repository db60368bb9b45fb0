//! Processes: their log, their end, and that they do not outlive the test.

use std::env;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use testbed::{Process, ProcessError};

/// Far more than any of these needs, so that a busy machine fails none of them.
const PATIENCE: Duration = Duration::from_secs(30);

fn shell(script: &str) -> Process {
    Process::start(Command::new("sh").args(["-c", script])).expect("every machine has sh and setpriv")
}

#[test]
fn a_line_is_found_whole_and_in_either_output() {
    let mut process = shell("printf 'listening on '; sleep 0.1; echo 4242; echo ready >&2; exec sleep 600");
    assert_eq!(process.wait_for_line("listening", PATIENCE).unwrap(), "listening on 4242");
    assert_eq!(process.wait_for_line("ready", PATIENCE).unwrap(), "ready");
    assert_eq!(process.log(), "listening on 4242\nready\n");
}

#[test]
fn a_program_that_ends_instead_fails_at_once_and_shows_its_log() {
    let mut process = shell("echo no such flag; exit 3");
    match process.wait_for_line("ready", PATIENCE) {
        Err(ProcessError::Ended { status, log, .. }) => {
            assert_eq!((status.code(), log.as_str()), (Some(3), "no such flag"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_line_that_never_comes_is_waited_for_until_the_deadline() {
    let mut process = shell("exec sleep 600");
    match process.wait_for_line("ready", Duration::from_millis(50)) {
        Err(ProcessError::Silent { wanted, .. }) => assert_eq!(wanted, "ready"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_signal_arrives_and_the_exit_status_comes_back() {
    let mut process = shell("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done");
    process.wait_for_line("ready", PATIENCE).unwrap();
    process.signal("TERM").unwrap();
    assert_eq!(process.wait_for_exit(PATIENCE).unwrap().code(), Some(7));
    assert!(process.log().ends_with("bye\n"), "{}", process.log());
}

#[test]
fn environment_and_folder_are_carried_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "echo \"$GREETING from $(pwd -P)\""]).env("GREETING", "hello").current_dir(folder.path());
    let line = Process::start(&command).unwrap().wait_for_line("hello", PATIENCE).unwrap();
    assert_eq!(line, format!("hello from {}", folder.path().canonicalize().unwrap().display()));
}

#[test]
fn a_process_outlives_the_thread_that_started_it() {
    let starter = thread::spawn(|| {
        let mut process = shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done");
        process.wait_for_line("ready", PATIENCE).unwrap();
        (process, fs::canonicalize("/proc/thread-self").unwrap())
    });
    let (mut process, starter) = starter.join().unwrap();
    wait_until("the thread is gone", || !starter.exists());

    // Had the kernel killed it along with the thread, it could not choose its exit status.
    process.signal("TERM").unwrap();
    assert_eq!(process.wait_for_exit(PATIENCE).unwrap().code(), Some(7));
}

#[test]
fn dropping_ends_it() {
    let process = shell("exec sleep 600");
    let id = process.id();
    drop(process);
    assert!(!is_running(id));
}

/// Set for the run of this same file that is to be killed.
const VICTIM: &str = "TESTBED_VICTIM";

#[test]
fn a_killed_test_takes_its_processes_along() {
    let mut test = Command::new(env::current_exe().unwrap());
    test.args(["--exact", "victim_of_the_test_above", "--nocapture"]).env(VICTIM, "yes");
    let mut test = Process::start(&test).unwrap();
    let line = test.wait_for_line("started process ", PATIENCE).unwrap();
    let id: u32 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(is_running(id));

    drop(test); // by SIGKILL, so it cannot clean up

    wait_until("the process of the killed test is gone", || !is_running(id));
}

#[test]
fn victim_of_the_test_above() {
    if env::var_os(VICTIM).is_none() {
        return;
    }
    let process = shell("exec sleep 600");
    println!("started process {}", process.id());
    thread::sleep(PATIENCE);
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited for {PATIENCE:?} until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A process that ended but whose new parent has not asked for its status counts as ended.
fn is_running(id: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    // The state follows the name, which is in parentheses and may hold anything.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
