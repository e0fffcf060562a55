//! What a server may send that nobody should: far too much, no text, no end. The program stays
//! small, says what happened and what to do, and the conversation goes on.

use std::fs;

use conjure_kit::{ProgramHandle, Workspace};
use conjure_mock_llm::{
    Bulk, Faults, HttpReply, Matcher, Message, MockLlm, Position, Reply, Script, Step,
};
use serde_json::json;

use crate::stage::{CACHE, workspace};

/// MiB that the program may have for itself at one time: half as much again as a reply may have bytes.
/// Its own code is not counted, of which a build for tests has more with every feature.
const MOST: u64 = 96;

/// A provider and a model for each wire.
const STOPS: [(&str, &str); 4] = [
    ("anthropic", "claude-sonnet-4-5"),
    ("openai", "gpt-5"),
    ("deepseek", "deepseek-chat"),
    ("gemini", "gemini-2.5-pro"),
];

/// Time-outs that a test can wait for.
const SETTINGS: &str = "[http]\nattempts = 2\nfirst_byte_timeout_ms = 1000\n\
                        idle_timeout_ms = 1000\nreply_timeout_ms = 20000\n\
                        [[backend]]\nkind = \"native\"\n";

fn chat(workspace: &Workspace, mock: &MockLlm, (provider, model): (&str, &str)) -> ProgramHandle {
    let var = provider.to_uppercase();
    let args = ["chat", "--config", "session.toml", "--allow", "*"];
    let stop = ["--provider", provider, "--model", model];
    workspace.write("session.toml", SETTINGS).unwrap();
    conjure_kit::cli(args.into_iter().chain(stop))
        .workspace(workspace)
        .env(format!("{var}_API_KEY"), "a-key-of-nobody")
        .env(format!("{var}_BASE_URL"), mock.base_url())
        .start()
        .unwrap()
}

/// MiB of the largest resident set that a running program had so far, without what it has of files.
fn peak(chat: &ProgramHandle) -> u64 {
    let pid = chat.pid().unwrap().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kilobytes = |of: &str| {
        let line = status.lines().find(|line| line.starts_with(of));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
        kilobytes.unwrap().parse::<u64>().unwrap()
    };
    (kilobytes("VmHWM:") - kilobytes("RssFile:")) / 1024
}

/// A first question that is answered so, as often as it is asked, and a second one that is answered
/// well: what was on standard error in between on each wire, and whether it was an error.
fn goes_on(stops: &[(&str, &str)], reply: impl Into<Reply>) -> Vec<(String, bool)> {
    let reply = reply.into();
    let workspace = workspace(&[CACHE]);
    let each = stops.iter().map(|stop| {
        let provider = stop.0;
        let is_first = Matcher::predicate(|request| !request.body.to_string().contains("second"));
        let script = Script::new()
            .step(Step::new(reply.clone()).when(is_first).times(2))
            .fallback(Reply::text("Here I am."));
        let mock = MockLlm::start_blocking(script).unwrap();
        let mut chat = chat(&workspace, &mock, *stop);
        chat.send_line("The first question.").unwrap();
        chat.send_line("The second question.").unwrap();
        chat.wait_for_stdout("Here I am.\n").unwrap();
        let peak = peak(&chat);
        chat.close_stdin();
        let output = chat.wait().unwrap();
        assert!(peak < MOST, "{provider}: {peak} MiB");
        assert_eq!(output.code, Some(0), "{provider}");
        // Nobody can read more than this.
        assert!(output.stderr.len() < 4096, "{provider}: {}", output.stderr);
        assert_eq!(mock.violations(), [], "{provider}");
        let last = mock.requests().pop().unwrap();
        let history = last.body.to_string();
        // What came before so long a reply may be in a summary by now.
        let begins = [
            "The first question.",
            "[summary of the conversation so far]",
        ];
        let begins = begins.iter().any(|said| history.contains(said));
        let ends = history.contains("The second question.");
        assert!(begins && ends, "{provider}: {} bytes", history.len());
        let failed = output.stderr.contains("error:");
        assert!(failed || output.stdout.contains("On and on"), "{output:?}");
        (output.stderr, failed)
    });
    each.collect()
}

