//! The host under test: a program that embeds a `Manager` on a database and says every event that
//! its followers get. It is killed from outside, and knows nothing of that.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use conjure_core::chat::{EventId, Message};
use conjure_host::Host;
use conjure_host::auths::{Auths, KeySources};
use conjure_host::manager::{Manager, ManagerOptions, NewSession};
use conjure_host::store::{Location, Options as StoreOptions, Store, ThreadId};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::protocol::{HostReport, Order};

/// The key of saved auths in tests.
pub(crate) const KEY: &str = "0101010101010101010101010101010101010101010101010101010101010101";

/// Data, database and plugins of the host.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The directory of the host's data
    #[arg(long)]
    data_dir: PathBuf,
    /// The database of the host: a file or a URL
    #[arg(long)]
    database: String,
    /// A directory of plugins
    #[arg(long)]
    plugins: PathBuf,
}

/// Runs it until its input ends.
///
/// # Errors
/// When it cannot start.
pub fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(work(args))
}

/// Saved auths over a store, with a key that every host of a test has.
pub(crate) fn auths(store: &Store, data_dir: &Path) -> Auths {
    let keys = KeySources {
        key: Some(KEY.to_owned().into()),
        ..KeySources::new(data_dir)
    };
    Auths::over(store.clone(), keys)
}

async fn work(args: &Args) -> Result<()> {
    let store = Store::open(&Location::parse(&args.database)?, &StoreOptions::default()).await?;
    let host = Host::builder()
        .data_dir(&args.data_dir)
        .plugin_dir(&args.plugins)
        .log(store.clone())
        .auths(auths(&store, &args.data_dir))
        .build()
        .await?;
    let manager = Manager::start(host, store, ManagerOptions::default()).await?;
    print_report(&HostReport::Ready);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let order: Order = serde_json::from_str(&line)?;
        let manager = manager.clone();
        tokio::spawn(async move {
            if let Err(error) = execute(&manager, order).await {
                print_report(&HostReport::Wrong {
                    error: format!("{error:#}"),
                });
            }
        });
    }
    manager.shutdown(Duration::from_secs(20)).await;
    manager.store().close().await;
    Ok(())
}

async fn execute(manager: &Manager, order: Order) -> Result<()> {
    match order {
        Order::Create { session } => create(manager, *session).await,
        Order::Follow { thread, after } => follow(manager, thread, after).await,
        Order::Say {
            session,
            turn,
            text,
        } => {
            let turn = manager
                .say(&session, Message::user(text), Some(turn))
                .await?;
            print_report(&HostReport::Accepted {
                turn: turn.id.clone(),
            });
            let run = manager.wait(&turn.id).await?;
            print_report(&HostReport::Over {
                turn: run.id,
                state: run.state.as_str().to_owned(),
                error: run.error,
            });
            Ok(())
        }
    }
}

async fn create(manager: &Manager, session: NewSession) -> Result<()> {
    let view = manager.create(session).await?;
    if let Some(thread) = view.thread {
        print_report(&HostReport::Created {
            session: view.id,
            thread: thread.id,
        });
    }
    Ok(())
}

async fn follow(manager: &Manager, thread: ThreadId, after: Option<EventId>) -> Result<()> {
    let mut events = manager.events(&thread, after).await?;
    while let Some(stamped) = events.next().await? {
        print_report(&HostReport::Event {
            thread: thread.clone(),
            id: stamped.id,
            event: serde_json::to_value(&stamped.event)?,
        });
    }
    Ok(())
}

/// A line, whole or not at all unless the process ends meanwhile. Without a reader there is
/// nobody to tell.
fn print_report(said: &HostReport) {
    if let Ok(mut line) = serde_json::to_vec(said) {
        line.push(b'\n');
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
    }
}
