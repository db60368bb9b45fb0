//! What Helm makes of values, and which it refuses.

use serde_json::{Value, json};

use crate::helm::{
    AGENTS, ALL_IN_ONE, DEFAULT, Helm, INTO_CLUSTERS, NAMESPACE, SETS, chart, install_page, yaml_blocks,
};

#[test]
fn helm_has_nothing_to_say_against_the_chart() {
    let Some(helm) = Helm::find() else { return };
    for (name, values) in SETS {
        let said =
            helm.run_with(&["lint", "--strict", &chart()], values).unwrap_or_else(|error| panic!("{name}: {error}"));
        // An icon would have to be somewhere on the web.
        let remarks = said.lines().filter(|line| line.starts_with('[') && !line.contains("icon is recommended"));
        assert_eq!(remarks.count(), 0, "{name}: {said}");
    }
}

#[test]
fn an_image_has_to_be_named() {
    let Some(helm) = Helm::find() else { return };
    let said = helm.render("").unwrap_err().to_string();
    assert!(said.contains("image.repository is required: build an image with the Dockerfile"), "{said}");
}

#[test]
fn values_that_make_no_sense_are_refused() {
    let Some(helm) = Helm::find() else { return };
    for (wrong, place) in [
        ("dns: {kindd: StatefulSet}", "'/dns': additional properties 'kindd' not allowed"),
        ("dsn: {}", "additional properties 'dsn' not allowed"),
        ("mode: both", "'/mode'"),
        ("log: {format: xml}", "'/log/format'"),
        ("listenAddress: \"::\"", "'/listenAddress'"),
        ("controller: {replicas: 0}", "'/controller/replicas'"),
        ("controller: {kind: DaemonSet}", "'/controller': additional properties 'kind' not allowed"),
        ("dns: {kind: Pod}", "'/dns/kind'"),
        ("dns: {rateLimit: -1}", "'/dns/rateLimit'"),
        ("dns: {replicas: \"2\"}", "'/dns/replicas'"),
        ("dns: {service: {type: ExternalName}}", "'/dns/service/type'"),
        ("dns: {service: {port: 65536}}", "'/dns/service/port'"),
        ("dns: {persistence: {size: big}}", "'/dns/persistence/size'"),
        ("gateway: {drainSeconds: 1.5}", "'/gateway/drainSeconds'"),
        ("gateway: {drainSeconds: -1}", "'/gateway/drainSeconds'"),
        ("gateway: {trustedProxies: [10.0.0.1]}", "'/gateway/trustedProxies/0'"),
        ("gateway: {http: true}", "'/gateway/http'"),
        ("gateway: {service: {httpPort: 0}}", "'/gateway/service/httpPort'"),
        ("agents: {enabled: \"yes\"}", "'/agents/enabled'"),
        ("agents: {replicas: 2}", "'/agents': additional properties 'replicas' not allowed"),
        ("agents: {service: {port: 0}}", "'/agents/service/port'"),
        ("admin: {credential: secret}", "'/admin': additional properties 'credential' not allowed"),
        ("admission: {failurePolicy: fail}", "'/admission/failurePolicy'"),
        ("resolver: {ports: 20000}", "'/resolver/ports'"),
        ("resolver: {podsFailurePolicy: fail}", "'/resolver/podsFailurePolicy'"),
        ("resolver: {namespaces: [Control_Planes]}", "'/resolver/namespaces/0'"),
        ("resolver: {upstreams: [dns.example]}", "'/resolver/upstreams/0'"),
        ("tunnel: {egress: {port: 0}}", "'/tunnel/egress/port'"),
        ("sources: [Fleet_Gate]", "'/sources/0'"),
        ("kubeconfigs: {namespaces: [a, a]}", "'/kubeconfigs/namespaces'"),
        ("networkPolicies: {apiServerPorts: []}", "'/networkPolicies/apiServerPorts'"),
        ("networkPolicies: {memberPorts: [http]}", "'/networkPolicies/memberPorts/0'"),
        ("serviceMonitor: {enabled: \"yes\"}", "'/serviceMonitor/enabled'"),
    ] {
        let said = helm.render(&format!("{DEFAULT}{wrong}\n")).expect_err(wrong).to_string();
        assert!(said.contains(place), "{wrong}: {said}");
    }
    let said = helm.render("image: {repository: r, digest: sha256:12}").unwrap_err().to_string();
    assert!(said.contains("'/image/digest'"), "{said}");
}

