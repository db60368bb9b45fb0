//! A tenant's `DNSEndpoint`s through the hub, with kill -9 of either side at every step, and the verdicts beside them.

use std::fs;

use serde_json::{Value, json};
use testbed::ApiServer;

use crate::fixture::{Agent, Hub, NODE, dns_endpoint, eventually, install, tenant};

const WEB: &str = "web.c1.fleet.example";

fn field(tenant: &ApiServer, object: &[&str], path: &str) -> String {
    let path = format!("jsonpath={{{path}}}");
    tenant.kubectl(&[&["get", "-n", "shop"], object, &["-o", &path]].concat()).unwrap_or_default()
}

/// Waits until the Verdict of an object is about what the object is now, with as many parts published and refused.
fn wait_for_verdict(tenant: &ApiServer, name: &str, published: &str, refused: &str) {
    eventually(&format!("{name}: {published} published, {refused} refused"), || {
        let of = |path: &str| field(tenant, &["verdicts.fleetgate.dev", name], path);
        let generation = field(tenant, &["dnsendpoint", name], ".metadata.generation");
        let counts = of(".spec.published") == published && of(".spec.refused") == refused;
        (counts && of(".spec.object.generation") == generation).then_some(())
    });
}

/// A good record and one that is another tenant's.
fn wishes(target: &str) -> String {
    dns_endpoint("wishes", &[(WEB, target), ("web.c2.fleet.example", target)])
}

#[test]
fn records_and_verdicts_survive_the_death_of_either_side_at_every_step() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let mut hub = Hub::start();
    let tenant = tenant(&kubernetes);
    install(&tenant, &manifest::crds::to_yaml());
    let bootstrap = hub.issue();
    let kubeconfig = tenant.kubeconfig_path().to_str().unwrap();
    let mut agent = Agent::start(&hub, &bootstrap, &["sync", "--kubeconfig", kubeconfig, "--health", "127.0.0.1:0"]);
    agent.wait_until_ready();
    // So that no list is ever empty.
    tenant.kubectl_apply(&dns_endpoint("stays", &[("stays.c1.fleet.example", "203.0.113.99")])).unwrap();

    // Each step with nobody dead, the agent dead, the hub dead, and both.
    let mut target = 0;
    for (kill_agent, kill_hub) in [(false, false), (true, false), (false, true), (true, true)] {
        let step = |hub: &mut Hub, agent: &mut Agent, change: &dyn Fn()| {
            if kill_agent {
                agent.kill();
            }
            if kill_hub {
                hub.kill();
            }
            change();
            if kill_hub {
                hub.start_again();
            }
            if kill_agent {
                agent.start_again();
            }
        };
        target += 1;
        let first = format!("203.0.113.{target}");
        step(&mut hub, &mut agent, &|| drop(tenant.kubectl_apply(&wishes(&first)).unwrap()));
        hub.wait_for(WEB, &[&first]);
        wait_for_verdict(&tenant, "wishes", "1", "1");
        target += 1;
        let second = format!("203.0.113.{target}");
        step(&mut hub, &mut agent, &|| drop(tenant.kubectl_apply(&wishes(&second)).unwrap()));
        hub.wait_for(WEB, &[&second]);
        wait_for_verdict(&tenant, "wishes", "1", "1");
        step(&mut hub, &mut agent, &|| {
            drop(tenant.kubectl(&["delete", "dnsendpoint", "wishes", "-n", "shop"]).unwrap());
        });
        hub.wait_for(WEB, &[NODE]);
        assert_eq!(hub.resolve("stays.c1.fleet.example", "A"), ["203.0.113.99"]);
    }

    let verdict = ["verdicts.fleetgate.dev", "wishes"];
    assert_eq!(field(&tenant, &verdict, ".spec.parts[1].code"), "NotYours");
    let uid = field(&tenant, &["dnsendpoint", "stays"], ".metadata.uid");
    let stays = ["verdicts.fleetgate.dev", "stays"];
    assert_eq!(field(&tenant, &stays, ".metadata.ownerReferences[0].uid"), uid);
    // Nothing is written that says nothing new, and what somebody takes away comes back.
    let version = field(&tenant, &stays, ".metadata.resourceVersion");
    agent.kill();
    agent.start_again();
    agent.wait_until_ready();
    tenant.kubectl_apply(&wishes("203.0.113.50")).unwrap();
    hub.wait_for(WEB, &["203.0.113.50"]);
    wait_for_verdict(&tenant, "wishes", "1", "1");
    assert_eq!(field(&tenant, &stays, ".metadata.resourceVersion"), version);
    tenant.kubectl(&["delete", "-n", "shop", "verdicts.fleetgate.dev", "stays"]).unwrap();
    wait_for_verdict(&tenant, "stays", "1", "0");

    // The kind goes, and with it all objects: nothing is concluded from that.
    agent.kill();
    tenant.kubectl(&["delete", "crd", "dnsendpoints.externaldns.k8s.io", "--wait=false"]).unwrap();
    agent.start_again();
    agent.process.wait_for_line("has no kind DNSEndpoint", crate::fixture::PATIENCE).unwrap();
    assert_eq!(hub.resolve("stays.c1.fleet.example", "A"), ["203.0.113.99"]);
    agent.terminate();
}

