//! `conjure plugin`: what is loaded, what a file is, and a new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use conjure_plugins::{
    ConfinementGaps, Isolation, LoadedPlugin, PluginFile, PluginSnapshot, confinement_gaps,
};
use conjure_runtime::describe::{failed_json, loaded_json, state};
use conjure_runtime::{PluginTrial, try_plugin};
use conjure_skill_sdk::protocol::Manifest;
use serde_json::{Value, json};

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, DIM, RED, RESET, Table, YELLOW};
use super::plugin_args::{PluginArgs, check_exists};
use super::plugin_check;
use super::plugin_create;
use super::plugin_dev;
use super::plugin_install;
use super::plugin_package;
use super::plugin_test;
pub(crate) use super::plugin_trial::{load_and_try, loader};
use super::plugin_trust;

/// Lists plugins, shows or checks one, creates one.
#[derive(clap::Args)]
pub(crate) struct PluginCommandArgs {
    #[command(subcommand)]
    verb: PluginVerb,
}

#[derive(Subcommand)]
enum PluginVerb {
    /// List the plugins that a session would have, those that failed among them
    ///
    /// Looks at `--plugin`, `--plugin-dir`, `CONJURE_PLUGIN_PATH`, `plugins` beside the program,
    /// and `plugins` in the data directory, in this order.
    List(PluginArgs),
    /// Show what a plugin's file says about itself
    ///
    /// Without `--load` nothing of the plugin runs: header, hash and structure are read from the
    /// file, and the manifest only if it is known from an earlier load.
    #[command(alias = "inspect")]
    Show {
        /// The library, or a program's description or bundle
        file: PathBuf,
        /// Load it too, which runs its code, and show the manifest
        #[arg(long)]
        load: bool,
    },
    /// Load a plugin, make an instance, and say whether a host would take it
    ///
    /// Looks at the names and schemas of its tools as each wire to a provider does, at the file's size,
    /// at the names that it exports, and at the licence of its crate, too. Exit code 0: a host takes
    /// it, whatever there is to warn of; 1: it or a tool of it is refused, and the reason says what to
    /// do.
    Check {
        /// The library, or a program's description or bundle
        file: PathBuf,
    },
    /// Run the contract of a plugin's kind, and its examples, in process and in a worker
    ///
    /// Exit code 0: all of it holds; 1: something does not, and it is said what was expected and what
    /// was there.
    Test(plugin_test::PluginTestArgs),
    /// Build a plugin at every save, try it, and load it into a session or into running hosts
    ///
    /// What the compiler and hosts say is shown at each round, with how long it took. Ctrl-C ends it.
    Dev(plugin_dev::PluginDevArgs),
    /// Install a plugin in the data directory, or upgrade the one that is there
    ///
    /// Loads it and makes an instance first, as `plugin check` does. What it asks to be allowed, and
    /// tools that are new or look otherwise than those of the build before, are shown first: at a
    /// terminal it asks, elsewhere `--yes` says that they may. Every host that watches the data
    /// directory then has it at once, and sessions move to it between two steps.
    Add(plugin_install::PluginAddArgs),
    /// Remove an installed plugin; it is kept and can be put back
    Remove {
        /// The plugin's name
        name: String,
    },
    /// Have running hosts load an installed plugin again, also one that they gave up on
    Reload {
        /// The plugin's name
        name: String,
    },
    /// List what was installed, upgraded, removed and put back
    History {
        /// Only of this plugin
        name: Option<String>,
    },
    /// Put a build of a plugin back that was installed before
    Rollback(plugin_install::PluginRollbackArgs),
    /// Trust a plugin: its very bytes run in the host's process, where others have their own
    ///
    /// Reads the file and runs nothing of it. Another build of the plugin is another plugin. Without a
    /// file it lists those that are trusted. What comes with the program needs no listing. `--signer`
    /// trusts whoever has a key: packages with that signature are installed without `--signer`, and run
    /// in the host's process.
    Trust(plugin_trust::PluginTrustArgs),
    /// Trust a plugin no more
    ///
    /// A host that runs it already goes on until it loads it again.
    Untrust {
        /// The library, the beginning of its SHA-256 as `plugin trust` lists it, or the public key of a
        /// signer
        library: String,
    },
    #[command(flatten)]
    Package(plugin_package::PackageVerb),
    /// Create a plugin: a crate that builds with `cargo build`, or a program in Python
    #[command(alias = "new")]
    Create(plugin_create::PluginCreateArgs),
}

