//! What `--admin` answers, described in OpenAPI 3.1: for `GET /openapi.json`, `fleetgate openapi` and docs/openapi.json.
//!
//! [`operations`] has an entry for each; `shapes`, `explained` and `resources` say what the answers look like. Tests hold it to the code:
//! the paths and methods to the routes, the codes to those that handlers give, the committed file to this one, and a running fleetgate,
//! asked by schemathesis, to all of it, without a field more (crates/fleetgate/tests/openapi).

mod explained;
mod operation;
mod operations;
mod resources;
mod shapes;

use std::sync::LazyLock;

use axum::http::header;
use axum::response::IntoResponse;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::extract::{Nothing, Query};

/// Where schemas that others refer to stand.
const COMPONENTS: &str = "/components/schemas";

/// A year, as credentials may last (`agents::authority`).
const MAX_VALID_SECONDS: u64 = crate::agents::authority::MAX_VALID.as_secs();

static TEXT: LazyLock<String> = LazyLock::new(to_text);

pub(crate) async fn show(_: Query<Nothing>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str())
}

/// As it is committed: indented, and with an end of line.
pub fn to_text() -> String {
    format!("{:#}\n", document())
}

fn document() -> Value {
    // What is answered has every field that is not left out; what people write may lack those that have a default.
    let mut answers = generator(SchemaSettings::for_serialize);
    let mut paths = Map::new();
    for operation in operations::all() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = operation.describe(&mut answers);
    }
    let mut schemas = answers.take_definitions(true);
    schemas.append(&mut resources::schemas(generator(SchemaSettings::for_deserialize)));
    schemas.values_mut().for_each(keep_what_all_read);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fleetgate",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "What a running fleetgate answers on --admin",
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:9630", "description": "where `fleetgate demo` answers" }],
        "tags": operations::TAGS.map(|(name, description)| json!({ "name": name, "description": description })),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "adminCredential": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The text in the file that fleetgate was given as --admin-credential.",
                },
            },
        },
    })
}

const ABOUT: &str = "\
Without a credential everything is read-only and answered to this machine alone; a request that shows the admin credential is answered from \
anywhere and may change something. /healthz and /readyz are answered to everybody. Every no has the same body, with a code that stays and a message \
that may change. Fields may be added at any time; those that are there keep their meaning within v1.";

fn generator(contract: fn(SchemaSettings) -> SchemaSettings) -> SchemaGenerator {
    let settings = contract(SchemaSettings::draft2020_12());
    // Each operation refers to what stands once, at the end of the document.
    settings.with(|settings| settings.definitions_path = COMPONENTS.into()).into_generator()
}

/// Leaves out what only a Kubernetes API server reads.
fn keep_what_all_read(schema: &mut Value) {
    match schema {
        Value::Object(rules) => {
            rules.retain(|rule, _| !rule.starts_with("x-kubernetes-"));
            rules.values_mut().for_each(keep_what_all_read);
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(keep_what_all_read),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
