//! The face: what is shown and typed in a conversation, until it is left.
//!
//! One task that owns the screen. It hears keys and updates, asks for what the person wants, and
//! draws at most thirty times a second, and at once what is typed. It holds what waits to be said, so that it can be taken back.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_recursion::async_recursion as boxed;
use conjure_core::chat::Event;
use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use crate::attachments::Attachments;
use crate::completion::Command;
use crate::conversation::{ConversationStatus, PersonRequest, Update};
use crate::editor::{EditOutcome, Editor};
use crate::history::InputHistory;
use crate::image::ImageProtocol;
use crate::keys::Keys;
use crate::message_queue::MessageQueue;
use crate::offers::Offers;
use crate::pending_image::PendingImage;
use crate::pick::size;
use crate::prompt_queue::{InputMode, PromptQueue};
use crate::screen::Screen;
use crate::transcript::TranscriptRenderer;
use crate::{history_lines, pasted};

/// The time between two frames while much is told. What is typed does not wait for it.
pub const FRAME: Duration = Duration::from_millis(33);
/// Part of the time that frames may be drawn in, as one in so many, and the longest time between two: a
/// long paragraph is rendered whole each time, and takes longer the more there is of it.
const SHARE: u32 = 80;
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// How often what moves by itself is drawn.
const STEP: Duration = Duration::from_millis(100);
/// The most updates that are taken in before a frame.
const MAX_UPDATES: usize = 4096;

/// How the face is.
#[derive(Debug, Clone)]
pub struct FaceOptions {
    /// Whether there are colours.
    pub has_colors: bool,
    /// Where what was typed is kept; nothing for nowhere.
    pub history: Option<PathBuf>,
    /// Where `@` looks for files.
    pub directory: PathBuf,
    /// The host's commands.
    pub commands: Vec<Command>,
    /// How the terminal is given images; nothing where it cannot show any.
    pub images: Option<ImageProtocol>,
    /// What is said first, with the program's own styles.
    pub greeting: String,
}

/// Shows a conversation until it is left.
///
/// # Errors
/// When there is no terminal, or it is gone.
#[boxed]
pub async fn converse(
    options: FaceOptions,
    updates: mpsc::Receiver<Update>,
    requests: mpsc::Sender<PersonRequest>,
) -> io::Result<()> {
    let screen = Screen::new(Box::new(io::stdout()), options.has_colors, size()?);
    let mut face = Face::new(options, screen, Keys::read()?, requests);
    let done = face.run_until_exit(updates).await;
    let left = face.leave();
    done.and(left)
}

pub(crate) struct Face {
    pub(crate) screen: Screen,
    pub(crate) keys: Keys,
    pub(crate) transcript: TranscriptRenderer,
    pub(crate) editor: Editor,
    pub(crate) offers: Offers,
    pub(crate) attachments: Attachments,
    pub(crate) prompts: PromptQueue,
    pub(crate) queue: MessageQueue,
    image: PendingImage,
    pub(crate) status: ConversationStatus,
    /// Whether something runs that was asked for.
    pub(crate) is_busy: bool,
    /// Whether Ctrl-C was pressed, and the next one leaves.
    pub(crate) is_exit_armed: bool,
    /// Whether the next frame waits for nothing.
    is_due: bool,
    is_over: bool,
    requests: mpsc::Sender<PersonRequest>,
}

impl Face {
    pub(crate) fn new(
        options: FaceOptions,
        screen: Screen,
        keys: Keys,
        requests: mpsc::Sender<PersonRequest>,
    ) -> Self {
        let mut transcript = TranscriptRenderer::new(screen.columns());
        transcript.print(&options.greeting);
        Self {
            screen,
            keys,
            transcript,
            editor: Editor::new(InputHistory::open(options.history)),
            offers: Offers::new(options.commands, options.directory),
            attachments: Attachments::default(),
            prompts: PromptQueue::default(),
            queue: MessageQueue::default(),
            image: PendingImage::new(options.images),
            status: ConversationStatus::default(),
            is_busy: false,
            is_exit_armed: false,
            is_due: false,
            is_over: false,
            requests,
        }
    }

