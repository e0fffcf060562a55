//! Pages of help: the program, and the verbs that are one word. The others are in `help_groups`.

use insta::assert_snapshot;

/// What `conjure VERB --help` prints.
pub(crate) fn help(verb: &str) -> String {
    let mut args: Vec<&str> = verb.split_whitespace().collect();
    args.push("--help");
    let output = conjure_kit::cli(args).run().unwrap();
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (Some(0), ""),
        "{verb}"
    );
    output.stdout
}

#[test]
fn help_tells_what_a_person_could_not_guess() {
    for (verb, words) in [
        ("run", "nobody is there"),
        ("chat", "/tools"),
        ("call", "no policy is asked"),
        ("routes", "Asks no model"),
        ("plugin list", "in this order"),
        ("plugin inspect", "nothing of the plugin runs"),
        ("plugin check", "Exit code"),
        ("plugin new", "--sdk"),
        ("skill", "SKILL.md"),
        ("skill validate", "Exit code"),
        ("serve", "Every client needs a token"),
        ("mcp serve", "Both eras"),
        ("mcp doctor", "Exit code 0"),
        ("mcp import", "Secrets are not written down"),
        ("mcp login", "paste the address at which it ended"),
        ("models", "`models.toml` in the data directory wins"),
        ("wire decode", "`arguments_text`"),
        ("wire encode", "--explain"),
        ("completions", "source <(conjure completions bash)"),
    ] {
        let text = help(verb).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains(words),
            "{verb} does not say {words:?}: {text}"
        );
    }
}

