//! What an operator does with it: find a cluster, see it change, ask why, and act.

use fantoccini::Locator;
use serde_json::json;

use crate::browser::{Browser, programs};
use crate::fleet::{BASE, CREDENTIAL, Fleet, cluster, name};

const NAMES: usize = 30;

/// A zone that holds what would go in a mass, and a tenant with names that can.
fn base() -> String {
    BASE.replacen("gateway:", "withdrawal: {grace: 1s, maxShare: 0.3}\n  gateway:", 1)
}

fn records(count: usize) -> String {
    let head = "apiVersion: externaldns.k8s.io/v1alpha1\nkind: DNSEndpoint\nmetadata: {name: web, namespace: acme}\n";
    let endpoint = |number: usize| {
        format!("  - {{dnsName: n{number}.{}.fleet.example, recordType: TXT, targets: [here]}}\n", name(0))
    };
    let endpoints: Vec<String> = (0..count).map(endpoint).collect();
    format!("{head}spec:\n  endpoints:\n{}", endpoints.concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_finds_a_cluster_sees_it_change_and_asks_why() {
    let Some(programs) = programs() else { return };
    let clusters: Vec<String> = (0..9).map(|number| cluster(number, 3, 0)).collect();
    let fleet =
        Fleet::start(&[("base.yaml", BASE), ("c.yaml", &clusters.join("---\n")), ("x.yaml", &cluster(9, 3, 0))]);
    let browser = Browser::start(&programs, fleet.url()).await;

    // By the keyboard alone.
    browser.open("/").await;
    let (tiles, figures) = (browser.text("#tiles").await, browser.text("#traffic").await);
    assert!(tiles.contains("Clusters\n10") && figures.contains("30 of 30"), "{tiles}\n{figures}");
    browser.client.find(Locator::Css("body")).await.unwrap().send_keys("/").await.unwrap();
    assert_eq!(browser.run("return document.activeElement.id").await, "search");
    let wanted = name(9);
    browser.enter("#search", wanted.trim_end_matches("-00009")).await;
    browser.until("the list", "return location.pathname === '/clusters'").await;
    let found = browser.text("#list").await;
    assert!(found.contains(&wanted) && found.contains(&name(1)) && !found.contains(&name(2)), "{found}");
    browser.enter("#search", &wanted).await;
    browser
        .until("one cluster", "return document.querySelector('#list h2')?.textContent === 'one cluster found'")
        .await;
    browser.click("#list tbody th a").await;
    browser.until("its page", &format!("return location.pathname === '/clusters/{wanted}'")).await;
    browser.until("it is live", "return document.getElementById('live').textContent === 'live'").await;

    // A node goes, and comes back: on the page that is there, not on a new one. What is open and where the focus is stays.
    let nodes = browser.text("#nodes").await;
    assert!(nodes.contains("n0") && !nodes.contains("Not ready"), "{nodes}");
    browser.click("#actions summary").await;
    browser.run("window.marker = 7; document.querySelector('#actions summary').focus()").await;
    fleet.write("x.yaml", &cluster(9, 3, 1));
    browser.until("the node is gone", "return document.getElementById('nodes').innerText.includes('Not ready')").await;
    assert!(browser.text("#overview").await.contains("2 of 3"));
    assert!(browser.text("#overview").await.contains("Degraded"));
    let stays =
        "return [window.marker, document.activeElement.tagName, document.querySelector('#actions details').open]";
    assert_eq!(browser.run(stays).await, json!([7, "SUMMARY", true]));
    browser
        .until(
            "the change",
            "return document.getElementById('changes').innerText.includes('node n0 is not ready any more')",
        )
        .await;
    fleet.write("x.yaml", &cluster(9, 3, 0));
    browser.until("it is back", "return !document.getElementById('nodes').innerText.includes('Not ready')").await;
    assert_eq!(browser.run(stays).await, json!([7, "SUMMARY", true]));

    browser.open("/explain").await;
    browser.enter("#what", &format!("api.{wanted}.fleet.example")).await;
    browser.until("an answer", "return document.querySelector('#answer dl') !== null").await;
    let answer = browser.text("#answer").await;
    for part in ["verdict", &format!("kube-apiserver of Cluster {wanted}"), "NOERROR from Zone main"] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    browser.enter("#what", "http://[nothing").await;
    browser.until("a no", "return document.querySelector('#answer .error') !== null").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());

    // Whoever looks is told when nobody tells any more.
    browser.open("/").await;
    fleet.end();
    browser.until("not live", "return document.getElementById('live').textContent === 'not live'").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_need_the_credential() {
    let Some(programs) = programs() else { return };
    let clusters: Vec<String> = (0..3).map(|number| cluster(number, 2, 0)).collect();
    let fleet =
        Fleet::start(&[("base.yaml", &base()), ("c.yaml", &clusters.join("---\n")), ("web.yaml", &records(NAMES))]);
    let browser = Browser::start(&programs, fleet.url()).await;
    let cluster_page = format!("/clusters/{}", name(0));
    let act = async |region: &str| {
        browser.click(&format!("{region} summary")).await;
        browser.click(&format!("{region} button")).await;
    };
    let done = async |said: &str| {
        let script = format!("return document.querySelector('.done')?.innerText.includes('{said}') ?? false");
        browser.until(said, &script).await;
    };

    browser.open(&cluster_page).await;
    act("#actions").await;
    browser.until("a no", "return document.querySelector('main').innerText.includes('NoSession')").await;
    let refused = browser.text("main").await;
    assert!(refused.contains("403 NoSession") && refused.contains("log in with the admin credential"), "{refused}");
    browser.open(&cluster_page).await;
    assert!(!browser.text("#overview").await.contains("Drained"));

    browser.open("/login").await;
    browser.enter("#credential", "not-the-credential-but-of-its-length---").await;
    browser.until("a no", "return document.querySelector('.error') !== null").await;
    browser.enter("#credential", CREDENTIAL).await;
    browser.until("in", "return document.querySelector('form[action=\"/logout\"]') !== null").await;

    browser.open(&cluster_page).await;
    act("#actions").await;
    // The page that says so: the one that the form was on hears of it, too.
    done("Drained: federated").await;
    assert_eq!(browser.path().await, cluster_page);
    browser.until("drained", "return document.getElementById('overview').innerText.includes('Drained')").await;
    act("#actions").await;
    done("Not drained any more").await;
    browser.until("back", "return document.getElementById('overview').innerText.includes('Ready\\n')").await;

    // Names that go in a mass are held until they are released.
    browser.open("/tenants/acme").await;
    assert!(browser.text("#overview").await.contains(&format!("{NAMES} of 50")));
    fleet.write("web.yaml", &records(1));
    browser.until("held", "return document.getElementById('held').innerText.includes('n29.')").await;
    act("#held").await;
    done("Released").await;
    browser
        .until("released", "return document.getElementById('held').innerText.includes('Nothing of it is held')")
        .await;

    browser.click("form[action='/logout'] button").await;
    browser.until("out", "return document.querySelector('.who a.quiet') !== null").await;
    // The browser writes down that pages were answered with 403, and nothing else.
    let complaints = browser.complaints().await;
    assert!(complaints.iter().all(|line| line.contains("403 (Forbidden)")), "{complaints:?}");
    browser.close().await;
    fleet.end();
}
