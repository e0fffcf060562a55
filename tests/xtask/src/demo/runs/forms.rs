//! The demo on logs of every form that the log fetcher reads, with the samples of `tests/demo`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Stage, command_line, head, sample};

/// What a report and the fetched entries say of a sample.
struct Expected {
    /// Beginnings of the report's lines: state, entries, period, errors, warnings.
    head: [&'static str; 5],
    /// Lines of the report.
    report: &'static [&'static str],
    /// A line of the fetched entries.
    entry: Value,
}

fn check(name: &str, expected: &Expected) {
    let stage = Stage::new();
    let output = stage.analyses(Some(&sample(name)));
    let report = stage.report(&output);
    assert_eq!(head(&report), expected.head, "{name}\n{report}");
    for line in expected.report {
        let found = report.lines().any(|found| found.trim() == *line);
        assert!(found, "{name}: {line}\n{report}");
    }
    let entries = stage.workspace.read("logs.jsonl").unwrap();
    let entries: Vec<Value> = entries
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(entries.contains(&expected.entry), "{name}: {entries:#?}");
}

#[test]
fn an_access_log_of_nginx_is_analysed_by_status() {
    check(
        "nginx-access.log",
        &Expected {
            head: [
                "State:    CRITICAL",
                "Entries:  6",
                "Period:   2026-03-14T09:26:50+00:00 to 2026-03-14T09:27:01+00:00",
                "Errors:   2 (33.33 %)",
                "Warnings: 1 (16.67 %)",
            ],
            report: &["2 x  POST /orders/N HTTP/N: N Bad Gateway"],
            entry: json!({
                "timestamp": "2026-03-14T09:26:53+00:00",
                "level": "ERROR",
                "message": "POST /orders/40112 HTTP/2.0: 502 Bad Gateway",
                "client": {
                    "address": "2001:db8::42",
                    "referrer": "https://shop.example/cart",
                    "agent": "Shop \\x22app\\x22/3.1",
                },
            }),
        },
    );
}

#[test]
fn an_access_log_of_apache_is_analysed_by_status() {
    check(
        "apache-access.log",
        &Expected {
            head: [
                "State:    CRITICAL",
                "Entries:  6",
                "Period:   2026-03-14T10:26:50+01:00 to 2026-03-14T10:27:01+01:00",
                "Errors:   2 (33.33 %)",
                "Warnings: 1 (16.67 %)",
            ],
            report: &["1 x  GET /report HTTP/N: N Service Unavailable"],
            entry: json!({
                "timestamp": "2026-03-14T10:26:53+01:00",
                "level": "WARN",
                "message": "GET /\"quoted\".php HTTP/1.0: 403 Forbidden",
                "client": { "address": "198.51.100.23" },
            }),
        },
    );
}

#[test]
fn a_journal_is_analysed_by_priority() {
    check(
        "journal.jsonl",
        &Expected {
            head: [
                "State:    CRITICAL",
                "Entries:  6",
                "Period:   2026-03-14T09:26:50.182Z to 2026-03-14T09:27:01Z",
                "Errors:   2 (33.33 %)",
                "Warnings: 1 (16.67 %)",
            ],
            report: &[
                "2        1        6  web-1",
                "1        0        1  payments",
            ],
            entry: json!({
                "timestamp": "2026-03-14T09:26:53.872Z",
                "level": "ERROR",
                "host": "web-1",
                "service": "payments",
                "message": "Timeout after 3000 ms\u{fffd}",
            }),
        },
    );
}

#[test]
fn logfmt_is_analysed() {
    check(
        "logfmt.log",
        &Expected {
            head: [
                "State:    CRITICAL",
                "Entries:  6",
                "Period:   2026-03-14T09:26:50Z to 2026-03-14T09:27:01Z",
                "Errors:   2 (33.33 %)",
                "Warnings: 1 (16.67 %)",
            ],
            report: &[
                "1        0        1  pay-1",
                "1        0        1  database",
            ],
            entry: json!({
                "timestamp": "2026-03-14T09:26:53Z",
                "level": "ERROR",
                "host": "pay-1",
                "service": "payments",
                "message": "Timeout after 3000 ms: {\"order\": 40112}",
            }),
        },
    );
}

#[test]
fn a_log_of_many_forms_with_broken_lines_is_analysed() {
    let name = "mixed.log";
    let stage = Stage::new();
    let output = stage.analyses(Some(&sample(name)));
    let report = stage.report(&output);
    assert_eq!(head(&report)[1], "Entries:  7", "{report}");
    let shown = "Kept 7 of 7 entries from mixed.log.";
    assert!(output.stderr.contains(shown), "{}", output.stderr);
}

#[test]
fn ten_logs_of_a_step_are_fetched_into_ten_files() {
    const SAMPLES: [(&str, usize); 10] = [
        ("entries.json", 6),
        ("plain.log", 6),
        ("nginx-access.log", 6),
        ("apache-access.log", 6),
        ("journal.jsonl", 6),
        ("logfmt.log", 6),
        ("mixed.log", 7),
        ("nginx-access.log.1", 6),
        ("journal.jsonl.1", 6),
        ("logfmt.log.1", 6),
    ];
    let stage = Stage::new();
    for (name, _) in SAMPLES {
        let from = sample(name.trim_end_matches(".1"));
        std::fs::copy(from, stage.workspace.work().join(name)).unwrap();
    }
    let calls = SAMPLES.map(|(name, _)| {
        json!({
            "tool": "log-fetcher_execute",
            "arguments": { "command": format!("fetch {name} --limit 1000") },
        })
    });
    let script = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
    std::fs::write(stage.dirs.session.join("script.json"), script.to_string()).unwrap();
    let output = stage.conjure(command_line(&stage.dirs, "all"));
    assert_eq!(output.code, Some(0), "{}", output.snapshot());

    for (name, count) in SAMPLES {
        let shown = format!("Kept {count} of {count} entries from {name}.");
        assert!(output.stderr.contains(&shown), "{shown}\n{}", output.stderr);
    }
    let written: BTreeSet<String> = stage
        .workspace
        .files()
        .unwrap()
        .iter()
        .map(|file| file.to_string_lossy().into_owned())
        .filter(|file| file.starts_with("logs"))
        .collect();
    let expected = (2..=10).map(|number| format!("logs-{number}.jsonl"));
    let expected = expected.chain(["logs.jsonl".to_owned()]).collect();
    assert_eq!(written, expected);
    let entries: usize = written
        .iter()
        .map(|file| stage.workspace.read(file).unwrap().lines().count())
        .sum();
    assert_eq!(entries, 61);
}
