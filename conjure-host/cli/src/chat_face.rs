//! A chat on a terminal: the face of `conjure-terminal`, and the session that it talks to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use conjure_core::chat::Event;
use conjure_runtime::uploads;
use conjure_terminal::{
    ConversationStatus, FaceOptions, ImageProtocol, OthersPrompt, PersonRequest, Update, converse,
};
use tokio::sync::mpsc;
use tokio::time::Interval;

use super::answer_end::note_empty_answer;
use super::args::{Global, home_relative};
use super::chat_answers::answered_prompt_id;
use super::chat_opening::{self, ChatToShow, OpenedChat, OpeningEnd};
use super::chat_others::{poll_interval, unless_interrupted};
use super::chat_picking::PickOutcome;
use super::chat_session::ChatSession;
use super::chat_shell::{self, UserShellCommand, UserShellCommandEvent};
use super::chat_turn::{ChatTurn, ChatTurnEvent};
use super::error::CliError;
use super::exit::Exit;
use super::open_prompts::{OpenPrompts, prompt_id, settled_id};
use super::output::{self, BOLD, DIM, RESET, print_note};
use super::signals::{Signal, Signals};
use super::terminal_support::has_colors;
use super::thread_directories::ThreadDirectories;
use super::transcript::Transcript;
use super::{chat_commands, chat_mentions, chat_picking, person};

/// How many updates may wait for the face.
const WAITING: usize = 4096;
/// How long a turn may take to end when the chat is left.
const ENDING: Duration = Duration::from_secs(5);

/// Holds a conversation until it is left, and says how to come back to it. A session that was opened
/// comes back whatever happened, to be closed; an error says that it cannot be opened, or that the
/// terminal is gone, or the store.
pub(crate) async fn run(
    global: &Global,
    chat: ChatToShow,
    signals: &mut Signals,
) -> (Option<ChatSession>, Result<Exit, CliError>) {
    let directory = match chat.directory().await {
        Ok(directory) => directory,
        Err(error) => return (chat.into_open(), Err(error)),
    };
    let (updates, told) = mpsc::channel(WAITING);
    let (asked, mut requests) = mpsc::channel(64);
    let options = FaceOptions {
        has_colors: has_colors(),
        history: Some(global.input_history()),
        directory: directory.clone(),
        commands: chat_commands::COMMANDS.to_vec(),
        images: ImageProtocol::of_terminal(|name| std::env::var(name).ok()),
        greeting: format!(
            "{BOLD}Conjure{RESET} {DIM}{}  /help tells the commands{RESET}",
            env!("CARGO_PKG_VERSION")
        ),
    };
    // What comes between two frames is seen with the next one.
    chat.host().show_replies_every(conjure_terminal::FRAME);
    output::show_in(Some(updates.clone()));
    let face = tokio::spawn(converse(options, told, asked));
    let opened = match chat {
        ChatToShow::Open(chat) => Ok(OpeningEnd::Open(OpenedChat::of(chat))),
        ChatToShow::Unopened(prepared) => {
            chat_opening::open(*prepared, &updates, &mut requests, signals).await
        }
    };
    let (talk, ended) = match opened {
        Ok(OpeningEnd::Open(opened)) => {
            let mut talk = FacedChat::of(global, directory, opened, updates.clone());
            let ended = Box::pin(talk.run_until_exit(requests, signals)).await;
            (Some(talk), ended)
        }
        Ok(OpeningEnd::Cancelled(signal)) => (None, Ok(signal)),
        Err(error) => (None, Err(error)),
    };
    output::show_in(None);
    let used = talk.as_ref().is_some_and(|talk| talk.was_used);
    // With its last sender the face is told to go.
    let chat = talk.map(|talk| talk.chat);
    drop(updates);
    let left = match face.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(CliError::host_from(error).context("the terminal cannot be used")),
        Err(error) => Err(CliError::host_from(error)),
    };
    if let Some(chat) = chat.as_ref().filter(|_| used && left.is_ok()) {
        chat.print_resume_command();
    }
    let exit = left.and(ended);
    (
        chat,
        exit.map(|signal| signal.map_or(Exit::Success, Signal::exit)),
    )
}

