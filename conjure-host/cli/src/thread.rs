//! `conjure thread`: what is kept of conversations.

use clap::Subcommand;
use conjure_core::cost::{Average, ThreadCost, TurnCost};
use conjure_core::numerals::thousands;
use conjure_runtime::Host;
use conjure_store::ThreadId;

use super::args::Global;
use super::cost_text::{cause_text, dollars, money};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, Table, line, print_note};
use super::plugin_args::PluginArgs;
use super::sessions::SavedSessions;
use super::{
    thread_change, thread_check, thread_list, thread_search, thread_show, thread_transfer,
};

/// Looks at threads and changes them, without a session and without asking a model.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure thread list
  conjure thread show 0193…                         # all of it, also what is summarised
  conjure thread search payment error               # in all threads
  conjure thread cost 0193…
  conjure thread check 0193… --to openai/gpt-5      # before going on with another model
  conjure thread unfold 0193…                       # let the model read again what a summary hides
  conjure thread fork 0193… --at 12                 # another way from entry 12 on
  conjure thread export 0193… --to talk.jsonl
  conjure thread export 0193… --html talk.html      # for others to read in a browser")]
pub(crate) struct ThreadArgs {
    #[command(subcommand)]
    verb: ThreadVerb,
}

#[derive(Subcommand)]
enum ThreadVerb {
    /// List the threads, the newest first
    List(thread_list::ThreadListArgs),
    /// Search what was said in all threads
    ///
    /// By words of what people and models said, the newest first. Reasoning and results of calls
    /// are not searched, nor what was cleared.
    Search(thread_search::ThreadSearchArgs),
    /// Show what was said and done, and which of it the model reads as a summary
    Show(thread_show::ThreadShowArgs),
    /// Say what sending it to another model would change, before anything is sent
    ///
    /// Parts that would be left out or told otherwise, ids renamed, what that model cannot look at,
    /// tools that would not be offered, tokens, and whether the prompt cache is lost. Needs no key.
    Check(Box<thread_check::ThreadCheckArgs>),
    /// Show what it cost, turn by turn, and why
    ///
    /// Prices are those that `conjure models` shows, in US dollars; tokens are the provider's count.
    /// Beside the sum stands what a turn came to on average, of all turns and of the newest.
    Cost {
        /// The thread
        #[arg(value_name = "ID")]
        thread: String,
        /// How many of the newest turns the second average is of
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
        last: u32,
    },
    /// Begin another thread behind an entry of this one; both go on for themselves
    ///
    /// Nothing is copied. The fork keeps what it shows when the other is cleared.
    Fork(thread_change::ForkThreadArgs),
    /// Give it a name; the names before are kept as its history
    Rename(thread_change::Rename),
    /// Delete what it holds for good, except for what its forks show; its id stays
    Clear(thread_change::Clear),
    /// Write it as JSON lines, one record a line, as HTML to be read, or as a cassette to be replayed
    Export(Box<thread_transfer::Export>),
    /// Read a thread that was exported
    Import(thread_transfer::ImportThreadArgs),
    /// Put a summary in place of its older part, as far as the model reads it
    ///
    /// Written by the model of the session that goes on with the thread. Nothing is deleted, and
    /// `unfold` takes it back.
    Compact {
        /// The thread
        #[arg(value_name = "ID")]
        thread: String,
        /// The session whose model writes it [default: one that goes on with the thread]
        #[arg(long, value_name = "NAME")]
        session: Option<String>,
        #[command(flatten)]
        plugins: PluginArgs,
    },
    /// Let the model read again what a compaction hides
    ///
    /// Compactions are named by their entry; `conjure thread show` tells them. Nothing was deleted
    /// by them. It holds until you ask for another one, or the provider refuses the conversation as
    /// too long.
    Unfold {
        /// The thread
        #[arg(value_name = "ID")]
        thread: String,
        /// The compaction [default: the one that stands]
        #[arg(value_name = "ENTRY")]
        fold: Option<u64>,
    },
}

