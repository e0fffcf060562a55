//! A thread's id.

use std::fmt;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::StoreError;

/// A thread's id; not a session's. Cloning it is cheap: much that belongs to a thread has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(Arc<str>);

impl ThreadId {
    /// A fresh id, in the order of time.
    pub fn fresh() -> Self {
        Self(uuid::Uuid::now_v7().to_string().into())
    }

    /// An id that somebody wrote.
    ///
    /// # Errors
    /// [`StoreError::BadId`]: an id has 1 to 64 letters, digits, `-` and `_`.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let legal = !text.is_empty()
            && text.len() <= 64
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if legal {
            Ok(Self(text.into()))
        } else {
            Err(StoreError::BadId {
                id: text.to_owned(),
            })
        }
    }

    /// An id out of the database, where only legal ones are.
    pub(crate) fn stored(text: String) -> Self {
        Self(text.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for ThreadId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ThreadId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_never_becomes_a_path() {
        for id in ["", "../x", "a/b", "a.b", "ü", &"x".repeat(65)] {
            assert!(ThreadId::parse(id).is_err(), "{id}");
        }
        assert_eq!(ThreadId::parse("a-b_1").unwrap().as_str(), "a-b_1");
        let read = serde_json::from_str::<ThreadId>;
        assert_eq!(read("\"a-b_1\"").unwrap().as_str(), "a-b_1");
        assert!(read("\"../x\"").is_err());
    }
}
