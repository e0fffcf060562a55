//! Connections when somebody logs in or out: whose login each one serves.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use serde_json::json;

use super::super::stage::{Stage, failure, until};
use super::{Place, answered, generation, logs_in, manage};

/// A stateful call is told that the connection is another one now, before it is sent, and that
/// once.
fn begins_anew(stage: &Stage) {
    let lost = stage.call("count", json!({}));
    assert_eq!(failure(&lost), "SessionLost");
    assert!(lost.text().contains("not sent"), "{}", lost.text());
    assert!(!stage.call("count", json!({})).result().unwrap().is_error);
}

#[test]
fn a_new_login_is_a_new_generation_and_one_for_a_call_goes_on() {
    let place = Place::new(&["steps"]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let first = generation(&stage);
    assert_eq!(stage.text("count", json!({})), "1");
    assert_eq!(place.log("authorize").len(), 2, "it wanted more rights");
    assert_eq!(stage.text("count", json!({})), "2");
    assert_eq!(generation(&stage), first);
    for times in 1..=2 {
        let before = place.access();
        assert_eq!(manage(&stage, "login").text(), "logged in");
        begins_anew(&stage);
        assert_eq!(generation(&stage), first + times);
        let deleted = place.log("by");
        assert_eq!(deleted.len() as u64, times);
        assert_eq!(deleted.last(), Some(&json!(format!("Bearer {before}"))));
    }
}

#[test]
fn what_was_sent_before_a_new_login_gets_its_answer() {
    let place = Place::new(&[]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let first = generation(&stage);
    let slow = json!({ "steps": 1, "ms": 400 });
    let call = stage.begin("progress", slow);
    until("it was sent", || {
        let sent = place.log("message");
        sent.iter().any(|sent| sent["params"]["name"] == "progress")
    });
    assert_eq!(manage(&stage, "login").text(), "logged in");
    assert_eq!(call.wait().text(), "arrived");
    assert_eq!(generation(&stage), first + 1);
}

#[test]
fn who_logs_in_or_out_elsewhere_does_not_go_on_with_the_connection_here() {
    let place = Place::new(&[]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let elsewhere = place.stage(json!({}), logs_in);
    for refused in [false, true] {
        let before = generation(&stage);
        assert!(!stage.call("count", json!({})).result().unwrap().is_error);
        assert_eq!(manage(&elsewhere, "login").text(), "logged in");
        if refused {
            // The next request has to find another token, which is the new login's.
            place.server.ask("POST /expire");
        } else {
            until("it is noticed", || generation(&stage) > before);
        }
        begins_anew(&stage);
        assert_eq!(generation(&stage), before + 1);
    }
    // Renewals elsewhere are no logins.
    let before = generation(&stage);
    place.server.ask("POST /expire");
    assert_eq!(elsewhere.text("echo", json!({ "text": "a" })), "a");
    assert!(!stage.call("count", json!({})).result().unwrap().is_error);
    assert_eq!(generation(&stage), before);
    assert_eq!(manage(&elsewhere, "logout").text(), "logged out");
    until("it wants a login", || {
        stage.status()["state"] == "needs_auth"
    });
}

#[test]
fn who_logs_in_for_a_call_after_a_logout_elsewhere_begins_anew() {
    let place = Place::new(&[]);
    let stage = place.stage(json!({}), logs_in);
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let before = generation(&stage);
    assert_eq!(stage.text("count", json!({})), "1");
    let elsewhere = place.stage(json!({}), |_| answered("cancel", None));
    assert_eq!(manage(&elsewhere, "logout").text(), "logged out");
    place.server.ask("POST /expire");
    begins_anew(&stage);
    assert_eq!(place.log("authorize").len(), 2);
    assert_eq!(generation(&stage), before + 1);
}

#[test]
fn nobody_is_asked_for_what_another_session_was_given() {
    let place = Place::new(&["steps"]);
    let stage = place.stage(json!({}), logs_in);
    stage.open("two");
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let in_two = |tool: &str| stage.call_in("two", "s", tool, json!({ "text": "two" }));
    until("the other session has its tools", || {
        in_two("echo").text() == "two"
    });
    assert_eq!(stage.text("count", json!({})), "1");
    assert_eq!(place.log("authorize").len(), 2);
    let lost = in_two("count");
    assert_eq!(
        failure(&lost),
        "SessionLost",
        "its connection was another login's"
    );
    assert_eq!(in_two("count").text(), "2");
    assert_eq!(place.log("authorize").len(), 2);
    stage.close("two");
}

#[test]
fn a_login_for_a_call_goes_on_with_no_login_that_came_between() {
    let place = Place::new(&["steps"]);
    let (asked, is_asked) = channel();
    let (go, may_go) = channel();
    let may_go = Mutex::new(may_go);
    let times = AtomicUsize::new(0);
    let stage = place.stage_with(json!({}), move |host| {
        host.elicit(move |question| {
            if times.fetch_add(1, Ordering::Relaxed) == 1 {
                asked.send(()).unwrap();
                may_go.lock().unwrap().recv().unwrap();
            }
            logs_in(question)
        })
    });
    assert_eq!(manage(&stage, "login").text(), "logged in");
    let first = generation(&stage);
    let call = stage.begin("count", json!({}));
    is_asked.recv().unwrap();
    let elsewhere = place.stage(json!({}), logs_in);
    assert_eq!(manage(&elsewhere, "login").text(), "logged in");
    until("that is noticed", || generation(&stage) > first);
    go.send(()).unwrap();
    let lost = call.wait();
    assert_eq!(failure(&lost), "SessionLost");
    assert!(lost.text().contains("not sent"), "{}", lost.text());
    assert_eq!(stage.text("count", json!({})), "1");
    assert_eq!(
        generation(&stage),
        first + 2,
        "a connection for each of them"
    );
}
