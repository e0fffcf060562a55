//! `conjure models`: what the providers offer, and what is known of it.

use std::path::PathBuf;

use conjure_config::AuthRef;
use conjure_config::SessionSpec;
use conjure_providers::{HttpProvider, KNOWN_PROVIDERS, ListedModel, ModelBook, ModelFacts};
use conjure_runtime::session::SessionError;
use serde::Serialize;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, Table};

/// Lists models. Prices are US dollars for a million tokens.
#[derive(clap::Args)]
#[command(
    after_help = "Without a provider: all that the environment has a key for.

Exit code: 3 when a provider gave no list; the others are listed all the same.

Examples:
  conjure models openai
  conjure models ollama --base-url http://10.0.0.7:11434
  conjure models --offline --json | jq '.[].model'"
)]
pub(crate) struct ModelsArgs {
    /// The providers
    provider: Vec<String>,
    /// A session file (TOML) that describes providers
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A saved auth, which says the provider too: NAME, or PROVIDER/KIND/NAME
    #[arg(long, value_name = "NAME")]
    auth: Option<AuthRef>,
    /// Where the provider is, when not at its usual place
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Ask nobody: list what the data file knows
    #[arg(long)]
    offline: bool,
}

/// A line of the list.
#[derive(Serialize)]
struct ModelRow {
    provider: String,
    model: String,
    #[serde(flatten)]
    facts: ModelFacts,
}

pub(crate) async fn run(global: &Global, args: ModelsArgs) -> Result<Exit, CliError> {
    let spec = match &args.config {
        Some(path) => SessionSpec::read(path)?,
        None => SessionSpec::default(),
    };
    let book = ModelBook::read(&global.data_dir()).map_err(CliError::usage_from)?;
    let asks_with_auth = args.auth.is_some() && args.provider.len() < 2;
    if args.base_url.is_some() && args.provider.len() != 1 && !asks_with_auth {
        return Err(
            CliError::usage("`--base-url` says where one provider is").hint("name that one")
        );
    }
    let auth = args.auth.clone().or_else(|| spec.auth.clone());
    let spec = with_auths(global, &args, spec).await?;
    let names = match &spec.provider {
        Some(provider) if auth.is_some() && args.provider.is_empty() => vec![provider.clone()],
        _ => providers(&args)?,
    };
    // Of one that an auth or an address is for, those say where it is.
    let looked_up = names
        .iter()
        .filter(|_| auth.is_none() && args.base_url.is_none());
    for name in looked_up {
        let has_facts = book.models(name).next().is_some();
        let is_known = KNOWN_PROVIDERS.iter().any(|known| known.name == name);
        if !is_known && !has_facts && !spec.providers.contains_key(name) {
            return Err(no_provider(name, &spec));
        }
    }
    let mut rows = Vec::new();
    let mut failed = false;
    for name in names {
        let listed = if args.offline {
            let known = book.models(&name).map(|model| ListedModel {
                name: model.to_owned(),
                context: None,
                max_output: None,
            });
            known.collect()
        } else {
            let mut spec = spec.clone();
            if args.base_url.is_some() {
                spec.provider = Some(name.clone());
                spec.base_url.clone_from(&args.base_url);
            }
            match HttpProvider::of(&name, &spec)
                .map_err(SessionError::from)?
                .models()
                .await
            {
                Ok(listed) => listed,
                Err(error) => {
                    failed = true;
                    output::error_aside(&error.into());
                    Vec::new()
                }
            }
        };
        rows.extend(listed.into_iter().map(|model| row(&name, model, &book)));
    }
    if global.json {
        output::json(&rows);
    } else {
        print(&rows);
    }
    Ok(if failed {
        Exit::Provider
    } else {
        Exit::Success
    })
}

/// The credentials that are needed for what is asked.
async fn with_auths(
    global: &Global,
    args: &ModelsArgs,
    mut spec: SessionSpec,
) -> Result<SessionSpec, CliError> {
    if let Some(auth) = &args.auth {
        if args.provider.len() > 1 {
            return Err(
                CliError::usage("`--auth` is for one provider").hint("name that one, or none")
            );
        }
        spec.provider = args.provider.first().cloned();
        spec.base_url = args.base_url.clone().or(spec.base_url);
        spec.auth = Some(auth.clone());
    }
    if args.offline {
        return Ok(global.auths().resolve_provider(spec).await?);
    }
    Ok(global.auths().open(spec).await?)
}

fn providers(args: &ModelsArgs) -> Result<Vec<String>, CliError> {
    if !args.provider.is_empty() {
        return Ok(args.provider.clone());
    }
    let wanted = KNOWN_PROVIDERS
        .iter()
        .filter(|known| args.offline || known.has_key());
    let names: Vec<String> = wanted.map(|known| known.name.to_owned()).collect();
    if names.is_empty() {
        return Err(
            CliError::usage("the environment has a key for no provider").hint(
                "name one, set its key (`conjure --help` has the variables), or use `--offline`",
            ),
        );
    }
    Ok(names)
}

fn no_provider(name: &str, spec: &SessionSpec) -> CliError {
    let known = KNOWN_PROVIDERS.iter().map(|known| known.name);
    let known: Vec<&str> = known
        .chain(spec.providers.keys().map(String::as_str))
        .collect();
    CliError::usage(format!("there is no provider `{name}`"))
        .hint(format!("there are: {}", known.join(", ")))
}

fn row(provider: &str, model: ListedModel, book: &ModelBook) -> ModelRow {
    let mut facts = book.facts(provider, &model.name).unwrap_or_default();
    facts.context = facts.context.or(model.context);
    facts.max_output = facts.max_output.or(model.max_output);
    ModelRow {
        provider: provider.to_owned(),
        model: model.name,
        facts,
    }
}

fn print(rows: &[ModelRow]) {
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    let price = |price: Option<f64>| price.map_or("-".to_owned(), |price| format!("{price}"));
    let mut table = Table::new([
        "PROVIDER", "MODEL", "CONTEXT", "OUTPUT", "$ IN", "$ CACHED", "$ OUT",
    ])
    .with_name_column("MODEL");
    for row in rows {
        table.row([
            row.provider.clone(),
            row.model.clone(),
            number(row.facts.context),
            number(row.facts.max_output),
            price(row.facts.price.input),
            price(row.facts.price.cache_read),
            price(row.facts.price.output),
        ]);
    }
    table.print();
}
