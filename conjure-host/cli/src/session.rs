//! `conjure session`: sessions that are saved, and what goes on in them.

use clap::Subcommand;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::plugin_args::PluginArgs;
use super::sessions::SavedSessions;
use super::{
    drawn_turn, session_change, session_memory, session_prompts, session_show, session_turns,
    terminal_support,
};

/// Keeps sessions: which saved auth, model, working directory, persona, memory, tools and MCP
/// servers a conversation has, and with which thread it goes on.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure session create work --auth anthropic-key --model claude-sonnet-4-5
  conjure run --session work \"What is in this directory?\"
  conjure session set work --auth openai-key --model gpt-5      # another vendor, the same chat
  conjure session fork work --at 12                             # another way from entry 12 on
  conjure session new-chat work
  conjure session show work")]
pub(crate) struct SessionCommandArgs {
    #[command(subcommand)]
    verb: SessionVerb,
}

#[derive(Subcommand)]
enum SessionVerb {
    /// Save a session
    Create(Box<session_change::CreateSessionArgs>),
    /// List the sessions, the oldest first
    List,
    /// Show a session: its settings, its thread, and what goes on
    Show {
        /// The session: its name or its id
        session: String,
    },
    /// Change a session; what is not named stays
    ///
    /// While a turn runs, a change holds from the next turn on, or with `--now` at once: the stream
    /// is stopped, what came is kept, and the model is asked again with the new settings.
    Set(Box<session_change::Set>),
    /// Show what it remembers, or change that: show, set, edit, clear
    Memory(session_memory::SessionMemoryArgs),
    /// Say what a change of auth and model would change about the next request, and send nothing
    Check(session_change::CheckSessionArgs),
    /// Go on with a fresh thread; the one before stays
    NewChat {
        /// The session: its name or its id
        session: String,
    },
    /// Go on with a thread that there is
    Use {
        /// The session: its name or its id
        session: String,
        /// The thread
        #[arg(value_name = "ID")]
        thread: String,
    },
    /// Go on with a fork of a thread; both branches stay
    Fork(session_change::ForkSessionArgs),
    /// Show the tools that its next request would have
    Tools {
        /// The session: its name or its id
        session: String,
        #[command(flatten)]
        plugins: PluginArgs,
    },
    /// Show what goes on in it, until the turn that runs is over
    ///
    /// Begins with what that turn has shown so far, whoever runs it. At a terminal, what waits for a
    /// person is asked; Ctrl-C ends the look and not the turn.
    Follow {
        /// The session: its name or its id
        session: String,
    },
    /// End the turn that runs in it, whoever runs it; what came so far is kept
    Cancel(session_prompts::CancelArgs),
    /// List the calls and questions in it that wait for a person
    Waiting {
        /// The session: its name or its id
        session: String,
    },
    /// Let a call run that waits for a person
    Approve(session_prompts::Approve),
    /// Do not let a call run that waits for a person
    Deny(session_prompts::Deny),
    /// Answer a question of a plugin or a server
    Answer(session_prompts::AnswerArgs),
    /// List its newest turns, with what they came to
    Turns {
        /// The session: its name or its id
        session: String,
        /// The most turns that are listed
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
        limit: u64,
    },
    /// Delete a session; its threads stay, unless `--with-chat` is said
    Delete(session_change::Delete),
}

pub(crate) async fn run(global: &Global, args: SessionCommandArgs) -> Result<Exit, CliError> {
    let sessions = match &args.verb {
        SessionVerb::Check(session_change::CheckSessionArgs { plugins, .. })
        | SessionVerb::Tools { plugins, .. } => {
            SavedSessions::with_plugins(global, plugins).await?
        }
        _ => SavedSessions::open(global).await?,
    };
    let done = match args.verb {
        SessionVerb::Create(args) => session_change::create(global, &sessions, *args).await,
        SessionVerb::List => session_show::list(global, &sessions).await,
        SessionVerb::Show { session } => session_show::show(global, &sessions, &session).await,
        SessionVerb::Set(args) => session_change::set(global, &sessions, *args).await,
        SessionVerb::Memory(args) => session_memory::run(global, &sessions, args).await,
        SessionVerb::Check(args) => session_change::check(global, &sessions, &args).await,
        SessionVerb::NewChat { session } => {
            session_change::new_chat(global, &sessions, &session).await
        }
        SessionVerb::Use { session, thread } => {
            session_change::choose(global, &sessions, &session, &thread).await
        }
        SessionVerb::Fork(args) => session_change::fork(global, &sessions, &args).await,
        SessionVerb::Tools { session, .. } => {
            session_show::tools(global, &sessions, &session).await
        }
        SessionVerb::Follow { session } => {
            let _drawn = drawn_turn::begin(global.json, terminal_support::has_colors());
            super::session_run::follow(global, &sessions, &session).await
        }
        SessionVerb::Cancel(args) => session_prompts::cancel(global, &sessions, &args).await,
        SessionVerb::Waiting { session } => {
            session_prompts::list(global, &sessions, &session).await
        }
        SessionVerb::Approve(args) => session_prompts::approve(global, &sessions, args).await,
        SessionVerb::Deny(args) => session_prompts::deny(global, &sessions, args).await,
        SessionVerb::Answer(args) => session_prompts::answer(global, &sessions, args).await,
        SessionVerb::Turns { session, limit } => {
            session_turns::run(global, &sessions, &session, limit).await
        }
        SessionVerb::Delete(args) => session_change::delete(global, &sessions, &args).await,
    };
    sessions.close().await;
    done
}
