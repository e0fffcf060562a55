//! Where a database is: a file, this process's memory, or a PostgreSQL server.

use std::fmt;
use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};

use crate::StoreError;

/// Location of a database.
#[derive(Clone)]
pub enum Location {
    /// An SQLite file. It is made, readable by its owner only, when it is not there.
    File(PathBuf),
    /// SQLite in memory: ends with the store. Nobody else can open it.
    Memory,
    /// A PostgreSQL database, by its URL, which may hold a password.
    Postgres(SecretString),
}

impl Location {
    /// A place that somebody wrote: `postgres://…` or `postgresql://…`, `memory`, or the path of a
    /// file.
    ///
    /// # Errors
    /// [`StoreError::BadLocation`]: it is empty, or the URL of another kind of database.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let bad = |reason: &str| StoreError::BadLocation {
            location: without_password(text),
            reason: reason.to_owned(),
        };
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        if text == "memory" {
            return Ok(Self::Memory);
        }
        match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(text.into())),
            Some(_) => Err(bad(
                "only PostgreSQL has a URL here; SQLite is the path of a file",
            )),
            None => Ok(Self::File(text.into())),
        }
    }
}

/// Without the password.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Memory => f.write_str("memory"),
            Self::Postgres(url) => f.write_str(&without_password(url.expose_secret())),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}

/// A URL without what is before the `@` and without its query, either of which may hold a password.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    format!("{scheme}://{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_path_or_a_url_and_shows_no_password() {
        let shown = |text: &str| Location::parse(text).unwrap().to_string();
        assert_eq!(shown("/a/b.db"), "/a/b.db");
        assert_eq!(shown("memory"), "memory");
        let url = "postgres://me:hidden@host:5432/db?password=hidden";
        assert_eq!(shown(url), "postgres://host:5432/db");
        assert!(!format!("{:?}", Location::parse(url).unwrap()).contains("hidden"));
        assert!(Location::parse("").is_err());
        let error = Location::parse("mysql://me:hidden@host/db").unwrap_err();
        assert!(!error.to_string().contains("hidden"), "{error}");
    }
}
