//! The demo's session as `cargo xtask demo` runs it, with the real binary and real plugins.
//!
//! Only the build differs: plugins and host have the profile of the test. The figures are those of
//! the log, whatever form it comes in.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use conjure_kit::{Cli, Engine, Output, Workspace, build_plugin, conjure_bin, repo_root};
use conjure_mock_llm::{Hosted, Message, MockLlm, Script, Wire};
use serde_json::{Value, json};

mod forms;
mod unreadable;

use super::{DemoDirs, PACKAGES, ThirdBackend, arguments, command_line, input};

/// What the report says of `tests/demo/app.log` in any form that names hosts and services.
const REPORT: &str = "\
LOG REPORT
==========
State:    CRITICAL
Entries:  386
Period:   2026-03-14T08:00:00.182Z to 2026-03-14T09:59:59.467Z
Errors:   43 (11.14 %)
Warnings: 57 (14.77 %)

Levels
  ERROR       43   11.14 %
  WARN        57   14.77 %
  INFO       227   58.81 %
  DEBUG       59   15.28 %

Most frequent errors
     13 x  Could not get a database connection from the pool within N ms
           on pay-1, pay-2
      7 x  POST /orders N: payments did not answer, order N not placed
           on web-3, web-1
      6 x  Upstream N:N refused connection for request N
           on lb-1
      6 x  could not write to file \"base/N/N\": No space left on device
           on db-2
      4 x  Invalid JSON in request body: unexpected '}' at line N column N
           on web-3, web-1

Affected hosts
    errors warnings  entries
         9        1       21  pay-1
         7        7       64  web-1
         7        7       72  web-3
         6        9       26  lb-1
         6        2        9  db-2
         4        1       31  pay-2
         3        9       16  worker-2
         1       11       92  web-2
         0       10       26  db-1

Affected services
    errors warnings  entries
        15       25      228  api
        13        2       52  payments
         6       12       35  database
         6        9       26  gateway
         3        9       45  mailer

Diagnostics
  - Error rate 11.14 % is above 10 %: act now
  - 30.23 % of the errors are one: Could not get a database connection from the pool within N ms
  - Most errors in one minute: 8 at 2026-03-14T08:43
  - 19 errors are about connections: check that the other side runs, and the network between
  - 1 error is about memory: look for a leak or a limit that is too small
  - 6 errors are about disks: free space, then find what fills it
  - 3 errors are about access: check credentials, permissions and certificates
  - 13 errors are about the database: check its pool, locks and replicas
";

/// A place like the one below the target directory, with the demo's plugins in it.
struct Stage {
    workspace: Workspace,
    dirs: DemoDirs,
}

impl Stage {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(third: Option<&ThirdBackend>) -> Self {
        let workspace = Workspace::new().unwrap();
        let data = workspace.root().join("data");
        std::fs::create_dir(&data).unwrap();
        let session = workspace.root().join("session");
        std::fs::create_dir(&session).unwrap();
        let place = DemoDirs {
            plugins: workspace.plugins(),
            work: workspace.work(),
            data,
            session,
        };
        let plugins = PACKAGES.into_iter().skip(1);
        for package in plugins.chain(third.map(ThirdBackend::package)) {
            let library = build_plugin(package).unwrap();
            place.add_plugin(&library).unwrap();
            workspace.trust(&place.data, &library).unwrap();
        }
        let demo = repo_root().join("tests/demo");
        place.session(&demo, third).unwrap();
        Self {
            workspace,
            dirs: place,
        }
    }

    /// `conjure` with the demo's arguments, which bring the plugin directory themselves.
    fn conjure(&self, arguments: Vec<std::ffi::OsString>) -> Output {
        Cli::program(conjure_bin().unwrap(), arguments)
            .workspace(&self.workspace)
            .env("CONJURE_PLUGIN_PATH", "")
            .run()
            .unwrap()
    }

    /// The demo's run over what `--input` names.
    fn analyses(&self, given: Option<&str>) -> Output {
        let input = self.dirs.stage_input(&input(given).unwrap()).unwrap();
        let output = self.conjure(command_line(&self.dirs, &input));
        assert_eq!(output.code, Some(0), "{}", output.snapshot());
        output
    }

    /// The report that was made, which the answer repeats.
    fn report(&self, output: &Output) -> String {
        let report = self.workspace.read("report.txt").unwrap();
        assert!(output.stdout.contains(&report), "{}", output.stdout);
        report
    }

    /// A file outside the working directory, as a person's log is.
    fn log(&self, name: &str, text: &str) -> String {
        let path = self.workspace.home().join(name);
        std::fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    }
}

