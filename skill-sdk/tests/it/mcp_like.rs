//! A backend like an MCP client, without MCP: a catalog that changes, tools that remember and
//! tools that do not, resources, prompts, completion, and questions in the middle of a call.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, Complete, Completions, Effects, Elicit, Elicited, Open, Part,
    PluginEvent, Prompt, PromptGet, PromptText, Prompts as PromptList, Resource, ResourceRead,
    ResourceWatch, Resources as ResourceList, State, ToolDecl, ToolMode, ToolResult,
};
use conjure_skill_sdk::testkit::{Outcome, TestHost, TestHostBuilder, Transport};
use conjure_skill_sdk::{
    Backend, BackendPlugin, Cx, Error, Prompts, Reopens, Resources, Result, Setup, Subscriptions,
    Upgrade,
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

pub(crate) struct Server {
    outside: Cx,
    sessions: Mutex<HashMap<String, Session>>,
    changed: watch::Sender<Vec<String>>,
}

#[derive(Default)]
struct Session {
    counter: u64,
    grown: bool,
}

pub(crate) fn plugin() -> BackendPlugin<Server> {
    BackendPlugin::new("mcp-like", "A server in memory", |setup: Setup| {
        Ok(Server {
            outside: setup.cx,
            sessions: Mutex::default(),
            changed: watch::Sender::new(Vec::new()),
        })
    })
    .requires("elicit/1")
    .with_resources()
    .with_subscriptions()
    .with_prompts()
    .with_upgrade()
    .with_reopening()
}

impl Server {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn within<T>(&self, cx: &Cx, run: impl FnOnce(&mut Session) -> T) -> Result<T> {
        let mut sessions = self.sessions();
        let session = sessions
            .get_mut(cx.session().unwrap_or_default())
            .ok_or_else(|| Error::not_found("this session is not open"))?;
        Ok(run(session))
    }

    async fn book(&self, cx: &Cx) -> Result<ToolResult> {
        let question = Elicit {
            message: "Which day?".into(),
            schema: Some(json!({
                "type": "object",
                "properties": { "day": { "type": "string" } },
            })),
            ..Elicit::default()
        };
        let answer = cx.elicit_async(&question).await?;
        Ok(match answer.action.as_str() {
            "accept" => ToolResult::text(format!("booked for {}", answer.content["day"])),
            other => ToolResult::error(format!("not booked: {other}")),
        })
    }
}

fn tools(session: &Session) -> Vec<ToolDecl> {
    let nothing = || json!({ "type": "object" });
    let mut tools = vec![
        ToolDecl {
            mode: ToolMode::Stateful,
            ..ToolDecl::new("next", "Counts up", nothing())
        },
        ToolDecl {
            mode: ToolMode::Stateless,
            effects: Effects::Read,
            annotations: Some(json!({ "readOnlyHint": true, "vendor": 1 })),
            output_schema: Some(json!({ "type": "object" })),
            meta: Some(json!({ "x-vendor": { "kept": [1, null, "é"] } })),
            ..ToolDecl::new("écho.v1", "Says it back", nothing())
        },
        ToolDecl::new("book", "Asks for a day", nothing()),
        ToolDecl::new("grow", "Adds a tool", nothing()),
    ];
    if session.grown {
        tools.push(ToolDecl::new("late", "Was not there before", nothing()));
    }
    tools
}

impl Reopens for Server {
    async fn reopen(&self, cx: Cx, _request: Open) -> Result<()> {
        self.within(&cx, |_session| ())
    }
}

impl Backend for Server {
    async fn open(&self, cx: Cx, _request: Open) -> Result<()> {
        let session = cx.session().unwrap_or_default().to_owned();
        self.sessions().insert(session, Session::default());
        Ok(())
    }

    async fn catalog(&self, cx: Cx) -> Result<CatalogReply> {
        self.within(&cx, |session| CatalogReply {
            tools: tools(session),
            resource_templates: vec![json!({ "uriTemplate": "note://{day}" })],
            instructions: Some("Count first.".into()),
            meta: Some(json!({ "serverInfo": { "name": "memory" } })),
            ..CatalogReply::default()
        })
    }

    async fn call(&self, cx: Cx, request: BackendCall) -> Result<ToolResult> {
        match request.name.as_str() {
            "next" => self.within(&cx, |session| {
                session.counter += 1;
                ToolResult::json(json!({ "counter": session.counter }))
            }),
            "écho.v1" => {
                let mut meta = Map::new();
                meta.insert("progressToken".into(), json!(7));
                Ok(ToolResult {
                    content: vec![Part::Raw {
                        source: "mcp".into(),
                        value: json!({ "type": "future", "said": request.arguments }),
                    }],
                    meta: Some(meta),
                    ..ToolResult::default()
                })
            }
            "book" => self.book(&cx).await,
            "grow" => {
                self.within(&cx, |session| session.grown = true)?;
                let session = cx.session().unwrap_or_default().to_owned();
                self.changed.send_replace(vec![session]);
                Ok(ToolResult::default())
            }
            other => Err(Error::not_found(format!("no tool `{other}`"))),
        }
    }

    async fn close(&self, cx: Cx) -> Result<()> {
        self.sessions().remove(cx.session().unwrap_or_default());
        Ok(())
    }

    async fn watch(&self, cx: Cx) -> Result<()> {
        let mut changes = self.changed.subscribe();
        // A host operation while no call runs: with the watch's context and the instance's.
        cx.kv_set_async("watching", json!(true)).await?;
        self.outside.kv_set_async("instance", json!(true)).await?;
        cx.event_async(&PluginEvent::State {
            state: "ready".into(),
            detail: String::new(),
        })
        .await?;
        let mut cancelled = Box::pin(cx.until_cancelled());
        loop {
            let mut change = Box::pin(changes.changed());
            let news = std::future::poll_fn(|context| {
                if cancelled.as_mut().poll(context).is_ready() {
                    return std::task::Poll::Ready(false);
                }
                change.as_mut().poll(context).map(|change| change.is_ok())
            })
            .await;
            if !news {
                return Ok(());
            }
            drop(change);
            let sessions = changes.borrow_and_update().clone();
            cx.event_async(&PluginEvent::CatalogChanged {
                sessions,
                what: Vec::new(),
            })
            .await?;
        }
    }
}

impl Resources for Server {
    async fn list(&self, _cx: Cx) -> Result<ResourceList> {
        Ok(ResourceList {
            resources: vec![Resource {
                uri: "note://today".into(),
                name: "today".into(),
                description: None,
                media_type: Some("text/plain".into()),
                meta: Some(json!({ "annotations": { "priority": 0.5 } })),
            }],
            resource_templates: vec![json!({ "uriTemplate": "note://{day}" })],
        })
    }

    async fn read(&self, _cx: Cx, request: ResourceRead) -> Result<ToolResult> {
        Ok(ToolResult::text(format!("what {} says", request.uri)))
    }

    async fn complete(&self, _cx: Cx, request: Complete) -> Result<Completions> {
        let days = ["monday", "tuesday", "thursday"];
        Ok(Completions {
            values: days
                .iter()
                .filter(|day| day.starts_with(&request.value))
                .map(|day| (*day).to_owned())
                .collect(),
            more: false,
            total: None,
        })
    }
}

impl Subscriptions for Server {
    async fn subscribe(&self, cx: Cx, request: ResourceWatch) -> Result<()> {
        // It changes at once.
        cx.resource_updated_async(&request.uri).await
    }

    async fn unsubscribe(&self, _cx: Cx, request: ResourceWatch) -> Result<()> {
        match request.uri.as_str() {
            "note://today" => Ok(()),
            other => Err(Error::not_found(format!("nobody watches {other}"))),
        }
    }
}

impl Prompts for Server {
    async fn list(&self, _cx: Cx) -> Result<PromptList> {
        Ok(PromptList {
            prompts: vec![Prompt {
                name: "plan".into(),
                description: Some("Plans a day".into()),
                arguments: vec![json!({ "name": "day", "required": true })],
                meta: None,
            }],
        })
    }

    async fn get(&self, _cx: Cx, request: PromptGet) -> Result<PromptText> {
        Ok(PromptText {
            description: None,
            messages: vec![json!({
                "role": "user",
                "content": { "type": "text", "text": format!("Plan {}", request.arguments["day"]) },
            })],
            meta: None,
        })
    }
}

impl Upgrade for Server {
    async fn export(&self, cx: Cx) -> Result<Value> {
        self.within(&cx, |session| json!({ "counter": session.counter }))
    }

    async fn import(&self, cx: Cx, state: State) -> Result<()> {
        let counter = state.state["counter"].as_u64().unwrap_or_default();
        let session = cx.session().unwrap_or_default().to_owned();
        self.sessions().insert(
            session,
            Session {
                counter,
                ..Session::default()
            },
        );
        Ok(())
    }
}

pub(crate) fn host(transport: Transport) -> TestHostBuilder {
    TestHost::builder()
        .transport(transport)
        .session("s1")
        .elicit(|question| Elicited {
            action: "accept".into(),
            content: BTreeMap::from([("day".to_owned(), json!(question.message.len()))]),
        })
}

fn life_of_a_server(transport: Transport) -> Vec<Outcome> {
    let host = host(transport).build().unwrap();
    let plugin = host.link(plugin).unwrap();
    let next = || json!({ "name": "next", "arguments": {} });
    let watch = plugin.start("backend.watch", json!({}));
    assert!(
        watch.until(|seen| seen.events.len() == 1),
        "it never got ready"
    );
    let mut outcomes = vec![
        plugin.call("backend.call", next()),
        plugin.call("backend.open", json!({})),
        plugin.session("s2").call("backend.open", json!({})),
        plugin.call("backend.catalog", json!({})),
        plugin.call("backend.call", next()),
        plugin.call("backend.call", next()),
        plugin.session("s2").call("backend.call", next()),
        plugin.call(
            "backend.call",
            json!({ "name": "écho.v1", "arguments": { "deep": [1.5, {}] } }),
        ),
        plugin.call("backend.call", json!({ "name": "book" })),
        plugin.call("backend.call", json!({ "name": "grow" })),
        plugin.call("backend.catalog", json!({})),
        plugin.call("resource.list", json!({})),
        plugin.call("resource.read", json!({ "uri": "note://today" })),
        plugin.call(
            "complete",
            json!({ "reference": { "type": "ref/resource" }, "argument": "day", "value": "t" }),
        ),
        plugin.call("prompt.list", json!({})),
        plugin.call(
            "prompt.get",
            json!({ "name": "plan", "arguments": { "day": "monday" } }),
        ),
    ];
    assert!(
        watch.until(|seen| seen.events.len() == 2),
        "no change was told"
    );
    watch.cancel();
    outcomes.push(watch.wait());
    let state = plugin.call("state.export", json!({}));
    let exported = state.reply.clone().unwrap();
    outcomes.push(state);
    outcomes.push(plugin.session("s3").call("state.import", exported));
    outcomes.push(plugin.session("s3").call("backend.call", next()));
    outcomes.push(plugin.call("backend.close", json!({})));
    outcomes.push(plugin.call("backend.catalog", json!({})));
    assert_eq!(
        host.kv(),
        BTreeMap::from([
            ("instance".to_owned(), json!(true)),
            ("watching".to_owned(), json!(true)),
        ])
    );
    outcomes.into_iter().map(Outcome::settled).collect()
}

#[test]
fn a_server_session_is_the_same_directly_and_over_a_pipe() {
    let direct = life_of_a_server(Transport::Direct);
    assert_eq!(direct, life_of_a_server(Transport::Pipe));

    assert_eq!(
        direct[0].code(),
        Some(code::NOT_FOUND),
        "it is not open yet"
    );
    let catalog: CatalogReply = direct[3].parse().unwrap();
    assert_eq!(catalog.tools[0].mode, ToolMode::Stateful);
    assert_eq!(catalog.tools[1].mode, ToolMode::Stateless);
    assert_eq!(
        catalog.tools[1].meta,
        Some(json!({ "x-vendor": { "kept": [1, null, "é"] } }))
    );
    assert_eq!(
        direct[5].result().unwrap().structured,
        Some(json!({ "counter": 2 }))
    );
    assert_eq!(
        direct[6].result().unwrap().structured,
        Some(json!({ "counter": 1 }))
    );
    assert_eq!(
        direct[7].result().unwrap().content,
        [Part::Raw {
            source: "mcp".into(),
            value: json!({ "type": "future", "said": { "deep": [1.5, {}] } }),
        }]
    );
    assert_eq!(direct[8].text(), "booked for 10");
    let grown: CatalogReply = direct[10].parse().unwrap();
    assert_eq!(grown.tools.len(), catalog.tools.len() + 1);
    assert_eq!(
        direct[13].parse::<Completions>().unwrap().values,
        ["tuesday", "thursday"]
    );
    let watched: Vec<PluginEvent> = direct[16]
        .events
        .iter()
        .map(|event| serde_json::from_value(event.clone()).unwrap())
        .collect();
    assert_eq!(
        watched[1],
        PluginEvent::CatalogChanged {
            sessions: vec!["s1".into()],
            what: Vec::new(),
        }
    );
    assert_eq!(
        direct[19].result().unwrap().structured,
        Some(json!({ "counter": 3 }))
    );
    assert_eq!(direct[21].code(), Some(code::NOT_FOUND), "it is closed");
}

#[test]
fn a_person_who_declines_is_an_answer_for_the_model() {
    for transport in Transport::BOTH {
        let host = host(transport)
            .elicit(|_| Elicited {
                action: "decline".into(),
                ..Elicited::default()
            })
            .build()
            .unwrap();
        let plugin = host.link(plugin).unwrap();
        plugin.call("backend.open", json!({})).reply.unwrap();
        let outcome = plugin.call("backend.call", json!({ "name": "book" }));
        assert_eq!(
            outcome.result().unwrap(),
            ToolResult::error("not booked: decline")
        );
    }
}
