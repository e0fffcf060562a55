//! Pages of help: `conjure plugin`, `conjure skill` and `conjure thread` with the verbs below them.

use insta::assert_snapshot;

use crate::help::help;

#[test]
fn plugin() {
    assert_snapshot!(help("plugin"), @r"
    Look at plugins, check one, begin one

    Usage: conjure plugin [OPTIONS] <COMMAND>

    Commands:
      list     List the plugins that a session would have, those that failed among them
      inspect  Show what a plugin's file says about itself
      check    Load a plugin, make an instance, and say whether a host would take it
      new      Begin a plugin: a crate of its own that builds with `cargo build`
      help     Print this message or the help of the given subcommand(s)

    Options:
          --data-dir <DIR>  Where threads, copies of plugins and their values are kept
          --json            Print JSON, for programs
      -h, --help            Print help
      -V, --version         Print version

    Plugins:
          --plugin <FILE>     Load this plugin file; naming it says that it may run in this process
          --plugin-dir <DIR>  Look for plugins in this directory too
    ");
}

#[test]
fn plugin_list() {
    assert_snapshot!(help("plugin list"), @r"
    List the plugins that a session would have, those that failed among them

    Looks at `--plugin`, `--plugin-dir`, `CONJURE_PLUGIN_PATH`, `plugins` beside the program, and
    `plugins` in the data directory, in this order.

    Usage: conjure plugin list [OPTIONS]

    Options:
          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too
    ");
}

#[test]
fn plugin_inspect() {
    assert_snapshot!(help("plugin inspect"), @r"
    Show what a plugin's file says about itself

    Without `--load` nothing of the plugin runs: header, hash and structure are read from the file, and
    the manifest only if it is known from an earlier load.

    Usage: conjure plugin inspect [OPTIONS] <FILE>

    Arguments:
      <FILE>
              The library

    Options:
          --load
              Load it too, which runs its code, and show the manifest

          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too
    ");
}

#[test]
fn plugin_check() {
    assert_snapshot!(help("plugin check"), @r"
    Load a plugin, make an instance, and say whether a host would take it

    Exit code 0: it would; 1: it is refused, and the reason says what to do.

    Usage: conjure plugin check [OPTIONS] <FILE>

    Arguments:
      <FILE>
              The library

    Options:
          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too
    ");
}

#[test]
fn plugin_new() {
    assert_snapshot!(help("plugin new"), @r#"
    Begin a plugin: a crate of its own that builds with `cargo build`

    Usage: conjure plugin new [OPTIONS] <KIND> <NAME>

    Arguments:
      <KIND>
              What it exports

              Possible values:
              - skill:    A native skill
              - executor: An executor: runs commands, keeps files
              - backend:  A backend: offers tools of its own

      <NAME>
              Its name: lower-case letters, digits and hyphens

    Options:
          --sdk <PATH|VERSION>
              The SDK: a path, or a version

          --path <DIR>
              Where to make it [default: ./NAME]

          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too

    Example:
      conjure plugin new skill my-skill
      cd my-skill && cargo build
      conjure call my-skill_greet --args '{"name": "Ada"}' --plugin target/debug/libmy_skill.so
    "#);
}

#[test]
fn skill() {
    assert_snapshot!(help("skill"), @r"
    Look at skill folders and validate them

    A skill folder is a directory with a `SKILL.md` (the Agent Skills standard). Those of the current
    project (`.conjure/skills`, `.agents/skills`, `.claude/skills`) are used after the project was
    trusted; those below the home directory always.

    Usage: conjure skill [OPTIONS] <COMMAND>

    Commands:
      list      List the skills of the project and of the user, those that do not load among them
      validate  Check a skill folder or package against every rule of the standard
      show      Show a skill: its front matter, its files and its instructions
      upload    Upload a skill to Anthropic, after checking it
      remote    Look at the skills that Anthropic keeps, download or delete some
      trust     Trust a project: its skills are used from now on, as they are now
      help      Print this message or the help of the given subcommand(s)

    Options:
          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too
    ");
}

#[test]
fn skill_list() {
    assert_snapshot!(help("skill list"), @r"
    List the skills of the project and of the user, those that do not load among them

    Usage: conjure skill list [OPTIONS] [DIR]

    Arguments:
      [DIR]  Look below this directory instead

    Options:
          --data-dir <DIR>  Where threads, copies of plugins and their values are kept
          --json            Print JSON, for programs
      -h, --help            Print help
      -V, --version         Print version

    Plugins:
          --plugin <FILE>     Load this plugin file; naming it says that it may run in this process
          --plugin-dir <DIR>  Look for plugins in this directory too
    ");
}

#[test]
fn skill_validate() {
    assert_snapshot!(help("skill validate"), @r"
    Check a skill folder or package against every rule of the standard

    Exit code 0: no errors; 1: at least one.

    Usage: conjure skill validate [OPTIONS] <PATH>

    Arguments:
      <PATH>
              The folder or package

    Options:
          --upload
              Check what uploading to Anthropic adds, too

          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too
    ");
}

#[test]
fn skill_show() {
    assert_snapshot!(help("skill show"), @r"
    Show a skill: its front matter, its files and its instructions

    Usage: conjure skill show [OPTIONS] <PATH>

    Arguments:
      <PATH>  The folder or package

    Options:
          --data-dir <DIR>  Where threads, copies of plugins and their values are kept
          --json            Print JSON, for programs
      -h, --help            Print help
      -V, --version         Print version

    Plugins:
          --plugin <FILE>     Load this plugin file; naming it says that it may run in this process
          --plugin-dir <DIR>  Look for plugins in this directory too
    ");
}

#[test]
fn skill_trust() {
    assert_snapshot!(help("skill trust"), @r"
    Trust a project: its skills are used from now on, as they are now

    When something of them changes they are not used until it is trusted again.

    Usage: conjure skill trust [OPTIONS] [DIR]

    Arguments:
      [DIR]
              The project's directory
              
              [default: .]

    Options:
          --remove
              Trust it no more

          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too
    ");
}

#[test]
fn thread() {
    assert_snapshot!(help("thread"), @"
    Look at threads and change them: list, show, cost, fork, rename, clear, export, import

    A thread is a conversation that is kept; `conjure run` and `conjure chat` name it, and `--thread ID`
    goes on with it.

    Usage: conjure thread [OPTIONS] <COMMAND>

    Commands:
      list     List the threads, the newest first
      show     Show what was said and done, and which of it the model reads as a summary
      check    Say what sending it to another model would change, before anything is sent
      cost     Show what it cost, turn by turn, and why
      fork     Begin another thread behind an entry of this one; both go on for themselves
      rename   Give it a name; the names before are kept as its history
      clear    Delete what it holds for good, except for what its forks show; its id stays
      export   Write it as JSON lines, one record a line, or as a cassette to be replayed
      import   Read a thread that was exported
      compact  Put a summary in place of its older part, as far as the model reads it
      unfold   Let the model read again what a compaction hides
      help     Print this message or the help of the given subcommand(s)

    Options:
          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too

    Examples:
      conjure thread list
      conjure thread show 0193…                         # all of it, also what is summarised
      conjure thread cost 0193…
      conjure thread check 0193… --to openai/gpt-5      # before going on with another model
      conjure thread unfold 0193…                       # let the model read again what a summary hides
      conjure thread fork 0193… --at 12                 # another way from entry 12 on
      conjure thread export 0193… --to talk.jsonl
    ");
}

#[test]
fn thread_show() {
    assert_snapshot!(help("thread show"), @"
    Show what was said and done, and which of it the model reads as a summary

    Usage: conjure thread show [OPTIONS] <ID>

    Arguments:
      <ID>  The thread

    Options:
          --folded          Show only what the model reads as a summary
          --full            Show all of each call's arguments and output, which are cut otherwise
          --data-dir <DIR>  Where threads, copies of plugins and their values are kept
          --json            Print JSON, for programs
      -h, --help            Print help
      -V, --version         Print version

    Plugins:
          --plugin <FILE>     Load this plugin file; naming it says that it may run in this process
          --plugin-dir <DIR>  Look for plugins in this directory too
    ");
}

#[test]
fn thread_cost() {
    assert_snapshot!(help("thread cost"), @"
    Show what it cost, turn by turn, and why

    Prices are those that `conjure models` shows, in US dollars; tokens are the provider's count. Beside
    the sum stands what a turn came to on average, of all turns and of the newest.

    Usage: conjure thread cost [OPTIONS] <ID>

    Arguments:
      <ID>
              The thread

    Options:
          --last <N>
              How many of the newest turns the second average is of
              
              [default: 10]

          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too
    ");
}

#[test]
fn thread_unfold() {
    assert_snapshot!(help("thread unfold"), @"
    Let the model read again what a compaction hides

    Compactions are named by their entry; `conjure thread show` tells them. Nothing was deleted by them.
    It holds until you ask for another one, or the provider refuses the conversation as too long.

    Usage: conjure thread unfold [OPTIONS] <ID> [ENTRY]

    Arguments:
      <ID>
              The thread

      [ENTRY]
              The compaction [default: the one that stands]

    Options:
          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too
    ");
}

#[test]
fn files() {
    assert_snapshot!(help("files"), @"
    List the files of a thread, or save copies of them

    Every file that a call made is listed with the backend that made it, wherever it is.

    Usage: conjure files [OPTIONS] <COMMAND>

    Commands:
      list    List them: handle, name, size, which backend made it, and where it is
      save    Save copies; nothing is replaced unless asked
      remote  The files that Anthropic keeps for hosted skills
      help    Print this message or the help of the given subcommand(s)

    Options:
          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too

    Examples:
      conjure files list 0193…
      conjure files save 0193… report.xlsx --to ~/reports
      conjure files save 0193… --config session.toml      # all; the backends of the file are asked
    ");
}

#[test]
fn files_list() {
    assert_snapshot!(help("files list"), @"
    List them: handle, name, size, which backend made it, and where it is

    Usage: conjure files list [OPTIONS] <ID>

    Arguments:
      <ID>  The thread

    Options:
          --data-dir <DIR>  Where threads, copies of plugins and their values are kept
          --json            Print JSON, for programs
      -h, --help            Print help
      -V, --version         Print version

    Plugins:
          --plugin <FILE>     Load this plugin file; naming it says that it may run in this process
          --plugin-dir <DIR>  Look for plugins in this directory too
    ");
}