/// As [`goes_on`], and every wire tells an error with these words.
fn is_told(stops: &[(&str, &str)], reply: impl Into<Reply>, words: &[&str]) {
    for (told, failed) in goes_on(stops, reply) {
        assert!(failed || told.contains("The reply is cut"), "{told}");
        for word in words {
            assert!(told.contains(word), "`{word}` in {told}");
        }
    }
}

/// As [`goes_on`], where a wire may be able to read the reply all the same.
fn may_be_told(reply: impl Into<Reply>, words: &[&str]) {
    for (told, failed) in goes_on(&STOPS, reply) {
        let all = words.iter().all(|word| told.contains(word));
        assert!(!failed || all, "{words:?} in {told}");
    }
}

fn with(bulk: Bulk) -> Message {
    let faults = Faults {
        bulk: Some(bulk),
        ..Faults::default()
    };
    Message::new().text("On and on ").faults(faults)
}

/// What is told where the reply makes no sense.
const UNREADABLE: [&str; 2] = [
    "cannot be read",
    "Check the base URL and any proxy on the way",
];

#[test]
fn a_reply_of_a_hundred_megabytes_is_given_up() {
    is_told(&STOPS, with(Bulk::Text(100_000_000)), &[]);
}

#[test]
fn a_million_deltas_are_given_up_and_a_server_that_never_ends() {
    for (stops, deltas) in [(&STOPS[..1], 1_000_000), (&STOPS[2..3], u64::MAX)] {
        let words = ["more than 67108864 bytes", "`max_reply_bytes`"];
        is_told(stops, with(Bulk::Deltas(deltas)), &words);
    }
}

#[test]
fn comments_without_end_are_given_up() {
    is_told(
        &STOPS[..1],
        with(Bulk::CommentLines(u64::MAX)),
        &["The reply broke off"],
    );
}

#[test]
fn an_event_of_a_million_lines_is_read() {
    for (told, failed) in goes_on(&STOPS, with(Bulk::DataLines(1_000_000))) {
        assert!(!failed, "{told}");
    }
}

#[test]
fn lists_in_lists_break_nothing() {
    may_be_told(with(Bulk::NestedEvent(1_000_000)), &UNREADABLE);
    let call = json!({ "command": "get x" });
    let message = with(Bulk::NestedArguments(1_000_000));
    may_be_told(
        message.tool_use("toolu_1", "cache-manager_execute", call),
        &UNREADABLE,
    );
}

#[test]
fn what_is_no_text_breaks_nothing() {
    may_be_told(with(Bulk::InvalidUtf8), &UNREADABLE);
    may_be_told(with(Bulk::LoneSurrogate), &UNREADABLE);
}

#[test]
fn a_page_is_told_as_one() {
    let page = Reply::html(200, "<html>Log in first</html>");
    is_told(&STOPS, page, &["Log in first"]);
    let page = HttpReply {
        status: 400,
        body: "<html>Bad gateway</html>".to_owned(),
        times: 10_000_000,
        ..HttpReply::default()
    };
    is_told(&STOPS, page, &["HTTP status 400", "Bad gateway"]);
}

#[test]
fn a_redirect_is_told_with_what_to_do() {
    let reply = Reply::redirect(307, "http://127.0.0.1:9/");
    is_told(&STOPS, reply, &["redirect (307", "`--base-url`"]);
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let silent = Reply::from(Message::new().text("On and on").deltas(4));
    let never = silent.clone().hang(Position::Headers);
    is_told(&STOPS[..1], never, &["did not answer within 1 s"]);
    let stops = silent.hang(Position::Event(2));
    is_told(&STOPS[1..], stops, &["nothing came for 1 s"]);
}