/// The values of `docs/install.md`, as somebody would copy them from there.
#[test]
fn documented_values_are_taken() {
    let Some(helm) = Helm::find() else { return };
    let text = install_page();
    let (values, _) = yaml_blocks(&text);
    assert!(!values.is_empty());
    for values in values {
        helm.render(values).unwrap_or_else(|said| panic!("{values}\n{said}"));
    }

    let flags = text.split("--set ").skip(1).map(|rest| rest.split([' ', '\n', '`']).next().unwrap());
    let flags: Vec<&str> = flags.filter(|flag| flag.contains('=')).collect();
    assert!(flags.len() > 5, "{flags:?}");
    for flag in flags {
        helm.render_with(DEFAULT, &["--set", flag]).unwrap_or_else(|said| panic!("{flag}: {said}"));
    }
}

#[test]
fn the_agents_door_is_on_whoever_leads() {
    let Some(helm) = Helm::find() else { return };
    for (values, workload, component) in [
        (AGENTS.to_owned(), ["Deployment", "fleetgate-controller"], "controller"),
        (format!("{AGENTS}mode: allInOne\n"), ["StatefulSet", "fleetgate"], "all-in-one"),
    ] {
        let objects = objects(&helm.render(&values).unwrap());
        let [kind, name] = workload;
        let find = |kind: &str, name: &str| object(&objects, kind, name).unwrap_or_else(|| panic!("{kind} {name}"));

        let pod = &find(kind, name)["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        for argument in ["--agents=0.0.0.0:8444", "--admin-credential=/etc/fleetgate/admin/credential"] {
            assert!(has(&container["args"], &json!(argument)), "{name}: {argument}");
        }
        let port = json!({"name": "agents", "containerPort": 8444, "protocol": "TCP"});
        assert!(has(&container["ports"], &port), "{name}");
        let mount = json!({"name": "admin", "mountPath": "/etc/fleetgate/admin", "readOnly": true});
        assert!(has(&container["volumeMounts"], &mount), "{name}");
        let volume = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "admin").unwrap();
        assert_eq!(volume["secret"]["secretName"], "my-admin", "{name}");
        assert_eq!(volume["secret"]["items"], json!([{"key": "credential", "path": "credential"}]), "{name}");

        let service = &find("Service", "fleetgate-agents")["spec"];
        assert_eq!(service["type"], "LoadBalancer");
        assert_eq!(service["selector"]["app.kubernetes.io/component"], component);
        let port = json!({"name": "agents", "port": 8444, "targetPort": "agents", "protocol": "TCP"});
        assert_eq!(service["ports"], json!([port]));

        let doors = &find("NetworkPolicy", name)["spec"]["ingress"][0];
        assert!(has(&doors["ports"], &json!({"port": "agents", "protocol": "TCP"})), "{name}");
        assert_eq!(doors["from"], Value::Null, "{name}: for everybody");

        let claims = rule("externaldns.k8s.io", "dnsendpoints", &["create", "patch", "delete"]);
        assert!(has(&find("ClusterRole", name)["rules"], &claims), "{name}");
        let ours = objects.iter().find(|object| is(object, "Role", name) && in_release_namespace(object)).unwrap();
        let mut authority = rule("", "secrets", &["update"]);
        authority["resourceNames"] = json!(["fleetgate-agents-authority"]);
        for rule in [rule("", "secrets", &["create", "delete"]), authority] {
            assert!(has(&ours["rules"], &rule), "{name}: {rule}");
        }
    }
}

