//! The tokens that let clients in, for the verbs that serve others over HTTP: the user's own, and
//! those of the environment. Never from the arguments, which every user of the machine may read.

use std::path::{Path, PathBuf};

use conjure_config::env;
use conjure_http_server::{ClientTokenError, client_token, client_tokens, user_token};
use secrecy::SecretString;

use super::args::Global;
use super::error::CliError;
use super::output;

/// Adds the user's own token to these tokens; it is made where there is none yet.
pub(super) fn with_users(
    global: &Global,
    mut tokens: Vec<SecretString>,
) -> Result<Vec<SecretString>, CliError> {
    let own = user_token(&global.data_dir()).map_err(CliError::host_from)?;
    tokens.push(own);
    Ok(tokens)
}

/// Says where the user's own token is.
pub(super) fn print_token_hint(token_file: &Path) {
    output::print_note(format_args!(
        "Clients need a token: `Authorization: Bearer TOKEN`. Yours is in {}, which only you can \
         read; other verbs of `conjure` find it there.",
        token_file.display()
    ));
}

/// The tokens in these files (`--token-file`).
pub(super) fn of_files(paths: &[PathBuf]) -> Result<Vec<SecretString>, CliError> {
    let mut tokens = Vec::new();
    for path in paths {
        tokens.extend(client_tokens(path).map_err(token_error)?);
    }
    Ok(tokens)
}

/// The tokens in the variables of these names (`--token-env`).
pub(super) fn of_env(names: &[String]) -> Result<Vec<SecretString>, CliError> {
    let token = |name: &String| {
        let token = of_variable(name)?;
        token.ok_or_else(|| {
            CliError::usage(format!(
                "`--token-env {name}`: there is no variable {name} in the environment, or it is \
                 empty"
            ))
        })
    };
    names.iter().map(token).collect()
}

/// The token in a variable, where there is one.
pub(super) fn of_variable(name: &str) -> Result<Option<SecretString>, CliError> {
    let token = env::var(name).map(|token| client_token(&token, name));
    token.transpose().map_err(token_error)
}

/// A token that lets nobody in, and what to do about it.
fn token_error(error: ClientTokenError) -> CliError {
    let hint = match &error {
        ClientTokenError::Io(_) => None,
        ClientTokenError::NotPrivate { path } => Some(format!(
            "`chmod 600 {}`, as the user who serves; in a container, `--token-env` takes a token \
             out of a variable",
            path.display()
        )),
        ClientTokenError::Empty { .. } | ClientTokenError::TooShort { .. } => {
            Some("`openssl rand -hex 32` makes one that nobody guesses".to_owned())
        }
    };
    let refused = CliError::usage_from(error);
    match hint {
        Some(hint) => refused.hint(hint),
        None => refused,
    }
}