#[test]
fn a_revoked_agent_says_so_and_goes_on_with_a_new_bootstrap_file() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = Hub::start();
    let tenant = tenant(&kubernetes);
    let bootstrap = hub.issue();
    let kubeconfig = tenant.kubeconfig_path().to_str().unwrap();
    let role = ["sync", "--kubeconfig", kubeconfig, "--namespace", "shop", "--health", "127.0.0.1:0"];
    let mut agent = Agent::start(&hub, &bootstrap, &role);
    tenant.kubectl_apply(&wishes("203.0.113.1")).unwrap();
    hub.wait_for(WEB, &["203.0.113.1"]);
    // Without the kind Verdict it is told by an Event, and once the kind is there by a Verdict.
    eventually("an Event about the refused record", || {
        let reason =
            field(&tenant, &["events", "--field-selector=involvedObject.kind=DNSEndpoint"], ".items[*].reason");
        (reason == "NotYours").then_some(())
    });
    assert!(agent.process.log().contains("fleetgate crds"), "{}", agent.process.log_tail());
    install(&tenant, &manifest::crds::to_yaml());
    wait_for_verdict(&tenant, "wishes", "1", "1");
    assert!(agent.get("health", "/refused").1.contains("shop/wishes"));

    hub.revoke_all();
    tenant.kubectl_apply(&wishes("203.0.113.2")).unwrap();
    agent.process.wait_for_line("does not take our credential", crate::fixture::PATIENCE).unwrap();
    assert_eq!(hub.resolve(WEB, "A"), ["203.0.113.1"]);
    assert_eq!(hub.issue(), bootstrap);
    hub.wait_for(WEB, &["203.0.113.2"]);
    wait_for_verdict(&tenant, "wishes", "1", "1");
    agent.terminate();
}

/// A certificate lasts for an hour: here its file is made older than it is.
#[test]
fn a_certificate_is_renewed_before_it_is_over_and_bought_anew_when_it_is_lost() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = Hub::start();
    let tenant = tenant(&kubernetes);
    let bootstrap = hub.issue();
    let kubeconfig = tenant.kubeconfig_path().to_str().unwrap();
    let mut agent = Agent::start(&hub, &bootstrap, &["sync", "--kubeconfig", kubeconfig, "--health", "127.0.0.1:0"]);
    agent.wait_until_ready();
    let file = hub.state_folder().join("sync.json");
    let read = || serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).unwrap();
    let enrolments = || hub.log().matches("an agent has enrolled").count();
    assert_eq!(enrolments(), 1);

    for (spoil, bought) in [
        // More than two thirds of its time are over.
        (Box::new(|kept: &mut Value| kept["received"] = json!(1)) as Box<dyn Fn(&mut Value)>, 0),
        (Box::new(|kept: &mut Value| kept["expires"] = json!(2)), 1),
        (Box::new(|kept: &mut Value| *kept = json!("nothing that could be read")), 1),
        // One of another hub's, which this one does not let in.
        (
            Box::new(|kept: &mut Value| {
                let key = rcgen::KeyPair::generate().unwrap();
                let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
                (kept["key"], kept["certificate"]) = (key.serialize_pem().into(), certificate.pem().into());
            }),
            1,
        ),
    ] {
        agent.kill();
        let before = enrolments();
        let mut kept = read();
        let certificate = kept["certificate"].clone();
        spoil(&mut kept);
        fs::write(&file, kept.to_string()).unwrap();
        agent.start_again();
        agent.wait_until_ready();
        eventually("another certificate", || {
            let now = serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).unwrap();
            (now["certificate"].is_string() && now["certificate"] != certificate && now != kept).then_some(())
        });
        assert_eq!(enrolments() - before, bought, "{}", agent.process.log_tail());
    }
    let documented = include_str!("../../../../docs/metrics.md");
    let (_, metrics) = agent.get("health", "/metrics");
    for name in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(documented.contains(&format!("| `{name}` |")), "docs/metrics.md does not list {name}");
    }
    agent.terminate();
}
