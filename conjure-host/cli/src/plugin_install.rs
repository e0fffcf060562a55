//! `conjure plugin add`, `remove`, `reload`, `history` and `rollback`: the plugins that are installed
//! in the data directory. Every host that watches it takes a change over while it runs, so what it
//! changes is told, and allowed, before.

use std::path::{Path, PathBuf};

use clap::Args;
use conjure_plugins::{
    InstallAction, InstallChange, InstallError, InstalledPlugins, InstalledVersion, LockedPlugin,
    PluginFile,
};
use conjure_runtime::{
    InstallConsent, PluginDifference, consent_to_add, consent_to_roll_back, describe_tool,
    version_step,
};
use conjure_skill_sdk::protocol::{Manifest, ToolDecl};
use serde_json::json;

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, DIM, RESET, Table, YELLOW};
use super::person::ask_yes_no;
use super::plugin::{load_and_try, loader, report_refusal};
use super::plugin_args::{PluginArgs, check_exists};
use super::shorten::shorten;
use super::thread_list::time;

/// The most characters of a tool's description that are shown.
const DESCRIPTION: usize = 2_000;

/// What to install.
#[derive(Args)]
pub(crate) struct PluginAddArgs {
    /// The library, or a program's description or bundle
    file: PathBuf,
    /// Allow what the plugin asks for, and its tools, without being asked
    #[arg(long)]
    yes: bool,
}

/// The build to put back.
#[derive(Args)]
pub(crate) struct PluginRollbackArgs {
    /// The plugin's name
    name: String,
    /// The version whose newest build to put back [default: what the last change took away]
    #[arg(value_name = "VERSION")]
    wanted: Option<String>,
    /// Allow what the build asks for, and its tools, without being asked
    #[arg(long)]
    yes: bool,
}

/// Installs a plugin, or upgrades it.
pub(crate) async fn add(global: &Global, args: &PluginAddArgs) -> Result<Exit, CliError> {
    check_exists(&args.file)?;
    let installed = InstalledPlugins::of(&global.data_dir());
    let file = match PluginFile::read(&args.file, true) {
        Ok(file) => file,
        Err(error) => return Ok(report_refusal(global, &args.file, &error.to_string())),
    };
    let (name, sha256) = (file.header.name.clone(), file.sha256);
    let new = match load_and_try(global, &args.file, None).await? {
        Ok(plugin) if plugin.id().sha256 == Some(sha256) => Manifest::clone(plugin.manifest()),
        Ok(_) => {
            let reason = "it changed while it was looked at; add it when it is complete";
            return Ok(report_refusal(global, &args.file, reason));
        }
        Err(reason) => return Ok(report_refusal(global, &args.file, &reason)),
    };
    let elsewhere = other_copies(global, &installed, &name);
    let twin = elsewhere
        .iter()
        .find(|file| file.header.version == new.version);
    if let Some(twin) = twin {
        let reason = format!(
            "{name} {} is in {} already, and a host takes one of a name and version: give this build \
             another version, or remove that one",
            new.version,
            display_path(&twin.path)
        );
        return Ok(report_refusal(global, &args.file, &reason));
    }
    let (state, before) = installed.state_and_file(&name)?;
    // Where none is installed, one that sessions have from elsewhere, such as with the program.
    let known = before.as_ref().or(elsewhere.first());
    let old = match known {
        Some(known) => loader(global)?.stored_manifest(&known.sha256),
        None => None,
    };
    let locked = installed
        .lock()
        .plugin(&name)
        .map_err(CliError::host_from)?;
    let offered = OfferedBuild::new(known, old.as_ref(), &new);
    let offered = match before.as_ref().is_some_and(|it| it.sha256 == sha256) {
        true => offered.without_consent(),
        false => offered,
    };
    let offered = offered.require_consent_for(locked.map(|locked| out_of_package(&locked)));
    if offered.needs_attention() && !global.json {
        offered.print();
    }
    if let Err(reason) = offered.confirm(global, args.yes, "Add it?").await {
        let again = format!(
            "`conjure plugin add {} --yes` allows it",
            display_path(&args.file)
        );
        let reason = format!("{reason}. {again}");
        return Ok(offered.report_not_allowed(global, &args.file, &reason));
    }
    // What was judged and tried is what is installed, whatever the path holds by now.
    let change = installed.add_if_unchanged(&file, &state)?;
    if global.json {
        output::json(&json!({
            "plugin": name,
            "change": change,
            "difference": offered.difference().json(),
        }));
        return Ok(Exit::Success);
    }
    match &change {
        Some(change) => output::line(describe_change(change)),
        None => output::line(format_args!(
            "{name} {}: this very build is installed already",
            new.version
        )),
    }
    if change.is_some_and(|change| change.from.is_none()) && !new.tools.is_empty() {
        let tools: Vec<&str> = new.tools.iter().map(|tool| tool.name.as_str()).collect();
        output::line(format_args!(
            "  tools: {}",
            output::clean_line(&tools.join(", "))
        ));
    }
    Ok(Exit::Success)
}

