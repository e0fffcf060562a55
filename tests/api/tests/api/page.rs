//! The page for browsers: who sees it, what it may do in a browser, forms of other origins, a
//! conversation as it is shown and followed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use conjure_kit::Signal;
use conjure_mock_llm::{Message, Position, Reply as ModelReply};
use serde_json::{Value, json};

use crate::server::{Reply, Server, authorization, connect};
use crate::stage::{Stage, text};
use crate::threads::{imported, notices};

pub(crate) const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml");
pub(crate) const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// What a browser sends that has this cookie.
pub(crate) fn browser(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Reply {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n",
        server.address
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    server.raw(format!("{request}\r\n").as_bytes())
}

/// A page, as a person with a token sees it.
pub(crate) fn page(server: &Server, path: &str) -> String {
    let shown = server.ask("GET", path, &[HTML], "");
    assert_eq!(shown.status, 200, "{path}: {shown:?}");
    body(&shown)
}

pub(crate) fn body(reply: &Reply) -> String {
    String::from_utf8(reply.body.clone()).unwrap()
}

/// Sends a form; where it leads.
fn submit(server: &Server, path: &str, fields: &str) -> String {
    let sent = server.ask("POST", path, &[HTML, FORM], fields);
    assert_eq!(sent.status, 303, "{path}: {}", body(&sent));
    sent.header("location").unwrap().to_owned()
}

/// A page that follows a thread.
struct Followed {
    lines: BufReader<TcpStream>,
    /// The number of what came last.
    seen: String,
    /// All pieces that came.
    html: String,
}

impl Followed {
    fn follow(server: &Server, path: &str, last: Option<&str>) -> Self {
        let mut stream = connect(server.address);
        let last = last.map(|last| format!("last-event-id: {last}\r\n"));
        let last = last.unwrap_or_default();
        let token = authorization();
        // Of an HTTP/1.0 request the answer comes without chunks.
        let head = format!(
            "GET {path} HTTP/1.0\r\nhost: {}\r\n{token}{last}\r\n",
            server.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        Self {
            lines: BufReader::new(stream),
            seen: String::new(),
            html: String::new(),
        }
    }

    /// Reads until this has come; all that came meanwhile.
    fn until(&mut self, text: &str) -> String {
        let from = self.html.len();
        loop {
            if self.html[from..].contains(text) {
                return self.html[from..].to_owned();
            }
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "it ended before `{text}`: {}", &self.html[from..]);
            if let Some(data) = line.strip_prefix("data: ") {
                self.html.push_str(data);
            } else if let Some(id) = line.strip_prefix("id: ") {
                self.seen = id.trim().to_owned();
            }
        }
    }
}

#[test]
fn a_browser_without_a_cookie_is_told_how_to_get_in_and_no_more() {
    let stage = Stage::new();
    let server = &stage.server;
    stage.session(&json!({ "name": "secret-plans" }));
    for path in ["/", "/sessions/secret-plans", "/nothing-here"] {
        let refused = browser(server, "GET", path, &[HTML]);
        assert_eq!(refused.status, 401, "{refused:?}");
        let shown = body(&refused);
        assert!(shown.contains("conjure serve --link"), "{shown}");
        assert!(!shown.contains("secret-plans"), "{shown}");
        let policy = refused.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'"), "{policy}");
    }
    let link = server.post("/api/v1/browser-links", &json!({})).is(201);
    let link = text(&link.json()["url"]);
    let path = link.strip_prefix(&format!("http://{}", server.address));
    let opened = browser(server, "GET", path.unwrap(), &[HTML]);
    assert_eq!((opened.status, opened.header("location")), (303, Some("/")));
    let cookie = opened.header("set-cookie").unwrap().split(';').next();
    let cookie = ("cookie", cookie.unwrap());
    let home = browser(server, "GET", "/", &[HTML, cookie]);
    assert_eq!(home.status, 200, "{home:?}");
    assert!(body(&home).contains("secret-plans"));
    // What the page of whoever is not let in looks like is no secret.
    let home = body(&home);
    let style = home.split('"').find(|part| part.ends_with(".css")).unwrap();
    let style = browser(server, "GET", style, &[]);
    assert_eq!(style.status, 200);
    let kept = style.header("cache-control").unwrap();
    assert!(kept.contains("immutable"), "{kept}");
    // A program gets what it always got.
    let program = browser(server, "GET", "/api/v1/sessions", &[HTML]);
    assert_eq!(program.is(401).kind(), "no-token");
    let own = format!("http://{}", server.address);
    let out = [HTML, cookie, ("origin", own.as_str())];
    let out = browser(server, "POST", "/logout", &out);
    assert_eq!((out.status, out.header("location")), (303, Some("/")));
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
}

#[test]
fn every_page_says_what_a_browser_may_do_with_it() {
    let stage = Stage::new();
    stage.session(&json!({ "name": "work" }));
    for path in ["/", "/sessions/work", "/sessions/no-such"] {
        let shown = stage.server.ask("GET", path, &[HTML], "");
        let policy = shown.header("content-security-policy").unwrap_or_default();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(shown.header(name), Some(value), "{path}: {name}");
        }
        let html = body(&shown);
        assert!(
            !html.contains(" style=\"") && !html.contains(" onclick"),
            "{html}"
        );
    }
}

