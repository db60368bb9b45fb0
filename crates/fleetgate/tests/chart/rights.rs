//! What each role may do on the hub: the table of `docs/install.md`, and nothing beside it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use testbed::KubectlError;

use crate::helm::{ALL_IN_ONE, EVERYTHING, Helm, NAMESPACE, install_page};
use crate::hub::Hub;

/// One of each kind that the chart knows, one of a tenant's, and one that is nobody's business.
const NAMESPACES: [(&str, &str); 8] = [
    (NAMESPACE, "own namespace"),
    ("zone-files", "`sources`"),
    ("fleetgate-kubeconfigs", "`kubeconfigs.namespaces`"),
    ("more-kubeconfigs", "`kubeconfigs.namespaces`"),
    ("fleetgate-publish", "`fleetgate-publish`"),
    ("shop", "`certificates.namespaces`"),
    ("acme", ""),
    ("kube-system", ""),
];

/// By resource, written `resource.group/name`: what may be done with it.
type Rights = BTreeMap<String, BTreeSet<String>>;

#[test]
fn each_role_may_do_what_the_table_says_and_nothing_else() {
    let (Some(helm), Some(hub)) = (Helm::find(), Hub::start()) else { return };
    hub.make_namespaces();
    hub.server.kubectl(&["create", "namespace", "acme"]).unwrap();
    hub.apply(&helm.render(EVERYTHING).unwrap(), &["--force-conflicts"]).unwrap();
    let [table, with_agents, with_resolver] = tables();
    for role in ["controller", "dns", "gateway"] {
        for (namespace, kind) in NAMESPACES {
            let granted = granted(&hub, &format!("fleetgate-{role}"), namespace);
            assert_eq!(granted, documented(&table, role, kind), "{role} in {namespace}");
        }
    }

    data_planes_can_neither_read_kubeconfigs_nor_write(&hub);

    let agents = format!("{EVERYTHING}agents: {{enabled: true}}\n");
    hub.apply(&helm.render(&agents).unwrap(), &["--force-conflicts"]).unwrap();
    let both = [&table[..], &with_agents].concat();
    for role in ["controller", "dns", "gateway"] {
        for (namespace, kind) in NAMESPACES {
            let granted = granted(&hub, &format!("fleetgate-{role}"), namespace);
            assert_eq!(granted, documented(&both, role, kind), "{role} in {namespace}, with agents");
        }
    }

    let resolver = format!("{EVERYTHING}resolver: {{enabled: true}}\n");
    hub.clear();
    hub.apply(&helm.render(&resolver).unwrap(), &["--force-conflicts"]).unwrap();
    let both = [&table[..], &with_resolver].concat();
    for role in ["controller", "dns", "gateway"] {
        for (namespace, kind) in NAMESPACES {
            let granted = granted(&hub, &format!("fleetgate-{role}"), namespace);
            assert_eq!(granted, documented(&both, role, kind), "{role} in {namespace}, with a resolver");
        }
    }
    // In some namespaces alone.
    hub.clear();
    let narrow = format!("{EVERYTHING}resolver: {{enabled: true, namespaces: [acme]}}\n");
    hub.apply(&helm.render(&narrow).unwrap(), &["--force-conflicts"]).unwrap();
    for (namespace, may) in [("acme", true), (NAMESPACE, true), ("kube-system", false)] {
        let services = granted(&hub, "fleetgate-controller", namespace).remove("services").unwrap();
        assert_eq!(services.contains("create"), may, "{namespace}");
    }

    hub.clear();
    let all_in_one = ALL_IN_ONE.to_owned()
        + "sources: [zone-files]\ncertificates: {namespaces: [shop]}\ndataKey: {existingSecret: my-data-key}\n";
    hub.apply(&helm.render(&all_in_one).unwrap(), &["--force-conflicts"]).unwrap();
    for (namespace, kind) in NAMESPACES.into_iter().filter(|(namespace, _)| *namespace != "more-kubeconfigs") {
        let granted = granted(&hub, "fleetgate", namespace);
        assert_eq!(granted, documented(&table, "controller", kind), "all in one in {namespace}");
    }
}

