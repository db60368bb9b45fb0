//! The description as the tests use it: stricter than it is for others, and with values of the fleet.

use serde_json::{Value, json};

#[derive(Clone)]
pub(crate) struct Description(Value);

/// What `/v1/explain` is asked for.
#[derive(Clone, Copy)]
pub(crate) enum Asked {
    Name,
    Id,
    Url,
}

impl Description {
    /// Others must not mind a field that is new. Here every field is one that is described.
    pub(crate) fn closed(mut document: Value) -> Self {
        document["components"]["schemas"].as_object_mut().unwrap().values_mut().for_each(close);
        Self(document)
    }

    /// Has wishes for credentials name clusters that there are, and one that there is not.
    pub(crate) fn with_clusters(mut self, clusters: &[&str]) -> Self {
        for wish in ["CredentialWish", "ControlPlaneWish"] {
            let cluster = &mut self.0["components"]["schemas"][wish]["properties"]["cluster"];
            assert_eq!(cluster["type"], "string", "{wish}");
            cluster["enum"] = clusters.iter().chain(&["nowhere"]).copied().collect();
        }
        self
    }

    /// Questions of one kind alone.
    pub(crate) fn of_explanations(mut self, asked: Asked) -> Self {
        let (name, values) = match asked {
            Asked::Name => (
                "name",
                json!([
                    "api.c1.fleet.example",
                    "web.c2.fleet.example",
                    "konnectivity.c1.fleet.example",
                    "shop.edge.fleet.example",
                    "www.straight.test",
                    "agents.fleet.example",
                    "www.elsewhere.test",
                ]),
            ),
            Asked::Id => ("tlv", json!(["3f2b9c1e-6d1f-4c1b-9a53-0c6c2f1d7e11", "c2", "lab", "nobody"])),
            Asked::Url => (
                "url",
                json!([
                    "http://shop.acme.test/cart",
                    "https://www.secure.test/",
                    "http://www.secure.test/",
                    "http://www.straight.test/",
                    "https://api.c1.fleet.example/",
                    "https://app.edge.fleet.example/",
                    "http://www.elsewhere.test/",
                    "http://192.0.2.1/",
                ]),
            ),
        };
        let mut operation = self.0["paths"]["/v1/explain"].take();
        let parameters = operation["get"]["parameters"].as_array_mut().unwrap();
        let beside: &[&str] = if name == "tlv" { &["from", "proof"] } else { &["from"] };
        parameters
            .retain(|parameter| parameter["name"] == name || beside.iter().any(|beside| parameter["name"] == *beside));
        for parameter in parameters.iter_mut() {
            if parameter["name"] == name {
                parameter["required"] = true.into();
                parameter["schema"] = json!({ "type": "string", "enum": values });
                parameter["example"] = values[0].clone();
            } else if parameter["name"] == "from" {
                parameter["schema"] = json!({ "type": "string", "enum": ["203.0.113.7", "2001:db8::7"] });
            }
        }
        self.0["paths"] = json!({ "/v1/explain": operation });
        self
    }

    pub(crate) fn operations(&self) -> usize {
        self.0["paths"].as_object().unwrap().values().map(|methods| methods.as_object().unwrap().len()).sum()
    }

    pub(crate) fn to_text(&self) -> String {
        self.0.to_string()
    }
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(rules) => {
            // What says nothing of a type is a rule beside another that does.
            if rules.get("type") == Some(&"object".into())
                && rules.contains_key("properties")
                && !rules.contains_key("additionalProperties")
            {
                rules.insert("additionalProperties".into(), false.into());
            }
            rules.values_mut().for_each(close);
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(close),
        _ => {}
    }
}
