//! Without an egress selector: names by our resolver, and connections by the packet filter and the side-car.

use std::process::Command;

use testbed::ApiServer;

use crate::control_planes::{register, the_webhook_refuses};
use crate::fixture::{A, B, EGRESS, World, dig, fleetgate, printed, run};
use crate::tenant::{SHOP, Tenant, WEBHOOK, programs};

const LISTEN: &str = "127.0.0.1:8453";

/// The name of the webhook has to be resolved here, which only our resolver can.
#[test]
fn an_api_server_without_a_selector_reaches_its_cluster_by_resolver_and_side_car() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let (Some(programs), Some(mut world)) = (programs(), World::start()) else { return };
    let tenant = Tenant::start(&mut world, &programs, A);
    let _sidecar = start_sidecar(&tenant);

    let server = ApiServer::start_on_host(&kubernetes, &tenant.control.host, &[&tenant.place.api_name()], &[]).unwrap();
    register(&server, &tenant);
    the_webhook_refuses(&server, &tenant, "by-service");
    the_webhook_refuses(&server, &tenant, "by-name");
    assert!(tenant.dns.asked("webhook.default.svc.cluster.local") > 0, "somebody else resolved it");
}

/// As a controller or a provisioner would, which knows nothing of all this.
#[test]
fn any_program_of_a_control_plane_resolves_and_reaches_services_of_its_cluster() {
    let (Some(programs), Some(mut world)) = (programs(), World::start()) else { return };
    let tenants = [A, B].map(|place| Tenant::start(&mut world, &programs, place));
    let _sidecars = [0, 1].map(|number| start_sidecar(&tenants[number]));

    for tenant in &tenants {
        // By the search list of its resolv.conf, in full, and past DNS, to a pod.
        for url in ["http://shop.default.svc/", "http://shop.default.svc.cluster.local/", "http://10.20.0.7:8080/"] {
            let answer = printed(&tenant.control.host, &curl(url));
            assert_eq!(answer, Ok(tenant.greeting()), "{url}\n{}", tenant.agent.log_tail());
        }
        for transport in ["+notcp", "+tcp"] {
            let answer = dig(tenant, &[transport, "+short", "webhook.default.svc.cluster.local"]);
            assert_eq!(answer.trim_end(), WEBHOOK, "{transport}");
        }
        let absent = dig(tenant, &["absent.default.svc.cluster.local"]);
        assert!(absent.contains("status: NXDOMAIN"), "{absent}");
    }
    // Somebody else's control plane reaches nothing by that: the addresses are its own cluster's.
    let hub = printed(&world.network.hub, &curl(&format!("http://{SHOP}/")));
    assert!(hub.is_err(), "{hub:?}");
}

fn curl(url: &str) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60", url]);
    curl
}

/// With the rules that it prints for the tenant's networks.
fn start_sidecar(tenant: &Tenant) -> testbed::Process {
    let mut rules = fleetgate();
    // Everything here is one user, so that the side-car is told from others by where it goes.
    rules.args(["egress", "sidecar", "--listen", LISTEN, "--print-rules", "--uid", "1"]);
    let host = &tenant.control.host;
    let rules = printed(host, rules.args(["--cidr", "10.10.0.0/16,10.20.0.0/16"])).unwrap();
    host.nft(&rules).unwrap();
    let mut command = fleetgate();
    command.args(["egress", "sidecar", "--listen", LISTEN, "--log-format", "json"]);
    command.args(["--gateway", &format!("{}:{EGRESS}", tenant.place.gateway())]);
    run(host, command.arg("--credential").arg(&tenant.credential), "ready")
}
