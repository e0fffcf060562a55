//! `conjure call`: one call, without a model.

use std::path::{Path, PathBuf};

use conjure_core::chat::{ArtifactRef, FunctionCall, FunctionCallOutput, OutputPart};
use conjure_core::context::{describe_file, file_line, file_line_start};
use conjure_runtime::Host;
use conjure_runtime::artifacts::Artifact;
use conjure_runtime::session::ServerTool;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::args::{Global, calls_spec, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::mcp_servers::unavailable::{hinted, print_unavailable, unavailable};
use super::output;
use super::plugin_args::PluginArgs;
use super::sandbox_args::SandboxArgs;
use super::signals::Signals;
use conjure_config::SessionSpec;

/// What a backend can do that has a share in the model's requests, such as tools that the provider
/// runs.
const CONTRIBUTES: &str = "backend.contribute/1";

/// Calls one tool and prints its result: of all backends of a session file; without one, of the
/// native skills, and with `--executor` its command tools too, for the skill folders named with
/// `--skill`.
///
/// Whoever types the call has decided about it: no policy is asked.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure call notes_search --config session.toml --args '{\"query\": \"tea\"}'
  conjure call cache-manager_execute --args '{\"command\": \"set greeting hello\"}'
  conjure call local_bash_tool --executor local --args '{\"command\": \"ls\", \"description\": \"\"}'")]
pub(crate) struct CallArgs {
    /// The tool's public name, as `conjure routes` shows it
    tool: String,
    /// The arguments of the call, a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    args: String,
    /// A session file (TOML): the tools of all its backends can be called
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["executor", "skill"])]
    config: Option<PathBuf>,
    /// The executor for command tools, such as `local`
    #[arg(long, value_name = "NAME")]
    executor: Option<String>,
    /// A skill folder or package, run through the executor
    #[arg(long, value_name = "PATH")]
    skill: Vec<PathBuf>,
    #[command(flatten)]
    sandbox: SandboxArgs,
    #[command(flatten)]
    plugins: PluginArgs,
}

pub(crate) async fn run(global: &Global, args: CallArgs) -> Result<Exit, CliError> {
    let arguments: Value = serde_json::from_str(&args.args)
        .map_err(|error| CliError::usage_from(error).context("`--args` is not JSON"))?;
    if !arguments.is_object() {
        return Err(CliError::usage("`--args` is not a JSON object")
            .hint("write one, such as '{\"command\": \"…\"}'"));
    }
    if let Some(number) = conjure_core::exact_numbers::inexact_number(&args.args) {
        return Err(CliError::usage(format!(
            "the number {number} in `--args` has more digits than a number can keep"
        ))
        .hint("write it as a string where the tool takes one"));
    }
    let mut signals = Signals::listen()?;
    let building = async { Ok(args.plugins.named_host(global)?.build().await?) };
    let host = signals.unless(building).await?;
    let call = FunctionCall {
        call_id: "call-1".to_owned(),
        name: args.tool.clone(),
        arguments,
        arguments_text: None,
    };
    let mut spec = match &args.config {
        Some(path) => SessionSpec::read(path)?,
        None => calls_spec(&args.skill, args.executor.as_deref())?,
    };
    let here = || std::env::current_dir().ok();
    spec.working_dir = spec.working_dir.take().or_else(here);
    args.sandbox.apply(&mut spec.sandbox)?;
    let opening = async { Ok(host.calls(spec.clone()).await?) };
    let calls = Box::pin(signals.unless(opening)).await?;
    let waiting = async { Ok(calls.wait_for_tool(&args.tool).await) };
    if let Err(error) = signals.unless(waiting).await? {
        calls.close().await;
        return Err(error.into());
    }
    let cancel = CancellationToken::new();
    let calling = async { Ok(calls.call(&call, &cancel).await) };
    let report = signals.cancelling(&cancel, calling).await?;
    let missing = unavailable(&calls.server_states().await, &spec);
    let is_kept_out = calls.table().find_quarantined(&args.tool).is_some();
    calls.close().await;
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            let error = hinted(error.into(), &missing);
            if is_kept_out {
                return Err(error);
            }
            let looking = async { Ok(server_tools(&host, spec).await) };
            let server_tools = Box::pin(signals.unless(looking)).await;
            // Whoever does not wait for them is told what is known.
            return Err(suggest_server_tools(
                &server_tools.unwrap_or_default(),
                error,
            ));
        }
    };
    if global.json {
        output::json(&json!({
            "tool": args.tool,
            "is_error": report.output.is_error,
            "output": report.output.output,
            "text": report.output.joined_text(),
            "structured": report.structured,
            "files": report.files,
            "duration_ms": report.duration.as_secs_f64() * 1000.0,
            "unavailable": missing,
        }));
    } else {
        let working_dir = spec.working_dir.as_deref();
        let working_dir = working_dir.and_then(|dir| dir.canonicalize().ok());
        let text = readable(&report.output, &report.files, working_dir.as_deref());
        output::line(output::clean(text.trim_end_matches('\n')));
        print_unavailable(&missing);
    }
    Ok(match signals.last() {
        Some(signal) => signal.exit(),
        None if report.output.is_error => Exit::No,
        None => Exit::Success,
    })
}

/// The tools of the session that its provider runs itself, which no call reaches. No backend is opened
/// but those that may have some.
async fn server_tools(host: &Host, mut spec: SessionSpec) -> Vec<ServerTool> {
    let loaded = host.registry().snapshot();
    spec.backends.retain(|backend| {
        let plugin = loaded.get(&backend.kind);
        plugin.is_some_and(|plugin| plugin.manifest().has(CONTRIBUTES))
    });
    if spec.provider.is_none() || spec.backends.is_empty() {
        return Vec::new();
    }
    let tool_preview = Box::pin(host.tool_preview(spec)).await;
    tool_preview.map_or_else(|_| Vec::new(), |known| known.server_tools().to_vec())
}