pub(crate) async fn run(global: &Global, args: ThreadArgs) -> Result<Exit, CliError> {
    match args.verb {
        ThreadVerb::List(args) => thread_list::run(global, &args).await,
        ThreadVerb::Search(args) => thread_search::run(global, &args).await,
        ThreadVerb::Fork(args) => thread_change::fork(global, &args).await,
        ThreadVerb::Rename(args) => thread_change::rename(global, &args).await,
        ThreadVerb::Clear(args) => thread_change::clear(global, &args).await,
        ThreadVerb::Export(args) => thread_transfer::export(global, *args).await,
        ThreadVerb::Import(args) => thread_transfer::import(global, &args).await,
        ThreadVerb::Show(args) => {
            let host = store_host(global).await?;
            thread_show::run(global, &host, &args).await
        }
        ThreadVerb::Check(args) => thread_check::run(global, *args).await,
        ThreadVerb::Cost { thread, last } => {
            let host = store_host(global).await?;
            let cost = host.cost(&id(&thread)?).await?;
            let last = usize::try_from(last).unwrap_or(usize::MAX);
            let averages = [cost.average(usize::MAX), cost.average(last)];
            if global.json {
                let [all, newest] = averages;
                let mut shown = serde_json::to_value(&cost).unwrap_or_default();
                if let Some(shown) = shown.as_object_mut() {
                    let average = serde_json::json!({ "all": all, "newest": newest });
                    shown.insert("average".to_owned(), average);
                }
                output::json(&shown);
            } else {
                print(&cost);
                let [all, newest] = &averages;
                average(all);
                // Of the same turns it is the same.
                if newest.turns != all.turns {
                    average(newest);
                }
            }
            Ok(Exit::Success)
        }
        ThreadVerb::Compact {
            thread,
            session,
            plugins,
        } => {
            let sessions = SavedSessions::with_plugins(global, &plugins).await?;
            let manager = sessions.manager();
            let compacted = manager.compact(&id(&thread)?, session.as_deref()).await;
            sessions.close().await;
            let (fold, tokens) = compacted?;
            if global.json {
                output::json(&serde_json::json!({ "compacted": fold, "tokens": tokens }));
            } else {
                print_note(super::chat_commands::describe_compaction((fold, tokens)));
            }
            Ok(Exit::Success)
        }
        ThreadVerb::Unfold { thread, fold } => {
            let sessions = SavedSessions::open(global).await?;
            let unfolded = sessions.manager().unfold(&id(&thread)?, fold).await;
            sessions.close().await;
            let (fold, tokens) = unfolded?;
            if global.json {
                output::json(&serde_json::json!({ "unfolded": fold, "tokens": tokens }));
            } else {
                print_note(format_args!(
                    "Compaction {fold} is taken back: the next request has about {} tokens of this \
                     conversation.",
                    thousands(tokens)
                ));
            }
            Ok(Exit::Success)
        }
    }
}

/// A host that has the threads and nothing else.
pub(crate) async fn store_host(global: &Global) -> Result<Host, CliError> {
    let builder = Host::builder().data_dir(global.data_dir());
    Ok(builder.log(global.store().await?).build().await?)
}

pub(crate) fn id(text: &str) -> Result<ThreadId, CliError> {
    ThreadId::parse(text).map_err(CliError::from)
}

fn print(cost: &ThreadCost) {
    let mut table = Table::new([
        "TURN", "REPLIES", "INPUT", "CACHED", "WRITTEN", "OUTPUT", "COST",
    ]);
    let mut row = |name: String, cost: &TurnCost| {
        let usage = &cost.cost.usage;
        table.row([
            name,
            cost.replies.to_string(),
            thousands(usage.input),
            thousands(usage.cache_read),
            thousands(usage.cache_write),
            thousands(usage.output),
            money(&cost.cost).unwrap_or_else(|| "-".to_owned()),
        ]);
    };
    for turn in &cost.turns {
        row(turn.turn.to_string(), turn);
    }
    row("all".to_owned(), &cost.total);
    table.print();
    for turn in &cost.turns {
        for cause in &turn.causes {
            line(format_args!("turn {}: {}", turn.turn, cause_text(cause)));
        }
    }
    if cost.total.cost.unpriced_tokens > 0 {
        print_note(
            "Some prices are not known: `models.toml` in the data directory can say them, as \
             `[PROVIDER.\"MODEL\"]` with `price = { input = …, output = … }`.",
        );
    }
}

/// Says what a turn came to.
fn average(of: &Average) {
    let turns = match of.turns {
        0 => return,
        1 => "the newest turn".to_owned(),
        turns => format!("{turns} turns"),
    };
    let money = match of.usd {
        usd if usd > 0.0 => format!(", {}", dollars(usd)),
        _ => String::new(),
    };
    line(format_args!(
        "on average of {turns}: {} tokens a turn{money}",
        thousands(of.tokens)
    ));
}
