//! The log of requests, for those who ask for it.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::backend::Recorder;
use crate::fixture::{Front, Site, wait_for};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(octets)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Of all tests of this process: there is one log.
fn lines() -> Lines {
    static LINES: OnceLock<Lines> = OnceLock::new();
    let set = || {
        let lines = Lines::default();
        let writer = lines.clone();
        let access = tracing_subscriber::filter::Targets::new().with_target("access", LevelFilter::INFO);
        let layer = fmt::layer().with_ansi(false).with_writer(move || writer.clone()).with_filter(access);
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();
        lines
    };
    LINES.get_or_init(set).clone()
}

#[test]
fn every_request_has_a_line() {
    let lines = lines();
    let recorder = Recorder::start();
    let front = Front::start(Site::new("logged.test", &[recorder.address]).table());
    let mut client = front.connect();
    client.say("POST /cart?secret=1 HTTP/1.1\r\nhost: logged.test\r\ncontent-length: 5\r\n\r\nhello");
    assert_eq!(client.hear().unwrap().status, 200);
    client.say("GET / HTTP/1.1\r\nhost: unlogged.logged.test\r\n\r\n");
    assert_eq!(client.hear().unwrap().status, 404);
    let logged = || {
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains("logged.test")).map(str::to_owned).collect::<Vec<_>>()
    };
    wait_for("two lines", || logged().len() == 2);
    for (line, parts) in logged().iter().zip([
        &[
            "client=127.0.0.1",
            "host=logged.test",
            "method=POST",
            "path=/cart ",
            "status=200",
            "member=c0",
            "received=5",
            "sent=20",
        ][..],
        &["host=unlogged.logged.test", "status=404", "refusal=\"NoRoute\""],
    ]) {
        for part in parts {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!line.contains("secret"), "queries are not logged: {line}");
    }
}
