//! The JSON Schema of every request, reply and event, by the name of its file.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::*;

/// Each message of the protocol with what a function makes of its type.
macro_rules! messages {
    ($of:ident) => {
        vec![
            ("envelope", $of::<Request<Value>>()),
            ("manifest", $of::<Manifest>()),
            ("create", $of::<Create>()),
            ("event", $of::<PluginEvent>()),
            ("tool_result", $of::<ToolResult>()),
            ("skill.execute.request", $of::<Execute>()),
            ("skill.execute.reply", $of::<ToolResult>()),
            ("skill.read.request", $of::<Read>()),
            ("skill.read.reply", $of::<ToolResult>()),
            ("skill.write.request", $of::<Write>()),
            ("skill.write.reply", $of::<ToolResult>()),
            ("skill.modify.request", $of::<Modify>()),
            ("skill.modify.reply", $of::<ToolResult>()),
            ("skill.tool.request", $of::<Map<String, Value>>()),
            ("skill.tool.reply", $of::<ToolResult>()),
            ("skill.tools.request", $of::<Empty>()),
            ("skill.tools.reply", $of::<SkillTools>()),
            ("executor.init.request", $of::<ExecutorInit>()),
            ("executor.init.reply", $of::<ExecutorReady>()),
            ("executor.bash.request", $of::<Bash>()),
            ("executor.bash.reply", $of::<BashOutput>()),
            ("executor.view.request", $of::<View>()),
            ("executor.view.reply", $of::<Viewed>()),
            ("executor.create_file.request", $of::<CreateFile>()),
            ("executor.create_file.reply", $of::<Written>()),
            ("executor.str_replace.request", $of::<StrReplace>()),
            ("executor.str_replace.reply", $of::<Written>()),
            ("executor.cleanup.request", $of::<Empty>()),
            ("executor.cleanup.reply", $of::<Empty>()),
            ("backend.open.request", $of::<Open>()),
            ("backend.open.reply", $of::<Empty>()),
            ("backend.reopen.request", $of::<Open>()),
            ("backend.reopen.reply", $of::<Empty>()),
            ("backend.catalog.request", $of::<CatalogRequest>()),
            ("backend.catalog.reply", $of::<CatalogReply>()),
            ("backend.call.request", $of::<BackendCall>()),
            ("backend.call.reply", $of::<ToolResult>()),
            ("backend.close.request", $of::<Empty>()),
            ("backend.close.reply", $of::<Empty>()),
            ("backend.watch.request", $of::<Empty>()),
            ("backend.watch.reply", $of::<Empty>()),
            ("backend.contribute.request", $of::<Contribute>()),
            ("backend.contribute.reply", $of::<Contribution>()),
            ("backend.observe.request", $of::<Observe>()),
            ("backend.observe.reply", $of::<Observation>()),
            ("resource.list.request", $of::<Empty>()),
            ("resource.list.reply", $of::<Resources>()),
            ("resource.read.request", $of::<ResourceRead>()),
            ("resource.read.reply", $of::<ToolResult>()),
            ("resource.subscribe.request", $of::<ResourceWatch>()),
            ("resource.subscribe.reply", $of::<Empty>()),
            ("resource.unsubscribe.request", $of::<ResourceWatch>()),
            ("resource.unsubscribe.reply", $of::<Empty>()),
            ("prompt.list.request", $of::<Empty>()),
            ("prompt.list.reply", $of::<Prompts>()),
            ("prompt.get.request", $of::<PromptGet>()),
            ("prompt.get.reply", $of::<PromptText>()),
            ("complete.request", $of::<Complete>()),
            ("complete.reply", $of::<Completions>()),
            ("files.put.request", $of::<FilesPut>()),
            ("files.put.reply", $of::<FileRef>()),
            ("files.get.request", $of::<FilesGet>()),
            ("files.get.reply", $of::<FileRef>()),
            ("state.export.request", $of::<Empty>()),
            ("state.export.reply", $of::<State>()),
            ("state.import.request", $of::<State>()),
            ("state.import.reply", $of::<Empty>()),
            ("conjure.ping.request", $of::<Empty>()),
            ("conjure.ping.reply", $of::<Empty>()),
            ("conjure.shutdown.request", $of::<Empty>()),
            ("conjure.shutdown.reply", $of::<Empty>()),
            ("host.progress.request", $of::<Progress>()),
            ("host.progress.reply", $of::<Empty>()),
            ("host.file.request", $of::<RegisterFile>()),
            ("host.file.reply", $of::<Registered>()),
            ("host.kv.get.request", $of::<KvKey>()),
            ("host.kv.get.reply", $of::<KvValue>()),
            ("host.kv.set.request", $of::<KvSet>()),
            ("host.kv.set.reply", $of::<Empty>()),
            ("host.kv.delete.request", $of::<KvKey>()),
            ("host.kv.delete.reply", $of::<Empty>()),
            ("host.kv.list.request", $of::<KvList>()),
            ("host.kv.list.reply", $of::<KvKeys>()),
            ("host.secret.get.request", $of::<SecretGet>()),
            ("host.secret.get.reply", $of::<Secret>()),
            ("host.http.send.request", $of::<HttpRequest>()),
            ("host.http.send.reply", $of::<HttpResponse>()),
            ("host.sample.request", $of::<Sample>()),
            ("host.sample.reply", $of::<Sampled>()),
            ("host.elicit.request", $of::<Elicit>()),
            ("host.elicit.reply", $of::<Elicited>()),
            ("host.roots.request", $of::<Empty>()),
            ("host.roots.reply", $of::<Roots>()),
            ("host.ask.request", $of::<Ask>()),
            ("host.ask.reply", $of::<Answers>()),
            ("host.call.cancelled.request", $of::<Empty>()),
            ("host.call.cancelled.reply", $of::<Empty>()),
            ("host.call.writable.request", $of::<Empty>()),
            ("host.call.writable.reply", $of::<Empty>()),
        ]
    };
}
/// Every schema of the protocol: the name of its file under `skill-sdk/abi/protocol/1/`, and the
/// schema. `<operation>.request` is the body inside the envelope.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let mut schemas = messages!(of);
    for (name, schema) in &mut schemas {
        if let Some(object) = schema.as_object_mut() {
            // Its name in the protocol, for the name of a Rust type may change.
            object.insert("title".to_owned(), json!(name));
        }
    }
    schemas
}

fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12();
    SchemaGenerator::new(settings)
        .into_root_schema_for::<T>()
        .to_value()
}

/// Lets a list of words grow: another word is not an error.
pub(super) fn open_words(schema: &mut Schema) {
    let Some(Value::Array(mut words)) = schema.remove("oneOf") else {
        return;
    };
    words.push(json!({ "type": "string", "description": "A word of a later version." }));
    schema.insert("anyOf".to_owned(), Value::Array(words));
}

/// Lets a list of tagged kinds grow: what has another tag is not an error, but what has a known
/// tag must be what its schema says.
pub(super) fn open_kinds(schema: &mut Schema) {
    let Some(Value::Array(kinds)) = schema.get_mut("anyOf") else {
        return;
    };
    let mut tag = String::new();
    let mut known = Vec::new();
    for properties in kinds
        .iter()
        .filter_map(|kind| kind["properties"].as_object())
    {
        for (name, property) in properties {
            if let Some(word) = property.get("const") {
                tag.clone_from(name);
                known.push(word.clone());
            }
        }
    }
    if let Some(Value::Object(unknown)) = kinds.last_mut() {
        unknown.insert("type".to_owned(), json!("object"));
        unknown.insert(
            "properties".to_owned(),
            json!({ &tag: { "type": "string", "not": { "enum": known } } }),
        );
        unknown.insert("required".to_owned(), json!([tag]));
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;

    type Reads = fn(Value) -> Result<(), serde_json::Error>;

    fn reads<T: DeserializeOwned>() -> Reads {
        |value| serde_json::from_value::<T>(value).map(drop)
    }

    /// The smallest value that a schema demands.
    fn smallest(schema: &Value, root: &Value) -> Value {
        if let Some(reference) = schema["$ref"].as_str() {
            let target = reference.trim_start_matches('#');
            return smallest(root.pointer(target).unwrap(), root);
        }
        match schema["type"].as_str() {
            Some("object") => {
                let required = schema["required"].as_array().into_iter().flatten();
                let fields = required.map(|name| {
                    let name = name.as_str().unwrap();
                    (name.to_owned(), smallest(&schema["properties"][name], root))
                });
                Value::Object(fields.collect())
            }
            Some("string") => json!("x"),
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            _ if schema["anyOf"].is_array() => smallest(&schema["anyOf"][0], root),
            _ => json!({}),
        }
    }

    fn known_kind(value: &mut Value) {
        // The event's schema is a choice: its tag has to be a real one.
        if value["event"] == "x" {
            value["event"] = json!("progress");
            value["done"] = json!(1);
        }
    }

    #[test]
    fn what_a_schema_does_not_require_is_really_optional() {
        for ((name, schema), (_, read)) in schemas().into_iter().zip(messages!(reads)) {
            let mut value = smallest(&schema, &schema);
            known_kind(&mut value);
            read(value.clone()).unwrap_or_else(|error| panic!("{name}: {error} in {value}"));
        }
    }

    #[test]
    fn what_a_schema_requires_is_really_required() {
        for ((name, schema), (_, read)) in schemas().into_iter().zip(messages!(reads)) {
            let whole = smallest(&schema, &schema);
            let required = schema["required"].as_array().cloned();
            for field in required.unwrap_or_default() {
                let field = field.as_str().unwrap();
                let mut less = whole.clone();
                less.as_object_mut().unwrap().remove(field);
                assert!(read(less).is_err(), "{name} reads without `{field}`");
            }
        }
    }

    #[test]
    fn a_field_of_a_later_version_is_ignored() {
        for ((name, schema), (_, read)) in schemas().into_iter().zip(messages!(reads)) {
            assert!(
                !schema
                    .to_string()
                    .contains(r#""additionalProperties":false"#),
                "{name}"
            );
            let mut value = smallest(&schema, &schema);
            known_kind(&mut value);
            value["of_a_later_version"] = json!({ "any": ["thing"] });
            read(value).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn every_operation_has_a_request_and_a_reply() {
        let schemas = schemas();
        let names = op::ALL
            .iter()
            .map(|op| op.trim_end_matches('.').to_owned())
            .chain(host_op::ALL.iter().map(|op| format!("host.{op}")));
        for name in names {
            for end in ["request", "reply"] {
                let file = format!("{name}.{end}");
                assert!(schemas.iter().any(|(name, _)| *name == file), "no {file}");
            }
        }
    }
}
