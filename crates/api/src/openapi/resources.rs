//! The objects as they are shown: what people wrote, held to the very types that read it, and what is said of it.

use std::borrow::Cow;

use manifest::address::{AddressClaimSpec, AddressPoolSpec, AddressSpec};
use manifest::cluster::ClusterSpec;
use manifest::federation::FederationPolicySpec;
use manifest::status::{
    AddressClaimStatus, AddressPoolStatus, ClusterStatus, IngressStatus, ObjectStatus, RecordsStatus, TenantStatus,
    ZoneStatus,
};
use manifest::tenant::TenantSpec;
use manifest::zone::ZoneSpec;
use model::identity::Kind;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::COMPONENTS;

/// An object of any kind.
pub(super) struct AnyObject;

impl JsonSchema for AnyObject {
    fn schema_name() -> Cow<'static, str> {
        "Object".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let kinds = Kind::ALL.map(|kind| refer(kind.as_str()));
        let mapping: Map<String, Value> =
            Kind::ALL.into_iter().map(|kind| (kind.as_str().into(), refer(kind.as_str())["$ref"].clone())).collect();
        json_schema!({
            "description": "An object of any kind, as `kind` says.",
            "oneOf": kinds,
            "discriminator": { "propertyName": "kind", "mapping": mapping },
        })
    }
}

/// A schema for each kind, and those that they refer to.
pub(super) fn schemas(mut generator: SchemaGenerator) -> Map<String, Value> {
    let described: Vec<(Kind, Value)> = Kind::ALL.map(|kind| (kind, describe(kind, &mut generator))).into();
    let mut schemas = generator.take_definitions(true);
    schemas.extend(described.into_iter().map(|(kind, schema)| (kind.as_str().to_owned(), schema)));
    schemas.insert("ObjectMeta".into(), metadata());
    schemas
}

fn describe(kind: Kind, generator: &mut SchemaGenerator) -> Value {
    let (spec, status) = match kind {
        Kind::Zone => of::<ZoneSpec, ZoneStatus>(generator),
        Kind::Tenant => of::<TenantSpec, TenantStatus>(generator),
        Kind::Cluster => of::<ClusterSpec, ClusterStatus>(generator),
        Kind::AddressPool => of::<AddressPoolSpec, AddressPoolStatus>(generator),
        Kind::AddressClaim => of::<AddressClaimSpec, AddressClaimStatus>(generator),
        Kind::Address => of::<AddressSpec, ObjectStatus>(generator),
        Kind::FederationPolicy => of::<FederationPolicySpec, ObjectStatus>(generator),
        Kind::DnsEndpoint => (foreign(), generator.subschema_for::<RecordsStatus>().into()),
        Kind::Ingress => (foreign(), generator.subschema_for::<IngressStatus>().into()),
        Kind::IngressClass | Kind::Secret => (foreign(), generator.subschema_for::<ObjectStatus>().into()),
    };
    let mut schema = json!({
        "type": "object",
        "properties": {
            "apiVersion": { "const": kind.api_version() },
            "kind": { "const": kind.as_str() },
            "metadata": refer("ObjectMeta"),
            "spec": spec,
            "status": status,
        },
        "required": ["apiVersion", "kind", "metadata"],
    });
    if kind == Kind::Secret {
        let properties = schema["properties"].as_object_mut();
        properties.map(|properties| properties.remove("spec"));
        let hidden = json!({ "type": "object", "additionalProperties": { "const": "(hidden)" } });
        schema["description"] = "What is in it is not shown.".into();
        (schema["properties"]["data"], schema["properties"]["stringData"]) = (hidden.clone(), hidden);
        schema["properties"]["type"] = json!({ "type": "string" });
        schema["properties"]["immutable"] = json!({ "type": "boolean" });
    }
    schema
}

fn of<Spec: JsonSchema, Status: JsonSchema>(generator: &mut SchemaGenerator) -> (Value, Value) {
    (generator.subschema_for::<Spec>().into(), generator.subschema_for::<Status>().into())
}

/// Of a kind that others have defined.
fn foreign() -> Value {
    json!({ "type": "object", "description": "As Kubernetes or ExternalDNS define it." })
}

fn metadata() -> Value {
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    json!({
        "type": "object",
        "description": "As it was written, with whatever else a hub has put there; only the moment is ours.",
        "properties": {
            "name": { "type": "string" },
            "namespace": { "type": "string" },
            "labels": texts,
            "annotations": texts,
            "creationTimestamp": {
                "type": "string",
                "format": "date-time",
                "description": "Since when there is such an object: of two who claim the same, the earlier has it.",
            },
        },
        "required": ["name", "creationTimestamp"],
        "additionalProperties": true,
    })
}

fn refer(name: &str) -> Value {
    json!({ "$ref": format!("#{COMPONENTS}/{name}") })
}
