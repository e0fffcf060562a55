//! `conjure plugin dev`: an author's loop. Each save is built, tried and put where it is used, and what
//! the compiler or a host says about it stands where the author looks.

mod author_plugin;
mod dev_record;
mod dev_target;
mod scratch;
mod served_dir;
mod sources;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use conjure_plugin_checks::{FindingLevel, Judgement, check_hand_over, tools_of};
use conjure_plugins::{
    CopyStore, Isolation, LoadedPlugin, Loader, LoaderOptions, PackagedPlugins, PluginFile,
    PluginTrust, WorkerOptions,
};
use conjure_runtime::{PluginTrial, try_plugin};
use serde_json::{Value, json};

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, DIM, GREEN, RED, RESET, YELLOW};
use super::plugin::format_settings;
use super::plugin_args::workers;
use super::plugin_crate::BuiltPlugin;
use super::signals::Signals;
use author_plugin::AuthorPlugin;
use dev_target::DevTarget;
use scratch::ScratchDir;
use served_dir::ServedDir;
use sources::{SourceState, Sources};

/// Builds a plugin at every change of its sources, tries it, and loads it. A program is there as it is.
///
/// Without `--serve` it goes into a session of its own, in which the model `tool-walk` calls each tool
/// once. With it, it is installed in the data directory once it has made an instance that answers, and
/// every host that runs there takes it over; at the end what was there before is there again.
#[derive(Args)]
pub(crate) struct PluginDevArgs {
    /// The crate, or a program's directory or description [default: the current directory]
    dir: Option<PathBuf>,
    /// Install it in the data directory, for the hosts that use that
    #[arg(long)]
    serve: bool,
    /// Leave it installed at the end
    #[arg(long, requires = "serve")]
    keep: bool,
    /// Build in release
    #[arg(long)]
    release: bool,
    /// Look at this directory too, such as that of a crate that it depends on
    #[arg(long, value_name = "DIR")]
    watch: Vec<PathBuf>,
}

/// One round that came to its end.
enum DevRound {
    /// The plugin is there.
    Live(LiveRound),
    /// The plugin is not there, and what was there before still is.
    Failed { stage: &'static str, output: String },
}

struct LiveRound {
    plugin: String,
    build_time: Duration,
    check_time: Duration,
    deploy_time: Duration,
    /// Since the newest source was written.
    since_saved: Option<Duration>,
    warnings: Vec<String>,
    compiler: String,
    name: String,
    kind: String,
    /// The plugin, where it makes an instance without settings.
    loaded: Option<Arc<LoadedPlugin>>,
}

pub(crate) async fn run(global: &Global, args: &PluginDevArgs) -> Result<Exit, CliError> {
    let mut signals = Signals::listen()?;
    let here = PathBuf::from(".");
    let plugin = AuthorPlugin::at(global, args.dir.as_ref().unwrap_or(&here)).await?;
    // Of a program it is the files that its description names.
    let mut dirs = match plugin.description() {
        Some(_) => Vec::new(),
        None => vec![plugin.dir().to_owned()],
    };
    for dir in &args.watch {
        dirs.push(dir.canonicalize().map_err(|error| {
            CliError::usage_from(error).context(format_args!("`--watch {}`", dir.display()))
        })?);
    }
    // Wherever cargo builds: what it writes is no change.
    let sources = Sources::new(dirs, plugin.output_dirs());
    let sources = sources.with_program(plugin.description().map(ToOwned::to_owned));
    let Some(workers) = workers(global, Some(Isolation::Process)) else {
        return Err(CliError::usage(
            "the system does not say which program this is",
        ));
    };
    // What crashes is to end its own process, also where the author trusts it.
    let workers = WorkerOptions {
        trust: PluginTrust::default(),
        ..workers
    };
    let scratch = ScratchDir::make().map_err(CliError::host_from)?;
    let options = LoaderOptions {
        operations: conjure_runtime::host_operations(),
        packaged: args.serve.then(|| PackagedPlugins::of(&global.data_dir())),
        worker: Some(workers.clone()),
        ..LoaderOptions::default()
    };
    let (target, left) = match args.serve {
        true => {
            let (served, left) = ServedDir::open(global, plugin.dir(), args.keep)?;
            (DevTarget::Installed(Box::new(served)), left)
        }
        false => (
            DevTarget::scratch(workers, scratch.path()).await?,
            Vec::new(),
        ),
    };
    // What a worker may not reach is found beside the copies: it is to be what a host of that directory
    // keeps, and to leave the instance its own.
    let store = target.data_dir(global).join("store");
    let store = CopyStore::open(store).map_err(CliError::host_from)?;
    let mut author = Author {
        global,
        plugin,
        release: args.release,
        loader: Loader::new(store, options),
        target,
    };
    for line in left {
        author.print_note(&line);
    }
    let done = author.rounds(&sources, &mut signals).await;
    // Whatever ended it, what was there before comes back.
    let ended = author.target.end();
    done?;
    for line in ended? {
        if global.json {
            output::json_line(&json!({ "type": "end", "text": line }));
        } else {
            output::line(output::clean(&line));
        }
    }
    Ok(signals
        .last()
        .map_or(Exit::Success, super::signals::Signal::exit))
}

/// What a round needs.
struct Author<'a> {
    global: &'a Global,
    plugin: AuthorPlugin,
    release: bool,
    loader: Loader,
    target: DevTarget,
}

