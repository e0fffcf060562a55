//! Keys, pastes and sizes, read on a thread of their own.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossterm::event::{self, Event};
use crossterm::terminal;
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, tcflush, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// How often the reader looks whether it is to pause.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often whoever ends looks, ten times in an interval, whether the reader has stopped.
const MAX_POLLS_AT_END: u32 = 20;
/// Pastes come in brackets; keys are told apart where the terminal has kitty's keyboard protocol:
/// Shift-Enter from Enter.
const BEGIN: &str = "\u{1b}[?2004h\u{1b}[>1u";
/// Puts the terminal back as it was.
const END: &str = "\u{1b}[<u\u{1b}[?2004l\u{1b}[?25h";
/// Like [`BEGIN`] for tmux, which tells keys apart for whoever asks as xterm is asked. tmux 3.5 and
/// later do so in the form that is read here with `extended-keys-format csi-u` only. Other terminals
/// that are asked so send `CSI 27;2;13~`, which is read as no key at all: a plain Enter is left.
const BEGIN_IN_TMUX: &str = "\u{1b}[>4;1m";
const END_IN_TMUX: &str = "\u{1b}[>4;0m";

/// Reads the keyboard while it lives; the terminal is as it was before when it is dropped.
pub(crate) struct Keys {
    events: mpsc::Receiver<Event>,
    /// Events that came while the reader was asked to pause.
    early: VecDeque<Event>,
    is_paused: Arc<AtomicBool>,
    /// Whether the reader waits.
    is_waiting: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Keys {
    /// Begins to read.
    ///
    /// # Errors
    /// When there is no terminal.
    pub(crate) fn read() -> std::io::Result<Self> {
        begin()?;
        let (found, events) = mpsc::channel(256);
        let is_paused = Arc::new(AtomicBool::new(false));
        let waits = Arc::new(AtomicBool::new(false));
        let (pause, waiting) = (Arc::clone(&is_paused), Arc::clone(&waits));
        let reader = std::thread::spawn(move || {
            loop {
                if found.is_closed() {
                    return;
                }
                if pause.load(Ordering::Acquire) {
                    waiting.store(true, Ordering::Release);
                    std::thread::sleep(POLL_INTERVAL / 4);
                    continue;
                }
                waiting.store(false, Ordering::Release);
                match event::poll(POLL_INTERVAL) {
                    // What was typed when nobody reads here any more is the next reader's.
                    _ if found.is_closed() => return,
                    Ok(false) => {}
                    Ok(true) => match event::read() {
                        Ok(event) => {
                            if found.blocking_send(event).is_err() {
                                return;
                            }
                        }
                        Err(_) => return,
                    },
                    Err(_) => return,
                }
            }
        });
        Ok(Self {
            events,
            early: VecDeque::new(),
            is_paused,
            is_waiting: waits,
            reader: Some(reader),
        })
    }

    /// Keys that come from a channel, for tests.
    #[cfg(test)]
    pub(crate) fn of(events: mpsc::Receiver<Event>) -> Self {
        Self {
            events,
            early: VecDeque::new(),
            is_paused: Arc::default(),
            is_waiting: Arc::default(),
            reader: None,
        }
    }

    /// The next event; nothing when the terminal is gone.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        match self.early.pop_front() {
            Some(event) => Some(event),
            None => self.events.recv().await,
        }
    }

    /// One that is there already.
    pub(crate) fn try_next(&mut self) -> Option<Event> {
        let early = self.early.pop_front();
        early.or_else(|| self.events.try_recv().ok())
    }

    /// Waits until nobody reads.
    fn pause(&mut self) {
        self.is_paused.store(true, Ordering::Release);
        // The reader looks every so often, and then reads no more.
        while !self.is_waiting.load(Ordering::Acquire) && !self.events.is_closed() {
            // It may have more to hand over than there is room for.
            while let Ok(event) = self.events.try_recv() {
                self.early.push_back(event);
            }
            std::thread::sleep(POLL_INTERVAL / 10);
        }
    }

    /// Lets something else have the terminal while `work` runs.
    pub(crate) fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.pause();
        end();
        let done = work();
        let _ = begin();
        self.is_paused.store(false, Ordering::Release);
        done
    }
}

