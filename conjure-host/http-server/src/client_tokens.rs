//! The tokens that somebody chose for clients of a server, in a file or a variable.
//!
//! A token that other users may read lets them in, and so does one that is guessed. Both are refused
//! when the server starts, as they are for the user's own token.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

/// The fewest characters of a token that somebody chose.
pub(super) const MIN_TOKEN_CHARS: usize = 16;

/// Why a token lets nobody in.
#[derive(Debug, thiserror::Error)]
pub enum ClientTokenError {
    /// The file system says no.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Somebody else may know the tokens of a file.
    #[error(
        "{path} belongs to another user, or can be read or written by others, who may know the \
         tokens in it", path = path.display()
    )]
    NotPrivate {
        /// The file.
        path: PathBuf,
    },
    /// A file without a token.
    #[error("there is no token in {path}", path = path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A token that can be guessed.
    #[error("a token in {origin} has fewer than {MIN_TOKEN_CHARS} characters and can be guessed")]
    TooShort {
        /// File or variable that the token is in.
        origin: String,
    },
}

/// The tokens of a file, one a line.
///
/// # Errors
/// [`ClientTokenError`].
pub fn client_tokens(path: &Path) -> Result<Vec<SecretString>, ClientTokenError> {
    if !conjure_config::fs::is_private(path)? {
        return Err(ClientTokenError::NotPrivate {
            path: path.to_owned(),
        });
    }
    let text = conjure_config::fs::read_to_string(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let place = path.display().to_string();
    let tokens: Vec<SecretString> = lines
        .map(|line| client_token(line, &place))
        .collect::<Result<_, _>>()?;
    if tokens.is_empty() {
        return Err(ClientTokenError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(tokens)
}

/// A token that stands in a place, such as a variable of the environment.
///
/// # Errors
/// [`ClientTokenError::TooShort`].
pub fn client_token(token: &str, place: &str) -> Result<SecretString, ClientTokenError> {
    // A client's is compared without the blanks around it.
    let token = token.trim();
    if token.chars().count() < MIN_TOKEN_CHARS {
        return Err(ClientTokenError::TooShort {
            origin: place.to_owned(),
        });
    }
    Ok(token.into())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_file_of_tokens_is_the_users_alone_and_each_token_is_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let read = |text: &str, mode: u32| {
            write(&path, text).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            client_tokens(&path)
        };
        let tokens = read(
            "  the-token-of-one-client \n\nthe-token-of-another\n",
            0o600,
        );
        let tokens: Vec<String> = tokens
            .unwrap()
            .iter()
            .map(|token| token.expose_secret().to_owned())
            .collect();
        assert_eq!(tokens, ["the-token-of-one-client", "the-token-of-another"]);
        for mode in [0o644, 0o640, 0o606, 0o622] {
            let refused = read("the-token-of-one-client\n", mode).unwrap_err();
            assert!(
                matches!(refused, ClientTokenError::NotPrivate { .. }),
                "{refused}"
            );
        }
        let refused = read("the-token-of-one-client\nb\n", 0o600).unwrap_err();
        assert!(
            matches!(refused, ClientTokenError::TooShort { .. }),
            "{refused}"
        );
        let refused = read("\n", 0o600).unwrap_err();
        assert!(
            matches!(refused, ClientTokenError::Empty { .. }),
            "{refused}"
        );
    }
}
