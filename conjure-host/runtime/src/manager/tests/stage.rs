//! A manager over a database of its own, and a model that answers by script.

use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure_core::chat::{Event, EventId, Message as Said};
use conjure_mock_llm::{Message, MockLlm, Position, Reply, Script, Step};
use conjure_skill_sdk::Skill;
use conjure_skill_sdk::protocol::{Execute, Permissions};
use conjure_vault::Credential;
use serde_json::{Map, Value, json};

use crate::Host;
use crate::manager::requests::ActorRequest;
use crate::manager::{Manager, ManagerOptions, NewSession, SessionView, Turn, lock};
use conjure_providers::auths::{Auths, KeySources, NewAuth};
use conjure_store::{Location, Run, Store, ThreadId};

/// The database's file in the directory of data.
const DATABASE: &str = "conjure.db";
/// The secret that a skill asks for.
const SECRET: &str = "WORD";
/// How long anything may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Stage {
    pub(super) dir: tempfile::TempDir,
    pub(super) model: MockLlm,
    pub(super) manager: Manager,
    pub(super) auths: Auths,
}

/// Quick where nothing depends on the time.
pub(super) fn options() -> ManagerOptions {
    ManagerOptions {
        heartbeat_interval: Duration::from_millis(100),
        ..ManagerOptions::default()
    }
}

impl Stage {
    pub(super) async fn new(script: Script) -> Self {
        Self::with(script, options()).await
    }

    pub(super) async fn with(script: Script, options: ManagerOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join(DATABASE);
        Self::over(dir, &database, script, options).await
    }

    /// With its database at a place of its own.
    pub(super) async fn over(
        dir: tempfile::TempDir,
        database: &Path,
        script: Script,
        options: ManagerOptions,
    ) -> Self {
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let model = MockLlm::start(script).await.unwrap();
        let (manager, auths) = manager(dir.path(), database, options).await;
        let stage = Self {
            dir,
            model,
            manager,
            auths,
        };
        stage.auth("anthropic", "key").await;
        stage.auth("openai", "other").await;
        stage
    }

    /// Opens the same data under a new manager, as after a restart.
    pub(super) async fn again(self, options: ManagerOptions) -> Self {
        self.manager.shutdown(Duration::ZERO).await;
        self.manager.store().close().await;
        let (data_dir, database) = (self.dir.path(), self.dir.path().join(DATABASE));
        let (manager, auths) = manager(data_dir, &database, options).await;
        Self {
            manager,
            auths,
            ..self
        }
    }

    /// Another process over the same data.
    pub(super) async fn peer(&self, options: ManagerOptions) -> Manager {
        let database = self.dir.path().join(DATABASE);
        manager(self.dir.path(), &database, options).await.0
    }

    async fn auth(&self, provider: &str, name: &str) {
        let new = NewAuth {
            name: name.to_owned(),
            provider: provider.to_owned(),
            base_url: Some(self.model.base_url()),
        };
        let key = Credential::ApiKey("sk-test".to_owned().into());
        self.auths.add(new, key).await.unwrap();
    }

    pub(super) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(super) fn new_session(&self) -> NewSession {
        NewSession {
            tools: object(
                json!({ "backend": [{ "kind": "native" }], "policy": { "allow": ["free_*"] } }),
            ),
            ..NewSession::new("key", "claude-sonnet-4-5", self.work())
        }
    }

    pub(super) async fn session(&self) -> SessionView {
        self.manager.create(self.new_session()).await.unwrap()
    }

    /// Says something and waits until the turn is over.
    pub(super) async fn say(&self, session: &SessionView, text: &str) -> Run {
        let turn = self.manager.say(&session.id, Said::user(text), None);
        let turn = turn.await.unwrap();
        self.wait(&turn.id).await
    }

