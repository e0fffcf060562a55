//! The skill through the real ABI object, on real files.

use std::fs;
use std::os::unix::fs::symlink;

use conjure_skill_sdk::protocol::{FileRef, HttpResponse};
use serde_json::{Value, json};

use crate::content::FORMS;
use crate::testing::FetcherHost;

fn read(host: &FetcherHost, body: &Value) -> Value {
    host.call("skill.read", body)
}

fn lines(host: &FetcherHost, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(host.work(name)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The example of parity.md: 20 INFO, 7 DEBUG, 10 WARN and 13 ERROR.
fn fifty_lines() -> String {
    let levels = [("INFO", 20), ("DEBUG", 7), ("WARN", 10), ("ERROR", 13)];
    let levels = levels
        .iter()
        .flat_map(|(level, count)| std::iter::repeat_n(*level, *count));
    levels
        .enumerate()
        .map(|(n, level)| format!("2024-01-15T10:00:{n:02}Z {level} message {n} host=web-1\n"))
        .collect()
}

#[test]
fn a_text_log_becomes_json_lines_with_its_figures() {
    let host = FetcherHost::new();
    fs::write(host.work("app.log"), fifty_lines()).unwrap();
    let result = host.execute("fetch app.log");
    let path = host.work("logs.jsonl");
    let size = fs::metadata(&path).unwrap().len();
    let text = "Kept 50 of 50 entries from app.log.\n\
        Levels: ERROR 13, WARN 10, INFO 20, DEBUG 7.\n\
        Time: 2024-01-15T10:00:00Z to 2024-01-15T10:00:49Z.\n\
        Written to logs.jsonl in the working directory, one JSON object a line.";
    assert_eq!(
        result,
        json!({
            "content": [{ "type": "text", "text": text }],
            "structured": {
                "count": 50,
                "levels": { "ERROR": 13, "WARN": 10, "INFO": 20, "DEBUG": 7, "TRACE": 0 },
                "file": "logs.jsonl",
                "skipped": 0,
                "read": 50,
                "from": "2024-01-15T10:00:00Z",
                "to": "2024-01-15T10:00:49Z",
            },
            "is_error": false,
            "files": [{
                "name": "logs.jsonl",
                "path": path,
                "media_type": "application/jsonl",
                "size": size,
            }],
        })
    );
    let lines = lines(&host, "logs.jsonl");
    assert_eq!(
        lines[49],
        json!({
            "timestamp": "2024-01-15T10:00:49Z",
            "level": "ERROR",
            "host": "web-1",
            "message": "message 49 host=web-1",
        })
    );
}

#[test]
fn the_limit_keeps_the_newest_and_is_100_by_default() {
    let host = FetcherHost::new();
    let log: String = (0..150).map(|n| format!("INFO: {n}\n")).collect();
    fs::write(host.work("app.log"), log).unwrap();
    assert_eq!(host.execute("fetch app.log")["structured"]["count"], 100);
    assert_eq!(lines(&host, "logs.jsonl")[0]["message"], "50");
    let result = host.execute("fetch app.log --limit 2");
    assert_eq!(result["structured"]["file"], "logs-2.jsonl");
    let messages: Vec<Value> = lines(&host, "logs-2.jsonl");
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[1]["message"], "149");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("Kept 2 of 150 entries from app.log, the newest ones (--limit 2)."));
}

#[test]
fn the_level_keeps_what_is_as_severe_or_more() {
    let host = FetcherHost::new();
    let log = format!("{}10:00:00 without a level\n", fifty_lines());
    fs::write(host.work("app.log"), log).unwrap();
    let result = host.execute("fetch app.log --level warning");
    let levels = json!({ "ERROR": 13, "WARN": 10, "INFO": 0, "DEBUG": 0, "TRACE": 0 });
    assert_eq!(result["structured"]["levels"], levels);
    assert_eq!(result["structured"]["read"], 51);
    let result = host.execute("fetch app.log");
    assert_eq!(result["structured"]["levels"]["NONE"], 1);
}

#[test]
fn bad_lines_are_counted_and_shown() {
    let host = FetcherHost::new();
    fs::write(host.work("app.log"), "what?\nERROR: a\n???\nINFO: b\n").unwrap();
    let result = host.execute("fetch app.log");
    assert_eq!(result["structured"]["skipped"], 2);
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("Unreadable: 2.\n  line 1: what?\n  line 3: ???\n"),
        "{text}"
    );
}

#[test]
fn broken_lines_of_every_form_are_counted_beside_whole_ones() {
    let host = FetcherHost::new();
    let sample = "../../tests/demo/samples/mixed.log";
    let sample = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(sample);
    fs::copy(sample, host.work("mixed.log")).unwrap();
    let result = host.execute("fetch mixed.log");
    assert_eq!(result["structured"]["read"], 7);
    let text = result["content"][0]["text"].as_str().unwrap();
    let unreadable = "Unreadable: 3.\n  \
        line 7: 198.51.100.23 - - [14/Mar/2026:09:27:02 +0000] \"GET /wp-lo\n  \
        line 8: {\"timestamp\":\"2026-03-14T09:27:03Z\",\"level\":\"err\n  \
        line 10: -- Boot b1 --\n";
    assert!(text.contains(unreadable), "{text}");
}

