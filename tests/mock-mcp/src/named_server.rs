//! Resources and prompts of a server with a name: each tells whose it is, and what is another's is
//! refused. So it shows when a request went to the wrong one of several servers.

use serde_json::{Value, json};

/// What the tool `content` of every server links to. Each has contents of its own for it.
pub(crate) const LINKED: &str = "mock://a";

/// Resources that `NAME` lists: `mock://NAME/listed`, and with `lists_linked` what it links to.
pub(crate) fn resources(name: &str, lists_linked: bool) -> Value {
    let own = json!({ "uri": format!("mock://{name}/listed"), "name": "listed" });
    let linked = json!({ "uri": LINKED, "name": format!("a of {name}") });
    match lists_linked {
        true => json!([own, linked]),
        false => json!([own]),
    }
}

/// Templates of `NAME`: `mock://NAME/{id}`, and one that every server has.
pub(crate) fn templates(name: &str) -> Value {
    json!([
        { "uriTemplate": format!("mock://{name}/{{id}}"), "name": "own" },
        { "uriTemplate": "mock://any/{id}", "name": "any" },
    ])
}

/// Contents of a resource; `None` for one that is another's. Of those that every server has a
/// template for, `mock://any/of-NAME` is only that one's.
pub(crate) fn read(name: &str, uri: &str) -> Option<Value> {
    let own = format!("mock://{name}/");
    let anybodys = uri.strip_prefix("mock://any/").is_some_and(|id| {
        let owner = id.strip_prefix("of-");
        owner.is_none_or(|owner| owner == name)
    });
    let is_known = uri.starts_with(&own) || anybodys || uri == LINKED;
    is_known.then(|| json!([{ "uri": uri, "text": format!("{name} has {uri}"), "vendor": 1 }]))
}

/// Prompts of `NAME`: one of its own, and one that every server has.
pub(crate) fn prompts(name: &str) -> Value {
    json!([{ "name": format!("of-{name}") }, { "name": "everybodys" }])
}

/// A prompt filled in; nothing for one that is another's.
pub(crate) fn prompt(name: &str, asked: &str) -> Option<Value> {
    let is_known = asked == format!("of-{name}") || asked == "everybodys";
    let text = format!("{asked} of {name}");
    is_known.then(|| json!([{ "role": "user", "content": { "type": "text", "text": text } }]))
}
