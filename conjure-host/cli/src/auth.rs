//! `conjure auth`: the credentials that are saved.

use clap::Subcommand;
use conjure_config::AuthRef;
use conjure_config::SessionSpec;
use conjure_providers::HttpProvider;
use conjure_providers::auths::{AuthError, AuthKind, Credential, NewAuth};
use conjure_runtime::session::SessionError;
use conjure_store::SavedAuth;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, GREEN, RESET, Table, clean, line, print_note};
use super::person::confirm;
use super::secret::secret;
use super::signals::Signals;

/// Saves credentials under names that sessions use.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure auth create work --provider anthropic              # asks for the key, and does not show it
  pass show openai | conjure auth create home --provider openai
  conjure auth create gateway --provider openai-compatible --base-url https://llm.example.org/v1 \\
      --kind custom-headers
  conjure auth check work
  conjure run --auth work --model claude-sonnet-4-5 \"What is in this directory?\"")]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    verb: AuthVerb,
}

#[derive(Subcommand)]
enum AuthVerb {
    /// Save a credential: from a prompt that does not show it, else from stdin
    ///
    /// A credential is never read from the arguments, which other users may see. It is encrypted with
    /// a key from `CONJURE_KEY`, from a key file (`CONJURE_KEY_FILE`, else `vault.key` in the data
    /// directory), or from the keyring of the system; the first time one is made.
    #[command(alias = "add")]
    Create(CreateAuthArgs),
    /// Save another credential of the same kind in the place of one; sessions that use it have it
    Replace {
        /// The auth: NAME, or PROVIDER/KIND/NAME
        #[arg(value_name = "NAME")]
        auth: AuthRef,
    },
    /// List the saved auths, without their secrets
    List,
    /// Ask the provider for its list of models with an auth
    ///
    /// Exit code: 3 when the provider gives none.
    #[command(alias = "test")]
    Check {
        /// The auth: NAME, or PROVIDER/KIND/NAME
        #[arg(value_name = "NAME")]
        auth: AuthRef,
    },
    /// Give an auth another name; sessions that are saved keep the auth
    Rename {
        /// The auth: NAME, or PROVIDER/KIND/NAME
        #[arg(value_name = "NAME")]
        auth: AuthRef,
        /// The new name
        #[arg(value_name = "NEW")]
        new: String,
    },
    /// Delete an auth for good, unless a saved session uses it
    #[command(alias = "remove")]
    Delete {
        /// The auth: NAME, or PROVIDER/KIND/NAME
        #[arg(value_name = "NAME")]
        auth: AuthRef,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Encrypt all auths with a new key
    ///
    /// May be interrupted and begun again. A key in `CONJURE_KEY` is replaced by its owner: the new
    /// one goes there, the one before into `CONJURE_OLD_KEY`.
    Rotate,
}

/// Saves a credential.
#[derive(clap::Args)]
struct CreateAuthArgs {
    /// The name of the auth: 3 to 50 letters, digits, `_` and `-`
    name: String,
    /// The provider that the auth is for
    #[arg(long, value_name = "NAME")]
    provider: String,
    /// The kind of the credential: `api-key`, `bearer-token`, `custom-headers` (`Name: value`, one a
    /// line), or `base-url` (a server that asks for nothing)
    #[arg(long, default_value = "api-key", value_parser = kind)]
    kind: AuthKind,
    /// Where the provider is, when not at its usual place
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
}

fn kind(text: &str) -> Result<AuthKind, String> {
    text.parse()
        .map_err(|_| "there are: api-key, bearer-token, custom-headers, base-url".to_owned())
}

pub(crate) async fn run(global: &Global, args: AuthArgs) -> Result<Exit, CliError> {
    match args.verb {
        AuthVerb::Create(args) => create(global, args).await,
        AuthVerb::Replace { auth } => replace(global, &auth).await,
        AuthVerb::List => list(global).await,
        AuthVerb::Check { auth } => check(global, &auth).await,
        AuthVerb::Rename { auth, new } => {
            let auth = global.auths().rename(&auth, &new).await?;
            report(global, &auth, "is its name now");
            Ok(Exit::Success)
        }
        AuthVerb::Delete { auth, yes } => {
            let saved = global.auths().find(&auth, None).await?;
            global.auths().check_unused(&saved).await?;
            let what = format!("This deletes {}, for good.", saved.full_name());
            if !confirm(yes, what, "Delete it?").await? {
                return Ok(Exit::Interrupted);
            }
            let auth = global.auths().remove(&auth).await?;
            report(global, &auth, "is deleted");
            Ok(Exit::Success)
        }
        AuthVerb::Rotate => {
            let rotated = global.auths().rotate().await?;
            if global.json {
                output::json(&rotated);
            } else {
                line(format_args!(
                    "{} sealed with the new key {} ({})",
                    rotated.sealed, rotated.key, rotated.key_location
                ));
            }
            Ok(Exit::Success)
        }
    }
}

async fn create(global: &Global, args: CreateAuthArgs) -> Result<Exit, CliError> {
    let new = NewAuth {
        name: args.name,
        provider: args.provider,
        base_url: args.base_url,
    };
    new.check(args.kind)?;
    global.auths().check_free(&new, args.kind).await?;
    // Heard also while a secret is typed, so that the terminal shows again what is typed.
    let mut signals = Signals::listen()?;
    let asking = async {
        let text = secret(args.kind).await?;
        let credential = Credential::read(args.kind, &text).map_err(AuthError::from)?;
        Ok(global.auths().add(new, credential).await?)
    };
    let auth = signals.unless(asking).await?;
    report(global, &auth, "is saved");
    Ok(Exit::Success)
}

async fn replace(global: &Global, auth: &AuthRef) -> Result<Exit, CliError> {
    let auths = global.auths();
    let saved = auths.find(auth, None).await?;
    let kind: AuthKind = saved.kind.parse().map_err(CliError::host_from)?;
    let mut signals = Signals::listen()?;
    let asking = async {
        let text = secret(kind).await?;
        let credential = Credential::read(kind, &text).map_err(AuthError::from)?;
        Ok(auths.replace(auth, credential).await?)
    };
    let auth = signals.unless(asking).await?;
    report(global, &auth, "has another credential now");
    Ok(Exit::Success)
}

async fn list(global: &Global) -> Result<Exit, CliError> {
    let auths = global.auths().list().await?;
    if global.json {
        let auths: Vec<Value> = auths.iter().map(auth_json).collect();
        output::json(&json!({ "auths": auths }));
        return Ok(Exit::Success);
    }
    if auths.is_empty() {
        print_note(
            "There is no saved auth yet; `conjure auth create NAME --provider PROVIDER` saves one.",
        );
        return Ok(Exit::Success);
    }
    let mut table = Table::new(["NAME", "PROVIDER", "KIND", "BASE URL", "CREATED"]);
    for auth in auths {
        let created = Timestamp::from_millisecond(auth.created_at_ms)
            .map(|time| time.strftime("%Y-%m-%d %H:%M").to_string());
        table.row([
            auth.name,
            auth.provider,
            auth.kind,
            auth.base_url.unwrap_or_else(|| "-".to_owned()),
            created.unwrap_or_default(),
        ]);
    }
    table.print();
    Ok(Exit::Success)
}

async fn check(global: &Global, auth: &AuthRef) -> Result<Exit, CliError> {
    let spec = SessionSpec {
        auth: Some(auth.clone()),
        ..SessionSpec::default()
    };
    let spec = global.auths().open(spec).await?;
    let name = spec.provider.clone().unwrap_or_default();
    let answer = HttpProvider::of(&name, &spec)
        .map_err(SessionError::from)?
        .models()
        .await;
    if global.json {
        let (models, error) = match &answer {
            Ok(models) => (Some(models.len()), None),
            Err(error) => (
                None,
                Some(json!({
                    "kind": error.kind, "message": error.message,
                })),
            ),
        };
        output::json(&json!({
            "auth": auth, "provider": name, "works": answer.is_ok(), "models": models,
            "error": error,
        }));
    }
    match answer {
        Ok(models) => {
            if !global.json {
                line(format_args!(
                    "{GREEN}works{RESET}: {} lists {} models",
                    clean(&name),
                    models.len()
                ));
            }
            Ok(Exit::Success)
        }
        Err(error) => {
            let error = CliError::from(error);
            if !global.json {
                output::error_aside(&error);
            }
            Ok(error.exit)
        }
    }
}

fn report(global: &Global, auth: &SavedAuth, what: &str) {
    if global.json {
        output::json(&auth_json(auth));
    } else {
        line(format_args!("{} {what}", auth.full_name()));
    }
}

/// An auth as programs read it; the secret is not in it, in no form.
fn auth_json(auth: &SavedAuth) -> Value {
    json!({
        "id": auth.id,
        "provider": auth.provider,
        "kind": auth.kind,
        "name": auth.name,
        "base_url": auth.base_url,
        "created_at_ms": auth.created_at_ms,
        "updated_at_ms": auth.updated_at_ms,
    })
}