    /// Says something and waits until the model gets as far as this token.
    pub(super) async fn say_until(&self, session: &SessionView, text: &str, token: &str) -> Turn {
        let turn = self.manager.say(&session.id, Said::user(text), None);
        let turn = turn.await.unwrap();
        self.model.wait_for_gate(token).await.unwrap();
        turn
    }

    pub(super) async fn wait(&self, turn: &str) -> Run {
        let over = tokio::time::timeout(PATIENCE, self.manager.wait(turn));
        over.await.expect("the turn ends").unwrap()
    }

    /// What was said on a thread, each with whose it is.
    pub(super) async fn said(&self, thread: &ThreadId) -> Vec<String> {
        let entries = self.manager.host().entries(thread).await.unwrap();
        let messages = conjure_core::log::messages(&entries);
        let said = messages
            .iter()
            .map(|said| format!("{:?}: {}", said.role, said.text()));
        said.collect()
    }

    /// Asks the actor that has a thread open.
    pub(super) async fn ask(&self, thread: &ThreadId, request: ActorRequest) {
        let inner = &self.manager.inner;
        let owner = lock(&inner.active_threads)[thread].owner.clone();
        let actor = lock(&inner.actors)[&owner].clone();
        actor.send(Box::new(request)).await.unwrap();
    }

    /// Waits until an event comes that is meant.
    pub(super) async fn until(
        &self,
        thread: &ThreadId,
        after: Option<EventId>,
        is_meant: impl Fn(&Event) -> bool,
    ) -> EventId {
        let mut events = self.manager.events(thread, after).await.unwrap();
        let found = async {
            loop {
                let event = events.next().await.unwrap().expect("more comes");
                if is_meant(&event.event) {
                    return event.id;
                }
            }
        };
        tokio::time::timeout(PATIENCE, found)
            .await
            .expect("it is shown")
    }
}

async fn manager(data_dir: &Path, database: &Path, options: ManagerOptions) -> (Manager, Auths) {
    let place = Location::File(database.to_owned());
    let store = Store::open(&place, &conjure_store::Options::default())
        .await
        .unwrap();
    let auths = Auths::over(
        store.clone(),
        KeySources {
            key: Some("00".repeat(32).into()),
            ..KeySources::new(data_dir)
        },
    );
    let host = Host::builder()
        .data_dir(data_dir)
        .log(store.clone())
        .auths(auths.clone())
        .secret(SECRET, "sesame".to_owned().into())
        .skill(free)
        .skill(careful)
        .build()
        .await
        .unwrap();
    (Manager::start(host, store, options).await.unwrap(), auths)
}

/// A skill that may run without asking; it waits where it is told to, and has a secret of the host's.
fn free() -> Skill {
    let free = Skill::new("free", "Says what it is told").permissions(Permissions {
        secrets: vec![SECRET.to_owned()],
        ..Permissions::default()
    });
    free.execute("say TEXT | wait MS | secret", |cx, it: Execute| {
        if it.command == "secret" {
            return match cx.secret(SECRET) {
                Ok(secret) => secret,
                Err(refused) => refused.message().to_owned(),
            };
        }
        if let Some(ms) = it.command.strip_prefix("wait ") {
            let ms = Duration::from_millis(ms.parse().unwrap_or_default());
            let until = std::time::Instant::now() + ms;
            while std::time::Instant::now() < until && !cx.cancelled() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        format!("free: {}", it.command)
    })
}

/// One that asks first.
fn careful() -> Skill {
    Skill::new("careful", "Changes something").execute("change", |_, _: Execute| "changed")
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

/// A reply that stops in its middle until `token` is released.
pub(super) fn held(text: &str, token: &str) -> Reply {
    Reply::from(Message::new().text(text).deltas(4)).hold(Position::Event(4), token)
}

/// A call of a skill.
pub(super) fn call(id: &str, tool: &str, command: &str) -> Message {
    Message::new().tool_use(id, tool, json!({ "command": command }))
}

pub(super) fn always(text: &str) -> Script {
    Script::new().step(Step::new(Message::new().text(text)).always())
}
