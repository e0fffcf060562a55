//! `conjure plugin test`: the contract of a plugin's kind and its examples, in process and in a worker.
//!
//! The checks run in processes of their own, which this one starts and reads: what ends one of them is a
//! check that failed, and the next one begins behind it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use conjure_plugin_checks::{Contract, ContractError, ContractOptions, Outcome, Verdict};
use conjure_plugins::Isolation;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::args::{Global, shown};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, DIM, GREEN, RED, RESET, YELLOW};
use super::plugin_args::workers;
use super::plugin_crate::PluginCrate;
use super::signals::Signals;

/// Runs the contract of a plugin's kind and the examples that it declares.
///
/// What runs is the library itself, through the boundary that a host uses: once in a host's process,
/// once in a worker. Each check has an instance and directories of its own; the examples run in their
/// order in one session. A plugin that crashes fails the check that ran, and the others go on.
#[derive(Args)]
pub(crate) struct PluginTestArgs {
    /// The library, or a crate, which is built first [default: the crate of the current directory]
    #[arg(value_name = "FILE|DIR")]
    what: Option<PathBuf>,
    /// The configuration that the plugin gets, a JSON object
    #[arg(long, value_name = "JSON", value_parser = config)]
    config: Option<Value>,
    /// What examples find in their working directory: a copy of what is in this one
    #[arg(long, value_name = "DIR")]
    working_dir: Option<PathBuf>,
    /// Only the checks whose words hold this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only where plugins run so: `in-process` or `process`
    #[arg(long, value_name = "WHERE", value_parser = super::plugin_args::isolation)]
    isolation: Option<Isolation>,
    /// Build the crate in release
    #[arg(long)]
    release: bool,
    /// For the processes that run the checks: the first of them
    #[arg(long, hide = true, value_name = "N")]
    from: Option<usize>,
}

fn config(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match value.is_object() {
        true => Ok(value),
        false => Err("it is no JSON object".to_owned()),
    }
}

/// A line that a process which runs checks writes.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "line")]
enum Line {
    /// The plugin is no plugin of this host.
    Refused { reason: String },
    /// The checks that there are.
    Checks {
        plugin: String,
        kind: String,
        checks: Vec<String>,
    },
    /// The check at this place begins.
    Begins { place: usize },
    /// The check that began is done.
    Done { outcome: Outcome },
    /// That was the last one.
    End,
}

/// The checks of one plugin in one place.
#[derive(Debug, Clone, Default)]
struct PlaceReport {
    plugin: String,
    kind: String,
    refused: Option<String>,
    outcomes: Vec<Outcome>,
}

impl PlaceReport {
    fn holds(&self) -> bool {
        let mut outcomes = self.outcomes.iter();
        self.refused.is_none()
            && !outcomes.any(|outcome| matches!(outcome.verdict, Verdict::Failed { .. }))
    }
}

pub(crate) async fn run(global: &Global, args: &PluginTestArgs) -> Result<Exit, CliError> {
    if let Some(from) = args.from {
        return run_checks(global, args, from).await;
    }
    let here = PathBuf::from(".");
    let what = args.what.as_ref().unwrap_or(&here);
    if let Some(dir) = &args.working_dir
        && !conjure_config::fs::is_dir(dir).unwrap_or(false)
    {
        return Err(CliError::usage(format!("{} is no directory", shown(dir))));
    }
    let mut signals = Signals::listen()?;
    let library = match conjure_config::fs::is_dir(what).unwrap_or(false) {
        true => {
            let plugin = PluginCrate::at(what)?;
            let building = plugin.build(args.release);
            match Box::pin(signals.unless(building)).await? {
                Ok(built) => built.library,
                Err(said) => {
                    return Ok(not_built(global, what, &said));
                }
            }
        }
        false => what.clone(),
    };
    let places = match args.isolation {
        Some(one) => vec![one],
        None => vec![Isolation::InProcess, Isolation::Process],
    };
    let mut reports = Vec::new();
    for place in places {
        let testing = test_in(global, args, &library, place);
        let report = Box::pin(signals.unless(testing)).await?;
        if !global.json {
            print(place, &report, reports.is_empty());
        }
        reports.push((place, report));
    }
    let has_run = |report: &PlaceReport| !report.outcomes.is_empty() || report.refused.is_some();
    if let Some(only) = &args.only
        && !reports.iter().any(|(_, report)| has_run(report))
    {
        return Err(CliError::usage(format!(
            "no check has `{only}` in its name"
        )));
    }
    let holds = reports.iter().all(|(_, report)| report.holds());
    if global.json {
        let places = reports.iter().map(|(place, report)| {
            json!({
                "isolation": place.as_str(),
                "ok": report.holds(),
                "refused": report.refused,
                "checks": report.outcomes,
            })
        });
        let first = reports.first().map(|(_, report)| report.clone());
        let PlaceReport { plugin, kind, .. } = first.unwrap_or_default();
        output::json(&json!({
            "ok": holds, "file": library, "plugin": plugin, "kind": kind,
            "runs": places.collect::<Vec<_>>(),
        }));
    }
    Ok(if holds { Exit::Fine } else { Exit::No })
}

