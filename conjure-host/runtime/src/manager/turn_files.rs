//! Files that are attached to a turn: its own from when it is taken, and nobody's again where it never
//! begins.

use conjure_core::chat::Message;

use super::{Manager, ManagerError, ManagerState};
use crate::uploads::{self, UploadError};

/// What a file is called that is not here.
const UPLOAD: &str = "upload";

impl ManagerState {
    /// Makes the files that a message attaches the turn's. Those that were no turn's before.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`] where one is another turn's or not here, and
    /// [`ManagerError::Invalid`].
    pub(super) fn claim_files(
        &self,
        turn_id: &str,
        message: Option<&Message>,
    ) -> Result<Vec<String>, ManagerError> {
        let Some(message) = message else {
            return Ok(Vec::new());
        };
        let claimed = uploads::claim(self.host.data_dir(), turn_id, message);
        claimed.map_err(|error| match error {
            UploadError::Unknown { id } => ManagerError::NotFound { kind: UPLOAD, id },
            error => ManagerError::Invalid {
                field: None,
                message: error.to_string(),
            },
        })
    }

    /// Gives back what a message attaches to a turn that never begins.
    pub(super) fn free_files(&self, turn_id: &str, message: Option<&Message>) {
        if let Some(message) = message {
            let attached = uploads::attached_ids(message);
            uploads::free(self.host.data_dir(), turn_id, attached);
        }
    }

    /// Gives back these.
    pub(super) fn free_claimed(&self, turn_id: &str, ids: &[String]) {
        let ids = ids.iter().map(String::as_str);
        uploads::free(self.host.data_dir(), turn_id, ids);
    }
}

impl Manager {
    /// Says why a turn with files does not begin. Another process that runs the session may have a
    /// directory of data of its own, and not these files.
    pub(super) async fn explain_missing_files(
        &self,
        session: &str,
        message: Option<&Message>,
        error: ManagerError,
    ) -> ManagerError {
        let attaches =
            message.is_some_and(|message| uploads::attached_ids(message).next().is_some());
        if !attaches || !error.is_not_found() {
            return error;
        }
        match self.remote_owner(session).await {
            Ok(Some(owner)) => ManagerError::Elsewhere {
                pid: owner.pid,
                address: owner.address,
                why: "it does not have the files that are attached; hand them over there",
                is_silent: false,
            },
            _ => error,
        }
    }
}

/// A file that is not here is a mistake of whoever named it.
pub(super) fn unknown_upload_to_invalid(error: ManagerError) -> ManagerError {
    match error {
        ManagerError::NotFound { kind: UPLOAD, id } => ManagerError::Invalid {
            field: None,
            message: UploadError::Unknown { id }.to_string(),
        },
        error => error,
    }
}
