//! The program `conjure`: what is asked, by which verb, and how it ends.
//!
//! One verb a file. A verb parses, calls the crates below, and prints; it decides nothing that an
//! embedding program could not do too. A face: nothing depends on this crate. Begin at the verb's
//! file; `args.rs` has the options that verbs share, `output.rs` is the only place that prints,
//! `error.rs` is what a verb fails with and how each error ends the program.

mod acp;
mod acp_commands;
mod announced_server;
mod answer_end;
mod args;
mod attachments;
mod auth;
mod call;
mod chat;
mod chat_answers;
mod chat_commands;
mod chat_face;
mod chat_following;
mod chat_mentions;
mod chat_messages;
mod chat_models;
mod chat_opening;
mod chat_others;
mod chat_picking;
mod chat_rules;
mod chat_session;
mod chat_shell;
mod chat_status;
mod chat_threads;
mod chat_turn;
mod completions;
mod cost_text;
mod db;
mod db_import_maestro;
mod deferred_args;
mod diagnosis;
mod docker;
mod doctor;
mod drawn_turn;
mod early_options;
mod entry_at;
mod error;
mod exit;
mod files;
mod files_remote;
mod line_difference;
mod man;
mod mcp;
mod mcp_check;
mod mcp_held;
mod mcp_import;
mod mcp_list;
mod mcp_login;
mod mcp_serve;
mod mcp_servers;
mod models;
mod open_prompts;
mod output;
mod overwritten;
mod past_turns;
mod person;
mod persona;
mod plugin;
mod plugin_args;
mod plugin_check;
mod plugin_crate;
mod plugin_create;
mod plugin_create_python;
mod plugin_dev;
mod plugin_fetch;
mod plugin_fetch_report;
mod plugin_install;
mod plugin_pack;
mod plugin_package;
mod plugin_sdk;
mod plugin_skill;
mod plugin_skill_contents;
mod plugin_test;
mod plugin_test_process;
mod plugin_trial;
mod plugin_trust;
mod plugin_upgrade;
mod policy;
mod policy_check;
#[cfg(all(test, target_os = "linux"))]
mod reference;
#[cfg(test)]
mod refused_options;
mod remote;
mod replay;
mod routes;
mod run;
mod sandbox_args;
mod schema;
mod secret;
mod serve;
mod serve_demo;
mod server_item;
mod session;
mod session_change;
mod session_chat;
mod session_follower;
mod session_memory;
mod session_prompts;
mod session_run;
mod session_show;
mod session_turns;
mod sessions;
mod shorten;
mod signals;
mod skill;
mod skill_remote;
mod skill_trust;
mod table;
mod telemetry;
mod terminal_support;
mod thread;
mod thread_change;
mod thread_check;
mod thread_directories;
mod thread_feed;
mod thread_list;
mod thread_search;
mod thread_show;
mod thread_transfer;
mod tokens;
mod transcript;
mod wire;
mod wire_decode;
mod wire_encode;
mod wire_explain;

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use args::Global;
use deferred_args::DeferredArgs;
use error::CliError;
use exit::Exit;

/// A server frees what sessions needed, little by little and from many threads. glibc's allocator
/// keeps that in holes which nothing fits into, so that the process grows for days.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A host for AI agents: one conversation, tools from many backends.
#[derive(Parser)]
#[command(
    name = "conjure",
    version,
    about = ABOUT,
    long_about = LONG,
    after_long_help = AFTER,
    propagate_version = true,
    max_term_width = 100
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: CliVerb,
}

const ABOUT: &str = "A host for AI agents: one conversation, tools from many backends";

const LONG: &str = "A host for AI agents.

One session holds one conversation with a model and gives it tools from several backends at once: \
native skills (shared libraries loaded at run time), the local shell, and whatever other plugins \
bring. The model sees one list of tools; a routing table finds who runs each call.";

const AFTER: &str = "Exit codes:
  0    it worked
  1    it was done and the answer is no: a call failed, a skill is not valid, a plugin is refused
  2    wrong usage, or a session file that is not right
  3    the provider failed; the history is kept
  4    a limit ended the turn; the history is kept
  5    something of the host's own failed, such as the disk
  130  interrupted
  143  ended by SIGTERM

