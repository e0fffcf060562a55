//! Commands that are whole lines with a secret in them. A session file has secrets among the
//! arguments of a program and none in its command, so such a line is taken apart.

use super::own_env::ServerEnv;
use super::secret_value::holds_secret;
use super::server::{ImportResult, ImportedServer};
use super::{shell_words, variables};

/// Runs a program with variables that stand before it.
const ENV: &str = "env";

impl ImportResult {
    /// Makes a program and its first arguments of a command that is a line with a secret in it.
    /// Whether it is one; the command of any other is only its program.
    pub(crate) fn split_command(
        &mut self,
        server: &mut ImportedServer,
        own: &ServerEnv,
        command: &str,
    ) -> bool {
        let words = secret_words(command);
        let Some((program, args)) = words.split_first() else {
            return false;
        };
        let text = "its command is a whole line with a secret in it, and is taken apart into a \
                    program and its arguments";
        self.note(&server.name, text);
        server.command = Some(self.program(&server.name, program));
        let args = self.arguments(&server.name, own, args.iter().map(String::as_str));
        server.args.splice(0..0, args);
        true
    }
}

/// The words of a command that is a line with a secret in it; none where it is no such line.
fn secret_words(command: &str) -> Vec<String> {
    let is_line = command.trim().contains(char::is_whitespace);
    if !is_line || !holds_secret(&variables::with_placeholders(command, &|_| false)) {
        return Vec::new();
    }
    let by_spaces = |_| command.split_whitespace().map(str::to_owned).collect();
    let mut words = shell_words::split(command).unwrap_or_else(by_spaces);
    if words.first().is_some_and(|first| first.contains('=')) {
        words.insert(0, ENV.to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_command_that_is_a_line_with_a_secret_is_taken_apart() {
        let command = "npx server --token hunter2";
        let json = json!({ "mcpServers": { "s": { "command": command, "args": ["--quiet"] } } });
        let expected = json!({ "s": {
            "command": "npx",
            "args": ["server", "--token", { "secret": "MCP_S_TOKEN" }, "--quiet"],
        } });
        for text in [
            json.to_string(),
            format!("[mcp_servers.s]\ncommand = '{command}'\nargs = ['--quiet']"),
            format!("extensions:\n  s: {{ type: stdio, cmd: {command}, args: [--quiet] }}"),
            format!("claude mcp add s -- '{command}' --quiet"),
            format!("codex mcp add s -- '{command}' --quiet"),
        ] {
            let import = crate::read(&text).unwrap();
            assert_eq!(
                Value::Object(import.settings().unwrap()),
                expected,
                "{text}"
            );
            assert_eq!(import.secrets.len(), 1, "{text}");
            assert!(import.notes.join("\n").contains("taken apart"), "{text}");
        }
    }

    #[test]
    fn a_variable_in_the_program_of_a_line_stays_one() {
        let command = "${userHome}/s --token hunter2";
        let json = json!({ "mcpServers": { "s": { "command": command } } });
        let import = crate::read(&json.to_string()).unwrap();
        let expected = json!({ "s": {
            "command": { "expand": "${userHome}/s" },
            "args": ["--token", { "secret": "MCP_S_TOKEN" }],
        } });
        assert_eq!(Value::Object(import.settings().unwrap()), expected);
    }

    #[test]
    fn only_lines_with_secrets_are_taken_apart() {
        for command in [
            "npx",
            "npx -y server",
            "/Applications/My App/bin/server",
            "mcp-server-postgres-v2-linux-x64",
            "${userHome}/a b/server",
        ] {
            assert!(secret_words(command).is_empty(), "{command}");
        }
        for (command, apart) in [
            ("npx s --token 'a b'", "npx|s|--token|a b"),
            ("API_KEY=hunter2 npx s", "env|API_KEY=hunter2|npx|s"),
            ("npx s --token 'hunter2", "npx|s|--token|'hunter2"),
            ("npx s --token ${T}", "npx|s|--token|${T}"),
        ] {
            assert_eq!(secret_words(command).join("|"), apart, "{command}");
        }
    }
}
