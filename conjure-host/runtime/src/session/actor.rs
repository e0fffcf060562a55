//! The actor of a session that is not saved: a task that takes what is asked of it in order from one
//! mailbox, and drives its open thread.

use std::collections::VecDeque;

use conjure_core::log;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use super::ending;
use super::mailbox::SessionCommand;
use super::open_thread::OpenThread;

/// A session that runs.
pub(super) struct Actor {
    thread: Box<OpenThread>,
    commands: mpsc::Receiver<Box<SessionCommand>>,
    /// Turns that wait for the summary that a person wants.
    deferred_turns: VecDeque<SessionCommand>,
}

impl Actor {
    /// Starts the actor on a task of its own.
    pub(super) fn start(
        thread: Box<OpenThread>,
        commands: mpsc::Receiver<Box<SessionCommand>>,
        ended: DropGuard,
    ) {
        let actor = Self {
            thread,
            commands,
            deferred_turns: VecDeque::new(),
        };
        tokio::spawn(actor.run(ended));
    }

    async fn run(mut self, ended: DropGuard) {
        let failed = loop {
            // Neither many commands hold up the log, nor a quick reply a cancel.
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) if !matches!(*command, SessionCommand::End) => self.command(*command),
                    _ => break None,
                },
                event = self.thread.next() => if let Err(failed) = self.thread.handle(event) {
                    break Some(failed);
                },
            }
            while !self.thread.is_compacting()
                && let Some(turn) = self.deferred_turns.pop_front()
            {
                self.command(turn);
            }
        };
        // Boxed: what is seldom waited for takes no room in every session.
        Box::pin(ending::end(self.thread, failed)).await;
        // Also when it is aborted: whoever waits for its end must not wait for ever.
        drop(ended);
    }

    fn command(&mut self, command: SessionCommand) {
        let thread = &mut self.thread;
        match command {
            turn @ SessionCommand::Begin { .. } if thread.is_compacting() => {
                self.deferred_turns.push_back(turn);
            }
            SessionCommand::Begin {
                turn_id,
                message,
                done,
            } => thread.begin(turn_id, message, done),
            SessionCommand::Cancel { drop_queued } => thread.cancel(drop_queued),
            SessionCommand::Decide { call_id, decision } => thread.decide(call_id, decision),
            SessionCommand::Attend(mode) => thread.attend(mode),
            SessionCommand::Form(form) => thread.set_form(form),
            SessionCommand::Pending(done) => drop(done.send(thread.pending())),
            SessionCommand::Change {
                settings,
                when,
                done,
            } => drop(done.send(thread.change(&settings, when))),
            SessionCommand::Messages(done) => {
                drop(done.send(log::messages(thread.recorder.entries())));
            }
            SessionCommand::Status(done) => drop(done.send(thread.tools.status())),
            SessionCommand::ToolPreview(done) => thread.preview_tools(done),
            SessionCommand::Check { settings, done } => {
                let check = thread.check(&settings);
                // To compile a request takes long in a long thread.
                tokio::task::spawn_blocking(move || drop(done.send(check.report())));
            }
            SessionCommand::Unfold { fold, done } => thread.unfold(fold, done),
            SessionCommand::Compact(done) => thread.compact(done),
            SessionCommand::Cost(done) => drop(done.send(thread.cost())),
            SessionCommand::Entries(done) => drop(done.send(thread.recorder.entries().to_vec())),
            SessionCommand::Allow(rule) => thread.add_rule(rule),
            SessionCommand::End => {}
        }
    }
}
