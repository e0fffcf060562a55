//! The examples that a manifest declares, run as a session of a host runs calls: in their order, in one
//! session, so that one may build on those before it.

use std::fmt::Display;
use std::path::Path;

use conjure_config::{SessionSpec, fs};
use conjure_core::chat::FunctionCall;
use conjure_core::routing::Route;
use conjure_plugins::LoadedPlugin;
use conjure_runtime::Host;
use conjure_runtime::session::ToolSession;
use conjure_skill_sdk::protocol::{Example, Manifest};
use tokio_util::sync::CancellationToken;

use super::bench::{CheckFailure, CheckResult, to_short_json, truncate};
use super::{CheckKind, ContractCheck, ContractOptions};

pub(super) fn checks(manifest: &Manifest) -> Vec<ContractCheck> {
    let examples = manifest.examples.iter().enumerate();
    examples
        .map(|(place, example)| {
            let arguments = to_short_json(&example.arguments);
            let name = format!("example: `{}` {arguments}", example.tool);
            ContractCheck::new(name, CheckKind::Example(place))
        })
        .collect()
}

/// The session that examples run in, one after the other.
pub(super) struct ExampleSession {
    calls: ToolSession,
    _host: Host,
    _working_dir: tempfile::TempDir,
}

impl ExampleSession {
    /// Opens a session that has this plugin alone.
    pub(super) async fn open(
        plugin: &LoadedPlugin,
        file: &Path,
        options: &ContractOptions,
        scratch: &Path,
    ) -> CheckResult<Self> {
        let no_session = |error: &dyn Display| CheckFailure::new("a session", error.to_string());
        let manifest = plugin.manifest();
        let host = Host::builder()
            .data_dir(scratch.join("host"))
            .plugin_file(file)
            .workers(options.workers.clone())
            .plugin_config(&manifest.name, options.config.clone());
        let host = host.build().await.map_err(|error| no_session(&error))?;
        let work = tempfile::tempdir_in(scratch).map_err(|error| no_session(&error))?;
        if let Some(from) = &options.working_dir {
            copy(from, work.path(), DEPTH).map_err(|error| no_session(&error))?;
        }
        let executor = (manifest.kind != "skill").then_some(manifest.name.as_str());
        let mut spec = SessionSpec::calls(&[], executor);
        spec.working_dir = Some(work.path().to_owned());
        let calls = Box::pin(host.calls(spec)).await;
        Ok(Self {
            calls: calls.map_err(|error| no_session(&error))?,
            _host: host,
            _working_dir: work,
        })
    }

    /// Runs one example.
    pub(super) async fn run(&self, example: &Example) -> CheckResult {
        let table = self.calls.table();
        let is_meant = |route: &&Route| route.tool() == example.tool;
        let Some(route) = table.routes().iter().find(is_meant) else {
            let there: Vec<&str> = table.routes().iter().map(Route::tool).collect();
            return Err(CheckFailure::new(
                format!("a tool `{}`", example.tool),
                format!("the tools {}", there.join(", ")),
            ));
        };
        let call = FunctionCall {
            call_id: "call-1".to_owned(),
            name: route.name.as_str().to_owned(),
            arguments: example.arguments.clone(),
            arguments_text: None,
        };
        let never = CancellationToken::new();
        let report = Box::pin(self.calls.call(&call, &never)).await;
        let report = report.map_err(|error| CheckFailure::new("a call", error.to_string()))?;
        let output = &report.output;
        judge(example, &output.joined_text(), output.is_error)
    }

    /// Closes it.
    pub(super) async fn close(self) {
        self.calls.close().await;
    }
}

/// How deep a directory for examples may be.
const DEPTH: usize = 16;

/// Copies what is in a directory; links and what is neither file nor directory are left out.
fn copy(from: &Path, to: &Path, depth: usize) -> std::io::Result<()> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(std::io::Error::other(format!(
            "`{}` is nested deeper than {DEPTH} directories",
            from.display()
        )));
    };
    for path in fs::entries(from)? {
        let found = path.symlink_metadata()?;
        let name = path.file_name().unwrap_or_default();
        if found.is_dir() {
            let dir = to.join(name);
            fs::create_dir_all(&dir)?;
            copy(&path, &dir, depth)?;
        } else if found.is_file() {
            fs::copy_new(&path, to.join(name))?;
        }
    }
    Ok(())
}

fn judge(example: &Example, text: &str, is_error: bool) -> CheckResult {
    let kind = |is_error: bool| {
        if is_error {
            "an error result"
        } else {
            "a result"
        }
    };
    let wanted = example.result.as_deref().unwrap_or_default();
    if is_error == example.is_error && text.contains(wanted) {
        return Ok(());
    }
    let expected = match wanted {
        "" => kind(example.is_error).to_owned(),
        wanted => format!("{} with {wanted:?} in it", kind(example.is_error)),
    };
    let got = format!("{}: {:?}", kind(is_error), truncate(text, 600));
    Err(CheckFailure::new(expected, got))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_example_holds_where_kind_and_text_do() {
        let example = |result: &str, is_error| Example {
            tool: "t".to_owned(),
            arguments: json!({}),
            result: (!result.is_empty()).then(|| result.to_owned()),
            is_error,
        };
        assert_eq!(judge(&example("lo", false), "hello", false), Ok(()));
        assert_eq!(judge(&example("", false), "hello", false), Ok(()));
        assert_eq!(judge(&example("no", true), "no such key", true), Ok(()));
        assert!(judge(&example("lo", false), "hello", true).is_err());
        assert!(judge(&example("", true), "hello", false).is_err());
        assert_eq!(
            judge(&example("bye", false), "hello", false),
            Err(CheckFailure::new(
                "a result with \"bye\" in it",
                "a result: \"hello\""
            ))
        );
    }
}
