//! `conjure plugin test`: the contract of a plugin's kind and its examples, in process and in a worker.
//!
//! The checks run in processes of their own, which this one starts and reads: what ends one of them is a
//! check that failed, and the next one begins behind it.

use std::path::{Path, PathBuf};

use clap::Args;
use conjure_plugin_checks::{CheckOutcome, Contract, ContractError, ContractOptions, Verdict};
use conjure_plugins::{Isolation, PluginFile, is_description};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::process::Command;

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, DIM, GREEN, RED, RESET, YELLOW};
use super::plugin_args::{check_exists, workers};
use super::plugin_crate::PluginCrate;
use super::plugin_test_process::{CheckEnd, CheckLine, CheckProcess, CheckProcessArgs, LineWriter};
use super::signals::Signals;

/// Runs the contract of a plugin's kind and the examples that it declares.
///
/// What runs is the library itself, through the boundary that a host uses: once in a host's process,
/// once in a worker. Each check has an instance and directories of its own; the examples run in their
/// order in one session. A plugin that crashes fails the check that ran, and the others go on. One that
/// a host never runs in its own process, such as a program, is run in a worker only.
#[derive(Args)]
pub(crate) struct PluginTestArgs {
    /// The plugin, or a crate, which is built first, or a program's directory or description [default:
    /// the current directory]
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
    #[command(flatten)]
    process: CheckProcessArgs,
}

fn config(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match value.is_object() {
        true => Ok(value),
        false => Err("it is no JSON object".to_owned()),
    }
}

/// The checks of one plugin in one place.
#[derive(Debug, Clone, Default)]
struct IsolationReport {
    plugin: String,
    kind: String,
    refusal: Option<String>,
    outcomes: Vec<CheckOutcome>,
}

impl IsolationReport {
    fn has_passed(&self) -> bool {
        let mut outcomes = self.outcomes.iter();
        self.refusal.is_none()
            && !outcomes.any(|outcome| matches!(outcome.verdict, Verdict::Failed { .. }))
    }
}

