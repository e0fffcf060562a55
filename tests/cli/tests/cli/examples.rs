//! The programs in the folders `examples`: each runs to its end and says what its page promises.

use conjure_kit::{Cli, build_example, build_plugin};
use insta::assert_snapshot;

/// What an example prints.
fn printed(package: &str, name: &str) -> String {
    printed_with(package, name, &[])
}

/// What an example prints that is given these arguments.
fn printed_with(package: &str, name: &str, args: &[&str]) -> String {
    let program = build_example(package, name).unwrap();
    let output = Cli::program(program, args).run().unwrap();
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (Some(0), ""),
        "{output:?}"
    );
    output.stdout
}

#[test]
fn a_program_that_embeds_the_host_has_a_session() {
    assert_snapshot!(printed("conjure-host", "session"), @"
    tool stock_execute of native
    answer: The warehouse says: screws: 12.
    replies: 2
    ");
}

#[test]
fn a_program_that_embeds_the_host_calls_tools_without_a_model() {
    assert_snapshot!(printed("conjure-host", "call"), @"
    order 1: place tea
    order 1: place bread
    order 2: place salt
    there is no tool `orders_cancel`; there are: orders_execute. No executor is named, so there are no command tools: name one, such as `--executor local`.
    ");
}

#[test]
fn a_program_that_embeds_the_host_follows_a_turn_and_decides() {
    assert_snapshot!(printed("conjure-host", "follow"), @"
    lamp_execute wants to run: ask by default for a tool with effects `write`
    it writes something
    it ended: scripted_1_1
    answer: The lamp is lit.
    ");
}

#[test]
fn a_program_that_embeds_the_host_goes_on_when_the_process_of_a_plugin_ends() {
    let file = build_plugin("conjure-misbehaving").unwrap();
    let args = [
        file.to_str().unwrap(),
        "misbehaving_execute",
        "echo a",
        "abort",
        "echo b",
    ];
    assert_snapshot!(printed_with("conjure-host", "workers", &args), @"
    misbehaving 0.1.0 in a process of its own: true
    echo a: a
    abort: The call of `misbehaving_execute` on backend `native` failed: misbehaving 0.1.0: its worker process aborted (SIGABRT). Other calls that ran in it are lost too, and so is what the plugin kept in memory; the next call starts a new worker. Whether it took effect is not known. Try another way; if that fails too, tell the person.
    echo b: b
    ");
}

#[test]
fn a_skill_keeps_its_state_over_an_upgrade() {
    assert_snapshot!(printed("conjure-skill-sdk", "notes"), @r#"
    tools: add, find
    add "buy tea": note 1 is written down
    add "call Ada": note 2 is written down
    add "": the note is empty: write what it says
    find "tea": ["buy tea"]
    after an upgrade: ["buy tea","call Ada"]
    "#);
}

#[test]
fn an_executor_has_files_for_each_session() {
    assert_snapshot!(printed("conjure-skill-sdk", "memory_executor"), @r#"
    $ ls
    list.txt
    exit code 0
    $ wc list.txt
    2
    exit code 0
    $ make coffee
    make coffee: not found
    exit code 127
    list.txt:
    tea
    rye bread

    in another session: "list.txt does not exist: `ls` lists the files"
    "#);
}

#[test]
fn a_backend_asks_the_person() {
    assert_snapshot!(printed("conjure-skill-sdk", "rooms_backend"), @r#"
    tool book: Books a room
    tool list: Lists the rooms that are booked
      the person is asked "Book the library?": accept
    monday books the library: the library is booked
      the person is asked "Book the attic?": decline
    monday books the attic: the person said no: ask which room to book
    tuesday books the library: the library is taken: ask for another room
    booked: {"the library":"monday"}
    "#);
}

#[test]
fn a_plugin_is_tested_over_both_transports() {
    assert_snapshot!(printed("conjure-skill-sdk", "tested_skill"), @"
    Direct: three tests passed
    Pipe: three tests passed
    ");
}
