//! Signals that ask the program to end: heard once for its life, so that none is lost between two
//! waits. A verb that does not listen is ended by them as any program is.

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::error::CliError;
use super::exit::Exit;

/// Signal that asks the program to end, by its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The person, with Ctrl-C.
    Interrupt,
    /// Somebody who ends programs, such as a service manager.
    Terminate,
    /// The terminal, which is gone.
    HangUp,
}

impl Signal {
    /// How the program ends after it.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Interrupt | Self::HangUp => Exit::Interrupted,
            Self::Terminate => Exit::Terminated,
        }
    }

    fn error(self) -> CliError {
        CliError::new(self.exit(), "interrupted")
    }
}

/// Hears signals from when it is made to the end of the program.
pub(crate) struct Signals {
    interrupt: Stream,
    terminate: Stream,
    hang_up: Stream,
    last: Option<Signal>,
}

impl Signals {
    /// Begins to listen: no signal ends the program by itself from here on.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| CliError::host_from(error).context("signals cannot be heard"))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            last: None,
        })
    }

    /// The next signal, also one that came before. Safe to drop and call again.
    pub(crate) async fn next(&mut self) -> Signal {
        let signal = tokio::select! {
            Some(()) = self.terminate.recv() => Signal::Terminate,
            Some(()) = self.hang_up.recv() => Signal::HangUp,
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            else => std::future::pending().await,
        };
        self.last = Some(signal);
        signal
    }

    /// The signal that came last.
    pub(crate) fn last(&self) -> Option<Signal> {
        self.last
    }

    /// Does something unless a signal comes first; what was begun is dropped then.
    pub(crate) async fn unless<T>(
        &mut self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        tokio::select! {
            biased;
            signal = self.next() => Err(signal.error()),
            done = work => done,
        }
    }

    /// Does something that ends by itself when it is cancelled: the first signal does that, and
    /// the second one ends the waiting.
    pub(crate) async fn cancelling<T>(
        &mut self,
        cancel: &CancellationToken,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        tokio::pin!(work);
        tokio::select! {
            biased;
            _ = self.next() => cancel.cancel(),
            done = &mut work => return done,
        }
        self.unless(work).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal as Raised, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn a_signal_ends_what_runs_also_when_it_came_before() {
        let mut signals = Signals::listen().unwrap();
        for (raised, heard, code) in [
            (Raised::TERM, Signal::Terminate, 143),
            (Raised::HUP, Signal::HangUp, 130),
            (Raised::INT, Signal::Interrupt, 130),
        ] {
            kill_process(getpid(), raised).unwrap();
            let never = std::future::pending::<Result<(), CliError>>();
            let ended = tokio::time::timeout(Duration::from_secs(30), signals.unless(never));
            let error = ended.await.unwrap().unwrap_err();
            assert_eq!((signals.last(), error.exit.code()), (Some(heard), code));
        }
    }
}