pub(crate) async fn run(global: &Global, args: &PluginTestArgs) -> Result<Exit, CliError> {
    if let Some((from, scratch)) = args.process.given() {
        return run_checks(global, args, from, scratch).await;
    }
    let here = PathBuf::from(".");
    let what = args.what.as_ref().unwrap_or(&here);
    check_exists(what)?;
    if let Some(dir) = &args.working_dir
        && !conjure_config::fs::is_dir(dir).unwrap_or(false)
    {
        return Err(CliError::usage(format!(
            "{} is no directory",
            display_path(dir)
        )));
    }
    let mut signals = Signals::listen()?;
    let is_dir = conjure_config::fs::is_dir(what).unwrap_or(false);
    let library = match description_at(what)? {
        Some(description) => description,
        None if is_dir => {
            let plugin = PluginCrate::at(what, &global.data_dir()).await?;
            let building = plugin.build(args.release);
            match Box::pin(signals.unless(building)).await? {
                Ok(built) => built.library,
                Err(said) => {
                    return Ok(not_built(global, what, &said));
                }
            }
        }
        None => what.clone(),
    };
    let worker_only = match args.isolation {
        Some(_) => None,
        None => needs_worker(&library),
    };
    let places = match (args.isolation, worker_only) {
        (Some(one), _) => vec![one],
        (None, Some(_)) => vec![Isolation::Process],
        (None, None) => vec![Isolation::InProcess, Isolation::Process],
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
    if let Some(reason) = worker_only.filter(|_| !global.json) {
        output::line(format_args!(
            "\n{BOLD}In the host's process{RESET}\n  {YELLOW}-{RESET}       {DIM}not run: {reason}{RESET}"
        ));
    }
    let has_run =
        |report: &IsolationReport| !report.outcomes.is_empty() || report.refusal.is_some();
    if let Some(only) = &args.only
        && !reports.iter().any(|(_, report)| has_run(report))
    {
        return Err(CliError::usage(format!(
            "no check has `{only}` in its name"
        )));
    }
    let holds = reports.iter().all(|(_, report)| report.has_passed());
    if global.json {
        let places = reports.iter().map(|(place, report)| {
            json!({
                "isolation": place.as_str(),
                "ok": report.has_passed(),
                "refused": report.refusal,
                "checks": report.outcomes,
            })
        });
        let first = reports.first().map(|(_, report)| report.clone());
        let IsolationReport { plugin, kind, .. } = first.unwrap_or_default();
        output::json(&json!({
            "ok": holds, "file": library, "plugin": plugin, "kind": kind,
            "runs": places.collect::<Vec<_>>(),
            "in_process_left_out": worker_only,
        }));
    }
    Ok(if holds { Exit::Success } else { Exit::No })
}

fn not_built(global: &Global, what: &Path, said: &str) -> Exit {
    if global.json {
        output::json(
            &json!({ "ok": false, "file": what, "reason": "it does not build", "said": said }),
        );
    } else {
        output::line(output::clean(said.trim_end()));
        output::line(format_args!(
            "{RED}{} does not build{RESET}",
            display_path(what)
        ));
    }
    Exit::No
}

fn print(place: Isolation, report: &IsolationReport, first: bool) {
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
    if let Some(reason) = &report.refusal {
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

/// Why a host never runs a plugin in its own process, where that is so.
fn needs_worker(library: &Path) -> Option<&'static str> {
    let file = PluginFile::read(library, true).ok()?;
    match (file.program.is_some(), file.header.panic_unwind) {
        (true, _) => Some("it is a program, which always has a process of its own"),
        (false, false) => Some(
            "it was built with `panic = \"abort\"`, so that a panic would end the host: a host runs it in \
             a worker",
        ),
        (false, true) => None,
    }
}

/// The description of a program: the one that is named, or the only one in a directory that is no
/// crate.
pub(crate) fn description_at(place: &Path) -> Result<Option<PathBuf>, CliError> {
    if place.is_file() {
        return Ok(is_description(place).then(|| place.to_owned()));
    }
    if place.join("Cargo.toml").is_file() {
        return Ok(None);
    }
    // What cannot be read is told by whoever looks for a crate there.
    let mut found = conjure_config::fs::entries(place).unwrap_or_default();
    found.retain(|path| is_description(path) && path.is_file());
    match &found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        some => {
            let names: Vec<String> = some.iter().map(|path| display_path(path)).collect();
            let message = format!(
                "`{}` has more than one description of a program: {}",
                display_path(place),
                names.join(", ")
            );
            Err(CliError::usage(message).hint("name one of them"))
        }
    }
}

/// Runs the checks from one on in this process, and writes a line for each step.
async fn run_checks(
    global: &Global,
    args: &PluginTestArgs,
    from: usize,
    scratch: &Path,
) -> Result<Exit, CliError> {
    let mut lines = LineWriter::take(scratch)
        .map_err(|error| CliError::host_from(error).context("the checks cannot be told"))?;
    let isolation = args.isolation.unwrap_or(Isolation::InProcess);
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
        scratch: Some(scratch.to_owned()),
    };
    let contract = match Box::pin(Contract::of(&file, options)).await {
        Ok(contract) => contract,
        Err(ContractError::Refused(error)) => {
            lines.write_line(&CheckLine::Refused {
                reason: error.to_string(),
            });
            return Ok(Exit::Success);
        }
        Err(ContractError::Scratch(error)) => {
            return Err(
                CliError::host_from(error).context("the checks have no directory to work in")
            );
        }
    };
    if contract.isolation() != isolation {
        let reason = needs_worker(&file).unwrap_or("a host runs it in a worker");
        lines.write_line(&CheckLine::Refused {
            reason: reason.to_owned(),
        });
        return Ok(Exit::Success);
    }
    let checks: Vec<String> = contract.names().map(str::to_owned).collect();
    let is_meant = |check: &String| args.only.as_ref().is_none_or(|text| check.contains(text));
    let places: Vec<usize> = checks
        .iter()
        .enumerate()
        .filter(|(place, check)| *place >= from && is_meant(check))
        .map(|(place, _)| place)
        .collect();
    lines.write_line(&CheckLine::Checks {
        plugin: contract.plugin().id().to_string(),
        kind: contract.plugin().manifest().kind.clone(),
        checks,
    });
    for place in places {
        lines.write_line(&CheckLine::Begins { place });
        if let Some(outcome) = contract.run(place).await {
            lines.write_line(&CheckLine::Done { outcome });
        }
    }
    contract.end().await;
    lines.write_line(&CheckLine::End);
    Ok(Exit::Success)
}