fn not_built(global: &Global, what: &Path, said: &str) -> Exit {
    if global.json {
        output::json(
            &json!({ "ok": false, "file": what, "reason": "it does not build", "said": said }),
        );
    } else {
        output::line(output::clean(said.trim_end()));
        output::line(format_args!("{RED}{} does not build{RESET}", shown(what)));
    }
    Exit::No
}

fn print(place: Isolation, report: &PlaceReport, first: bool) {
    if first && !report.plugin.is_empty() {
        output::line(format_args!(
            "{BOLD}{}{RESET} ({})",
            output::clean(&report.plugin),
            report.kind
        ));
    }
    output::line(format_args!(
        "\n{BOLD}{}{RESET}",
        match place {
            Isolation::InProcess => "In the host's process",
            Isolation::Process => "In a worker",
        }
    ));
    if let Some(reason) = &report.refused {
        output::line(format_args!(
            "  {RED}refused:{RESET} {}",
            output::clean(reason)
        ));
        return;
    }
    let (mut passed, mut failed, mut left_out) = (0, 0, 0);
    for outcome in &report.outcomes {
        let check = output::clean(&outcome.check);
        match &outcome.verdict {
            Verdict::Passed => {
                passed += 1;
                output::line(format_args!("  {GREEN}ok{RESET}      {check}"));
            }
            Verdict::Failed { expected, got } => {
                failed += 1;
                output::line(format_args!("  {RED}FAILED{RESET}  {check}"));
                output::line(format_args!(
                    "          expected: {}",
                    output::clean(expected)
                ));
                output::line(format_args!("          got:      {}", output::clean(got)));
            }
            Verdict::LeftOut { reason } => {
                left_out += 1;
                output::line(format_args!(
                    "  {YELLOW}-{RESET}       {check} {DIM}({}){RESET}",
                    output::clean(reason)
                ));
            }
        }
    }
    let left_out = match left_out {
        0 => String::new(),
        some => format!(", {some} left out"),
    };
    output::line(format_args!("  {passed} passed, {failed} failed{left_out}"));
}

/// Writes a line on its own, whatever the plugin has printed before it.
fn say(line: &Line) {
    output::line("");
    output::json_line(line);
}

/// Runs the checks from one on in this process, and writes a line for each step.
async fn run_checks(global: &Global, args: &PluginTestArgs, from: usize) -> Result<Exit, CliError> {
    let isolation = args.isolation.unwrap_or_default();
    let Some(workers) = workers(global, Some(isolation)) else {
        return Err(CliError::usage(
            "the system does not say which program this is",
        ));
    };
    let file = args.what.clone().unwrap_or_default();
    let options = ContractOptions {
        // What is trusted is to run in a worker too.
        workers: conjure_plugins::WorkerOptions {
            trust: conjure_plugins::PluginTrust::default(),
            ..workers
        },
        config: args.config.clone().unwrap_or_else(|| json!({})),
        working_dir: args.working_dir.clone(),
    };
    let contract = match Box::pin(Contract::of(&file, options)).await {
        Ok(contract) => contract,
        Err(ContractError::Refused(error)) => {
            say(&Line::Refused {
                reason: error.to_string(),
            });
            return Ok(Exit::Fine);
        }
        Err(ContractError::Scratch(error)) => {
            return Err(
                CliError::host_from(error).context("the checks have no directory to work in")
            );
        }
    };
    if contract.isolation() != isolation {
        let reason = "it was built with `panic = \"abort\"`, so a host runs it in a worker only";
        say(&Line::Refused {
            reason: reason.to_owned(),
        });
        return Ok(Exit::Fine);
    }
    let checks: Vec<String> = contract.names().map(str::to_owned).collect();
    let is_meant = |check: &String| args.only.as_ref().is_none_or(|text| check.contains(text));
    let places: Vec<usize> = checks
        .iter()
        .enumerate()
        .filter(|(place, check)| *place >= from && is_meant(check))
        .map(|(place, _)| place)
        .collect();
    say(&Line::Checks {
        plugin: contract.plugin().id().to_string(),
        kind: contract.plugin().manifest().kind.clone(),
        checks,
    });
    for place in places {
        say(&Line::Begins { place });
        if let Some(outcome) = contract.run(place).await {
            say(&Line::Done { outcome });
        }
    }
    contract.end().await;
    say(&Line::End);
    Ok(Exit::Fine)
}

