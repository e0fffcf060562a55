//! Runs that wait: what is said in one can be said otherwise until it begins.

use async_recursion::async_recursion as boxed;
use conjure_core::chat::Message;

use crate::{Store, StoreError};

impl Store {
    /// Puts another message in place of a waiting run's. Whether it waited still.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn reword_run(&self, id: &str, message: &Message) -> Result<bool, StoreError> {
        const REWORDING: &str = "say a follow-up otherwise";
        let message = serde_json::to_string(message).map_err(|error| StoreError::Corrupt {
            what: REWORDING,
            reason: format!("the message cannot be written: {error}"),
        })?;
        let tx = self.db().begin(false, REWORDING).await?;
        let sql = "UPDATE runs SET message = $1 WHERE id = $2 AND state = 'queued'";
        let changed = tx.execute(sql, [message.into(), id.into()]).await?;
        tx.commit().await?;
        Ok(changed > 0)
    }
}
