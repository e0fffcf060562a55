//! Where plugins come from, for the verbs that use them.

use std::path::{Path, PathBuf};

use clap::Args;
use conjure_config::env;
use conjure_plugins::{Isolation, PluginTrust, SearchPath, TrustedSigners, WorkerOptions};
use conjure_runtime::{Host, HostBuilder};

use super::args::{Global, display_path};
use super::error::CliError;
use super::output;

/// Options of verbs that use plugins.
#[derive(Args, Default)]
pub(crate) struct PluginArgs {
    /// Load this plugin file; naming it says that its code may run
    #[arg(long, value_name = "FILE", help_heading = "Plugins")]
    plugin: Vec<PathBuf>,
    /// Look for plugins in this directory too
    #[arg(long, value_name = "DIR", help_heading = "Plugins")]
    plugin_dir: Vec<PathBuf>,
    /// Where plugins run that are not trusted (`plugin trust`): `process` for a process of its own
    /// each, which ends alone when the plugin crashes and reaches the working directory and what its
    /// manifest names, or `in-process` [default: $CONJURE_ISOLATION, else `process`]
    #[arg(long, value_name = "WHERE", value_parser = isolation, help_heading = "Plugins")]
    isolation: Option<Isolation>,
}

/// Options for plugins before the verb, where the programs of others have them.
#[derive(Args, Default)]
pub(crate) struct EarlyPluginArgs {
    #[arg(long = "plugin", value_name = "FILE", hide = true)]
    early_plugin: Vec<PathBuf>,
    #[arg(long = "plugin-dir", value_name = "DIR", hide = true)]
    early_plugin_dir: Vec<PathBuf>,
}

impl PluginArgs {
    /// The options, and whether each is given behind the verb.
    pub(crate) fn given_options(&self) -> [(&'static str, bool); 3] {
        [
            ("--plugin", !self.plugin.is_empty()),
            ("--plugin-dir", !self.plugin_dir.is_empty()),
            ("--isolation", self.isolation.is_some()),
        ]
    }

    /// Where plugins are looked for, in this order.
    pub(crate) fn search_path(&self, global: &Global) -> SearchPath {
        let early = &global.early_plugins;
        let program = std::env::current_exe().ok();
        let path = std::env::var_os(env::PLUGIN_PATH);
        let data_dir = global.data_dir();
        let mut search = SearchPath::new(
            [early.early_plugin.as_slice(), &self.plugin].concat(),
            path.as_deref(),
            program.as_deref(),
            Some(&data_dir),
        );
        let dirs = [early.early_plugin_dir.as_slice(), &self.plugin_dir].concat();
        search.dirs.splice(0..0, dirs);
        search
    }

    /// Like [`Self::host`], where what is named has to be there: a session would begin without it.
    ///
    /// # Errors
    /// Names the file or the directory that is missing.
    pub(crate) fn named_host(&self, global: &Global) -> Result<HostBuilder, CliError> {
        let early = &global.early_plugins;
        let mut files = early.early_plugin.iter().chain(&self.plugin);
        if let Some(missing) = files.find(|file| !file.exists()) {
            return Err(missing_path("--plugin", missing));
        }
        let mut dirs = early.early_plugin_dir.iter().chain(&self.plugin_dir);
        if let Some(missing) = dirs.find(|dir| !dir.is_dir()) {
            return Err(missing_path("--plugin-dir", missing));
        }
        Ok(self.host(global))
    }

    /// A host with these plugins.
    pub(crate) fn host(&self, global: &Global) -> HostBuilder {
        let search = self.search_path(global);
        let mut builder = Host::builder()
            .data_dir(global.data_dir())
            .auths(global.auths());
        if let Some(workers) = workers(global, self.isolation) {
            builder = builder.workers(workers);
        }
        for file in search.named {
            builder = builder.plugin_file(file);
        }
        for dir in search.dirs {
            builder = builder.plugin_dir(dir);
        }
        builder
    }
}

/// Refuses a path that was named and is not there.
///
/// # Errors
/// Wrong usage.
pub(crate) fn check_exists(path: &Path) -> Result<(), CliError> {
    // A link that leads nowhere is there, and whoever reads it says what it is.
    match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let message = format!("there is no `{}`", display_path(path));
            Err(CliError::usage(message).hint("see that the path is right"))
        }
        _ => Ok(()),
    }
}

fn missing_path(option: &str, path: &Path) -> CliError {
    let what = match option {
        "--plugin" => "file",
        _ => "directory",
    };
    let message = format!("`{option} {}`: there is no such {what}", path.display());
    CliError::usage(message).hint("`conjure plugin list` shows the plugins that are found")
}

/// The first argument of a worker process.
const WORKER: &str = "plugin-host";

/// Becomes a worker where this process was started as one. To be called first thing.
pub(crate) fn become_worker() {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|verb| verb == WORKER) {
        conjure_plugins::worker_main(args)
    }
}

/// How plugins run in processes of their own; nothing where the system does not say which program
/// this is.
pub(crate) fn workers(global: &Global, wanted: Option<Isolation>) -> Option<WorkerOptions> {
    let program = std::env::current_exe().ok()?;
    // The very program that runs, also where another version has taken its place meanwhile.
    let image = match cfg!(target_os = "linux") {
        true => PathBuf::from("/proc/self/exe"),
        false => program.clone(),
    };
    let mut workers = WorkerOptions::new(image, &[WORKER]);
    workers.trust = trust(global);
    workers.signers = signers(global);
    if let Some(dir) = program.parent() {
        workers.trust = workers.trust.shipped_in(dir.join("plugins"));
        if is_built_in(dir) {
            workers.trust = workers.trust.shipped_in(dir);
        }
    }
    if let Some(isolation) = wanted.or_else(from_environment) {
        workers.isolation = isolation;
    }
    Some(workers)
}

/// Whether Cargo builds into this directory: then the program's own plugins lie beside it. What is
/// saved beside an installed program is anybody's.
fn is_built_in(dir: &Path) -> bool {
    dir.join(".fingerprint").is_dir()
}

/// The libraries that the user has listed as trusted.
pub(crate) fn trust(global: &Global) -> PluginTrust {
    PluginTrust::default().listed_in(global.data_dir().join("trusted-plugins"))
}

/// The signers that the user has listed as trusted.
pub(crate) fn signers(global: &Global) -> TrustedSigners {
    TrustedSigners::listed_in(global.data_dir().join("trusted-signers"))
}

fn from_environment() -> Option<Isolation> {
    let text = env::var(env::ISOLATION)?;
    match isolation(&text) {
        Ok(isolation) => Some(isolation),
        // The safe side of a mistake.
        Err(error) => {
            output::print_note(format_args!(
                "note: {}={} says nothing ({error}), so plugins run in processes of their own",
                env::ISOLATION,
                output::clean(&text)
            ));
            Some(Isolation::Process)
        }
    }
}

pub(crate) fn isolation(text: &str) -> Result<Isolation, String> {
    let known = [Isolation::InProcess, Isolation::Process];
    let found = known.into_iter().find(|known| known.as_str() == text);
    found.ok_or_else(|| "write `in-process` or `process`".to_owned())
}
