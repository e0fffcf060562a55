//! What the attribute `#[skill]` writes calls of: the state of a session, made when its instance is.

use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::protocol::ToolResult;
use crate::setup::Setup;
use crate::skill::Skill;

/// The state of one instance, which is there once that is made.
pub struct SkillState<T>(Arc<OnceLock<T>>);

impl<T: Send + Sync + 'static> SkillState<T> {
    /// An instance whose state is not made yet.
    #[expect(clippy::new_without_default, reason = "only written by the attribute")]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Has a skill make the state with each instance.
    #[must_use]
    pub fn made_by(
        &self,
        skill: Skill,
        make: impl Fn(&Setup) -> Result<T> + Send + Sync + 'static,
    ) -> Skill {
        let state = self.clone();
        skill.on_create(move |setup| match state.0.set(make(setup)?) {
            Ok(()) => Ok(()),
            Err(_) => Err(Error::new("the state of this instance was made already")),
        })
    }

    /// Calls the tool with the state.
    pub fn with(&self, call: impl FnOnce(&T) -> ToolResult) -> ToolResult {
        match self.0.get() {
            Some(state) => call(state),
            None => ToolResult::error("the skill was called before its instance was made"),
        }
    }
}

impl<T> Clone for SkillState<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What a function marked `#[create]` may return: the state, or a result of it.
#[diagnostic::on_unimplemented(
    message = "`#[create]` returns the type of its `impl` block, or a `Result` of it",
    label = "neither `{T}` nor a `Result` of it"
)]
pub trait IntoState<T> {
    /// The state.
    ///
    /// # Errors
    /// What refuses the instance.
    fn into_state(self) -> Result<T>;
}

impl<T> IntoState<T> for T {
    fn into_state(self) -> Result<T> {
        Ok(self)
    }
}

impl<T, E: Into<Error>> IntoState<T> for std::result::Result<T, E> {
    fn into_state(self) -> Result<T> {
        self.map_err(Into::into)
    }
}