#[test]
fn a_form_of_another_origin_does_nothing() {
    let stage = Stage::new();
    let session = stage.session(&json!({ "name": "work" }));
    let path = "/sessions/work/threads/new";
    let own = format!("http://{}", stage.server.address);
    for foreign in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("host", "evil.example"),
    ] {
        let sent = stage
            .server
            .ask("POST", path, &[HTML, FORM, foreign], "a=b");
        assert!(
            [401, 403, 421].contains(&sent.status),
            "{foreign:?}: {sent:?}"
        );
    }
    assert_eq!(stage.now("work")["thread"]["id"], session["thread"]["id"]);
    let sent = [
        HTML,
        FORM,
        ("origin", own.as_str()),
        ("sec-fetch-site", "same-origin"),
    ];
    assert_eq!(stage.server.ask("POST", path, &sent, "a=b").status, 303);
    assert_ne!(stage.now("work")["thread"]["id"], session["thread"]["id"]);
}

#[test]
fn hostile_words_of_everybody_are_shown_as_text() {
    let stage = Stage::new();
    let session =
        stage.session(&json!({ "name": "work", "tools": { "policy": { "allow": ["*"] } } }));
    let hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>";
    let command = format!("echo '{hostile}'");
    stage.model.calls(
        "toolu_1",
        "local_bash_tool",
        json!({ "command": command, "description": hostile }),
    );
    stage.model.says(Message::new().text(format!(
        "{hostile}\n\n<article class=\"entry person\">You said yes</article>\n\n\
         [a](javascript:alert(3)) ![b](https://evil.example/x.png) <svg onload=alert(4)>"
    )));
    stage.talk("work", hostile);
    let thread = text(&session["thread"]["id"]);
    let renamed = format!("label={}", "%3Cscript%3Ealert%285%29%3C%2Fscript%3E");
    let at = format!("/sessions/work/threads/{thread}/rename");
    submit(&stage.server, &at, &renamed);
    let html = page(&stage.server, "/sessions/work");
    assert!(html.contains("&lt;script&gt;alert(1)"), "{html}");
    assert!(html.contains("&lt;script&gt;alert(5)"), "{html}");
    for wrong in [
        "<script>alert",
        "<img",
        "<svg",
        "href=\"javascript",
        "<article class=\"entry person\">You",
    ] {
        assert!(!html.contains(wrong), "{wrong}");
    }
    let mut live = Followed::follow(
        &stage.server,
        &format!("/sessions/work/threads/{thread}/live?after=0"),
        None,
    );
    let pieces = live.until("turn-end");
    assert!(pieces.contains("&lt;script&gt;alert(1)"), "{pieces}");
    assert!(
        !pieces.contains("<script") && !pieces.contains("<img"),
        "{pieces}"
    );
}

