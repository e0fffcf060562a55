//! The JSON Schema of every request, reply and event, by the name of its file.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;

use super::*;

/// Every schema of the protocol: the name of its file under `skill-sdk/abi/protocol/1/`, and the
/// schema. `<operation>.request` is the body inside the envelope.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("envelope", of::<Request<Value>>()),
        ("manifest", of::<Manifest>()),
        ("create", of::<Create>()),
        ("event", of::<PluginEvent>()),
        ("tool_result", of::<ToolResult>()),
        ("skill.execute.request", of::<Execute>()),
        ("skill.read.request", of::<Read>()),
        ("skill.write.request", of::<Write>()),
        ("skill.modify.request", of::<Modify>()),
        ("executor.init.request", of::<ExecutorInit>()),
        ("executor.init.reply", of::<ExecutorReady>()),
        ("executor.bash.request", of::<Bash>()),
        ("executor.bash.reply", of::<BashOutput>()),
        ("executor.view.request", of::<View>()),
        ("executor.view.reply", of::<Viewed>()),
        ("executor.create_file.request", of::<CreateFile>()),
        ("executor.create_file.reply", of::<Written>()),
        ("executor.str_replace.request", of::<StrReplace>()),
        ("executor.str_replace.reply", of::<Written>()),
        ("executor.cleanup.request", of::<Empty>()),
        ("executor.cleanup.reply", of::<Empty>()),
        ("backend.open.request", of::<Open>()),
        ("backend.open.reply", of::<Empty>()),
        ("backend.catalog.request", of::<Empty>()),
        ("backend.catalog.reply", of::<CatalogReply>()),
        ("backend.call.request", of::<BackendCall>()),
        ("backend.call.reply", of::<ToolResult>()),
        ("backend.close.request", of::<Empty>()),
        ("backend.close.reply", of::<Empty>()),
        ("backend.watch.request", of::<Empty>()),
        ("backend.watch.reply", of::<Empty>()),
        ("backend.contribute.request", of::<Contribute>()),
        ("backend.contribute.reply", of::<Contribution>()),
        ("backend.observe.request", of::<Observe>()),
        ("backend.observe.reply", of::<Observation>()),
        ("resource.list.request", of::<Empty>()),
        ("resource.list.reply", of::<Resources>()),
        ("resource.read.request", of::<ResourceRead>()),
        ("resource.read.reply", of::<ToolResult>()),
        ("prompt.list.request", of::<Empty>()),
        ("prompt.list.reply", of::<Prompts>()),
        ("prompt.get.request", of::<PromptGet>()),
        ("prompt.get.reply", of::<PromptText>()),
        ("complete.request", of::<Complete>()),
        ("complete.reply", of::<Completions>()),
        ("files.put.request", of::<FilesPut>()),
        ("files.put.reply", of::<FileRef>()),
        ("files.get.request", of::<FilesGet>()),
        ("files.get.reply", of::<FileRef>()),
        ("state.export.request", of::<Empty>()),
        ("state.export.reply", of::<State>()),
        ("state.import.request", of::<State>()),
        ("state.import.reply", of::<Empty>()),
        ("conjure.ping.request", of::<Empty>()),
        ("conjure.ping.reply", of::<Empty>()),
        ("conjure.shutdown.request", of::<Empty>()),
        ("conjure.shutdown.reply", of::<Empty>()),
        ("host.progress.request", of::<Progress>()),
        ("host.progress.reply", of::<Empty>()),
        ("host.file.request", of::<RegisterFile>()),
        ("host.file.reply", of::<Registered>()),
        ("host.kv.get.request", of::<KvKey>()),
        ("host.kv.get.reply", of::<KvValue>()),
        ("host.kv.set.request", of::<KvSet>()),
        ("host.kv.set.reply", of::<Empty>()),
        ("host.kv.delete.request", of::<KvKey>()),
        ("host.kv.delete.reply", of::<Empty>()),
        ("host.kv.list.request", of::<KvList>()),
        ("host.kv.list.reply", of::<KvKeys>()),
        ("host.secret.get.request", of::<SecretGet>()),
        ("host.secret.get.reply", of::<Secret>()),
        ("host.http.send.request", of::<HttpRequest>()),
        ("host.http.send.reply", of::<HttpResponse>()),
        ("host.sample.request", of::<Sample>()),
        ("host.sample.reply", of::<Sampled>()),
        ("host.elicit.request", of::<Elicit>()),
        ("host.elicit.reply", of::<Elicited>()),
        ("host.roots.request", of::<Empty>()),
        ("host.roots.reply", of::<Roots>()),
        ("host.call.cancelled.request", of::<Empty>()),
        ("host.call.cancelled.reply", of::<Empty>()),
        ("host.call.writable.request", of::<Empty>()),
        ("host.call.writable.reply", of::<Empty>()),
    ]
}

fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12();
    SchemaGenerator::new(settings)
        .into_root_schema_for::<T>()
        .to_value()
}
