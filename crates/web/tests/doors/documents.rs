//! What the documents say of these doors.

use std::collections::BTreeSet;
use std::path::Path;

use crate::backend::Recorder;
use crate::fixture::{Front, Site};

fn document(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).expect(path)
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    let mut client = front.connect();
    client.say("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    assert_eq!(client.hear().unwrap().status, 200);
    client.say("GET / HTTP/1.1\r\nhost: nobody.test\r\n\r\n");
    assert_eq!(client.hear().unwrap().status, 404);
    let (text, metrics) = (document("docs/metrics.md"), front.metrics());
    let documented = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: BTreeSet<&str> = documented.filter(|name| name.starts_with("fleetgate_web_")).collect();
    let exposed = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    assert_eq!(exposed.collect::<BTreeSet<_>>(), documented);
}
