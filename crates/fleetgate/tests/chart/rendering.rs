//! What Helm makes of values, and which it refuses.

use crate::helm::{DEFAULT, Helm, SETS, chart, install_page, yaml_blocks};

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
        ("admission: {failurePolicy: fail}", "'/admission/failurePolicy'"),
        ("sources: [Fleet_Gate]", "'/sources/0'"),
        ("kubeconfigs: {namespaces: [a, a]}", "'/kubeconfigs/namespaces'"),
        ("networkPolicies: {apiServerPorts: []}", "'/networkPolicies/apiServerPorts'"),
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
