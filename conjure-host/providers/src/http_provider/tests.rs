//! Each wire over a real socket, with what goes wrong on one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_core::chat::{Content, Message as Said, Part, StopReason, StreamEvent};
use conjure_core::request::ToolDefinition;
use conjure_mock_llm::{
    Bulk, CutAt, CutHow, ErrorReply, Faults, GeminiDialect, HttpReply, Message, MockLlm, Pings,
    Position, Reply, Script, StreamError, Wire as Played,
};
use futures_util::future::join_all;
use serde_json::json;

use super::*;
use crate::Retry;

const KEY: &str = "a-key-that-nobody-may-see";

/// The four wires, who speaks them here, and what the mock calls them.
const WIRES: [(Wire, &str, &str, Played); 4] = [
    (
        Wire::Anthropic,
        "anthropic",
        "claude-sonnet-4-5",
        Played::Anthropic,
    ),
    (Wire::OpenaiResponses, "openai", "gpt-5", Played::Responses),
    (Wire::OpenaiChat, "deepseek", "deepseek-chat", Played::Chat),
    (Wire::Gemini, "gemini", "gemini-2.5-pro", Played::Gemini),
];

struct Stage {
    mock: MockLlm,
    provider: HttpProvider,
    request: ModelRequest,
    sink: ReplySink,
    notices: Arc<Mutex<Vec<String>>>,
    shown: Arc<Mutex<String>>,
}

fn stage(
    (wire, name, model, _): (Wire, &str, &str, Played),
    script: Script,
    change: impl FnOnce(&mut HttpOptions),
) -> Stage {
    let mock = MockLlm::start_blocking(script).unwrap();
    let mut options = HttpOptions::new(mock.base_url());
    options.retry = Retry {
        first_wait: Duration::from_millis(1),
        ..Retry::default()
    };
    change(&mut options);
    let key = Some(SecretString::from(KEY));
    let provider = HttpProvider::new(wire, Endpoint::new(name), key, options).unwrap();
    let target = provider.target(model);
    let mut request = ModelRequest::bare(&target, vec![Said::user("Hi.")]);
    request.tools = vec![ToolDefinition {
        name: "clock".to_owned(),
        description: "Tells the time.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"zone": {"type": "string"}}}),
    }];
    let notices = Arc::new(Mutex::new(Vec::new()));
    let shown = Arc::new(Mutex::new(String::new()));
    let (told, texts) = (Arc::clone(&notices), Arc::clone(&shown));
    let sink = ReplySink::new(
        move |event| {
            if let StreamEvent::Content { delta } = event {
                texts.lock().unwrap().push_str(&delta);
            }
        },
        move |text| told.lock().unwrap().push(text),
    );
    Stage {
        mock,
        provider,
        request,
        sink,
        notices,
        shown,
    }
}

impl Stage {
    async fn ask(&self) -> Result<Response, ProviderError> {
        let answer = self.provider.respond(&self.request, &self.sink);
        let answer = tokio::time::timeout(Duration::from_secs(60), answer).await;
        assert_eq!(self.mock.violations(), []);
        answer.expect("it is waited for without end")
    }
}

fn text_of(response: &Response) -> String {
    response.parts.iter().filter_map(Part::as_text).collect()
}

#[tokio::test]
async fn every_wire_asks_where_and_as_its_provider_wants() {
    for which in WIRES {
        let message =
            Message::new()
                .text("It is noon. ")
                .tool_use("call_1", "clock", json!({"zone": "UTC"}));
        let stage = stage(which, Script::new().reply(message), |_| {});
        let response = stage.ask().await.unwrap();
        let (wire, _, model, played) = which;
        assert_eq!(*stage.shown.lock().unwrap(), "It is noon. ", "{wire}");
        assert_eq!(text_of(&response), "It is noon. ", "{wire}");
        let call = response.parts.iter().find_map(Part::as_call).unwrap();
        assert_eq!(call.arguments, json!({"zone": "UTC"}), "{wire}");
        let asked = &stage.mock.requests()[0];
        assert_eq!(asked.wire(), Some(played));
        assert_eq!(asked.model(), model, "{wire}");
        let (header, value) = match wire {
            Wire::Anthropic => ("x-api-key", KEY.to_owned()),
            Wire::Gemini => ("x-goog-api-key", KEY.to_owned()),
            _ => ("authorization", format!("Bearer {KEY}")),
        };
        assert_eq!(asked.header(header), Some(value.as_str()), "{wire}");
    }
}

