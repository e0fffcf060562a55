//! Logins: how they go, whose a connection is, how tokens are renewed, and authorization servers that
//! are hostile.

mod changes;
mod renewal;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use conjure_kit::visit;
use conjure_skill_sdk::protocol::{Elicit, Elicited};
use conjure_skill_sdk::testkit::{Outcome, TestHostBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::listening::Listening;
use super::stage::{Stage, failure, log, until, with};

fn answered(action: &str, address: Option<String>) -> Elicited {
    let content = address.map(|address| ("address".to_owned(), json!(address)));
    Elicited {
        action: action.to_owned(),
        content: content.into_iter().collect::<BTreeMap<_, _>>(),
    }
}

/// A person whose browser follows every page.
fn logs_in(question: Elicit) -> Elicited {
    std::thread::spawn(move || {
        let mut next = question.url;
        while let Some(url) = next {
            next = visit(&url);
        }
    });
    answered("accept", None)
}

struct Place {
    server: Listening,
    data: TempDir,
}

impl Place {
    fn new(traits: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let log = data.path().join("log");
        let traits = [&["oauth", "--log", log.to_str().unwrap()][..], traits].concat();
        Self {
            server: Listening::new(&traits),
            data,
        }
    }

    fn stage(&self, more: Value, person: fn(Elicit) -> Elicited) -> Stage {
        self.stage_with(more, |host| host.elicit(person))
    }

    fn stage_with(
        &self,
        more: Value,
        host: impl FnOnce(TestHostBuilder) -> TestHostBuilder,
    ) -> Stage {
        let config = with(self.server.config(), more);
        let dir = self.data.path().to_str().unwrap().to_owned();
        Stage::with(json!({ "s": config }), |builder| {
            host(builder.data_dir(&dir))
        })
    }

    /// How many tokens were given for codes, and how many for refresh tokens.
    fn granted(&self) -> String {
        self.server.ask("GET /granted")
    }

    fn log(&self, what: &str) -> Vec<Value> {
        let log = log(&self.data.path().join("log"));
        log.iter()
            .filter_map(|line| line.get(what).cloned())
            .collect()
    }

    /// The token that is kept.
    fn access(&self) -> String {
        let kept = std::fs::read(self.kept().unwrap()).unwrap();
        let kept: Value = serde_json::from_slice(&kept).unwrap();
        let grant = &kept["issuers"][kept["current"].as_str().unwrap()];
        let token = &grant["credentials"]["token_response"]["access_token"];
        token.as_str().unwrap().to_owned()
    }

    /// The file with the tokens.
    fn kept(&self) -> Option<std::path::PathBuf> {
        let entries = std::fs::read_dir(self.data.path().join("logins")).ok()?;
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|end| end == "json"))
    }
}

fn manage(stage: &Stage, name: &str) -> Outcome {
    let call = json!({ "name": name, "arguments": { "server": "s" } });
    stage.plugin.call("backend.call", call)
}

/// Why a login did not work.
fn refused(stage: &Stage) -> String {
    manage(stage, "login").reply.unwrap_err().to_string()
}

fn generation(stage: &Stage) -> u64 {
    let generation = Cell::new(None);
    until("it is ready", || {
        // Only what is ready has one.
        generation.set(stage.status()["generation"].as_u64());
        generation.get().is_some()
    });
    generation.get().unwrap()
}

fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_person_logs_in_and_the_login_is_kept() {
    for era in ["legacy", "modern"] {
        let place = Place::new(if era == "modern" { &["modern"] } else { &[] });
        let stage = place.stage(json!({}), logs_in);
        let status = stage.status();
        assert_eq!(
            (&status["state"], &status["auth"]),
            (&json!("needs_auth"), &json!("logged_out"))
        );
        assert_eq!(manage(&stage, "login").text(), "logged in");
        assert_eq!(stage.text("echo", json!({ "text": "in" })), "in");
        assert_eq!(place.granted(), "1 0");
        let asked = &place.log("authorize")[0];
        assert_eq!(asked["scope"], "read", "what the challenge says");
        let kept = place.kept().unwrap();
        assert_eq!(mode_of(&kept), 0o600);
        assert_eq!(mode_of(kept.parent().unwrap()), 0o700);
        // Nothing of it is ever told.
        let status = stage.status().to_string();
        assert!(
            status.contains("logged_in") && !status.contains("access-"),
            "{status}"
        );
        drop(stage);
        let again = place.stage(json!({}), |_| answered("cancel", None));
        assert_eq!(again.text("echo", json!({ "text": "still" })), "still");
        assert_eq!(place.granted(), "1 0");
    }
}

