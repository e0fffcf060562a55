//! What waits for the person, the first in front: calls to decide about, questions and lists; and what
//! was being typed when one of them needed the line.

use std::collections::VecDeque;
use std::time::Instant;

use conjure_core::chat::{CallAnnounced, QuestionAsked};

use crate::approval::ApprovalPrompt;
use crate::picker::Picker;
use crate::question::QuestionForm;

/// The prompt that has the keys.
pub(crate) enum InputMode {
    Approval {
        prompt: ApprovalPrompt,
        /// The call and the reason why it is asked about, until it is shown.
        unread: Option<Box<UnreadCall>>,
        /// Time since which no key was meant for something else.
        since: Instant,
    },
    Form {
        form: QuestionForm,
        /// The question, until it is shown.
        unread: Option<Box<QuestionAsked>>,
        /// Whether the question is asked in a turn that somebody else began.
        is_of_others: bool,
        /// Whether what is typed is the answer.
        has_line: bool,
        /// Time since which no key was meant for something else.
        since: Instant,
    },
    Picker(Picker),
}

/// A call that was not shown yet.
pub(crate) struct UnreadCall {
    pub(crate) call: CallAnnounced,
    pub(crate) reason: String,
    /// Present text of the file that the call would write.
    pub(crate) current_text: Option<String>,
}

impl InputMode {
    pub(crate) fn approval(call: CallAnnounced, reason: String, before: Option<String>) -> Self {
        let prompt = ApprovalPrompt::new(&call);
        let unread = UnreadCall {
            call,
            reason,
            current_text: before,
        };
        Self::Approval {
            prompt,
            unread: Some(Box::new(unread)),
            since: Instant::now(),
        }
    }

    pub(crate) fn form(asked: &QuestionAsked) -> Self {
        Self::Form {
            form: QuestionForm::new(asked),
            unread: Some(Box::new(asked.clone())),
            is_of_others: false,
            has_line: true,
            since: Instant::now(),
        }
    }

    /// Marks the prompt as one of a turn that somebody else began.
    pub(crate) fn of_others(mut self) -> Self {
        match &mut self {
            Self::Approval { prompt, .. } => prompt.is_of_others = true,
            Self::Form {
                is_of_others,
                has_line,
                ..
            } => {
                *is_of_others = true;
                *has_line = false;
            }
            Self::Picker(_) => {}
        }
        self
    }

    fn is_of_others(&self) -> bool {
        match self {
            Self::Approval { prompt, .. } => prompt.is_of_others,
            Self::Form { is_of_others, .. } => *is_of_others,
            Self::Picker(_) => false,
        }
    }

    /// The id of the call or the question.
    fn id(&self) -> Option<&str> {
        match self {
            Self::Approval { prompt, .. } => Some(&prompt.call_id),
            Self::Form { form, .. } => Some(&form.id),
            Self::Picker(_) => None,
        }
    }
}

/// What waits for the person, and the text that lies aside meanwhile.
#[derive(Default)]
pub(crate) struct PromptQueue {
    modes: VecDeque<InputMode>,
    /// What was being typed when something else needed the line.
    draft: Option<String>,
}

impl PromptQueue {
    /// What has the keys.
    pub(crate) fn front(&self) -> Option<&InputMode> {
        self.modes.front()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut InputMode> {
        self.modes.front_mut()
    }

    /// What comes now was meant for something else than the question in front.
    pub(crate) fn defer_question(&mut self) {
        if let Some(InputMode::Form { since, .. }) = self.modes.front_mut() {
            *since = Instant::now();
        }
    }

    pub(crate) fn push(&mut self, mode: InputMode) {
        self.modes.push_back(mode);
    }

    /// The first is done.
    pub(crate) fn pop(&mut self) {
        self.modes.pop_front();
    }

    /// Whether a call or a question waits already.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.modes.iter().any(|mode| mode.id() == Some(id))
    }

    /// A call or a question waits no longer.
    pub(crate) fn settle(&mut self, id: &str) {
        self.modes.retain(|mode| mode.id() != Some(id));
    }

    /// What ran is over: what it waited for is needed no longer, lists and what others wait for apart.
    /// The questions that will have no answer.
    pub(crate) fn cancel_own(&mut self) -> Vec<String> {
        let mut asked = Vec::new();
        for mode in std::mem::take(&mut self.modes) {
            match mode {
                InputMode::Picker(_) => self.modes.push_back(mode),
                mode if mode.is_of_others() => self.modes.push_back(mode),
                InputMode::Form { form, .. } => asked.push(form.id),
                InputMode::Approval { .. } => {}
            }
        }
        asked
    }

    /// Whether something is to be picked.
    pub(crate) fn has_picker(&self) -> bool {
        let is_picker = |mode: &InputMode| matches!(mode, InputMode::Picker(_));
        self.modes.iter().any(is_picker)
    }

    /// The first list of this name.
    pub(crate) fn picker_mut(&mut self, list: &str) -> Option<&mut Picker> {
        self.modes.iter_mut().find_map(|mode| match mode {
            InputMode::Picker(picker) if picker.list == list => Some(picker),
            _ => None,
        })
    }

    /// Puts a text aside, behind what lies there.
    pub(crate) fn save_draft(&mut self, text: String) {
        self.draft = Some(match self.draft.take() {
            Some(draft) => format!("{draft}\n{text}"),
            None => text,
        });
    }

    /// Whether a text lies aside.
    pub(crate) fn has_draft(&self) -> bool {
        self.draft.is_some()
    }

    pub(crate) fn take_draft(&mut self) -> Option<String> {
        self.draft.take()
    }
}
