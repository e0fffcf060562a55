//! Pages of help: the verbs for skills that Anthropic keeps.

use insta::assert_snapshot;

use crate::help::help;

#[test]
fn skill_upload() {
    assert_snapshot!(help("skill upload"), @"
    Upload a skill to Anthropic, after checking it

    Usage: conjure skill upload [OPTIONS] <PATH>

    Arguments:
      <PATH>  The folder or package

    Options:
          --title <TITLE>    What people call it [default: its name]
          --version-of <ID>  Make it a new version of this skill
          --data-dir <DIR>   Where threads, copies of plugins and their values are kept
          --provider <NAME>  The provider, as a session names it [default: anthropic]
          --base-url <URL>   Where the provider is, when not at its usual place
          --json             Print JSON, for programs
      -c, --config <FILE>    A session file (TOML) that describes providers
      -h, --help             Print help
      -V, --version          Print version

    Plugins:
          --plugin <FILE>     Load this plugin file; naming it says that it may run in this process
          --plugin-dir <DIR>  Look for plugins in this directory too
    ");
}

#[test]
fn skill_remote() {
    assert_snapshot!(help("skill remote"), @"
    Look at the skills that Anthropic keeps, download or delete some

    Usage: conjure skill remote [OPTIONS] <COMMAND>

    Commands:
      list      List the skills, or the versions of one
      download  Download a skill as a package; nothing is replaced
      delete    Delete skills with all their versions
      help      Print this message or the help of the given subcommand(s)

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
fn skill_remote_list() {
    assert_snapshot!(help("skill remote list"), @"
    List the skills, or the versions of one

    Usage: conjure skill remote list [OPTIONS] [ID]

    Arguments:
      [ID]  The skill whose versions to list

    Options:
          --source <SOURCE>  Only skills of this source [possible values: custom, anthropic]
          --provider <NAME>  The provider, as a session names it [default: anthropic]
          --base-url <URL>   Where the provider is, when not at its usual place
          --data-dir <DIR>   Where threads, copies of plugins and their values are kept
      -c, --config <FILE>    A session file (TOML) that describes providers
          --json             Print JSON, for programs
      -h, --help             Print help
      -V, --version          Print version

    Plugins:
          --plugin <FILE>     Load this plugin file; naming it says that it may run in this process
          --plugin-dir <DIR>  Look for plugins in this directory too
    ");
}

#[test]
fn skill_remote_delete() {
    assert_snapshot!(help("skill remote delete"), @"
    Delete skills with all their versions

    Sessions that name them are refused from then on.

    Usage: conjure skill remote delete [OPTIONS] <ID>...

    Arguments:
      <ID>...
              The skills

    Options:
          --provider <NAME>
              The provider, as a session names it
              
              [default: anthropic]

          --base-url <URL>
              Where the provider is, when not at its usual place

      -c, --config <FILE>
              A session file (TOML) that describes providers

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
