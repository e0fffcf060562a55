//! A server with a model, and sessions that talk to it.

use std::time::{Duration, Instant};

use conjure_kit::{Model, Workspace};
use serde_json::{Value, json};

use crate::server::Server;

/// A server, a model that says what the test tells it to, and a saved auth for it.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) model: Model,
    /// The id of the auth.
    pub(crate) auth: String,
}

impl Stage {
    /// With the local executor.
    pub(crate) fn new() -> Self {
        let workspace = Workspace::new().unwrap();
        workspace.add_plugin("conjure-backend-local").unwrap();
        Self::on(Server::with(&workspace, "", &[]))
    }

    /// On a server that is there.
    pub(crate) fn on(server: Server) -> Self {
        let model = Model::start().unwrap();
        let auth = auth(&server, "work", "anthropic", &model.base_url());
        Self {
            server,
            model,
            auth,
        }
    }

    /// A new session; `more` wins over what it is otherwise made with.
    pub(crate) fn session(&self, more: &Value) -> Value {
        let mut new = json!({
            "auth": self.auth, "model": "a-model",
            "working_dir": self.server.workspace.work().display().to_string(),
        });
        for (name, value) in more.as_object().unwrap() {
            new[name] = value.clone();
        }
        self.server.post("/api/v1/sessions", &new).is(201).json()
    }

    /// Says something; what was begun.
    pub(crate) fn say(&self, session: &str, text: &str) -> Value {
        let path = format!("/api/v1/sessions/{session}/turns");
        let begun = self.server.post(&path, &json!({ "text": text })).is(202);
        let turn = begun.json();
        let at = format!("/api/v1/turns/{}", turn["turn"].as_str().unwrap());
        assert_eq!(begun.header("location"), Some(at.as_str()));
        turn
    }

    /// A turn, once it is over.
    pub(crate) fn over(&self, begun: &Value) -> Value {
        self.over_within(begun, Duration::from_secs(25))
    }

    /// A turn, once it is over, which takes this long at most.
    pub(crate) fn over_within(&self, begun: &Value, limit: Duration) -> Value {
        let until = Instant::now() + limit;
        let path = format!("/api/v1/turns/{}?wait=10", text(&begun["turn"]));
        loop {
            let turn = self.server.get(&path).is(200).json();
            if turn["ended_at_ms"].is_number() {
                return turn;
            }
            assert!(Instant::now() < until, "{turn}");
        }
    }

    /// Says something, and waits for the end of the turn.
    pub(crate) fn talk(&self, session: &str, text: &str) -> Value {
        let turn = self.over(&self.say(session, text));
        assert_eq!(turn["state"], "completed", "{turn}");
        turn
    }

    /// A session as it is now.
    pub(crate) fn now(&self, session: &str) -> Value {
        let path = format!("/api/v1/sessions/{session}");
        self.server.get(&path).is(200).json()
    }
}

/// Saves an auth; its id.
pub(crate) fn auth(server: &Server, name: &str, provider: &str, base_url: &str) -> String {
    let new = json!({
        "name": name, "provider": provider, "kind": "api_key", "secret": "a-key-of-nobody",
        "base_url": base_url,
    });
    let made = server.post("/api/v1/auths", &new).is(201).json();
    text(&made["id"])
}

/// A text.
pub(crate) fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value}"))
        .to_owned()
}
