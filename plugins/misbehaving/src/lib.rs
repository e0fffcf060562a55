//! A plugin that misbehaves on purpose, as its input asks.
//!
//! For tests of a host: whatever a plugin can do wrong, one does here when told to. Never install
//! it. It is a skill, `misbehaving`; `execute` takes a mode and its argument, `read modes` lists
//! them:
//!
//! | mode | what it does |
//! |---|---|
//! | `echo TEXT` | nothing wrong |
//! | `panic [MSG]` | panics with a message |
//! | `panic-nonstring` | panics with a value that is no text |
//! | `hang` | never returns and ignores a cancel |
//! | `hang-politely` | returns when it is cancelled |
//! | `sleep MS` | sleeps and ignores a cancel |
//! | `flood MB` | writes to standard output as fast as the host takes it |
//! | `flood-rudely MB` | the same, and does not care whether the host takes it |
//! | `flood-reply MB` | replies inline with a text of that size |
//! | `log-flood N` | writes N lines to the host's log |
//! | `invalid-utf8` | emits and logs bytes that are not UTF-8, and an event that is not JSON |
//! | `invalid-utf8-reply` | replies with JSON whose text is not UTF-8 |
//! | `lie-json` | replies with something that is not JSON |
//! | `lie-schema` | replies with JSON that is no tool result |
//! | `lie-files` | names files outside, files that do not exist, wrong sizes and hashes |
//! | `lie-fault` | fails with a code that nobody knows and a message that is not UTF-8 |
//! | `wrong-call` | emits a kind that nobody knows, and speaks of another call |
//! | `host-op NAME [JSON]` | asks for any host operation and replies with its answer |
//! | `host-op-after-return` | asks for a host operation when the call is over |
//! | `emit-after-return` | emits when the call is over |
//! | `leak-thread` | leaves a thread behind that never ends |
//! | `spawn-orphan` | leaves a thread behind that never ends and keeps the call's context |
//! | `drop-panic` | panics when the instance is dropped; what the SDK does not catch there ends the process |
//! | `allocate MB` | takes so much memory and writes to all of it |
//! | `burn` | computes, never returns and ignores a cancel |
//! | `threads N` | starts so many threads that never end, and returns when it is cancelled |
//! | `abort`, `exit N`, `segfault`, `stack-overflow` | end the process |
//!
//! `read after-return` says what came of the calls that were over: one line each.
//!
//! What happens at load cannot be asked for by a call. The environment variable
//! `CONJURE_MISBEHAVE` chooses it; the manifest and `create` read it each time:
//!
//! | value | what it does |
//! |---|---|
//! | `slow-load[:MS]` | `manifest` and `create` each sleep (2000 ms) |
//! | `slow-constructor[:MS]` | the library's constructor sleeps, while it is being opened |
//! | `panic-manifest`, `panic-create` | panics there, in code that the SDK guards |
//! | `refuse-create` | `create` fails with a reason |
//! | `wrong-version`, `wrong-name`, `wrong-kind` | the manifest contradicts the header |
//! | `bad-manifest` | the manifest is not JSON and not UTF-8 |
//! | `requires-unknown` | requires the host operation `teleport/9` |
//! | `unknown-capability` | has the capability `levitate/1`, which is no reason to refuse |
//! | `never-pings` | `conjure.ping` never returns |
//!
//! With `CONJURE_MISBEHAVE_TOUCH=PATH` the library's constructor makes that file: if it is there,
//! code of the library ran.

mod after_return;
mod export;
mod load;
mod modes;
mod raw;
mod skill;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
