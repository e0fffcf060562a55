//! Asks for a secret: at a terminal without showing it, else from standard input. Never from the
//! arguments, which every user of the machine may read.

use std::io::{IsTerminal as _, Read as _};

use conjure_providers::auths::AuthKind;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::SecretString;

use super::error::CliError;
use super::output::print_note;
use super::person::prompt;

/// The most bytes of a secret.
const LARGEST: u64 = 64 * 1024;

/// The text of a credential of this kind, as a person or a program gives it.
pub(super) async fn secret(kind: AuthKind) -> Result<SecretString, CliError> {
    if kind == AuthKind::BaseUrl {
        return Ok(SecretString::default());
    }
    if !std::io::stdin().is_terminal() {
        return read_piped().await;
    }
    let hidden = Hidden::begin()?;
    let text = match kind {
        AuthKind::CustomHeaders => headers().await,
        AuthKind::BearerToken => prompt("Token (it is not shown): ").await,
        AuthKind::ApiKey | AuthKind::BaseUrl => prompt("Key (it is not shown): ").await,
    };
    drop(hidden);
    text.map(SecretString::from)
        .ok_or_else(|| CliError::usage("no secret was given; nothing is saved"))
}

/// A password that a person types without seeing it; nothing where nobody is at the terminal.
pub(super) async fn password(question: &'static str) -> Result<Option<String>, CliError> {
    if !std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let hidden = Hidden::begin()?;
    let text = prompt(question).await;
    drop(hidden);
    Ok(text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned()))
}

/// One header a line, up to an empty line or the end of the input.
async fn headers() -> Option<String> {
    print_note(
        "Headers as `Name: value`, one a line (they are not shown); an empty line ends them.",
    );
    let mut text = String::new();
    while let Some(line) = prompt("> ").await {
        if line.trim().is_empty() {
            break;
        }
        text.push_str(&line);
    }
    Some(text)
}

async fn read_piped() -> Result<SecretString, CliError> {
    let read = tokio::task::spawn_blocking(|| {
        let mut text = String::new();
        let stdin = std::io::stdin().lock();
        stdin
            .take(LARGEST + 1)
            .read_to_string(&mut text)
            .map(|_| SecretString::from(text))
    });
    let read = match read.await {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(CliError::usage_from(error)),
        Err(error) => Err(CliError::usage_from(error)),
    };
    let read = read.and_then(|text| {
        if secrecy::ExposeSecret::expose_secret(&text).len() as u64 > LARGEST {
            let message = format!("it has more than {LARGEST} bytes");
            return Err(CliError::usage(message));
        }
        if secrecy::ExposeSecret::expose_secret(&text)
            .trim()
            .is_empty()
        {
            return Err(CliError::usage("nothing came").hint(
                "send the secret there, or run this at a terminal, which asks for it and does not \
                 show it",
            ));
        }
        Ok(text)
    });
    read.map_err(|error| error.context("the secret cannot be read from stdin"))
}

/// For as long as it lives the terminal shows nothing of what is typed but the ends of lines.
struct Hidden {
    original: Termios,
}

impl Hidden {
    fn begin() -> Result<Self, CliError> {
        let wrong = |error: rustix::io::Errno| {
            CliError::host_from(std::io::Error::from(error))
                .context("the terminal cannot be told not to show what is typed")
                .hint("give the secret through a pipe instead")
        };
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin).map_err(wrong)?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        hidden
            .local_modes
            .insert(LocalModes::ECHONL | LocalModes::ICANON);
        tcsetattr(stdin, OptionalActions::Flush, &hidden).map_err(wrong)?;
        Ok(Self { original: before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // What was typed and not read must not show up behind the prompt of the shell.
        let _ = tcsetattr(
            rustix::stdio::stdin(),
            OptionalActions::Flush,
            &self.original,
        );
    }
}
