//! Helm, and the ways in which the chart is rendered.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testbed::HelmError;

/// Where the chart is installed in these tests.
pub(crate) const NAMESPACE: &str = "fleetgate-system";

/// The version of Kubernetes that is rendered for where no server is asked: the oldest that the chart takes.
const OLDEST: &str = "1.30.0";

/// As few values as there may be.
pub(crate) const DEFAULT: &str = "image: {repository: registry.example.net/fleetgate}\n";

pub(crate) const ALL_IN_ONE: &str = "\
image: {repository: registry.example.net/fleetgate}
mode: allInOne
dns: {identity: $(POD_NAME)}
";

/// Everything that can be switched on, and everything that can be said.
pub(crate) const EVERYTHING: &str = r#"
image:
  repository: registry.example.net:5000/platform/fleetgate
  digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  pullPolicy: Always
  pullSecrets: [{name: registry}]
log: {level: "info,gateway=debug", format: human}
listenAddress: "[::]"
controller:
  replicas: 3
  priorityClassName: system-cluster-critical
  extraArgs: [--allow-loopback]
dns:
  kind: DaemonSet
  rateLimit: 0
  identity: $(POD_NAME)
  service:
    annotations: {example.net/address: ns1}
    loadBalancerClass: example.net/lb
    loadBalancerSourceRanges: [192.0.2.0/24, "2001:db8::/32"]
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{operator: Exists}]
gateway:
  replicas: 5
  drainSeconds: 600
  trustedProxies: [198.51.100.0/28, "2001:db8:1::/64"]
  keepDisallowed: true
  service: {type: NodePort, externalTrafficPolicy: Cluster, ipFamilyPolicy: SingleStack}
  persistence: {size: 10Gi, storageClassName: fast}
  podAnnotations: {example.net/team: edge}
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: edge, operator: Exists}]}]}}}
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}
admission: {failurePolicy: Ignore}
sources: [zone-files]
kubeconfigs: {namespaces: [fleetgate-kubeconfigs, more-kubeconfigs]}
dataKey: {existingSecret: my-data-key}
serviceAccounts: {annotations: {example.net/role: fleet}}
networkPolicies:
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  admissionFrom: [{ipBlock: {cidr: 192.0.2.0/28}}]
  apiServerPorts: [6443]
serviceMonitor: {enabled: true, interval: 15s, labels: {release: prometheus}}
certificates: {namespaces: [shop]}
"#;

/// No more than what ExternalDNS needs.
pub(crate) const CONTROLLER_ALONE: &str = "\
image: {repository: registry.example.net/fleetgate, tag: edge}
dns: {enabled: false}
gateway: {enabled: false}
admission: {enabled: false}
kubeconfigs: {namespaces: []}
podDisruptionBudgets: {enabled: false}
networkPolicies: {enabled: false}
";

/// With the agents' door.
pub(crate) const AGENTS: &str = "\
image: {repository: registry.example.net/fleetgate}
agents: {enabled: true}
admin: {credentialSecret: my-admin}
";

/// What leads into tenant clusters, and control planes to their resolver.
pub(crate) const INTO_CLUSTERS: &str = "
image: {repository: fleetgate}
admin: {credentialSecret: my-admin}
agents: {enabled: true}
tunnel: {enabled: true}
resolver: {enabled: true, upstreams: [10.96.0.10, '[2001:db8::53]:5353']}
";

pub(crate) const SETS: [(&str, &str); 6] = [
    ("default", DEFAULT),
    ("all in one", ALL_IN_ONE),
    ("everything", EVERYTHING),
    ("controller alone", CONTROLLER_ALONE),
    ("agents", AGENTS),
    ("into clusters", INTO_CLUSTERS),
];

/// The real one, with files of values.
pub(crate) struct Helm {
    program: testbed::Helm,
    folder: TempDir,
}

impl Helm {
    /// `None` means that the test should return.
    pub(crate) fn find() -> Option<Self> {
        Some(Self { program: testbed::helm()?, folder: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, HelmError> {
        self.program.run(arguments)
    }

    pub(crate) fn run_with(&self, arguments: &[&str], values: &str) -> Result<String, HelmError> {
        let file = tempfile::NamedTempFile::new_in(self.folder.path()).unwrap();
        std::fs::write(file.path(), values).unwrap();
        self.run(&[arguments, &["--values", &file.path().to_string_lossy()]].concat())
    }

    pub(crate) fn render(&self, values: &str) -> Result<String, HelmError> {
        self.render_with(values, &[])
    }

    pub(crate) fn render_with(&self, values: &str, flags: &[&str]) -> Result<String, HelmError> {
        let chart = chart();
        let arguments = ["template", "fleetgate", &chart, "--namespace", NAMESPACE, "--kube-version", OLDEST];
        self.run_with(&[&arguments, flags].concat(), values)
    }
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn chart() -> String {
    repository().join("deploy/chart").to_string_lossy().into_owned()
}

pub(crate) fn install_page() -> String {
    std::fs::read_to_string(repository().join("docs/install.md")).unwrap()
}

/// The blocks of YAML of a page: values for the chart, and manifests.
pub(crate) fn yaml_blocks(page: &str) -> (Vec<&str>, Vec<&str>) {
    // Behind the language stands the file that a reader writes it to.
    let blocks =
        page.split("```yaml").skip(1).map(|rest| rest.split_once('\n').unwrap().1.split("```").next().unwrap());
    blocks.partition(|block| !block.contains("apiVersion:"))
}
