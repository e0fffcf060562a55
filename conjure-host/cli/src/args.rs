//! Arguments that several verbs share, and what becomes of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use conjure_config::AuthRef;
use conjure_config::env;
use conjure_config::{BackendSpec, PolicySpec, SessionSpec};
use conjure_core::foreign_text::escape_line;
use conjure_core::routing::Pattern;
use conjure_core::wire::{Dialect, Wire};
use conjure_providers::auths::{Auths, KeySources};
use conjure_providers::wire_and_endpoint;
use conjure_runtime::Host;
use conjure_store::Store;

use super::error::CliError;
use super::output;
use super::plugin_args::{EarlyPluginArgs, PluginArgs};
use super::sandbox_args::SandboxArgs;

/// Options of every verb.
#[derive(Args)]
pub(crate) struct Global {
    #[command(flatten)]
    pub(crate) early_plugins: EarlyPluginArgs,
    /// Where threads, copies of plugins and their values are kept
    #[arg(long, global = true, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Global {
    /// Where everything is kept.
    pub(crate) fn data_dir(&self) -> PathBuf {
        let dir = self.data_dir.clone().unwrap_or_else(env::data_dir);
        // What runs elsewhere is told of it, such as what must not be seen there.
        std::path::absolute(&dir).unwrap_or(dir)
    }

    /// The file of what was typed in chats.
    pub(crate) fn input_history(&self) -> PathBuf {
        self.data_dir().join("history.jsonl")
    }

    /// The database.
    pub(crate) async fn store(&self) -> Result<Store, CliError> {
        let opened = conjure_store::open(&self.data_dir()).await;
        opened.map_err(CliError::unopened)
    }

    /// The saved auths.
    pub(crate) fn auths(&self) -> Auths {
        Auths::at(KeySources::from_env(self.data_dir()))
    }

    /// Like [`Self::auths`], over a database that is open already.
    pub(crate) fn auths_over(&self, store: &Store) -> Auths {
        Auths::over(store.clone(), KeySources::from_env(self.data_dir()))
    }
}

/// What a session is made from.
#[derive(Args)]
pub(crate) struct SessionArgs {
    /// A session file (TOML); the other options here win over what it says
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The provider: `anthropic`, `openai`, `gemini`, `deepseek`, `mistral`, `openrouter`,
    /// `llamacpp`, `ollama`, `openai-compatible` (any other server, with `--base-url`), one of the
    /// session file's, `scripted` (a script plays the model), or `tool-walk` (calls every tool once)
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    provider: Option<String>,
    /// A saved auth (`conjure auth list`), which says the provider too: NAME, or
    /// PROVIDER/KIND/NAME
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    auth: Option<AuthRef>,
    /// The model, as the provider names it
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    model: Option<String>,
    /// Where the provider is, when not at its usual place
    #[arg(long, value_name = "URL", help_heading = "Model")]
    base_url: Option<String>,
    /// The wire that the provider speaks, when not its usual one: `anthropic`, `openai-responses`,
    /// `openai-chat`, `gemini`
    #[arg(long, value_name = "WIRE", help_heading = "Model")]
    wire: Option<Wire>,
    /// The dialect in which the provider speaks `openai-chat`: `openai`, `deepseek`, `mistral`,
    /// `openrouter`, `llamacpp`, `ollama`, `compatible`
    #[arg(long, value_name = "NAME", value_parser = dialect, help_heading = "Model")]
    dialect: Option<Box<Dialect>>,
    /// The script (JSON) of the provider `scripted`
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    script: Option<PathBuf>,
    /// A value for the script's `{{vars.NAME}}`
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, help_heading = "Model")]
    set: Vec<(String, String)>,
    /// The persona: who the model is to be
    #[arg(long, value_name = "TEXT", help_heading = "Model")]
    persona: Option<String>,
    /// The most model requests a turn [default: 25]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Model")]
    max_iterations: Option<u32>,
    /// A skill folder or package, run through the executor
    #[arg(long, value_name = "PATH", help_heading = "Tools")]
    skill: Vec<PathBuf>,
    /// The executor for skill folders and command tools, such as `local`; `none` for none
    /// [default: `local`, when that plugin is loaded]
    #[arg(long, value_name = "NAME", help_heading = "Tools")]
    executor: Option<String>,
    /// The working directory of calls [default: the session file's, else the current directory]
    #[arg(long, value_name = "DIR", help_heading = "Tools")]
    working_dir: Option<PathBuf>,
    /// Run without asking what fits this pattern: a tool's name, `backend:NAME`, or
    /// `NAME(arguments)`, with `*`
    #[arg(long, value_name = "PATTERN", help_heading = "Permissions")]
    allow: Vec<Pattern>,
    /// Ask before running what fits this pattern and no `--allow`
    #[arg(long, value_name = "PATTERN", help_heading = "Permissions")]
    ask: Vec<Pattern>,
    /// Never run what fits this pattern; wins over the others
    #[arg(long, value_name = "PATTERN", help_heading = "Permissions")]
    deny: Vec<Pattern>,
    #[command(flatten)]
    sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A preset by its name.