#[test]
fn a_source_without_entries_is_an_error_and_writes_nothing() {
    let host = FetcherHost::new();
    for (content, expected) in [
        (
            &b""[..],
            "it is no log but an empty file (0 bytes). Name a log with entries.",
        ),
        (
            b"dear diary\n",
            "it is no log but text in which no line has a time or a level. If it is a log, bring it \
             into one of the forms below first. Unreadable: 1.\n  line 1: dear diary",
        ),
        (
            b"\x1f\x8b\x08\0",
            "it is no log but data compressed with gzip. Decompress it first, as with `gunzip`.",
        ),
        (
            b"[{\"msg\":",
            "it begins as a JSON array and is none: EOF while parsing a value at line 1 column 8. \
             Mend it, or fetch it again",
        ),
    ] {
        fs::write(host.work("source"), content).unwrap();
        let expected = format!("`source` cannot be read: {expected}\n{FORMS}");
        assert_eq!(host.error("fetch source"), expected);
    }
    assert!(!host.work("logs.jsonl").exists());
}

#[test]
fn only_files_that_may_be_read_are_read() {
    let host = FetcherHost::new();
    fs::write(host.path("outside.log"), "ERROR: a\n").unwrap();
    symlink("../outside.log", host.work("link.log")).unwrap();
    fs::create_dir(host.work("dir")).unwrap();
    for name in ["../outside.log", "link.log", "/etc/passwd"] {
        let error = host.error(&format!("fetch {name}"));
        assert!(
            error.contains("is outside of the working directory"),
            "{error}"
        );
        assert!(error.contains("to `roots` in the configuration"), "{error}");
    }
    assert!(
        host.error("fetch missing.log")
            .contains("there is no such file")
    );
    assert!(host.error("fetch dir").contains("it is a directory"));
    assert!(host.error("fetch ftp://h/x").contains("`ftp`"));
}

#[test]
fn a_configured_root_is_readable() {
    let host = FetcherHost::configured(|dir| json!({ "roots": [dir] })).unwrap();
    fs::write(host.path("outside.log"), "ERROR: a\n").unwrap();
    let name = host.path("outside.log");
    for source in [
        "../outside.log".to_owned(),
        format!("\"{}\"", name.display()),
    ] {
        let result = host.execute(&format!("fetch {source}"));
        assert_eq!(result["structured"]["count"], 1, "{result}");
    }
    assert!(FetcherHost::configured(|_| json!({ "roots": ["relative"] })).is_err());
}

#[test]
fn a_url_is_fetched_through_the_host() {
    let host = FetcherHost::new();
    host.answer(HttpResponse {
        status: 200,
        body: Some("[{\"level\":\"info\",\"msg\":\"a\"}]".into()),
        ..HttpResponse::default()
    });
    let result = host.execute("fetch https://logs.example.com/app?x=1");
    assert_eq!(result["structured"]["count"], 1);
    assert_eq!(
        host.requests()[0]["url"],
        "https://logs.example.com/app?x=1"
    );
    fs::write(host.path("body"), fifty_lines()).unwrap();
    host.answer(HttpResponse {
        status: 200,
        body_file: Some(FileRef::at(host.path("body").to_str().unwrap())),
        ..HttpResponse::default()
    });
    let result = host.execute("fetch http://logs.example.com/large");
    assert_eq!(result["structured"]["count"], 50);
}

#[test]
fn a_url_that_gives_no_log_is_an_error_with_its_reason() {
    let host = FetcherHost::new();
    let error = host.error("fetch https://logs.example.com/app");
    assert!(
        error.contains("this host sends no requests for plugins"),
        "{error}"
    );
    host.answer(HttpResponse {
        status: 404,
        body: Some("no such log".into()),
        ..HttpResponse::default()
    });
    assert_eq!(
        host.error("fetch https://logs.example.com/app"),
        "`https://logs.example.com/app` cannot be fetched: the server answered with status 404: \
         no such log"
    );
}

#[test]
fn what_was_fetched_can_be_read_again() {
    let host = FetcherHost::new();
    let error = read(&host, &json!({ "path": "recent" }));
    assert_eq!(error["is_error"], true);
    fs::write(host.work("app.log"), fifty_lines()).unwrap();
    host.execute("fetch app.log");
    let recent = |body: Value| {
        let result = read(&host, &body);
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        let lines = text.lines().map(|line| {
            let entry: Value = serde_json::from_str(line).unwrap();
            entry["timestamp"].as_str().unwrap()[17..19].to_owned()
        });
        lines.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(recent(json!({ "path": "recent", "limit": 3 })), "47 48 49");
    assert_eq!(
        recent(json!({ "path": "recent", "offset": 2, "limit": 2 })),
        "46 47"
    );
    let stats = read(&host, &json!({ "path": "stats" }));
    assert_eq!(stats["structured"]["source"], "app.log");
    assert_eq!(stats["structured"]["count"], 50);
    let beyond = read(&host, &json!({ "path": "recent", "offset": 99 }));
    assert_eq!(
        beyond["content"][0]["text"],
        "no entries there; 50 are kept for reading"
    );
    let other = read(&host, &json!({ "path": "secrets" }));
    assert_eq!(other["is_error"], true);
}