impl PluginCommandArgs {
    /// Whether the verb looks at no session's plugins.
    pub(crate) fn needs_no_host(&self) -> bool {
        matches!(
            &self.verb,
            PluginVerb::Create(_)
                | PluginVerb::Remove { .. }
                | PluginVerb::Reload { .. }
                | PluginVerb::History { .. }
                | PluginVerb::Trust(_)
                | PluginVerb::Untrust { .. }
        )
    }
}

/// Does a verb that looks at no session's plugins.
pub(crate) fn run_without_host(
    global: &Global,
    args: &PluginCommandArgs,
) -> Result<Exit, CliError> {
    match &args.verb {
        PluginVerb::Create(args) => plugin_create::run(global, args),
        PluginVerb::Trust(args) => plugin_trust::trust(global, args),
        PluginVerb::Untrust { library } => plugin_trust::untrust(global, library),
        PluginVerb::Remove { name } => plugin_install::remove(global, name),
        PluginVerb::Reload { name } => plugin_install::reload(global, name),
        PluginVerb::History { name } => plugin_install::history(global, name.as_deref()),
        PluginVerb::List(_)
        | PluginVerb::Show { .. }
        | PluginVerb::Check { .. }
        | PluginVerb::Add(_)
        | PluginVerb::Rollback(_)
        | PluginVerb::Test(_)
        | PluginVerb::Dev(_)
        | PluginVerb::Package(_) => Ok(Exit::Success),
    }
}

pub(crate) async fn run(global: &Global, args: PluginCommandArgs) -> Result<Exit, CliError> {
    match &args.verb {
        PluginVerb::List(plugins) => list(global, plugins).await,
        PluginVerb::Show { file, load } => show(global, file, *load),
        PluginVerb::Check { file } => plugin_check::check(global, file).await,
        PluginVerb::Dev(args) => Box::pin(plugin_dev::run(global, args)).await,
        PluginVerb::Test(args) => Box::pin(plugin_test::run(global, args)).await,
        PluginVerb::Add(args) => Box::pin(plugin_install::add(global, args)).await,
        PluginVerb::Rollback(args) => plugin_install::rollback(global, args).await,
        PluginVerb::Package(verb) => plugin_package::run(global, verb).await,
        _ => run_without_host(global, &args),
    }
}

async fn list(global: &Global, plugins: &PluginArgs) -> Result<Exit, CliError> {
    let host = plugins.host(global).build().await?;
    let snapshot = host.registry().snapshot();
    let tried = try_plugins(global, &snapshot).await;
    let unconfined = match confinement_gaps() {
        Ok(gaps) => describe_gaps(gaps),
        // Nobody can say that it confines anything.
        Err(_) => describe_gaps(ConfinementGaps {
            files: true,
            calls: true,
        }),
    };
    if global.json {
        let good: Vec<Value> = tried.good.iter().map(|p| tried.json(p)).collect();
        let mut failed: Vec<Value> = snapshot.failed().iter().map(failed_json).collect();
        failed.extend(tried.bad.iter().map(|(plugin, reason)| {
            json!({
                "file": plugin.source().path(),
                "state": "failed",
                "reason": reason,
                "kept": Value::Null,
            })
        }));
        output::json(&json!({
            "plugins": good,
            "failed": failed,
            "unconfined": unconfined,
        }));
        return Ok(Exit::Success);
    }
    let search = plugins.search_path(global);
    if snapshot.plugins().is_empty() && snapshot.failed().is_empty() {
        output::line("No plugins. Looked in:");
        for dir in &search.dirs {
            output::line(format_args!("  {}", dir.display()));
        }
        return Ok(Exit::Success);
    }
    let mut rows = Table::new([
        "PLUGIN",
        "VERSION",
        "KIND",
        "STATE",
        "RUNS",
        "WHY THERE",
        "TOOLS",
        "FILE",
    ]);
    for plugin in &tried.good {
        let manifest = plugin.manifest();
        rows.row([
            manifest.name.clone(),
            manifest.version.clone(),
            manifest.kind.clone(),
            state(plugin.health().quarantined.is_some()).to_owned(),
            plugin.isolation().as_str().to_owned(),
            plugin.isolation_reason().as_str().to_owned(),
            tools(manifest),
            plugin
                .source()
                .path()
                .map_or_else(|| "(linked)".to_owned(), display_path),
        ]);
    }
    for failed in snapshot.failed() {
        rows.row([
            "-".to_owned(),
            "-".to_owned(),
            "-".to_owned(),
            "failed".to_owned(),
            "-".to_owned(),
            "-".to_owned(),
            "-".to_owned(),
            display_path(&failed.path),
        ]);
    }
    for (plugin, _) in &tried.bad {
        let manifest = plugin.manifest();
        rows.row([
            manifest.name.clone(),
            manifest.version.clone(),
            manifest.kind.clone(),
            "failed".to_owned(),
            "-".to_owned(),
            "-".to_owned(),
            "-".to_owned(),
            plugin
                .source()
                .path()
                .map_or_else(|| "(linked)".to_owned(), display_path),
        ]);
    }
    rows.print();
    let is_apart = |plugin: &Arc<LoadedPlugin>| plugin.isolation() == Isolation::Process;
    if !unconfined.is_empty() && tried.good.iter().any(is_apart) {
        output::line(format_args!(
            "\n{YELLOW}not confined:{RESET} this kernel cannot keep plugins that run in a `process` from \
             {}; `conjure doctor` says what to do",
            unconfined.join(", nor from ")
        ));
    }
    for (plugin, settings) in &tried.unconfigured {
        output::line(format_args!(
            "\n{YELLOW}needs configuration:{RESET} {}: {}",
            plugin.id(),
            output::clean_line(&format_settings(settings))
        ));
    }
    for (_, reason) in &tried.bad {
        output::line(format_args!(
            "\n{RED}failed:{RESET} {}",
            output::clean(reason)
        ));
    }
    for failed in snapshot.failed() {
        output::line(format_args!(
            "\n{RED}failed:{RESET} {}",
            output::clean(&failed.reason.to_string())
        ));
    }
    Ok(Exit::Success)
}