pub(crate) fn dialect(name: &str) -> Result<Box<Dialect>, String> {
    let known = Dialect::named(name).map(Box::new);
    known.ok_or_else(|| {
        "there are: openai, deepseek, mistral, openrouter, llamacpp, ollama, compatible".to_owned()
    })
}

/// Refuses `--dialect` where another wire is spoken than the one that has dialects.
///
/// # Errors
/// On every other wire.
pub(crate) fn check_dialect(wire: Wire) -> Result<(), CliError> {
    if wire == Wire::OpenaiChat {
        return Ok(());
    }
    let message = format!(
        "`--dialect` would change nothing: it says how `openai-chat` is spoken, and this is the wire \
         `{wire}`"
    );
    Err(CliError::usage(message).hint("`--wire openai-chat` has that wire spoken"))
}

impl SessionArgs {
    /// The rules that the options make. Says which of them are weak.
    pub(crate) fn policy(self) -> PolicySpec {
        let policy = PolicySpec {
            allow: self.allow,
            ask: self.ask,
            deny: self.deny,
        };
        warn_weak_rules(&policy);
        policy
    }

    /// Whether no option says which provider is to answer.
    pub(crate) fn names_no_provider(&self) -> bool {
        self.provider.is_none()
            && self.auth.is_none()
            && self.script.is_none()
            && self.config.is_none()
    }

