//! The custom resource definitions of a hub, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::address::{Address, AddressClaim, AddressPool};
use crate::cluster::Cluster;
use crate::federation::FederationPolicy;
use crate::tenant::Tenant;
use crate::verdict::Verdict;
use crate::zone::Zone;

pub fn all() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        Zone::crd(),
        Tenant::crd(),
        Cluster::crd(),
        AddressPool::crd(),
        AddressClaim::crd(),
        Address::crd(),
        FederationPolicy::crd(),
        Verdict::crd(),
    ];
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            bound_numbers(schema);
        }
    }
    crds
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

/// The formats `uint16` and `uint32` are Rust's; a hub warns of them and does not hold numbers to them. It gets the bounds
/// in words that it knows.
fn bound_numbers(schema: &mut JSONSchemaProps) {
    let bound = match schema.format.as_deref() {
        Some("uint16") => Some(("int32", f64::from(u16::MAX))),
        Some("uint32") => Some(("int64", f64::from(u32::MAX))),
        _ => None,
    };
    if let Some((format, maximum)) = bound {
        schema.format = Some(format.into());
        schema.maximum = Some(schema.maximum.map_or(maximum, |given| given.min(maximum)));
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(bound_numbers);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => bound_numbers(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(bound_numbers),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        bound_numbers(value);
    }
}
