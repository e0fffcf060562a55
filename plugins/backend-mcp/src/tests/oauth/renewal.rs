//! Tokens that end: renewed, refused, over.

use serde_json::json;

use super::super::stage::until;
use super::{Place, answered, generation, logs_in, manage, refused};
use crate::oauth::{Auth, OAuthClient};
use crate::secrets::Secrets;

#[test]
fn a_token_that_is_refused_is_renewed_once() {
    for traits in [&[][..], &["no-refresh"], &["rotates"]] {
        let place = Place::new(traits);
        let stage = place.stage(json!({}), logs_in);
        assert_eq!(manage(&stage, "login").text(), "logged in");
        for times in 1..=2 {
            place.server.ask("POST /expire");
            assert_eq!(
                stage.text("echo", json!({ "text": "a" })),
                "a",
                "{traits:?}"
            );
            assert_eq!(place.granted(), format!("1 {times}"), "{traits:?}");
        }
        let resources = place.log("token");
        let url = place.server.url();
        assert!(resources.iter().all(|token| token["resource"] == url));
    }
}

#[test]
fn a_token_that_ends_soon_is_renewed_before_it_is_sent() {
    let place = Place::new(&["short"]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let before = place.granted();
    assert_ne!(before, "1 0");
    assert_eq!(stage.text("echo", json!({ "text": "a" })), "a");
    assert_ne!(place.granted(), before);
}

#[test]
fn a_token_that_lasts_shortly_is_not_renewed_for_every_request() {
    let place = Place::new(&["brief"]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    for _ in 0..3 {
        assert_eq!(stage.text("echo", json!({ "text": "a" })), "a");
    }
    assert_eq!(place.granted(), "1 0");
}

#[test]
fn two_that_renew_at_once_burn_no_refresh_token() {
    let place = Place::new(&["rotates", "modern"]);
    let one = place.stage(json!({}), logs_in);
    assert_eq!(manage(&one, "login").text(), "logged in");
    let two = place.stage(json!({}), logs_in);
    assert_eq!(two.text("echo", json!({ "text": "a" })), "a");
    place.server.ask("POST /expire");
    let calls = [&one, &two].map(|stage| stage.begin("echo", json!({ "text": "both" })));
    for call in calls {
        assert_eq!(call.wait().text(), "both");
    }
    assert_eq!(place.granted(), "1 1", "the other took over what was saved");
}

#[test]
fn a_login_that_runs_out_is_no_logout() {
    let place = Place::new(&["over"]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let first = generation(&stage);
    assert_eq!(
        stage.text("count", json!({})),
        "1",
        "the server takes it still"
    );
    place.server.ask("POST /expire");
    assert_eq!(stage.text("count", json!({})), "2");
    assert_eq!(place.log("authorize").len(), 2, "the person was asked");
    assert_eq!(generation(&stage), first);
}

#[test]
fn who_has_a_login_that_is_over_gets_what_everybody_gets() {
    let place = Place::new(&["over", "calls-only"]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    drop(stage);
    place.server.ask("POST /expire");
    let stage = place.stage(json!({}), logs_in);
    until("its tools are listed", || {
        stage.status()["state"] == "ready"
    });
    assert_eq!(place.log("authorize").len(), 1, "nobody was asked");
    let counted = stage.call("count", json!({}));
    let told = counted.text();
    assert!(
        !counted.result().unwrap().is_error,
        "{told} {}",
        stage.status()
    );
    assert_eq!(place.log("authorize").len(), 2);
}

#[test]
fn a_login_that_cannot_be_kept_changes_nothing() {
    let place = Place::new(&[]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let first = generation(&stage);
    assert_eq!(stage.text("count", json!({})), "1");
    // What is kept next is written beside it first.
    let new = format!("new-{}", std::process::id());
    std::fs::create_dir(place.kept().unwrap().with_extension(new)).unwrap();
    let why = refused(&stage);
    assert!(why.contains("the login did not work"), "{why}");
    assert_eq!(stage.text("count", json!({})), "2");
    assert_eq!(generation(&stage), first);
}

#[test]
fn a_renewal_that_does_not_work_now_forgets_nothing() {
    let place = Place::new(&["refresh-fails"]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let kept = std::fs::read(place.kept().unwrap()).unwrap();
    place.server.ask("POST /expire");
    assert_eq!(stage.failure("echo", json!({})), "NotReady");
    assert_eq!(std::fs::read(place.kept().unwrap()).unwrap(), kept);
}

#[test]
fn a_login_that_is_over_is_not_tried_again_and_again() {
    let place = Place::new(&["short", "rotates"]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    drop(stage);
    // Somebody else used the refresh token up, and nothing that was given is worth anything.
    let kept = std::fs::read_to_string(place.kept().unwrap()).unwrap();
    let (before, after) = kept.split_once("\"refresh_token\":\"").unwrap();
    let rest = after.split_once('"').unwrap().1;
    let used = format!("{before}\"refresh_token\":\"refresh-0\"{rest}");
    std::fs::write(place.kept().unwrap(), used).unwrap();
    place.server.ask("POST /expire");
    let url = place.server.url();
    let (client, dir) = (OAuthClient::default(), place.data.path());
    let secrets = Secrets::default();
    let auth = Auth::new("s", &url, client, Some(dir), secrets.clone()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        assert!(auth.has_new_token().await, "nobody has tried it");
        // It would be good for a moment yet, and is not.
        let sent = auth.token().await.unwrap().unwrap();
        let told = secrets.redact(format!("bad token: Bearer {}, refresh-0", sent.expose()));
        assert_eq!(told, "bad token: Bearer [secret], [secret]");
        assert!(auth.replacement_for(&sent).await.unwrap().is_none());
        assert!(!auth.has_new_token().await, "it was tried");
    });
    let stage = place.stage(json!({}), |_| answered("cancel", None));
    until("it is over", || stage.status()["state"] == "needs_auth");
    let other = place.stage(json!({}), logs_in);
    assert_eq!(manage(&other, "login").text(), "logged in");
    until("another login is noticed", || {
        stage.status()["state"] == "ready"
    });
    runtime.block_on(async {
        assert!(auth.has_new_token().await, "this one is new");
        assert!(auth.token().await.unwrap().is_some());
    });
}

#[test]
fn a_login_by_somebody_else_is_noticed() {
    let place = Place::new(&[]);
    let waiting = place.stage(json!({}), |_| answered("cancel", None));
    assert_eq!(waiting.status()["state"], "needs_auth");
    let other = place.stage(json!({}), logs_in);
    assert_eq!(manage(&other, "login").text(), "logged in");
    until("it is noticed", || waiting.status()["state"] == "ready");
    assert_eq!(waiting.text("echo", json!({ "text": "too" })), "too");
}
