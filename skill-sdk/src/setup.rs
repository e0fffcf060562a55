//! What an instance is made from.

use serde::de::DeserializeOwned;

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::protocol::Create;

/// What an instance is made from. Its context lives as long as the instance.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Host, session, instance, configuration, data directory.
    pub create: Create,
    /// Serves host operations outside any call.
    pub cx: Cx,
}

impl Setup {
    /// The configuration as a type; what is not configured is `{}`.
    ///
    /// # Errors
    /// [`conjure_abi::code::INVALID`] with the field that does not fit.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T> {
        let config = match &self.create.config {
            serde_json::Value::Null => serde_json::json!({}),
            other => other.clone(),
        };
        serde_json::from_value(config)
            .map_err(|e| Error::invalid(format!("the configuration does not fit: {e}")))
    }
}