/// A chat that a face shows.
pub(crate) struct FacedChat<'a> {
    pub(crate) global: &'a Global,
    pub(crate) chat: ChatSession,
    pub(crate) directory: PathBuf,
    updates: mpsc::Sender<Update>,
    pub(crate) turn: ChatTurn,
    /// The person's own command that runs.
    command: Option<UserShellCommand>,
    /// What such commands said since the last message.
    command_outputs: Vec<String>,
    /// What waits in the chat's own turn, as its event asked it.
    pub(crate) open: BTreeMap<String, Event>,
    /// What was asked in turns that somebody else began, until it is looked up and shown.
    pub(crate) open_prompts: OpenPrompts,
    /// What is shown of that.
    pub(crate) shown_prompts: BTreeMap<String, OthersPrompt>,
    /// When it is looked what of that still waits.
    poll_interval: Interval,
    /// Where the conversations of a list are at home.
    directories: ThreadDirectories,
    pub(crate) status: ConversationStatus,
    is_stopping: bool,
    /// Whether something was said.
    pub(crate) was_used: bool,
    /// Whether something was said before, the last of which is shown already.
    pub(crate) is_shown: bool,
    /// What the person wanted while the chat was opened.
    pending_request: Option<PersonRequest>,
}

impl<'a> FacedChat<'a> {
    fn of(
        global: &'a Global,
        directory: PathBuf,
        opened: OpenedChat,
        updates: mpsc::Sender<Update>,
    ) -> Self {
        let status = ConversationStatus {
            directory: home_relative(&directory),
            ..ConversationStatus::default()
        };
        Self {
            global,
            directory,
            chat: opened.chat,
            updates,
            turn: ChatTurn::None,
            command: None,
            command_outputs: Vec::new(),
            open: BTreeMap::new(),
            open_prompts: OpenPrompts::default(),
            shown_prompts: BTreeMap::new(),
            poll_interval: poll_interval(),
            directories: ThreadDirectories::default(),
            status,
            is_stopping: false,
            was_used: false,
            is_shown: opened.is_shown,
            pending_request: opened.pending_request,
        }
    }

    pub(crate) async fn send_update(&self, update: Update) {
        // A face that is gone is told by its closed channel.
        let _ = self.updates.send(update).await;
    }

    async fn run_until_exit(
        &mut self,
        mut requests: mpsc::Receiver<PersonRequest>,
        signals: &mut Signals,
    ) -> Result<Option<Signal>, CliError> {
        self.show_history().await?;
        if let Some(request) = self.pending_request.take() {
            self.request(request, &mut requests).await;
        }
        loop {
            tokio::select! {
                biased;
                signal = signals.next() => return Ok(Some(self.quit(signal, signals).await)),
                request = requests.recv() => {
                    let Some(request) = request else {
                        self.shut_down(signals).await;
                        return Ok(None);
                    };
                    self.request(request, &mut requests).await;
                }
                said = next_command_event(&mut self.command) => self.handle_command_event(said).await,
                () = tokio::time::sleep_until(self.open_prompts.due()), if !self.open_prompts.is_empty() => {
                    let updates = self.updates.clone();
                    let shown = Box::pin(self.show_open_prompts());
                    if let Some(signal) = unless_interrupted(shown, &updates, signals).await {
                        return Ok(Some(self.quit(signal, signals).await));
                    }
                }
                step = self.turn.next(&mut self.chat) => match step {
                    ChatTurnEvent::Event(event) => self.event(*event).await,
                    ChatTurnEvent::Others(news) => {
                        let updates = self.updates.clone();
                        let shown = Box::pin(self.show_others_update(news));
                        if let Some(signal) = unless_interrupted(shown, &updates, signals).await {
                            return Ok(Some(self.quit(signal, signals).await));
                        }
                    }
                    ChatTurnEvent::Over(done) => self.finish_turn(done).await,
                },
                _ = self.poll_interval.tick(), if !self.shown_prompts.is_empty() => {
                    let updates = self.updates.clone();
                    let looked = Box::pin(self.refresh_others());
                    if let Some(signal) = unless_interrupted(looked, &updates, signals).await {
                        return Ok(Some(self.quit(signal, signals).await));
                    }
                }
            }
        }
    }

