//! Stock ExternalDNS publishes through the hub: create, update and delete with its TXT registry, whoever is restarted
//! meanwhile, and one bad record does not hurt the others.

use serde_json::{Value, json};
use testbed::{ApiServer, ExternalDns, Registry, RunningExternalDns};

use crate::fixture::{Agent, Hub, NODE, dns_endpoint, eventually, tenant};

const OWNER: Registry<'_> = Registry::Txt { owner: "shop", prefix: "owner-%{record_type}-" };
const WEB: &str = "web.c1.fleet.example";
const WEB_TEXT: &str = "owner-a-web.c1.fleet.example";

/// ExternalDNS, which ends whenever its provider is away: whoever runs it starts it again, and so do we.
struct Followed<'a> {
    program: ExternalDns,
    tenant: &'a ApiServer,
    running: RunningExternalDns,
}

impl<'a> Followed<'a> {
    fn start(program: ExternalDns, tenant: &'a ApiServer, agent: &Agent) -> Self {
        let running = Self::run(&program, tenant, agent);
        Self { program, tenant, running }
    }

    fn run(program: &ExternalDns, tenant: &ApiServer, agent: &Agent) -> RunningExternalDns {
        program.start_with_webhook(tenant.kubeconfig_path(), "shop", agent.address("listen"), OWNER).unwrap()
    }

    fn until(&mut self, hub: &Hub, agent: &Agent, name: &str, kind: &str, holds: impl Fn(&[String]) -> bool) {
        eventually(&format!("{name} {kind}; it is {:?}", hub.resolve(name, kind)), || {
            if self.running.process().check_running().is_err() {
                self.running = Self::run(&self.program, self.tenant, agent);
            }
            holds(&hub.resolve(name, kind)).then_some(())
        });
    }

    fn until_address(&mut self, hub: &Hub, agent: &Agent, name: &str, address: &str) {
        self.until(hub, agent, name, "A", |answer| answer == [address]);
    }
}