#[test]
fn the_resolver_is_where_dns_is_and_control_planes_are_led_there() {
    let Some(helm) = Helm::find() else { return };
    for (more, dns, controller) in [
        ("", ["StatefulSet", "fleetgate-dns"], ["Deployment", "fleetgate-controller"]),
        ("mode: allInOne\n", ["StatefulSet", "fleetgate"], ["StatefulSet", "fleetgate"]),
    ] {
        let objects = objects(&helm.render(&format!("{INTO_CLUSTERS}{more}")).unwrap());
        let find = |kind: &str, name: &str| object(&objects, kind, name).unwrap_or_else(|| panic!("{kind} {name}"));
        let arguments =
            |[kind, name]: [&str; 2]| find(kind, name)["spec"]["template"]["spec"]["containers"][0]["args"].clone();
        for argument in ["--resolver=0.0.0.0:20000-29999", "--resolver-upstream=10.96.0.10,[2001:db8::53]:5353"] {
            assert!(has(&arguments(dns), &json!(argument)), "{argument}");
        }
        for argument in [
            "--resolver-service=fleetgate-resolver",
            "--resolver-ports=20000-29999",
            "--admission-pods-failure-policy=fail",
        ] {
            assert!(has(&arguments(controller), &json!(argument)), "{argument}");
        }
        for workload in [dns, controller] {
            assert!(has(&arguments(workload), &json!("--resolver-hub-domain=cluster.local")));
        }
        let service = &find("Service", "fleetgate-resolver")["spec"];
        assert_eq!(service["clusterIP"], "None");
        let labels = &find(dns[0], dns[1])["spec"]["selector"]["matchLabels"];
        assert_eq!(&service["selector"], labels);
        assert!(object(&objects, "MutatingWebhookConfiguration", "fleetgate").is_some());
        let policy = &find("NetworkPolicy", dns[1])["spec"]["ingress"];
        let ports = ["UDP", "TCP"].map(|protocol| json!({"port": 20000, "endPort": 29999, "protocol": protocol}));
        assert!(has(policy, &json!({"ports": ports, "from": [{"namespaceSelector": {}}]})), "{policy}");
    }
    for without in [DEFAULT, "image: {repository: fleetgate}\ndns: {enabled: false}\nresolver: {enabled: true}\n"] {
        let objects = objects(&helm.render(without).unwrap());
        let said = objects.iter().filter(|object| object["kind"] != "CustomResourceDefinition");
        assert!(said.clone().all(|object| !object.to_string().contains("resolver")));
        assert!(said.clone().all(|object| object["kind"] != "MutatingWebhookConfiguration"));
    }
}