impl Author<'_> {
    /// Round after round, until a signal comes.
    async fn rounds(&mut self, sources: &Sources, signals: &mut Signals) -> Result<(), CliError> {
        let mut state = sources.state().await;
        let mut first = true;
        loop {
            if let AuthorPlugin::Crate(_) = &self.plugin {
                self.print_note(&format!("Building {}.", display_path(self.plugin.dir())));
            }
            let built = tokio::select! {
                biased;
                _ = signals.next() => return Ok(()),
                newer = sources.wait_for_change(&state) => {
                    // The newer one wins: this build ends here.
                    self.print_note("changed again while it was built");
                    (state, first) = (newer, false);
                    continue;
                }
                built = Box::pin(self.build()) => built?,
            };
            let round = tokio::select! {
                biased;
                _ = signals.next() => return Ok(()),
                round = Box::pin(self.live(built, &state, first)) => round?,
            };
            self.report(&round);
            if let DevRound::Live(live) = &round {
                // Both may take long, and what was put there is told already.
                let tried = async {
                    if let Some(refused) = Box::pin(state_refusal(live.loaded.as_ref())).await {
                        self.report_warning(&refused);
                    }
                    if let Some(walked) = Box::pin(self.walk(live)).await {
                        self.print_walk(&walked);
                    }
                };
                tokio::select! {
                    biased;
                    _ = signals.next() => return Ok(()),
                    newer = sources.wait_for_change(&state) => {
                        (state, first) = (newer, false);
                        continue;
                    }
                    () = Box::pin(tried) => {}
                }
            }
            if first && !self.global.json {
                output::print_note(format_args!(
                    "{DIM}Waiting for changes in {}; Ctrl-C ends.{RESET}",
                    display_path(self.plugin.dir())
                ));
            }
            state = tokio::select! {
                biased;
                _ = signals.next() => return Ok(()),
                newer = sources.wait_for_change(&state) => newer,
            };
            first = false;
        }
    }

    async fn build(&self) -> Result<(Result<BuiltPlugin, String>, Duration), CliError> {
        let begun = Instant::now();
        let built = self.plugin.build(self.release).await?;
        Ok((built, begun.elapsed()))
    }

    /// Tries what was built, and puts it where it is used.
    async fn live(
        &mut self,
        (built, took): (Result<BuiltPlugin, String>, Duration),
        state: &SourceState,
        first: bool,
    ) -> Result<DevRound, CliError> {
        let failed = |stage, output| Ok(DevRound::Failed { stage, output });
        let built = match built {
            Ok(built) => built,
            Err(said) => return failed("build", said),
        };
        let begun = Instant::now();
        let file = match PluginFile::read(&built.library, true) {
            Ok(file) => file,
            Err(error) => return failed("check", error.to_string()),
        };
        let (name, kind) = (
            file.header.name.clone(),
            file.header.kind.as_str().to_owned(),
        );
        let version = file.header.version.clone();
        let (loader, path) = (self.loader.clone(), built.library.clone());
        let loading = tokio::task::spawn_blocking(move || loader.load(&path, true));
        let loaded = match loading.await.map_err(CliError::host_from)? {
            Ok(loaded) => Arc::new(loaded),
            Err(error) => return failed("check", error.to_string()),
        };
        let data_dir = self.target.data_dir(self.global);
        let trial = match Box::pin(try_plugin(&data_dir, &loaded)).await {
            Ok(trial) => trial,
            Err(error) => return failed("check", error.to_string()),
        };
        let warnings = warnings(&file, &loaded, &trial).await;
        let checked = begun.elapsed();
        let begun = Instant::now();
        if let Err(reason) = self.target.deploy(self.global, file).await? {
            return failed("load", reason);
        }
        Ok(DevRound::Live(LiveRound {
            plugin: format!("{name} {version}"),
            build_time: took,
            check_time: checked,
            deploy_time: begun.elapsed(),
            since_saved: state.age().filter(|_| !first),
            warnings,
            compiler: built.warnings,
            name,
            kind,
            loaded: (trial == PluginTrial::Answered).then_some(loaded),
        }))
    }

    /// What came of calling each tool, where there is a session for that.
    async fn walk(&self, live: &LiveRound) -> Option<Result<String, CliError>> {
        match &self.target {
            DevTarget::Scratch(scratch) => Some(scratch.walk(&live.name, &live.kind).await),
            DevTarget::Installed(_) => None,
        }
    }

    fn print_note(&self, text: &str) {
        if self.global.json {
            output::json_line(&json!({ "type": "note", "text": text }));
        } else {
            output::line(format_args!("{DIM}{}{RESET}", output::clean(text)));
        }
    }

    fn print_walk(&self, walked: &Result<String, CliError>) {
        let (ok, text) = match walked {
            Ok(text) => (true, text.clone()),
            Err(error) => (false, error.to_string()),
        };
        if self.global.json {
            output::json_line(&json!({ "type": "walk", "ok": ok, "text": text }));
            return;
        }
        for line in text.lines() {
            output::line(format_args!("  {}", output::clean(line)));
        }
    }

    fn report_warning(&self, warning: &str) {
        if self.global.json {
            output::json_line(&json!({ "type": "warning", "text": warning }));
        } else {
            print_warning(warning);
        }
    }

    fn report(&self, round: &DevRound) {
        if self.global.json {
            output::json_line(&self.round_json(round));
            return;
        }
        match round {
            DevRound::Live(live) => {
                if !live.compiler.is_empty() {
                    output::line(output::clean(&live.compiler));
                }
                for warning in &live.warnings {
                    print_warning(warning);
                }
                let total = live.build_time + live.check_time + live.deploy_time;
                let total = live.since_saved.unwrap_or(total);
                // Nobody here knows which hosts run, and what they make of it.
                let (done, place, last, then) = match &self.target {
                    DevTarget::Scratch(_) => ("live", String::new(), "load", ""),
                    DevTarget::Installed(served) => (
                        "installed",
                        format!(" in {}", display_path(served.dir())),
                        "install",
                        "; hosts that run there take it over",
                    ),
                };
                output::line(format_args!(
                    "{GREEN}{done}{RESET} {BOLD}{}{RESET}{place} after {} (build {}, check {}, {last} \
                     {}){then}",
                    output::clean(&live.plugin),
                    format_duration(total),
                    format_duration(live.build_time),
                    format_duration(live.check_time),
                    format_duration(live.deploy_time),
                ));
            }
            DevRound::Failed {
                stage,
                output: said,
            } => {
                output::line(output::clean(said));
                let what = match *stage {
                    "build" => "does not build",
                    "check" => "builds, and a host does not take it",
                    _ => "builds, and is not loaded",
                };
                output::line(format_args!(
                    "{RED}{} {what}{RESET}; what was loaded before stays",
                    display_path(self.plugin.dir())
                ));
            }
        }
    }

    fn round_json(&self, round: &DevRound) -> Value {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        match round {
            DevRound::Live(live) => json!({
                "type": "round", "ok": true, "plugin": live.plugin,
                "build_ms": ms(live.build_time), "check_ms": ms(live.check_time), "load_ms": ms(live.deploy_time),
                "since_saved_ms": live.since_saved.map(ms),
                "warnings": live.warnings, "compiler": live.compiler,
            }),
            DevRound::Failed { stage, output } => json!({
                "type": "round", "ok": false, "stage": stage, "said": output,
            }),
        }
    }
}