Environment:
  CONJURE_PLUGIN_PATH  directories to look for plugins in, separated like PATH
  CONJURE_ISOLATION    `in-process`: plugins run in the host's process; without it, in their own
  CONJURE_DATA_DIR     where threads, copies of plugins and their values are kept
                       [default: $XDG_DATA_HOME/conjure]
  CONJURE_DATABASE     where threads and what is saved are: an SQLite file, or postgres://…
                       [default: conjure.db in the data directory]
  CONJURE_KEY          the key that saved auths are encrypted with: 32 bytes in base64 or hex; while
                       it is replaced, CONJURE_OLD_KEY is the one before
  CONJURE_KEY_FILE     the file of that key [default: the keyring, else vault.key in the data
                       directory]
  CONJURE_LOG          what is logged to stderr, such as `debug` or `plugin=info` [default: warn]
  CONJURE_LOG_FORMAT   `json` for logs as JSON lines
  OTEL_EXPORTER_OTLP_ENDPOINT
                       where traces are sent (OTLP over HTTP); none are made without it
  CONJURE_TOKEN        the token that lets clients of `conjure serve` in
  CONJURE_SECRET_NAME  the secret NAME, for plugins whose manifest names it
  ANTHROPIC_API_KEY    the key for the provider `anthropic`; so for the others: OPENAI_API_KEY,
                       GEMINI_API_KEY (or GOOGLE_API_KEY), DEEPSEEK_API_KEY, MISTRAL_API_KEY,
                       OPENROUTER_API_KEY, LLAMACPP_API_KEY, OLLAMA_API_KEY,
                       OPENAI_COMPATIBLE_API_KEY
  ANTHROPIC_BASE_URL   where it is, when not at its usual place; so for the others
  HTTPS_PROXY          the proxy for requests to providers; also HTTP_PROXY, ALL_PROXY, NO_PROXY
  NO_COLOR             no colours
  CONJURE_SCREEN_READER
                       a chat or a run on a terminal prints line by line, and redraws nothing
  CONJURE_IMAGES       how a chat shows images: kitty, iterm2 or off; else as the terminal says
                       itself
  VISUAL, EDITOR       the editor that Ctrl-G gives a message to

Pages that texts name, such as conjure-host/docs/sessions.md, are in the folder of the archive, and of
the Debian package below /usr/share/doc/conjure";