/// What the kernel cannot keep a plugin in a process of its own from.
fn describe_gaps(gaps: ConfinementGaps) -> Vec<&'static str> {
    let all = [
        (gaps.files, "files that are not its own"),
        (gaps.calls, "programs and sockets"),
    ];
    let open = all.into_iter().filter(|(is_open, _)| *is_open);
    open.map(|(_, what)| what).collect()
}

/// Settings, for people.
pub(crate) fn format_settings(settings: &[String]) -> String {
    let named: Vec<String> = settings.iter().map(|one| format!("`{one}`")).collect();
    named.join(", ")
}

/// The loaded plugins, by whether they make an instance that answers.
struct PluginTrials {
    good: Vec<Arc<LoadedPlugin>>,
    /// Plugins among the good that make no instance without these settings.
    unconfigured: Vec<(Arc<LoadedPlugin>, Vec<String>)>,
    bad: Vec<(Arc<LoadedPlugin>, String)>,
}

impl PluginTrials {
    /// A plugin for programs, with the settings that it makes no instance without.
    fn json(&self, plugin: &Arc<LoadedPlugin>) -> Value {
        let mut known = self.unconfigured.iter();
        let needed = known.find(|(known, _)| Arc::ptr_eq(known, plugin));
        let needed = needed.map_or(&[][..], |(_, settings)| settings);
        let mut json = loaded_json(plugin);
        if let Some(json) = json.as_object_mut() {
            json.insert("needs_config".to_owned(), json!(needed));
        }
        json
    }
}

async fn try_plugins(global: &Global, snapshot: &PluginSnapshot) -> PluginTrials {
    let mut tried = PluginTrials {
        good: Vec::new(),
        unconfigured: Vec::new(),
        bad: Vec::new(),
    };
    for plugin in snapshot.plugins() {
        match try_plugin(&global.data_dir(), plugin).await {
            Ok(trial) => {
                tried.good.push(Arc::clone(plugin));
                if let PluginTrial::NeedsConfig { settings } = trial {
                    tried.unconfigured.push((Arc::clone(plugin), settings));
                }
            }
            Err(reason) => tried.bad.push((Arc::clone(plugin), reason.to_string())),
        }
    }
    tried
}