#[test]
fn a_logout_forgets_the_login() {
    let place = Place::new(&[]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    assert_eq!(manage(&stage, "logout").text(), "logged out");
    assert_eq!(manage(&stage, "logout").text(), "not logged in");
    assert_eq!(place.kept(), None);
    until("it is connected no more", || {
        stage.status()["state"] == "needs_auth"
    });
}

#[test]
fn a_logout_gives_the_tokens_back() {
    let place = Place::new(&["revokes"]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let kept: Value =
        serde_json::from_slice(&std::fs::read(place.kept().unwrap()).unwrap()).unwrap();
    let issuer = kept["current"].as_str().unwrap();
    let grant = &kept["issuers"][issuer];
    let given = &grant["credentials"]["token_response"];
    assert_eq!(manage(&stage, "logout").text(), "logged out");
    let back = |token: &str| json!({ "token": given[token], "token_type_hint": token, "client_id": grant["client_id"] });
    let expected = [back("refresh_token"), back("access_token")];
    assert_eq!(place.log("revoke"), expected);
    assert_eq!(manage(&stage, "logout").text(), "not logged in");
    assert_eq!(place.log("revoke").len(), 2);
}

#[test]
fn a_logout_that_the_authorization_server_does_not_take_is_one_here_and_says_so() {
    let place = Place::new(&["revokes-not"]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let told = manage(&stage, "logout").text();
    assert!(told.starts_with("logged out on this machine"), "{told}");
    assert!(told.contains("HTTP 503"), "{told}");
    assert_eq!(place.kept(), None);
    // Nor one that is gone.
    assert_eq!(manage(&stage, "login").text(), "logged in");
    drop(place.server);
    let told = manage(&stage, "logout").text();
    assert!(told.starts_with("logged out on this machine"), "{told}");
}

#[test]
fn the_address_at_which_a_browser_elsewhere_ended_can_be_pasted() {
    let place = Place::new(&[]);
    let stage = place.stage(json!({}), |question| {
        // This browser cannot reach the host.
        let ended = visit(&question.url.unwrap());
        answered("accept", ended)
    });
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let forged = Place::new(&[]);
    let stage = forged.stage(json!({}), |_| {
        let address = "http://127.0.0.1/callback?code=x&state=y";
        answered("accept", Some(address.to_owned()))
    });
    assert!(
        refused(&stage).contains("not of this login"),
        "{}",
        refused(&stage)
    );
}

#[test]
fn a_call_asks_the_person_and_goes_on() {
    let place = Place::new(&["steps"]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    // The login was for reading; the tool wants more.
    assert_eq!(stage.text("count", json!({})), "1");
    let asked = place.log("authorize");
    assert_eq!(asked.len(), 2);
    assert_eq!(
        asked[1]["scope"], "read write",
        "what there was, and what is wanted"
    );
    assert_eq!(
        asked[1]["client_id"], asked[0]["client_id"],
        "registered once"
    );
}

#[test]
fn a_person_who_does_not_want_to_is_asked_once() {
    let place = Place::new(&["steps"]);
    let times = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&times);
    let stage = place.stage_with(json!({}), move |host| {
        host.elicit(
            move |question| match counted.fetch_add(1, Ordering::Relaxed) {
                0 => logs_in(question),
                _ => answered("decline", None),
            },
        )
    });
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let refused = stage.call("count", json!({}));
    assert_eq!(failure(&refused), "MissingScope");
    for part in [
        "`write`",
        "conjure mcp login s",
        "oauth.scopes",
        "HTTP 403; the person was asked",
    ] {
        assert!(refused.text().contains(part), "{}", refused.text());
    }
    assert_eq!(stage.failure("count", json!({})), "MissingScope");
    assert_eq!(times.load(Ordering::Relaxed), 2);
    assert_eq!(stage.text("echo", json!({ "text": "still" })), "still");
}

#[test]
fn a_person_is_told_which_right_is_missing() {
    let place = Place::new(&["steps"]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let stage = place.stage_with(json!({}), move |host| {
        host.elicit(move |question| {
            heard.lock().unwrap().push(question.message.clone());
            logs_in(question)
        })
    });
    assert_eq!(manage(&stage, "login").text(), "logged in");
    assert_eq!(stage.text("count", json!({})), "1");
    let asked = asked.lock().unwrap();
    assert!(
        asked[0].starts_with("[s] wants you to log in at "),
        "{asked:?}"
    );
    let again = "[s] wants the right (scope) `write` that your login does not give. Log in again";
    assert!(asked[1].starts_with(again), "{asked:?}");
}

#[test]
fn a_token_of_the_configuration_that_gives_too_little_is_told_as_that() {
    let place = Place::new(&["steps"]);
    let login = place.stage(json!({}), logs_in);
    assert_eq!(manage(&login, "login").text(), "logged in");
    let header = format!("Bearer {}", place.access());
    let own = json!({ "headers": { "Authorization": header } });
    let stage = place.stage(own, |_| answered("cancel", None));
    let refused = stage.call("count", json!({}));
    assert_eq!(failure(&refused), "MissingScope");
    let told = refused.text();
    assert!(
        told.contains("`write`") && told.contains("`headers`"),
        "{told}"
    );
}

#[test]
fn a_person_who_does_not_want_to_speaks_for_one_session() {
    let place = Place::new(&["steps", "modern"]);
    let times = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&times);
    let stage = place.stage_with(json!({}), move |host| {
        host.elicit(
            move |question| match counted.fetch_add(1, Ordering::Relaxed) {
                1 => answered("decline", None),
                _ => logs_in(question),
            },
        )
    });
    assert_eq!(manage(&stage, "login").text(), "logged in");
    until("it may be shared", || stage.status()["shared"] == true);
    stage.open("two");
    assert_eq!(stage.failure("count", json!({})), "MissingScope");
    assert_eq!(stage.failure("count", json!({})), "MissingScope");
    assert_eq!(times.load(Ordering::Relaxed), 2, "it was asked once");
    let counted = stage.call_in("two", "s", "count", json!({}));
    assert_eq!(counted.text(), "1", "the other session's person is asked");
    // There is a login now that does for both.
    assert_eq!(stage.text("count", json!({})), "2");
    assert_eq!(times.load(Ordering::Relaxed), 3);
    stage.close("two");
}

#[test]
fn a_client_that_was_registered_by_hand_registers_no_more() {
    let place = Place::new(&["no-registration"]);
    let stage = place.stage(json!({}), logs_in);
    let why = refused(&stage);
    assert!(why.contains("oauth.client_id"), "{why}");
    let own = json!({ "oauth": { "client_id": "by-hand", "scopes": ["a", "b"] } });
    let stage = place.stage(own, logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    assert_eq!(place.log("authorize")[0]["scope"], "a b");
    assert!(place.log("register").is_empty());
}

#[test]
fn hostile_authorization_servers_get_no_token_request() {
    for (name, why) in [
        ("wrong-iss", "https://evil.example"),
        ("wrong-resource", "mismatch"),
        ("pkce-plain", "PKCE"),
        ("pkce-unsaid", "PKCE"),
        ("plain-http", "is not https"),
        ("refuses-login", "access_denied"),
    ] {
        let place = Place::new(&[name]);
        let stage = place.stage(json!({}), logs_in);
        let told = refused(&stage);
        assert!(told.contains(why), "{name}: {told}");
        assert!(place.log("token").is_empty(), "{name}");
        assert_eq!(stage.status()["auth"], "logged_out", "{name}");
    }
}

#[test]
fn a_damaged_file_is_named_and_not_quoted() {
    let place = Place::new(&[]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    drop(stage);
    let kept = place.kept().unwrap();
    std::fs::write(&kept, "{\"issuers\": \"secret-of-somebody\"}").unwrap();
    let stage = place.stage(json!({}), logs_in);
    until("it is told", || {
        stage.status()["why"].to_string().contains("is damaged")
    });
    assert!(!stage.status().to_string().contains("secret-of"));
    assert_eq!(manage(&stage, "logout").text(), "logged out");
}