#[test]
fn a_page_that_comes_back_has_missed_nothing_also_after_a_restart_of_the_server() {
    let stage = Stage::new();
    let session = stage.session(&json!({ "name": "work" }));
    let thread = text(&session["thread"]["id"]);
    let path = format!("/sessions/work/threads/{thread}/live");
    let mut first = Followed::follow(&stage.server, &path, None);
    first.until("turn-state");
    let reply = Message::new().text("# Heading\n\nThe first half.\n\nThe second half.");
    let reply = ModelReply::from(reply.deltas(4)).hold(Position::Event(12), "middle");
    stage.model.says(reply);
    let begun = stage.say("work", "A question of mine");
    let came = first.until("Heading");
    assert!(came.contains("A question of mine"), "{came}");
    if !first.html.contains("id=\"stop\"") {
        first.until("id=\"stop\"");
    }
    let seen = first.seen.clone();
    drop(first);
    // A second window, and the first that comes back, see the same.
    let mut second = Followed::follow(&stage.server, &path, Some(&seen));
    let again = second.until("Heading");
    assert!(again.contains("A question of mine"), "{again}");
    assert_eq!(again.matches("A question of mine").count(), 1, "{again}");
    stage.model.mock().release("middle");
    let end = second.until("turn-end");
    assert!(end.contains("The second half."), "{end}");
    assert_eq!(stage.over(&begun)["state"], "completed");
    // Nothing is told twice to whoever has it.
    let mut third = Followed::follow(&stage.server, &path, Some(&second.seen));
    let nothing = third.until("turn-state");
    assert!(!nothing.contains("<h1>Heading</h1>"), "{nothing}");

    let Stage { server, model, .. } = stage;
    let reply = Message::new().text("One more reply, of which the end never comes.");
    let reply = ModelReply::from(reply.deltas(4)).hold(Position::Event(8), "never");
    model.says(reply);
    server
        .post("/api/v1/sessions/work/turns", &json!({ "text": "More" }))
        .is(202);
    third.until("One more");
    let workspace = server.workspace.clone();
    server.end(Signal::KILL);
    let server = Server::with(&workspace, "", &[]);
    let mut back = Followed::follow(&server, &path, Some(&third.seen));
    let kept = back.until("The host ended");
    assert!(kept.contains("More"), "{kept}");
    if !kept.contains("One more") {
        back.until("One more");
    }
}