    async fn run_until_exit(&mut self, mut updates: mpsc::Receiver<Update>) -> io::Result<()> {
        let mut drawn = Instant::now();
        let mut pause = FRAME;
        self.draw()?;
        while !self.is_over {
            let step = if self.transcript.is_moving() {
                STEP
            } else {
                Duration::from_secs(3600)
            };
            let may_be_told = !self.image.is_reading();
            tokio::select! {
                biased;
                input = self.keys.next() => {
                    let Some(input) = input else { return Ok(()) };
                    self.input(input).await?;
                    // A paste without brackets comes as many keys.
                    while let Some(input) = self.keys.try_next() {
                        self.input(input).await?;
                    }
                }
                ready = self.attachments.next() => self.attach(ready).await?,
                () = self.offers.finish_scan() => self.offers.refresh(&self.editor),
                lines = self.image.lines() => self.transcript.push(lines),
                update = updates.recv(), if may_be_told => {
                    let Some(update) = update else { return Ok(()) };
                    self.update(update).await;
                    let until = drawn + pause;
                    for _ in 0..MAX_UPDATES {
                        let Some(update) = self.next_update(&mut updates) else { break };
                        self.update(update).await;
                    }
                    if !self.is_due && Instant::now() < until {
                        // More may come before the frame is due; keys do not wait for it.
                        tokio::select! {
                            biased;
                            input = self.keys.next() => {
                                let Some(input) = input else { return Ok(()) };
                                self.input(input).await?;
                            }
                            () = tokio::time::sleep_until(until.into()) => {
                                while let Some(update) = self.next_update(&mut updates) {
                                    self.update(update).await;
                                }
                            }
                        }
                    }
                }
                () = tokio::time::sleep(step) => {}
            }
            let begun = Instant::now();
            self.draw()?;
            self.is_due = false;
            drawn = Instant::now();
            pause = (drawn.duration_since(begun) * SHARE).clamp(FRAME, MAX_PAUSE);
        }
        Ok(())
    }

    /// An update that is there already, unless it has to wait for what was told before it.
    fn next_update(&self, updates: &mut mpsc::Receiver<Update>) -> Option<Update> {
        let may_follow = !self.image.is_reading();
        may_follow.then(|| updates.try_recv().ok()).flatten()
    }

    pub(crate) async fn send_request(&mut self, request: PersonRequest) {
        if self.requests.send(request).await.is_err() {
            self.is_over = true;
        }
    }

    /// Asks for something that has to be done before anything else is asked for.
    pub(crate) async fn begin(&mut self, request: PersonRequest) {
        self.is_busy = true;
        self.queue.resume();
        self.transcript.begin();
        self.send_request(request).await;
    }

    pub(crate) async fn update(&mut self, update: Update) {
        let columns = self.screen.columns();
        match update {
            Update::Event(event) => self.event(&event),
            Update::Print(text) => self.transcript.print(&text),
            Update::Image { name, path } => {
                self.image.read(name, path, (columns, self.screen.rows()));
            }
            Update::Status(status) => self.status = status,
            Update::Ready => {
                self.is_busy = false;
                self.transcript.end();
                self.offers.forget_files();
                self.cancel_prompts().await;
                // What is picked may be of what is shown now, so that comes first.
                if !self.prompts.has_picker() {
                    self.send_next().await;
                }
            }
            Update::Halted => self.queue.pause(),
            Update::Approval {
                call,
                reason,
                overwritten,
            } => {
                if let Some(text) = &overwritten {
                    self.transcript.set_overwritten(&call.id, text);
                }
                self.enqueue(InputMode::approval(call, reason, overwritten));
            }
            Update::Question(asked) => self.enqueue(InputMode::form(&asked)),
            Update::Others(prompt) => self.handle_others_prompt(prompt),
            Update::Pick(picker) => self.enqueue(InputMode::Picker(picker)),
            Update::SearchResults {
                list,
                words,
                choices,
            } => self.show_search_results(&list, &words, choices).await,
            Update::Edit(text) => {
                if !self.has_text() {
                    // The line is for another text now.
                    self.queue.restore_edited();
                    self.return_text(text);
                }
            }
            Update::History(said) => {
                let lines = history_lines::lines(&said, columns);
                self.transcript.push(lines);
                // It comes once, soon behind the first frame, and the person waits for it.
                self.is_due = true;
            }
            Update::OthersItems(said) => {
                let lines = history_lines::lines(&said, columns);
                self.transcript.push_spaced(lines);
            }
            Update::Quit => self.is_over = true,
        }
    }