fn show(global: &Global, path: &Path, load: bool) -> Result<Exit, CliError> {
    check_exists(path)?;
    let file = match PluginFile::read(path, true) {
        Ok(file) => file,
        Err(error) => return Ok(report_refusal(global, path, &error.to_string())),
    };
    let header = file.header.clone();
    let compiler = file.compiler();
    let program = file.program.clone();
    let sha256 = file.sha256.to_string();
    let size = file.bytes.len();
    let loader = loader(global)?;
    let manifest = if load {
        match loader.load_file(file) {
            Ok(plugin) => Some(Manifest::clone(plugin.manifest())),
            Err(error) => return Ok(report_refusal(global, path, &error.to_string())),
        }
    } else {
        loader.stored_manifest(&file.sha256)
    };
    if global.json {
        output::json(&json!({
            "file": path,
            "sha256": sha256,
            "size": size,
            "header": match &program {
                Some(_) => Value::Null,
                None => json!({
                    "kind": header.kind.as_str(),
                    "name": header.name,
                    "version": header.version,
                    "abi": format!("{}.{}", header.abi_major, header.abi_minor),
                    "pointer_size": header.pointer_size,
                    "panic_unwind": header.panic_unwind,
                    "sdk": header.sdk,
                    "rustc": compiler,
                }),
            },
            "description": program,
            "manifest": manifest,
        }));
        return Ok(Exit::Success);
    }
    output::line(format_args!(
        "{BOLD}{} {}{RESET}",
        header.name, header.version
    ));
    let mut rows = vec![
        ("kind", header.kind.as_str().to_owned()),
        ("file", display_path(path)),
        ("size", output::size(size as u64)),
        ("sha256", sha256),
    ];
    match program {
        Some(program) => rows.extend([
            ("protocol", program.protocol.to_string()),
            ("command", program.command.join(" ")),
            ("files", program.files.join(", ")),
        ]),
        None => rows.extend([
            ("ABI", format!("{}.{}", header.abi_major, header.abi_minor)),
            ("SDK", header.sdk),
            ("compiler", compiler),
        ]),
    }
    for (name, value) in rows {
        output::line(format_args!("  {name:<9} {}", output::clean_line(&value)));
    }
    match manifest {
        Some(manifest) => print_manifest(&manifest),
        None => output::line(format_args!(
            "  {DIM}The manifest is known once the plugin was loaded: `--load` (runs its code).{RESET}"
        )),
    }
    Ok(Exit::Success)
}

fn print_manifest(manifest: &Manifest) {
    output::line(format_args!(
        "\n{}",
        output::clean_line(&manifest.description)
    ));
    if !manifest.tools.is_empty() {
        output::line(format_args!("\n{BOLD}Tools{RESET}"));
        for tool in &manifest.tools {
            output::line(format_args!(
                "  {BOLD}{}{RESET}  {}",
                output::clean_line(&tool.name),
                output::clean_line(&tool.description)
            ));
        }
    }
    output::line(format_args!(
        "\n{BOLD}Capabilities{RESET}\n  {}",
        output::clean_line(&manifest.capabilities.join(", "))
    ));
    if !manifest.requires.host.is_empty() {
        output::line(format_args!(
            "{BOLD}Requires of the host{RESET}\n  {}",
            output::clean_line(&manifest.requires.host.join(", "))
        ));
    }
    let permissions = &manifest.permissions;
    for (name, wanted) in [
        ("secrets", &permissions.secrets),
        ("hosts", &permissions.http),
        ("files to read", &permissions.read),
        ("files to change", &permissions.write),
    ] {
        if !wanted.is_empty() {
            output::line(format_args!(
                "{BOLD}Asks for {name}{RESET}\n  {}",
                output::clean_line(&wanted.join(", "))
            ));
        }
    }
    for (name, wanted) in [
        ("connections of its own", permissions.network),
        ("programs that it starts", permissions.commands),
    ] {
        if wanted {
            output::line(format_args!("{BOLD}Asks for {name}{RESET}"));
        }
    }
}

pub(crate) fn report_refusal(global: &Global, path: &Path, reason: &str) -> Exit {
    if global.json {
        output::json(&json!({ "ok": false, "file": path, "reason": reason }));
    } else {
        output::line(format_args!(
            "{RED}refused:{RESET} {}",
            output::clean(reason)
        ));
    }
    Exit::No
}

/// How many tools it has; `plugin show` names them.
fn tools(manifest: &Manifest) -> String {
    match manifest.tools.len() {
        0 => "-".to_owned(),
        number => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_leaves_open_is_told() {
        let gaps = |files, calls| describe_gaps(ConfinementGaps { files, calls });
        assert_eq!(gaps(false, false), [""; 0]);
        assert_eq!(gaps(true, false), ["files that are not its own"]);
        assert_eq!(gaps(true, true).len(), 2);
    }
}
