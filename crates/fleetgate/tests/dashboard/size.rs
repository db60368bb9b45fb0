//! Ten thousand clusters are seen as fast as ten.

use serde_json::Value;

use crate::browser::{Browser, programs};
use crate::fleet::{BASE, Fleet, cluster, name};

const CLUSTERS: usize = 10_000;
/// What a person takes for at once.
const FIRST_PAINT_MS: f64 = 1000.0;
/// The best of these counts: the binary of tests is not optimised, and others may work on this machine.
const LOADS: usize = 5;
/// The page and all that it needs.
const OCTETS: f64 = 300.0 * 1024.0;

const FIGURES: &str = "\
    const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]; \
    const paint = performance.getEntriesByName('first-contentful-paint')[0]; \
    return [paint ? paint.startTime : null, all.filter((one) => !one.name.includes('/live')).reduce((sum, one) => sum + one.transferSize, 0)]";

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_clusters_are_painted_within_a_second() {
    let Some(programs) = programs() else { return };
    let files: Vec<(String, String)> = (0..CLUSTERS / 100)
        .map(|file| {
            let clusters: Vec<String> =
                (0..100).map(|number| file * 100 + number).map(|number| cluster(number, 2, 0)).collect();
            (format!("c{file}.yaml"), clusters.join("---\n"))
        })
        .collect();
    let files: Vec<(&str, &str)> =
        [("base.yaml", BASE)].into_iter().chain(files.iter().map(|(file, text)| (&**file, &**text))).collect();
    let fleet = Fleet::start(&files);
    let browser = Browser::start(&programs, fleet.url()).await;
    for path in ["/", "/clusters", "/clusters?q=eu-west", "/records?q=api", "/tenants"] {
        let (mut paint, mut octets) = (f64::INFINITY, 0.0_f64);
        for _ in 0..LOADS {
            browser.open(path).await;
            browser
                .until("it is painted", "return performance.getEntriesByName('first-contentful-paint').length > 0")
                .await;
            let figures = browser.run(FIGURES).await;
            paint = paint.min(figures[0].as_f64().unwrap());
            octets = octets.max(figures[1].as_f64().unwrap());
        }
        println!("{path}: first paint after {paint:.0} ms, {:.1} KiB with everything", octets / 1024.0);
        assert!(octets > 1024.0 && octets < OCTETS, "{path}: {octets} octets");
        assert!(paint < FIRST_PAINT_MS, "{path}: painted after {paint} ms");
    }
    assert!(browser.text("#list").await.contains("2 tenants found"));
    browser.open("/").await;
    assert!(browser.text("#tiles").await.contains("10,000"));

    // One change among ten thousand is seen.
    browser.run("window.marker = 7").await;
    let last = CLUSTERS - 1;
    let clusters: Vec<String> =
        (last - 99..=last).map(|number| cluster(number, 2, usize::from(number == last))).collect();
    fleet.write("c99.yaml", &clusters.join("---\n"));
    let seen = format!("return document.getElementById('attention').innerText.includes('{}')", name(last));
    browser.until("the change is seen", &seen).await;
    assert_eq!(browser.run("return window.marker").await, Value::from(7));
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
    fleet.end();
}
