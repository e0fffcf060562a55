//! `conjure plugin check`: whether a host takes a library, and what else is to be said of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_plugin_checks::{DiscoveredTools, FindingLevel, Judgement, Licence, tools_of};
use conjure_plugins::{LoadedPlugin, PluginFile};
use conjure_runtime::describe::loaded_json;
use conjure_runtime::required_settings;
use serde_json::json;

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, GREEN, RED, RESET, YELLOW};
use super::plugin::{format_settings, report_refusal};
use super::plugin_args::check_exists;
use super::plugin_trial::TrialDir;

/// Loads a library, makes an instance, and judges its file and its tools.
pub(crate) async fn check(global: &Global, path: &Path) -> Result<Exit, CliError> {
    check_exists(path)?;
    let file = match PluginFile::read(path, true) {
        Ok(file) => file,
        Err(error) => return Ok(report_refusal(global, path, &error.to_string())),
    };
    // Whoever only asks needs no data directory.
    let dir = TrialDir::writable(global)?;
    let plugin = match Box::pin(dir.load_and_try(global, path)).await? {
        Ok(plugin) => plugin,
        Err(reason) => return Ok(report_refusal(global, path, &reason)),
    };
    let DiscoveredTools {
        tools,
        missing_reason: untold,
    } = Box::pin(tools_of(&plugin)).await;
    let judgement = Judgement::of(&file, &tools);
    let holds = !judgement.refuses();
    if global.json {
        output::json(&json!({
            "ok": holds,
            "plugin": loaded_json(&plugin),
            "tools": tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
            "tools_untold": untold,
            "judgement": judgement,
        }));
    } else {
        print(&plugin, &file, &judgement, tools.len(), untold.as_deref());
    }
    Ok(if holds { Exit::Success } else { Exit::No })
}

fn print(
    plugin: &Arc<LoadedPlugin>,
    file: &PluginFile,
    judgement: &Judgement,
    tools: usize,
    untold: Option<&str>,
) {
    let kind = &plugin.manifest().kind;
    let id = plugin.id();
    match judgement.refuses() {
        false => output::line(format_args!(
            "{GREEN}ok{RESET} {id} ({kind}): a host takes it"
        )),
        true => output::line(format_args!(
            "{RED}refused:{RESET} {id} ({kind}): a host loads it, and not every model gets its tools"
        )),
    }
    let extra = judgement.debug_bytes + judgement.symbol_bytes;
    let size = output::size(judgement.size as u64);
    let size = match extra {
        _ if file.program.is_some() => format!("{size}, with its files"),
        0 => format!("{size}, stripped"),
        extra => format!("{size}, {} of it for debuggers", output::size(extra)),
    };
    let licence = match &judgement.licence {
        Licence::Named { licence, manifest } => format!("{licence} ({})", location(manifest)),
        Licence::NotNamed { manifest } => format!("none ({})", location(manifest)),
        Licence::Text { file } => format!("as in {}", location(file)),
        Licence::NoCrate if file.program.is_some() => {
            "not known: no LICENSE is beside its description".to_owned()
        }
        Licence::NoCrate => "not known: its crate is not around the file".to_owned(),
    };
    let refusals = judgement.findings.iter();
    let refusals = refusals.filter(|finding| finding.level == FindingLevel::Refusal);
    let tools = match (kind.as_str(), untold, refusals.count()) {
        ("skill", Some(reason), _) => format!(
            "{tools} of its manifest; those at run time not looked at: {}",
            output::clean(reason)
        ),
        (_, Some(reason), _) => format!("not looked at: {}", output::clean(reason)),
        ("executor", None, _) => "those of every executor".to_owned(),
        (_, None, 0) => format!("{tools}, which every wire takes"),
        (_, None, _) => format!("{tools}, of which not every wire takes all"),
    };
    let symbols = match judgement.other_symbols {
        0 => "none but the two of the SDK".to_owned(),
        other => format!("{other} beside the two of the SDK"),
    };
    let mut rows = vec![("tools", tools), ("size", size)];
    match &file.program {
        // It exports nothing.
        Some(program) => rows.push(("protocol", program.protocol.to_string())),
        None => {
            let header = &file.header;
            rows.extend([
                ("exports", symbols),
                ("ABI", format!("{}.{}", header.abi_major, header.abi_minor)),
                ("SDK", header.sdk.clone()),
                ("compiler", file.compiler()),
            ]);
        }
    }
    rows.push(("licence", licence));
    for (name, value) in rows {
        output::line(format_args!("  {name:<9} {}", output::clean_line(&value)));
    }
    let settings = required_settings(plugin.manifest());
    if !settings.is_empty() {
        output::line(format_args!(
            "  {:<9} must have {}",
            "config",
            output::clean_line(&format_settings(&settings))
        ));
    }
    for finding in &judgement.findings {
        let (color, word) = match finding.level {
            FindingLevel::Warning => (YELLOW, "warning"),
            FindingLevel::Refusal => (RED, "refused"),
        };
        output::line(format_args!(
            "{color}{word}:{RESET} {}: {}",
            finding.about,
            output::clean_line(&finding.message)
        ));
    }
}

fn location(manifest: &Path) -> String {
    let here = std::env::current_dir().and_then(|dir| dir.canonicalize());
    let relative: Option<PathBuf> = here
        .ok()
        .and_then(|here| manifest.strip_prefix(here).ok().map(Path::to_owned));
    relative
        .as_deref()
        .map_or_else(|| display_path(manifest), display_path)
}
