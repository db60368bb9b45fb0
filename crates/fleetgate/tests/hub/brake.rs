//! `kubectl delete --all` by mistake: the names stay, also for processes that start anew, until somebody lets them go.

use std::path::Path;

use serde_json::Value;
use testbed::ApiServer;

use crate::fixture::{Server, ZONE, eventually, field, fleetgate, given_cluster, hub};

const TENANT: [&str; 2] = ["tenants.fleetgate.dev", "acme"];

/// Two objects of fifteen names each, of which no share may go.
fn records() -> String {
    let object = |half: usize| {
        let names = (half * 15..(half + 1) * 15)
            .map(|number| format!("  - {{dnsName: n{number}.c1.fleet.example, recordType: TXT, targets: [here]}}\n"));
        let head = "apiVersion: externaldns.k8s.io/v1alpha1\nkind: DNSEndpoint\n";
        let names: String = names.collect();
        format!("{head}metadata: {{name: web{half}, namespace: acme}}\nspec:\n  endpoints:\n{names}")
    };
    format!("{}---\n{}", object(0), object(1))
}

fn served(server: &Server) -> usize {
    let is_served = |number: &usize| server.resolve(&format!("n{number}.c1.fleet.example"), "TXT") == ["\"here\""];
    (0..30).filter(is_served).count()
}

fn serve(hub: &ApiServer, admin: &Path) -> Server {
    let arguments = ["serve", "--hub", "--dns", "127.0.0.1:0", "--admin-credential", admin.to_str().unwrap()];
    Server::start_informed(hub.kubeconfig_path(), &arguments)
}

fn events(hub: &ApiServer, reason: &str) -> usize {
    let list = hub.kubectl(&["get", "events.events.k8s.io", "-n", "default", "-o", "json"]).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    list["items"].as_array().unwrap().iter().filter(|event| event["reason"] == reason).count()
}

#[test]
fn names_that_go_in_a_mass_are_held_past_restarts_until_they_are_released() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(&ZONE.replace("grace: 1s", "grace: 1s, maxShare: 0.1")).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 1)).unwrap();
    hub.kubectl_apply(&records()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let admin = folder.path().join("admin");
    std::fs::write(&admin, "a-secret-of-at-least-32-characters").unwrap();

    let server = serve(&hub, &admin);
    let all_served = |server: &Server| (served(server) == 30).then_some(());
    eventually("all are served", || all_served(&server));
    hub.kubectl(&["delete", "dnsendpoints.externaldns.k8s.io", "-n", "acme", "--all"]).unwrap();
    let held = || {
        let message = field(&hub, &TENANT, ".status.conditions[?(@.type==\"WithdrawalsHeld\")].message");
        message.starts_with("30 records of acme").then_some(())
    };
    eventually("the Tenant says that they are held", held);
    eventually("an Event says so", || (events(&hub, "WithdrawalsHeld") == 1).then_some(()));
    assert_eq!(served(&server), 30);
    drop(server);

    let server = serve(&hub, &admin);
    eventually("they are served after a restart", || all_served(&server));
    eventually("the new leader says so too", held);
    let release = |with_credential: bool| {
        let mut command = fleetgate();
        command.args(["release", "tenant", "acme", "--admin", &server.address("admin").to_string()]);
        if with_credential {
            command.arg("--admin-credential").arg(&admin);
        }
        command.output().unwrap()
    };
    let refused = release(false);
    assert!(!refused.status.success(), "{refused:?}");
    assert_eq!(field(&hub, &TENANT, ".metadata.annotations.fleetgate\\.dev/released"), "");
    let released = release(true);
    assert_eq!(String::from_utf8_lossy(&released.stdout), "30 names of Tenant acme are let go\n", "{released:?}");
    assert!(!field(&hub, &TENANT, ".metadata.annotations.fleetgate\\.dev/released").is_empty());
    eventually("they are gone", || (served(&server) == 0).then_some(()));
    eventually("the status is as before", || {
        let status = field(&hub, &TENANT, ".status");
        (!status.contains("WithdrawalsHeld") && !status.contains("held")).then_some(())
    });
    eventually("an Event says so", || (events(&hub, "NothingHeld") == 1).then_some(()));
}