/// What a build asks for that takes the place of one out of a package.
fn out_of_package(locked: &LockedPlugin) -> String {
    let signed = match &locked.signer {
        Some(signer) => format!(" that {signer} signed, and nobody signed this one"),
        None => String::new(),
    };
    format!("to take the place of one that came in a package{signed}")
}

/// A build that is to be taken, beside the one that is there: what a person allows of it is told before
/// anything is changed, whichever way it comes.
pub(crate) struct OfferedBuild {
    name: String,
    /// The version that is there.
    from: Option<String>,
    to: String,
    /// Tools of the build, where there are none to compare them with.
    tools: Vec<ToolDecl>,
    difference: PluginDifference,
    consent: InstallConsent,
}

impl OfferedBuild {
    /// One that comes from elsewhere. `known` is the build that is there, `old` what is known of it.
    pub(crate) fn new(known: Option<&PluginFile>, old: Option<&Manifest>, new: &Manifest) -> Self {
        let from = known.map(|known| known.header.version.clone());
        let (consent, difference) = consent_to_add(from.as_deref(), old, new);
        Self {
            name: new.name.clone(),
            from,
            to: new.version.clone(),
            tools: match old {
                Some(_) => Vec::new(),
                None => new.tools.clone(),
            },
            difference,
            consent,
        }
    }

    /// A build of this name that was there before, in the place of `there`.
    fn for_rollback(
        name: &str,
        build: &InstalledVersion,
        there: Option<&PluginFile>,
        (consent, difference): (InstallConsent, PluginDifference),
    ) -> Self {
        Self {
            name: name.to_owned(),
            from: there.map(|there| there.header.version.clone()),
            to: build.version.clone(),
            tools: Vec::new(),
            difference,
            consent,
        }
    }

    /// Drops the consent where the very build is there already: what it asks for and shows is not new.
    pub(crate) fn without_consent(mut self) -> Self {
        self.consent = InstallConsent::default();
        self
    }

    /// Adds something that consent is asked for.
    pub(crate) fn require_consent_for(mut self, what: Option<String>) -> Self {
        self.consent.added_requests.extend(what);
        self
    }

    /// What is different, for programs.
    pub(crate) fn difference(&self) -> &PluginDifference {
        &self.difference
    }

    /// Whether it has something to tell: it differs, or somebody has to agree to it.
    pub(crate) fn needs_attention(&self) -> bool {
        !(self.difference.lines().is_empty() && self.consent.phrases().is_empty())
    }

    /// Says what it is and how it differs.
    pub(crate) fn print(&self) {
        let to = &self.to;
        output::print_note(format_args!(
            "{BOLD}{}{RESET} {}",
            output::clean_line(&self.name),
            match &self.from {
                Some(from) => version_step(from, to),
                None => to.clone(),
            }
        ));
        for line in self.difference.lines() {
            output::print_note(format_args!("  {}", output::clean_line(&line)));
        }
        for line in self.difference.details() {
            output::print_note(format_args!("    {DIM}{}{RESET}", output::clean_line(line)));
        }
        for phrase in self
            .consent
            .added_requests
            .iter()
            .filter(|it| self.is_new(it))
        {
            output::print_note(format_args!("  asks {}", output::clean_line(phrase)));
        }
        for tool in &self.tools {
            output::print_note(format_args!(
                "  tool {}: {}",
                output::clean_line(&tool.name),
                output::clean_line(&shorten(&tool.description, DESCRIPTION))
            ));
            // Its description is the first of its words.
            for line in describe_tool(tool).iter().skip(1) {
                output::print_note(format_args!("    {DIM}{}{RESET}", output::clean_line(line)));
            }
        }
    }

