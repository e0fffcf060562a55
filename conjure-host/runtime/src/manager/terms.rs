//! What holds for one turn beside the session's settings. Nothing of it is saved with the session.

use std::sync::Arc;

use conjure_core::chat::Message;
use conjure_core::routing::Rule;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::{BadOutputSchema, OutputForm};
use conjure_config::PolicySpec;
use conjure_store::ThreadId;

/// A turn that is to be begun.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnRequest {
    /// What is said; where there is nothing the model goes on from where the thread ends.
    pub message: Option<Message>,
    /// The turn's id, where the client chooses it: the same id again begins nothing.
    pub turn_id: Option<String>,
    /// The thread that it is said in, which the session goes on with from then on; its active one
    /// where none is named. Both are decided at once, whatever others choose meanwhile.
    pub thread: Option<ThreadId>,
    /// What holds for it.
    pub terms: TurnTerms,
}

/// What holds for one turn beside the session's settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TurnTerms {
    /// Rules beside those of the session.
    pub policy: PolicySpec,
    /// Whoever says it cannot be asked: a call that asks is denied at once, and a question
    /// cancelled, unless another client is there ([`super::Manager::attend`]).
    pub unattended: bool,
    /// Whoever says it may come yet: in an unattended turn they count as a client that has just left.
    /// Is not written down, since whoever takes such a turn over knows nobody who would come.
    #[serde(skip)]
    pub may_come: bool,
    /// JSON Schema that the answer must fit, as in [`OutputForm`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

impl TurnTerms {
    /// The form of the answer.
    pub(super) fn form(&self) -> Result<Option<Arc<OutputForm>>, BadOutputSchema> {
        let form = self.output_schema.as_ref().map(OutputForm::read);
        Ok(form.transpose()?.map(Arc::new))
    }

    pub(super) fn rules(&self) -> Vec<Rule> {
        self.policy.rules()
    }
}
