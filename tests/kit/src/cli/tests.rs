//! Programs that are started, waited for and ended.

use super::*;

fn sh(script: &str) -> Cli {
    Cli::program("/bin/sh", ["-c", script])
}

#[test]
fn output_and_code_are_kept() {
    let output = sh("read line; echo \"got $line in $PWD\"; echo oops >&2; exit 3")
        .stdin("a\nb\n")
        .run()
        .unwrap();
    assert_eq!(
        output.snapshot(),
        "exit code 3\n--- stdout\ngot a in [WORKSPACE]/work\n--- stderr\noops\n"
    );
}

#[test]
fn nothing_of_this_machine_is_in_the_environment() {
    let output = sh("env").env("EXTRA", "1").run().unwrap();
    let mut names: Vec<&str> = output
        .stdout
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    // What a shell adds, and what a coverage build needs.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_", "LLVM_PROFILE_FILE"].contains(name));
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "CONJURE_PLUGIN_PATH",
            "EXTRA",
            "HOME",
            "LANG",
            "NO_COLOR",
            "PATH",
            "TERM",
            "TMPDIR",
            "TZ",
            "XDG_CACHE_HOME",
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
            "XDG_RUNTIME_DIR",
            "XDG_STATE_HOME",
        ]
    );
}

#[test]
fn a_conversation_waits_for_what_is_said() {
    let mut running = sh("echo ready; while read line; do echo \"you said $line\"; done")
        .start()
        .unwrap();
    running.wait_for_stdout("ready").unwrap();
    running.send_line("one").unwrap();
    assert_eq!(running.wait_for_lines(2).unwrap(), "ready\nyou said one\n");
    running.close_stdin();
    assert_eq!(running.wait().unwrap().stdout, "ready\nyou said one\n");
}

#[test]
fn a_program_that_ends_early_is_told_from_one_that_is_late() {
    let running = sh("echo bye").start().unwrap();
    let error = running.wait_for_stdout("hello").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the program ended before `hello`; it had said:\n--- stdout\nbye\n\n--- stderr\n"
    );
}

#[test]
fn a_terminal_is_one_and_what_is_typed_arrives() {
    let script = "test -t 0 && test -t 1 && test -t 2 && echo ready; read line; echo got $line >&2";
    let mut running = sh(script).on_terminal().start().unwrap();
    running.wait_for_stdout("ready").unwrap();
    running.send_line("yes").unwrap();
    let output = running.wait().unwrap();
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    assert!(output.stdout.ends_with("got yes\r\n"), "{}", output.stdout);
}

#[test]
fn input_that_nobody_reads_holds_nothing_up() {
    let output = sh("echo done").stdin("x".repeat(1 << 20)).run().unwrap();
    assert_eq!(output.stdout, "done\n");
}

#[test]
fn a_late_program_is_ended_with_its_children() {
    let mut running = sh("tail -f /dev/null & echo ready; wait").start().unwrap();
    running.wait_for_stdout("ready").unwrap();
    running.deadline = Instant::now();
    let seen = Arc::clone(&running.output);
    assert!(matches!(running.wait(), Err(KitError::Deadline { .. })));
    // Both outputs end only when no process of the group holds them any more.
    assert!(
        seen.wait(Instant::now() + DEADLINE, ProgramState::is_over)
            .is_over()
    );
}
