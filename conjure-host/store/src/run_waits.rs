//! Runs that wait for a person, as other processes than the one that runs them show it.

use async_recursion::async_recursion as boxed;

use crate::database::now_ms;
use crate::runs::{CHANGING, without_nul};
use crate::{Store, StoreError};

impl Store {
    /// Takes note that a run waits for a person from now on, or for nobody any more. One that is
    /// over stays as it is.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn set_run_waiting(&self, id: &str, waits: bool) -> Result<(), StoreError> {
        let since = match waits {
            true => now_ms(self.db().backend()),
            false => "NULL",
        };
        let sql = format!(
            "UPDATE runs SET waiting_since_ms = {since} WHERE id = $1 AND ended_at_ms IS NULL"
        );
        let values = vec![without_nul(id).into()];
        self.db().execute(false, &sql, values, CHANGING).await?;
        self.notify_sessions().await;
        Ok(())
    }
}