/// The same from the other side, in kubectl's words: what a data plane that was broken into cannot do.
fn data_planes_can_neither_read_kubeconfigs_nor_write(hub: &Hub) {
    for (role, verb, resource, namespace, expected) in [
        ("dns", "watch", "zones.fleetgate.dev", "", "yes"),
        ("dns", "list", "configmaps", NAMESPACE, "yes"),
        ("dns", "list", "configmaps", "kube-system", "no"),
        ("dns", "get", "secrets", NAMESPACE, "no"),
        ("dns", "get", "secrets", "fleetgate-kubeconfigs", "no"),
        ("dns", "patch", "zones.fleetgate.dev/status", "", "no"),
        ("gateway", "watch", "secrets", NAMESPACE, "yes"),
        ("gateway", "get", "secrets", "fleetgate-kubeconfigs", "no"),
        ("gateway", "list", "secrets", "", "no"),
        ("gateway", "list", "secrets", "shop", "yes"),
        ("gateway", "list", "secrets", "acme", "no"),
        ("dns", "list", "secrets", "shop", "no"),
        ("gateway", "patch", "clusters.fleetgate.dev/status", "", "no"),
        ("gateway", "create", "dnsendpoints.externaldns.k8s.io", "fleetgate-publish", "no"),
        ("controller", "get", "secrets", "fleetgate-kubeconfigs", "yes"),
        ("controller", "list", "secrets", "", "no"),
        ("controller", "create", "secrets", NAMESPACE, "no"),
        ("controller", "patch", "secrets/fleetgate-admission", NAMESPACE, "yes"),
        ("controller", "patch", "secrets/another", NAMESPACE, "no"),
        ("controller", "patch", "validatingwebhookconfigurations/fleetgate", "", "yes"),
        ("controller", "create", "validatingwebhookconfigurations/another", "", "no"),
        ("gateway", "patch", "secrets/fleetgate-admission", NAMESPACE, "no"),
        ("controller", "patch", "clusters.fleetgate.dev/status", "", "yes"),
        ("controller", "patch", "clusters.fleetgate.dev", "", "yes"),
        ("gateway", "patch", "clusters.fleetgate.dev", "", "no"),
        ("controller", "delete", "clusters.fleetgate.dev", "", "no"),
        ("controller", "create", "dnsendpoints.externaldns.k8s.io", "fleetgate-publish", "yes"),
        ("controller", "create", "dnsendpoints.externaldns.k8s.io", "acme", "no"),
        ("controller", "update", "leases.coordination.k8s.io/fleetgate-controller", NAMESPACE, "yes"),
        ("controller", "update", "leases.coordination.k8s.io/another", NAMESPACE, "no"),
        ("gateway", "watch", "leases.coordination.k8s.io/fleetgate-controller", NAMESPACE, "yes"),
        ("dns", "watch", "leases.coordination.k8s.io/fleetgate-controller", NAMESPACE, "yes"),
        ("dns", "get", "leases.coordination.k8s.io/another", NAMESPACE, "no"),
        ("gateway", "update", "leases.coordination.k8s.io/fleetgate-controller", NAMESPACE, "no"),
        ("controller", "create", "tokenreviews.authentication.k8s.io", "", "yes"),
        ("gateway", "create", "tokenreviews.authentication.k8s.io", "", "no"),
    ] {
        let account = format!("--as=system:serviceaccount:{NAMESPACE}:fleetgate-{role}");
        let namespace =
            if namespace.is_empty() { "--all-namespaces".into() } else { format!("--namespace={namespace}") };
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, "status")) => (resource.to_owned(), "--subresource=status"),
            _ => (resource.to_owned(), "--subresource="),
        };
        // A no is an exit code too, which is no failure here.
        let asked = ["auth", "can-i", verb, &resource, subresource, &account, &namespace];
        let said = match hub.server.kubectl(&asked) {
            Ok(said) => said.trim().to_owned(),
            Err(KubectlError::Refused { stderr, .. }) if !stderr.to_lowercase().contains("error") => "no".into(),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(said, expected, "{role}: {verb} {resource} {namespace}");
    }
}

/// What the API server says that an account may do in a namespace.
fn granted(hub: &Hub, account: &str, namespace: &str) -> Rights {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace},
    });
    let user = format!("--as=system:serviceaccount:{NAMESPACE}:{account}");
    let groups = ["system:authenticated", "system:serviceaccounts", &format!("system:serviceaccounts:{NAMESPACE}")]
        .map(|group| format!("--as-group={group}"));
    // To check it before it is sent, kubectl would read definitions, as the account.
    let ask = ["create", "--validate=false", "-f", "-", "--output", "json", &user, &groups[0], &groups[1], &groups[2]];
    let answer = hub.server.kubectl_with_input(&ask, &review.to_string()).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["status"]["incomplete"], false, "{answer}");
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap_or_default() };
    let mut rights = Rights::new();
    for rule in answer["status"]["resourceRules"].as_array().unwrap() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                // Everybody may ask who they are and what they may do.
                let about_oneself = resource.starts_with("selfsubject");
                if ["authentication.k8s.io", "authorization.k8s.io"].contains(&&*group) && about_oneself {
                    continue;
                }
                let whole = if group.is_empty() { resource } else { format!("{resource}.{group}") };
                let named: Vec<String> =
                    texts(&rule["resourceNames"]).iter().map(|name| format!("{whole}/{name}")).collect();
                for place in if named.is_empty() { vec![whole] } else { named } {
                    rights.entry(place).or_default().extend(texts(&rule["verbs"]));
                }
            }
        }
    }
    rights
}

/// The rows of the tables: who, where, what, may. The second is what `agents.enabled` adds, the third what `resolver.enabled` does.
fn tables() -> [Vec<[String; 4]>; 3] {
    let text = install_page();
    let cells = |line: &str| -> [String; 4] {
        let cells: Vec<String> = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        cells.try_into().unwrap()
    };
    let tables = text.split("| who | where | what | may |\n").skip(1);
    let tables =
        tables.map(|table| table.lines().skip(1).take_while(|line| line.starts_with('|')).map(cells).collect());
    tables.collect::<Vec<_>>().try_into().unwrap()
}

fn documented(table: &[[String; 4]], role: &str, kind: &str) -> Rights {
    let mut rights = Rights::new();
    for [who, place, what, may] in table {
        let concerns = |cell: &str, word: &str| cell.split(", ").any(|part| part == word);
        let everywhere = place == "everywhere";
        if !(concerns(who, role) || who == "all") || !(everywhere || concerns(place, kind)) {
            continue;
        }
        for resource in what.split(", ") {
            let resource = resource.trim_matches('`').to_owned();
            rights.entry(resource).or_default().extend(may.split(", ").map(str::to_owned));
        }
    }
    rights
}
