//! Helm is real: it lints and renders a chart, and says what is wrong with one.

use std::fs;
use testbed::HelmError;

#[test]
fn a_chart_is_linted_and_rendered_and_a_wrong_one_refused_with_its_reason() {
    let Some(helm) = testbed::helm() else { return };
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().to_str().unwrap();
    fs::create_dir(folder.path().join("templates")).unwrap();
    fs::write(folder.path().join("Chart.yaml"), "{apiVersion: v2, name: small, version: 0.1.0, kubeVersion: '>=1.30'}")
        .unwrap();
    fs::write(folder.path().join("values.yaml"), "{greeting: hello}").unwrap();
    let template = folder.path().join("templates/greeting.yaml");
    let config_map =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: small}, data: {greeting: {{ .Values.greeting }}}}";
    fs::write(&template, config_map).unwrap();

    helm.run(&["lint", chart]).unwrap();
    let rendered = helm.run(&["template", "release", chart, "--set", "greeting=welcome"]).unwrap();
    assert!(rendered.contains("{greeting: welcome}"), "{rendered}");

    fs::write(&template, config_map.replace(".Values.greeting", ".Values.missing | required \"say something\""))
        .unwrap();
    match helm.run(&["template", "release", chart]) {
        Err(HelmError::Refused { stderr, .. }) => assert!(stderr.contains("say something"), "{stderr}"),
        other => panic!("it should be refused, but: {other:?}"),
    }
}
