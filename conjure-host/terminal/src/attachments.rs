//! What is to go with a message and is still looked at: the clipboard's image, and a paste that may be
//! paths of files; with what was typed behind them meanwhile.

use crossterm::event::Event as Input;
use tokio::task::JoinHandle;

use crate::pasted::{self, PastedImage, PathPaste};

/// The attachments that are on their way.
#[derive(Default)]
pub(crate) struct Attachments {
    /// Images of the clipboard, which go when the conversation is left.
    images: Vec<PastedImage>,
    /// The image that is being taken out of the clipboard.
    pasting: Option<JoinHandle<Result<PastedImage, String>>>,
    /// What was typed behind an Enter that waits for that image.
    input_after_enter: Option<Vec<Input>>,
    /// A paste that may be paths of files, while that is looked at.
    paste: Option<PathPaste>,
}

/// What was looked at.
pub(crate) enum AttachmentReady {
    /// The clipboard's image, or why there is none.
    Image(Result<PastedImage, String>),
    /// The mentions of the files that a paste names; nothing where it names none.
    Paths(Option<String>),
}

impl Attachments {
    /// Waits until something was looked at; for ever where nothing is. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> AttachmentReady {
        tokio::select! {
            biased;
            image = task_result(&mut self.pasting) => AttachmentReady::Image(image),
            mentions = paste_mentions(&mut self.paste) => AttachmentReady::Paths(mentions),
        }
    }

    /// Takes the clipboard's image, aside: its program may be slow.
    pub(crate) fn take_from_clipboard(&mut self) {
        if self.pasting.is_none() {
            self.take_image_of(tokio::spawn(pasted::from_clipboard()));
        }
    }

    /// Takes the image that this task gives.
    pub(crate) fn take_image_of(&mut self, task: JoinHandle<Result<PastedImage, String>>) {
        self.pasting = Some(task);
    }

    /// Whether an image is still on its way; then an Enter waits for it.
    pub(crate) fn holds_enter(&mut self) -> bool {
        let holds = self.pasting.is_some();
        if holds {
            self.input_after_enter = Some(Vec::new());
        }
        holds
    }

    /// Looks whether a paste names files, aside.
    pub(crate) fn check_paste(&mut self, text: String) {
        self.paste = Some(PathPaste::start(text));
    }

    /// Where what is typed now goes while something is looked at.
    pub(crate) fn deferred_input(&mut self) -> Option<&mut Vec<Input>> {
        let paste = self.paste.as_mut().map(|paste| &mut paste.following_input);
        paste.or(self.input_after_enter.as_mut())
    }

    pub(crate) fn take_paste(&mut self) -> Option<PathPaste> {
        self.paste.take()
    }

    pub(crate) fn take_input_after_enter(&mut self) -> Option<Vec<Input>> {
        self.input_after_enter.take()
    }

    /// Takes back what was typed, also what is still looked at. An image that is on its way still comes.
    pub(crate) fn discard_input(&mut self) {
        self.paste = None;
        self.input_after_enter = None;
    }

    /// Keeps an image for as long as the conversation.
    pub(crate) fn add_image(&mut self, image: PastedImage) {
        self.images.push(image);
    }
}

/// What a task gives, and that it is over; for ever where there is none.
async fn task_result<T>(task: &mut Option<JoinHandle<Result<T, String>>>) -> Result<T, String> {
    let Some(running) = task else {
        return std::future::pending().await;
    };
    let done = running.await;
    *task = None;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

/// The mentions of a paste, once it was looked at; for ever where there is none.
async fn paste_mentions(paste: &mut Option<PathPaste>) -> Option<String> {
    match paste {
        Some(paste) => paste.mentions().await,
        None => std::future::pending().await,
    }
}