/// Lets a program have the terminal so that keys are keys to it and no signals: Ctrl-C would end this
/// program with it. Where there is no terminal it has what there is.
pub(crate) fn as_keys<T>(work: impl FnOnce() -> T) -> T {
    let terminal = std::io::stdin();
    let before = tcgetattr(&terminal).ok();
    if let Some(mut modes) = before.clone() {
        modes.local_modes.remove(LocalModes::ISIG);
        let _ = tcsetattr(&terminal, OptionalActions::Now, &modes);
    }
    let done = work();
    if let Some(before) = before {
        // What nobody read was meant for the program.
        let _ = tcflush(&terminal, QueueSelector::IFlush);
        let _ = tcsetattr(&terminal, OptionalActions::Now, &before);
    }
    done
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.events.close();
        // It looks every so often, and then reads no more; where the terminal is gone it may never.
        let is_reading = |reader: &JoinHandle<()>| !reader.is_finished();
        for _ in 0..MAX_POLLS_AT_END {
            if !self.reader.as_ref().is_some_and(is_reading) {
                break;
            }
            std::thread::sleep(POLL_INTERVAL / 10);
        }
        end();
    }
}

/// Where the terminal is written to: standard output, unless that goes elsewhere.
pub(crate) fn output() -> Box<dyn Write + Send> {
    if std::io::stdout().is_terminal() {
        Box::new(std::io::stdout())
    } else {
        Box::new(std::io::stderr())
    }
}

fn begin() -> std::io::Result<()> {
    terminal::enable_raw_mode()?;
    let mut out = output();
    out.write_all(BEGIN.as_bytes())?;
    if is_tmux(variable) {
        out.write_all(BEGIN_IN_TMUX.as_bytes())?;
    }
    out.flush()
}

fn end() {
    let mut out = output();
    if is_tmux(variable) {
        let _ = out.write_all(END_IN_TMUX.as_bytes());
    }
    let _ = out.write_all(END.as_bytes());
    let _ = out.flush();
    let _ = terminal::disable_raw_mode();
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Whether the terminal is tmux's, by variables of the environment. On another machine only `TERM` says
/// so; `TMUX` alone says nothing, as a terminal that was started from tmux has it too.
fn is_tmux(variable: impl Fn(&str) -> Option<String>) -> bool {
    let term = variable("TERM").unwrap_or_default();
    let has_socket = variable("TMUX").is_some_and(|socket| !socket.is_empty());
    term.starts_with("tmux") || (has_socket && term.starts_with("screen"))
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;

    /// How long a test waits for what must come.
    const LONGEST: Duration = Duration::from_secs(30);

    #[test]
    fn tmux_is_known_by_its_socket_and_by_the_name_of_its_terminal() {
        for (variables, is_known) in [
            (
                &[("TERM", "screen-256color"), ("TMUX", "/tmp/x,1,0")][..],
                true,
            ),
            (&[("TERM", "tmux-256color")], true),
            (&[("TERM", "screen-256color"), ("TMUX", "")], false),
            (&[("TERM", "xterm-256color"), ("TMUX", "/tmp/x,1,0")], false),
            (&[("TERM", "screen")], false),
            (&[], false),
        ] {
            let of = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(is_tmux(of), is_known, "{variables:?}");
        }
    }

    #[test]
    fn a_reader_that_has_more_than_there_is_room_for_pauses_too() {
        let (found, events) = mpsc::channel(2);
        let mut keys = Keys::of(events);
        let key = |c| Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        let (pause, waiting) = (Arc::clone(&keys.is_paused), Arc::clone(&keys.is_waiting));
        let reader = std::thread::spawn(move || {
            for c in "abcdef".chars() {
                found.blocking_send(key(c)).unwrap();
            }
            while !pause.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            waiting.store(true, Ordering::Release);
            found
        });
        // One that waits for ever must not hold the test.
        let (paused, is_paused) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            keys.pause();
            paused.send(keys).unwrap();
        });
        let mut keys = is_paused.recv_timeout(LONGEST).expect("it pauses");
        drop(reader.join().unwrap());
        let typed: Vec<Event> = std::iter::from_fn(|| keys.try_next()).collect();
        assert_eq!(typed, "abcdef".chars().map(key).collect::<Vec<_>>());
    }
}