    /// Says that it was not allowed, for programs with what is different.
    fn report_not_allowed(&self, global: &Global, path: &Path, reason: &str) -> Exit {
        if !global.json {
            return report_refusal(global, path, reason);
        }
        output::json(&json!({
            "ok": false,
            "file": path,
            "reason": reason,
            "difference": self.difference.json(),
        }));
        Exit::No
    }

    /// Whether it may be taken: nothing of it has to be agreed to, `yes` says it, or the person at the
    /// terminal does. Else what was not allowed.
    pub(crate) async fn confirm(
        &self,
        global: &Global,
        yes: bool,
        question: &str,
    ) -> Result<(), String> {
        let reasons = self.consent.phrases();
        if yes || reasons.is_empty() {
            return Ok(());
        }
        let question = format!("{YELLOW}?{RESET} {question}");
        if !global.json && matches!(ask_yes_no(&question).await, Ok(true)) {
            return Ok(());
        }
        let mut told = self.difference.lines();
        told.extend(reasons.into_iter().filter(|reason| self.is_new(reason)));
        Err(format!(
            "what it asks for and shows was not allowed: {}",
            told.join("; ")
        ))
    }

    /// Whether the difference does not say this already.
    fn is_new(&self, phrase: &str) -> bool {
        self.difference
            .added_requests
            .iter()
            .all(|said| said != phrase)
    }
}

/// The plugins of this name that hosts find in other places.
pub(crate) fn other_copies(
    global: &Global,
    installed: &InstalledPlugins,
    name: &str,
) -> Vec<PluginFile> {
    let (found, _) = PluginArgs::default().search_path(global).find();
    let found = found.into_iter().map(|library| library.path);
    // A program that is described there was put there by hand.
    let is_installed = |path: &PathBuf| {
        path.parent() == Some(installed.dir()) && !conjure_plugins::is_description(path)
    };
    let others = found.filter(|path| !is_installed(path));
    let files = others.filter_map(|path| PluginFile::read_of(&path, name, false).ok()?);
    files.collect()
}

/// Removes a plugin.
pub(crate) fn remove(global: &Global, name: &str) -> Result<Exit, CliError> {
    let installed = InstalledPlugins::of(&global.data_dir());
    let change = installed.remove(name)?;
    report(global, &change);
    if !global.json {
        // Other files of the name went with it.
        let history = installed.history(Some(name))?;
        let build = |change: &InstallChange| change.from.as_ref().map(|from| from.sha256);
        let of_it =
            |other: &&InstallChange| other.at_ms == change.at_ms && build(other) != build(&change);
        for other in history.iter().filter(of_it) {
            output::line(describe_change(other));
        }
    }
    if !global.json && change.from.is_some() && !change.altered {
        output::line(format_args!(
            "  `conjure plugin rollback {}` puts it back",
            output::clean(name)
        ));
    }
    Ok(Exit::Success)
}

/// Puts a build back.
pub(crate) async fn rollback(global: &Global, args: &PluginRollbackArgs) -> Result<Exit, CliError> {
    let installed = InstalledPlugins::of(&global.data_dir());
    let name = &args.name;
    let wanted = args.wanted.as_deref();
    let (state, there) = installed.state_and_file(name)?;
    let there = there.as_ref();
    let build = installed.rollback_target(name, wanted)?;
    let consent = consent_to_roll_back(&loader(global)?, there, &state, &build);
    let offered = OfferedBuild::for_rollback(name, &build, there, consent);
    if offered.needs_attention() && !global.json {
        offered.print();
    }
    if let Err(reason) = offered.confirm(global, args.yes, "Put it back?").await {
        let reason = format!(
            "{reason}. `conjure plugin rollback {name} {} --yes` allows it",
            build.version
        );
        return Ok(offered.report_not_allowed(global, installed.dir(), &reason));
    }
    let change = installed.rollback_if_unchanged(name, &build, &state)?;
    report(global, &change);
    Ok(Exit::Success)
}

