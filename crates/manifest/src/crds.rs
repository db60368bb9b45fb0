//! The custom resource definitions of a hub, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::address::{AddressClaim, AddressPool};
use crate::cluster::Cluster;
use crate::federation::FederationPolicy;
use crate::tenant::Tenant;
use crate::verdict::Verdict;
use crate::zone::Zone;

pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        Zone::crd(),
        Tenant::crd(),
        Cluster::crd(),
        AddressPool::crd(),
        AddressClaim::crd(),
        FederationPolicy::crd(),
        Verdict::crd(),
    ]
}

/// All of them as one stream of YAML documents, ready for `kubectl apply -f -`.
pub fn to_yaml() -> String {
    let mut stream = String::new();
    for crd in all() {
        // Through a JSON value, so that keys are sorted and the output stays the same from build to build.
        let value = serde_json::to_value(crd).expect("a definition is made of texts and numbers");
        let document = serde_saphyr::to_string(&value).expect("a JSON value has a YAML form");
        stream.push_str("---\n");
        stream.push_str(document.trim_start_matches("---\n"));
    }
    stream
}
