//! The modes that an author could write with the SDK.

use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conjure_skill_sdk::abi::{EmitKind, LogLevel};
use conjure_skill_sdk::protocol::{Empty, Execute, Read, ToolResult, host_op};
use conjure_skill_sdk::{Cx, Error, Result, Skill};
use serde_json::Value;

use crate::after_return::{AfterReturn, park_forever, spawn};
use crate::{export, modes};

/// One piece of a flood.
const PIECE: usize = 64 * 1024;

/// The skill, without what it can only do below the SDK.
pub(crate) fn skill() -> Skill {
    let after = AfterReturn::default();
    let reading = after.clone();
    let bomb = Bomb::default();
    Skill::new(export::NAME, "Misbehaves on purpose, as its input asks.")
        .execute(
            "MODE [ARGUMENT]; `read modes` lists the modes",
            move |cx, request: Execute| execute(cx, &request.command, &after, &bomb),
        )
        .read(
            "`modes`: what it can do wrong; `after-return`: what came of calls that were over",
            move |_cx, request: Read| match request.path.as_str() {
                "modes" => Ok(modes::list()),
                "after-return" => Ok(reading.list()),
                other => Err(Error::not_found(format!("there is no `{other}` to read"))),
            },
        )
}

/// A skill whose maker panics.
#[expect(clippy::panic, reason = "this is what the mode is for")]
pub(crate) fn panicking() -> Skill {
    panic!("asked to panic while loading")
}

fn execute(cx: &Cx, command: &str, after: &AfterReturn, bomb: &Bomb) -> Result<ToolResult> {
    let (mode, argument) = modes::split(command);
    match mode {
        "echo" => return Ok(ToolResult::text(argument)),
        "print" => return print(argument),
        "panic" => panic_with(argument),
        "panic-nonstring" => panic_without_text(),
        "hang" => park_forever(),
        "hang-politely" => {
            cx.host::<_, Empty>(host_op::CALL_CANCELLED, &Empty {})?;
            return Err(Error::cancelled());
        }
        "sleep" => std::thread::sleep(Duration::from_millis(number(argument)?)),
        "flood" => flood(argument, |piece| cx.stdout(piece))?,
        "flood-rudely" => flood(argument, |piece| {
            let _ = cx.try_emit(EmitKind::Stdout, piece);
            Ok(())
        })?,
        "log-flood" => {
            for n in 0..number(argument)? {
                cx.log(LogLevel::Info, format!("line {n} of a flood"));
            }
        }
        "host-op" => return host_operation(cx, argument),
        "host-op-after-return" => after.ask(cx)?,
        "emit-after-return" => after.emit(cx)?,
        "leak-thread" => spawn(|| park_forever())?,
        "spawn-orphan" => {
            let cx = cx.clone();
            spawn(move || {
                let _kept = cx;
                park_forever();
            })?;
        }
        "drop-panic" => bomb.arm(),
        "allocate" => allocate(number(argument)?),
        "burn" => spin(),
        "threads" => {
            for _ in 0..number(argument)? {
                std::thread::Builder::new()
                    .stack_size(64 * 1024)
                    .spawn(|| {
                        loop {
                            std::thread::park();
                        }
                    })?;
            }
            while !cx.cancelled() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        "abort" => std::process::abort(),
        "exit" => std::process::exit(number(argument)? as i32),
        "segfault" => export::segfault(),
        "stack-overflow" => {
            black_box(overflow_stack(1));
        }
        other => {
            return Err(Error::invalid(format!(
                "`{other}` is no mode. The modes are:\n{}",
                modes::list()
            )));
        }
    }
    Ok(ToolResult::text(format!("{mode}: done")))
}

/// Takes the process's streams for its own. What it read is the result.
fn print(text: &str) -> Result<ToolResult> {
    let failed = |error: std::io::Error| Error::new(error.to_string());
    let mut stdout = std::io::stdout();
    stdout
        .write_all(format!("{text}\n").as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(failed)?;
    let mut read = String::new();
    std::io::stdin().read_line(&mut read).map_err(failed)?;
    Ok(ToolResult::text(format!("read {read:?}")))
}

#[expect(clippy::panic, reason = "this is what the mode is for")]
fn panic_with(message: &str) -> ! {
    if message.is_empty() {
        panic!("asked to panic");
    }
    panic!("{message}")
}

#[expect(clippy::panic, reason = "this is what the mode is for")]
fn panic_without_text() -> ! {
    std::panic::panic_any(42_u32)
}

fn flood(megabytes: &str, mut emit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let piece = vec![b'x'; PIECE];
    let pieces = number(megabytes)? * 1024 * 1024 / PIECE as u64;
    for _ in 0..pieces {
        emit(&piece)?;
    }
    Ok(())
}

fn host_operation(cx: &Cx, argument: &str) -> Result<ToolResult> {
    let (name, json) = modes::split(argument);
    let request: Value = match json {
        "" => serde_json::json!({}),
        json => serde_json::from_str(json)?,
    };
    match cx.host::<_, Value>(name, &request) {
        Ok(reply) => Ok(ToolResult::json(reply)),
        Err(error) => Ok(ToolResult::error(format!(
            "fault {}: {error}",
            error.code()
        ))),
    }
}

/// Takes so many megabytes of memory and writes to each page.
fn allocate(megabytes: u64) {
    let mut taken = Vec::new();
    for _ in 0..megabytes {
        taken.push(black_box(vec![1_u8; 1024 * 1024]));
    }
    black_box(&taken);
}

/// Computes for ever.
fn spin() {
    let mut number = 0_u64;
    loop {
        number = black_box(number.wrapping_mul(31).wrapping_add(1));
    }
}

/// Calls itself until the stack is used up.
fn overflow_stack(depth: u64) -> u64 {
    let frame = black_box([depth; 512]);
    if depth == u64::MAX {
        return depth;
    }
    overflow_stack(depth + 1) ^ frame.iter().sum::<u64>()
}

pub(crate) fn number(text: &str) -> Result<u64> {
    text.trim()
        .parse()
        .map_err(|_| Error::invalid(format!("`{text}` is no number")))
}

/// Panics when it is dropped, if it is armed. It is dropped with the instance.
#[derive(Debug, Clone, Default)]
struct Bomb(Arc<AtomicBool>);

impl Bomb {
    fn arm(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0.load(Ordering::Relaxed) {
            panic_with("asked to panic when dropped");
        }
    }
}
