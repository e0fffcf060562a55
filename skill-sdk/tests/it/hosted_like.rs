//! A backend like a provider's hosted skills, without the provider: a share in its requests, a
//! container that is carried on, files that stay there until somebody wants them, large results,
//! and an upstream that takes its time.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, Contribute, Contribution, FileRef, FilesGet, FilesPut, HttpRequest,
    HttpResponse, Observation, Observe, Open, Part, Permissions, ToolDecl, ToolResult,
};
use conjure_skill_sdk::testkit::{Plugin, TestHost, TestHostBuilder, Transport};
use conjure_skill_sdk::{Backend, BackendPlugin, Contributes, Cx, Error, Files, Result};
use serde_json::{Map, Value, json};

#[derive(Default)]
pub(crate) struct Hosted {
    sessions: Mutex<HashMap<String, Session>>,
    uploads: Mutex<Vec<(String, Vec<u8>)>>,
}

#[derive(Default)]
struct Session {
    container: Option<String>,
    skills: Vec<Value>,
}

pub(crate) fn plugin() -> BackendPlugin<Hosted> {
    BackendPlugin::new("hosted-like", "Skills of a provider", |_setup| {
        Ok(Hosted::default())
    })
    .requires("http.send/1")
    .permissions(Permissions {
        http: vec!["api.example.com".into()],
        ..Permissions::default()
    })
    .with_contributions()
    .with_files_of_calls()
}

impl Hosted {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uploads(&self) -> MutexGuard<'_, Vec<(String, Vec<u8>)>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn within<T>(&self, cx: &Cx, run: impl FnOnce(&mut Session) -> T) -> Result<T> {
        let mut sessions = self.sessions();
        let session = sessions
            .get_mut(cx.session().unwrap_or_default())
            .ok_or_else(|| Error::not_found("this session is not open"))?;
        Ok(run(session))
    }
}

impl Backend for Hosted {
    async fn open(&self, cx: Cx, request: Open) -> Result<()> {
        let container = request
            .state
            .and_then(|state| Some(state["container"].as_str()?.to_owned()));
        let skills = request.options["skills"].as_array().cloned();
        self.sessions().insert(
            cx.session().unwrap_or_default().to_owned(),
            Session {
                container,
                skills: skills.unwrap_or_default(),
            },
        );
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        let schema = json!({
            "type": "object",
            "properties": { "task": { "type": "string" } },
            "required": ["task"],
        });
        Ok(CatalogReply {
            tools: vec![ToolDecl {
                skill: Some("xlsx".into()),
                timeout_ms: Some(600_000),
                ..ToolDecl::new("code_execution", "Delegates a task", schema)
            }],
            ..CatalogReply::default()
        })
    }

    async fn call(&self, cx: Cx, request: BackendCall) -> Result<ToolResult> {
        let task = request.arguments["task"].as_str().unwrap_or_default();
        let response = cx
            .http_async(&HttpRequest {
                method: "POST".into(),
                url: "https://api.example.com/v1/messages".into(),
                body: Some(json!({ "task": task }).to_string()),
                ..HttpRequest::default()
            })
            .await?;
        let lines = response.body.unwrap_or_default();
        Ok(ToolResult::text(format!("{task}\n").repeat(lines.parse()?))
            .with_file(FileRef::lazy("file_01", "report.xlsx")))
    }

    async fn close(&self, cx: Cx) -> Result<()> {
        self.sessions().remove(cx.session().unwrap_or_default());
        Ok(())
    }
}

impl Contributes for Hosted {
    async fn contribute(&self, cx: Cx, request: Contribute) -> Result<Contribution> {
        if request.provider != "anthropic" {
            return Ok(Contribution::default());
        }
        self.within(&cx, |session| {
            let mut container = Map::new();
            if let Some(id) = &session.container {
                container.insert("id".into(), json!(id));
            }
            container.insert("skills".into(), json!(session.skills));
            let mut fields = Map::new();
            fields.insert("container".into(), container.into());
            Contribution {
                tools: vec![json!({ "type": "code_execution_20250825", "name": "code_execution" })],
                fields,
                ..Contribution::default()
            }
        })
    }

    async fn observe(&self, cx: Cx, request: Observe) -> Result<Observation> {
        let container = request
            .fields
            .get("container")
            .and_then(|container| Some(container["id"].as_str()?.to_owned()));
        let files = request
            .server_items
            .iter()
            .filter_map(|item| item["content"]["content"].as_array())
            .flatten()
            .filter_map(|output| output["file_id"].as_str())
            .map(|id| FileRef::lazy(id, id))
            .collect();
        self.within(&cx, |session| {
            session.container = container.or(session.container.take());
            Observation {
                files,
                state: session
                    .container
                    .as_ref()
                    .map(|id| json!({ "container": id })),
                ..Observation::default()
            }
        })
    }
}

impl Files for Hosted {
    async fn put(&self, _cx: Cx, request: FilesPut) -> Result<FileRef> {
        let bytes = std::fs::read(request.file.path.unwrap_or_default())?;
        let mut uploads = self.uploads();
        let id = format!("file_up_{}", uploads.len());
        uploads.push((id.clone(), bytes));
        Ok(FileRef::lazy(id, request.file.name))
    }

    async fn get(&self, _cx: Cx, request: FilesGet) -> Result<FileRef> {
        let uploads = self.uploads();
        let (_, bytes) = uploads
            .iter()
            .find(|(id, _)| *id == request.id)
            .ok_or_else(|| Error::not_found(format!("no file {}", request.id)))?;
        std::fs::write(&request.to, bytes)?;
        Ok(FileRef {
            size: Some(bytes.len() as u64),
            ..FileRef::at(request.to)
        })
    }
}