#[test]
fn external_dns_publishes_through_the_hub_whoever_is_restarted() {
    let (Some(kubernetes), Some(program)) = (testbed::kubernetes(), testbed::external_dns()) else { return };
    let mut hub = Hub::start();
    let tenant = tenant(&kubernetes);
    let bootstrap = hub.issue();
    let mut agent =
        Agent::start(&hub, &bootstrap, &["external-dns", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0"]);
    agent.wait_until_ready();
    let (status, filter) = agent.get("listen", "/");
    assert_eq!((status, filter.as_str()), (200, r#"{"include":["c1.fleet.example"]}"#));

    // One that is good, between others that are another tenant's, lead to a forbidden place, and are no names.
    let wishes = |target| {
        let bad = [("a..b", "203.0.113.1"), ("evil.c1.fleet.example", "169.254.169.254")];
        let theirs = ("web.c2.fleet.example", "203.0.113.1");
        dns_endpoint("wishes", &[bad[0], (WEB, target), theirs, bad[1], ("more.c1.fleet.example", target)])
    };
    tenant.kubectl_apply(&wishes("203.0.113.1")).unwrap();
    let mut external_dns = Followed::start(program, &tenant, &agent);
    external_dns.until_address(&hub, &agent, WEB, "203.0.113.1");
    external_dns.until_address(&hub, &agent, "more.c1.fleet.example", "203.0.113.1");
    external_dns.until(&hub, &agent, WEB_TEXT, "TXT", |texts| {
        texts.iter().any(|text| text.contains("heritage=external-dns") && text.contains("external-dns/owner=shop"))
    });
    assert_eq!(hub.resolve("web.c2.fleet.example", "A"), ["198.51.100.12"], "their own wildcard");
    assert_eq!(hub.resolve("evil.c1.fleet.example", "A"), [NODE]);
    let refused: Value = serde_json::from_str(&agent.get("health", "/refused").1).unwrap();
    let codes: Vec<&str> =
        refused["records"].as_array().unwrap().iter().map(|refused| refused["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&"NotYours") && codes.contains(&"TargetForbidden"), "{refused}");
    assert!(!refused.to_string().contains("rival"), "{refused}");
    external_dns.running.process().check_running().unwrap();

    tenant.kubectl_apply(&wishes("203.0.113.2")).unwrap();
    external_dns.until_address(&hub, &agent, WEB, "203.0.113.2");

    agent.kill();
    tenant.kubectl_apply(&wishes("203.0.113.3")).unwrap();
    agent.start_again();
    agent.wait_until_ready();
    assert!(agent.process.log().contains("an earlier certificate is still good"), "{}", agent.process.log_tail());
    external_dns.until_address(&hub, &agent, WEB, "203.0.113.3");

    hub.kill();
    tenant.kubectl_apply(&wishes("203.0.113.4")).unwrap();
    let (status, _) = agent.get("listen", "/records");
    assert_eq!(status, 503, "a soft error");
    hub.start_again();
    assert_eq!(hub.resolve(WEB, "A"), ["203.0.113.3"], "what was published survives");
    external_dns.until_address(&hub, &agent, WEB, "203.0.113.4");

    external_dns.running.process().end();
    external_dns.until_address(&hub, &agent, WEB, "203.0.113.4");
    tenant.kubectl_apply(&dns_endpoint("wishes", &[("more.c1.fleet.example", "203.0.113.4")])).unwrap();
    external_dns.until_address(&hub, &agent, WEB, NODE);
    external_dns.until(&hub, &agent, WEB_TEXT, "TXT", <[String]>::is_empty);
    assert_eq!(hub.resolve("more.c1.fleet.example", "A"), ["203.0.113.4"]);
    let (_, metrics) = agent.get("health", "/metrics");
    assert!(metrics.contains("fleetgate_agent_external_dns_answers_total{call=\"apply\",outcome=\"ok\"}"), "{metrics}");
    let documented = include_str!("../../../../docs/metrics.md");
    for name in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(documented.contains(&format!("| `{name}` |")), "docs/metrics.md does not list {name}");
    }
    agent.terminate();
}

/// What any client may send.
#[test]
fn only_malformed_requests_are_refused() {
    let hub = Hub::start();
    let bootstrap = hub.issue();
    let agent = Agent::start(&hub, &bootstrap, &["external-dns", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0"]);
    agent.wait_until_ready();
    for (path, body, expected) in [
        ("/records", "", 400),
        ("/records", "[]", 400),
        ("/records", "{\"create\":1}", 400),
        ("/adjustendpoints", "{}", 400),
        ("/adjustendpoints", "[{\"recordTTL\":\"x\"}]", 400),
        ("/adjustendpoints", "null", 200),
        ("/records", "{}", 204),
        ("/elsewhere", "{}", 404),
    ] {
        let (status, text) = agent.post(path, body);
        assert_eq!(status, expected, "{path} {body}: {text}");
    }
    let record =
        |name: &str, target: &str| json!({ "dnsName": name, "recordType": "A", "targets": [target], "recordTTL": 60 });
    // ExternalDNS up to v0.16, and a record that the policy refuses beside one that it takes.
    let good = record("old.c1.fleet.example", "203.0.113.5");
    let bad = record("old.c2.fleet.example", "203.0.113.5");
    let changes = json!({ "Create": [bad, good], "UpdateOld": null, "UpdateNew": null, "Delete": null });
    assert_eq!(agent.post("/records", &changes.to_string()).0, 204);
    hub.wait_for("old.c1.fleet.example", &["203.0.113.5"]);
    assert!(agent.get("health", "/refused").1.contains("NotYours"));
    // What is refused is left out of what is wished for, and what is smuggled is gone.
    let mut smuggled = good.clone();
    smuggled["providerSpecific"] = json!([{ "name": "aws/weight", "value": "1" }]);
    smuggled["labels"] = json!({ "resource": "crd/shop/wishes" });
    let (status, adjusted) = agent.post("/adjustendpoints", &json!([bad, smuggled]).to_string());
    let adjusted: Value = serde_json::from_str(&adjusted).unwrap();
    assert_eq!((status, adjusted.as_array().unwrap().len()), (200, 1));
    assert_eq!(adjusted[0]["labels"]["resource"], "crd/shop/wishes");
    assert_eq!(adjusted[0]["providerSpecific"], Value::Null);
    let large = format!("{{\"create\":null,\"x\":\"{}\"}}", "x".repeat(20 << 20));
    assert_eq!(agent.post("/records", &large).0, 204, "20 MiB are not too much");
    agent.terminate();
}
