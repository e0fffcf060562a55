//! The skill folder `tests/demo/skills/log-analyzer`, run as a session would run it.
//!
//! Every case runs under each awk that is installed, since the skill promises to need no
//! particular one. How a host loads and routes the skill is tested elsewhere.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "helpers of tests; clippy lets only the tests themselves unwrap and print"
)]

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

/// Every awk that the skill promises to work with.
const AWKS: [&str; 4] = ["mawk", "gawk", "gawk --posix", "busybox awk"];

/// The ones that are here; the others are reported.
fn awks() -> Vec<&'static str> {
    let (here, missing): (Vec<&str>, Vec<&str>) = AWKS.iter().partition(|awk| {
        let mut words = awk.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let status = command
            .args(words)
            .arg("BEGIN { exit 0 }")
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    });
    for awk in missing {
        println!("LEFT OUT: {awk}: it is not installed");
    }
    assert!(!here.is_empty(), "no awk of {AWKS:?} is installed");
    here
}

fn demo() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../demo")
}

/// Runs the script with that awk; `input` is its standard input.
fn run(awk: &str, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new("sh")
        .arg(demo().join("skills/log-analyzer/scripts/analyze.sh"))
        .args(args)
        .env("AWK", awk)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // From a thread: a script that refuses its arguments reads nothing.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn report(awk: &str, input: impl AsRef<[u8]>) -> Value {
    let output = run(awk, &["--json", "--top", "100", "-"], input.as_ref());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{awk}: {errors}"
    );
    let text = String::from_utf8(output.stdout).expect("the report is UTF-8");
    assert_eq!(text.lines().count(), 1, "{awk}: one object on one line");
    serde_json::from_str(&text).expect("the report is JSON")
}

fn entry(level: &str, message: &str) -> String {
    json!({"timestamp": "2026-03-14T09:26:53Z", "level": level, "message": message}).to_string()
}