    /// The options that are given and that describe a session; where calls work is not among them, as it
    /// names a conversation too.
    fn session_options(&self) -> Vec<&'static str> {
        let own = [
            ("--config", self.config.is_some()),
            ("--provider", self.provider.is_some()),
            ("--auth", self.auth.is_some()),
            ("--model", self.model.is_some()),
            ("--base-url", self.base_url.is_some()),
            ("--wire", self.wire.is_some()),
            ("--dialect", self.dialect.is_some()),
            ("--script", self.script.is_some()),
            ("--set", !self.set.is_empty()),
            ("--persona", self.persona.is_some()),
            ("--max-iterations", self.max_iterations.is_some()),
            ("--skill", !self.skill.is_empty()),
            ("--executor", self.executor.is_some()),
        ];
        let all = own.into_iter().chain(self.sandbox.given_options());
        let given = all.filter_map(|(option, is_given)| is_given.then_some(option));
        given.collect()
    }

    /// Refuses those of the options which the verb makes no use of.
    ///
    /// # Errors
    /// When one of them is given; `why` says why it would change nothing.
    pub(crate) fn check_unused(
        &self,
        is_unused: impl Fn(&str) -> bool,
        why: &str,
    ) -> Result<(), CliError> {
        let others = [
            ("--working-dir", self.working_dir.is_some()),
            ("--allow", !self.allow.is_empty()),
            ("--ask", !self.ask.is_empty()),
            ("--deny", !self.deny.is_empty()),
        ];
        let others = others.into_iter().chain(self.plugins.given_options());
        let mut given = self.session_options();
        given.extend(others.filter_map(|(option, is_given)| is_given.then_some(option)));
        given.retain(|option| is_unused(option));
        if given.is_empty() {
            return Ok(());
        }
        let message = format!("{} would change nothing: {why}", given.join(", "));
        Err(CliError::usage(message))
    }

    /// Refuses the options that a saved session says itself.
    ///
    /// # Errors
    /// When one of them is given.
    pub(crate) fn check_for_saved(&self, session: &str) -> Result<(), CliError> {
        let given = self.session_options();
        if given.is_empty() {
            return Ok(());
        }
        let message = format!(
            "the conversation goes on in the saved session `{}`, which cannot be used with {}",
            escape_line(session),
            given.join(", ")
        );
        Err(CliError::usage(message)
            .hint("`conjure session set` changes what the session says")
            .hint("`--provider NAME` or `--auth NAME` goes on with the conversation outside of it"))
    }

    /// Where calls are to work.
    ///
    /// # Errors
    /// What is wrong with the session file, or with the current directory.
    pub(crate) fn directory(&self) -> Result<PathBuf, CliError> {
        if let Some(dir) = &self.working_dir {
            return Ok(dir.clone());
        }
        let spec = self.config.as_deref().map(SessionSpec::read).transpose()?;
        match spec.and_then(|spec| spec.working_dir) {
            Some(dir) => Ok(dir),
            None => current_dir(),
        }
    }

    /// Where the provider is, where that is said.
    pub(crate) fn base_url(&self) -> Option<&str> {
        self.base_url.as_deref()
    }

    /// Has this provider and model answer, with a saved auth where one is named.
    pub(crate) fn set_answerer(&mut self, provider: String, model: String, auth: Option<AuthRef>) {
        match auth {
            Some(auth) => self.auth = Some(auth),
            None => self.provider = Some(provider),
        }
        self.model.get_or_insert(model);
    }

    /// The session that the options and the file describe.
    pub(crate) async fn spec(self, host: &Host, global: &Global) -> Result<SessionSpec, CliError> {
        let from_file = self.config.is_some();
        let mut spec = match &self.config {
            Some(path) => SessionSpec::read(path)?,
            None => SessionSpec::default(),
        };
        if !from_file || self.executor.is_some() || !self.skill.is_empty() {
            self.backends(&mut spec, host, global)?;
        }
        let vars: BTreeMap<String, String> = self.set.into_iter().collect();
        spec.vars.extend(vars);
        spec.provider = self.provider.or(spec.provider);
        spec.model = self.model.or(spec.model);
        spec.base_url = self.base_url.or(spec.base_url);
        spec.auth = self.auth.or(spec.auth);
        let mut spec = host.resolve_provider(spec).await?;
        if let Some(provider) = &spec.provider
            && (self.wire.is_some() || self.dialect.is_some())
        {
            let own = spec.providers.entry(provider.clone()).or_default();
            own.wire = self.wire.or(own.wire);
            let has_dialect = self.dialect.is_some();
            own.dialect = self.dialect.map(|own| *own).or(own.dialect.take());
            if has_dialect && let Some((wire, _)) = wire_and_endpoint(provider, &spec) {
                check_dialect(wire)?;
            }
        }
        spec.script = self.script.or(spec.script);
        spec.persona = self.persona.or(spec.persona);
        spec.max_iterations = self.max_iterations.or(spec.max_iterations);
        let working_dir = match self.working_dir.or(spec.working_dir) {
            Some(dir) => dir,
            None => current_dir()?,
        };
        spec.working_dir = Some(canonical_dir(&working_dir)?);
        spec.policy.allow.extend(self.allow);
        spec.policy.ask.extend(self.ask);
        spec.policy.deny.extend(self.deny);
        self.sandbox.apply(&mut spec.sandbox)?;
        if spec.provider.is_none() && spec.script.is_some() {
            spec.provider = Some("scripted".to_owned());
        }
        spec.check()?;
        warn_weak_rules(&spec.policy);
        Ok(spec)
    }

    /// The backends without a session file: every native skill, and the executor.
    fn backends(
        &self,
        spec: &mut SessionSpec,
        host: &Host,
        global: &Global,
    ) -> Result<(), CliError> {
        if spec.backends.is_empty() {
            spec.backends.push(BackendSpec::all_native());
        }
        let loaded = host.registry().snapshot();
        let executor = match self.executor.as_deref() {
            Some(option) => named_executor(option).map(str::to_owned),
            None => loaded.get("local").map(|_| "local".to_owned()),
        };
        let mut skills: Vec<String> = Vec::new();
        for path in &self.skill {
            skills.push(path.display().to_string());
        }
        if self.config.is_none() && executor.is_some() {
            for path in super::skill::usable_skills(global, &self.skill) {
                skills.push(path.display().to_string());
            }
        }
        let Some(executor) = executor else {
            if self.skill.is_empty() {
                return Ok(());
            }
            return Err(skill_without_executor());
        };
        match spec
            .backends
            .iter_mut()
            .find(|backend| backend.kind == executor)
        {
            Some(backend) => backend.skills.get_or_insert_default().extend(skills),
            None => spec.backends.push(BackendSpec::executor(executor, skills)),
        }
        Ok(())
    }
}

/// Says of each rule that allows less than it seems to why, and names a better one.
pub(crate) fn warn_weak_rules(policy: &PolicySpec) {
    for warning in policy.warnings() {
        let warning = warning.to_string();
        output::print_note(format_args!("note: {}", output::clean(&warning)));
    }
}