/// How long a process that runs checks may say nothing: one check, and the loading before it.
const SILENCE: Duration = Duration::from_secs(120);

/// Runs all checks, in as many processes as it takes.
async fn test_in(
    global: &Global,
    args: &PluginTestArgs,
    library: &Path,
    place: Isolation,
) -> Result<PlaceReport, CliError> {
    let mut report = PlaceReport::default();
    let mut from = 0;
    loop {
        let mut child = start(global, args, library, place, from)?;
        let (ended, reached) = follow(&mut child, &mut report).await?;
        let Some(how) = ended else {
            return Ok(report);
        };
        let Some((at, check)) = reached else {
            report.refused = Some(format!("the process that loaded it {how}"));
            return Ok(report);
        };
        report.outcomes.push(Outcome {
            check,
            verdict: Verdict::Failed {
                expected: "that the plugin's process goes on".to_owned(),
                got: format!("it {how}"),
            },
            took_ms: 0,
        });
        from = at + 1;
    }
}

fn start(
    global: &Global,
    args: &PluginTestArgs,
    library: &Path,
    place: Isolation,
    from: usize,
) -> Result<Child, CliError> {
    let program = std::env::current_exe().map_err(CliError::host_from)?;
    let mut command = Command::new(program);
    command
        .args(["plugin", "test"])
        .arg(library)
        .args(["--isolation", place.as_str(), "--from", &from.to_string()])
        .arg("--data-dir")
        .arg(global.data_dir());
    if let Some(config) = &args.config {
        command.args(["--config", &config.to_string()]);
    }
    if let Some(dir) = &args.working_dir {
        command.arg("--working-dir").arg(dir);
    }
    if let Some(only) = &args.only {
        command.args(["--only", only]);
    }
    // Examples may need what the person has set for the plugin.
    for (name, value) in conjure_config::env::secrets() {
        let variable = conjure_config::env::secret_variable(&name);
        command.env(variable, value.expose_secret());
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| CliError::host_from(error).context("no process for the checks"))
}

/// Reads what a process says to its end. Gives how it ended, where that was no good end, and the check
/// that it was at.
async fn follow(
    child: &mut Child,
    report: &mut PlaceReport,
) -> Result<(Option<String>, Option<(usize, String)>), CliError> {
    let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(CliError::usage("the process for the checks has no output"));
    };
    let said = tokio::spawn(async move {
        let mut said = Vec::new();
        let _ = stderr.read_to_end(&mut said).await;
        String::from_utf8_lossy(&said).into_owned()
    });
    let mut lines = BufReader::new(stdout).lines();
    let mut names: Vec<String> = Vec::new();
    let mut at: Option<usize> = None;
    let mut is_silent = false;
    let mut is_over = false;
    loop {
        let line = match tokio::time::timeout(SILENCE, lines.next_line()).await {
            Ok(Ok(Some(line))) => line,
            Ok(_) => break,
            Err(_) => {
                is_silent = true;
                break;
            }
        };
        // What the plugin itself prints is none of them.
        match serde_json::from_str::<Line>(&line) {
            Ok(Line::Refused { reason }) => {
                report.refused = Some(reason);
                is_over = true;
            }
            Ok(Line::End) => is_over = true,
            Ok(Line::Checks {
                plugin,
                kind,
                checks,
            }) => {
                (report.plugin, report.kind, names) = (plugin, kind, checks);
            }
            Ok(Line::Begins { place }) => at = Some(place),
            Ok(Line::Done { outcome }) => {
                report.outcomes.push(outcome);
                at = None;
            }
            Err(_) => {}
        }
    }
    if is_silent {
        let _ = child.kill().await;
    }
    let status = child.wait().await.map_err(CliError::host_from)?;
    // A plugin that ends the process with a good code ends it all the same.
    if status.success() && !is_silent && is_over {
        return Ok((None, None));
    }
    let how = match is_silent {
        true => format!("said nothing for {} s and was ended", SILENCE.as_secs()),
        false => ended(status),
    };
    // What it left open keeps nothing waiting here.
    let said = tokio::time::timeout(Duration::from_secs(1), said).await;
    let said = said.ok().and_then(Result::ok).unwrap_or_default();
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    let how = match last {
        Some(last) => format!("{how}; it last said: {}", last.trim()),
        None => how,
    };
    let reached = at.and_then(|at| Some((at, names.get(at)?.clone())));
    Ok((Some(how), reached))
}

fn ended(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => {
            let name = match signal {
                4 => " (SIGILL)",
                6 => " (SIGABRT)",
                7 | 10 => " (SIGBUS)",
                8 => " (SIGFPE)",
                9 => " (SIGKILL)",
                11 => " (SIGSEGV)",
                _ => "",
            };
            format!("was ended by signal {signal}{name}")
        }
        (None, None) => "ended".to_owned(),
    }
}
