//! A chat on a terminal: how long it takes to be there, what a stream of 1,000 deltas a second needs,
//! and how soon a key is seen meanwhile.
//!
//! The program is on a pseudo-terminal that is read as fast as it writes; what a terminal does with
//! that is not in the figures.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use conjure_host::store::ThreadId;
use conjure_kit::{Cli, ProgramHandle, Workspace};

use super::history;
use crate::figure::{Figure, short};
use crate::measured::status;
use crate::processor;
use crate::samples::{Samples, ms};
use crate::shipped::BenchArtifacts;
use crate::stream_server::{StreamServer, ask};

/// Milliseconds to the first frame.
const FIRST_FRAME: f64 = 30.0;
/// Milliseconds until the last of what was said in a thread of 5,000 entries is shown.
const RESUME: f64 = 60.0;
/// Percent of a processor.
const STREAM: f64 = 5.0;
/// Milliseconds until a key is seen.
const ECHO: f64 = 16.0;
/// MiB.
const MEMORY: f64 = 30.0;

const ROUNDS: usize = 20;
/// A turn has four entries.
const TURNS: u64 = 1_250;
const DELTAS: usize = 8_000;
const DELTA_INTERVAL: Duration = Duration::from_millis(1);
/// What is typed while an answer comes; no part of an answer looks like it.
const TYPED_TEXT: &str = "zyxwvutsrqponmlkjihg";
/// What is there when a text can be typed.
const READY: &str = "/ for commands";

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let server = StreamServer::start()?;
    let workspace = Workspace::new()?;
    let start = |thread: Option<&ThreadId>| {
        let mut args = vec![
            "chat",
            "--provider",
            "anthropic",
            "--model",
            "claude-sonnet-4-5",
        ];
        args.extend(thread.map(|_| "--thread"));
        args.extend(thread.map(ThreadId::as_str));
        let chat = Cli::program(shipped.program()?, args)
            .workspace(&workspace)
            .env("TERM", "xterm-256color")
            .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
            .env("ANTHROPIC_BASE_URL", &server.url)
            .on_terminal();
        anyhow::Ok(chat.start()?)
    };

    let mut first = Samples::default();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let chat = start(None)?;
        chat.wait_for_stdout(READY)?;
        first.push(ms(begun.elapsed()));
    }

    let thread = ThreadId::fresh();
    let file = workspace.home().join(".local/share/conjure/conjure.db");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let store = history::open(&file).await?;
        history::write(&store, &thread, TURNS).await?;
        store.close().await;
        anyhow::Ok(())
    })?;
    let last = format!("Question {TURNS}, and what belongs to it.");
    let mut resumed = Samples::default();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let chat = start(Some(&thread))?;
        chat.wait_for_stdout(&last)?;
        resumed.push(ms(begun.elapsed()));
    }

    let mut chat = start(None)?;
    chat.wait_for_stdout(READY)?;
    let (stream, echo) = measure_streaming(&mut chat)?;
    let process = process(&chat)?;
    let memory = status(&process, "VmHWM:")? / 1024.0;
    Ok(vec![
        Figure::new(
            "terminal_first_frame",
            "ms",
            &first,
            "From starting `conjure chat` (release) on a terminal to the frame in which a text can \
             be typed.",
        )
        .at_most(FIRST_FRAME),
        Figure::new(
            "terminal_resume",
            "ms",
            &resumed,
            "From starting `conjure chat --thread` with a thread of 5,000 entries to the frame that \
             shows the last of what was said.",
        )
        .at_most(RESUME),
        Figure::single(
            "terminal_stream",
            "%",
            stream,
            "Processor time of the whole program while 1,000 deltas a second come for eight \
             seconds, and 20 letters are typed, by the time that it took.",
        )
        .at_most(STREAM),
        Figure::new(
            "terminal_echo",
            "ms",
            &echo,
            "From typing a letter meanwhile to its being written to the terminal.",
        )
        .at_most(ECHO)
        .note(format!("The slowest: {} ms.", short(echo.percentile(100)))),
        Figure::single(
            "terminal_memory",
            "MiB",
            memory,
            "The most memory that this chat had at one time (VmHWM).",
        )
        .at_most(MEMORY),
    ])
}

/// Percent of a processor that a stream needs, and milliseconds until keys are seen meanwhile.
fn measure_streaming(chat: &mut ProgramHandle) -> Result<(f64, Samples)> {
    let process = process(chat)?;
    let (used, begun) = (processor::seconds_of(&process)?, Instant::now());
    chat.send(&format!("{}\r", ask(DELTAS, DELTA_INTERVAL)))?;
    chat.wait_for_stdout("type what comes next")?;
    let mut echo = Samples::default();
    let mut typed = String::new();
    for letter in TYPED_TEXT.chars() {
        // Letters are spread over the stream.
        std::thread::sleep(Duration::from_millis(150));
        typed.push(letter);
        let pressed = Instant::now();
        chat.send(&letter.to_string())?;
        chat.wait_for_stdout(&typed)?;
        echo.push(ms(pressed.elapsed()));
    }
    std::thread::sleep((DELTA_INTERVAL * u32::try_from(DELTAS)?).saturating_sub(begun.elapsed()));
    let used = processor::seconds_of(&process)? - used;
    Ok((100.0 * used / begun.elapsed().as_secs_f64(), echo))
}

fn process(chat: &ProgramHandle) -> Result<String> {
    let process = chat.pid().context("the chat has no process")?;
    Ok(process.as_raw_nonzero().to_string())
}