#[test]
fn the_program() {
    assert_snapshot!(help(""), @"
    A host for AI agents.

    One session holds one conversation with a model and gives it tools from several backends at once:
    native skills (shared libraries loaded at run time), the local shell, and whatever other plugins
    bring. The model sees one list of tools; a routing table finds who runs each call.

    Usage: conjure [OPTIONS] <COMMAND>

    Commands:
      run          Ask one question and print the answer
      chat         Hold a conversation
      call         Call one tool, without a model
      routes       Show the routing table: which tool is run by whom
      plugin       Look at plugins, check one, begin one
      skill        Look at skill folders and validate them
      mcp          Serve tools to MCP clients, and look after MCP servers: list, examine, import, log in
      docker       Build the image that the container backend works in
      doctor       Say what works on this machine, what does not, and what to do about it
      models       List models: what the providers offer, context sizes, prices
      session      Keep sessions: auth, model, directory, persona, memory, tools, and the thread they go
                   on with
      persona      Keep personas: who the model is to be, under a name that sessions choose
      thread       Look at threads and change them: list, show, cost, fork, rename, clear, export,
                   import
      serve        Serve the HTTP API
      db           Look after the database: check, back up, export, import, roll back
      files        List the files of a thread, or save copies of them
      wire         Decode a provider's reply, or encode a request, to debug a wire
      auth         Save credentials under names that sessions use, and test them
      policy       Say which calls could ask a person, before anything runs
      replay       Run a recorded thread again, offline, and name the first thing that is otherwise
      completions  Print completions for a shell
      help         Print this message or the help of the given subcommand(s)

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

    Exit codes:
      0    it worked
      1    it was done and the answer is no: a call failed, a skill is not valid, a plugin is refused
      2    wrong usage, or a session file that is not right
      3    the provider failed; the history is kept
      4    a limit ended the turn; the history is kept
      5    something of the host's own failed, such as the disk
      130  interrupted
      143  ended by SIGTERM

    Environment:
      CONJURE_PLUGIN_PATH  directories to look for plugins in, separated like PATH
      CONJURE_DATA_DIR     where threads, copies of plugins and their values are kept
                           [default: $XDG_DATA_HOME/conjure]
      CONJURE_DATABASE     where threads and what is saved are: an SQLite file, or postgres://…
                           [default: conjure.db in the data directory]
      CONJURE_KEY          the key that saved auths are encrypted with: 32 bytes in base64 or hex; while
                           it is replaced, CONJURE_OLD_KEY is the one before
      CONJURE_KEY_FILE     the file of that key [default: the keyring, else vault.key in the data
                           directory]
      CONJURE_LOG          what is logged to stderr, such as `debug` or `plugin=info` [default: warn]
      CONJURE_LOG_FORMAT   `json` for logs as JSON lines
      OTEL_EXPORTER_OTLP_ENDPOINT
                           where traces are sent (OTLP over HTTP); none are made without it
      CONJURE_TOKEN        the token that lets clients of `conjure serve` in
      CONJURE_SECRET_NAME  the secret NAME, for plugins whose manifest names it
      ANTHROPIC_API_KEY    the key for the provider `anthropic`; so for the others: OPENAI_API_KEY,
                           GEMINI_API_KEY (or GOOGLE_API_KEY), DEEPSEEK_API_KEY, MISTRAL_API_KEY,
                           OPENROUTER_API_KEY, LLAMACPP_API_KEY, OLLAMA_API_KEY,
                           OPENAI_COMPATIBLE_API_KEY
      ANTHROPIC_BASE_URL   where it is, when not at its usual place; so for the others
      HTTPS_PROXY          the proxy for requests to providers; also HTTP_PROXY, ALL_PROXY, NO_PROXY
      NO_COLOR             no colours
    ");
}

#[test]
fn run() {
    assert_snapshot!(help("run"), @r#"
    Ask one question and print the answer

    Runs the calls that the model asks for. The answer goes to stdout, what happens on the way to
    stderr. A call that does more than read asks first on a terminal; where nobody is there it is
    denied, unless `--allow` lets it run.

    Usage: conjure run [OPTIONS] [QUESTION]

    Arguments:
      [QUESTION]
              The question; `-` or nothing reads it from stdin

    Options:
      -c, --config <FILE>
              A session file (TOML); the other options here win over what it says

          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

          --session <NAME>
              Go on with a saved session (`conjure session list`), by its name or its id

          --thread <ID>
              Go on with this thread
              
              [alias: --resume]

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Model:
          --provider <NAME>
              The provider: `anthropic`, `openai`, `gemini`, `deepseek`, `mistral`, `openrouter`,
              `llamacpp`, `ollama`, `openai-compatible` (any other server, with `--base-url`), one of
              the session file's, `scripted` (a script plays the model), or `tool-walk` (calls every
              tool once)

          --auth <NAME>
              A saved auth (`conjure auth list`), which says the provider too: NAME, or
              PROVIDER/KIND/NAME

          --model <NAME>
              The model, as the provider names it

          --base-url <URL>
              Where the provider is, when not at its usual place

          --wire <WIRE>
              What the provider speaks, when not its usual wire: `anthropic`, `openai-responses`,
              `openai-chat`, `gemini`

          --dialect <NAME>
              How it speaks `openai-chat`: `openai`, `deepseek`, `mistral`, `openrouter`, `llamacpp`,
              `ollama`, `compatible`

          --script <FILE>
              The script (JSON) of the provider `scripted`

          --set <NAME=VALUE>
              A value for the script's `{{vars.NAME}}`

          --persona <TEXT>
              Who the model is to be

          --max-iterations <N>
              The most model requests a turn [default: 25]

    Tools:
          --skill <PATH>
              A skill folder or package, run through the executor

          --executor <NAME>
              The executor for skill folders and command tools, such as `local`; `none` for none
              [default: `local`, when that plugin is loaded]

          --working-dir <DIR>
              Where calls work [default: the session file's, else the current directory]

    Permissions:
          --allow <PATTERN>
              Run without asking what fits this pattern: a tool's name, `backend:NAME`, or
              `NAME(arguments)`, with `*`

          --ask <PATTERN>
              Ask before running what fits this pattern and no `--allow`

          --deny <PATTERN>
              Never run what fits this pattern; wins over the others

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too

    Examples:
      conjure run --provider anthropic --model claude-sonnet-4-5 "What is in this directory?"
      conjure run --config session.toml --allow 'log-analyzer_*' "Analyse app.log"
      conjure run --session work "Go on."                  # a saved session
      conjure run --script script.json --json "hello"     # events as JSON lines
    "#);
}

#[test]
fn chat() {
    assert_snapshot!(help("chat"), @"
    Hold a conversation

    Each line is a message. Ctrl-C ends a turn that runs, Ctrl-D the conversation. What a plugin
    directory gains or loses meanwhile is there in the next step. Lines that begin with a slash are for
    the host: `/tools` shows the routing table, `/files` the files made so far, `/model PROVIDER/MODEL`
    goes on with another model, `/help` tells the others.

    Usage: conjure chat [OPTIONS]

    Options:
      -c, --config <FILE>
              A session file (TOML); the other options here win over what it says

          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

          --session <NAME>
              Go on with a saved session (`conjure session list`), by its name or its id

          --thread <ID>
              Go on with this thread
              
              [alias: --resume]

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Model:
          --provider <NAME>
              The provider: `anthropic`, `openai`, `gemini`, `deepseek`, `mistral`, `openrouter`,
              `llamacpp`, `ollama`, `openai-compatible` (any other server, with `--base-url`), one of
              the session file's, `scripted` (a script plays the model), or `tool-walk` (calls every
              tool once)

          --auth <NAME>
              A saved auth (`conjure auth list`), which says the provider too: NAME, or
              PROVIDER/KIND/NAME

          --model <NAME>
              The model, as the provider names it

          --base-url <URL>
              Where the provider is, when not at its usual place

          --wire <WIRE>
              What the provider speaks, when not its usual wire: `anthropic`, `openai-responses`,
              `openai-chat`, `gemini`

          --dialect <NAME>
              How it speaks `openai-chat`: `openai`, `deepseek`, `mistral`, `openrouter`, `llamacpp`,
              `ollama`, `compatible`

          --script <FILE>
              The script (JSON) of the provider `scripted`

          --set <NAME=VALUE>
              A value for the script's `{{vars.NAME}}`

          --persona <TEXT>
              Who the model is to be

          --max-iterations <N>
              The most model requests a turn [default: 25]

    Tools:
          --skill <PATH>
              A skill folder or package, run through the executor

          --executor <NAME>
              The executor for skill folders and command tools, such as `local`; `none` for none
              [default: `local`, when that plugin is loaded]

          --working-dir <DIR>
              Where calls work [default: the session file's, else the current directory]

    Permissions:
          --allow <PATTERN>
              Run without asking what fits this pattern: a tool's name, `backend:NAME`, or
              `NAME(arguments)`, with `*`

          --ask <PATTERN>
              Ask before running what fits this pattern and no `--allow`

          --deny <PATTERN>
              Never run what fits this pattern; wins over the others

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too

    Examples:
      conjure chat --provider anthropic --model claude-sonnet-4-5
      conjure chat --config session.toml --thread 0193…     # go on where it ended
    ");
}

#[test]
fn call() {
    assert_snapshot!(help("call"), @r#"
    Call one tool, without a model

    Native skills are always there; with `--executor` there are its command tools too, for the skill
    folders named with `--skill`. Whoever types the call has decided about it: no policy is asked.

    Usage: conjure call [OPTIONS] <TOOL>

    Arguments:
      <TOOL>
              The tool's public name, as `conjure routes` shows it

    Options:
          --args <JSON>
              Its arguments, a JSON object
              
              [default: {}]

      -c, --config <FILE>
              A session file (TOML): the tools of all its backends can be called

          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --executor <NAME>
              The executor for command tools, such as `local`

          --json
              Print JSON, for programs

          --skill <PATH>
              A skill folder or package, run through the executor

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
      conjure call notes_search --config session.toml --args '{"query": "tea"}'
      conjure call cache-manager_execute --args '{"command": "set greeting hello"}'
      conjure call local_bash_tool --executor local --args '{"command": "ls", "description": ""}'
    "#);
}

#[test]
fn completions() {
    assert_snapshot!(help("completions"), @"
    Print completions for a shell

    For bash: `source <(conjure completions bash)`.

    Usage: conjure completions [OPTIONS] <SHELL>

    Arguments:
      <SHELL>
              The shell
              
              [possible values: bash, elvish, fish, powershell, zsh]

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
fn the_version_is_one_line() {
    let output = conjure_kit::cli(["--version"]).run().unwrap();
    let version = format!("conjure {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((output.code, output.stdout), (Some(0), version));
}

#[test]
fn a_mistake_is_told_with_the_way_out() {
    let output = conjure_kit::cli(["rnu"]).run().unwrap();
    assert_snapshot!(output.snapshot(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: unrecognized subcommand 'rnu'

    Usage: conjure [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
}