/// The executor that `--executor` names; `none` is none.
pub(crate) fn named_executor(option: &str) -> Option<&str> {
    (option != "none").then_some(option)
}

fn skill_without_executor() -> CliError {
    CliError::usage("a skill folder needs an executor").hint(
        "name one with `--executor`, or put the plugin `local` into a plugin directory \
         (`conjure plugin list` shows them)",
    )
}

/// What is there for calls without a model: all native skills, and skill folders on the executor that
/// `--executor` names.
pub(crate) fn calls_spec(
    skills: &[PathBuf],
    executor: Option<&str>,
) -> Result<SessionSpec, CliError> {
    let named = executor.and_then(named_executor);
    if executor.is_some() && named.is_none() && !skills.is_empty() {
        return Err(skill_without_executor());
    }
    Ok(SessionSpec::calls(skills, named))
}

/// A directory from `/` on and without links: rules are written for it, and it is the same one
/// wherever they are read. What the person named must be there; what the host makes is the host's own
/// affair.
pub(crate) fn canonical_dir(dir: &Path) -> Result<PathBuf, CliError> {
    let error = match conjure_config::fs::is_dir(dir) {
        Ok(true) => match dir.canonicalize() {
            Ok(real) => return Ok(real),
            Err(error) => CliError::usage_from(error),
        },
        Ok(false) => CliError::usage("it is no directory"),
        Err(error) => CliError::usage_from(error),
    };
    Err(error.context(format_args!(
        "the working directory `{}` cannot be used",
        dir.display()
    )))
}

/// Where the program was started.
pub(crate) fn current_dir() -> Result<PathBuf, CliError> {
    std::env::current_dir().map_err(|error| {
        CliError::usage_from(error).context("the current directory cannot be used")
    })
}

/// A path as a person would write it: in one line, and relative to the current directory where that is
/// shorter.
pub(crate) fn display_path(path: &Path) -> String {
    let relative = std::env::current_dir().ok().and_then(|dir| {
        path.strip_prefix(dir)
            .ok()
            .filter(|p| !p.as_os_str().is_empty())
            .map(Path::to_owned)
    });
    let path = relative.as_deref().unwrap_or(path).display().to_string();
    escape_line(&path).into_owned()
}

/// A directory as a person knows it, from their home on where it is below that.
pub(crate) fn home_relative(dir: &Path) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let below = home.and_then(|home| dir.strip_prefix(home).ok().map(Path::to_owned));
    match below {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => dir.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::exit::Exit;
    use super::*;

    #[test]
    fn each_option_that_a_saved_session_says_is_refused_with_one() {
        use clap::{CommandFactory as _, Parser as _};
        #[derive(clap::Parser)]
        struct Probe {
            #[command(flatten)]
            session: SessionArgs,
        }
        let command = Probe::command();
        for id in super::super::run::SAVED {
            let arg = command.get_arguments().find(|arg| arg.get_id() == id);
            let arg = arg.unwrap();
            let option = format!("--{}", arg.get_long().unwrap());
            let value = match id {
                "wire" => "anthropic",
                "dialect" => "openai",
                "max_iterations" => "1",
                "set" => "a=b",
                "sandbox" => "none",
                _ => "work",
            };
            let takes_value = arg.get_action().takes_values();
            let words = ["probe", option.as_str()].into_iter();
            let words = words.chain(takes_value.then_some(value));
            let session = Probe::try_parse_from(words).unwrap().session;
            let refused = session.check_for_saved("work");
            if id == "working_dir" {
                assert!(refused.is_ok());
            } else {
                let words = refused.unwrap_err().to_string();
                assert!(
                    words.ends_with(&format!("cannot be used with {option}")),
                    "{words}"
                );
            }
        }
    }

    #[test]
    fn a_working_directory_that_is_not_there_is_wrong_usage() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let real = dir.path().canonicalize().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        for told in [&real, &link, &real.join("link/..")] {
            // `..` behind a link is the directory above what it leads to.
            let expected = told.canonicalize().unwrap();
            assert_eq!(canonical_dir(told).unwrap(), expected);
            assert!(expected.is_absolute());
        }
        assert_eq!(canonical_dir(&link).unwrap(), real);
        for bad in [file, dir.path().join("none")] {
            assert_eq!(canonical_dir(&bad).unwrap_err().exit, Exit::Usage);
        }
    }
}
