//! The face: what is shown and typed in a conversation, until it is left.
//!
//! One task that owns the screen. It hears keys and updates, asks for what the person wants, and
//! draws at most thirty times a second, and at once what is typed. It holds what waits to be said, so that it can be taken back.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use conjure_core::chat::Event;
use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::completion::{Command, CompletionList, FileIndex};
use crate::conversation::{ConversationStatus, PersonRequest, Update};
use crate::editor::{EditOutcome, Editor};
use crate::history::InputHistory;
use crate::image::ImageProtocol;
use crate::keys::Keys;
use crate::pasted::{PastedImage, PathPaste};
use crate::pick::size;
use crate::screen::Screen;
use crate::text::Color;
use crate::transcript::TranscriptRenderer;
use crate::waiting::InputMode;
use crate::{before, external, image, pasted};

/// The time between two frames while much is told. What is typed does not wait for it.
pub const FRAME: Duration = Duration::from_millis(33);
/// Of how much time a frame may be drawn, as one part of so many, and the longest time between two:
/// a long paragraph is rendered whole each time, and takes longer the more there is of it.
const SHARE: u32 = 80;
const LONGEST: Duration = Duration::from_millis(500);
/// How often what moves by itself is drawn.
const STEP: Duration = Duration::from_millis(100);
/// The most updates that are taken in before a frame.
const MOST_UPDATES: usize = 4096;

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
pub async fn converse(
    options: FaceOptions,
    updates: mpsc::Receiver<Update>,
    requests: mpsc::Sender<PersonRequest>,
) -> io::Result<()> {
    let screen = Screen::new(Box::new(io::stdout()), options.has_colors, size()?);
    let mut face = Face::new(options, screen, Keys::read()?, requests);
    let done = face.until_left(updates).await;
    let left = face.leave();
    done.and(left)
}