    /// Leaves since a signal came.
    async fn quit(&mut self, signal: Signal, signals: &mut Signals) -> Signal {
        self.send_update(Update::Quit).await;
        self.shut_down(signals).await;
        signal
    }

    /// Does what the person wants.
    async fn request(
        &mut self,
        request: PersonRequest,
        requests: &mut mpsc::Receiver<PersonRequest>,
    ) {
        if let PersonRequest::Command(line) = request {
            Box::pin(self.run_command(&line, requests)).await;
            return;
        }
        let begins = is_blocking(&request);
        let answered = answered_prompt_id(&request).map(str::to_owned);
        if let Err(error) = self.handle_request(request).await {
            chat_commands::report_error(&error);
            if let Some(id) = answered {
                // What could not be answered still waits.
                Box::pin(self.repeat_prompts(&id)).await;
            } else if begins && !self.turn.runs() && self.command.is_none() {
                self.send_update(Update::Halted).await;
                self.send_update(Update::Ready).await;
            }
        }
    }

    /// Ends what runs, and waits for its end: a session that runs cannot be closed. What cannot be
    /// told any more ends with the program.
    async fn shut_down(&mut self, signals: &mut Signals) {
        if let Some(command) = self.command.take() {
            // One that does not end is killed when it is dropped.
            let _ = tokio::time::timeout(ENDING, command.end()).await;
        }
        if !self.turn.runs() || self.turn.stop(&self.chat).await.is_err() {
            return;
        }
        let ended = async {
            while self.turn.runs() {
                self.turn.next(&mut self.chat).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(ENDING, ended) => {}
            _ = signals.next() => {}
        }
    }

    async fn event(&mut self, event: Event) {
        if let Some(id) = prompt_id(&event) {
            self.open.insert(id.to_owned(), event.clone());
        } else if let Some(id) = settled_id(&event) {
            self.open.remove(id);
        }
        match &event {
            // It was shown with the message that it is attached to.
            Event::File { source, .. } if source == uploads::SOURCE => return,
            Event::Round {
                provider, model, ..
            } => {
                self.set_model(provider, model);
                self.send_update(Update::Status(self.status.clone())).await;
            }
            Event::Cost { thread, .. } => {
                self.status.tokens = thread.cost.usage.total();
                self.status.usd = thread.cost.usd;
                self.send_update(Update::Status(self.status.clone())).await;
            }
            Event::Approval { call, reason } => return self.show_approval(call, reason).await,
            Event::Done { turn_id, .. } => Box::pin(self.mark_shown(turn_id)).await,
            _ => {}
        }
        let made = match &event {
            Event::File { artifact, .. } if artifact.media_type.starts_with("image/") => {
                Some(artifact.clone())
            }
            _ => None,
        };
        note_empty_answer(&event);
        self.send_update(Update::Event(event)).await;
        if let Some(made) = made {
            self.show_image(&made.id).await;
        }
    }

    /// Shows an image that a call made, where it is on this machine.
    async fn show_image(&self, id: &str) {
        let Ok(files) = self.chat.files().await else {
            return;
        };
        let made = files.into_iter().find(|file| file.id == id);
        let Some((name, Some(path))) = made.map(|made| (made.name, made.path)) else {
            return;
        };
        self.send_update(Update::Image { name, path }).await;
    }

    async fn finish_turn(&mut self, done: Result<(), CliError>) {
        if std::mem::take(&mut self.is_stopping) {
            print_note(format_args!(
                "{DIM}Stopped. What came so far is kept.{RESET}"
            ));
        }
        if let Err(error) = done {
            output::error_aside(&error);
            self.send_update(Update::Halted).await;
        }
        self.open.clear();
        self.measure().await;
        self.send_update(Update::Status(self.status.clone())).await;
        self.send_update(Update::Ready).await;
    }

    async fn handle_request(&mut self, request: PersonRequest) -> Result<(), CliError> {
        match request {
            PersonRequest::Say(text) => self.say(&text).await,
            PersonRequest::Shell(command) if command.is_empty() => {
                print_note(chat_shell::USAGE);
                self.send_update(Update::Ready).await;
                Ok(())
            }
            PersonRequest::Shell(command) => {
                self.command = Some(UserShellCommand::start(&command, &self.directory)?);
                Ok(())
            }
            PersonRequest::Stop => {
                if let Some(command) = &mut self.command {
                    command.stop();
                } else if self.turn.runs() {
                    self.is_stopping = true;
                    self.turn.stop(&self.chat).await?;
                }
                Ok(())
            }
            PersonRequest::Decide { call_id, decision } => self.decide(&call_id, decision).await,
            PersonRequest::Answer { id, content } => self.answer(&id, content).await,
            PersonRequest::Command(_) => Ok(()),
            PersonRequest::Search { list, words } => {
                self.search(list, words).await;
                Ok(())
            }
            PersonRequest::Pick { list, id } => {
                self.handle_pick(&list, id).await?;
                self.send_update(Update::Ready).await;
                Ok(())
            }
        }
    }

    async fn say(&mut self, text: &str) -> Result<(), CliError> {
        let told = &self.command_outputs;
        let message = chat_mentions::message(self.chat.host(), &self.directory, text, told)?;
        self.was_used = true;
        self.is_stopping = false;
        self.turn = ChatTurn::begin(&mut self.chat, message).await?;
        // What was not said goes with the next message.
        self.command_outputs.clear();
        Ok(())
    }

    async fn handle_command_event(&mut self, said: Result<UserShellCommandEvent, CliError>) {
        match said {
            Ok(UserShellCommandEvent::Line(line)) => chat_shell::show_line(&line),
            Ok(UserShellCommandEvent::Over {
                status,
                message: told,
            }) => {
                self.command = None;
                chat_shell::show_status(&status);
                self.command_outputs.push(told);
                self.send_update(Update::Ready).await;
            }
            Err(error) => {
                self.command = None;
                chat_commands::report_error(&error);
                self.send_update(Update::Halted).await;
                self.send_update(Update::Ready).await;
            }
        }
    }

    /// Shows the list of a command that is given nothing to choose, unless the person stops it;
    /// whether the command is done with that.
    async fn pick(
        &mut self,
        line: &str,
        requests: &mut mpsc::Receiver<PersonRequest>,
    ) -> Result<bool, CliError> {
        let picker = tokio::select! {
            biased;
            // A provider may take its time to list its models.
            listed = chat_picking::of_command(&self.chat, line, &self.directories) => listed?,
            is_there = person::wait_for_stop(requests) => {
                if is_there {
                    print_note(format_args!("{DIM}Nothing changes.{RESET}"));
                }
                return Ok(true);
            }
        };
        let Some(picker) = picker else {
            return Ok(false);
        };
        self.send_update(Update::Pick(picker)).await;
        Ok(true)
    }

    /// Goes on with what was picked.
    async fn handle_pick(&mut self, list: &str, id: Option<String>) -> Result<(), CliError> {
        let Some(id) = id else {
            print_note(format_args!("{DIM}Nothing changes.{RESET}"));
            return Ok(());
        };
        match chat_picking::apply_pick(&mut self.chat, list, &id).await? {
            PickOutcome::Next(picker) => {
                self.send_update(Update::Pick(picker)).await;
                return Ok(());
            }
            PickOutcome::Model => return self.status_now().await,
            PickOutcome::Fork(said) => self.send_update(Update::Edit(said)).await,
            PickOutcome::Thread => {}
        }
        self.show_current_thread().await
    }

    /// Looks for more that a list can have.
    async fn search(&self, list: String, words: String) {
        let found = Box::pin(chat_picking::search_list(
            &self.chat,
            &list,
            &words,
            &self.directory,
            &self.directories,
        ))
        .await;
        let choices = found.unwrap_or_else(|error| {
            chat_commands::report_error(&error);
            Vec::new()
        });
        let found = Update::SearchResults {
            list,
            words,
            choices,
        };
        self.send_update(found).await;
    }

    /// Runs a command of the host's; Esc stops what it began.
    async fn run_command(&mut self, line: &str, requests: &mut mpsc::Receiver<PersonRequest>) {
        match Box::pin(self.pick(line, requests)).await {
            Ok(false) => {}
            Ok(true) => {
                self.repeat_others_prompts().await;
                return self.send_update(Update::Ready).await;
            }
            Err(error) => {
                chat_commands::report_error(&error);
                self.send_update(Update::Halted).await;
                self.repeat_others_prompts().await;
                return self.send_update(Update::Ready).await;
            }
        }
        let thread = self.chat.thread().await.ok();
        let stops = self.chat.stopper();
        let mut transcript = Transcript::new(false);
        let mut has_failed = false;
        {
            let running = chat_commands::run(&mut self.chat, line, &mut transcript);
            let mut running = std::pin::pin!(running);
            let mut is_heard = true;
            loop {
                tokio::select! {
                    biased;
                    done = &mut running => {
                        if let Err(error) = done {
                            has_failed = true;
                            chat_commands::report_error(&error);
                        }
                        break;
                    }
                    request = requests.recv(), if is_heard => match request {
                        Some(PersonRequest::Stop) => stops.stop().await,
                        // A plugin may ask while it is loaded.
                        Some(PersonRequest::Answer { id, content }) => {
                            person::answer_in_face(&id, content);
                        }
                        Some(_) => {}
                        None => {
                            is_heard = false;
                            stops.stop().await;
                        }
                    },
                }
            }
        }
        let now = self.chat.thread().await.ok();
        let shown = if now == thread {
            self.status_now().await
        } else {
            self.show_current_thread().await
        };
        if let Err(error) = shown {
            has_failed = true;
            chat_commands::report_error(&error);
        }
        if has_failed {
            self.send_update(Update::Halted).await;
        }
        self.repeat_others_prompts().await;
        self.send_update(Update::Ready).await;
    }
}

async fn next_command_event(
    command: &mut Option<UserShellCommand>,
) -> Result<UserShellCommandEvent, CliError> {
    match command {
        Some(command) => command.next().await,
        None => std::future::pending().await,
    }
}

/// Whether the person waits for the end of what they asked for, before anything else is said.
fn is_blocking(request: &PersonRequest) -> bool {
    matches!(
        request,
        PersonRequest::Say(_) | PersonRequest::Shell(_) | PersonRequest::Pick { .. }
    )
}

#[cfg(test)]
mod tests {
    use conjure_terminal::Decision;

    use super::*;

    #[test]
    fn an_answer_that_fails_ends_nothing_that_was_begun() {
        let said = PersonRequest::Say("x".to_owned());
        let ran = PersonRequest::Shell("x".to_owned());
        let picked = PersonRequest::Pick {
            list: "x".to_owned(),
            id: None,
        };
        assert!([&said, &ran, &picked].into_iter().all(is_blocking));
        assert_eq!(answered_prompt_id(&picked), None);
        let decided = PersonRequest::Decide {
            call_id: "c".to_owned(),
            decision: Decision::Once,
        };
        let answered = PersonRequest::Answer {
            id: "q".to_owned(),
            content: None,
        };
        assert!(![&decided, &answered].into_iter().any(is_blocking));
        assert_eq!(answered_prompt_id(&decided), Some("c"));
        assert_eq!(answered_prompt_id(&answered), Some("q"));
    }
}
