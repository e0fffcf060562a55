//! Where plugins come from, for the verbs that use them.

use std::path::PathBuf;

use clap::Args;
use conjure_config::env;
use conjure_plugins::SearchPath;
use conjure_runtime::{Host, HostBuilder};

use super::args::Global;

/// Options of verbs that use plugins.
#[derive(Args, Default)]
pub(crate) struct PluginArgs {
    /// Load this plugin file; naming it says that it may run in this process
    #[arg(long, value_name = "FILE", help_heading = "Plugins")]
    plugin: Vec<PathBuf>,
    /// Look for plugins in this directory too
    #[arg(long, value_name = "DIR", help_heading = "Plugins")]
    plugin_dir: Vec<PathBuf>,
}

/// The same options before the verb, where the programs of others have them.
#[derive(Args, Default)]
pub(crate) struct EarlyPluginArgs {
    #[arg(long = "plugin", value_name = "FILE", hide = true)]
    early_plugin: Vec<PathBuf>,
    #[arg(long = "plugin-dir", value_name = "DIR", hide = true)]
    early_plugin_dir: Vec<PathBuf>,
}

impl PluginArgs {
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

    /// A host with these plugins.
    pub(crate) fn host(&self, global: &Global) -> HostBuilder {
        let search = self.search_path(global);
        let mut builder = Host::builder()
            .data_dir(global.data_dir())
            .auths(global.auths());
        for file in search.named {
            builder = builder.plugin_file(file);
        }
        for dir in search.dirs {
            builder = builder.plugin_dir(dir);
        }
        builder
    }
}