fn log(parts: &[(usize, &str)]) -> String {
    let lines = parts.iter().flat_map(|(times, level)| {
        (0..*times).map(move |number| entry(level, &format!("{level} number {number}")))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The messages of the errors with their counts.
fn errors(report: &Value) -> Vec<(String, u64)> {
    let list = report.get("top_errors").unwrap().as_array().unwrap();
    list.iter()
        .map(|error| {
            let message = error.get("message").unwrap().as_str().unwrap();
            (
                message.to_owned(),
                error.get("count").unwrap().as_u64().unwrap(),
            )
        })
        .collect()
}

#[test]
fn fifty_lines_with_13_errors_and_10_warnings_are_critical() {
    let input = log(&[(20, "INFO"), (7, "DEBUG"), (10, "WARN"), (13, "ERROR")]);
    for awk in awks() {
        let expected = json!({
            "state": "CRITICAL",
            "entries": 50,
            "malformed": 0,
            "levels": {"ERROR": 13, "WARN": 10, "INFO": 20, "DEBUG": 7, "TRACE": 0, "OTHER": 0},
            "error_rate": 26.00,
            "warning_rate": 20.00,
            "period": {"first": "2026-03-14T09:26:53Z", "last": "2026-03-14T09:26:53Z"},
            "top_errors": [{
                "message": "ERROR number N", "count": 13, "share": 100.00, "host_count": 0, "hosts": [],
                "first": "2026-03-14T09:26:53Z", "last": "2026-03-14T09:26:53Z",
            }],
            "affected_hosts": 0, "hosts": [], "affected_services": 0, "services": [],
            "diagnostics": [
                "Error rate 26.00 % is above 10 %: act now",
                "100.00 % of the errors are one: ERROR number N",
                "Most errors in one minute: 13 at 2026-03-14T09:26",
            ],
        });
        assert_eq!(report(awk, &input), expected, "{awk}");
        let text = String::from_utf8(run(awk, &["-"], input.as_bytes()).stdout).unwrap();
        for line in [
            "State:    CRITICAL",
            "Errors:   13 (26.00 %)",
            "Warnings: 10 (20.00 %)",
        ] {
            assert!(
                text.lines().any(|printed| printed == line),
                "{awk}: no `{line}` in\n{text}"
            );
        }
    }
}

#[test]
fn a_rate_exactly_at_its_threshold_is_not_above_it() {
    let cases = [
        (10, 0, 100, "WARNING"),
        (11, 0, 100, "CRITICAL"),
        (101, 0, 1000, "CRITICAL"),
        (5, 0, 100, "HEALTHY"),
        (6, 0, 100, "WARNING"),
        (5, 20, 100, "HEALTHY"),
        (5, 21, 100, "ATTENTION"),
        (6, 50, 100, "WARNING"),
        (1, 0, 3, "CRITICAL"),
        (0, 0, 1, "HEALTHY"),
    ];
    for awk in awks() {
        for (errors, warnings, all, state) in cases {
            let input = log(&[
                (errors, "ERROR"),
                (warnings, "WARN"),
                (all - errors - warnings, "INFO"),
            ]);
            let found = report(awk, &input);
            assert_eq!(
                found.get("state").unwrap(),
                state,
                "{awk}: {errors} and {warnings} of {all}"
            );
        }
        let rate = report(awk, log(&[(1, "ERROR"), (2, "INFO")]));
        assert_eq!(rate.get("error_rate").unwrap(), &json!(33.33), "{awk}");
    }
}

#[test]
fn hostile_messages_come_through_whole() {
    let whole = [
        r#"{"level":"INFO","message":"not an entry"}"#,
        r#"colon: comma, "quotes" and 'these' \ and \\"#,
        "100 % of %s %d %n \\n & \\& $(id) `id` ; rm -rf",
        "ünï çødé 山田 😀",
        "]}],[{\"",
        "/slashes/ and <tags>",
    ];
    for awk in awks() {
        let lines: Vec<_> = whole
            .iter()
            .map(|message| entry("ERROR", message))
            .collect();
        let mut found: Vec<_> = errors(&report(awk, lines.join("\n")))
            .into_iter()
            .map(|(message, _)| message)
            .collect();
        let mut expected: Vec<_> = whole
            .iter()
            .map(|message| message.replace("100", "N"))
            .collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{awk}");
    }
}

#[test]
fn escapes_are_read_and_controls_are_not_passed_on() {
    let cases: [(&[u8], &str); 9] = [
        (br#"\u0063af\u00e9 \ud83d\ude00 \u20AC"#, "café 😀 €"),
        (br#"a\"b\\c\/d"#, r#"a"b\c/d"#),
        (br"tab\tline\nend\r\b\f.", "tab line end ."),
        (br"\u001b[31mred\u001b[0m", "[Nmred [Nm"),
        (b"raw \x1b[2J clear", "raw [NJ clear"),
        (
            br"nul \u0000 half \ud83d other \ude00",
            "nul \u{fffd} half \u{fffd} other \u{fffd}",
        ),
        (
            b"bad \xff\xfe and cut \xe2\x82",
            "bad \u{fffd}\u{fffd} and cut \u{fffd}\u{fffd}",
        ),
        (
            b"overlong \xc0\xaf surrogate \xed\xa0\x80",
            "overlong \u{fffd}\u{fffd} surrogate \u{fffd}\u{fffd}\u{fffd}",
        ),
        (
            b"terminal \xc2\x9b controls",
            "terminal \u{fffd}\u{fffd} controls",
        ),
    ];
    for awk in awks() {
        for (raw, expected) in cases {
            let input = [br#"{"level":"ERROR","message":""#, raw, br#""}"#].concat();
            assert_eq!(
                errors(&report(awk, input)),
                [(expected.to_owned(), 1)],
                "{awk}: {}",
                String::from_utf8_lossy(raw)
            );
        }
    }
}

#[test]
fn levels_of_every_spelling_are_counted_as_one_of_six() {
    let spelled = [
        "error",
        "Err",
        "FATAL",
        "critical",
        "panic",
        "warning",
        "Warn",
        "information",
        "notice",
        "dbg",
        "trace",
        "verbose",
        "strange",
        "",
    ];
    let mut input: Vec<_> = spelled.iter().map(|level| entry(level, "x")).collect();
    input.push(r#"{"level":50,"message":"numbers"}"#.to_owned());
    input.push(r#"{"level":null,"message":"nothing"}"#.to_owned());
    for awk in awks() {
        let expected =
            json!({"ERROR": 6, "WARN": 2, "INFO": 2, "DEBUG": 1, "TRACE": 2, "OTHER": 3});
        assert_eq!(
            report(awk, input.join("\n")).get("levels").unwrap(),
            &expected,
            "{awk}"
        );
    }
}

#[test]
fn messages_that_differ_in_numbers_only_are_one_error() {
    let input = [
        "timeout after 3000 ms on 10.0.3.17:8080",
        "timeout after 20.5 ms on 10.0.3.9:80",
        "request 5f0c954f-1111-4222-8333-abcdefabcdef at 0xDEADBEEF failed, commit 7be41d09",
        "request 00000000-1111-4222-8333-abcdefabcde0 at 0x1 failed, commit 1c9a2f55",
        "request 00000000-1111-4222-8333-abcdefabcde1 at 0x2 failed, commit deadbeef",
        "b error",
        "a error",
    ];
    let input = input.map(|message| entry("ERROR", message)).join("\n");
    for awk in awks() {
        let expected = [
            ("request N at N failed, commit N", 3),
            ("timeout after N ms on N:N", 2),
            ("a error", 1),
            ("b error", 1),
        ];
        assert_eq!(
            errors(&report(awk, &input)),
            expected.map(|(m, n)| (m.to_owned(), n)),
            "{awk}"
        );
    }
}

#[test]
fn lines_that_are_no_entries_are_counted_and_do_no_harm() {
    let deep = format!("{{\"level\":{}", "[".repeat(5000));
    let long = entry("ERROR", &"x".repeat(70_000));
    let bad = [
        "nonsense",
        "{",
        "{}",
        "[]",
        "null",
        "{\"level\":\"ERROR\",}",
        "{\"level\":\"ERROR\"} x",
        "{'level':'ERROR'}",
        "{\"level\":\"ERROR\",\"message\":\"no end}",
        "{\"level\":\"ERROR\",\"message\":\"\\x\"}",
        "{\"level\":\"ERROR\",\"message\":\"\\u12g4\"}",
        "{\"level\":01,\"message\":\"a\"}",
        "{\"level\":tru}",
        "{\"other\":1}",
        &deep,
        &long,
    ];
    let good = [
        " { \"level\" : \"ERROR\" , \"message\" : \"fine\" , \"more\" : { \"a\" : [ 1, -2.5e+3, { } , [ ], \"}\" ], \"level\" : \"INFO\" } } \r",
        "\u{feff}{\"level\":\"ERROR\"}",
    ];
    let mut lines: Vec<&str> = vec![good[1]];
    lines.extend(bad);
    lines.extend(["", "   ", "\t", good[0]]);
    for awk in awks() {
        let found = report(awk, lines.join("\n"));
        assert_eq!(found.get("malformed").unwrap(), bad.len(), "{awk}");
        let expected = [("(no message)".to_owned(), 1), ("fine".to_owned(), 1)];
        assert_eq!(errors(&found), expected, "{awk}");
    }
}

#[test]
fn an_empty_log_is_not_called_healthy() {
    for awk in awks() {
        for input in ["", "\n\n", "no entry\n"] {
            assert_eq!(
                report(awk, input).get("state").unwrap(),
                "UNKNOWN",
                "{awk}: {input:?}"
            );
        }
        let text = String::from_utf8(run(awk, &["-"], b"").stdout).unwrap();
        assert!(
            text.contains("No log entries: there is nothing to analyse."),
            "{awk}: {text}"
        );
    }
}

#[test]
fn every_awk_gives_the_same_report_of_the_demo_log() {
    let log = demo().join("app.log");
    let log = log.to_str().unwrap();
    let mut reports = Vec::new();
    for awk in awks() {
        let text = run(awk, &[log], b"");
        let object = run(awk, &["--json", log], b"");
        assert!(text.status.success() && object.status.success(), "{awk}");
        reports.push((text.stdout, object.stdout));
    }
    let (text, object) = reports.first().unwrap();
    let text = String::from_utf8(text.clone()).unwrap();
    assert!(
        reports
            .iter()
            .all(|other| other == reports.first().unwrap()),
        "awks differ:\n{text}"
    );
    for line in [
        "State:    CRITICAL",
        "Entries:  386",
        "Errors:   43 (11.14 %)",
        "Warnings: 57 (14.77 %)",
    ] {
        assert!(
            text.lines().any(|printed| printed == line),
            "no `{line}` in\n{text}"
        );
    }
    let object: Value = serde_json::from_slice(object).unwrap();
    assert_eq!(object.get("affected_hosts").unwrap(), 9);
    assert_eq!(errors(&object).first().unwrap().1, 13);
}

#[test]
fn hosts_and_services_are_listed_worst_first_and_only_where_something_happened() {
    let line = |level: &str, host: &str| {
        json!({"level": level, "host": host, "service": "api", "message": "m"}).to_string()
    };
    let input = [
        line("INFO", "calm"),
        line("WARN", "b"),
        line("ERROR", "c"),
        line("ERROR", "d"),
        line("WARN", "d"),
        line("WARN", "a"),
    ];
    for awk in awks() {
        let found = report(awk, input.join("\n"));
        let row = |name, entries, errors, warnings| json!({"name": name, "entries": entries, "errors": errors, "warnings": warnings});
        let expected = json!([
            row("d", 2, 1, 1),
            row("c", 1, 1, 0),
            row("a", 1, 0, 1),
            row("b", 1, 0, 1)
        ]);
        assert_eq!(found.get("hosts").unwrap(), &expected, "{awk}");
        assert_eq!(
            found.get("services").unwrap(),
            &json!([row("api", 6, 2, 3)]),
            "{awk}"
        );
    }
}

#[test]
fn a_report_goes_to_a_file_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    // Names that a careless script takes for something else.
    let (log, output) = (at("a=b c.jsonl"), at("re port.txt"));
    std::fs::write(&log, entry("ERROR", "x")).unwrap();
    for awk in awks() {
        let done = run(awk, &["--output", &output, &log], b"");
        assert_eq!(
            String::from_utf8(done.stdout).unwrap(),
            format!("Report written to {output}\n"),
            "{awk}"
        );
        assert!(
            std::fs::read_to_string(&output)
                .unwrap()
                .starts_with("LOG REPORT\n")
        );
        std::fs::remove_file(&output).unwrap();
    }
    let failed = run("false", &["--output", &output, &log], b"");
    assert_eq!(failed.status.code(), Some(1));
    let names: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["a=b c.jsonl"], "nothing half done is left");
}

#[test]
fn what_is_wrong_with_the_call_is_said() {
    let cases: [(&[&str], i32, &str); 8] = [
        (&[], 2, "a file is needed"),
        (&["a", "b"], 2, "only one input"),
        (&["--nonsense", "a"], 2, "there is no option --nonsense"),
        (
            &["--top", "0", "-"],
            2,
            "--top needs a number from 1 to 1000, not '0'",
        ),
        (&["--top"], 2, "--top needs a value"),
        (&["no-such.log"], 1, "there is no file 'no-such.log' here"),
        (&["/"], 1, "'/' is a directory"),
        (
            &["--output", "no/such/dir/report", "-"],
            1,
            "could not be written to 'no/such/dir/report'",
        ),
    ];
    for (args, code, message) in cases {
        let output = run("awk", args, b"");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(message), "{args:?}: {said}");
    }
    let help = run("awk", &["--help"], b"");
    assert!(help.status.success() && help.stdout.starts_with(b"Usage: sh analyze.sh"));
}