#[tokio::test]
async fn a_busy_provider_is_asked_again_on_every_wire() {
    for which in WIRES {
        let script = Script::new()
            .reply(ErrorReply::new(429).retry_after("0"))
            .reply(Reply::error(503))
            .reply(Reply::text("At last."));
        let stage = stage(which, script, |_| {});
        assert_eq!(
            text_of(&stage.ask().await.unwrap()),
            "At last.",
            "{}",
            which.0
        );
        let notices = stage.notices.lock().unwrap();
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(notices[0].contains("429") && notices[0].contains("Attempt 2 of 4"));
        assert!(notices[1].contains("503") && notices[1].contains("Attempt 3 of 4"));
    }
}

#[tokio::test]
async fn a_wait_that_is_asked_for_is_kept_or_told() {
    let script = Script::new()
        .reply(ErrorReply::new(429).retry_after("0.2"))
        .reply(ErrorReply::new(429).retry_after("3600"));
    let stage = stage(WIRES[1], script, |_| {});
    let begun = std::time::Instant::now();
    let error = stage.ask().await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert!(error.message.contains("It asks to wait 3600 s"), "{error}");
    assert_eq!(stage.mock.requests().len(), 2);
}

#[tokio::test]
async fn a_wait_that_the_body_asks_for_is_kept_or_told() {
    let asks = |wait: &str| {
        HttpReply {
        status: 429,
        headers: std::collections::BTreeMap::new(),
        body: json!({"error": {"code": 429, "message": "Quota.", "status": "RESOURCE_EXHAUSTED",
            "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": wait}]}})
        .to_string(),
        times: 1,
    }
    };
    let script = Script::new().reply(asks("0.250s")).reply(asks("3600.5s"));
    let stage = stage(WIRES[3], script, |_| {});
    let begun = std::time::Instant::now();
    let error = stage.ask().await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_millis(250));
    assert!(error.message.contains("It asks to wait 3600 s"), "{error}");
    assert_eq!(stage.mock.requests().len(), 2);
}