#[derive(Subcommand)]
enum CliVerb {
    /// Ask one question and print the answer
    ///
    /// Runs the calls that the model asks for. The answer goes to stdout, what happens on the way to
    /// stderr. A call that does more than read asks first on a terminal; where nobody is there it is
    /// denied, unless `--allow` lets it run.
    Run(DeferredArgs<run::RunArgs>),
    /// Hold a conversation
    ///
    /// Each line is a message. Ctrl-C ends a turn that runs, Ctrl-D the conversation. What a plugin
    /// directory gains or loses meanwhile is there in the next step. Lines that begin with a slash
    /// are for the host: `/tools` shows the routing table, `/files` the files made so far,
    /// `/model PROVIDER/MODEL` goes on with another model, `/help` tells the others.
    Chat(DeferredArgs<chat::ChatArgs>),
    /// Call one tool, without a model
    ///
    /// Native skills are always there; with `--executor` there are its command tools too, for the
    /// skill folders named with `--skill`. Whoever types the call has decided about it: no policy is
    /// asked.
    Call(DeferredArgs<call::CallArgs>),
    /// Show the routing table: which tool is run by whom
    ///
    /// Shows public name, backend, skill, plugin and version, mode, and what each definition costs
    /// in tokens. Asks no model.
    Routes(DeferredArgs<routes::RoutesArgs>),
    /// List plugins, show or check one, create one
    Plugin(DeferredArgs<plugin::PluginCommandArgs>),
    /// List skill folders, show, check and upload them
    ///
    /// A skill folder is a directory with a `SKILL.md` (the Agent Skills standard). Those of the
    /// current project (`.conjure/skills`, `.agents/skills`, `.claude/skills`) are used after the
    /// project was trusted; those below the home directory always.
    Skill(DeferredArgs<skill::SkillArgs>),
    /// Serve tools to MCP clients, and look after MCP servers: list, check, import, log in
    Mcp(DeferredArgs<mcp::McpArgs>),
    /// Serve an editor that speaks the Agent Client Protocol, such as Zed
    ///
    /// Over standard input and output. Each conversation of the editor is a saved session: `conjure
    /// chat --session` and the page go on with it. It ends when the editor closes its end.
    Acp(DeferredArgs<acp::AcpArgs>),
    /// Build the image that the container backend works in
    Docker(DeferredArgs<docker::DockerArgs>),
    /// Say what works on this machine, what does not, and what to do about it
    ///
    /// Looks at the database, keys, sessions, plugins, container engines and MCP servers. Exit code
    /// 1 when something does not work.
    Doctor(DeferredArgs<doctor::DoctorArgs>),
    /// List models: what the providers offer, context sizes, prices
    ///
    /// Asks each provider for its list; context sizes and prices come from a data file, over which
    /// `models.toml` in the data directory wins.
    Models(DeferredArgs<models::ModelsArgs>),
    /// Keep sessions: auth, model, directory, persona, memory, tools, and the thread they go on with
    ///
    /// `conjure run --session NAME` and `conjure chat --session NAME` go on with one.
    Session(DeferredArgs<session::SessionCommandArgs>),
    /// Keep personas: who the model is to be, under a name that sessions choose
    Persona(DeferredArgs<persona::PersonaArgs>),
    /// Look at threads and change them: list, show, cost, fork, rename, clear, export, import
    ///
    /// A thread is a conversation that is kept; `conjure run` and `conjure chat` name it, and
    /// `--thread ID` goes on with it.
    Thread(DeferredArgs<thread::ThreadArgs>),
    /// Serve the page and the HTTP API
    ///
    /// Listens on this machine, at 127.0.0.1:7420, unless told otherwise. Every client needs a token,
    /// also on this machine, where other users are: that of the user who serves is made at the first
    /// start. SIGTERM and Ctrl-C end it: turns and requests that run come to their end first, as long
    /// as `--grace` allows.
    Serve(DeferredArgs<serve::ServeArgs>),
    /// Look after the database: check, back up, export, import, roll back
    Db(DeferredArgs<db::DbArgs>),
    /// List the files of a thread, or save copies of them
    ///
    /// Every file that a call made is listed with the backend that made it, wherever it is.
    Files(DeferredArgs<files::FilesArgs>),
    /// Decode a provider's reply, or encode a request, to debug a wire
    ///
    /// Turns what a provider sent into the canonical form, and a conversation into what a provider
    /// would get. Opens no connection and needs no key.
    Wire(DeferredArgs<wire::WireArgs>),
    /// Save credentials under names that sessions use, and check them
    ///
    /// A saved auth is encrypted; nothing prints its secret. `--auth NAME` or `auth = "NAME"` in a
    /// session file uses it.
    Auth(DeferredArgs<auth::AuthArgs>),
    /// Say which calls could ask a person, before anything runs
    Policy(DeferredArgs<policy::PolicyArgs>),
    /// Run a recorded thread again, offline, and name the first thing that is otherwise
    Replay(DeferredArgs<replay::ReplayArgs>),
    /// Print the JSON Schema of what `--json` prints
    Schema(DeferredArgs<schema::SchemaArgs>),
    /// Print completions for a shell
    ///
    /// For bash: `source <(conjure completions bash)`.
    Completions(DeferredArgs<completions::CompletionsArgs>),
    /// Write man pages into a directory, one for each verb
    Man(DeferredArgs<man::ManArgs>),
}

/// Parses the command line and does what it says.
fn main() {
    plugin_args::become_worker();
    let exit = run();
    // Not `ExitCode`: a library that hangs while it is opened would keep the process for ever.
    conjure_plugins::end_process(exit.code())
}

fn run() -> Exit {
    let read = Cli::read();
    // Before anything else, while there is one thread: what is started must find no key.
    let tokens = read.as_ref().map_or(&[][..], Cli::token_variables);
    conjure_config::env::take_secrets_with(tokens);
    let cli = match read {
        Ok(cli) => cli,
        Err(error) => return report_parse_error(&error, std::env::args_os()),
    };
    let telemetry = crate::telemetry::start();
    // Before a key is read: commands of the model run as the same user.
    conjure_config::platform::deny_inspection();
    let json = cli.global.json;
    let done = cli.run();
    telemetry.end();
    // A result that is lost is no success.
    let done = match (done, output::finish()) {
        (Ok(Exit::Success), Some(lost)) => Err(lost),
        (done, _) => done,
    };
    match done {
        Ok(exit) => exit,
        Err(error) => {
            if !error.is_shown {
                output::error(&error, json);
            }
            error.exit
        }
    }
}