pub(crate) struct Face {
    pub(crate) screen: Screen,
    keys: Keys,
    pub(crate) transcript: TranscriptRenderer,
    pub(crate) editor: Editor,
    files: FileIndex,
    images: Option<ImageProtocol>,
    /// Images of the clipboard, which go when the conversation is left.
    pasted: Vec<PastedImage>,
    /// The image that is being taken out of the clipboard.
    pub(crate) pasting: Option<JoinHandle<Result<PastedImage, String>>>,
    /// A paste that may be paths of images, while that is looked at.
    pub(crate) paste: Option<PathPaste>,
    commands: Vec<Command>,
    pub(crate) offer: Option<CompletionList>,
    /// Whether the person left what was offered for this text.
    offer_left: bool,
    /// What waits for the person, the first in front.
    pub(crate) modes: VecDeque<InputMode>,
    /// What was being typed when something else needed the line.
    pub(crate) draft: Option<String>,
    /// What was typed while something ran.
    pub(crate) queued: VecDeque<String>,
    pub(crate) status: ConversationStatus,
    /// Whether something runs that was asked for.
    pub(crate) is_busy: bool,
    /// Whether Ctrl-C was pressed, and the next one leaves.
    pub(crate) leaves: bool,
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
            files: FileIndex::below(options.directory),
            images: options.images,
            pasted: Vec::new(),
            pasting: None,
            paste: None,
            commands: options.commands,
            offer: None,
            offer_left: false,
            modes: VecDeque::new(),
            draft: None,
            queued: VecDeque::new(),
            status: ConversationStatus::default(),
            is_busy: false,
            leaves: false,
            is_over: false,
            requests,
        }
    }

    async fn until_left(&mut self, mut updates: mpsc::Receiver<Update>) -> io::Result<()> {
        let mut drawn = Instant::now();
        let mut pause = FRAME;
        self.draw()?;
        while !self.is_over {
            let step = if self.transcript.is_moving() {
                STEP
            } else {
                Duration::from_secs(3600)
            };
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
                image = finished(&mut self.pasting) => self.image_pasted(image),
                mentions = looked_at(&mut self.paste) => self.path_pasted(mentions).await?,
                update = updates.recv() => {
                    let Some(update) = update else { return Ok(()) };
                    self.update(update).await;
                    let until = drawn + pause;
                    for _ in 0..MOST_UPDATES {
                        let Ok(update) = updates.try_recv() else { break };
                        self.update(update).await;
                    }
                    if Instant::now() < until {
                        // More may come before the frame is due; keys do not wait for it.
                        tokio::select! {
                            biased;
                            input = self.keys.next() => {
                                let Some(input) = input else { return Ok(()) };
                                self.input(input).await?;
                            }
                            () = tokio::time::sleep_until(until.into()) => {
                                while let Ok(update) = updates.try_recv() {
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
            drawn = Instant::now();
            pause = (drawn.duration_since(begun) * SHARE).clamp(FRAME, LONGEST);
        }
        Ok(())
    }

    pub(crate) async fn ask(&mut self, request: PersonRequest) {
        if self.requests.send(request).await.is_err() {
            self.is_over = true;
        }
    }

    /// Asks for something that has to be done before anything else is asked for.
    pub(crate) async fn begin(&mut self, request: PersonRequest) {
        self.is_busy = true;
        self.transcript.begins();
        self.ask(request).await;
    }

    pub(crate) async fn update(&mut self, update: Update) {
        let columns = self.screen.columns();
        match update {
            Update::Event(event) => self.event(&event),
            Update::Print(text) => self.transcript.print(&text),
            Update::Image { name, path } => {
                let (size, images) = ((columns, self.screen.rows()), self.images);
                // Aside: a disk may be slow.
                let read = move || image::lines(&name, &path, images, size);
                let lines = tokio::task::spawn_blocking(read).await;
                self.transcript.push(lines.unwrap_or_default());
            }
            Update::Status(status) => self.status = status,
            Update::Ready => {
                self.is_busy = false;
                self.transcript.ends();
                self.files.forget();
                self.give_up().await;
                // What is picked may be of what is shown now, so that comes first.
                if self.modes.is_empty()
                    && let Some(next) = self.queued.pop_front()
                {
                    self.submit(next).await;
                }
            }
            Update::Question(asked) => self.waits(InputMode::form(&asked)),
            Update::Pick(picker) => self.waits(InputMode::Picker(picker)),
            Update::Edit(text) => {
                if self.editor.is_empty() {
                    self.type_at(&text);
                }
            }
            Update::Before(said) => {
                let lines = before::lines(&said, columns);
                self.transcript.push(lines);
            }
            Update::Quit => self.is_over = true,
        }
    }

    fn event(&mut self, event: &Event) {
        self.transcript.event(event);
        match event {
            Event::Approval { call, reason } => {
                self.waits(InputMode::approval(call, reason));
            }
            Event::Question(asked) => self.waits(InputMode::form(asked)),
            Event::QuestionOver { id, .. } => self.settle(id),
            Event::ApprovalOver { call_id, .. } | Event::CallStarted { call_id, .. } => {
                self.settle(call_id);
            }
            Event::FunctionCallOutput(output) => self.settle(&output.call_id),
            _ => {}
        }
    }

    pub(crate) async fn input(&mut self, input: Input) -> io::Result<()> {
        // What comes while a paste is looked at stands behind it.
        if let Some(paste) = &mut self.paste
            && !matches!(input, Input::Resize(..))
        {
            paste.behind.push(input);
            return Ok(());
        }
        match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => self.key(key).await,
            Input::Paste(text) if !self.mode_paste(&text) => {
                // The path of an image is one that is to go with the message.
                if self.before_mention().is_some() && pasted::may_be_paths(&text) {
                    self.paste = Some(PathPaste::look_at(text));
                } else {
                    self.put_in(&text);
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

    /// Puts in a paste that was looked at, and what came behind it.
    pub(crate) async fn path_pasted(&mut self, mentions: Option<String>) -> io::Result<()> {
        let Some(paste) = self.paste.take() else {
            return Ok(());
        };
        if !self.modes.is_empty() {
            // Something came up meanwhile: what was written before that is no answer to it.
            let text = paste.text + &letters(&paste.behind);
            self.draft = Some(match self.draft.take() {
                Some(draft) => format!("{draft}\n{text}"),
                None => text,
            });
            return Ok(());
        }
        match self.before_mention().zip(mentions) {
            Some((space, mentions)) => self.put_in(&format!("{space}{mentions}")),
            None => self.put_in(&paste.text),
        }
        for input in paste.behind {
            self.input(input).await?;
        }
        Ok(())
    }

    fn put_in(&mut self, text: &str) {
        self.editor.paste(text);
        self.offers();
    }

    /// What goes before the mention of a file, so that it stands apart; nothing where what is written
    /// is no message, but a command or what a form asks for.
    fn before_mention(&self) -> Option<&'static str> {
        let written = self.editor.whole();
        let is_message = self.modes.is_empty() && !written.starts_with(['!', '/']);
        let is_apart = written.is_empty() || written.ends_with(char::is_whitespace);
        is_message.then_some(if is_apart { "" } else { " " })
    }

    pub(crate) async fn key(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let is_interrupt = control && key.code == KeyCode::Char('c');
        if !is_interrupt {
            self.leaves = false;
        }
        if self.mode_key(key).await {
            return;
        }
        if self.offer.is_some() && self.offer_key(key) {
            return;
        }
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
                    self.ask(PersonRequest::Stop).await;
                }
            }
            KeyCode::Up if self.editor.is_empty() && !self.queued.is_empty() => {
                // What waits is taken back to be changed.
                if let Some(text) = self.queued.pop_back() {
                    self.type_at(&text);
                }
            }
            _ => match self.editor.key(key) {
                EditOutcome::Enter => self.enter().await,
                EditOutcome::Edited => self.offers(),
                EditOutcome::Ignored => {}
            },
        }
    }

    fn offer_key(&mut self, key: KeyEvent) -> bool {
        let Some(offer) = &mut self.offer else {
            return false;
        };
        match key.code {
            KeyCode::Down => offer.next(),
            KeyCode::Up => offer.previous(),
            KeyCode::Tab => self.take_offer(),
            // A command that is whole is meant; one that is not becomes so.
            KeyCode::Enter
                if key.modifiers.is_empty() && !self.editor.has(offer.chosen().0.trim_end()) =>
            {
                self.take_offer();
            }
            KeyCode::Esc => {
                self.offer = None;
                self.offer_left = true;
            }
            _ => return false,
        }
        true
    }

    fn take_offer(&mut self) {
        if let Some(offer) = self.offer.take() {
            let (text, replaced) = offer.chosen();
            self.editor.complete(replaced, text);
        }
    }

    /// Puts a text in place of what is being typed. What was offered for that is offered no longer.
    pub(crate) fn type_at(&mut self, text: &str) {
        self.editor.set(text);
        self.offer = None;
        self.offer_left = false;
    }

    /// Looks for what can be offered at the cursor.
    fn offers(&mut self) {
        let (before, at_end) = self.editor.before_cursor();
        let is_word = before.starts_with('/') || before.contains('@');
        if !is_word || !at_end || self.editor.is_searching() {
            self.offer = None;
            self.offer_left = false;
        } else if !self.offer_left {
            self.offer = CompletionList::at(before, &self.commands, &mut self.files);
        }
    }

    async fn enter(&mut self) {
        if self.pasting.is_some() {
            // It goes with what is sent.
            let image = finished(&mut self.pasting).await;
            self.image_pasted(image);
        }
        if self.editor.whole().trim().is_empty() {
            return;
        }
        self.offer = None;
        self.offer_left = false;
        let text = self.editor.take();
        if self.is_busy {
            self.queued.push_back(text);
        } else {
            self.submit(text).await;
        }
    }

    async fn submit(&mut self, text: String) {
        let trimmed = text.trim();
        if matches!(trimmed, "/quit" | "/exit") {
            self.is_over = true;
            return;
        }
        self.transcript.said(trimmed);
        let request = if let Some(command) = trimmed.strip_prefix('!') {
            PersonRequest::Shell(command.trim().to_owned())
        } else if trimmed.starts_with('/') {
            PersonRequest::Command(trimmed.to_owned())
        } else {
            PersonRequest::Say(trimmed.to_owned())
        };
        self.begin(request).await;
    }

    /// Ctrl-C: clears what is typed, else stops what runs, and the second one leaves.
    async fn interrupt(&mut self) {
        if !self.editor.is_empty() {
            self.type_at("");
            return;
        }
        if std::mem::replace(&mut self.leaves, true) {
            self.is_over = true;
        } else if self.is_busy {
            self.ask(PersonRequest::Stop).await;
        }
    }

    /// Lets another editor have the text.
    fn external(&mut self) {
        let text = self.editor.whole();
        match self.lend(|| external::edit(&text)) {
            Ok(text) => self.type_at(text.trim_end()),
            Err(error) => self
                .transcript
                .note("note: ", Color::Yellow, &error.to_string()),
        }
    }

    /// Takes the image that the clipboard holds, aside: its program may be slow.
    fn paste_image(&mut self) {
        if self.before_mention().is_none() {
            self.no_message();
        } else if self.pasting.is_none() {
            self.pasting = Some(tokio::spawn(pasted::from_clipboard()));
        }
    }

    fn no_message(&mut self) {
        let words = "an image goes with a message, not with a command or an answer";
        self.transcript.note("note: ", Color::Yellow, words);
    }

    /// Attaches the image that the clipboard held.
    fn image_pasted(&mut self, image: Result<PastedImage, String>) {
        let mention = image.and_then(|image| {
            let mention = pasted::mention(&image.0);
            self.pasted.push(image);
            mention.ok_or_else(|| "the directory for it has a name that cannot be said".to_owned())
        });
        match mention {
            Ok(mention) => match self.before_mention() {
                Some(space) => self.put_in(&format!("{space}{mention}")),
                // Something else is being written by now.
                None => self.no_message(),
            },
            Err(words) => self.transcript.note("note: ", Color::Yellow, &words),
        }
    }

    /// Stops the program until the shell lets it go on.
    fn suspend(&mut self) {
        let stopped = self.lend(|| {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::TSTP)
        });
        if let Err(error) = stopped {
            self.transcript
                .note("note: ", Color::Yellow, &error.to_string());
        }
    }

    /// Lets something else have the terminal.
    fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        // A terminal that is gone is found out by the next frame.
        let _ = self.screen.clear();
        let done = self.keys.lend(work);
        if let Ok((columns, rows)) = size() {
            let _ = self.screen.resize(columns, rows);
            self.transcript.resize(self.screen.columns());
        }
        done
    }
}

/// The letters among what was typed.
fn letters(inputs: &[Input]) -> String {
    let typed = inputs.iter().filter_map(|input| match input {
        Input::Key(key)
            if key.kind != KeyEventKind::Release
                && !key.modifiers.contains(KeyModifiers::CONTROL) =>
        {
            key.code.as_char()
        }
        _ => None,
    });
    typed.collect()
}

/// What a task gives, and that it is over; for ever where there is none.
async fn finished<T>(task: &mut Option<JoinHandle<Result<T, String>>>) -> Result<T, String> {
    let Some(running) = task else {
        return std::future::pending().await;
    };
    let done = running.await;
    *task = None;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

/// The mentions of a paste, once it was looked at; for ever where there is none.
pub(crate) async fn looked_at(paste: &mut Option<PathPaste>) -> Option<String> {
    match paste {
        Some(paste) => paste.mentions().await,
        None => std::future::pending().await,
    }
}
