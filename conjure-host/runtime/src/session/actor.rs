//! The actor of a session that is not saved: a task that takes what is asked of it in order from one
//! mailbox, and drives its open thread.

use std::collections::VecDeque;

use conjure_core::log;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::DropGuard;

use super::ending;
use super::mailbox::Command;
use super::open_thread::OpenThread;

/// A session that runs.
pub(super) struct Actor {
    thread: Box<OpenThread>,
    commands: mpsc::Receiver<Box<Command>>,
    /// Turns that wait for the summary that a person wants.
    behind: VecDeque<Command>,
}

impl Actor {
    /// Starts the actor on a task of its own.
    pub(super) fn start(
        thread: Box<OpenThread>,
        commands: mpsc::Receiver<Box<Command>>,
        ended: DropGuard,
    ) -> AbortHandle {
        let actor = Self {
            thread,
            commands,
            behind: VecDeque::new(),
        };
        tokio::spawn(actor.run(ended)).abort_handle()
    }

    async fn run(mut self, ended: DropGuard) {
        let failed = loop {
            // Neither many commands hold up the log, nor a quick reply a cancel.
            tokio::select! {
                command = self.commands.recv() => match command {
                    #[cfg(test)]
                    Some(command) if matches!(*command, Command::Hang) => {
                        std::future::pending::<()>().await;
                    }
                    Some(command) if !matches!(*command, Command::End) => self.command(*command),
                    _ => break None,
                },
                event = self.thread.next() => if let Err(failed) = self.thread.handle(event) {
                    break Some(failed);
                },
            }
            while !self.thread.is_compacting()
                && let Some(turn) = self.behind.pop_front()
            {
                self.command(turn);
            }
        };
        // Boxed: what is seldom waited for takes no room in every session.
        Box::pin(ending::end(self.thread, failed)).await;
        // Also when it is aborted: whoever waits for its end must not wait for ever.
        drop(ended);
    }

    fn command(&mut self, command: Command) {
        let thread = &mut self.thread;
        match command {
            turn @ Command::Begin { .. } if thread.is_compacting() => self.behind.push_back(turn),
            Command::Begin {
                turn_id,
                message,
                done,
            } => thread.begin(turn_id, message, done),
            Command::Cancel { drop_queued } => thread.cancel(drop_queued),
            Command::Decide { call_id, decision } => thread.decide(call_id, decision),
            Command::Attend(mode) => thread.attend(mode),
            Command::Terms { rules, approvals } => thread.set_terms(rules, approvals),
            Command::Pending(done) => drop(done.send(thread.pending())),
            Command::Change {
                settings,
                when,
                done,
            } => drop(done.send(thread.change(&settings, when))),
            Command::Reconfigure { spec, when, done } => {
                drop(done.send(thread.reconfigure(*spec, when)));
            }
            Command::Messages(done) => drop(done.send(log::messages(thread.recorder.entries()))),
            Command::Status(done) => drop(done.send(thread.tools.status())),
            Command::ToolPreview(done) => thread.preview_tools(done),
            Command::Check { settings, done } => drop(done.send(thread.check(&settings))),
            Command::Unfold { fold, done } => drop(done.send(thread.unfold(fold))),
            Command::Compact(done) => thread.compact(done),
            Command::Cost(done) => drop(done.send(thread.cost())),
            Command::Entries(done) => drop(done.send(thread.recorder.entries().to_vec())),
            Command::Allow(rule) => thread.add_rule(rule),
            Command::Rest => thread.rest(),
            Command::End => {}
            #[cfg(test)]
            Command::Hang => {}
        }
    }
}