/// An error about a tool that is not there, with those that may have been meant.
fn suggest_server_tools(server_tools: &[ServerTool], error: CliError) -> CliError {
    if server_tools.is_empty() {
        return error;
    }
    let names = server_tools.iter().map(|tool| {
        let (name, backend) = (tool.name(), &tool.backend);
        format!("`{name}` (of the backend `{backend}`)")
    });
    let names = names.collect::<Vec<_>>().join(", ");
    error
        .hint(format!(
            "the session's provider runs tools itself, and only in a conversation: {names}"
        ))
        .hint(
            "without `provider` in the session file what such a backend offers is called from here, \
             where it can be: `conjure routes` lists it",
        )
}

/// What a person reads of an output: its texts, and a line for each image and file, and for each file
/// that a text stands for and that is not in the working directory. Handles are of no use after the
/// call, so each is told with its place.
fn readable(output: &FunctionCallOutput, files: &[Artifact], working_dir: Option<&Path>) -> String {
    let mut pieces: Vec<String> = Vec::with_capacity(output.output.len());
    for part in &output.output {
        let artifact = match part {
            OutputPart::Text { text } => {
                pieces.push(text.clone());
                continue;
            }
            OutputPart::Image { artifact } | OutputPart::File { artifact } => artifact,
        };
        let known = files.iter().find(|file| file.id == artifact.id);
        let line = location_line(artifact, known);
        let begin = file_line_start(&artifact.id);
        // What the model reads of it is about the session.
        let is_models = |piece: &String| piece.starts_with(&begin) && !piece.contains('\n');
        let models = pieces.iter().position(is_models);
        if let Some(piece) = models.and_then(|at| pieces.get_mut(at)) {
            *piece = line;
        } else if !has_line_starting_with(&pieces, &begin) {
            pieces.push(line);
        }
    }
    for file in files {
        let is_near = |path: &Path| working_dir.is_some_and(|dir| path.starts_with(dir));
        let is_away = file.path.as_deref().is_some_and(|path| !is_near(path));
        if is_away && !has_line_starting_with(&pieces, &file_line_start(&file.id)) {
            pieces.push(location_line(&file.reference(), Some(file)));
        }
    }
    pieces.join("\n")
}

fn has_line_starting_with(pieces: &[String], begin: &str) -> bool {
    let mut lines = pieces.iter().flat_map(|piece| piece.lines());
    lines.any(|line| line.starts_with(begin))
}

/// A line about a file: what it is and where.
fn location_line(artifact: &ArtifactRef, known: Option<&Artifact>) -> String {
    match known.and_then(|file| file.path.as_deref()) {
        Some(path) => file_line(artifact, Some(&display_path(path))),
        None => format!(
            "[file] {}, with {}; only a session can fetch it",
            describe_file(artifact),
            known.map_or("its backend", |file| file.fetch_backend())
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_files_are_told_once_each_with_their_places() {
        let file = |id: &str, name: &str| Artifact {
            id: id.to_owned(),
            name: name.to_owned(),
            media_type: "image/png".to_owned(),
            size: Some(8),
            sha256: None,
            source: "mcp".to_owned(),
            path: Some(PathBuf::from(format!("/files/{name}"))),
            remote: None,
            holder: None,
        };
        let mut files = [
            file("file-1", "image.png"),
            file("file-2", "plot.png"),
            file("file-4", "output.txt"),
            file("file-5", "made.txt"),
        ];
        files[3].path = Some(PathBuf::from("/srv/made.txt"));
        let [image, plot, ..] = files.each_ref().map(Artifact::reference);
        let away = ArtifactRef {
            id: "file-3".to_owned(),
            ..plot.clone()
        };
        let models = |file: &ArtifactRef| OutputPart::Text {
            text: file_line(file, None),
        };
        let output = FunctionCallOutput {
            output: vec![
                OutputPart::Image {
                    artifact: image.clone(),
                },
                OutputPart::Image { artifact: image },
                models(&plot),
                OutputPart::File { artifact: plot },
                models(&away),
                OutputPart::File { artifact: away },
            ],
            ..FunctionCallOutput::text("call-1", "", false)
        };
        let expected = [
            "[file] file-1 `image.png` (image/png, 8 bytes) at /files/image.png",
            "[file] file-2 `plot.png` (image/png, 8 bytes) at /files/plot.png",
            "[file] file-3 `plot.png` (image/png, 8 bytes), with its backend; only a session can \
             fetch it",
            "[file] file-4 `output.txt` (image/png, 8 bytes) at /files/output.txt",
        ];
        let working_dir = Some(Path::new("/srv"));
        assert_eq!(readable(&output, &files, working_dir), expected.join("\n"));
    }

    #[test]
    fn tools_that_the_provider_runs_are_told_of_where_there_are_some() {
        let error = || CliError::usage("there is no tool `report_code_execution`");
        assert!(suggest_server_tools(&[], error()).hints().is_empty());
        let tool = ServerTool {
            backend: "anthropic".to_owned(),
            definition: json!({ "type": "code_execution_20250825", "name": "code_execution" }),
        };
        let error = suggest_server_tools(&[tool], error());
        let hint = error.hints().first().unwrap().to_string();
        let named = "only in a conversation: `code_execution` (of the backend `anthropic`)";
        assert!(hint.ends_with(named), "{hint}");
    }
}