#[tokio::test]
async fn w13_w25_what_passes_by_itself_is_tried_again_only_before_any_output() {
    for which in WIRES {
        let overloaded = |after| Faults {
            error: Some(StreamError {
                after,
                kind: "overloaded_error".to_owned(),
                message: "Too busy".to_owned(),
            }),
            ..Faults::default()
        };
        let first = Message::new().text("never").faults(overloaded(0));
        let second = Message::new()
            .text("Half of a long answer, and then some more of it.")
            .deltas(4)
            .faults(overloaded(9));
        let script = Script::new()
            .reply(first)
            .reply(second)
            .reply(Reply::text("never"));
        let stage = stage(which, script, |_| {});
        let error = stage.ask().await.unwrap_err();
        let wire = which.0;
        assert_eq!(stage.mock.requests().len(), 2, "{wire}: {error}");
        assert_eq!(stage.notices.lock().unwrap().len(), 1, "{wire}");
        let kept = text_of(&error.partial.unwrap());
        assert!(kept.starts_with("Half of"), "{wire}: {kept}");
        assert_eq!(*stage.shown.lock().unwrap(), kept, "{wire}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_any_output_is_made_again() {
    for which in WIRES {
        let cut = Reply::text("never").cut(CutAt::Events(0), CutHow::Reset);
        let stage = stage(
            which,
            Script::new().reply(cut).reply(Reply::text("Here.")),
            |_| {},
        );
        assert_eq!(text_of(&stage.ask().await.unwrap()), "Here.", "{}", which.0);
    }
}

/// How a reply stops in its middle.
#[derive(Clone, Copy, Debug)]
enum StreamHalt {
    /// Nothing comes any more.
    Silent,
    Cut(CutHow),
}

/// A reply that stops after so many events: while the arguments of its call are written, of which
/// each wire tells a dozen events and more.
fn stopped(message: Message, events: usize, stop: StreamHalt) -> Reply {
    let zone = "Europe/Amsterdam, where the clocks are one hour ahead in winter";
    let message = message
        .tool_use("call_1", "clock", json!({ "zone": zone }))
        .dialect(GeminiDialect {
            partial_args: true,
            ..GeminiDialect::default()
        })
        .deltas(2);
    match stop {
        StreamHalt::Silent => Reply::from(message).hang(Position::Event(events)),
        StreamHalt::Cut(how) => Reply::from(message).cut(CutAt::Events(events), how),
    }
}

/// Every way in which a stream stops, on every wire.
fn stops() -> impl Iterator<Item = ((Wire, &'static str, &'static str, Played), StreamHalt)> {
    let ways = [
        StreamHalt::Silent,
        StreamHalt::Cut(CutHow::Reset),
        StreamHalt::Cut(CutHow::Eof),
        StreamHalt::Cut(CutHow::End),
    ];
    let each = move |which| ways.into_iter().map(move |stop| (which, stop));
    WIRES.into_iter().flat_map(each)
}

/// Waits no minute for what stays silent.
fn impatient(stop: StreamHalt) -> impl FnOnce(&mut HttpOptions) {
    move |options| {
        if matches!(stop, StreamHalt::Silent) {
            // So much that a machine with other work is not taken for a silent one.
            options.idle_timeout = Duration::from_secs(3);
        }
    }
}

#[tokio::test]
async fn a_stream_that_stops_while_a_call_is_written_is_asked_for_again_however_it_stops() {
    // At once: each silence is waited for.
    join_all(stops().map(|(which, stop)| async move {
        let script = Script::new()
            .reply(stopped(Message::new(), 8, stop))
            .reply(Reply::text("Here."));
        let stage = stage(which, script, impatient(stop));
        let answer = stage.ask().await;
        let place = format!("{}, {stop:?}", which.0);
        let answer = answer.unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(text_of(&answer), "Here.", "{place}");
        assert_eq!(*stage.shown.lock().unwrap(), "Here.", "{place}");
        assert_eq!(stage.notices.lock().unwrap().len(), 1, "{place}");
        assert_eq!(stage.sink.retries(), 1, "{place}");
    }))
    .await;
}

#[tokio::test]
async fn a_stream_that_stops_after_some_text_or_thought_is_kept_however_it_stops() {
    let begins = [
        (Message::new().text("Let me see."), "text"),
        (Message::new().thinking("Let me see.", "a-sign"), "thought"),
    ];
    let cases = stops().flat_map(|(which, stop)| {
        let begins = begins.clone().into_iter();
        begins.map(move |(begin, what)| check_kept(which, stop, begin, what))
    });
    join_all(cases).await;
}

/// Checks that a reply of which something was shown is kept, and not asked for again.
async fn check_kept(
    which: (Wire, &str, &str, Played),
    stop: StreamHalt,
    begin: Message,
    what: &str,
) {
    let script = Script::new()
        .reply(stopped(begin, 16, stop))
        .reply(Reply::text("never"));
    let stage = stage(which, script, impatient(stop));
    let error = stage.ask().await.unwrap_err();
    let place = format!("{}, {stop:?}, {what}", which.0);
    assert_eq!(stage.mock.requests().len(), 1, "{place}: {error}");
    let kept = error.partial.expect(&place);
    let said = kept.parts.iter().find_map(|part| match &part.content {
        Content::Text { text } | Content::Reasoning { text } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(said, Some("Let me see."), "{place}");
    assert!(!kept.complete, "{place}");
}

#[tokio::test]
async fn a_redirect_is_refused_and_the_key_stays() {
    for which in WIRES {
        let script = Script::new().reply(Reply::redirect(307, "http://127.0.0.1:9/elsewhere"));
        let stage = stage(which, script, |_| {});
        let error = stage.ask().await.unwrap_err();
        assert_eq!(error.kind, "protocol");
        assert!(error.message.contains("redirect (307"), "{error}");
    }
}

#[tokio::test]
async fn a_page_is_told_as_one() {
    for which in WIRES {
        let page = Reply::html(200, "<html><body>Log in first</body></html>");
        let stage = stage(which, Script::new().reply(page), |_| {});
        let error = stage.ask().await.unwrap_err();
        assert_eq!(error.kind, "protocol", "{}", which.0);
        assert!(
            error.message.contains("Log in first"),
            "{}: {error}",
            which.0
        );
    }
}

#[tokio::test]
async fn a_reply_that_never_ends_is_cut() {
    for which in WIRES {
        let faults = Faults {
            bulk: Some(Bulk::Deltas(u64::MAX)),
            ..Faults::default()
        };
        let message = Message::new().text("On and on ").faults(faults);
        let stage = stage(which, Script::new().reply(message), |options| {
            options.max_reply_bytes = 2 * 1024 * 1024;
        });
        let reply = stage.ask().await.unwrap();
        let stop = reply.stop.as_ref().map(|stop| stop.reason);
        assert_eq!(stop, Some(StopReason::MaxTokens), "{}", which.0);
        assert!(text_of(&reply).starts_with("On and on"), "{}", which.0);
    }
}

#[tokio::test]
async fn a_reply_of_a_hundred_megabytes_is_given_up() {
    for which in WIRES {
        let faults = Faults {
            bulk: Some(Bulk::Text(100_000_000)),
            ..Faults::default()
        };
        let script = Script::new().reply(Message::new().text("x").faults(faults));
        let stage = stage(which, script, |_| {});
        // One event of so many bytes is none; a body of so many is cut.
        match stage.ask().await {
            Ok(reply) => {
                let stop = reply.stop.as_ref().map(|stop| stop.reason);
                assert_eq!(stop, Some(StopReason::MaxTokens), "{}", which.0);
            }
            Err(error) => {
                let kinds = ["protocol", "reply_too_large"];
                assert!(kinds.contains(&error.kind.as_str()), "{}: {error}", which.0);
            }
        }
        assert_eq!(stage.mock.requests().len(), 1, "{}", which.0);
    }
}

#[tokio::test]
async fn a_million_lines_that_say_nothing_change_nothing() {
    for which in WIRES {
        let faults = Faults {
            bulk: Some(Bulk::CommentLines(1_000_000)),
            ..Faults::default()
        };
        let script = Script::new().reply(Message::new().text("Here.").faults(faults));
        let stage = stage(which, script, |_| {});
        assert_eq!(text_of(&stage.ask().await.unwrap()), "Here.", "{}", which.0);
    }
}

#[tokio::test]
async fn each_time_out_ends_a_request() {
    for (at, change, word) in [
        (
            Position::Event(0),
            (|options| options.first_byte_timeout = Duration::from_millis(100))
                as fn(&mut HttpOptions),
            "nothing came",
        ),
        (
            Position::Event(4),
            |options| options.idle_timeout = Duration::from_millis(100),
            "nothing came",
        ),
        (
            Position::Event(4),
            |options| options.reply_timeout = Duration::from_millis(300),
            "did not end in the time",
        ),
    ] {
        let reply = Reply::from(Message::new().text("Half of it, and more").deltas(4)).hang(at);
        let stage = stage(WIRES[0], Script::new().reply(reply), |options| {
            options.retry.attempts = 1;
            change(options);
        });
        let error = stage.ask().await.unwrap_err();
        assert_eq!(error.kind, "timeout", "{error}");
        assert!(error.message.contains(word), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_only_says_that_it_lives_is_given_up() {
    let faults = Faults {
        pings: Pings::Every,
        ..Faults::default()
    };
    let message = Message::new()
        .text("Slowly, slowly.")
        .deltas(1)
        .faults(faults);
    let reply = Reply::from(message).delay(Duration::from_millis(50));
    let stage = stage(WIRES[2], Script::new().reply(reply), |options| {
        options.reply_timeout = Duration::from_millis(400);
        options.retry.attempts = 1;
    });
    let error = stage.ask().await.unwrap_err();
    assert_eq!(error.kind, "timeout", "{error}");
}

#[tokio::test]
async fn the_key_is_in_no_error() {
    for which in WIRES {
        let told = format!("Incorrect API key provided: {KEY}.");
        let script = Script::new().reply(ErrorReply::new(401).message(told));
        let stage = stage(which, script, |_| {});
        let error = stage.ask().await.unwrap_err();
        assert_eq!(error.kind, "auth", "{error:?}");
        assert!(!format!("{error:?}").contains(KEY), "{error:?}");
        assert!(error.message.contains("[key]"), "{error}");
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_before() {
    let options = || HttpOptions::new("http://127.0.0.1:9");
    let made = |key: &str, options| {
        let key = Some(SecretString::from(key.to_owned()));
        HttpProvider::new(Wire::Gemini, Endpoint::new("gemini"), key, options)
            .err()
            .unwrap()
            .to_string()
    };
    let error = made("secret\nkey", options());
    assert!(
        error.contains("the key for the provider `gemini`"),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
    let mut with_header = options();
    with_header.headers.push(("x y".to_owned(), "1".to_owned()));
    assert!(made("key", with_header).contains("the header `x y`"));
}

#[tokio::test]
async fn a_tool_that_the_provider_would_reject_is_told_once() {
    let script = Script::new()
        .reply(Reply::text("One."))
        .reply(Reply::text("Two."));
    let mut stage = stage(WIRES[3], script, |_| {});
    stage.request.tools.push(ToolDefinition {
        name: "broken".to_owned(),
        description: String::new(),
        input_schema: json!({"type": "object", "properties": 5}),
    });
    stage.ask().await.unwrap();
    stage.ask().await.unwrap();
    let notices = stage.notices.lock().unwrap();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].starts_with("The tool `broken` is not offered to gemini: "));
}