    fn event(&mut self, event: &Event) {
        self.transcript.event(event);
        match event {
            Event::Error(_) => self.queue.pause(),
            Event::Question(asked) => self.enqueue(InputMode::form(asked)),
            Event::QuestionOver { id, .. } => self.settle(id),
            Event::ApprovalOver { call_id, .. } | Event::CallStarted { call_id, .. } => {
                self.settle(call_id);
            }
            Event::FunctionCallOutput(output) => self.settle(&output.call_id),
            _ => {}
        }
    }

    pub(crate) async fn input(&mut self, input: Input) -> io::Result<()> {
        if is_interrupt(&input) && self.is_writing_message() {
            // It clears what is typed, also what is still looked at.
            self.attachments.discard_input();
        }
        // What comes while a paste is looked at stands behind it; Ctrl-C waits for nothing.
        if let Some(behind) = self.attachments.deferred_input()
            && !matches!(input, Input::Resize(..))
            && !is_interrupt(&input)
        {
            behind.push(input);
            return Ok(());
        }
        match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => self.key(key).await,
            Input::Paste(text) if !self.mode_paste(&text) => {
                // The path of a file is one that is to go with the message.
                if self.mention_prefix().is_some() && pasted::may_be_paths(&text) {
                    self.attachments.check_paste(text);
                } else {
                    self.insert_text(&text);
                }
            }
            Input::Resize(columns, rows) => {
                self.screen
                    .resize(usize::from(columns.max(1)), usize::from(rows.max(2)))?;
                self.transcript.resize(self.screen.columns());
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) async fn key(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let is_interrupt = control && key.code == KeyCode::Char('c');
        if !is_interrupt {
            self.is_exit_armed = false;
        }
        let is_done = self.mode_key(key).await || self.offers.key(key, &mut self.editor);
        if !is_done {
            self.global_key(key).await;
        }
    }

    /// Does what a key says that no prompt and no offer takes.
    async fn global_key(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => self.interrupt().await,
            KeyCode::Char('d') if control && self.editor.is_empty() => self.is_over = true,
            KeyCode::Char('z') if control => self.suspend(),
            KeyCode::Char('v') if control => self.paste_image(),
            KeyCode::Char('t') if control => self.transcript.toggle_thoughts(),
            KeyCode::Char('o') if control => self.transcript.show_output(),
            KeyCode::Char('g') if control && !self.editor.is_searching() => self.external(),
            KeyCode::Esc if !self.editor.is_searching() => {
                if self.is_busy {
                    self.stop().await;
                }
            }
            code if key.modifiers.is_empty() && self.queue_key(code).await => {}
            _ => match self.editor.key(key) {
                EditOutcome::Enter => self.enter().await,
                EditOutcome::Edited => self.offers.refresh(&self.editor),
                EditOutcome::Ignored => {}
            },
        }
    }

    /// Puts a text in place of what is being typed. What was offered for that is offered no longer.
    pub(crate) fn replace_text(&mut self, text: &str) {
        self.editor.set(text);
        self.offers.close();
    }

    pub(crate) async fn enter(&mut self) {
        // An image that is on its way goes with what is sent.
        if self.attachments.holds_enter() {
            return;
        }
        if self.editor.full_text().trim().is_empty() {
            return;
        }
        self.offers.close();
        let text = self.editor.take();
        if self.is_busy {
            self.queue.push(text);
        } else if self.queue.has_before_edited() {
            // Those before it are said first, also where they were held.
            self.queue.push(text);
            self.queue.resume();
            self.send_next().await;
        } else {
            self.queue.drop_edited();
            self.submit(text).await;
        }
    }