/// Ends where the command line asks for help or cannot be read. Programs that ask for JSON are told of an
/// error as of every other one.
fn report_parse_error(error: &clap::Error, words: impl IntoIterator<Item = OsString>) -> Exit {
    let text = error.render().to_string();
    match output::clean(&text) {
        // It shows words of the command line, which may come from elsewhere.
        cleaned if cleaned != text => output::print_note(cleaned.trim_end()),
        // Clap prints help and version to stdout and errors to stderr, and knows both codes.
        _ if error.use_stderr() => drop(error.print()),
        _ => output::record_write(error.print()),
    }
    if !error.use_stderr() {
        return match output::finish() {
            Some(lost) => {
                output::error(&lost, false);
                lost.exit
            }
            None => Exit::Success,
        };
    }
    if asks_for_json(words) {
        output::error_line(&CliError::usage(clap_message(error)));
    }
    Exit::Usage
}

/// Whether `--json` is among the options. What stands behind `--` is none.
fn asks_for_json(words: impl IntoIterator<Item = OsString>) -> bool {
    let mut options = words.into_iter().take_while(|word| word != "--");
    options.any(|word| word == "--json")
}

/// What clap says is wrong, without how the verb is used.
fn clap_message(error: &clap::Error) -> String {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "something is missing on the command line; `--help` says what".to_owned();
    }
    let text = error.render().to_string();
    let what = text.split("\n\n").next().unwrap_or_default().trim();
    let what = what.strip_prefix("error:").unwrap_or(what).trim();
    what.to_owned()
}

/// The words of the command line; on a terminal, `conjure` alone is a chat, and so is what goes on
/// with one. Options of every verb may stand before.
fn with_default_verb(mut words: Vec<OsString>) -> Vec<OsString> {
    let at = verb_index(&words);
    let is_chat = match words.get(at) {
        None => words.len() == at && terminal_support::has_terminal(),
        Some(word) => {
            let word = word.to_string_lossy();
            word == "--continue" || word == "--resume" || word.starts_with("--resume=")
        }
    };
    if is_chat {
        words.insert(at, "chat".into());
    }
    words
}

/// Where the first word stands that is neither an option of every verb nor the value of one.
fn verb_index(words: &[OsString]) -> usize {
    let mut at = 1;
    let mut program = None;
    while let Some(word) = words.get(at) {
        let word = word.to_string_lossy();
        let Some(option) = word.strip_prefix("--") else {
            break;
        };
        let (name, has_value) = match option.split_once('=') {
            Some((name, _)) => (name, true),
            None => (option, false),
        };
        let program = program.get_or_insert_with(Cli::command);
        let Some(known) = program
            .get_arguments()
            .find(|known| known.get_long() == Some(name))
        else {
            break;
        };
        let is_value_next = known.get_action().takes_values() && !has_value;
        at += if is_value_next { 2 } else { 1 };
    }
    at
}

impl Cli {
    fn read() -> Result<Self, clap::Error> {
        let matches = Self::command()
            .try_get_matches_from(with_default_verb(std::env::args_os().collect()))?;
        early_options::check(Self::command, &matches)?;
        Self::from_arg_matches(&matches)
    }

    /// The variables that the verb is told hold tokens.
    fn token_variables(&self) -> &[String] {
        match &self.verb {
            CliVerb::Serve(args) => args.0.token_variables(),
            CliVerb::Mcp(args) => args.0.token_variables(),
            _ => &[],
        }
    }

