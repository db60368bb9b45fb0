//! One operation, and how it is written down.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::shapes::Failure;

type Shape = fn(&mut SchemaGenerator) -> Schema;

pub(super) struct Operation {
    pub(super) path: &'static str,
    /// In small letters.
    pub(super) method: &'static str,
    tag: &'static str,
    id: &'static str,
    summary: &'static str,
    description: &'static str,
    parameters: Vec<Parameter>,
    body: Option<(Shape, Value)>,
    answer: (&'static str, &'static str, Option<Shape>),
    failures: BTreeMap<u16, Vec<&'static str>>,
}

/// A variable of the path, or what may stand behind `?`.
struct Parameter {
    name: &'static str,
    is_in_path: bool,
    description: &'static str,
    schema: Value,
    example: Value,
}

impl Operation {
    /// That reads, for which nobody has to show a credential.
    pub(super) fn get(tag: &'static str, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("get", tag, path, id, summary).fails(403, &["NotLoopback", "ForeignHost"])
    }

    /// That changes something.
    pub(super) fn change(
        method: &'static str,
        tag: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::new(method, tag, path, id, summary).fails(403, &["NoCredential"])
    }

    /// That everybody may ask.
    pub(super) fn probe(tag: &'static str, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new("get", tag, path, id, summary)
    }

    fn new(
        method: &'static str,
        tag: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        let (parameters, failures) = (Vec::new(), BTreeMap::new());
        let answer = ("text/plain", "", None);
        Self { path, method, tag, id, summary, description: "", parameters, body: None, answer, failures }
    }

    pub(super) fn says(mut self, description: &'static str) -> Self {
        self.description = description;
        self
    }

    pub(super) fn variable(
        self,
        name: &'static str,
        description: &'static str,
        schema: impl Into<Value>,
        example: impl Into<Value>,
    ) -> Self {
        self.fails(400, &["BadPath"]).parameter(name, true, description, schema.into(), example.into())
    }

    pub(super) fn query(
        self,
        name: &'static str,
        description: &'static str,
        schema: impl Into<Value>,
        example: impl Into<Value>,
    ) -> Self {
        self.parameter(name, false, description, schema.into(), example.into())
    }

    fn parameter(
        mut self,
        name: &'static str,
        is_in_path: bool,
        description: &'static str,
        schema: Value,
        example: Value,
    ) -> Self {
        self.parameters.push(Parameter { name, is_in_path, description, schema, example });
        self
    }

    pub(super) fn takes<T: JsonSchema>(mut self, example: Value) -> Self {
        self.body = Some((SchemaGenerator::subschema_for::<T>, example));
        self.fails(400, &["Malformed"]).fails(413, &["TooLarge"]).fails(415, &["NotJson"])
    }

    /// What comes with 200, as JSON. Whoever answers so takes no parameters but those that are described.
    pub(super) fn answers<T: JsonSchema>(mut self, description: &'static str) -> Self {
        self.answer = ("application/json", description, Some(SchemaGenerator::subschema_for::<T>));
        self.fails(400, &["BadQuery"])
    }

    /// The same in another form.
    pub(super) fn answers_text(mut self, media_type: &'static str, description: &'static str) -> Self {
        self.answer = (media_type, description, None);
        self
    }

    /// A status of a no, with the codes that come with it; none where it has no body of ours.
    pub(super) fn fails(mut self, status: u16, codes: &[&'static str]) -> Self {
        self.failures.entry(status).or_default().extend(codes);
        self
    }

    pub(super) fn describe(&self, schemas: &mut SchemaGenerator) -> Value {
        let mut described = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "responses": self.responses(schemas),
            "security": self.security(),
        });
        if !self.description.is_empty() {
            described["description"] = self.description.into();
        }
        if !self.parameters.is_empty() {
            described["parameters"] = self.parameters.iter().map(Parameter::describe).collect();
        }
        if let Some((shape, example)) = &self.body {
            let content = json!({ "application/json": { "schema": shape(schemas), "example": example } });
            described["requestBody"] = json!({ "required": true, "content": content });
        }
        described
    }

    fn responses(&self, schemas: &mut SchemaGenerator) -> Value {
        let (media_type, description, shape) = &self.answer;
        let schema = shape.map_or_else(|| json!({ "type": "string" }), |shape| shape(schemas).into());
        let mut responses = json!({
            "200": { "description": description, "content": { *media_type: { "schema": schema } } },
        });
        for (status, codes) in &self.failures {
            responses[status.to_string()] = failure(*status, codes, schemas);
        }
        responses
    }

    /// One of these will do; the first is to show nothing.
    fn security(&self) -> Value {
        let shown = json!({ "adminCredential": [] });
        if self.failures.get(&403).is_none_or(|codes| !codes.contains(&"NoCredential")) {
            json!([{}, shown])
        } else {
            json!([shown])
        }
    }
}

impl Parameter {
    fn describe(&self) -> Value {
        json!({
            "name": self.name,
            "in": if self.is_in_path { "path" } else { "query" },
            "required": self.is_in_path,
            "description": self.description,
            "schema": self.schema,
            "example": self.example,
        })
    }
}

fn failure(status: u16, codes: &[&str], schemas: &mut SchemaGenerator) -> Value {
    let quoted: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
    let meaning = match status {
        400 => "what is asked for cannot be read",
        403 => "who asks may not",
        404 => "there is no such thing",
        409 => "what there is speaks against it",
        413 => "the body is too large",
        415 => "the body is not sent as application/json",
        500 => "the database could not be read; the log says why",
        _ => "not at the moment",
    };
    if codes.is_empty() {
        let content = json!({ "text/plain": { "schema": { "type": "string" } } });
        return json!({ "description": meaning, "content": content });
    }
    let schema = json!({
        "allOf": [
            schemas.subschema_for::<Failure>(),
            { "properties": { "error": { "properties": { "code": { "enum": codes } } } } },
        ],
    });
    json!({
        "description": format!("{meaning}: {}", quoted.join(", ")),
        "content": { "application/json": { "schema": schema } },
    })
}