    /// Says what waits; where what it waited for was stopped or failed, the person says it.
    pub(crate) async fn send_next(&mut self) {
        if self.queue.is_paused() && (self.has_text() || self.queue.is_editing()) {
            return;
        }
        match self.queue.take_oldest() {
            Some(next) if self.queue.is_paused() => self.return_text(next),
            Some(next) => self.submit(next).await,
            None => {}
        }
    }

    /// Whether a message is being typed, or lies aside while a question has the line.
    fn has_text(&self) -> bool {
        if self.is_answering() {
            self.prompts.has_draft()
        } else {
            !self.editor.is_empty()
        }
    }

    /// Gives the person a message to go on typing at: aside where the line is a question's, as it would
    /// be the answer there.
    fn return_text(&mut self, text: String) {
        if self.is_answering() {
            self.prompts.save_draft(text);
        } else {
            self.replace_text(&text);
        }
    }

    async fn submit(&mut self, text: String) {
        let trimmed = text.trim();
        if matches!(trimmed, "/quit" | "/exit") {
            self.is_over = true;
            return;
        }
        self.transcript.push_message(trimmed);
        let request = if let Some(command) = trimmed.strip_prefix('!') {
            PersonRequest::Shell(command.trim().to_owned())
        } else if trimmed.starts_with('/') {
            PersonRequest::Command(trimmed.to_owned())
        } else {
            PersonRequest::Say(trimmed.to_owned())
        };
        self.begin(request).await;
    }

    /// Ctrl-C: clears what is typed and drops a message that was taken to be changed, else stops what
    /// runs, and the second one leaves.
    async fn interrupt(&mut self) {
        let is_changing_taken = self.is_editing_queued();
        if !self.editor.is_empty() || is_changing_taken {
            self.replace_text("");
            if is_changing_taken {
                self.drop_edited().await;
            }
            return;
        }
        if std::mem::replace(&mut self.is_exit_armed, true) {
            self.is_over = true;
        } else if self.is_busy {
            self.stop().await;
        }
    }

    /// Stops what runs; what waits for its end is the person's again.
    async fn stop(&mut self) {
        self.queue.pause();
        self.send_request(PersonRequest::Stop).await;
    }
}

/// Whether it is Ctrl-C.
fn is_interrupt(input: &Input) -> bool {
    matches!(input, Input::Key(key) if key.kind != KeyEventKind::Release
        && key.code == KeyCode::Char('c')
        && key.modifiers.contains(KeyModifiers::CONTROL))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::conversation::PastItem;
    use crate::screen::tests::Written;

    #[tokio::test]
    async fn what_was_said_before_does_not_wait_for_the_time_of_the_next_frame() {
        let written = Written::default();
        let screen = Screen::new(Box::new(written.clone()), false, (80, 24));
        let (_typed, keys) = mpsc::channel(1);
        let (requests, _asked) = mpsc::channel(1);
        let options = FaceOptions {
            has_colors: false,
            history: None,
            directory: std::env::temp_dir(),
            commands: Vec::new(),
            images: None,
            greeting: "Welcome".to_owned(),
        };
        let mut face = Face::new(options, screen, Keys::of(keys), requests);
        let (tell, updates) = mpsc::channel(1);
        let mut left = pin!(face.run_until_exit(updates));
        let mut context = Context::from_waker(Waker::noop());
        assert!(left.as_mut().poll(&mut context).is_pending());
        assert!(written.take().contains("Welcome"));
        let said = vec![PastItem::Person("Whereto".to_owned())];
        tell.try_send(Update::History(said)).unwrap();
        assert!(left.as_mut().poll(&mut context).is_pending());
        let frame = written.take();
        assert!(frame.contains("Whereto"), "{frame:?}");
    }
}
