//! The list of modes, as `read modes` gives it.

/// Every mode of `execute`: what to write, and what it does.
pub(crate) const MODES: &[(&str, &str)] = &[
    ("echo TEXT", "nothing wrong"),
    (
        "print TEXT",
        "prints to the process's standard output, and reads its standard input",
    ),
    ("panic [MSG]", "panics with a message"),
    ("panic-nonstring", "panics with a value that is no text"),
    ("hang", "never returns and ignores a cancel"),
    ("hang-politely", "returns when it is cancelled"),
    ("sleep MS", "sleeps and ignores a cancel"),
    (
        "flood MB",
        "writes to standard output as fast as the host takes it",
    ),
    (
        "flood-rudely MB",
        "the same, and does not care whether the host takes it",
    ),
    ("flood-reply MB", "replies inline with a text of that size"),
    ("log-flood N", "writes N lines to the host's log"),
    (
        "invalid-utf8",
        "emits and logs bytes that are not UTF-8, and an event that is not JSON",
    ),
    (
        "invalid-utf8-reply",
        "replies with JSON whose text is not UTF-8",
    ),
    ("lie-json", "replies with something that is not JSON"),
    ("lie-schema", "replies with JSON that is no tool result"),
    (
        "lie-files",
        "names files outside, files that do not exist, wrong sizes and hashes",
    ),
    (
        "lie-fault",
        "fails with a code that nobody knows and a message that is not UTF-8",
    ),
    (
        "wrong-call",
        "emits a kind that nobody knows, and speaks of another call",
    ),
    (
        "host-op NAME [JSON]",
        "asks for any host operation and replies with its answer",
    ),
    (
        "host-op-after-return",
        "asks for a host operation when the call is over",
    ),
    ("emit-after-return", "emits when the call is over"),
    ("leak-thread", "leaves a thread behind that never ends"),
    (
        "spawn-orphan",
        "leaves a thread behind that never ends and keeps the call's context",
    ),
    ("drop-panic", "panics when the instance is dropped"),
    (
        "allocate MB",
        "takes so much memory and writes to all of it",
    ),
    ("burn", "computes, never returns and ignores a cancel"),
    (
        "threads N",
        "starts so many threads that never end, and returns when it is cancelled",
    ),
    ("abort", "ends the process"),
    ("exit N", "ends the process"),
    ("segfault", "ends the process"),
    ("stack-overflow", "ends the process"),
];

/// A command's mode and its argument.
pub(crate) fn split(command: &str) -> (&str, &str) {
    let command = command.trim();
    let (mode, argument) = command
        .split_once(char::is_whitespace)
        .unwrap_or((command, ""));
    (mode, argument.trim_start())
}

/// All modes, one a line.
pub(crate) fn list() -> String {
    let lines: Vec<String> = MODES
        .iter()
        .map(|(usage, what)| format!("{usage}: {what}"))
        .collect();
    lines.join("\n")
}
