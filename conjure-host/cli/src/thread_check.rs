//! `conjure thread check`: what another model would get of a thread, told before anything is sent.

use conjure_core::switch::describe;
use conjure_providers::ModelBook;
use serde_json::json;

use super::args::{Global, SessionArgs};
use super::chat_commands::split_provider_model;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, clean, line};
use super::thread::id;

/// Says what a switch would change.
#[derive(clap::Args)]
pub(crate) struct ThreadCheckArgs {
    /// The thread
    #[arg(value_name = "ID")]
    thread: String,
    /// The provider and its model
    #[arg(long, value_name = "PROVIDER/MODEL")]
    to: String,
    #[command(flatten)]
    session: SessionArgs,
}

/// Options of a session that say nothing about what a model would get.
const OF_A_TURN: [&str; 3] = ["--provider", "--model", "--max-iterations"];

pub(crate) async fn run(global: &Global, args: ThreadCheckArgs) -> Result<Exit, CliError> {
    let Some((provider, model)) = split_provider_model(&args.to) else {
        let what = format!("`--to {}` does not name a provider and its model", args.to);
        return Err(
            CliError::usage(what).hint("write `--to PROVIDER/MODEL`, such as `--to openai/gpt-5`")
        );
    };
    let is_unused = |option: &str| OF_A_TURN.contains(&option);
    let why = "`--to` names the provider and the model, and no turn runs";
    args.session.check_unused(is_unused, why)?;
    let host = args
        .session
        .plugins
        .named_host(global)?
        .log(global.store().await?)
        .build()
        .await?;
    let mut spec = args.session.spec(&host, global).await?;
    spec.provider = Some(provider.to_owned());
    spec.model = Some(model.to_owned());
    let report = host.check(spec, &id(&args.thread)?).await?;
    if global.json {
        output::json(&json!({ "provider": provider, "model": model, "report": report }));
        return Ok(Exit::Success);
    }
    let book = ModelBook::read(&global.data_dir()).map_err(CliError::usage_from)?;
    let window = book.facts(provider, model).and_then(|facts| facts.context);
    line(format_args!("What {} would get:", clean(&args.to)));
    for said in describe(&report, window) {
        line(format_args!("  {}", clean(&said)));
    }
    Ok(Exit::Success)
}
