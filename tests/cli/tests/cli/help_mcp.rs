//! Pages of help: the Model Context Protocol.

use insta::assert_snapshot;

use crate::help::help;

#[test]
fn mcp() {
    assert_snapshot!(help("mcp"), @r#"
    Serve tools to MCP clients, and look after MCP servers: list, examine, import, log in

    Usage: conjure mcp [OPTIONS] <COMMAND>

    Commands:
      serve   Serve tools, resources and prompts to MCP clients
      list    List the MCP servers of a session file: how each is, and what it offers
      doctor  Start MCP servers and say what works, what does not, and what to do about it
      import  Turn the MCP servers of another program's configuration into those of a session file
      login   Log in to an MCP server over HTTP
      logout  Forget the login to an MCP server
      help    Print this message or the help of the given subcommand(s)

    Options:
          --data-dir <DIR>  Where threads, copies of plugins and their values are kept
          --json            Print JSON, for programs
      -h, --help            Print help
      -V, --version         Print version

    Plugins:
          --plugin <FILE>     Load this plugin file; naming it says that it may run in this process
          --plugin-dir <DIR>  Look for plugins in this directory too
    "#);
}

#[test]
fn mcp_serve() {
    assert_snapshot!(help("mcp serve"), @r"
    Serve tools, resources and prompts to MCP clients

    Any MCP client gets the routing table of a session: the native skills that are loaded, and with a
    session file whatever its backends offer, other MCP servers too. What a plugin directory gains or
    loses meanwhile the clients are told. Both eras of the protocol are served.

    Usage: conjure mcp serve [OPTIONS] <--stdio|--http <ADDR>>

    Options:
          --stdio
              Serve one client over standard input and output

          --http <ADDR>
              Serve many clients over HTTP at this address, such as `127.0.0.1:8931`; the endpoint is
              `/mcp`, and port 0 is any that is free

      -c, --config <FILE>
              A session file (TOML): its backends are what is served

          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --json
              Print JSON, for programs

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Tools:
          --skill <PATH>
              A skill folder or package, run through the executor

          --executor <NAME>
              The executor for command tools, such as `local`; without it there are no command tools

          --working-dir <DIR>
              Where calls work [default: the session file's, else the current directory over stdio and a
              directory of each session's own over HTTP]

          --deny <PATTERN>
              Never serve tools that fit this pattern, and never run calls that do: a tool's name,
              `backend:NAME`, or `NAME(arguments)`, with `*`

          --meta-tools <WHERE>
              Serve `search_tools`, `get_tool_details` and `call_tool`, beside the other tools or
              instead of them: for clients that never read the list again, or for whom so many cost too
              much

              Possible values:
              - beside:  The other tools are listed too
              - instead: Only these three are listed

    HTTP:
          --token-env <NAME>
              A variable of the environment that holds a token which lets a client in, beside the token
              of the user who serves. Each client with a token of its own has sessions of its own

          --allow-host <HOST>
              A name under which clients reach the server, beside this machine's: a value of `Host`

          --allow-origin <ORIGIN>
              A page that may call the server from a browser, such as `https://app.example:443`: a value
              of `Origin`

          --max-sessions <N>
              The most sessions at the same time
              
              [default: 64]

          --idle <MINUTES>
              Minutes after which a session that nobody uses is ended
              
              [default: 60]

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too

    Examples:
      conjure mcp serve --stdio
      conjure mcp serve --stdio --config session.toml --meta-tools beside
      conjure mcp serve --http 127.0.0.1:8931
      MCP_TOKEN=… conjure mcp serve --http 0.0.0.0:8931 --token-env MCP_TOKEN --allow-host box.example
    ");
}
