//! The token of whoever runs a server: made at the first start, kept in a file that only this user
//! can read, and the same at the next start.
//!
//! Programs of the same user read the file; other users of the machine cannot.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::client_tokens::{MIN_TOKEN_CHARS, client_token};

/// The file's name in the directory of data.
const TOKEN_FILE: &str = "http-token";

/// Why the user's token is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum UserTokenError {
    /// The file system says no.
    #[error("the token that lets clients in cannot be kept: {0}")]
    Io(#[from] std::io::Error),
    /// Somebody else may know it.
    #[error(
        "{path} can be read or written by other users, who may know the token in it: remove the \
         file, and the next start makes another token", path = path.display()
    )]
    NotPrivate {
        /// The file.
        path: PathBuf,
    },
    /// The file holds no token.
    #[error(
        "{path} holds no token of at least {MIN_TOKEN_CHARS} characters: remove the file, and the \
         next start makes one", path = path.display()
    )]
    NoToken {
        /// The file.
        path: PathBuf,
    },
}

/// The file of the user's token in a directory of data.
#[must_use]
pub fn user_token_file(data_dir: &Path) -> PathBuf {
    data_dir.join(TOKEN_FILE)
}

/// The user's token, made where there is none yet. Of two processes that make it at the same time
/// both get the same.
///
/// # Errors
/// [`UserTokenError`].
pub fn user_token(data_dir: &Path) -> Result<SecretString, UserTokenError> {
    conjure_config::fs::create_private_dir(data_dir)?;
    let path = user_token_file(data_dir);
    match read(&path) {
        Err(UserTokenError::Io(error)) if error.kind() == ErrorKind::NotFound => {}
        read => return read,
    }
    // Two random ids of version 4 have 244 random bits.
    let token = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(|half| half.simple().to_string());
    let made =
        conjure_config::fs::write_new_private(&path, format!("{}\n", token.concat()).as_bytes());
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        _ => read(&path),
    }
}

/// The user's token, where there is one.
pub fn read(path: &Path) -> Result<SecretString, UserTokenError> {
    if !conjure_config::fs::is_private(path)? {
        return Err(UserTokenError::NotPrivate {
            path: path.to_owned(),
        });
    }
    let text = conjure_config::fs::read_to_string(path)?;
    client_token(&text, "the file").map_err(|_| UserTokenError::NoToken {
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let all: Vec<String> = std::thread::scope(|scope| {
            let make = || user_token(&data).unwrap().expose_secret().to_owned();
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            let made = makers.into_iter().map(|maker| maker.join().unwrap());
            made.collect()
        });
        assert!(
            all.iter()
                .all(|token| *token == all[0] && token.len() == 64)
        );
        let path = user_token_file(&data);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = user_token(&data).unwrap_err();
        assert!(
            matches!(error, UserTokenError::NotPrivate { .. }),
            "{error}"
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short\n").unwrap();
        let error = user_token(&data).unwrap_err();
        assert!(matches!(error, UserTokenError::NoToken { .. }), "{error}");
    }
}