#[test]
fn gateways_take_links_and_control_planes() {
    let Some(helm) = Helm::find() else { return };
    let all = objects(&helm.render(INTO_CLUSTERS).unwrap());
    let gateway =
        &object(&all, "StatefulSet", "fleetgate-gateway").unwrap()["spec"]["template"]["spec"]["containers"][0];
    for argument in ["--agents=0.0.0.0:8444", "--relay=0.0.0.0:9637", "--egress=0.0.0.0:9638"] {
        assert!(has(&gateway["args"], &json!(argument)), "{argument}");
    }
    let address = json!({"name": "FLEETGATE_RELAY_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
    assert!(has(&gateway["env"], &address));
    for (service, port) in [("fleetgate-links", "agents"), ("fleetgate-egress", "egress")] {
        let spec = &object(&all, "Service", service).unwrap()["spec"];
        assert_eq!(spec["ports"][0]["targetPort"], port);
        assert_eq!(spec["selector"]["app.kubernetes.io/component"], "gateway");
    }
    let ours = json!({"app.kubernetes.io/name": "fleetgate", "app.kubernetes.io/instance": "fleetgate"});
    let relay =
        json!({"ports": [{"port": "relay", "protocol": "TCP"}], "from": [{"podSelector": {"matchLabels": ours}}]});
    assert!(has(&object(&all, "NetworkPolicy", "fleetgate-gateway").unwrap()["spec"]["ingress"], &relay));
    // All in one, agents have one door.
    let one = objects(&helm.render(&format!("{INTO_CLUSTERS}mode: allInOne\n")).unwrap());
    assert!(
        object(&one, "Service", "fleetgate-links").is_none() && object(&one, "Service", "fleetgate-agents").is_some()
    );
    let arguments =
        &object(&one, "StatefulSet", "fleetgate").unwrap()["spec"]["template"]["spec"]["containers"][0]["args"];
    let doors =
        arguments.as_array().unwrap().iter().filter(|argument| argument.as_str().unwrap().starts_with("--agents="));
    assert_eq!((doors.count(), has(arguments, &json!("--relay=0.0.0.0:9637"))), (1, true));
    // Agents enrol at controllers: without that door there are no links.
    let without = helm.render("image: {repository: fleetgate}\ntunnel: {enabled: true}\n").unwrap();
    assert!(!without.contains("--relay"));
}

#[test]
fn gateways_serve_federated_ingresses_unless_told_otherwise() {
    let Some(helm) = Helm::find() else { return };
    for (more, workload) in [("", "fleetgate-gateway"), ("mode: allInOne\n", "fleetgate")] {
        let values = format!("{DEFAULT}gateway: {{service: {{sniPort: 8443, httpPort: 8000}}}}\n{more}");
        let all = objects(&helm.render(&values).unwrap());
        let container = &object(&all, "StatefulSet", workload).unwrap()["spec"]["template"]["spec"]["containers"][0];
        for argument in ["--http=0.0.0.0:8080", "--https=0.0.0.0:8443", "--https-port=8443"] {
            assert!(has(&container["args"], &json!(argument)), "{workload}: {argument}");
        }
        let port = json!({"name": "http", "containerPort": 8080, "protocol": "TCP"});
        assert!(has(&container["ports"], &port), "{workload}");
        let port = json!({"name": "http", "port": 8000, "targetPort": "http", "protocol": "TCP"});
        assert!(has(&object(&all, "Service", "fleetgate-gateway").unwrap()["spec"]["ports"], &port));
        let doors = &object(&all, "NetworkPolicy", workload).unwrap()["spec"]["ingress"][0]["ports"];
        assert!(has(doors, &json!({"port": "http", "protocol": "TCP"})), "{workload}");

        let without = format!("{DEFAULT}gateway: {{http: {{enabled: false}}}}\n{more}");
        let without = helm.render(&without).unwrap();
        assert!(!without.contains("--http") && !without.contains("name: http,"), "{workload}");
    }
}

/// Neither the data planes, nor anybody by default.
#[test]
fn nobody_else_has_an_agents_door() {
    let Some(helm) = Helm::find() else { return };
    let said = |object: &Value| object.to_string().contains("agent");
    let by_default = helm.render(DEFAULT).unwrap();
    for object in objects(&by_default).iter().filter(|object| object["kind"] != "CustomResourceDefinition") {
        assert!(!said(object) && !object.to_string().contains("/admin"), "{object}");
    }
    for object in objects(&helm.render(AGENTS).unwrap()) {
        if ["dns", "gateway"].iter().any(|role| object["metadata"]["name"] == format!("fleetgate-{role}")) {
            assert!(!said(&object) && !object.to_string().contains("/admin"), "{object}");
        }
    }
}

/// By the other pods of the release, at the pod's own address; nobody else knows of it.
#[test]
fn whoever_leads_is_met_by_its_own_alone() {
    let Some(helm) = Helm::find() else { return };
    for (values, workload, accounts) in [
        (DEFAULT, ["Deployment", "fleetgate-controller"], "fleetgate-controller,fleetgate-dns,fleetgate-gateway"),
        (ALL_IN_ONE, ["StatefulSet", "fleetgate"], "fleetgate"),
    ] {
        let objects = objects(&helm.render(values).unwrap());
        let [kind, name] = workload;
        let find = |kind: &str, name: &str| object(&objects, kind, name).unwrap_or_else(|| panic!("{kind} {name}"));
        let container = &find(kind, name)["spec"]["template"]["spec"]["containers"][0];
        for argument in ["--peers=0.0.0.0:9634".to_owned(), format!("--peers-accounts={accounts}")] {
            assert!(has(&container["args"], &json!(argument)), "{name}: {argument}");
        }
        assert!(
            has(&container["ports"], &json!({"name": "peers", "containerPort": 9634, "protocol": "TCP"})),
            "{name}"
        );
        for (variable, path) in [("FLEETGATE_PEERS_ADDRESS", "status.podIP"), ("FLEETGATE_EDGE", "metadata.name")] {
            let value = json!({"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}});
            assert!(has(&container["env"], &value), "{name}: {variable}");
        }
        let ours = json!({"app.kubernetes.io/name": "fleetgate", "app.kubernetes.io/instance": "fleetgate"});
        let rule = json!({
            "ports": [{"port": "peers", "protocol": "TCP"}],
            "from": [{"podSelector": {"matchLabels": ours}}],
        });
        assert!(has(&find("NetworkPolicy", name)["spec"]["ingress"], &rule), "{name}");
        let told = objects
            .iter()
            .filter(|object| object.to_string().contains("9634") || object.to_string().contains("\"peers\""));
        let told: Vec<&str> = told.filter_map(|object| object["metadata"]["name"].as_str()).collect();
        // DNS may go there, and nowhere else that it need not.
        let expected = if name == "fleetgate" { vec!["fleetgate"; 2] } else { vec![name, "fleetgate-dns", name] };
        let (mut told, mut expected) = (told, expected);
        told.sort_unstable();
        expected.sort_unstable();
        assert_eq!(told, expected);
    }
}

fn objects(rendered: &str) -> Vec<Value> {
    let documents = rendered.split("---\n").map(|document| serde_saphyr::from_str(document).unwrap());
    documents.filter(|object: &Value| !object.is_null()).collect()
}

fn object<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| is(object, kind, name))
}

fn is(object: &Value, kind: &str, name: &str) -> bool {
    object["kind"] == kind && object["metadata"]["name"] == name
}

fn in_release_namespace(object: &Value) -> bool {
    object["metadata"]["namespace"] == NAMESPACE
}

fn has(list: &Value, wanted: &Value) -> bool {
    list.as_array().is_some_and(|list| list.contains(wanted))
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}