    fn run(self) -> Result<Exit, CliError> {
        let Self { global, verb } = self;
        if !matches!(
            verb,
            CliVerb::Completions(_) | CliVerb::Man(_) | CliVerb::Schema(_) | CliVerb::Wire(_)
        ) {
            conjure_config::platform::check_own_dir(&global.data_dir())
                .map_err(CliError::usage_from)?;
        }
        match verb {
            CliVerb::Completions(args) => Ok(completions::run(&args.0, &mut Self::command())),
            CliVerb::Man(args) => man::run(&args.0, Self::command()),
            CliVerb::Schema(args) => schema::run(&global, &args.0),
            CliVerb::Skill(args) => skill::run(&global, &args.0),
            CliVerb::Wire(args) => wire::run(args.0),
            CliVerb::Replay(args) => replay::run(&global, &args.0),
            CliVerb::Docker(args) => docker::run(&global, &args.0),
            CliVerb::Mcp(args) if args.0.needs_no_host() => mcp::run_without_host(&global, &args.0),
            CliVerb::Plugin(args) if args.0.needs_no_host() => {
                plugin::run_without_host(&global, &args.0)
            }
            verb => {
                let mut runtime = tokio::runtime::Builder::new_multi_thread();
                if let CliVerb::Mcp(args) = &verb
                    && args.0.has_one_client()
                {
                    // Work for one client is handed on more slowly than it is done.
                    runtime.worker_threads(1);
                }
                let runtime = runtime
                    .enable_all()
                    .build()
                    .map_err(|error| CliError::host_from(error).context("no runtime"))?;
                let done = runtime.block_on(async {
                    match verb {
                        CliVerb::Run(args) => run::run(&global, args.0).await,
                        CliVerb::Chat(args) => chat::run(&global, args.0).await,
                        CliVerb::Call(args) => Box::pin(call::run(&global, args.0)).await,
                        CliVerb::Routes(args) => routes::run(&global, args.0).await,
                        CliVerb::Doctor(args) => Box::pin(doctor::run(&global, args.0)).await,
                        CliVerb::Session(args) => Box::pin(session::run(&global, args.0)).await,
                        CliVerb::Persona(args) => persona::run(&global, args.0).await,
                        CliVerb::Thread(args) => thread::run(&global, args.0).await,
                        CliVerb::Serve(args) => Box::pin(serve::run(&global, args.0)).await,
                        CliVerb::Db(args) => db::run(&global, args.0).await,
                        CliVerb::Files(args) => files::run(&global, args.0).await,
                        CliVerb::Auth(args) => auth::run(&global, args.0).await,
                        CliVerb::Policy(args) => policy::run(&global, args.0).await,
                        CliVerb::Models(args) => models::run(&global, args.0).await,
                        CliVerb::Plugin(args) => plugin::run(&global, args.0).await,
                        CliVerb::Mcp(args) => mcp::run(&global, args.0).await,
                        CliVerb::Acp(args) => Box::pin(acp::run(&global, args.0)).await,
                        CliVerb::Skill(_)
                        | CliVerb::Wire(_)
                        | CliVerb::Replay(_)
                        | CliVerb::Docker(_)
                        | CliVerb::Man(_)
                        | CliVerb::Schema(_)
                        | CliVerb::Completions(_) => Ok(Exit::Success),
                    }
                });
                // A plugin's thread that hangs must not keep the program.
                runtime.shutdown_background();
                done
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_command_line_is_told_in_json_where_that_is_asked_for() {
        let words = |text: &str| {
            let words = text.split(' ').map(OsString::from);
            words.collect::<Vec<_>>()
        };
        assert!(asks_for_json(words("conjure run --nonsense --json Hi")));
        assert!(!asks_for_json(words("conjure run --nonsense -- --json")));
        let matches =
            Cli::command().try_get_matches_from(words("conjure run --nonsense --json Hi"));
        assert_eq!(
            clap_message(&matches.unwrap_err()),
            "unexpected argument '--nonsense' found"
        );
    }

    #[test]
    fn what_goes_on_with_a_chat_is_one_also_behind_options_of_every_verb() {
        for (given, wanted) in [
            ("--continue", "chat --continue"),
            ("--resume=x", "chat --resume=x"),
            ("--data-dir D --continue", "--data-dir D chat --continue"),
            ("--data-dir=D --resume x", "--data-dir=D chat --resume x"),
            (
                "--plugin-dir P --json --data-dir D --continue",
                "--plugin-dir P --json --data-dir D chat --continue",
            ),
            // The value of an option is none itself.
            ("--data-dir --continue run", "--data-dir --continue run"),
            ("--data-dir", "--data-dir"),
            ("--data-dir D run --continue", "--data-dir D run --continue"),
            ("--data-dir D --help", "--data-dir D --help"),
            ("--nonsense --continue", "--nonsense --continue"),
        ] {
            let all = |text: &str| {
                let words = text.split(' ').map(OsString::from);
                std::iter::once(OsString::from("conjure"))
                    .chain(words)
                    .collect()
            };
            let wanted: Vec<OsString> = all(wanted);
            assert_eq!(with_default_verb(all(given)), wanted, "{given}");
        }
    }
}