/// The entries of the demo's log.
fn entries() -> Vec<Value> {
    let log = std::fs::read_to_string(repo_root().join("tests/demo/app.log")).unwrap();
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn sample(name: &str) -> String {
    let path = repo_root().join("tests/demo/samples").join(name);
    path.into_os_string().into_string().unwrap()
}

/// The head of a report: state, entries, period, errors, warnings.
fn head(report: &str) -> Vec<&str> {
    report.lines().skip(2).take(5).collect()
}

#[test]
fn the_routing_table_has_both_backends() {
    let stage = Stage::new();
    let output = stage.conjure(arguments("routes", &stage.dirs));
    assert_eq!(output.code, Some(0), "{}", output.snapshot());
    let rows: Vec<Vec<&str>> = output
        .stdout
        .lines()
        .skip(1)
        .map(|row| row.split_whitespace().take(4).collect())
        .collect();
    let native = ["native", "log-fetcher", "log-fetcher"];
    let local = ["local", "log-analyzer", "local"];
    let expected = [
        ("log-fetcher_execute", native),
        ("log-fetcher_read", native),
        ("log-analyzer_bash_tool", local),
        ("log-analyzer_create_file", local),
        ("log-analyzer_str_replace", local),
        ("log-analyzer_view", local),
    ]
    .map(|(tool, [backend, skill, plugin])| vec![tool, backend, skill, plugin]);
    assert_eq!(rows, expected);
}

#[test]
fn the_demo_fetches_analyses_and_reports_the_figures_of_its_log() {
    let stage = Stage::new();
    let output = stage.analyses(None);

    assert_eq!(stage.report(&output), REPORT);
    assert_eq!(
        stage.workspace.read("logs.jsonl").unwrap().lines().count(),
        386
    );
    let files = stage.workspace.files().unwrap();
    let files: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    assert_eq!(files, ["app.log", "logs.jsonl", "report.txt"]);

    for answer in [
        "Kept 386 of 386 entries from app.log.",
        "Written to logs.jsonl in the working directory, one JSON object a line.",
        "Report written to report.txt\n",
    ] {
        assert!(output.stdout.contains(answer), "{}", output.stdout);
    }
    for shown in [
        "note: A script plays the model: no provider is asked and nothing is generated.",
        "✓ log-fetcher_execute (on native, ",
        "Kept 386 of 386 entries from app.log.",
        "Levels: ERROR 43, WARN 57, INFO 227, DEBUG 59.",
        "✓ log-analyzer_view (on local, ",
        "✓ log-analyzer_bash_tool (on local, ",
        "file-1  logs.jsonl  55.4 KB, application/jsonl, from native",
        "file-2  report.txt  2.0 KB, text/plain, from local",
    ] {
        assert!(output.stderr.contains(shown), "{shown}\n{}", output.stderr);
    }
    assert!(!output.stderr.contains('✗'), "{}", output.stderr);
}

#[test]
fn a_container_makes_a_page_of_the_report_where_an_engine_runs() {
    let Some(engine) = Engine::find().unwrap() else {
        return;
    };
    let image = engine.image().to_owned();
    let stage = Stage::with(Some(&ThirdBackend::Docker { image }));
    let output = stage.analyses(None);
    assert_eq!(stage.report(&output), REPORT);
    let page = stage.workspace.read("report.html").unwrap();
    for shown in [
        "<div class=\"CRITICAL\"><dt>State</dt><dd>CRITICAL</dd></div>",
        "<dt>Entries</dt><dd>386</dd>",
        "<h2>Diagnostics</h2>",
        "file &quot;base",
    ] {
        let shown = shown.replace("&quot;", "\"");
        assert!(page.contains(&shown), "{shown}\n{page}");
    }
    for shown in [
        "✓ report-page_bash_tool (on docker, ",
        "text/plain, from local",
        "report.html",
        "text/html, from docker",
    ] {
        assert!(output.stderr.contains(shown), "{shown}\n{}", output.stderr);
    }
    let answer = "A page of the report is in report.html.";
    assert!(output.stdout.contains(answer), "{}", output.stdout);
}

#[test]
fn a_hosted_skill_makes_a_document_of_the_report_where_there_is_a_key() {
    let made = json!({
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {
            "type": "bash_code_execution_result",
            "stdout": "", "stderr": "", "return_code": 0,
            "content": [{ "type": "bash_code_execution_output", "file_id": "file_a" }],
        },
    });
    let reply = Message::new()
        .server_tool_use(
            "srvtoolu_1",
            "bash_code_execution",
            json!({ "command": "make" }),
        )
        .raw_on(Wire::Anthropic, made)
        .text("Made.")
        .container(json!({ "id": "container_1", "skills": null }));
    let script = Script::new()
        .reply(reply)
        .hosted(Hosted::new().generated_file("file_a", "report.docx", "PK"));
    let mock = MockLlm::start_blocking(script).unwrap();
    let stage = Stage::with(Some(&ThirdBackend::Hosted));
    let input = stage.dirs.stage_input(&input(None).unwrap()).unwrap();
    let line = command_line(&stage.dirs, &input);
    let output = Cli::program(conjure_bin().unwrap(), line)
        .workspace(&stage.workspace)
        .env("CONJURE_PLUGIN_PATH", "")
        .env("ANTHROPIC_BASE_URL", mock.base_url())
        .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
        .run()
        .unwrap();
    assert_eq!(output.code, Some(0), "{}", output.snapshot());
    let hosted = mock.hosted();
    let sent = hosted.files().iter().find(|file| file.name == "report.txt");
    assert_eq!(sent.unwrap().bytes.as_deref(), Some(REPORT.as_bytes()));
    for shown in ["✓ docx_code_execution (on anthropic, ", "from anthropic"] {
        assert!(output.stderr.contains(shown), "{shown}\n{}", output.stderr);
    }
    assert!(output.stdout.contains("report.docx"), "{}", output.stdout);
    assert_eq!(mock.violations(), []);
}

#[test]
fn the_same_log_as_a_json_array_gives_the_same_report() {
    let stage = Stage::new();
    let array = serde_json::to_string_pretty(&entries()).unwrap();
    let log = stage.log("array.json", &array);
    let output = stage.analyses(Some(&log));
    assert_eq!(stage.report(&output), REPORT);
}

#[test]
fn the_same_log_as_json_lines_under_other_names_gives_the_same_report() {
    let stage = Stage::new();
    let lines: String = entries()
        .iter()
        .map(|entry| format!("{entry}\n\n"))
        .collect();
    let log = stage.log("day one's.log", &lines);
    let output = stage.analyses(Some(&log));
    assert_eq!(stage.report(&output), REPORT);

    let stage = Stage::new();
    let text = lines.replace("\"timestamp\"", "\"time\"");
    let log = stage.log("logs.jsonl", &text);
    let output = stage.analyses(Some(&log));
    assert_eq!(stage.report(&output), REPORT);
}

#[test]
fn the_same_log_as_text_lines_gives_the_same_figures_without_hosts_and_services() {
    let stage = Stage::new();
    let line = |entry: &Value| {
        let field = |name: &str| entry[name].as_str().unwrap().to_owned();
        format!(
            "{} {} {}\n",
            field("timestamp"),
            field("level"),
            field("message")
        )
    };
    let text: String = entries().iter().map(line).collect();
    let log = stage.log("plain.log", &text);
    let output = stage.analyses(Some(&log));
    let report = stage.report(&output);
    assert_eq!(head(&report), head(REPORT));
    for figures in [
        "     13 x  Could not get a database connection from the pool within N ms\n      7 x  POST",
        "Affected hosts\n  none\n",
        "Affected services\n  none\n",
    ] {
        assert!(report.contains(figures), "{figures}\n{report}");
    }
}

#[test]
fn the_same_log_from_a_server_gives_the_same_report() {
    let stage = Stage::new();
    let log = std::fs::read(repo_root().join("tests/demo/app.log")).unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/app.log", server.local_addr().unwrap());
    // Ends with the process if nobody asks.
    std::thread::spawn(move || {
        let (mut client, _) = server.accept().unwrap();
        let _request = client.read(&mut [0; 4096]).unwrap();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            log.len()
        );
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(&log).unwrap();
    });
    let output = stage.analyses(Some(&url));
    assert_eq!(stage.report(&output), REPORT);
}

#[test]
fn the_samples_of_both_other_forms_are_analysed() {
    for name in ["entries.json", "plain.log"] {
        let stage = Stage::new();
        let output = stage.analyses(Some(&sample(name)));
        let report = stage.report(&output);
        let lines = head(&report);
        assert_eq!(
            [lines[0], lines[1], lines[3], lines[4]],
            [
                "State:    CRITICAL",
                "Entries:  6",
                "Errors:   2 (33.33 %)",
                "Warnings: 1 (16.67 %)"
            ],
            "{name}"
        );
        assert_eq!(
            stage.workspace.read("logs.jsonl").unwrap().lines().count(),
            6
        );
    }
}