/// Runs all checks, in as many processes as it takes.
async fn test_in(
    global: &Global,
    args: &PluginTestArgs,
    library: &Path,
    place: Isolation,
) -> Result<IsolationReport, CliError> {
    let mut report = IsolationReport::default();
    let mut from = 0;
    loop {
        let no_room = |error| CliError::host_from(error).context("the checks have no directory");
        let scratch = tempfile::Builder::new()
            .prefix("conjure-plugin-test-")
            .tempdir()
            .map_err(no_room)?;
        let mut command = check_command(global, args, library, place)?;
        CheckProcessArgs::add_to(&mut command, from, scratch.path());
        let (mut names, mut at) = (Vec::new(), None);
        let process = CheckProcess::start(&mut command)?;
        let ended = process.follow(|line| match line {
            CheckLine::Refused { reason } => report.refusal = Some(reason),
            CheckLine::Checks {
                plugin,
                kind,
                checks,
            } => {
                (report.plugin, report.kind, names) = (plugin, kind, checks);
            }
            CheckLine::Begins { place } => at = Some(place),
            CheckLine::Done { outcome } => {
                report.outcomes.push(outcome);
                at = None;
            }
            CheckLine::End => {}
        });
        let CheckEnd::Early(how) = ended.await? else {
            return Ok(report);
        };
        let reached = at.and_then(|at: usize| Some((at, names.get(at)?)));
        let Some((at, check)) = reached else {
            report.refusal = Some(format!("the process that loaded it {how}"));
            return Ok(report);
        };
        report.outcomes.push(CheckOutcome {
            check: String::clone(check),
            verdict: Verdict::Failed {
                expected: "that the plugin's process goes on".to_owned(),
                got: format!("it {how}"),
            },
            took_ms: 0,
        });
        from = at + 1;
    }
}

/// A process that runs checks.
fn check_command(
    global: &Global,
    args: &PluginTestArgs,
    library: &Path,
    place: Isolation,
) -> Result<Command, CliError> {
    let Some(workers) = workers(global, Some(place)) else {
        return Err(CliError::usage(
            "the system does not say which program this is",
        ));
    };
    let mut command = Command::new(workers.program);
    command
        .args(["plugin", "test"])
        .arg(library)
        .args(["--isolation", place.as_str()])
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
    // It may need what the person has set for the plugin.
    for (name, value) in conjure_config::env::secrets() {
        let variable = conjure_config::env::secret_variable(&name);
        command.env(variable, value.expose_secret());
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_the_one_that_a_host_would_find() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let write = |name: &str| conjure_config::fs::write(root.join(name), "").unwrap();
        assert_eq!(description_at(root).unwrap(), None);
        write(".hidden.plugin.toml");
        write("notes.toml");
        assert_eq!(description_at(root).unwrap(), None);
        write("plugin.toml");
        let first = root.join("plugin.toml");
        assert_eq!(description_at(root).unwrap(), Some(first.clone()));
        write("other.plugin.toml");
        let error = description_at(root).unwrap_err();
        assert!(error.to_string().contains("more than one"), "{error}");
        assert_eq!(error.hints(), ["name one of them"]);
        // One that is named is meant, also beside another and in a crate.
        write("Cargo.toml");
        assert_eq!(description_at(root).unwrap(), None);
        assert_eq!(description_at(&first).unwrap(), Some(first));
        assert_eq!(description_at(&root.join("notes.toml")).unwrap(), None);
    }
}