/// What an author should know of a build that is taken.
async fn warnings(
    file: &PluginFile,
    loaded: &Arc<LoadedPlugin>,
    trial: &PluginTrial,
) -> Vec<String> {
    let told = Box::pin(tools_of(loaded)).await;
    let untold = told.missing_reason.iter();
    let mut warnings: Vec<String> = untold
        .map(|reason| format!("its tools could not be listed: {reason}"))
        .collect();
    warnings.extend(notable(&Judgement::of(file, &told.tools)));
    if let PluginTrial::NeedsConfig { settings } = trial {
        warnings.push(format!(
            "config: it makes no instance without {}",
            format_settings(settings)
        ));
    }
    warnings
}

/// What an author should know of a build whose instances do not hand their state to the next.
async fn state_refusal(loaded: Option<&Arc<LoadedPlugin>>) -> Option<String> {
    let reason = check_hand_over(loaded?).await.err()?;
    Some(format!(
        "state: a new instance does not take over what one hands out, so open sessions stay with the \
         build that they have: {reason}"
    ))
}

fn print_warning(warning: &str) {
    output::line(format_args!(
        "{YELLOW}warning:{RESET} {}",
        output::clean(warning)
    ));
}

/// What an author should know while a debug build is worked on: nothing of its size.
fn notable(judgement: &Judgement) -> Vec<String> {
    let findings = judgement.findings.iter();
    let findings = findings.filter(|finding| {
        let is_refused = finding.level == FindingLevel::Refusal;
        is_refused || !["size", "licence"].contains(&finding.about)
    });
    findings
        .map(|finding| format!("{}: {}", finding.about, finding.message))
        .collect()
}

fn format_duration(duration: Duration) -> String {
    output::duration(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