/// An upstream that answers with the number of lines after a while of the host's clock.
pub(crate) fn host(transport: Transport, lines: usize) -> TestHostBuilder {
    TestHost::builder()
        .transport(transport)
        .session("s1")
        .operation("http.send", move |request| async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let request: HttpRequest = serde_json::from_value(request)?;
            assert_eq!(request.url, "https://api.example.com/v1/messages");
            Ok(serde_json::to_value(HttpResponse {
                status: 200,
                body: Some(lines.to_string()),
                ..HttpResponse::default()
            })?)
        })
}

pub(crate) fn open() -> Value {
    json!({ "options": { "skills": [{ "type": "anthropic", "skill_id": "xlsx" }] } })
}

fn plugin_on(transport: Transport, exchange: &Path, lines: usize) -> Plugin {
    let host = host(transport, lines)
        .exchange_dir(exchange.to_str().unwrap())
        .build()
        .unwrap();
    host.link(plugin).unwrap()
}

#[test]
fn a_container_is_carried_from_response_to_request_and_into_the_next_session() {
    let replies = Transport::BOTH.map(|transport| {
        let plugin = host(transport, 1).build().unwrap().link(plugin).unwrap();
        let contribute = json!({ "provider": "anthropic", "model": "m" });
        let observe = json!({
            "provider": "anthropic",
            "model": "m",
            "server_items": [{
                "type": "bash_code_execution_tool_result",
                "content": { "content": [{ "file_id": "file_07" }] },
            }],
            "fields": { "container": { "id": "container_1" } },
        });
        let mut replies = vec![
            plugin.call("backend.open", open()),
            plugin.call("backend.contribute", &contribute),
            plugin.call("backend.observe", observe),
            plugin.call("backend.contribute", &contribute),
            plugin.call(
                "backend.contribute",
                json!({ "provider": "other", "model": "m" }),
            ),
        ];
        // A reply that omits the container keeps it.
        let quiet = json!({ "provider": "anthropic", "model": "m", "server_items": [] });
        let kept = plugin.call("backend.observe", quiet);
        let state = kept.reply.clone().unwrap()["state"].clone();
        replies.push(kept);
        let mut reopened = open();
        reopened["state"] = state;
        replies.push(plugin.session("s2").call("backend.open", reopened));
        replies.push(plugin.session("s2").call("backend.contribute", &contribute));
        replies.map_reply()
    });
    assert_eq!(replies[0], replies[1]);

    let [_, first, seen, second, other, _, _, reopened] = &replies[0][..] else {
        panic!("{replies:?}");
    };
    let skills = json!([{ "type": "anthropic", "skill_id": "xlsx" }]);
    assert_eq!(first["fields"]["container"], json!({ "skills": skills }));
    assert_eq!(
        seen["files"],
        json!([{ "name": "file_07", "id": "file_07" }])
    );
    let carried = json!({ "id": "container_1", "skills": skills });
    assert_eq!(second["fields"]["container"], carried);
    assert_eq!(
        *other,
        json!({}),
        "it has no part in another provider's request"
    );
    assert_eq!(reopened["fields"]["container"], carried);
}

trait MapReply {
    fn map_reply(self) -> Vec<Value>;
}

impl MapReply for Vec<conjure_skill_sdk::testkit::Outcome> {
    fn map_reply(self) -> Vec<Value> {
        self.into_iter().map(|o| o.reply.unwrap()).collect()
    }
}

#[test]
fn a_file_over_64_kib_goes_there_and_back_unchanged() {
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    for transport in Transport::BOTH {
        let exchange = tempfile::tempdir().unwrap();
        let from = exchange.path().join("in.bin");
        std::fs::write(&from, &bytes).unwrap();
        let plugin = plugin_on(transport, exchange.path(), 1);
        let file = FileRef::at(from.to_str().unwrap());
        let put = plugin.call("files.put", FilesPut { file });
        let there: FileRef = put.parse().unwrap();
        let to = exchange.path().join("out.bin");
        let get = FilesGet {
            id: there.id.unwrap(),
            to: to.to_str().unwrap().to_owned(),
        };
        let back: FileRef = plugin.call("files.get", get).parse().unwrap();
        assert_eq!(back.size, Some(300_000));
        assert_eq!(std::fs::read(to).unwrap(), bytes);
    }
}

#[test]
fn a_result_over_64_kib_crosses_as_a_file() {
    for transport in Transport::BOTH {
        let exchange = tempfile::tempdir().unwrap();
        let plugin = plugin_on(transport, exchange.path(), 20_000);
        plugin.call("backend.open", open()).reply.unwrap();
        let call = json!({ "name": "code_execution", "arguments": { "task": "count" } });
        let outcome = plugin.call("backend.call", call);
        let result = outcome.result().unwrap();
        let [Part::File { file }] = &result.content[..] else {
            panic!("{:?}", result.content);
        };
        let path = Path::new(file.path.as_deref().unwrap());
        assert_eq!(path.parent(), Some(exchange.path()));
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            "count\n".repeat(20_000)
        );
        assert_eq!(file.size, Some(6 * 20_000));
        assert_eq!(result.files, [FileRef::lazy("file_01", "report.xlsx")]);
        assert!(outcome.reply.unwrap().to_string().len() < 1024);
    }
}

#[test]
fn a_host_future_that_uses_timers_is_polled_on_the_plugins_runtime() {
    for transport in Transport::BOTH {
        let plugin = host(transport, 3).build().unwrap().link(plugin).unwrap();
        let call = json!({ "name": "code_execution", "arguments": { "task": "t" } });
        assert_eq!(
            plugin.start("backend.call", call).wait().text(),
            "t\nt\nt\n"
        );
    }
}