#[test]
fn chats_are_begun_forked_edited_named_and_cleared_by_forms() {
    let stage = Stage::new();
    let server = &stage.server;
    let session = stage.session(&json!({ "name": "my work" }));
    let at = "/sessions/my%20work";
    let first = text(&session["thread"]["id"]);
    stage.model.says(Message::new().text("An answer."));
    let place = submit(
        server,
        &format!("{at}/say"),
        &format!("thread={first}&text=Hello+there"),
    );
    assert_eq!(place, format!("{at}/threads/{first}"));
    let mut live = Followed::follow(server, &format!("{place}/live"), None);
    live.until("turn-end");
    let entries = server
        .get(&format!("/api/v1/threads/{first}/entries"))
        .is(200)
        .json();
    let said = |entry: &&Value| entry["entry"] == "message" && entry["message"]["role"] == "user";
    let said = entries["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(said)
        .unwrap();
    let seq = said["seq"].as_u64().unwrap();
    // A fork shows what is before it, and the session goes on there.
    let fork = submit(server, &format!("{place}/fork"), &format!("at={seq}"));
    assert_ne!(fork, place);
    let html = page(server, &fork);
    assert!(
        html.contains("Hello there") && !html.contains("An answer."),
        "{html}"
    );
    assert!(
        html.contains(&format!("Forked behind entry {seq}")),
        "{html}"
    );
    assert!(page(server, &place).contains("An answer."));
    // A message that is said otherwise is said in a chat of its own.
    stage.model.says(Message::new().text("Another answer."));
    let edited = submit(server, &format!("{place}/edit/{seq}"), "text=Hello+again");
    let mut live = Followed::follow(server, &format!("{edited}/live"), None);
    live.until("turn-end");
    let html = page(server, &edited);
    assert!(
        html.contains("Hello again") && !html.contains("Hello there"),
        "{html}"
    );
    // What is said goes to the chat that was looked at, whatever the session did meanwhile.
    submit(server, &format!("{at}/threads/new"), "");
    stage.model.says(Message::new().text("In the first one."));
    submit(
        server,
        &format!("{at}/say"),
        &format!("thread={first}&text=And+now"),
    );
    let mut live = Followed::follow(server, &format!("{place}/live"), None);
    live.until("In the first one.");
    // Clearing asks, and then clears.
    let asked = page(server, &format!("{place}/clear"));
    assert!(asked.contains("deleted for good"), "{asked}");
    assert!(page(server, &place).contains("An answer."));
    assert_eq!(submit(server, &format!("{place}/clear"), ""), place);
    assert!(!page(server, &place).contains("An answer."));
    live.until("gone");
    // The words of what cannot be are the API's.
    let wrong = server.ask(
        "POST",
        &format!("{at}/say"),
        &[HTML, FORM],
        format!("thread={first}&text=+"),
    );
    assert_eq!(wrong.status, 422);
    assert!(body(&wrong).contains("that is not empty"), "{wrong:?}");
}

#[test]
fn a_call_that_asks_is_decided_in_its_place() {
    let stage = Stage::new();
    let server = &stage.server;
    let rules = json!({ "policy": { "ask": ["*"] } });
    let session = stage.session(&json!({ "name": "work", "tools": rules }));
    let thread = text(&session["thread"]["id"]);
    let made = server.workspace.work().join("made");
    let command = format!("touch {}", made.display());
    let input = json!({ "command": command, "description": "Make a file" });
    stage.model.calls("toolu_1", "local_bash_tool", input);
    stage.model.says(Message::new().text("It is there."));
    let path = format!("/sessions/work/threads/{thread}/live");
    let mut live = Followed::follow(server, &path, None);
    live.until("turn-state");
    let begun = stage.say("work", "Make it");
    live.until("May it run?");
    assert!(!made.exists());
    let pieces = live.html.clone();
    let form = pieces
        .split("action=\"")
        .find(|part| part.contains("/approvals/"));
    let action = form.unwrap().split('"').next().unwrap().to_owned();
    submit(server, &action, "decision=allow");
    let end = live.until("turn-end");
    assert!(end.contains("It is there."), "{end}");
    assert_eq!(stage.over(&begun)["state"], "completed");
    assert!(made.exists());
}

#[test]
fn a_long_thread_is_shown_in_pages_that_leave_nothing_out() {
    let stage = Stage::new();
    let server = &stage.server;
    let thread = imported(server, &notices(5_000));
    let thread = thread.rsplit('/').next().unwrap();
    let choice = json!({ "kind": "existing", "thread": thread });
    stage.session(&json!({ "name": "work", "thread": choice }));
    let first = page(server, &format!("/sessions/work/threads/{thread}"));
    assert!(
        first.matches('<').count() < 5_000,
        "{}",
        first.matches('<').count()
    );
    let mut shown = String::new();
    let mut html = first;
    let mut pages = 0;
    loop {
        shown.push_str(&html);
        pages += 1;
        assert!(pages < 200);
        let older = html.split("data-fetch=\"").nth(1);
        let Some(older) = older.map(|rest| rest.split('"').next().unwrap().to_owned()) else {
            break;
        };
        let pieces = ("x-conjure-pieces", "1");
        html = body(&server.ask("GET", &older, &[HTML, pieces], ""));
    }
    for seq in [1_u64, 2, 60, 61, 2_500, 4_939, 4_940, 4_941, 4_999, 5_000] {
        let count = shown.matches(&format!("<p>notice {seq}</p>")).count();
        assert_eq!(count, 1, "notice {seq}");
    }
}

#[test]
fn the_demonstration_works_without_a_key() {
    let workspace = conjure_kit::Workspace::new().unwrap();
    workspace.add_plugin("conjure-backend-local").unwrap();
    let server = Server::with(&workspace, "--demo", &[]);
    let session = server.get("/api/v1/sessions/demo").is(200).json();
    let thread = text(&session["thread"]["id"]);
    let place = submit(
        &server,
        "/sessions/demo/say",
        &format!("thread={thread}&text=Hello"),
    );
    let mut live = Followed::follow(&server, &format!("{place}/live"), None);
    let first = live.until("turn-end");
    assert!(first.contains("a script plays it"), "{first}");
    assert!(first.contains("step three"), "{first}");
    submit(
        &server,
        "/sessions/demo/say",
        &format!("thread={thread}&text=And+now"),
    );
    live.until("May it run?");
    // It is there once, however often it is asked for.
    server.end(Signal::TERM);
    let again = Server::with(&workspace, "--demo", &[]);
    let same = again.get("/api/v1/sessions/demo").is(200).json();
    assert_eq!(same["id"], session["id"]);
}

#[test]
fn a_file_is_handed_over_and_attached_to_what_is_said() {
    let stage = Stage::new();
    let server = &stage.server;
    let session = stage.session(&json!({ "name": "work" }));
    let thread = text(&session["thread"]["id"]);
    let kind = ("content-type", "text/plain");
    let pieces = ("x-conjure-pieces", "1");
    let path = "/attachments?name=%3Cb%3Enotes.txt";
    let taken = server.ask("POST", path, &[HTML, pieces, kind], "Words of a file");
    assert_eq!(taken.status, 200, "{taken:?}");
    let taken = body(&taken);
    assert!(
        taken.contains("notes.txt") && !taken.contains("<b>"),
        "{taken}"
    );
    let id = taken
        .split("value=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    stage.model.says(Message::new().text("I read it."));
    let fields = format!("thread={thread}&text=&attachment={id}");
    let place = submit(server, "/sessions/work/say", &fields);
    let mut live = Followed::follow(server, &format!("{place}/live"), None);
    live.until("turn-end");
    let html = page(server, &place);
    let file = html
        .split("href=\"")
        .find(|part| part.contains("/content?"))
        .unwrap();
    let file = file.split('"').next().unwrap().replace("&amp;", "&");
    assert_eq!(body(&server.ask("GET", &file, &[], "")), "Words of a file");
    assert!(
        stage
            .model
            .last_request()
            .body
            .to_string()
            .contains("Words of a file")
    );
}

#[test]
fn a_chat_that_was_only_named_is_found_again_until_another_session_goes_on_with_it() {
    let stage = Stage::new();
    let server = &stage.server;
    for name in ["site", "other"] {
        stage.session(&json!({ "name": name }));
    }
    let new_chat = || {
        submit(server, "/sessions/site/threads/new", "");
        let session = server.get("/api/v1/sessions/site").is(200).json();
        text(&session["thread"]["id"])
    };
    let named = new_chat();
    let rename = format!("/sessions/site/threads/{named}/rename");
    submit(server, &rename, "label=Plans");
    let nameless = new_chat();
    new_chat();
    let shown = page(server, "/sessions/site");
    assert!(shown.contains(&format!("id=\"thread-{named}\"")), "{shown}");
    assert!(!shown.contains(&format!("thread-{nameless}")), "{shown}");
    let choice = json!({ "kind": "existing", "thread": named });
    server
        .post("/api/v1/sessions/other/thread", &choice)
        .is(200);
    let shown = page(server, "/sessions/site");
    assert!(!shown.contains(&format!("thread-{named}")), "{shown}");
}

#[test]
fn words_are_found_in_one_chat_with_what_it_was_forked_from() {
    let stage = Stage::new();
    let server = &stage.server;
    for name in ["site", "other"] {
        stage.session(&json!({ "name": name }));
    }
    let told = |session: &str, answer: &str| {
        stage.model.says(Message::new().text(answer));
        let begun = stage.say(session, "Go on");
        stage.over(&begun);
        text(&begun["thread"])
    };
    let first = told("site", "A halcyon nests.");
    told("other", "The halcyon of another chat.");
    let fork = json!({ "kind": "fork", "thread": first });
    server.post("/api/v1/sessions/site/thread", &fork).is(200);
    let fork = told("site", "The halcyon of the fork.");
    let found = |scope: &str| {
        let path = format!("/api/v1/search?q=halcyon{scope}");
        let found = server.get(&path).is(200).json();
        found["items"].as_array().unwrap().len()
    };
    assert_eq!(found(""), 3);
    assert_eq!(found(&format!("&thread={first}")), 1);
    assert_eq!(found(&format!("&thread={fork}")), 2);
    assert_eq!(found(&format!("&thread={fork}&limit=1")), 1);
    server.get("/api/v1/search?q=halcyon&thread=gone").is(404);
    let at = format!("/sessions/site/threads/{fork}");
    let shown = page(server, &format!("{at}/find?q=halcyon"));
    // What is shared with the other chat is looked at in this one.
    assert_eq!(shown.matches(&format!("{at}?at=")).count(), 2, "{shown}");
    assert!(!shown.contains("of another chat"), "{shown}");
}