/// Has hosts load a plugin again.
pub(crate) fn reload(global: &Global, name: &str) -> Result<Exit, CliError> {
    let there = InstalledPlugins::of(&global.data_dir()).reload(name)?;
    if global.json {
        output::json(&json!({ "plugin": name, "reloaded": there }));
    } else {
        output::line(format_args!(
            "{} {} is loaded again by every host that watches {}",
            output::clean(name),
            there.version,
            display_path(&global.data_dir().join("plugins"))
        ));
    }
    Ok(Exit::Success)
}

/// Lists what was changed.
pub(crate) fn history(global: &Global, name: Option<&str>) -> Result<Exit, CliError> {
    let changes = InstalledPlugins::of(&global.data_dir()).history(name)?;
    if global.json {
        output::json(&json!({ "changes": changes }));
        return Ok(Exit::Success);
    }
    if changes.is_empty() {
        output::line(match name {
            Some(name) => format!(
                "Nothing was changed of a plugin `{}` here; `conjure plugin history` lists all changes.",
                output::clean(name)
            ),
            None => "No plugin was added here yet; `conjure plugin add FILE` does.".to_owned(),
        });
        return Ok(Exit::Success);
    }
    let mut rows = Table::new(["WHEN", "PLUGIN", "CHANGE", "SHA-256"]);
    for change in &changes {
        let build = change.to.as_ref().or(change.from.as_ref());
        rows.row([
            time(change.at_ms),
            change.plugin.clone(),
            step(change),
            build.map_or_else(String::new, |build| build.sha256.short().to_string()),
        ]);
    }
    rows.print();
    Ok(Exit::Success)
}

fn report(global: &Global, change: &InstallChange) {
    if global.json {
        output::json(&json!({ "plugin": change.plugin, "change": change }));
    } else {
        output::line(describe_change(change));
    }
}

pub(crate) fn describe_change(change: &InstallChange) -> String {
    let step = step(change);
    let color = match step.contains("downgrade") {
        true => YELLOW,
        false => "",
    };
    format!(
        "{BOLD}{}{RESET} {color}{step}{RESET}",
        output::clean(&change.plugin)
    )
}

/// A change in words: "0.2.0 → 0.3.0", "1.0.0, a rollback".
fn step(change: &InstallChange) -> String {
    let what = match (&change.from, &change.to) {
        (Some(from), Some(to)) => version_step(&from.version, &to.version),
        (None, Some(to)) => match change.action {
            InstallAction::Rollback => format!("{} is back", to.version),
            InstallAction::Add | InstallAction::Remove => format!("{} is new", to.version),
        },
        (Some(from), None) if change.altered => {
            format!("{} removed; {}", from.version, leftover_notice(from))
        }
        (Some(from), None) => format!("{} removed", from.version),
        (None, None) => "removed; nothing of it is kept".to_owned(),
    };
    match change.action {
        InstallAction::Rollback if change.from.is_some() => format!("{what}, put back"),
        _ => what,
    }
}

/// What is left of a plugin that was not what its package had.
fn leftover_notice(from: &InstalledVersion) -> &'static str {
    let skill = from.package.as_ref().and_then(|package| package.skill);
    match skill {
        Some(_) => "it was not what its package had; what there was of it is in ~/.conjure/altered",
        None => "it was not what its package had, so nothing is kept",
    }
}

impl From<InstallError> for CliError {
    fn from(error: InstallError) -> Self {
        match error {
            InstallError::NotInstalled { .. } | InstallError::NoBackup { .. } => {
                Self::usage_from(error)
            }
            InstallError::ChangedMeanwhile { .. } | InstallError::Conflict { .. } => {
                Self::host_from(error)
            }
            InstallError::Altered { .. }
            | InstallError::Plugin(_)
            | InstallError::Lock(_)
            | InstallError::Io(_) => Self::host_from(error),
        }
    }
}
